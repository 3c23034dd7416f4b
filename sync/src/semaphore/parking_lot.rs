//! A semaphore on parking_lot_core, whose table holds the waiters.
//!
//! | acquirer | releaser |
//! |---|---|
//! | locks the bucket, tests the counter, queues | adds to the counter, then locks the bucket and unparks a waiter |
//! | | handoff: locks the bucket; unparks a waiter with the permit, or adds to the counter if there is no waiter |
//!
//! The counter is tested, and a handoff decided, under the lock of the bucket, so no wake-up is lost. Each release
//! takes that lock, because the four bytes have no room for a count of waiters.
//!
//! A waiter blocks its operating-system thread, even if a goroutine runs on that thread. So a release is no safepoint,
//! as in `futex.rs`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use parking_lot_core::{DEFAULT_PARK_TOKEN, ParkResult, UnparkToken};
use sudog_runtime::fatal;

use crate::{ConstPermits, ConstSemaphore, Order, Semaphore, Wake};

/// The token that tells a woken waiter to compete for the permit, which is in the counter.
const WOKEN: UnparkToken = UnparkToken(0);
/// The token that gives the permit to the woken waiter.
const GRANTED: UnparkToken = UnparkToken(1);

/// A semaphore whose waiters stand in parking_lot_core's table.
///
/// A goroutine that waits blocks its worker, so the owner of a lock over this semaphore must neither wait nor give way:
/// a waiter on the same worker would keep the owner from running. A release never switches to another goroutine.
///
/// # Examples
///
/// ```
/// use sudog::low_level::Semaphore;
/// use sudog::low_level::sema::{Order, Wake};
/// use sudog::study::ParkingLotSema;
///
/// let permits = ParkingLotSema::new(0);
/// permits.release(Wake::Normal);
/// permits.acquire(Order::Fifo);
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct ParkingLotSema {
    permits: AtomicU32,
}

impl ParkingLotSema {
    fn key(&self) -> usize {
        (&raw const self.permits).addr()
    }

    fn add(&self, n: u32) {
        if self.permits.fetch_add(n, Ordering::Release) > u32::MAX - n {
            fatal("sema: more than 4294967295 permits");
        }
    }

    /// Parks until the caller has a permit, and returns true. Returns false if the deadline comes first.
    #[cold]
    fn acquire_slow(&self, deadline: Option<Instant>) -> bool {
        loop {
            let no_permit = || self.permits.load(Ordering::Relaxed) == 0;
            // SAFETY:
            // - the key is the address of a word of this semaphore, so no other code parks on that key;
            // - the callbacks neither panic nor call into parking_lot.
            let outcome = unsafe {
                parking_lot_core::park(self.key(), no_permit, || (), |_, _| (), DEFAULT_PARK_TOKEN, deadline)
            };
            match outcome {
                // An unpark happens before the return of the park that the unpark ends, so the acquirer sees the
                // releaser's writes.
                ParkResult::Unparked(GRANTED) => return true,
                // The waiter was woken, or found a permit: try to take a permit, even if the deadline has passed.
                ParkResult::Unparked(_) | ParkResult::Invalid => {
                    if self.try_acquire() {
                        return true;
                    }
                }
                ParkResult::TimedOut => return false,
            }
        }
    }
}

// SAFETY:
// - A permit is a unit of `permits`, which a compare-exchange takes, or a GRANTED token, which is delivered once.
// - The tests under the lock of the bucket lose no wake-up.
// - The counter or the unpark orders releases before acquires.
unsafe impl Semaphore for ParkingLotSema {
    const LIFO: bool = false;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        Self { permits: AtomicU32::new(permits) }
    }

    #[inline]
    fn acquire(&self, _order: Order) {
        if !self.try_acquire() {
            self.acquire_slow(None);
        }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        let mut permits = self.permits.load(Ordering::Relaxed);
        while permits > 0 {
            match self.permits.compare_exchange_weak(permits, permits - 1, Ordering::Acquire, Ordering::Relaxed) {
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

    fn release(&self, wake: Wake) {
        let grants = wake != Wake::Normal;
        if !grants {
            self.add(1);
        }
        let told = |result: parking_lot_core::UnparkResult| {
            if grants && result.unparked_threads == 0 {
                self.add(1);
            }
            if grants { GRANTED } else { WOKEN }
        };
        // SAFETY: the key is the address of a word of this semaphore; `told` does not call into parking_lot, and its `add`
        // can abort, but not panic.
        unsafe { parking_lot_core::unpark_one(self.key(), told) };
    }
}

impl<const N: u32> ConstPermits<N> for ParkingLotSema {
    const WITH_PERMITS: Self = Self { permits: AtomicU32::new(N) };
}

impl ConstSemaphore for ParkingLotSema {
    const INIT: Self = Self { permits: AtomicU32::new(0) };
}
