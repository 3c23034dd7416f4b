//! A lock in a capacitor: an inner lock, a primitive, and who takes the way through it.
//!
//! | way | lock | unlock |
//! |---|---|---|
//! | through | arrives, locks the inner lock | unlocks it, departs |
//! | past | locks the inner lock | unlocks it |
//! | gate | nobody in the capacitor; `try_lock` of the inner lock; still nobody: has the lock, as if past | unlocks it |
//! | … not so | if it has the inner lock, and may arrive at once, has the lock; else goes through | unlocks it, departs |
//!
//! An acquisition that fails (a `try_lock`, a deadline, a goroutine that is unwound) departs. A wait for a condition is
//! an unlock and a lock, so it departs and arrives again.
//!
//! **The gate keeps the bound.** Say V has arrived, then W begins to lock, and passes the gate. At the second look W has
//! the inner lock and finds nobody between arrival and departure; so V has departed, and has had the lock before W, or
//! has given up. A look before the lock alone would not do: each of the others could look, then wait for the inner lock,
//! and overtake V once, though it asked before V came. That first look is there to spare the inner lock those who will not
//! pass.
//!
//! Source: the paper's listings 1 and 2; its "contention-activated" variant has no listing.

use std::fmt;
use std::mem::ManuallyDrop;

use crossbeam_utils::CachePadded;
use sudog_runtime::{G, Instant};

use super::DEFAULT_LIMIT;
#[cfg(not(sudog_loom))]
use super::admission::ConstAdmission;
use super::admission::{Admission, Always, Gated, Way};
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
/// use sudog_sync::MutexWith;
/// use sudog_locks::capacitor::Capacitor;
/// use sudog_locks::waiting_array::Twa;
/// use sudog_locks::spin_lock::Tts;
///
/// static M: MutexWith<Capacitor<Tts, Twa>, u32> = MutexWith::new(1);
/// *M.lock() += 1;
/// assert_eq!(*M.lock(), 2);
/// ```
pub type Capacitor<L, S = Benaphore, A = Always> = Wrapped<L, Platoon<S>, A>;

/// A lock in a sliding window, behind the gate: bounded bypass for `L`, at about the price of `L` as long as nobody
/// contends. What it costs then is said in the [module](super).
///
/// # Examples
///
/// ```
/// use sudog_sync::MutexWith;
/// use sudog_locks::capacitor::Sliding;
/// use sudog_locks::spin_lock::Tts;
///
/// static M: MutexWith<Sliding<Tts>, u32> = MutexWith::new(1);
/// *M.lock() += 1;
/// assert_eq!(*M.lock(), 2);
/// ```
pub type Sliding<L, A = Gated> = Wrapped<L, SlidingWindow, A>;

/// An inner lock in a capacitor.
///
/// As fair as the capacitor's bound, whatever the inner lock is: see the [module](super). Its guard may change thread if
/// the inner lock's may.
///
/// A goroutine that has run for long gives way at the end of an unlock, if it has come through the capacitor. The unlock
/// of a goroutine that has come past it switches when that of the inner lock does.
///
/// # Limits
///
/// Those of both. While somebody is stopped between its arrival and its departure, others may have to wait, and `try_lock`
/// may fail, though nobody has the lock, as it is promised to that one; and of those who try at the same moment as somebody
/// arrives, none may have it.
///
/// # Examples
///
/// With a limit of one's own, and in a `static`:
///
/// ```
/// use sudog_locks::capacitor::{Always, ArriveDepart, Gated, Platoon, Sliding, SlidingWindow, Wrapped};
/// use sudog_sync::semaphore::RuntimeSema;
/// use sudog_locks::spin_lock::Lifo;
/// use sudog_sync::{ApiLock, ConstRawLock, GoMutex, MutexWith, RawLock, lock_api};
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

/// What an acquisition hands to its release: the guard of the inner lock, and the ticket of those who have arrived.
pub struct Pass<G, T> {
    inner: G,
    ticket: Option<T>,
}

impl<G, T: Copy> Pass<G, T> {
    /// The ticket; nothing, if it came past the capacitor.
    pub fn ticket(&self) -> Option<T> {
        self.ticket
    }
}

/// An inner lock that is held for as long as the capacitor is asked, which may be somebody else's.
struct Held<'a, L: RawLock> {
    lock: &'a L,
    guard: ManuallyDrop<L::Guard>,
}

impl<L: RawLock> Held<'_, L> {
    #[inline]
    fn into_guard(mut self) -> L::Guard {
        // SAFETY: it is taken once, as the drop, which takes it too, is forgotten.
        let guard = unsafe { ManuallyDrop::take(&mut self.guard) };
        std::mem::forget(self);
        guard
    }
}

impl<L: RawLock> Drop for Held<'_, L> {
    #[cold]
    fn drop(&mut self) {
        // A `try_lock` never switches. SAFETY: it is taken once, here; it came from an acquisition of this lock on this
        // thread.
        without_switching(|| unsafe { self.lock.unlock(ManuallyDrop::take(&mut self.guard)) });
    }
}

impl<L, C, A> Wrapped<L, C, A> {
    /// Wraps a lock that nobody holds.
    pub const fn with(inner: L, capacitor: C, admission: A) -> Self {
        Self { inner: CachePadded::new(inner), capacitor, admission }
    }

    /// The inner lock. Who takes it by hand has not arrived; who unlocks it by hand, where that is a safe call, breaks this
    /// lock as it would break that one.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// The capacitor.
    pub const fn capacitor(&self) -> &C {
        &self.capacitor
    }
}

impl<L: RawLock, C: ArriveDepart, A: Admission> Wrapped<L, C, A> {
    /// The way through.
    #[inline]
    fn go_through(
        &self,
        arrive: impl FnOnce(&C) -> Option<C::Ticket>,
        lock: impl FnOnce(&L) -> Option<L::Guard>,
    ) -> Option<Pass<L::Guard, C::Ticket>> {
        let mut arrival =
            if A::GATED { Arrival::announced(&self.capacitor) } else { Arrival::unannounced(&self.capacitor) };
        let ticket = arrive(&self.capacitor)?;
        arrival.set_ticket(Some(ticket));
        let Some(inner) = lock(&self.inner) else {
            // A `try_lock` never switches, and this departure is part of one.
            without_switching(|| drop(arrival));
            return None;
        };
        Some(Pass { inner, ticket: arrival.forget() })
    }

    #[inline]
    fn lock_through(&self) -> Pass<L::Guard, C::Ticket> {
        self.go_through(|capacitor| Some(capacitor.arrive()), |inner| Some(inner.lock()))
            .expect("both wait until they have it")
    }

    /// Not past the gate.
    #[cold]
    #[track_caller]
    fn lock_contended(&self) -> Pass<L::Guard, C::Ticket> {
        sudog_sync::internal::relock_wait(|| self.lock_through())
    }

    /// The gate: the inner lock, and whether one may keep it without a ticket.
    #[inline]
    fn go_by_the_gate(&self) -> Found<L::Guard> {
        if !self.capacitor.is_idle() {
            return Found::Shut;
        }
        let Some(guard) = self.inner.try_lock() else { return Found::Taken };
        let held = Held { lock: &*self.inner, guard: ManuallyDrop::new(guard) };
        let open = self.capacitor.is_idle();
        let guard = held.into_guard();
        if open { Found::Open(guard) } else { Found::Closing(guard) }
    }

    /// Somebody has arrived since the first look.
    #[cold]
    fn arrive_inside(&self, guard: L::Guard) -> Option<Pass<L::Guard, C::Ticket>> {
        let held = Held { lock: &*self.inner, guard: ManuallyDrop::new(guard) };
        let mut arrival = Arrival::announced(&self.capacitor);
        arrival.set_ticket(Some(self.capacitor.try_arrive()?));
        Some(Pass { inner: held.into_guard(), ticket: arrival.forget() })
    }
}

/// What one has found at the gate.
enum Found<G> {
    /// Somebody is in the capacitor.
    Shut,
    /// Nobody; but somebody has the lock.
    Taken,
    /// Nobody, at both looks; and the lock.
    Open(G),
    /// Nobody at first; and the lock.
    Closing(G),
}

// SAFETY: the inner lock's promises: an acquisition of this one is one of that.
unsafe impl<L: RawLock, C: ArriveDepart, A: Admission + Default> RawLock for Wrapped<L, C, A> {
    type Guard = Pass<L::Guard, C::Ticket>;

    const DEADLINES: bool = L::DEADLINES && C::DEADLINES;

    fn new() -> Self {
        Self::with(L::new(), C::with_limit(DEFAULT_LIMIT), A::default())
    }

    #[inline]
    #[track_caller]
    fn lock(&self) -> Self::Guard {
        match self.admission.way() {
            Way::Through => sudog_sync::internal::relock_wait(|| self.lock_through()),
            // No more is said here than must be: a pass that is put together in two places goes through memory.
            Way::Gate => match self.go_by_the_gate() {
                Found::Open(inner) => Pass { inner, ticket: None },
                Found::Closing(inner) => match self.arrive_inside(inner) {
                    Some(pass) => pass,
                    None => self.lock_contended(),
                },
                Found::Shut | Found::Taken => self.lock_contended(),
            },
            Way::Past => Pass { inner: self.inner.lock(), ticket: None },
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Guard> {
        match self.admission.way() {
            Way::Past => return Some(Pass { inner: self.inner.try_lock()?, ticket: None }),
            // Without a ticket: to draw them in vain would keep the window from those who wait for it.
            Way::Gate | Way::Through if self.inner.is_locked() => return None,
            Way::Gate => match self.go_by_the_gate() {
                Found::Open(inner) => return Some(Pass { inner, ticket: None }),
                Found::Closing(inner) => return self.arrive_inside(inner),
                // Without a ticket again: it would shut the gate before the one that has the lock, in vain.
                Found::Taken => return None,
                Found::Shut => {}
            },
            Way::Through => {}
        }
        self.go_through(C::try_arrive, L::try_lock)
    }

    fn try_lock_until(&self, deadline: Instant) -> Option<Self::Guard> {
        match self.admission.way() {
            Way::Past => return Some(Pass { inner: self.inner.try_lock_until(deadline)?, ticket: None }),
            Way::Gate => match self.go_by_the_gate() {
                Found::Open(inner) => return Some(Pass { inner, ticket: None }),
                Found::Closing(inner) => {
                    if let Some(pass) = self.arrive_inside(inner) {
                        return Some(pass);
                    }
                }
                Found::Shut | Found::Taken => {}
            },
            Way::Through => {}
        }
        // A deadline in the past is a try, which does not arrive in vain.
        if self.inner.is_locked() && Instant::now() >= deadline {
            return None;
        }
        self.go_through(|capacitor| capacitor.arrive_until(deadline), |inner| inner.try_lock_until(deadline))
    }

    #[inline]
    unsafe fn unlock(&self, pass: Self::Guard) {
        let Pass { inner, ticket } = pass;
        let Some(ticket) = ticket else {
            // SAFETY: by the contract.
            return unsafe { self.inner.unlock(inner) };
        };
        // Departs even if the unlock panics.
        let _departs = Arrival::of(&self.capacitor, A::GATED, ticket);
        // SAFETY: by the contract.
        let unlock = || unsafe { self.inner.unlock(inner) };
        if G::is_goroutine() {
            // Who gave way here, with the lock free, would keep those out who wait for it to depart: until its next turn;
            // or for ever, if they block its worker.
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

impl<G, T: fmt::Debug> fmt::Debug for Pass<G, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}
