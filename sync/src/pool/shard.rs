//! A shard of a pool, with a lock that callers only try.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sudog_runtime::shim::system::atomic::{AtomicBool, AtomicU8};

use sudog_runtime::G;

/// A shard, aligned so that no two shards share a cache line, nor a pair of lines that processors fetch together.
#[repr(align(128))]
pub(super) struct Shard<T> {
    taken: AtomicBool,
    /// The flags [`SHARED`], [`VICTIM`] and [`OLD_PRIVATE`]. Written under the lock, and read without the lock.
    holds: AtomicU8,
    stock: UnsafeCell<Stock<T>>,
}

/// The flag of a shard with fresh items that thieves may take.
const SHARED: u8 = 1;
/// The flag of a shard with old items that thieves may take.
const VICTIM: u8 = 2;
/// The flag of a shard with an old private item.
const OLD_PRIVATE: u8 = 4;

pub(super) struct Stock<T> {
    pub(super) fresh: Items<T>,
    pub(super) victim: Items<T>,
}

pub(super) struct Items<T> {
    pub(super) private: Option<T>,
    pub(super) shared: VecDeque<T>,
}

// SAFETY: `stock` is accessed only under the lock, or by the owner of the whole shard. Items are moved between
// threads, and never shared.
unsafe impl<T: Send> Sync for Shard<T> {}

/// Takes any item of the pool except the private item of the thread's own shard. `stock` is that shard, locked.
#[cold]
#[inline(never)]
pub(super) fn pick_next<T>(mut stock: Locked<'_, T>, shards: &[Shard<T>], own: usize) -> Option<T> {
    if let Some(item) = stock.steal(SHARED, VecDeque::pop_back) {
        return Some(item);
    }
    drop(stock);
    pick_elsewhere(shards, own)
}

/// Takes an item from anywhere, if the thread's own shard has no fresh item, or was locked.
#[cold]
#[inline(never)]
pub(super) fn pick_elsewhere<T>(shards: &[Shard<T>], own: usize) -> Option<T> {
    let all = || (0..shards.len()).map(|i| &shards[(own + i) & (shards.len() - 1)]);
    let fresh = all().find_map(|shard| shard.steal(SHARED));
    fresh.or_else(|| shards[own].take_old_private()).or_else(|| all().find_map(|shard| shard.steal(VICTIM)))
}

/// Puts an item into any shard, because another caller has locked the thread's own shard.
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
        // Acquire: see everything that the previous holder did before its Release.
        if self.taken.swap(true, Acquire) { None } else { Some(Locked { shard: self }) }
    }

    /// Locks the shard, for a caller that must have the lock: waits until the holder has moved its item.
    pub(super) fn lock(&self) -> Locked<'_, T> {
        loop {
            match self.try_lock() {
                Some(locked) => return locked,
                None => G::yield_now(),
            }
        }
    }

    /// Locks the shard if the shard has items of the kind that the flag `what` names, and the lock is free.
    fn try_lock_for(&self, what: u8) -> Option<Locked<'_, T>> {
        // Relaxed: an item is seen if its `put` happens before this call; any other item may be missed.
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
    /// Makes the fresh items old, and returns the items that were old before.
    pub(super) fn age(&mut self) -> Items<T> {
        let young = mem::take(&mut self.fresh);
        let old = mem::replace(&mut self.victim, young);
        let private = if self.victim.private.is_some() { OLD_PRIVATE } else { 0 };
        let shared = if self.victim.shared.is_empty() { 0 } else { VICTIM };
        self.shard.holds.store(private | shared, Relaxed);
        old
    }

    /// Puts an item into `shared`.
    #[inline(never)]
    pub(super) fn share(&mut self, item: T) {
        self.fresh.shared.push_back(item);
        let holds = &self.shard.holds;
        holds.store(holds.load(Relaxed) | SHARED, Relaxed);
    }

    /// Takes an item of the kind that the flag `what` names, by `end`: from the front or from the back of `shared`.
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
        // SAFETY: `self` holds the lock, and the result borrows `self`.
        unsafe { &*self.shard.stock.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Stock<T> {
        // SAFETY: `self` holds the lock, and the result borrows `self` mutably.
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
