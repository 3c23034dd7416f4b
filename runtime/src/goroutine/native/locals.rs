//! Goroutine-locals: the counterpart of `thread_local!` for goroutines.
//!
//! `fibre/locals.rs` stores and drops the values.

use std::any::Any;
use std::cell::Cell;

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::locals::{self, Lent};
use crate::shim::system;

/// Declares values that each goroutine has for itself. A thread that is no goroutine has values of its own, too.
///
/// In a stackless goroutine a value lasts for one poll: after an `.await` the value is made anew.
///
/// # Examples
///
/// ```
/// use std::cell::Cell;
/// use sudog::{run, spawn};
/// use sudog::runtime::gosched;
///
/// sudog::goroutine_local! {
///     /// The user that this goroutine serves.
///     static USER: Cell<u32> = Cell::new(0);
/// }
///
/// run(|| {
///     let others = [1, 2].map(|user| {
///         spawn(move || {
///             USER.with(|u| u.set(user));
///             gosched(); // the other one runs, perhaps on this very thread
///             USER.with(Cell::get)
///         })
///     });
///     assert_eq!(others.map(|other| other.join().unwrap()), [1, 2]);
///     assert_eq!(USER.with(Cell::get), 0);
/// });
/// ```
#[macro_export]
macro_rules! goroutine_local {
    ($($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = $init:expr;)+) => {
        $(
            $(#[$attr])*
            $vis static $name: $crate::goroutine::LocalKey<$t> = $crate::goroutine::LocalKey::new(|| $init);
        )+
    };
}

/// A goroutine-local value: see [`goroutine_local!`](crate::goroutine_local).
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
    /// A field that makes the addresses of two keys differ.
    _place: u8,
}

system::thread_local! {
    // `OF_THREAD` has no destructor, so that destructors can still use the locals.
    static OF_THREAD: locals::Place = const { Cell::new(None) };
    static CLEANER: Cleaner = const { Cleaner };
}

/// Drops the locals of a thread when the thread ends.
struct Cleaner;

impl Drop for Cleaner {
    fn drop(&mut self) {
        OF_THREAD.with(locals::clear);
    }
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> Self {
        Self { init, _place: 0 }
    }

    /// Calls `f` with the value of the calling goroutine. The first call makes the value.
    ///
    /// The value is dropped when the goroutine ends, after its closure. `f` may wait, and the reference stays good: no
    /// other goroutine can get at the value. A destructor of a local may use locals, and makes them anew if they have
    /// been dropped. After eight rounds of dropping, the locals that are left are leaked.
    ///
    /// If a call has not returned when the goroutine ends, all values of the goroutine are leaked. That can happen only
    /// if a coroutine of another library is suspended inside `f`.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        let lent = match self.find() {
            Some(lent) => lent,
            None => {
                // Make the value outside of all borrows: `init` is user code, and may use other locals.
                let value: Box<dyn Any> = Box::new((self.init)());
                self.insert(value)
            }
        };
        f(lent.value().downcast_ref().expect("the key's address leads to the key's value"))
    }

    fn key(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn find(&'static self) -> Option<Lent> {
        with_place(|place| locals::find(place, self.key()))
    }

    /// Stores a value, unless `init` itself has stored a value.
    fn insert(&'static self, value: Box<dyn Any>) -> Lent {
        with_place(|place| locals::insert(place, self.key(), value))
    }
}

impl<T> std::fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("LocalKey { .. }")
    }
}

/// Calls `f` with the place of the caller's locals.
fn with_place<R>(f: impl FnOnce(&locals::Place) -> R) -> R {
    match current::fibre() {
        Some(fibre) => f(&fibre.locals),
        None => {
            _ = CLEANER.try_with(|_| ()); // makes the cleaner run at the end; an error means that the cleaner runs now
            OF_THREAD.with(f)
        }
    }
}
