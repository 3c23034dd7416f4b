//! Readers-writer locks, functions that run once, pools, maps, `atomic::Value`. Further bodies are in `syncbench`,
//! where they run on threads: those bodies are for any contenders.

use std::hash::RandomState;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crossbeam_utils::CachePadded;
use sudog_sync::atomic::Value;
use sudog_sync::pool::NoNew;
use sudog_sync::{GoRwMutex, Map, Once, OnceFunc, OnceValue, OnceValues, Pool, once_func, once_value, once_values};

use super::round::Round;
use crate::rounds::Rounds;
use crate::syncbench::map;

/// The map with the default hash, the standard library's SipHash.
pub type DefaultMap = map::Ours<RandomState>;

/// The map with a hash as cheap as Go's, which takes an AES instruction or two for an integer.
pub type CheapHashMap = map::Ours<map::Mix>;

/// Measures a read in a read, and a write, on a lock of each goroutine's own.
pub fn rw_mutex_uncontended(round: &mut Round) {
    round.divide(|_, portion| {
        let mu = CachePadded::new(GoRwMutex::new());
        let mu: &GoRwMutex = black_box(&mu);
        portion.each(|| {
            mu.rlock();
            mu.rlock();
            mu.runlock();
            mu.runlock();
            mu.lock();
            mu.unlock();
        });
    });
}

static ONCE: Once = Once::new();
static ONCE_VALUE: Once = Once::new();
static ONCE_VALUES: Once = Once::new();
static FUNC: OnceFunc = OnceFunc::new(|| ());
static VALUE: OnceValue<u64> = OnceValue::new(|| 42);
static VALUES: OnceValues<u64, bool> = OnceValues::new(|| (42, true));

/// Runs `operation` again and again, such that the compiler can neither drop the operation nor move the operation out
/// of the loop.
fn each<T>(round: &mut Round, operation: impl Fn() -> T) {
    for _ in 0..round.n {
        black_box(operation());
    }
}

/// Measures the `Once` that functions that run once are made of.
pub fn once_alone(round: &mut Round) {
    each(round, || ONCE.do_(|| ()));
}

/// Measures a function that runs once, in a global.
pub fn once_func_global(round: &mut Round) {
    each(round, || black_box(&FUNC).call());
}

/// Measures a function that runs once, in a local variable.
pub fn once_func_local(round: &mut Round) {
    let f = once_func(|| ());
    each(round, || black_box(&f)());
}

/// Measures making a function that runs once, a new function each time.
pub fn once_func_make(round: &mut Round) {
    each(round, || once_func(|| ()));
}

/// Measures the `Once` that functions that run once are made of, with a value beside the `Once`.
pub fn once_value_alone(round: &mut Round) {
    static VALUE: AtomicU64 = AtomicU64::new(0);
    each(round, || {
        ONCE_VALUE.do_(|| VALUE.store(42, Relaxed));
        assert!(VALUE.load(Relaxed) == 42); // `assert_eq!` would store the value
    });
}

/// Measures a value that is computed once, in a global.
pub fn once_value_global(round: &mut Round) {
    each(round, || assert_eq!(*black_box(&VALUE).get(), 42));
}

/// Measures a value that is computed once, in a local variable.
pub fn once_value_local(round: &mut Round) {
    let f = once_value(|| 42);
    each(round, || assert_eq!(black_box(&f)(), 42));
}

/// Measures making a value that is computed once, a new value each time.
pub fn once_value_make(round: &mut Round) {
    each(round, || once_value(|| 42));
}

/// Measures the `Once` that functions that run once are made of, with two values beside the `Once`.
pub fn once_values_alone(round: &mut Round) {
    static VALUES: (AtomicU64, AtomicBool) = (AtomicU64::new(0), AtomicBool::new(false));
    each(round, || {
        ONCE_VALUES.do_(|| {
            VALUES.0.store(42, Relaxed);
            VALUES.1.store(true, Relaxed);
        });
        assert!(VALUES.0.load(Relaxed) == 42 && VALUES.1.load(Relaxed));
    });
}

/// Measures two values that are computed once, in a global.
pub fn once_values_global(round: &mut Round) {
    each(round, || assert_eq!(black_box(&VALUES).get(), (&42, &true)));
}

/// Measures two values that are computed once, in a local variable.
pub fn once_values_local(round: &mut Round) {
    let f = once_values(|| (42, true));
    each(round, || assert_eq!(black_box(&f)(), (42, true)));
}

/// Measures making two values that are computed once, new values each time.
pub fn once_values_make(round: &mut Round) {
    each(round, || once_values(|| (42, true)));
}

/// Measures reading a value that all goroutines share, and no goroutine writes.
pub fn value_read(round: &mut Round) {
    let value = Value::from(0_u64);
    round.divide(move |_, portion| portion.each(|| assert!(value.load() == Some(0)))); // `assert_eq!` would store the value
}

/// Measures putting `puts` items into a pool, and getting `gets` items.
pub fn pool(round: &mut Round, puts: u64, gets: u64) {
    let pool = CachePadded::new(Pool::<u64, NoNew>::empty());
    round.divide(move |_, portion| {
        portion.each(|| {
            (0..puts).for_each(|_| pool.put(1));
            (0..gets).for_each(|_| _ = black_box(pool.get()));
        });
    });
}

fn words(count: usize) -> Vec<&'static str> {
    (0..count).map(|n| &*n.to_string().leak()).collect()
}

/// Measures loads of words that are in the map.
pub fn words_load(round: &mut Round, count: usize) {
    let words = words(count);
    let map: Map<&str, usize> = words.iter().copied().zip(0..).collect();
    round.divide(move |_, portion| {
        let mut i = 0;
        portion.each(|| {
            black_box(map.load(words[i]));
            i += 1;
            if i == words.len() {
                i = 0;
            }
        });
    });
}

/// Measures storing words: each word is stored once, and found from then on.
pub fn words_load_or_store(round: &mut Round, count: usize) {
    let words = words(count);
    let map = Map::<&str, usize>::default();
    round.divide(move |_, portion| {
        let mut i = 0;
        portion.each(|| {
            black_box(map.load_or_store(words[i], i));
            i += 1;
            if i == words.len() {
                i = 0;
            }
        });
    });
}
