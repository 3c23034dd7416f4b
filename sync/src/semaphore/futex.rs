//! A semaphore on Linux's futex: the kernel keeps the queue.
//!
//! | word | meaning |
//! |---|---|
//! | `permits` | the number of permits; waiters sleep on this word as a futex while it is 0 |
//! | `waiters` | the number of waiters that sleep, or are about to; a releaser that reads 0 makes no system call |
//!
//! The two words are a Dekker pair, as in the semaphore table: the waiter adds to `waiters`, then the kernel compares
//! `permits`; the releaser adds to `permits`, then reads `waiters`.
//!
//! A waiter blocks its operating-system thread, even if a goroutine runs on that thread. So a release is no safepoint.
//! If a goroutine gave way while it owns a lock over this semaphore, another goroutine of the same worker might wait
//! for that lock. That wait would block the worker, and the owner could not run.

use sudog_runtime::shim::{AtomicU32, Ordering, futex};
use sudog_runtime::{Instant, fatal};

#[cfg(not(sudog_loom))]
use crate::ConstSemaphore;
use crate::{Order, Semaphore, Wake};

/// A semaphore whose waiters sleep in the kernel's futex table.
///
/// A woken waiter competes with newcomers for its permit, so waiters have no order to rely on, and there is no handoff.
///
/// A goroutine that waits blocks its worker, so the owner of a lock over this semaphore must neither wait nor give way:
/// a waiter on the same worker would keep the owner from running. A release never switches to another goroutine.
///
/// # Examples
///
/// ```
/// use sudog::low_level::Semaphore;
/// use sudog::low_level::sema::Order;
/// use sudog::study::FutexSema;
///
/// let permits = FutexSema::new(2);
/// permits.acquire(Order::Fifo);
/// assert!(permits.try_acquire());
/// assert!(!permits.try_acquire());
/// ```
#[derive(Debug)]
pub struct FutexSema {
    permits: AtomicU32,
    waiters: AtomicU32,
}

impl FutexSema {
    /// Waits in the kernel until the caller has a permit, and returns true. Returns false if the deadline comes first.
    #[cold]
    fn acquire_slow(&self, deadline: Option<Instant>) -> bool {
        // SeqCst: this step is ordered before the kernel's comparison of `permits`. The two are the waiter's side of
        // the Dekker pair.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let got = loop {
            if self.try_acquire() {
                break true;
            }
            if !futex::wait(&self.permits, 0, deadline) {
                // A wait ends by a wake-up or by the deadline, never by both. After the deadline a permit may be there
                // all the same.
                break self.try_acquire();
            }
        };
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        got
    }
}

// SAFETY:
// - A permit is a unit of `permits`, which a compare-exchange takes.
// - The Dekker pair of `permits` and `waiters` loses no wake-up.
// - The RMWs on `permits` order a release before the acquire that takes the released unit.
unsafe impl Semaphore for FutexSema {
    const LIFO: bool = false;
    const FIFO: bool = false;
    const HANDOFF: bool = false;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        Self { permits: AtomicU32::new(permits), waiters: AtomicU32::new(0) }
    }

    #[inline]
    fn acquire(&self, _order: Order) {
        if !self.try_acquire() {
            self.acquire_slow(None);
        }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        let mut permits = self.permits.load(Ordering::SeqCst);
        while permits > 0 {
            match self.permits.compare_exchange_weak(permits, permits - 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(now) => permits = now,
            }
        }
        false
    }

    #[inline]
    fn acquire_until(&self, _order: Order, deadline: Instant) -> bool {
        self.try_acquire() || self.acquire_slow(Some(deadline))
    }

    #[inline]
    fn release(&self, _wake: Wake) {
        self.release_many(1);
    }

    #[inline]
    fn release_many(&self, n: u32) {
        if n == 0 {
            return;
        }
        // SeqCst: this step is ordered before the load below. The two are the releaser's side of the Dekker pair.
        if self.permits.fetch_add(n, Ordering::SeqCst) > u32::MAX - n {
            fatal("sema: more than 4294967295 permits");
        }
        if self.waiters.load(Ordering::SeqCst) > 0 {
            futex::wake(&raw const self.permits, n);
        }
    }
}

#[cfg(not(sudog_loom))]
impl ConstSemaphore for FutexSema {
    const INIT: Self = Self { permits: AtomicU32::new(0), waiters: AtomicU32::new(0) };
}
