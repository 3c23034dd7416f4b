//! The storage of goroutine-locals.
//!
//! Values are dropped only while no call of [`LocalKey::with`](crate::goroutine::LocalKey::with) is under way. The frames
//! of one goroutine are nested, so at its end all its calls have returned, except calls in frames of another library's
//! coroutine. Such a coroutine can be suspended inside `with`, leave its goroutine, and be resumed after the goroutine has
//! ended. So the calls are counted, and values that a call of `with` still uses when the goroutine ends are leaked.
//! (`std`'s `thread_local!` has no such count: a coroutine that outlives its thread's value reads freed memory.)

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::collections::HashMap;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::panics::drop_payload;

/// The number of rounds of dropping: a destructor may make locals anew, which the next round drops.
const ROUNDS: usize = 8;

/// The place that owns the locals of a goroutine or of a thread. `None`: there are no locals yet.
pub(crate) type Place = Cell<Option<LocalsRef>>;

/// A reference to locals that are alive: they are in their place, or lent, or have just been taken out of their place.
/// Only the thread of the goroutine uses the reference.
#[derive(Clone, Copy)]
pub(crate) struct LocalsRef(NonNull<Locals>);

impl Deref for LocalsRef {
    type Target = Locals;

    #[inline]
    fn deref(&self) -> &Locals {
        // SAFETY: the locals are alive, by the invariant of this type.
        unsafe { self.0.as_ref() }
    }
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
pub(in crate::goroutine::native) struct Lent {
    value: NonNull<dyn Any>,
    of: LocalsRef,
}

impl Lent {
    fn new(of: LocalsRef, value: &dyn Any) -> Self {
        of.lent.set(of.lent.get() + 1);
        Self { value: NonNull::from(value), of }
    }

    pub(in crate::goroutine::native) fn value(&self) -> &dyn Any {
        // SAFETY: the value is boxed and stays in its map, which is not freed while `lent` counts this `Lent`; only shared
        // references to the value are ever made.
        unsafe { self.value.as_ref() }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // These locals are not freed while `lent` counts this value.
        self.of.lent.set(self.of.lent.get() - 1);
    }
}

/// Returns the value that has this key, if `place` has such a value.
pub(in crate::goroutine::native) fn find(place: &Place, key: usize) -> Option<Lent> {
    with(place, |of, values| values.get(&key).map(|value| Lent::new(of, &**value)))
}

/// Stores a value, and returns the value that has this key then. If `place` has such a value already, that first value
/// stays, because it may have been lent.
pub(in crate::goroutine::native) fn insert(place: &Place, key: usize, value: Box<dyn Any>) -> Lent {
    let mut new = Some(value);
    let lent = with(place, |of, values| {
        let value = values.entry(key).or_insert_with(|| new.take().expect("put in once"));
        Lent::new(of, &**value)
    });
    drop(new); // a second value: drop after all borrows, as the destructor is user code
    lent
}

/// Calls `f` with the locals in `place`. `f` is code of this file and runs no user code: so `f` does not unwind, and does
/// not use any local.
fn with<R>(place: &Place, f: impl FnOnce(LocalsRef, &mut HashMap<usize, Box<dyn Any>>) -> R) -> R {
    let locals = place.get().unwrap_or_else(|| {
        let new = LocalsRef(NonNull::from(Box::leak(Box::default())));
        place.set(Some(new));
        new
    });
    // SAFETY: `place` owns these locals, so they are alive, and this thread alone uses them; no other reference to the
    // map exists, as `f` does not use any local.
    f(locals, unsafe { &mut *locals.values.get() })
}

/// Drops the locals of a goroutine or a thread that has ended.
#[inline]
pub(crate) fn clear(place: &Place) {
    if place.get().is_some() {
        drop_rounds(place);
    }
}

/// Drops the locals in `place`. A destructor may use locals, and even make new locals. If each round of drops makes new
/// locals, the last are leaked after [`ROUNDS`] rounds, as POSIX does with thread-specific data.
#[cold]
fn drop_rounds(place: &Place) {
    for _ in 0..ROUNDS {
        let Some(locals) = place.take() else { return };
        // No call of `with` can find these locals any more.
        if locals.lent.get() > 0 {
            return; // leaked: a frame that has not returned uses a value
        }
        // SAFETY: `locals` came from `Box::leak`, and has no other owner. No value is lent, and none can be from now on.
        let locals = unsafe { Box::from_raw(locals.0.as_ptr()) };
        for (_, value) in locals.values.into_inner() {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(value))) {
                drop_payload(payload);
            }
        }
    }
    place.set(None); // the other locals are leaked
}
