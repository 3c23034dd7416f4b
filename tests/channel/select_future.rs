//! Futures in a select, beside channels: locks, permits, groups, contexts, goroutines, and futures of other libraries.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::{Chan, Select, channel, select, select_async};
use sudog::low_level::sema::{Wake, semacquire, semacquire_async, semrelease, waiters};
use sudog::runtime::{goexit, gosched};
use sudog::sync::{LockAsync, Mutex, WaitGroup};
use sudog::{Cancel, WaitError, WaitLimit, block_on, block_on_limited, context, go, run, spawn, spawn_async, synctest};
use support::Watchdog;
use support::goroutine::{text, until};

/// Runs the test as a goroutine, and on a thread without a goroutine.
fn both(test: impl Fn() + Clone + Send + 'static) {
    let _watchdog = Watchdog::new();
    run(test.clone());
    test();
}

#[test]
fn a_mutex_beside_a_channel() {
    both(|| {
        let mutex = Arc::new(Mutex::new(1));
        let quit = Chan::<()>::new(0);
        // A free mutex is locked at once.
        let got = select! {
            future(mutex.lock_async()) -> guard => *guard,
            recv(quit) => 0,
        };
        assert_eq!(got, 1);
        // Of a locked mutex and a closed channel the channel wins, and later the mutex is free for other goroutines.
        let guard = mutex.lock();
        let closer = spawn({
            let quit = quit.clone();
            move || quit.close()
        });
        let closed = select! {
            future(mutex.lock_async()) -> _ => false,
            recv(quit) -> value => value.is_none(),
        };
        assert!(closed);
        drop(guard);
        closer.join().unwrap();
        // The mutex is unlocked while the select waits.
        let (guard, never) = (mutex.lock(), Chan::<()>::new(0));
        let other = spawn({
            let (mutex, never) = (mutex.clone(), never.clone());
            move || {
                select! {
                    future(mutex.lock_async()) -> mut guard => *guard += 1,
                    recv(never) => unreachable!(),
                }
            }
        });
        until(|| format!("{mutex:?}").contains("locked"));
        drop(guard);
        other.join().unwrap();
        assert_eq!(*mutex.lock(), 2);
    });
}

#[test]
fn a_group_a_context_a_permit_a_goroutine_and_a_time() {
    both(|| {
        let never = Chan::<()>::new(0);
        let group = Arc::new(WaitGroup::new());
        group.go(gosched);
        select! {
            future(group.wait_async()) => {}
            recv(never) => unreachable!(),
        }
        select! {
            future(group.wait_async()) => {} // without tasks: ready
            recv(never) => unreachable!(),
        }
        let (ctx, cancel) = context::with_cancel(&context::background());
        go(move || cancel.cancel());
        select! {
            future(ctx.done()) => assert_eq!(ctx.err(), Some(context::Error::Canceled)),
            recv(never) => unreachable!(),
        }
        let permits = Arc::new(AtomicU32::new(0));
        go({
            let permits = permits.clone();
            move || semrelease(&permits, Wake::Normal)
        });
        select! {
            future(semacquire_async(&permits)) => {}
            recv(never) => unreachable!(),
        }
        select! {
            future(spawn(|| 42)) -> answer => assert_eq!(answer.unwrap(), 42),
            recv(never) => unreachable!(),
        }
        select! {
            future(sudog::time::sleep_async(Duration::from_millis(1))) => {}
            recv(never) => unreachable!(),
        }
    });
}

/// A group counts no waiter any more after another case of the select has won: the group's next round is no misuse.
#[test]
fn a_wait_for_a_group_that_loses_is_undone() {
    both(|| {
        let (group, ch) = (WaitGroup::new(), Chan::new(1));
        for _ in 0..1000 {
            group.add(1);
            let mut wait = pin!(group.wait_async());
            assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(format!("{group:?}"), "WaitGroup { counter: 1, waiters: 1 }");
            ch.send(());
            select! {
                recv(ch) => {}
                future(wait) => unreachable!(),
            }
            select! {
                future(group.wait_async()) => unreachable!(),
                default => {}
            }
            group.done();
        }
        group.wait();
    });
}

/// A permit and a value come at the same time, from two threads. The select takes one of the two, and the other stays
/// available.
#[test]
fn of_a_permit_and_a_value_one_is_taken() {
    let watchdog = Watchdog::new();
    let test = move || {
        let (permits, taken) = (Arc::new(AtomicU32::new(0)), [Cell::new(0), Cell::new(0)]);
        let (ch, begin) = (Chan::new(0), [Chan::new(1), Chan::new(1)]);
        const ROUNDS: u32 = 2000;
        let sender = thread::spawn({
            let (ch, begin) = (ch.clone(), begin[0].clone());
            move || {
                for n in 0..ROUNDS {
                    begin.recv();
                    ch.send(n);
                }
            }
        });
        let releaser = thread::spawn({
            let (permits, begin) = (permits.clone(), begin[1].clone());
            move || {
                for _ in 0..ROUNDS {
                    begin.recv();
                    semrelease(&permits, Wake::Normal);
                }
            }
        });
        for n in 0..ROUNDS {
            begin.iter().for_each(|begin| begin.send(()));
            let received = select! {
                recv(ch) -> value => { assert_eq!(value, Some(n)); true }
                future(semacquire_async(&permits)) => false,
            };
            taken[usize::from(received)].set(taken[usize::from(received)].get() + 1);
            if received {
                semacquire(&permits);
            } else {
                ch.recv();
            }
            watchdog.pat();
        }
        sender.join().unwrap();
        releaser.join().unwrap();
        assert_eq!((permits.load(SeqCst), taken[0].get() + taken[1].get()), (0, ROUNDS));
    };
    test();
}

/// A select with a channel and futures that are all ready chooses each case equally often.
#[test]
fn the_choice_is_uniform() {
    both(|| {
        const ROUNDS: u32 = 3000;
        let (ch, mut futures) = (Chan::new(1), 0);
        for _ in 0..ROUNDS {
            _ = ch.try_send(());
            select! {
                recv(ch) => {}
                future(ready(())) => futures += 1,
                future(ready(())) => {}
            }
        }
        // 1000 are expected; six standard deviations are 155.
        assert!((840..1160).contains(&futures), "{futures} of {ROUNDS}");
    });
}

#[test]
fn a_default_polls_each_future_once() {
    both(|| {
        let (never, mut polls) = (Chan::<()>::new(0), 0);
        let mut count = pin!(poll_fn(|_| {
            polls += 1;
            Poll::<()>::Pending
        }));
        select! {
            recv(never) => unreachable!(),
            future(count.as_mut()) => unreachable!(),
            default => {}
        }
        select! {
            future(count.as_mut()) => unreachable!(),
            default => {}
        }
        assert_eq!(polls, 2);
        let (ch, got) = (Chan::new(1), ready(7));
        ch.send(7);
        select! {
            future(got) -> seven => assert_eq!(seven, 7),
            default => unreachable!(),
        }
        select! {
            future(pending::<()>()) => unreachable!(),
            recv(ch) -> seven => assert_eq!(seven, Some(7)),
            default => unreachable!(),
        }
    });
}

#[test]
fn limits() {
    both(|| {
        let never = Chan::<()>::new(0);
        let why = select! {
            recv(never) => unreachable!(),
            future(pending::<()>()) => unreachable!(),
            default(Duration::from_millis(1)) -> why => why,
        };
        assert_eq!(why, WaitError::TimedOut);
        let stop = Arc::new(Cancel::new());
        let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
        go({
            let stop = stop.clone();
            move || stop.cancel()
        });
        let why = select! {
            recv(never) => unreachable!(),
            future(pending::<()>()) => unreachable!(),
            default(limit) -> why => why,
        };
        assert_eq!(why, WaitError::Cancelled);
        assert_eq!(block_on_limited(pending::<()>(), &limit), Err(WaitError::Cancelled));
        assert_eq!(block_on_limited(ready(1), &limit), Ok(1), "a future that is ready is polled");
        let past = WaitLimit::until(Instant::now());
        assert_eq!(block_on_limited(pending::<()>(), &past), Err(WaitError::TimedOut));
    });
}

/// The deadline passes while a peer sends: no received value is lost, and no sent value is reported as not sent.
#[test]
fn a_deadline_beside_a_peer() {
    let watchdog = Watchdog::new();
    let (tx, rx) = channel(0);
    let sent = thread::spawn(move || {
        let mut sent = 0;
        for n in 0..2000u32 {
            let limit = Duration::from_micros(u64::from(n % 50));
            select! {
                send(tx, n) -> result => { result.unwrap(); sent += 1 }
                future(pending::<()>()) => unreachable!(),
                default(limit) => {}
            }
        }
        sent
    });
    let mut received = 0;
    loop {
        let over = select! {
            recv(rx) -> value => { received += u32::from(value.is_ok()); value.is_err() }
            future(pending::<()>()) => unreachable!(),
            default(Duration::from_micros(20)) => false,
        };
        watchdog.pat();
        if over {
            break;
        }
    }
    assert_eq!(sent.join().unwrap(), received);
}

#[test]
fn a_select_of_any_number() {
    both(|| {
        let (ch, permits) = (Chan::new(0), AtomicU32::new(1));
        let mut select = Select::new();
        select.recv(&ch, |value: Option<u32>| value.unwrap());
        select.future(semacquire_async(&permits), |()| 1);
        select.future(pending::<u32>(), |n| n);
        assert_eq!((select.len(), select.wait()), (3, 1));
        assert_eq!(permits.load(SeqCst), 0);

        let mut select = Select::new();
        select.recv(&ch, |value| value.unwrap());
        select.future(semacquire_async(&permits), |()| 1);
        assert_eq!(select.try_now(), None);
        select.recv(&ch, |value| value.unwrap());
        select.future(semacquire_async(&permits), |()| 1);
        assert_eq!(select.wait_limited(&WaitLimit::until(Instant::now())), Err(WaitError::TimedOut));
        assert_eq!(waiters(&permits), 0);

        let sender = spawn({
            let ch = ch.clone();
            move || ch.send(2)
        });
        select.recv(&ch, |value| value.unwrap());
        select.future(semacquire_async(&permits), |()| 1);
        assert_eq!(select.wait(), 2);
        sender.join().unwrap();
        // Without a future, the same select takes the other code path again.
        let sender = spawn({
            let ch = ch.clone();
            move || ch.send(3)
        });
        select.recv(&ch, |value| value.unwrap());
        assert_eq!(select.wait(), 3);
        sender.join().unwrap();
    });
}

/// A losing future is dropped before the arm is evaluated, in its place, although the select may wait there.
#[test]
fn a_future_that_loses_is_dropped_before_the_arm() {
    /// A future that must not be moved after a poll, and that notes its drop.
    struct Pinned<'a> {
        at: Cell<usize>,
        dropped: &'a AtomicBool,
        _pinned: std::marker::PhantomPinned,
    }
    impl Future for Pinned<'_> {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            let here = std::ptr::from_ref(self.as_ref().get_ref()).addr();
            assert!([0, here].contains(&self.at.replace(here)), "moved between two polls");
            Poll::Pending
        }
    }
    impl Drop for Pinned<'_> {
        fn drop(&mut self) {
            let here = std::ptr::from_ref(self).addr();
            assert!([0, here].contains(&self.at.get()), "moved before it is dropped");
            gosched();
            self.dropped.store(true, SeqCst);
        }
    }
    both(|| {
        let (ch, dropped) = (Chan::new(0), AtomicBool::new(false));
        let sender = spawn({
            let ch = ch.clone();
            move || (0..3).for_each(|n| ch.send(n))
        });
        let new = || Pinned { at: Cell::new(0), dropped: &dropped, _pinned: std::marker::PhantomPinned };
        select! {
            future(new()) => unreachable!(),
            recv(ch) => assert!(dropped.swap(false, SeqCst)),
        }
        select! {
            recv(ch) => assert!(dropped.swap(false, SeqCst)),
            future(new()) => unreachable!(),
        }
        let mut select = Select::new();
        select.future(new(), |()| unreachable!());
        select.recv(&ch, |_| assert!(dropped.swap(false, SeqCst)));
        select.wait();
        sender.join().unwrap();
    });
}

/// A poll or a destructor panics, or ends its goroutine: the channels' queues are left, and no value is lost.
#[test]
fn futures_that_misbehave() {
    struct Bad(u32, bool);
    impl Future for Bad {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            self.0 += 1;
            match (self.0, self.1) {
                (1, _) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                (_, true) => goexit(),
                (_, false) => panic!("bad poll"),
            }
        }
    }
    struct BadDrop;
    impl Future for BadDrop {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
    impl Drop for BadDrop {
        fn drop(&mut self) {
            panic!("bad drop");
        }
    }
    let _watchdog = Watchdog::new();
    run(|| {
        let ch = Chan::<u32>::new(0);
        for exits in [false, true] {
            let theirs = ch.clone();
            let ended = spawn(move || {
                select! {
                    recv(theirs) => unreachable!(),
                    send(theirs, 1) => unreachable!(),
                    future(Bad(0, exits)) => unreachable!(),
                }
            });
            assert!(ended.join().is_err());
            assert!(ch.try_recv().is_err() && ch.try_send(0).is_err(), "no waiter is left behind");
        }
        let sender = spawn({
            let ch = ch.clone();
            move || ch.send(5)
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            select! {
                recv(ch) => {}
                future(BadDrop) => unreachable!(),
            }
        }));
        assert!(panicked.is_err());
        sender.join().unwrap(); // the value was received, and was dropped by the panic, as with a panic of an arm
        assert!(ch.try_recv().is_err());
    });
}

/// A future that uses a select itself, on the same channel.
#[test]
fn a_select_in_a_poll() {
    both(|| {
        let ch = Chan::new(1);
        ch.send(1);
        let inner = || {
            poll_fn(|_| {
                select! {
                    recv(ch) -> n => Poll::Ready(n),
                    default => Poll::Pending,
                }
            })
        };
        let n = select! {
            future(inner()) -> n => n,
            future(inner()) -> n => n,
        };
        assert_eq!(n, Some(1));
    });
}

/// Selects in tasks. The deadlock report names the wait.
#[test]
fn in_tasks() {
    let _watchdog = Watchdog::new();
    let sum = run(|| {
        let (ch, mutex) = (Chan::new(0), Arc::new(Mutex::new(0)));
        let task = spawn_async({
            let (ch, mutex) = (ch.clone(), mutex.clone());
            async move {
                let mut sum = 0;
                while sum < 10 {
                    select_async! {
                        recv(ch) -> n => sum += n.unwrap(),
                        future(async { drop(mutex.lock_async().await); pending::<()>().await }) => unreachable!(),
                    }
                }
                sum
            }
        });
        (1..=4).for_each(|n| ch.send(n));
        task.join().unwrap()
    });
    assert_eq!(sum, 10);
    let report = catch_unwind(|| {
        synctest::test(|| {
            select! {
                future(pending::<()>()) => {}
            }
        })
    });
    assert!(text(&*report.unwrap_err()).contains("[select"));
    assert_eq!(block_on(async { 1 }), 1);
}

/// Losing futures leave nothing behind, however many they are: the semaphore has no waiter, and the waits are not
/// slower at the end.
#[test]
fn a_hundred_thousand_losers() {
    both(|| {
        let (permits, ch) = (AtomicU32::new(0), Chan::new(1));
        for _ in 0..100_000 {
            ch.send(());
            select! {
                recv(ch) => {}
                future(semacquire_async(&permits)) => unreachable!(),
            }
        }
        assert_eq!(waiters(&permits), 0);
    });
}
