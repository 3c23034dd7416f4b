//! Functions that start, end and count goroutines, and that set limits.

use std::io;

use crate::G;
use crate::goroutine::native::builder;
use crate::goroutine::native::builder::{Builder, JoinHandle};
use crate::goroutine::native::exit::Goexit;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::placement::Placement;
use crate::goroutine::native::sched::scheduler::{MAX_WORKERS, Sched, Searches};
use crate::goroutine::native::stack;

/// Runs `f` as a goroutine: Go's `go` statement.
///
/// The goroutine starts on some worker, as soon as a worker has time, and stays there. (The process ends if there is no
/// memory for a stack, or no thread for a first worker.) A panic of the goroutine ends the process, as in Go; for a
/// result, or a panic that can be caught, use [`spawn`].
///
/// Functions that `f` calls may wait, with [two exceptions](crate::goroutine#what-a-goroutine-may-not-do). The
/// initialiser of a lazy `std::thread_local!` must not wait: that would be undefined behaviour. The initialiser of a
/// `std::sync::LazyLock` must not wait either: the wait would hang.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog::go;
/// use sudog::low_level::sema::{Wake, semacquire, semrelease};
///
/// static DONE: AtomicU32 = AtomicU32::new(0);
///
/// go(|| semrelease(&DONE, Wake::Normal));
/// semacquire(&DONE); // this thread waits, as no goroutine called
/// ```
#[inline]
#[track_caller]
pub fn go<F: FnOnce() + Send + 'static>(f: F) {
    builder::start(f, None, Placement::Any);
}

/// Starts a goroutine that evaluates an expression: the statement form of [`go`](fn@go). If the expression is a closure
/// literal, the goroutine calls the closure. The variables of any other expression move into the goroutine. `go!(f)`
/// would call nothing, and does not compile: write `go!(f())` or `go(f)`.
///
/// Unlike in Go, arguments are evaluated in the goroutine too: Go's `go f(g())` is `let x = g(); go!(f(x))`.
///
/// `go!(clone a, b; f(a, b, c))` gives the goroutine clones of the variables `a` and `b`, which the caller goes on
/// using: channels, `Arc`s, contexts. The caller makes the clones, before the goroutine starts.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc::channel;
/// use sudog::go;
///
/// let (sender, receiver) = channel();
/// let another = sender.clone();
/// go!(move || sender.send(1).unwrap());
/// go!(another.send(2).unwrap());
/// assert_eq!(receiver.into_iter().sum::<i32>(), 3);
/// ```
///
/// A loop that starts goroutines, all of which use the same channel:
///
/// ```
/// use sudog::chan::Chan;
/// use sudog::{go, run};
///
/// run(|| {
///     let squares = Chan::new(0);
///     for n in 1..=3 {
///         go!(clone squares; squares.send(n * n));
///     }
///     assert_eq!((0..3).filter_map(|_| squares.recv()).sum::<i32>(), 14);
/// });
/// ```
///
/// ```compile_fail
/// fn worker() {}
/// sudog::go!(worker); // calls nothing: refused
/// ```
#[macro_export]
macro_rules! go {
    (clone $($variable:ident),+; $($body:tt)+) => {{
        $(let $variable = ::core::clone::Clone::clone(&$variable);)+
        $crate::go!($($body)+)
    }};
    (move || $body:expr) => {
        $crate::goroutine::go(move || {
            $body;
        })
    };
    (|| $body:expr) => {
        $crate::goroutine::go(|| {
            $body;
        })
    };
    ($($function:ident)::+) => {
        ::core::compile_error!("`go!(f)` calls nothing: write `go!(f())`, or `go(f)` for a closure")
    };
    ($body:expr) => {
        $crate::goroutine::go(move || {
            $body;
        })
    };
}

/// Runs `f` as a goroutine, as [`go`] does, and returns a handle for the result.
///
/// # Examples
///
/// ```
/// use sudog::spawn;
///
/// assert_eq!(spawn(|| 6 * 7).join().unwrap(), 42);
/// assert!(spawn(|| panic!("caught by join")).join().is_err());
/// ```
#[track_caller]
pub fn spawn<T, F>(f: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    Builder::new().spawn(f)
}

/// Lets the other goroutines of this worker run first. On a thread, gives up the processor. Go's `runtime.Gosched`.
///
/// When this function returns, each goroutine and each task that was ready on this worker has had a turn, or has been
/// taken by another worker. The same holds for goroutines whose timers were due, unless calls follow each other fast:
/// then every 16th call looks at the clock.
///
/// Different from Go: there the caller goes to the end of the global queue, and any worker may run the caller next.
/// Here a started goroutine stays on its worker, so the caller goes to the end of that worker's queue, behind the
/// worker's share of the global queue. A worker's queue has room for 256 tasks and goroutines that have not started.
/// Further ones stay in the global queue, for any worker.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use sudog::{go, run};
/// use sudog::runtime::gosched;
///
/// static DONE: AtomicBool = AtomicBool::new(false);
///
/// run(|| {
///     go(|| DONE.store(true, Ordering::Relaxed));
///     while !DONE.load(Ordering::Relaxed) {
///         gosched();
///     }
/// });
/// ```
#[inline]
pub fn gosched() {
    G::yield_now();
}

/// Ends the calling goroutine: unwinds its stack, so that its destructors run. Go's `runtime.Goexit`.
///
/// Unlike in Go, `catch_unwind` can stop the unwinding; a caller that does so should `resume_unwind` with the payload.
///
/// # Panics
///
/// If the caller is no goroutine (inside [`blocking`](fn@crate::goroutine::blocking), for instance). Where panics abort
/// the process, this function ends the process with a fatal error.
///
/// # Examples
///
/// ```
/// use sudog::runtime::{Goexit, goexit};
/// use sudog::spawn;
///
/// let result = spawn(|| goexit()).join();
/// assert!(result.unwrap_err().is::<Goexit>());
/// ```
#[track_caller]
pub fn goexit() -> ! {
    assert!(current::on_goroutine(), "goexit was called outside of a goroutine");
    if cfg!(panic = "abort") {
        crate::fatal("sudog: goexit unwinds the goroutine, and this program is built with panic = \"abort\"");
    }
    std::panic::resume_unwind(Box::new(Goexit))
}

/// Returns the number and the name of the calling goroutine, as reports print them: `17 "worker"`. `None` on a thread
/// that runs no goroutine. Each poll of an async task has a number of its own.
///
/// Panic hooks may print this: `std`'s hook knows threads only, and names the worker's thread, perhaps `main`.
///
/// # Examples
///
/// ```
/// use sudog::{Builder, run};
/// use sudog::runtime::current_goroutine;
///
/// let before = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     if let Some(goroutine) = current_goroutine() {
///         eprintln!("goroutine {goroutine}:");
///     }
///     before(panic);
/// }));
///
/// run(|| {
///     let handle = Builder::new().name("worker").spawn(|| current_goroutine().unwrap());
///     assert!(handle.join().unwrap().ends_with("\"worker\""));
/// });
/// ```
#[must_use]
pub fn current_goroutine() -> Option<String> {
    current::describe()
}

/// Returns the number of goroutines of the process, stackful and stackless, that have not ended; in a bubble of
/// [`synctest`](crate::goroutine::synctest), the number of those in the bubble. Go's `runtime.NumGoroutine`.
#[must_use]
pub fn num_goroutine() -> usize {
    Sched::here().live()
}

/// Returns the number of searches for work by idle workers. For tests of this project.
#[doc(hidden)]
#[must_use]
pub fn searches() -> Searches {
    Sched::here().searches()
}

/// Returns the largest number of workers that run goroutines at a time: 1 in a bubble of
/// [`synctest`](crate::goroutine::synctest). Go's `runtime.GOMAXPROCS(0)`.
#[must_use]
pub fn max_procs() -> usize {
    Sched::here().procs()
}

/// Sets the process's [`max_procs`] to `n`, and returns the former number. From then on the number does not follow the
/// cgroup's quota any more. Go's `runtime.GOMAXPROCS`.
///
/// If `n` is less than the former number, some workers are surplus. Goroutines that have started on a surplus worker
/// stay there: the worker runs them, and takes no work from other workers. Goroutines that these start begin there too, or go
/// to the other workers with the worker's 64th choice of what runs next. An `n` above 256 counts as 256. In a bubble the
/// call changes nothing.
///
/// # Panics
///
/// If `n` is 0.
///
/// # Examples
///
/// ```standalone_crate
/// use sudog::run;
/// use sudog::runtime::{max_procs, set_max_procs};
///
/// run(|| {
///     set_max_procs(1); // goroutines take turns, and never run at the same time
///     assert_eq!(max_procs(), 1);
/// });
/// ```
#[track_caller]
pub fn set_max_procs(n: usize) -> usize {
    assert!(n > 0, "at least one worker is needed");
    Sched::here().set_procs(n.min(MAX_WORKERS))
}

/// Sets the stack size of goroutines that set no size of their own by
/// [`Builder::stack_size`](crate::goroutine::Builder::stack_size). The size is 256 KiB at first; in builds with debug
/// assertions 2 MiB, as frames are larger there. Call this function before the first goroutine starts.
///
/// A stack reserves addresses; a page of memory is added when the goroutine first touches that page. So the unused part
/// of a larger stack costs only addresses, of which there are 4 TiB for all stacks together (on 32-bit systems 512 MiB:
/// 1,900 stacks of 256 KiB). The stack of `main` in [`run`](fn@crate::goroutine::run) is 8 MiB in any case. Go's stacks
/// grow to 1 GB; here the limit of the deepest goroutine must be known beforehand.
///
/// # Errors
///
/// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if goroutines have started, or another size has been set: then the size
/// is fixed.
///
/// # Panics
///
/// If `bytes` is more than 64 GiB.
///
/// # Examples
///
/// ```standalone_crate
/// use sudog::{run, spawn};
/// use sudog::runtime::set_stack_size;
///
/// fn depth(n: usize) -> usize {
///     let frame = std::hint::black_box([n; 128]);
///     if n == 0 { 0 } else { 1 + depth(frame[0] - 1) }
/// }
///
/// set_stack_size(16 << 20).unwrap();
/// assert_eq!(run(|| spawn(|| depth(1000)).join().unwrap()), 1000);
/// assert!(set_stack_size(1 << 20).is_err());
/// ```
#[track_caller]
pub fn set_stack_size(bytes: usize) -> io::Result<()> {
    match stack::set_default_size(bytes) {
        Ok(true) => Ok(()),
        Ok(false) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "goroutines have started: the size of their stacks is fixed",
        )),
        Err(error) => panic!("{error}"),
    }
}
