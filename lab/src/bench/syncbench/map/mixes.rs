//! What is done with a map: the mixes of Go's benchmarks. Each counts its operations from a number on that no other
//! contender gets to, the `n` of a step, of which the keys are made.

use std::hint::black_box;

use super::ConcurrentMap;
use crate::run::rounds::Rounds;

/// How many keys there are where that is not said otherwise.
const SIZE: u64 = 1024;
/// How many before `clear` has to remove one, at most.
const CLEARED: u64 = 256;

/// The loop of them all.
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

/// So many keys, each looked at twice.
fn fill<M: ConcurrentMap>(map: &M, keys: u64) {
    (0..keys).for_each(|key| map.store(key, key));
    (0..2 * keys).for_each(|n| _ = black_box(map.load(n % keys)));
}

/// Of `hits` + `misses` numbers, those that are keys; the others are new numbers.
fn key(n: u64, hits: u64, misses: u64) -> (u64, bool) {
    let place = n % (hits + misses);
    if place < hits { (place, true) } else { (n, false) }
}

/// Loads of keys, `hits` in `hits` + `misses` of which are there.
pub fn load<M: ConcurrentMap, R: Rounds>(round: R, hits: u64, misses: u64) -> R::Out {
    mix::<M, R>(round, |map| fill(map, hits), move |map, n| _ = black_box(map.load(n % (hits + misses))))
}

/// So many in so many find something, the others store.
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

/// Always a new key.
pub fn load_or_store_unique<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |_| (), |map, n| _ = black_box(map.load_or_store(n, n)))
}

/// Always the same key.
pub fn load_or_store_collision<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |map| map.store(0, 0), |map, _| _ = black_box(map.load_or_store(0, 0)))
}

/// So many in so many are of keys that were there at first; the others never were.
pub fn load_and_delete<M: ConcurrentMap, R: Rounds>(round: R, hits: u64, misses: u64) -> R::Out {
    mix::<M, R>(round, |map| fill(map, hits), move |map, n| _ = black_box(map.load_and_delete(key(n, hits, misses).0)))
}

/// Always a new key, that was never there.
pub fn load_and_delete_unique<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |_| (), |map, n| _ = black_box(map.load_and_delete(n)))
}

/// One key: the contender that has removed it stores it.
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

/// A walk over all keys.
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

/// Loads of new keys, with stores in between, the fewer the more there have been: Go's old map copied itself after
/// every so many loads that missed.
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

/// Loads of new keys; every so often some key is removed, and a new one stored. That key is removed after the walk that
/// found it, as not every map may be changed during one.
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

/// One key, which is not there but the first time.
pub fn delete_collision<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |map| map.store(0, 0), |map, _| map.delete(0))
}

/// One key.
pub fn swap_collision<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |map| map.store(0, 0), |map, _| _ = black_box(map.swap(0, 0)))
}

/// So many in so many are there; the others are removed at once.
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

/// One key: from one value to another, and back.
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

/// Always a new key, that is not there.
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

/// One key with another value.
pub fn compare_and_swap_value_not_equal<M: ConcurrentMap, R: Rounds>(round: R) -> R::Out {
    mix::<M, R>(round, |map| map.store(0, 0), |map, _| _ = black_box(map.compare_and_swap(0, 1, 2)))
}

/// So many in so many are there, and have that value.
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

/// One key: the contender that has removed it stores it.
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

/// So many in so many are there, unless a contender has just removed them and is about to store them again.
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

/// Removes all keys, and stores one.
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
