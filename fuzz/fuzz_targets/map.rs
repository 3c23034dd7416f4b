//! Sequences of operations on a `sync::Map`, compared with `std`'s `HashMap`. The hashes of the keys agree in some of
//! their first bits, or in all bits, so that nodes branch deep in the trie and lists form.
#![no_main]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sudog::sync::Map;

/// The inverse of the odd number by which the map multiplies each hash. A hash that is multiplied by the inverse first
/// gives the map the bits that this target has chosen.
const INVERSE: u64 = {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut inverse, mut step) = (1u64, 0);
    while step < 63 {
        // Newton's iteration doubles the number of correct bits.
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(MULTIPLIER.wrapping_mul(inverse)));
        step += 1;
    }
    assert!(MULTIPLIER.wrapping_mul(inverse) == 1);
    inverse
};

/// A key. Keys with the same `path` collide in all bits of the hash.
#[derive(Arbitrary, Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    path: u8,
    number: u8,
}

impl Key {
    /// Returns a key from a small set, so that operations meet each other's keys.
    fn folded(self) -> Self {
        Self { path: self.path & 15, number: self.number & 3 }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Two bits choose the depth at which the paths part, two bits the slot there.
        let depth = u32::from(self.path >> 2);
        let bits = u64::from(self.path & 3) << [28, 16, 4, 0][depth as usize];
        state.write_u64((bits << 32).wrapping_mul(INVERSE));
    }
}

#[derive(Default)]
struct Chosen(u64);

impl Hasher for Chosen {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys write a u64");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A value, which counts itself by the `Arc`.
#[derive(Clone, Debug)]
struct Value(u8, #[allow(dead_code)] Arc<()>);

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Load(Key),
    LoadWith(Key),
    Store(Key, u8),
    Swap(Key, u8),
    LoadOrStore(Key, u8),
    LoadAndDelete(Key),
    Delete(Key),
    CompareAndSwap(Key, u8, u8),
    CompareAndDelete(Key, u8),
    /// Visits all keys, and removes those with this number as they are visited.
    RangeAndDelete(u8),
    Clear,
}

type Tested = Map<Key, Value, BuildHasherDefault<Chosen>>;

fn run(ops: &[Op], count: &Arc<()>) {
    let map = Tested::default();
    let mut model = HashMap::<Key, u8>::new();
    let value = |n: u8| Value(n & 3, count.clone());
    let number = |value: Value| value.0;
    for &op in ops {
        match op {
            Op::Load(key) => assert_eq!(map.load(&key.folded()).map(number), model.get(&key.folded()).copied()),
            Op::LoadWith(key) => {
                assert_eq!(map.load_with(&key.folded(), |value| value.0), model.get(&key.folded()).copied());
            }
            Op::Store(key, n) => {
                map.store(key.folded(), value(n));
                model.insert(key.folded(), n & 3);
            }
            Op::Swap(key, n) => {
                assert_eq!(map.swap(key.folded(), value(n)).map(number), model.insert(key.folded(), n & 3));
            }
            Op::LoadOrStore(key, n) => {
                let loaded = model.contains_key(&key.folded());
                let expected = *model.entry(key.folded()).or_insert(n & 3);
                let (got, was_loaded) = map.load_or_store(key.folded(), value(n));
                assert_eq!((got.0, was_loaded), (expected, loaded));
            }
            Op::LoadAndDelete(key) => {
                assert_eq!(map.load_and_delete(&key.folded()).map(number), model.remove(&key.folded()));
            }
            Op::Delete(key) => {
                map.delete(&key.folded());
                model.remove(&key.folded());
            }
            Op::CompareAndSwap(key, old, new) => {
                let swaps = model.get(&key.folded()) == Some(&(old & 3));
                assert_eq!(map.compare_and_swap(key.folded(), &value(old), value(new)), swaps);
                if swaps {
                    model.insert(key.folded(), new & 3);
                }
            }
            Op::CompareAndDelete(key, old) => {
                let deletes = model.get(&key.folded()) == Some(&(old & 3));
                assert_eq!(map.compare_and_delete(&key.folded(), &value(old)), deletes);
                if deletes {
                    model.remove(&key.folded());
                }
            }
            Op::RangeAndDelete(n) => {
                let mut seen = HashSet::new();
                let before = model.clone();
                map.range(|key, value| {
                    assert!(seen.insert(*key), "{key:?} twice");
                    assert_eq!(before.get(key), Some(&value.0));
                    if key.number == n & 3 {
                        map.delete(key);
                        model.remove(key);
                    }
                    true
                });
                assert_eq!(seen.len(), before.len());
            }
            Op::Clear => {
                map.clear();
                model.clear();
            }
        }
    }
    let mut left = HashMap::new();
    map.range(|key, value| left.insert(*key, value.0).is_none());
    assert_eq!(left, model);
}

fuzz_target!(|ops: Vec<Op>| {
    let count = Arc::new(());
    run(&ops, &count);
    assert_eq!(Arc::strong_count(&count), 1, "each value has been dropped once, at the latest with the map");
});
