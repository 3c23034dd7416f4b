//! `parking_lot`, two generations of it: 0.12 on `lock_api` 0.4, and 0.13 on `lock_api` 0.5.

use std::marker::PhantomData;
use std::time::Instant;

use sudog_sync::{ConstRawLock, RawLock};

/// Makes an adapter for one generation. The two `lock_api`s have traits of the same names but not of the same
/// signatures, so no generic type covers both: in 0.5 an acquisition returns a guard, and its release takes that guard.
macro_rules! adapter {
    (
        $(#[$doc:meta])*
        $Name:ident over $generation:ident;
        type Guard = $Guard:ty;
        lock $locked:expr;
        try_lock $tried:expr;
        unlock |$guard:ident| ($($argument:ident)?);
    ) => {
        $(#[$doc])*
        ///
        /// With `FAIR`, every release is `unlock_fair`, which hands the lock to the first waiter.
        pub struct $Name<const FAIR: bool>($generation::RawMutex);

        const _: () = {
            use $generation::lock_api::{RawMutex as _, RawMutexFair as _, RawMutexTimed as _};

            // SAFETY: `lock_api`'s `RawMutex` makes the same promises as `RawLock`.
            unsafe impl<const FAIR: bool> RawLock for $Name<FAIR> {
                type Guard = $Guard;

                const DEADLINES: bool = true;

                fn new() -> Self {
                    Self::INIT
                }

                #[inline]
                fn lock(&self) -> Self::Guard {
                    $locked(self.0.lock())
                }

                #[inline]
                fn try_lock(&self) -> Option<Self::Guard> {
                    $tried(self.0.try_lock())
                }

                #[inline]
                fn try_lock_until(&self, deadline: Instant) -> Option<Self::Guard> {
                    $tried(self.0.try_lock_until(deadline))
                }

                #[inline]
                unsafe fn unlock(&self, $guard: Self::Guard) {
                    // SAFETY: this thread holds `self.0`, and the guard, if any, came from it, by the contract of
                    // `RawLock::unlock`.
                    unsafe {
                        if FAIR { self.0.unlock_fair($($argument)?) } else { self.0.unlock($($argument)?) }
                    }
                }

                #[inline]
                fn is_locked(&self) -> bool {
                    self.0.is_locked()
                }
            }

            impl<const FAIR: bool> ConstRawLock for $Name<FAIR> {
                const INIT: Self = Self($generation::RawMutex::INIT);
            }
        };
    };
}

adapter! {
    /// `parking_lot` 0.12 as a [`RawLock`].
    ParkingLot012 over parking_lot_0_12;
    type Guard = PhantomData<<parking_lot_0_12::RawMutex as parking_lot_0_12::lock_api::RawMutex>::GuardMarker>;
    lock |()| PhantomData;
    try_lock |locked: bool| locked.then_some(PhantomData);
    unlock |_guard| ();
}

adapter! {
    /// `parking_lot` 0.13 as a [`RawLock`].
    ParkingLot013 over parking_lot_0_13;
    type Guard = <parking_lot_0_13::RawMutex as parking_lot_0_13::lock_api::RawMutex>::Guard;
    lock std::convert::identity;
    try_lock std::convert::identity;
    unlock |guard| (guard);
}
