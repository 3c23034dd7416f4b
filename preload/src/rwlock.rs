//! The functions of readers-writer locks. A writer holds the chosen lock and is inside the node's
//! [`RwWord`](crate::rw_word::RwWord); a reader is inside that word only.
//!
//! | glibc's kind | readers that come while a writer waits |
//! |---|---|
//! | `PREFER_READER` (default), `PREFER_WRITER` | enter, as in glibc |
//! | `PREFER_WRITER_NONRECURSIVE` | wait behind the writer |

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Instant;

use libc::{c_int, clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec};

use crate::backend::{self, Node, NodeRef};
use crate::errno;
use crate::glibc;
use crate::owner::me;
use crate::rw_word::{NotRead, Prefers};
use crate::time::Until;

/// A `pthread_rwlock_t`. All bits but `shared` and `kind` zero: an unlocked lock that has not been used.
#[repr(C)]
struct RwLock {
    node: NodeRef,
    /// The writer that is inside, by [`me`], or 0. A thread reads itself here only if it is the writer.
    writer: AtomicUsize,
    /// See [`crate::fork`].
    generation: AtomicU32,
    _rest: [u32; 2],
    /// glibc's `__shared`, at its place: not 0 if the lock is process-shared.
    shared: AtomicU32,
    _more: [u32; 4],
    /// glibc's `__flags`, at its place: the kind.
    kind: AtomicU32,
    _most: u32,
}

const _: () = assert!(size_of::<RwLock>() == size_of::<pthread_rwlock_t>());
const _: () = assert!(std::mem::offset_of!(RwLock, shared) == 28 && std::mem::offset_of!(RwLock, kind) == 48);

/// glibc's kind of a lock that lets no reader in while a writer waits.
const PREFER_WRITER_NONRECURSIVE: u32 = 2;

impl RwLock {
    /// # Safety
    ///
    /// `l` points to a lock that is alive for as long as the reference is used.
    #[inline(always)]
    unsafe fn of<'a>(l: *const pthread_rwlock_t) -> &'a Self {
        // SAFETY: a `pthread_rwlock_t` is as large and aligned as a `RwLock`, which has no invalid bits.
        unsafe { &*l.cast::<Self>() }
    }

    fn is_passed(&self) -> bool {
        self.shared.load(Relaxed) != 0
    }

    #[inline]
    fn node(&self) -> &'static Node {
        self.node.get_or_find(&self.generation, |old, fresh| {
            fresh.rw.copy_inside(&old.rw);
            if self.writer.load(Relaxed) == me() {
                // The forking thread releases the chosen lock before the word.
                // SAFETY: the node is of the chosen backend.
                unsafe { (backend::chosen().lock)(fresh) };
            }
        })
    }

    fn prefers(&self) -> Prefers {
        match self.kind.load(Relaxed) {
            PREFER_WRITER_NONRECURSIVE => Prefers::Writers,
            _ => Prefers::Readers,
        }
    }

    fn is_mine(&self) -> bool {
        self.writer.load(Relaxed) == me()
    }

    fn read(&self) -> c_int {
        if self.is_mine() {
            return libc::EDEADLK;
        }
        result_of(self.node().rw.read(self.prefers(), None), libc::EBUSY)
    }

    fn try_read(&self) -> c_int {
        result_of(self.node().rw.try_read(self.prefers()), libc::EBUSY)
    }

    /// # Safety
    ///
    /// `until` points to a time.
    unsafe fn read_until(&self, clock: clockid_t, until: *const timespec) -> c_int {
        // Refuse an invalid time first, as glibc does, even if the lock is free.
        // SAFETY: `until` points to a time, by the contract of `read_until`.
        let until = match unsafe { Until::new(clock, until) } {
            Ok(until) => until,
            Err(invalid) => return invalid,
        };
        if self.try_read() == 0 {
            return 0;
        }
        if self.is_mine() {
            return libc::EDEADLK;
        }
        let node = self.node();
        let result = std::cell::Cell::new(libc::ETIMEDOUT);
        until.wait(|deadline| {
            result.set(result_of(node.rw.read(self.prefers(), Some(deadline)), libc::ETIMEDOUT));
            result.get() != libc::ETIMEDOUT
        });
        result.get()
    }

    fn write(&self) -> c_int {
        if self.is_mine() {
            return libc::EDEADLK;
        }
        let node = self.node();
        // SAFETY: the node is of the chosen backend.
        unsafe { (backend::chosen().lock)(node) };
        node.rw.write(None);
        self.writer.store(me(), Relaxed);
        0
    }

    /// Tries to write, where `lock` and `enter` take the chosen lock and enter the word, if they can.
    fn write_by(&self, lock: impl FnOnce(&Node) -> bool, enter: impl FnOnce(&Node) -> bool) -> bool {
        let node = self.node();
        if !lock(node) {
            return false;
        }
        let inside = enter(node);
        if inside {
            self.writer.store(me(), Relaxed);
        } else {
            // SAFETY: the node is of the chosen backend, whose lock `lock` has taken.
            unsafe { (backend::chosen().unlock)(node) };
        }
        inside
    }

    fn try_write(&self) -> c_int {
        // SAFETY: the node is of the chosen backend.
        let lock = |node: &Node| unsafe { (backend::chosen().try_lock)(node) };
        if self.write_by(lock, |node| node.rw.try_write()) { 0 } else { libc::EBUSY }
    }

    /// # Safety
    ///
    /// `until` points to a time.
    unsafe fn write_until(&self, clock: clockid_t, until: *const timespec) -> c_int {
        // Refuse an invalid time first, as glibc does, even if the lock is free.
        // SAFETY: `until` points to a time, by the contract of `write_until`.
        let until = match unsafe { Until::new(clock, until) } {
            Ok(until) => until,
            Err(invalid) => return invalid,
        };
        if self.try_write() == 0 {
            return 0;
        }
        if self.is_mine() {
            return libc::EDEADLK;
        }
        let inside = until.wait(|deadline: Instant| {
            // SAFETY: the node is of the chosen backend.
            let lock = |node: &Node| unsafe { (backend::chosen().lock_until)(node, deadline) };
            self.write_by(lock, |node| node.rw.write(Some(deadline)))
        });
        if inside { 0 } else { libc::ETIMEDOUT }
    }

    fn unlock(&self) -> c_int {
        let node = self.node();
        if self.is_mine() {
            self.writer.store(0, Relaxed);
            // SAFETY: the node is of the chosen backend, and this thread holds the lock as the writer.
            unsafe { (backend::chosen().unlock)(node) };
            node.rw.leave_write();
            return 0;
        }
        if node.rw.leave_read() { 0 } else { libc::EPERM }
    }

    fn destroy(&self) -> c_int {
        if self.node.get(&self.generation).is_some_and(|node| node.rw.is_locked()) {
            return libc::EBUSY;
        }
        self.node.give_up(&self.generation);
        0
    }
}

/// Returns the result of a function for the result of a reader.
fn result_of(read: Result<(), NotRead>, busy: c_int) -> c_int {
    match read {
        Ok(()) => 0,
        Err(NotRead::Busy) => busy,
        Err(NotRead::TooMany) => libc::EAGAIN,
    }
}

/// Returns whether the lock is passed on to glibc.
///
/// # Safety
///
/// `l` points to a lock.
pub unsafe fn is_passed(l: *const pthread_rwlock_t) -> bool {
    // SAFETY: `l` points to a lock, by the contract.
    unsafe { RwLock::of(l) }.is_passed()
}

/// Makes a function of a readers-writer lock: glibc's if the lock is passed on, and otherwise the given one.
macro_rules! replaced {
    ($(fn $name:ident($($arg:ident: $type:ty),*) = $ours:expr;)+) => {$(
        #[doc = concat!("Replaces glibc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        ///
        /// POSIX's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(l: *mut pthread_rwlock_t, $($arg: $type),*) -> c_int {
            // SAFETY: `l` points to an initialised lock, and times are valid, by the contract of POSIX.
            unsafe {
                let lock = RwLock::of(l);
                if backend::chosen().passes_all || lock.is_passed() {
                    return glibc::$name(l, $($arg),*);
                }
                errno::keep(|| $ours(lock, $($arg),*))
            }
        }
    )+};
}

replaced! {
    fn pthread_rwlock_rdlock() = RwLock::read;
    fn pthread_rwlock_tryrdlock() = RwLock::try_read;
    fn pthread_rwlock_timedrdlock(until: *const timespec) =
        |lock: &RwLock, until| lock.read_until(libc::CLOCK_REALTIME, until);
    fn pthread_rwlock_clockrdlock(clock: clockid_t, until: *const timespec) =
        |lock: &RwLock, clock, until| lock.read_until(clock, until);
    fn pthread_rwlock_wrlock() = RwLock::write;
    fn pthread_rwlock_trywrlock() = RwLock::try_write;
    fn pthread_rwlock_timedwrlock(until: *const timespec) =
        |lock: &RwLock, until| lock.write_until(libc::CLOCK_REALTIME, until);
    fn pthread_rwlock_clockwrlock(clock: clockid_t, until: *const timespec) =
        |lock: &RwLock, clock, until| lock.write_until(clock, until);
    fn pthread_rwlock_unlock() = RwLock::unlock;
    fn pthread_rwlock_destroy() = RwLock::destroy;
}

/// Replaces glibc's `pthread_rwlock_init`.
///
/// # Safety
///
/// POSIX's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_init(l: *mut pthread_rwlock_t, attr: *const pthread_rwlockattr_t) -> c_int {
    let (mut shared, mut kind) = (libc::PTHREAD_PROCESS_PRIVATE, 0);
    // SAFETY: `l` points to memory for a lock, and `attr` to initialised attributes or is null, by the contract of POSIX.
    unsafe {
        if !attr.is_null() {
            libc::pthread_rwlockattr_getpshared(attr, &raw mut shared);
            pthread_rwlockattr_getkind_np(attr, &raw mut kind);
        }
        if backend::chosen().passes_all || shared != libc::PTHREAD_PROCESS_PRIVATE {
            return glibc::pthread_rwlock_init(l, attr);
        }
        l.write_bytes(0, 1);
        RwLock::of(l).kind.store(kind as u32, Relaxed);
    }
    0
}

unsafe extern "C" {
    fn pthread_rwlockattr_getkind_np(attr: *const pthread_rwlockattr_t, kind: *mut c_int) -> c_int;
}
