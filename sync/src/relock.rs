//! Is a lock being taken back by `lock_api`?
//!
//! `MutexGuard::unlocked`, `bump` and their like unlock, and lock again in a destructor, for a guard that is there all
//! the while. Such a lock must not be left by a panic: `lock_api` would end the process, as its guard would unlock what
//! it has not. So a goroutine whose scheduler is over waits there until it has the lock. Anywhere else it is unwound.
//!
//! [`RawMutex::lock`](lock_api::RawMutex::lock) is not told which it is. But its caller is: by `#[track_caller]`, which
//! `lock_api` passes through its own methods, `Mutex::lock` has the place of the user's call, and a lock in one of the
//! destructors has a place in `lock_api`'s source. Where that is, a lock that is made for the purpose finds out once.
//!
//! So a lock's slow path goes through [`wait`], and what leads there from `RawMutex::lock` is `#[track_caller]`. Locks of
//! other crates are not: if a goroutine is unwound in one of these destructors, they end the process.

#[cfg(not(sudog_loom))]
pub use told::wait;

/// Runs the slow path of a lock.
#[cfg(sudog_loom)]
pub fn wait<T>(slow: impl FnOnce() -> T) -> T {
    slow()
}

#[cfg(not(sudog_loom))]
mod told {
    use std::panic::Location;
    use std::sync::OnceLock;

    use sudog_runtime::G;
    use sudog_runtime::goroutine::MustReturn;

    use crate::lock_api;

    /// Runs the slow path of a lock: if `lock_api` takes a lock back, the calling goroutine is not unwound in it.
    #[inline]
    #[track_caller]
    pub fn wait<T>(slow: impl FnOnce() -> T) -> T {
        let is_relock = G::is_goroutine() && is_relock(Location::caller());
        // `slow` is in one place, so that the compiler inlines it.
        // SAFETY: the guard is a local of this call, so the calling goroutine drops it as the call ends.
        let _held = if is_relock { unsafe { MustReturn::begin() } } else { MustReturn::no() };
        slow()
    }

    /// Whether `caller`, of a lock, is one of `lock_api`'s destructors. (True, too, if the program is built without
    /// locations: then all of them look alike.)
    fn is_relock(caller: &Location<'_>) -> bool {
        caller.file().starts_with(sources_of_lock_api())
    }

    /// The start of the path of each of its files.
    fn sources_of_lock_api() -> &'static str {
        static SOURCES: OnceLock<&'static str> = OnceLock::new();
        SOURCES.get_or_init(|| {
            let mutex = lock_api::Mutex::<Probe, ()>::new(());
            lock_api::MutexGuard::unlocked(&mut mutex.lock(), || ());
            // SAFETY: the mutex is unlocked, and no other thread can reach it.
            let relocked = unsafe { mutex.raw() }.0.get().expect("it has been locked");
            let file = relocked.file();
            &file[..file.rfind(['/', '\\']).map_or(file.len(), |at| at + 1)]
        })
    }

    /// Remembers its last owner.
    struct Probe(std::cell::Cell<Option<&'static Location<'static>>>);

    // SAFETY: one thread uses it, for one lock after another.
    unsafe impl lock_api::RawMutex for Probe {
        #[allow(clippy::declare_interior_mutable_const)] // required by the trait
        const INIT: Self = Self(std::cell::Cell::new(None));

        type Guard = lock_api::GuardNoSend;

        #[track_caller]
        fn lock(&self) -> Self::Guard {
            self.0.set(Some(Location::caller()));
            lock_api::GuardNoSend::new()
        }

        fn try_lock(&self) -> Option<Self::Guard> {
            None
        }

        unsafe fn unlock(&self, _: Self::Guard) {}

        fn is_locked(&self) -> bool {
            false
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_relock_is_told_from_a_lock() {
            let mutex = lock_api::Mutex::<Probe, ()>::new(());
            // SAFETY: only looked at.
            let by = || unsafe { mutex.raw() }.0.get().unwrap();
            let mut guard = mutex.lock();
            assert!(!is_relock(by()), "{}", by());
            lock_api::MutexGuard::unlocked(&mut guard, || assert!(!is_relock(by())));
            assert!(is_relock(by()), "{}", by());
        }
    }
}
