//! The start of the library, before the program's `main`.

use libc::{c_int, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t};

use crate::{backend, cond, fork, glibc, mutex, rwlock};

/// Ends the process with a message, and status 2.
#[cold]
pub fn refuse(message: &str) -> ! {
    let message = format!("sudog-preload: {message}\n");
    // SAFETY: the pointer and the length are those of `message`. `_exit` has no precondition.
    unsafe {
        libc::write(2, message.as_ptr().cast(), message.len());
        libc::_exit(2)
    }
}

/// The constructor.
extern "C" fn start() {
    let passes_all = backend::chosen().passes_all;
    fork::watch();
    if !passes_all && !layout_is_known() {
        refuse("this C library lays its locks out in a way that is not known here");
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Returns whether glibc notes process-shared objects where this library looks for them. glibc's functions make an
/// object of each sort, which is not used.
fn layout_is_known() -> bool {
    // SAFETY:
    // - Attributes and objects are memory of the right size and alignment, and are initialised before they are used.
    // - All of them are without pointers to memory that would have to be freed.
    unsafe {
        let mut attr: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attr);
        libc::pthread_mutexattr_setpshared(&raw mut attr, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_mutexattr_settype(&raw mut attr, libc::PTHREAD_MUTEX_RECURSIVE);
        let mut m: pthread_mutex_t = std::mem::zeroed();
        let made: c_int = glibc::pthread_mutex_init(&raw mut m, &raw const attr);
        let mutex = made == 0 && mutex::is_passed(&raw const m) && mutex::is_recursive(&raw const m);

        let mut attr: libc::pthread_condattr_t = std::mem::zeroed();
        libc::pthread_condattr_init(&raw mut attr);
        libc::pthread_condattr_setpshared(&raw mut attr, libc::PTHREAD_PROCESS_SHARED);
        let mut c: pthread_cond_t = std::mem::zeroed();
        let cond = glibc::pthread_cond_init(&raw mut c, &raw const attr) == 0 && cond::is_passed(&raw const c);

        let mut attr: libc::pthread_rwlockattr_t = std::mem::zeroed();
        libc::pthread_rwlockattr_init(&raw mut attr);
        libc::pthread_rwlockattr_setpshared(&raw mut attr, libc::PTHREAD_PROCESS_SHARED);
        let mut l: pthread_rwlock_t = std::mem::zeroed();
        let rwlock = glibc::pthread_rwlock_init(&raw mut l, &raw const attr) == 0 && rwlock::is_passed(&raw const l);
        mutex && cond && rwlock
    }
}
