//! When the memory of what was removed is freed: once each operation that may still look at it has ended.
//!
//! On the real machine this is [`seize`], with a collector for each map. In a model, where loom does not see seize, it
//! is a list: all of it is freed with the map, and nothing may be put on it twice.
//!
//! An operation has a guard, and a guard has a *registration*: a place that those who free memory look at.
//!
//! | guard | registration | for |
//! |---|---|---|
//! | [`Collector::enter`] | the thread's, which seize keeps in a thread-local: a count of the thread's guards | operations |
//! | [`Collector::enter_owned`] | of this guard alone | `range`; operations of a thread whose registration is [destroyed](is_registered) |
//!
//! `range` calls the user's function under its guard, and that function may wait. With the thread's registration,
//! goroutines of one thread that range and wait in turns would keep the count above 0, and no memory would be freed.
//!
//! **No guard outlives its thread's registration.** A guard is a variable of an operation, so a guard that is open as a
//! thread ends would be on the stack of a goroutine that the thread runs. A worker of the scheduler never ends; the
//! thread of a bubble ends only if all its goroutines have ended; and a goroutine ends by leaving its frames. A goroutine
//! that waits in `==` or `clone` for ever keeps its thread, and so the registration and what its guard protects. What this
//! does not exclude: a coroutine of another library that is suspended in `==` or `clone`, and whose thread ends before the
//! coroutine goes on. `docs/goroutines.md`, "Soundness", names that case.
//!
//! **No destructor runs under a lock.** An owned guard has a lock, which is held as an object is retired or as the
//! retired are published, never as the guard ends. The guard itself is one of those that a batch waits for: so the batch is
//! freed as a guard ends.

#[cfg(not(sudog_loom))]
pub(super) use real::{is_registered, slowly};
#[cfg(not(sudog_loom))]
pub(super) use seize::Collector;
#[cfg(sudog_loom)]
pub(super) use stub::{Collector, is_registered, slowly};

/// An object that can be freed by its address alone.
pub trait Free {
    /// # Safety
    /// It came from a box, nothing can reach it any more, and it is freed once.
    unsafe fn free(this: *mut Self);
}

/// A guard: keeps alive all that was reached under it.
pub trait Shield {
    /// Frees this once no shield can reach it.
    ///
    /// # Safety
    /// No operation that begins from now on can reach it. It is retired once, and then may be freed.
    unsafe fn retire<T: Free>(&self, gone: *mut T);

    /// Publishes what this registration has retired: it is much, and not to wait for more.
    fn hasten(&self);
}

#[cfg(not(sudog_loom))]
mod real {
    use std::sync::OnceLock;

    use super::{Free, Shield};

    // `std`'s, on the simulated machine, too: seize's is.
    thread_local! {
        /// Destroyed before seize's thread-local: `std` runs the destructors of a thread in the reverse order of their
        /// registration, and this one is registered after its initialiser has returned, which registers seize's.
        static REGISTERED: Registered = Registered::new();
    }

    struct Registered;

    impl Registered {
        fn new() -> Self {
            static OF_NO_MAP: OnceLock<seize::Collector> = OnceLock::new();
            drop(OF_NO_MAP.get_or_init(seize::Collector::new).enter());
            Self
        }
    }

    impl Drop for Registered {
        /// Only there so that [`is_registered`] is false from now on.
        fn drop(&mut self) {}
    }

    /// Whether the thread's registration can be used. False in a destructor of another thread-local, once the registration
    /// is destroyed; such an operation runs [`slowly`], under an owned guard.
    #[inline]
    pub(in crate::map) fn is_registered() -> bool {
        REGISTERED.try_with(|_| ()).is_ok()
    }

    /// Runs an operation that has an owned guard.
    ///
    /// A closure that is made where this is called, so that what it captures is not stored where the thread is registered.
    #[cold]
    #[inline(never)]
    pub(in crate::map) fn slowly<R>(operation: impl FnOnce() -> R) -> R {
        operation()
    }

    impl<G: seize::Guard> Shield for G {
        #[inline]
        unsafe fn retire<T: Free>(&self, gone: *mut T) {
            // SAFETY: the caller's promise is what seize asks for, and what `free` asks for is that and seize's.
            unsafe { self.defer_retire(gone, |gone, _| T::free(gone)) };
        }

        fn hasten(&self) {
            self.flush();
        }
    }
}

#[cfg(sudog_loom)]
mod stub {
    use std::cell::RefCell;

    use super::{Free, Shield};

    type Freeing = (*mut (), Box<dyn FnOnce()>);

    /// Loom runs all threads of a model on one thread of the machine, and switches between them at its own operations
    /// only: so a cell will do.
    #[derive(Default)]
    pub(in crate::map) struct Collector(RefCell<Vec<Freeing>>);

    // SAFETY: see above.
    unsafe impl Send for Collector {}
    // SAFETY: see above.
    unsafe impl Sync for Collector {}

    pub(in crate::map) struct Guard<'a>(&'a Collector);

    pub(in crate::map) fn is_registered() -> bool {
        true
    }

    pub(in crate::map) fn slowly<R>(operation: impl FnOnce() -> R) -> R {
        operation()
    }

    impl Collector {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn enter(&self) -> Guard<'_> {
            Guard(self)
        }

        pub fn enter_owned(&self) -> Guard<'_> {
            Guard(self)
        }
    }

    impl Shield for Guard<'_> {
        unsafe fn retire<T: Free>(&self, gone: *mut T) {
            let mut list = self.0.0.borrow_mut();
            assert!(list.iter().all(|(other, _)| *other != gone.cast()), "retired twice");
            // SAFETY: the caller's promise; it is called once, with the map, so when nothing looks at it.
            let free: Box<dyn FnOnce() + '_> = Box::new(move || unsafe { T::free(gone) });
            // SAFETY: the map owns the list, so it ends before what its keys and values may borrow.
            let free = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(free) };
            list.push((gone.cast(), free));
        }

        fn hasten(&self) {}
    }

    impl Drop for Collector {
        fn drop(&mut self) {
            for (_, free) in self.0.take() {
                free();
            }
        }
    }
}
