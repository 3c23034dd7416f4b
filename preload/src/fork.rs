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
//! Nodes of older generations are not used again, and memory of older generations is not freed.
//!
//! **No lock is held during a fork.** Other handlers of `fork`, such as jemalloc's, lock mutexes, and the owner of such
//! a mutex may be about to take a node. So the parent's threads may be changing nodes and heap when the child is made. The
//! child begins with no nodes and an empty heap, before the first use of either, which may come from a handler that
//! runs before this library's: the kernel fills a [`Page`] with zeros in a child of `fork`, but not in a child that
//! shares the parent's memory (`vfork`). Linux before 4.14 cannot do so. There the library's own handler begins the
//! generation, and a handler that runs before may wait for ever.
//!
//! **A signal handler that forks** may have interrupted a section of nodes or heap. The child must not return from such
//! a signal handler, as the section would go on in memory that the child has given up. POSIX allows such a child only
//! functions that are async-signal-safe; glibc's own `malloc` may wait for ever in such a `fork`.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use crate::alloc::HEAP;
use crate::backend::NODES;
use crate::futex_lock::FutexLock;

/// The number of forks between the first process and this one. Changed under the lock of the page.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Memory that has only zeros in a new child of `fork`.
struct Page {
    /// The generation plus 1, or 0 in a child that has not begun a generation of its own.
    number: AtomicU32,
    /// Held by the thread that begins a generation.
    lock: FutexLock,
}

/// The page, or null before the first use.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

/// The page where the kernel cannot fill a page with zeros.
static KEPT: Page = Page { number: AtomicU32::new(1), lock: FutexLock::new() };

/// Returns the generation of this process. A static initialiser gives generation 0.
///
/// Called before each use of nodes and heap. In a child of `fork`, the first call forgets those of the parent.
#[inline]
pub fn generation() -> u32 {
    // Acquire: pairs with the Release in `page`.
    // SAFETY: a pointer that is not null is to a page that is never freed.
    let page = unsafe { PAGE.load(Acquire).as_ref() };
    // Acquire: pairs with the Release in `begin`.
    match page.map_or(0, |page| page.number.load(Acquire)) {
        0 => begin(),
        number => number - 1,
    }
}

/// Begins a generation, if this process has none. Allocates nothing.
#[cold]
fn begin() -> u32 {
    let page = page();
    page.lock.lock();
    if page.number.load(Relaxed) == 0 {
        let forks = FORKS.load(Relaxed) + 1;
        FORKS.store(forks, Relaxed);
        // No other thread of this process has passed `generation` yet.
        NODES.forget();
        HEAP.forget();
        page.number.store(forks + 1, Release);
    }
    page.lock.unlock();
    page.number.load(Relaxed) - 1
}

/// Returns the page, and makes the page at the first use. Several threads may do so at once.
fn page() -> &'static Page {
    let mut page = PAGE.load(Acquire);
    if page.is_null() {
        let made = map().unwrap_or(ptr::from_ref(&KEPT).cast_mut());
        page = match PAGE.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(other) => {
                if made.cast_const() != &raw const KEPT {
                    // SAFETY: `map` has made this page, which no other thread has seen.
                    unsafe { libc::munmap(made.cast(), size_of::<Page>()) };
                }
                other
            }
        };
    }
    // SAFETY: `page` is `KEPT`, or was made by `map`, and is never freed.
    unsafe { &*page }
}

/// Maps a page that the kernel fills with zeros in a child of `fork`.
fn map() -> Option<*mut Page> {
    // SAFETY: the mapping is new and private, and the calls use no other memory. A page of memory is large and aligned
    // enough for a `Page`, which has no invalid bits.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(ptr::null_mut(), size_of::<Page>(), access, kind, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, size_of::<Page>(), libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, size_of::<Page>());
            return None;
        }
        let page = page.cast::<Page>();
        (*page).number.store(FORKS.load(Relaxed) + 1, Relaxed);
        Some(page)
    }
}

/// Begins the generation of a child before the child has other threads.
extern "C" fn child() {
    if PAGE.load(Relaxed).cast_const() == &raw const KEPT {
        KEPT.number.store(0, Relaxed);
        KEPT.lock.unlock();
    }
    generation();
}

/// Sets the handler of `fork`. Those of the program may run before or after this one.
pub fn watch() {
    generation();
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}
