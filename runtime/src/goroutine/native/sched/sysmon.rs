//! The watcher: a thread that notices conditions that the workers cannot notice themselves. Go's `sysmon`.
//!
//! Every [`TICK`] the watcher asks each worker that is awake to look at the clock. At the worker's next choice, or at
//! the next call of the running goroutine into the runtime, timers that are due fire, and the goroutine gives way to
//! others ([`preempt`]). If a worker has made no choice since the last tick, the goroutines in that worker's ring,
//! which have not started, go to the global queue. If work is queued, the watcher wakes a worker. When all workers
//! sleep, the watcher calls the function that [`run`] has registered, which tries to prove a deadlock, and then sleeps
//! itself. The watcher reports goroutines that do not give way ([`stall`]), and makes sure that no waker holds up the
//! [`alarms`]; and the number of workers follows the cgroup's quota ([`Follower`]). The search for goroutines that wait for
//! each other ([`cycle`]) hands in what the watcher does for the search ([`Watch`]). No user code runs on the watcher.
//!
//! [`cycle`]: crate::goroutine::native::sched::cycle
//! [`preempt`]: crate::goroutine::native::sched::preempt
//! [`run`]: fn@crate::goroutine::run

use crate::shim::system;
use crate::shim::system::atomic::{AtomicBool, Ordering, fence};
use crate::shim::system::{Condvar, Mutex, MutexGuard, OnceLock};
use std::collections::HashMap;
use std::ptr;
use std::sync::PoisonError;

use crate::Instant;
use crate::goroutine::native::alarm::alarms;
use crate::goroutine::native::fork;
#[cfg(feature = "metrics")]
use crate::goroutine::native::metrics::schedtrace::SchedTrace;
use crate::goroutine::native::netpoll;
use crate::goroutine::native::sched::clock::{self, TICK};
use crate::goroutine::native::sched::procs::Follower;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::stall::{self, Reports, Turn};

/// True while the watcher sleeps until [`rouse`]. Written under `LOCK`.
static DOZING: AtomicBool = AtomicBool::new(false);
static LOCK: Mutex<()> = Mutex::new(());
static ROUSED: Condvar = Condvar::new();
/// The function to call when all workers sleep: see [`look_at_rest`].
static AT_REST: OnceLock<Look> = OnceLock::new();

/// The work that [`watch_also`] has handed in.
static WATCH: OnceLock<&'static dyn Watch> = OnceLock::new();

/// Work that the watcher does at each tick.
pub(crate) trait Watch: Sync {
    /// Does the work that is due. Returns the time of the next tick that is needed for this work, if any.
    fn tick(&self, now: Instant) -> Option<Instant>;

    /// Returns whether there is work at the next tick. If so, the watcher must not sleep until a worker rouses the
    /// watcher.
    fn is_wanted(&self) -> bool;
}

/// A function that is called with all schedulers that the watcher looks at.
pub(crate) type Look = fn(&[&'static Sched]);

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
pub(crate) fn look_at_rest(look: Look) {
    AT_REST.get_or_init(|| look);
}

/// Has the watcher do more work, too. Only the first call has an effect.
pub(crate) fn watch_also(watch: &'static dyn Watch) {
    WATCH.get_or_init(|| watch);
}

fn lock() -> MutexGuard<'static, ()> {
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rouses the watcher, if the watcher sleeps. Called by a worker that has woken, after the worker has been counted as
/// awake: see the end of [`watch`].
#[inline]
pub(crate) fn rouse() {
    if DOZING.load(Ordering::Relaxed) {
        rouse_slow();
    }
}

/// Rouses the watcher, if the watcher sleeps. Called by a thread that has noted a wait, by a store before this call.
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
    // The turn of each worker at the last look, by the worker's address: workers are never freed.
    let mut turns: HashMap<usize, Turn> = HashMap::new();
    let mut stalls = Reports::default();
    #[cfg(feature = "metrics")]
    let mut trace = SchedTrace::new();
    let mut follower = Follower::new();
    let mut quiet = 0;
    loop {
        let now = system::now();
        clock::refresh(now);
        #[cfg(feature = "metrics")]
        trace.tick(now);
        if follower.is_some() && !Sched::follows_quota() {
            follower = None;
        }
        if let Some(n) = follower.as_mut().and_then(|follower| follower.tick(now)) {
            Sched::follow_quota(n);
        }
        alarms::supervise(now);
        let next_look = WATCH.get().and_then(|watch| watch.tick(now));
        let scheds = Sched::all();
        let mut awake = false;
        let before = std::mem::take(&mut turns);
        for worker in scheds.iter().flat_map(|sched| sched.workers()).filter(|worker| !worker.sleeper.is_asleep()) {
            awake = true;
            let (name, seen) = (ptr::from_ref(worker).addr(), worker.turns.load(Ordering::Relaxed));
            let mut turn = Turn { seen, since: now, is_reported: false };
            if let Some(before) = before.get(&name).filter(|before| before.seen == seen) {
                turn = *before;
                stalls.look(&worker.stall, || worker.has_shared_work(), &mut turn, now);
                worker.hand_over();
            }
            worker.asked.store(true, Ordering::Relaxed);
            turns.insert(name, turn);
        }
        if netpoll::lacks_holder() {
            netpoll::poll_now();
        }
        if awake {
            quiet = 0;
            for sched in scheds.iter().filter(|sched| sched.has_global_work() || sched.has_work_in_rings()) {
                sched.wake_for_work();
            }
        } else {
            quiet += 1;
            if netpoll::lacks_holder() {
                scheds.iter().for_each(|sched| sched.wake_for_work()); // a woken worker will hold the poller
            }
            // Call `look` only at the second quiet tick, so that a thread that was about to be counted has been
            // counted. Call `look` at each later quiet tick, too: the last alarm may have gone off since, and woken no
            // worker.
            if quiet >= 2
                && let Some(look) = AT_REST.get()
            {
                look(&scheds);
            }
        }
        if netpoll::lacks_holder() {
            quiet = 1; // until a worker holds the poller
        }
        let is_wanted = || WATCH.get().is_some_and(|watch| watch.is_wanted());
        let lock = lock();
        DOZING.store(quiet >= 2, Ordering::Relaxed);
        // A worker is counted as awake, under the lock of `Idle`, before the worker reads `DOZING`. The watcher has
        // written `DOZING` before the watcher reads the count under that lock. So either the watcher sees the count, or
        // the worker sees that the watcher dozes. And a worker notes a wait before the worker is counted as asleep. So
        // if the watcher does not see the worker awake, the watcher sees the note. The fence is for the notes of threads:
        // see `rouse_for_note`.
        if quiet >= 2 {
            fence(Ordering::SeqCst);
        }
        if quiet >= 2 && (Sched::all().iter().any(|sched| sched.idle.awake() > 0) || is_wanted()) {
            DOZING.store(false, Ordering::Relaxed);
            quiet = 0;
            continue;
        }
        // While an alarm's waker runs, no deadlock is reported, and the end of the waker does not rouse the watcher. So
        // tick again.
        let is_going_off = quiet >= 2 && alarms::are_set();
        // The same holds for alarms: the first alarm of a shard is announced under the lock of `alarms`, before the
        // caller that has set the alarm reads `DOZING`.
        let nap = match quiet {
            0 | 1 => Some(TICK),
            _ => {
                let looks = alarms::next_look(now).into_iter().chain(next_look);
                #[cfg(feature = "metrics")]
                let looks = looks.chain(trace.next());
                let look = looks.min().map(|look| look.saturating_duration_since(now));
                look.or_else(|| is_going_off.then_some(TICK))
            }
        };
        let lock = match nap {
            Some(nap) => ROUSED.wait_timeout(lock, nap).unwrap_or_else(PoisonError::into_inner).0,
            None => ROUSED.wait(lock).unwrap_or_else(PoisonError::into_inner),
        };
        if quiet >= 2 && !DOZING.swap(false, Ordering::Relaxed) {
            quiet = 0;
        }
        drop(lock);
    }
}
