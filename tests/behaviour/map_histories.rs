//! Random histories of the map: each history must be possible for a map without concurrency.
//!
//! Threads make calls, and record the result of each call, and when the call began and ended on a shared clock. The
//! check looks for an order of the calls in which a call that ended before another began comes first, and in which each
//! call returns its recorded result: Wing and Gong, *Testing and verifying concurrent objects*, 1993, with Lowe's
//! memory of the states that have been tried. A [`clear`](Map::clear) concerns all keys, so the histories are not split
//! by key.
#![cfg(not(sudog_loom))]

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::hint::spin_loop;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sudog::sync::Map;
use support::Watchdog;

const KEYS: usize = 4;
const VALUES: u8 = 3;
const THREADS: usize = 3;
/// The number of calls of each thread in a round.
const CALLS: usize = 6;
/// The number of rounds in one run of the threads.
const ROUNDS: usize = 100;
/// The number of histories with overlapping calls after which a test ends.
const OVERLAPPING: usize = 1_000;
/// The number of runs after which a test ends in any case: a single processor yields few histories with overlapping
/// calls.
const RUNS: u64 = 500;

#[derive(Clone, Copy, Debug)]
enum Op {
    Load(u8),
    Store(u8, u8),
    Swap(u8, u8),
    LoadOrStore(u8, u8),
    LoadAndDelete(u8),
    Delete(u8),
    CompareAndSwap(u8, u8, u8),
    CompareAndDelete(u8, u8),
    Clear,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Returned {
    Nothing,
    Had(Option<u8>),
    Found(u8, bool),
    Did(bool),
}

#[derive(Clone, Copy, Debug)]
struct Call {
    op: Op,
    returned: Returned,
    began: usize,
    ended: usize,
}

/// The value of each key, if the key is present.
type State = [Option<u8>; KEYS];

impl Op {
    fn random(rng: &mut StdRng) -> Self {
        let key = rng.random_range(0..KEYS as u8);
        let (value, other) = (rng.random_range(0..VALUES), rng.random_range(0..VALUES));
        match rng.random_range(0..17) {
            0 | 1 => Self::Load(key),
            2 | 3 => Self::Store(key, value),
            4 | 5 => Self::Swap(key, value),
            6 | 7 => Self::LoadOrStore(key, value),
            8..=10 => Self::LoadAndDelete(key),
            11 | 12 => Self::Delete(key),
            13 | 14 => Self::CompareAndSwap(key, other, value),
            15 => Self::CompareAndDelete(key, value),
            _ => Self::Clear,
        }
    }

    fn call<S: BuildHasher>(self, map: &Map<u8, u8, S>) -> Returned {
        match self {
            Self::Load(key) => Returned::Had(map.load(&key)),
            Self::Store(key, value) => {
                map.store(key, value);
                Returned::Nothing
            }
            Self::Swap(key, value) => Returned::Had(map.swap(key, value)),
            Self::LoadOrStore(key, value) => {
                let (value, loaded) = map.load_or_store(key, value);
                Returned::Found(value, loaded)
            }
            Self::LoadAndDelete(key) => Returned::Had(map.load_and_delete(&key)),
            Self::Delete(key) => {
                map.delete(&key);
                Returned::Nothing
            }
            Self::CompareAndSwap(key, old, new) => Returned::Did(map.compare_and_swap(key, &old, new)),
            Self::CompareAndDelete(key, old) => Returned::Did(map.compare_and_delete(&key, &old)),
            Self::Clear => {
                map.clear();
                Returned::Nothing
            }
        }
    }

    /// A random store, load or clear. Loads between two steps of a clear would see that the clear removes one key
    /// before another.
    fn random_of_clears(rng: &mut StdRng) -> Self {
        let key = rng.random_range(0..KEYS as u8);
        match rng.random_range(0..8) {
            0..=2 => Self::Store(key, rng.random_range(0..VALUES)),
            3..=6 => Self::Load(key),
            _ => Self::Clear,
        }
    }

    /// Applies the call to `state`, and returns the result of a call that runs alone.
    fn step(self, state: &mut State) -> Returned {
        match self {
            Self::Load(key) => Returned::Had(state[usize::from(key)]),
            Self::Store(key, value) => {
                state[usize::from(key)] = Some(value);
                Returned::Nothing
            }
            Self::Swap(key, value) => Returned::Had(state[usize::from(key)].replace(value)),
            Self::LoadOrStore(key, value) => {
                let there = &mut state[usize::from(key)];
                let loaded = there.is_some();
                Returned::Found(*there.get_or_insert(value), loaded)
            }
            Self::LoadAndDelete(key) => Returned::Had(state[usize::from(key)].take()),
            Self::Delete(key) => {
                state[usize::from(key)] = None;
                Returned::Nothing
            }
            Self::CompareAndSwap(key, old, new) => {
                let there = &mut state[usize::from(key)];
                let did = *there == Some(old);
                if did {
                    *there = Some(new);
                }
                Returned::Did(did)
            }
            Self::CompareAndDelete(key, old) => {
                Returned::Did(state[usize::from(key)].take_if(|there| *there == old).is_some())
            }
            Self::Clear => {
                *state = State::default();
                Returned::Nothing
            }
        }
    }
}

/// Returns whether the remaining calls have an order, if the calls in `done` have been made and have led to `state`.
fn has_an_order(calls: &[Call], done: u32, state: State, tried: &mut HashSet<(u32, State)>) -> bool {
    let left = || calls.iter().enumerate().filter(|(n, _)| done & 1 << n == 0);
    let Some(first_end) = left().map(|(_, call)| call.ended).min() else { return true };
    tried.insert((done, state))
        && left().filter(|(_, call)| call.began < first_end).any(|(n, call)| {
            let mut next = state;
            call.op.step(&mut next) == call.returned && has_an_order(calls, done | 1 << n, next, tried)
        })
}

fn is_linearizable(calls: &[Call]) -> bool {
    has_an_order(calls, 0, State::default(), &mut HashSet::new())
}

fn overlap(calls: &[Call]) -> bool {
    calls.iter().any(|a| calls.iter().any(|b| a.began < b.began && b.began < a.ended))
}

/// Makes the calls of one thread for each round.
fn one_thread<S: BuildHasher>(
    op: fn(&mut StdRng) -> Op,
    maps: &[Map<u8, u8, S>],
    seed: u64,
    clock: &AtomicUsize,
    here: &AtomicUsize,
) -> Vec<Vec<Call>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let rounds = maps.iter().zip(1..).map(|(map, round)| {
        let ops: [Op; CALLS] = std::array::from_fn(|_| op(&mut rng));
        let mut calls = Vec::with_capacity(CALLS);
        here.fetch_add(1, SeqCst);
        // All threads begin at once, and none sleeps: the other threads would have finished when a sleeper wakes up.
        for look in 1_u32.. {
            if here.load(SeqCst) >= round * THREADS {
                break;
            }
            if look.is_multiple_of(256) {
                thread::yield_now();
            }
            spin_loop();
        }
        calls.extend(ops.map(|op| {
            let began = clock.fetch_add(1, SeqCst);
            let returned = op.call(map);
            Call { op, returned, began, ended: clock.fetch_add(1, SeqCst) }
        }));
        calls
    });
    rounds.collect()
}

fn histories<S: BuildHasher + Default + Send + Sync>(op: fn(&mut StdRng) -> Op) {
    let watchdog = Watchdog::new();
    let mut overlapping = 0;
    for run in 0..RUNS {
        watchdog.pat();
        let maps: Vec<Map<u8, u8, S>> = (0..ROUNDS).map(|_| Map::default()).collect();
        let (clock, here) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let seeds = (0..THREADS as u64).map(|thread| run << 32 | thread);
        let calls: Vec<_> = thread::scope(|scope| {
            let (maps, clock, here) = (&maps, &clock, &here);
            let threads: Vec<_> =
                seeds.map(|seed| scope.spawn(move || one_thread(op, maps, seed, clock, here))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for round in 0..ROUNDS {
            let mut history = calls.iter().flat_map(|calls| calls[round].clone()).collect::<Vec<_>>();
            history.sort_by_key(|call| call.began);
            assert!(is_linearizable(&history), "no order explains {history:#?}");
            overlapping += usize::from(overlap(&history));
        }
        if overlapping >= OVERLAPPING {
            return;
        }
    }
}

#[test]
fn random_histories_have_an_order() {
    histories::<RandomState>(Op::random);
}

#[test]
fn random_histories_of_clears_have_an_order() {
    histories::<RandomState>(Op::random_of_clears);
}

/// A hasher that gives all keys one hash.
#[derive(Default)]
struct Same;

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {}

    fn finish(&self) -> u64 {
        7
    }
}

#[test]
fn random_histories_of_one_hash_have_an_order() {
    histories::<BuildHasherDefault<Same>>(Op::random);
}

/// The number by which the map multiplies hashes, so that the upper bits depend on the lower bits; and its inverse. If
/// the map used another number, the hashes below would be no worse than others.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = {
    let (mut inverse, mut step) = (MULTIPLIER, 0);
    while step < 5 {
        // Newton's method: each step doubles the number of correct bits.
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(MULTIPLIER.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
};

/// A hasher whose hashes differ at the first nibble, at the third, and at the last that the map looks at: so nodes come
/// and go.
#[derive(Default)]
struct Near(u64);

impl Hasher for Near {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = [0, 0x1, 0x10_0000, 0x1000_0000][usize::from(bytes[0])] << 32;
    }

    fn finish(&self) -> u64 {
        self.0.wrapping_mul(INVERSE)
    }
}

#[test]
fn random_histories_of_near_hashes_have_an_order() {
    histories::<BuildHasherDefault<Near>>(Op::random);
}

/// Checks that once a load does not find a key, no later load finds any key, because the clear has happened. The random
/// histories are too short to see much of a slow clear.
#[test]
fn a_clear_is_one_instant() {
    const MANY: u32 = 1_000;
    let watchdog = Watchdog::new();
    for round in 0..200 {
        watchdog.pat();
        let map: Map<u32, ()> = (0..MANY).map(|key| (key, ())).collect();
        let looks = AtomicUsize::new(0);
        thread::scope(|scope| {
            for order in [1, 7, 411] {
                let (map, looks) = (&map, &looks);
                scope.spawn(move || {
                    let key = |n: u32| (n * order + round) % MANY;
                    looks.fetch_add(1, SeqCst);
                    let gone = (0..).find(|&n| map.load(&key(n)).is_none()).unwrap();
                    for n in gone..gone + MANY {
                        assert!(map.load(&key(n)).is_none(), "{} is there, and {} was not", key(n), key(gone));
                    }
                });
            }
            while looks.load(SeqCst) < 3 {
                spin_loop();
            }
            map.clear();
        });
    }
}

/// Checks that `is_linearizable` accepts and rejects the simplest histories that it must tell apart.
#[test]
fn the_check_tells_histories_apart() {
    let call = |op, returned, began, ended| Call { op, returned, began, ended };
    let store = |key, began, ended| call(Op::Store(key, 1), Returned::Nothing, began, ended);
    let load = |key, had, began, ended| call(Op::Load(key), Returned::Had(had), began, ended);

    assert!(is_linearizable(&[store(0, 0, 1), load(0, Some(1), 2, 3)]));
    assert!(!is_linearizable(&[store(0, 0, 1), load(0, None, 2, 3)]), "a lost store");
    assert!(is_linearizable(&[store(0, 0, 3), load(0, None, 1, 2)]), "the store may come later");
    assert!(!is_linearizable(&[store(0, 0, 5), load(0, Some(1), 1, 2), load(0, None, 3, 4)]), "it may not go again");

    let delete = |began, ended| call(Op::LoadAndDelete(0), Returned::Had(Some(1)), began, ended);
    assert!(!is_linearizable(&[store(0, 0, 1), delete(2, 5), delete(3, 4)]), "a value is got twice");

    let clear = call(Op::Clear, Returned::Nothing, 4, 9);
    let both = [store(0, 0, 1), store(1, 2, 3), clear];
    let looks = |first, second| [&both[..], &[load(0, first, 5, 6), load(1, second, 7, 8)]].concat();
    assert!(is_linearizable(&looks(Some(1), None)), "the clear comes between the looks");
    assert!(!is_linearizable(&looks(None, Some(1))), "a clear is one instant");
}
