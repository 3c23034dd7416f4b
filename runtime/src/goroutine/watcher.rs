//! The watcher: a thread that sees what the workers do not. Go's `sysmon`.
//!
//! Every [`TICK`], while a worker is awake, it asks goroutines that have run for a whole tick to give way at their next
//! call into the runtime, and wakes somebody for work that lies about. When all workers sleep it looks whether they can
//! ever wake ([`deadlock`]), and then sleeps itself. It also keeps the timers of those who have no
//! worker: async tasks.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::builder::drop_payload;
use super::set::Set;
use super::worker::Worker;
use super::{context, deadlock};

/// How often it looks, and how long a goroutine may run.
const TICK: Duration = Duration::from_millis(10);

/// Milliseconds since the watcher started, as of its last look: what a wait is dated by, free of charge.
static COARSE: AtomicU64 = AtomicU64::new(0);

struct Watcher {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Ordered by time; the counter tells equal times apart.
    timers: BTreeMap<(Instant, u64), Timer>,
    next_timer: u64,
}

/// A waker to be woken, and the set that is not at rest until it has been.
struct Timer {
    waker: Waker,
    set: Option<&'static Set>,
}

/// The watcher sleeps until [`rouse`]. Written under the lock.
static DOZING: AtomicBool = AtomicBool::new(false);

static WATCHER: Watcher =
    Watcher { state: Mutex::new(State { timers: BTreeMap::new(), next_timer: 0 }), changed: Condvar::new() };

/// See [`COARSE`].
#[inline]
pub(super) fn coarse_now() -> u64 {
    COARSE.load(Ordering::Relaxed)
}

/// Starts the watcher, if it has not been started.
pub(super) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        // Without it goroutines run all the same, less fairly: nothing to die for.
        let _ = std::thread::Builder::new().name("sudog-watcher".into()).spawn(watch);
    });
}

fn lock() -> std::sync::MutexGuard<'static, State> {
    WATCHER.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker is awake, perhaps after all slept. It was counted as awake before; see the end of [`watch`].
#[inline]
pub(super) fn rouse() {
    if DOZING.load(Ordering::Relaxed) {
        rouse_slow();
    }
}

#[cold]
fn rouse_slow() {
    let _state = lock();
    DOZING.store(false, Ordering::Relaxed);
    WATCHER.changed.notify_one();
}

/// Wakes `waker` at `when`, unless [`cancel`] is called with the result before.
pub(super) fn at(when: Instant, waker: Waker) -> (Instant, u64) {
    start();
    let set = context::worker().map(Worker::set);
    if let Some(set) = set {
        set.idle.outside_begins();
    }
    let mut state = lock();
    let key = (when, state.next_timer);
    state.next_timer += 1;
    state.timers.insert(key, Timer { waker, set });
    if state.timers.first_key_value().is_some_and(|(first, _)| *first == key) {
        WATCHER.changed.notify_one();
    }
    key
}

/// Forgets a timer, and drops its waker.
pub(super) fn cancel(key: (Instant, u64)) {
    let timer = lock().timers.remove(&key);
    if let Some(timer) = timer {
        end(timer, drop);
    }
}

/// Does with a waker what there is to do, outside the lock as it is user code, and lets its set rest.
fn end(timer: Timer, f: fn(Waker)) {
    let Timer { waker, set } = timer;
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(waker))) {
        drop_payload(payload);
    }
    if let Some(set) = set {
        set.idle.outside_ends(set.ends_at_rest());
    }
}

/// Whether a timer is set.
pub(super) fn has_timers() -> bool {
    !lock().timers.is_empty()
}

fn watch() {
    let begun = Instant::now();
    // Where each worker was at the last look. Workers are never freed, so their address is their name.
    let mut turns: HashMap<usize, u32> = HashMap::new();
    let mut quiet = 0;
    loop {
        let now = Instant::now();
        COARSE.store((now - begun).as_millis() as u64, Ordering::Relaxed);
        fire(now);
        let sets = Set::all();
        let mut awake = false;
        let before = std::mem::take(&mut turns);
        for worker in sets.iter().flat_map(|set| set.workers()).filter(|worker| !worker.sleeper.is_asleep()) {
            awake = true;
            let (name, seen) = (ptr::from_ref(worker).addr(), worker.turns.load(Ordering::Relaxed));
            if before.get(&name) == Some(&seen) {
                worker.preempt.store(true, Ordering::Relaxed);
            }
            turns.insert(name, seen);
        }
        if awake {
            quiet = 0;
            for set in sets.iter().filter(|set| set.has_global_work() || set.has_work_in_rings()) {
                set.wake_for_work();
            }
        } else {
            quiet += 1;
            // Twice, so that a thread that is about to be counted is.
            if quiet == 2 {
                deadlock::look(&sets);
            }
        }
        let mut state = lock();
        let timer = state.timers.first_key_value().map(|((when, _), _)| *when);
        let nap = match timer {
            _ if quiet < 2 => Some(TICK.min(timer.map_or(TICK, |when| when.saturating_duration_since(now)))),
            Some(when) => Some(when.saturating_duration_since(now)),
            None => None,
        };
        DOZING.store(quiet >= 2, Ordering::Relaxed);
        // A worker is counted as awake, under the lock of `Idle`, before it reads `DOZING`. We have written `DOZING`
        // before we read the count under that lock: so we see the count, or it sees that we doze.
        if quiet >= 2 && Set::all().iter().any(|set| set.idle.awake() > 0) {
            DOZING.store(false, Ordering::Relaxed);
            quiet = 0;
            continue;
        }
        state = match nap {
            Some(nap) => WATCHER.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0,
            None => WATCHER.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        if quiet >= 2 && !DOZING.swap(false, Ordering::Relaxed) {
            quiet = 0;
        }
        drop(state);
    }
}

fn fire(now: Instant) {
    loop {
        let mut state = lock();
        let Some(first) = state.timers.first_entry().filter(|first| first.key().0 <= now) else { return };
        let timer = first.remove();
        drop(state);
        end(timer, Waker::wake);
    }
}
