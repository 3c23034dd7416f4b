//! `parking_lot::RawMutex` 0.12: spins while no contender sleeps, then sleeps in a queue; newcomers may overtake, but an
//! unlock hands over about every half a millisecond.
//!
//! | bit | meaning |
//! |---|---|
//! | LOCKED | the lock is held |
//! | PARKED | contenders sleep in the queue, or are about to |
//!
//! PARKED changes, and a contender goes to sleep, under the lock of the queue. (In `parking_lot` the queue is a bucket
//! of a table that all mutexes share; here each mutex has its own queue.)
//!
//! Source: the algorithm of `raw_mutex.rs` of parking_lot 0.12 and `parking_lot.rs`, `spinwait.rs` of its core.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sudog_runtime::shim::{AtomicU32, system};
use sudog_runtime::{Instant, futex, spin};
use sudog_sync::RawLock;

const LOCKED: u32 = 1;
const PARKED: u32 = 2;

/// A sleeper's word until an unlock changes the word to `RETRY` or `HANDED_OVER`.
const ASLEEP: u32 = 0;
const RETRY: u32 = 1;
const HANDED_OVER: u32 = 2;

/// The number of rounds for which a contender spins: three of 2, 4 and 8 pauses, then rounds that yield.
const ROUNDS: u32 = 10;

#[derive(Debug)]
struct Queue {
    sleepers: VecDeque<Arc<AtomicU32>>,
    /// The time from which on an unlock hands over.
    fair_from: Option<Instant>,
    random: u32,
}

impl Queue {
    /// Returns whether this unlock hands over. If so, the next handover is due in 0 to 1 ms.
    fn is_time_to_be_fair(&mut self) -> bool {
        let now = system::now();
        let due = self.fair_from.is_none_or(|from| now > from);
        if due {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 17;
            self.random ^= self.random << 5;
            self.fair_from = Some(now + Duration::from_nanos(u64::from(self.random % 1_000_000)));
        }
        due
    }
}

/// `parking_lot`'s mutex.
#[derive(Debug)]
pub struct ParkingLot {
    word: AtomicU32,
    queue: system::Mutex<Queue>,
}

impl ParkingLot {
    fn take(&self, word: u32) -> Result<(), u32> {
        self.word.compare_exchange_weak(word, word | LOCKED, Acquire, Relaxed).map(|_| ())
    }

    #[cold]
    fn lock_slow(&self) {
        let mut rounds = 0;
        let mut word = self.word.load(Relaxed);
        loop {
            if word & LOCKED == 0 {
                match self.take(word) {
                    Ok(()) => return,
                    Err(now) => word = now,
                }
                continue;
            }
            if word & PARKED == 0 && rounds < ROUNDS {
                rounds += 1;
                match rounds {
                    1..=3 => spin::do_spin(1 << rounds),
                    _ => system::thread::yield_now(),
                }
                word = self.word.load(Relaxed);
                continue;
            }
            if word & PARKED == 0
                && let Err(now) = self.word.compare_exchange_weak(word, word | PARKED, Relaxed, Relaxed)
            {
                word = now;
                continue;
            }
            if self.park() == HANDED_OVER {
                return;
            }
            rounds = 0;
            word = self.word.load(Relaxed);
        }
    }

    /// Sleeps until an unlock wakes the caller, and returns that unlock's word. Returns `RETRY` at once if the mutex is
    /// not both held and marked PARKED any more.
    fn park(&self) -> u32 {
        let me = Arc::new(AtomicU32::new(ASLEEP));
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if self.word.load(Relaxed) != LOCKED | PARKED {
                return RETRY;
            }
            queue.sleepers.push_back(me.clone());
        }
        while me.load(Acquire) == ASLEEP {
            futex::wait(&me, ASLEEP, None);
        }
        me.load(Relaxed)
    }

    #[cold]
    fn unlock_slow(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let next = queue.sleepers.pop_front();
        let hands_over = next.is_some() && queue.is_time_to_be_fair();
        let parked = if queue.sleepers.is_empty() { 0 } else { PARKED };
        self.word.store(if hands_over { LOCKED | parked } else { parked }, Release);
        drop(queue);
        if let Some(next) = next {
            next.store(if hands_over { HANDED_OVER } else { RETRY }, Release);
            futex::wake(&*next, 1);
        }
    }
}

// SAFETY:
// - A contender has the lock if its step has set LOCKED, and no other contender's step can do so until the unlock; or
//   if an unlock has left LOCKED set for this contender alone.
// - Release of the unlock and Acquire of these steps order the actions of owners.
// - A forgotten guard leaves the lock locked.
unsafe impl RawLock for ParkingLot {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        let queue = Queue { sleepers: VecDeque::new(), fair_from: None, random: 0x9E37_79B9 };
        Self { word: AtomicU32::new(0), queue: system::Mutex::new(queue) }
    }

    #[inline]
    fn lock(&self) {
        if self.take(0).is_err() {
            self.lock_slow();
        }
    }

    fn try_lock(&self) -> Option<()> {
        let mut word = self.word.load(Relaxed);
        while word & LOCKED == 0 {
            match self.take(word) {
                Ok(()) => return Some(()),
                Err(now) => word = now,
            }
        }
        None
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        if self.word.compare_exchange(LOCKED, 0, Release, Relaxed).is_err() {
            self.unlock_slow();
        }
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & LOCKED != 0
    }
}
