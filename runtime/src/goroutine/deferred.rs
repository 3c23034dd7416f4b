//! What is to happen later, in the name of whoever asks now: timers and calls, for the contexts of `sudog-sync`.

use std::ptr;
use std::task::Waker;
use std::time::Instant;

use super::set::Set;
use super::worker::Worker;
use super::{context, job, watcher};

/// A timer that is set. Forgotten, it goes off all the same.
#[derive(Debug)]
pub struct Alarm((Instant, u64));

/// Wakes `waker` at `when`, on a thread that has other things to do.
///
/// Until then, or until it is called off, the caller's [`ActiveSet`](super::ActiveSet) is not at rest, and nobody is
/// told of a deadlock.
#[must_use]
pub fn alarm(when: Instant, waker: Waker) -> Alarm {
    Alarm(watcher::at(when, waker))
}

impl Alarm {
    /// Drops the waker, unless it is being woken.
    pub fn call_off(self) {
        watcher::cancel(self.0);
    }
}

/// Where the caller's goroutines are at home, for a goroutine that somebody else may start, later: it belongs to the
/// same [`run`](fn@super::run) or [`ActiveSet`](super::ActiveSet), whoever starts it.
#[derive(Clone, Copy)]
pub struct Home {
    set: &'static Set,
    epoch: u32,
}

impl Home {
    /// The caller's.
    #[must_use]
    pub fn here() -> Self {
        let set = Set::here();
        let epoch = context::worker().map_or_else(|| set.idle.epoch(), |worker| worker.sleeper.epoch.get());
        Self { set, epoch }
    }

    /// [`go`](fn@super::go), at home. If what was there has ended, `f` is dropped, as are all goroutines of it that
    /// have not begun.
    pub fn go<F: FnOnce() + Send + 'static>(self, f: F) {
        let Self { set, epoch } = self;
        let worker = context::worker();
        // One who is inside, or is waited for, keeps a set that ends at rest from ending between the look and the
        // submission. A `run` may end then: what is submitted to it late is never run.
        let outside = !worker.map(Worker::set).is_some_and(|here| ptr::eq(here, set));
        if outside {
            set.idle.outside_begins();
        }
        let refused = if set.idle.is_over(epoch) {
            Some(f)
        } else {
            set.count_made();
            set.submit(job::pack(f, None, worker));
            None
        };
        if outside {
            set.idle.outside_ends(set.ends_at_rest());
        }
        drop(refused);
    }
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home").field("over", &self.set.idle.is_over(self.epoch)).finish_non_exhaustive()
    }
}
