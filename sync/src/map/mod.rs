//! Go's `sync.Map`: a map that many threads and goroutines may use at once, and that is read without locks.
//!
//! | step | where | user code that runs |
//! |---|---|---|
//! | the key is hashed | before all other steps | `Hash` |
//! | the key's entry is looked for in the trie, under a guard | [`trie`] | `==` of keys and of values, which may take time |
//! | a compare-exchange inserts, replaces or removes the entry | `trie` | none. If the compare-exchange fails, the previous step is repeated |
//! | the old entry is retired, and its value is cloned if the caller wants the value | [`reclaim`] | `clone` |
//! | the guard ends; memory that no guard keeps any more is freed | `reclaim` | destructors |
//!
//! So user code runs under no lock, but for the allocator, and in no half-published state. The trie has no lock: a thread that stops in the
//! trie holds up no other thread. A write allocates once, for its entry. If other keys have the same hash, the write
//! also allocates the list of these keys.
//!
//! # The demands of Go's contract, and how the map meets them
//!
//! * **Reads never wait.** A load is a walk down the trie, which needs no help from others.
//! * **A `range` may do anything**, and takes a guard of its own: see [`reclaim`]. A key has a single place in the
//!   order of the walk, so no walk meets a key twice, wherever the key moves.
//! * **Keys of the same hash** are in a list. `range` and growth do not depend on the length of the list.
//! * **All threads agree on a single order of all methods**, because accesses of slots are SeqCst.
//! * **`clear` is one exchange of the root**, as in Go.
//! * **A destructor that panics** does so where memory is freed. The panic is caught there: the panic has been
//!   reported, and goes no further. The same holds for a second panic, if both the key and the value of an entry panic.
//!
//! Of the maps that the laboratory compares, papaya is also read without locks, and its `range` may call the map. But
//! papaya hashes keys while copying them to a bigger table. An iteration does not end if too many keys have the same
//! hash, and may visit a key twice if the key moves meanwhile. Insertions are release stores. `dashmap`, `scc::HashMap`
//! and a `HashMap` in a lock run the function of `range`, and `==`, under a lock: a store in that function may
//! deadlock, and a read waits for a writer.
//!
//! # Goroutines
//!
//! Each operation has a guard of its own, so goroutines of one thread may begin and end their operations in any order. A goroutine
//! that waits for ever in `==` or `clone` keeps its guard: entries that are removed from this map from then on stay in
//! memory until the map is freed.
//!
//! Source: Go's `sync/map.go` and `internal/sync/hashtriemap.go`, in 1.27.3. That trie has a mutex for each node.

mod reclaim;
mod trie;

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use sudog_runtime::shim::system::OnceLock;

use reclaim::Guard;
use trie::{Entry, New, Trie};

/// The part of a map that exists from the first write on.
struct Table<K, V, S> {
    trie: Trie<K, V>,
    hasher: S,
}

/// A map from keys to values that threads and goroutines use together without a lock around it.
///
/// As in Go, the map suits keys that are written once and read often, and many callers that each work on their own
/// keys. For other uses a `HashMap` in a [`Mutex`](crate::Mutex) has better types and invariants. Reads never wait.
///
/// Values are copied out by cloning, as Go's are copied. [`load_with`](Map::load_with) reads a value without a clone.
///
/// # Contract
///
/// Each method is one atomic step for its key: [`load_and_delete`](Map::load_and_delete) returns exactly the value that
/// was removed, and if many calls of [`compare_and_swap`](Map::compare_and_swap) expect the same value, one of them
/// succeeds. Everything before a write happens before everything after a read that sees the write.
///
/// The hash, comparison and clone of a key or value run outside of any lock. They may call any method of the map, and
/// may panic. If they panic, the method has happened as a whole, or not at all. While `==` or `clone` waits, removed
/// entries of the map are not freed.
///
/// The default hasher is `std`'s, which resists keys that were chosen to collide. Faster hashers exist: hashing takes
/// half the time of a load. [`with_hasher`](Map::with_hasher) takes another hasher, for keys that no attacker chooses.
///
/// No method calls the scheduler: a goroutine that only uses a map in a loop should call
/// [`gosched`](sudog_runtime::goroutine) at times.
///
/// Different from Go:
///
/// * Keys and values that were removed or replaced are dropped a little later, by any user of the map that happens to
///   reclaim memory: mostly after up to 63 further removals and replacements by the same thread, at the latest with the map. Entries that are removed while a [`range`](Map::range) runs are
///   dropped after the `range`. A panic of such a destructor is reported, and goes no further.
/// * A destructor that removes or replaces keys of the same map may run the destructors of other removed keys and values
///   inside of itself, about once in 32 removals. If these destructors remove keys, too, then destructors nest, and many of
///   them may overflow the stack. So where destructors remove many keys, they should only note the keys, for code
///   outside of destructors to remove.
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
    /// Creates an empty map. Allocates nothing before the first write.
    #[must_use]
    pub const fn new() -> Self {
        Self { table: OnceLock::new(), hasher: RandomState::new }
    }
}

impl<K, V, S> Map<K, V, S> {
    /// Creates an empty map whose keys are hashed by `hasher`.
    #[must_use]
    pub fn with_hasher(hasher: S) -> Self {
        Self { table: OnceLock::from(Table { trie: Trie::new(), hasher }), hasher: || unreachable!("it has a table") }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Map<K, V, S> {
    /// Returns a clone of the key's value, if the key is in the map.
    #[inline]
    pub fn load<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let table = self.table.get()?;
        let hash = table.hash(key);
        table.under_guard(|guard| Some(table.trie.find(hash, guard, |there| there.borrow() == key)?.value.clone()))
    }

    /// Calls `f` with the key's value, if the key is in the map, and returns the result of `f`. `f` may do anything,
    /// and take any time.
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
        let table = self.table.get()?;
        let hash = table.hash(key);
        // Use the guard for this step only: `f` then keeps alive the value that it reads, and no more.
        let share = table.under_guard(|guard| table.trie.share(hash, guard, |there| there.borrow() == key))?;
        Some(f(share.value()))
    }

    /// Sets the key's value.
    #[inline]
    pub fn store(&self, key: K, value: V) {
        self.put(key, value, |_| ());
    }

    /// Sets the key's value, and returns the previous value, if there was a value.
    #[inline]
    pub fn swap(&self, key: K, value: V) -> Option<V>
    where
        V: Clone,
    {
        self.put(key, value, |old| old.value.clone())
    }

    /// Returns the key's value and `true`, if the key is in the map. Otherwise stores `value`, and returns `value` and
    /// `false`.
    #[inline]
    pub fn load_or_store(&self, key: K, value: V) -> (V, bool)
    where
        V: Clone,
    {
        let table = self.table();
        let hash = table.hash(&key);
        table.under_guard(|guard| {
            let mut new = New::Parts(key, value);
            match table.trie.put(hash, guard, &mut new, |there| there.is_none()) {
                Ok((stored, _)) => (stored.value.clone(), false),
                Err(there) => {
                    drop(new); // before the clone: a destructor that panics would leak the result
                    (there.expect("else it would have been stored").value.clone(), true)
                }
            }
        })
    }

    /// Removes the key, and returns its value, if the key was in the map.
    #[inline]
    pub fn load_and_delete<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.remove(key, |_| true, |entry| entry.value.clone())
    }

    /// Removes the key.
    #[inline]
    pub fn delete<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.remove(key, |_| true, |_| ());
    }

    /// Sets the key's value to `new` if the value is `old`. Returns whether the value was `old`; false if the key is
    /// not in the map.
    #[inline]
    pub fn compare_and_swap(&self, key: K, old: &V, new: V) -> bool
    where
        V: PartialEq,
    {
        let Some(table) = self.table.get() else { return false };
        let hash = table.hash(&key);
        table.under_guard(|guard| {
            let mut new = New::Parts(key, new);
            table.trie.put(hash, guard, &mut new, |there| there.is_some_and(|there| there.value == *old)).is_ok()
        })
    }

    /// Removes the key if its value is `old`. Returns whether the value was `old`; false if the key is not in the map.
    #[inline]
    pub fn compare_and_delete<Q: Hash + Eq + ?Sized>(&self, key: &Q, old: &V) -> bool
    where
        K: Borrow<Q>,
        V: PartialEq,
    {
        self.remove(key, |entry| entry.value == *old, |_| ()).is_some()
    }

    /// Calls `f` for each key and its value, in any order, until `f` returns `false`.
    ///
    /// The calls are no snapshot. No key is visited twice. A key that is in the map during the whole `range` is
    /// visited, with a value that the key had at some moment of the `range`. Other keys may be visited or not. `f` may
    /// call any method of the map, wait, and panic.
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
        table.trie.collector().with_own_guard(|guard| table.trie.walk(guard, &mut |entry| f(&entry.key, &entry.value)));
    }

    /// Removes all keys, at one instant.
    pub fn clear(&self) {
        if let Some(table) = self.table.get() {
            table.under_guard(|guard| table.trie.clear(guard));
        }
    }

    /// Stores the value. Calls `old` with the entry that the key had before.
    #[inline]
    fn put<R>(&self, key: K, value: V, old: impl FnOnce(&Entry<K, V>) -> R) -> Option<R> {
        let table = self.table();
        let hash = table.hash(&key);
        let mut new = New::Parts(key, value);
        new.entry(hash); // allocates before the guard begins, as an allocator may wait
        table.under_guard(|guard| table.trie.put(hash, guard, &mut new, |_| true).ok()?.1.map(old))
    }

    /// Removes the key's entry if `wants` returns true for the entry. Calls `old` with the entry.
    #[inline]
    fn remove<Q: Hash + Eq + ?Sized, R>(
        &self,
        key: &Q,
        wants: impl FnMut(&Entry<K, V>) -> bool,
        old: impl FnOnce(&Entry<K, V>) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let table = self.table.get()?;
        let hash = table.hash(key);
        table.under_guard(|guard| table.trie.remove(hash, guard, |there| there.borrow() == key, wants).map(old))
    }

    #[inline]
    fn table(&self) -> &Table<K, V, S> {
        self.table.get().unwrap_or_else(|| self.begin())
    }

    #[cold]
    fn begin(&self) -> &Table<K, V, S> {
        let hasher = (self.hasher)(); // user code, so call it outside of the lock
        self.table.get_or_init(|| Table { trie: Trie::new(), hasher })
    }
}

impl<K, V, S> Table<K, V, S> {
    #[inline(always)]
    fn under_guard<R>(&self, operation: impl FnOnce(&Guard<'_>) -> R) -> R {
        self.trie.collector().with_guard(operation)
    }
}

impl<K, V, S: BuildHasher> Table<K, V, S> {
    /// Returns 32 bits, each of which depends on the whole of the user's hash: the trie uses the upper bits first, and
    /// a hasher may be good only in the lower bits. Different hashes with the same 32 bits share a list, and cost a
    /// comparison.
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
    /// Formats the pairs that a [`range`](Map::range) visits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        self.range(|key, value| {
            map.entry(key, value);
            true
        });
        map.finish()
    }
}
