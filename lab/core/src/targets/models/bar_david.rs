//! Bar-David's transformation: any deadlock-free lock becomes one in which no contender is overtaken without bound.
//!
//! | step | by | action |
//! |---|---|---|
//! | announce | contender | raises the flag of its number |
//! | wait | contender | waits until `turn` is its number, or the flag of `turn` is down |
//! | lock | contender | locks the inner lock |
//! | release | owner | lowers the flag of its number; if `turn` is that number or the flag of `turn` is down, `turn` goes to the next number; unlocks the inner lock |
//!
//! # The bound
//!
//! Each of *n* contenders has a number. Contender *i* has raised its flag. Each release finds `turn` at a number *t*.
//!
//! - The flag of *t* is down: `turn` goes on.
//! - The flag of *t* is up: each contender that starts to wait stays there until *t* releases. A contender whose
//!   release leaves `turn` at *t* starts to wait again, so that contender acquires once at most. The inner lock is free
//!   of deadlocks, so *t* acquires as well. At most *n* - 1 contenders acquire before `turn` goes on.
//!
//! `turn` is *i* after at most *n* - 1 such changes, and stays until *i* releases; each of the others then acquires
//! once more at most. Others overtake *i* at most (*n* - 1)² + *n* - 1 = *n*(*n* - 1) times. The program
//! `model-bar-david-bound` of the exploration asserts this.
//!
//! # Orderings
//!
//! The inner lock provides exclusion; `turn` and the flags decide only when a contender goes to the inner lock.
//!
//! - `turn`: only owners write `turn`, under the inner lock, so a relaxed load of an owner reads the last value.
//! - `n`, the largest number that a contender has had, plus 1: a contender first raises `n` above its own number, then
//!   raises its flag with Release. An owner loads the flag with Acquire. So an owner that sees a raised flag also sees
//!   an `n` above that flag's number, and `turn` can get to that number.
//! - A contender loads `turn` with Acquire, and so does not miss a flag that was seen by the owner that set `turn`.
//! - A contender may read an old value of `turn` or of a flag. Then the contender goes to the inner lock, like a
//!   contender that passed the wait earlier; or the contender waits until the new value arrives.
//!
//! # Numbers
//!
//! A number belongs to a thread: the least number that is free when the thread first locks such a lock. The thread
//! gives the number back as it ends. The goroutines of a worker share the worker's number, and threads beyond 256 share
//! numbers, too. Therefore a flag is a counter in this file. Contenders of one number share its turns: an owner whose
//! number is `turn` ends the turn, even if another contender of this number waits. The bound then holds for numbers,
//! not for contenders. In the transformation as published a flag is a plain register, and a release looks at the flag
//! of `turn` alone.
//!
//! Source: Y. Bar-David, 1998, as in M. Raynal, *Concurrent Programming: Algorithms, Principles, and Foundations*,
//! 2.2.2; analysed in arXiv 2606.19003.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::system::{self, thread_local};
use sudog_runtime::shim::{AtomicU32, AtomicUsize};
use sudog_runtime::spin;
use sudog_sync::RawLock;

const NUMBERS: usize = 256;

/// The numbers of threads that have ended, and the least number that no thread has had.
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
    /// The largest number that a contender has had, plus 1. `turn` goes round among the numbers below `n`.
    n: CachePadded<AtomicUsize>,
    flags: Box<[CachePadded<AtomicU32>]>,
}

impl<L> BarDavid<L> {
    /// Raises the flag of the caller's number, and returns the number. The bound counts from this call on.
    pub fn announce(&self) -> usize {
        let me = NUMBER.with(|number| number.0) % NUMBERS;
        if self.n.load(Relaxed) <= me {
            self.n.fetch_max(me + 1, Relaxed);
        }
        self.flags[me].fetch_add(1, Release);
        me
    }

    fn may_go(&self, me: usize) -> bool {
        let turn = self.turn.load(Acquire);
        turn == me || self.flags[turn].load(Relaxed) == 0
    }
}

impl<L: RawLock> BarDavid<L> {
    /// Locks for the contender to which [`announce`](Self::announce) has returned the number `me`.
    pub fn lock_announced(&self, me: usize) -> <Self as RawLock>::Guard {
        while !self.may_go(me) {
            spin::do_spin(1);
        }
        (me, self.inner.lock())
    }
}

// SAFETY:
// - The inner lock keeps the promises of `RawLock`.
// - `turn` and the flags decide only when a contender goes to the inner lock.
// - A forgotten guard leaves the inner lock locked.
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
        self.lock_announced(me)
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
        if turn == me || self.flags[turn].load(Acquire) == 0 {
            self.turn.store((turn + 1) % self.n.load(Relaxed), Release);
        }
        // SAFETY: `guard` came from the inner lock of this lock, on this thread, by the contract of `unlock`.
        unsafe { self.inner.unlock(guard) };
    }

    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}
