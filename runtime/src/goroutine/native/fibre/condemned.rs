//! The end of a goroutine that waits for what can no longer come, while its scheduler goes on. For `sudog-csp`.

use crate::shim::system::thread;

use crate::goroutine::native::fibre::Unwinding;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::landing_pads::reaches_a_catch;

/// Whether the caller is a goroutine of which nothing runs any more but destructors. If such a goroutine waits, its
/// worker waits with it, or the end of its scheduler does.
#[inline]
#[must_use]
pub fn is_ending() -> bool {
    current::fibre().is_some_and(|fibre| match fibre.dying.get() {
        Unwinding::Drops => true,
        Unwinding::Unwound => thread::panicking(),
        Unwinding::No | Unwinding::Doomed => thread::panicking() && !current::panicked_before(),
    })
}

/// Whether nothing else on the caller's worker can run, by itself or by the clock; and how many external sources of work its
/// scheduler has. `None` if the caller is no goroutine.
#[must_use]
pub fn is_alone() -> Option<(bool, u32)> {
    let worker = current::fibre()?.worker;
    Some((!worker.has_work() && worker.next_timer().is_none(), worker.sched().idle.outside()))
}

/// Condemns the calling goroutine, and unwinds it as [`goexit`](crate::goroutine::goexit) does.
///
/// Returns if the caller is no goroutine; or cannot be unwound here, because of a frame that ends the process if a panic
/// reaches it, because it is being unwound already, or because panics abort.
#[cold]
pub fn condemn() {
    let Some(fibre) = current::fibre() else { return };
    let may = cfg!(panic = "unwind") && fibre.must_return.get() == 0 && !is_ending();
    if may && reaches_a_catch() {
        current::unwind();
    }
}
