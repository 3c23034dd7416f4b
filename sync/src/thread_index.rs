//! The number of a thread, by which the thread chooses among several shards.

use sudog_runtime::shim::system::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(not(sudog_loom))]
mod place {
    use std::cell::Cell;

    use sudog_runtime::shim::system;

    system::thread_local! {
        // `INDEX` has no destructor, so that the destructors of other thread-locals can use `INDEX`.
        static INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Returns the number of the calling thread. The number is small, and is assigned at the thread's first call. Only
    /// performance may depend on the number.
    #[inline]
    pub fn thread_index() -> usize {
        match INDEX.get() {
            usize::MAX => first_time(),
            index => index,
        }
    }

    #[cold]
    fn first_time() -> usize {
        static NEXT: super::AtomicUsize = super::AtomicUsize::new(0);
        let index = super::deal(&NEXT);
        INDEX.set(index);
        index
    }
}

/// The version for models: each execution assigns the numbers anew.
#[cfg(sudog_loom)]
mod place {
    loom::lazy_static! {
        static ref NEXT: super::AtomicUsize = super::AtomicUsize::new(0);
    }

    loom::thread_local! {
        static INDEX: usize = super::deal(&NEXT);
    }

    /// Returns the number of the calling thread.
    pub fn thread_index() -> usize {
        INDEX.with(|index| *index)
    }
}

pub use place::thread_index;

fn deal(next: &AtomicUsize) -> usize {
    next.fetch_add(1, Relaxed) & (usize::MAX >> 1)
}
