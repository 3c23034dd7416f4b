//! The promises of the map beyond Go's tests: ranges, order, user code that the map calls, memory.
#![cfg(all(unix, not(sudog_loom)))]

use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::hint;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;

use sudog::go;
use sudog::runtime::gosched;
use sudog::sync::Map;
use support::Watchdog;
use support::counting::without_allocating;
use support::goroutine::one_worker;
use support::kinds::Kind;

support::over_threads_and_goroutines! {
    a_range_meets_no_key_twice_and_misses_none what_is_removed_is_what_is_returned compare_and_swap_counts
    range_may_do_anything
}

/// A hasher that gives all keys the same hash.
#[derive(Default)]
struct Same;

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {}

    fn finish(&self) -> u64 {
        7
    }
}

type SameHash = BuildHasherDefault<Same>;

fn worker<K: Kind>(running: &Arc<AtomicUsize>, f: impl FnOnce() + Send + 'static) {
    running.fetch_add(1, SeqCst);
    let running = running.clone();
    K::go(move || {
        f();
        running.fetch_sub(1, SeqCst);
    });
}

// ---- range ----------------------------------------------------------------------------------------------------------

#[test]
fn no_key_is_met_twice_though_it_moves() {
    for keys in [1, 20, 300] {
        let map: Map<u32, u32> = (0..keys).map(|n| (n, 0)).collect();
        let mut seen = HashSet::new();
        map.range(|&key, _| {
            assert!(seen.insert(key), "{key} twice");
            for other in [key, (key + 1) % keys] {
                map.delete(&other);
                map.store(other, 1);
            }
            true
        });
        let mut left = 0;
        map.range(|_, _| {
            left += 1;
            true
        });
        assert_eq!(left, keys);
    }
}

#[test]
fn keys_of_one_hash_are_met_once() {
    let map: Map<u32, u32, SameHash> = (0..100).map(|n| (n, n)).collect();
    let mut seen = HashSet::new();
    map.range(|&key, _| {
        map.delete(&key);
        map.store(key, 0);
        map.delete(&((key + 1) % 100));
        seen.insert(key)
    });
    assert!((50..=100).contains(&seen.len()), "{}", seen.len());
}

/// Adds, removes and changes keys during ranges, while the table grows and shrinks.
fn a_range_meets_no_key_twice_and_misses_none<K: Kind>() {
    const STABLE: u32 = 100;
    let map = Arc::new(Map::new());
    for key in 0..STABLE {
        map.store(key, 0u32);
    }
    let (stop, running) = (Arc::new(AtomicBool::new(false)), Arc::default());
    for churner in 0..2 {
        let (map, stop) = (map.clone(), stop.clone());
        worker::<K>(&running, move || {
            for round in 0.. {
                for n in 0..64 {
                    let key = STABLE + (round % 8) * 64 + n;
                    map.store(key, 1);
                    map.store((n * 7 + churner) % STABLE, round);
                    if (round + n) % 3 == 0 {
                        map.delete(&(key - round % 8 * 64));
                    }
                    map.delete(&key);
                }
                if stop.load(SeqCst) {
                    return;
                }
                K::gosched();
            }
        });
    }
    for _ in 0..300 {
        let mut seen = HashSet::new();
        map.range(|&key, _| {
            assert!(seen.insert(key), "{key} twice");
            if key % 50 == 0 {
                K::gosched();
            }
            true
        });
        assert_eq!(seen.iter().filter(|key| **key < STABLE).count() as u32, STABLE, "some missed");
    }
    stop.store(true, SeqCst);
    K::until(|| running.load(SeqCst) == 0);
}

fn range_may_do_anything<K: Kind>() {
    let map = Arc::new(Map::new());
    let running = Arc::default();
    for worker_id in 0..8u32 {
        let map = map.clone();
        worker::<K>(&running, move || {
            for round in 0..20 {
                for n in 0..100 {
                    map.store(n, round);
                }
                map.range(|&key, _| {
                    map.store(1000 * worker_id + key, 1);
                    map.load_or_store(key + 1, 2);
                    map.delete(&(key / 2));
                    if key % 10 == 0 {
                        map.range(|inner, _| {
                            K::gosched();
                            *inner % 7 != 0
                        });
                    }
                    if key % 97 == 0 {
                        map.clear();
                    }
                    key < 2000
                });
            }
        });
    }
    K::until(|| running.load(SeqCst) == 0);
    map.clear();
    map.range(|key, _| panic!("{key} is still there"));
}

#[test]
fn range_allocates_nothing() {
    // Go: `TestMapRangeNoAllocations`.
    let map: Map<u32, u32> = Map::new();
    without_allocating(|| map.range(|_, _| true));
    for n in 0..100 {
        map.store(n, n);
    }
    map.range(|_, _| true); // the first range prepares the thread
    let mut sum = 0;
    without_allocating(|| {
        map.range(|n, _| {
            sum += n;
            true
        });
    });
    assert_eq!(sum, 4950);
    without_allocating(|| {
        map.load(&7);
        map.compare_and_swap(7, &8, 9);
        map.delete(&1000);
    });
}

/// Keeps goroutines of one thread in a range at any time: removed values are freed all the same.
#[test]
fn memory_is_freed_though_ranges_overlap() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Counted {
        fn new() -> Self {
            ALIVE.fetch_add(1, SeqCst);
            Self
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, SeqCst);
        }
    }
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let map = Arc::new(Map::new());
        map.store(0, Counted::new());
        map.store(1, Counted::new());
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 {
            let (map, stop) = (map.clone(), stop.clone());
            go(move || {
                while !stop.load(SeqCst) {
                    map.range(|_, _| {
                        for _ in 0..10 {
                            gosched();
                        }
                        true
                    });
                }
            });
        }
        let mut most = 0;
        for n in 0..20_000 {
            map.store(2 + n % 10, Counted::new());
            gosched();
            most = most.max(ALIVE.load(SeqCst));
        }
        stop.store(true, SeqCst);
        assert!(most < 2_000, "{most} alive at once");
    });
}

/// Lets the map grow, and clears it, during a range: the range ends, and a value stored after the last `clear` is in
/// the map.
#[test]
fn a_map_grows_and_is_cleared_under_a_range() {
    for clears in [1, 7, 50] {
        let map: Map<u32, u32> = (0..100).map(|n| (n, 0)).collect();
        let (mut seen, mut next) = (HashSet::new(), 1000);
        map.range(|&key, _| {
            assert!(seen.insert(key), "{key} twice");
            if seen.len() % clears == 0 {
                map.clear();
                map.range(|key, _| panic!("{key} is still there"));
            }
            for _ in 0..if next < 20_000 { 50 } else { 0 } {
                map.store(next, 1);
                next += 1;
            }
            true
        });
        assert!(seen.len() >= 2, "it met none of the rest");
        map.clear();
        map.store(1, 1);
        let mut left = Vec::new();
        map.range(|&key, _| {
            left.push(key);
            true
        });
        assert_eq!(left, [1]);
    }
}

/// Stores many keys of one hash. Lists are copied as a whole, so the number of keys is chosen to take about a second.
#[test]
fn many_keys_of_one_hash() {
    const KEYS: u32 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    let _watchdog = Watchdog::new();
    let map: Map<u32, u32, SameHash> = Map::default();
    for n in 0..KEYS {
        assert_eq!(map.swap(n, n), None);
    }
    for n in (0..KEYS).step_by(97) {
        assert_eq!((map.load(&n), map.swap(n, n + 1), map.load(&(KEYS + n))), (Some(n), Some(n), None));
        assert_eq!((map.load_and_delete(&n), map.load(&n)), (Some(n + 1), None));
    }
    let mut left = HashSet::new();
    map.range(|&n, _| left.insert(n));
    assert_eq!(left.len() as u32, KEYS - KEYS.div_ceil(97));
    map.clear();
    assert_eq!(map.load(&1), None);
}

/// Stores only new keys, of which few are in the map at a time, and checks that few are in memory. The writers meet
/// every thousand rounds, because a writer that the system stops in the middle of a call keeps alive all that the other
/// writer removes meanwhile.
#[test]
fn memory_is_bounded_though_keys_are_new() {
    const ROUNDS: u64 = if cfg!(debug_assertions) { 50_000 } else { 500_000 };
    let _watchdog = Watchdog::new();
    let (map, count, most) = (Map::new(), Arc::new(()), AtomicUsize::new(0));
    let meeting = Barrier::new(2);
    thread::scope(|s| {
        for me in 0..2 {
            let (map, count, most, meeting) = (&map, &count, &most, &meeting);
            s.spawn(move || {
                for n in 0..ROUNDS {
                    map.store((me, n), count.clone());
                    match n {
                        _ if n % 10_000 == 0 => map.clear(),
                        64.. => map.delete(&(me, n - 64)),
                        _ => {}
                    }
                    if n % 1_000 == 0 {
                        most.fetch_max(Arc::strong_count(count), SeqCst);
                        meeting.wait();
                    }
                }
            });
        }
    });
    let most = most.into_inner();
    assert!(most < 20_000, "{most} alive at once");
    let rest = Arc::strong_count(&count);
    assert!(rest < 1_000, "{rest} are left of {ROUNDS}");
    drop(map);
    assert_eq!(Arc::strong_count(&count), 1, "not all were dropped with the map");
}

/// Checks that the value that a `load_with` looks at stays alive, and that the `load_with` does not keep other values
/// alive.
#[test]
fn load_with_keeps_what_it_looks_at_alone() {
    let map = Map::new();
    let (first, others) = (Arc::new(()), Arc::new(()));
    map.store(0, first.clone());
    map.load_with(&0, |value| {
        map.delete(&0);
        for n in 1..10_000 {
            map.store(n % 10, others.clone());
        }
        assert!(Arc::strong_count(&others) < 2_000, "{} are kept", Arc::strong_count(&others));
        assert!(Arc::ptr_eq(value, &first) && Arc::strong_count(&first) == 2);
    });
    assert_eq!(Arc::strong_count(&first), 1, "the last share was the caller's");
}

// ---- atomicity and order --------------------------------------------------------------------------------------------

fn what_is_removed_is_what_is_returned<K: Kind>() {
    const EACH: usize = 3_000;
    let (map, sums) = (Arc::new(Map::new()), Arc::new([const { AtomicUsize::new(0) }; 2]));
    let running = Arc::default();
    for id in 0..4 {
        let (map, sums) = (map.clone(), sums.clone());
        worker::<K>(&running, move || {
            for n in 0..EACH {
                let (key, value) = (n % 3, id * EACH + n + 1);
                let out = |old: Option<usize>| _ = sums[1].fetch_add(old.unwrap_or(0), SeqCst);
                match n % 4 {
                    0 | 1 => {
                        sums[0].fetch_add(value, SeqCst);
                        out(map.swap(key, value));
                    }
                    2 if map.load_or_store(key, value) == (value, false) => _ = sums[0].fetch_add(value, SeqCst),
                    3 => out(map.load_and_delete(&key)),
                    _ => {
                        if let Some(there) = map.load(&key)
                            && map.compare_and_delete(&key, &there)
                        {
                            out(Some(there));
                        }
                    }
                }
                if n % 100 == 0 {
                    K::gosched();
                }
            }
        });
    }
    K::until(|| running.load(SeqCst) == 0);
    map.range(|_, value| {
        sums[1].fetch_add(*value, SeqCst);
        true
    });
    assert_eq!(sums[0].load(SeqCst), sums[1].load(SeqCst), "stored, and got back");
}

fn compare_and_swap_counts<K: Kind>() {
    let map: Arc<Map<u8, u32, SameHash>> = Arc::new([(1, 0), (2, 0)].into_iter().collect());
    let running = Arc::default();
    for _ in 0..4 {
        let map = map.clone();
        worker::<K>(&running, move || {
            for n in 0..2_000u32 {
                let key = (n % 2 + 1) as u8;
                let mut now = map.load(&key).unwrap();
                while !map.compare_and_swap(key, &now, now + 1) {
                    now = map.load(&key).unwrap();
                }
                if n % 100 == 0 {
                    K::gosched();
                }
            }
        });
    }
    K::until(|| running.load(SeqCst) == 0);
    assert_eq!((map.load(&1), map.load(&2)), (Some(4_000), Some(4_000)));
}

/// Checks that of two callers that insert, and then look for each other's key, at least one finds the key.
#[test]
fn inserts_and_loads_are_sequentially_consistent() {
    const ROUNDS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    let _watchdog = Watchdog::new();
    let map = Map::new();
    let found = [const { AtomicBool::new(false) }; 2];
    let barrier = Barrier::new(2);
    let turn = AtomicUsize::new(0);
    let meet = |n: usize| {
        turn.fetch_add(1, SeqCst);
        let mut polls = 0;
        while turn.load(SeqCst) < n {
            polls += 1;
            if polls % 1000 == 0 {
                thread::yield_now();
            }
            hint::spin_loop();
        }
    };
    thread::scope(|s| {
        for me in 0..2 {
            let (map, found, meet, barrier) = (&map, &found, &meet, &barrier);
            s.spawn(move || {
                barrier.wait();
                for round in 0..ROUNDS {
                    meet(4 * round + 2);
                    map.store(2 * round + me, ());
                    found[me].store(map.load(&(2 * round + 1 - me)).is_some(), SeqCst);
                    meet(4 * round + 4);
                    assert!(found[0].load(SeqCst) || found[1].load(SeqCst), "round {round}");
                }
            });
        }
    });
}

// ---- the user's code ------------------------------------------------------------------------------------------------

thread_local! {
    /// The next action of a [`Touchy`].
    static NEXT: Cell<Option<&'static str>> = const { Cell::new(None) };
}

fn touch(what: &'static str) {
    if NEXT.get() == Some(what) {
        NEXT.set(None);
        panic_any(what);
    }
}

#[derive(Debug)]
struct Touchy(u32, Arc<()>);

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        touch("hash");
        self.0.hash(state);
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        touch("eq");
        self.0 == other.0
    }
}

impl Eq for Touchy {}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        touch("clone");
        Self(self.0, self.1.clone())
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        touch("drop");
    }
}

/// Compares a value that changes the map at the n-th comparison. The compared value is not in the map any more, so the
/// operation must not succeed.
#[test]
fn the_map_changes_while_values_are_compared() {
    static MAP: Map<u32, Value> = Map::new();
    thread_local! {
        static COMPARISONS: Cell<u32> = const { Cell::new(0) };
    }
    #[derive(Clone, Debug)]
    struct Value(u32);
    impl PartialEq for Value {
        fn eq(&self, other: &Self) -> bool {
            match COMPARISONS.get() {
                0 => {}
                1 => {
                    COMPARISONS.set(0);
                    MAP.store(1, Value(99));
                }
                n => COMPARISONS.set(n - 1),
            }
            self.0 == other.0
        }
    }
    let mut successes = 0;
    for nth in 1..=4 {
        for delete in [false, true] {
            MAP.store(1, Value(1));
            COMPARISONS.set(nth);
            let done = if delete {
                MAP.compare_and_delete(&1, &Value(1))
            } else {
                MAP.compare_and_swap(1, &Value(1), Value(2))
            };
            let changed = COMPARISONS.replace(0) == 0;
            let now = MAP.load_with(&1, |value| value.0);
            assert_eq!((done, now), if changed { (false, Some(99)) } else { (true, (!delete).then_some(2)) });
            successes += usize::from(done);
        }
    }
    assert!((1..8).contains(&successes));
}

/// Checks that a panic at any place leaves the map usable, and leaks nothing.
#[test]
fn panics_of_keys_and_values() {
    let _watchdog = Watchdog::new();
    let count = Arc::new(());
    let new = |n| Touchy(n, count.clone());
    type TouchyMap<S> = Map<Touchy, Touchy, S>;
    fn check<S: std::hash::BuildHasher + Default>(count: &Arc<()>, new: impl Fn(u32) -> Touchy) {
        type Operation<'a, S> = &'a dyn Fn(&TouchyMap<S>, u32);
        let operations: &[(&str, Operation<S>)] = &[
            ("store", &|map, n| map.store(new(n), new(n))),
            ("load", &|map, n| drop(map.load(&new(n)))),
            ("swap", &|map, n| drop(map.swap(new(n), new(n)))),
            ("load_or_store", &|map, n| drop(map.load_or_store(new(n), new(n)))),
            ("load_and_delete", &|map, n| drop(map.load_and_delete(&new(n)))),
            ("delete", &|map, n| map.delete(&new(n))),
            ("compare_and_swap", &|map, n| _ = map.compare_and_swap(new(n), &new(n), new(n))),
            ("compare_and_delete", &|map, n| _ = map.compare_and_delete(&new(n), &new(n))),
            ("range", &|map, n| map.range(|key, _| *key != Touchy(n, Arc::default()))),
            ("clear", &|map, _| map.clear()),
        ];
        let mut panics = 0;
        for what in ["hash", "eq", "clone", "drop"] {
            for (name, operation) in operations {
                let map = TouchyMap::<S>::default();
                for n in 0..60 {
                    map.store(new(n), new(n));
                }
                for n in 0..90 {
                    NEXT.set(Some(what));
                    panics += usize::from(catch_unwind(AssertUnwindSafe(|| operation(&map, n))).is_err());
                    NEXT.set(None);
                    map.store(new(n), new(n + 1));
                    assert_eq!(map.load(&new(n)).map(|value| value.0), Some(n + 1), "{name} and {what}");
                }
                drop(map);
                assert_eq!(Arc::strong_count(count), 1, "leaked by {name} and {what}");
            }
        }
        assert!(panics > 500, "{panics}");
    }
    check::<std::hash::RandomState>(&count, new);
    check::<SameHash>(&count, new);
}

/// Lets destructors panic, of the key and of the value of an entry: when the map is dropped, for each entry that had
/// not been reclaimed yet.
#[test]
fn panics_of_destructors_end_there() {
    struct Bomb(#[expect(dead_code, reason = "it counts")] Arc<()>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any("a destructor's");
        }
    }
    #[derive(PartialEq, Eq, Hash)]
    struct Key(u32);
    impl Borrow<u32> for Key {
        fn borrow(&self) -> &u32 {
            &self.0
        }
    }
    impl Drop for Key {
        fn drop(&mut self) {
            panic_any("a key's destructor's");
        }
    }
    let count = Arc::new(());
    let map = Map::new();
    for n in 0..100 {
        map.store(Key(n), Bomb(count.clone()));
    }
    for n in 0..50 {
        map.delete(&n);
    }
    // The caller of `load_with` has the last share in the entries that are removed meanwhile.
    map.load_with(&60, |_| {
        for n in 60..99 {
            map.delete(&n);
        }
    });
    drop(map);
    assert_eq!(Arc::strong_count(&count), 1);
}

/// Lets destructors and comparisons use the map that calls them, and wait.
#[test]
fn keys_and_values_may_use_the_map() {
    static MAP: Map<Key, Value> = Map::new();
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    #[derive(PartialOrd, Eq, Clone)]
    struct Key(u32);
    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            gosched();
            self.0.hash(state);
        }
    }
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            if self.0.is_multiple_of(5) && self.0 > 0 {
                MAP.load_with(&Key(self.0 - 1), |_| gosched());
            }
            gosched();
            self.0 == other.0
        }
    }
    struct Value(u32);
    impl Drop for Value {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
            gosched();
            if self.0 > 0 {
                MAP.store(Key(1000), Value(0));
                MAP.delete(&Key(1000));
            }
        }
    }
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let running = Arc::new(AtomicUsize::new(0));
        for worker in 0..4 {
            running.fetch_add(1, SeqCst);
            let running = running.clone();
            go(move || {
                for n in 0..300 {
                    MAP.store(Key((n * (worker + 1)) % 40), Value(n));
                    if n % 3 == 0 {
                        MAP.delete(&Key(n % 40));
                    }
                    if n % 50 == 0 {
                        MAP.range(|_, value| {
                            gosched();
                            value.0 != 7
                        });
                    }
                }
                running.fetch_sub(1, SeqCst);
            });
        }
        while running.load(SeqCst) > 0 {
            gosched();
        }
    });
    assert!(DROPS.load(SeqCst) > 500);
}

#[test]
fn looks() {
    let mut map: Map<u32, &str> = Map::default();
    map.extend([(1, "one")]);
    assert_eq!(format!("{map:?}"), r#"{1: "one"}"#);
    let text: Map<String, u32> = [("a".to_owned(), 1)].into_iter().collect();
    assert_eq!(text.load("a"), Some(1));
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&text);
}
