//! The mixes of operations on maps: those of Go's benchmarks. Each contender counts its operations, from a first number
//! such that no other contender reaches the same numbers. A step makes its key from the number of the operation, `n`.

use std::hint::black_box;

use super::ConcurrentMap;
use crate::rounds::Rounds;

/// Calls a macro with all mixes, behind other arguments: for each Go's name, a description, and the function of this
/// module.
macro_rules! all {
    ($with:ident!($($of:tt)*)) => {
        $with! {
            $($of)*
            "LoadMostlyHits", "load, 1 miss in 1024", load(1023, 1);
            "LoadMostlyMisses", "load, 1 hit in 1024", load(1, 1023);
            "LoadOrStoreBalanced", "load or store, 1 in 2 a hit", load_or_store(128, 128);
            "LoadOrStoreUnique", "load or store a new key", load_or_store_unique();
            "LoadOrStoreCollision", "load or store of one key", load_or_store_collision();
            "LoadAndDeleteBalanced", "load and delete, 1 in 2 a hit", load_and_delete(128, 128);
            "LoadAndDeleteUnique", "load and delete a key that is not there", load_and_delete_unique();
            "LoadAndDeleteCollision", "load and delete of one key", load_and_delete_collision();
            "Range", "a walk over 1024 keys", range();
            "AdversarialAlloc", "load of new keys, with stores", adversarial_alloc();
            "AdversarialDelete", "load of new keys, with deletes", adversarial_delete();
            "DeleteCollision", "delete one key, which is gone", delete_collision();
            "SwapCollision", "swap of one key", swap_collision();
            "SwapMostlyHits", "swap, 1 miss in 1024", swap(1023, 1);
            "SwapMostlyMisses", "swap, 1 hit in 1024", swap(1, 1023);
            "CompareAndSwapCollision", "compare and swap of one key", compare_and_swap_collision();
            "CompareAndSwapNoExistingKey", "the same of new keys", compare_and_swap_no_existing_key();
            "CompareAndSwapValueNotEqual", "the same of another value", compare_and_swap_value_not_equal();
            "CompareAndSwapMostlyHits", "the same, 1 miss in 1024", compare_and_swap(1023, 1);
            "CompareAndSwapMostlyMisses", "the same, 1 hit in 1024", compare_and_swap(1, 1023);
            "CompareAndDeleteCollision", "compare and delete of one key", compare_and_delete_collision();
            "CompareAndDeleteMostlyHits", "the same, 1 miss in 1024", compare_and_delete(1023, 1);
            "CompareAndDeleteMostlyMisses", "the same, 1 hit in 1024", compare_and_delete(1, 1023);
            "Clear", "clear, and store a key", clear();
        }
    };
}

pub(crate) use all;

/// The number of keys in the map, unless a mix says otherwise.
const SIZE: u64 = 1024;
/// The largest number of keys that `clear` has to remove.
const CLEARED: u64 = 256;

/// Runs the loop that all mixes share.
fn mix<M: ConcurrentMap, R: Rounds>(
    round: R,
    prepare: impl FnOnce(&M),
    step: impl Fn(&M, u64) + Send + Sync + 'static,
) -> R::Out {
    let (map, operations) = (M::new(), round.operations());
    prepare(&map);
    round.divide(move |me, portion| {
        let mut n = me as u64 * operations;
        portion.each(|| {
            step(&map, n);
            n += 1;
        });
    })
}

/// Stores `keys` keys, and loads each of them twice.
fn fill<M: ConcurrentMap>(map: &M, keys: u64) {
    (0..keys).for_each(|key| map.store(key, key));
    (0..2 * keys).for_each(|n| _ = black_box(map.load(n % keys)));
}

/// Returns the key for operation `n`. Of `hits` + `misses` numbers in sequence, the first `hits` give keys of the
/// filled map, and true; the others give `n` as a new key, and false.
fn key(n: u64, hits: u64, misses: u64) -> (u64, bool) {
    let place = n % (hits + misses);
    if place < hits { (place, true) } else { (n, false) }
}

/// Loads keys, of which `hits` in `hits` + `misses` are in the map.
pub fn load<M: ConcurrentMap, R: Rounds>(round: R, hits: u64, misses: u64) -> R::Out {
    mix::<M, R>(round, |map| fill(map, hits), move |map, n| _ = black_box(map.load(n % (hits + misses))))
}

/// Loads or stores: `hits` in `hits` + `misses` operations find a value, the others store.
pub fn load_or_store<M: ConcurrentMap, R: Rounds>(round: R, hits: u64, misses: u64) -> R::Out {
    mix::<M, R>(
        round,
        |map| fill(map, hits),
        move |map, n| {
            let (key, hits) = key(n, hits, misses);
            let (_, loaded) = black_box(map.load_or_store(key, n));
            // Keys that collide with those that are there are few, and come first.
            debug_assert!(loaded || !hits);
        },
    )
}

/// Loads or stores, always a new key.
pub fn load_or_store_unique<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |_| (), |map, n| _ = black_box(map.load_or_store(n, n)))
}

/// Loads or stores, always the same key.
pub fn load_or_store_collision<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |map| map.store(0, 0), |map, _| _ = black_box(map.load_or_store(0, 0)))
}

/// Loads and deletes: `hits` in `hits` + `misses` keys were in the map at first; the others never were.
pub fn load_and_delete<M: ConcurrentMap, R: Rounds>(round: R, hits: u64, misses: u64) -> R::Out {
    mix::<M, R>(round, |map| fill(map, hits), move |map, n| _ = black_box(map.load_and_delete(key(n, hits, misses).0)))
}

/// Loads and deletes, always a new key, which never was in the map.
pub fn load_and_delete_unique<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |_| (), |map, n| _ = black_box(map.load_and_delete(n)))
}

/// Loads and deletes the same key: the contender that has removed the key stores the key again.
pub fn load_and_delete_collision<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(
        round,
        |map| map.store(0, 0),
        |map, _| {
            if map.load_and_delete(0).is_some() {
                map.store(0, 0);
            }
        },
    )
}

/// Walks over all keys.
pub fn range<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(
        round,
        |map| fill(map, SIZE),
        |map, _| {
            map.range(|key, value| {
                black_box((key, value));
                true
            });
        },
    )
}

/// Loads new keys, and stores a key in between: the more stores there have been, the more loads precede the next store.
/// Go's old map copied itself after a number of loads that missed.
pub fn adversarial_alloc<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    let (map, operations) = (M::new(), round.operations());
    round.divide(move |me, portion| {
        let (mut n, mut stores, mut loads) = (me as u64 * operations, 0, 0);
        portion.each(|| {
            black_box(map.load(n));
            loads += 1;
            if loads > stores {
                map.load_or_store(n, stores);
                loads = 0;
                stores += 1;
            }
            n += 1;
        });
    })
}

/// Loads new keys; every [`SIZE`] operations, removes some key and stores a new key. The walk only finds the key to
/// remove: the key is removed after the walk, as not every map may be changed during a walk.
pub fn adversarial_delete<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(
        round,
        |map| fill(map, SIZE),
        |map, n| {
            black_box(map.load(n));
            if n.is_multiple_of(SIZE) {
                let mut found = None;
                map.range(|key, _| {
                    found = Some(key);
                    false
                });
                found.into_iter().for_each(|key| map.delete(key));
                map.store(n, n);
            }
        },
    )
}

/// Deletes the same key. The key is present the first time only.
pub fn delete_collision<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |map| map.store(0, 0), |map, _| map.delete(0))
}

/// Swaps the value of the same key.
pub fn swap_collision<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |map| map.store(0, 0), |map, _| _ = black_box(map.swap(0, 0)))
}

/// Swaps: `hits` in `hits` + `misses` keys are in the map; the others are removed at once.
pub fn swap<M: ConcurrentMap, R: Rounds>(round: R, hits: u64, misses: u64) -> R::Out {
    mix::<M, R>(
        round,
        |map| fill(map, hits),
        move |map, n| {
            let (key, hits) = key(n, hits, misses);
            black_box(map.swap(key, key));
            if !hits {
                map.delete(key);
            }
        },
    )
}

/// Changes the value of the same key to another value, and back.
pub fn compare_and_swap_collision<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(
        round,
        |map| map.store(0, 0),
        |map, _| {
            if map.compare_and_swap(0, 0, 42) {
                map.compare_and_swap(0, 42, 0);
            }
        },
    )
}

/// Compares and swaps a new key, which is not in the map.
pub fn compare_and_swap_no_existing_key<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(
        round,
        |_| (),
        |map, n| {
            if map.compare_and_swap(n, 0, 0) {
                map.delete(n);
            }
        },
    )
}

/// Compares and swaps the same key, whose value differs from the expected value.
pub fn compare_and_swap_value_not_equal<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |map| map.store(0, 0), |map, _| _ = black_box(map.compare_and_swap(0, 1, 2)))
}

/// Compares and swaps: `hits` in `hits` + `misses` keys are in the map, and have the expected value.
pub fn compare_and_swap<M: ConcurrentMap, R: Rounds>(round: R, hits: u64, misses: u64) -> R::Out {
    mix::<M, R>(
        round,
        |map| fill(map, hits),
        move |map, n| {
            let (key, _) = key(n, hits, misses);
            black_box(map.compare_and_swap(key, key, key));
        },
    )
}

/// Compares and deletes the same key: the contender that has removed the key stores the key again.
pub fn compare_and_delete_collision<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(
        round,
        |map| map.store(0, 0),
        |map, _| {
            if map.compare_and_delete(0, 0) {
                map.store(0, 0);
            }
        },
    )
}

/// Compares and deletes: `hits` in `hits` + `misses` keys are in the map, unless a contender has just removed a key and
/// is about to store the key again.
pub fn compare_and_delete<M: ConcurrentMap, R: Rounds>(round: R, hits: u64, misses: u64) -> R::Out {
    mix::<M, R>(
        round,
        |map| fill(map, hits),
        move |map, n| {
            let (key, _) = key(n, hits, misses);
            if map.compare_and_delete(key, key) {
                map.store(key, key);
            }
        },
    )
}

/// Removes all keys, and stores a key.
pub fn clear<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(
        round,
        |_| (),
        |map, n| {
            map.clear();
            map.store(n % CLEARED, n % CLEARED);
        },
    )
}
