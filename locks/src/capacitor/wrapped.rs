//! A lock in a capacitor: an inner lock, a primitive, and an admission that chooses the path of each acquisition.
//!
//! | path | lock | unlock |
//! |---|---|---|
//! | through | arrives, locks the inner lock | unlocks the inner lock, departs |
//! | past | locks the inner lock | unlocks the inner lock |
//! | gate | capacitor empty; `try_lock` of the inner lock; still empty: has the lock, as on the path past | unlocks the inner lock |
//! | … otherwise | a contender that has the inner lock, and may arrive at once, has the lock; any other contender goes through | unlocks the inner lock, departs |
//!
//! A failed acquisition (a `try_lock`, a deadline) departs if it has arrived. A wait for a condition is an unlock and a
//! lock, so the waiter departs and arrives again.
//!
//! **The gate keeps the bound.** Say a contender V has arrived, then a contender W begins to lock, and passes the gate.
//! At the second check W has the inner lock and finds no contender between arrival and departure; so V has departed,
//! and has had the lock before W, or has given up. A check before the lock alone is not enough: each other contender
//! could check before V arrives, then wait for the inner lock, and overtake V once. The first check only saves the inner
//! lock from contenders that would not pass the gate.
//!
//! Source: the paper's listings 1 and 2; its "contention-activated" variant has no listing.

use std::fmt;
use std::mem::ManuallyDrop;

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::system;
use sudog_runtime::{G, Instant};

use super::DEFAULT_LIMIT;
#[cfg(not(sudog_loom))]
use super::admission::ConstAdmission;
use super::admission::{Admission, Always, Gated, Path};
#[cfg(not(sudog_loom))]
use super::arrival::ConstArriveDepart;
use super::arrival::{Arrival, ArriveDepart};
use super::platoon::Platoon;
use super::sliding::SlidingWindow;
use crate::waiting_array::Benaphore;
use sudog_runtime::goroutine::without_switching;
use sudog_sync::RawLock;

/// A lock in the paper's capacitor: bounded bypass for `L`, over any semaphore `S` that is first come, first served.
///
/// # Examples
///
/// The paper's listing 2:
///
/// ```
/// use sudog::locks::capacitor::Capacitor;
/// use sudog::locks::spin_lock::Tts;
/// use sudog::locks::waiting_array::Twa;
/// use sudog::sync::MutexWith;
///
/// static M: MutexWith<Capacitor<Tts, Twa>, u32> = MutexWith::new(1);
/// *M.lock() += 1;
/// assert_eq!(*M.lock(), 2);
/// ```
pub type Capacitor<L, S = Benaphore, A = Always> = Wrapped<L, Platoon<S>, A>;

/// A lock in a sliding window, with the gate: bounded bypass for `L`, at about the cost of `L` without contention. The
/// cost under contention is described in the [module](super).
///
/// # Examples
///
/// ```
/// use sudog::locks::capacitor::Sliding;
/// use sudog::locks::spin_lock::Tts;
/// use sudog::sync::MutexWith;
///
/// static M: MutexWith<Sliding<Tts>, u32> = MutexWith::new(1);
/// *M.lock() += 1;
/// assert_eq!(*M.lock(), 2);
/// ```
pub type Sliding<L, A = Gated> = Wrapped<L, SlidingWindow, A>;

/// An inner lock in a capacitor.
///
/// A wrapped lock is as fair as the capacitor's bound says, with any inner lock: see the [module](super). The guard is
/// `Send` if the guard of the inner lock is `Send`.
///
/// A goroutine that has run for long yields at the end of an unlock, if that goroutine has come through the capacitor.
/// If the goroutine has come past the capacitor, its unlock switches when the unlock of the inner lock switches.
///
/// # Limits
///
/// The limits of the inner lock and of the capacitor. A thread that is preempted between arriving and departing delays
/// the threads behind it. `try_lock` can then fail although the lock is free, and concurrent `try_lock`s may all lose
/// to one arrival.
///
/// # Examples
///
/// A lock with another limit, and a lock in a `static`:
///
/// ```
/// use sudog::locks::capacitor::{Always, ArriveDepart, Gated, Platoon, Sliding, SlidingWindow, Wrapped};
/// use sudog::locks::spin_lock::Lifo;
/// use sudog::low_level::{ApiLock, ConstRawLock, RawLock};
/// use sudog::low_level::RuntimeSema;
/// use sudog::sync::{GoMutex, MutexWith, lock_api};
///
/// let lock = Wrapped::with(GoMutex::new(), Platoon::<RuntimeSema>::with_limit(8), Always);
/// assert_eq!(lock.capacitor().bound(), Some(7));
/// let mutex = lock_api::Mutex::from_raw(ApiLock::new(lock), "guarded");
/// assert_eq!(*mutex.lock(), "guarded");
///
/// static M: MutexWith<Sliding<Lifo>, u32> =
///     lock_api::Mutex::from_raw(ApiLock::new(Wrapped::with(Lifo::INIT, SlidingWindow::new(2), Gated)), 1);
/// assert_eq!(*M.lock(), 1);
/// ```
pub struct Wrapped<L, C, A> {
    inner: CachePadded<L>,
    capacitor: C,
    admission: A,
}

/// The guard of an acquisition: the guard of the inner lock, and the ticket if the acquisition has arrived.
pub struct WrappedGuard<G, T> {
    inner: G,
    ticket: Option<T>,
}

impl<G, T: Copy> WrappedGuard<G, T> {
    /// Returns the ticket; `None` if the acquisition went past the capacitor.
    pub fn ticket(&self) -> Option<T> {
        self.ticket
    }
}

/// A held inner lock, which is unlocked by the drop. Used around calls of the capacitor, as these may run user code,
/// and panic.
struct HeldInner<'a, L: RawLock> {
    lock: &'a L,
    guard: ManuallyDrop<L::Guard>,
}

impl<L: RawLock> HeldInner<'_, L> {
    #[inline]
    fn into_guard(mut self) -> L::Guard {
        // SAFETY: `guard` is taken only once: `forget` below skips the drop, which takes `guard` too.
        let guard = unsafe { ManuallyDrop::take(&mut self.guard) };
        std::mem::forget(self);
        guard
    }
}

impl<L: RawLock> Drop for HeldInner<'_, L> {
    #[cold]
    fn drop(&mut self) {
        // Unlock without switching: a `try_lock` never switches.
        // SAFETY: `guard` is taken only once: `into_guard`, which takes `guard` too, skips this drop. `guard` came from an
        // acquisition of this lock on this thread.
        without_switching(|| unsafe { self.lock.unlock(ManuallyDrop::take(&mut self.guard)) });
    }
}

impl<L, C, A> Wrapped<L, C, A> {
    /// Wraps a lock that is not locked.
    pub const fn with(inner: L, capacitor: C, admission: A) -> Self {
        Self { inner: CachePadded::new(inner), capacitor, admission }
    }

    /// Returns the inner lock. A caller that locks the inner lock directly does not arrive at the capacitor. Unlocking
    /// the inner lock directly, where that is a safe call, breaks the wrapped lock as well as the inner lock.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// Returns the capacitor.
    pub const fn capacitor(&self) -> &C {
        &self.capacitor
    }
}

impl<L: RawLock, C: ArriveDepart, A: Admission> Wrapped<L, C, A> {
    /// Takes the path *through*: arrives by `arrive`, then locks the inner lock by `lock`.
    #[inline]
    fn go_through(
        &self,
        arrive: impl FnOnce(&C) -> Option<C::Ticket>,
        lock: impl FnOnce(&L) -> Option<L::Guard>,
    ) -> Option<WrappedGuard<L::Guard, C::Ticket>> {
        let mut arrival =
            if A::GATED { Arrival::announced(&self.capacitor) } else { Arrival::unannounced(&self.capacitor) };
        let ticket = arrive(&self.capacitor)?;
        arrival.set_ticket(Some(ticket));
        let Some(inner) = lock(&self.inner) else {
            // Depart without switching: this departure is part of a `try_lock`, which never switches.
            without_switching(|| drop(arrival));
            return None;
        };
        Some(WrappedGuard { inner, ticket: arrival.forget() })
    }

    #[inline]
    fn lock_through(&self) -> WrappedGuard<L::Guard, C::Ticket> {
        self.go_through(|capacitor| Some(capacitor.arrive()), |inner| Some(inner.lock()))
            .expect("both wait until they have it")
    }

    /// Locks through the capacitor, out of line: for a contender that has not passed the gate.
    #[cold]
    fn lock_contended(&self) -> WrappedGuard<L::Guard, C::Ticket> {
        self.lock_through()
    }

    /// Tries the inner lock at the gate, and tells whether the caller may keep that lock without a ticket.
    #[inline]
    fn try_gate(&self) -> AtGate<L::Guard> {
        if !self.capacitor.is_idle() {
            return AtGate::NotEmpty;
        }
        let Some(guard) = self.inner.try_lock() else { return AtGate::Taken };
        let held = HeldInner { lock: &*self.inner, guard: ManuallyDrop::new(guard) };
        let open = self.capacitor.is_idle();
        let guard = held.into_guard();
        if open { AtGate::Open(guard) } else { AtGate::Closing(guard) }
    }

    /// Arrives with the inner lock held, because there has been an arrival since the first check.
    #[cold]
    fn arrive_inside(&self, guard: L::Guard) -> Option<WrappedGuard<L::Guard, C::Ticket>> {
        let held = HeldInner { lock: &*self.inner, guard: ManuallyDrop::new(guard) };
        let mut arrival = Arrival::announced(&self.capacitor);
        arrival.set_ticket(Some(self.capacitor.try_arrive()?));
        Some(WrappedGuard { inner: held.into_guard(), ticket: arrival.forget() })
    }
}

/// The state that an acquisition has found at the gate.
enum AtGate<G> {
    /// The capacitor is not empty.
    NotEmpty,
    /// The capacitor is empty, but the inner lock is locked.
    Taken,
    /// The capacitor was empty at both checks, and the acquisition has the inner lock.
    Open(G),
    /// The capacitor was empty at the first check only, and the acquisition has the inner lock.
    Closing(G),
}

// SAFETY: each acquisition of this lock is an acquisition of the inner lock, which fulfils the contract of `RawLock`.
unsafe impl<L: RawLock, C: ArriveDepart, A: Admission + Default> RawLock for Wrapped<L, C, A> {
    type Guard = WrappedGuard<L::Guard, C::Ticket>;

    const DEADLINES: bool = L::DEADLINES && C::DEADLINES;

    fn new() -> Self {
        Self::with(L::new(), C::with_limit(DEFAULT_LIMIT), A::default())
    }

    #[inline]
    fn lock(&self) -> Self::Guard {
        match self.admission.path() {
            Path::Through => self.lock_through(),
            // Make each guard in one place: a guard that is assembled in two places would go through memory.
            Path::Gate => match self.try_gate() {
                AtGate::Open(inner) => WrappedGuard { inner, ticket: None },
                AtGate::Closing(inner) => match self.arrive_inside(inner) {
                    Some(pass) => pass,
                    None => self.lock_contended(),
                },
                AtGate::NotEmpty | AtGate::Taken => self.lock_contended(),
            },
            Path::Past => WrappedGuard { inner: self.inner.lock(), ticket: None },
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Guard> {
        match self.admission.path() {
            Path::Past => return Some(WrappedGuard { inner: self.inner.try_lock()?, ticket: None }),
            // Fail without a ticket: tickets drawn in vain would keep the waiters out of the window.
            Path::Gate | Path::Through if self.inner.is_locked() => return None,
            Path::Gate => match self.try_gate() {
                AtGate::Open(inner) => return Some(WrappedGuard { inner, ticket: None }),
                AtGate::Closing(inner) => return self.arrive_inside(inner),
                // Fail without a ticket here, too: a ticket would only close the gate for the owner of the lock.
                AtGate::Taken => return None,
                AtGate::NotEmpty => {}
            },
            Path::Through => {}
        }
        self.go_through(C::try_arrive, L::try_lock)
    }

    fn try_lock_until(&self, deadline: Instant) -> Option<Self::Guard> {
        match self.admission.path() {
            Path::Past => return Some(WrappedGuard { inner: self.inner.try_lock_until(deadline)?, ticket: None }),
            Path::Gate => match self.try_gate() {
                AtGate::Open(inner) => return Some(WrappedGuard { inner, ticket: None }),
                AtGate::Closing(inner) => {
                    if let Some(pass) = self.arrive_inside(inner) {
                        return Some(pass);
                    }
                }
                AtGate::NotEmpty | AtGate::Taken => {}
            },
            Path::Through => {}
        }
        // Treat a deadline in the past as a try, which does not arrive in vain.
        if self.inner.is_locked() && system::now() >= deadline {
            return None;
        }
        self.go_through(|capacitor| capacitor.arrive_until(deadline), |inner| inner.try_lock_until(deadline))
    }

    #[inline]
    unsafe fn unlock(&self, pass: Self::Guard) {
        let WrappedGuard { inner, ticket } = pass;
        let Some(ticket) = ticket else {
            // SAFETY: by the contract of `unlock`, `inner` came from an acquisition of the inner lock that has not been
            // released, and on this thread unless the guard is `Send`.
            return unsafe { self.inner.unlock(inner) };
        };
        // Depart even if the unlock panics.
        let _departs = Arrival::of(&self.capacitor, A::GATED, ticket);
        // SAFETY: by the contract of `unlock`, `inner` came from an acquisition of the inner lock that has not been
        // released, and on this thread unless the guard is `Send`.
        let unlock = || unsafe { self.inner.unlock(inner) };
        if G::is_goroutine() {
            // Unlock without switching: a goroutine that yields here, with the lock free, would block the contenders
            // that wait for its departure: until its next turn; or for ever, if those contenders block its worker.
            without_switching(unlock);
        } else {
            unlock();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

#[cfg(not(sudog_loom))]
impl<L: sudog_sync::ConstRawLock, C: ConstArriveDepart, A: ConstAdmission + Default> sudog_sync::ConstRawLock
    for Wrapped<L, C, A>
{
    const INIT: Self = Self::with(L::INIT, C::DEFAULT, A::DEFAULT);
}

impl<L: RawLock, C: ArriveDepart + fmt::Debug, A: fmt::Debug> fmt::Debug for Wrapped<L, C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped")
            .field("locked", &self.inner.is_locked())
            .field("capacitor", &self.capacitor)
            .field("admission", &self.admission)
            .finish()
    }
}

impl<G, T: fmt::Debug> fmt::Debug for WrappedGuard<G, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrappedGuard").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}
