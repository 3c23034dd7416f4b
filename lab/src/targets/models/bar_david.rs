//! Bar-David's transformation: any deadlock-free lock becomes one in which no contender is overtaken without bound.
//!
//! | step | by | action |
//! |---|---|---|
//! | announce | contender | raises the flag of its number |
//! | wait | contender | until `turn` is its number, or the flag of `turn` is down |
//! | lock | contender | locks the inner lock |
//! | release | owner | lowers its flag; if the flag of `turn` is down, `turn` goes to the next number; unlocks the inner lock |
//!
//! Say contender *i* has raised its flag. While `turn` is at another number with its flag up, no contender starts to lock
//! but that one: those that were past the wait before lock once each, and the one at `turn` has the lock, as the inner lock is
//! free of deadlocks. Then `turn` goes on. After at most as many steps as there are numbers it is *i*, and stays. For each of *n*
//! values of `turn` fewer than *n* others overtake *i*, and one more where the flag is down: at most n² - 1 in all.
//!
//! A number belongs to a thread, the least that is free when it first locks such a lock; a thread gives it back as it ends. A
//! flag is a counter here, as the goroutines of a worker share a number, and so do threads beyond 256: the transformation's is a plain
//! register, as is `turn`, which owners alone write.
//!
//! Source: Y. Bar-David, 1998, as in M. Raynal, *Concurrent Programming: Algorithms, Principles, and Foundations*, 2.2.2; the
//! bound: arXiv 2606.19003.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::system::{self, thread_local};
use sudog_runtime::shim::{AtomicU32, AtomicUsize};
use sudog_runtime::spin;
use sudog_sync::RawLock;

const NUMBERS: usize = 256;

/// Numbers of threads that have ended, and the least that no thread has had.
static FREE: system::Mutex<(BinaryHeap<Reverse<usize>>, usize)> = system::Mutex::new((BinaryHeap::new(), 0));

struct Number(usize);

thread_local! {
    static NUMBER: Number = Number::take();
}

impl Number {
    fn take() -> Self {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let (returned, next) = &mut *free;
        Self(returned.pop().map_or_else(
            || {
                *next += 1;
                *next - 1
            },
            |Reverse(number)| number,
        ))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).0.push(Reverse(self.0));
    }
}

/// A lock in Bar-David's transformation.
#[derive(Debug)]
pub struct BarDavid<L> {
    inner: L,
    turn: CachePadded<AtomicUsize>,
    /// One more than the largest number that a contender had: `turn` goes round among these.
    n: CachePadded<AtomicUsize>,
    flags: Box<[CachePadded<AtomicU32>]>,
}

impl<L> BarDavid<L> {
    fn may_go(&self, me: usize) -> bool {
        let turn = self.turn.load(Acquire);
        turn == me || self.flags[turn].load(SeqCst) == 0
    }

    /// Raises the caller's flag.
    fn announce(&self) -> usize {
        let me = NUMBER.with(|number| number.0) % NUMBERS;
        if self.n.load(Relaxed) <= me {
            self.n.fetch_max(me + 1, Relaxed);
        }
        // SeqCst, as its load: of two contenders that raise their flags and look at the other's, one sees it.
        self.flags[me].fetch_add(1, SeqCst);
        me
    }
}

// SAFETY:
// - the inner lock keeps these promises;
// - `turn` and the flags decide only when a contender goes there;
// - a forgotten guard leaves the inner lock locked.
unsafe impl<L: RawLock> RawLock for BarDavid<L> {
    /// The contender's number, and the inner lock's guard.
    type Guard = (usize, L::Guard);

    const DEADLINES: bool = false;

    fn new() -> Self {
        let flags = (0..NUMBERS).map(|_| CachePadded::new(AtomicU32::new(0))).collect();
        let zero = || CachePadded::new(AtomicUsize::new(0));
        Self { inner: L::new(), turn: zero(), n: zero(), flags }
    }

    fn lock(&self) -> Self::Guard {
        let me = self.announce();
        while !self.may_go(me) {
            spin::do_spin(1);
        }
        (me, self.inner.lock())
    }

    fn try_lock(&self) -> Option<Self::Guard> {
        let me = self.announce();
        let guard = if self.may_go(me) { self.inner.try_lock() } else { None };
        if guard.is_none() {
            self.flags[me].fetch_sub(1, Release);
        }
        guard.map(|guard| (me, guard))
    }

    unsafe fn unlock(&self, (me, guard): Self::Guard) {
        self.flags[me].fetch_sub(1, Release);
        let turn = self.turn.load(Relaxed);
        if self.flags[turn].load(Acquire) == 0 {
            self.turn.store((turn + 1) % self.n.load(Relaxed), Release);
        }
        // SAFETY: it came from the inner lock of this lock, on this thread, by the contract.
        unsafe { self.inner.unlock(guard) };
    }

    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}
