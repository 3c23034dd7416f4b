//! The system calls for stacks: mappings, protections, guards.

use std::fmt::Display;
use std::io;
use std::ops::Range;
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

/// Whole pages of memory that belong to this value alone. Code that uses an address from [`Pages::at`] must make sure that
/// the memory there is not taken away meanwhile, as with `Vec::as_mut_ptr`: the methods that change memory take `&mut self`.
///
/// The drop leaves the memory as it is: [`Pages::unmap`] gives the memory back.
pub(crate) struct Pages {
    /// The address of the first page.
    low: NonNull<u8>,
    /// The number of bytes: those of whole pages.
    len: usize,
}

// SAFETY: no thread has a special claim on the memory.
unsafe impl Send for Pages {}

impl Pages {
    /// No pages.
    pub(crate) const NONE: Self = Self { low: NonNull::dangling(), len: 0 };

    /// Maps memory of at least `len` bytes. Where `MAP_NORESERVE` has an effect, the memory counts as used only once the
    /// memory is touched.
    pub(crate) fn map(len: usize, protection: libc::c_int) -> io::Result<Self> {
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
        let low = NonNull::new(at.cast()).expect("mmap gives no null");
        Ok(Self { low, len: len.next_multiple_of(page()) })
    }

    /// Creates the owner of the `len` bytes at `low`.
    ///
    /// # Safety
    /// The bytes are whole pages of a mapping. They belong to the caller, and from now on to the new value.
    pub(crate) unsafe fn new(low: NonNull<u8>, len: usize) -> Self {
        Self { low, len }
    }

    /// Returns the address of the byte at this distance from the first byte.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len);
        offset_by(self.low, offset)
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Gives up the first `len` bytes, and returns their owner.
    pub(crate) fn split_to(&mut self, len: usize) -> Self {
        assert!(len.is_multiple_of(page()));
        let first = Self { low: self.low, len };
        *self = Self { low: self.at(len), len: self.len - len };
        first
    }

    /// Changes the protection of the first `len` bytes.
    pub(crate) fn set_protection(&mut self, len: usize, protection: libc::c_int) -> io::Result<()> {
        assert!(len <= self.len);
        // SAFETY: the pages of the first `len` bytes belong to this value.
        match unsafe { libc::mprotect(self.low.as_ptr().cast(), len, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives the memory back to the system, and keeps the addresses. The contents are lost, now or later.
    pub(crate) fn discard(&mut self, range: Range<usize>) {
        // On systems other than Linux, DONTNEED is only a hint.
        const DISCARD: libc::c_int = if cfg!(target_os = "linux") { libc::MADV_DONTNEED } else { libc::MADV_FREE };
        assert!(range.end <= self.len);
        // Ignore an error: the call fails if the memory is locked (`mlockall`), and then the memory is to stay.
        // SAFETY: the pages of the range belong to this value.
        unsafe { libc::madvise(self.at(range.start).as_ptr().cast(), range.len(), DISCARD) };
    }

    /// Makes a guard of the first [`guard_len`] bytes.
    pub(crate) fn guard(&mut self, markers: bool) -> io::Result<()> {
        if markers && self.install_markers(guard_len()) {
            return Ok(());
        }
        // Use PROT_NONE also where markers have failed: locked memory takes no markers.
        self.set_protection(guard_len(), libc::PROT_NONE).map_err(|e| {
            let text = "no guard for a goroutine's stack; without MADV_GUARD_INSTALL (Linux 6.13) each stack takes two \
                        memory mappings, and vm.max_map_count limits these";
            context(text, e)
        })
    }

    /// Makes `n` guards, at the first byte and at each `stride` above, in one call. The call takes the kernel two thirds of
    /// the time of `n` calls. Returns false if some of the guards, or none, were made: kernels from 6.13 on may refuse the
    /// call.
    #[cfg(target_os = "linux")]
    pub(crate) fn guard_many(&mut self, stride: usize, n: usize) -> bool {
        assert!(n <= MANY);
        let mut guards = [const { libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 } }; MANY];
        for (i, guard) in guards[..n].iter_mut().enumerate() {
            assert!(i * stride + guard_len() <= self.len);
            *guard = libc::iovec { iov_base: self.at(i * stride).as_ptr().cast(), iov_len: guard_len() };
        }
        // Do not keep the descriptor: in a child of `fork` it would still refer to the parent.
        // SAFETY: the call takes numbers, and makes a descriptor or fails.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
        if process < 0 {
            return false;
        }
        // SAFETY: the descriptor opened above is that of this process. The guards' pages belong to this value. The call
        // frees these pages and makes them trap, or fails, perhaps after some of them.
        let made = unsafe {
            libc::syscall(libc::SYS_process_madvise, process, guards.as_ptr(), n, MADV_GUARD_INSTALL as libc::c_long, 0)
        };
        // SAFETY: `process` was opened above, and is not used again.
        unsafe { libc::close(process as libc::c_int) };
        made == (n * guard_len()) as libc::c_long
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn guard_many(&mut self, _stride: usize, _n: usize) -> bool {
        false
    }

    /// Makes a guard of markers of the first `len` bytes. Returns false if the kernel refuses.
    #[cfg(target_os = "linux")]
    pub(crate) fn install_markers(&mut self, len: usize) -> bool {
        assert!(len <= self.len);
        // SAFETY: the pages of the first `len` bytes belong to this value. The call frees these pages and makes them trap,
        // or fails.
        unsafe { libc::madvise(self.low.as_ptr().cast(), len, MADV_GUARD_INSTALL) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn install_markers(&mut self, _len: usize) -> bool {
        false
    }

    /// Unmaps the memory. This value has no pages any more.
    pub(crate) fn unmap(&mut self) {
        let Self { low, len } = std::mem::replace(self, Self::NONE);
        if len > 0 {
            // SAFETY: the pages belonged to this value, and are not used through it any more.
            unsafe { libc::munmap(low.as_ptr().cast(), len) };
        }
    }
}

/// Returns the address of the byte at a distance above `low`, in the same mapping.
pub(crate) fn offset_by(low: NonNull<u8>, offset: usize) -> NonNull<u8> {
    low.map_addr(|low| low.saturating_add(offset))
}

/// The most guards that [`Pages::guard_many`] makes in one call.
pub(crate) const MANY: usize = 128;

#[cfg(target_os = "linux")]
const MADV_GUARD_INSTALL: libc::c_int = 102; // libc has no name for it yet

/// Returns whether the kernel has guard markers that trap. An emulator may treat each `madvise` as a hint, and report
/// success without making markers.
#[cfg(target_os = "linux")]
pub(crate) fn markers_work() -> bool {
    static WORK: OnceLock<bool> = OnceLock::new();
    *WORK.get_or_init(|| {
        let Ok(mut probe) = Pages::map(page(), libc::PROT_READ | libc::PROT_WRITE) else { return false };
        let work = probe.install_markers(page()) && traps(probe.at(0).as_ptr());
        probe.unmap();
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
