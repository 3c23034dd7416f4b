//! A lock whose waiters stand on a stack: last come, first served.
//!
//! | word | meaning |
//! |---|---|
//! | FREE | nobody holds the lock |
//! | HELD | somebody holds it, nobody waits |
//! | an address | somebody holds it; the element on top, of whoever came last |
//!
//! | step | word | then |
//! |---|---|---|
//! | lock | FREE → HELD | has the lock |
//! | push | HELD, or the top → `e` | `e.below` is what was there; waits before its gate |
//! | free | HELD → FREE | |
//! | pop, and hand over | the top → what is below it | opens the gate of what was the top |
//!
//! **Only the holder pops.** So what it has read as the top stays in the stack, with the same below, until it pops it:
//! its compare-exchange fails only because others have pushed, and an address that is the same is the same element.
//! What the last one has below it is HELD, which is what the word must be once nobody waits.
//!
//! A push may find the address that it has read before, but of another element, pushed since from the same place on a
//! stack. That does no harm, as the address is all that it has taken from its read. But the pointer that was read would
//! be one to the element that is gone; so the word, and `below`, are addresses, exposed by the push and made pointers
//! again by the pop.
//!
//! An element lies on its waiter's stack. The holder reads `below` before it pops, and opens the gate after it; the
//! owner leaves when it is open.
//!
//! Orderings: lock is Acquire, free is Release. Push is Release, and the holder's reads of the word are Acquire: it
//! sees `below` and the gate. It sees those further down as well, since a push, and a pop too, is an RMW, and so part
//! of the release sequence of the pushes before it. A pop can therefore be Relaxed: what the holder did, its successor
//! learns at the gate, and who pushes learns nothing from the word.
//!
//! Source: ours. Dice and Kogan measure theirs beside a LIFO lock, and leave it to the reader.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::shim::{AtomicUsize, Cell};

use super::in_line;
use crate::waiting::gate::Gate;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

const FREE: usize = 0;
const HELD: usize = 1;

/// Stands on the stack of the one that waits. 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Element {
    gate: Gate,
    /// What the word was before the push: an element's address, or HELD. Written before the push.
    below: Cell<usize>,
}

/// A lock that goes to whoever came last. 8 bytes.
///
/// As unfair as a lock can be: two threads that come again at once keep all others out for ever. For the laboratory, as
/// what a measure of fairness must be able to see; and for contenders that are alike and do a bounded amount of work,
/// where the last one's caches are the warmest.
///
/// # Limits
///
/// Those of the [module](super).
///
/// # Examples
///
/// ```
/// use sudog_sync::MutexWith;
/// use sudog_locks::spin_lock::Lifo;
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
        let e = Element { gate: Gate::new(), below: Cell::new(HELD) };
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

    /// Takes the top off, which is not HELD, and hands over to it.
    #[cold]
    fn hand_over(&self, mut word: usize) {
        loop {
            let top: *const Element = ptr::with_exposed_provenance(word);
            // SAFETY: in the stack, as only we pop; so it waits before its gate, and is alive.
            let below = unsafe { (*top).below.get() };
            match self.word.compare_exchange_weak(word, below, Relaxed, Acquire) {
                // SAFETY: as above; we have popped it, so nobody else opens it.
                Ok(_) => return unsafe { Gate::open_for::<P>(&raw const (*top).gate) },
                Err(now) => word = now,
            }
        }
    }

    /// Changes as somebody joins the line. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.word.load(Relaxed) as u64
    }
}

// SAFETY: whoever takes the word from FREE has the lock, and so has the one that the holder pops; only the holder puts
// FREE there, when nobody is in the stack. The orderings are above. The holder has nothing in the stack, so the lock
// may be moved while it is held, and unlocked by another thread; those who wait borrow it.
unsafe impl<P: WaitPolicy> RawLock for Lifo<P> {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { word: AtomicUsize::new(FREE), policy: PhantomData }
    }

    #[inline]
    fn lock(&self) {
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            in_line(|| self.lock_slow());
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
