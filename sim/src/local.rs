//! Thread-locals of simulated threads.

use std::cell::{Cell, RefCell};

use crate::machine::{is_simulated, local};

/// A thread-local: each simulated thread has its own value, and so has each thread of the process outside a simulation.
/// Made by [`thread_local!`](crate::thread_local).
#[derive(Debug)]
pub struct LocalKey<T: 'static> {
    #[doc(hidden)]
    pub outside: &'static std::thread::LocalKey<T>,
    #[doc(hidden)]
    pub init: fn() -> T,
    /// A static that gives this thread-local a unique address. Simulated threads find their values by that address.
    #[doc(hidden)]
    pub key: &'static std::sync::atomic::AtomicU8,
}

/// The counterpart of `std`'s `thread_local!`.
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
    /// The counterpart of `std`'s `with`.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        if !is_simulated() {
            return self.outside.with(f);
        }
        let value = local(std::ptr::from_ref(self.key).addr(), self.init);
        // SAFETY: `value` points to a boxed value of the current thread, and is dropped only when that thread has
        // ended.
        f(unsafe { &*value })
    }

    /// The counterpart of `std`'s `try_with`. Never fails inside a simulation.
    ///
    /// # Errors
    ///
    /// The same as those of `std`, outside a simulation.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, std::thread::AccessError> {
        if is_simulated() { Ok(self.with(f)) } else { self.outside.try_with(f) }
    }
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// The counterpart of `std`'s `set`.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// The counterpart of `std`'s `get`.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// The counterpart of `std`'s `take`.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// The counterpart of `std`'s `replace`.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// The counterpart of `std`'s `with_borrow`.
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// The counterpart of `std`'s `set`.
    pub fn set(&'static self, value: T) {
        self.replace(value);
    }

    /// The counterpart of `std`'s `take`.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// The counterpart of `std`'s `replace`.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }

    /// The counterpart of `std`'s `with_borrow_mut`.
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }
}
