//! Functions that start fibres: at once, as a call would, or on a chosen worker.

use sudog_runtime::goroutine::{Builder, JoinHandle, Placement};

use crate::set::{Body, Member};

/// Starts a fibre that runs at once. A caller that is a goroutine goes to the end of its worker's run queue. The
/// source's `spawn_fibre` (see the [crate]). By contrast, Go's `go` statement, and `spawn`, queue the new
/// goroutine, and the caller goes on.
///
/// The fibre belongs to the caller's [`ActiveSet`](crate::ActiveSet), if the caller belongs to an active set, and stays
/// on the caller's worker. If the caller's time slice is over, the fibres in the run queue run before the new fibre. If
/// the caller is a thread, the thread goes on, and any worker runs the fibre.
///
/// The handle may be dropped: the fibre goes on.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
/// use sudog::csp::{self, spawn_fibre};
///
/// static TRACE: Mutex<Vec<&str>> = Mutex::new(Vec::new());
///
/// csp::run(|| {
///     let child = spawn_fibre(|| TRACE.lock().unwrap().push("child"));
///     TRACE.lock().unwrap().push("parent");
///     child.join().unwrap();
/// });
/// assert_eq!(*TRACE.lock().unwrap(), ["child", "parent"]);
/// ```
pub fn spawn_fibre<T, F>(f: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    spawn_fibre_on(Placement::First, f)
}

/// Starts a fibre as [`spawn_fibre`] does, on a chosen worker. With [`Placement::Any`] the fibre is queued, and any
/// worker may take the fibre, so that several threads run the fibres of a set.
///
/// # Panics
///
/// If the fibre is placed on a worker that does not exist.
///
/// # Examples
///
/// ```
/// use sudog::Placement;
/// use sudog::csp::{self, make_channel, spawn_fibre_on};
///
/// let sum = csp::run(|| {
///     let [output, mut input] = make_channel::<u64, 2>();
///     for n in 1..=4 {
///         let mut output = output.dup();
///         spawn_fibre_on(Placement::Any, move || output.write(n));
///     }
///     drop(output);
///     let mut sum = 0;
///     while let Ok(n) = input.read() {
///         sum += n;
///     }
///     sum
/// });
/// assert_eq!(sum, 10);
/// ```
pub fn spawn_fibre_on<T, F>(placement: Placement, f: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let body = Body::new(f, Member::of_caller());
    Builder::new().on(placement).spawn(move || body.run())
}
