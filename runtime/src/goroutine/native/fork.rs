//! Children that the process forks: a child has none of the runtime's threads.
//!
//! A fork copies the memory and the calling thread alone. In the child, queues and pools still count workers and other
//! threads that do not exist there, and a lock stays locked for ever if another thread held that lock at the fork. So
//! each step that needs another thread ends the child with a fatal error:
//!
//! | step | where |
//! |---|---|
//! | to start a worker | `Sched::start_worker` |
//! | to give work to workers, as a thread that is no worker | `Sched::process`, `Sched::submit`, `start_at` |
//! | to wait as a worker that has nothing to run | `Worker::wait_for_work` |
//! | to wait as a thread for a goroutine | `JoinHandle::join`, `scope`, `Set::wait_for_rest` of `sudog-csp` |
//! | to give a call, an alarm or a descriptor to another thread | `Pool::submit`, `alarms::set`, `NetWait::begin` |
//!
//! None of these steps is on the path of a switch, of a start by a goroutine, or of an uncontended lock. Each step
//! checks before it takes a lock. A fork before the runtime has started a thread leaves nothing behind, and the child
//! may use the whole runtime.

use crate::fatal::write_raw;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::{AtomicBool, Ordering};

/// True if this process was forked by a process in which the runtime had started a thread. Written in the child by the
/// thread that forked, before any other thread exists.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Installs the fork handler that sets `FORKED` in children from now on. Called before the runtime starts a thread.
pub fn mark_children() {
    static MARKS: OnceLock<()> = OnceLock::new();
    // The simulated machine forks before each execution, and has no threads then.
    if cfg!(sudog_sim) {
        return;
    }
    MARKS.get_or_init(|| {
        extern "C" fn in_child() {
            FORKED.store(true, Ordering::Relaxed);
        }
        // If there is no memory for the entry, a child that goes on hangs.
        // SAFETY: `in_child` may be called in a child: it stores to a static, and no more.
        _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Returns whether this process is a forked child, which has none of the runtime's threads.
#[inline(always)]
pub fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Ends the process if it is a forked child, as the caller needs a thread of the runtime.
#[inline(always)]
pub fn forbid_in_child() {
    if is_child() {
        die();
    }
}

/// Does the same as [`forbid_in_child`], unless `may_go_on` returns true.
#[inline(always)]
pub(super) fn forbid_in_child_unless(may_go_on: fn() -> bool) {
    if is_child() {
        die_unless(may_go_on);
    }
}

#[cold]
#[inline(never)]
fn die_unless(may_go_on: fn() -> bool) {
    if !may_go_on() {
        die();
    }
}

/// Ends the child. Does not use [`fatal`](fn@crate::fatal): another thread may have held standard error's lock at the
/// fork.
#[cold]
#[inline(never)]
fn die() -> ! {
    const TEXT: &str = "fatal error: sudog: a forked child has none of the runtime's threads: it must exec, or exit\n";
    _ = write_raw(TEXT.as_bytes()); // an error: nothing can be done about it
    std::process::abort()
}
