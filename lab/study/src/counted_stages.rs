//! The eight stages of the Go mutex over a semaphore that counts sleeps and handoffs, and the measured loops on these: for
//! the command `stages`.

use std::sync::atomic::Ordering::Relaxed;
use sudog_runtime::shim::system::atomic::AtomicU64;

use crossbeam_utils::CachePadded;
use sudog_runtime::Instant;
use sudog_sync::mutex::stages::{V1, V2, V3, V4, V5, V6, V7, V8};
use sudog_sync::semaphore::RuntimeSema;
use sudog_sync::{Order, Semaphore, Wake};

use crate::run::driver::{Prepared, Run};
use crate::targets::locks::{Job, LockName};
use crate::targets::registry::registry;

registry! {
    /// The name of a stage.
    enum StageName;
    jobs Job;
    fn with_stage;
    unknown "stage";

    V1 = "v1": V1<Counted>, "a semaphore of one";
    V2 = "v2": V2<Counted>, "+ a locked flag: a free mutex is taken without the semaphore";
    V3 = "v3": V3<Counted>, "+ spinning before sleeping";
    V4 = "v4": V4<Counted>, "+ a count of waiters: an unlock without waiters is one step";
    V5 = "v5": V5<Counted>, "+ the woken bit: one waiter awake is enough";
    V6 = "v6": V6<Counted>, "+ LIFO: a waiter that was woken in vain goes back to the head of the queue";
    V7 = "v7": V7<Counted>, "+ starvation mode: after a millisecond a waiter is served next";
    V7Inlined = "v7-inlined": V7<Counted, true>, "v7, its fast paths apart, which can be inlined: for study";
    V8 = "v8": V8<Counted>, "+ fast and slow paths apart, and checks: sudog/go-1.14";
}

/// [`RuntimeSema`], with counts of the slow events: see [`SlowEvents`]. The counts are global, so only one run may be made
/// at a time.
pub struct Counted(RuntimeSema);

/// The number of waits that ended by a wake-up: all that did not find a permit at once.
static WAKES: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));
static HANDOFFS: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

// SAFETY: every call goes to the `RuntimeSema`, which keeps the promises of `Semaphore`.
unsafe impl Semaphore for Counted {
    const LIFO: bool = RuntimeSema::LIFO;
    const FIFO: bool = RuntimeSema::FIFO;
    const HANDOFF: bool = RuntimeSema::HANDOFF;
    const DEADLINES: bool = RuntimeSema::DEADLINES;

    fn new(permits: u32) -> Self {
        Self(RuntimeSema::new(permits))
    }

    #[inline]
    fn acquire(&self, order: Order) {
        if !self.0.try_acquire() {
            WAKES.fetch_add(1, Relaxed);
            self.0.acquire(order);
        }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }

    #[inline]
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        self.0.acquire_until(order, deadline)
    }

    #[inline]
    fn release(&self, wake: Wake) {
        if wake != Wake::Normal {
            HANDOFFS.fetch_add(1, Relaxed);
        }
        self.0.release(wake);
    }
}

impl StageName {
    /// The stages of the source.
    pub const USUAL: &[Self] = &[Self::V1, Self::V2, Self::V3, Self::V4, Self::V5, Self::V6, Self::V7, Self::V8];

    /// Returns the same lock under its name in the other benchmarks.
    pub const fn lock(self) -> LockName {
        match self {
            Self::V1 => LockName::V1,
            Self::V2 => LockName::V2,
            Self::V3 => LockName::V3,
            Self::V4 => LockName::V4,
            Self::V5 => LockName::V5,
            Self::V6 => LockName::V6,
            Self::V7 | Self::V7Inlined => LockName::V7,
            Self::V8 => LockName::SudogGo114,
        }
    }

    /// Makes the arena of a run on this stage.
    pub fn prepare(self, run: Run) -> Prepared {
        with_stage(self, run)
    }
}

/// The numbers of slow events so far.
#[derive(Clone, Copy, Debug)]
pub struct SlowEvents {
    /// The number of times that a contender slept until it was woken.
    pub wakes: u64,
    /// The number of times that an unlock gave the lock to a waiter.
    pub handoffs: u64,
}

impl SlowEvents {
    /// Returns the numbers as of now.
    pub fn now() -> Self {
        Self { wakes: WAKES.load(Relaxed), handoffs: HANDOFFS.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_is_counted() {
        let before = WAKES.load(Relaxed);
        let semaphore = Counted::new(1);
        semaphore.acquire(Order::Fifo);
        assert_eq!(WAKES.load(Relaxed), before, "there was a permit");
        std::thread::scope(|s| {
            let waiter = s.spawn(|| semaphore.acquire(Order::Fifo));
            while WAKES.load(Relaxed) == before {
                std::thread::yield_now();
            }
            semaphore.release(Wake::Handoff);
            waiter.join().unwrap();
        });
        assert!(HANDOFFS.load(Relaxed) > 0 && !semaphore.try_acquire());
    }
}
