//! Go's `sync.Pool`: free items, kept for callers that would otherwise make new items.
//!
//! ```text
//!   pool: one shard for each processor, allocated by the first `put`; a thread uses one of them, its own
//!
//!             fresh                            victim: what was fresh before the last `age`
//!            ┌─────────┬────────────────────┐ ┌─────────┬────────────────────┐
//!   shard    │ private │ shared   thieves ─>│ │ private │ shared   thieves ─>│
//!            └─────────┴────────────────────┘ └─────────┴────────────────────┘
//!   get:         1.        2. head   3. tails of others    4.       5. tails of all          6. New
//!   put:         1.        2. head
//! ```
//!
//! A shard has a lock that callers only try. If the lock is taken, the caller goes to the next shard; a `put` that
//! finds all locks taken drops its item. The holder of the lock only moves items, and allocates when `shared` grows;
//! `New` and destructors run without the lock. So a holder that loses its processor keeps other threads from that shard
//! only, and no goroutine leaves its thread while it holds the lock.
//!
//! Go works without a lock: an owner is pinned to its processor, and other processors steal from the owner's ring. That
//! requires that an owner cannot be interrupted by another owner of the same shard. Here several threads share a shard.
//! The lock is a single swap, of a word that other threads access only when they run out of items. The field `holds` of
//! a shard tells thieves whether stealing is worthwhile.
//!
//! Source: Go's `sync/pool.go`, in the development tree of 1.28.

mod shard;

use std::fmt;
use std::ops::{Deref, DerefMut};
use sudog_runtime::shim::system::OnceLock;
use sudog_runtime::shim::system::thread;

use sudog_runtime::panics::Panics;

use shard::{Items, Shard, pick_elsewhere, pick_next, put_elsewhere};

use crate::thread_index::thread_index;

/// A set of free items, of which any may vanish at any time.
///
/// [`get`](Pool::get) takes any item, or makes an item by the function that the pool was created with.
/// [`put`](Pool::put) gives an item back. The pool promises nothing about which item a `get` takes. Everything done to
/// an item before `put` happens before everything done to that item after `get`.
///
/// In Go, garbage collections remove unused items. Here there is no garbage collection, so the program calls
/// [`age`](Pool::age) from time to time. As in Go, nothing else bounds the number of items: a pool that does not age
/// keeps all items that were put and not got.
///
/// A thread has one shard of the pool, which other threads may have, too. A thread whose shard is empty takes the items
/// of other shards, except for one item of each shard: that item is taken only by threads of the same shard.
///
/// # Examples
///
/// ```
/// use sudog::sync::Pool;
///
/// static BUFFERS: Pool<Vec<u8>> = Pool::new(Vec::new);
///
/// let mut buffer = BUFFERS.take(); // goes back when dropped
/// buffer.clear();
/// buffer.extend_from_slice(b"hello");
/// ```
pub struct Pool<T, F = fn() -> T> {
    shards: OnceLock<Box<[Shard<T>]>>,
    new: F,
}

/// The function type of a pool that makes no items: a Go pool whose `New` is nil.
#[derive(Debug)]
pub struct NoNew(());

impl<T, F: Fn() -> T> Pool<T, F> {
    /// Creates an empty pool, which makes items by `new`.
    #[must_use]
    pub const fn new(new: F) -> Self {
        Self { shards: OnceLock::new(), new }
    }

    /// Takes an item from the pool, or makes a new item.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = sudog::sync::Pool::new(|| 1);
    /// assert_eq!(pool.get(), 1);
    /// pool.put(2);
    /// assert_eq!(pool.get(), 2);
    /// ```
    #[inline]
    pub fn get(&self) -> T {
        self.pick().unwrap_or_else(&self.new)
    }

    /// Takes an item as [`get`](Pool::get) does. The item goes back to the pool when the guard is dropped, even by a
    /// panic.
    #[inline]
    pub fn take(&self) -> Pooled<'_, T, F> {
        Pooled { item: Some(self.get()), pool: self }
    }
}

impl<T> Pool<T, NoNew> {
    /// Creates an empty pool, which makes no items.
    #[must_use]
    pub const fn empty() -> Self {
        Self { shards: OnceLock::new(), new: NoNew(()) }
    }

    /// Takes an item from the pool, if the call finds an item.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = sudog::sync::Pool::empty();
    /// assert_eq!(pool.get(), None);
    /// pool.put("it");
    /// assert_eq!(pool.get(), Some("it"));
    /// ```
    #[inline]
    pub fn get(&self) -> Option<T> {
        self.pick()
    }
}

impl<T, F> Pool<T, F> {
    /// Gives an item to the pool. If other callers are busy with all shards of the pool just now, the item is dropped.
    ///
    /// A goroutine that has run for long yields here, after the item is in the pool.
    #[inline]
    pub fn put(&self, item: T) {
        let shards = self.shards.get().map_or_else(|| self.allocate(), |shards| &**shards);
        let own = thread_index() & (shards.len() - 1);
        match shards[own].try_lock() {
            Some(mut stock) => {
                if stock.fresh.private.is_none() {
                    stock.fresh.private = Some(item);
                } else {
                    stock.share(item);
                }
            }
            None => put_elsewhere(shards, own, item),
        }
        sudog_runtime::safepoint();
    }

    /// Drops the items that have not been used since the previous call of `age`: an item that is put stays until the
    /// second call after the `put`.
    ///
    /// # Panics
    ///
    /// Panics if a destructor panics: with the first such panic, when all items have been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = sudog::sync::Pool::empty();
    /// pool.put(1);
    /// pool.age();
    /// assert_eq!(pool.get(), Some(1));
    /// pool.put(1);
    /// pool.age();
    /// pool.age();
    /// assert_eq!(pool.get(), None);
    /// ```
    pub fn age(&self) {
        let shards = self.shards.get().map_or(&[][..], |shards| &**shards);
        // Take all items first, and then run the destructors: a destructor that panics keeps no other from running.
        let old: Vec<Items<T>> = shards.iter().map(|shard| shard.lock().age()).collect();
        let mut panics = Panics::default();
        for item in old.into_iter().flat_map(Items::into_iter) {
            panics.catch(|| drop(item));
        }
        panics.resume();
    }

    #[inline]
    fn pick(&self) -> Option<T> {
        let shards = self.shards.get()?;
        let own = thread_index() & (shards.len() - 1);
        let Some(mut stock) = shards[own].try_lock() else { return pick_elsewhere(shards, own) };
        let item = stock.fresh.private.take();
        if item.is_some() { item } else { pick_next(stock, shards, own) }
    }

    #[cold]
    fn allocate(&self) -> &[Shard<T>] {
        self.shards.get_or_init(|| {
            let processors = thread::available_parallelism().map_or(1, usize::from);
            (0..processors.next_power_of_two()).map(|_| Shard::new()).collect()
        })
    }
}

/// An item of a [`Pool`]. The item goes back to the pool when this guard is dropped: see [`Pool::take`].
///
/// A guard that is forgotten keeps its item from the pool, which does no other harm.
pub struct Pooled<'a, T, F = fn() -> T> {
    /// The item. `None` only while the guard is being dropped.
    item: Option<T>,
    pool: &'a Pool<T, F>,
}

impl<T, F> Pooled<'_, T, F> {
    /// Returns the item, which does not go back to the pool.
    ///
    /// # Panics
    ///
    /// Never.
    #[must_use]
    pub fn into_inner(mut this: Self) -> T {
        this.item.take().expect("it is dropped only once")
    }
}

impl<T, F> Deref for Pooled<'_, T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.item.as_ref().expect("not dropped yet")
    }
}

impl<T, F> DerefMut for Pooled<'_, T, F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.item.as_mut().expect("not dropped yet")
    }
}

impl<T, F> Drop for Pooled<'_, T, F> {
    #[inline]
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.pool.put(item);
        }
    }
}

impl<T: fmt::Debug, F> fmt::Debug for Pooled<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pooled").field(&**self).finish()
    }
}

impl<T: Default> Default for Pool<T> {
    /// Creates a pool that makes default items.
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T, F> fmt::Debug for Pool<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
