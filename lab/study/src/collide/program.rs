//! The program of Go issue 17953: many goroutines wait for one lock, and another lock of the same bucket is contended,
//! too.
//!
//! ```text
//!   n goroutines, each a number of rounds            hogs, until those are done
//!     lock A; lock B; unlock B; unlock A               lock B; unlock B
//!
//!   one bucket:  A A A A A A A A ... A A  B B B B    who unlocks B looks for the first B
//! ```
//!
//! The issue's locks are elements 0 and `-offset` of an array of `sync.RWMutex`. At offset 251 the two locks share a
//! bucket, whatever the size of an element, as long as that size is a multiple of 8 bytes: a bucket is `(addr >> 3) %
//! 251`. In this program the locks are elements 0 and 251, too; or, as a control, 0 and 125.
//!
//! Four points differ from the issue, so that all queues have the same work, run after run:
//!
//! * The locks are mutexes: contenders of a `RWMutex` that has no readers wait for its mutex among writers.
//! * The locks are in starvation mode from the start ([`policy::Fifo`]): each unlock hands over to the first waiter. In
//!   Go's normal mode a hog takes the lock again and again until a waiter has waited for a millisecond: the time of a
//!   run then depends on the number of such milliseconds in the run, which differs from run to run a hundredfold.
//! * A hog yields once in each of its rounds, while the hog has B: nothing interrupts a goroutine, and hogs that are
//!   not queued contend for nothing. In Go hogs are preempted there. (A thread calls `yield`.)
//! * The time-keeping thread has B locked until all contenders are queued, and the clock starts at its unlock.
//!   Otherwise the first contenders would find the lock free, and be done before the others begin.
//!
//! So for each time that A is locked, each hog has B once, and contenders that are done with their rounds leave the
//! queue.
//!
//! [`Case::ManyLocks`] is the case for which CL 37103 introduced the treap: n/2 locks in one bucket, and two goroutines
//! for each lock. A goroutine locks, yields while it has the lock, and unlocks; so the other goroutine of that lock
//! waits at that time. The bucket has n/2 waiters, each for another lock: an unlock has to find a single address among
//! n/2. A contender yields once to eight times, by chance: if all contenders yielded once, locks would be unlocked in
//! the order in which their waiters came, and each waiter would be the first of any list.
//!
//! A single owner runs at a time, and hands over to the next: on several workers mostly to another worker, which takes
//! ten times as long as a short walk of the queue. On a single worker nearly all of the time is the queue's.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::OnceLock;
use sudog_runtime::shim::system::atomic::{AtomicUsize, Ordering};
use sudog_runtime::shim::system::thread;

use clap::ValueEnum;
use serde::Serialize;
use sudog_runtime::goroutine::gosched;
use sudog_runtime::sema::{BUCKETS, Table};
use sudog_sync::GoMutex;
use sudog_sync::mutex::policy;
use sudog_sync::semaphore::TableSema;

use crate::measure::usage::{Counts, Usage};
use crate::run::contenders::{Contenders, Gate};
use crate::targets::queues::QueueJob;
use crate::targets::registry::names;

/// A lock whose waiters are in a table.
type Lock<T> = GoMutex<TableSema<T>, policy::Fifo>;

/// The locks of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, ValueEnum, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Two locks: all contenders except the hogs wait for the first
    #[default]
    TwoLocks,
    /// Half as many locks as contenders, two contenders for each lock
    ManyLocks,
}

names! {
    /// The place of B.
    enum Placement;
    unknown "placement";
    Colliding = "colliding", "B is in the bucket of A.";
    Apart = "apart", "B is in another bucket: a control.";
}

impl Placement {
    /// Returns the issue's offset: the number of elements from A to B.
    const fn offset(self) -> usize {
        match self {
            Self::Colliding => BUCKETS,
            Self::Apart => BUCKETS / 2,
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub on: Contenders,
    /// The locks of the run.
    pub case: Case,
    /// The place of B.
    pub placement: Placement,
    /// The number of contenders that lock A.
    pub n: usize,
    /// The number of rounds of each of these.
    pub rounds: usize,
    /// The number of contenders that lock only B.
    pub hogs: usize,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The time from the moment when all contenders were queued to the end of the last round.
    pub elapsed: Duration,
    /// The number of times that hogs had B, including the hogs that are still queued at the end.
    pub hog_locks: u64,
    /// The number of waiters for A, on average over the rounds.
    pub in_line_of_a: f64,
    /// The number of waiters for B, on average over the rounds.
    pub in_line_of_b: f64,
    /// The resources that the run used.
    pub usage: Usage,
}

/// The counts that a contender returns.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    hog_locks: u64,
    in_line_of_a: u64,
    in_line_of_b: u64,
}

struct Arena<T> {
    run: Run,
    locks: Box<[Lock<T>]>,
    /// The number of contenders that are not done yet, without the hogs.
    left: AtomicUsize,
    end: OnceLock<Instant>,
}

impl QueueJob for Run {
    type Out = io::Result<Outcome>;

    fn run<T: Table>(self) -> Self::Out {
        let arena = Arc::new(Arena::<T>::new(self));
        let theirs = Arc::clone(&arena);
        let ((elapsed, counts), tallies) =
            self.on.fan_out(self.hogs + self.n, move |me, gate| theirs.work(me, gate), |gate| arena.conduct(gate))?;
        let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
        let rounds = (self.n * self.rounds) as f64;
        Ok(Outcome {
            elapsed,
            hog_locks: sum(|tally| tally.hog_locks),
            in_line_of_a: sum(|tally| tally.in_line_of_a) as f64 / rounds,
            in_line_of_b: sum(|tally| tally.in_line_of_b) as f64 / rounds,
            usage: counts.usage_until_now(),
        })
    }
}

/// Returns how often a contender yields in this round: 1 to 8 times. Draws by Knuth's congruential generator, from both
/// numbers.
fn yields(me: usize, round: usize) -> u64 {
    let drawn = (me as u64 + 1).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round as u64);
    1 + (drawn.wrapping_mul(6_364_136_223_846_793_005) >> 61)
}

impl<T: Table> Arena<T> {
    fn new(run: Run) -> Self {
        let last = match run.case {
            Case::TwoLocks => BUCKETS,
            Case::ManyLocks => Self::place(run.placement, run.n.saturating_sub(1)),
        };
        const {
            let size = size_of::<Lock<T>>();
            assert!(size.is_multiple_of(8), "or 251 elements are no multiple of 251 * 8 bytes");
            assert!(!(size / 8 * Placement::Apart.offset()).is_multiple_of(BUCKETS), "it would be no control");
        }
        Self {
            run,
            locks: (0..=last).map(|_| Lock::const_new()).collect(),
            left: AtomicUsize::new(run.n),
            end: OnceLock::new(),
        }
    }

    /// Returns the index of the lock of a contender, with many locks. Locks that are apart are side by side.
    const fn place(placement: Placement, me: usize) -> usize {
        match placement {
            Placement::Colliding => me / 2 * BUCKETS,
            Placement::Apart => me / 2,
        }
    }

    fn a(&self) -> &Lock<T> {
        &self.locks[0]
    }

    fn b(&self) -> &Lock<T> {
        &self.locks[self.run.placement.offset()]
    }

    fn conduct(&self, gate: &Gate) -> (Duration, Counts) {
        if self.run.case == Case::ManyLocks {
            let (counts, start) = (Counts::now(), system::now());
            gate.open(true);
            return (*self.end.wait() - start, counts);
        }
        self.b().lock();
        gate.open(true);
        // Wait until a contender has A and waits for B with the hogs, and all others wait for A.
        while (self.a().waiters() as usize) < self.run.n - 1 || (self.b().waiters() as usize) < self.run.hogs + 1 {
            thread::sleep(Duration::from_micros(100));
        }
        let (counts, start) = (Counts::now(), system::now());
        self.b().unlock();
        (*self.end.wait() - start, counts)
    }

    fn work(&self, me: usize, gate: &Gate) -> Tally {
        let mut tally = Tally::default();
        if !gate.wait() {
            return tally;
        }
        if self.run.case == Case::ManyLocks {
            let lock = &self.locks[Self::place(self.run.placement, me)];
            for round in 0..self.run.rounds {
                lock.lock();
                (0..yields(me, round)).for_each(|_| gosched());
                tally.in_line_of_a += u64::from(lock.waiters());
                lock.unlock();
            }
            self.leave();
            return tally;
        }
        let (a, b) = (self.a(), self.b());
        if me < self.run.hogs {
            while self.end.get().is_none() {
                b.lock();
                gosched();
                b.unlock();
                tally.hog_locks += 1;
            }
            return tally;
        }
        for _ in 0..self.run.rounds {
            a.lock();
            b.lock();
            tally.in_line_of_a += u64::from(a.waiters());
            tally.in_line_of_b += u64::from(b.waiters());
            b.unlock();
            a.unlock();
        }
        self.leave();
        tally
    }

    /// Notes that a contender is done with its rounds.
    fn leave(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.end.set(system::now()).expect("there is one who is the last");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::queues::{QueueName, Treap, bucket, with_queue};

    #[test]
    fn the_locks_collide_or_not() {
        for &placement in Placement::ALL {
            let run = Run { on: Contenders::Threads, case: Case::TwoLocks, placement, n: 1, rounds: 1, hogs: 1 };
            let arena = Arena::<Treap>::new(run);
            // The semaphores are as far apart as the locks. Each lies inside its lock, at the first byte or later.
            let [a, b] = [arena.a(), arena.b()].map(|lock| std::ptr::from_ref(lock).addr());
            for inside in (0..size_of::<Lock<Treap>>()).step_by(4) {
                assert_eq!(bucket(a + inside) == bucket(b + inside), placement == Placement::Colliding);
            }
        }
    }

    #[test]
    fn many_locks_collide_or_not() {
        for &placement in Placement::ALL {
            let run = Run { on: Contenders::Threads, case: Case::ManyLocks, placement, n: 9, rounds: 1, hogs: 0 };
            let arena = Arena::<Treap>::new(run);
            let bucket = |me| bucket(std::ptr::from_ref(&arena.locks[Arena::<Treap>::place(placement, me)]).addr());
            assert_eq!(bucket(0), bucket(1), "of a pair both have one lock");
            assert_eq!(bucket(0) == bucket(8), placement == Placement::Colliding);
            for &queue in QueueName::ALL {
                assert_eq!(with_queue(queue, Run { rounds: 3, ..run }).unwrap().hog_locks, 0);
            }
        }
    }

    #[test]
    fn all_stand_in_line() {
        let on = Contenders::Threads;
        for &queue in QueueName::ALL {
            for &placement in Placement::ALL {
                let run = Run { on, case: Case::TwoLocks, placement, n: 8, rounds: 3, hogs: 2 };
                let outcome = with_queue(queue, run).unwrap();
                // At the start 7 wait for A, and they have A one after another; later, that is open.
                assert!(outcome.in_line_of_a * 24.0 >= 27.9, "{outcome:?}");
                assert!(outcome.hog_locks >= 2, "{outcome:?}");
            }
        }
    }
}
