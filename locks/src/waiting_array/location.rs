//! Waiting in two steps: the first call enlists the waiter at a location, and returns; the second call waits. And a
//! semaphore that uses these two steps.
//!
//! | call | the waiter's element is | action |
//! |---|---|---|
//! | [`LocationWaiter::wait`]`(a)` | at no location | enlists the element at `a`, returns: test the condition again |
//! | | at `a` | waits until the element is woken; then the element is at no location |
//! | | at another location | removes the element there: wakes all waiters of that location, waits until the element itself is woken; then continues as if the element were at no location |
//! | [`location_wake_all`]`(a)` | | detaches the whole chain of `a`, and wakes its elements one after another |
//!
//! Between the two calls the caller tests its condition, so the test comes after the enlisting. If the condition is
//! true the element stays at its location: no waiter waits with this element, and the next wake of that location
//! removes it. So an element is linked for longer than any call lasts, and its memory must stay: **elements come from a
//! pool and are never freed.** In the listing, elements are thread-local, and the thread's destructor has to remove
//! them. In Rust a thread may end without its destructors, and would leave a chain that leads into freed memory. In
//! addition, all goroutines of a worker would share one thread-local element. In this file an element that is still
//! linked goes back to the pool without being removed; its next user detects the link.
//!
//! An element without a waiter cannot pass a wake-up on. So the waker walks the chain, and must be able to read the
//! chain. Therefore each element has a field `below`, which is written before the push; the push is a load and a
//! compare-exchange. A waker's time grows with the chain, which may contain elements without waiters.
//!
//! If an element is at another location than its next user needs, removing the element costs the waiters there a futile
//! wake-up. In the semaphore each wait is at another location, so with few elements and no collisions such removals are
//! the rule. The pool therefore gives out an element that is at no location, if there is such an element among the last
//! three elements that came back to the pool.
//!
//! Source: listing 5, *LocationWait*. The listing's conservative post wakes a ticket other than the granted ticket.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;

use sudog_runtime::Instant;
use sudog_runtime::shim::{AtomicPtr, AtomicUsize, Cell, Mutex, Ordering};

use super::hash::{MAX_BUCKETS, MixedHash, TicketHash, fibonacci};
use super::near::{self, Far};
use super::pop_stack::Waited;
use super::table::table;
use super::ticket_queue::{TicketWait, Turn};
use super::ticket_sema::TicketSema;
use crate::waiting::parker::OneShotParker;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};

/// The element of a waiter, which is never freed.
#[repr(align(128))]
struct Element {
    gate: OneShotParker,
    below: AtomicPtr<Element>,
    /// The index, plus one, of the location where the element was enlisted, until the user sees that the element has
    /// been woken. Written by the user of the element only.
    place: AtomicUsize,
    /// The next element of the pool. Changed under the pool's lock.
    free: Cell<Option<&'static Element>>,
}

struct Location {
    top: AtomicPtr<Element>,
}

table!(LOCATIONS: [Location; MAX_BUCKETS]);

const NOWHERE: usize = 0;

/// The number of elements of the pool among which a new waiter chooses.
const CHOICES: usize = 3;

/// Wakes all waiters of this location, and removes all elements from this location, also those without a waiter.
///
/// A location is an address, as a number. Different locations may share a chain, so some waiters may be woken in vain.
/// The woken waiters see the caller's earlier writes. A goroutine that has run for long yields in this call, after the
/// last wake-up.
///
/// # Examples
///
/// See [`LocationWaiter`].
pub fn location_wake_all(location: usize) {
    LOCATIONS[fibonacci(location, MAX_BUCKETS)].wake_all();
    sudog_runtime::safepoint();
}

/// Calls [`LocationWaiter::wait`].
///
/// # Examples
///
/// See [`LocationWaiter`].
pub fn location_wait(waiter: &mut LocationWaiter, location: usize) {
    waiter.wait(location);
}

/// A waiter at locations, one location at a time.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use sudog::locks::waiting_array::{LocationWaiter, location_wake_all};
///
/// static OPEN: AtomicBool = AtomicBool::new(false);
/// const HERE: usize = 42;
///
/// let t = std::thread::spawn(|| {
///     let mut waiter = LocationWaiter::new();
///     while !OPEN.load(Ordering::Acquire) {
///         waiter.wait(HERE);
///     }
/// });
/// OPEN.store(true, Ordering::Release);
/// location_wake_all(HERE);
/// t.join().unwrap();
/// ```
#[derive(Debug)]
pub struct LocationWaiter {
    element: &'static Element,
    /// True before the first call. An earlier user may have left the element enlisted at the location of the first
    /// call. That call returns all the same: the caller may have tested its condition before the call, and must test
    /// the condition again before a wait.
    fresh: bool,
}

impl LocationWaiter {
    /// Takes an element of the pool; allocates an element if the pool is empty.
    #[must_use]
    pub fn new() -> Self {
        Self::of_the_first(CHOICES)
    }

    /// Takes an element of the pool that is at no location, if there is one among the first `choices`.
    fn of_the_first(choices: usize) -> Self {
        let element = with_pool(|pool| pool.take(choices));
        Self { element: element.unwrap_or_else(Element::leak), fresh: true }
    }

    /// Enlists the waiter at `location` and returns, if the waiter is not enlisted there. If the waiter is enlisted
    /// there, waits until the location is woken; returns at once if the location has been woken since the waiter
    /// enlisted. Call this method in a loop, with a test of the condition in between.
    ///
    /// A call for another location takes the waiter from the old location, enlists the waiter at the new location, and
    /// returns.
    pub fn wait(&mut self, location: usize) {
        self.wait_at::<SpinThenPark, false>(fibonacci(location, MAX_BUCKETS), None);
    }

    /// Waits as [`LocationWaiter::wait`] does, with a deadline. Returns false if the deadline passed; then the waiter
    /// stays enlisted.
    pub fn wait_until(&mut self, location: usize, deadline: Instant) -> bool {
        self.wait_at::<SpinThenPark, false>(fibonacci(location, MAX_BUCKETS), Some(deadline))
    }

    fn wait_at<P: WaitPolicy, const GUESSES: bool>(&mut self, index: usize, deadline: Option<Instant>) -> bool {
        let e = self.element;
        let fresh = std::mem::take(&mut self.fresh);
        let place = e.place.load(Ordering::Relaxed);
        if place == index + 1 {
            if fresh {
                return true;
            }
            let woken = e.gate.wait::<P>(deadline);
            if woken {
                e.place.store(NOWHERE, Ordering::Relaxed);
            }
            return woken;
        }
        if place != NOWHERE {
            if !e.gate.is_open() {
                LOCATIONS[place - 1].wake_all();
                // Wait until the gate is open. Either this call has opened the gate, or another thread has detached the
                // chain before and is on its way down to this element.
                e.gate.wait::<SpinThenPark>(None);
            }
            e.place.store(NOWHERE, Ordering::Relaxed);
        }
        LOCATIONS[index].enlist::<GUESSES>(e);
        e.place.store(index + 1, Ordering::Relaxed);
        true
    }
}

impl Default for LocationWaiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for LocationWaiter {
    /// Returns the element to the pool. The element may still be enlisted.
    fn drop(&mut self) {
        with_pool(|pool| pool.give(self.element));
    }
}

impl std::fmt::Debug for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Element").field("place", &self.place.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}

impl Location {
    sudog_runtime::const_unless_model! {
        const fn new() -> Self {
            Self { top: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Puts an element on top of the chain. With `GUESSES`, takes the chain to be empty at first, and does not read it.
    fn enlist<const GUESSES: bool>(&self, e: &'static Element) {
        e.gate.shut();
        let me = (&raw const *e).cast_mut();
        let mut top = if GUESSES { ptr::null_mut() } else { self.top.load(Ordering::Relaxed) };
        loop {
            e.below.store(top, Ordering::Relaxed);
            // Release: the thread that detaches the chain sees this gate and `below`. Acquire: if the chain was
            // detached before, this thread sees that waker's earlier writes. The top may be the same element as before,
            // but in a new chain. That does no harm: `below` still points to the element below.
            match self.top.compare_exchange_weak(top, me, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    #[inline]
    fn wake_all(&self) {
        let mut e = self.top.swap(ptr::null_mut(), Ordering::AcqRel).cast_const();
        while !e.is_null() {
            // SAFETY: `e` is alive, as elements are never freed. Until the gate of `e` is open, `e` is in the chain
            // that this thread detached, and `below` is not written; only this thread opens that gate.
            unsafe {
                let below = (*e).below.load(Ordering::Relaxed);
                OneShotParker::open(&raw const (*e).gate);
                e = below;
            }
        }
    }
}

/// The unused elements. An unused element may still be enlisted.
struct Pool(Option<&'static Element>);

impl Pool {
    /// Takes an element that is at no location, if there is such an element among the first `choices`. Otherwise takes the
    /// first element.
    fn take(&mut self, choices: usize) -> Option<&'static Element> {
        let mut before: Option<&'static Element> = None;
        let mut at = self.0?;
        for _ in 0..choices {
            let next = at.free.get();
            if at.place.load(Ordering::Relaxed) == NOWHERE || at.gate.is_open() {
                match before {
                    Some(before) => before.free.set(next),
                    None => self.0 = next,
                }
                return Some(at);
            }
            let Some(next) = next else { break };
            before = Some(at);
            at = next;
        }
        let first = self.0?;
        self.0 = first.free.get();
        Some(first)
    }

    fn give(&mut self, e: &'static Element) {
        e.free.set(self.0);
        self.0 = Some(e);
    }
}

impl Element {
    #[cold]
    fn leak() -> &'static Self {
        Box::leak(Box::new(Self {
            gate: OneShotParker::new(),
            below: AtomicPtr::new(ptr::null_mut()),
            place: AtomicUsize::new(NOWHERE),
            free: Cell::new(None),
        }))
    }
}

// SAFETY: the gate's `sleeper` is written by the only user, and read by the opener once the gate is PARKED; `free` is
// touched under the pool's lock. The other fields are atomic.
unsafe impl Sync for Element {}

#[cfg(not(sudog_loom))]
fn with_pool<R>(f: impl FnOnce(&mut Pool) -> R) -> R {
    static POOL: Mutex<Pool> = Mutex::new(Pool(None));
    f(&mut POOL.lock())
}

#[cfg(sudog_loom)]
fn with_pool<R>(f: impl FnOnce(&mut Pool) -> R) -> R {
    loom::lazy_static! { static ref POOL: Mutex<Pool> = Mutex::new(Pool(None)); }
    f(&mut POOL.lock())
}

/// The protocol of listing 5 of Dice and Kogan's paper: waiters enlist at a location. See [`TwaLocation`].
#[derive(Debug)]
pub struct LocationWait<
    P = SpinThenPark,
    const NEAR: u32 = 1,
    H = MixedHash,
    const GUESSES: bool = false,
    const CHOOSES: bool = true,
>(PhantomData<(P, H)>);

/// The semaphore whose waiters enlist at locations: listing 5 of Dice and Kogan's paper.
///
/// `NEAR` is the number of waiters at the front of the queue that poll the grant before they sleep. In the listing this
/// number is 0, or 1 if the listing's conservative post is used.
///
/// For study: with `GUESSES` a waiter takes its location to be empty, and enlists by a compare-exchange that reads nothing
/// before; without `CHOOSES` a waiter uses the element that came back to the pool last, enlisted or not.
///
/// The semaphore must stay alive until each post has returned: see [`TicketSema::OUTLIVES_GRANT`].
///
/// # Examples
///
/// ```
/// use sudog::locks::waiting_array::TwaLocation;
///
/// static SLOTS: TwaLocation = TwaLocation::new(2);
/// SLOTS.acquire_many(1).unwrap();
/// ```
pub type TwaLocation<
    P = SpinThenPark,
    const NEAR: u32 = 1,
    H = MixedHash,
    const GUESSES: bool = false,
    const CHOOSES: bool = true,
> = TicketSema<LocationWait<P, NEAR, H, GUESSES, CHOOSES>>;

// SAFETY: `wait` returns true only when the turn has come. A waiter checks its turn after each enlisting; a wake
// detaches the chain of the ticket's location after the turn has come. Either the wake finds the waiter enlisted, or
// the waiter's push comes after the wake and reads from it, so the waiter's check sees the turn. The semaphore's
// address is only hashed.
unsafe impl<P: WaitPolicy, const NEAR: u32, H: TicketHash, const GUESSES: bool, const CHOOSES: bool> TicketWait
    for LocationWait<P, NEAR, H, GUESSES, CHOOSES>
{
    const NEAR: u32 = NEAR;

    const LOOKS_AT_TICKETS: Option<u64> = Some(near::needs_no_wake::<P, NEAR>());

    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        let index = H::bucket(turn.sema(), turn.ticket()) % H::BUCKETS;
        let mut waiter = None;
        let new = || LocationWaiter::of_the_first(if CHOOSES { CHOICES } else { 1 });
        // The first call enlists, so the turn is checked once more before the second call.
        let wait = |()| match waiter.get_or_insert_with(new).wait_at::<Far<P>, GUESSES>(index, deadline) {
            true => Waited::Woken,
            false => Waited::TimedOut,
        };
        near::wait::<P, NEAR, _>(turn, deadline, || (), wait)
    }

    #[inline]
    fn wake(sema: usize, granted: Range<u64>) {
        near::wake::<P, NEAR, H>(sema, granted, |bucket| LOCATIONS[bucket].wake_all());
    }
}
