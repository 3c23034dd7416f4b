//! Readers-writer locks, functions that run once, pools, maps, `atomic::Value`. What is not here `syncbench` has, for
//! threads: those bodies are for any contenders.

use std::hash::RandomState;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crossbeam_utils::CachePadded;
use sudog_sync::atomic::Value;
use sudog_sync::pool::NoNew;
use sudog_sync::{GoRwMutex, Map, Once, OnceFunc, OnceValue, OnceValues, Pool, once_func, once_value, once_values};

use super::round::Round;
use crate::bench::syncbench::map;
use crate::run::rounds::Rounds;

/// The map as it is by default: its hash is the standard library's, SipHash.
pub type DefaultMap = map::Ours<RandomState>;

/// The map with a hash as cheap as Go's, which takes an AES instruction or two for an integer.
pub type CheapHashMap = map::Ours<map::Mix>;

/// Each goroutine has a lock of its own: a read in a read, and a write.
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

/// One operation after the other, which the compiler can neither leave out nor take out of the loop.
fn each<T>(round: &mut Round, operation: impl Fn() -> T) {
    for _ in 0..round.n {
        black_box(operation());
    }
}

/// What the functions that run once are made of.
pub fn once_alone(round: &mut Round) {
    each(round, || black_box(&ONCE).do_(|| ()));
}

/// A global.
pub fn once_func_global(round: &mut Round) {
    each(round, || black_box(&FUNC).call());
}

/// A local variable.
pub fn once_func_local(round: &mut Round) {
    let f = once_func(|| ());
    each(round, || black_box(&f)());
}

/// A new one each time.
pub fn once_func_make(round: &mut Round) {
    each(round, || once_func(|| ()));
}

/// What the functions that run once are made of, and a value beside it.
pub fn once_value_alone(round: &mut Round) {
    static VALUE: AtomicU64 = AtomicU64::new(0);
    each(round, || {
        black_box(&ONCE_VALUE).do_(|| VALUE.store(42, Relaxed));
        assert_eq!(VALUE.load(Relaxed), 42);
    });
}

/// A global.
pub fn once_value_global(round: &mut Round) {
    each(round, || assert_eq!(*black_box(&VALUE).get(), 42));
}

/// A local variable.
pub fn once_value_local(round: &mut Round) {
    let f = once_value(|| 42);
    each(round, || assert_eq!(black_box(&f)(), 42));
}

/// A new one each time.
pub fn once_value_make(round: &mut Round) {
    each(round, || once_value(|| 42));
}

/// What the functions that run once are made of, and two values beside it.
pub fn once_values_alone(round: &mut Round) {
    static VALUES: (AtomicU64, AtomicBool) = (AtomicU64::new(0), AtomicBool::new(false));
    each(round, || {
        black_box(&ONCE_VALUES).do_(|| {
            VALUES.0.store(42, Relaxed);
            VALUES.1.store(true, Relaxed);
        });
        assert_eq!((VALUES.0.load(Relaxed), VALUES.1.load(Relaxed)), (42, true));
    });
}

/// A global.
pub fn once_values_global(round: &mut Round) {
    each(round, || assert_eq!(black_box(&VALUES).get(), (&42, &true)));
}

/// A local variable.
pub fn once_values_local(round: &mut Round) {
    let f = once_values(|| (42, true));
    each(round, || assert_eq!(black_box(&f)(), (42, true)));
}

/// A new one each time.
pub fn once_values_make(round: &mut Round) {
    each(round, || once_values(|| (42, true)));
}

/// One value for all, which no goroutine writes.
pub fn value_read(round: &mut Round) {
    let value = Value::from(0_u64);
    round.divide(move |_, portion| portion.each(|| assert_eq!(value.load(), Some(0))));
}

/// So many items are put into one pool, and so many asked for.
pub fn pool(round: &mut Round, puts: u64, gets: u64) {
    let pool = CachePadded::new(Pool::<u64, NoNew>::empty());
    round.divide(move |_, portion| {
        portion.each(|| {
            (0..puts).for_each(|_| pool.put(1));
            (0..gets).for_each(|_| _ = black_box(pool.get()));
        });
    });
}

/// Numbers as words.
fn words(count: usize) -> Vec<&'static str> {
    (0..count).map(|n| &*n.to_string().leak()).collect()
}

/// Loads of words that are there.
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

/// Each word is stored once, and found from then on.
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
