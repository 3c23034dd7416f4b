//! Frees the memory of removed entries, lists and nodes, once each operation that may still look at the memory has
//! ended.
//!
//! On the real machine the implementation is [`seize`], with a collector for each map. In a model, where loom does not
//! see seize, the implementation is a list: all memory on the list is freed with the map, and no memory may be put on
//! the list twice.
//!
//! An operation has a guard, and a guard has a *registration*: a record by which threads that free memory learn that
//! the guard is open.
//!
//! | guard | registration | for |
//! |---|---|---|
//! | [`Collector::enter`] | the thread's, which seize keeps in a thread-local: a count of the thread's guards | operations |
//! | [`Collector::enter_owned`] | only this guard's | `range`; operations of a thread whose registration is [destroyed](is_registered) |
//!
//! `range` calls the user's function under its guard, and that function may wait. If `range` used the thread's
//! registration, goroutines of one thread that call `range` and wait in turns would keep the count above 0, and no
//! memory would be freed.
//!
//! **No guard outlives its thread's registration.** A guard is a variable of an operation, so a guard that is open
//! when a thread ends would be on the stack of a goroutine that the thread runs. A worker of the scheduler never ends;
//! the thread of a bubble ends only if all its goroutines have ended; and a goroutine ends by leaving its frames. A
//! goroutine that waits in `==` or `clone` for ever keeps its thread, and so the registration and the memory that the
//! guard protects. This does not exclude a coroutine of another library that is suspended in `==` or `clone`, and
//! whose thread ends before the coroutine goes on. `docs/goroutines.md`, "Soundness", names that case.
//!
//! **No destructor runs under a lock.** An owned guard has a lock, which is held while an object is retired, and while
//! retired objects are published, but never while the guard ends. Objects are freed only when a guard ends: a batch of
//! retired objects waits, among others, for the guard that retired them.

#[cfg(not(sudog_loom))]
pub(super) use real::{is_registered, slowly};
#[cfg(not(sudog_loom))]
pub(super) use seize::Collector;
#[cfg(sudog_loom)]
pub(super) use stub::{Collector, is_registered, slowly};

/// An object that can be freed given only its address.
pub trait Free {
    /// Frees the object.
    ///
    /// # Safety
    /// `this` came from a box. No operation can reach the object any more. The object is freed once.
    unsafe fn free(this: *mut Self);
}

/// A guard, which keeps alive all objects that were reached under it.
pub trait Shield {
    /// Frees `gone` once no shield can reach it.
    ///
    /// # Safety
    /// - `gone` comes from a box.
    /// - No operation that begins from now on can reach `gone`.
    /// - `gone` is retired once, and no other code frees `gone`.
    unsafe fn retire<T: Free>(&self, gone: *mut T);

    /// Publishes the objects that this registration has retired, without waiting for more objects. Called if the
    /// retired objects use so much memory that they must not wait.
    fn hasten(&self);
}

#[cfg(not(sudog_loom))]
mod real {
    use std::sync::OnceLock;

    use super::{Free, Shield};

    // Use `std`'s thread-local on the simulated machine, too, because seize uses `std`'s.
    thread_local! {
        /// A thread-local that is destroyed before seize's thread-local. `std` runs the destructors of a thread in the
        /// reverse order of their registration. The initialiser of `REGISTERED` registers seize's destructor, and the
        /// destructor of `REGISTERED` is registered after that.
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
        /// Does nothing. Exists only so that [`is_registered`] is false from now on.
        fn drop(&mut self) {}
    }

    /// Returns whether the thread's registration can be used. False in a destructor of another thread-local, once the
    /// registration is destroyed; such an operation runs [`slowly`], under an owned guard.
    #[inline]
    pub(in crate::map) fn is_registered() -> bool {
        REGISTERED.try_with(|_| ()).is_ok()
    }

    /// Runs an operation that has an owned guard.
    ///
    /// The caller makes the closure in the call of this function, so that the captured values are not stored on the
    /// path of a registered thread.
    #[cold]
    #[inline(never)]
    pub(in crate::map) fn slowly<R>(operation: impl FnOnce() -> R) -> R {
        operation()
    }

    impl<G: seize::Guard> Shield for G {
        #[inline]
        unsafe fn retire<T: Free>(&self, gone: *mut T) {
            // SAFETY: the contract of `retire` is the contract of `defer_retire`. `T::free` is safe to call: by the
            // contract of `retire`, `gone` came from a box, and no other code frees `gone`. Seize calls the function
            // once, when no guard can reach `gone`.
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

    /// A collector for models. Loom runs all threads of a model on a single thread of the machine, and switches
    /// between them only at its own operations, so a cell suffices.
    #[derive(Default)]
    pub(in crate::map) struct Collector(RefCell<Vec<Freeing>>);

    // SAFETY: loom runs all threads of a model on a single thread of the machine.
    unsafe impl Send for Collector {}
    // SAFETY: loom runs all threads of a model on a single thread of the machine, and switches only at its own
    // operations.
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
            // SAFETY: by the contract of `retire`, `gone` came from a box, and no other code frees `gone`. The closure
            // runs once, when the map is dropped, so no operation looks at `gone`.
            let free: Box<dyn FnOnce() + '_> = Box::new(move || unsafe { T::free(gone) });
            // SAFETY: the map owns the list, so the closure is gone before the data that the map's keys and values may
            // borrow.
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
