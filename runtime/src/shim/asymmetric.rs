//! A pair of fences, one of which costs nothing: for two threads, each of which writes a word, executes its fence, and
//! then reads the word that the other thread writes. The thread that does so often executes the light fence, the other
//! thread the heavy fence. At least one of the two threads sees the other's write, as after two [`full_fence`]s.
//!
//! On Linux the heavy fence is `membarrier`, which executes a full fence on each processor that runs a thread of this
//! process (0.4 us; 15 us and more beside running threads, on a virtual machine). So the light fence need only keep the
//! compiler from moving accesses. In models, both fences are full fences.

use super::{full_fence, mark};

/// Executes the fence of the thread that does so often. Only if [`is_available`] has returned true.
#[inline(always)]
pub fn light() {
    if system::LIGHT_IS_FREE {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    } else {
        full_fence();
    }
}

/// Executes the fence of the other thread. Only if [`is_available`] has returned true.
///
/// Returns false if the system has refused: then the other threads have executed no fence, and the caller must assume
/// that writes of other threads are still to come.
pub fn heavy() -> bool {
    mark("a heavy fence is executed");
    // The first call of a process fails if the process is the child of a fork, and its kernel asks for a new registration.
    system::fence_others() || (system::register() && system::fence_others())
}

/// Returns whether there is such a pair of fences. A process that has the answer true keeps the pair.
#[cold]
pub fn is_available() -> bool {
    system::register()
}

#[cfg(all(target_os = "linux", not(any(sudog_loom, sudog_sim, miri))))]
mod system {
    // From Linux's `linux/membarrier.h`; `libc` has these constants for Android only.
    const MEMBARRIER_CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    pub(super) const LIGHT_IS_FREE: bool = true;

    /// Registers the process for [`fence_others`]. Returns whether the system has the call.
    pub(super) fn register() -> bool {
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    /// Executes a full fence on each processor that runs a thread of this process.
    pub(super) fn fence_others() -> bool {
        membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call has two further arguments, flags and a processor, which are 0 for these commands. The call
        // touches no memory of this process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(all(target_os = "linux", not(any(sudog_loom, sudog_sim, miri)))))]
mod system {
    pub(super) const LIGHT_IS_FREE: bool = false;

    pub(super) fn register() -> bool {
        cfg!(sudog_loom)
    }

    pub(super) fn fence_others() -> bool {
        super::full_fence();
        true
    }
}
