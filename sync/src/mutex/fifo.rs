//! A counter and a semaphore: Go's mutex of 2008. Strictly first come, first served.
//!
//! | step | the count of contenders | then |
//! |---|---|---|
//! | `lock` | + 1 | if the count was 0, the caller has the lock. Else the caller waits for a permit, and has the lock with the permit |
//! | `unlock` | - 1 | if the count was above 1, the owner releases a permit |
//! | a waiter gives up | - 1, if the count is above 1 | else the waiter is the only contender: takes the permit, and has the lock |
//!
//! Only a waiter takes a permit, and the waiter that takes the permit has the lock. A waiter that gives up while a
//! permit is under way may leave that permit to the other waiters, if there are other waiters.
//!
//! Orderings: all changes of the count are RMWs. A change that frees the lock is a Release, and a change that takes the
//! lock is an Acquire. If the lock comes with a permit, the permit orders the two owners.
//!
//! **Standing by.** A sleep and a wake-up take more processor time than most critical sections and the code between two
//! of them. So a thread that waits stays awake for a while, with its place in the queue:
//!
//! | the waiter | repeats, [`ROUNDS`] times | then |
//! |---|---|---|
//! | with fewer contenders ahead than there are processors | looks for its permit [`LOOKS`] times, then yields | sleeps |
//! | with more contenders ahead | yields: a thread ahead may be waiting for this processor | sleeps |
//!
//! A yield costs a third of a sleep with its wake-up, but the system picks the next thread in an order of its own. The
//! rounds are few for two reasons. First, a waiter of a long critical section soon sleeps. Second, if the system picks
//! a thread too soon again and again, that thread goes to sleep until its turn. After its turn, the thread is last in
//! the system's order and in the queue, and from then on each yield finds a thread whose turn has come. The journal has
//! the figures ("Readers and writers").
//!
//! The number of contenders ahead is a hint: the count when the waiter came, minus the [`handoffs`](FifoMutex) since
//! then. If a waiter reads the hint between the two steps of an unlock, the hint is too small by 1. If a waiter ahead
//! has given up, the hint is too large. A goroutine does not stand by: its worker has other goroutines to run, or
//! sleeps.
//!
//! Source: Go's `sync/mutex.go` of commit bf3dd3f0ef (2008).

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::sema::{WaitError, WaitLimit};
use sudog_runtime::shim::num_cpus;
use sudog_runtime::{AtomicU32, G, Instant, spin};

use crate::now;
use crate::raw::{Order, RawLock, Semaphore, Wake};
use crate::semaphore::RuntimeSema;

/// A strictly fair mutex: the owner's unlock hands the mutex to the contender that has waited longest. A newcomer never
/// overtakes a waiter.
///
/// The mutex is first come, first served, if its semaphore is first in, first out. The price is that of every strict
/// queue: under contention each unlock hands the mutex to another thread, and the mutex is idle until that thread runs.
/// A thread that waits stays awake for some yields before it sleeps.
///
/// # Limits
///
/// At most 2^32 - 1 contenders at a time.
///
/// # Examples
///
/// ```
/// use sudog::study::FifoMutex;
/// use sudog::sync::MutexWith;
///
/// static QUEUE: MutexWith<FifoMutex, Vec<u32>> = MutexWith::new(Vec::new());
/// QUEUE.lock().push(1);
/// ```
pub struct FifoMutex<S = RuntimeSema> {
    contenders: AtomicU32,
    /// The number of permits that unlocks have released: a hint for waiters that stand by. Only an owner that has
    /// waiters writes the number, before it releases the permit. There is a single writer at a time: until a waiter has
    /// taken that permit, the count of contenders is above 0, and no other contender becomes the owner.
    handoffs: AtomicU32,
    sema: S,
}

/// The number of times that a waiter yields while it stands by. With eight threads, 4, 5 and 6 were measured to be
/// equal; with 3, every other wait ends in a sleep.
const ROUNDS: u32 = 5;
/// The number of looks for the permit in a round. The looks take some five microseconds: in that time another processor
/// can switch to the thread whose turn has come, and that thread can have its turn.
const LOOKS: u32 = 200;

/// A waiter's place in the queue when the waiter came.
#[derive(Clone, Copy)]
struct Place {
    /// The number of contenders at that time, the owner among them.
    ahead: u32,
    /// [`FifoMutex::handoffs`] at that time.
    handoffs: u32,
}

impl<S: Semaphore> FifoMutex<S> {
    /// Subtracts a waiter that gives up from the count. The waiter has left the semaphore's queue already. Returns
    /// false if the waiter has the lock instead.
    #[cold]
    fn uncount(&self) -> bool {
        let mut old = self.contenders.load(Relaxed);
        while old > 1 {
            match self.contenders.compare_exchange_weak(old, old - 1, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        // The waiter is the only contender, so the permit for it is released, or about to be.
        self.sema.acquire(Order::Fifo);
        false
    }

    #[cold]
    fn lock_slow(&self, ahead: u32, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let place = Place { ahead, handoffs: self.handoffs.load(Relaxed) };
        let stand_by = |woken: &dyn Fn() -> bool| self.stand_by(place, limit.deadline, woken);
        let over = self.sema.acquire_standing_by(Order::Fifo, limit, stand_by);
        if over.is_ok() || !self.uncount() { Ok(()) } else { over }
    }

    /// Stands by: returns once the waiter has been woken, or shall sleep.
    fn stand_by(&self, place: Place, deadline: Option<Instant>, woken: &dyn Fn() -> bool) {
        for _ in 0..ROUNDS {
            let looks = if self.is_near(place) { LOOKS } else { 0 };
            let is_woken = (0..looks).any(|_| {
                spin::do_spin(1);
                woken()
            });
            if is_woken || woken() || deadline.is_some_and(|deadline| now() >= deadline) {
                return;
            }
            G::yield_now();
        }
    }

    /// Returns whether the waiter and all contenders ahead may be running at this moment, each on a processor of its
    /// own.
    fn is_near(&self, place: Place) -> bool {
        let since = self.handoffs.load(Relaxed).wrapping_sub(place.handoffs);
        place.ahead.saturating_sub(since) < num_cpus()
    }

    /// Hands the lock over to a waiter, after the owner has unlocked.
    #[inline]
    fn hand_over(&self) {
        self.handoffs.store(self.handoffs.load(Relaxed).wrapping_add(1), Relaxed);
        self.sema.release(Wake::Handoff);
    }
}

// SAFETY:
// - exclusion: a contender gets the lock by raising the count from 0, or by taking a permit. Each unlock makes just one
//   of the two possible. A waiter that gives up leaves a permit to another waiter, or takes the permit.
// - happens-before: the head of this file argues the orderings.
unsafe impl<S: Semaphore> RawLock for FifoMutex<S> {
    type Guard = ();

    const DEADLINES: bool = S::DEADLINES;

    fn new() -> Self {
        Self { contenders: AtomicU32::new(0), handoffs: AtomicU32::new(0), sema: S::new(0) }
    }

    #[inline]
    fn lock(&self) {
        let ahead = self.contenders.fetch_add(1, Acquire);
        if ahead != 0 {
            let locked = self.lock_slow(ahead, &WaitLimit::default());
            debug_assert_eq!(locked, Ok(()));
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        self.contenders.compare_exchange(0, 1, Acquire, Relaxed).is_ok().then_some(())
    }

    #[inline]
    fn try_lock_until(&self, deadline: Instant) -> Option<()> {
        self.lock_limited(&WaitLimit::until(deadline)).ok()
    }

    #[inline]
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let ahead = self.contenders.fetch_add(1, Acquire);
        if ahead == 0 { Ok(()) } else { self.lock_slow(ahead, limit) }
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        if self.contenders.fetch_sub(1, Release) != 1 {
            self.hand_over();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.contenders.load(Relaxed) != 0
    }
}

#[cfg(not(sudog_loom))]
impl<S: crate::ConstSemaphore> crate::ConstRawLock for FifoMutex<S> {
    const INIT: Self = Self { contenders: AtomicU32::new(0), handoffs: AtomicU32::new(0), sema: S::INIT };
}

impl<S> fmt::Debug for FifoMutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoMutex").field("contenders", &self.contenders.load(Relaxed)).finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux", not(any(sudog_loom, sudog_sim))))]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};
    use std::{fs, thread};

    use super::*;

    /// Returns the state of a thread that the system reports: `R` runs or wants to, `S` sleeps.
    fn state_of(thread: &str) -> char {
        let stat = fs::read_to_string(format!("/proc/{thread}/stat")).unwrap();
        stat[stat.rfind(')').unwrap()..].chars().nth(2).unwrap()
    }

    #[test]
    fn a_thread_that_waits_for_long_sleeps() {
        const WAITERS: usize = 4; // at least one waiter is near; on three processors or fewer, one waiter is not
        let lock = FifoMutex::<RuntimeSema>::new();
        lock.lock();
        thread::scope(|s| {
            let (tell, told) = channel();
            for _ in 0..WAITERS {
                let (tell, lock) = (tell.clone(), &lock);
                s.spawn(move || {
                    let thread = fs::read_link("/proc/thread-self").unwrap();
                    tell.send(thread.into_os_string().into_string().unwrap()).unwrap();
                    lock.lock();
                    // SAFETY: `()` is the guard of the acquisition above, which has not been released.
                    unsafe { lock.unlock(()) };
                });
            }
            let waiters: Vec<_> = told.iter().take(WAITERS).collect();
            let sleep = || {
                lock.contenders.load(Relaxed) as usize == 1 + WAITERS
                    && waiters.iter().all(|waiter| state_of(waiter) == 'S')
            };
            let watchdog = Instant::now() + Duration::from_secs(30);
            while !sleep() && Instant::now() < watchdog {
                thread::yield_now();
            }
            let all_sleep = sleep();
            // SAFETY: `()` is the guard of this thread's `lock.lock()` above, which has not been released.
            unsafe { lock.unlock(()) }; // else a failed assertion would leave the waiters, and this test, waiting
            assert!(all_sleep);
        });
        assert!(!lock.is_locked());
        assert_eq!(lock.handoffs.load(Relaxed) as usize, WAITERS);
    }
}
