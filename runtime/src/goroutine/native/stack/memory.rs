//! The system calls for stacks: mappings, protections, guards.

use std::fmt::Display;
use std::io;
use std::ptr::NonNull;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

/// The bytes of a guard, before rounding up to pages.
const GUARD: usize = 16 << 10;

pub(crate) fn page() -> usize {
    // SAFETY: `sysconf` takes only a number; the page size is never unknown.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

pub(crate) fn guard_len() -> usize {
    GUARD.next_multiple_of(page())
}

/// Maps memory. Where `MAP_NORESERVE` has an effect, the memory counts as used only once the memory is touched.
pub(crate) fn map(len: usize, protection: libc::c_int) -> io::Result<NonNull<u8>> {
    #[cfg(any(target_os = "linux", target_vendor = "apple", target_os = "netbsd"))]
    const KIND: libc::c_int = libc::MAP_NORESERVE;
    #[cfg(target_os = "openbsd")]
    const KIND: libc::c_int = libc::MAP_STACK; // else the kernel ends a thread that runs on this memory
    #[cfg(not(any(target_os = "linux", target_vendor = "apple", target_os = "netbsd", target_os = "openbsd")))]
    const KIND: libc::c_int = 0;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON | KIND;
    // SAFETY: a new mapping at an address of the system's choice touches no other memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Ignore an error: `madvise` fails where the kernel has no huge pages, and is not needed there.
    #[cfg(target_os = "linux")]
    // SAFETY: `at` and `len` are those of the mapping made above.
    unsafe {
        libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
    }
    Ok(NonNull::new(at.cast()).expect("mmap gives no null"))
}

/// Unmaps memory.
///
/// # Safety
/// The memory is a whole mapping of the caller's, and not in use.
pub(crate) unsafe fn unmap(at: NonNull<u8>, len: usize) {
    // SAFETY: the memory is a whole mapping, and not in use, by the contract of `unmap`.
    unsafe { libc::munmap(at.as_ptr().cast(), len) };
}

/// Changes the protection of memory.
///
/// # Safety
/// The memory is the caller's, in whole pages, and is not used in a way that `protection` forbids.
pub(crate) unsafe fn set_protection(at: NonNull<u8>, len: usize, protection: libc::c_int) -> io::Result<()> {
    // SAFETY: the memory is the caller's, and is not used in a way that `protection` forbids, by the contract of
    // `set_protection`.
    match unsafe { libc::mprotect(at.as_ptr().cast(), len, protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the memory back to the system, and keeps the addresses. The contents are lost, now or later.
///
/// # Safety
/// The memory is the caller's, in whole pages, and not in use.
pub(crate) unsafe fn discard(at: NonNull<u8>, len: usize) {
    // On systems other than Linux, DONTNEED is only a hint.
    const DISCARD: libc::c_int = if cfg!(target_os = "linux") { libc::MADV_DONTNEED } else { libc::MADV_FREE };
    // Ignore an error: the call fails if the memory is locked (`mlockall`), and then the memory is to stay. SAFETY: the
    // memory is the caller's, and not in use, by the contract of `discard`.
    unsafe { libc::madvise(at.as_ptr().cast(), len, DISCARD) };
}

/// Makes the guard: [`guard_len`] bytes at `low`.
///
/// # Safety
/// These bytes are the caller's, and not in use.
pub(crate) unsafe fn protect(low: NonNull<u8>, markers: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: the bytes at `low` are the caller's, and not in use, by the contract of `protect`.
    if markers && unsafe { install_markers(low, guard_len()) } {
        return Ok(());
    }
    // Use PROT_NONE also where markers have failed: locked memory takes no markers.
    let _ = markers;
    // SAFETY: the bytes at `low` are the caller's, and not in use, by the contract of `protect`.
    unsafe { set_protection(low, guard_len(), libc::PROT_NONE) }.map_err(|e| {
        let text = "no guard for a goroutine's stack; without MADV_GUARD_INSTALL (Linux 6.13) each stack takes two \
                    memory mappings, and vm.max_map_count limits these";
        context(text, e)
    })
}

/// The most guards that [`install_many_markers`] makes in one call.
pub(crate) const MANY: usize = 128;

/// Makes `n` guards, at `low` and at each `stride` above, in one call. The call takes the kernel two thirds of the time
/// of `n` calls. Returns false if some of the guards, or none, were made: kernels from 6.13 on may refuse the call.
///
/// # Safety
/// The [`guard_len`] bytes at each of these places are the caller's, and not in use.
#[cfg(target_os = "linux")]
pub(crate) unsafe fn install_many_markers(low: NonNull<u8>, stride: usize, n: usize) -> bool {
    assert!(n <= MANY);
    let mut guards = [const { libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 } }; MANY];
    for (i, guard) in guards[..n].iter_mut().enumerate() {
        *guard = libc::iovec { iov_base: low.as_ptr().wrapping_add(i * stride).cast(), iov_len: guard_len() };
    }
    // Do not keep the descriptor: in a child of `fork` it would still refer to the parent.
    // SAFETY: the call takes numbers, and makes a descriptor or fails.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    if process < 0 {
        return false;
    }
    // SAFETY: the descriptor opened above is that of this process. The guards' bytes are the caller's, and not in use,
    // by the contract of `install_many_markers`. The call frees these pages and makes them trap, or fails, perhaps
    // after some of them.
    let made = unsafe {
        libc::syscall(libc::SYS_process_madvise, process, guards.as_ptr(), n, MADV_GUARD_INSTALL as libc::c_long, 0)
    };
    // SAFETY: `process` was opened above, and is not used again.
    unsafe { libc::close(process as libc::c_int) };
    made == (n * guard_len()) as libc::c_long
}

#[cfg(not(target_os = "linux"))]
pub(crate) unsafe fn install_many_markers(_low: NonNull<u8>, _stride: usize, _n: usize) -> bool {
    false
}

#[cfg(target_os = "linux")]
const MADV_GUARD_INSTALL: libc::c_int = 102; // libc has no name for it yet

/// Makes a guard of markers. Returns false if the kernel refuses.
///
/// # Safety
/// The memory is the caller's, in whole pages, and not in use.
#[cfg(target_os = "linux")]
unsafe fn install_markers(at: NonNull<u8>, len: usize) -> bool {
    // SAFETY: the memory is the caller's, and not in use, by the contract of `install_markers`. The call frees these
    // pages and makes them trap, or fails.
    unsafe { libc::madvise(at.as_ptr().cast(), len, MADV_GUARD_INSTALL) == 0 }
}

/// Returns whether the kernel has guard markers that trap. An emulator may treat each `madvise` as a hint, and report
/// success without making markers.
#[cfg(target_os = "linux")]
pub(crate) fn markers_work() -> bool {
    static WORK: OnceLock<bool> = OnceLock::new();
    *WORK.get_or_init(|| {
        let Ok(at) = map(page(), libc::PROT_READ | libc::PROT_WRITE) else { return false };
        // SAFETY: `at` is the page mapped above, which nothing else uses.
        let work = unsafe { install_markers(at, page()) } && traps(at.as_ptr());
        // SAFETY: `at` is the page mapped above, a whole mapping, and not used again.
        unsafe { unmap(at, page()) };
        work
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn markers_work() -> bool {
    false
}

/// Returns whether reading the byte would trap. The kernel tries to read the byte as the name of a file.
#[cfg(target_os = "linux")]
pub(crate) fn traps(at: *const u8) -> bool {
    // SAFETY: the kernel checks each byte before reading that byte.
    let found = unsafe { libc::access(at.cast(), libc::F_OK) };
    found != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

pub(crate) fn context(what: impl Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
