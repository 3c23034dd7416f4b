//! Stackless goroutines: `Send` futures on the same workers.
//!
//! A ready task is queued in a worker's ring, like a goroutine that has not started. Each time the task is ready, other
//! workers may steal the task from the ring: so tasks spread over the workers, whatever they waited for. Between polls
//! a task has no stack.
//!
//! A poll runs on a goroutine's stack. So a task that blocks (locks a mutex of ours the blocking way) blocks no worker:
//! until the task is unblocked it is a stackful goroutine, pinned to its worker.

use crate::shim::system::thread;
use std::any::{Any, type_name};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use async_task::Runnable;

use crate::goroutine::native::builder;
use crate::goroutine::native::builder::{JoinHandle, Sender};
use crate::goroutine::native::coop;
use crate::goroutine::native::exit::{Goexit, OnPanic};
use crate::goroutine::native::fibre::{current, job};
use crate::goroutine::native::placement;
use crate::goroutine::native::sched::clock;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::tasks::Watched;
use crate::goroutine::native::switch_hooks;
use crate::goroutine::protocol::signal::Signal;
use crate::panics::drop_payload;
use crate::sema::{IntoLimit, WaitError, WaitLimit};

/// Runs a future as a goroutine without a stack.
///
/// The task's memory is the future and some hundred bytes. A panic of the future ends the process, as with
/// [`go`](crate::goroutine::go).
///
/// The task exists until the future is ready or panics, even if no waker of the task is left: a task that waits for
/// ever is like a goroutine that waits for ever.
///
/// # Giving way
///
/// A task whose futures are always ready has the time slice of a goroutine. When the slice is over, and other work
/// waits for the worker, the next future of this project that the task polls does nothing but wake the task and return
/// `Pending`. That applies to sends, receives, selects, locks, permits, wait groups, contexts, handles and sleeps. So a
/// single poll of such a future (`now_or_never`) may find the future pending although it could be ready. No future is
/// refused twice in a row.
///
/// These rules hold for tasks of this runtime and for [`block_on`], and not for tasks of other executors, which have
/// their own rules. Tokio does the same with a budget of 128 operations (`tokio::task::coop`). Futures of other crates
/// do not look at the slice: a task that awaits only such futures, or computes, is not interrupted. Such a task can
/// give way by a `sleep_async(Duration::ZERO).await` in its loop.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog::{go_async, run};
/// use sudog::low_level::sema::{Wake, semacquire, semrelease};
///
/// static DONE: AtomicU32 = AtomicU32::new(0);
///
/// run(|| {
///     go_async(async { semrelease(&DONE, Wake::Normal) });
///     semacquire(&DONE);
/// });
/// ```
#[track_caller]
pub fn go_async<F: Future<Output = ()> + Send + 'static>(future: F) {
    start(future, die_of_error);
}

/// Runs a future as [`go_async`] does, and returns a handle for the result. Dropping the handle does not drop the
/// future.
///
/// # Examples
///
/// ```
/// use sudog::{run, spawn_async};
///
/// let sum = run(|| spawn_async(async { 1 + 1 }).join().unwrap());
/// assert_eq!(sum, 2);
/// ```
#[track_caller]
pub fn spawn_async<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (sender, handle) = builder::packet(OnPanic::Abort);
    start(future, send_to(sender));
    handle
}

/// Returns a closure of a type that does not depend on the future's: observed tasks with results of one type share
/// their code.
fn send_to<T: Send + 'static>(sender: Sender<T>) -> impl FnOnce(thread::Result<T>) + Send + 'static {
    move |result| sender.send(result)
}

/// Starts a task, which is listed for dumps if switches are observed.
#[track_caller]
#[inline]
fn start<F, D>(future: F, done: D)
where
    F: Future + Send + 'static,
    D: FnOnce(thread::Result<F::Output>) + Send + 'static,
    F::Output: 'static,
{
    if switch_hooks::is_observed() {
        switch_hooks::forbid_start_in_hook();
        if switch_hooks::observes_stalls() && !clock::is_of_bubble() {
            let place = Location::caller();
            let boxed: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
            let future = Watched::new(boxed, type_name::<F>(), place, current::id, current::take_note);
            return start_unlisted(future, done);
        }
    }
    start_unlisted(future, done);
}

fn start_unlisted<F, D>(future: F, done: D)
where
    F: Future + Send + 'static,
    D: FnOnce(thread::Result<F::Output>) + Send + 'static,
{
    // The future is moved a few times until it is in its place: see `box_if_large!`.
    if const { job::is_large::<F>() } {
        let future: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
        return start_unlisted(future, done);
    }
    let sched = placement::sched();
    sched.count_made();
    let future = ManuallyDrop::new(future);
    let body = Body { future, done: Some(done), ended: false, own_waker: None, _live: Live(sched) };
    let schedule = move |runnable: Runnable| sched.submit(job::pack_task(runnable));
    let (runnable, task) = async_task::spawn(body, schedule);
    task.detach();
    runnable.schedule();
}

/// The parts of a task, as a future. A struct, as an `async` block would hold the user's future twice: as a captured
/// variable, and in the await.
struct Body<F, D> {
    /// The future, until `ended` is true.
    future: ManuallyDrop<F>,
    done: Option<D>,
    ended: bool,
    /// The task's own waker, from the first poll that returned `Pending`. This waker keeps the task until the task's
    /// end, even if nothing can wake the task. Otherwise `async-task` would drop the future with the last waker, and
    /// `join` would return.
    own_waker: Option<Waker>,
    _live: Live,
}

impl<F, D> Body<F, D> {
    /// Drops the future, once.
    fn end(&mut self) -> thread::Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        // SAFETY: `ended` was false, so the future was not dropped before; now `ended` is true, so the future is not
        // used after. The future is dropped where it was pinned.
        let drops = || unsafe { ManuallyDrop::drop(&mut self.future) };
        catch_unwind(AssertUnwindSafe(drops))
    }
}

impl<F, D> Drop for Body<F, D> {
    fn drop(&mut self) {
        if let Err(payload) = self.end() {
            die_of(payload);
        }
    }
}

fn die_of_error(result: thread::Result<()>) {
    if let Err(payload) = result {
        die_of(payload);
    }
}

fn die_of(payload: Box<dyn Any + Send>) {
    if !payload.is::<Goexit>() {
        job::die_of_panic(&*payload, current::describe().as_deref());
    }
    drop_payload(payload);
}

/// Drops a result that is not returned, because a later step has panicked.
#[cold]
fn forget_result<T>(result: thread::Result<T>) {
    match result {
        Err(payload) => drop_payload(payload),
        Ok(output) => {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(output))) {
                drop_payload(payload);
            }
        }
    }
}

/// A guard whose drop counts the end of a task, whatever the reason of the end.
struct Live(&'static Sched);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.count_end();
    }
}

impl<F: Future, D: FnOnce(thread::Result<F::Output>)> Future for Body<F, D> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: only `done` is moved out of the pin, and `done` is never pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if this.ended {
            return Poll::Ready(());
        }
        // SAFETY: `future` is always pinned: the future is dropped in place, and never moved. So the pin may be
        // projected to that field.
        let future = unsafe { Pin::new_unchecked(&mut *this.future) };
        let result = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => {
                this.own_waker.get_or_insert_with(|| cx.waker().clone());
                return Poll::Pending;
            }
            Ok(Poll::Ready(output)) => Ok(output),
            Err(payload) => Err(payload),
        };
        // A panic in the future's drop is a panic of the task, like a panic in the drop of a closure that has returned.
        let result = match this.end() {
            Ok(()) => result,
            Err(payload) => {
                forget_result(result);
                Err(payload)
            }
        };
        let done = this.done.take();
        // `done` drops an unwanted result, and wakes wakers: all of this is user code.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| done.map(|done| done(result)))) {
            die_of(payload);
        }
        Poll::Ready(())
    }
}

/// Runs a future on the calling goroutine or thread, which waits whenever the future waits.
///
/// A goroutine that has run for long gives way before the first poll, even if the future is ready. A future that polls
/// futures which are always ready gives way at the end of the time slice, as in a task (see [`go_async`]).
///
/// # Examples
///
/// ```
/// use sudog::block_on;
///
/// assert_eq!(block_on(async { 42 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match block_on_what("block_on", future.as_mut(), &WaitLimit::default()) {
        Ok(output) => output,
        Err(_) => unreachable!("no limit was set"),
    }
}

/// Runs a future as [`block_on`] does, but gives up at a limit: see [`IntoLimit`]. Unless a context is done before the
/// call, the future is polled at least once. The limit is checked only when the future waits: a future that never waits
/// is not ended.
///
/// # Errors
///
/// The error says which limit came first. The future has been dropped then.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::sync::{LockAsync, Mutex};
/// use sudog::{WaitError, block_on_limited, context};
///
/// let soon = Duration::from_millis(1);
/// assert_eq!(block_on_limited(std::future::pending::<()>(), soon), Err(WaitError::TimedOut));
///
/// let (ctx, cancel) = context::with_cancel(&context::background());
/// let mutex = Mutex::new(1);
/// assert_eq!(*block_on_limited(mutex.lock_async(), &ctx).unwrap(), 1);
/// let _guard = mutex.lock();
/// cancel.cancel();
/// assert_eq!(block_on_limited(mutex.lock_async(), &ctx).unwrap_err(), context::Error::Canceled);
/// ```
pub fn block_on_limited<F: Future, L: IntoLimit>(future: F, limit: L) -> Result<F::Output, L::Error> {
    let mut future = pin!(future);
    limit.limited(|limit| block_on_what("block_on", future.as_mut(), limit))
}

/// Runs a future as [`block_on_limited`] does, for a caller that keeps the future. `what` names the wait in reports.
pub(crate) fn block_on_what<F: Future>(
    what: &'static str,
    mut future: Pin<&mut F>,
    limit: &WaitLimit<'_>,
) -> Result<F::Output, WaitError> {
    let signal = Arc::new(Unblock(Signal::new()));
    let waker = Waker::from(signal.clone());
    current::safepoint();
    let polls = coop::Scope::of_block_on();
    loop {
        polls.renew();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        if polls.is_spent() {
            // Poll again before looking at the limit: the future was refused, and may be ready.
            current::give_way();
            continue;
        }
        current::note_wait(what);
        if limit.deadline.is_none() && limit.cancel.is_none() {
            signal.0.wait();
        } else {
            signal.0.wait_limited(limit)?;
        }
        // Give way here: if the future wakes itself, this goroutine never waits in the call above.
        current::safepoint();
    }
}

/// The waker of a `block_on`.
struct Unblock(Signal);

impl Wake for Unblock {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}
