//! Programs to explore: each runs a few threads or goroutines, and checks a property of the library.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sudog_csp::{ActiveSet, Failed, Reclaimed, make_channel, make_ends, spawn_fibre, spawn_fibre_on};
use sudog_locks::capacitor::{Bounded, Capacitor, Sliding};
use sudog_locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, SpinThenYield, TicketLock, Tts};
use sudog_locks::waiting_array::{Benaphore, MixedHash, SpinThenPark};
use sudog_locks::waiting_array::{Ticket, TicketSema, ToldWait, Twa, TwaChain, TwaChannel, TwaLocation};
use sudog_runtime::chan::{Chan, channel as channel_of, select, select_async};
use sudog_runtime::goroutine::{Builder, OnPanic, Placement, block_on, go, goexit, gosched, run, sleep, spawn};
use sudog_runtime::goroutine_local;
use sudog_runtime::shim::system::atomic::AtomicU32;
use sudog_runtime::shim::{now, system::thread};
use sudog_runtime::{G, ParkResult};
use sudog_sync::mutex::{policy, stages};
use sudog_sync::semaphore::RuntimeSema;
use sudog_sync::{
    AsyncSemaphore, Cond, GoMutex, Mutex, Once, Order, Pool, RawLock, RwMutex, Semaphore, WaitGroup, Wake, context,
};

use super::Program;
use crate::targets::models;

macro_rules! programs {
    ($($name:literal: $body:expr,)*) => {
        pub(super) fn programs() -> Vec<Program> {
            vec![$(Program { name: $name.into(), body: Box::new($body) },)*]
        }
    };
}

programs! {
    "mutex-sudog": lock::<GoMutex>,
    "mutex-sudog/go-1.14": lock::<GoMutex<RuntimeSema, policy::Go>>,
    "mutex-sudog/go-1.9": lock::<GoMutex<RuntimeSema, policy::Go1_9>>,
    "mutex-sudog/go-1.8": lock::<GoMutex<RuntimeSema, policy::Go1_8>>,
    "mutex-sudog/fifo": lock::<GoMutex<RuntimeSema, policy::Fifo>>,
    "mutex-stage-4": lock::<stages::V4<RuntimeSema>>,
    "mutex-stage-7": lock::<stages::V7<RuntimeSema>>,
    "mutex-over-twa": lock::<GoMutex<Twa>>,
    "mutex-goroutines": mutex_on_goroutines,
    "tts": lock::<Tts>,
    "ticket-lock": lock::<TicketLock>,
    "ticket-lock-yield": lock::<TicketLock<SpinThenYield>>,
    "mcs": lock::<Mcs>,
    "clh": lock::<Clh>,
    "lifo": lock::<Lifo>,
    "reciprocating": lock::<Reciprocating>,
    "model-tas-backoff": lock::<models::TasBackoff>,
    "model-anderson": lock::<models::Anderson>,
    "model-cna": lock::<models::Cna>,
    "model-twa-lock": lock::<models::TwaLock>,
    "model-fissile": lock::<models::Fissile>,
    "model-hapax": lock::<models::Hapax>,
    "model-bar-david": lock::<models::BarDavid<Lifo>>,
    "model-bar-david-bound": bar_david_bound,
    "model-std": lock::<models::StdMutex>,
    "model-parking_lot": lock::<models::ParkingLot>,
    "capacitor-mcs": lock::<Capacitor<Mcs>>,
    "sliding-window-mcs": lock::<Sliding<Mcs>>,
    "sema-runtime": semaphore::<RuntimeSema>,
    "sema-benaphore": semaphore::<Benaphore>,
    "sema-bounded": semaphore::<Bounded<RuntimeSema>>,
    "sema-ticket": semaphore::<Ticket>,
    "sema-twa": semaphore::<Twa>,
    "sema-twa-chain": semaphore::<TwaChain>,
    "sema-twa-chain-systolic": semaphore::<TwaChain<SpinThenPark, 0, MixedHash<1>, true>>,
    "sema-twa-chain-told": semaphore::<TicketSema<ToldWait<SpinThenPark, MixedHash<1>>>>,
    "sema-twa-chain-delegated": semaphore::<TicketSema<ToldWait<SpinThenPark, MixedHash<1>, true>>>,
    "sema-twa-channel": semaphore::<TwaChannel>,
    "sema-twa-location": semaphore::<TwaLocation>,
    "rwmutex": rw_mutex,
    "cond": cond,
    "cond-deadline": cond_deadline,
    "wait-group": wait_group,
    "once": once,
    "pool": pool,
    "context": context_ends,
    "chan-buffered": || channel(2),
    "chan-unbuffered": || channel(0),
    "chan-dropped-receive": dropped_receive,
    "chan-deadlines": channel_deadlines,
    "chan-close": close,
    "chan-receiver-leaves": receiver_leaves,
    "chan-select": select_two,
    "chan-select-future": select_beside_future,
    "csp-squares": csp_squares,
    "csp-reclaimed": csp_reclaimed,
    "csp-deadlines": csp_deadlines,
    "csp-dropped-read": csp_dropped_read,
    "csp-crossing": csp_crossing,
    "goroutines": goroutines,
    "goroutines-channels": goroutines_channels,
    "goroutines-sleep": goroutines_sleep,
    "goroutines-deadlines": goroutines_deadlines,
    "goroutines-commits": goroutines_commits,
    "goroutines-locals": goroutines_locals,
}

/// Runs `body` on so many threads, one of which is the caller's.
fn on_threads(n: usize, body: impl Fn(usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let spawn = |me| {
        let body = body.clone();
        thread::spawn(move || body(me))
    };
    let others: Vec<_> = (1..n).map(spawn).collect();
    body(0);
    others.into_iter().for_each(|other| other.join().expect("no thread panics"));
}

/// A place that is visited by one thread at a time, and checks this.
#[derive(Default)]
struct Alone {
    inside: AtomicU32,
    visits: AtomicU32,
}

impl Alone {
    fn visit(&self) {
        assert_eq!(self.inside.swap(1, Relaxed), 0, "two are inside");
        self.visits.store(self.visits.load(Relaxed) + 1, Relaxed);
        self.inside.store(0, Relaxed);
    }
}

/// Checks mutual exclusion, and that a lock that fails at its deadline lets the other threads go on.
fn lock<L: RawLock + 'static>() {
    let shared = Arc::new((L::new(), Alone::default(), AtomicU32::new(0)));
    let theirs = shared.clone();
    on_threads(3, move |me| {
        let (lock, alone, failed) = &*theirs;
        for round in 0..3 {
            let guard = match (me + round) % 3 {
                0 if L::DEADLINES => lock.try_lock_until(now() + Duration::from_micros(1)),
                1 => lock.try_lock(),
                _ => Some(lock.lock()),
            };
            match guard {
                None => _ = failed.fetch_add(1, Relaxed),
                Some(guard) => {
                    alone.visit();
                    // SAFETY: `guard` came from an acquisition of `lock` above, by this thread.
                    unsafe { lock.unlock(guard) };
                }
            }
        }
    });
    let (lock, alone, failed) = &*shared;
    assert_eq!(alone.visits.load(Relaxed) + failed.load(Relaxed), 9, "a visit is lost");
    let guard = lock.try_lock();
    // SAFETY: the guard came from `try_lock` of `lock` above, by this thread.
    unsafe { lock.unlock(guard.expect("all have unlocked")) };
}

/// Checks that others overtake a contender at most n (n - 1) times after the contender has announced itself, with n
/// contenders and whatever the inner lock does.
fn bar_david_bound() {
    const N: u32 = 3;
    let shared = Arc::new((models::BarDavid::<Lifo>::new(), Alone::default()));
    on_threads(N as usize, move |_| {
        let (lock, alone) = &*shared;
        for _ in 0..8 {
            let me = lock.announce();
            let before = alone.visits.load(Relaxed);
            let guard = lock.lock_announced(me);
            let overtook = alone.visits.load(Relaxed) - before;
            assert!(overtook <= N * (N - 1), "others overtook a contender {overtook} times");
            alone.visit();
            // SAFETY: `guard` came from `lock_announced` of `lock` above, by this thread.
            unsafe { lock.unlock(guard) };
        }
    });
}

/// Checks that permits are conserved: two threads may be inside.
fn semaphore<S: Semaphore + 'static>() {
    let shared = Arc::new((S::new(2), AtomicU32::new(0)));
    let theirs = shared.clone();
    on_threads(4, move |me| {
        let (semaphore, inside) = &*theirs;
        for round in 0..2 {
            let order = if me == 3 { Order::Lifo } else { Order::Fifo };
            let got = if me == 1 && round == 0 {
                semaphore.acquire_until(order, now() + Duration::from_micros(1))
            } else {
                semaphore.acquire(order);
                true
            };
            if got {
                assert!(inside.fetch_add(1, Relaxed) < 2, "three are inside");
                inside.fetch_sub(1, Relaxed);
                semaphore.release(if me == 2 { Wake::Handoff } else { Wake::Normal });
            }
        }
    });
    assert!((0..2).all(|_| shared.0.try_acquire()) && !shared.0.try_acquire(), "permits are conserved");
}

fn rw_mutex() {
    let shared = Arc::new((RwMutex::new(0_u32), Alone::default(), AtomicU32::new(0)));
    let theirs = shared.clone();
    on_threads(4, move |me| {
        let (lock, alone, inside) = &*theirs;
        for round in 0..2 {
            if me < 2 {
                let mut value = lock.write();
                assert_eq!(inside.load(Relaxed), 0, "a reader is beside a writer");
                alone.visit();
                *value += 1;
            } else {
                let Some(value) = (if round == 0 { Some(lock.read()) } else { lock.try_read() }) else { continue };
                inside.fetch_add(1, Relaxed);
                assert_eq!(alone.inside.load(Relaxed), 0, "a writer is beside a reader");
                inside.fetch_sub(1, Relaxed);
                drop(value);
            }
        }
    });
    assert_eq!(*shared.0.read(), 4);
}

/// Checks a queue of two places, made of a mutex and two condition variables.
fn cond() {
    type Queue = (Mutex<VecDeque<u32>>, Cond, Cond);
    let queue: Arc<Queue> = Arc::new((Mutex::new(VecDeque::new()), Cond::new(), Cond::new()));
    on_threads(4, move |me| {
        let (places, not_full, not_empty) = &*queue;
        for value in 0..3 {
            let mut guard = places.lock();
            if me < 2 {
                while guard.len() == 2 {
                    not_full.wait(&mut guard);
                }
                guard.push_back(value);
                drop(guard);
                not_empty.signal();
            } else {
                while guard.is_empty() {
                    not_empty.wait(&mut guard);
                }
                guard.pop_front();
                drop(guard);
                not_full.broadcast();
            }
        }
    });
}

/// Checks that a signal is not lost to a waiter that gives up: another waiter then has the signal.
fn cond_deadline() {
    let shared = Arc::new((Mutex::new(0_u32), Cond::new()));
    on_threads(3, move |me| {
        let (permits, cond) = &*shared;
        let mut guard = permits.lock();
        match me {
            0 => {
                *guard = 1;
                drop(guard);
                cond.signal();
            }
            1 => {
                let deadline = now() + Duration::from_micros(1);
                if *guard == 0 && cond.wait_limited(&mut guard, deadline).is_ok() {
                    drop(guard);
                    cond.signal(); // this waiter had the signal, and passes the signal on
                }
            }
            _ => {
                while *guard == 0 {
                    cond.wait(&mut guard);
                }
            }
        }
    });
}

fn wait_group() {
    let shared = Arc::new((WaitGroup::new(), AtomicU32::new(0)));
    shared.0.add(2);
    on_threads(4, move |me| {
        let (group, done) = &*shared;
        if me < 2 {
            done.fetch_add(1, Relaxed);
            group.done();
        } else {
            group.wait();
            assert_eq!(done.load(Relaxed), 2, "a waiter is early");
        }
    });
}

fn once() {
    let shared = Arc::new((Once::new(), AtomicU32::new(0)));
    on_threads(3, move |_| {
        let (once, ran) = &*shared;
        once.do_(|| ran.store(ran.load(Relaxed) + 1, Relaxed));
        assert_eq!(ran.load(Relaxed), 1, "it has run once when a call returns");
    });
}

fn pool() {
    let shared = Arc::new((Pool::new(|| Arc::new(AtomicU32::new(0))), ()));
    on_threads(3, move |_| {
        for _ in 0..3 {
            let item = shared.0.get();
            assert_eq!(item.swap(1, Relaxed), 0, "two have one item");
            item.store(0, Relaxed);
            shared.0.put(item);
        }
    });
}

fn context_ends() {
    let group = Arc::new(WaitGroup::new());
    group.add(1);
    let (ctx, cancel) = context::with_cancel(&context::background());
    let theirs = group.clone();
    let waiter = thread::spawn(move || theirs.wait_limited(&ctx).is_err());
    let canceller = thread::spawn(move || cancel.cancel());
    canceller.join().expect("it does not panic");
    assert!(waiter.join().expect("it does not panic"), "the wait ends with its context");
    group.done();
    group.wait();
}

/// Checks that each value is received once, in the order of its sender.
fn channel(capacity: usize) {
    let ch = Chan::new(capacity);
    let sums = Arc::new(AtomicU32::new(0));
    let theirs = sums.clone();
    on_threads(4, move |me| {
        if me < 2 {
            (1..=3).for_each(|value| ch.send(10_u32.pow(me as u32 * 2) * value));
        } else {
            let mut last = [0; 2];
            for _ in 0..3 {
                let value = ch.recv().expect("it is not closed");
                let sender = usize::from(value >= 100);
                assert!(value > last[sender], "the values of one sender are in order");
                last[sender] = value;
                theirs.fetch_add(value, Relaxed);
            }
        }
    });
    assert_eq!(sums.load(Relaxed), 606, "each value is received once");
}

/// Checks that a receive that is dropped after it has been given a value gives that value back.
fn dropped_receive() {
    let ch = Chan::new(0);
    let theirs = ch.clone();
    let sender = thread::spawn(move || (1..=2_u32).for_each(|value| theirs.send(value)));
    let mut context = Context::from_waker(Waker::noop());
    let mut receive = Box::pin(ch.recv_async());
    let mut values = Vec::new();
    if let Poll::Ready(value) = receive.as_mut().poll(&mut context) {
        values.extend(value);
    }
    drop(receive);
    while values.len() < 2 {
        values.extend(ch.recv());
    }
    assert_eq!(values, [1, 2]);
    sender.join().expect("it does not panic");
}

/// Checks that a value that was not sent by its deadline comes back, and that a value that was sent is received.
fn channel_deadlines() {
    let ch = Chan::new(0);
    let sent = Arc::new(AtomicU32::new(0));
    let theirs = (ch.clone(), sent.clone());
    let sender = thread::spawn(move || {
        let (ch, sent) = theirs;
        for value in 0..3_u32 {
            if ch.send_limited(value, now() + Duration::from_micros(1)).is_ok() {
                sent.fetch_add(1, Relaxed);
            }
        }
        ch.close();
    });
    let mut received = 0;
    loop {
        match ch.recv_limited(now() + Duration::from_micros(1)) {
            Ok(Some(_)) => received += 1,
            Ok(None) => break,
            Err(_) => {}
        }
    }
    sender.join().expect("it does not panic");
    assert_eq!(received, sent.load(Relaxed), "each value that was sent is received");
}

fn close() {
    let ch = Chan::<u32>::new(1);
    let received = Arc::new(AtomicU32::new(0));
    let theirs = received.clone();
    on_threads(3, move |me| {
        if me == 0 {
            ch.send(1);
            ch.send(2);
            ch.close();
        } else {
            while ch.recv().is_some() {
                theirs.fetch_add(1, Relaxed);
            }
        }
    });
    assert_eq!(received.load(Relaxed), 2, "what was sent before the close is received");
}

/// Checks a receiver that leaves, and so ends the sends that wait: each value has been received, or comes back.
fn receiver_leaves() {
    let (tx, rx) = channel_of::<u32>(0);
    let rx = Mutex::new(Some(rx));
    let sent = Arc::new(AtomicU32::new(0));
    let theirs = sent.clone();
    on_threads(3, move |me| {
        if me == 0 {
            let rx = rx.lock().take().expect("it is taken once");
            theirs.fetch_sub(rx.recv().expect("a sender is left"), Relaxed);
        } else if tx.send(1).is_ok() {
            theirs.fetch_add(1, Relaxed);
        }
    });
    assert_eq!(sent.load(Relaxed), 0, "what was sent has been received");
}

/// Checks a task that waits for a channel and a permit, and takes one of the two: the other stays available.
fn select_beside_future() {
    let (ch, permits) = (Chan::<u32>::new(0), Arc::new(RuntimeSema::new(0)));
    let (to, theirs) = (ch.clone(), permits.clone());
    let sender = thread::spawn(move || to.send(1));
    let releaser = thread::spawn(move || theirs.release(Wake::Normal));
    let received = block_on(async {
        select_async! {
            recv(ch) -> value => value == Some(1),
            future(permits.acquire_async(Order::Fifo)) => false,
        }
    });
    if received {
        permits.acquire(Order::Fifo);
    } else {
        assert_eq!(ch.recv(), Some(1));
    }
    sender.join().expect("it does not panic");
    releaser.join().expect("it does not panic");
}

fn select_two() {
    let (a, b) = (Chan::<u32>::new(0), Chan::<u32>::new(1));
    on_threads(3, move |me| match me {
        0 => (0..3).for_each(|value| a.send(value)),
        1 => (0..3).for_each(|value| b.send(value)),
        _ => {
            let mut next = [0, 0];
            for _ in 0..6 {
                let (from, value) = select! { recv(a) -> v => (0, v), recv(b) -> v => (1, v) };
                assert_eq!(value, Some(next[from]), "the values of one channel are in order");
                next[from] += 1;
            }
        }
    });
}

/// Checks a pipeline whose fibres are on several workers, one of which is a task.
fn csp_squares() {
    let squares = sudog_csp::run(|| {
        let [mut numbers, mut input] = make_channel::<u32, 2>();
        let [mut output, mut results] = make_channel::<u32, 2>();
        spawn_fibre(move || (0..4).for_each(|n| numbers.write(n).expect("it is read")));
        drop(spawn_fibre_on(Placement::Any, move || {
            block_on(async {
                while let Ok(n) = input.read_async().await {
                    output.write_async(n * n).await.expect("it is read");
                }
            });
        }));
        let mut squares = Vec::new();
        while let Ok(n) = results.read() {
            squares.push(n);
        }
        squares
    });
    assert_eq!(squares, [0, 1, 4, 9]);
}

/// Checks that each fibre that hangs is reclaimed when its partners have gone, and that no value is lost.
fn csp_reclaimed() {
    let ends = Mutex::new(make_ends::<u32>(4));
    let read = Arc::new(AtomicU32::new(0));
    let theirs = read.clone();
    on_threads(4, move |me| {
        let mut end = ends.lock().pop().expect("each takes an end");
        match me {
            0 => (1..=2).for_each(|value| end.write(value).expect("it is read")),
            // A task beside the threads.
            1 => _ = block_on(end.read_async()).map(|value| theirs.fetch_add(value, Relaxed)),
            _ => {
                while let Ok(value) = end.read() {
                    theirs.fetch_add(value, Relaxed);
                }
            }
        }
    });
    assert_eq!(read.load(Relaxed), 3);
}

/// Checks a reader and a writer with deadlines: both agree on whether they have met.
fn csp_deadlines() {
    let ends = Mutex::new(make_ends::<u32>(2));
    let met = Arc::new(AtomicU32::new(0));
    let theirs = met.clone();
    on_threads(2, move |me| {
        let mut end = ends.lock().pop().expect("each takes an end");
        for round in 0..3 {
            let deadline = now() + Duration::from_micros(round);
            let over = if me == 0 {
                end.read_limited(deadline).map(|value| _ = theirs.fetch_sub(value, Relaxed))
            } else {
                end.write_limited(1, deadline)
                    .map(|()| _ = theirs.fetch_add(1, Relaxed))
                    .map_err(|unwritten| unwritten.why)
            };
            if over == Err(Failed::Reclaimed) {
                break;
            }
        }
    });
    assert_eq!(met.load(Relaxed), 0, "both have met as often");
}

/// Checks that a task which is dropped has read nothing: the value stays for the next read.
fn csp_dropped_read() {
    let [mut ours, mut theirs] = make_channel::<u32, 2>();
    let writer = thread::spawn(move || (0..3).for_each(|value| theirs.write(value).expect("it is read")));
    let mut values = Vec::new();
    loop {
        if let Poll::Ready(value) = std::pin::pin!(ours.read_async()).poll(&mut Context::from_waker(Waker::noop())) {
            values.extend(value);
        }
        match ours.read() {
            Ok(value) => values.push(value),
            Err(Reclaimed) => break,
        }
    }
    writer.join().expect("it does not panic");
    assert_eq!(values, [0, 1, 2]);
}

/// Checks that the drop of a set ends fibres whose channels cross, while a partner outside meets one of them.
fn csp_crossing() {
    let [mut a, b] = make_channel::<u32, 2>();
    let [mut c, mut d] = make_channel::<u32, 2>();
    let ended = Arc::new(AtomicU32::new(0));
    let (first, second, mut outside) = (ended.clone(), ended.clone(), b.dup());
    let partner = thread::spawn(move || outside.write(1).is_ok());
    let mut set = ActiveSet::new();
    set.run(move || {
        spawn_fibre(move || {
            while a.read().is_ok() {}
            _ = d.write(0);
            first.fetch_add(1, Relaxed);
        });
        spawn_fibre(move || {
            while c.read().is_ok() {}
            drop(b);
            second.fetch_add(1, Relaxed);
        });
    });
    drop(set);
    assert_eq!(ended.load(Relaxed), 2, "the set waits for its fibres");
    partner.join().expect("it does not panic");
}

fn goroutines() {
    let sum = run(|| {
        let handles: Vec<_> = (1..=4_u32)
            .map(|n| {
                spawn(move || {
                    gosched();
                    n
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("it does not panic")).sum::<u32>()
    });
    assert_eq!(sum, 10);
}

fn mutex_on_goroutines() {
    let visits = run(|| {
        let shared = Arc::new((GoMutex::<RuntimeSema>::new(), Alone::default()));
        let visit = |shared: Arc<(GoMutex<RuntimeSema>, Alone)>| {
            for _ in 0..3 {
                shared.0.lock();
                shared.1.visit();
                shared.0.unlock();
            }
        };
        let handles: Vec<_> = (0..3).map(|_| shared.clone()).map(|shared| spawn(move || visit(shared))).collect();
        handles.into_iter().for_each(|handle| handle.join().expect("it does not panic"));
        shared.1.visits.load(Relaxed)
    });
    assert_eq!(visits, 9);
}

fn goroutines_channels() {
    let sum = run(|| {
        let (work, results) = (Chan::new(1), Chan::new(0));
        for _ in 0..2 {
            let (work, results) = (work.clone(), results.clone());
            go(move || {
                while let Some(n) = work.recv() {
                    results.send(n * 2);
                }
            });
        }
        let theirs = work.clone();
        go(move || {
            (1..=4_u32).for_each(|n| theirs.send(n));
            theirs.close();
        });
        (0..4).map(|_| results.recv().expect("it is not closed")).sum::<u32>()
    });
    assert_eq!(sum, 20);
}

fn goroutines_sleep() {
    run(|| {
        let begun = now();
        let handle = spawn(|| sleep(Duration::from_millis(3)));
        sleep(Duration::from_millis(2));
        handle.join().expect("it does not panic");
        assert!(now() - begun >= Duration::from_millis(3), "a sleep is too short");
    });
}

/// Checks that permits are conserved when waits on goroutines end by deadlines just as permits come.
fn goroutines_deadlines() {
    let left = run(|| {
        let shared = Arc::new((RuntimeSema::new(1), AtomicU32::new(0)));
        let contend = |shared: Arc<(RuntimeSema, AtomicU32)>| {
            move || {
                for round in 0..3 {
                    let soon = now() + Duration::from_micros(1);
                    if shared.0.acquire_until(Order::Fifo, soon) {
                        assert_eq!(shared.1.swap(1, Relaxed), 0, "two are inside");
                        if round == 1 {
                            gosched();
                        }
                        shared.1.store(0, Relaxed);
                        shared.0.release(Wake::Normal);
                    }
                }
            }
        };
        let handles: Vec<_> = (0..4).map(|_| spawn(contend(shared.clone()))).collect();
        handles.into_iter().for_each(|handle| handle.join().expect("it does not panic"));
        usize::from(shared.0.try_acquire()) + usize::from(shared.0.try_acquire())
    });
    assert_eq!(left, 1, "permits are conserved");
}

/// Checks commits that yield, sleep, panic or end their goroutine. The deadline of the commit's park holds if the
/// commit returns, and ends no other wait: not that of the next goroutine on the same stack.
fn goroutines_commits() {
    let park = |commit: fn()| {
        let deadline = now() + Duration::from_micros(1);
        (G::current().park(Some(deadline), commit), now() >= deadline)
    };
    let wait = || {
        let shared = Arc::new((RuntimeSema::new(0), AtomicU32::new(0)));
        let releaser = shared.clone();
        go(move || {
            sleep(Duration::from_micros(3));
            releaser.1.store(1, Relaxed);
            releaser.0.release(Wake::Normal);
        });
        shared.0.acquire(Order::Fifo);
        assert_eq!(shared.1.load(Relaxed), 1, "a wait ends before its release");
    };
    let commits: [(fn(), bool); 4] = [
        (gosched, true),
        (|| sleep(Duration::from_nanos(500)), true),
        (|| resume_unwind(Box::new(())), false),
        (|| goexit(), false),
    ];
    run(|| {
        let handles = commits.map(|(commit, returns)| {
            spawn(move || {
                let parked = Builder::new().on_panic(OnPanic::Unwind).spawn(move || park(commit)).join();
                assert_eq!(parked.ok(), returns.then_some((ParkResult::TimedOut, true)));
                spawn(wait).join().expect("it does not panic");
            })
        });
        handles.into_iter().for_each(|handle| handle.join().expect("it does not panic"));
    });
}

/// Checks a local whose initialiser accesses that same local, and so makes a second value. The second value is dropped
/// while nothing is borrowed: its destructor may yield, and use other locals.
fn goroutines_locals() {
    struct Second(bool);
    impl Drop for Second {
        fn drop(&mut self) {
            if self.0 {
                gosched();
                COUNT.with(|count| count.set(count.get() + 1));
            }
        }
    }
    goroutine_local! {
        static COUNT: Cell<u32> = Cell::new(0);
        static WITHIN: Cell<bool> = Cell::new(false);
        static VALUE: Second = {
            let is_second = !WITHIN.with(|within| within.replace(true));
            if is_second {
                VALUE.with(|first| assert!(!first.0));
            }
            Second(is_second)
        };
    }
    run(|| {
        let use_local = || {
            VALUE.with(|kept| assert!(!kept.0, "the first value stays"));
            COUNT.with(Cell::get)
        };
        let handles: Vec<_> = (0..3).map(|_| spawn(use_local)).collect();
        handles.into_iter().for_each(|handle| assert_eq!(handle.join().expect("it does not panic"), 1));
    });
}
