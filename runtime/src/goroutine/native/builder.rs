//! Starting goroutines, and waiting for their results.

use crate::shim::system::atomic::{AtomicU32, Ordering};
use crate::shim::system::thread;
use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use crate::box_if_large;
use crate::goroutine::native::coop::Coop;
use crate::goroutine::native::exit::{Goexit, OnPanic};
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::job;
use crate::goroutine::native::fibre::job::{Body, Details, Work};
use crate::goroutine::native::placement::{Place, Placement, start_at};
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::{run, stack, switch_hooks, together, trace};
use crate::panics::drop_payload;
use crate::sema::{self, IntoLimit, Wake};
use crate::shim::Mutex;

/// Settings for the start of a goroutine: a name, a stack size, a worker, the effect of a panic.
///
/// # Examples
///
/// ```
/// use sudog::{Builder, run};
///
/// run(|| {
///     let handle = Builder::new().name("adder").stack_size(64 << 10).spawn(|| 1 + 1);
///     assert_eq!(handle.join().unwrap(), 2);
/// });
/// ```
#[derive(Default)]
#[must_use = "a builder starts nothing until `go` or `spawn` is called"]
pub struct Builder {
    details: Details,
    any_details: bool,
    placement: Placement,
}

impl Builder {
    /// Creates a builder for a goroutine without a name, with a stack of the
    /// [default size](crate::goroutine::set_stack_size), on any worker.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the goroutine, for the reports of panics, deadlocks and stack overflows.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.details.name = Some(name.into());
        self.any_details = true;
        self
    }

    /// Gives the goroutine a stack of at least this many bytes, with a guard below. Stacks do not grow. A stack of any
    /// other than the default size is made for this goroutine alone, by two system calls, and freed when the goroutine
    /// has ended.
    ///
    /// # Panics
    ///
    /// If `bytes` is more than 64 GiB.
    #[track_caller]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        if let Err(error) = stack::check(bytes) {
            panic!("{error}");
        }
        self.details.stack_size = Some(bytes);
        self.any_details = true;
        self
    }

    /// Sets the worker on which the goroutine runs.
    pub fn on(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets the effect of a panic of the goroutine, if no caller joins the goroutine.
    pub fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.details.on_panic = on_panic;
        self.any_details = true;
        self
    }

    /// Starts the goroutine, as [`go`](crate::goroutine::go) does.
    ///
    /// # Panics
    ///
    /// If the goroutine is placed on a worker that does not exist.
    #[track_caller]
    pub fn go<F: FnOnce() + Send + 'static>(self, f: F) {
        let (details, placement) = self.into_parts();
        start(f, details, placement);
    }

    /// Starts the goroutine as [`Builder::go`] does, for a closure that borrows.
    ///
    /// # Safety
    ///
    /// The values that the closure borrows live for as long as the closure uses them. When these values end, the
    /// closure holds no reference to them that the compiler could assume to be valid.
    #[track_caller]
    pub(crate) unsafe fn go_unchecked<F: FnOnce() + Send>(self, f: F) {
        let (details, placement) = self.into_parts();
        // SAFETY: the values that `f` borrows live for as long as `f` uses them, by the contract of `go_unchecked`.
        start_body(unsafe { Body::borrowing(f) }, details, placement);
    }

    /// Returns the settings, if there are any, and the placement.
    fn into_parts(self) -> (Option<Box<Details>>, Placement) {
        (self.any_details.then(|| Box::new(self.details)), self.placement)
    }

    /// Starts the goroutine, and returns a handle for its result, as [`spawn`](crate::goroutine::spawn) does.
    ///
    /// # Panics
    ///
    /// If the goroutine is placed on a worker that does not exist.
    #[track_caller]
    pub fn spawn<T, F>(self, f: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        box_if_large!(f: F as dyn FnOnce() -> T + Send => self.spawn(f));
        let (sender, handle) = packet(self.details.on_panic);
        self.go(move || sender.send(catch_unwind(AssertUnwindSafe(f))));
        handle
    }
}

impl Builder {
    /// Runs `main`, as [`run`](fn@crate::goroutine::run) does, with this builder's name, stack size and placement for
    /// the main goroutine. A panic of the main goroutine goes on in the caller, whatever [`Builder::on_panic`] said. If
    /// the caller is a goroutine, this function only calls `main`.
    ///
    /// # Panics
    ///
    /// If `main` panics, or is placed on a worker that does not exist.
    #[track_caller]
    pub fn run<T: Send>(self, main: impl FnOnce() -> T + Send) -> T {
        run::run_with(main, Box::new(self.details), self.placement)
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.details.name)
            .field("stack_size", &self.details.stack_size)
            .field("on", &self.placement)
            .field("on_panic", &self.details.on_panic)
            .finish()
    }
}

#[inline]
#[track_caller]
pub(crate) fn start<F: FnOnce() + Send + 'static>(f: F, details: Option<Box<Details>>, placement: Placement) {
    box_if_large!(f: F as dyn FnOnce() + Send => start(f, details, placement));
    start_body(Body::owned(f), details, placement);
}

/// Starts a goroutine as [`start`] does, for any closure.
#[inline]
#[track_caller]
fn start_body<F: FnOnce()>(f: Body<F>, details: Option<Box<Details>>, placement: Placement) {
    match current::worker() {
        Some(worker) if !switch_hooks::is_observed() && Start::is_in_ring(placement) => {
            worker.count_made();
            worker.submit(job::pack_body(f, details, Some(&worker.own.jobs)));
        }
        _ => start_in_steps(f, details, placement),
    }
}

/// Starts a goroutine as [`start_body`] does, whatever the place, and whether switches are observed or not. All that does
/// not depend on the closure's type is in [`Start`], and compiled once.
#[cold]
#[track_caller]
fn start_in_steps<F: FnOnce()>(f: Body<F>, mut details: Option<Box<Details>>, placement: Placement) {
    let start = Start::prepare(&mut details, placement);
    let work = job::pack_body(f, details, start.worker.map(|worker| &worker.own.jobs));
    start.finish(work);
}

/// The start of a goroutine, whose closure is to be packed.
struct Start {
    /// The call that starts the goroutine.
    caller: &'static Location<'static>,
    worker: Option<&'static Worker>,
    /// The place of the goroutine. None: the ring of `worker`.
    place: Option<Place>,
}

impl Start {
    /// Returns whether a goroutine that a goroutine starts goes into the ring of the caller's worker.
    #[inline]
    fn is_in_ring(placement: Placement) -> bool {
        matches!(placement, Placement::Any) && !together::is_here()
    }

    /// Decides the place. Ends the process if the caller is in a switch hook.
    #[track_caller]
    fn prepare(details: &mut Option<Box<Details>>, placement: Placement) -> Self {
        let caller = Location::caller();
        if switch_hooks::is_observed() {
            switch_hooks::forbid_start_in_hook();
            if switch_hooks::observes_starts() {
                details.get_or_insert_default().created_at = Some(caller);
            }
        }
        let worker = current::worker();
        let in_ring = worker.is_some() && Self::is_in_ring(placement);
        // Not in a closure, which would not know the caller.
        let place = if in_ring { None } else { Some(Place::of(placement)) };
        Self { caller, worker, place }
    }

    /// Starts the goroutine, and tells a trace, if there is one, about the call that starts the goroutine.
    fn finish(self, work: Work) {
        if switch_hooks::is_observed() {
            trace::creates(&work, self.caller);
        }
        match (self.place, self.worker) {
            (None, Some(worker)) => {
                worker.count_made();
                worker.submit(work);
            }
            (place, _) => start_at(work, place.unwrap_or(Place::Any)),
        }
    }
}

/// A handle for the result of a goroutine, which may still run.
///
/// Dropping the handle without a [`join`](JoinHandle::join) lets the goroutine run on. If that goroutine panics, or has
/// panicked, the process ends, unless [`Builder::on_panic`] said otherwise.
///
/// The handle is a future too, so that an async task can wait for a goroutine.
pub struct JoinHandle<T> {
    packet: Option<Arc<Packet<T>>>,
}

/// The state that a goroutine shares with its handle, for the result.
struct Packet<T> {
    /// A semaphore: the sender releases a permit once the result is there, and the joiner takes the permit.
    done: AtomicU32,
    /// The flags `DETACHED`, set when the handle is dropped, and `PANICKED`, set by the sender.
    fate: AtomicU32,
    on_panic: OnPanic,
    /// The waker of the task that polls the handle.
    waker: Mutex<Option<Waker>>,
    /// The handle's part in the budget of the task that polls the handle.
    coop: Coop,
    /// The result, written by the sender, once. The payload of a panic is inside a [`Panicked`].
    result: Cell<Option<thread::Result<T>>>,
}

/// The payload of a panic, with the name of its goroutine. The name is made only when a goroutine panics.
struct Panicked {
    payload: Box<dyn Any + Send>,
    /// The goroutine's number and name, for the report.
    goroutine: Option<String>,
}

// SAFETY: the sender writes `result` before it releases the permit. The only readers are the taker of the permit, and the
// last owner of the packet.
unsafe impl<T: Send> Sync for Packet<T> {}

const DETACHED: u32 = 1;
const PANICKED: u32 = 2;

/// The goroutine's half of a packet.
pub(crate) struct Sender<T> {
    packet: Option<Arc<Packet<T>>>,
}

pub(crate) fn packet<T>(on_panic: OnPanic) -> (Sender<T>, JoinHandle<T>) {
    let packet = Arc::new(Packet {
        done: AtomicU32::new(0),
        fate: AtomicU32::new(0),
        on_panic,
        waker: Mutex::new(None),
        coop: Coop::new(),
        result: Cell::new(None),
    });
    (Sender { packet: Some(packet.clone()) }, JoinHandle { packet: Some(packet) })
}

impl<T> Sender<T> {
    /// Hands the result over to the handle. Called by the goroutine that ends with this result.
    pub(crate) fn send(mut self, result: thread::Result<T>) {
        if let Some(packet) = self.packet.take() {
            packet.complete(result);
        }
    }
}

impl<T> Drop for Sender<T> {
    /// Sends [`Goexit`]: the goroutine was unwound by `goexit`, or the task has been dropped.
    fn drop(&mut self) {
        if let Some(packet) = self.packet.take() {
            packet.complete(Err(Box::new(Goexit)));
        }
    }
}

impl<T> Packet<T> {
    fn complete(&self, mut result: thread::Result<T>) {
        let panicked = matches!(&result, Err(payload) if !payload.is::<Goexit>());
        if panicked {
            result = result.map_err(|payload| Box::new(Panicked { payload, goroutine: current::describe() }) as _);
        }
        // The packet has one sender, which writes the result once; no other thread uses the cell before the permit that
        // is released below. There was no result, so there is none to drop.
        mem::forget(self.result.replace(Some(result)));
        // AcqRel: the sender and the handle's drop each set a flag; the later of the two sees the writes of the
        // earlier.
        if panicked && self.fate.fetch_or(PANICKED, Ordering::AcqRel) & DETACHED != 0 {
            // SAFETY: the handle is dropped, so no joiner reads the result. This is the sender, which has written the
            // result, and writes no more.
            unsafe { self.die() };
        }
        // Do not switch: the goroutine that joins is woken before another has a turn on this worker.
        current::without_switching(|| sema::semrelease(&self.done, Wake::Normal));
        let waker = self.waker.lock().take();
        // The waker is user code, which may wait. Catch its panic: a destructor may have called this function, and no
        // panic may leave a destructor.
        if let Some(waker) = waker
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake()))
        {
            drop_payload(payload);
        }
    }

    /// Ends the process with the report of the panic, unless the [`Builder`] said otherwise.
    ///
    /// # Safety
    ///
    /// The sender has written the result, and no other call reads or writes it meanwhile.
    unsafe fn die(&self) {
        let result = self.result.take();
        if let (OnPanic::Abort, Some(Err(payload))) = (self.on_panic, &result)
            && let Some(Panicked { payload, goroutine }) = payload.downcast_ref()
        {
            job::die_of_panic(&**payload, goroutine.as_deref());
        }
        self.result.set(result);
    }

    /// Ends the process if the result is not there and this is a forked child, which could wait for ever.
    #[inline]
    fn forbid_wait_in_child(&self) {
        if self.done.load(Ordering::Relaxed) == 0 {
            current::forbid_wait_in_child();
        }
    }

    /// Returns the result. Called by the taker of the permit.
    fn take(&self) -> thread::Result<T> {
        // The sender wrote the result before it released the permit, and the taker of the permit is the only reader.
        let result = self.result.take().expect("a permit means a result");
        result.map_err(|payload| match payload.downcast::<Panicked>() {
            Ok(panicked) => panicked.payload,
            Err(goexit) => goexit,
        })
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the goroutine to end, and returns its result.
    ///
    /// # Errors
    ///
    /// The payload of the panic that ended the goroutine; or [`Goexit`] if the goroutine called
    /// [`goexit`](crate::goroutine::goexit).
    pub fn join(mut self) -> thread::Result<T> {
        let packet = self.packet.take().expect("joined once");
        packet.forbid_wait_in_child();
        current::note_wait("join");
        sema::semacquire(&packet.done);
        packet.take()
    }

    /// Waits for the goroutine's result, until `limit` ends the wait: see [`IntoLimit`]. Then the handle can be used
    /// again.
    ///
    /// # Errors
    ///
    /// The error says which limit came first. The inner result is that of [`join`](Self::join).
    ///
    /// # Panics
    ///
    /// If the handle has returned the result before.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::time::sleep;
    /// use sudog::{WaitError, run, spawn};
    ///
    /// run(|| {
    ///     let mut handle = spawn(|| sleep(Duration::from_millis(20)));
    ///     assert!(matches!(handle.join_limited(Duration::from_millis(1)), Err(WaitError::TimedOut)));
    ///     handle.join().unwrap();
    /// });
    /// ```
    pub fn join_limited<L: IntoLimit>(&mut self, limit: L) -> Result<thread::Result<T>, L::Error> {
        let packet = self.packet.as_ref().expect("joined once");
        packet.forbid_wait_in_child();
        current::note_wait("join");
        sema::semacquire_limited(&packet.done, sema::Order::Fifo, limit)?;
        let packet = self.packet.take().expect("looked at above");
        Ok(packet.take())
    }

    /// Returns whether the goroutine has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.packet.as_ref().is_none_or(|packet| packet.done.load(Ordering::Acquire) != 0)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = thread::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let packet = self.packet.as_ref().expect("polled after it was ready");
        ready!(packet.coop.poll_proceed(cx));
        if !sema::try_semacquire(&packet.done) {
            let waker = cx.waker().clone();
            let old = packet.waker.lock().replace(waker);
            drop(old);
            // Look again after storing the waker. The sender releases the permit, then takes the waker. By the waker's
            // lock, either this poll sees the permit, or the sender sees the waker.
            if !sema::try_semacquire(&packet.done) {
                crate::note_task_wait("join");
                return Poll::Pending;
            }
        }
        let packet = self.packet.take().expect("looked at above");
        Poll::Ready(packet.take())
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(packet) = self.packet.take()
            && packet.fate.fetch_or(DETACHED, Ordering::AcqRel) & PANICKED != 0
        {
            // SAFETY: the sender has set PANICKED, so it has written the result and will not write again; and this was
            // the only handle.
            unsafe { packet.die() };
        }
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}
