//! Goroutine-locals: the counterpart of `thread_local!` for goroutines.
//!
//! Values are dropped only while no call of [`LocalKey::with`] is under way. The frames of one goroutine are nested, so
//! at its end all its calls have returned, except calls in frames of another library's coroutine. Such a coroutine can
//! be suspended inside `with`, leave its goroutine, and be resumed after the goroutine has ended. So the calls are
//! counted, and values that a call of `with` still uses when the goroutine ends are leaked. (`std`'s `thread_local!`
//! has no such count: a coroutine that outlives its thread's value reads freed memory.)

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::goroutine::native::fibre::Fibre;
use crate::goroutine::native::fibre::current;
use crate::panics::drop_payload;
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

/// The number of rounds of dropping: a destructor may make locals anew, which the next round drops.
const ROUNDS: usize = 8;

/// A goroutine-local value: see [`goroutine_local!`](crate::goroutine_local).
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
    /// A field that makes the addresses of two keys differ.
    _place: u8,
}

/// The locals of a goroutine or of a thread. Freed only while `lent` is 0.
#[derive(Default)]
pub(crate) struct Locals {
    /// The values, by the address of their key.
    values: UnsafeCell<HashMap<usize, Box<dyn Any>>>,
    /// Number of calls of `LocalKey::with` that use a value.
    lent: Cell<usize>,
}

/// A value that a call of `LocalKey::with` uses.
struct Lent {
    value: NonNull<dyn Any>,
    of: NonNull<Locals>,
}

impl Lent {
    fn new(of: NonNull<Locals>, value: &dyn Any) -> Self {
        // SAFETY: `of` points to locals that have an owner, so they are alive; they are shared by reference only.
        let lent = unsafe { &of.as_ref().lent };
        lent.set(lent.get() + 1);
        Self { value: NonNull::from(value), of }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: these locals are not freed while `lent` counts this value.
        let lent = unsafe { &self.of.as_ref().lent };
        lent.set(lent.get() - 1);
    }
}

system::thread_local! {
    // `OF_THREAD` has no destructor, so that destructors can still use the locals.
    static OF_THREAD: Cell<Option<NonNull<Locals>>> = const { Cell::new(None) };
    static CLEANER: Cleaner = const { Cleaner };
}

/// Drops the locals of a thread when the thread ends.
struct Cleaner;

impl Drop for Cleaner {
    fn drop(&mut self) {
        OF_THREAD.with(drop_rounds);
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
        // SAFETY: the value is boxed and stays in its map, which is not freed while `lent` counts this call; only shared
        // references to the value are ever made.
        let value = unsafe { lent.value.as_ref() };
        f(value.downcast_ref().expect("the key's address leads to the key's value"))
    }

    fn key(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn find(&'static self) -> Option<Lent> {
        with_locals(|of, values| values.get(&self.key()).map(|value| Lent::new(of, &**value)))
    }

    fn insert(&'static self, value: Box<dyn Any>) -> Lent {
        let mut new = Some(value);
        let lent = with_locals(|of, values| {
            // If `init` itself has inserted a value, that first value stays, because the value may have been lent.
            let value = values.entry(self.key()).or_insert_with(|| new.take().expect("put in once"));
            Lent::new(of, &**value)
        });
        drop(new); // a second value: drop after all borrows, as the destructor is user code
        lent
    }
}

impl<T> std::fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("LocalKey { .. }")
    }
}

/// Calls `f` with the caller's locals. `f` is code of this file and runs no user code: so `f` does not unwind, and does
/// not use any local.
fn with_locals<R>(f: impl FnOnce(NonNull<Locals>, &mut HashMap<usize, Box<dyn Any>>) -> R) -> R {
    let call = |place: &Cell<Option<NonNull<Locals>>>| {
        let locals = place.get().unwrap_or_else(|| {
            let new = NonNull::from(Box::leak(Box::default()));
            place.set(Some(new));
            new
        });
        // SAFETY: `place` owns these locals, so they are alive, and this thread alone uses them; no other reference to
        // the map exists, as `f` does not use any local.
        f(locals, unsafe { &mut *locals.as_ref().values.get() })
    };
    match current::fibre() {
        Some(fibre) => call(&fibre.locals),
        None => {
            _ = CLEANER.try_with(|_| ()); // makes the cleaner run at the end; an error means that the cleaner runs now
            OF_THREAD.with(call)
        }
    }
}

/// Drops the locals of a goroutine that has ended.
#[inline]
pub(crate) fn clear(fibre: &Fibre) {
    if fibre.locals.get().is_some() {
        drop_rounds(&fibre.locals);
    }
}

/// Drops the locals in `place`. A destructor may use locals, and even make new locals. If each round of drops makes new
/// locals, the last are leaked after [`ROUNDS`] rounds, as POSIX does with thread-specific data.
#[cold]
fn drop_rounds(place: &Cell<Option<NonNull<Locals>>>) {
    for _ in 0..ROUNDS {
        let Some(locals) = place.take() else { return };
        // SAFETY: these locals were taken out of `place` just now, so no call of `with` can find them any more; and
        // they are alive.
        if unsafe { locals.as_ref() }.lent.get() > 0 {
            return; // leaked: a frame that has not returned uses a value
        }
        // SAFETY: `locals` came from `Box::leak`, and has no other owner. No value is lent, and none can be from now on.
        let locals = unsafe { Box::from_raw(locals.as_ptr()) };
        for (_, value) in locals.values.into_inner() {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(value))) {
                drop_payload(payload);
            }
        }
    }
    place.set(None); // the other locals are leaked
}
