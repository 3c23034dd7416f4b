//! What happens later on behalf of the caller: timers and calls, for the contexts of `sudog-sync`.

use std::task::Waker;
use std::time::Instant;

use crate::goroutine::native::alarm::alarms;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::sched::scheduler::Sched;

/// A timer that is set. Forgotten, it goes off all the same.
#[derive(Debug)]
pub struct Alarm(alarms::Key);

/// Wakes `waker` at `when`, on a thread for that.
///
/// Until then, or until it is called off, the caller's [`Scheduler`](crate::goroutine::Scheduler) is not at rest, and
/// no deadlock is reported.
#[must_use]
pub fn alarm(when: Instant, waker: Waker) -> Alarm {
    Alarm(alarms::set(when, waker))
}

impl Alarm {
    /// Drops the waker, unless it is being woken.
    pub fn call_off(self) {
        alarms::cancel(self.0);
    }
}

/// The scheduler of the caller's goroutines, for a goroutine that another thread may start later: it belongs to the
/// same [`run`](fn@crate::goroutine::run) or [`Scheduler`](crate::goroutine::Scheduler), whichever thread starts it.
#[derive(Clone, Copy)]
pub struct Home {
    pub(crate) sched: &'static Sched,
    pub(crate) epoch: u64,
}

impl Home {
    /// The caller's.
    #[must_use]
    pub fn here() -> Self {
        let sched = Sched::here();
        let epoch = current::worker().map_or_else(|| sched.idle.epoch(), |worker| worker.sleeper.epoch.get());
        Self { sched, epoch }
    }

    /// That of the background.
    pub(crate) fn background() -> Self {
        let sched = Sched::background();
        Self { sched, epoch: sched.idle.epoch() }
    }

    /// [`go`](fn@crate::goroutine::go), at home. If what was there has ended, `f` is dropped here, as are all
    /// goroutines of it that have not begun.
    pub fn go<F: FnOnce() + Send + 'static>(self, f: F) {
        self.sched.submit_late(f, self.epoch);
    }
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home").field("over", &self.sched.idle.is_over(self.epoch)).finish_non_exhaustive()
    }
}
