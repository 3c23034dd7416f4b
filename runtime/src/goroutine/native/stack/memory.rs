//! Stacks as the kernel sees them: mappings, protections, guards.

use std::fmt::Display;
use std::io;
use std::ptr::NonNull;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

/// Rounded up to pages.
const GUARD: usize = 16 << 10;

pub(crate) fn page() -> usize {
    // SAFETY: takes nothing, and is never unknown.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

pub(crate) fn guard_len() -> usize {
    GUARD.next_multiple_of(page())
}

/// Not counted as used until it is (`NORESERVE`), where the system makes that difference.
pub(crate) fn map(len: usize, protection: libc::c_int) -> io::Result<NonNull<u8>> {
    #[cfg(any(target_os = "linux", target_vendor = "apple", target_os = "netbsd"))]
    const KIND: libc::c_int = libc::MAP_NORESERVE;
    #[cfg(target_os = "openbsd")]
    const KIND: libc::c_int = libc::MAP_STACK; // else the kernel ends the thread that runs on it
    #[cfg(not(any(target_os = "linux", target_vendor = "apple", target_os = "netbsd", target_os = "openbsd")))]
    const KIND: libc::c_int = 0;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON | KIND;
    // SAFETY: a new mapping at an address of the system's choice touches no other memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Fails where the kernel has no huge pages, which is as well.
    #[cfg(target_os = "linux")]
    // SAFETY: the mapping just made.
    unsafe {
        libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
    }
    Ok(NonNull::new(at.cast()).expect("mmap gives no null"))
}

/// # Safety
/// The memory is a whole mapping of the caller's, and not in use.
pub(crate) unsafe fn unmap(at: NonNull<u8>, len: usize) {
    // SAFETY: by the contract.
    unsafe { libc::munmap(at.as_ptr().cast(), len) };
}

/// # Safety
/// The memory is the caller's, in whole pages, and is not used in a way that `protection` forbids.
pub(crate) unsafe fn set_protection(at: NonNull<u8>, len: usize, protection: libc::c_int) -> io::Result<()> {
    // SAFETY: by the contract.
    match unsafe { libc::mprotect(at.as_ptr().cast(), len, protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the memory back to the system, and keeps the addresses. What is in it is lost, now or later.
///
/// # Safety
/// The memory is the caller's, in whole pages, and not in use.
pub(crate) unsafe fn discard(at: NonNull<u8>, len: usize) {
    // Elsewhere DONTNEED is a hint only.
    const DISCARD: libc::c_int = if cfg!(target_os = "linux") { libc::MADV_DONTNEED } else { libc::MADV_FREE };
    // Fails if it is locked (`mlockall`), which means that it is to stay.
    // SAFETY: by the contract.
    unsafe { libc::madvise(at.as_ptr().cast(), len, DISCARD) };
}

/// Makes the guard: [`guard_len`] bytes at `low`.
///
/// # Safety
/// They are the caller's, and not in use.
pub(crate) unsafe fn protect(low: NonNull<u8>, markers: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: by the contract.
    if markers && unsafe { install_markers(low, guard_len()) } {
        return Ok(());
    }
    // Also where markers have failed: locked memory takes none.
    let _ = markers;
    // SAFETY: by the contract.
    unsafe { set_protection(low, guard_len(), libc::PROT_NONE) }.map_err(|e| {
        let text = "no guard for a goroutine's stack; without MADV_GUARD_INSTALL (Linux 6.13) each stack takes two \
                    memory mappings, and vm.max_map_count limits these";
        context(text, e)
    })
}

/// The most guards that [`install_many_markers`] makes in one call.
pub(crate) const MANY: usize = 128;

/// Makes `n` guards, at `low` and each `stride` above it, in one call: that takes the kernel two thirds of the time that
/// as many calls take. False if it made some of them, or none: kernels from 6.13 on may refuse it.
///
/// # Safety
/// [`guard_len`] bytes at each are the caller's, and not in use.
#[cfg(target_os = "linux")]
pub(crate) unsafe fn install_many_markers(low: NonNull<u8>, stride: usize, n: usize) -> bool {
    assert!(n <= MANY);
    let mut guards = [const { libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 } }; MANY];
    for (i, guard) in guards[..n].iter_mut().enumerate() {
        *guard = libc::iovec { iov_base: low.as_ptr().wrapping_add(i * stride).cast(), iov_len: guard_len() };
    }
    // Not kept: in a child of `fork` it would still mean the parent.
    // SAFETY: takes numbers, and makes a descriptor or fails.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    if process < 0 {
        return false;
    }
    // SAFETY: of this process, by the descriptor just opened; the rest is the contract. It frees these pages and makes
    // them trap, or fails, perhaps after some of them.
    let made = unsafe {
        libc::syscall(libc::SYS_process_madvise, process, guards.as_ptr(), n, MADV_GUARD_INSTALL as libc::c_long, 0)
    };
    // SAFETY: opened above, and used no more.
    unsafe { libc::close(process as libc::c_int) };
    made == (n * guard_len()) as libc::c_long
}

#[cfg(not(target_os = "linux"))]
pub(crate) unsafe fn install_many_markers(_low: NonNull<u8>, _stride: usize, _n: usize) -> bool {
    false
}

#[cfg(target_os = "linux")]
const MADV_GUARD_INSTALL: libc::c_int = 102; // libc has no name for it yet

/// # Safety
/// The memory is the caller's, in whole pages, and it is not in use.
#[cfg(target_os = "linux")]
unsafe fn install_markers(at: NonNull<u8>, len: usize) -> bool {
    // SAFETY: by the contract; it frees these pages and makes them trap, or fails.
    unsafe { libc::madvise(at.as_ptr().cast(), len, MADV_GUARD_INSTALL) == 0 }
}

/// Whether the kernel has guard markers, and they trap: an emulator may take any advice for a hint, and agree.
#[cfg(target_os = "linux")]
pub(crate) fn markers_work() -> bool {
    static WORK: OnceLock<bool> = OnceLock::new();
    *WORK.get_or_init(|| {
        let Ok(at) = map(page(), libc::PROT_READ | libc::PROT_WRITE) else { return false };
        // SAFETY: the page mapped above.
        let work = unsafe { install_markers(at, page()) } && traps(at.as_ptr());
        // SAFETY: as mapped above.
        unsafe { unmap(at, page()) };
        work
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn markers_work() -> bool {
    false
}

/// Whether reading the byte would trap. The kernel tries it, as the name of a file.
#[cfg(target_os = "linux")]
pub(crate) fn traps(at: *const u8) -> bool {
    // SAFETY: the kernel checks each byte before it reads it.
    let found = unsafe { libc::access(at.cast(), libc::F_OK) };
    found != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

pub(crate) fn context(what: impl Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
