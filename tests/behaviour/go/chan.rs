//! Go's tests of its channels, `runtime/chan_test.go` and programs of `test/chan`, over threads and over goroutines.
//!
//! Go sleeps for a millisecond to see that an operation blocks; these tests wait until the waiter is in the queue.
#![cfg(all(unix, not(sudog_loom)))]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use sudog::chan::{Chan, RecvOnly, Select, SendOnly, TryRecvError, channel, select};
use sudog::sync::WaitGroup;
use support::kinds::Kind;

support::over_threads_and_goroutines! {
    chan nonblock_recv_race nonblock_select_race nonblock_select_race_2 self_select select_stress select_fairness
    chan_send_interface pseudo_random_send multi_consumer select_duplicate_channel chan_send_barrier
    chan_send_select_barrier select_2 select_3 select_4 select_5_evaluation_order select_6 double_select fifo daisy_chain
    nonblock sieve zero_size misuse nil_channels
}

/// The text of the panic that `f` raises.
fn panic_of(f: impl FnOnce()) -> String {
    let payload: Box<dyn Any + Send> = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    payload
        .downcast_ref::<&str>()
        .map_or_else(|| payload.downcast_ref::<String>().cloned().unwrap(), ToString::to_string)
}

/// Go: `TestChan`.
fn chan<K: Kind>() {
    let n = if K::MANY > 100 { 200 } else { 20 };
    for capacity in 0..n {
        support::pat();
        {
            // A receive from an empty channel waits, and a nonblocking one fails.
            let c = Chan::<i32>::new(capacity);
            let received = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
            for received in received.clone() {
                let c = c.clone();
                K::go(move || {
                    c.recv();
                    received.store(true, SeqCst);
                });
            }
            K::until(|| c.waiting_receivers() == 2);
            assert!(!received[0].load(SeqCst) && !received[1].load(SeqCst), "received from an empty channel");
            assert_eq!(c.try_recv(), Err(TryRecvError::Empty));
            select! {
                recv(c) => panic!("received from an empty channel"),
                default => {}
            }
            c.send(0);
            c.send(0);
            K::until(|| received[0].load(SeqCst) && received[1].load(SeqCst));
        }
        {
            // A send to a full channel waits, and a nonblocking one fails.
            let c = Chan::new(capacity);
            (0..capacity).for_each(|i| c.send(i));
            let sent = Arc::new(AtomicBool::new(false));
            {
                let (c, sent) = (c.clone(), sent.clone());
                K::go(move || {
                    c.send(0);
                    sent.store(true, SeqCst);
                });
            }
            K::until(|| c.waiting_senders() == 1);
            assert!(!sent.load(SeqCst), "sent to a full channel");
            assert_eq!(c.try_send(1), Err(1));
            select! {
                send(c, 0) => panic!("sent to a full channel"),
                default => {}
            }
            c.recv();
            K::until(|| sent.load(SeqCst));
        }
        {
            // A receive from a closed channel gets the remaining values, and then nothing.
            let c = Chan::new(capacity);
            (0..capacity).for_each(|i| c.send(i));
            c.close();
            (0..capacity).for_each(|i| assert_eq!(c.recv(), Some(i)));
            assert_eq!((c.recv(), c.try_recv()), (None, Err(TryRecvError::Closed)));
        }
        {
            // A close ends a receive that waits.
            let (c, done) = (Chan::<i32>::new(capacity), Chan::new(0));
            {
                let (c, done) = (c.clone(), done.clone());
                K::go(move || done.send(c.recv().is_none()));
            }
            K::until(|| c.waiting_receivers() == 1);
            c.close();
            assert_eq!(done.recv(), Some(true));
        }
        {
            // First in, first out.
            let c = Chan::new(capacity);
            {
                let c = c.clone();
                K::go(move || (0..100).for_each(|i| c.send(i)));
            }
            (0..100).for_each(|i| assert_eq!(c.recv(), Some(i)));
        }
        {
            // Four senders, four receivers: each value is received once.
            const P: usize = 4;
            const L: usize = 1000;
            let c = Chan::new(capacity);
            for _ in 0..P {
                let c = c.clone();
                K::go(move || (0..L).for_each(|i| c.send(i)));
            }
            let done = Chan::new(0);
            for _ in 0..P {
                let (c, done) = (c.clone(), done.clone());
                K::go(move || {
                    let mut counts = vec![0; L];
                    (0..L).for_each(|_| counts[c.recv().unwrap()] += 1);
                    done.send(counts);
                });
            }
            let mut counts = vec![0; L];
            for _ in 0..P {
                done.recv().unwrap().iter().enumerate().for_each(|(i, n)| counts[i] += n);
            }
            assert!(counts.iter().all(|&n| n == P));
        }
        {
            // The counterparts of `len` and `cap`.
            let c = Chan::new(capacity * 2);
            assert_eq!((c.len(), c.capacity()), (0, capacity * 2));
            (0..capacity).for_each(|i| c.send(i));
            assert_eq!((c.len(), c.capacity()), (capacity, capacity * 2));
        }
    }
}

/// The number of rounds of a race: fewer on threads, because each round starts some.
fn races<K: Kind>() -> usize {
    if K::MANY > 100 { 10_000 } else { 500 }
}

/// Go: `TestNonblockRecvRace`: a value is in the channel, so a later close does not make the receive fail.
fn nonblock_recv_race<K: Kind>() {
    for _ in 0..races::<K>() {
        let (c, done) = (Chan::new(1), Chan::new(0));
        c.send(1);
        {
            let (c, done) = (c.clone(), done.clone());
            K::go(move || {
                done.send(select! {
                    recv(c) => true,
                    default => false,
                });
            });
        }
        c.close();
        c.recv();
        // Whichever of the two receives got the value.
        assert_eq!(done.recv(), Some(true), "the channel is not ready");
    }
}

/// Go: `TestNonblockSelectRace`: at each instant one of two channels has a value.
fn nonblock_select_race<K: Kind>() {
    let done = Chan::new(1);
    for _ in 0..races::<K>() {
        let (c1, c2) = (Chan::new(1), Chan::new(1));
        c1.send(1);
        {
            let (c1, c2, done) = (c1.clone(), c2.clone(), done.clone());
            K::go(move || {
                done.send(select! {
                    recv(c1) => true,
                    recv(c2) => true,
                    default => false,
                });
            });
        }
        c2.send(1);
        select! {
            recv(c1) => {}
            default => {}
        }
        assert_eq!(done.recv(), Some(true), "no channel is ready");
    }
}

/// Go: `TestNonblockSelectRace2`: the same race, but a close makes the second channel ready.
fn nonblock_select_race_2<K: Kind>() {
    let done = Chan::new(1);
    for _ in 0..races::<K>() {
        let (c1, c2) = (Chan::new(1), Chan::<i32>::new(0));
        c1.send(1);
        {
            let (c1, c2, done) = (c1.clone(), c2.clone(), done.clone());
            K::go(move || {
                done.send(select! {
                    recv(c1) => true,
                    recv(c2) => true,
                    default => false,
                });
            });
        }
        c2.close();
        select! {
            recv(c1) => {}
            default => {}
        }
        assert_eq!(done.recv(), Some(true), "no channel is ready");
    }
}

/// Go: `TestSelfSelect`: a select that sends and receives on one channel without capacity does not receive its own value.
fn self_select<K: Kind>() {
    for capacity in [0, 10] {
        let done = Arc::new(WaitGroup::new());
        done.add(2);
        let c = Chan::new(capacity);
        for p in 0..2 {
            let (c, done) = (c.clone(), done.clone());
            K::go(move || {
                for i in 0..1000 {
                    if p == 0 || i % 2 == 0 {
                        select! {
                            send(c, p) => {}
                            recv(c) -> v => assert!(capacity > 0 || v != Some(p), "self receive"),
                        }
                    } else {
                        select! {
                            recv(c) -> v => assert!(capacity > 0 || v != Some(p), "self receive"),
                            send(c, p) => {}
                        }
                    }
                }
                done.done();
            });
        }
        done.wait();
    }
}

/// Go: `TestSelectStress`: four channels, with and without capacity; plain senders and receivers, and one select for
/// all sends and one for all receives. Each select drops a channel when that channel's share is done.
fn select_stress<K: Kind>() {
    const N: usize = 20_000;
    let c = [0, 0, 2, 3].map(Chan::<usize>::new);
    let done = Arc::new(WaitGroup::new());
    done.add(10);
    for ch in &c {
        let (sends, group) = (ch.clone(), done.clone());
        K::go(move || {
            (0..N).for_each(|_| sends.send(0));
            group.done();
        });
        let (receives, group) = (ch.clone(), done.clone());
        K::go(move || {
            (0..N).for_each(|_| assert!(receives.recv().is_some()));
            group.done();
        });
    }
    let (all, group) = (c.clone(), done.clone());
    K::go(move || {
        let (mut n, mut c1) = ([0; 4], all);
        for _ in 0..4 * N {
            let chosen = select! {
                send(c1[3], 0) => 3,
                send(c1[2], 0) => 2,
                send(c1[0], 0) => 0,
                send(c1[1], 0) => 1,
            };
            n[chosen] += 1;
            if n[chosen] == N {
                c1[chosen] = Chan::nil();
            }
        }
        group.done();
    });
    let (all, group) = (c, done.clone());
    K::go(move || {
        let (mut n, mut c1) = ([0; 4], all);
        for _ in 0..4 * N {
            let chosen = select! {
                recv(c1[0]) => 0,
                recv(c1[1]) => 1,
                recv(c1[2]) => 2,
                recv(c1[3]) => 3,
            };
            n[chosen] += 1;
            if n[chosen] == N {
                c1[chosen] = Chan::nil();
            }
        }
        group.done();
    });
    done.wait();
}

/// Go: `TestSelectFairness`: a select chooses each of two channels that are always ready equally often, within ten
/// deviations.
fn select_fairness<K: Kind>() {
    const TRIALS: usize = 10_000;
    let (c1, c2) = (Chan::new(TRIALS + 1), Chan::new(TRIALS + 1));
    for _ in 0..=TRIALS {
        c1.send(1);
        c2.send(2);
    }
    let (c3, c4, out, done) = (Chan::new(0), Chan::new(0), Chan::new(0), Chan::<()>::new(0));
    let finished = Arc::new(WaitGroup::new());
    finished.add(1);
    {
        let (out, done, finished) = (out.clone(), done.clone(), finished.clone());
        K::go(move || {
            loop {
                let b = select! {
                    recv(c3) -> m => m,
                    recv(c4) -> m => m,
                    recv(c1) -> m => m,
                    recv(c2) -> m => m,
                };
                select! {
                    send(out, b.unwrap()) => {}
                    recv(done) => break,
                }
            }
            finished.done();
        });
    }
    let first = (0..TRIALS).filter(|_| out.recv() == Some(1)).count();
    let deviation = 10.0 * (TRIALS as f64 * 0.25).sqrt();
    assert!((first as f64 - TRIALS as f64 / 2.0).abs() < deviation, "{first} of {TRIALS}");
    done.close();
    finished.wait();
}

/// Go: `TestChanSendInterface`: sends values of a type with a destructor by a send, by a nonblocking send, and by a
/// select.
fn chan_send_interface<K: Kind>() {
    let c: Chan<Box<dyn Any + Send>> = Chan::new(1);
    c.send(Box::new(String::from("value")));
    assert!(c.try_send(Box::new(1)).is_err());
    select! {
        send(c, Box::new(2)) => panic!("it is full"),
        send(c, Box::new(3)) => panic!("it is full"),
        default => {}
    }
    assert_eq!(*c.recv().unwrap().downcast::<String>().unwrap(), "value");
}

/// Go: `TestPseudoRandomSend`: a select that can send either of two values sends each at times.
fn pseudo_random_send<K: Kind>() {
    const N: usize = 100;
    for capacity in [0, N] {
        let c = Chan::new(capacity);
        let (values, ready) = (Arc::new(AtomicUsize::new(0)), Chan::new(0));
        {
            let (c, values, ready) = (c.clone(), values.clone(), ready.clone());
            K::go(move || {
                for _ in 0..N {
                    K::gosched();
                    values.fetch_add(c.recv().unwrap(), SeqCst);
                }
                ready.send(());
            });
        }
        for _ in 0..N {
            select! {
                send(c, 0) => {}
                send(c, 1) => {}
            }
        }
        ready.recv();
        let ones = values.load(SeqCst);
        assert!(ones > N / 10 && N - ones > N / 10, "{ones} of {N}");
    }
}

/// Go: `TestMultiConsumer`.
fn multi_consumer<K: Kind>() {
    const WORKERS: usize = 23;
    const N: usize = 27_182;
    const PRIMES: [usize; 8] = [2, 3, 7, 11, 13, 17, 19, 23];
    let (queue, results) = (Chan::new(WORKERS * 3), Chan::new(WORKERS * 3));
    let group = Arc::new(WaitGroup::new());
    for w in 0..WORKERS {
        group.add(1);
        let (queue, results, group) = (queue.clone(), results.clone(), group.clone());
        K::go(move || {
            for value in &queue {
                if PRIMES[w % PRIMES.len()].is_multiple_of(value % 7 + 2) {
                    K::gosched();
                }
                results.send(value);
            }
            group.done();
        });
    }
    let expected = Arc::new(AtomicU64::new(0));
    {
        let (queue, results, expected) = (queue, results.clone(), expected.clone());
        K::go(move || {
            for i in 0..N {
                let value = PRIMES[i % PRIMES.len()] * i;
                expected.fetch_add(value as u64, Relaxed);
                queue.send(value);
            }
            queue.close();
            group.wait();
            results.close();
        });
    }
    let received: Vec<_> = results.iter().collect();
    assert_eq!(received.len(), N);
    assert_eq!(received.iter().sum::<usize>() as u64, expected.load(Relaxed));
}

/// Go: `TestSelectDuplicateChannel`: a select that names one channel twice does not break the channel's queue for
/// another waiter behind it.
fn select_duplicate_channel<K: Kind>() {
    let (c, d, e) = (Chan::new(0), Chan::new(0), Chan::new(0));
    {
        let (c, d, e) = (c.clone(), d.clone(), e.clone());
        K::go(move || {
            select! {
                recv(c) => {}
                recv(c) => {}
                recv(d) => {}
            }
            e.send(9);
        });
    }
    K::until(|| c.waiting_receivers() == 2);
    {
        let c = c.clone();
        K::go(move || _ = c.recv());
    }
    K::until(|| c.waiting_receivers() == 3);
    d.send(7);
    assert_eq!(e.recv(), Some(9));
    c.send(8);
}

type Response = Chan<Arc<usize>>;

fn barrier<K: Kind>(use_select: bool) {
    const GOROUTINES: usize = 20;
    let rounds = if K::MANY > 100 { 2_000 } else { 20 };
    let group = Arc::new(WaitGroup::new());
    for _ in 0..GOROUTINES {
        group.add(1);
        let group = group.clone();
        K::go(move || {
            for i in 0..rounds {
                let (requests, responses): (Chan<Arc<usize>>, Response) = (Chan::new(0), Chan::new(0));
                let (r, s) = (requests.clone(), responses.clone());
                K::go(move || s.send(r.recv().unwrap()));
                if use_select {
                    select! {
                        send(requests, Arc::new(i)) => {}
                    }
                    select! {
                        recv(responses) -> got => assert_eq!(*got.unwrap(), i),
                    }
                } else {
                    requests.send(Arc::new(i));
                    assert_eq!(*responses.recv().unwrap(), i);
                }
            }
            group.done();
        });
    }
    group.wait();
}

/// Go: `TestChanSendBarrier`.
fn chan_send_barrier<K: Kind>() {
    barrier::<K>(false);
}

/// Go: `TestChanSendSelectBarrier`.
fn chan_send_select_barrier<K: Kind>() {
    barrier::<K>(true);
}

/// Go: `test/chan/select2.go`: the losing cases of many selects leave no waiters behind.
fn select_2<K: Kind>() {
    let (c, dummy) = (Chan::new(0), Chan::<usize>::new(0));
    let n = 10_000;
    {
        let (c, dummy) = (c.clone(), dummy.clone());
        K::go(move || {
            for i in 0..n {
                select! {
                    send(c, i) => {}
                    recv(dummy) => panic!("no value was sent"),
                }
            }
        });
    }
    for i in 0..n {
        assert_eq!(c.recv(), Some(i));
        assert!(dummy.waiting_receivers() <= 1);
    }
    K::until(|| dummy.waiting_receivers() == 0);
}

/// Go: `test/chan/select3.go`: the operations that wait, and the operations that do not.
fn select_3<K: Kind>() {
    fn blocks<K: Kind>(f: impl FnOnce(Duration) -> bool) {
        // The operation waits until its limit.
        assert!(f(Duration::from_millis(5)), "it does not wait");
    }
    let nil = Chan::<i32>::nil();
    let closed = Chan::<i32>::new(0);
    closed.close();
    blocks::<K>(|d| nil.recv_limited(d).is_err());
    blocks::<K>(|d| nil.send_limited(7, d).is_err());
    assert_eq!(panic_of(|| closed.send(7)), "send on closed channel");
    assert_eq!(closed.recv(), None);
    // A channel without capacity and without a partner, and a full channel.
    let (ch, full) = (Chan::new(0), Chan::new(1));
    full.send(1);
    blocks::<K>(|d| ch.recv_limited(d).is_err());
    blocks::<K>(|d| ch.send_limited(7, d).is_err());
    blocks::<K>(|d| full.send_limited(7, d).is_err());
    assert_eq!(full.recv(), Some(1));
    blocks::<K>(|d| full.recv_limited(d).is_err());
    full.send(7);
    // Selects.
    blocks::<K>(|d| select! { default(d) => true });
    select! { default => {} }
    blocks::<K>(|d| select! { recv(nil) => false, send(nil, 7) => false, default(d) => true });
    select! {
        recv(nil) => panic!("nil is never ready"),
        send(nil, 7) => panic!("nil is never ready"),
        default => {}
    }
    select! { recv(closed) -> value => assert_eq!(value, None) }
    assert_eq!(panic_of(|| select! { send(closed, 7) => {} }), "send on closed channel");
    assert_eq!(panic_of(|| select! { send(closed, 7) => {}, recv(nil) => {} }), "send on closed channel");
    blocks::<K>(|d| select! { recv(ch) => false, send(ch, 7) => false, default(d) => true });
    select! { send(full, 8) => panic!("it is full"), recv(full) -> value => assert_eq!(value, Some(7)) }
}

/// Go: `test/chan/select4.go`: a select runs a case that is ready although another case blocks.
fn select_4<K: Kind>() {
    let (c, blocked) = (Chan::new(1), Chan::<i32>::new(0));
    c.send(42);
    select! {
        recv(blocked) => panic!("no value was sent"),
        recv(c) -> value => assert_eq!(value, Some(42)),
    }
}

/// Go: `test/chan/select5.go`: channels and values are evaluated once, in the order of the source, whichever case is
/// chosen.
fn select_5_evaluation_order<K: Kind>() {
    let ready = Chan::new(1);
    ready.send(0);
    let never = Chan::<i32>::nil();
    let mut order = Vec::new();
    let mut seen = |what, chan: &Chan<i32>| {
        order.push(what);
        chan.clone()
    };
    let mut values = 0;
    select! {
        recv(seen("a", &never)) => unreachable!(),
        send(seen("b", &never), { values += 1; values }) => unreachable!(),
        recv(seen("c", &ready)) => {}
        recv(seen("d", &never)) => unreachable!(),
    }
    assert_eq!((order.as_slice(), values), (&["a", "b", "c", "d"][..], 1));
}

/// Go: `test/chan/select6.go`, issue 2075: a losing case does not break the queue of its channel.
fn select_6<K: Kind>() {
    let (c1, c2, c3, c4) = (Chan::<bool>::new(0), Chan::new(0), Chan::<bool>::new(0), Chan::new(0));
    for ch in [&c1, &c1] {
        let ch = ch.clone();
        K::go(move || _ = ch.recv());
    }
    K::until(|| c1.waiting_receivers() == 2);
    {
        let (c1, c2, c3) = (c1.clone(), c2.clone(), c3.clone());
        K::go(move || {
            select! {
                recv(c1) => panic!("it has nothing yet"),
                recv(c2) => c3.send(true),
            }
        });
    }
    K::until(|| c1.waiting_receivers() == 3);
    {
        let (c1, c4) = (c1.clone(), c4.clone());
        K::go(move || {
            c1.recv();
            c4.send(true);
        });
    }
    K::until(|| c1.waiting_receivers() == 4);
    c2.send(true);
    c3.recv();
    (0..3).for_each(|_| c1.send(true));
    c4.recv();
}

/// Go: `test/chan/doubleselect.go`: a select on four channels sends each value once.
fn double_select<K: Kind>() {
    const N: usize = 20_000;
    let c = [(); 4].map(|()| Chan::<usize>::new(0));
    let (done, received) = (Chan::new(0), Chan::new(0));
    {
        let c = c.clone();
        K::go(move || {
            for i in 0..N {
                select! {
                    send(c[0], i) => {}
                    send(c[1], i) => {}
                    send(c[2], i) => {}
                    send(c[3], i) => {}
                }
            }
            c.iter().for_each(Chan::close);
        });
    }
    for ch in c {
        let (done, received) = (done.clone(), received.clone());
        K::go(move || {
            ch.iter().for_each(|value| received.send(value));
            done.send(());
        });
    }
    {
        let received = received.clone();
        K::go(move || {
            (0..4).for_each(|_| _ = done.recv());
            received.close();
        });
    }
    let mut seen = vec![false; N];
    received.iter().for_each(|value| assert!(!std::mem::replace(&mut seen[value], true), "received twice"));
    assert!(seen.into_iter().all(|seen| seen));
}

/// Go: `test/chan/fifo.go`.
fn fifo<K: Kind>() {
    const N: usize = 10;
    let asynchronous = Chan::new(N);
    (0..N).for_each(|i| asynchronous.send(i));
    (0..N).for_each(|i| assert_eq!(asynchronous.recv(), Some(i)));
    // Each goroutine waits for the goroutine before it, then takes its value.
    let ch = Chan::new(0);
    let first = Chan::new(0);
    let mut input = first.clone();
    for i in 0..N {
        let output = Chan::new(0);
        let (ch, wait, next) = (ch.clone(), input, output.clone());
        K::go(move || {
            wait.recv();
            assert_eq!(ch.recv(), Some(i));
            next.send(());
        });
        input = output;
    }
    first.send(());
    (0..N).for_each(|i| ch.send(i));
    input.recv();
}

/// Go: `test/chan/goroutines.go`: a chain of goroutines, each of which adds 1.
fn daisy_chain<K: Kind>() {
    let n = if K::MANY > 100 { 5_000 } else { 100 };
    let leftmost = Chan::new(0);
    let mut right = leftmost.clone();
    for _ in 0..n {
        let left = right;
        right = Chan::new(0);
        let source = right.clone();
        K::go(move || left.send(source.recv().unwrap() + 1));
    }
    K::go(move || right.send(0));
    assert_eq!(leftmost.recv(), Some(n));
}

/// Go: `test/chan/nonblock.go`.
fn nonblock<K: Kind>() {
    for capacity in [0, 1] {
        let (ch, sync) = (Chan::new(capacity), Chan::new(0));
        assert_eq!(ch.try_recv(), Err(TryRecvError::Empty));
        {
            let (ch, sync) = (ch.clone(), sync.clone());
            K::go(move || {
                assert_eq!(ch.recv(), Some(123));
                sync.send(());
            });
        }
        K::until(|| ch.waiting_receivers() == 1);
        assert_eq!(ch.try_send(123), Ok(()));
        sync.recv();
        {
            let ch = ch.clone();
            K::go(move || ch.send(234));
        }
        K::until(|| ch.waiting_senders() + ch.len() == 1);
        assert_eq!(ch.try_recv(), Ok(234));
        assert_eq!(ch.try_send(345), if capacity == 0 { Err(345) } else { Ok(()) });
    }
}

/// Go: `test/chan/sieve1.go`.
fn sieve<K: Kind>() {
    const PRIMES: [u32; 25] =
        [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97];
    fn filter(input: &RecvOnly<u32>, output: &SendOnly<u32>, prime: u32) {
        input.iter().filter(|n| n % prime != 0).for_each(|n| output.send(n));
        output.close();
    }
    let numbers = Chan::new(0);
    let generate = numbers.send_only();
    K::go(move || {
        (2..100).for_each(|n| generate.send(n));
        generate.close();
    });
    let mut input = numbers.recv_only();
    let mut primes = Vec::new();
    while let Some(prime) = input.recv() {
        primes.push(prime);
        let filtered = Chan::new(0);
        let output = filtered.send_only();
        K::go(move || filter(&input, &output, prime));
        input = filtered.recv_only();
    }
    assert_eq!(primes, PRIMES);
}

/// Go: `test/chan/zerosize.go`.
fn zero_size<K: Kind>() {
    let ch = Chan::new(usize::MAX >> 8);
    (0..1000).for_each(|_| ch.send(()));
    assert_eq!(ch.len(), 1000);
    assert_eq!(ch.try_iter().count(), 1000);
}

/// Checks that the panics of misuse have Go's texts.
fn misuse<K: Kind>() {
    let ch = Chan::new(0);
    let sender = ch.clone();
    let panicked = Chan::new(1);
    {
        let panicked = panicked.clone();
        K::go(move || panicked.send(panic_of(|| sender.send(1))));
    }
    K::until(|| ch.waiting_senders() == 1);
    ch.close();
    assert_eq!(panicked.recv().unwrap(), "send on closed channel", "also if it waits");
    assert_eq!(panic_of(|| ch.send(1)), "send on closed channel");
    assert_eq!(panic_of(|| _ = ch.try_send(1)), "send on closed channel");
    assert_eq!(panic_of(|| ch.close()), "close of closed channel");
    assert_eq!(panic_of(|| Chan::<u32>::nil().close()), "close of nil channel");
    assert_eq!(panic_of(|| _ = Chan::<u64>::new(usize::MAX)), "makechan: size out of range");
    assert_eq!(panic_of(|| _ = channel::<u64>(usize::MAX / 8)), "makechan: size out of range");
    assert_eq!(panic_of(|| _ = Chan::<()>::new(usize::MAX)), "makechan: size out of range");
    let never = Chan::<()>::nil();
    let mut select = Select::<()>::new();
    (0..65536).for_each(|_| _ = select.recv(&never, drop));
    assert_eq!(panic_of(|| _ = select.recv(&never, drop)), "reflect.Select: too many cases (max 65536)");
    assert_eq!(select.try_now(), None);
}

fn nil_channels<K: Kind>() {
    let nil = Chan::<u32>::default();
    assert_eq!((nil.len(), nil.capacity(), nil.is_nil()), (0, 0, true));
    assert_eq!(nil.try_send(1), Err(1));
    assert_eq!(nil.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(nil, Chan::nil());
    assert_ne!(nil, Chan::new(0));
    let ch = Chan::<u32>::new(0);
    assert_eq!(ch, ch.clone());
    let none: Option<Chan<u32>> = None;
    select! {
        recv(none) => panic!("never ready"),
        send(none, 1) => panic!("never ready"),
        recv(Some(&nil)) => panic!("never ready"),
        default => {}
    }
}
