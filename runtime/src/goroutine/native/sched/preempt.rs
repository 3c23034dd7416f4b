//! The clock of a worker: goroutines that wait with a deadline, and the time slice of the running goroutine.
//!
//! A slice begins when the worker chooses a goroutine other than `next`, and is measured from the first call after that
//! choice which reads the clock. The slice ends only if another goroutine is ready on this worker. If all of these have
//! not started, and another worker is idle, that worker gets them: see `waits_for_thief`.
//!
//! | reads the clock, and fires timers that are due | when |
//! |---|---|
//! | a call into the runtime | the first call after the watcher has asked; then the next, the second after that, the fourth after that, ..; each 64th call of a slice |
//! | a yield, if timers are set | each yield; each 16th, if yields follow each other fast |
//! | a choice of the next goroutine (timers only) | the first choice after the watcher has asked; each 64th; each that finds no other goroutine |
//!
//! The watcher asks every 10 ms, whatever the worker does. So a timer is late by at most 10 ms plus the time between
//! two calls or choices. If the goroutines of the worker yield, a timer is late by at most the time between two yields
//! that read the clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::goroutine::native::fibre::Fibre;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::sched::clock;
use crate::goroutine::native::sched::timer_heap::TimerHeap;
use crate::goroutine::native::sched::worker::{FibreQueue, Worker};
use crate::goroutine::native::switch_hooks;
use crate::shim::system;
use crate::{Instant, ParkResult};

/// The time after which a call into the runtime makes a goroutine give way to others.
const SLICE: Duration = Duration::from_micros(100);
/// The time for which work that has not started waits for an idle worker to take it. The idle worker may have to be
/// woken first, and takes only work that has waited for [`AGE`](super::worker::AGE).
const THIEF_WAIT: Duration = Duration::from_millis(1);

impl Worker {
    fn timers<R>(&self, f: impl FnOnce(&mut TimerHeap<&'static Fibre>) -> R) -> R {
        // SAFETY: only the owner uses `timers`. `f` is code of this module and does not call this function, so this
        // reference is the only one.
        f(unsafe { &mut *self.own.timers.get() })
    }

    pub(crate) fn set_timer(&self, fibre: &'static Fibre, when: Instant) {
        self.timers(|timers| timers.insert(when, fibre));
    }

    /// Takes a fibre out of the worker's timers, if the fibre is there.
    pub(crate) fn disarm(&self, fibre: &'static Fibre) {
        if fibre.has_timer() {
            self.timers(|timers| timers.remove(fibre));
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers(|timers| timers.next())
    }

    /// Drops all timers: goroutines that wait with a deadline then wait without a deadline.
    pub(crate) fn drop_timers(&self) {
        while let Some(first) = self.next_timer() {
            _ = self.timers(|timers| timers.pop_due(first));
        }
    }

    /// Readies the goroutines whose timers are due. These run before all others that are queued on this worker, as in
    /// Go: they have waited for long enough. But something else runs before such goroutines go first again, so that
    /// timers that are always due keep nothing out.
    pub(crate) fn fire_timers(&'static self) {
        if self.next_timer().is_none() {
            return;
        }
        let now = clock::now();
        let due = FibreQueue::new();
        let in_front = self.own.fired.get() == 0;
        while let Some(fibre) = self.timers(|timers| timers.pop_due(now)) {
            self.set_queued(fibre, ParkResult::TimedOut);
            if in_front {
                fibre.behind.set(self.ring.head());
                due.push(fibre);
                self.own.fired.set(self.own.fired.get().max(1) + 1);
            } else {
                self.queue(fibre);
            }
        }
        self.own.run_queue.prepend(&due);
    }

    /// Readies the goroutines whose timers are due. Called when a goroutine yields, and timers are set.
    #[inline(never)]
    pub(crate) fn yields_beside_timers(&'static self) {
        if self.own.pace.count_yield().is_some_and(|now| self.is_timer_due(now)) {
            self.fire_timers();
        }
    }

    /// Returns whether the running goroutine's slice is over and another goroutine is ready. Counts as a call.
    #[inline]
    pub(crate) fn is_slice_over(&'static self) -> bool {
        self.count_call() && self.ask_clock()
    }

    /// Counts a call. Returns whether the clock is to be read.
    #[inline(always)]
    pub(crate) fn count_call(&self) -> bool {
        self.own.pace.count_call() || self.is_asked()
    }

    /// Returns whether the watcher has asked since the last look at the clock.
    #[inline(always)]
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Has the next choice look for timers and for work from outside, as if the watcher had asked. Called when a task
    /// gives way. (A goroutine that gives way needs no such call: the queueing of the yielder looks for both.)
    pub(crate) fn ask_again(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn ask_clock(&'static self) -> bool {
        let now = system::now();
        let asked = self.is_asked();
        self.own.pace.call_looks();
        let over = match self.own.slice.get() {
            None => {
                self.own.slice.set(Some(now));
                false
            }
            Some(since) => now - since > SLICE,
        };
        if asked {
            self.asked.store(false, Ordering::Relaxed);
            self.own.pace.look_soon();
            if switch_hooks::observes_stalls()
                && let Some(fibre) = current::fibre()
            {
                fibre.show_stall(switch_hooks::Leaving::Waits);
            }
        }
        if self.is_timer_due(now) {
            self.fire_timers();
        }
        // Once in each tick of the watcher, end the goroutine's turn even before the slice is over, so that a goroutine
        // whose timer has just become due does not wait for the next tick.
        let gives_way = (over || asked) && self.has_work() && !self.waits_for_thief(now);
        if gives_way && current::fibre().is_some() && current::current().is_none() {
            // The caller is inside `without_switching`, and cannot give way. So let the next call look at the clock,
            // too: in a loop of two calls, each 64th call might always be the call inside.
            self.asked.store(true, Ordering::Relaxed);
        }
        gives_way
    }

    /// Returns whether the slice goes on because an idle worker takes the queued work. Wakes a thief; or, if the oldest
    /// work has waited for [`THIEF_WAIT`], places work on the idle workers: the system may run the thief on the processor
    /// of this worker, and there the work does not grow old enough to be stolen.
    ///
    /// The slice does not go on unless all that waits on this worker has not started, and another worker has nothing to
    /// do. If this worker began such work, the work would stay on this worker: two goroutines that compute would share
    /// a worker, beside a worker that sleeps, until they end.
    fn waits_for_thief(&'static self, now: Instant) -> bool {
        let sched = self.sched();
        let only_unstarted = !self.has_started_work() && self.inbox.is_empty() && !sched.has_global_work();
        if !only_unstarted || !sched.has_idle_worker() {
            return false;
        }
        if self.ring.is_empty() {
            return true; // a thief has come
        }
        let oldest = self.ring.head();
        match self.own.waits_for_thief.get() {
            Some((work, since)) if work == oldest => {
                if now.saturating_duration_since(since) > THIEF_WAIT {
                    self.place_on_idle_workers();
                    return !self.has_work();
                }
            }
            _ => self.own.waits_for_thief.set(Some((oldest, now))),
        }
        sched.wake_for_work();
        true
    }
}
