//! A lock whose waiters form a stack: last come, first served.
//!
//! | word | meaning |
//! |---|---|
//! | FREE | the lock is free |
//! | HELD | the lock is held, without waiters |
//! | an address | the lock is held; the top element, of the waiter that came last |
//!
//! | step | word | then |
//! |---|---|---|
//! | lock | FREE → HELD | has the lock |
//! | push | HELD, or the top → `e` | `e.below` is the old word; waits at its gate |
//! | free | HELD → FREE | |
//! | pop, and hand over | the top → the element below it | opens the gate of the old top |
//!
//! **Only the owner pops.** So the element that it has read as the top stays in the stack, with the same `below`, until
//! the owner pops it: its compare-exchange fails only because others have pushed, and an address that is the same is
//! the same element. The bottom element has HELD below it, which is the word's value when there is no waiter.
//!
//! A push may find the address that it has read before, but of another element, pushed since from the same place on a
//! stack. That does no harm, as the push has taken only the address from its read. But the pointer that was read would
//! be one to the old element; so the word, and `below`, are addresses, exposed by the push and made pointers again by
//! the pop.
//!
//! An element is on its waiter's stack. The owner reads `below` before it pops, and opens the gate after it; the waiter
//! leaves when it is open.
//!
//! Orderings: lock is Acquire, free is Release. Push is Release, and the owner's reads of the word are Acquire: it sees
//! `below` and the gate. It sees those of the elements below as well, since a push, and a pop too, is an RMW, and so
//! part of the release sequence of the earlier pushes. A pop can therefore be Relaxed: its successor gets the owner's
//! writes through the gate, and a push takes nothing from the word but the address.
//!
//! Source: this project's. Dice and Kogan measure theirs beside a LIFO lock, without a listing.

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

/// On the stack of the waiter. 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Element {
    gate: OneShotParker,
    /// The word before the push: an element's address, or HELD. Written before the push.
    below: Cell<usize>,
}

/// A lock that goes to the last arrival. 8 bytes.
///
/// As unfair as a lock can be: two threads that relock at once keep all others out for ever. For the laboratory, to
/// test measures of fairness; and for contenders that are alike and do a bounded amount of work, where the last one's
/// caches are the warmest.
///
/// # Limits
///
/// Those of the [module](super).
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

    /// Pops the top, which is not HELD, and hands over to it.
    #[cold]
    fn hand_over(&self, mut word: usize) {
        loop {
            let top: *const Element = ptr::with_exposed_provenance(word);
            // SAFETY: in the stack, as only this owner pops; so it waits at its gate, and is alive.
            let below = unsafe { (*top).below.get() };
            match self.word.compare_exchange_weak(word, below, Relaxed, Acquire) {
                // SAFETY: as above; it is popped, so no other thread opens it.
                Ok(_) => return unsafe { OneShotParker::open_for::<P>(&raw const (*top).gate) },
                Err(now) => word = now,
            }
        }
    }

    /// Changes when a contender joins the queue. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.word.load(Relaxed) as u64
    }
}

// SAFETY: the thread that changes the word from FREE has the lock, and so has the waiter that the owner pops; only the
// owner writes FREE, when the stack is empty. The orderings are above. The owner has no element in the stack, so the
// lock may be moved while it is held, and unlocked by another thread; waiters borrow it.
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
