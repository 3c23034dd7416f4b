//! The local state of a contender in the slow path.

use std::time::Duration;

use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};
use sudog_runtime::shim::system;
use sudog_runtime::{G, Instant};

use super::contention_hint;
use super::policy::{Policy, SpinStrategy};
use super::spin::Spinner;
use super::successor::Successor;
use crate::now;
use crate::raw::Order;

/// A contender in the slow path.
pub(super) struct Contender<'a> {
    /// True if the contender is the designated waker, which holds WOKEN.
    pub(super) designated: bool,
    /// True if the contender has registered as a waiter, and has not woken since: also after the unlock that wakes the
    /// contender has unregistered it.
    pub(super) registered: bool,
    /// True if the contender has waited too long, and so sets STARVING as it goes to sleep. For a contender with the
    /// successor strategy, true only if there is a single processor: otherwise such a contender sets STARVING while it
    /// is awake.
    pub(super) starving: bool,
    pub(super) patience: Patience<'a>,
    pub(super) strategy: Strategy,
}

/// The limits of a contender's wait.
pub(super) struct Patience<'a> {
    /// The time that the contender waits before it starves.
    pub(super) threshold: Duration,
    /// The contender gives up at this limit.
    pub(super) limit: WaitLimit<'a>,
    /// The time at which the contender first went to sleep.
    pub(super) first_slept_at: Option<Instant>,
}

/// The strategy of a contender before it sleeps, with the fields that only this [`SpinStrategy`] needs.
pub(super) enum Strategy {
    Spin(Spinner),
    Successor(Successor),
}

/// The outcome of [`GoMutex::contend`](super::GoMutex::contend).
pub(super) enum Step {
    /// The contender has the mutex.
    Locked,
    /// This limit of the contender has come. The contender is not the designated waker.
    GivesUp(WaitError),
    /// The contender is registered as a waiter, and must sleep.
    Sleep(Order),
    /// The count has no room for another waiter. The contender must try again, later.
    TooManyWaiters,
}

impl<'a> Contender<'a> {
    /// Returns the contender that is the calling thread or goroutine.
    pub(super) fn current<P: Policy>(limit: WaitLimit<'a>) -> Self {
        const {
            assert!(
                matches!(P::GOROUTINE_STRATEGY, SpinStrategy::Spin { .. }),
                "a goroutine that watched the mutex would keep its worker from running others"
            );
        }
        if G::is_goroutine() {
            Self::new(P::GOROUTINE_STRATEGY, P::GOROUTINE_THRESHOLD, limit)
        } else {
            Self::new(P::STRATEGY, P::THRESHOLD, limit)
        }
    }

    /// Returns a contender that is an async task. A task sleeps at once, as its executor has other tasks to poll.
    pub(super) fn task<P: Policy>() -> Self {
        Self::new(SpinStrategy::NONE, P::GOROUTINE_THRESHOLD, WaitLimit::default())
    }

    fn new(strategy: SpinStrategy, threshold: Duration, limit: WaitLimit<'a>) -> Self {
        Self {
            designated: false,
            registered: false,
            starving: threshold.is_zero() && matches!(strategy, SpinStrategy::Spin { .. }),
            patience: Patience { threshold, limit, first_slept_at: None },
            strategy: Strategy::new(strategy),
        }
    }

    /// Notes that the contender has registered as a waiter. Returns the contender's place in the semaphore's queue.
    pub(super) fn prepare_sleep<P: Policy>(&mut self) -> Order {
        // Queue at the head if the contender has been woken before, or is a successor: a successor was first in line
        // while it watched.
        let was_first = self.patience.first_slept_at.is_some() || (self.strategy.is_successor() && self.designated);
        self.patience.first_slept_at.get_or_insert_with(system::now);
        (self.registered, self.designated) = (true, false);
        if P::REQUEUE_AT_HEAD && was_first { Order::Lifo } else { Order::Fifo }
    }

    /// Notes that a permit has woken the contender.
    pub(super) fn wake_up(&mut self) {
        self.registered = false;
        self.strategy.restart();
        self.starving = !self.strategy.is_successor() && (self.starving || self.patience.is_exhausted());
    }

    /// Makes the contender neither spin nor sleep from now on.
    pub(super) fn time_out(&mut self) {
        self.strategy = Strategy::new(SpinStrategy::NONE);
        self.patience.limit = WaitLimit::until(now());
    }
}

impl Patience<'_> {
    /// Returns whether the contender has waited for longer than the threshold since it first slept.
    pub(super) fn is_exhausted(&self) -> bool {
        self.first_slept_at.is_some_and(|at| system::now().saturating_duration_since(at) > self.threshold)
    }

    /// Returns the limit that has come, or `None`.
    pub(super) fn over(&self) -> Option<WaitError> {
        if self.limit.cancel.is_some_and(Cancel::is_cancelled) {
            return Some(WaitError::Cancelled);
        }
        self.limit.deadline.is_some_and(|d| now() >= d).then_some(WaitError::TimedOut)
    }
}

impl Strategy {
    fn new(strategy: SpinStrategy) -> Self {
        match strategy {
            SpinStrategy::Spin { rounds, pauses } => Self::Spin(Spinner::new(rounds, pauses)),
            SpinStrategy::Successor { grace } => Self::Successor(Successor::new(grace, contention_hint::last_turns())),
        }
    }

    fn is_successor(&self) -> bool {
        matches!(self, Self::Successor(_))
    }

    /// Returns whether the contender has spun or watched since it last slept.
    pub(super) fn has_waited(&self) -> bool {
        match self {
            Self::Spin(spinner) => spinner.has_spun(),
            Self::Successor(successor) => successor.has_watched(),
        }
    }

    /// Notes that the contender has slept.
    fn restart(&mut self) {
        match self {
            Self::Spin(spinner) => spinner.restart(),
            Self::Successor(successor) => successor.restart(),
        }
    }
}
