//! Maps.

mod adapters;
mod hasher;
pub mod mixes;

pub use adapters::{Dashmap, Locked, Ours, Papaya, Scc};
pub use hasher::Mix;

/// A map with the methods of Go's map. Where the compared map has a method like Go's, the trait's method calls that
/// method.
pub trait ConcurrentMap: Send + Sync + 'static {
    /// Creates an empty map. In `syncbench`, all maps hash keys by [`Mix`].
    fn new() -> Self;

    /// Returns the key's value.
    fn load(&self, key: u64) -> Option<u64>;

    /// Sets the key's value.
    fn store(&self, key: u64, value: u64);

    /// Returns the key's value and true. If the key has no value, stores `value`, and returns `value` and false.
    fn load_or_store(&self, key: u64, value: u64) -> (u64, bool);

    /// Removes the key, and returns the removed value.
    fn load_and_delete(&self, key: u64) -> Option<u64>;

    /// Removes the key.
    fn delete(&self, key: u64) {
        self.load_and_delete(key);
    }

    /// Sets the key's value, and returns the previous value.
    fn swap(&self, key: u64, value: u64) -> Option<u64>;

    /// Sets the key's value to `new` if the value is `old`. Returns true if so.
    fn compare_and_swap(&self, key: u64, old: u64, new: u64) -> bool;

    /// Removes the key if the key's value is `old`. Returns true if so.
    fn compare_and_delete(&self, key: u64, old: u64) -> bool;

    /// Calls `f` for all keys and values, until `f` returns false. `f` must not call the map, which may be locked.
    fn range(&self, f: impl FnMut(u64, u64) -> bool);

    /// Removes all keys.
    fn clear(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_do_the_same() {
        fn same<M: ConcurrentMap>() {
            let map = M::new();
            assert_eq!((map.load(1), map.swap(1, 10), map.load(1)), (None, None, Some(10)));
            assert_eq!((map.load_or_store(1, 11), map.load_or_store(2, 20)), ((10, true), (20, false)));
            assert_eq!((map.swap(2, 21), map.load(2)), (Some(20), Some(21)));
            assert!(!map.compare_and_swap(1, 11, 12) && map.compare_and_swap(1, 10, 12));
            assert!(!map.compare_and_swap(3, 0, 0) && map.load(3).is_none());
            assert!(!map.compare_and_delete(1, 10) && map.compare_and_delete(1, 12));
            assert!(!map.compare_and_delete(1, 12) && map.load(1).is_none());
            assert_eq!((map.load_and_delete(2), map.load_and_delete(2)), (Some(21), None));
            (0..100).for_each(|n| map.store(n, 2 * n));
            map.delete(50);
            let (mut sum, mut visits) = (0, 0);
            map.range(|key, value| {
                assert_eq!(value, 2 * key);
                sum += key;
                true
            });
            assert_eq!(sum, 4950 - 50);
            map.range(|_, _| {
                visits += 1;
                visits < 3
            });
            assert_eq!(visits, 3);
            map.clear();
            map.range(|_, _| unreachable!("it is empty"));
            assert!((0..100).all(|n| map.load(n).is_none()));
        }
        same::<Ours>();
        same::<Papaya>();
        same::<Dashmap>();
        same::<Scc>();
        same::<Locked>();
    }
}
