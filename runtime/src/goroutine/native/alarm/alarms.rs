//! Alarms by the system's clock: wakers that are woken at a given time. The timers of async tasks, of contexts and of
//! `after_func`; in a bubble, [`here`](super::here) has other alarms for these.
//!
//! A waker is user code. A waker may wait, even for another alarm. So a waker runs on a thread that only wakes, never
//! on the watcher or on a worker, and no waker keeps another waker from being woken:
//!
//! | thread | does | next |
//! |---|---|---|
//! | leader, at most one | sleeps until the first alarm is due | takes that alarm off, and is no leader |
//! | a thread that wakes | runs one waker | leader, if there is none; else ends |
//! | the watcher | looks whether an alarm has been due for a tick, while no thread has begun to wake another | starts a thread, which leads |
//!
//! As long as wakers do not wait there is one thread, and that thread needs no help to wake all wakers.
//!
//! The alarms are in shards, so that workers which set and cancel alarms do not contend for one lock:
//!
//! | lock | protects | taken by |
//! |---|---|---|
//! | a shard's | the alarms of that shard | each caller that sets an alarm in that shard, or cancels one |
//! | the state's | the rest | the threads above, which then look at all shards, one after the other, with their locks; a caller whose alarm is the first of its shard, after the alarm is in the shard |
//!
//! A thread decides under the state's lock until when it sleeps. Either that thread has seen the first alarm of each
//! shard, or the caller that set such an alarm takes the same lock afterwards, sees until when the thread sleeps, and
//! rouses the thread if that is too late. An alarm that is not the first of its shard when set is due after an alarm
//! that was. If the earlier alarm is cancelled, the thread is roused too early, and looks again.

use crate::shim::system;
use crate::shim::system::{Condvar, Mutex, MutexGuard, OnceLock};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fork;
use crate::goroutine::native::sched::clock::TICK;
use crate::goroutine::native::sched::sysmon::{self, Watch};
use crate::panics::drop_payload;

/// The time after which a leader without alarms ends.
const KEEP: Duration = Duration::from_secs(10);

/// The key by which [`cancel`] finds an alarm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    shard: usize,
    at: InShard,
}

/// The time when an alarm is due, and a number that tells alarms of equal times apart.
type InShard = (Instant, u64);

/// The alarms that some of the workers set; the first shard also has those of other threads.
struct Shard {
    /// The alarms, in the order in which they are due.
    alarms: BTreeMap<InShard, Waker>,
    next: u64,
}

struct State {
    /// True while a thread leads: that thread waits for the first alarm.
    led: bool,
    /// The time until which the leader sleeps. None: there was no alarm.
    until: Option<Instant>,
    threads: usize,
    /// The number of threads that run a waker.
    waking: usize,
    /// The number of wakers that threads have begun to wake.
    begun: u64,
    /// The value of `begun` that the watcher saw last.
    seen: u64,
    /// The time of the watcher's next look, if the watcher sleeps. None: the watcher looks when roused.
    look: Option<Instant>,
}

const SHARDS: usize = 16;
static ALARMS: [CachePadded<Mutex<Shard>>; SHARDS] =
    [const { CachePadded::new(Mutex::new(Shard { alarms: BTreeMap::new(), next: 0 })) }; SHARDS];
static STATE: Mutex<State> =
    Mutex::new(State { led: false, until: None, threads: 0, waking: 0, begun: 0, seen: 0, look: None });
/// Notified when a new alarm is due before the leader would wake.
static CHANGED: Condvar = Condvar::new();

/// Locks the state. No user code runs under this lock.
fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a shard. No user code runs under this lock. A thread that takes both locks takes the state's first.
fn lock_shard(shard: usize) -> MutexGuard<'static, Shard> {
    ALARMS[shard].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes `waker` at `when`, by the system's clock, unless [`cancel`] is called before with the returned key.
pub(crate) fn set(when: Instant, waker: Waker) -> Key {
    static WATCHED: OnceLock<()> = OnceLock::new();
    fork::forbid_in_child();
    WATCHED.get_or_init(|| {
        sysmon::watch_also(&Supervisor);
        sysmon::start();
    });
    let number = current::worker().map_or(0, |worker| worker.index % SHARDS);
    let mut shard = lock_shard(number);
    let at = (when, shard.next);
    shard.next += 1;
    shard.alarms.insert(at, waker);
    let is_first = shard.alarms.first_key_value().is_some_and(|(first, _)| *first == at);
    drop(shard);
    if is_first {
        announce(when);
    }
    Key { shard: number, at }
}

/// Rouses the threads that sleep for too long. Called for an alarm that is the first of its shard.
fn announce(when: Instant) {
    let state = lock();
    let too_late = state.look.is_none_or(|look| look.saturating_duration_since(when) > TICK);
    if state.led && state.until.is_none_or(|until| when < until) {
        CHANGED.notify_one();
    }
    if state.threads == 0 {
        start(state)
    } else {
        drop(state)
    }
    if too_late {
        sysmon::rouse();
    }
}

/// Cancels an alarm, and drops the alarm's waker.
pub(crate) fn cancel(key: Key) {
    let waker = lock_shard(key.shard).alarms.remove(&key.at);
    if let Some(waker) = waker {
        end(waker, drop);
    }
}

/// Returns whether a waker is still to be woken, or is being woken.
pub(crate) fn are_set() -> bool {
    let state = lock();
    state.waking > 0 || state.first().is_some()
}

/// Returns the number of threads.
pub(crate) fn threads() -> usize {
    lock().threads
}

/// The watcher's part: see the table at the top of this file.
struct Supervisor;

impl Watch for Supervisor {
    fn tick(&self, now: Instant) -> bool {
        supervise(now);
        false
    }

    fn next_tick(&self, now: Instant) -> Option<Instant> {
        // While a waker runs, no deadlock is reported, and the end of the waker does not rouse the watcher. So tick on.
        next_look(now).or_else(|| are_set().then(|| now + TICK))
    }
}

/// Starts another thread if an alarm is due and all threads still run wakers. Called by the watcher at each look.
fn supervise(now: Instant) {
    let mut state = lock();
    let held_up = !state.led && state.begun == state.seen;
    state.seen = state.begun;
    if held_up && state.first().is_some_and(|(first, _)| first <= now) {
        start(state);
    }
}

/// Returns the time of the watcher's next look. None: an alarm that is set later will rouse the watcher. Called by the
/// watcher before it sleeps.
fn next_look(now: Instant) -> Option<Instant> {
    let mut state = lock();
    // If the clock cannot count the time of the look, no look is needed.
    state.look = state.first().and_then(|(first, _)| first.max(now).checked_add(TICK));
    state.look
}

fn start(mut state: MutexGuard<'static, State>) {
    state.led = true;
    state.threads += 1;
    let none_before = state.threads == 1;
    drop(state);
    if let Err(error) = system::thread::Builder::new().name("sudog-alarms".into()).spawn(lead) {
        if none_before {
            crate::fatal(&format!("sudog: no thread for timers: {error}"));
        }
        let mut state = lock(); // the watcher will try again
        state.led = false;
        state.threads -= 1;
    }
}

/// The main function of a thread that begins as the leader.
fn lead() {
    let mut state = lock();
    loop {
        let now = system::now();
        let Some((first, shard)) = state.first() else {
            state.until = None;
            let (back, timeout) = CHANGED.wait_timeout(state, KEEP).unwrap_or_else(PoisonError::into_inner);
            state = back;
            if timeout.timed_out() && state.first().is_none() {
                break;
            }
            continue;
        };
        if first > now {
            state.until = Some(first);
            state = CHANGED.wait_timeout(state, first - now).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        // The alarm may have been cancelled meanwhile.
        let Some(waker) = lock_shard(shard).take_due(now) else { continue };
        state.led = false;
        state.begun += 1;
        state.waking += 1;
        drop(state);
        end(waker, Waker::wake);
        state = lock();
        state.waking -= 1;
        if state.led {
            // The watcher has started another thread while the waker held this thread up.
            state.threads -= 1;
            return;
        }
        state.led = true;
    }
    state.led = false;
    state.threads -= 1;
}

/// Wakes or drops a waker, which is user code and may panic. A panic is caught.
fn end(waker: Waker, f: fn(Waker)) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(waker))) {
        drop_payload(payload);
    }
}

impl Shard {
    /// Takes the first alarm off, if that alarm is due.
    fn take_due(&mut self, now: Instant) -> Option<Waker> {
        let first = self.alarms.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

impl State {
    /// Returns the time when the first alarm is due, and that alarm's shard. A method of `State`, as the state's lock
    /// must be held: see the top of this file.
    fn first(&self) -> Option<(Instant, usize)> {
        let of = |shard: usize| lock_shard(shard).alarms.first_key_value().map(|((when, _), _)| (*when, shard));
        (0..SHARDS).filter_map(of).min()
    }
}
