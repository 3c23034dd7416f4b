//! Go's runtime semaphore as a backend: four bytes; a table holds the waiters.

use std::fmt;
use std::marker::PhantomData;

use sudog_runtime::sema::{Acquire, Global, Order, Table, WaitError, WaitLimit, Wake, try_semacquire};
use sudog_runtime::{AtomicU32, Instant};

use crate::{AsyncSemaphore, Semaphore};

/// Go's runtime semaphore: see [`sudog_runtime::sema`] for the contract.
///
/// # Examples
///
/// ```
/// use sudog::low_level::{ConstSemaphore, Semaphore};
/// use sudog::low_level::RuntimeSema;
/// use sudog::low_level::sema::{Order, Wake};
///
/// static READY: RuntimeSema = RuntimeSema::INIT;
///
/// let t = std::thread::spawn(|| READY.acquire(Order::Fifo));
/// READY.release(Wake::Handoff);
/// t.join().unwrap();
/// ```
pub type RuntimeSema = TableSema<Global>;

/// A semaphore as [`RuntimeSema`], but with the waiters in a table of the user's: for example a table with another
/// queue in its buckets, or a table that [reports](sudog_runtime::sema::queue::Recorded) its steps.
///
/// # Examples
///
/// The Go mutex of 1.8 had a list for a queue:
///
/// ```
/// use sudog::study::queue::OneLevelList;
/// use sudog::study::{BUCKETS, SemTable, Table, TableSema, policy};
/// use sudog::sync::{GoMutex, MutexWith};
///
/// enum OfGo18 {}
///
/// // SAFETY: a static.
/// unsafe impl Table for OfGo18 {
///     type Queue = OneLevelList;
///     fn table() -> &'static SemTable<BUCKETS, OneLevelList> {
///         static TABLE: SemTable<BUCKETS, OneLevelList> = SemTable::const_new();
///         &TABLE
///     }
/// }
///
/// static TOTAL: MutexWith<GoMutex<TableSema<OfGo18>, policy::Go1_8>, u64> = MutexWith::new(0);
/// *TOTAL.lock() += 1;
/// ```
#[repr(transparent)]
pub struct TableSema<T> {
    permits: AtomicU32,
    table: PhantomData<T>,
}

// SAFETY: `sudog_runtime::sema` promises what [`Semaphore`] asks for: a permit is a unit of the counter or a grant, and
// is taken once.
unsafe impl<T: Table> Semaphore for TableSema<T> {
    const LIFO: bool = true;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = true;

    #[inline]
    fn new(permits: u32) -> Self {
        Self { permits: AtomicU32::new(permits), table: PhantomData }
    }

    #[inline]
    fn acquire(&self, order: Order) {
        T::table().acquire(&self.permits, order);
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        try_semacquire(&self.permits)
    }

    #[inline]
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        T::table().acquire_limited(&self.permits, order, &WaitLimit::until(deadline)).is_ok()
    }

    #[inline]
    fn acquire_limited(&self, order: Order, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        T::table().acquire_limited(&self.permits, order, limit)
    }

    #[inline]
    fn acquire_standing_by(
        &self,
        order: Order,
        limit: &WaitLimit<'_>,
        stand_by: impl Fn(&dyn Fn() -> bool),
    ) -> Result<(), WaitError> {
        T::table().acquire_standing_by(&self.permits, order, limit, stand_by)
    }

    #[inline]
    fn release(&self, wake: Wake) {
        T::table().release(&self.permits, wake);
    }

    #[inline]
    fn release_many(&self, n: u32) {
        T::table().release_many(&self.permits, n);
    }

    #[inline]
    fn grant_many(&self, n: u32) {
        T::table().grant_many(&self.permits, n);
    }
}

// SAFETY: the future `sudog_runtime::sema::Acquire` promises what [`AsyncSemaphore`] asks for.
unsafe impl<T: Table> AsyncSemaphore for TableSema<T> {
    type Acquire<'a> = Acquire<'a, T::Queue>;

    #[inline]
    fn acquire_async(&self, order: Order) -> Acquire<'_, T::Queue> {
        T::table().acquire_async(&self.permits, order)
    }
}

#[cfg(not(sudog_loom))]
impl<T: Table> crate::ConstSemaphore for TableSema<T> {
    const INIT: Self = Self { permits: AtomicU32::new(0), table: PhantomData };
}

#[cfg(not(sudog_loom))]
impl<T: Table, const N: u32> crate::ConstPermits<N> for TableSema<T> {
    const WITH_PERMITS: Self = Self { permits: AtomicU32::new(N), table: PhantomData };
}

impl<T> fmt::Debug for TableSema<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableSema").field("permits", &self.permits).finish()
    }
}
