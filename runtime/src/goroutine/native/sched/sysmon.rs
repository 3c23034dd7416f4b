//! The watcher: a thread that notices conditions that the workers cannot notice themselves. Go's `sysmon`.
//!
//! Every [`TICK`] the watcher calls each [`Watch`] that has been handed in:
//!
//! | of | does at a tick |
//! |---|---|
//! | the schedulers (`scheduler.rs`) | asks each worker that is awake to look at the clock, reports goroutines that do not give way, wakes a worker if work is queued, follows the cgroup's quota |
//! | the alarms (`alarms.rs`) | makes sure that no waker holds up the alarms |
//! | the search for goroutines that wait for each other (`cycle.rs`) | starts a thread that looks, some time after such a wait has begun |
//! | the lines of `SUDOG_DEBUG` (`schedtrace.rs`) | prints a line if its time has come |
//!
//! When all workers sleep, the watcher calls the function that [`run`] has registered, which tries to prove a deadlock.
//! Then the watcher dozes: it sleeps until the time that a watch needs, or until it is roused. If a foreign thread has hindered
//! the proof, the watcher looks again after a second, and then less and less often, as the end of such a thread rouses nobody.
//! No user code runs on the watcher.
//!
//! [`run`]: fn@crate::goroutine::run

use crate::shim::system;
use crate::shim::system::atomic::{AtomicBool, Ordering, fence};
use crate::shim::system::{Condvar, Mutex, MutexGuard, OnceLock};
use std::sync::PoisonError;
use std::time::Duration;

use crate::Instant;
use crate::goroutine::native::fork;
use crate::goroutine::native::sched::clock::{self, TICK};
use crate::goroutine::native::sched::stall;

/// True while the watcher dozes. Written under the lock of `WATCHES`.
static DOZING: AtomicBool = AtomicBool::new(false);
/// The work that [`watch_also`] has handed in.
static WATCHES: Mutex<Watches> = Mutex::new([None; 4]);
static ROUSED: Condvar = Condvar::new();
/// The function to call when all workers sleep: see [`look_at_rest`].
static AT_REST: OnceLock<fn() -> AtRest> = OnceLock::new();

/// The first pause and the longest pause after a look at rest that is to be made again. Each pause is twice as long as the one
/// before.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The result of a look while all workers sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtRest {
    /// A worker that wakes, or an alarm, rouses the watcher.
    Waits,
    /// A thread that may end without rousing the watcher has hindered the proof of a deadlock: look again.
    LooksAgain,
}

/// Room for all watches of this crate.
type Watches = [Option<&'static dyn Watch>; 4];

/// Work that the watcher does at each tick.
pub(crate) trait Watch: Sync {
    /// Does the work that is due. Returns whether a worker is awake, or must soon be.
    fn tick(&self, now: Instant) -> bool;

    /// Returns the time of the next tick that this work needs. A time that is not after `now`: the work needs a tick at
    /// once. None: the work needs no tick until a thread rouses the watcher.
    ///
    /// Called when the watcher is about to doze. A thread that makes work later rouses the watcher.
    fn next_tick(&self, now: Instant) -> Option<Instant>;
}

/// Starts the watcher, unless the watcher has been started.
pub(crate) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        fork::mark_children();
        stall::start();
        // Ignore an error: without the watcher goroutines still run, less fairly.
        let _ = system::thread::Builder::new().name("sudog-watcher".into()).spawn(watch);
    });
}

/// Has the watcher call `look` when all workers sleep. Only the first call has an effect.
pub(crate) fn look_at_rest(look: fn() -> AtRest) {
    AT_REST.get_or_init(|| look);
}

/// Has the watcher do more work, too. Called once for each watch.
pub(crate) fn watch_also(watch: &'static dyn Watch) {
    let mut watches = lock();
    let place = watches.iter_mut().find(|place| place.is_none()).expect("room for all watches");
    *place = Some(watch);
    DOZING.store(false, Ordering::Relaxed);
    ROUSED.notify_one();
}

fn lock() -> MutexGuard<'static, Watches> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rouses the watcher, if the watcher dozes. Called by a worker that has woken, after the worker has been counted as
/// awake: see the end of [`watch`].
#[inline]
pub(crate) fn rouse() {
    if DOZING.load(Ordering::Relaxed) {
        rouse_slow();
    }
}

/// Rouses the watcher, if the watcher dozes. Called by a thread that has noted a wait, by a store before this call.
#[cold]
pub(crate) fn rouse_for_note() {
    // Pairs with the fence in `watch`: either this thread reads that the watcher dozes, or the watcher reads the note.
    fence(Ordering::SeqCst);
    rouse();
}

#[cold]
fn rouse_slow() {
    clock::refresh(system::now());
    let _lock = lock();
    DOZING.store(false, Ordering::Relaxed);
    ROUSED.notify_one();
}

fn watch() {
    // The number of ticks in a row at which all workers slept.
    let mut quiet = 0;
    let mut pause = PAUSES.0;
    loop {
        let now = system::now();
        clock::refresh(now);
        let watches = *lock();
        let mut is_busy = false;
        for watch in watches.iter().flatten() {
            is_busy |= watch.tick(now);
        }
        quiet = if is_busy { 0 } else { quiet + 1 };
        let mut look_again = None;
        // Call `look` only at the second quiet tick, so that a thread that was about to be counted has been counted. Call
        // `look` at each later quiet tick, too: the last alarm may have gone off since, and woken no worker.
        if quiet < 2 {
            pause = PAUSES.0;
        } else if AT_REST.get().is_some_and(|look| look() == AtRest::LooksAgain) {
            look_again = now.checked_add(pause);
            pause = (2 * pause).min(PAUSES.1);
        }
        let watches = lock();
        DOZING.store(quiet >= 2, Ordering::Relaxed);
        let nap = if quiet < 2 {
            Some(TICK)
        } else {
            // Ask each watch only now. A worker is counted as awake, under the lock of `Idle`, before the worker reads
            // `DOZING`. The watcher has written `DOZING` before the watcher reads the count under that lock. So either
            // the watcher sees the count, or the worker sees that the watcher dozes. The same holds for alarms: the
            // first alarm of a shard is announced under the lock of `alarms`, before the caller that has set the alarm
            // reads `DOZING`. And a worker notes a wait before the worker is counted as asleep. So if the watcher does
            // not see the worker awake, the watcher sees the note. The fence is for the notes of threads: see
            // `rouse_for_note`.
            fence(Ordering::SeqCst);
            let next = watches.iter().flatten().filter_map(|watch| watch.next_tick(now)).chain(look_again).min();
            if next.is_some_and(|next| next <= now) {
                DOZING.store(false, Ordering::Relaxed);
                quiet = 0;
                continue;
            }
            next.map(|next| next.saturating_duration_since(now))
        };
        let lock = match nap {
            Some(nap) => ROUSED.wait_timeout(watches, nap).unwrap_or_else(PoisonError::into_inner).0,
            None => ROUSED.wait(watches).unwrap_or_else(PoisonError::into_inner),
        };
        if quiet >= 2 && !DOZING.swap(false, Ordering::Relaxed) {
            quiet = 0;
        }
        drop(lock);
    }
}
