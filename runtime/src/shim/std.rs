//! The real machine.

pub use std::cell::Cell;
pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::time::Instant;

use std::sync::PoisonError;

/// A lock that sleeps in the kernel. `std`'s: small, allocation-free where it is a futex, usable in a `static`.
pub struct Mutex<T>(std::sync::Mutex<T>);

pub type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // Nothing panics under these locks; and a queue is whole between any two of its steps that could.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between plain accesses of two threads that each write, then read what the other writes.
#[inline(always)]
pub fn full_fence() {
    // The standard fence compiles to `mfence`, which takes several times as long as a locked instruction, and orders
    // what we do not use: stores past the caches. Any locked instruction is a full fence for ordinary memory; Linux's
    // `smp_mb` is this one.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rewrites a byte of our own stack with what is there. Not `nomem`: the compiler moves no access across it.
    unsafe {
        std::arch::asm!("lock or byte ptr [rsp], 0", options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Tells the processor that this is a spin loop.
#[inline(always)]
pub fn pause() {
    std::hint::spin_loop();
}

/// Lets another thread of this processor run, if one is ready.
#[inline]
pub fn yield_now() {
    std::thread::yield_now();
}

/// How many processors this process may run on: those of its main thread, asked once.
#[inline]
pub fn num_cpus() -> u32 {
    static CPUS: AtomicU32 = AtomicU32::new(0);
    // Relaxed: every thread that asks gets the same answer, and nothing else hangs on it.
    match CPUS.load(Ordering::Relaxed) {
        0 => {
            let cpus = ask_num_cpus().max(1);
            CPUS.store(cpus, Ordering::Relaxed);
            cpus
        }
        cpus => cpus,
    }
}

/// `available_parallelism` reads the cgroup's quota, for which it allocates; a wait path must not.
#[cfg(target_os = "linux")]
#[cold]
fn ask_num_cpus() -> u32 {
    // SAFETY: an all-zero cpu_set_t is a valid, empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // Not 0, this thread: the first to ask may be pinned where the others are not.
    // SAFETY: takes nothing and cannot fail.
    let main_thread = unsafe { libc::getpid() };
    // SAFETY: `set` is a cpu_set_t of the size given.
    let got = unsafe { libc::sched_getaffinity(main_thread, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if got != 0 {
        return 1; // more than 1024 processors, or forbidden: never spinning is always right
    }
    // SAFETY: `set` was filled by the call above.
    unsafe { libc::CPU_COUNT(&set) as u32 }
}

#[cfg(not(target_os = "linux"))]
#[cold]
fn ask_num_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

pub use parker::Parker;

#[cfg(target_os = "linux")]
mod parker {
    use super::{AtomicU32, Instant, Ordering};
    use crate::shim::futex;

    /// Nobody has spoken.
    const EMPTY: u32 = 0;
    /// The thread sleeps on the word, or is about to.
    const PARKED: u32 = 1;
    /// Woken; the thread takes this back to EMPTY as it returns.
    const READY: u32 = 2;

    /// Blocks one thread until one `unpark`.
    pub struct Parker(AtomicU32);

    impl Parker {
        pub const fn new() -> Self {
            Self(AtomicU32::new(EMPTY))
        }

        /// Blocks until `unpark` (true, and the parker can be used again) or until `deadline` (false).
        pub fn park(&self, deadline: Option<Instant>) -> bool {
            // Acquire on failure pairs with the Release in `unpark`: what the waker wrote, we see.
            let seen = self.0.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Acquire);
            if seen != Err(READY) {
                loop {
                    let in_time = futex::wait(&self.0, PARKED, deadline);
                    if self.0.load(Ordering::Acquire) == READY {
                        break;
                    }
                    if !in_time {
                        return false;
                    }
                }
            }
            // Relaxed: the one `unpark` of this round has been, so nobody else writes here.
            self.0.store(EMPTY, Ordering::Relaxed);
            true
        }

        /// # Safety
        /// `this` is alive, and no `unpark` has been called on it that its `park` has not yet answered.
        pub unsafe fn unpark(this: *const Self) {
            // SAFETY: alive by the contract, until the swap below tells its thread that it may go.
            let word: *const AtomicU32 = unsafe { &raw const (*this).0 };
            // SAFETY: as above; this is the last access to the memory.
            let was = unsafe { (*word).swap(READY, Ordering::Release) };
            if was == PARKED {
                futex::wake(word, 1); // by address only: the parker may be gone
            }
        }
    }
}

/// What stands for the futex where there is none: a few condition variables, shared by all words.
#[cfg(not(target_os = "linux"))]
pub mod futex {
    use super::{AtomicU32, Instant, Ordering};
    use std::sync::{Condvar, Mutex, PoisonError};

    static BEDS: [(Mutex<()>, Condvar); 16] = [const { (Mutex::new(()), Condvar::new()) }; 16];

    fn bed(word: *const AtomicU32) -> &'static (Mutex<()>, Condvar) {
        &BEDS[(word.addr() >> 6) % BEDS.len()]
    }

    /// Sleeps while `*word == expected`, until a [`wake`], or for no reason at all.
    pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> bool {
        debug_assert!(deadline.is_none(), "nobody needs one");
        let (lock, changed) = bed(word);
        let asleep = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Who changes the word wakes, under the lock, after that: so the change is seen here, or the wake-up comes.
        if word.load(Ordering::Relaxed) == expected {
            drop(changed.wait(asleep).unwrap_or_else(PoisonError::into_inner));
        }
        true
    }

    /// Wakes at least one that sleeps in [`wait`] on the word at this address: all of its bed, as they look the same
    /// here.
    pub fn wake(word: *const AtomicU32, _n: u32) {
        let (lock, changed) = bed(word);
        let _asleep = lock.lock().unwrap_or_else(PoisonError::into_inner);
        changed.notify_all();
    }
}

#[cfg(not(target_os = "linux"))]
mod parker {
    use super::Instant;
    use std::sync::{Condvar, Mutex, PoisonError};

    /// Blocks one thread until one `unpark`.
    pub struct Parker {
        ready: Mutex<bool>,
        wake: Condvar,
    }

    impl Parker {
        pub const fn new() -> Self {
            Self { ready: Mutex::new(false), wake: Condvar::new() }
        }

        /// Blocks until `unpark` (true, and the parker can be used again) or until `deadline` (false).
        pub fn park(&self, deadline: Option<Instant>) -> bool {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            while !*ready {
                ready = match deadline.map(|d| d.checked_duration_since(Instant::now())) {
                    None => self.wake.wait(ready).unwrap_or_else(PoisonError::into_inner),
                    Some(None) => return false,
                    Some(Some(left)) => self.wake.wait_timeout(ready, left).unwrap_or_else(PoisonError::into_inner).0,
                };
            }
            *ready = false;
            true
        }

        /// # Safety
        /// `this` is alive, and no `unpark` has been called on it that its `park` has not yet answered.
        pub unsafe fn unpark(this: *const Self) {
            // SAFETY: alive by the contract. The thread cannot return from `park`, and so cannot free this, before the
            // lock is released; and a `std` mutex allows that its owner is freed once the release is visible.
            let this = unsafe { &*this };
            let mut ready = this.ready.lock().unwrap_or_else(PoisonError::into_inner);
            *ready = true;
            // Under the lock: after it the condition variable may be gone.
            this.wake.notify_one();
        }
    }
}
