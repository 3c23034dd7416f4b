//! Go's tests of its pool, over threads and over goroutines; and tests that Go does not have: guards, panics, ageing by
//! hand.
//!
//! Go's `TestNilPool` has no counterpart: there is no nil pool.
#![cfg(all(unix, not(sudog_loom)))]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::{mem, thread};

use sudog::sync::{NoNew, Pool, Pooled};
use support::Watchdog;
use support::kinds::{Kind, together};

support::over_threads_and_goroutines! {
    pool pool_new pool_gc pool_release pool_stress pool_chain
    nothing_is_lost_or_doubled_while_it_ages
}

/// Go: `TestPool`.
fn pool<K: Kind>() {
    let p = Pool::empty();
    assert_eq!(p.get(), None);
    p.put("a");
    p.put("b");
    assert_eq!([p.get(), p.get(), p.get()], [Some("a"), Some("b"), None]);
    // Put so many items that some spill out of the private slot.
    for _ in 0..100 {
        p.put("c");
    }
    p.age();
    assert_eq!(p.get(), Some("c"), "they survive one age");
    p.age();
    assert_eq!(p.get(), None, "and die in the second");
}

/// Go: `TestPoolNew`.
fn pool_new<K: Kind>() {
    let i = Cell::new(0);
    let p = Pool::new(|| i.replace(i.get() + 1) + 1);
    assert_eq!([p.get(), p.get()], [1, 2]);
    p.put(42);
    assert_eq!([p.get(), p.get()], [42, 3]);
}

/// An item that counts the living items.
struct Item(Arc<AtomicUsize>);

impl Item {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self(alive.clone())
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Go: `TestPoolGC`: the pool does not keep items that have been taken out.
fn pool_gc<K: Kind>() {
    test_pool(true);
}

/// Go: `TestPoolRelease`: the pool lets go of the items that it holds.
fn pool_release<K: Kind>() {
    test_pool(false);
}

fn test_pool(drain: bool) {
    const N: usize = 100;
    let alive = Arc::default();
    let p = Pool::empty();
    for _ in 0..3 {
        for _ in 0..N {
            p.put(Item::new(&alive));
        }
        if drain {
            for _ in 0..N {
                assert!(p.get().is_some());
            }
        } else {
            p.age();
            assert_eq!(alive.load(SeqCst), N);
            p.age();
        }
        assert_eq!(alive.load(SeqCst), 0);
    }
}

/// Go: `TestPoolStress`.
fn pool_stress<K: Kind>() {
    const TURNS: usize = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };
    let p = Pool::empty();
    together::<K>(10, move |_| {
        let mut item = None;
        for turn in 0..TURNS {
            p.put(item.take().unwrap_or(0));
            item = p.get();
            assert!(item.is_none_or(|item| item == 0));
            if turn % 1000 == 0 {
                K::gosched();
            }
        }
    });
}

/// Go: `TestPoolChain` and `TestPoolDequeue`: one caller puts items and gets some now and then, nine thieves steal;
/// each item is taken once. The test works on the pool itself, because there is no other deque.
fn pool_chain<K: Kind>() {
    const N: usize = if cfg!(debug_assertions) { 100_000 } else { (1 << 21) + 1000 };
    // Both kinds share these statics, because a static in a generic function exists once. So the two tests take turns.
    static HAVE: [AtomicU8; N] = [const { AtomicU8::new(0) }; N];
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = support::turn(&TURN);
    /// An item that counts as taken when dropped, no matter which thread drops it.
    struct Numbered(usize);
    impl Drop for Numbered {
        fn drop(&mut self) {
            HAVE[self.0].fetch_add(1, SeqCst);
        }
    }
    HAVE.iter().for_each(|have| have.store(0, SeqCst));
    let (p, over, own) = (Pool::empty(), AtomicBool::new(false), AtomicUsize::new(0));
    let shared = Arc::new((p, over, own));
    let world = shared.clone();
    together::<K>(10, move |worker| {
        let (p, over, own) = &*world;
        if worker == 0 {
            for n in 0..N {
                p.put(Numbered(n));
                if n % 10 == 0 {
                    own.fetch_add(usize::from(p.get().is_some()), SeqCst);
                }
                if n % 100 == 0 {
                    K::gosched();
                }
            }
            over.store(true, SeqCst);
        } else {
            while !over.load(SeqCst) {
                if p.get().is_none() {
                    K::gosched();
                }
            }
        }
    });
    assert!(shared.2.load(SeqCst) > 0, "it never got one of its own");
    K::until(|| Arc::strong_count(&shared) == 1);
    drop(Arc::try_unwrap(shared).unwrap_or_else(|_| panic!("all are done")));
    assert!(HAVE.iter().all(|have| have.load(SeqCst) == 1));
}

// ---- not in Go ------------------------------------------------------------------------------------------------------

fn nothing_is_lost_or_doubled_while_it_ages<K: Kind>() {
    let alive = Arc::<AtomicUsize>::default();
    let p = Arc::new(Pool::empty());
    let (pool, items) = (p.clone(), alive.clone());
    together::<K>(6, move |worker| {
        let mut mine = Vec::new();
        for n in 0..5_000 {
            match (worker, n % 7) {
                (0, 0) => pool.age(),
                (_, 0..3) => mine.push(pool.get().unwrap_or_else(|| (Item::new(&items), Cell::new(0)))),
                _ => mine.pop().into_iter().for_each(|item| pool.put(item)),
            }
            for (_, uses) in &mine {
                uses.set(uses.get() + 1); // no other thread has this item
            }
            if n % 100 == 0 {
                K::gosched();
            }
        }
    });
    K::until(|| Arc::strong_count(&p) == 1);
    drop(p);
    assert_eq!(alive.load(SeqCst), 0);
}

/// Checks that a thread without items of its own finds the items that another thread has put, except one item, which
/// remains with that other thread.
#[test]
fn others_steal() {
    let p = Pool::empty();
    thread::scope(|s| {
        s.spawn(|| (0..10).for_each(|n| p.put(n))).join().unwrap();
        // The second of these threads may share the shard with the first.
        let mut stolen: Vec<i32> = s.spawn(|| std::iter::from_fn(|| p.get()).collect()).join().unwrap();
        stolen.sort_unstable();
        assert!(stolen.len() >= 9, "{stolen:?}");
        p.age();
        stolen = s.spawn(|| std::iter::from_fn(|| p.get()).collect()).join().unwrap();
        assert!(stolen.len() <= 1, "{stolen:?}");
    });
}

#[test]
fn guards() {
    static POOL: Pool<Vec<u8>> = Pool::new(Vec::new);
    POOL.take().extend([1, 2, 3]);
    let guard: Pooled<Vec<u8>> = POOL.take();
    assert_eq!(format!("{guard:?}"), "Pooled([1, 2, 3])");
    assert_eq!(Pooled::into_inner(guard), [1, 2, 3]);
    assert_eq!(POOL.get(), [0; 0]);
    _ = catch_unwind(|| {
        let mut item = POOL.take();
        item.push(4);
        panic_any("while it is out");
    });
    assert_eq!(POOL.get(), [4]);
    mem::forget(POOL.take());
    assert_eq!(POOL.get(), [0; 0]);
}

#[test]
fn a_new_that_panics_leaves_the_pool_as_it_was() {
    let fails = Cell::new(true);
    let p = Pool::new(|| if fails.get() { panic_any("no") } else { 1 });
    assert!(catch_unwind(AssertUnwindSafe(|| p.get())).is_err());
    p.put(2);
    assert_eq!(p.get(), 2);
    fails.set(false);
    assert_eq!(p.get(), 1);
}

/// Checks destructors that use the pool that drops them, and that panic.
#[test]
fn destructors_may_do_anything() {
    static POOL: Pool<Odd, NoNew> = Pool::empty();
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Odd(u32);
    impl Drop for Odd {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
            if self.0 > 0 {
                POOL.put(Odd(self.0 - 1));
                mem::forget(POOL.get());
                POOL.age();
            }
            if self.0 == 2 && !thread::panicking() {
                panic_any("a destructor's");
            }
        }
    }
    let _watchdog = Watchdog::new();
    for n in 0..50 {
        POOL.put(Odd(n % 4));
    }
    let mut panics = 0;
    for _ in 0..4 {
        panics += usize::from(catch_unwind(|| POOL.age()).is_err());
    }
    assert!(panics > 0 && DROPS.load(SeqCst) >= 40, "{panics} {DROPS:?}");
    while let Some(item) = POOL.get() {
        mem::forget(item);
    }
    POOL.put(Odd(0));
    assert!(POOL.get().is_some());
}

#[test]
fn it_is_shared_if_items_can_be_sent() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&Pool::<Cell<u32>>::default());
    assert_eq!(format!("{:?}", Pool::<u32>::default()), "Pool { .. }");
}
