//! Pools of free items.

use std::hint::black_box;
use std::iter::repeat_with;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;
use opool::{PoolAllocator, RefGuard};
use sudog_sync::Pool;
use sudog_sync::pool::NoNew;

use super::round::{Round, Timed};

/// The items of the pools: boxed words.
pub type Free = Box<u64>;

/// A pool. The benchmarks get an item and then put the item back; Go's put first. The reason: in some pools an item
/// goes back when a guard of the item is dropped. Over many operations the order makes no difference.
pub trait ItemPool: Send + Sync + 'static {
    /// An item that was taken from the pool.
    type Item<'a>
    where
        Self: 'a;

    /// Creates a pool with `items` items, and with room for no more.
    fn with(items: usize) -> Self;

    /// Takes an item. Returns `None` if the pool is empty.
    fn get(&self) -> Option<Self::Item<'_>>;

    /// Takes an item, or creates an item if the pool is empty.
    fn get_or_new(&self) -> Self::Item<'_>;

    /// Puts an item back.
    fn put<'a>(&'a self, item: Self::Item<'a>);
}

/// Go's pool.
pub type Ours = Pool<Free, NoNew>;

impl ItemPool for Ours {
    type Item<'a> = Free;

    fn with(items: usize) -> Self {
        let pool = Self::empty();
        repeat_with(Free::default).take(items).for_each(|item| pool.put(item));
        pool
    }

    #[inline]
    fn get(&self) -> Option<Free> {
        self.get()
    }

    #[inline]
    fn get_or_new(&self) -> Free {
        self.get().unwrap_or_default()
    }

    #[inline]
    fn put(&self, item: Free) {
        self.put(item);
    }
}

/// The pool of a program that uses no pool type: a `Vec` in a mutex.
pub struct MutexVec(Mutex<Vec<Free>>);

impl MutexVec {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Vec<Free>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ItemPool for MutexVec {
    type Item<'a> = Free;

    fn with(items: usize) -> Self {
        Self(Mutex::new(repeat_with(Free::default).take(items).collect()))
    }

    #[inline]
    fn get(&self) -> Option<Free> {
        self.lock().pop()
    }

    #[inline]
    fn get_or_new(&self) -> Free {
        self.get().unwrap_or_default()
    }

    #[inline]
    fn put(&self, item: Free) {
        self.lock().push(item);
    }
}

/// The pool of the crate `opool`.
pub struct Opool(opool::Pool<Boxes, Free>);

/// The allocator of the items of [`Opool`].
pub struct Boxes;

impl PoolAllocator<Free> for Boxes {
    fn allocate(&self) -> Free {
        Free::default()
    }
}

impl ItemPool for Opool {
    type Item<'a> = RefGuard<'a, Boxes, Free>;

    fn with(items: usize) -> Self {
        Self(opool::Pool::new_prefilled(items, Boxes))
    }

    #[inline]
    fn get(&self) -> Option<Self::Item<'_>> {
        self.0.try_get()
    }

    #[inline]
    fn get_or_new(&self) -> Self::Item<'_> {
        self.0.get()
    }

    #[inline]
    fn put<'a>(&'a self, item: Self::Item<'a>) {
        drop(item);
    }
}

/// The least work of a pool that several threads use at once.
pub struct TwoRmws(AtomicU64);

impl ItemPool for TwoRmws {
    type Item<'a> = ();

    fn with(items: usize) -> Self {
        Self(AtomicU64::new(items as u64))
    }

    #[inline]
    fn get(&self) -> Option<()> {
        self.0.fetch_sub(1, Ordering::Acquire);
        Some(())
    }

    #[inline]
    fn get_or_new(&self) {
        self.0.fetch_sub(1, Ordering::Acquire);
    }

    #[inline]
    fn put(&self, (): ()) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Gets an item and puts the item back.
pub fn pool<P: ItemPool>(round: &Round) -> Timed {
    let pool = CachePadded::new(P::with(round.threads));
    round.parallel(move |_, portion| portion.each(|| pool.put(black_box(pool.get_or_new()))))
}

/// Gets up to `gets` items, keeps `items` of them, and puts those back. A pool holds `items` items for each thread, so
/// a thread that finds too few items, because other threads got more than their share, creates the missing items.
pub fn many<P: ItemPool>(round: &Round, items: usize, gets: usize) -> Timed {
    let pool = CachePadded::new(P::with(items * round.threads));
    round.parallel(move |_, portion| {
        let mut held = Vec::with_capacity(gets);
        portion.each(|| {
            held.extend((0..gets).filter_map(|_| pool.get()));
            held.truncate(items);
            held.resize_with(items, || pool.get_or_new());
            black_box(&mut held).drain(..).for_each(|item| pool.put(item));
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back() {
        fn come_back<P: ItemPool>() {
            let pool = P::with(2);
            let two = [pool.get(), pool.get()];
            let third = pool.get_or_new();
            assert!(two.iter().all(Option::is_some));
            two.into_iter().flatten().chain([third]).for_each(|item| pool.put(item));
            assert!(pool.get().is_some());
        }
        come_back::<Ours>();
        come_back::<MutexVec>();
        come_back::<Opool>();
    }
}
