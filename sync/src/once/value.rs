//! A value that the first caller makes, once. Go's `OnceValue`; the other variants are made of this type.
//!
//! | [`Once`] | the cell | may be accessed by |
//! |---|---|---|
//! | new | `New(f)` | no caller |
//! | running | `Running`: `f` has been moved out | the caller that runs `f` |
//! | done | `Value`, or the reason why there is no value; final | all callers, to read |
//!
//! Source: Go's `sync/oncefunc.go`, in the development tree of 1.28.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};

use sudog_runtime::sema::{IntoLimit, WaitError, WaitLimit};

use super::Once;
use crate::shared_panic::{Caught, is_goexit};

/// A value that a function makes at the first call. The counterpart of `std`'s `LazyLock`, with Go's contract.
///
/// * The function runs once. Concurrent callers wait.
/// * After that the function is dropped, with its captures, even if the function panics.
/// * If the function panics, every call panics with the same value. If the value is not a text, see
///   [`SharedPanic`](crate::SharedPanic).
/// * If the function calls [`goexit`](sudog_runtime::goroutine), the goroutine that ran the function ends, and every
///   other call panics.
/// * A function that asks for its own value waits for itself for ever.
///
/// No call allocates, unless it panics. Threads can share an `OnceValue` only if they can share its value:
///
/// ```compile_fail,E0277
/// use std::cell::Cell;
/// use sudog::sync::OnceValue;
///
/// static COUNT: OnceValue<Cell<u32>> = OnceValue::new(|| Cell::new(0)); // `Cell` is not `Sync`
/// ```
///
/// Go: `sync.OnceValue`; [`once_value`] has Go's signature.
///
/// # Examples
///
/// ```
/// use sudog::sync::OnceValue;
///
/// static CONFIG: OnceValue<String> = OnceValue::new(|| "read from a file, once".to_owned());
///
/// std::thread::scope(|s| {
///     for _ in 0..3 {
///         s.spawn(|| assert!(CONFIG.get().starts_with("read")));
///     }
/// });
/// ```
pub struct OnceValue<T, F = fn() -> T> {
    once: Once,
    cell: UnsafeCell<Cell<T, F>>,
}

enum Cell<T, F> {
    New(F),
    Running,
    Value(T),
    Panicked(Caught),
    Exited,
}

// SAFETY: `&Self` gives out `&T` to any number of threads, so `T` must be `Sync`. The value may be made on another
// thread than the thread that drops the value, so `T` must be `Send`. A single thread, possibly not the thread that
// made `f`, calls and drops `f`, so `F` must be `Send`; `f` is not shared. A caught panic is `Send` and `Sync`. By the
// table above, no caller reads the cell while the cell is written.
unsafe impl<T: Send + Sync, F: Send> Sync for OnceValue<T, F> {}

// After a panic of `f` there is no value, and no `f`, so no caller can see a broken value. Whether a value may still
// be used after a panic of other code is decided by `T`'s own traits.
impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for OnceValue<T, F> {}

impl<T, F> OnceValue<T, F> {
    /// Creates a value that `f` will make.
    #[must_use]
    pub const fn new(f: F) -> Self {
        Self { once: Once::new(), cell: UnsafeCell::new(Cell::New(f)) }
    }
}

impl<T, F: FnOnce() -> T> OnceValue<T, F> {
    /// Returns the value. The first call makes the value; calls that come meanwhile wait.
    ///
    /// # Panics
    ///
    /// Panics if the function has panicked, with the same value each time. Also panics if the function has ended its
    /// goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::sync::OnceValue;
    ///
    /// let answer = OnceValue::new(|| 6 * 7);
    /// assert_eq!(answer.get(), &42);
    /// ```
    #[inline]
    #[track_caller]
    pub fn get(&self) -> &T {
        match self.done() {
            Some(cell) => cell.made(),
            None => self.make_and_get(),
        }
    }

    /// A separate function, so that the fast path has no frame.
    #[cold]
    #[track_caller]
    fn make_and_get(&self) -> &T {
        let made = self.make(&WaitLimit::default());
        debug_assert_eq!(made, Ok(()));
        self.done().expect("made").made()
    }

    /// Does the same as [`OnceValue::get`], but waits for another caller to make the value only until `limit`
    /// ends the wait: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The same as [`Once::do_limited`].
    ///
    /// # Panics
    ///
    /// The same as [`OnceValue::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::sync::OnceValue;
    /// use sudog::{Cancel, WaitError};
    ///
    /// let (answer, stop) = (OnceValue::new(|| 6 * 7), Cancel::new());
    /// stop.cancel();
    /// assert_eq!(answer.get_limited(&stop), Err(WaitError::Cancelled));
    /// assert_eq!(answer.get_limited(Duration::ZERO), Ok(&42)); // no wait is needed
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_limited<L: IntoLimit>(&self, limit: L) -> Result<&T, L::Error> {
        if let Some(cell) = self.done() {
            return Ok(cell.made());
        }
        limit.limited(|limit| self.make(limit))?;
        Ok(self.done().expect("made").made())
    }

    #[cold]
    fn make(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let mut mine = None;
        self.once.do_limited(|| mine = self.run(), limit)?;
        match mine {
            None => Ok(()),
            Some(Ended::Exited(payload)) => resume_unwind(payload),
            Some(Ended::Panicked) => match self.done() {
                Some(Cell::Panicked(caught)) => caught.resume(),
                _ => unreachable!("it has just panicked"),
            },
        }
    }

    /// Runs the function. Called within the single `do_` that runs its function.
    fn run(&self) -> Option<Ended> {
        let cell = self.cell.get();
        // SAFETY: `once` is not done, and this caller runs `f`: no other caller accesses the cell. No reference to the
        // cell's content lasts longer than a move; in particular, no such reference exists while `f` runs.
        let Cell::New(f) = (unsafe { cell.replace(Cell::Running) }) else { unreachable!("run once") };
        // The call moves `f`, and drops `f` at its end; a panic of `f` is raised again. So no caller can see a broken
        // `f`.
        let (made, ended) = match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => (Cell::Value(value), None),
            Err(payload) if is_goexit(&*payload) => (Cell::Exited, Some(Ended::Exited(payload))),
            Err(payload) => (Cell::Panicked(Caught::new(payload)), Some(Ended::Panicked)),
        };
        // SAFETY: `once` is not done, and this caller has run `f`: no other caller accesses the cell. The overwritten
        // `Running` needs no drop.
        unsafe { cell.write(made) };
        ended
    }
}

/// The reason why the function made no value, for the thread or goroutine that ran the function.
enum Ended {
    Panicked,
    Exited(Box<dyn Any + Send>),
}

impl<T, F> OnceValue<T, F> {
    /// Returns the cell, if `once` is done.
    #[inline]
    fn done(&self) -> Option<&Cell<T, F>> {
        // SAFETY: `once` is done, and this caller has seen that, so the cell is no longer written.
        self.once.is_done().then(|| unsafe { &*self.cell.get() })
    }
}

impl<T, F> Cell<T, F> {
    /// Returns the value; panics if the function has made no value.
    #[inline]
    #[track_caller]
    fn made(&self) -> &T {
        match self {
            Self::Value(value) => value,
            cell => cell.fail(),
        }
    }

    #[cold]
    #[track_caller]
    fn fail(&self) -> ! {
        match self {
            Self::Panicked(caught) => caught.raise(),
            Self::Exited => panic!("sync: a function that was to run once has ended its goroutine"),
            _ => unreachable!("done, and nothing made"),
        }
    }
}

impl<T: fmt::Debug, F> fmt::Debug for OnceValue<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("OnceValue");
        match self.done() {
            None => tuple.field(&format_args!("<not made>")),
            Some(Cell::Value(value)) => tuple.field(value),
            Some(_) => tuple.field(&format_args!("<failed>")),
        };
        tuple.finish()
    }
}

/// Returns a function that returns the result of the first call of `f`: Go's `sync.OnceValue`, with the same
/// signature.
///
/// The function returns a clone; [`OnceValue`] gives out a reference, and can live in a `static`.
///
/// # Examples
///
/// ```
/// use sudog::sync::once_value;
///
/// let answer = once_value(|| 6 * 7);
/// assert_eq!(answer() + answer(), 84);
/// ```
pub fn once_value<T, F>(f: F) -> impl Fn() -> T + Send + Sync
where
    T: Clone + Send + Sync,
    F: FnOnce() -> T + Send,
{
    let value = OnceValue::new(f);
    move || value.get().clone()
}
