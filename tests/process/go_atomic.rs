//! Go's tests of its atomics, over threads and over goroutines.
//!
//! Go tests functions (`TestAddInt32`) and methods (`TestAddInt32Method`). Here there are only methods, so such a pair
//! is a single test.
#![cfg(all(unix, not(sudog_loom)))]

use std::mem;
use std::ops::{Add, Not};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use sudog::sync::atomic::{Bool, Int32, Int64, Pointer, Uint32, Uint64, Uintptr, Value};
use support::kinds::{Kind, together};

support::over_threads_and_goroutines! {
    hammer_32 hammer_64 hammer_store_load_int32 hammer_store_load_uint32 hammer_store_load_int64
    hammer_store_load_uint64 hammer_store_load_uintptr hammer_store_load_pointer
    store_load_seq_cst_32 store_load_seq_cst_64 store_load_seq_cst_pointer
    store_load_rel_acq_32 store_load_rel_acq_64 store_load_rel_acq_pointer
    value_concurrent value_swap_concurrent value_compare_and_swap_concurrent
    pointers_are_swapped_one_by_one
}

/// The counterpart of Go's `magic32` and `magic64`: the value on both sides of an atomic, which must not change.
const MAGIC: u64 = 0xdedd_beef_dedd_beef;

#[repr(C)]
struct Guarded<T> {
    before: T,
    atomic: T,
    after: T,
}

// ---- one at a time --------------------------------------------------------------------------------------------------

/// Go: `TestSwap*`, `TestAdd*`, `TestAnd*`, `TestOr*`, `TestCompareAndSwap*`, `TestLoad*`, `TestStore*` of a number.
macro_rules! numbers {
    ($($module:ident: $Atomic:ident of $n:ty;)+) => {$(
        mod $module {
            use super::*;

            fn guarded() -> Guarded<$Atomic> {
                let magic = || $Atomic::new(MAGIC as $n);
                Guarded { before: magic(), atomic: $Atomic::new(0), after: magic() }
            }

            fn check(x: &Guarded<$Atomic>) {
                assert_eq!((x.before.load(), x.after.load()), (MAGIC as $n, MAGIC as $n));
                assert_eq!(mem::size_of_val(x), 3 * mem::size_of::<$n>());
            }

            /// Returns the deltas of Go's tests: the powers of two, as far as Go's `delta + delta <= 0` lets its loop
            /// run, whose sums are 1, 3, 7, ..; then 0, and the smallest and the largest number, which overflow.
            fn numbers() -> impl Iterator<Item = $n> {
                (0..<$n>::BITS).map(|bit| (1 as $n) << bit).chain([0, <$n>::MIN, <$n>::MAX])
            }

            #[test]
            fn swap() {
                let (x, mut old) = (guarded(), 0);
                for new in numbers() {
                    assert_eq!(x.atomic.swap(new), old);
                    assert_eq!(x.atomic.load(), new);
                    old = new;
                }
                check(&x);
            }

            #[test]
            fn add() {
                let (x, mut sum): (_, $n) = (guarded(), 0);
                for delta in numbers() {
                    sum = sum.wrapping_add(delta);
                    assert_eq!(x.atomic.add(delta), sum, "the new value");
                    assert_eq!(x.atomic.load(), sum);
                }
                check(&x);
            }

            #[test]
            fn and() {
                let x = guarded();
                x.atomic.store(!0);
                let mut old: $n = !0;
                for mask in numbers() {
                    assert_eq!(x.atomic.and(!mask), old, "the old value");
                    old &= !mask;
                    assert_eq!(x.atomic.load(), old);
                }
                check(&x);
            }

            #[test]
            fn or() {
                let (x, mut old): (_, $n) = (guarded(), 0);
                for mask in numbers() {
                    assert_eq!(x.atomic.or(mask), old, "the old value");
                    old |= mask;
                    assert_eq!(x.atomic.load(), old);
                }
                check(&x);
            }

            #[test]
            fn compare_and_swap() {
                let x = guarded();
                for value in numbers() {
                    let next = value.wrapping_add(1);
                    x.atomic.store(value);
                    assert!(x.atomic.compare_and_swap(value, next));
                    assert!(!x.atomic.compare_and_swap(value, value.wrapping_add(2)));
                    assert_eq!(x.atomic.load(), next);
                }
                check(&x);
            }

            #[test]
            fn load_and_store() {
                let x = guarded();
                for value in numbers() {
                    x.atomic.store(value);
                    assert_eq!(x.atomic.load(), value);
                }
                check(&x);
                assert_eq!($Atomic::default().load(), 0);
                assert_eq!(format!("{:?}", $Atomic::from(7)), "7");
            }

            /// Go: `TestAutoAligned64`.
            #[test]
            fn auto_aligned() {
                #[repr(C)]
                struct Odd(u32, $Atomic);
                let x = Odd(1, $Atomic::new(2));
                assert_eq!(&raw const x.1 as usize % mem::size_of::<$n>(), 0);
                assert_eq!((x.0, x.1.load()), (1, 2));
            }
        }
    )+};
}

numbers! {
    int32: Int32 of i32;
    uint32: Uint32 of u32;
    int64: Int64 of i64;
    uint64: Uint64 of u64;
    uintptr: Uintptr of usize;
}

#[test]
fn bool() {
    let x = Bool::new(false);
    assert!(!x.swap(true) && x.load());
    assert!(!x.compare_and_swap(false, true) && x.compare_and_swap(true, false) && !x.load());
    x.store(true);
    assert_eq!(format!("{x:?} {:?}", Bool::default()), "true false");
}

/// Go: `TestSwapPointer`, `TestCompareAndSwapPointer`, `TestLoadPointer`, `TestStorePointer`, and of methods.
#[test]
fn pointer() {
    let p = Pointer::new();
    let same = |a: &Option<Arc<i32>>, b: &Option<Arc<i32>>| match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    // Two of the pointers are equal, but not the same.
    let all = [None, Some(Arc::new(1)), Some(Arc::new(1)), None, Some(Arc::new(2))];
    let mut old = None;
    for new in &all {
        assert!(same(&p.swap(new.clone()), &old));
        assert!(same(&p.load(), new));
        old = new.clone();
    }
    for value in &all {
        for other in &all {
            p.store(value.clone());
            let equal = same(value, other);
            let new = Some(Arc::new(3));
            assert_eq!(p.compare_and_swap(other.as_ref(), new.clone()), equal);
            assert!(same(&p.load(), if equal { &new } else { value }));
        }
    }
    // A swap that puts the current pointer in again succeeds, too.
    p.store(all[1].clone());
    assert!(p.compare_and_swap(all[1].as_ref(), all[1].clone()));
    assert_eq!(format!("{p:?} {:?}", Pointer::<u32>::from(Arc::new(4))), "Some(1) Some(4)");
    drop((p, old));
    assert!(all.iter().flatten().all(|item| Arc::strong_count(item) == 1), "leaked");
}

// ---- many at once ---------------------------------------------------------------------------------------------------

const HAMMER: usize = if cfg!(debug_assertions) { 20_000 } else { 100_000 };

/// Go: `TestHammer32` and `TestHammer64`: the sum is the same, whatever operations make the sum.
macro_rules! hammer {
    ($($Atomic:ident of $n:ty),+) => {$({
        let x = Arc::new([const { $Atomic::new(0) }; 5]);
        let shared = x.clone();
        together::<K>(4, move |_| {
            let half = <$n>::BITS / 2;
            for turn in 0..HAMMER {
                shared[0].add(1);
                let mut old = shared[1].load();
                while !shared[1].compare_and_swap(old, old.wrapping_add(1)) {
                    old = shared[1].load();
                }
                // Go: `hammerSwap`: both halves must be the same; otherwise the value was torn.
                let new = turn as $n & !(!0 << (half - 1));
                let old = shared[2].swap(new | new << half);
                assert_eq!(old >> half & !(!0 << half), old & !(!0 << half), "torn");
                // Go: `hammerAnd` and `hammerOr`: set and clear every bit many times.
                shared[3].or((1 as $n) << (turn as u32 % <$n>::BITS));
                shared[4].and(!((1 as $n) << (turn as u32 % <$n>::BITS)));
                if turn % 1000 == 0 {
                    K::gosched();
                }
            }
        });
        assert_eq!([x[0].load(), x[1].load()], [4 * HAMMER as $n; 2]);
        assert_eq!((x[3].load(), x[4].load()), (!0, 0));
    })+};
}

fn hammer_32<K: Kind>() {
    hammer!(Int32 of i32, Uint32 of u32);
}

fn hammer_64<K: Kind>() {
    hammer!(Int64 of i64, Uint64 of u64, Uintptr of usize);
}

/// Go: `TestHammerStoreLoad`: a load never returns half of a value and half of another value.
macro_rules! hammer_store_load {
    ($($check:ident: $Atomic:ident of $n:ty;)+) => {$(
        fn $check<K: Kind>() {
            let x = $Atomic::new(0);
            together::<K>(8, move |_| {
                let half = <$n>::BITS / 2;
                for turn in 0..HAMMER {
                    let value = x.load();
                    assert_eq!(value >> half & !(!0 << half), value & !(!0 << half), "torn");
                    let new = turn as $n & !(!0 << (half - 1));
                    x.store(new | new << half);
                    if turn % 1000 == 0 {
                        K::gosched();
                    }
                }
            });
        }
    )+};
}

hammer_store_load! {
    hammer_store_load_int32: Int32 of i32;
    hammer_store_load_uint32: Uint32 of u32;
    hammer_store_load_int64: Int64 of i64;
    hammer_store_load_uint64: Uint64 of u64;
    hammer_store_load_uintptr: Uintptr of usize;
}

fn hammer_store_load_pointer<K: Kind>() {
    let x = Pointer::from(Arc::new((0, 0)));
    together::<K>(8, move |_| {
        for turn in 0..HAMMER / 2 {
            let value = x.load().expect("there is one");
            assert_eq!(value.0, value.1, "torn, or freed");
            x.store(Some(Arc::new((turn, turn))));
            if turn % 1000 == 0 {
                K::gosched();
            }
        }
    });
}

/// An atomic of any kind, for the litmus tests.
trait Number: Send + Sync + 'static {
    fn zero() -> Self;
    fn get(&self) -> usize;
    fn set(&self, value: usize);
}

macro_rules! number {
    ($($Atomic:ident),+) => {$(
        impl Number for $Atomic {
            fn zero() -> Self {
                Self::new(0)
            }

            fn get(&self) -> usize {
                self.load() as usize
            }

            fn set(&self, value: usize) {
                self.store(value as _);
            }
        }
    )+};
}

number!(Int32, Int64);

impl Number for Pointer<usize> {
    fn zero() -> Self {
        Arc::new(0).into()
    }

    fn get(&self) -> usize {
        *self.load().expect("there always is one")
    }

    fn set(&self, value: usize) {
        self.store(Some(Arc::new(value)));
    }
}

const LITMUS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };

/// Go: `TestStoreLoadSeqCst*`: a thread stores to its own atomic and then loads the other thread's. If a thread misses
/// the other's store, the other does not miss the thread's.
fn store_load_seq_cst<K: Kind, N: Number>() {
    /// An atomic in a cache line of its own, so that a store waits for its line while the load after the store does
    /// not.
    #[repr(align(128))]
    struct Apart<N>(N);
    let x = [Apart(N::zero()), Apart(N::zero())];
    // Use three acknowledgements in turn, so that no thread overwrites a value that the other thread still has to read.
    let ack = [const { [const { AtomicUsize::new(0) }; 3] }; 2];
    together::<K>(2, move |me| {
        let he = 1 - me;
        for i in 1..LITMUS {
            x[me].0.set(i);
            let mine = x[he].0.get();
            ack[me][i % 3].store(2 * i + usize::from(mine >= i), SeqCst);
            let mut polls = 0;
            let his = loop {
                let his = ack[he][i % 3].load(SeqCst);
                if his >= 2 * i {
                    break his;
                }
                polls += 1;
                if polls % 100 == 0 {
                    K::gosched();
                }
            };
            assert!(mine >= i || his % 2 == 1, "both missed the other's {i}");
        }
    });
}

fn store_load_seq_cst_32<K: Kind>() {
    store_load_seq_cst::<K, Int32>();
}

fn store_load_seq_cst_64<K: Kind>() {
    store_load_seq_cst::<K, Int64>();
}

fn store_load_seq_cst_pointer<K: Kind>() {
    store_load_seq_cst::<K, Pointer<usize>>();
}

/// Go: `TestStoreLoadRelAcq*`: a thread that sees the signal sees the data.
fn store_load_rel_acq<K: Kind, N: Number>() {
    let (signal, data) = (N::zero(), [const { AtomicUsize::new(0) }; 2]);
    together::<K>(2, move |me| {
        for i in (me + 1..LITMUS / 4).step_by(2) {
            let mut polls = 0;
            while signal.get() != i - 1 {
                polls += 1;
                if polls % 100 == 0 {
                    K::gosched();
                }
            }
            for data in &data {
                assert_eq!(data.load(std::sync::atomic::Ordering::Relaxed), i - 1);
                data.store(i, std::sync::atomic::Ordering::Relaxed);
            }
            signal.set(i);
        }
    });
}

fn store_load_rel_acq_32<K: Kind>() {
    store_load_rel_acq::<K, Int32>();
}

fn store_load_rel_acq_64<K: Kind>() {
    store_load_rel_acq::<K, Int64>();
}

fn store_load_rel_acq_pointer<K: Kind>() {
    store_load_rel_acq::<K, Pointer<usize>>();
}

/// Not in Go: each pointer that is swapped out goes to a single thread, and is dropped.
fn pointers_are_swapped_one_by_one<K: Kind>() {
    const EACH: usize = 5_000;
    let (p, sum) = (Arc::new(Pointer::new()), Arc::new(AtomicUsize::new(0)));
    let (shared, total) = (p.clone(), sum.clone());
    together::<K>(4, move |me| {
        for n in 0..EACH {
            let new = Arc::new(me * EACH + n);
            let old = if n % 2 == 0 {
                shared.swap(Some(new))
            } else {
                loop {
                    let old = shared.load();
                    if shared.compare_and_swap(old.as_ref(), Some(new.clone())) {
                        break old;
                    }
                }
            };
            total.fetch_add(old.map_or(0, |old| *old), SeqCst);
            if n % 500 == 0 {
                K::gosched();
            }
        }
    });
    let all = 4 * EACH;
    assert_eq!(sum.load(SeqCst) + *p.load().unwrap(), all * (all - 1) / 2);
}

// ---- value_test.go --------------------------------------------------------------------------------------------------

/// Go: `TestValue` and `TestValueLarge`.
#[test]
fn value() {
    let v = Value::new();
    assert_eq!(v.load(), None);
    v.store(42);
    assert_eq!(v.load(), Some(42));
    v.store(84);
    assert_eq!(v.load(), Some(84));
    let large = Value::new();
    for text in ["foo", "barbaz"] {
        large.store(text.to_owned());
        assert_eq!(large.load().as_deref(), Some(text));
        assert_eq!(large.load_with(|text| text.len()), Some(text.len()));
    }
    assert_eq!(format!("{large:?} {:?}", Value::from(3)), r#"Some("barbaz") Some(3)"#);
}

/// A value stays in its place while callers look at it, however many callers look, and whatever is stored meanwhile.
#[test]
fn value_looked_at() {
    const DEPTH: usize = 20;
    fn look(v: &Value<String>, depth: usize) {
        let looked = v.load_with(|text| {
            if depth < DEPTH {
                v.store((depth + 1).to_string());
                look(v, depth + 1);
            }
            assert_eq!(*text, depth.to_string());
        });
        assert!(looked.is_some());
    }
    let v = Value::from("0".to_owned());
    look(&v, 0);
    assert_eq!(v.load(), Some(DEPTH.to_string()));
}

/// Go: `TestValueConcurrent`.
fn value_concurrent<K: Kind>() {
    const TURNS: usize = if cfg!(debug_assertions) { 1_000 } else { 100_000 };
    fn among<K: Kind, T: Not<Output = T> + Add<Output = T> + Copy + PartialEq + Send + Sync + 'static>(some: [T; 4]) {
        let v = Value::new();
        together::<K>(8, move |me| {
            for turn in 0..TURNS {
                v.store(some[(turn * 7 + me) % some.len()]);
                assert!(some.contains(&v.load().expect("stored")), "never stored");
                if turn % 1000 == 0 {
                    K::gosched();
                }
            }
        });
    }
    among::<K, u16>([0, !0, 1 + (2 << 8), 3 + (4 << 8)]);
    among::<K, u32>([0, !0, 1 + (2 << 16), 3 + (4 << 16)]);
    among::<K, u64>([0, !0, 1 + (2 << 32), 3 + (4 << 32)]);
    among::<K, u128>([0, !0, 1 + (2 << 64), 3 + (4 << 64)]);
}

/// Go: `TestValue_Swap`, without the cases that do not compile here.
#[test]
fn value_swap() {
    let v = Value::new();
    assert_eq!(v.swap(true), None);
    assert_eq!(v.swap(false), Some(true));
    assert_eq!(v.load(), Some(false));
}

/// Go: `TestValueSwapConcurrent`.
fn value_swap_concurrent<K: Kind>() {
    const WORKERS: u64 = if cfg!(debug_assertions) { 20 } else { 1_000 };
    const EACH: u64 = 1_000;
    let (v, count) = (Arc::new(Value::new()), Arc::new(Uint64::new(0)));
    let shared = (v.clone(), count.clone());
    together::<K>(WORKERS as usize, move |worker| {
        let first = worker as u64 * EACH;
        let sum: u64 = (first..first + EACH).filter_map(|new| shared.0.swap(new)).sum();
        shared.1.add(sum);
    });
    let all = WORKERS * EACH;
    assert_eq!(count.load() + v.load().unwrap(), all * (all - 1) / 2);
}

/// Go: `TestValue_CompareAndSwap`, without the cases that do not compile here.
#[test]
fn value_compare_and_swap() {
    for (init, new, old, want) in [
        (None, true, Some(true), false),
        (None, true, None, true),
        (Some(true), true, Some(false), false),
        (Some(true), true, Some(true), true),
        (Some(true), true, None, false),
    ] {
        let v = Value::new();
        if let Some(init) = init {
            v.store(init);
        }
        assert_eq!(v.compare_and_swap(old.as_ref(), new), want, "{init:?} {old:?}");
        assert_eq!(v.load(), if want { Some(new) } else { init });
    }
    // Go's `heapA` and `heapB`: equal values at two places.
    let v = Value::from(vec![0]);
    assert!(v.compare_and_swap(Some(&vec![0]), vec![1]));
}

/// Go: `TestValueCompareAndSwapConcurrent`.
fn value_compare_and_swap_concurrent<K: Kind>() {
    let (workers, each) = if cfg!(debug_assertions) { (20, 20) } else { (100, 100) };
    let v = Arc::new(Value::from(0));
    let shared = v.clone();
    together::<K>(workers, move |worker| {
        let mut j = worker;
        while j < workers * each {
            if shared.compare_and_swap(Some(&j), j + 1) {
                j += workers;
            }
            K::gosched();
        }
    });
    assert_eq!(v.load(), Some(workers * each));
}
