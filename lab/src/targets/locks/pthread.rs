//! The C library's mutex.

use std::marker::PhantomData;

use sudog_sync::RawLock;

/// A `pthread_mutex_t` with default attributes as a [`RawLock`].
///
/// It polls for a deadline: `pthread_mutex_timedlock` takes its deadline by the wall clock, which may be set while one
/// waits, and Darwin has none at all.
#[derive(Debug)]
pub struct Pthread {
    /// Boxed: POSIX forbids to move one that is in use, and a [`RawLock`] may be moved while it is locked.
    mutex: *mut libc::pthread_mutex_t,
}

/// What an acquisition of a [`Pthread`] hands to its release: nothing, on the same thread.
pub type PthreadGuard = PhantomData<*mut ()>;

impl Pthread {
    fn attempt(&self) -> bool {
        // SAFETY: initialised, and at its address until it is dropped.
        unsafe { libc::pthread_mutex_trylock(self.mutex) == 0 }
    }
}

// SAFETY: sharing one among threads is what it is for.
unsafe impl Send for Pthread {}
// SAFETY: as above.
unsafe impl Sync for Pthread {}

// SAFETY: POSIX makes these promises. To lock it again on the thread that holds it is undefined there; glibc, musl and
// Darwin wait for ever, as the trait expects.
unsafe impl RawLock for Pthread {
    type Guard = PthreadGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { mutex: Box::into_raw(Box::new(libc::PTHREAD_MUTEX_INITIALIZER)) }
    }

    #[inline]
    fn lock(&self) -> PthreadGuard {
        // SAFETY: initialised, and at its address until it is dropped.
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
        // SAFETY: held, by this thread, by the contract.
        let error = unsafe { libc::pthread_mutex_unlock(self.mutex) };
        debug_assert_eq!(error, 0);
    }

    /// Asks by trying: POSIX has no other way. For that moment the lock may be held.
    fn is_locked(&self) -> bool {
        let free = self.attempt();
        if free {
            // SAFETY: held, by this thread, since the line above.
            unsafe { libc::pthread_mutex_unlock(self.mutex) };
        }
        !free
    }
}

impl Drop for Pthread {
    fn drop(&mut self) {
        // POSIX forbids to destroy a locked one. Its guard was forgotten: so is its memory.
        if self.is_locked() {
            return;
        }
        // SAFETY: no thread holds it, and no other thread can reach it; `new` took it from a box.
        unsafe {
            libc::pthread_mutex_destroy(self.mutex);
            drop(Box::from_raw(self.mutex));
        }
    }
}
