//! Go's `sync.Map`: a map that many may use at once, whose reads are without locks.
//!
//! | | where | what of the user's runs there |
//! |---|---|---|
//! | the key is hashed | before all else | `Hash` |
//! | its entry is looked for in the trie, under a guard | [`trie`] | `==` of keys and of values, which may take its time |
//! | one compare-exchange puts, replaces or removes the entry | `trie` | nothing. If it fails: the line above again |
//! | what was there is retired, and cloned if the caller wants it | [`reclaim`] | `clone` |
//! | the guard ends; what no guard keeps any more is freed | `reclaim` | destructors |
//!
//! So the user's code runs under no lock and in no half-published state. The trie has no lock: a thread that
//! stops in it holds up no other. A write allocates once, its entry; and a key of a hash that others have, its list.
//!
//! # What Go's contract asks for, and how it is kept
//!
//! * **Reads never wait.** A load is a walk down the trie, which needs no help from others.
//! * **A `range` may do anything**, and takes a guard of its own: see [`reclaim`]. A key has one place in the order of the
//!   walk, so no walk meets it twice, wherever it moves.
//! * **Keys of one hash** are in a list. `range` and growth do not depend on how many there are.
//! * **The order of all methods is one that all threads agree on**, as accesses of slots are SeqCst.
//! * **`clear` is one exchange of the root**, as in Go.
//! * **A destructor that panics** does so where memory is freed. It is stopped there: the panic has been reported, and
//!   goes no further; neither do others, of the key and the value of one entry.
//!
//! Of the maps that the laboratory compares, papaya's reads are without locks, too, and its `range` may call the map. But
//! it hashes keys while it copies them to a bigger table, its iteration does not end with too many keys of one hash, it
//! may visit a key twice that moves meanwhile, and its insertions are release stores. `dashmap`, `scc::HashMap` and a
//! `HashMap` in a lock run the function of `range`, and `==`, under a lock: a store in that function may deadlock, and a
//! read waits for a writer.
//!
//! # Goroutines
//!
//! Goroutines of one thread share the thread's guard, a count of readers. They may come and go in any order; memory is
//! freed when the count is 0.
//!
//! A goroutine that waits for ever in `==` or `clone` keeps the count of its thread above 0: what others remove from
//! this map from then on stays in memory until the map is freed.
//!
//! Source: Go's `sync/map.go` and `internal/sync/hashtriemap.go`, in 1.27.3. That trie has a mutex for each node.

mod reclaim;
mod trie;

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use sudog_runtime::shim::system::OnceLock;

use reclaim::{Collector, Shield};
use trie::{Entry, New, Share, Trie};

/// Calls a method with the function that makes its guard, as the first argument.
macro_rules! under_a_guard {
    ($this:ident.$method:ident($($argument:expr),*)) => {
        if reclaim::is_registered() {
            $this.$method(Collector::enter, $($argument),*)
        } else {
            reclaim::slowly(|| $this.$method(Collector::enter_owned, $($argument),*))
        }
    };
}

/// What there is from the first write on.
struct Table<K, V, S> {
    trie: Trie<K, V>,
    hasher: S,
}

/// A map from keys to values that threads and goroutines use together without a lock around it.
///
/// As in Go, it suits keys that are written once and read often, and many callers that work on keys of their own; else
/// a `HashMap` in a [`Mutex`](crate::Mutex) has better types and invariants. Reads never wait.
///
/// Values are copied out, as Go's are: cloned. [`load_with`](Map::load_with) looks at one without a clone.
///
/// # Contract
///
/// Each method is one atomic step for its key: what [`load_and_delete`](Map::load_and_delete) returns is what was
/// removed, and of many [`compare_and_swap`](Map::compare_and_swap) from one value one succeeds. What was done before a
/// write happens before what is done after a read that sees it.
///
/// The hash, comparison and clone of a key or value run outside of any lock. They may call any method of the map, and
/// panic: then the method has happened or not, as a whole. While `==` or `clone` wait, what is removed from the map is
/// not freed.
///
/// The default hasher is `std`'s, which resists keys that were chosen to collide, and is not the fastest there is: it is half of
/// a load's time. [`with_hasher`](Map::with_hasher) takes another one, for keys that no stranger chooses.
///
/// No method calls the scheduler: a goroutine that does nothing but use a map, in a loop, calls
/// [`gosched`](sudog_runtime::goroutine) at times.
///
/// Different from Go:
///
/// * Keys and values that were removed or replaced are dropped a little later, by whichever user of the map happens to
///   reclaim memory; at the latest with the map. Those removed while a [`range`](Map::range) runs, after it. A panic of
///   such a destructor is reported, and goes no further.
/// * There is no panic about values that cannot be compared: the compiler asks for `PartialEq`.
///
/// # Examples
///
/// ```
/// use sudog::sync::Map;
///
/// static PORTS: Map<&str, u16> = Map::new();
///
/// PORTS.store("http", 80);
/// assert_eq!(PORTS.load_or_store("http", 8080), (80, true));
/// assert!(PORTS.compare_and_swap("http", &80, 8080));
/// assert_eq!(PORTS.load_and_delete("http"), Some(8080));
/// assert_eq!(PORTS.load("http"), None);
/// ```
pub struct Map<K, V, S = RandomState> {
    table: OnceLock<Table<K, V, S>>,
    hasher: fn() -> S,
}

impl<K, V> Map<K, V> {
    /// An empty map. It allocates nothing before the first write.
    #[must_use]
    pub const fn new() -> Self {
        Self { table: OnceLock::new(), hasher: RandomState::new }
    }
}

impl<K, V, S> Map<K, V, S> {
    /// An empty map whose keys are hashed by `hasher`.
    #[must_use]
    pub fn with_hasher(hasher: S) -> Self {
        Self { table: OnceLock::from(Table { trie: Trie::new(), hasher }), hasher: || unreachable!("it has a table") }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Map<K, V, S> {
    /// The key's value, if it is in the map.
    #[inline]
    pub fn load<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        under_a_guard!(self.load_under(key))
    }

    /// What `f` says about the key's value, if it is in the map. `f` may do what it likes, and take its time.
    ///
    /// # Examples
    ///
    /// ```
    /// let map: sudog::sync::Map<u32, String> = [(1, "one".to_owned())].into_iter().collect();
    /// assert_eq!(map.load_with(&1, |name| name.len()), Some(3));
    /// ```
    #[inline]
    pub fn load_with<Q: Hash + Eq + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        // Under a guard for this only: `f` keeps alive what it looks at, and no more.
        let share = under_a_guard!(self.share_under(key))?;
        Some(f(share.value()))
    }

    /// Sets the key's value.
    #[inline]
    pub fn store(&self, key: K, value: V) {
        under_a_guard!(self.put_under(key, value, |_| ()));
    }

    /// Sets the key's value; returns the one before it, if there was one.
    #[inline]
    pub fn swap(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        under_a_guard!(self.put_under(key, value, |old| old.value.clone()))
    }

    /// The key's value and `true`; or stores this one, and returns it and `false`.
    #[inline]
    pub fn load_or_store(&self, key: K, value: V) -> (V, bool)
    where
        V: Clone,
    {
        under_a_guard!(self.load_or_store_under(key, value))
    }

    /// Removes the key; returns the value that it had.
    #[inline]
    pub fn load_and_delete<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        under_a_guard!(self.remove_under(key, |_| true, |entry| entry.value.clone()))
    }

    /// Removes the key.
    #[inline]
    pub fn delete<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        under_a_guard!(self.remove_under(key, |_| true, |_| ()));
    }

    /// Sets the key's value to `new` if it is `old`: whether it was. A key that is not in the map has no value.
    #[inline]
    pub fn compare_and_swap(&self, key: K, old: &V, new: V) -> bool
    where
        V: PartialEq,
    {
        under_a_guard!(self.compare_and_swap_under(key, old, new))
    }

    /// Removes the key if its value is `old`: whether it was.
    #[inline]
    pub fn compare_and_delete<Q: Hash + Eq + ?Sized>(&self, key: &Q, old: &V) -> bool
    where
        K: Borrow<Q>,
        V: PartialEq,
    {
        under_a_guard!(self.remove_under(key, |entry| entry.value == *old, |_| ())).is_some()
    }

    /// Calls `f` for each key and its value, in any order, until it returns `false`.
    ///
    /// It is no snapshot. No key is visited twice; one that is in the map all the while is visited, with a value that it
    /// had at some time meanwhile; others may be or may not. `f` may call any method of the map, wait, and panic.
    ///
    /// # Examples
    ///
    /// ```
    /// let map: sudog::sync::Map<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// map.range(|n, _| {
    ///     if n % 2 == 1 {
    ///         map.delete(n);
    ///     }
    ///     true
    /// });
    /// let mut sum = 0;
    /// map.range(|_, square| {
    ///     sum += square;
    ///     true
    /// });
    /// assert_eq!(sum, 4 + 16 + 36 + 64);
    /// ```
    pub fn range(&self, mut f: impl FnMut(&K, &V) -> bool) {
        let Some(table) = self.table.get() else { return };
        let guard = table.trie.collector().enter_owned();
        table.trie.walk(&guard, &mut |entry| f(&entry.key, &entry.value));
    }

    /// Removes all keys, at one instant.
    pub fn clear(&self) {
        if let Some(table) = self.table.get() {
            under_a_guard!(table.clear_under());
        }
    }

    #[inline]
    fn table(&self) -> &Table<K, V, S> {
        self.table.get().unwrap_or_else(|| self.begin())
    }

    #[cold]
    fn begin(&self) -> &Table<K, V, S> {
        let hasher = (self.hasher)(); // the user's code, so not inside of the lock
        self.table.get_or_init(|| Table { trie: Trie::new(), hasher })
    }
}

/// Each operation under a guard.
impl<K: Hash + Eq, V, S: BuildHasher> Map<K, V, S> {
    #[inline]
    fn load_under<'a, G: Shield, Q: Hash + Eq + ?Sized>(
        &'a self,
        enter: impl FnOnce(&'a Collector) -> G,
        key: &Q,
    ) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let table = self.table.get()?;
        let hash = table.hash(key);
        let guard = enter(table.trie.collector());
        let found = table.trie.find(hash, &guard, |there| there.borrow() == key)?;
        Some(found.value.clone())
    }

    #[inline]
    fn share_under<'a, G: Shield, Q: Hash + Eq + ?Sized>(
        &'a self,
        enter: impl FnOnce(&'a Collector) -> G,
        key: &Q,
    ) -> Option<Share<K, V>>
    where
        K: Borrow<Q>,
    {
        let table = self.table.get()?;
        let hash = table.hash(key);
        let guard = enter(table.trie.collector());
        table.trie.share(hash, &guard, |there| there.borrow() == key)
    }

    #[inline]
    fn load_or_store_under<'a, G: Shield>(
        &'a self,
        enter: impl FnOnce(&'a Collector) -> G,
        key: K,
        value: V,
    ) -> (V, bool)
    where
        V: Clone,
    {
        let table = self.table();
        let hash = table.hash(&key);
        let guard = enter(table.trie.collector());
        let mut new = New::Parts(key, value);
        match table.trie.put(hash, &guard, &mut new, |there| there.is_none()) {
            Ok((stored, _)) => (stored.value.clone(), false),
            Err(there) => {
                drop(new); // before the clone: a destructor that panics would leak what we return
                (there.expect("else it would have been stored").value.clone(), true)
            }
        }
    }

    #[inline]
    fn compare_and_swap_under<'a, G: Shield>(
        &'a self,
        enter: impl FnOnce(&'a Collector) -> G,
        key: K,
        old: &V,
        new: V,
    ) -> bool
    where
        V: PartialEq,
    {
        let Some(table) = self.table.get() else { return false };
        let hash = table.hash(&key);
        let guard = enter(table.trie.collector());
        let mut new = New::Parts(key, new);
        table.trie.put(hash, &guard, &mut new, |there| there.is_some_and(|there| there.value == *old)).is_ok()
    }

    #[inline]
    fn put_under<'a, G: Shield, R>(
        &'a self,
        enter: impl FnOnce(&'a Collector) -> G,
        key: K,
        value: V,
        old: impl FnOnce(&Entry<K, V>) -> R,
    ) -> Option<R> {
        let table = self.table();
        let hash = table.hash(&key);
        let guard = enter(table.trie.collector());
        let mut new = New::Parts(key, value);
        table.trie.put(hash, &guard, &mut new, |_| true).ok()?.1.map(old)
    }

    #[inline]
    fn remove_under<'a, G: Shield, Q, R>(
        &'a self,
        enter: impl FnOnce(&'a Collector) -> G,
        key: &Q,
        wants: impl FnMut(&Entry<K, V>) -> bool,
        old: impl FnOnce(&Entry<K, V>) -> R,
    ) -> Option<R>
    where
        Q: Hash + Eq + ?Sized,
        K: Borrow<Q>,
    {
        let table = self.table.get()?;
        let hash = table.hash(key);
        let guard = enter(table.trie.collector());
        table.trie.remove(hash, &guard, |there| there.borrow() == key, wants).map(old)
    }
}

impl<K, V, S> Table<K, V, S> {
    fn clear_under<'a, G: Shield>(&'a self, enter: impl FnOnce(&'a Collector) -> G) {
        self.trie.clear(&enter(self.trie.collector()));
    }
}

impl<K, V, S: BuildHasher> Table<K, V, S> {
    /// 32 bits of the user's hash, all of which depend on it: the trie takes the upper ones first, and hashers may be good
    /// in the lower ones. Different hashes that become one share a list, and cost a comparison.
    #[inline]
    fn hash(&self, key: &(impl Hash + ?Sized)) -> u32 {
        (self.hasher.hash_one(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }
}

impl<K, V, S: Default> Default for Map<K, V, S> {
    fn default() -> Self {
        Self { table: OnceLock::new(), hasher: S::default }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + Default> FromIterator<(K, V)> for Map<K, V, S> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = Self::default();
        map.extend(pairs);
        map
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Extend<(K, V)> for Map<K, V, S> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        for (key, value) in pairs {
            self.store(key, value);
        }
    }
}

impl<K: fmt::Debug + Hash + Eq, V: fmt::Debug, S: BuildHasher> fmt::Debug for Map<K, V, S> {
    /// What a [`range`](Map::range) visits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        self.range(|key, value| {
            map.entry(key, value);
            true
        });
        map.finish()
    }
}
