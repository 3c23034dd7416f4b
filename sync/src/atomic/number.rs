//! `std`'s atomics under Go's names.

use std::fmt;
use std::sync::atomic::Ordering::SeqCst;

/// Defines an atomic type with the methods that all the types have.
macro_rules! atomic {
    ($(#[$doc:meta])* $Name:ident, $value:ty, $Std:ident) => {
        $(#[$doc])*
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $Name(std::sync::atomic::$Std);

        impl $Name {
            /// Creates an atomic with the value `value`.
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$Std::new(value))
            }

            /// Returns the value.
            #[inline]
            #[must_use]
            pub fn load(&self) -> $value {
                self.0.load(SeqCst)
            }

            /// Sets the value.
            #[inline]
            pub fn store(&self, value: $value) {
                self.0.store(value, SeqCst);
            }

            /// Sets the value, and returns the previous value.
            #[inline]
            pub fn swap(&self, new: $value) -> $value {
                self.0.swap(new, SeqCst)
            }

            /// Sets the value to `new` if the current value is `old`. Returns whether the value was `old`.
            #[inline]
            pub fn compare_and_swap(&self, old: $value, new: $value) -> bool {
                self.0.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
            }
        }

        impl From<$value> for $Name {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.load().fmt(f)
            }
        }
    };
}

/// Defines an atomic number: the methods of `atomic!`, and arithmetic.
macro_rules! number {
    ($(#[$doc:meta])* $Name:ident, $value:ty, $Std:ident) => {
        atomic! { $(#[$doc])* $Name, $value, $Std }

        impl $Name {
            /// Adds `delta`, wrapping around, and returns the *new* value.
            #[inline]
            pub fn add(&self, delta: $value) -> $value {
                self.0.fetch_add(delta, SeqCst).wrapping_add(delta)
            }

            /// Clears the bits that are not in `mask`, and returns the *old* value.
            #[inline]
            pub fn and(&self, mask: $value) -> $value {
                self.0.fetch_and(mask, SeqCst)
            }

            /// Sets the bits that are in `mask`, and returns the *old* value.
            #[inline]
            pub fn or(&self, mask: $value) -> $value {
                self.0.fetch_or(mask, SeqCst)
            }
        }
    };
}

atomic! {
    /// Go's `atomic.Bool`.
    Bool, bool, AtomicBool
}
number! {
    /// Go's `atomic.Int32`.
    Int32, i32, AtomicI32
}
number! {
    /// Go's `atomic.Uint32`.
    Uint32, u32, AtomicU32
}
#[cfg(target_has_atomic = "64")]
number! {
    /// Go's `atomic.Int64`.
    Int64, i64, AtomicI64
}
#[cfg(target_has_atomic = "64")]
number! {
    /// Go's `atomic.Uint64`.
    Uint64, u64, AtomicU64
}
number! {
    /// Go's `atomic.Uintptr`.
    Uintptr, usize, AtomicUsize
}
