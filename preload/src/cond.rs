//! The functions of conditions: a queue of waiters, over any mutex.
//!
//! A wait puts a [`Waiter`] of its own frame into the queue, unlocks the mutex, and sleeps on the waiter's semaphore. A
//! signal takes the first waiter out of the queue and posts; a broadcast takes all. So a signal wakes a thread that
//! waited before it. A wait that ends by itself, after its time or by a cancellation, looks under the queue's lock
//! whether the waiter is still queued; if not, a post is due, and the wait takes that post first: it has been
//! signalled. A cancelled thread passes the signal on.
//!
//! The last access of a wait to the condition is the decrement of `users`, for which destroy waits. The last access of a
//! signal is the unlock of the queue, before the posts, and the waiters that are not posted yet count in `users`.
//!
//! A cancellation unwinds the waiting frames. These frames have no destructors, and what must be done then is
//! registered with glibc: see [`on_cancel`].

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use libc::{c_int, clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, sem_t, timespec};

use crate::futex_lock::FutexLock;
use crate::mutex::{self, pthread_mutex_lock, pthread_mutex_unlock};
use crate::time::Until;
use crate::{backend, errno, fork, futex, glibc};

/// A `pthread_cond_t`. All bits zero: no waiters, and the wall clock.
#[repr(C)]
struct Cond {
    /// The lock of the queue.
    lock: FutexLock,
    /// The number of waiters in the queue. Changed under `lock`, read also without.
    queued: AtomicU32,
    queue: UnsafeCell<Queue>,
    /// The number of threads that use the condition in a wait, and [`DESTROYED`].
    users: AtomicU32,
    /// See [`crate::fork`].
    generation: AtomicU32,
    _rest: u32,
    /// glibc's `__wrefs`, at its place.
    flags: AtomicU32,
    _more: [u32; 2],
}

const _: () = assert!(size_of::<Cond>() == size_of::<pthread_cond_t>());
const _: () = assert!(std::mem::offset_of!(Cond, flags) == 36);

/// glibc's flags.
const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// The bit of `users` that is set while destroy waits.
const DESTROYED: u32 = 1 << 31;

/// The ends of the queue. Accessed under the condition's lock, as are `next`, `prev` and `taken` of waiters.
#[repr(C)]
struct Queue {
    first: *mut Waiter,
    last: *mut Waiter,
}

/// glibc's constant.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// A waiter, in the frame of its wait.
struct Waiter {
    woken: MaybeUninit<sem_t>,
    next: *mut Waiter,
    prev: *mut Waiter,
    /// True if a signal has taken the waiter out of the queue, and has posted, or will.
    taken: bool,
}

/// A wait, for the handler of cancellations.
struct Wait {
    cond: *const Cond,
    mutex: *mut pthread_mutex_t,
    waiter: *mut Waiter,
}

/// glibc's `struct _pthread_cleanup_buffer`.
#[repr(C)]
struct Cleanup {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    arg: *mut c_void,
    cancel_type: c_int,
    prev: *mut Cleanup,
}

unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut Cleanup, routine: unsafe extern "C" fn(*mut c_void), arg: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut Cleanup, execute: c_int);
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_condattr_getpshared(attr: *const pthread_condattr_t, shared: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    // All three are cancellation points.
    fn sem_wait(sem: *mut sem_t) -> c_int;
    fn sem_clockwait(sem: *mut sem_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_testcancel();
}

impl Cond {
    /// # Safety
    ///
    /// `c` points to a condition that is alive for as long as the reference is used.
    unsafe fn of<'a>(c: *const pthread_cond_t) -> &'a Self {
        // SAFETY: a `pthread_cond_t` is as large and aligned as a `Cond`, which has no invalid bits.
        unsafe { &*c.cast::<Self>() }
    }

    fn is_passed(&self) -> bool {
        self.flags.load(Relaxed) & SHARED != 0
    }

    fn clock(&self) -> clockid_t {
        if self.flags.load(Relaxed) & MONOTONIC == 0 { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC }
    }

    /// Forgets the waiters of the parent, in a child of `fork`.
    fn mend(&self) {
        // Acquire and Release: a thread that sees the new generation sees the empty queue.
        if self.generation.load(Acquire) == fork::generation() {
            return;
        }
        backend::NODES.lock();
        if self.generation.load(Relaxed) != fork::generation() {
            // SAFETY: the parent's threads are not there, and those of this process do not go past `mend` yet.
            unsafe { *self.queue.get() = Queue { first: ptr::null_mut(), last: ptr::null_mut() } };
            self.queued.store(0, Relaxed);
            self.users.store(0, Relaxed);
            self.lock.unlock();
            self.generation.store(fork::generation(), Release);
        }
        backend::NODES.unlock();
    }

    /// Runs `f` under the queue's lock.
    fn locked<T>(&self, f: impl FnOnce(&mut Queue) -> T) -> T {
        self.lock.lock();
        // SAFETY: this thread holds the lock, and `f` does not call `locked`.
        let result = f(unsafe { &mut *self.queue.get() });
        self.lock.unlock();
        result
    }

    /// Puts a waiter at the end of the queue.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue, and lives until `leave` or until a signal has posted.
    unsafe fn enter(&self, waiter: *mut Waiter) {
        self.users.fetch_add(1, Relaxed);
        self.locked(|queue| {
            // SAFETY: `waiter` is alive, by the contract of `enter`, and so is the last in the queue, under the lock.
            unsafe {
                (*waiter).prev = queue.last;
                match queue.last.as_mut() {
                    Some(last) => last.next = waiter,
                    None => queue.first = waiter,
                }
            }
            queue.last = waiter;
            // Relaxed: a signal after the waiter's unlock of the mutex sees this, by the mutex.
            self.queued.store(self.queued.load(Relaxed) + 1, Relaxed);
        });
    }

    /// Takes a waiter out of the queue, under the lock.
    ///
    /// # Safety
    ///
    /// The waiter is in this queue.
    unsafe fn unlink(&self, queue: &mut Queue, waiter: *mut Waiter) {
        // SAFETY: waiters in the queue are alive, under the lock.
        unsafe {
            let Waiter { next, prev, .. } = *waiter;
            match prev.as_mut() {
                Some(prev) => prev.next = next,
                None => queue.first = next,
            }
            match next.as_mut() {
                Some(next) => next.prev = prev,
                None => queue.last = prev,
            }
        }
        self.queued.store(self.queued.load(Relaxed) - 1, Relaxed);
    }

    /// Ends a wait that was not woken. Returns whether the wait was signalled all the same.
    ///
    /// # Safety
    ///
    /// The waiter entered this condition, and has not taken a post.
    unsafe fn leave(&self, waiter: *mut Waiter) -> bool {
        // SAFETY: the waiter is this thread's, and is accessed under the lock.
        let taken = self.locked(|queue| unsafe {
            if !(*waiter).taken {
                self.unlink(queue, waiter);
            }
            (*waiter).taken
        });
        if taken {
            // The signal is between the queue and the post. Sleep until the post, and do not yield: the signalling thread
            // may have a lower priority.
            // SAFETY: the semaphore was initialised before `enter`. The wait is no cancellation point meanwhile.
            unsafe {
                let mut state = 0;
                pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut state);
                while sem_wait((*waiter).woken.as_mut_ptr()) != 0 {}
                pthread_setcancelstate(state, ptr::null_mut());
            }
        }
        taken
    }

    /// Ends the use of the condition by a wait. The condition may be freed after this.
    fn part(&self) {
        // Release: pairs with the Acquire in destroy.
        if self.users.fetch_sub(1, Release) == DESTROYED + 1 {
            futex::wake(&raw const self.users, 1);
        }
    }

    /// Wakes the first waiter, or all.
    fn wake(&self, all: bool) {
        self.mend();
        // A wait that began before this call, by the mutex, is seen. Others need not be.
        if self.queued.load(Relaxed) == 0 {
            return;
        }
        let mut woken = self.locked(|queue| {
            let first = queue.first;
            let mut at = first;
            // SAFETY: waiters in the queue are alive, under the lock.
            while let Some(waiter) = unsafe { at.as_mut() } {
                // SAFETY: `at` is in the queue.
                unsafe { self.unlink(queue, at) };
                waiter.taken = true;
                at = waiter.next;
                if !all {
                    waiter.next = ptr::null_mut();
                    break;
                }
            }
            first
        });
        while !woken.is_null() {
            // SAFETY: a waiter that was taken lives until it is posted. The next is read before.
            unsafe {
                let next = (*woken).next;
                libc::sem_post((*woken).woken.as_mut_ptr());
                woken = next;
            }
        }
    }
}

/// Ends the wait of a cancelled thread, before the thread's own handlers run: with the mutex locked.
///
/// # Safety
///
/// `wait` points to the [`Wait`] of the calling thread.
unsafe extern "C" fn on_cancel(wait: *mut c_void) {
    // SAFETY: `wait`, and what it points to, are in the frame that is being unwound, and that is still there. The
    // condition is alive while `users` counts this thread.
    unsafe {
        let Wait { cond, mutex, waiter } = wait.cast::<Wait>().read();
        if (*cond).leave(waiter) {
            (*cond).wake(false); // a cancelled thread takes no signal from the others
        }
        (*cond).part();
        pthread_mutex_lock(mutex);
    }
}

/// Waits, until a time at most.
///
/// # Safety
///
/// `c` and `m` point to a condition and a mutex, which is locked by this thread; `until`, to a time.
unsafe fn wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, until: Option<(clockid_t, *const timespec)>) -> c_int {
    // SAFETY: the contract of `wait_with_errno` is that of `wait`.
    errno::keep(|| unsafe { wait_with_errno(c, m, until) })
}

/// Waits as [`wait`] does, and may change `errno`.
///
/// # Safety
///
/// That of [`wait`].
unsafe fn wait_with_errno(
    c: *mut pthread_cond_t,
    m: *mut pthread_mutex_t,
    until: Option<(clockid_t, *const timespec)>,
) -> c_int {
    // This frame may be unwound by a cancellation: it has no destructors.
    // SAFETY: `c`, `m` and `until` are valid, by the contract of `wait_with_errno`. The waiter and the buffer stay in this frame.
    unsafe {
        let cond = Cond::of(c);
        if let Some((clock, until)) = until
            && Until::new(clock, until).is_err()
        {
            return libc::EINVAL;
        }
        if !mutex::is_passed(m) && !mutex::is_mine(m) {
            return libc::EPERM;
        }
        if cond.is_passed() {
            return poll(m, until);
        }
        cond.mend();
        let mut waiter =
            Waiter { woken: MaybeUninit::uninit(), next: ptr::null_mut(), prev: ptr::null_mut(), taken: false };
        let waiter = &raw mut waiter;
        libc::sem_init((*waiter).woken.as_mut_ptr(), 0, 0);
        cond.enter(waiter);
        let error = pthread_mutex_unlock(m);
        if error != 0 {
            if cond.leave(waiter) {
                cond.wake(false);
            }
            cond.part();
            return error;
        }
        let mut wait = Wait { cond, mutex: m, waiter };
        let mut cleanup = MaybeUninit::<Cleanup>::uninit();
        _pthread_cleanup_push(cleanup.as_mut_ptr(), on_cancel, (&raw mut wait).cast());
        let woken = loop {
            let failed = match until {
                None => sem_wait((*waiter).woken.as_mut_ptr()),
                Some((clock, until)) => sem_clockwait((*waiter).woken.as_mut_ptr(), clock, until),
            } != 0;
            if !failed {
                break true;
            }
            if *libc::__errno_location() != libc::EINTR {
                break false; // the time is up
            }
        };
        _pthread_cleanup_pop(cleanup.as_mut_ptr(), 0);
        let signalled = woken || cond.leave(waiter);
        cond.part();
        match pthread_mutex_lock(m) {
            0 if !signalled => libc::ETIMEDOUT,
            result => result,
        }
    }
}

/// Waits on a process-shared condition with a mutex that is not glibc's: by spurious wake-ups, every millisecond.
///
/// # Safety
///
/// That of [`wait`].
unsafe fn poll(m: *mut pthread_mutex_t, until: Option<(clockid_t, *const timespec)>) -> c_int {
    // SAFETY: the mutex is this thread's, and the time is valid, by the contract of `poll`.
    unsafe {
        pthread_testcancel();
        if until.is_some_and(|(clock, until)| Until::new(clock, until).is_ok_and(|until| until.left().is_none())) {
            return libc::ETIMEDOUT;
        }
        pthread_mutex_unlock(m);
        // No cancellation point: the mutex is unlocked.
        futex::wait(&AtomicU32::new(0), 0, Some(Instant::now() + Duration::from_millis(1)));
        pthread_mutex_lock(m)
    }
}

/// Returns whether the condition is passed on to glibc.
///
/// # Safety
///
/// `c` points to a condition.
pub unsafe fn is_passed(c: *const pthread_cond_t) -> bool {
    // SAFETY: `c` points to a condition, by the contract.
    unsafe { Cond::of(c) }.is_passed()
}

/// Returns whether both objects are glibc's.
///
/// # Safety
///
/// `c` and `m` point to a condition and a mutex.
unsafe fn both_are_passed(c: *const pthread_cond_t, m: *const pthread_mutex_t) -> bool {
    // SAFETY: the objects are alive, by the contract.
    backend::chosen().passes_all || unsafe { is_passed(c) && mutex::is_passed(m) }
}

/// Replaces glibc's `pthread_cond_wait`.
///
/// # Safety
///
/// POSIX's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the objects are alive and the mutex is locked, by the contract of POSIX.
    unsafe { if both_are_passed(c, m) { glibc::pthread_cond_wait(c, m) } else { wait(c, m, None) } }
}

/// Replaces glibc's `pthread_cond_timedwait`.
///
/// # Safety
///
/// POSIX's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(
    c: *mut pthread_cond_t,
    m: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the objects are alive, the mutex is locked and the time is valid, by the contract of POSIX.
    unsafe {
        if both_are_passed(c, m) {
            return glibc::pthread_cond_timedwait(c, m, until);
        }
        wait(c, m, Some((Cond::of(c).clock(), until)))
    }
}

/// Replaces glibc's `pthread_cond_clockwait`.
///
/// # Safety
///
/// POSIX's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_clockwait(
    c: *mut pthread_cond_t,
    m: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the objects are alive, the mutex is locked and the time is valid, by the contract of POSIX.
    unsafe {
        if both_are_passed(c, m) {
            return glibc::pthread_cond_clockwait(c, m, clock, until);
        }
        wait(c, m, Some((clock, until)))
    }
}

/// Replaces glibc's `pthread_cond_signal`.
///
/// # Safety
///
/// POSIX's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(c: *mut pthread_cond_t) -> c_int {
    // SAFETY: the condition is alive, by the contract of POSIX.
    unsafe {
        if backend::chosen().passes_all || is_passed(c) {
            return glibc::pthread_cond_signal(c);
        }
        Cond::of(c).wake(false);
    }
    0
}

/// Replaces glibc's `pthread_cond_broadcast`.
///
/// # Safety
///
/// POSIX's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(c: *mut pthread_cond_t) -> c_int {
    // SAFETY: the condition is alive, by the contract of POSIX.
    unsafe {
        if backend::chosen().passes_all || is_passed(c) {
            return glibc::pthread_cond_broadcast(c);
        }
        Cond::of(c).wake(true);
    }
    0
}

/// Replaces glibc's `pthread_cond_init`.
///
/// # Safety
///
/// POSIX's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_init(c: *mut pthread_cond_t, attr: *const pthread_condattr_t) -> c_int {
    let (mut shared, mut clock) = (libc::PTHREAD_PROCESS_PRIVATE, libc::CLOCK_REALTIME);
    // SAFETY: `c` points to memory for a condition, and `attr` to initialised attributes or is null, by the contract of POSIX.
    unsafe {
        if !attr.is_null() {
            pthread_condattr_getpshared(attr, &raw mut shared);
            libc::pthread_condattr_getclock(attr, &raw mut clock);
        }
        if backend::chosen().passes_all || shared != libc::PTHREAD_PROCESS_PRIVATE {
            return glibc::pthread_cond_init(c, attr);
        }
        c.write_bytes(0, 1);
        let flags = if clock == libc::CLOCK_MONOTONIC { MONOTONIC } else { 0 };
        Cond::of(c).flags.store(flags, Relaxed);
    }
    0
}

/// Replaces glibc's `pthread_cond_destroy`. Waits until the threads that were woken have left, as glibc does.
///
/// # Safety
///
/// POSIX's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_destroy(c: *mut pthread_cond_t) -> c_int {
    // SAFETY: the condition is alive, by the contract of POSIX.
    unsafe {
        if backend::chosen().passes_all || is_passed(c) {
            return glibc::pthread_cond_destroy(c);
        }
        let cond = Cond::of(c);
        cond.mend();
        if cond.locked(|queue| !queue.first.is_null()) {
            return libc::EBUSY;
        }
        // Acquire: pairs with the Release in `part`.
        let mut users = cond.users.fetch_or(DESTROYED, Acquire) | DESTROYED;
        while users != DESTROYED {
            futex::wait(&cond.users, users, None);
            users = cond.users.load(Acquire);
        }
        cond.users.store(0, Relaxed);
    }
    0
}
