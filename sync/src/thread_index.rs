//! Which of several shards a thread uses.

use sudog_runtime::shim::system::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(not(sudog_loom))]
mod place {
    use std::cell::Cell;

    use sudog_runtime::shim::system;

    system::thread_local! {
        // Without a destructor, so that destructors can use it.
        static INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Small numbers for threads, dealt as they first ask. A hint: nothing but performance may hang on it.
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

/// In a model, each execution deals anew.
#[cfg(sudog_loom)]
mod place {
    loom::lazy_static! {
        static ref NEXT: super::AtomicUsize = super::AtomicUsize::new(0);
    }

    loom::thread_local! {
        static INDEX: usize = super::deal(&NEXT);
    }

    /// The same, in a model.
    pub fn thread_index() -> usize {
        INDEX.with(|index| *index)
    }
}

pub use place::thread_index;

fn deal(next: &AtomicUsize) -> usize {
    next.fetch_add(1, Relaxed) & (usize::MAX >> 1)
}
