//! Cancellation: a wait is a cancellation point, and a lock is not.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};

use libc::{EBUSY, pthread_t};

use super::posix::{Cond, Mutex, OK, after, elsewhere, until};

/// glibc's `struct _pthread_cleanup_buffer`.
type Cleanup = [usize; 4];

unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut Cleanup, routine: extern "C" fn(*mut c_void), arg: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut Cleanup, execute: c_int);
    fn pthread_create(
        thread: *mut pthread_t,
        attr: *const libc::pthread_attr_t,
        f: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        arg: *mut c_void,
    ) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// glibc's `PTHREAD_CANCELED`.
const CANCELLED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

struct World {
    mutex: Mutex,
    cond: Cond,
    timed: bool,
    waiting: AtomicU32,
    /// The result of the `try_lock` of another thread while the handler runs.
    tried: AtomicI32,
    cancelled: AtomicBool,
}

impl World {
    fn new(timed: bool) -> Self {
        let (mutex, cond) = (Mutex::normal(), Cond::new());
        Self {
            mutex,
            cond,
            timed,
            waiting: AtomicU32::new(0),
            tried: AtomicI32::new(-1),
            cancelled: AtomicBool::new(false),
        }
    }

    fn spawn(&self, f: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void) -> pthread_t {
        let mut thread = 0;
        let world = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the test joins the thread before the world ends.
        let result = unsafe { pthread_create(&raw mut thread, ptr::null(), f, world) };
        assert_eq!(result, OK);
        thread
    }
}

fn cancel(thread: pthread_t) {
    // SAFETY: the thread has not been joined.
    assert_eq!(unsafe { libc::pthread_cancel(thread) }, OK);
}

fn join(thread: pthread_t) -> *mut c_void {
    let mut result = ptr::null_mut();
    // SAFETY: the thread has not been joined.
    assert_eq!(unsafe { libc::pthread_join(thread, &raw mut result) }, OK);
    result
}

extern "C" fn handler(world: *mut c_void) {
    // SAFETY: the world outlives its threads.
    let world = unsafe { &*world.cast::<World>() };
    world.tried.store(elsewhere(|| world.mutex.try_lock()), Relaxed);
    world.cancelled.store(true, Relaxed);
    assert_eq!(world.mutex.unlock(), OK);
}

/// Waits for ever. This frame is unwound: it has no destructors.
unsafe extern "C-unwind" fn wait(world: *mut c_void) -> *mut c_void {
    // SAFETY: the world outlives its threads; the buffer stays in this frame until it is popped.
    unsafe {
        let world_ref = &*world.cast::<World>();
        assert_eq!(world_ref.mutex.lock(), OK);
        let mut buffer = MaybeUninit::<Cleanup>::uninit();
        _pthread_cleanup_push(buffer.as_mut_ptr(), handler, world);
        world_ref.waiting.fetch_add(1, Relaxed);
        let result = match world_ref.timed {
            true => world_ref.cond.timed_wait(&world_ref.mutex, after(libc::CLOCK_REALTIME, 80_000)),
            false => world_ref.cond.wait(&world_ref.mutex),
        };
        assert_eq!(result, OK);
        _pthread_cleanup_pop(buffer.as_mut_ptr(), 0);
        assert_eq!(world_ref.mutex.unlock(), OK);
    }
    ptr::null_mut()
}

pub fn a_cancelled_wait_has_the_mutex() {
    for timed in [false, true] {
        let world = World::new(timed);
        let thread = world.spawn(wait);
        until(|| world.waiting.load(Relaxed) == 1 && world.mutex.lock() == OK && world.mutex.unlock() == OK);
        cancel(thread);
        assert_eq!(join(thread), CANCELLED);
        assert!(world.cancelled.load(Relaxed));
        assert_eq!(world.tried.load(Relaxed), EBUSY, "the handler runs with the mutex locked");
        assert_eq!((world.mutex.lock(), world.mutex.unlock()), (OK, OK));
        assert_eq!(world.cond.destroy(), OK);
    }
}

/// Two wait, one of which is cancelled and signalled at once: the other gets the signal, unless the first returns.
pub fn a_cancelled_wait_takes_no_signal() {
    for _ in 0..10 {
        let world = World::new(false);
        let first = world.spawn(wait);
        until(|| world.waiting.load(Relaxed) == 1);
        let second = world.spawn(wait);
        until(|| world.waiting.load(Relaxed) == 2 && world.mutex.lock() == OK && world.mutex.unlock() == OK);
        cancel(first);
        assert_eq!(world.cond.signal(), OK);
        if join(first) != CANCELLED {
            assert_eq!(world.cond.signal(), OK);
        }
        assert!(join(second).is_null());
    }
}

/// Waits for the mutex, and is cancelled meanwhile; and once more at the cancellation point after that.
unsafe extern "C-unwind" fn lock(world: *mut c_void) -> *mut c_void {
    // SAFETY: the world outlives its threads.
    unsafe {
        let world = &*world.cast::<World>();
        world.waiting.store(1, Relaxed);
        assert_eq!(world.mutex.lock(), OK);
        world.waiting.store(2, Relaxed);
        assert_eq!(world.mutex.unlock(), OK);
        pthread_testcancel();
    }
    ptr::null_mut()
}

pub fn a_lock_is_no_cancellation_point() {
    let world = World::new(false);
    assert_eq!(world.mutex.lock(), OK);
    let thread = world.spawn(lock);
    until(|| world.waiting.load(Relaxed) == 1);
    cancel(thread);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(world.mutex.unlock(), OK);
    assert_eq!(join(thread), CANCELLED);
    assert_eq!(world.waiting.load(Relaxed), 2);
}
