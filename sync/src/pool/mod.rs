//! Go's `sync.Pool`: free items, kept for callers that would otherwise make new ones.
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
//! A shard has a lock that callers only try: a caller that finds it taken goes to the next shard; a `put` that finds
//! all taken drops its item. Under the lock nothing runs but moves of items, and the allocator when `shared` grows: no
//! `New`, no destructor. So a thread that loses its processor there keeps other threads from that shard only, and no
//! goroutine leaves its thread there.
//!
//! What Go does without a lock (an owner that is pinned to its processor, a ring that others steal from) needs a thread
//! that cannot be interrupted by another with the same shard. Here threads share shards; the lock is one swap, which
//! other threads touch only when they run out of items. `holds` tells thieves whether stealing is worth it.
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

/// A set of items that are free to be used, from which any may vanish at any time.
///
/// [`get`](Pool::get) takes any item, or makes one by the function that the pool was made with. [`put`](Pool::put) gives
/// one back. Nothing relates what is put to what is got, but that what was done to an item before `put` happens before
/// what is done to it after `get`.
///
/// In Go, unused items vanish with the collections of garbage. There are none here, so the program says when:
/// [`age`](Pool::age), from time to time. As in Go, nothing else bounds how many items there are: a pool that does not
/// age keeps all that were put and not got.
///
/// A thread that has no items left finds those of other threads, but for one of each, until the pool ages.
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

/// For a pool that makes no items: a Go pool whose `New` is nil.
#[derive(Debug)]
pub struct NoNew(());

impl<T, F: Fn() -> T> Pool<T, F> {
    /// An empty pool that makes items by `new`.
    #[must_use]
    pub const fn new(new: F) -> Self {
        Self { shards: OnceLock::new(), new }
    }

    /// Some item of the pool; or a new one.
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

    /// As [`get`](Pool::get); the item goes back to the pool when the guard is dropped, even by a panic.
    #[inline]
    pub fn take(&self) -> Pooled<'_, T, F> {
        Pooled { item: Some(self.get()), pool: self }
    }
}

impl<T> Pool<T, NoNew> {
    /// An empty pool that makes no items.
    #[must_use]
    pub const fn empty() -> Self {
        Self { shards: OnceLock::new(), new: NoNew(()) }
    }

    /// Some item of the pool, if it finds one.
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
    /// Gives an item to the pool. If others are busy with all of its shards just now, the item is dropped.
    ///
    /// A goroutine that has run for long gives way here, after the item is in the pool.
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

    /// Drops the items that have not been used since the call before the last one: an item that is put stays until the
    /// second call from then.
    ///
    /// # Panics
    ///
    /// As the first destructor that does, when all items have been dropped.
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
        // All of them first, and then the destructors: one that panics stops nothing but itself.
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

/// An item of a [`Pool`], which it goes back to: see [`Pool::take`].
///
/// A guard that is forgotten keeps its item from the pool, and does no other harm.
pub struct Pooled<'a, T, F = fn() -> T> {
    /// `None` only while it is dropped.
    item: Option<T>,
    pool: &'a Pool<T, F>,
}

impl<T, F> Pooled<'_, T, F> {
    /// The item, which does not go back.
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
    /// A pool that makes default items.
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
