//! SemT: an adapter for the C library's semaphore.

use std::io;

use sudog_sync::{Order, Semaphore, Wake};

/// A `sem_t` of this process as a [`Semaphore`].
///
/// A wait with a deadline polls: `sem_timedwait` takes a deadline of the wall clock, which may be set during the wait,
/// and only glibc has `sem_clockwait`.
pub struct SemT {
    /// The semaphore, in a box: POSIX forbids to move a semaphore that is in use, and a [`Semaphore`] may be moved when
    /// no thread waits.
    sem: *mut libc::sem_t,
}

// SAFETY: a `sem_t` is made to be used by several threads, and does not move: it is in a box.
unsafe impl Send for SemT {}
// SAFETY: all functions that take `&self` only call semaphore functions, which several threads may call at once, and
// read one word atomically.
unsafe impl Sync for SemT {}

impl SemT {
    /// Returns the number of threads that wait, or are about to. For tests.
    pub fn waiters(&self) -> usize {
        // The place of the number in glibc: the second of four words; the last of them on a machine without 64-bit
        // atomics, or on a machine such as i686, for which glibc assumes that there are none.
        let word = if cfg!(target_pointer_width = "64") { 1 } else { 3 };
        // SAFETY: a `sem_t` has at least four aligned 32-bit words, which are only changed atomically; `self.sem` is
        // live.
        let waiters = unsafe { std::sync::atomic::AtomicU32::from_ptr(self.sem.cast::<u32>().add(word)) };
        waiters.load(std::sync::atomic::Ordering::Relaxed) as usize
    }
}

// SAFETY: POSIX makes the promises of `Semaphore`.
unsafe impl Semaphore for SemT {
    const LIFO: bool = false;
    const FIFO: bool = false;
    const HANDOFF: bool = false;
    const DEADLINES: bool = false;

    fn new(permits: u32) -> Self {
        // SAFETY: all zeroes are a valid value of a C structure that is about to be initialised.
        let sem = Box::into_raw(Box::new(unsafe { std::mem::zeroed::<libc::sem_t>() }));
        // SAFETY: `sem` is live, and no thread uses it yet.
        let error = unsafe { libc::sem_init(sem, 0, permits) };
        assert_eq!(error, 0, "sem_init: {}", io::Error::last_os_error());
        Self { sem }
    }

    #[inline]
    fn acquire(&self, _order: Order) {
        // SAFETY: `self.sem` was initialised in `new`, and stays at its address until `self` is dropped. The call fails
        // if a signal comes, so it is repeated.
        while unsafe { libc::sem_wait(self.sem) } != 0 {}
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        // SAFETY: `self.sem` was initialised in `new`, and stays at its address until `self` is dropped.
        unsafe { libc::sem_trywait(self.sem) == 0 }
    }

    #[inline]
    fn release(&self, _wake: Wake) {
        // SAFETY: `self.sem` was initialised in `new`, and stays at its address until `self` is dropped.
        if unsafe { libc::sem_post(self.sem) } != 0 {
            sudog_runtime::fatal(&format!("sem_post: {}", io::Error::last_os_error()));
        }
    }
}

impl Drop for SemT {
    fn drop(&mut self) {
        // SAFETY: `drop` has exclusive access, so no other thread uses `self.sem`; `new` took the pointer from a box.
        unsafe {
            libc::sem_destroy(self.sem);
            drop(Box::from_raw(self.sem));
        }
    }
}
