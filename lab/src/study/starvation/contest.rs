//! The contest: hogs and victims, one mutex, and a record of everything that happens to it.
//!
//! | | a hog | a victim |
//! |---|---|---|
//! | holds the mutex | long, 100 us by default | for a moment, 10 us |
//! | wants it again | at once | after a sleep, 100 us |
//! | never | leaves its processor, unless the mutex makes it | |
//!
//! While a contender holds the mutex it is busy by the clock, as a goroutine that slept would let others of its worker run.
//! A hog is so between unlock and lock, too. Nothing interrupts a goroutine, so one that is on the same worker as a
//! goroutine that is busy waits for the worker, and not yet for the mutex.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::atomic::{AtomicBool, Ordering};
use sudog_runtime::shim::system::thread;

use sudog_runtime::event::{self, Event, Kind};
use sudog_runtime::sema::queue::{Recorded, Treap};
use sudog_runtime::sema::{BUCKETS, SemTable, Table};
use sudog_sync::GoMutex;
use sudog_sync::mutex::policy::{self, Policy};
use sudog_sync::semaphore::TableSema;

use crate::run::contenders::{Contenders, Gate};
use crate::targets::policies::{PolicyJob, PolicyName, with_policy};

/// What a contender does in a contest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Has the mutex nearly always.
    Hog,
    /// Wants it now and then.
    Victim,
}

/// A contender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contender {
    /// What it does.
    pub role: Role,
    /// Its number among those of its role, from 1; nothing, if it is the only one.
    pub number: Option<usize>,
    /// Which contenders record their events in the same ring: those with the same number here.
    pub ring: usize,
}

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    /// The mutex's.
    pub policy: PolicyName,
    /// How many.
    pub hogs: usize,
    /// How many.
    pub victims: usize,
    /// How long a hog holds the mutex.
    pub hold: Duration,
    /// How long a victim does.
    pub victim_hold: Duration,
    /// From a hog's unlock to its next lock.
    pub pause: Duration,
    /// From a victim's unlock to its next lock.
    pub victim_pause: Duration,
    /// For how long they begin anew.
    pub duration: Duration,
    /// What they are.
    pub on: Contenders,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// From the start to the end, which is when the last one had what it still waited for.
    pub elapsed: Duration,
    /// By contender.
    pub acquisitions: Vec<u64>,
    /// Of the mutex alone. In those of kind [`Kind::Want`], [`Kind::Locked`] and [`Kind::Unlocked`] `waiter` is the
    /// number of the contender, plus one: so contenders are told apart.
    pub events: Vec<Event>,
    /// How many are missing.
    pub dropped: u64,
}

impl Contest {
    /// The contenders: hogs, then victims.
    #[must_use]
    pub fn contenders(&self) -> Vec<Contender> {
        let ring = |n| match self.on {
            Contenders::Threads | Contenders::PinnedThreads => n,
            #[cfg(unix)]
            Contenders::Goroutines { workers } => n % workers,
        };
        let role = |n, role, of| Contender { role, number: (of > 1).then_some(n + 1), ring: 0 };
        let hogs = (0..self.hogs).map(|n| role(n, Role::Hog, self.hogs));
        let all = hogs.chain((0..self.victims).map(|n| role(n, Role::Victim, self.victims)));
        all.enumerate().map(|(n, contender)| Contender { ring: ring(n), ..contender }).collect()
    }

    /// Holds it.
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
        let (start, acquisitions) = self.on.fan_out(self.hogs + self.victims, work, conduct)?;
        let elapsed = system::now().saturating_duration_since(start);
        let mut recording = event::stop();
        let addresses = arena.mutex.addresses();
        recording.events.retain(|event| addresses.contains(&event.addr));
        Ok(Outcome { elapsed, acquisitions, events: recording.events, dropped: recording.dropped })
    }
}

/// What they contend for, and the end.
struct Arena<P> {
    mutex: Watched<P>,
    stop: AtomicBool,
}

impl<P: Policy> Arena<P> {
    /// How often this one had the mutex.
    fn work(&self, contest: Contest, me: usize) -> u64 {
        let is_hog = me < contest.hogs;
        let hold = if is_hog { contest.hold } else { contest.victim_hold };
        let mut acquisitions = 0;
        while !self.stop.load(Ordering::Relaxed) {
            self.mutex.lock(me);
            acquisitions += 1;
            busy(hold);
            self.mutex.unlock(me);
            if is_hog {
                busy(contest.pause);
            } else {
                contest.on.sleep(contest.victim_pause);
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

/// Where waiters for the mutex sleep.
enum Observed {}

// SAFETY: a static.
unsafe impl Table for Observed {
    type Queue = Recorded<Treap>;

    fn table() -> &'static SemTable<BUCKETS, Self::Queue> {
        static TABLE: SemTable<BUCKETS, Recorded<Treap>> = SemTable::const_new();
        &TABLE
    }
}

/// A mutex whose users say what they do with it.
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

    /// Those of the mutex. That of its semaphore, by which its events are known, is among them, and no other lock's is.
    fn addresses(&self) -> Range<usize> {
        let start = std::ptr::from_ref(&self.0).addr();
        start..start + size_of_val(&self.0)
    }
}

impl Role {
    /// As in the records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hog => "hog",
            Self::Victim => "victim",
        }
    }
}

/// As in "hog", "victim 2".
impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role.name())?;
        self.number.map_or(Ok(()), |number| write!(f, " {number}"))
    }
}
