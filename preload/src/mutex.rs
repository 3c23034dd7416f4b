//! The functions of mutexes.
//!
//! | kind | the owner locks again | another thread unlocks |
//! |---|---|---|
//! | default, normal, adaptive | waits for ever | `EPERM` |
//! | errorcheck | `EDEADLK` | `EPERM` |
//! | recursive | counts | `EPERM` |
//! | robust, priority-inheriting, priority-protected, process-shared | glibc's | glibc's |

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize};

use libc::{c_int, clockid_t, pthread_mutex_t, pthread_mutexattr_t, timespec};

use crate::backend::{self, Node, NodeRef};
use crate::errno;
use crate::glibc;
use crate::owner::me;
use crate::time::{self, Until};

/// A `pthread_mutex_t`. All bits but `kind` zero: an unlocked mutex that has not been used.
#[repr(C)]
struct Mutex {
    node: NodeRef,
    /// The owner, by [`me`], or 0. A thread reads itself here only if it is the owner.
    owner: AtomicUsize,
    /// glibc's `__kind`, at its place.
    kind: AtomicI32,
    /// The number of locks of a recursive mutex after the first. Only the owner accesses it.
    count: AtomicU32,
    /// See [`crate::fork`].
    generation: AtomicU32,
    _rest: [u32; 3],
}

const _: () = assert!(size_of::<Mutex>() == size_of::<pthread_mutex_t>());
const _: () = assert!(std::mem::offset_of!(Mutex, kind) == 16);

/// The bits of glibc's robust, priority-inheriting, priority-protected and process-shared mutexes.
const PASSED: i32 = 16 | 32 | 64 | 128;
const TYPE: i32 = 3;

impl Mutex {
    /// # Safety
    ///
    /// `m` points to a mutex that is alive for as long as the reference is used.
    #[inline(always)]
    unsafe fn of<'a>(m: *const pthread_mutex_t) -> &'a Self {
        // SAFETY: a `pthread_mutex_t` is as large and aligned as a `Mutex`, which has no invalid bits.
        unsafe { &*m.cast::<Self>() }
    }

    #[inline(always)]
    fn is_passed(&self) -> bool {
        self.kind.load(Relaxed) & PASSED != 0
    }

    #[inline(always)]
    fn type_is(&self, wanted: c_int) -> bool {
        self.kind.load(Relaxed) & TYPE == wanted
    }

    #[inline(always)]
    fn node(&self) -> &'static Node {
        self.node.get_or_find(&self.generation, |_, fresh| {
            if self.owner.load(Relaxed) != 0 {
                // SAFETY: the node is of the chosen backend.
                unsafe { (backend::chosen().lock)(fresh) };
            }
        })
    }

    #[inline(always)]
    fn is_mine(&self) -> bool {
        self.owner.load(Relaxed) == me()
    }

    /// Locks again on the thread of the owner, if the kind allows. `None`: the caller must wait.
    #[inline(always)]
    fn relock(&self, deadlock: c_int) -> Option<c_int> {
        if self.kind.load(Relaxed) & TYPE == 0 || !self.is_mine() {
            return None;
        }
        match self.kind.load(Relaxed) & TYPE {
            libc::PTHREAD_MUTEX_ERRORCHECK => Some(deadlock),
            libc::PTHREAD_MUTEX_RECURSIVE => Some(match self.count.load(Relaxed).checked_add(1) {
                Some(count) => {
                    self.count.store(count, Relaxed);
                    0
                }
                None => libc::EAGAIN,
            }),
            _ => None,
        }
    }

    #[inline(always)]
    fn lock(&self) -> c_int {
        self.relock(libc::EDEADLK).unwrap_or_else(|| {
            let node = self.node();
            // SAFETY: the node is of the chosen backend.
            unsafe { (backend::chosen().lock)(node) };
            self.owner.store(me(), Relaxed);
            0
        })
    }

    #[inline(always)]
    fn try_lock(&self) -> c_int {
        self.relock(libc::EBUSY).unwrap_or_else(|| {
            let node = self.node();
            // SAFETY: the node is of the chosen backend.
            if !unsafe { (backend::chosen().try_lock)(node) } {
                return libc::EBUSY;
            }
            self.owner.store(me(), Relaxed);
            0
        })
    }

    /// # Safety
    ///
    /// `until` points to a time.
    unsafe fn lock_until(&self, clock: clockid_t, until: *const timespec) -> c_int {
        // In this order, as in glibc: an unknown clock is refused in any case, nanoseconds only if the mutex is not free.
        if !time::is_known(clock) {
            return libc::EINVAL;
        }
        if let Some(result) = self.relock(libc::EDEADLK) {
            return result;
        }
        if self.try_lock() == 0 {
            return 0;
        }
        let node = self.node();
        // SAFETY: `until` points to a time, by the contract of `lock_until`.
        match unsafe { Until::new(clock, until) } {
            Err(invalid) => invalid,
            // SAFETY: the node is of the chosen backend.
            Ok(until) if until.wait(|deadline| unsafe { (backend::chosen().lock_until)(node, deadline) }) => {
                self.owner.store(me(), Relaxed);
                0
            }
            Ok(_) => libc::ETIMEDOUT,
        }
    }

    #[inline(always)]
    fn unlock(&self) -> c_int {
        if !self.is_mine() {
            return libc::EPERM;
        }
        let count = self.count.load(Relaxed);
        if count > 0 {
            self.count.store(count - 1, Relaxed);
            return 0;
        }
        let node = self.node();
        self.owner.store(0, Relaxed);
        // The mutex may be freed as soon as another thread has locked, so only the node is used from here.
        // SAFETY: the node is of the chosen backend, and this thread is the owner.
        unsafe { (backend::chosen().unlock)(node) };
        0
    }
}

/// Returns whether the mutex is passed on to glibc.
///
/// # Safety
///
/// `m` points to a mutex.
pub unsafe fn is_passed(m: *const pthread_mutex_t) -> bool {
    // SAFETY: `m` points to a mutex, by the contract.
    backend::chosen().passes_all || unsafe { Mutex::of(m) }.is_passed()
}

/// Returns whether the mutex is recursive.
///
/// # Safety
///
/// `m` points to a mutex.
pub unsafe fn is_recursive(m: *const pthread_mutex_t) -> bool {
    // SAFETY: `m` points to a mutex, by the contract.
    unsafe { Mutex::of(m) }.type_is(libc::PTHREAD_MUTEX_RECURSIVE)
}

/// Returns whether the calling thread has locked the mutex, which is not passed on.
///
/// # Safety
///
/// `m` points to a mutex.
pub unsafe fn is_mine(m: *const pthread_mutex_t) -> bool {
    // SAFETY: `m` points to a mutex, by the contract.
    unsafe { Mutex::of(m) }.is_mine()
}

/// Makes a function of a mutex: glibc's if the mutex is passed on, and otherwise the given one.
macro_rules! replaced {
    ($(fn $name:ident($($arg:ident: $type:ty),*) = $ours:expr;)+) => {$(
        #[doc = concat!("Replaces glibc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        ///
        /// POSIX's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(m: *mut pthread_mutex_t, $($arg: $type),*) -> c_int {
            // SAFETY: `m` points to an initialised mutex, and times are valid, by the contract of POSIX.
            unsafe {
                let mutex = Mutex::of(m);
                if backend::chosen().passes_all || mutex.is_passed() {
                    return glibc::$name(m, $($arg),*);
                }
                errno::keep(|| $ours(mutex, $($arg),*))
            }
        }
    )+};
}

replaced! {
    fn pthread_mutex_lock() = Mutex::lock;
    fn pthread_mutex_trylock() = Mutex::try_lock;
    fn pthread_mutex_unlock() = Mutex::unlock;
    fn pthread_mutex_timedlock(until: *const timespec) =
        |mutex: &Mutex, until| mutex.lock_until(libc::CLOCK_REALTIME, until);
    fn pthread_mutex_clocklock(clock: clockid_t, until: *const timespec) =
        |mutex: &Mutex, clock, until| mutex.lock_until(clock, until);
    fn pthread_mutex_destroy() = |mutex: &Mutex| {
        if mutex.owner.load(Relaxed) != 0 {
            return libc::EBUSY;
        }
        mutex.node.give_up(&mutex.generation);
        mutex.kind.store(-1, Relaxed); // as glibc does; a use is passed on, and refused there
        0
    };
}

/// Replaces glibc's `pthread_mutex_init`.
///
/// # Safety
///
/// POSIX's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(m: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t) -> c_int {
    let mut kind = libc::PTHREAD_MUTEX_DEFAULT;
    // SAFETY: `m` points to memory for a mutex, and `attr` to initialised attributes or is null, by the contract of POSIX.
    unsafe {
        if backend::chosen().passes_all {
            return glibc::pthread_mutex_init(m, attr);
        }
        if !attr.is_null() {
            let (mut shared, mut robust, mut protocol) = (0, 0, 0);
            libc::pthread_mutexattr_getpshared(attr, &raw mut shared);
            libc::pthread_mutexattr_getrobust(attr, &raw mut robust);
            libc::pthread_mutexattr_getprotocol(attr, &raw mut protocol);
            if (shared, robust, protocol)
                != (libc::PTHREAD_PROCESS_PRIVATE, libc::PTHREAD_MUTEX_STALLED, libc::PTHREAD_PRIO_NONE)
            {
                return glibc::pthread_mutex_init(m, attr);
            }
            pthread_mutexattr_gettype(attr, &raw mut kind);
        }
        m.write_bytes(0, 1);
        Mutex::of(m).kind.store(kind & TYPE, Relaxed);
    }
    0
}

unsafe extern "C" {
    fn pthread_mutexattr_gettype(attr: *const pthread_mutexattr_t, kind: *mut c_int) -> c_int;
}
