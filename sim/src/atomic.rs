//! Atomics whose accesses are steps of the machine. Outside a simulation they behave as `std`'s.
//!
//! All accesses are sequentially consistent here, whatever ordering they ask for: loom checks the orderings.

pub use std::sync::atomic::Ordering;

use std::fmt;
use std::panic::Location;

use crate::machine::{Access, access, fence as machine_fence};

/// The counterpart of `std`'s `fence`: a step of this thread that waits for the thread's stores.
#[track_caller]
pub fn fence(ordering: Ordering) {
    machine_fence(Location::caller());
    std::sync::atomic::fence(ordering);
}

macro_rules! atomic {
    ($Atomic:ident $(<$T:ident>)?, $Value:ty) => {
        /// The counterpart of `std`'s type of this name.
        #[repr(transparent)]
        pub struct $Atomic $(<$T>)? (std::sync::atomic::$Atomic $(<$T>)?);

        impl $(<$T>)? $Atomic $(<$T>)? {
            /// The counterpart of `std`'s `new`.
            #[must_use]
            pub const fn new(value: $Value) -> Self {
                Self(std::sync::atomic::$Atomic::new(value))
            }

            fn step(&self, kind: Access, place: &'static Location<'static>) {
                access((&raw const self.0).addr(), kind, place);
            }

            /// The counterpart of `std`'s `get_mut`. Makes no step, as no other thread can see the access.
            pub fn get_mut(&mut self) -> &mut $Value {
                self.0.get_mut()
            }

            /// The counterpart of `std`'s `into_inner`. Makes no step, as no other thread can see the access.
            #[must_use]
            pub fn into_inner(self) -> $Value {
                self.0.into_inner()
            }

            /// The counterpart of loom's `with_mut`. Makes no step, as no other thread can see the access.
            pub fn with_mut<R>(&mut self, f: impl FnOnce(&mut $Value) -> R) -> R {
                f(self.0.get_mut())
            }

            /// The counterpart of `std`'s `as_ptr`.
            pub const fn as_ptr(&self) -> *mut $Value {
                self.0.as_ptr()
            }

            /// The counterpart of `std`'s `load`.
            #[inline]
            #[track_caller]
            pub fn load(&self, ordering: Ordering) -> $Value {
                self.step(Access::Load, Location::caller());
                self.0.load(ordering)
            }

            /// The counterpart of `std`'s `store`.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $Value, ordering: Ordering) {
                // On x86-64 a sequentially consistent store is a locked exchange.
                let kind = if ordering == Ordering::SeqCst { Access::Rmw } else { Access::Store };
                self.step(kind, Location::caller());
                self.0.store(value, ordering);
            }

            /// The counterpart of `std`'s `swap`.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $Value, ordering: Ordering) -> $Value {
                self.step(Access::Rmw, Location::caller());
                self.0.swap(value, ordering)
            }

            /// The counterpart of `std`'s `compare_exchange`. A failure costs the same as a success, as on x86-64.
            ///
            /// # Errors
            ///
            /// Returns the current value, if that value is not `old`.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                old: $Value,
                new: $Value,
                ordering: Ordering,
                failure: Ordering,
            ) -> Result<$Value, $Value> {
                self.step(Access::Rmw, Location::caller());
                self.0.compare_exchange(old, new, ordering, failure)
            }

            /// The counterpart of `std`'s `compare_exchange_weak`. Never fails spuriously.
            ///
            /// # Errors
            ///
            /// Returns the current value, if that value is not `old`.
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                old: $Value,
                new: $Value,
                ordering: Ordering,
                failure: Ordering,
            ) -> Result<$Value, $Value> {
                self.compare_exchange(old, new, ordering, failure)
            }

            /// The counterpart of `std`'s `fetch_update`.
            ///
            /// # Errors
            ///
            /// Returns the value for which `f` returned None.
            #[track_caller]
            pub fn fetch_update(
                &self,
                ordering: Ordering,
                failure: Ordering,
                mut f: impl FnMut($Value) -> Option<$Value>,
            ) -> Result<$Value, $Value> {
                let mut old = self.load(failure);
                while let Some(new) = f(old) {
                    match self.compare_exchange(old, new, ordering, failure) {
                        Ok(_) => return Ok(old),
                        Err(now) => old = now,
                    }
                }
                Err(old)
            }
        }

        impl $(<$T>)? fmt::Debug for $Atomic $(<$T>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! rmw {
    ($Atomic:ident, $Value:ty: $($name:ident),*) => {
        impl $Atomic {
            $(
            /// The counterpart of `std`'s method of this name.
            #[inline]
            #[track_caller]
            pub fn $name(&self, value: $Value, ordering: Ordering) -> $Value {
                self.step(Access::Rmw, Location::caller());
                self.0.$name(value, ordering)
            }
            )*
        }

        impl Default for $Atomic {
            fn default() -> Self {
                Self::new(<$Value>::default())
            }
        }

        impl From<$Value> for $Atomic {
            fn from(value: $Value) -> Self {
                Self::new(value)
            }
        }
    };
}

macro_rules! number {
    ($($Atomic:ident, $Value:ty;)*) => {$(
        atomic!($Atomic, $Value);
        rmw!($Atomic, $Value: fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);
    )*};
}

atomic!(AtomicBool, bool);
rmw!(AtomicBool, bool: fetch_and, fetch_or, fetch_xor);
atomic!(AtomicPtr<T>, *mut T);
number! {
    AtomicU8, u8;
    AtomicI32, i32;
    AtomicU32, u32;
    AtomicI64, i64;
    AtomicU64, u64;
    AtomicIsize, isize;
    AtomicUsize, usize;
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}
