//! A shard of a pool, and its lock, which callers only try.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sudog_runtime::shim::system::atomic::{AtomicBool, AtomicU8};

use sudog_runtime::G;

/// Aligned so that no two share a cache line, nor a pair of lines that processors fetch together.
#[repr(align(128))]
pub(super) struct Shard<T> {
    taken: AtomicBool,
    /// [`SHARED`], [`VICTIM`] and [`OLD_PRIVATE`]. Written under the lock, and read without it.
    holds: AtomicU8,
    stock: UnsafeCell<Stock<T>>,
}

/// Thieves may find fresh items.
const SHARED: u8 = 1;
/// Thieves may find old items.
const VICTIM: u8 = 2;
/// There is an old private item.
const OLD_PRIVATE: u8 = 4;

pub(super) struct Stock<T> {
    pub(super) fresh: Items<T>,
    pub(super) victim: Items<T>,
}

pub(super) struct Items<T> {
    pub(super) private: Option<T>,
    pub(super) shared: VecDeque<T>,
}

// SAFETY: `stock` is touched under the lock only, and by the owner of the whole shard; items are moved from thread to
// thread, and never shared.
unsafe impl<T: Send> Sync for Shard<T> {}

/// All but the private item of the thread's own shard, which is locked.
#[cold]
#[inline(never)]
pub(super) fn pick_next<T>(mut stock: Locked<'_, T>, shards: &[Shard<T>], own: usize) -> Option<T> {
    if let Some(item) = stock.steal(SHARED, VecDeque::pop_back) {
        return Some(item);
    }
    drop(stock);
    pick_elsewhere(shards, own)
}

/// The same when the thread's own shard has nothing fresh, or was taken.
#[cold]
#[inline(never)]
pub(super) fn pick_elsewhere<T>(shards: &[Shard<T>], own: usize) -> Option<T> {
    let all = || (0..shards.len()).map(|i| &shards[(own + i) & (shards.len() - 1)]);
    let fresh = all().find_map(|shard| shard.steal(SHARED));
    fresh.or_else(|| shards[own].take_old_private()).or_else(|| all().find_map(|shard| shard.steal(VICTIM)))
}

/// Others are busy with the thread's own shard.
#[cold]
#[inline(never)]
pub(super) fn put_elsewhere<T>(shards: &[Shard<T>], own: usize, item: T) {
    for i in 1..=shards.len() {
        if let Some(mut stock) = shards[(own + i) & (shards.len() - 1)].try_lock() {
            return stock.share(item);
        }
    }
    drop(item);
}

impl<T> Shard<T> {
    pub(super) fn new() -> Self {
        let stock = Stock { fresh: Items::default(), victim: Items::default() };
        Self { taken: AtomicBool::new(false), holds: AtomicU8::new(0), stock: UnsafeCell::new(stock) }
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Option<Locked<'_, T>> {
        // Acquire: what the one before us did, up to its Release.
        if self.taken.swap(true, Acquire) { None } else { Some(Locked { shard: self }) }
    }

    /// For a caller that must have it: waits until its holder has moved an item.
    pub(super) fn lock(&self) -> Locked<'_, T> {
        loop {
            match self.try_lock() {
                Some(locked) => return locked,
                None => G::yield_now(),
            }
        }
    }

    /// The lock, if the shard has such items.
    fn try_lock_for(&self, what: u8) -> Option<Locked<'_, T>> {
        // Relaxed: an item that was put before us, in the order of things, is seen; any other may be missed.
        if self.holds.load(Relaxed) & what == 0 { None } else { self.try_lock() }
    }

    fn steal(&self, what: u8) -> Option<T> {
        self.try_lock_for(what)?.steal(what, VecDeque::pop_front)
    }

    fn take_old_private(&self) -> Option<T> {
        let mut stock = self.try_lock_for(OLD_PRIVATE)?;
        stock.holds_no_more(OLD_PRIVATE);
        stock.victim.private.take()
    }
}

pub(super) struct Locked<'a, T> {
    shard: &'a Shard<T>,
}

impl<T> Locked<'_, T> {
    /// What was fresh becomes old; what was old is the caller's.
    pub(super) fn age(&mut self) -> Items<T> {
        let young = mem::take(&mut self.fresh);
        let old = mem::replace(&mut self.victim, young);
        let private = if self.victim.private.is_some() { OLD_PRIVATE } else { 0 };
        let shared = if self.victim.shared.is_empty() { 0 } else { VICTIM };
        self.shard.holds.store(private | shared, Relaxed);
        old
    }

    /// Puts an item to the shared ones.
    #[inline(never)]
    pub(super) fn share(&mut self, item: T) {
        self.fresh.shared.push_back(item);
        let holds = &self.shard.holds;
        holds.store(holds.load(Relaxed) | SHARED, Relaxed);
    }

    /// An item of `what`, from this end.
    fn steal(&mut self, what: u8, end: fn(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let items = if what == SHARED { &mut self.fresh } else { &mut self.victim };
        let item = end(&mut items.shared);
        if items.shared.is_empty() {
            self.holds_no_more(what);
        }
        item
    }

    fn holds_no_more(&self, what: u8) {
        let holds = &self.shard.holds;
        holds.store(holds.load(Relaxed) & !what, Relaxed);
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = Stock<T>;

    #[inline]
    fn deref(&self) -> &Stock<T> {
        // SAFETY: we have the lock; and this borrows us.
        unsafe { &*self.shard.stock.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Stock<T> {
        // SAFETY: we have the lock; and this borrows us mutably.
        unsafe { &mut *self.shard.stock.get() }
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.shard.taken.store(false, Release);
    }
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self { private: None, shared: VecDeque::new() }
    }
}

impl<T> Items<T> {
    pub(super) fn into_iter(self) -> impl Iterator<Item = T> {
        self.private.into_iter().chain(self.shared)
    }
}
