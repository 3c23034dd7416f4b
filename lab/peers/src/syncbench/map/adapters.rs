//! The maps that are compared, as [`ConcurrentMap`]s.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use papaya::{Compute, Operation};

use super::{ConcurrentMap, Mix};

/// The map of this library.
pub struct Ours<S = Mix>(sudog_sync::Map<u64, u64, S>);

impl<S: BuildHasher + Default + Send + Sync + 'static> ConcurrentMap for Ours<S> {
    fn new() -> Self {
        Self(sudog_sync::Map::with_hasher(S::default()))
    }

    #[inline]
    fn load(&self, key: u64) -> Option<u64> {
        self.0.load(&key)
    }

    #[inline]
    fn store(&self, key: u64, value: u64) {
        self.0.store(key, value);
    }

    #[inline]
    fn load_or_store(&self, key: u64, value: u64) -> (u64, bool) {
        self.0.load_or_store(key, value)
    }

    #[inline]
    fn load_and_delete(&self, key: u64) -> Option<u64> {
        self.0.load_and_delete(&key)
    }

    #[inline]
    fn delete(&self, key: u64) {
        self.0.delete(&key);
    }

    #[inline]
    fn swap(&self, key: u64, value: u64) -> Option<u64> {
        self.0.swap(key, value)
    }

    #[inline]
    fn compare_and_swap(&self, key: u64, old: u64, new: u64) -> bool {
        self.0.compare_and_swap(key, &old, new)
    }

    #[inline]
    fn compare_and_delete(&self, key: u64, old: u64) -> bool {
        self.0.compare_and_delete(&key, &old)
    }

    fn range(&self, mut f: impl FnMut(u64, u64) -> bool) {
        self.0.range(|&key, &value| f(key, value));
    }

    fn clear(&self) {
        self.0.clear();
    }
}

/// The map of `papaya`, with a guard for each operation.
pub struct Papaya(papaya::HashMap<u64, u64, Mix>);

impl ConcurrentMap for Papaya {
    fn new() -> Self {
        Self(papaya::HashMap::with_hasher(Mix))
    }

    #[inline]
    fn load(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }

    #[inline]
    fn store(&self, key: u64, value: u64) {
        self.0.pin().insert(key, value);
    }

    #[inline]
    fn load_or_store(&self, key: u64, value: u64) -> (u64, bool) {
        // `try_insert` allocates before it looks for the key. `try_insert_with` does not; but a map that grows by
        // `try_insert_with`, as by every method that is a `compute`, keeps the old tables, and every later operation
        // becomes ten times as slow.
        let map = self.0.pin();
        if let Some(&there) = map.get(&key) {
            return (there, true);
        }
        match map.try_insert(key, value) {
            Ok(&stored) => (stored, false),
            Err(there) => (*there.current, true),
        }
    }

    #[inline]
    fn load_and_delete(&self, key: u64) -> Option<u64> {
        self.0.pin().remove(&key).copied()
    }

    #[inline]
    fn swap(&self, key: u64, value: u64) -> Option<u64> {
        self.0.pin().insert(key, value).copied()
    }

    #[inline]
    fn compare_and_swap(&self, key: u64, old: u64, new: u64) -> bool {
        let swap = |entry: Option<(&u64, &u64)>| match entry {
            Some((_, &value)) if value == old => Operation::Insert(new),
            _ => Operation::Abort(()),
        };
        matches!(self.0.pin().compute(key, swap), Compute::Updated { .. })
    }

    #[inline]
    fn compare_and_delete(&self, key: u64, old: u64) -> bool {
        matches!(self.0.pin().remove_if(&key, |_, &value| value == old), Ok(Some(_)))
    }

    fn range(&self, mut f: impl FnMut(u64, u64) -> bool) {
        let _ = self.0.pin().iter().all(|(&key, &value)| f(key, value));
    }

    fn clear(&self) {
        self.0.pin().clear();
    }
}

pub struct Dashmap(dashmap::DashMap<u64, u64, Mix>);

impl ConcurrentMap for Dashmap {
    fn new() -> Self {
        Self(dashmap::DashMap::with_hasher(Mix))
    }

    #[inline]
    fn load(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| *value)
    }

    #[inline]
    fn store(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    #[inline]
    fn load_or_store(&self, key: u64, value: u64) -> (u64, bool) {
        match self.0.entry(key) {
            dashmap::Entry::Occupied(there) => (*there.get(), true),
            dashmap::Entry::Vacant(place) => (*place.insert(value), false),
        }
    }

    #[inline]
    fn load_and_delete(&self, key: u64) -> Option<u64> {
        self.0.remove(&key).map(|(_, value)| value)
    }

    #[inline]
    fn swap(&self, key: u64, value: u64) -> Option<u64> {
        self.0.insert(key, value)
    }

    #[inline]
    fn compare_and_swap(&self, key: u64, old: u64, new: u64) -> bool {
        let Some(mut value) = self.0.get_mut(&key) else { return false };
        let swaps = *value == old;
        if swaps {
            *value = new;
        }
        swaps
    }

    #[inline]
    fn compare_and_delete(&self, key: u64, old: u64) -> bool {
        self.0.remove_if(&key, |_, &value| value == old).is_some()
    }

    fn range(&self, mut f: impl FnMut(u64, u64) -> bool) {
        let _ = self.0.iter().all(|pair| f(*pair.key(), *pair.value()));
    }

    fn clear(&self) {
        self.0.clear();
    }
}

pub struct Scc(scc::HashMap<u64, u64, Mix>);

impl ConcurrentMap for Scc {
    fn new() -> Self {
        Self(scc::HashMap::with_hasher(Mix))
    }

    #[inline]
    fn load(&self, key: u64) -> Option<u64> {
        self.0.read_sync(&key, |_, &value| value)
    }

    #[inline]
    fn store(&self, key: u64, value: u64) {
        self.0.upsert_sync(key, value);
    }

    #[inline]
    fn load_or_store(&self, key: u64, value: u64) -> (u64, bool) {
        match self.0.entry_sync(key) {
            scc::hash_map::Entry::Occupied(there) => (*there.get(), true),
            scc::hash_map::Entry::Vacant(place) => (*place.insert_entry(value).get(), false),
        }
    }

    #[inline]
    fn load_and_delete(&self, key: u64) -> Option<u64> {
        self.0.remove_sync(&key).map(|(_, value)| value)
    }

    #[inline]
    fn swap(&self, key: u64, value: u64) -> Option<u64> {
        self.0.upsert_sync(key, value)
    }

    #[inline]
    fn compare_and_swap(&self, key: u64, old: u64, new: u64) -> bool {
        let swap = |_: &u64, value: &mut u64| {
            let swaps = *value == old;
            if swaps {
                *value = new;
            }
            swaps
        };
        self.0.update_sync(&key, swap).unwrap_or(false)
    }

    #[inline]
    fn compare_and_delete(&self, key: u64, old: u64) -> bool {
        self.0.remove_if_sync(&key, |value| *value == old).is_some()
    }

    fn range(&self, mut f: impl FnMut(u64, u64) -> bool) {
        let _ = self.0.iter_sync(|&key, &value| f(key, value));
    }

    fn clear(&self) {
        self.0.clear_sync();
    }
}

/// A `HashMap` in a `RwLock` of `std`.
pub struct Locked(RwLock<HashMap<u64, u64, Mix>>);

impl Locked {
    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, HashMap<u64, u64, Mix>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn write(&self) -> RwLockWriteGuard<'_, HashMap<u64, u64, Mix>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConcurrentMap for Locked {
    fn new() -> Self {
        Self(RwLock::new(HashMap::with_hasher(Mix)))
    }

    #[inline]
    fn load(&self, key: u64) -> Option<u64> {
        self.read().get(&key).copied()
    }

    #[inline]
    fn store(&self, key: u64, value: u64) {
        self.write().insert(key, value);
    }

    #[inline]
    fn load_or_store(&self, key: u64, value: u64) -> (u64, bool) {
        match self.write().entry(key) {
            Entry::Occupied(there) => (*there.get(), true),
            Entry::Vacant(place) => (*place.insert(value), false),
        }
    }

    #[inline]
    fn load_and_delete(&self, key: u64) -> Option<u64> {
        self.write().remove(&key)
    }

    #[inline]
    fn swap(&self, key: u64, value: u64) -> Option<u64> {
        self.write().insert(key, value)
    }

    #[inline]
    fn compare_and_swap(&self, key: u64, old: u64, new: u64) -> bool {
        let mut map = self.write();
        let value = map.get_mut(&key).filter(|value| **value == old);
        value.map(|value| *value = new).is_some()
    }

    #[inline]
    fn compare_and_delete(&self, key: u64, old: u64) -> bool {
        let mut map = self.write();
        map.get(&key) == Some(&old) && map.remove(&key).is_some()
    }

    fn range(&self, mut f: impl FnMut(u64, u64) -> bool) {
        let _ = self.read().iter().all(|(&key, &value)| f(key, value));
    }

    fn clear(&self) {
        self.write().clear();
    }
}
