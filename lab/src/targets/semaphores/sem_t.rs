//! The C library's semaphore.

use std::io;

use sudog_sync::{Order, Semaphore, Wake};

/// A `sem_t` of this process as a [`Semaphore`].
///
/// It polls for a deadline: `sem_timedwait` takes its deadline by the wall clock, which may be set while one waits, and
/// `sem_clockwait` is glibc's alone.
pub struct SemT {
    /// Boxed: POSIX forbids to move one that is in use, and a [`Semaphore`] may be moved when no thread waits.
    sem: *mut libc::sem_t,
}

// SAFETY: sharing one among threads is what it is for.
unsafe impl Send for SemT {}
// SAFETY: as above.
unsafe impl Sync for SemT {}

impl SemT {
    /// How many wait, or are about to. For tests.
    #[must_use]
    pub fn waiters(&self) -> usize {
        // Where glibc keeps the number: in the second of four words; in the last on a machine without 64-bit atomics, or
        // which glibc takes for one, as i686.
        let word = if cfg!(target_pointer_width = "64") { 1 } else { 3 };
        // SAFETY: a sem_t has at least four aligned 32-bit words, which are only changed atomically.
        let waiters = unsafe { std::sync::atomic::AtomicU32::from_ptr(self.sem.cast::<u32>().add(word)) };
        waiters.load(std::sync::atomic::Ordering::Relaxed) as usize
    }
}

// SAFETY: POSIX makes these promises.
unsafe impl Semaphore for SemT {
    const LIFO: bool = false;
    const FIFO: bool = false;
    const HANDOFF: bool = false;
    const DEADLINES: bool = false;

    fn new(permits: u32) -> Self {
        // SAFETY: all zeroes are a valid value of a C structure that is about to be initialised.
        let sem = Box::into_raw(Box::new(unsafe { std::mem::zeroed::<libc::sem_t>() }));
        // SAFETY: live, and not in use yet.
        let error = unsafe { libc::sem_init(sem, 0, permits) };
        assert_eq!(error, 0, "sem_init: {}", io::Error::last_os_error());
        Self { sem }
    }

    #[inline]
    fn acquire(&self, _order: Order) {
        // SAFETY: initialised, and at its address until it is dropped. It fails if a signal comes.
        while unsafe { libc::sem_wait(self.sem) } != 0 {}
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        // SAFETY: as above.
        unsafe { libc::sem_trywait(self.sem) == 0 }
    }

    #[inline]
    fn release(&self, _wake: Wake) {
        // SAFETY: as above.
        let error = unsafe { libc::sem_post(self.sem) };
        assert_eq!(error, 0, "sem_post: {}", io::Error::last_os_error());
    }
}

impl Drop for SemT {
    fn drop(&mut self) {
        // SAFETY: no thread uses it: it is ours alone. It came from a box.
        unsafe {
            libc::sem_destroy(self.sem);
            drop(Box::from_raw(self.sem));
        }
    }
}
