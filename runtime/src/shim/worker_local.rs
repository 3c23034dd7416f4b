//! Thread-locals of workers, for goroutines that have thread-locals of their own (feature `move`).
//!
//! On such a goroutine a `thread_local!` belongs to the goroutine's stack. Hints, random states and the note of the running
//! goroutine belong to the worker: there are few workers and perhaps a million stacks. Each block of thread-locals has all
//! thread-locals of the program at the same distances from its thread pointer. So the distance between two blocks
//! leads from a thread-local in one of them to the same thread-local in the other.

use std::cell::Cell;
use std::mem::needs_drop;
use std::ptr;
use std::thread::LocalKey;

std::thread_local! {
    /// The distance from the current block of thread-locals to the block of the worker that runs it. 0 on a thread.
    pub(crate) static SHIFT: Cell<isize> = const { Cell::new(0) };
}

/// A thread-local of the worker: see the top of this file. Declared by [`worker_local!`](crate::worker_local).
pub struct WorkerLocal<T: 'static>(LocalKey<T>);

impl<T: 'static> WorkerLocal<T> {
    /// Wraps a thread-local.
    ///
    /// # Safety
    ///
    /// The initialiser of `key` is a constant: the value exists in each thread from the beginning.
    #[doc(hidden)]
    pub const unsafe fn new(key: LocalKey<T>) -> Self {
        const { assert!(!needs_drop::<T>(), "the worker's value has no destructor") }
        Self(key)
    }

    /// Calls `f` with the value of the worker, or of the calling thread if the thread is no worker.
    #[inline(always)]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        // Expose the address: the access from a goroutine's block comes through a number.
        let own = self.0.with(|own| ptr::from_ref(own).expose_provenance());
        let address = own.wrapping_add_signed(SHIFT.get());
        // SAFETY: `address` is that of this thread-local in the block of the worker's thread, which runs the caller: the
        // two blocks have the thread-local at the same distance, which `thread_block` has checked. The value is
        // initialised and is never dropped, by the contract of `new`. Only this thread uses the value.
        f(unsafe { &*ptr::with_exposed_provenance::<T>(address) })
    }
}

impl<T: Copy> WorkerLocal<Cell<T>> {
    /// Returns the value.
    #[inline(always)]
    pub fn get(&'static self) -> T {
        self.with(Cell::get)
    }

    /// Sets the value.
    #[inline(always)]
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }
}
