//! When the memory of what was removed is freed: once each operation that may still look at it has ended.
//!
//! On the real machine this is [`seize`], with a collector for each map. In a model, where loom does not see seize, it
//! is a list: all of it is freed with the map, and nothing may be put on it twice.
//!
//! An operation has a guard. seize gives each thread a *place*, the same in all collectors, by a thread-local of its own.
//!
//! | guard | place | for | what it removes |
//! |---|---|---|---|
//! | the thread's | the thread's; a count of its guards there | operations | seize frees it |
//! | one of its own | a place for this guard alone | `range`; operations in a destructor of a thread-local, once seize's is destroyed | the next operation with a thread's guard hands it to seize |
//!
//! So seize runs no destructor under the lock that a guard of its own has.
//!
//! **A goroutine that is left** in the user's code (`==`, `clone`) leaves its thread's count up. If the thread ends, its place is
//! given to others: a guard that takes it for itself marks it as inactive in the end, and a thread that has it later finds the
//! count up, does not mark it as active, and reads unprotected. So each thread counts its open guards; and if there are any
//! as it ends, no map frees what is removed from then on before the map itself is freed:
//!
//! | thread that ends with open guards | thread that reads unprotected | thread that removes |
//! |---|---|---|
//! | 1: sets `LEFT` | 1: gets the place, by a lock of seize that the first has had after its 1 | 1: unlinks an object |
//! | 2: seize gives the place back | 2: loads a pointer to the object | 2: loads `LEFT` |
//!
//! All of these stores and loads are sequentially consistent. If the reader gets the pointer, its load comes before the removal, and
//! after `LEFT` is set: so the remover sees `LEFT`. What was removed before `LEFT` was set the reader cannot reach.

#[cfg(not(sudog_loom))]
pub(super) use real::{Collector, begins, is_usable, slowly};
#[cfg(sudog_loom)]
pub(super) use stub::{Collector, begins, is_usable, slowly};

/// How an operation gets its guard.
pub trait Enter {
    fn enter(self, collector: &Collector) -> impl Shield;
}

/// The thread's, if [it can be used](is_usable).
pub struct OfThread;

/// One of its own.
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
    use std::mem;

    use sudog_runtime::shim::system::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
    use sudog_runtime::shim::system::{Mutex, OnceLock};

    use super::{Free, Shield};

    /// A thread has ended with open guards: see the top of this file.
    pub static LEFT: AtomicBool = AtomicBool::new(false);

    /// [`OPEN`] of a thread that has not used a map; and of one that has, but cannot use its guard any more.
    const UNUSED: i32 = -1;
    const DESTROYED: i32 = -2;

    // `std`'s, on the simulated machine, too: seize's is.
    thread_local! {
        /// How many guards of this thread are open, in all collectors; or one of the two above. Without a destructor, so it can
        /// be used for as long as the thread runs.
        static OPEN: Cell<i32> = const { Cell::new(UNUSED) };
        /// Used just before seize's thread-local, and just after it. Destructors run in the order in which thread-locals were first
        /// used, or against it: so one of these runs before seize's. (If another crate has used the same seize on this
        /// thread before, that holds only for the latter order, which is `std`'s on all systems that we know of.)
        static BEFORE: Ends = const { Ends };
        static AFTER: Ends = const { Ends };
    }

    struct Ends;

    impl Drop for Ends {
        fn drop(&mut self) {
            if OPEN.replace(DESTROYED) > 0 {
                LEFT.store(true, SeqCst);
            }
        }
    }

    /// Whether the thread's guard can be used. If not, and if it does not [begin](begins) to be, the operation gets one of its
    /// own, [`slowly`].
    #[inline]
    pub(in crate::map) fn is_usable() -> bool {
        OPEN.get() >= 0
    }

    /// Makes the guard of this thread usable, if this is the first use of a map there.
    #[cold]
    pub(in crate::map) fn begins() -> bool {
        static OF_NO_MAP: OnceLock<seize::Collector> = OnceLock::new();
        let begins = OPEN.get() == UNUSED;
        if begins {
            BEFORE.with(|_| ());
            drop(OF_NO_MAP.get_or_init(seize::Collector::new).enter());
            AFTER.with(|_| ());
            OPEN.set(0);
        }
        begins
    }

    /// Runs an operation that has a guard of its own.
    ///
    /// A closure that is made where this is called, so that what it captures is not stored where the thread's guard is usable.
    #[cold]
    #[inline(never)]
    pub(in crate::map) fn slowly<R>(operation: impl FnOnce() -> R) -> R {
        operation()
    }

    /// Of each map.
    pub(in crate::map) struct Collector {
        seize: seize::Collector,
        /// What has been removed, and is not seize's yet.
        kept: Mutex<Vec<Kept>>,
        /// Whether there is any.
        keeps: AtomicBool,
    }

    struct Kept {
        gone: *mut (),
        free: unsafe fn(*mut (), &seize::Collector),
    }

    // SAFETY: any thread may free it, as what seize has: a `Trie` is `Send` or `Sync` only if its keys and values are.
    unsafe impl Send for Kept {}

    impl Collector {
        pub fn new() -> Self {
            Self { seize: seize::Collector::new(), kept: Mutex::default(), keeps: AtomicBool::new(false) }
        }

        #[inline]
        pub fn enter(&self) -> OfThreadGuard<'_> {
            let guard = self.seize.enter();
            OPEN.set(OPEN.get() + 1);
            OfThreadGuard { _open: Open, guard, collector: self }
        }

        pub fn enter_own(&self) -> OwnGuard<'_> {
            OwnGuard { _guard: self.seize.enter_owned(), collector: self }
        }

        fn kept(&self) -> impl std::ops::DerefMut<Target = Vec<Kept>> + '_ {
            self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        #[cold]
        fn keep<T: Free>(&self, gone: *mut T) {
            self.kept().push(Kept { gone: gone.cast(), free: free_erased::<T> });
            // Relaxed: those that see it lock the list.
            self.keeps.store(true, Relaxed);
        }

        /// Hands to seize what guards of their own have removed.
        #[cold]
        fn retire_kept(&self, guard: &seize::LocalGuard<'_>) {
            let kept = {
                let mut kept = self.kept();
                // Here, after all of these were unlinked.
                if LEFT.load(SeqCst) {
                    return;
                }
                self.keeps.store(false, Relaxed);
                mem::take(&mut *kept)
            };
            for Kept { gone, free } in kept {
                // SAFETY: `keep`'s caller has promised what `retire` asks for; it is handed over once.
                unsafe { seize::Guard::defer_retire(guard, gone, free) };
            }
        }
    }

    /// All guards are gone, and so is the trie.
    impl Drop for Collector {
        fn drop(&mut self) {
            // One at a time: should a destructor panic, the others are leaked.
            for Kept { gone, free } in mem::take(&mut *self.kept()) {
                // SAFETY: `keep`'s caller has promised that nothing can reach it any more.
                unsafe { free(gone, &self.seize) };
            }
        }
    }

    /// # Safety
    ///
    /// That of [`Free::free`], for a `T`.
    unsafe fn free_erased<T: Free>(gone: *mut (), _: &seize::Collector) {
        // SAFETY: by the contract.
        unsafe { T::free(gone.cast()) };
    }

    pub(in crate::map) struct OfThreadGuard<'a> {
        /// Dropped first: when seize runs destructors, which may wait for ever, the place has been left.
        _open: Open,
        guard: seize::LocalGuard<'a>,
        collector: &'a Collector,
    }

    struct Open;

    impl Drop for Open {
        #[inline]
        fn drop(&mut self) {
            OPEN.set(OPEN.get() - 1);
        }
    }

    impl Shield for OfThreadGuard<'_> {
        #[inline]
        unsafe fn retire<T: Free>(&self, gone: *mut T) {
            if LEFT.load(SeqCst) {
                return self.collector.keep(gone);
            }
            if self.collector.keeps.load(Relaxed) {
                self.collector.retire_kept(&self.guard);
            }
            // SAFETY: the caller's promise is what seize asks for, and what `free` asks for is that and seize's.
            unsafe { seize::Guard::defer_retire(&self.guard, gone, |gone, _| T::free(gone)) };
        }

        fn hasten(&self) {
            seize::Guard::flush(&self.guard);
        }
    }

    pub(in crate::map) struct OwnGuard<'a> {
        _guard: seize::OwnedGuard<'a>,
        collector: &'a Collector,
    }

    impl Shield for OwnGuard<'_> {
        unsafe fn retire<T: Free>(&self, gone: *mut T) {
            self.collector.keep(gone);
        }

        fn hasten(&self) {}
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

    pub(in crate::map) fn begins() -> bool {
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
