//! RuntimeLifo: the runtime semaphore with the most unfair of its orders.

use std::time::Instant;

use sudog_sync::semaphore::RuntimeSema;
use sudog_sync::{Order, Semaphore, Wake};

/// The runtime semaphore, whose waiters are all queued at the head: last come, first served.
#[derive(Debug)]
pub struct RuntimeLifo(pub RuntimeSema);

// SAFETY: every call goes to the runtime semaphore, which keeps the promises of `Semaphore`.
unsafe impl Semaphore for RuntimeLifo {
    const LIFO: bool = false;
    const FIFO: bool = false;
    const HANDOFF: bool = true;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        Self(RuntimeSema::new(permits))
    }

    #[inline]
    fn acquire(&self, _order: Order) {
        self.0.acquire(Order::Lifo);
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }

    #[inline]
    fn acquire_until(&self, _order: Order, deadline: Instant) -> bool {
        self.0.acquire_until(Order::Lifo, deadline)
    }

    #[inline]
    fn release(&self, wake: Wake) {
        self.0.release(wake);
    }

    #[inline]
    fn grant_many(&self, n: u32) {
        self.0.grant_many(n);
    }
}
