//! The C library's mutex.

use std::marker::PhantomData;

use sudog_sync::RawLock;

/// A `pthread_mutex_t` with default attributes as a [`RawLock`].
///
/// A wait with a deadline polls: `pthread_mutex_timedlock` takes a deadline of the wall clock, which may be set during
/// the wait, and Darwin has no such function at all.
#[derive(Debug)]
pub struct Pthread {
    /// The mutex, in a box: POSIX forbids to move a mutex that is in use, and a [`RawLock`] may be moved while it is
    /// locked.
    mutex: *mut libc::pthread_mutex_t,
}

/// The guard of a [`Pthread`]. The guard holds no data, and must be released on the thread of the acquisition.
pub type PthreadGuard = PhantomData<*mut ()>;

impl Pthread {
    fn attempt(&self) -> bool {
        // SAFETY: the mutex was initialised in `new`, and stays at its address until `self` is dropped.
        unsafe { libc::pthread_mutex_trylock(self.mutex) == 0 }
    }
}

// SAFETY: a `pthread_mutex_t` is made to be used by several threads, and does not move: it is in a box.
unsafe impl Send for Pthread {}
// SAFETY: all functions that take `&self` only call pthread functions, which several threads may call at once.
unsafe impl Sync for Pthread {}

// SAFETY: POSIX makes the promises of `RawLock`. POSIX leaves it undefined to lock the mutex again on the thread that
// holds it; glibc, musl and Darwin then wait for ever, as the trait expects.
unsafe impl RawLock for Pthread {
    type Guard = PthreadGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { mutex: Box::into_raw(Box::new(libc::PTHREAD_MUTEX_INITIALIZER)) }
    }

    #[inline]
    fn lock(&self) -> PthreadGuard {
        // SAFETY: the mutex was initialised in `new`, and stays at its address until `self` is dropped.
        let error = unsafe { libc::pthread_mutex_lock(self.mutex) };
        debug_assert_eq!(error, 0);
        PhantomData
    }

    #[inline]
    fn try_lock(&self) -> Option<PthreadGuard> {
        self.attempt().then_some(PhantomData)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: PthreadGuard) {
        // SAFETY: this thread holds the mutex, by the contract of `RawLock::unlock`.
        let error = unsafe { libc::pthread_mutex_unlock(self.mutex) };
        debug_assert_eq!(error, 0);
    }

    /// Tries to lock, as POSIX has no other way to ask. The lock may be held for the moment of the call.
    fn is_locked(&self) -> bool {
        let free = self.attempt();
        if free {
            // SAFETY: this thread holds the mutex since the successful `attempt` above.
            unsafe { libc::pthread_mutex_unlock(self.mutex) };
        }
        !free
    }
}

impl Drop for Pthread {
    fn drop(&mut self) {
        // POSIX forbids to destroy a locked mutex. If the mutex is locked, its guard was forgotten: leak the memory.
        if self.is_locked() {
            return;
        }
        // SAFETY: no thread holds the mutex, and no other thread can reach it; `new` took the pointer from a box.
        unsafe {
            libc::pthread_mutex_destroy(self.mutex);
            drop(Box::from_raw(self.mutex));
        }
    }
}
