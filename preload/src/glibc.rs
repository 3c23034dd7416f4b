//! The replaced functions of glibc, for the objects and for the choice (`SUDOG_LOCK=pthread`) that are passed on.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, timespec};
use libc::{pthread_condattr_t, pthread_mutexattr_t, pthread_rwlockattr_t};

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, symbol: *const c_char, version: *const c_char) -> *mut c_void;
}

/// Returns the next definition of a function after this library's. Ends the process if there is none.
///
/// glibc on x86-64 has two generations of conditions, and `dlsym` may return the old one, so the version of the new
/// one is tried first. Both calls allocate only if they fail.
#[cold]
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: `RTLD_NEXT` is a valid handle, and the texts end with a zero.
    let found = unsafe {
        let versioned = match name.to_bytes().starts_with(b"pthread_cond_") && cfg!(target_arch = "x86_64") {
            true if name != c"pthread_cond_clockwait" => {
                dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.3.2".as_ptr())
            }
            _ => ptr::null_mut(),
        };
        if versioned.is_null() { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } else { versioned }
    };
    if found.is_null() {
        crate::start::refuse(&format!("the C library has no {}", name.to_string_lossy()));
    }
    found
}

/// Makes functions of the same name that call glibc's. Several threads may look for a function at once, and find the
/// same.
macro_rules! next {
    ($($abi:literal fn $name:ident($($arg:ident: $type:ty),*);)+) => {$(
        #[doc = concat!("Calls glibc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        ///
        /// That of the function in glibc.
        #[inline]
        pub unsafe fn $name($($arg: $type),*) -> c_int {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            // Relaxed: the address is all that is read.
            let mut found = FOUND.load(Relaxed);
            if found.is_null() {
                // SAFETY: the literal ends with its only zero.
                found = find(unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) });
                FOUND.store(found, Relaxed);
            }
            // SAFETY: `found` is the address of the function of this name, which has this signature. The rest is the
            // caller's promise.
            unsafe { transmute::<*mut c_void, unsafe extern $abi fn($($type),*) -> c_int>(found)($($arg),*) }
        }
    )+};
}

next! {
    "C" fn pthread_mutex_init(m: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t);
    "C" fn pthread_mutex_destroy(m: *mut pthread_mutex_t);
    "C" fn pthread_mutex_lock(m: *mut pthread_mutex_t);
    "C" fn pthread_mutex_trylock(m: *mut pthread_mutex_t);
    "C" fn pthread_mutex_timedlock(m: *mut pthread_mutex_t, until: *const timespec);
    "C" fn pthread_mutex_clocklock(m: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec);
    "C" fn pthread_mutex_unlock(m: *mut pthread_mutex_t);
    "C" fn pthread_cond_init(c: *mut pthread_cond_t, attr: *const pthread_condattr_t);
    "C" fn pthread_cond_destroy(c: *mut pthread_cond_t);
    "C" fn pthread_cond_signal(c: *mut pthread_cond_t);
    "C" fn pthread_cond_broadcast(c: *mut pthread_cond_t);
    "C-unwind" fn pthread_cond_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t);
    "C-unwind" fn pthread_cond_timedwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, until: *const timespec);
    "C-unwind" fn pthread_cond_clockwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec);
    "C" fn pthread_rwlock_init(l: *mut pthread_rwlock_t, attr: *const pthread_rwlockattr_t);
    "C" fn pthread_rwlock_destroy(l: *mut pthread_rwlock_t);
    "C" fn pthread_rwlock_rdlock(l: *mut pthread_rwlock_t);
    "C" fn pthread_rwlock_tryrdlock(l: *mut pthread_rwlock_t);
    "C" fn pthread_rwlock_timedrdlock(l: *mut pthread_rwlock_t, until: *const timespec);
    "C" fn pthread_rwlock_clockrdlock(l: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec);
    "C" fn pthread_rwlock_wrlock(l: *mut pthread_rwlock_t);
    "C" fn pthread_rwlock_trywrlock(l: *mut pthread_rwlock_t);
    "C" fn pthread_rwlock_timedwrlock(l: *mut pthread_rwlock_t, until: *const timespec);
    "C" fn pthread_rwlock_clockwrlock(l: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec);
    "C" fn pthread_rwlock_unlock(l: *mut pthread_rwlock_t);
}
