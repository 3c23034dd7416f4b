//! The contest: hogs and victims contend for one mutex, and every event of the mutex is recorded.
//!
//! | | a hog | a victim |
//! |---|---|---|
//! | holds the mutex | long, 100 us | for a moment, 10 us |
//! | wants the mutex again | at once | after a sleep, 100 us |
//! | never | leaves its processor, unless the mutex makes it | |
//!
//! A contender that holds the mutex is busy by the clock, as a sleeping goroutine would let other goroutines of its
//! worker run. Nothing interrupts a goroutine, so a goroutine on the worker
//! of a busy goroutine waits for the worker, and not yet for the mutex.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::atomic::{AtomicBool, Ordering};
use sudog_runtime::shim::system::thread;

use sudog_runtime::event::{self, Kind, Recording};
use sudog_runtime::sema::queue::{Recorded, Treap};
use sudog_runtime::sema::{BUCKETS, SemTable, Table};
use sudog_sync::GoMutex;
use sudog_sync::mutex::policy::{self, Policy};
use sudog_sync::semaphore::TableSema;

use crate::run::contenders::{Contenders, Gate};
use crate::targets::policies::{PolicyJob, PolicyName, with_policy};

/// The behaviour of a contender in a contest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Has the mutex nearly always.
    Hog,
    /// Wants the mutex now and then.
    Victim,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contender {
    /// The role of the contender.
    pub role: Role,
    /// The contender's number among the contenders of its role, from 1; `None` if there is no other.
    pub number: Option<usize>,
    /// The number of the ring in which the contender records its events. Contenders with the same number share a ring.
    pub ring: usize,
}

/// The number of victims, beside one hog.
pub const VICTIMS: usize = 2;
/// The time for which the hog holds the mutex.
pub const HOLD: Duration = Duration::from_micros(100);
/// The time for which a victim holds the mutex.
pub const VICTIM_HOLD: Duration = Duration::from_micros(10);
/// The time from a victim's unlock to its next lock.
pub const VICTIM_PAUSE: Duration = Duration::from_micros(100);

/// The parameters of a contest.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    /// The policy of the mutex.
    pub policy: PolicyName,
    /// The time after which contenders do not begin anew.
    pub duration: Duration,
    pub on: Contenders,
}

/// The result of a contest.
#[derive(Debug)]
pub struct Outcome {
    /// The time from the start to the end, which is when the last contender has had the mutex that it still waited for.
    pub elapsed: Duration,
    /// The number of acquisitions of each contender.
    pub acquisitions: Vec<u64>,
    /// The events of the mutex alone. In events of kind [`Kind::Want`], [`Kind::Locked`] and [`Kind::Unlocked`]
    /// `waiter` is the number of the contender, plus one, so that contenders can be told apart.
    pub recording: Recording,
}

impl Contest {
    /// Returns the contenders: the hog, then victims.
    pub fn contenders(&self) -> Vec<Contender> {
        let ring = |n| match self.on {
            Contenders::Threads | Contenders::PinnedThreads => n,
            #[cfg(unix)]
            Contenders::Goroutines { workers } => n % workers,
        };
        let hog = Contender { role: Role::Hog, number: None, ring: ring(0) };
        let victim = |n| Contender { role: Role::Victim, number: Some(n), ring: ring(n) };
        [hog].into_iter().chain((1..=VICTIMS).map(victim)).collect()
    }

    /// Holds the contest.
    pub fn hold(self) -> io::Result<Outcome> {
        with_policy(self.policy, self)
    }
}

impl PolicyJob for Contest {
    type Out = io::Result<Outcome>;

    fn run<P: Policy + 'static>(self) -> io::Result<Outcome> {
        let arena = Arc::new(Arena::<P> { mutex: Watched(GoMutex::const_new()), stop: AtomicBool::new(false) });
        let theirs = Arc::clone(&arena);
        let work = move |me, gate: &Gate| if gate.wait() { theirs.work(self, me) } else { 0 };
        let conduct = |gate: &Gate| {
            event::start();
            let start = system::now();
            gate.open(true);
            thread::sleep(self.duration);
            arena.stop.store(true, Ordering::Relaxed);
            start
        };
        let (start, acquisitions) = self.on.fan_out(1 + VICTIMS, work, conduct)?;
        let elapsed = system::now().saturating_duration_since(start);
        let mut recording = event::stop();
        let addresses = arena.mutex.addresses();
        recording.events.retain(|event| addresses.contains(&event.addr));
        Ok(Outcome { elapsed, acquisitions, recording })
    }
}

/// The mutex that contenders contend for, and the flag that ends the contest.
struct Arena<P> {
    mutex: Watched<P>,
    stop: AtomicBool,
}

impl<P: Policy> Arena<P> {
    /// Runs the loop of a contender. Returns how often the contender had the mutex.
    fn work(&self, contest: Contest, me: usize) -> u64 {
        let is_hog = me == 0;
        let hold = if is_hog { HOLD } else { VICTIM_HOLD };
        let mut acquisitions = 0;
        while !self.stop.load(Ordering::Relaxed) {
            self.mutex.lock(me);
            acquisitions += 1;
            busy(hold);
            self.mutex.unlock(me);
            if !is_hog {
                contest.on.sleep(VICTIM_PAUSE);
            }
        }
        acquisitions
    }
}

fn busy(time: Duration) {
    let start = system::now();
    while system::now().saturating_duration_since(start) < time {
        std::hint::spin_loop();
    }
}

/// The table in which waiters for the mutex sleep.
enum Observed {}

// SAFETY: `table` returns the same static each time.
unsafe impl Table for Observed {
    type Queue = Recorded<Treap>;

    fn table() -> &'static SemTable<BUCKETS, Self::Queue> {
        static TABLE: SemTable<BUCKETS, Recorded<Treap>> = SemTable::const_new();
        &TABLE
    }
}

/// A mutex whose users record their requests, locks and unlocks.
struct Watched<P>(GoMutex<TableSema<Observed>, policy::Recorded<P>>);

impl<P: Policy> Watched<P> {
    fn lock(&self, me: usize) {
        self.note(Kind::Want, me);
        self.0.lock();
        self.note(Kind::Locked, me);
    }

    fn unlock(&self, me: usize) {
        self.note(Kind::Unlocked, me);
        self.0.unlock();
    }

    fn note(&self, kind: Kind, me: usize) {
        event::record(kind, self.addresses().start, me + 1);
    }

    /// Returns the addresses of the mutex. The address of its semaphore, which identifies the mutex's events, is among
    /// them; no other lock's address is.
    fn addresses(&self) -> Range<usize> {
        let start = std::ptr::from_ref(&self.0).addr();
        start..start + size_of_val(&self.0)
    }
}

impl Role {
    /// Returns the name of the role in the records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hog => "hog",
            Self::Victim => "victim",
        }
    }
}

/// Formats a contender as in "hog", "victim 2".
impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role.name())?;
        self.number.map_or(Ok(()), |number| write!(f, " {number}"))
    }
}
