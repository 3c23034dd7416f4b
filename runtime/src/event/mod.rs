//! What the locks report of themselves: who slept, who overtook, when a mutex began to starve and when it ceased to.
//!
//! Nothing is reported by default, and nothing is compiled for it: whether a lock reports is known from its type.
//!
//! | what reports | how to have it |
//! |---|---|
//! | a semaphore table: [`Kind::Sleep`] to [`Kind::Leave`] | its queues are [`Recorded`](crate::sema::queue::Recorded) |
//! | a mutex of `sudog-sync`: [`Kind::Barge`] to [`Kind::StolenToken`] | its policy is `policy::Recorded` |
//! | both, for all of a program's locks | the feature `event` of these crates |
//! | whoever uses locks: [`Kind::Want`], [`Kind::Locked`], [`Kind::Unlocked`], and anything else | [`record`] |
//!
//! An event goes into a ring of the thread that it happens on: 32 bytes, no lock, no allocation but for the thread's
//! first. A ring that is full drops its oldest events, and counts them. Between [`start`] and [`stop`] an event costs
//! about 20 ns, nearly all of it for the time; outside of that, a load and a branch.
//!
//! What a table reports is recorded under its bucket's lock, so it is in the order in which it happened. What a mutex
//! reports is recorded just after the step on its word: two contenders' steps that are nanoseconds apart may be recorded
//! in the other order.
//!
//! # Examples
//!
//! ```
//! use sudog_runtime::event::{self, Kind};
//!
//! event::start();
//! event::record(Kind::Want, 0x1000, 0);
//! event::record(Kind::Locked, 0x1000, 0);
//! let recording = event::stop();
//! assert_eq!(recording.dropped, 0);
//! assert_eq!(recording.events.iter().map(|e| e.kind).collect::<Vec<_>>(), [Kind::Want, Kind::Locked]);
//! ```

#[cfg(not(sudog_loom))]
pub mod clock;
#[cfg_attr(sudog_loom, allow(dead_code))] // its own model alone uses it there
mod ring;
#[cfg(not(sudog_loom))]
mod rings;

use std::fmt;
use std::time::Duration;

/// Something that happened to one contender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When, from [`start`]. Of two events of which one led to the other, that one is not the later, as long as the
    /// processors agree about the time.
    pub at: Duration,
    /// Who did it: who went to sleep, who overtook; but who was woken is known by [`Event::waiter`].
    pub who: Who,
    /// What.
    pub kind: Kind,
    /// Of which lock: the address of its semaphore.
    pub addr: usize,
    /// The same in all events of one wait in a semaphore table, so that a [`Kind::Handoff`] tells to whom: to the one
    /// that went to sleep with this number, last before it. In the events of a mutex 0; in those that a program records
    /// itself, whatever it says.
    pub waiter: usize,
}

/// Who does something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Who {
    /// A thread, or an async task that it polls. Numbered as they first record something.
    Thread(u64),
    /// A goroutine, by its id.
    Goroutine(u64),
}

/// Makes the enum and its names.
macro_rules! kinds {
    ($($(#[$doc:meta])* $Kind:ident = $name:literal,)+) => {
        /// What happened.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $Kind,)+
        }

        impl Kind {
            /// All.
            pub const ALL: &[Self] = &[$(Self::$Kind,)+];

            /// A name in small letters, as in "starving-enter".
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Kind => $name,)+ }
            }
        }
    };
}

kinds! {
    /// A waiter went to sleep, at the end of the line.
    Sleep = "sleep",
    /// A waiter that had been woken and was beaten went to sleep again, at the head of the line.
    Requeue = "requeue",
    /// A waiter was woken, to compete for its permit.
    Wake = "wake",
    /// A waiter was given its permit.
    Handoff = "handoff",
    /// A waiter gave up: a deadline, a cancel.
    Leave = "leave",
    /// A newcomer took the mutex while others slept on it.
    Barge = "barge",
    /// A contender took the mutex after it had spun for it, without a sleep.
    SpinWin = "spin-win",
    /// A contender that had waited too long, by its policy, turned the mutex to starvation mode.
    StarvingEnter = "starving-enter",
    /// A contender turned it back.
    StarvingExit = "starving-exit",
    /// In starvation mode, a thread or goroutine that was about to sleep took the permit that was meant for somebody in
    /// line: over a semaphore that cannot hand over.
    StolenToken = "stolen-token",
    /// A contender asked for the lock.
    Want = "want",
    /// It has the lock.
    Locked = "locked",
    /// It is about to release it.
    Unlocked = "unlocked",
}

/// What has been recorded.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// In the order of time; those of one thread in the order in which it recorded them.
    pub events: Vec<Event>,
    /// How many were dropped: the oldest of their threads, as there was no room; or those of a thread that had no ring
    /// yet, under a lock under which none may be made.
    pub dropped: u64,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Who {
    /// As in "thread 3".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(n) => write!(f, "thread {n}"),
            Self::Goroutine(id) => write!(f, "goroutine {id}"),
        }
    }
}

/// How many events a thread's ring holds: half a megabyte of them.
#[cfg(not(sudog_loom))]
pub const CAPACITY: usize = 1 << 14;

/// Begins a recording, in all threads. One that is under way is lost.
#[cfg(not(sudog_loom))]
pub fn start() {
    rings::start();
}

/// Ends the recording, and returns it. An event that is being recorded at this moment may be missed. Without a
/// [`start`] there is nothing.
#[cfg(not(sudog_loom))]
#[must_use]
pub fn stop() -> Recording {
    rings::stop()
}

/// Records an event of the calling goroutine, or thread, if a recording is under way.
///
/// `addr` is that of the lock's semaphore; of `waiter` 56 bits are kept. See [`Event`] for both.
#[inline]
pub fn record(kind: Kind, addr: usize, waiter: usize) {
    #[cfg(not(sudog_loom))]
    rings::record(kind, addr, waiter);
    #[cfg(sudog_loom)]
    let _ = (kind, addr, waiter);
}

/// [`record`], for where nothing may be allocated: an event of a thread that has no ring is dropped, and counted.
#[inline]
pub(crate) fn record_if_prepared(kind: Kind, addr: usize, waiter: usize) {
    #[cfg(not(sudog_loom))]
    rings::record_if_prepared(kind, addr, waiter);
    #[cfg(sudog_loom)]
    let _ = (kind, addr, waiter);
}

/// Makes this thread's ring, if a recording is under way, so that later events take no longer than others.
#[doc(hidden)]
#[inline]
pub fn prepare() {
    #[cfg(not(sudog_loom))]
    rings::prepare();
}
