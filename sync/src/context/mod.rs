//! Go's `context`: deadlines, cancellation and values, handed down from call to call.
//!
//! | Go | here |
//! |---|---|
//! | `context.Background()`, `context.TODO()` | [`background`], [`todo()`] |
//! | `ctx, cancel := context.WithCancel(parent)` | `let (ctx, cancel) = `[`with_cancel`]`(&parent)` |
//! | `defer cancel()` | `let _cancel = cancel.on_drop()` |
//! | `context.WithDeadline`, `WithTimeout`, `WithCancelCause`, ... | [`with_deadline`], [`with_timeout`], [`with_cancel_cause`], ... |
//! | `context.WithValue(parent, key, v)`, `ctx.Value(key)` | [`with_value`]`(&parent, &KEY, v)`, [`ctx.value(&KEY)`](Context::value), with a [`Key`] |
//! | `<-ctx.Done()` | [`ctx.wait()`](Context::wait); in a task [`ctx.done()`](Context::done)`.await` |
//! | `ctx.Err()`, `context.Cause(ctx)` | [`ctx.err()`](Context::err), [`ctx.cause()`](Context::cause) |
//! | `select { case <-ctx.Done(): ...; case <-time.After(d): }` | [`ctx.sleep(d)`](Context::sleep) |
//! | `select { case v := <-ch: ...; case <-ctx.Done(): ... }` | [`ch.recv_limited(&ctx)`](sudog_runtime::chan::Chan::recv_limited), [`ch.send_limited(v, &ctx)`](sudog_runtime::chan::Chan::send_limited); for more cases `recv(ctx.done_chan())` or `default(&ctx)` in a [`select!`](sudog_runtime::select) |
//! | `context.AfterFunc(ctx, f)` | [`after_func()`]`(&ctx, f)` |
//!
//! Each blocking operation has a form `x_limited` that takes a limit, and a `&Context` is a limit: see
//! [`IntoLimit`](sudog_runtime::sema::IntoLimit). `block_on_limited` runs any future with a context, for example that of
//! `lock_async`, or a join handle.
//!
//! Different from Go: a context is a type, not an interface, so users cannot implement contexts. No context is `nil`. A
//! key knows the type of its values. A context lives as long as a handle of the context, or a function registered with
//! the context. So a context that is never cancelled goes when its last handle is dropped, not only when its parent
//! ends.
//!
//! Source: Go's `context/context.go`, 1.27.
//!
//! The module is available on Unix.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use sudog::{run, spawn};
//! use sudog::context;
//! use sudog::context::{Context, Error, Key};
//!
//! static USER: Key<String> = Key::new("user");
//!
//! fn serve(ctx: &Context) -> Result<String, Error> {
//!     ctx.sleep(Duration::from_secs(60))?;
//!     Ok(format!("Hello {}", ctx.value(&USER).unwrap()))
//! }
//!
//! run(|| {
//!     let ctx = context::with_value(&context::background(), &USER, "gopher".to_owned());
//!     let (ctx, cancel) = context::with_timeout(&ctx, Duration::from_millis(5));
//!     let _cancel = cancel.on_drop();
//!     let served = spawn(move || serve(&ctx)).join().unwrap();
//!     assert_eq!(served, Err(Error::DeadlineExceeded));
//! });
//! ```

mod after_func;
mod cancel_func;
mod display;
mod done;
mod error;
mod followers;
mod handle;
mod handle_count;
mod key;
mod wait;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use after_func::{AfterFunc, after_func};
pub use cancel_func::{CancelCauseFunc, CancelFunc, CancelOnDrop};
pub use error::{Cause, Error};
pub use key::Key;
pub use wait::DoneFuture;

use crate::now;
use done::Done;
use handle::Handle;
use key::Value;

/// A deadline, a signal that work is no longer wanted, and values, for all work that is done on behalf of one request.
/// Go's `context.Context`.
///
/// A `Context` is a handle, and is cheap to clone. See the [module](self).
#[derive(Clone)]
pub struct Context(Repr);

#[derive(Clone)]
enum Repr {
    Background,
    Todo,
    /// A context with a [`Done`] of its own.
    Own(Handle),
    /// A context that ends with an ancestor, or never.
    Node(Arc<Node>),
}

/// The data that a context without a [`Done`] of its own adds to its parent.
struct Node {
    parent: Context,
    /// The `Done` of the nearest ancestor that has its own, if this context ends with that ancestor.
    done: Option<Arc<Done>>,
    deadline: Option<Instant>,
    kind: Kind,
}

enum Kind {
    Value(Value),
    WithoutCancel,
}

// A panic of user code leaves a context whole.
impl UnwindSafe for Context {}
impl RefUnwindSafe for Context {}

/// Returns the context that is never done and has no deadline and no values: the root of all contexts. Go's
/// `context.Background`.
///
/// Allocates nothing.
#[must_use]
pub const fn background() -> Context {
    Context(Repr::Background)
}

/// Returns a context like [`background`], for code in which the right context is not yet clear. Go's `context.TODO`.
#[must_use]
pub const fn todo() -> Context {
    Context(Repr::Todo)
}

/// Derives a context that is done when the returned function is called, or when its parent is done. Go's
/// `context.WithCancel`.
///
/// # Examples
///
/// ```
/// use sudog::context;
/// use sudog::context::Error;
///
/// let (parent, cancel) = context::with_cancel(&context::background());
/// let (child, _) = context::with_cancel(&parent);
/// cancel.cancel();
/// assert_eq!(child.err(), Some(Error::Canceled));
/// ```
pub fn with_cancel(parent: &Context) -> (Context, CancelFunc) {
    let ctx = Context(Repr::Own(Handle::new(parent)));
    let cancel = CancelFunc::of(&ctx);
    (ctx, cancel)
}

/// Derives a context as [`with_cancel`] does, but the returned function takes a cause, which [`Context::cause`]
/// returns. Go's `context.WithCancelCause`.
///
/// # Examples
///
/// See [`CancelCauseFunc`].
pub fn with_cancel_cause(parent: &Context) -> (Context, CancelCauseFunc) {
    let ctx = Context(Repr::Own(Handle::new(parent)));
    let cancel = CancelCauseFunc::of(&ctx);
    (ctx, cancel)
}

/// Derives a context as [`with_cancel`] does. The context is also done at `deadline`, with [`Error::DeadlineExceeded`],
/// or at once if `deadline` has passed. Go's `context.WithDeadline`.
///
/// If the parent's deadline is earlier, the parent's deadline holds. No deadlock is reported before the deadline,
/// unless the context is done or dropped earlier.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use sudog::context;
/// use sudog::context::Error;
///
/// let now = Instant::now();
/// let (ctx, _cancel) = context::with_deadline(&context::background(), now);
/// assert_eq!((ctx.deadline(), ctx.err()), (Some(now), Some(Error::DeadlineExceeded)));
/// ```
pub fn with_deadline(parent: &Context, deadline: Instant) -> (Context, CancelFunc) {
    until(parent, deadline, None)
}

/// Derives a context as [`with_deadline`] does. [`Context::cause`] returns `cause` if the context is done at its
/// deadline. Go's `context.WithDeadlineCause`.
///
/// # Examples
///
/// ```
/// use std::time::Instant;
/// use sudog::context;
///
/// let (ctx, _cancel) = context::with_deadline_cause(&context::background(), Instant::now(), "too slow");
/// assert_eq!(ctx.cause().unwrap().to_string(), "too slow");
/// ```
pub fn with_deadline_cause(
    parent: &Context,
    deadline: Instant,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> (Context, CancelFunc) {
    until(parent, deadline, Some(Arc::from(cause.into())))
}

/// Derives a context as [`with_deadline`] does, with a deadline `timeout` from now. If that time cannot be
/// represented, the context has no deadline of its own. Go's `context.WithTimeout`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::context;
/// use sudog::context::Error;
///
/// let (ctx, cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
/// let _cancel = cancel.on_drop(); // whatever the time: it is not needed any more
/// assert_eq!(ctx.wait(), Error::DeadlineExceeded);
/// ```
pub fn with_timeout(parent: &Context, timeout: Duration) -> (Context, CancelFunc) {
    within(parent, timeout, None)
}

/// Derives a context as [`with_timeout`] does. [`Context::cause`] returns `cause` if the context is done because the
/// time is over. Go's `context.WithTimeoutCause`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::context;
/// use sudog::context::Error;
///
/// let (ctx, _cancel) = context::with_timeout_cause(&context::background(), Duration::ZERO, "too slow");
/// assert_eq!(ctx.err(), Some(Error::DeadlineExceeded));
/// assert_eq!(ctx.cause().unwrap().to_string(), "too slow");
/// ```
pub fn with_timeout_cause(
    parent: &Context,
    timeout: Duration,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> (Context, CancelFunc) {
    within(parent, timeout, Some(Arc::from(cause.into())))
}

/// Derives a context that has `value` for `key`, and otherwise behaves as its parent. Go's `context.WithValue`.
///
/// Use values for data that belongs to a request and passes through code that does not know the data, not for data
/// that a function could take as an argument.
///
/// # Examples
///
/// See [`Key`].
#[must_use]
pub fn with_value<T: Send + Sync + 'static>(parent: &Context, key: &'static Key<T>, value: T) -> Context {
    Context::node(Node {
        parent: parent.clone(),
        done: parent.governor().cloned(),
        deadline: parent.deadline(),
        kind: Kind::Value(Value::new(key, value)),
    })
}

/// Derives a context that has its parent's values, but is never done and has no deadline. Go's
/// `context.WithoutCancel`.
///
/// # Examples
///
/// ```
/// use sudog::context;
///
/// let (parent, cancel) = context::with_cancel(&context::background());
/// let ctx = context::without_cancel(&parent);
/// cancel.cancel();
/// assert_eq!(ctx.err(), None);
/// ```
#[must_use]
pub fn without_cancel(parent: &Context) -> Context {
    Context::node(Node { parent: parent.clone(), done: None, deadline: None, kind: Kind::WithoutCancel })
}

fn until(parent: &Context, deadline: Instant, overdue: Option<Cause>) -> (Context, CancelFunc) {
    by(parent, deadline, overdue, || deadline <= now())
}

/// Derives a context with a deadline `timeout` from now. Reads the clock only once.
fn within(parent: &Context, timeout: Duration, overdue: Option<Cause>) -> (Context, CancelFunc) {
    match now().checked_add(timeout) {
        Some(deadline) => by(parent, deadline, overdue, || timeout.is_zero()),
        None => with_cancel(parent),
    }
}

fn by(
    parent: &Context,
    deadline: Instant,
    overdue: Option<Cause>,
    has_passed: impl FnOnce() -> bool,
) -> (Context, CancelFunc) {
    if parent.deadline().is_some_and(|earlier| earlier < deadline) {
        return with_cancel(parent);
    }
    let handle = Handle::with_deadline(parent, deadline, overdue);
    let done = handle.done();
    if has_passed() {
        done.expire();
    } else if done.outcome().is_none() {
        done.set_alarm(deadline);
    }
    let ctx = Context(Repr::Own(handle));
    let cancel = CancelFunc::of(&ctx);
    (ctx, cancel)
}

impl Context {
    fn node(node: Node) -> Self {
        Self(Repr::Node(Arc::new(node)))
    }

    #[inline]
    fn parent(&self) -> Option<&Self> {
        match &self.0 {
            Repr::Background | Repr::Todo => None,
            Repr::Own(handle) => Some(handle.parent()),
            Repr::Node(node) => Some(&node.parent),
        }
    }

    /// Returns this context, its parent, and so on to the root.
    fn line(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |context| context.parent())
    }

    /// Returns the `Done` that this context has, or shares with an ancestor. Returns `None` if the context is never
    /// done.
    #[inline]
    fn governor(&self) -> Option<&Arc<Done>> {
        match &self.0 {
            Repr::Background | Repr::Todo => None,
            Repr::Own(handle) => Some(handle.done()),
            Repr::Node(node) => node.done.as_ref(),
        }
    }

    /// Returns the reason why the context is done, or `None` if the context is not done. Go's `ctx.Err()`.
    ///
    /// A context that is done stays done, with the same error.
    #[inline]
    #[must_use]
    pub fn err(&self) -> Option<Error> {
        Some(self.governor()?.outcome()?.error)
    }

    /// Returns the cause with which the context, or its ancestor, was cancelled. If there is no cause, returns the
    /// [`Error`]. Returns `None` if the context is not done. Go's `context.Cause`.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let outcome = self.governor()?.outcome()?;
        Some(outcome.cause.clone().unwrap_or_else(|| outcome.error.as_cause()))
    }

    /// Returns the deadline, if the context has a deadline. Go's `ctx.Deadline()`.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.0 {
            Repr::Background | Repr::Todo => None,
            Repr::Own(handle) => handle.deadline(),
            Repr::Node(node) => node.deadline,
        }
    }

    /// Returns the value that this context, or the nearest ancestor with a value for `key`, has for `key`. Go's
    /// `ctx.Value(key)`.
    ///
    /// The time is proportional to the number of ancestors that the call looks at.
    #[must_use]
    pub fn value<T: 'static>(&self, key: &'static Key<T>) -> Option<&T> {
        self.line().find_map(|context| match &context.0 {
            Repr::Node(node) => match &node.kind {
                Kind::Value(value) => value.get(key),
                Kind::WithoutCancel => None,
            },
            Repr::Background | Repr::Todo | Repr::Own(_) => None,
        })
    }

    /// Ends the context, or the ancestor, whose own deadline this context has. Called when the deadline has come.
    #[cold]
    fn expire(&self) {
        let owner = self.line().find_map(|context| match &context.0 {
            Repr::Own(handle) if handle.is_deadline_own() => Some(handle.done()),
            _ => None,
        });
        if let Some(done) = owner {
            done.expire();
        }
    }

    /// Drops this context, and then its ancestors that have no other handle, in a loop, not by recursion.
    fn drop_line(self) {
        let mut next = self;
        loop {
            next = match next.0 {
                Repr::Background | Repr::Todo => return,
                Repr::Own(handle) => {
                    let Some(parent) = handle.drop_and_take_parent() else { return };
                    parent
                }
                Repr::Node(node) => {
                    let Some(mut node) = Arc::into_inner(node) else { return };
                    let parent = std::mem::replace(&mut node.parent, background());
                    // The destructor of the value may panic. Unwinding drops `parent`, because `parent` is a variable;
                    // unwinding would not drop a result.
                    drop(node);
                    parent
                }
            };
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        std::mem::replace(&mut self.parent, background()).drop_line();
    }
}

#[cfg(test)]
mod tests;
