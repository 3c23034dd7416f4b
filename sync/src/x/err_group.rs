//! Go's `errgroup`: goroutines that work on a common job, and the first error among them.
//!
//! | | `go` | the goroutine | `wait` |
//! |---|---|---|---|
//! | limit | takes a token | gives the token back | |
//! | count | increments | decrements, after giving the token back | waits for 0 |
//! | failure | | keeps the first failure, and cancels the context | returns the failure |
//!
//! Source: `golang.org/x/sync/errgroup`.

use std::any::Any;
use std::error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError};
use sudog_runtime::shim::system::atomic::{AtomicU32, Ordering};
use sudog_runtime::shim::system::{Mutex, MutexGuard};

#[cfg(doc)]
use sudog_runtime::goroutine;
use sudog_runtime::goroutine::{Builder, Goexit, is_large};
use sudog_runtime::panics::drop_payload;
use sudog_runtime::sema::{
    IntoLimit, Order, WaitError, WaitLimit, Wake, semacquire_limited, semrelease, try_semacquire,
};

use crate::WaitGroup;
use crate::context::{self, CancelCauseFunc, Cause, Context};

/// A group of goroutines that work on a common job: a [`WaitGroup`] whose `wait` returns the first error of a
/// goroutine, and which can tell the other goroutines to stop. Go's `errgroup.Group`.
///
/// An `ErrGroup` is a handle: clones refer to the same group. After a [`wait`](ErrGroup::wait) the group may be used
/// again, under the rules of a wait group; the group keeps its first error.
///
/// Different from Go: a panic in a goroutine of the group does not end the process, but goes on in `wait`. (The panic
/// cancels the context. If no caller waits, only the panic hook reports the panic.) And a limit counts only the
/// goroutines that were started under that limit, so lifting the limit while they run is allowed.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::context;
/// use sudog::x::ErrGroup;
///
/// let (group, ctx) = ErrGroup::with_context(&context::background());
/// group.go(move || ctx.sleep(Duration::from_secs(3600)));
/// group.go(|| Err("the disk is full"));
/// assert_eq!(group.wait().unwrap_err().to_string(), "the disk is full");
/// ```
#[derive(Clone, Default)]
pub struct ErrGroup {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    tasks: WaitGroup,
    tokens: Mutex<Option<Arc<Tokens>>>,
    cancel: Option<CancelCauseFunc>,
    failure: Mutex<Failure>,
}

/// The tokens of a limit: each goroutine that runs under the limit has a token.
struct Tokens {
    all: u32,
    free: AtomicU32,
}

#[derive(Default)]
struct Failure {
    error: Option<Cause>,
    panic: Panic,
}

#[derive(Default)]
enum Panic {
    #[default]
    None,
    Caught(Box<dyn Any + Send>),
    /// A `wait` has raised the panic in its caller. Only the text of the panic is left.
    Raised(String),
}

/// Drops the payload of a panic that no `wait` has raised. The payload's destructor must not panic again.
impl Drop for Failure {
    fn drop(&mut self) {
        if let Panic::Caught(payload) = std::mem::take(&mut self.panic) {
            drop_payload(payload);
        }
    }
}

impl ErrGroup {
    /// Creates a group without a limit and without a context.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a group, and a context that is cancelled when a function of the group returns an error or panics, or
    /// when a [`wait`](ErrGroup::wait) is over. The error is the context's [cause](Context::cause).
    #[must_use]
    pub fn with_context(ctx: &Context) -> (Self, Context) {
        let (ctx, cancel) = context::with_cancel_cause(ctx);
        (Self { inner: Arc::new(Inner { cancel: Some(cancel), ..Inner::default() }) }, ctx)
    }

    /// Runs `f` as a goroutine of the group. If the group's [limit](ErrGroup::set_limit) is reached, first waits until
    /// a goroutine of the group has ended.
    ///
    /// A goroutine that ends by [`goexit`](goroutine::goexit) counts as ended.
    ///
    /// # Panics
    ///
    /// The same as [`WaitGroup::add`].
    #[track_caller]
    pub fn go<F, E>(&self, f: F)
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let started = self.go_limited(f, &WaitLimit::default());
        debug_assert_eq!(started, Ok(()));
    }

    /// Runs `f` as [`ErrGroup::go`] does. If `limit` comes while the call waits for the group's limit, gives up, and
    /// drops `f`: see [`IntoLimit`]. Does not stop `f` once `f` runs.
    ///
    /// # Errors
    ///
    /// The error says which limit came first.
    ///
    /// # Panics
    ///
    /// The same as [`WaitGroup::add`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use sudog::WaitError;
    /// use sudog::x::ErrGroup;
    ///
    /// let group = ErrGroup::new();
    /// group.set_limit(Some(0));
    /// let late = group.go_limited(|| Ok::<_, Infallible>(()), Duration::from_millis(1));
    /// assert_eq!(late, Err(WaitError::TimedOut));
    /// ```
    #[track_caller]
    pub fn go_limited<F, E, L: IntoLimit>(&self, f: F, limit: L) -> Result<(), L::Error>
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let tokens = self.inner.tokens().clone();
        let token = limit.limited(|limit| tokens.map(|tokens| Tokens::take(tokens, limit)).transpose())?;
        self.start(token, Builder::new(), f);
        Ok(())
    }

    /// Runs `f` as [`ErrGroup::go`] does, with the name, the stack size or the place of a [`Builder`].
    ///
    /// # Panics
    ///
    /// The same as [`WaitGroup::add`] and [`Builder::go`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use sudog::Builder;
    /// use sudog::x::ErrGroup;
    ///
    /// let group = ErrGroup::new();
    /// group.go_with(Builder::new().name("worker"), || Ok::<_, Infallible>(()));
    /// group.wait().unwrap();
    /// ```
    #[track_caller]
    pub fn go_with<F, E>(&self, builder: Builder, f: F)
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let tokens = self.inner.tokens().clone();
        let token = tokens.map(|tokens| Tokens::take(tokens, &WaitLimit::default()));
        let token = token.transpose().unwrap_or_else(|_| unreachable!("no limit was set"));
        self.start(token, builder, f);
    }

    /// Runs `f` as [`ErrGroup::go`] does and returns true, if the group's limit is not reached. Otherwise drops `f` and
    /// returns false.
    ///
    /// # Panics
    ///
    /// The same as [`WaitGroup::add`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::context;
    /// use sudog::x::ErrGroup;
    ///
    /// let (group, ctx) = ErrGroup::with_context(&context::background());
    /// group.set_limit(Some(1));
    /// group.go(move || Err(ctx.wait()));
    /// assert!(!group.try_go(|| Ok::<_, context::Error>(())));
    /// # group.set_limit(None);
    /// # group.go(|| Err("stop"));
    /// ```
    #[must_use = "it says whether the function will run"]
    #[track_caller]
    pub fn try_go<F, E>(&self, f: F) -> bool
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let tokens = self.inner.tokens().clone();
        let token = match tokens {
            None => None,
            Some(tokens) if try_semacquire(&tokens.free) => Some(Token(tokens)),
            Some(_) => return false,
        };
        self.start(token, Builder::new(), f);
        true
    }

    /// Limits the number of goroutines of the group that run at a time; 0 blocks all. `None` allows any number.
    ///
    /// # Panics
    ///
    /// Panics, with Go's text, if a limit is set while goroutines run that were started under another limit: `errgroup:
    /// modify limit while N goroutines in the group are still active`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use sudog::x::ErrGroup;
    ///
    /// let group = ErrGroup::new();
    /// group.set_limit(Some(2));
    /// for _ in 0..10 {
    ///     group.go(|| Ok::<_, Infallible>(())); // waits for room
    /// }
    /// group.wait().unwrap();
    /// ```
    #[track_caller]
    pub fn set_limit(&self, n: Option<usize>) {
        let new = n.map(|n| {
            let all = u32::try_from(n).unwrap_or(u32::MAX);
            Arc::new(Tokens { all, free: AtomicU32::new(all) })
        });
        let mut tokens = self.inner.tokens();
        let active = match (&*tokens, &new) {
            (Some(old), Some(_)) => old.all - old.free.load(Ordering::Relaxed),
            _ => 0,
        };
        if active == 0 {
            *tokens = new;
        }
        drop(tokens);
        assert!(active == 0, "errgroup: modify limit while {active} goroutines in the group are still active");
    }

    /// Waits until all goroutines of the group have ended, and then cancels the group's context.
    ///
    /// # Errors
    ///
    /// Returns the first error that a goroutine of the group has returned.
    ///
    /// # Panics
    ///
    /// Panics if a goroutine of the group has panicked: the first call raises the first panic again, and later calls
    /// panic, too. Also panics in the same cases as [`WaitGroup::wait`].
    #[track_caller]
    pub fn wait(&self) -> Result<(), Cause> {
        self.inner.tasks.wait();
        self.inner.result()
    }

    /// Waits as [`ErrGroup::wait`] does, but gives up at a limit: see [`IntoLimit`]. Giving up changes neither the group
    /// nor its context.
    ///
    /// # Errors
    ///
    /// The error says which limit came first, before the goroutines have ended. Otherwise the result is that of
    /// [`ErrGroup::wait`].
    ///
    /// # Panics
    ///
    /// The same as [`ErrGroup::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::x::ErrGroup;
    /// use sudog::{WaitError, context};
    ///
    /// let group = ErrGroup::new();
    /// let (stop, cancel) = context::with_cancel(&context::background());
    /// group.go(move || Err(stop.wait()));
    /// assert_eq!(group.wait_limited(Duration::from_millis(1)).unwrap_err(), WaitError::TimedOut);
    /// cancel.cancel();
    /// assert_eq!(group.wait().unwrap_err().to_string(), "context canceled");
    /// ```
    #[track_caller]
    pub fn wait_limited<L: IntoLimit>(&self, limit: L) -> Result<Result<(), Cause>, L::Error> {
        self.inner.tasks.wait_limited(limit)?;
        Ok(self.inner.result())
    }

    #[track_caller]
    fn start<F, E>(&self, token: Option<Token>, builder: Builder, f: F)
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        if const { is_large::<F>() } {
            // Do the same as `box_if_large!`. That macro needs a `dyn` that is `'static`, which `E` may not allow, so
            // make the `dyn` in the call.
            let f = Box::new(f);
            let call = move || {
                let f: Box<dyn FnOnce() -> Result<(), E> + '_> = f;
                f()
            };
            return self.start_task(token, builder, call);
        }
        self.start_task(token, builder, f);
    }

    #[track_caller]
    fn start_task<F, E>(&self, token: Option<Token>, builder: Builder, f: F)
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        self.inner.tasks.add(1);
        let task = Task { _token: token, count: Count(self.inner.clone()) };
        builder.go(move || {
            // Capture in this order, so that `f` is dropped before the group learns of the goroutine's end, even if no
            // goroutine can be made.
            let (f, task) = (f, task);
            let group = &*task.count.0;
            let ended = catch_unwind(AssertUnwindSafe(|| {
                if let Err(error) = f().map_err(Into::into) {
                    group.failed(Arc::from(error));
                }
            }));
            match ended {
                Ok(()) => {}
                Err(payload) if payload.is::<Goexit>() => resume_unwind(payload),
                Err(payload) => group.panicked(payload),
            }
        });
    }
}

/// The task of a goroutine of the group. The drop takes the task off the group, even if the goroutine never starts. The
/// token is dropped first, so that a caller of `wait` may set another limit afterwards.
struct Task {
    _token: Option<Token>,
    count: Count,
}

struct Token(Arc<Tokens>);

struct Count(Arc<Inner>);

impl Tokens {
    fn take(this: Arc<Self>, limit: &WaitLimit<'_>) -> Result<Token, WaitError> {
        if !try_semacquire(&this.free) {
            sudog_runtime::note_wait_at("errgroup.Group.Go", &*this);
            semacquire_limited(&this.free, Order::Fifo, limit)?;
        }
        Ok(Token(this))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        semrelease(&self.0.free, Wake::Normal);
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.tasks.done();
    }
}

impl Inner {
    fn tokens(&self) -> MutexGuard<'_, Option<Arc<Tokens>>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> MutexGuard<'_, Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self, cause: Option<Cause>) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel_with(cause);
        }
    }

    fn failed(&self, error: Cause) {
        let mut failure = self.failure();
        if failure.error.is_none() {
            failure.error = Some(error.clone());
            drop(failure);
            self.cancel(Some(error));
        }
    }

    fn panicked(&self, payload: Box<dyn Any + Send>) {
        let text = text(&*payload);
        let mut failure = self.failure();
        let late = match failure.panic {
            Panic::None => {
                failure.panic = Panic::Caught(payload);
                None
            }
            _ => Some(payload),
        };
        drop(failure);
        if let Some(late) = late {
            drop_payload(late);
        }
        let cause = Box::<dyn error::Error + Send + Sync>::from(format!("panic: {text}"));
        // Catch a panic of a waker: it would be the second panic, and end the process.
        match catch_unwind(AssertUnwindSafe(|| self.cancel(Some(Arc::from(cause))))) {
            Err(payload) if payload.is::<Goexit>() => resume_unwind(payload),
            Err(payload) => drop_payload(payload),
            Ok(()) => {}
        }
    }

    /// Returns the result of the goroutines, all of which have ended.
    #[track_caller]
    fn result(&self) -> Result<(), Cause> {
        let mut failure = self.failure();
        let panic = match &failure.panic {
            Panic::None => Panic::None,
            Panic::Raised(text) => Panic::Raised(text.clone()),
            Panic::Caught(payload) => {
                let text = text(&**payload);
                std::mem::replace(&mut failure.panic, Panic::Raised(text))
            }
        };
        let error = failure.error.clone();
        drop(failure);
        let told = catch_unwind(AssertUnwindSafe(|| self.cancel(error.clone())));
        match (panic, told) {
            (Panic::Caught(payload), told) => {
                if let Err(another) = told {
                    drop_payload(another);
                }
                resume_unwind(payload)
            }
            (_, Err(payload)) => resume_unwind(payload),
            (Panic::Raised(text), Ok(())) => panic!("a goroutine of this group has panicked: {text}"),
            (Panic::None, Ok(())) => error.map_or(Ok(()), Err),
        }
    }
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("(no text)").to_owned()
}

impl fmt::Debug for ErrGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrGroup").field("tasks", &self.inner.tasks).finish_non_exhaustive()
    }
}
