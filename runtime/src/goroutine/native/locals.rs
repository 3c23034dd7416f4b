//! Goroutine-locals: what `thread_local!` is to threads.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::{Fibre, Locals};
use crate::panics::drop_payload;
use crate::shim::system;

/// Declares values that each goroutine has for itself. A thread that is no goroutine has its own, too.
///
/// In a stackless goroutine a value lasts for one poll: after an `.await` it is made anew.
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

/// How many rounds of dropping: a destructor may make locals anew, which the next round drops.
const ROUNDS: usize = 8;

/// A goroutine-local value: see [`goroutine_local!`](crate::goroutine_local).
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
    /// So that two keys never have the same address.
    _place: u8,
}

system::thread_local! {
    // Without a destructor, so that destructors can still use it.
    static OF_THREAD: Cell<Option<NonNull<Locals>>> = const { Cell::new(None) };
    static CLEANER: Cleaner = const { Cleaner };
}

/// Drops a thread's own, when it ends.
struct Cleaner;

impl Drop for Cleaner {
    fn drop(&mut self) {
        drop_rounds(|| {
            let locals = OF_THREAD.take()?;
            // SAFETY: from `Box::leak` below, and taken out: it has no other owner.
            Some(unsafe { Box::from_raw(locals.as_ptr()) })
        });
    }
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> Self {
        Self { init, _place: 0 }
    }

    /// Calls `f` with the value of the calling goroutine, made now if this is the first time.
    ///
    /// The value is dropped when the goroutine ends, after its closure. `f` may wait, and the reference stays good: no
    /// other goroutine can get at it.
    /// A destructor of a local may use locals, and makes them anew if they have been dropped; after eight rounds of
    /// that the rest is leaked.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        let value: *const dyn Any = match self.find() {
            Some(value) => value,
            None => {
                // Made outside of all borrows: `init` is user code, and may use other locals.
                let value: Box<dyn Any> = Box::new((self.init)());
                self.insert(value)
            }
        };
        // SAFETY: boxed, and never removed before the goroutine, or the thread, is at its end; only shared references
        // to it are ever made.
        let value = unsafe { &*value };
        f(value.downcast_ref().expect("the key's address leads to the key's value"))
    }

    fn key(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn find(&'static self) -> Option<*const dyn Any> {
        with_locals(|locals| locals.get(&self.key()).map(|value| &raw const **value))
    }

    fn insert(&'static self, value: Box<dyn Any>) -> *const dyn Any {
        let mut new = Some(value);
        let value = with_locals(|locals| {
            // Should `init` have come here itself, the first value stays: it may have been lent.
            let value = locals.entry(self.key()).or_insert_with(|| new.take().expect("put in once"));
            &raw const **value
        });
        drop(new); // a second value, outside of all borrows: its destructor is user code
        value
    }
}

impl<T> std::fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("LocalKey { .. }")
    }
}

/// `f` is ours: it runs no user code, so it does not unwind and comes back to no local.
fn with_locals<R>(f: impl FnOnce(&mut Locals) -> R) -> R {
    match current::fibre() {
        Some(fibre) => {
            let mut locals = fibre.locals.take().unwrap_or_default();
            let result = f(&mut locals);
            fibre.locals.set(Some(locals));
            result
        }
        None => {
            _ = CLEANER.try_with(|_| ()); // to have it run; it does already if this fails
            let locals = OF_THREAD.get().unwrap_or_else(|| NonNull::from(Box::leak(Box::default())));
            OF_THREAD.set(Some(locals));
            // SAFETY: leaked above, and not taken by the cleaner; `f` comes back to no local.
            f(unsafe { &mut *locals.as_ptr() })
        }
    }
}

/// Drops what a goroutine that has ended had.
#[inline]
pub(crate) fn clear(fibre: &Fibre) {
    if let Some(locals) = fibre.locals.take() {
        fibre.locals.set(Some(locals));
        drop_rounds(|| fibre.locals.take());
    }
}

/// A destructor may use locals, even make new ones. One that always does is given up on, as POSIX does with its own.
#[cold]
fn drop_rounds(mut take: impl FnMut() -> Option<Box<Locals>>) {
    for _ in 0..ROUNDS {
        let Some(locals) = take() else { return };
        for (_, value) in *locals {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(value))) {
                drop_payload(payload);
            }
        }
    }
    std::mem::forget(take());
}
