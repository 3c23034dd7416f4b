//! The signal by which glibc has each thread of the process change its user or group.
//!
//! `setuid` and its like send signal 33 to each thread, whose handler makes the system call for the thread, and
//! notes in the thread's block of thread-locals that the call is made. The caller waits for all of these notes. On a goroutine's
//! block the handler would note the call in the wrong place, and the caller would wait for ever. So the handler of this
//! file calls glibc's with the block of the worker's thread.

use std::ptr::{null, null_mut};

use crate::goroutine::native::thread_block::pointer::{self, Step};
use crate::shim::system::atomic::{AtomicUsize, Ordering};
use crate::shim::worker_local::SHIFT;

/// glibc's SIGSETXID.
const SIGNAL: libc::c_int = 33;

/// The address of glibc's handler. Written before the handler of this file is installed.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// The kernel's `struct sigaction`. glibc's own function refuses this signal.
#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Installs the handler. Called once, after the process has made a thread: with the first thread glibc installs its own.
pub(super) fn wrap() -> Result<(), String> {
    let mut action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    exchange(null(), &raw mut action)?;
    if action.handler <= 1 || action.flags & libc::SA_SIGINFO as usize == 0 {
        return Err("glibc has no handler for the signal of setuid".into());
    }
    HANDLER.store(action.handler, Ordering::Relaxed);
    action.handler = on_signal as *const () as usize;
    exchange(&raw const action, null_mut())
}

fn exchange(new: *const Action, old: *mut Action) -> Result<(), String> {
    // SAFETY: `new` and `old` are null, or point to an `Action`. The handler in `new` has the flags of glibc's handler.
    match unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGNAL, new, old, size_of::<u64>()) } {
        0 => Ok(()),
        _ => Err("the handler of glibc's signal 33 cannot be wrapped".into()),
    }
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let home = pointer::thread_pointer().wrapping_add_signed(SHIFT.get());
    // SAFETY: `HANDLER` is the address of glibc's handler, a C function of three arguments that fit into registers.
    let handler: Step = unsafe { std::mem::transmute(HANDLER.load(Ordering::Relaxed)) };
    // SAFETY: `wrap` is called on systems with `wrfsbase`. `home` is the block of this thread, which runs nothing else
    // now. The handler gets the kernel's arguments, and does not unwind. The words of `NOTHING_SHARED` are in each block.
    unsafe {
        pointer::call_with(
            home,
            handler,
            signal as usize,
            info.expose_provenance(),
            context.expose_provenance(),
            &super::NOTHING_SHARED,
        );
    }
}
