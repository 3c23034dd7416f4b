//! A cache that drops the entry not used for longest, shared by goroutines: the counterpart of `groupcache/lru` behind
//! a `sync.Mutex`.
//!
//! `cargo run --example lru_cache`

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use sudog::prelude::*;

struct Lru<K, V> {
    capacity: usize,
    inner: Mutex<Inner<K, V>>,
}

struct Inner<K, V> {
    entries: HashMap<K, (V, u64)>,
    /// The keys, ordered by the time of their last use.
    order: BTreeMap<u64, K>,
    time: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Lru<K, V> {
    fn new(capacity: usize) -> Self {
        Self { capacity, inner: Mutex::new(Inner { entries: HashMap::new(), order: BTreeMap::new(), time: 0 }) }
    }

    fn get(&self, key: &K) -> Option<V> {
        let inner = &mut *self.inner.lock();
        inner.time += 1;
        let (value, used) = inner.entries.get_mut(key)?;
        inner.order.remove(used);
        inner.order.insert(inner.time, key.clone());
        *used = inner.time;
        Some(value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        inner.time += 1;
        inner.order.insert(inner.time, key.clone());
        if let Some((_, used)) = inner.entries.insert(key, (value, inner.time)) {
            inner.order.remove(&used);
        }
        let forgotten = if inner.entries.len() > self.capacity { inner.order.pop_first() } else { None };
        let forgotten = forgotten.and_then(|(_, key)| inner.entries.remove(&key));
        drop(guard);
        drop(forgotten); // drop after the lock: a destructor that waits would block the other goroutines
    }
}

fn main() {
    let cache = Arc::new(Lru::new(2));
    cache.put("a", 1);
    cache.put("b", 2);
    assert_eq!(cache.get(&"a"), Some(1));
    cache.put("c", 3);
    assert_eq!(cache.get(&"b"), None, "not used for longest");
    sudog::run(|| {
        let cache = Arc::new(Lru::new(100));
        let users: Vec<_> = (0..8_u64)
            .map(|seed| {
                let cache = cache.clone();
                spawn(move || {
                    let mut hits = 0;
                    for n in 0..10_000 {
                        let key = (n * (seed + 1)) % 150;
                        match cache.get(&key) {
                            Some(value) => hits += u32::from(value == key * key),
                            None => cache.put(key, key * key),
                        }
                    }
                    hits
                })
            })
            .collect();
        let hits: u32 = users.into_iter().map(|user| user.join().expect("no panic")).sum();
        println!("{hits} hits of 80000");
        assert!(hits > 0 && cache.inner.lock().entries.len() <= 100);
    });
}
