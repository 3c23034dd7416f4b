//! A lock whose waiters form a stack: last come, first served.
//!
//! | word | meaning |
//! |---|---|
//! | FREE | the lock is free |
//! | HELD | the lock is held, without waiters |
//! | an address | the lock is held; the address is that of the top element, which belongs to the waiter that came last |
//!
//! | step | word | then |
//! |---|---|---|
//! | lock | FREE → HELD | has the lock |
//! | push | HELD, or the top → `e` | `e.below` is the old word; waits at the gate of `e` |
//! | free | HELD → FREE | |
//! | pop, and hand over | the top → the element below it | opens the gate of the old top |
//!
//! **Only the owner pops.** So the element that the owner has read as the top stays in the stack, with the same
//! `below`, until the owner pops that element: the owner's compare-exchange fails only because other threads have
//! pushed, and the same address means the same element. The bottom element has HELD below it, which is the word's value
//! when there is no waiter.
//!
//! A push may find the address that it has read before, although that element has been popped, and another element has
//! been pushed from the same place on a stack. That does no harm, as the push has taken only the address from its read.
//! But a pointer that was read would point to the old element. So the word, and `below`, are addresses: the push
//! exposes an address, and the pop makes a pointer from the address.
//!
//! An element is on the stack of its waiter. The owner reads `below` before it pops the element, and opens the gate
//! after the pop; the waiter leaves when the gate is open.
//!
//! Orderings: lock is Acquire, free is Release. Push is Release, and the owner's reads of the word are Acquire: so the
//! owner sees `below` and the gate of the top. The owner sees those of the elements below as well, since a push, and a
//! pop too, is an RMW, and so part of the release sequence of the earlier pushes. A pop can therefore be Relaxed: the
//! next owner gets the owner's writes through the gate, and a push takes nothing from the word but the address.
//!
//! Source: this project's own. Dice and Kogan measure their lock beside a LIFO lock, and give no listing of the latter.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::shim::{AtomicUsize, Cell};

use super::without_unwinding;
use crate::waiting::parker::OneShotParker;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

const FREE: usize = 0;
const HELD: usize = 1;

/// The element of a waiter, on the stack of that waiter. Aligned to 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Element {
    gate: OneShotParker,
    /// The word before the push: an element's address, or HELD. Written by the waiter before the push.
    below: Cell<usize>,
}

/// A lock that goes to the last arrival. 8 bytes.
///
/// This lock is as unfair as a lock can be: two threads that relock at once keep all others out for ever. For the
/// laboratory, to test measures of fairness; and for contenders that are alike and do a bounded amount of work, where
/// the caches of the last contender are the warmest.
///
/// # Limits
///
/// The limits of the [module](super).
///
/// # Examples
///
/// ```
/// use sudog::sync::MutexWith;
/// use sudog::locks::spin_lock::Lifo;
///
/// static WORK: MutexWith<Lifo, Vec<u32>> = MutexWith::new(Vec::new());
/// WORK.lock().push(1);
/// ```
pub struct Lifo<P = SpinThenPark> {
    word: AtomicUsize,
    policy: PhantomData<P>,
}

impl<P: WaitPolicy> Lifo<P> {
    #[cold]
    fn lock_slow(&self) {
        let e = Element { gate: OneShotParker::new(), below: Cell::new(HELD) };
        let mut word = self.word.load(Relaxed);
        loop {
            let (new, success) = if word == FREE {
                (HELD, Acquire)
            } else {
                e.below.set(word);
                ((&raw const e).expose_provenance(), Release)
            };
            match self.word.compare_exchange_weak(word, new, success, Relaxed) {
                Ok(FREE) => return,
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        e.gate.wait::<P>(None);
    }

    /// Pops the top element, whose address is in `word`, and hands the lock over to the waiter of that element. `word`
    /// is not HELD.
    #[cold]
    fn hand_over(&self, mut word: usize) {
        loop {
            let top: *const Element = ptr::with_exposed_provenance(word);
            // SAFETY: `top` is in the stack, as only this owner pops; so its waiter waits at its gate, and `top` is
            // alive.
            let below = unsafe { (*top).below.get() };
            match self.word.compare_exchange_weak(word, below, Relaxed, Acquire) {
                // SAFETY: `top` is alive, as its waiter waits at its gate; this owner popped `top`, so no other thread
                // opens the gate.
                Ok(_) => return unsafe { OneShotParker::open_for::<P>(&raw const (*top).gate) },
                Err(now) => word = now,
            }
        }
    }

    /// Returns a value that changes when a contender joins the queue. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.word.load(Relaxed) as u64
    }
}

// SAFETY: a thread gets the lock by changing the word from FREE, or when the owner pops that thread's element. Only the
// owner writes FREE, when the stack is empty. The module's comment argues the orderings. The owner has no element in
// the stack, so the lock may be moved while it is held, and unlocked by another thread; waiters borrow the lock.
unsafe impl<P: WaitPolicy> RawLock for Lifo<P> {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { word: AtomicUsize::new(FREE), policy: PhantomData }
    }

    #[inline]
    fn lock(&self) {
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            without_unwinding(|| self.lock_slow());
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok().then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        if let Err(top) = self.word.compare_exchange(HELD, FREE, Release, Acquire) {
            self.hand_over(top);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}

#[cfg(not(sudog_loom))]
impl<P: WaitPolicy> sudog_sync::ConstRawLock for Lifo<P> {
    const INIT: Self = Self { word: AtomicUsize::new(FREE), policy: PhantomData };
}

impl<P> fmt::Debug for Lifo<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Relaxed);
        f.debug_struct("Lifo")
            .field("locked", &(word != FREE))
            .field("waiters", &!matches!(word, FREE | HELD))
            .finish_non_exhaustive()
    }
}
