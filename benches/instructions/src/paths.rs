//! The paths, each with the code around the path that the path needs.

use std::future::poll_fn;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use sudog::chan::{Chan, select};
use sudog::low_level::policy::Go;
use sudog::low_level::sema::{Order, Wake};
use sudog::low_level::{ConstSemaphore, RuntimeSema, Semaphore};
use sudog::runtime::gosched;
use sudog::sync::atomic::Value;
use sudog::sync::{
    Cond, GoMutex, LockAsync, Map, Mutex, Once, Pool, RwMutex, RwMutexWith, ShardedRwMutex, WaitGroup, once_value,
};
use sudog::{block_on, go, go_async, run, spawn};

use crate::tracer::{begin, end, mark};

/// The number of rounds before the first counted round: lists, caches and stacks for reuse have filled by then.
pub const WARM_UP: u32 = 20;
/// The number of rounds that are counted.
pub const COUNTED: u32 = 40;
/// The number of all rounds. The last round ends the loop, and the compiler may have compiled that round apart from the
/// others.
const ALL: u32 = WARM_UP + COUNTED + 1;

/// Runs `round` on this thread, as often as the tracer needs for counting.
fn rounds(mut round: impl FnMut()) {
    for n in 0..=ALL {
        if n == WARM_UP {
            begin();
        }
        mark();
        round();
    }
    end();
}

/// Runs `round` as [`rounds`] does, on a goroutine. The futures of `round` are ready at once.
fn rounds_of_futures(mut round: impl AsyncFnMut()) {
    block_on(async {
        for n in 0..=ALL {
            if n == WARM_UP {
                begin();
            }
            mark();
            round().await;
        }
        end();
    });
}

/// The path without instructions: the count of [`rounds`] itself, which is taken off all other counts.
pub const NOTHING: &str = "nothing";

/// Name and code of each path. Names are the keys of `counts.tsv`.
pub const PATHS: [(&str, fn()); 37] = [
    (NOTHING, || rounds(|| ())),
    ("GoMutex, default policy: lock, unlock", || {
        let mutex = GoMutex::new();
        rounds(|| {
            black_box(&mutex).lock();
            black_box(&mutex).unlock();
        });
    }),
    ("GoMutex, policy::Go: lock, unlock", || {
        let mutex = GoMutex::<RuntimeSema, Go>::const_new();
        rounds(|| {
            black_box(&mutex).lock();
            black_box(&mutex).unlock();
        });
    }),
    ("GoMutex, locked: try_lock", || {
        let mutex = GoMutex::new();
        mutex.lock();
        rounds(|| {
            black_box(black_box(&mutex).try_lock());
        });
    }),
    ("GoMutex, locked: queue and give up at once", || {
        let mutex = GoMutex::new();
        mutex.lock();
        rounds(|| {
            black_box(black_box(&mutex).try_lock_until(Instant::now()));
        });
    }),
    ("Mutex<u64>: lock, count, drop the guard", || {
        let mutex = Mutex::new(0_u64);
        rounds(|| *black_box(&mutex).lock() += 1);
    }),
    ("RuntimeSema: acquire, release", || {
        let semaphore = RuntimeSema::new(1);
        rounds(|| {
            black_box(&semaphore).acquire(Order::Fifo);
            black_box(&semaphore).release(Wake::Normal);
        });
    }),
    ("RuntimeSema, empty: queue and give up at once", || {
        let semaphore = RuntimeSema::INIT;
        rounds(|| {
            black_box(black_box(&semaphore).acquire_until(Order::Fifo, Instant::now()));
        });
    }),
    ("RwMutex<u64>: read, drop the guard", || {
        let lock = RwMutex::new(0_u64);
        rounds(|| {
            black_box(*black_box(&lock).read());
        });
    }),
    ("RwMutex<u64>: write, drop the guard", || {
        let lock = RwMutex::new(0_u64);
        rounds(|| *black_box(&lock).write() += 1);
    }),
    ("sharded RwMutex<u64>: read, drop the guard", || {
        let lock = RwMutexWith::<ShardedRwMutex, u64>::new(0);
        // Biases the mutex: see `sudog_sync::rw_mutex`.
        (0..100_000).for_each(|_| {
            black_box(*black_box(&lock).read());
        });
        rounds(|| {
            black_box(*black_box(&lock).read());
        });
    }),
    ("sharded RwMutex<u64>, just written: read, drop the guard", || {
        let lock = RwMutexWith::<ShardedRwMutex, u64>::new(0);
        rounds(|| {
            black_box(*black_box(&lock).read());
        });
    }),
    ("WaitGroup: add, done", || {
        let group = WaitGroup::new();
        rounds(|| {
            black_box(&group).add(1);
            black_box(&group).done();
        });
    }),
    ("WaitGroup of none: wait", || {
        let group = WaitGroup::new();
        rounds(|| black_box(&group).wait());
    }),
    ("Cond without waiters: signal", || {
        let cond = Cond::new();
        rounds(|| black_box(&cond).signal());
    }),
    ("Once, done: do_", || {
        let once = Once::new();
        rounds(|| black_box(&once).do_(|| ()));
    }),
    ("once_value, there: the value", || {
        let value = once_value(|| 7_u64);
        rounds(|| {
            black_box(black_box(&value)());
        });
    }),
    ("Pool: get, put", || {
        let pool = Pool::new(|| 7_u64);
        rounds(|| {
            let item = black_box(&pool).get();
            black_box(&pool).put(item);
        });
    }),
    ("Map<u64, u64>: load of a key that is there", || {
        let map = Map::with_hasher(BuildHasherDefault::<DefaultHasher>::default()); // random hashers: varied depth
        (0..100_u64).for_each(|key| map.store(key, key));
        // Biases the map: see `sudog_sync::map::reclaim`.
        (0..100_000).for_each(|_| {
            black_box(black_box(&map).load(black_box(&7)));
        });
        rounds(|| {
            black_box(black_box(&map).load(black_box(&7)));
        });
    }),
    ("Map<u64, u64>, just made: load of a key that is there", || {
        let map = Map::with_hasher(BuildHasherDefault::<DefaultHasher>::default());
        (0..100_u64).for_each(|key| map.store(key, key));
        rounds(|| {
            black_box(black_box(&map).load(black_box(&7)));
        });
    }),
    ("Value<u64>: load", || {
        let value = Value::from(7_u64);
        // Biases the value: see `sudog_sync::hazard`.
        (0..100_000).for_each(|_| {
            black_box(black_box(&value).load());
        });
        rounds(|| {
            black_box(black_box(&value).load());
        });
    }),
    ("Value<u64>, just stored: load", || {
        let value = Value::from(7_u64);
        rounds(|| {
            black_box(black_box(&value).load());
        });
    }),
    ("two goroutines: gosched each", || {
        run(|| {
            go(|| (0..ALL + 2).for_each(|_| gosched()));
            rounds(gosched);
        });
    }),
    // The release finds a waiter in each round, whatever has happened before. With a semaphore for each direction, a tick of
    // the watcher before the first round would decide which of the two goroutines waits, in all rounds.
    ("two goroutines: a release with handoff, and the wait for the next", || {
        let turn = Arc::new(RuntimeSema::new(0));
        run(move || {
            let theirs = turn.clone();
            go(move || (0..=ALL).for_each(|_| theirs.acquire(Order::Fifo)));
            gosched(); // the other goroutine waits
            rounds(|| turn.release(Wake::Handoff));
        });
    }),
    ("go, and gosched until it has ended", || {
        run(|| {
            rounds(|| {
                go(|| ());
                gosched();
            });
        });
    }),
    ("spawn and join, twice", || {
        run(|| rounds(|| (0..2).for_each(|_| spawn(|| ()).join().expect("it does not panic"))));
    }),
    ("Chan, buffered: send, receive", || {
        let ch = Chan::new(1);
        rounds(|| {
            black_box(&ch).send(7);
            black_box(black_box(&ch).recv());
        });
    }),
    ("Chan, buffered: send_async, recv_async", || {
        run(|| {
            let ch = Chan::new(1);
            rounds_of_futures(async || {
                black_box(&ch).send_async(7).await;
                black_box(black_box(&ch).recv_async().await);
            });
        });
    }),
    ("Mutex<u64>: lock_async, count, drop the guard", || {
        run(|| {
            let mutex = Mutex::new(0_u64);
            rounds_of_futures(async || *black_box(&mutex).lock_async().await += 1);
        });
    }),
    ("go_async, and gosched until it has ended", || {
        run(|| {
            rounds(|| {
                go_async(async {});
                gosched();
            });
        });
    }),
    ("a task, polled again, and gosched", || {
        run(|| {
            let mut polls = 0;
            go_async(poll_fn(move |cx| {
                polls += 1;
                cx.waker().wake_by_ref();
                if polls > ALL + 2 { Poll::Ready(()) } else { Poll::Pending }
            }));
            rounds(gosched);
        });
    }),
    ("Chan, two goroutines: two rendezvous", || {
        run(|| {
            let ch = Chan::new(0);
            let sender = ch.clone();
            go(move || (0..=2 * ALL + 1).for_each(|round| sender.send(round)));
            rounds(|| {
                black_box((ch.recv(), ch.recv()));
            });
        });
    }),
    ("select with one ready case of two, and the send", || {
        let (a, b) = (Chan::<u64>::new(1), Chan::<u64>::new(1));
        rounds(|| {
            a.send(7);
            select! { recv(a) -> v => { black_box(v); }, recv(b) -> v => { black_box(v); } }
        });
    }),
    ("select with none ready of two, and a default", || {
        let (a, b) = (Chan::<u64>::new(1), Chan::<u64>::new(1));
        rounds(|| {
            select! { recv(a) -> v => { black_box(v); }, recv(b) -> v => { black_box(v); }, default => {} }
        });
    }),
    ("select with one case, which is not ready, and a default", || {
        let ch = Chan::<u64>::new(1);
        rounds(|| {
            select! { recv(ch) -> v => { black_box(v); }, default => {} }
        });
    }),
    ("Weighted: try to acquire, release", || {
        let semaphore = sudog::x::Weighted::new(4);
        rounds(|| {
            black_box(semaphore.try_acquire(2));
            semaphore.release(2);
        });
    }),
    ("context, live: is it over", || {
        let (ctx, _cancel) = sudog::context::with_cancel(&sudog::context::background());
        rounds(|| {
            black_box(black_box(&ctx).err().is_some());
        });
    }),
];
