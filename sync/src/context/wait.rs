//! Waiting for the end of a context, and for other things until it ends.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::task::{self, Poll};
use std::time::{Duration, Instant};
use sudog_runtime::shim::system::atomic::AtomicU32;

use sudog_runtime::Coop;
use sudog_runtime::chan::RecvOnly;
use sudog_runtime::goroutine;
use sudog_runtime::sema::{Order, WaitError, WaitLimit, semacquire_limited};

use super::done::Done;
use super::followers::Place;
use super::{Context, Error};
use crate::now;

impl Context {
    /// Waits until the context is done, and returns the error. Go's `<-ctx.Done()`.
    ///
    /// Of a context that is never done ([`background`](super::background), for one) it never returns, as a receive from
    /// a nil channel; a goroutine that waits so counts as deadlocked when no other goroutine is left.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::context;
    /// use sudog::context::Error;
    ///
    /// let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
    /// assert_eq!(ctx.wait(), Error::DeadlineExceeded);
    /// ```
    pub fn wait(&self) -> Error {
        loop {
            if let Some(error) = self.err() {
                return error;
            }
            _ = self.nothing_comes(&self.limit());
        }
    }

    /// [`Context::wait`] until `deadline` at most: says whether the context is done.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use sudog::context;
    ///
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// assert!(!context::background().wait_until(soon));
    /// ```
    #[must_use = "false: it is not done"]
    pub fn wait_until(&self, deadline: Instant) -> bool {
        if self.err().is_none() {
            let _ = self.nothing_comes(&self.limit_or(Some(deadline)));
        }
        self.err().is_some()
    }

    /// Waits for what does not come, but for the limit. If that is the context's, the context is done then.
    fn nothing_comes(&self, limit: &WaitLimit<'_>) -> WaitError {
        // SAFETY: null.
        unsafe { sudog_runtime::note_wait("context.Context.Done", ptr::null()) };
        let never = AtomicU32::new(0);
        let Err(why) = semacquire_limited(&never, Order::Fifo, limit) else {
            unreachable!("nobody knows of this semaphore");
        };
        if why == WaitError::TimedOut && self.deadline().is_some_and(|own| Some(own) == limit.deadline) {
            self.expire();
        }
        why
    }

    /// What a wait that goes through [`semacquire_limited`] gives up at, if it is to end with this context: its
    /// [`Cancel`](sudog_runtime::sema::Cancel), if it can be done at all, and its deadline, if it has one.
    ///
    /// The deadline says nothing that the `Cancel` would not. But a goroutine then has a timer of its own: in a bubble it
    /// does not wait for what can no longer come, though no goroutine of the bubble may have made this context.
    ///
    /// [`Context::limited`] turns what comes of it into the context's error.
    #[inline]
    #[must_use]
    pub fn limit(&self) -> WaitLimit<'_> {
        WaitLimit { deadline: self.deadline(), cancel: self.governor().map(|done| done.waits()) }
    }

    /// [`Context::limit`], with another deadline if that is earlier.
    fn limit_or(&self, deadline: Option<Instant>) -> WaitLimit<'_> {
        let limit = self.limit();
        WaitLimit { deadline: limit.deadline.into_iter().chain(deadline).min(), ..limit }
    }

    /// Runs a wait that ends with this context.
    ///
    /// # Errors
    ///
    /// The context's, if it is done: then `wait` is not run at all. Or if `wait` gave up, because of the context.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::AtomicU32;
    /// use sudog::runtime::sema::{Order, semacquire_limited};
    /// use sudog::context;
    /// use sudog::context::Error;
    ///
    /// let permits = AtomicU32::new(2);
    /// let (ctx, cancel) = context::with_cancel(&context::background());
    /// let acquire = || ctx.limited(|limit| semacquire_limited(&permits, Order::Fifo, limit));
    /// assert_eq!(acquire(), Ok(()));
    /// cancel.cancel();
    /// assert_eq!(acquire(), Err(Error::Canceled));
    /// ```
    #[inline]
    pub fn limited<T>(&self, wait: impl FnOnce(&WaitLimit<'_>) -> Result<T, WaitError>) -> Result<T, Error> {
        if let Some(error) = self.err() {
            return Err(error);
        }
        wait(&self.limit()).map_err(|why| self.error_of(why))
    }

    /// Why a wait gave up: it may have been told before the context was.
    #[cold]
    fn error_of(&self, why: WaitError) -> Error {
        if why == WaitError::TimedOut && self.deadline().is_some_and(|own| own <= now()) {
            self.expire();
        }
        self.err().unwrap_or(match why {
            // Of another limit than ours.
            WaitError::TimedOut => Error::DeadlineExceeded,
            WaitError::Cancelled => Error::Canceled,
        })
    }

    /// A channel that is closed when the context is done; of a context that is never done, the nil channel. Go's
    /// `ctx.Done()`: for a [`select!`](sudog_runtime::select).
    ///
    /// It is the same channel each time. A clone of it is closed also if the context has been dropped, as long as its
    /// parent is there. When the last clone is dropped, too, nothing of the context is left.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::chan::{Chan, select};
    /// use sudog::context;
    /// use sudog::context::{Context, Error};
    ///
    /// fn next(ctx: &Context, values: &Chan<u32>) -> Result<Option<u32>, Error> {
    ///     select! {
    ///         recv(values) -> value => Ok(value),
    ///         recv(ctx.done_chan()) => Err(ctx.err().expect("it is done")),
    ///     }
    /// }
    /// let (ctx, cancel) = context::with_cancel(&context::background());
    /// let values = Chan::new(1);
    /// values.send(1);
    /// assert_eq!(next(&ctx, &values), Ok(Some(1)));
    /// cancel.cancel();
    /// assert_eq!(next(&ctx, &values), Err(Error::Canceled));
    /// ```
    #[must_use]
    #[inline]
    pub fn done_chan(&self) -> &RecvOnly<Infallible> {
        static NEVER: RecvOnly<Infallible> = RecvOnly::nil();
        // SAFETY: what ends this context is kept by a handle in its line, which stays for as long as this is borrowed.
        self.governor().map_or(&NEVER, |done| unsafe { Done::channel(done) })
    }

    /// A future that is ready when the context is done: its error. For async tasks.
    ///
    /// It may be dropped at any time. Of a context that is never done it is never ready.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::{run, spawn_async};
    /// use sudog::context;
    /// use sudog::context::Error;
    ///
    /// run(|| {
    ///     let (ctx, cancel) = context::with_cancel(&context::background());
    ///     let task = spawn_async(ctx.done());
    ///     cancel.cancel();
    ///     assert_eq!(task.join().unwrap(), Error::Canceled);
    /// });
    /// ```
    pub fn done(&self) -> DoneFuture {
        DoneFuture { context: self.clone(), place: None, coop: Coop::new() }
    }
}

/// Sleeps for `d`, unless the context is done before.
///
/// # Errors
///
/// The context's.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::context;
/// use sudog::context::Error;
///
/// let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
/// assert_eq!(context::sleep(&ctx, Duration::from_secs(3600)), Err(Error::DeadlineExceeded));
/// assert_eq!(context::sleep(&context::background(), Duration::from_millis(1)), Ok(()));
/// ```
pub fn sleep(ctx: &Context, d: Duration) -> Result<(), Error> {
    if let Some(error) = ctx.err() {
        return Err(error);
    }
    if ctx.governor().is_none() || d < Duration::from_micros(1) {
        goroutine::sleep(d);
        return Ok(());
    }
    let until = now().checked_add(d);
    match ctx.nothing_comes(&ctx.limit_or(until)) {
        WaitError::TimedOut if ctx.err().is_none() => Ok(()),
        why => Err(ctx.error_of(why)),
    }
}

/// Runs a future on the calling goroutine or thread for as long as the context is not done.
///
/// # Errors
///
/// The context's: the future has been dropped.
///
/// # Examples
///
/// ```
/// use sudog::sync::{LockAsync, Mutex};
/// use sudog::context;
/// use sudog::context::Error;
///
/// let (ctx, cancel) = context::with_cancel(&context::background());
/// let mutex = Mutex::new(1);
/// assert_eq!(*context::block_on(&ctx, mutex.lock_async()).unwrap(), 1);
/// let _guard = mutex.lock();
/// cancel.cancel();
/// assert_eq!(context::block_on(&ctx, mutex.lock_async()).unwrap_err(), Error::Canceled);
/// ```
pub fn block_on<F: Future>(ctx: &Context, future: F) -> Result<F::Output, Error> {
    ctx.limited(|limit| goroutine::block_on_limited(future, limit))
}

/// See [`Context::done`].
#[must_use = "a future does nothing unless it is awaited"]
#[derive(Debug)]
pub struct DoneFuture {
    context: Context,
    place: Option<Place>,
    coop: Coop,
}

impl Future for DoneFuture {
    type Output = Error;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Error> {
        let Self { context, place, coop } = &mut *self;
        task::ready!(coop.poll_proceed(cx));
        match context.governor().and_then(|done| done.wake_at_end(place, cx.waker())) {
            Some(outcome) => Poll::Ready(outcome.error),
            None => Poll::Pending,
        }
    }
}

impl Drop for DoneFuture {
    fn drop(&mut self) {
        if let (Some(place), Some(done)) = (self.place, self.context.governor()) {
            drop(done.unfollow(place));
        }
    }
}
