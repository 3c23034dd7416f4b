//! A child of `fork`: it has one thread, and locks in which the parent's other threads may have stood.
//!
//! Each mutex, condition and readers-writer lock stores the generation of the process in which the object was last met.
//! A child is of a new generation. An object of an older generation is mended before its first use:
//!
//! | object | in the child |
//! |---|---|
//! | mutex | gets a fresh node: unlocked; or locked by the forking thread; or, if another thread held the mutex, locked for ever, as POSIX has it |
//! | readers-writer lock | likewise; readers stay counted |
//! | condition | has no waiters |
//!
//! Nodes of older generations are not used again.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use crate::alloc::HEAP;
use crate::backend::NODES;
use crate::mutex::me;

/// The number of forks between the first process and this one. Changed only while the process has a single thread.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns the generation of this process. A static initialiser gives generation 0.
#[inline]
pub fn generation() -> u32 {
    // Relaxed: written before any other thread of the process is started.
    GENERATION.load(Relaxed)
}

/// The thread that forks and holds the locks of nodes and heap, by `pthread_self`, or 0.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Returns whether the calling thread is between `prepare` and `parent` or `child`. The thread then uses nodes and heap
/// without locking them again: other handlers, such as jemalloc's, lock mutexes there.
#[inline]
pub fn is_forking() -> bool {
    // Relaxed: a thread reads itself here only if it has written itself.
    FORKING.load(Relaxed) == me()
}

extern "C" fn prepare() {
    // In the order in which a thread locks both.
    NODES.lock();
    HEAP.lock.lock();
    FORKING.store(me(), Relaxed);
}

extern "C" fn parent() {
    FORKING.store(0, Relaxed);
    HEAP.lock.unlock();
    NODES.unlock();
}

extern "C" fn child() {
    GENERATION.store(generation().wrapping_add(1), Relaxed);
    NODES.forget();
    parent();
}

/// Sets the handlers of `fork`. Those of the program may run before or after these.
pub fn watch() {
    // SAFETY: the three handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}
