//! The clock of a worker: goroutines that wait with a deadline, and the time slice of the one that runs.
//!
//! A slice begins at the first choice that is not `next`, and is measured from the 64th call after that, or the first
//! after the watcher has asked: the clock is read once in 64 calls. It ends only if another goroutine is there to have
//! the next one; and later if an idle worker may take that one: see `waits_for_thief`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::goroutine::native::fibre::Fibre;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::sched::bubble;
use crate::goroutine::native::sched::stall;
use crate::goroutine::native::sched::timer_heap::TimerHeap;
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::switch_hooks;
use crate::shim::system;
use crate::{Instant, ParkResult};

/// For how long a goroutine runs beside others before a call into the runtime makes it give way.
const SLICE: Duration = Duration::from_micros(100);
/// The same, beside goroutines that have not started, while another worker is idle: that one may have to be woken first,
/// and it takes what has waited for [`AGE`](super::worker::AGE).
const LONG_SLICE: Duration = Duration::from_millis(1);

impl Worker {
    fn timers<R>(&self, f: impl FnOnce(&mut TimerHeap<&'static Fibre>) -> R) -> R {
        // SAFETY: the owner's, and `f`, which is ours, does not come back here.
        f(unsafe { &mut *self.own.timers.get() })
    }

    pub(crate) fn set_timer(&self, fibre: &'static Fibre, when: Instant) {
        self.timers(|timers| timers.insert(when, fibre));
    }

    /// Takes a fibre out of the timers.
    pub(crate) fn disarm(&self, fibre: &'static Fibre) {
        if fibre.has_timer() {
            self.timers(|timers| timers.remove(fibre));
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers(|timers| timers.next())
    }

    pub(crate) fn fire_timers(&'static self) {
        if self.next_timer().is_none() {
            return;
        }
        let now = bubble::now();
        while let Some(fibre) = self.timers(|timers| timers.pop_due(now)) {
            self.enqueue(fibre, ParkResult::TimedOut, false);
        }
    }

    /// Whether the running goroutine has had its slice, and another goroutine is there to have one. Asks the clock only
    /// at every 64th call.
    #[inline]
    pub(crate) fn is_slice_over(&'static self) -> bool {
        self.count_call() && self.ask_clock()
    }

    /// Whether the clock is to be asked.
    #[inline(always)]
    pub(crate) fn count_call(&self) -> bool {
        let calls = self.own.calls.get().wrapping_add(1);
        self.own.calls.set(calls);
        calls.is_multiple_of(64) || self.preempt.load(Ordering::Relaxed)
    }

    #[cold]
    pub(crate) fn ask_clock(&'static self) -> bool {
        let now = system::now();
        let over = match self.own.slice.get() {
            None => {
                self.own.slice.set(Some(now));
                false
            }
            Some(since) => now - since > SLICE,
        };
        // The watcher has seen it run for many slices, whatever this clock says.
        let preempted = self.preempt.load(Ordering::Relaxed);
        if preempted {
            self.preempt.store(false, Ordering::Relaxed);
            if switch_hooks::observes_stalls()
                && let Some(fibre) = current::fibre()
            {
                stall::gives_up(fibre);
            }
        }
        let due = || self.next_timer().is_some_and(|when| when <= now);
        let gives_way =
            (over || preempted) && (self.has_work() || due()) && (preempted || !self.waits_for_thief(now, due));
        if gives_way && current::fibre().is_some() && current::current().is_none() {
            // Inside `without_switching`. The next call is asked, too: a round of two calls, of which each 64th is this
            // one, would else never give way.
            self.preempt.store(true, Ordering::Relaxed);
        }
        gives_way
    }

    /// All that waits here has not started, and another worker has nothing to do. If this worker began it, it would stay
    /// here: two goroutines that compute would share one worker, beside one that sleeps, until they end. So the slice goes
    /// on for a while, and a thief is woken.
    fn waits_for_thief(&'static self, now: Instant, due: impl FnOnce() -> bool) -> bool {
        let sched = self.sched();
        let only_unstarted = || !self.has_started_work() && self.inbox.is_empty() && !sched.has_global_work();
        let in_time = self.own.slice.get().is_some_and(|since| now - since <= LONG_SLICE);
        let waits = in_time && sched.has_idle_worker() && only_unstarted() && !due();
        if waits {
            sched.wake_for_work();
        }
        waits
    }
}
