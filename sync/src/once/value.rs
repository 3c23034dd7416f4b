//! A value that its first caller makes, once. Go's `OnceValue`; the others are made of it.
//!
//! | [`Once`] | the cell | may be touched by |
//! |---|---|---|
//! | new | `New(f)` | no caller |
//! | running | `Running`: `f` has been moved out | the caller that runs `f` |
//! | done | `Value`, or why there is none; for good | all callers, to read |
//!
//! Source: Go's `sync/oncefunc.go`, in the development tree of 1.28.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};

use sudog_runtime::Instant;
use sudog_runtime::sema::{WaitError, WaitLimit};

use super::Once;
#[cfg(unix)]
use crate::context;
use crate::shared_panic::{Caught, is_goexit};

/// A value that a function makes at the first call. `std`'s `LazyLock`, with Go's contract.
///
/// * The function runs once. Concurrent callers wait.
/// * The function is dropped after that, with its captures, even if it panics.
/// * If it panics, every call panics with the same value. See [`SharedPanic`](crate::SharedPanic) for what that is if it
///   is no text.
/// * If it calls [`goexit`](sudog_runtime::goroutine), the goroutine that ran it ends, and every other call panics.
/// * A function that asks for its own value waits for itself, for ever.
///
/// No call allocates, unless it panics. Its value may be shared among threads, if it is shared itself:
///
/// ```compile_fail,E0277
/// use std::cell::Cell;
/// use sudog::sync::OnceValue;
///
/// static COUNT: OnceValue<Cell<u32>> = OnceValue::new(|| Cell::new(0)); // `Cell` is not `Sync`
/// ```
///
/// Go: `sync.OnceValue`, of which [`once_value`] has the shape.
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

// SAFETY: `&Self` gives out `&T`, to any number of threads: `T: Sync`. The value may be made on another thread than the
// one that drops it: `T: Send`. `f` is called and dropped by one thread, not that of its maker: `F: Send`; it is not
// shared. What was caught is `Send` and `Sync`. No caller reads the cell while it is written: the table above.
unsafe impl<T: Send + Sync, F: Send> Sync for OnceValue<T, F> {}

// After a panic of `f` there is no value, and no `f`: nothing broken can be seen. What a value that is seen is worth
// after another's panic is for `T` to say.
impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for OnceValue<T, F> {}

impl<T, F> OnceValue<T, F> {
    /// A value that `f` will make.
    #[must_use]
    pub const fn new(f: F) -> Self {
        Self { once: Once::new(), cell: UnsafeCell::new(Cell::New(f)) }
    }
}

impl<T, F: FnOnce() -> T> OnceValue<T, F> {
    /// The value. The first call makes it, those that come meanwhile wait.
    ///
    /// # Panics
    ///
    /// If the function has panicked: with the same value each time. If it has ended its goroutine.
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
        if self.once.is_done() {
            // SAFETY: it is done.
            return unsafe { self.made() };
        }
        self.make_and_get()
    }

    /// Apart, so that the fast path has no frame.
    #[cold]
    #[track_caller]
    fn make_and_get(&self) -> &T {
        let made = self.make(&WaitLimit::default());
        debug_assert_eq!(made, Ok(()));
        // SAFETY: it is done.
        unsafe { self.made() }
    }

    /// [`OnceValue::get`] that waits for another to make the value up to a deadline at most.
    ///
    /// # Panics
    ///
    /// As [`OnceValue::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Instant;
    /// use sudog::sync::OnceValue;
    ///
    /// let answer = OnceValue::new(|| 6 * 7);
    /// assert_eq!(answer.get_until(Instant::now()), Some(&42)); // no wait is needed
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_until(&self, deadline: Instant) -> Option<&T> {
        self.get_limited(&WaitLimit::until(deadline)).ok()
    }

    /// [`OnceValue::get`] that waits for another to make the value up to a [`WaitLimit`] at most.
    ///
    /// # Errors
    ///
    /// As [`Once::do_limited`].
    ///
    /// # Panics
    ///
    /// As [`OnceValue::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::runtime::sema::{Cancel, WaitError, WaitLimit};
    /// use sudog::sync::OnceValue;
    ///
    /// let (answer, stop) = (OnceValue::new(|| 6 * 7), Cancel::new());
    /// stop.cancel();
    /// let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
    /// assert_eq!(answer.get_limited(&limit), Err(WaitError::Cancelled));
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_limited(&self, limit: &WaitLimit<'_>) -> Result<&T, WaitError> {
        if !self.once.is_done() {
            self.make(limit)?;
        }
        // SAFETY: it is done.
        Ok(unsafe { self.made() })
    }

    /// [`OnceValue::get`] that waits for another to make the value for as long as `ctx` is not done.
    ///
    /// # Errors
    ///
    /// As [`Once::do_ctx`].
    ///
    /// # Panics
    ///
    /// As [`OnceValue::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::context;
    /// use sudog::sync::OnceValue;
    ///
    /// let answer = OnceValue::new(|| 6 * 7);
    /// assert_eq!(answer.get_ctx(&context::background()), Ok(&42));
    /// ```
    #[cfg(unix)]
    #[inline]
    #[track_caller]
    pub fn get_ctx(&self, ctx: &context::Context) -> Result<&T, context::Error> {
        if !self.once.is_done() {
            ctx.limited(|limit| self.make(limit))?;
        }
        // SAFETY: it is done.
        Ok(unsafe { self.made() })
    }

    #[cold]
    fn make(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        let mut mine = None;
        self.once.do_limited(|| mine = self.run(), limit)?;
        match mine {
            None => Ok(()),
            Some(Ended::Exited(payload)) => resume_unwind(payload),
            Some(Ended::Panicked) => {
                // SAFETY: it is done.
                match unsafe { &*self.cell.get() } {
                    Cell::Panicked(caught) => caught.resume(),
                    _ => unreachable!("it has just panicked"),
                }
            }
        }
    }

    /// Runs the function, within the one `do_` that gets to run something.
    fn run(&self) -> Option<Ended> {
        let cell = self.cell.get();
        // SAFETY: not done, and this caller runs `f`: no other touches the cell. No reference lasts for longer than a
        // move; in particular none is there while `f` runs.
        let Cell::New(f) = (unsafe { cell.replace(Cell::Running) }) else { unreachable!("run once") };
        // `f` is moved, and dropped when it ends; and its panic is raised again.
        let (made, ended) = match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => (Cell::Value(value), None),
            Err(payload) if is_goexit(&*payload) => (Cell::Exited, Some(Ended::Exited(payload))),
            Err(payload) => (Cell::Panicked(Caught::new(payload)), Some(Ended::Panicked)),
        };
        // SAFETY: as above. What is overwritten needs no drop.
        unsafe { cell.write(made) };
        ended
    }
}

/// How the function of the calling thread or goroutine has ended, if not well.
enum Ended {
    Panicked,
    Exited(Box<dyn Any + Send>),
}

impl<T, F> OnceValue<T, F> {
    /// What has come of it.
    ///
    /// # Safety
    ///
    /// It is done, and the caller has seen it.
    #[inline]
    #[track_caller]
    unsafe fn made(&self) -> &T {
        // SAFETY: by the contract, it is written no more.
        match unsafe { &*self.cell.get() } {
            Cell::Value(value) => value,
            cell => cell.fail(),
        }
    }
}

impl<T, F> Cell<T, F> {
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
        if !self.once.is_done() {
            return tuple.field(&format_args!("<not made>")).finish();
        }
        // SAFETY: it is done, so it is written no more.
        match unsafe { &*self.cell.get() } {
            Cell::Value(value) => tuple.field(value),
            _ => tuple.field(&format_args!("<failed>")),
        };
        tuple.finish()
    }
}

/// Go's `sync.OnceValue` to the letter: a function that returns what the first call of `f` has returned.
///
/// It returns a clone; [`OnceValue`] gives out a reference, and can live in a `static`.
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
