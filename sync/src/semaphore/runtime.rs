//! Go's runtime semaphore as a backend: four bytes, its waiters in the global table.

use sudog_runtime::sema::{
    Acquire, Order, Wake, semacquire_mutex, semacquire_mutex_async, semacquire_until, semgrant_many, semrelease,
    semrelease_many, try_semacquire,
};
use sudog_runtime::{AtomicU32, Instant};

use crate::{AsyncSemaphore, Semaphore};

/// Go's runtime semaphore: see [`sudog_runtime::sema`] for the contract.
///
/// # Examples
///
/// ```
/// use sudog_sync::semaphore::RuntimeSema;
/// use sudog_sync::{ConstSemaphore, Order, Semaphore, Wake};
///
/// static READY: RuntimeSema = RuntimeSema::EMPTY;
///
/// let t = std::thread::spawn(|| READY.acquire(Order::Fifo));
/// READY.release(Wake::Handoff);
/// t.join().unwrap();
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct RuntimeSema {
    permits: AtomicU32,
}

// SAFETY: the promises of `sudog_runtime::sema`: a permit is a unit of the counter or a grant; both are taken once.
unsafe impl Semaphore for RuntimeSema {
    const LIFO: bool = true;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = true;

    #[inline]
    fn new(permits: u32) -> Self {
        Self { permits: AtomicU32::new(permits) }
    }

    #[inline]
    fn acquire(&self, order: Order) {
        semacquire_mutex(&self.permits, order);
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        try_semacquire(&self.permits)
    }

    #[inline]
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        semacquire_until(&self.permits, order, deadline)
    }

    #[inline]
    fn release(&self, wake: Wake) {
        semrelease(&self.permits, wake);
    }

    #[inline]
    fn release_many(&self, n: u32) {
        semrelease_many(&self.permits, n);
    }

    #[inline]
    fn grant_many(&self, n: u32) {
        semgrant_many(&self.permits, n);
    }
}

// SAFETY: the promises of `Acquire`.
unsafe impl AsyncSemaphore for RuntimeSema {
    type Acquire<'a> = Acquire<'a>;

    #[inline]
    fn acquire_async(&self, order: Order) -> Acquire<'_> {
        semacquire_mutex_async(&self.permits, order)
    }
}

#[cfg(not(sudog_loom))]
impl crate::ConstSemaphore for RuntimeSema {
    const EMPTY: Self = Self { permits: AtomicU32::new(0) };
}
