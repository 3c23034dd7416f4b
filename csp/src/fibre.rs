//! Starting a fibre in the order of a call.

use sudog_runtime::goroutine::{Builder, JoinHandle, Placement};

/// Starts a fibre that runs at once; the caller, if it is a goroutine, goes to the end of its worker's run queue. The
/// source's `spawn_fibre`. Go's `go`, and `spawn`, queue the child, and the caller goes on: both kinds start goroutines,
/// and any goroutine may use the channels.
///
/// The fibre stays on the caller's worker. If the caller's time slice is over, the fibres in the run queue have their turn
/// first. A caller that is a thread goes on, and the fibre runs in the background.
///
/// The handle may be dropped: the fibre runs on. `join` returns [`Goexit`](sudog_runtime::goroutine::Goexit) for a fibre
/// that was reclaimed.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
/// use sudog::csp::spawn_fibre;
/// use sudog::run_local;
///
/// static TRACE: Mutex<Vec<&str>> = Mutex::new(Vec::new());
///
/// run_local(|| {
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
    Builder::new().on(Placement::First).spawn(f)
}
