//! A semaphore behind a capacitor: bounds how often an acquirer is overtaken for a permit, whichever thread releases.
//!
//! | call | steps |
//! |---|---|
//! | acquire | arrives at the capacitor; acquires a permit of the inner semaphore; departs |
//! | `try_acquire` | arrives if that needs no wait; tries the inner semaphore; departs |
//! | give up | departs, if it has arrived |
//! | release | releases to the inner semaphore, and nothing else |
//!
//! **Bound.** An acquirer V departs after V has its permit. While V has not departed, the capacitor admits at most
//! `B - 1` arrivals that are later than V, and only admitted acquirers take permits. So at most `B - 1` later acquirers
//! get a permit before V. The releaser takes no part: a mutex may release a permit that it has not acquired, where a
//! lock in a capacitor ([`Wrapped`](super::Wrapped)) needs its guard back. Each of the three steps is needed: an
//! acquirer that departs before it has its permit, or a `try_acquire` that does not arrive, can overtake V without bound.
//!
//! **No acquirer waits for ever**, if permits are released again and again. The first arrival that has not departed is
//! admitted. When the `B - 1` later arrivals have had their permits, that first arrival is alone at the inner semaphore.
//!
//! A permit may lie idle until an acquirer that has its permit, or is about to take a permit, departs: if that acquirer
//! is preempted, the acquirers behind it wait. The bound is not on time.
//!
//! There is no handoff: if more permits are granted than acquirers are admitted, some of these permits find no waiter at
//! the inner semaphore, and are free for each acquirer that is admitted next.
//!
//! Source: this project's own. `locks/tests/explicit_state/bounded.rs` is the protocol as a model.

use sudog_runtime::Instant;
use sudog_runtime::goroutine::without_switching;
use sudog_sync::{Order, Semaphore, Wake};

use super::DEFAULT_LIMIT;
#[cfg(not(sudog_loom))]
use super::arrival::ConstArriveDepart;
use super::arrival::{Arrival, ArriveDepart};
use super::sliding::SlidingWindow;

/// A semaphore `S` in which at most `B - 1` later acquirers get a permit before an earlier acquirer does.
///
/// `S` may serve its waiters in any order. `C` is the capacitor: a [`SlidingWindow`], or a
/// [`Platoon`](super::Platoon) over any semaphore that is first come, first served. A mutex over this semaphore still
/// lets newcomers take the lock past the semaphore, if the mutex does so over other semaphores.
///
/// # Limits
///
/// The limits of the capacitor and of `S`. If `S` blocks the threads that wait, an admitted goroutine cannot run while
/// another goroutine blocks its worker, and the acquirers behind the admitted goroutine wait. A wait that a `Cancel` may
/// end arrives anew every millisecond, and the bound counts from the last arrival.
///
/// # Examples
///
/// Under Go's mutex, whose waiters then have a bound among themselves:
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// use sudog::locks::capacitor::Bounded;
/// use sudog::study::FutexSema;
/// use sudog::sync::{GoMutex, MutexWith};
///
/// static M: MutexWith<GoMutex<Bounded<FutexSema>>, u32> = MutexWith::new(1);
/// assert_eq!(*M.lock(), 1);
/// # }
/// ```
#[derive(Debug)]
pub struct Bounded<S, C = SlidingWindow, const B: u32 = DEFAULT_LIMIT> {
    capacitor: C,
    sema: S,
}

impl<S, C, const B: u32> Bounded<S, C, B> {
    /// Returns the capacitor.
    pub const fn capacitor(&self) -> &C {
        &self.capacitor
    }

    /// Returns the inner semaphore. A caller that acquires there directly does not arrive at the capacitor, and can
    /// overtake without bound. A caller that releases there does what [`Semaphore::release`] of this type does.
    pub const fn inner(&self) -> &S {
        &self.sema
    }
}

impl<S: Semaphore, C: ArriveDepart, const B: u32> Bounded<S, C, B> {
    /// Arrives by `arrive`, takes a permit by `take`, and departs. Returns whether the caller has a permit.
    #[inline]
    fn go_through(&self, arrive: impl FnOnce(&C) -> Option<C::Ticket>, take: impl FnOnce(&S) -> bool) -> bool {
        let Some(ticket) = arrive(&self.capacitor) else { return false };
        // Depart even if the inner semaphore panics.
        let arrival = Arrival::of(&self.capacitor, false, ticket);
        let taken = take(&self.sema);
        // Depart without switching: an acquirer that has just got its permit may own a lock now.
        without_switching(|| drop(arrival));
        taken
    }
}

// SAFETY:
// - Each permit is a permit of the inner semaphore, which conserves and orders permits.
// - A released permit does not lie idle: the capacitor always admits the first arrival that has not departed. That
//   arrival waits at the inner semaphore, where the permit ends its wait, or has a permit and departs.
unsafe impl<S: Semaphore, C: ArriveDepart, const B: u32> Semaphore for Bounded<S, C, B> {
    const LIFO: bool = false;
    const FIFO: bool = false;
    const HANDOFF: bool = false;
    const DEADLINES: bool = S::DEADLINES && C::DEADLINES;

    fn new(permits: u32) -> Self {
        Self { capacitor: C::with_limit(B), sema: S::new(permits) }
    }

    #[inline]
    fn acquire(&self, order: Order) {
        self.go_through(
            |capacitor| Some(capacitor.arrive()),
            |sema| {
                sema.acquire(order);
                true
            },
        );
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.go_through(C::try_arrive, S::try_acquire)
    }

    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        self.go_through(|capacitor| capacitor.arrive_until(deadline), |sema| sema.acquire_until(order, deadline))
    }

    #[inline]
    fn release(&self, wake: Wake) {
        self.sema.release(wake);
    }

    #[inline]
    fn release_many(&self, n: u32) {
        self.sema.release_many(n);
    }

    #[inline]
    fn grant_many(&self, n: u32) {
        self.sema.grant_many(n);
    }
}

#[cfg(not(sudog_loom))]
impl<S: sudog_sync::ConstSemaphore, C: ConstArriveDepart> sudog_sync::ConstSemaphore for Bounded<S, C> {
    const INIT: Self = Self { capacitor: C::DEFAULT, sema: S::INIT };
}
