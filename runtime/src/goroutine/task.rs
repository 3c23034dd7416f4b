//! Stackless goroutines: `Send` futures on the same workers.
//!
//! A task that is ready stands in a worker's ring, as a goroutine that has not started does, and may be stolen from there
//! every time: so tasks spread over the workers whatever they waited for. Between polls it has no stack.
//!
//! A poll runs on a goroutine's stack. So a task that blocks (locks a mutex of ours the blocking way) blocks no worker: it
//! is then a stackful goroutine until it is unblocked, pinned to where it is.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use async_task::Runnable;

use super::builder::{self, JoinHandle, OnPanic, drop_payload};
use super::set::Set;
use super::{context, job, report};
use crate::sema;

/// Runs a future as a goroutine without a stack.
///
/// Its memory is the future and some hundred bytes. Like [`go`](super::go), it ends the process if the future panics.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog_runtime::goroutine::{go_async, run};
/// use sudog_runtime::sema::{Wake, semacquire, semrelease};
///
/// static DONE: AtomicU32 = AtomicU32::new(0);
///
/// run(|| {
///     go_async(async { semrelease(&DONE, Wake::Normal) });
///     semacquire(&DONE);
/// });
/// ```
pub fn go_async<F: Future<Output = ()> + Send + 'static>(future: F) {
    start(async move {
        if let Err(payload) = CatchUnwind(future).await {
            if !payload.is::<super::Goexit>() {
                report::die_of_panic(&*payload);
            }
            drop_payload(payload);
        }
    });
}

/// [`go_async`] with a handle for the result.
///
/// # Examples
///
/// ```
/// use sudog_runtime::goroutine::{run, spawn_async};
///
/// let sum = run(|| spawn_async(async { 1 + 1 }).join().unwrap());
/// assert_eq!(sum, 2);
/// ```
pub fn spawn_async<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (sender, handle) = builder::packet(OnPanic::EndProcess);
    start(async move { sender.send(CatchUnwind(future).await) });
    handle
}

fn start(future: impl Future<Output = ()> + Send + 'static) {
    /// Counts the task's end, however it ends.
    struct Live(&'static Set, Option<u64>);
    impl Drop for Live {
        fn drop(&mut self) {
            self.0.count_end();
            if let Some(name) = self.1 {
                self.0.forget_task(name);
            }
        }
    }

    let set = Set::here();
    set.count_made();
    let name = set.name_task();
    let live = Live(set, name);
    let future = async move {
        let _live = live;
        future.await;
    };
    let (runnable, task) = async_task::spawn(future, move |runnable: Runnable| set.submit(job::pack_task(runnable)));
    match name {
        Some(name) => set.keep_task(name, task), // before it can end
        None => task.detach(),
    }
    runnable.schedule();
}

/// A future whose panic is its result.
struct CatchUnwind<F>(F);

impl<F: Future> Future for CatchUnwind<F> {
    type Output = thread::Result<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the projection of a pin to the only field; `Self` is `Unpin` only if it is, and has no `Drop`.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.0) };
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(payload)),
        }
    }
}

/// Runs a future on the calling goroutine or thread, which waits whenever it does.
///
/// # Examples
///
/// ```
/// use sudog_runtime::goroutine::block_on;
///
/// assert_eq!(block_on(async { 42 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let signal = Arc::new(Signal { woken: AtomicBool::new(false), permits: AtomicU32::new(0) });
    let waker = Waker::from(signal.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        context::note_wait("block_on", std::ptr::null());
        sema::semacquire(&signal.permits);
        // After the permit, before the poll: a wake from here on releases another.
        signal.woken.store(false, Ordering::SeqCst);
    }
}

/// Wakes a `block_on`: however many wakes between two polls, one permit.
struct Signal {
    woken: AtomicBool,
    permits: AtomicU32,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            sema::semrelease(&self.permits, sema::Wake::Normal);
        }
    }
}
