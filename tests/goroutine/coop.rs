//! Futures whose operations are always ready give the worker back at the end of their task's slice: each future of this
//! project, in a task and in a `block_on`, beside a goroutine and beside a task.
//!
//! The contract: `docs/goroutines.md`, "Safepoints".
#![cfg(all(unix, not(sudog_loom)))]

use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use sudog::chan::{Chan, Select, channel, select, select_async};
use sudog::low_level::sema::{Order, semacquire_async, semacquire_mutex_async};
use sudog::runtime::{gosched, num_goroutine};
use sudog::sync::{GoMutex, LockAsync, Mutex, WaitGroup};
use sudog::time::sleep_async;
use sudog::{WaitLimit, block_on, block_on_limited, context, run, spawn, spawn_async, without_switching};
use support::Watchdog;
use support::goroutine::{alone_with, one_worker, until};

type Hog = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The number of turns of its neighbour after which a hog stops.
const TURNS: u64 = 1000;
/// The processor time of the worker, which is a single thread, after which a hog stops, too. Time that other processes
/// take is not counted.
///
/// With a turn in each slice of 100 us, or after each 128 operations if these are slow, all turns take 0.1 to 0.3 s. If the
/// watcher alone asked for turns, every 10 ms, there would be 100 turns in a second.
const LIMIT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });

/// Returns the processor time that the calling thread has used.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for a write of a `timespec`.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The state that a hog and its neighbour share: the neighbour's turns, and the end of the worker's time. Both run on
/// the same worker.
#[derive(Clone)]
struct Beside(Arc<(AtomicU64, Duration)>);

impl Beside {
    fn new() -> Self {
        Self(Arc::new((AtomicU64::new(0), processor_time() + LIMIT)))
    }

    fn goes_on(&self) -> bool {
        self.turns() < TURNS && processor_time() < self.0.1
    }

    fn turn(&self) {
        self.0.0.fetch_add(1, Relaxed);
    }

    fn turns(&self) -> u64 {
        self.0.0.load(Relaxed)
    }
}

/// Yields once: pending at the first poll, ready at the second.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns the output of the first future that is ready; each poll polls `a` before `b`.
async fn first_of<T>(a: impl Future<Output = T>, b: impl Future<Output = T>) -> T {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| if let Poll::Ready(output) = a.as_mut().poll(cx) { Poll::Ready(output) } else { b.as_mut().poll(cx) })
        .await
}

fn beside_a_goroutine(hog: fn(Beside) -> Hog) {
    let _watchdog = Watchdog::new();
    let turns = one_worker(move || {
        let beside = Beside::new();
        let neighbour = beside.clone();
        spawn(move || {
            while neighbour.goes_on() {
                gosched();
                neighbour.turn();
            }
        });
        spawn_async(hog(beside.clone())).join().unwrap();
        beside.turns()
    });
    assert!(turns >= TURNS, "{turns} turns");
}

fn beside_a_task(hog: fn(Beside) -> Hog) {
    let _watchdog = Watchdog::new();
    let turns = one_worker(move || {
        let beside = Beside::new();
        let neighbour = beside.clone();
        spawn_async(async move {
            while neighbour.goes_on() {
                yield_once().await;
                neighbour.turn();
            }
        });
        spawn_async(hog(beside.clone())).join().unwrap();
        beside.turns()
    });
    assert!(turns >= TURNS, "{turns} turns");
}

/// A goroutine polls the hog, in a `block_on`.
fn in_block_on(hog: fn(Beside) -> Hog) {
    let _watchdog = Watchdog::new();
    let turns = one_worker(move || {
        let beside = Beside::new();
        let neighbour = beside.clone();
        spawn(move || {
            while neighbour.goes_on() {
                gosched();
                neighbour.turn();
            }
        });
        block_on(hog(beside.clone()));
        beside.turns()
    });
    assert!(turns >= TURNS, "{turns} turns");
}

/// Tests for hogs. An entry has the object that the hog needs, and a round of the hog, which is always ready.
macro_rules! hogs {
    ($($(#[$cfg:meta])* $name:ident: $s:ident = $make:expr => $round:expr;)+) => { $(
        $(#[$cfg])*
        mod $name {
            use super::*;

            fn hog(beside: Beside) -> Hog {
                Box::pin(async move {
                    #[allow(unused_mut)]
                    let mut $s = $make;
                    while beside.goes_on() {
                        _ = $round;
                    }
                    _ = &mut $s;
                })
            }

            #[test]
            fn beside_a_goroutine() {
                super::beside_a_goroutine(hog);
            }

            #[test]
            fn beside_a_task() {
                super::beside_a_task(hog);
            }

            #[test]
            fn in_block_on() {
                super::in_block_on(hog);
            }
        }
    )+ };
}

/// A context that is done.
fn done_context() -> context::Context {
    let (ctx, cancel) = context::with_cancel(&context::background());
    cancel.cancel();
    ctx
}

fn closed<T>() -> Chan<T> {
    let chan = Chan::new(1);
    chan.close();
    chan
}

hogs! {
    a_buffered_channel: c = Chan::new(1) => { c.send_async(1).await; c.recv_async().await };
    the_ends_of_a_channel: c = channel(1) => { c.0.send_async(1).await.unwrap(); c.1.recv_async().await };
    a_receive_of_a_closed_channel: c = closed::<u32>() => c.recv_async().await;
    a_send_without_a_receiver: c = channel(1).0 => c.send_async(1).await;
    #[cfg(feature = "stream")]
    a_stream: s = stream() => { s.0.send_async(1).await; next(&mut s.1).await };
    #[cfg(feature = "stream")]
    a_stream_that_has_ended: s = stream_of(closed()) => next(&mut s).await;
    a_select_of_a_closed_channel: c = closed::<u32>() => select_async! { recv(c) => {} };
    a_select_with_a_default: c = Chan::<u32>::new(1) => select_async! { recv(c) => {}, default => {} };
    a_select_with_a_limit_of_zero: c = Chan::<u32>::new(1) => select_async! { recv(c) => {}, default(Duration::ZERO) => {} };
    a_select_with_a_future_and_a_default: s = (Chan::<u32>::new(1), Mutex::new(0)) => select_async! {
        recv(s.0) => {},
        future(s.1.lock_async()) => {},
        default => {},
    };
    a_select_of_a_future: c = Chan::<u32>::new(1) => select_async! { recv(c) => {}, future(ready(())) => {} };
    a_select_beside_a_sleep: c = closed::<u32>() => select_async! {
        recv(c) => {},
        future(sleep_async(Duration::from_secs(60))) => {},
    };
    a_permit: n = AtomicU32::new(1) => { semacquire_async(&n).await; n.fetch_add(1, Relaxed) };
    a_permit_of_a_mutex: n = AtomicU32::new(1) => {
        semacquire_mutex_async(&n, Order::Lifo).await;
        n.fetch_add(1, Relaxed)
    };
    a_mutex: m = Mutex::new(0) => *m.lock_async().await += 1;
    a_raw_mutex: m = GoMutex::<sudog::low_level::RuntimeSema>::const_new() => {
        m.lock_async().await;
        m.unlock();
    };
    a_wait_group: g = WaitGroup::new() => g.wait_async().await;
    a_context: ctx = done_context() => ctx.done().await;
    a_sleep_of_zero: _unit = () => sleep_async(Duration::ZERO).await;
    // If the second receive were ready after the first was refused, the task would never end its poll.
    the_first_of_two: c = closed::<u32>() => first_of(c.recv_async(), c.recv_async()).await;
    the_first_of_many: s = (closed::<u32>(), Mutex::new(0)) => first_of(
        first_of(s.0.recv_async(), s.0.recv_async()),
        first_of(async { Some(*s.1.lock_async().await) }, async { sleep_async(Duration::ZERO).await; None }),
    )
    .await;
}

/// A goroutine's select with a future and a default is a safepoint, as a select without a future is.
#[test]
fn a_select_of_a_goroutine_with_a_future_and_a_default() {
    let _watchdog = Watchdog::new();
    let turns = one_worker(|| {
        let beside = Beside::new();
        let neighbour = beside.clone();
        spawn(move || {
            while neighbour.goes_on() {
                gosched();
                neighbour.turn();
            }
        });
        let mutex = Mutex::new(0);
        while beside.goes_on() {
            select! { future(mutex.lock_async()) => {}, default => {} }
            _ = Select::new().future(mutex.lock_async(), |_| ()).try_now();
        }
        beside.turns()
    });
    assert!(turns >= TURNS, "{turns} turns");
}

#[cfg(feature = "stream")]
type Stream = Pin<Box<sudog::chan::RecvStream<Chan<u32>>>>;

#[cfg(feature = "stream")]
fn stream_of(chan: Chan<u32>) -> Stream {
    Box::pin(sudog::chan::RecvStream::new(chan))
}

#[cfg(feature = "stream")]
fn stream() -> (Chan<u32>, Stream) {
    let chan = Chan::new(1);
    (chan.clone(), stream_of(chan))
}

#[cfg(feature = "stream")]
async fn next(stream: &mut Stream) -> Option<u32> {
    poll_fn(|cx| futures_core::Stream::poll_next(stream.as_mut(), cx)).await
}

/// Handles of goroutines that have ended. They are few, so the neighbour's turns are few; without the budget there is a
/// single turn.
#[test]
fn handles_of_what_has_ended() {
    const HANDLES: usize = 100_000;
    let _watchdog = Watchdog::new();
    let turns = one_worker(|| {
        let handles: Vec<_> = (0..HANDLES).map(|_| spawn_async(ready(()))).collect();
        until(|| num_goroutine() == 1);
        let turns = Arc::new(AtomicUsize::new(0));
        let (neighbour, runs) = (turns.clone(), Arc::new(()));
        let over = Arc::downgrade(&runs);
        spawn(move || {
            while over.strong_count() > 0 {
                gosched();
                neighbour.fetch_add(1, Relaxed);
            }
        });
        spawn_async(async move {
            let _runs = runs;
            for handle in handles {
                handle.await.unwrap();
            }
        })
        .join()
        .unwrap();
        turns.load(Relaxed)
    });
    assert!(turns >= 5, "{turns} turns");
}

/// Starts a goroutine that yields in a loop, so that it is always ready, until the result is dropped.
fn busy_neighbour() -> Arc<()> {
    let runs = Arc::new(());
    let over = Arc::downgrade(&runs);
    spawn(move || {
        while over.strong_count() > 0 {
            gosched();
        }
    });
    runs
}

/// A refused future has done nothing: each value comes once, in its order, whether the future is polled again or
/// dropped.
#[test]
fn nothing_is_lost() {
    const VALUES: u32 = 200_000;
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let _neighbour = busy_neighbour();
        let (tx, rx) = channel(4);
        let sends = spawn_async(async move {
            for n in 0..VALUES {
                tx.send_async(n).await.unwrap();
            }
        });
        let receives = spawn_async(async move {
            let (mut expected, mut given_up) = (0, 0);
            loop {
                // Drop a future that is not ready at its first poll, whether the future was refused or queued.
                let mut first = Box::pin(rx.recv_async());
                let got = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx))).await;
                drop(first);
                match got {
                    Poll::Ready(Ok(n)) => {
                        assert_eq!(n, expected);
                        expected += 1;
                    }
                    Poll::Ready(Err(_)) => return (expected, given_up),
                    Poll::Pending => {
                        given_up += 1;
                        yield_once().await;
                    }
                }
            }
        });
        sends.join().unwrap();
        let (received, given_up) = receives.join().unwrap();
        println!("{given_up} receives were given up");
        assert_eq!(received, VALUES);
    });
}

/// A hog uses up each slice. A future that is polled after the hog is refused at most once, so that a timeout or a
/// cancel is seen.
#[test]
fn a_hog_does_not_keep_its_siblings_from_being_ready() {
    let _alone = alone_with(1);
    run(|| {
        let _neighbour = busy_neighbour();
        let hog = || async {
            let chan = closed::<u32>();
            loop {
                chan.recv_async().await;
            }
        };
        let short = Duration::from_millis(5);
        spawn_async(first_of(hog(), sleep_async(short))).join().unwrap();
        let (ctx, _cancel) = context::with_timeout(&context::background(), short);
        spawn_async(first_of(hog(), async move { _ = ctx.done().await })).join().unwrap();
        let chan = Chan::<()>::new(0);
        let timed_out = spawn_async(async move {
            select_async! {
                recv(chan) => false,
                future(hog()) => false,
                default(short) => true,
            }
        });
        assert!(timed_out.join().unwrap());
        block_on(first_of(hog(), sleep_async(short)));
        let handle = spawn(|| ());
        spawn_async(first_of(hog(), async move { handle.await.unwrap() })).join().unwrap();
    });
}

/// Polls in a loop until the future is ready, as an executor of another crate may.
fn poll_until_ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

/// An executor runs inside of the poll of a task, and where the goroutine may not switch.
#[test]
fn an_executor_inside_of_a_poll_goes_on() {
    const ROUNDS: usize = 10_000;
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let _neighbour = busy_neighbour();
        let rounds = || async {
            let chan = Chan::new(1);
            for n in 0..ROUNDS {
                chan.send_async(n).await;
                assert_eq!(chan.recv_async().await, Some(n));
            }
        };
        spawn_async(async move { poll_until_ready(rounds()) }).join().unwrap();
        spawn_async(async move { without_switching(|| block_on(rounds())) }).join().unwrap();
        without_switching(|| block_on(rounds()));
        spawn_async(async move { block_on(rounds()) }).join().unwrap();
        block_on(async { poll_until_ready(rounds()) });
        // A future that forbids switching in its own poll.
        let mut fixed = Box::pin(rounds());
        spawn_async(poll_fn(move |cx| without_switching(|| fixed.as_mut().poll(cx)))).join().unwrap();
    });
}

/// A call that only looks, or whose limit has passed, finds a ready future ready, also at the end of a slice.
#[test]
fn a_refusal_is_not_taken_for_an_answer() {
    const ROUNDS: usize = 20_000;
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let _neighbour = busy_neighbour();
        let rounds = async {
            let mutex = Mutex::new(0);
            let chan = closed::<u32>();
            for _ in 0..ROUNDS {
                chan.recv_async().await;
                // A select with futures takes the default only if none of the futures is ready.
                select! { future(mutex.lock_async()) => {}, default => panic!("the mutex is free") }
            }
        };
        spawn_async(rounds).join().unwrap();
        let mutex = Mutex::new(0);
        let over = WaitLimit::until(Instant::now());
        for _ in 0..ROUNDS {
            drop(block_on_limited(mutex.lock_async(), &over).unwrap());
        }
    });
}

/// Outside of this runtime's polls no future is refused.
#[test]
fn elsewhere_no_future_is_refused() {
    const ROUNDS: usize = 100_000;
    let _watchdog = Watchdog::new();
    fn rounds() {
        let chan = closed::<u32>();
        for _ in 0..ROUNDS {
            let mut receive = pin!(chan.recv_async());
            assert!(receive.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
    }
    rounds();
    one_worker(|| {
        let _neighbour = busy_neighbour();
        rounds();
    });
}
