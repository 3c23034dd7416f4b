//! The objects of POSIX, with their results.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, timespec};

pub const OK: c_int = 0;

/// Makes a wrapper of an object, whose methods are functions of POSIX that take the object only.
macro_rules! object {
    ($Name:ident of $type:ty; $($method:ident = $function:path;)+) => {
        #[repr(transparent)]
        pub struct $Name(UnsafeCell<$type>);

        // SAFETY: the object is made to be used by several threads, through functions of POSIX.
        unsafe impl Sync for $Name {}
        // SAFETY: no object is moved once it has been used.
        unsafe impl Send for $Name {}

        impl $Name {
            pub const fn of(object: $type) -> Self {
                Self(UnsafeCell::new(object))
            }

            pub fn get(&self) -> *mut $type {
                self.0.get()
            }

            $(pub fn $method(&self) -> c_int {
                // SAFETY: the object is alive and was initialised. Misuse of it is what is tested.
                unsafe { $function(self.get()) }
            })+
        }
    };
}

object! {
    Mutex of pthread_mutex_t;
    lock = libc::pthread_mutex_lock;
    try_lock = libc::pthread_mutex_trylock;
    unlock = libc::pthread_mutex_unlock;
    destroy = libc::pthread_mutex_destroy;
    consistent = libc::pthread_mutex_consistent;
}

object! {
    Cond of pthread_cond_t;
    signal = libc::pthread_cond_signal;
    broadcast = libc::pthread_cond_broadcast;
    destroy = libc::pthread_cond_destroy;
}

object! {
    RwLock of pthread_rwlock_t;
    read = libc::pthread_rwlock_rdlock;
    try_read = libc::pthread_rwlock_tryrdlock;
    write = libc::pthread_rwlock_wrlock;
    try_write = libc::pthread_rwlock_trywrlock;
    unlock = libc::pthread_rwlock_unlock;
    destroy = libc::pthread_rwlock_destroy;
}

unsafe extern "C" {
    fn pthread_mutex_clocklock(m: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_timedrdlock(l: *mut pthread_rwlock_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_timedwrlock(l: *mut pthread_rwlock_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_clockrdlock(l: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_clockwrlock(l: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_rwlockattr_setkind_np(attr: *mut libc::pthread_rwlockattr_t, kind: c_int) -> c_int;
    fn pthread_mutexattr_setrobust(attr: *mut libc::pthread_mutexattr_t, robust: c_int) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_cond_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) -> c_int;
    fn pthread_cond_timedwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, until: *const timespec) -> c_int;
    fn pthread_cond_clockwait(
        c: *mut pthread_cond_t,
        m: *mut pthread_mutex_t,
        clock: clockid_t,
        until: *const timespec,
    ) -> c_int;
}

/// The moment after some milliseconds, which may be negative, on a clock.
pub fn after(clock: clockid_t, ms: i64) -> timespec {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a `timespec` that the call may write to.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    let nanos = now.tv_sec * 1_000_000_000 + now.tv_nsec + ms * 1_000_000;
    timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 }
}

/// A moment with nanoseconds that are out of range.
pub const INVALID: timespec = timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };

impl Mutex {
    pub fn normal() -> Self {
        Self::of(libc::PTHREAD_MUTEX_INITIALIZER)
    }

    /// A mutex of a type, by `pthread_mutex_init`.
    pub fn of_type(kind: c_int) -> Self {
        Self::with(|attr| {
            // SAFETY: the attributes are initialised.
            unsafe { libc::pthread_mutexattr_settype(attr, kind) }
        })
    }

    /// A robust mutex.
    pub fn robust() -> Self {
        // SAFETY: the attributes are initialised.
        Self::with(|attr| unsafe { pthread_mutexattr_setrobust(attr, libc::PTHREAD_MUTEX_ROBUST) })
    }

    /// A mutex with attributes that `set` sets.
    pub fn with(set: impl FnOnce(*mut libc::pthread_mutexattr_t) -> c_int) -> Self {
        // Memory that is not zero: the initialisation must not depend on it.
        let mutex = Self::of(libc::PTHREAD_MUTEX_INITIALIZER);
        // SAFETY: all objects are memory of their size, and are initialised before they are used.
        unsafe {
            mutex.get().write_bytes(0xa5, 1);
            let mut attr: libc::pthread_mutexattr_t = std::mem::zeroed();
            assert_eq!(libc::pthread_mutexattr_init(&raw mut attr), OK);
            assert_eq!(set(&raw mut attr), OK);
            assert_eq!(libc::pthread_mutex_init(mutex.get(), &raw const attr), OK);
        }
        mutex
    }

    pub fn timed_lock(&self, until: timespec) -> c_int {
        // SAFETY: the mutex is alive.
        unsafe { libc::pthread_mutex_timedlock(self.get(), &raw const until) }
    }

    pub fn clock_lock(&self, clock: clockid_t, until: timespec) -> c_int {
        // SAFETY: the mutex is alive.
        unsafe { pthread_mutex_clocklock(self.get(), clock, &raw const until) }
    }
}

impl Cond {
    pub fn new() -> Self {
        Self::of(libc::PTHREAD_COND_INITIALIZER)
    }

    /// A condition with attributes that `set` sets.
    pub fn with(set: impl FnOnce(*mut libc::pthread_condattr_t) -> c_int) -> Self {
        let cond = Self::new();
        // SAFETY: all objects are memory of their size, and are initialised before they are used.
        unsafe {
            cond.get().write_bytes(0xa5, 1);
            let mut attr: libc::pthread_condattr_t = std::mem::zeroed();
            assert_eq!(libc::pthread_condattr_init(&raw mut attr), OK);
            assert_eq!(set(&raw mut attr), OK);
            assert_eq!(libc::pthread_cond_init(cond.get(), &raw const attr), OK);
        }
        cond
    }

    pub fn wait(&self, m: &Mutex) -> c_int {
        // SAFETY: both are alive.
        unsafe { pthread_cond_wait(self.get(), m.get()) }
    }

    pub fn timed_wait(&self, m: &Mutex, until: timespec) -> c_int {
        // SAFETY: both are alive.
        unsafe { pthread_cond_timedwait(self.get(), m.get(), &raw const until) }
    }

    pub fn clock_wait(&self, m: &Mutex, clock: clockid_t, until: timespec) -> c_int {
        // SAFETY: both are alive.
        unsafe { pthread_cond_clockwait(self.get(), m.get(), clock, &raw const until) }
    }
}

impl RwLock {
    pub fn new() -> Self {
        Self::of(libc::PTHREAD_RWLOCK_INITIALIZER)
    }

    /// A lock of one of glibc's kinds.
    pub fn of_kind(kind: c_int) -> Self {
        let lock = Self::new();
        // SAFETY: all objects are memory of their size, and are initialised before they are used.
        unsafe {
            lock.get().write_bytes(0xa5, 1);
            let mut attr: libc::pthread_rwlockattr_t = std::mem::zeroed();
            assert_eq!(libc::pthread_rwlockattr_init(&raw mut attr), OK);
            assert_eq!(pthread_rwlockattr_setkind_np(&raw mut attr, kind), OK);
            assert_eq!(libc::pthread_rwlock_init(lock.get(), &raw const attr), OK);
        }
        lock
    }

    pub fn timed_read(&self, until: timespec) -> c_int {
        // SAFETY: the lock is alive.
        unsafe { pthread_rwlock_timedrdlock(self.get(), &raw const until) }
    }

    pub fn timed_write(&self, until: timespec) -> c_int {
        // SAFETY: the lock is alive.
        unsafe { pthread_rwlock_timedwrlock(self.get(), &raw const until) }
    }

    pub fn clock_read(&self, clock: clockid_t, until: timespec) -> c_int {
        // SAFETY: the lock is alive.
        unsafe { pthread_rwlock_clockrdlock(self.get(), clock, &raw const until) }
    }

    pub fn clock_write(&self, clock: clockid_t, until: timespec) -> c_int {
        // SAFETY: the lock is alive.
        unsafe { pthread_rwlock_clockwrlock(self.get(), clock, &raw const until) }
    }
}

/// Runs `f` on another thread.
pub fn elsewhere<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| s.spawn(f).join().unwrap())
}

/// Waits until `state` is true.
pub fn until(state: impl Fn() -> bool) {
    while !state() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Returns whether a thread of this process sleeps in the kernel.
pub fn is_asleep(thread: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('S')
}

/// Asserts that `f` takes some milliseconds at least.
pub fn takes<T>(ms: u64, f: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = f();
    // glibc's two clocks may differ a little.
    assert!(begun.elapsed() + Duration::from_millis(1) >= Duration::from_millis(ms), "after {:?}", begun.elapsed());
    result
}

/// Runs `child` in a child of `fork`, and returns the status with which the child has ended.
pub fn in_child(child: impl FnOnce()) -> c_int {
    // SAFETY: the child calls functions of POSIX, which the tests are about, and ends by `_exit`.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(super::PATIENCE);
            child();
            libc::_exit(0);
        }
        assert!(pid > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        status
    }
}
