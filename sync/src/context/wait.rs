//! Waits for the end of a context, and waits for other events until a context ends.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::{Duration, Instant};
use sudog_runtime::shim::system::atomic::AtomicU32;

use sudog_runtime::Coop;
use sudog_runtime::chan::RecvOnly;
use sudog_runtime::goroutine;
use sudog_runtime::sema::{IntoLimit, Order, WaitError, WaitLimit, semacquire_limited};

use super::done::Done;
use super::followers::Place;
use super::{Context, Error};
use crate::now;

impl Context {
    /// Waits until the context is done, and returns the error. Go's `<-ctx.Done()`.
    ///
    /// If the context is never done ([`background`](super::background), for example), this call never returns, like a
    /// receive from a nil channel. A goroutine in such a wait counts as deadlocked when no other goroutine is left.
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

    /// Waits as [`Context::wait`] does, until `deadline` at most. Returns whether the context is done.
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

    /// Sleeps for `d`, or until the context is done.
    ///
    /// # Errors
    ///
    /// Returns the context's error if the context is done before the time is over.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::context;
    /// use sudog::context::Error;
    ///
    /// let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
    /// assert_eq!(ctx.sleep(Duration::from_secs(3600)), Err(Error::DeadlineExceeded));
    /// assert_eq!(context::background().sleep(Duration::from_millis(1)), Ok(()));
    /// ```
    pub fn sleep(&self, d: Duration) -> Result<(), Error> {
        if let Some(error) = self.err() {
            return Err(error);
        }
        if self.governor().is_none() || d < Duration::from_micros(1) {
            goroutine::sleep(d);
            return Ok(());
        }
        let until = now().checked_add(d);
        match self.nothing_comes(&self.limit_or(until)) {
            WaitError::TimedOut if self.err().is_none() => Ok(()),
            why => Err(self.error_of(why)),
        }
    }

    /// Waits until the limit ends the wait: the permit that this call waits for never comes. If the limit is the
    /// context's own, the context is done when this call returns.
    fn nothing_comes(&self, limit: &WaitLimit<'_>) -> WaitError {
        sudog_runtime::note_wait("context.Context.Done");
        let never = AtomicU32::new(0);
        let Err(why) = semacquire_limited(&never, Order::Fifo, limit) else {
            unreachable!("nobody knows of this semaphore");
        };
        if why == WaitError::TimedOut && self.deadline().is_some_and(|own| Some(own) == limit.deadline) {
            self.expire();
        }
        why
    }

    /// Returns the limit for a wait, by [`semacquire_limited`] for example, that must end when this context is done.
    /// The limit has the context's [`Cancel`](sudog_runtime::sema::Cancel), if the context can be done at all, and the
    /// context's deadline, if there is a deadline.
    ///
    /// The deadline adds nothing to the `Cancel` except a timer that belongs to the waiting goroutine. That timer
    /// matters in a bubble, if no goroutine of the bubble made this context: without the timer, the goroutine would
    /// wait for an event that can no longer come.
    ///
    /// [`Context::limited`] turns the result of the wait into the context's error.
    #[inline]
    #[must_use]
    pub fn limit(&self) -> WaitLimit<'_> {
        WaitLimit { deadline: self.deadline(), cancel: self.governor().map(|done| done.waits()) }
    }

    /// Returns [`Context::limit`], but with `deadline` if `deadline` is earlier than the context's.
    fn limit_or(&self, deadline: Option<Instant>) -> WaitLimit<'_> {
        let limit = self.limit();
        WaitLimit { deadline: limit.deadline.into_iter().chain(deadline).min(), ..limit }
    }

    /// Runs `wait` with a limit, so that the wait ends when this context is done. The calls `x_limited` do that with a
    /// context as their [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// Returns the context's error if the context is done: then `wait` is not run at all. Also returns the context's
    /// error if `wait` gave up because of the context.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::AtomicU32;
    /// use sudog::context;
    /// use sudog::context::Error;
    /// use sudog::low_level::sema::{Order, semacquire_limited};
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

    /// Returns the context's error for a wait that gave up because of `why`. The wait may have been told to give up
    /// before the context's error was set.
    #[cold]
    fn error_of(&self, why: WaitError) -> Error {
        if why == WaitError::TimedOut && self.deadline().is_some_and(|own| own <= now()) {
            self.expire();
        }
        self.err().unwrap_or(match why {
            // The deadline was that of another limit, not the context's.
            WaitError::TimedOut => Error::DeadlineExceeded,
            WaitError::Cancelled => Error::Canceled,
        })
    }

    /// Returns a channel that is closed when the context is done, for use in a [`select!`](sudog_runtime::select).
    /// Returns the nil channel if the context is never done. Go's `ctx.Done()`.
    ///
    /// Each call returns the same channel. As long as the context's parent exists, a clone of the channel is closed
    /// even if the context has been dropped. When the last clone has been dropped, too, nothing of the context is left.
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
        // SAFETY: `done` is the `Done` of this context or of an ancestor. That context has a handle, which exists for
        // as long as `self` is borrowed.
        self.governor().map_or(&NEVER, |done| unsafe { Done::channel(done) })
    }

    /// Returns a future that is ready when the context is done. The output is the context's error. For async tasks.
    ///
    /// The future may be dropped at any time. If the context is never done, the future is never ready.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::context;
    /// use sudog::context::Error;
    /// use sudog::{run, spawn_async};
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

impl IntoLimit for &Context {
    type Error = Error;

    #[inline]
    fn limited<T>(self, wait: impl FnOnce(&WaitLimit<'_>) -> Result<T, WaitError>) -> Result<T, Error> {
        Context::limited(self, wait)
    }
}

/// A future that is ready when a context is done: see [`Context::done`].
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
            None => {
                sudog_runtime::note_task_wait("context.Context.Done");
                Poll::Pending
            }
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
