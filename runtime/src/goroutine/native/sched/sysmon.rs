//! The watcher: a thread that sees what the workers do not. Go's `sysmon`.
//!
//! Every [`TICK`] it asks each worker that is awake to look at the clock: at the worker's next choice, or at the next call
//! of its goroutine into the runtime, timers that are due fire, and the goroutine gives way to others ([`preempt`]). For
//! queued work the watcher wakes a worker. When all workers sleep, the watcher calls what [`run`] has registered, the proof of a
//! deadlock, and then sleeps itself. It reports goroutines that do not give way ([`stall`]). It also starts the looks for goroutines that wait for
//! each other ([`cycle`]), and sees to it that no waker holds up the [`alarms`]. No user code runs here.
//!
//! [`cycle`]: crate::goroutine::native::sched::cycle
//! [`preempt`]: crate::goroutine::native::sched::preempt
//! [`run`]: fn@crate::goroutine::run

use crate::shim::system;
use crate::shim::system::atomic::{AtomicBool, Ordering};
use crate::shim::system::{Condvar, Mutex, MutexGuard, OnceLock};
use std::collections::HashMap;
use std::ptr;
use std::sync::PoisonError;

use crate::goroutine::native::alarm::alarms;
use crate::goroutine::native::fork;
use crate::goroutine::native::netpoll;
use crate::goroutine::native::sched::clock::{self, TICK};
use crate::goroutine::native::sched::cycle::Looks;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::stall::{self, Reports, Turn};

/// The watcher sleeps until [`rouse`]. Written under the lock.
static DOZING: AtomicBool = AtomicBool::new(false);
static LOCK: Mutex<()> = Mutex::new(());
static ROUSED: Condvar = Condvar::new();
/// The look when all workers sleep.
static AT_REST: OnceLock<Look> = OnceLock::new();

/// A look at the schedulers that the watcher looks at.
pub(crate) type Look = fn(&[&'static Sched]);

/// Starts the watcher, if it has not been started.
pub(crate) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        fork::mark_children();
        stall::start();
        // Without it goroutines run all the same, less fairly: nothing to die for.
        let _ = system::thread::Builder::new().name("sudog-watcher".into()).spawn(watch);
    });
}

/// Has the watcher make this look when all workers sleep. The first call counts.
pub(crate) fn look_at_rest(look: Look) {
    AT_REST.get_or_init(|| look);
}

fn lock() -> MutexGuard<'static, ()> {
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker is awake, perhaps after all slept. It was counted as awake before; see the end of [`watch`].
#[inline]
pub(crate) fn rouse() {
    if DOZING.load(Ordering::Relaxed) {
        rouse_slow();
    }
}

#[cold]
fn rouse_slow() {
    clock::refresh(system::now());
    let _lock = lock();
    DOZING.store(false, Ordering::Relaxed);
    ROUSED.notify_one();
}

fn watch() {
    // Where each worker was at the last look. Workers are never freed, so their address is their name.
    let mut turns: HashMap<usize, Turn> = HashMap::new();
    let mut stalls = Reports::default();
    let mut looks = Looks::default();
    let mut quiet = 0;
    loop {
        let now = system::now();
        clock::refresh(now);
        alarms::supervise(now);
        let next_look = looks.tick(now);
        let scheds = Sched::all();
        let mut awake = false;
        let before = std::mem::take(&mut turns);
        for worker in scheds.iter().flat_map(|sched| sched.workers()).filter(|worker| !worker.sleeper.is_asleep()) {
            awake = true;
            let (name, seen) = (ptr::from_ref(worker).addr(), worker.turns.load(Ordering::Relaxed));
            let mut turn = Turn { seen, since: now, is_reported: false };
            if let Some(before) = before.get(&name).filter(|before| before.seen == seen) {
                turn = *before;
                stalls.look(worker, &mut turn, now);
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
                scheds.iter().for_each(|sched| sched.wake_for_work()); // one of them will hold
            }
            // Twice, so that a thread that is about to be counted is. And at each look after: the last alarm may have gone off
            // since, and woken no worker.
            if quiet >= 2
                && let Some(look) = AT_REST.get()
            {
                look(&scheds);
            }
        }
        if netpoll::lacks_holder() {
            quiet = 1; // until one does
        }
        let lock = lock();
        DOZING.store(quiet >= 2, Ordering::Relaxed);
        // A worker is counted as awake, under the lock of `Idle`, before it reads `DOZING`. We have written `DOZING`
        // before we read the count under that lock: so we see the count, or it sees that we doze.
        // And a worker notes a wait before it is counted as asleep: so if we do not see the worker awake, we see the note.
        if quiet >= 2 && (Sched::all().iter().any(|sched| sched.idle.awake() > 0) || looks.are_wanted()) {
            DOZING.store(false, Ordering::Relaxed);
            quiet = 0;
            continue;
        }
        // An alarm that is going off keeps the report back, and wakes no watcher when it has.
        let is_going_off = quiet >= 2 && alarms::are_set();
        // Likewise: the first alarm of a shard is announced under the lock of `alarms`, before its caller reads `DOZING`.
        let nap = match quiet {
            0 | 1 => Some(TICK),
            _ => {
                let looks = alarms::next_look(now).into_iter().chain(next_look);
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
