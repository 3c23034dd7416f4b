//! The real machine.

pub use std::cell::Cell;
pub use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::time::Instant;

use std::time::Duration;

/// Returns the current time.
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

/// Executes a full fence: for two threads, each of which writes a word, calls this function, and then reads the word
/// that the other thread writes.
#[inline(always)]
pub fn full_fence() {
    // The standard fence compiles to `mfence`, which takes several times as long as a locked instruction. It also
    // orders stores that bypass the caches, which are not used here. Any locked instruction is a full fence for
    // ordinary memory; Linux's `smp_mb` uses this one.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction writes to a byte of this thread's stack the value that the byte already has. The block is
    // not `nomem`, so the compiler moves no access across it.
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

/// Does work for this number of cycles. The work takes time on a simulated machine only.
#[inline(always)]
pub fn work(_cycles: u64) {}

/// Reports on stacks, by code that switches between stacks: for a simulated machine, which finds accesses to frames
/// that do not exist any more. On the real machine all of these functions do nothing.
pub mod stacks {
    use std::ops::Range;

    /// Declares these addresses to be a stack from now on.
    #[inline(always)]
    pub fn begins(_addresses: Range<usize>) {}

    /// Records that the calling thread goes on on the stack with this lowest address.
    #[inline(always)]
    pub fn resumes(_low: usize) {}

    /// Records that the caller, which runs on the stack with this lowest address, is about to leave that stack.
    #[inline(always)]
    pub fn suspends(_low: usize) {}

    /// Records that the stack with this lowest address is not used any more.
    #[inline(always)]
    pub fn ends(_low: usize) {}
}

/// Lets another thread of this processor run, if another is ready.
#[inline]
pub fn yield_now() {
    std::thread::yield_now();
}

/// Returns the number of processors on which this process may run: the number for its main thread, read once.
#[inline]
pub fn num_cpus() -> u32 {
    static CPUS: AtomicU32 = AtomicU32::new(0);
    // Relaxed is enough: every thread that asks gets the same answer, and no other data depends on the answer.
    match CPUS.load(Ordering::Relaxed) {
        0 => {
            let cpus = ask_num_cpus().max(1);
            CPUS.store(cpus, Ordering::Relaxed);
            cpus
        }
        cpus => cpus,
    }
}

/// Returns the number of the processor that runs the calling thread; `None` if the system does not say.
///
/// glibc 2.35 and later read the number in the thread's `rseq` area, where the kernel has written it: 2 ns. Other C
/// libraries ask the vDSO on x86-64, which was said to take 20 ns, and make a system call elsewhere.
#[cfg(target_os = "linux")]
#[inline]
pub fn processor() -> Option<u32> {
    // SAFETY: `sched_getcpu` takes no arguments and touches no memory of this program.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

#[cfg(not(target_os = "linux"))]
#[inline]
pub fn processor() -> Option<u32> {
    None
}

/// A clock of the processor time that a thread has used. Other threads may read this clock.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))] // this clock never starts on other systems
pub struct ThreadClock(AtomicI32);

impl ThreadClock {
    const NONE: i32 = 0;

    pub const fn new() -> Self {
        Self(AtomicI32::new(Self::NONE))
    }

    /// Assigns the clock to the calling thread.
    #[cfg(target_os = "linux")]
    pub fn start(&self) {
        let mut clock = Self::NONE;
        // SAFETY: the calling thread exists, and `clock` is writable.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } != 0;
        self.0.store(if failed { Self::NONE } else { clock }, Ordering::Relaxed);
    }

    #[cfg(not(target_os = "linux"))]
    pub fn start(&self) {}

    /// Returns the thread's processor time; None if the system does not report that time, or if the thread has ended.
    /// If the clock's number has been given to another thread since, returns that thread's time: the time is a hint.
    #[cfg(target_os = "linux")]
    pub fn time(&self) -> Option<Duration> {
        let clock = self.0.load(Ordering::Relaxed);
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is writable; an unknown clock is an error.
        (clock != Self::NONE && unsafe { libc::clock_gettime(clock, &raw mut time) } == 0)
            .then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    #[cfg(not(target_os = "linux"))]
    pub fn time(&self) -> Option<Duration> {
        None
    }
}

/// Asks the system for the number of processors. Does not call `available_parallelism`, which reads the cgroup's quota
/// and allocates for that: waiting must not allocate.
#[cfg(target_os = "linux")]
#[cold]
fn ask_num_cpus() -> u32 {
    let mut set = [0_u64; 16]; // a bit for each processor
    // Do not pass 0, which means the calling thread: the first caller may be pinned to fewer processors than the
    // others.
    let main_thread = std::process::id() as libc::pid_t;
    // SAFETY: the call writes to `set`, at most as many bytes as `set` has.
    let got = unsafe { libc::sched_getaffinity(main_thread, size_of_val(&set), (&raw mut set).cast()) };
    if got != 0 {
        return 1; // more than 1024 processors, or forbidden: never spinning is always correct
    }
    set.iter().map(|bits| bits.count_ones()).sum()
}

#[cfg(not(target_os = "linux"))]
#[cold]
fn ask_num_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// The replacement for the futex on other systems: a few condition variables, shared by all words.
#[cfg(not(target_os = "linux"))]
pub mod futex {
    use super::{AtomicU32, Instant, Ordering};
    use std::sync::{Condvar, Mutex, PoisonError};

    static WORD_CONDVARS: [(Mutex<()>, Condvar); 16] = [const { (Mutex::new(()), Condvar::new()) }; 16];

    fn condvar_of(word: *const AtomicU32) -> &'static (Mutex<()>, Condvar) {
        &WORD_CONDVARS[(word.addr() >> 6) % WORD_CONDVARS.len()]
    }

    /// Sleeps while `*word == expected`, until a [`wake`]; may return spuriously.
    pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> bool {
        debug_assert!(deadline.is_none(), "no caller passes a deadline");
        let (lock, changed) = condvar_of(word);
        let asleep = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // A waker changes the word first and then takes this lock to wake. So this thread sees the change now, or gets
        // the wake-up.
        if word.load(Ordering::Relaxed) == expected {
            drop(changed.wait(asleep).unwrap_or_else(PoisonError::into_inner));
        }
        true
    }

    /// Wakes at least one thread that sleeps in [`wait`] on the word at this address, by waking all threads that share
    /// its condition variable.
    pub fn wake(word: *const AtomicU32, _n: u32) {
        let (lock, changed) = condvar_of(word);
        let _asleep = lock.lock().unwrap_or_else(PoisonError::into_inner);
        changed.notify_all();
    }
}

#[cfg(not(target_os = "linux"))]
pub use parker::Parker;

#[cfg(not(target_os = "linux"))]
mod parker {
    use super::Instant;
    use std::sync::{Condvar, Mutex, PoisonError};

    /// A parker: blocks one thread until one `unpark`.
    pub struct Parker {
        ready: Mutex<bool>,
        wake: Condvar,
    }

    impl Parker {
        pub const fn new() -> Self {
            Self { ready: Mutex::new(false), wake: Condvar::new() }
        }

        /// Returns whether `unpark` has been called, so that `park` will return at once.
        pub fn is_ready(&self) -> bool {
            *self.ready.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Blocks until `unpark` (returns true, and the parker can be used again) or until `deadline` (returns false).
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

        /// Wakes the thread that parks here, or lets its next `park` return at once.
        ///
        /// # Safety
        /// `this` is alive, and a `park` has consumed each earlier `unpark` of `this`.
        pub unsafe fn unpark(this: *const Self) {
            // SAFETY: `this` is alive by the contract of this function. The parker's thread cannot return from `park`,
            // and so cannot free the parker, before the lock is released; and a `std` mutex may be freed by its owner
            // once the release is visible.
            let this = unsafe { &*this };
            let mut ready = this.ready.lock().unwrap_or_else(PoisonError::into_inner);
            *ready = true;
            // Notify under the lock: after the unlock the condition variable may be freed.
            this.wake.notify_one();
        }
    }
}
