//! The steps of the locks as events: sleeping, barging, the beginning and the end of a mutex's starvation mode.
//!
//! By default nothing is recorded, and no code for recording is compiled: the type of a lock says whether the lock
//! records.
//!
//! | recorder | how to enable recording |
//! |---|---|
//! | a semaphore table: [`Kind::Sleep`] to [`Kind::Leave`] | use queues of type [`Recorded`](crate::sema::queue::Recorded) |
//! | a mutex of `sudog-sync`: [`Kind::Barge`] to [`Kind::StolenToken`] | use the policy `policy::Recorded` |
//! | both, for all of a program's locks | use the feature `event` of these crates |
//! | the user of a lock: [`Kind::Want`], [`Kind::Locked`], [`Kind::Unlocked`], and any other | call [`record`] |
//!
//! A recording also has what goroutines do (run, wait, wake each other), if [`Recorder::goroutines`] asks for that.
//!
//! An event goes into a ring of the thread: 32 bytes, no lock, no allocation except for the thread's first event. A
//! full ring drops its oldest events, and counts them. Between [`start`] and [`stop`] an event costs about 20 ns,
//! nearly all of it for the time; otherwise an event costs a load and a branch.
//!
//! A table records under the bucket's lock, so the table's events are in the order in which they happened. A mutex
//! records just after the step on the word: two contenders' steps that are nanoseconds apart may be recorded in the
//! other order.
//!
//! `Recorder::on_long_wait` and `Recorder::write_on_long_wait` look into the recording by themselves, when a wait takes too long (Unix).
//!
//! [`stop`] ends a recording, and [`snapshot`] looks into a recording that goes on. [`Recording::write_trace`] writes
//! both for a viewer of traces.
//!
//! # Examples
//!
//! ```standalone_crate
//! use sudog::low_level::event;
//! use sudog::low_level::event::Kind;
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
#[cfg(all(unix, not(sudog_loom)))]
mod long_waits;
#[cfg_attr(sudog_loom, allow(dead_code))] // used there by its own model only
mod ring;
#[cfg(not(sudog_loom))]
mod rings;
#[cfg(all(unix, not(sudog_loom)))]
pub(crate) mod steps;
mod trace;
#[cfg(all(unix, not(sudog_loom)))]
mod tracks;

use std::fmt;
use std::time::Duration;

#[cfg(all(unix, not(sudog_loom)))]
use crate::goroutine::trace as goroutines;

/// An event: a step of a contender for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The time since [`start`]. Of two events in a causal order the effect is not earlier than the cause, as far as
    /// the processors' clocks agree.
    pub at: Duration,
    /// The thread or goroutine that acts, for example the sleeper or the waker. [`Event::waiter`] identifies a waiter
    /// that is woken.
    pub who: Who,
    /// The kind of the event.
    pub kind: Kind,
    /// The address of the lock's semaphore, which identifies the lock.
    pub addr: usize,
    /// A number that is the same in all events of one wait in a semaphore table. So the number in a [`Kind::Handoff`]
    /// identifies the waiter that was given the permit: the waiter that most recently went to sleep with this number.
    /// In the events of a mutex the number is 0; in events that a program records itself, the program's own value.
    pub waiter: usize,
}

/// A thread or a goroutine that acts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Who {
    /// A thread, or an async task that the thread polls. Threads are numbered in the order of their first events.
    Thread(u64),
    /// A goroutine, by its id.
    Goroutine(u64),
}

/// Makes the enum `Kind` and the names of the kinds.
macro_rules! kinds {
    ($($(#[$doc:meta])* $Kind:ident = $name:literal,)+) => {
        /// The kinds of events.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $Kind,)+
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$Kind,)+];

            /// Returns the kind's name in small letters, as in "starving-enter".
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Kind => $name,)+ }
            }
        }
    };
}

kinds! {
    /// A waiter went to sleep, at the end of the queue.
    Sleep = "sleep",
    /// A waiter that was woken, but lost to a newcomer, went to sleep again, at the front of the queue.
    Requeue = "requeue",
    /// A waiter was woken, to compete for a permit.
    Wake = "wake",
    /// A waiter was given a permit.
    Handoff = "handoff",
    /// A waiter gave up, at a deadline or by a cancel.
    Leave = "leave",
    /// A newcomer took the mutex while others slept on that mutex.
    Barge = "barge",
    /// A contender took the mutex after spinning, without sleeping.
    SpinWin = "spin-win",
    /// A contender that had waited longer than the policy's threshold switched the mutex to starvation mode.
    StarvingEnter = "starving-enter",
    /// A contender ended starvation mode.
    StarvingExit = "starving-exit",
    /// A thread or goroutine that was about to sleep took, in starvation mode, the permit that was meant for a waiter.
    /// This happens only if the mutex uses a semaphore that cannot hand off.
    StolenToken = "stolen-token",
    /// A contender asked for the lock.
    Want = "want",
    /// A contender has the lock.
    Locked = "locked",
    /// The owner is about to release the lock.
    Unlocked = "unlocked",
}

/// The recorded events.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The events in the order of time; those of one thread in the order in which that thread recorded them.
    pub events: Vec<Event>,
    /// The number of dropped events: the oldest events of full rings, and the events of a thread that had no ring while
    /// it held a lock under which no ring may be made.
    pub dropped: u64,
    /// The steps of goroutines, in the order of time.
    #[cfg(all(unix, not(sudog_loom)))]
    steps: Vec<steps::Step>,
}

impl Recording {
    /// Keeps the events of the last part of the recording, which takes the time `span`, and drops earlier events. The
    /// rings of idle threads reach further back than those of busy threads, so the beginning of a recording may lack
    /// events of some threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::low_level::event;
    ///
    /// event::start();
    /// let mut recording = event::snapshot();
    /// recording.keep_last(Duration::from_secs(5));
    /// ```
    pub fn keep_last(&mut self, span: Duration) {
        let from = self.end().saturating_sub(span);
        self.events.retain(|event| event.at >= from);
        #[cfg(all(unix, not(sudog_loom)))]
        self.steps.retain(|step| step.at >= from);
    }

    /// Returns the time of the last event.
    fn end(&self) -> Duration {
        let end = self.events.last().map_or(Duration::ZERO, |event| event.at);
        #[cfg(all(unix, not(sudog_loom)))]
        let end = end.max(self.steps.last().map_or(Duration::ZERO, |step| step.at));
        end
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Who {
    /// Writes the text, as in "thread 3".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(n) => write!(f, "thread {n}"),
            Self::Goroutine(id) => write!(f, "goroutine {id}"),
        }
    }
}

/// The settings of a recording.
///
/// # Examples
///
/// Go's `trace.FlightRecorder`: the program records always, and writes the last five seconds when asked to.
///
/// ```standalone_crate
/// use std::time::Duration;
/// use sudog::low_level::event::{self, Recorder};
/// use sudog::{run, spawn};
///
/// Recorder::new().goroutines().capacity(1 << 16).start();
/// run(|| spawn(|| ()).join().unwrap());
///
/// let mut recording = event::snapshot();
/// recording.keep_last(Duration::from_secs(5));
/// let mut trace = Vec::new(); // or a file, to be opened at https://ui.perfetto.dev
/// recording.write_trace(&mut trace)?;
/// # assert!(String::from_utf8(trace).unwrap().contains("running"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(not(sudog_loom))]
#[derive(Clone, Copy, Debug)]
pub struct Recorder {
    capacity: usize,
    /// True if the recording has the steps of goroutines.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there are no goroutines"))]
    goroutines: bool,
}

#[cfg(not(sudog_loom))]
impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(sudog_loom))]
impl Recorder {
    /// The number of events that the ring of a thread holds, if [`capacity`](Self::capacity) has set no other number. A
    /// ring of this size takes half a megabyte.
    pub const CAPACITY: usize = 1 << 14;

    /// Returns the settings of [`start`]: locks only, [`CAPACITY`](Self::CAPACITY) events for each thread.
    #[must_use]
    pub const fn new() -> Self {
        Self { capacity: Self::CAPACITY, goroutines: false }
    }

    /// Also records when each goroutine starts, runs, yields, waits and ends, on which worker, what the goroutine waits
    /// for, and which goroutine or thread makes it ready. [`Recording::write_trace`] shows these steps.
    /// [`Recording::events`] does not have them.
    ///
    /// Goroutines that run or wait at the start of the recording are recorded from one of their next waits on. An event
    /// costs as much as an event of a lock; a switch makes two events, a wake-up one or two. On systems other than Unix,
    /// which have no goroutines, this setting does nothing.
    #[must_use]
    pub const fn goroutines(self) -> Self {
        Self { goroutines: true, ..self }
    }

    /// Sets the number of events that the ring of a thread holds, rounded up to a power of two. An event takes 32 bytes.
    /// Rings are not freed, but later recordings with the same capacity use them again.
    ///
    /// # Panics
    ///
    /// If `events` is 0.
    #[must_use]
    pub const fn capacity(self, events: usize) -> Self {
        assert!(events > 0, "a ring for no events");
        Self { capacity: events, ..self }
    }

    /// Begins a recording, in all threads. Discards a recording that is under way.
    pub fn start(self) {
        #[cfg(unix)]
        let spares = if self.goroutines { goroutines::spare_rings() } else { 0 };
        #[cfg(not(unix))]
        let spares = 0;
        #[cfg(unix)]
        goroutines::stop();
        rings::start(self.capacity, spares);
        #[cfg(unix)]
        if self.goroutines {
            goroutines::start();
        }
    }
}

/// Begins a recording of what locks do, in all threads. Discards a recording that is under way. [`Recorder`] has more
/// settings.
#[cfg(not(sudog_loom))]
pub fn start() {
    Recorder::new().start();
}

/// Returns the events that have been recorded so far, and goes on with the recording: a flight recorder, as Go's
/// `trace.FlightRecorder`. The recording has at most the latest events of each thread that fit into a ring: see
/// [`Recorder::capacity`]. An event that is being recorded at this moment may be missed. Without a [`start`] the returned
/// recording is empty.
///
/// # Examples
///
/// Records always, and writes a [trace](Recording::write_trace) of what led to a wait that took too long:
///
/// ```
/// use std::time::{Duration, Instant};
/// use sudog::low_level::event::{self, Recorder};
/// use sudog::sync::Mutex;
///
/// static ACCOUNTS: Mutex<u64> = Mutex::new(0);
///
/// Recorder::new().goroutines().start();
/// let asked = Instant::now();
/// let mut accounts = ACCOUNTS.lock();
/// if asked.elapsed() > Duration::from_millis(50) {
///     let file = std::env::temp_dir().join("slow-lock.json");
///     event::snapshot().write_trace(std::fs::File::create(file)?)?;
/// }
/// *accounts += 1;
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(not(sudog_loom))]
#[must_use]
pub fn snapshot() -> Recording {
    rings::snapshot()
}

/// Ends the recording, and returns the recorded events. An event that is being recorded at this moment may be missed.
/// Without a [`start`] the returned recording is empty.
#[cfg(not(sudog_loom))]
#[must_use]
pub fn stop() -> Recording {
    #[cfg(unix)]
    goroutines::stop();
    rings::stop()
}

/// Records an event of the calling goroutine or thread, if a recording is under way.
///
/// `addr` is the address of the lock's semaphore; only the lower 56 bits of `waiter` are kept. See [`Event`] for both.
#[inline]
pub fn record(kind: Kind, addr: usize, waiter: usize) {
    #[cfg(not(sudog_loom))]
    rings::record(kind, addr, waiter);
    #[cfg(sudog_loom)]
    let _ = (kind, addr, waiter);
}

/// Records as [`record`] does, where nothing may be allocated: an event of a thread without a ring is dropped, and
/// counted.
#[inline]
pub(crate) fn record_if_prepared(kind: Kind, addr: usize, waiter: usize) {
    #[cfg(not(sudog_loom))]
    rings::record_if_prepared(kind, addr, waiter);
    #[cfg(sudog_loom)]
    let _ = (kind, addr, waiter);
}

/// Makes this thread's ring, if a recording is under way, so that the thread's first event takes no longer than others.
#[doc(hidden)]
#[inline]
pub fn prepare() {
    #[cfg(not(sudog_loom))]
    rings::prepare();
}
