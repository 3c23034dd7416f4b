//! When the memory of what was removed is freed: once each operation that may still look at it has ended.
//!
//! On the real machine this is [`seize`], with a collector for each map. In a model, where loom does not see seize, it
//! is a list: all of it is freed with the map, and nothing may be put on it twice.

#[cfg(not(sudog_loom))]
pub(super) use real::{Collector, is_usable, slowly};
#[cfg(sudog_loom)]
pub(super) use stub::{Collector, is_usable, slowly};

/// How an operation gets its guard.
pub trait Enter {
    fn enter(self, collector: &Collector) -> impl Shield;
}

/// By the thread's, which is a count of readers, if it [is usable](is_usable).
pub struct OfThread;

/// By one of its own, which costs more.
pub struct Own;

impl Enter for OfThread {
    #[inline]
    fn enter(self, collector: &Collector) -> impl Shield {
        collector.enter()
    }
}

impl Enter for Own {
    fn enter(self, collector: &Collector) -> impl Shield {
        collector.enter_own()
    }
}

/// What can be freed by its address alone.
pub trait Free {
    /// # Safety
    /// It came from a box, nothing can reach it any more, and it is freed once.
    unsafe fn free(this: *mut Self);
}

/// What keeps alive all that was reached under it.
pub trait Shield {
    /// Frees this once no shield can reach it.
    ///
    /// # Safety
    /// No operation that begins from now on can reach it. It is retired once, and then may be freed.
    unsafe fn retire<T: Free>(&self, gone: *mut T);

    /// What this thread has retired is much, and not to wait for more.
    fn hasten(&self);
}

#[cfg(not(sudog_loom))]
mod real {
    use std::cell::Cell;

    use sudog_runtime::shim::system::OnceLock;

    use super::{Free, Shield};

    pub(in crate::map) struct Collector(seize::Collector);

    /// Of a thread's guard. seize keeps it in a thread-local, and panics once that has been destroyed; then the destructor of
    /// another thread-local may use a map. Destructors run in the order in which thread-locals were first used, or against
    /// it. So one of ours is used just before seize's: it is destroyed before that, or else just after it, with none between.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum State {
        Unused,
        Usable,
        Destroyed,
    }

    // `std`'s, on the simulated machine, too: seize's is.
    thread_local! {
        // Without a destructor, so it can be used for as long as the thread runs.
        static STATE: Cell<State> = const { Cell::new(State::Unused) };
        static ENDS: Ends = const { Ends };
    }

    /// For the first use of seize's thread-local.
    static OF_NO_MAP: OnceLock<seize::Collector> = OnceLock::new();

    struct Ends;

    impl Drop for Ends {
        fn drop(&mut self) {
            STATE.set(State::Destroyed);
        }
    }

    /// Whether the thread's guard can be used; else the operation gets one of its own, [`slowly`].
    #[inline]
    pub(in crate::map) fn is_usable() -> bool {
        STATE.get() == State::Usable
    }

    /// An operation with a guard of its own: the first of its thread, or one in a destructor of a thread-local.
    ///
    /// A closure that is made where this is called, so that what it captures is not stored where the guard is usable.
    #[cold]
    #[inline(never)]
    pub(in crate::map) fn slowly<R>(operation: impl FnOnce() -> R) -> R {
        if STATE.get() == State::Unused {
            ENDS.with(|_| ());
            drop(OF_NO_MAP.get_or_init(seize::Collector::new).enter());
            STATE.set(State::Usable);
        }
        operation()
    }

    impl Collector {
        pub fn new() -> Self {
            Self(seize::Collector::new())
        }

        #[inline]
        pub fn enter(&self) -> seize::LocalGuard<'_> {
            self.0.enter()
        }

        pub fn enter_own(&self) -> seize::OwnedGuard<'_> {
            self.0.enter_owned()
        }
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

    pub(in crate::map) fn is_usable() -> bool {
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

        pub fn enter_own(&self) -> Guard<'_> {
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
