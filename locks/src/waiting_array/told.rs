//! Waiting chains that tell a woken waiter that its turn has come, so that the waiter need not read the grant. For study.
//!
//! | `DELEGATED` | a post | a woken waiter |
//! |---|---|---|
//! | false | detaches the chain, and opens the top with its grant: the semaphore's address and the tickets | passes the grant on to the waiter below; compares the grant with its ticket |
//! | true | detaches the chain, tests the turn of each waiter, opens those whose turn has come, and pushes the others back | has been told: no wake-up is in vain |
//!
//! A waiter pushes itself by a compare-exchange of the top, tests its turn once more, and waits at its gate. If the push
//! comes after the detach of a post, the push reads from the release sequence of that detach, and the test sees the grant.
//!
//! **A waiter that is pushed back misses no wake-up.** Another post, or a waiter that gives up, may have detached the chain
//! while it was empty. Each of them first adds 1 to `flushes`, then detaches. If that detach came after the poster's own
//! detach and before its push, the push acquires from it, so the poster's look at `flushes` sees the addition: either an
//! addition after the poster's, then the poster flushes the chain; or one before, then the poster has acquired from it,
//! and has seen the turn, or `leaving`, as it tested the waiter.
//!
//! **The lifetime of the semaphore.** A grant that comes along the chain names its semaphore by the address. If that
//! semaphore could be freed before the post returns, a waiter of a new semaphore at that address could take the grant for
//! its own. So without `DELEGATED` a semaphore must outlive its posts: [`TicketWait::TELLS`]. A delegated post reads the
//! turns of waiters, which keep their own semaphores alive.
//!
//! **Ordering.** The told waiter acquires from the poster alone, not from all earlier posters, as by reading the grant.
//! So each grant acquires too. A delegated post reads the grant with Acquire.
//!
//! Source: two optimisations in section 2 of the paper that have no listing. The evaluation by the waker: D. Dice and A.
//! Kogan, *Efficient condition variables via delegated condition evaluation*, 2021.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;

use sudog_runtime::Instant;
use sudog_runtime::shim::{AtomicBool, AtomicPtr, AtomicU64, Cell, Ordering, mark};

use super::hash::{MAX_BUCKETS, MixedHash, TicketHash};
use super::near::{self, Far};
use super::table::table;
use super::ticket_queue::{Outcome, Posted, TicketWait, Turn};
use crate::waiting::parker::OneShotParker;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};

/// The element of a waiter, on the stack of that waiter. The thread that has detached an element owns its cells until that
/// thread opens the gate.
#[repr(align(128))]
struct Element {
    gate: OneShotParker,
    /// The element below in the chain.
    below: Cell<*mut Element>,
    /// The grant with which the gate was opened.
    told: Cell<Option<Posted>>,
    /// True if the waiter gives up. Stored by the waiter before it flushes the chain.
    leaving: AtomicBool,
    turn: *const Turn<'static>,
}

struct Chain {
    top: AtomicPtr<Element>,
    /// The number of delegated posts, and of flushes of waiters that gave up.
    flushes: AtomicU64,
}

table!(TOLD: [Chain; MAX_BUCKETS]);
table!(DELEGATED_CHAINS: [Chain; MAX_BUCKETS]);

impl Chain {
    sudog_runtime::const_unless_model! {
        const fn new() -> Self {
            Self { top: AtomicPtr::new(ptr::null_mut()), flushes: AtomicU64::new(0) }
        }
    }

    /// Pushes the elements from `first` down to `last`.
    ///
    /// # Safety
    ///
    /// The elements are linked by `below` and alive until their gates are open; the caller owns their cells.
    unsafe fn push(&self, first: *mut Element, last: *mut Element) {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: by the contract of `push`, `last` is alive, and this thread owns its cells until the exchange below.
            unsafe { (*last).below.set(top) };
            // Release: the thread that detaches the chain sees the elements. Acquire: see the head of this file.
            match self.top.compare_exchange_weak(top, first, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Detaches the chain. Release: a later push sees this thread's earlier writes. Acquire: this thread sees the elements.
    fn detach(&self) -> *mut Element {
        self.top.swap(ptr::null_mut(), Ordering::AcqRel)
    }

    /// Wakes the waiters of the chain, from waiter to waiter. `posted` goes along.
    fn wake(&self, posted: Option<Posted>) {
        // SAFETY: this thread has detached the chain, so no other thread opens its top.
        unsafe { open(self.detach(), posted) };
    }

    /// Wakes all waiters of the chain, which then look at the grant.
    fn flush(&self) {
        self.flushes.fetch_add(1, Ordering::AcqRel);
        self.wake(None);
    }

    /// Wakes the waiters of the chain whose turn has come.
    fn wake_those_whose_turn_has_come(&self) {
        let mine = self.flushes.fetch_add(1, Ordering::AcqRel) + 1;
        let mut e = self.detach();
        let (mut first, mut last) = (ptr::null_mut::<Element>(), ptr::null_mut::<Element>());
        while !e.is_null() {
            // SAFETY: this thread has detached `e`, whose gate is shut, so `e` and the turn of its waiter are alive.
            let (below, outcome, leaves) =
                unsafe { ((*e).below.get(), (*(*e).turn).outcome(), (*e).leaving.load(Ordering::Relaxed)) };
            if outcome.is_some() || leaves {
                if outcome.is_none() {
                    mark("a post opens the gate of a waiter that gives up");
                }
                // SAFETY: this thread has detached `e`, so it owns its cells, and no other thread opens the gate. A null
                // `below` tells the waiter to open no other gate.
                unsafe {
                    (*e).below.set(ptr::null_mut());
                    let granted = outcome == Some(Outcome::Granted);
                    open(e, granted.then(|| (*(*e).turn).as_posted()));
                }
            } else if last.is_null() {
                (first, last) = (e, e);
            } else {
                // SAFETY: this thread has detached `last`, and has not opened its gate.
                unsafe { (*last).below.set(e) };
                last = e;
            }
            e = below;
        }
        if last.is_null() {
            return;
        }
        mark("a post pushes waiters back");
        // SAFETY: this thread has detached the elements from `first` to `last`, linked them, and opened none of them.
        unsafe { self.push(first, last) };
        if self.flushes.load(Ordering::Relaxed) != mine {
            mark("a post flushes what it has pushed back");
            self.flush();
        }
    }

    /// Waits in the chain until the turn has come (true), or until the deadline (false).
    fn wait<P: WaitPolicy>(&self, turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        loop {
            let e = Element {
                gate: OneShotParker::new(),
                below: Cell::new(ptr::null_mut()),
                told: Cell::new(None),
                leaving: AtomicBool::new(false),
                turn: (&raw const *turn).cast(),
            };
            let pushed = Pushed { chain: self, e: &e };
            let me = (&raw const e).cast_mut();
            // SAFETY: `e` is new, and the drop of `pushed` returns only after the gate of `e` is open.
            unsafe { self.push(me, me) };
            let come = turn.has_come();
            let woken = !come && e.gate.wait::<P>(deadline);
            drop(pushed);
            if come || e.told.get().is_some_and(|posted| turn.is_told(posted)) {
                return true;
            }
            if !woken {
                return turn.has_come();
            }
        }
    }
}

/// Opens the gate of an element, unless `e` is null. The element may be freed afterwards.
///
/// # Safety
///
/// `e` is null, or alive; the caller owns its cells, and no other thread opens the gate.
unsafe fn open(e: *mut Element, posted: Option<Posted>) {
    if !e.is_null() {
        // SAFETY: by the contract of `open`.
        unsafe {
            (*e).told.set(posted);
            OneShotParker::open(&raw const (*e).gate);
        }
    }
}

/// An element that is in the chain, or has been detached. The drop waits until its gate is open, and opens the gate below.
struct Pushed<'a> {
    chain: &'a Chain,
    e: &'a Element,
}

impl Drop for Pushed<'_> {
    fn drop(&mut self) {
        if !self.e.gate.is_open() {
            // The flush releases this store to the poster that holds the element.
            self.e.leaving.store(true, Ordering::Relaxed);
            self.chain.flush();
            self.e.gate.wait::<SpinThenPark>(None);
        }
        // SAFETY: the element below was detached together with `e`, and the thread that opened the gate of `e` left that
        // element to this thread.
        unsafe { open(self.e.below.get(), self.e.told.get()) };
    }
}

/// The protocol of waiting chains, in which woken waiters are told of their turn: a grant goes along the chain, or, with
/// `DELEGATED`, the poster tests the turns of the waiters.
///
/// # Examples
///
/// ```
/// use sudog::locks::waiting_array::{MixedHash, SpinThenPark, TicketSema, ToldWait};
///
/// let told = TicketSema::<ToldWait>::with_permits(1);
/// let delegated = TicketSema::<ToldWait<SpinThenPark, MixedHash, true>>::with_permits(1);
/// # told.acquire_many(1).unwrap();
/// # delegated.acquire_many(1).unwrap();
/// ```
#[derive(Debug)]
pub struct ToldWait<P = SpinThenPark, H = MixedHash, const DELEGATED: bool = false>(PhantomData<(P, H)>);

impl<P, H: TicketHash, const DELEGATED: bool> ToldWait<P, H, DELEGATED> {
    fn chain(bucket: usize) -> &'static Chain {
        if DELEGATED { &DELEGATED_CHAINS[bucket] } else { &TOLD[bucket] }
    }
}

// SAFETY: `wait` returns true only when the turn has come: a waiter that is told by the semaphore's address is told by a
// post of its own semaphore, as that semaphore outlives its posts. A wake detaches the chain of the ticket, and the head of
// this file argues that each waiter of the chain whose turn has come is woken, or sees the grant. The semaphore's address is
// only a number.
unsafe impl<P: WaitPolicy, H: TicketHash, const DELEGATED: bool> TicketWait for ToldWait<P, H, DELEGATED> {
    const NEAR: u32 = 0;

    const LOOKS_AT_TICKETS: Option<u64> = None;

    const TELLS: bool = !DELEGATED;

    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        Self::chain(H::bucket(turn.sema(), turn.ticket()) % H::BUCKETS).wait::<Far<P>>(turn, deadline)
    }

    #[inline]
    fn wake(sema: usize, granted: Range<u64>) {
        let posted = Posted { sema, end: granted.end };
        near::wake::<P, 0, H>(sema, granted, |bucket| match DELEGATED {
            true => Self::chain(bucket).wake_those_whose_turn_has_come(),
            false => Self::chain(bucket).wake(Some(posted)),
        });
    }

    fn wake_closed(sema: usize, tickets: Range<u64>) {
        near::wake::<P, 0, H>(sema, tickets, |bucket| Self::chain(bucket).flush());
    }
}
