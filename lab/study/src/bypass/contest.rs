//! The contenders, and the log of their admissions.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::OnceLock;
use sudog_runtime::shim::system::atomic::{AtomicU32, Ordering};
use sudog_runtime::shim::system::thread;

use sudog_locks::capacitor::{Admission, Wrapped};
use sudog_sync::RawLock;

use super::arrival_history::{ArrivalHistory, Beside, Entry};
use super::doorway::Doorway;
use crate::run::contenders::{Contenders, Gate};

/// An inner lock that delays a contender in a thousand on its way to the lock: half of the delayed contenders yield,
/// the others sleep.
///
/// So some contenders are late between arrival and lock, as they would be by chance in a much longer run. A contender
/// that only tries, which at the gate is between its two looks, is delayed before and after the try.
///
/// A contender whose try succeeds notes how many contenders have announced themselves by then, as the gate must not
/// miss them.
pub struct Stalls<L> {
    inner: L,
    on: bool,
    announced: Arc<Announced>,
    /// The number of contenders that have come to the lock, and have not released it.
    at_lock: AtomicU32,
}

/// Returns the number of contenders that have announced themselves. Set when the lock has its capacitor.
type Announced = OnceLock<Box<dyn Fn() -> u32 + Send + Sync>>;

system::thread_local! {
    /// The number of contenders that had announced themselves when this thread last had the inner lock by a try.
    static NOTED: Cell<u32> = const { Cell::new(0) };
    /// The number of contenders at the lock when this thread last had the lock: 0 if this thread only tried.
    static AT_LOCK: Cell<u32> = const { Cell::new(0) };
}

/// A contender in so many is delayed on its way to the lock.
const SELDOM: u32 = 1000;
const OFTEN: u32 = 32;

/// The longest sleep, in microseconds.
const SLEEP: u32 = 200;

impl<L> Stalls<L> {
    /// Puts the delays around `inner`. Without `on`, no contender is delayed.
    pub fn new(inner: L, on: bool) -> Self {
        Self { inner, on, announced: Arc::default(), at_lock: AtomicU32::new(0) }
    }
}

/// Makes a caller in so many yield or sleep.
fn stall(one_in: u32) {
    thread_local!(static DRAWN: Cell<u64> = const { Cell::new(0) });
    let seed = DRAWN.with(|drawn| (&raw const *drawn).addr() as u64);
    // Knuth's congruential generator, with another increment for each thread. Only the upper half is random enough.
    let drawn = DRAWN.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
    DRAWN.set(drawn);
    let draw = (drawn >> 33) as u32;
    match draw % (2 * one_in) {
        0 => thread::yield_now(),
        1 => thread::sleep(Duration::from_micros(u64::from(1 + draw / (2 * one_in) % SLEEP))),
        _ => {}
    }
}

// SAFETY: every call goes to the inner lock, which keeps the promises of `RawLock`.
unsafe impl<L: RawLock> RawLock for Stalls<L> {
    type Guard = L::Guard;

    const DEADLINES: bool = L::DEADLINES;

    fn new() -> Self {
        Self::new(L::new(), true)
    }

    #[inline]
    fn lock(&self) -> L::Guard {
        self.at_lock.fetch_add(1, Ordering::Relaxed);
        if self.on {
            stall(SELDOM);
        }
        let guard = self.inner.lock();
        AT_LOCK.set(self.at_lock.load(Ordering::Relaxed));
        guard
    }

    #[inline]
    fn try_lock(&self) -> Option<L::Guard> {
        if self.on {
            stall(SELDOM);
        }
        let guard = self.inner.try_lock()?;
        AT_LOCK.set(0);
        NOTED.set(self.announced.get().map_or(0, |announced| announced()));
        if self.on {
            stall(SELDOM);
        }
        Some(guard)
    }

    fn try_lock_until(&self, deadline: Instant) -> Option<L::Guard> {
        self.inner.try_lock_until(deadline)
    }

    #[inline]
    unsafe fn unlock(&self, guard: L::Guard) {
        // A contender that only tried was not counted; `AT_LOCK` of the owner's thread tells.
        if AT_LOCK.get() > 0 {
            self.at_lock.fetch_sub(1, Ordering::Relaxed);
        }
        // SAFETY: `guard` came from an acquisition of `self.inner`, on this thread unless `Guard` is `Send`, by the
        // contract of `RawLock::unlock`.
        unsafe { self.inner.unlock(guard) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

/// A lock, and the log that it protects.
struct Logged<L, C, A> {
    lock: Wrapped<Stalls<L>, C, A>,
    log: UnsafeCell<ArrivalHistory>,
    most: usize,
    rests: bool,
}

// SAFETY: only the owner of the lock accesses `log`; all other fields can be shared.
unsafe impl<L: RawLock, C: Doorway, A: Admission + Default> Sync for Logged<L, C, A> {}

impl<L: RawLock, C: Doorway, A: Admission + Default> Logged<L, C, A> {
    /// Runs the loop of a contender, until there are enough admissions. So each contender is late once, and ends.
    fn work(&self, contender: usize) {
        let mut go_on = true;
        while go_on {
            let pass = self.lock.lock();
            let entry = pass.ticket().map_or_else(|| Entry::Past { began: NOTED.get() }, C::entry);
            {
                // SAFETY: this contender owns the lock, and the references do not leave this block.
                let ArrivalHistory { admitted, late, beside } = unsafe { &mut *self.log.get() };
                go_on = admitted.len() < self.most;
                beside.push(Beside { contender: contender as u16, at_lock: AT_LOCK.get() as u16 });
                let log = if go_on { admitted } else { late };
                log.push(entry);
            }
            // SAFETY: `pass` came from `lock` of this lock above, on this thread.
            unsafe { self.lock.unlock(pass) };
            if self.rests {
                stall(OFTEN);
            }
        }
    }
}

/// Returns the first `most` admissions of `threads` threads that do nothing else, and the late contenders. With `rests`
/// the threads rest at times: a gate opens only when no contender is in the capacitor.
pub fn history<L, C, A>(
    inner: Stalls<L>,
    capacitor: C,
    admission: A,
    threads: usize,
    most: usize,
    rests: bool,
) -> io::Result<ArrivalHistory>
where
    L: RawLock + 'static,
    C: Doorway + 'static,
    A: Admission + Default + 'static,
{
    let announced = Arc::clone(&inner.announced);
    let lock = Wrapped::with(inner, capacitor, admission);
    let log = ArrivalHistory {
        admitted: Vec::with_capacity(most),
        late: Vec::with_capacity(threads),
        beside: Vec::with_capacity(most + threads),
    };
    let logged = Arc::new(Logged { lock, log: UnsafeCell::new(log), most, rests });
    let theirs = Arc::downgrade(&logged);
    let count = move || theirs.upgrade().map_or(0, |logged| logged.lock.capacitor().announced());
    assert!(announced.set(Box::new(count)).is_ok(), "it is set once");
    let theirs = Arc::clone(&logged);
    let work = move |contender, gate: &Gate| {
        if gate.wait() {
            theirs.work(contender);
        }
    };
    Contenders::Threads.fan_out(threads, work, |gate| gate.open(true))?;
    let logged = Arc::into_inner(logged).expect("the contenders have ended");
    Ok(logged.log.into_inner())
}
