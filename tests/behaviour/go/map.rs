//! Go's tests of its map and of the trie beneath it, over threads and over goroutines.
#![cfg(all(unix, not(sudog_loom)))]

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, RwLock, Weak};
use std::thread;

use proptest::prelude::*;
use sudog::sync::Map;
use support::Watchdog;
use support::kinds::{Kind, together};

support::over_threads_and_goroutines! {
    concurrent_range concurrent_clear concurrent_cache
    compare_and_delete_concurrent_unshared_keys compare_and_delete_concurrent_shared_keys
    compare_and_swap_concurrent_unshared_keys compare_and_swap_concurrent_unshared_keys_with_delete
    compare_and_swap_concurrent_shared_keys
    swap_concurrent_unshared_keys swap_concurrent_unshared_keys_with_delete swap_concurrent_shared_keys
    load_and_delete_concurrent_unshared_keys load_and_delete_concurrent_shared_keys
    clear_concurrent
}

/// A hasher for Go's `NewBadHashTrieMap` and `NewTruncHashTrieMap`: all hashes are 0, or have 4 bits.
#[derive(Default, Clone)]
struct Bits<const N: u32>(DefaultHasher);

impl<const N: u32> BuildHasher for Bits<N> {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self::default()
    }
}

impl<const N: u32> Hasher for Bits<N> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish() & ((1 << N) - 1)
    }
}

type Bad = Bits<0>;
type Truncated = Bits<4>;

trait Hashing: BuildHasher + Default + Send + Sync + 'static {}
impl<S: BuildHasher + Default + Send + Sync + 'static> Hashing for S {}

fn processors() -> usize {
    thread::available_parallelism().map_or(4, |n| n.get().max(4))
}

// ---- map_test.go ----------------------------------------------------------------------------------------------------

#[derive(Debug, Clone)]
enum Call {
    Load(String),
    Store(String, String),
    LoadOrStore(String, String),
    LoadAndDelete(String),
    Delete(String),
    Swap(String, String),
    CompareAndSwap(String, String, String),
    CompareAndDelete(String, String),
    Clear,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    // Use so few words that keys and values often coincide. Go's values have 26 letters to choose from, and the
    // comparisons of Go's test never succeed.
    let word = || "[ab]{0,3}";
    proptest::collection::vec(
        prop_oneof![
            word().prop_map(Call::Load),
            (word(), word()).prop_map(|(k, v)| Call::Store(k, v)),
            (word(), word()).prop_map(|(k, v)| Call::LoadOrStore(k, v)),
            word().prop_map(Call::LoadAndDelete),
            word().prop_map(Call::Delete),
            (word(), word()).prop_map(|(k, v)| Call::Swap(k, v)),
            (word(), word(), word()).prop_map(|(k, v, w)| Call::CompareAndSwap(k, v, w)),
            (word(), word()).prop_map(|(k, v)| Call::CompareAndDelete(k, v)),
            Just(Call::Clear),
        ],
        0..100,
    )
}

type Outcome = (Option<String>, bool);

fn apply<S: Hashing>(map: &Map<String, String, S>, call: Call) -> Outcome {
    match call {
        Call::Load(k) => (map.load(&k), false),
        Call::Store(k, v) => (map.store(k, v), (None, false)).1,
        Call::LoadOrStore(k, v) => {
            let (there, loaded) = map.load_or_store(k, v);
            (Some(there), loaded)
        }
        Call::LoadAndDelete(k) => (map.load_and_delete(&k), false),
        Call::Delete(k) => (map.delete(&k), (None, false)).1,
        Call::Swap(k, v) => (map.swap(k, v), false),
        Call::CompareAndSwap(k, v, w) => (None, map.compare_and_swap(k, &v, w)),
        Call::CompareAndDelete(k, v) => (None, map.compare_and_delete(&k, &v)),
        Call::Clear => (map.clear(), (None, false)).1,
    }
}

/// The counterpart of Go's `RWMutexMap`.
fn apply_to_model(map: &RwLock<HashMap<String, String>>, call: Call) -> Outcome {
    if let Call::Load(k) = &call {
        return (map.read().unwrap().get(k).cloned(), false);
    }
    let mut map = map.write().unwrap();
    match call {
        Call::Load(_) => unreachable!(),
        Call::Store(k, v) => (map.insert(k, v), (None, false)).1,
        Call::LoadOrStore(k, v) => {
            let loaded = map.contains_key(&k);
            (Some(map.entry(k).or_insert(v).clone()), loaded)
        }
        Call::LoadAndDelete(k) => (map.remove(&k), false),
        Call::Delete(k) => (map.remove(&k), (None, false)).1,
        Call::Swap(k, v) => (map.insert(k, v), false),
        Call::CompareAndSwap(k, v, w) => {
            let equal = map.get(&k) == Some(&v);
            if equal {
                map.insert(k, w);
            }
            (None, equal)
        }
        Call::CompareAndDelete(k, v) => {
            let equal = map.get(&k) == Some(&v);
            if equal {
                map.remove(&k);
            }
            (None, equal)
        }
        Call::Clear => (map.clear(), (None, false)).1,
    }
}

/// The counterpart of Go's `DeepCopyMap`: each write copies the map.
fn apply_to_copies(map: &RwLock<Arc<HashMap<String, String>>>, call: Call) -> Outcome {
    let copy = RwLock::new(HashMap::clone(&map.read().unwrap()));
    let outcome = apply_to_model(&copy, call);
    *map.write().unwrap() = Arc::new(copy.into_inner().unwrap());
    outcome
}

fn all<S: Hashing>(map: &Map<String, String, S>) -> HashMap<String, String> {
    let mut all = HashMap::new();
    map.range(|k, v| {
        assert_eq!(all.insert(k.clone(), v.clone()), None, "visited twice");
        true
    });
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Go: `TestMapMatchesRWMutex`.
    #[test]
    fn map_matches_rw_mutex(calls in calls()) {
        fn matches<S: Hashing>(calls: &[Call]) {
            let (map, model) = (Map::<_, _, S>::default(), RwLock::default());
            for call in calls {
                assert_eq!(apply(&map, call.clone()), apply_to_model(&model, call.clone()));
            }
            assert_eq!(all(&map), model.into_inner().unwrap());
        }
        matches::<RandomState>(&calls);
        matches::<Bad>(&calls);
        matches::<Truncated>(&calls);
    }

    /// Go: `TestMapMatchesDeepCopy`.
    #[test]
    fn map_matches_deep_copy(calls in calls()) {
        let (map, model) = (Map::new(), RwLock::default());
        for call in calls {
            prop_assert_eq!(apply(&map, call.clone()), apply_to_copies(&model, call));
        }
        prop_assert_eq!(&all(&map), &**model.read().unwrap());
    }
}

/// Go: `TestConcurrentRange`.
fn concurrent_range<K: Kind>() {
    const SIZE: u64 = 1 << 10;
    let ranges = if cfg!(debug_assertions) { 64 } else { 1 << 10 };
    let map = Arc::new(Map::new());
    for n in 1..=SIZE {
        map.store(n, n);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let running = Arc::new(AtomicUsize::new(processors()));
    for g in 1..=processors() as u64 {
        let (map, stop, running) = (map.clone(), stop.clone(), running.clone());
        K::go(move || {
            let mut random = g;
            for i in 0.. {
                for n in 1..SIZE {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    if (random >> 32) % SIZE == 0 {
                        map.store(n, n * i * g);
                    } else {
                        map.load(&n);
                    }
                }
                if stop.load(SeqCst) {
                    break;
                }
                K::gosched();
            }
            running.fetch_sub(1, SeqCst);
        });
    }
    for _ in 0..ranges {
        let mut seen = HashSet::new();
        map.range(|k, v| {
            assert_eq!(v % k, 0, "while multiples of {k} are stored, {v}");
            assert!(seen.insert(*k), "visited {k} twice");
            true
        });
        assert_eq!(seen.len() as u64, SIZE);
        K::gosched();
    }
    stop.store(true, SeqCst);
    K::until(|| running.load(SeqCst) == 0);
}

/// Go: `TestIssue40999`.
#[test]
fn issue_40999() {
    #[derive(PartialEq, Eq, Hash)]
    struct Key(Arc<u32>);
    let _watchdog = Watchdog::new();
    let map = Map::new();
    map.store(Key(Arc::new(0)), ());
    let mut keys: Vec<Weak<u32>> = Vec::new();
    while keys.iter().all(|key| key.strong_count() != 0) {
        let key = Arc::new(1 + keys.len() as u32);
        keys.push(Arc::downgrade(&key));
        map.store(Key(key.clone()), ());
        map.delete(&Key(key));
    }
}

/// Go: `TestMapRangeNestedCall`.
#[test]
fn map_range_nested_call() {
    let map: Map<u32, &str> = (0..).zip(["hello", "world", "Go"]).collect();
    map.range(|key, _| {
        map.range(|key, value| {
            assert_eq!(map.load(key), Some(*value));
            assert_eq!(map.load_or_store(42, "dummy"), ("dummy", false));
            map.store(42, "sync.Map");
            assert_eq!(map.load_and_delete(&42), Some("sync.Map"));
            true
        });
        map.delete(key);
        true
    });
    map.range(|key, _| panic!("{key} is still there"));
}

/// Go: `TestCompareAndSwap_NonExistingKey`.
#[test]
fn compare_and_swap_non_existing_key() {
    let map: Map<u32, Option<u32>> = Map::new();
    assert!(!map.compare_and_swap(1, &None, Some(42)));
    map.store(2, None);
    assert!(!map.compare_and_swap(1, &None, Some(42)));
    assert!(!map.compare_and_delete(&1, &None));
}

/// Go: `TestMapDelete`.
#[test]
fn map_delete() {
    let map = Map::new();
    map.store("go", 1.22);
    assert_eq!(map.load("go"), Some(1.22));
    map.delete("go");
    assert_eq!(map.load("go"), None);
}

/// Go: `TestMapClear`.
#[test]
fn map_clear() {
    let map = Map::new();
    map.store("go", 1.21);
    assert_eq!(map.load("go"), Some(1.21));
    map.clear();
    assert_eq!(map.load("go"), None);
    map.store("go", 1.21);
    assert_eq!(map.load("go"), Some(1.21));
}

/// Go: `TestConcurrentClear`.
fn concurrent_clear<K: Kind>() {
    let map = Arc::new(Map::new());
    let shared = map.clone();
    together::<K>(30, move |i| match i / 10 {
        0 => shared.store(i, i * 10),
        1 => assert!(shared.load(&(i - 10)).is_none_or(|value| value == (i - 10) * 10)),
        _ => shared.clear(),
    });
    map.clear();
    map.range(|key, _| panic!("{key} is still there"));
}

// ---- hashtriemap_test.go --------------------------------------------------------------------------------------------

/// The counterpart of Go's `testData`: numbers in binary.
fn data() -> impl Iterator<Item = (usize, String)> {
    (0..128).map(|i| (i, format!("{i:b}")))
}

type TrieMap<S> = Map<String, usize, S>;

fn stored<S: Hashing>(map: &TrieMap<S>) {
    for (i, s) in data() {
        assert_eq!(map.load(&s), None);
        assert_eq!(map.load_or_store(s.clone(), i), (i, false));
        assert_eq!(map.load(&s), Some(i));
        assert_eq!(map.load_or_store(s, 0), (i, true));
    }
}

fn swapped_in<S: Hashing>(map: &TrieMap<S>) {
    for (i, s) in data() {
        assert_eq!(map.load(&s), None);
        assert_eq!(map.swap(s.clone(), i), None);
        assert_eq!(map.load(&s), Some(i));
        assert_eq!(map.swap(s, i), Some(i));
    }
}

fn expect<S: Hashing>(map: &TrieMap<S>, value: impl Fn(usize) -> Option<usize>) {
    for (i, s) in data() {
        assert_eq!(map.load(&s), value(i), "{s}");
    }
}

const ONE: &[usize] = &[15];
const MULTIPLE: &[usize] = &[1, 105, 6, 85];

fn key(i: usize) -> String {
    format!("{i:b}")
}

/// The counterpart of Go's `testAll`.
fn iterate<S: Hashing>(map: &TrieMap<S>, mut f: impl FnMut(&str, usize)) {
    stored(map);
    let mut seen = HashSet::new();
    map.range(|s, i| {
        assert_eq!(*s, key(*i));
        assert!(seen.insert(*i), "visited {s} twice");
        f(s, *i);
        true
    });
    assert_eq!(seen.len(), 128);
}

/// Makes a test for each of Go's three: `TestHashTrieMap`, `TestHashTrieMapBadHash`, `TestHashTrieMapTruncHash`.
macro_rules! hash_trie_map {
    ($(fn $name:ident($map:ident) $body:block)+) => {
        $(fn $name<S: Hashing>($map: &TrieMap<S>) $body)+
        mod hash_trie_map { $(#[test] fn $name() { super::$name(&super::TrieMap::<super::RandomState>::default()); })+ }
        mod hash_trie_map_bad_hash { $(#[test] fn $name() { super::$name(&super::TrieMap::<super::Bad>::default()); })+ }
        mod hash_trie_map_trunc_hash {
            $(#[test] fn $name() { super::$name(&super::TrieMap::<super::Truncated>::default()); })+
        }
    };
}

hash_trie_map! {
    fn load_empty(map) {
        expect(map, |_| None);
    }

    fn load_or_store(map) {
        stored(map);
        expect(map, Some);
    }

    fn all_of_it(map) {
        iterate(map, |_, _| ());
    }

    fn clear_simple(map) {
        for _ in 0..3 {
            stored(map);
            map.clear();
            expect(map, |_| None);
        }
    }

    fn compare_and_delete_all(map) {
        for _ in 0..3 {
            stored(map);
            for (i, s) in data() {
                assert!(!map.compare_and_delete(&s, &usize::MAX));
                assert!(map.compare_and_delete(&s, &i));
                assert!(!map.compare_and_delete(&s, &i));
                assert_eq!(map.load(&s), None);
            }
            expect(map, |_| None);
        }
    }

    fn compare_and_delete_one_and_multiple(map) {
        for some in [ONE, MULTIPLE] {
            stored(map);
            for &i in some {
                assert!(!map.compare_and_delete(&key(i), &usize::MAX));
                assert!(map.compare_and_delete(&key(i), &i));
                assert!(!map.compare_and_delete(&key(i), &i));
            }
            expect(map, |i| (!some.contains(&i)).then_some(i));
            map.clear();
        }
    }

    fn compare_and_delete_iterate(map) {
        iterate(map, |s, i| assert!(map.compare_and_delete(s, &i)));
        expect(map, |_| None);
    }

    fn compare_and_swap_all(map) {
        stored(map);
        for j in 0..3 {
            for (i, s) in data() {
                assert_eq!(map.load(&s), Some(i + j));
                assert!(!map.compare_and_swap(s.clone(), &usize::MAX, i + j + 1));
                assert!(map.compare_and_swap(s.clone(), &(i + j), i + j + 1));
                assert!(!map.compare_and_swap(s.clone(), &(i + j), i + j + 1));
                assert_eq!(map.load(&s), Some(i + j + 1));
            }
        }
        expect(map, |i| Some(i + 3));
    }

    fn compare_and_swap_one_and_multiple(map) {
        for some in [ONE, MULTIPLE] {
            stored(map);
            for &i in some {
                assert!(!map.compare_and_swap(key(i), &usize::MAX, i + 1));
                assert!(map.compare_and_swap(key(i), &i, i + 1));
                assert!(!map.compare_and_swap(key(i), &i, i + 1));
            }
            expect(map, |i| Some(i + usize::from(some.contains(&i))));
            map.clear();
        }
    }

    fn swap_all(map) {
        swapped_in(map);
        for j in 0..3 {
            for (i, s) in data() {
                assert_eq!(map.swap(s.clone(), i + j + 1), Some(i + j));
                assert_eq!(map.load(&s), Some(i + j + 1));
            }
        }
        for (i, s) in data() {
            assert_eq!(map.swap(s, i + 3), Some(i + 3));
        }
    }

    fn swap_one_and_multiple(map) {
        for some in [ONE, MULTIPLE] {
            swapped_in(map);
            for &i in some {
                assert_eq!(map.swap(key(i), i + 1), Some(i));
            }
            expect(map, |i| Some(i + usize::from(some.contains(&i))));
            map.clear();
        }
    }

    fn load_and_delete_all(map) {
        for _ in 0..3 {
            stored(map);
            for (i, s) in data() {
                assert_eq!(map.load_and_delete(&s), Some(i));
                assert_eq!(map.load(&s), None);
                assert_eq!(map.load_and_delete(&s), None);
            }
            expect(map, |_| None);
        }
    }

    fn load_and_delete_one_and_multiple(map) {
        for some in [ONE, MULTIPLE] {
            stored(map);
            for &i in some {
                assert_eq!(map.load_and_delete(&key(i)), Some(i));
                assert_eq!(map.load_and_delete(&key(i)), None);
            }
            expect(map, |i| (!some.contains(&i)).then_some(i));
            map.clear();
        }
    }

    fn load_and_delete_iterate(map) {
        iterate(map, |s, i| assert_eq!(map.load_and_delete(s), Some(i)));
        expect(map, |_| None);
    }
}

/// Makes a test that runs its body on many workers at once, with each of the three hashers.
macro_rules! concurrent {
    ($($(#[$doc:meta])* fn $name:ident($setup:ident, $map:ident, $id:ident) $body:block)+) => {
        $(
            $(#[$doc])*
            fn $name<K: Kind>() {
                fn with<K: Kind, S: Hashing>() {
                    let map = Arc::new(TrieMap::<S>::default());
                    $setup(&map);
                    together::<K>(processors(), move |$id| {
                        let $map = &*map;
                        $body
                    });
                }
                with::<K, RandomState>();
                with::<K, Bad>();
                with::<K, Truncated>();
            }
        )+
    };
}

fn nothing<S>(_: &TrieMap<S>) {}

/// The counterpart of Go's `makeKey`: the worker's own keys.
fn own(id: usize) -> impl Iterator<Item = String> {
    data().map(move |(_, s)| format!("{s}-{id}"))
}

fn store_own<S: Hashing>(map: &TrieMap<S>, id: usize) {
    for key in own(id) {
        assert_eq!(map.load(&key), None);
        assert_eq!(map.load_or_store(key.clone(), id), (id, false));
        assert_eq!(map.load(&key), Some(id));
        assert_eq!(map.load_or_store(key, 0), (id, true));
    }
}

fn expect_own<S: Hashing>(map: &TrieMap<S>, id: usize, value: Option<usize>) {
    for key in own(id) {
        assert_eq!(map.load(&key), value);
    }
}

concurrent! {
    fn compare_and_delete_concurrent_unshared_keys(nothing, map, id) {
        store_own(map, id);
        for key in own(id) {
            assert!(map.compare_and_delete(&key, &id));
            assert_eq!(map.load(&key), None);
        }
        expect_own(map, id, None);
    }

    fn compare_and_delete_concurrent_shared_keys(stored, map, _id) {
        for (i, s) in data() {
            assert!(!map.compare_and_delete(&s, &usize::MAX));
            map.compare_and_delete(&s, &i);
            assert_eq!(map.load(&s), None);
        }
        expect(map, |_| None);
    }

    fn compare_and_swap_concurrent_unshared_keys(nothing, map, id) {
        store_own(map, id);
        for key in own(id) {
            assert!(map.compare_and_swap(key.clone(), &id, id + 1));
            assert_eq!(map.load(&key), Some(id + 1));
        }
        expect_own(map, id, Some(id + 1));
    }

    fn compare_and_swap_concurrent_unshared_keys_with_delete(nothing, map, id) {
        store_own(map, id);
        for key in own(id) {
            assert!(map.compare_and_swap(key.clone(), &id, id + 1));
            assert_eq!(map.load(&key), Some(id + 1));
            assert!(map.compare_and_delete(&key, &(id + 1)));
            assert!(!map.compare_and_swap(key.clone(), &(id + 1), id + 2));
            assert!(!map.compare_and_delete(&key, &(id + 1)));
            assert_eq!(map.load(&key), None);
        }
        expect_own(map, id, None);
    }

    fn compare_and_swap_concurrent_shared_keys(stored, map, _id) {
        for (i, s) in data() {
            assert!(!map.compare_and_swap(s.clone(), &usize::MAX, i + 1));
            map.compare_and_swap(s.clone(), &i, i + 1);
            assert_eq!(map.load(&s), Some(i + 1));
        }
        expect(map, |i| Some(i + 1));
    }

    fn swap_concurrent_unshared_keys(nothing, map, id) {
        for key in own(id) {
            assert_eq!(map.load(&key), None);
            assert_eq!(map.swap(key.clone(), id), None);
            assert_eq!(map.load(&key), Some(id));
            assert_eq!(map.swap(key, id), Some(id));
        }
        for key in own(id) {
            assert_eq!(map.swap(key, id + 1), Some(id));
        }
        expect_own(map, id, Some(id + 1));
    }

    fn swap_concurrent_unshared_keys_with_delete(nothing, map, id) {
        for key in own(id) {
            assert_eq!(map.swap(key.clone(), id), None);
            assert_eq!(map.swap(key, id), Some(id));
        }
        for key in own(id) {
            assert_eq!(map.swap(key.clone(), id + 1), Some(id));
            assert!(map.compare_and_delete(&key, &(id + 1)));
            assert_eq!(map.swap(key.clone(), id + 2), None);
            assert_eq!(map.load(&key), Some(id + 2));
        }
        expect_own(map, id, Some(id + 2));
    }

    fn swap_concurrent_shared_keys(stored, map, _id) {
        for (i, s) in data() {
            map.swap(s.clone(), i + 1);
            assert_eq!(map.load(&s), Some(i + 1));
        }
        expect(map, |i| Some(i + 1));
    }

    fn load_and_delete_concurrent_unshared_keys(nothing, map, id) {
        store_own(map, id);
        for key in own(id) {
            assert_eq!(map.load_and_delete(&key), Some(id));
            assert_eq!(map.load(&key), None);
        }
        expect_own(map, id, None);
    }

    fn load_and_delete_concurrent_shared_keys(stored, map, _id) {
        for (_, s) in data() {
            map.load_and_delete(&s);
            assert_eq!(map.load(&s), None);
        }
        expect(map, |_| None);
    }

    /// Go: `Clear/Concurrent`, in which all workers clear the map at once.
    fn clear_concurrent(stored, map, _id) {
        map.clear();
        expect(map, |_| None);
    }
}

/// Go: `TestConcurrentCache`, of issue 70970: a swap and a delete of one value must not both succeed. Go's test deletes
/// in the cleanup of a collected object; this test deletes in a destructor.
fn concurrent_cache<K: Kind>() {
    const OBJECTS: usize = 20_000;
    const KEYS: usize = 1_000;
    #[derive(Clone)]
    struct Entry(Weak<Object>);
    impl PartialEq for Entry {
        fn eq(&self, other: &Self) -> bool {
            self.0.ptr_eq(&other.0)
        }
    }
    struct Object {
        key: usize,
        cache: Weak<Cache>,
        me: Weak<Object>,
    }
    impl Drop for Object {
        fn drop(&mut self) {
            if let Some(cache) = self.cache.upgrade() {
                cache.0.compare_and_delete(&self.key, &Entry(self.me.clone()));
            }
        }
    }
    struct Cache(Map<usize, Entry>);
    fn get(cache: &Arc<Cache>, key: usize) -> Arc<Object> {
        let new = Arc::new_cyclic(|me| Object { key, cache: Arc::downgrade(cache), me: me.clone() });
        loop {
            let (there, loaded) = cache.0.load_or_store(key, Entry(Arc::downgrade(&new)));
            if !loaded {
                return new;
            }
            if let Some(object) = there.0.upgrade() {
                return object;
            }
            if cache.0.compare_and_swap(key, &there, Entry(Arc::downgrade(&new))) {
                return new;
            }
        }
    }
    let cache = Arc::new(Cache(Map::new()));
    together::<K>(processors(), move |worker| {
        for i in (worker..OBJECTS).step_by(processors()) {
            let (a, b) = (get(&cache, i % KEYS), get(&cache, i % KEYS));
            assert!(Arc::ptr_eq(&a, &b), "two objects of one key");
            K::gosched();
        }
    });
}
