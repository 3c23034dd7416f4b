//! Thread-locals of simulated threads.

use std::cell::{Cell, RefCell};

use crate::machine::{is_simulated, local};

/// A thread-local: each simulated thread has a value of its own, and so has each thread of the process outside a
/// simulation. Made by [`thread_local!`](crate::thread_local).
#[derive(Debug)]
pub struct LocalKey<T: 'static> {
    #[doc(hidden)]
    pub outside: &'static std::thread::LocalKey<T>,
    #[doc(hidden)]
    pub init: fn() -> T,
    /// For an address of its own.
    #[doc(hidden)]
    pub key: &'static std::sync::atomic::AtomicU8,
}

/// As of `std`.
#[macro_export]
macro_rules! thread_local {
    () => {};
    ($(#[$attribute:meta])* $vis:vis static $NAME:ident: $Type:ty = const $init:block; $($rest:tt)*) => {
        $crate::thread_local!($(#[$attribute])* $vis static $NAME: $Type = $init; $($rest)*);
    };
    ($(#[$attribute:meta])* $vis:vis static $NAME:ident: $Type:ty = const $init:block) => {
        $crate::thread_local!($(#[$attribute])* $vis static $NAME: $Type = $init;);
    };
    ($(#[$attribute:meta])* $vis:vis static $NAME:ident: $Type:ty = $init:expr) => {
        $crate::thread_local!($(#[$attribute])* $vis static $NAME: $Type = $init;);
    };
    ($(#[$attribute:meta])* $vis:vis static $NAME:ident: $Type:ty = $init:expr; $($rest:tt)*) => {
        $(#[$attribute])*
        $vis static $NAME: $crate::LocalKey<$Type> = {
            fn init() -> $Type {
                $init
            }
            ::std::thread_local! { static OUTSIDE: $Type = init(); }
            static KEY: ::std::sync::atomic::AtomicU8 = ::std::sync::atomic::AtomicU8::new(0);
            $crate::LocalKey { outside: &OUTSIDE, init, key: &KEY }
        };
        $crate::thread_local!($($rest)*);
    };
}

impl<T: 'static> LocalKey<T> {
    /// As of `std`.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        if !is_simulated() {
            return self.outside.with(f);
        }
        let value = local(std::ptr::from_ref(self.key).addr(), self.init);
        // SAFETY: boxed, and dropped when the thread has ended; this is that thread.
        f(unsafe { &*value })
    }

    /// As of `std`; it never fails.
    ///
    /// # Errors
    ///
    /// As of `std`, outside a simulation.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, std::thread::AccessError> {
        if is_simulated() { Ok(self.with(f)) } else { self.outside.try_with(f) }
    }
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// As of `std`.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// As of `std`.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// As of `std`.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// As of `std`.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// As of `std`.
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// As of `std`.
    pub fn set(&'static self, value: T) {
        self.replace(value);
    }

    /// As of `std`.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// As of `std`.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }

    /// As of `std`.
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }
}
