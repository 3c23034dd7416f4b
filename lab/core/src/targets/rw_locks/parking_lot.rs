//! `parking_lot`'s readers-writer lock, two generations of it: 0.12 on `lock_api` 0.4, and 0.13 on `lock_api` 0.5.

use std::marker::PhantomData;
use std::time::Instant;

use sudog_sync::RawRwLock;

/// Makes an adapter for one generation, as for the mutexes: in `lock_api` 0.5 an acquisition returns a guard, and its
/// release takes that guard.
macro_rules! adapter {
    (
        $(#[$doc:meta])*
        $Name:ident over $generation:ident;
        type Guards = $Shared:ty, $Exclusive:ty;
        lock $locked:expr;
        try_lock $tried:expr;
        unlock |$guard:ident| ($($argument:ident)?);
    ) => {
        $(#[$doc])*
        pub struct $Name($generation::RawRwLock);

        const _: () = {
            use $generation::lock_api::{RawRwLock as Raw, RawRwLockDowngrade as _, RawRwLockTimed as _};

            // SAFETY: `lock_api`'s `RawRwLock` makes the same promises as `sudog`'s.
            unsafe impl RawRwLock for $Name {
                type SharedGuard = $Shared;
                type ExclusiveGuard = $Exclusive;

                const DEADLINES: bool = true;

                fn new() -> Self {
                    Self(<$generation::RawRwLock as Raw>::INIT)
                }

                #[inline]
                fn rlock(&self) -> Self::SharedGuard {
                    $locked(self.0.lock_shared())
                }

                #[inline]
                fn try_rlock(&self) -> Option<Self::SharedGuard> {
                    $tried(self.0.try_lock_shared())
                }

                #[inline]
                fn try_rlock_until(&self, deadline: Instant) -> Option<Self::SharedGuard> {
                    $tried(self.0.try_lock_shared_until(deadline))
                }

                #[inline]
                unsafe fn runlock(&self, $guard: Self::SharedGuard) {
                    // SAFETY: a reader holds `self.0`, and the guard, if any, came from it, by the contract of
                    // `RawRwLock::runlock`.
                    unsafe { self.0.unlock_shared($($argument)?) }
                }

                #[inline]
                fn lock(&self) -> Self::ExclusiveGuard {
                    $locked(self.0.lock_exclusive())
                }

                #[inline]
                fn try_lock(&self) -> Option<Self::ExclusiveGuard> {
                    $tried(self.0.try_lock_exclusive())
                }

                #[inline]
                fn try_lock_until(&self, deadline: Instant) -> Option<Self::ExclusiveGuard> {
                    $tried(self.0.try_lock_exclusive_until(deadline))
                }

                #[inline]
                unsafe fn unlock(&self, $guard: Self::ExclusiveGuard) {
                    // SAFETY: a writer holds `self.0`, and the guard, if any, came from it, by the contract of
                    // `RawRwLock::unlock`.
                    unsafe { self.0.unlock_exclusive($($argument)?) }
                }

                #[inline]
                unsafe fn downgrade(&self, $guard: Self::ExclusiveGuard) -> Self::SharedGuard {
                    // SAFETY: a writer holds `self.0`, and the guard, if any, came from it, by the contract of
                    // `RawRwLock::downgrade`.
                    $locked(unsafe { self.0.downgrade($($argument)?) })
                }

                #[inline]
                fn is_locked(&self) -> bool {
                    self.0.is_locked()
                }

                #[inline]
                fn is_locked_exclusive(&self) -> bool {
                    self.0.is_locked_exclusive()
                }
            }
        };
    };
}

adapter! {
    /// `parking_lot` 0.12's readers-writer lock as a [`RawRwLock`].
    RwParkingLot012 over parking_lot_0_12;
    type Guards = PhantomData<<parking_lot_0_12::RawRwLock as Raw>::GuardMarker>,
        PhantomData<<parking_lot_0_12::RawRwLock as Raw>::GuardMarker>;
    lock |()| PhantomData;
    try_lock |locked: bool| locked.then_some(PhantomData);
    unlock |_guard| ();
}

adapter! {
    /// `parking_lot` 0.13's readers-writer lock as a [`RawRwLock`].
    RwParkingLot013 over parking_lot_0_13;
    type Guards = <parking_lot_0_13::RawRwLock as Raw>::SharedGuard, <parking_lot_0_13::RawRwLock as Raw>::ExclusiveGuard;
    lock std::convert::identity;
    try_lock std::convert::identity;
    unlock |guard| (guard);
}
