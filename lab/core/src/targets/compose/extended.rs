//! Extensions of slices of time: the system lets a thread finish its critical section before another thread gets the
//! processor.
//!
//! | machine | extension |
//! |---|---|
//! | simulated | 5 us at most: see `sudog_sim::request_slice_extension` |
//! | Linux 7.0 with glibc, which registers an `rseq` area of full size | as long as the system grants. *Untested*: written after the kernel's documentation (`Documentation/userspace-api/rseq.rst`), as no such kernel was at hand |
//! | others | none: names of such locks are refused |
//!
//! A contender asks before it locks, and ends the request after it has unlocked. The system clears a request when it
//! grants the request, so a contender that is preempted while it waits has no request left for its critical section.

use std::time::Instant;

use sudog_locks::capacitor::ArriveDepart;

/// The front end of a lock whose contenders ask for longer slices. All contenders are admitted at once.
#[derive(Debug)]
pub struct SliceExtension;

impl SliceExtension {
    /// Returns whether the system extends slices of the calling thread.
    pub fn is_here() -> bool {
        system::enable()
    }
}

impl ArriveDepart for SliceExtension {
    type Ticket = ();

    const DEADLINES: bool = false;
    const GATE: bool = false;

    fn with_limit(_: u32) -> Self {
        Self
    }

    fn limit(&self) -> u32 {
        u32::MAX
    }

    fn bound(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn arrive(&self) {
        system::request();
    }

    #[inline]
    fn try_arrive(&self) -> Option<()> {
        system::request();
        Some(())
    }

    fn arrive_until(&self, _: Instant) -> Option<()> {
        self.try_arrive()
    }

    #[inline]
    fn depart(&self, (): ()) {
        system::end();
    }
}

#[cfg(sudog_sim)]
mod system {
    pub(super) use sudog_sim::{end_slice_extension as end, request_slice_extension as request};

    pub(super) fn enable() -> bool {
        true
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64", not(sudog_sim)))]
mod system {
    use std::cell::Cell;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

    const PR_RSEQ_SLICE_EXTENSION: libc::c_int = 79;
    const PR_RSEQ_SLICE_EXTENSION_SET: libc::c_ulong = 2;
    const PR_RSEQ_SLICE_EXT_ENABLE: libc::c_ulong = 1;
    const SYS_RSEQ_SLICE_YIELD: libc::c_long = 471;

    /// The place of `slice_ctrl.request` in `struct rseq`; `slice_ctrl.granted` is the next byte.
    const REQUEST: isize = 28;

    thread_local! {
        /// The thread's request and grant. `None` if the system extends no slices; the outer `None`: not yet asked.
        static CONTROL: Cell<Option<Option<&'static [AtomicU8; 2]>>> = const { Cell::new(None) };
    }

    /// The distance from a thread's pointer to its rseq area, by glibc 2.35 and later.
    static OFFSET: LazyLock<Option<isize>> = LazyLock::new(|| {
        // SAFETY: the name is a C string.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
        // SAFETY: `__rseq_offset` is a constant of the type `ptrdiff_t`, by glibc's manual.
        (!symbol.is_null()).then(|| unsafe { symbol.cast::<isize>().read() })
    });

    #[cold]
    fn find() -> Option<&'static [AtomicU8; 2]> {
        let offset = (*OFFSET)?;
        // SAFETY: the call changes whether this thread may ask for extensions, and touches no memory of the program.
        let enabled = unsafe {
            libc::prctl(PR_RSEQ_SLICE_EXTENSION, PR_RSEQ_SLICE_EXTENSION_SET, PR_RSEQ_SLICE_EXT_ENABLE, 0, 0)
        };
        if enabled != 0 {
            return None;
        }
        let thread: *const u8;
        // SAFETY: on x86-64 Linux the first word of a thread's control block is the block's own address.
        unsafe {
            std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, preserves_flags, readonly))
        };
        // SAFETY: the prctl succeeds only if this thread has registered an rseq area of full size, which lies at `offset`
        // and has both bytes. The area lives as long as the thread, and only this thread uses the reference, as `CONTROL`
        // is thread-local. The kernel writes to the bytes on this thread only.
        Some(unsafe { &*thread.offset(offset + REQUEST).cast::<[AtomicU8; 2]>() })
    }

    #[inline]
    fn control() -> Option<&'static [AtomicU8; 2]> {
        CONTROL.get().unwrap_or_else(|| {
            let control = find();
            CONTROL.set(Some(control));
            control
        })
    }

    pub(super) fn enable() -> bool {
        control().is_some()
    }

    #[inline]
    pub(super) fn request() {
        if let Some([request, _]) = control() {
            request.store(1, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst); // the kernel looks at the byte on this thread
        }
    }

    #[inline]
    pub(super) fn end() {
        if let Some([request, granted]) = control() {
            compiler_fence(Ordering::SeqCst);
            request.store(0, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if granted.load(Ordering::Relaxed) != 0 {
                // SAFETY: the call has no arguments. It lets another thread run.
                unsafe { libc::syscall(SYS_RSEQ_SLICE_YIELD) };
            }
        }
    }
}

#[cfg(not(any(sudog_sim, all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))))]
mod system {
    pub(super) fn enable() -> bool {
        false
    }
    pub(super) fn request() {}
    pub(super) fn end() {}
}
