//! Channels without a bound, on threads: the order of values at the ends of segments, and memory.
#![cfg(not(sudog_loom))]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use proptest::prelude::*;
use sudog_runtime::chan::{SendError, TryRecvError, TrySendError, select, unbounded};
use support::counting::without_allocating;

#[test]
fn a_receiver_waits_for_senders_that_never_wait() {
    const N: usize = 10_000;
    let (tx, rx) = unbounded();
    let received: Vec<_> = thread::scope(|s| {
        for sender in 0..3 {
            let tx = tx.clone();
            s.spawn(move || (0..N).for_each(|n| tx.send((sender, n)).unwrap()));
        }
        drop(tx);
        rx.iter().collect()
    });
    assert_eq!(received.len(), 3 * N);
    for sender in 0..3 {
        let of_sender = received.iter().filter(|value| value.0 == sender).map(|value| value.1);
        assert!(of_sender.eq(0..N), "in the order of their sender");
    }
}

#[test]
fn every_way_to_send_finds_room() {
    let (tx, rx) = unbounded();
    for n in 0..200 {
        match n % 4 {
            0 => tx.try_send(n).unwrap(),
            1 => select! { send(tx, n) -> sent => sent.unwrap(), default => panic!("a send is always ready") },
            2 => tx.try_reserve().expect("a place").send(n).unwrap(),
            _ => {
                let polled = pin!(tx.send_async(n)).poll(&mut Context::from_waker(Waker::noop()));
                assert_eq!(polled, Poll::Ready(Ok(())));
            }
        }
    }
    assert_eq!((tx.len(), tx.is_full()), (200, false));
    assert!(rx.try_iter().eq(0..200));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn values_that_nobody_receives_are_dropped_once() {
    let value = Arc::new(());
    let (tx, rx) = unbounded();
    let fill = || (0..100).for_each(|_| tx.send(value.clone()).unwrap());
    fill();
    rx.try_iter().take(50).for_each(drop);
    fill();
    assert_eq!(Arc::strong_count(&value), 151);
    drop(rx);
    assert_eq!(Arc::strong_count(&value), 1);
    assert_eq!(tx.send(value.clone()), Err(SendError(value.clone())));
    assert_eq!(tx.try_send(value.clone()), Err(TrySendError::Closed(value.clone())));
}

#[test]
fn a_short_queue_allocates_nothing() {
    for len in [1, 31, 32, 33, 64, 100] {
        let (tx, rx) = unbounded();
        let turn = || {
            rx.recv().unwrap();
            tx.send([0_u64; 4]).unwrap();
        };
        (0..len).for_each(|_| tx.send([0; 4]).unwrap());
        (0..1_000).for_each(|_| turn());
        without_allocating(|| (0..1_000).for_each(|_| turn()));
        assert_eq!(rx.len(), len);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Sends some values, then receives some, and so on.
    #[test]
    fn a_queue(rounds in proptest::collection::vec((0..100_usize, 0..100_usize), 1..20)) {
        let (tx, rx) = unbounded();
        let mut model = VecDeque::new();
        let mut next = 0;
        for (sends, receives) in rounds {
            for _ in 0..sends {
                tx.send(Box::new(next)).unwrap();
                model.push_back(next);
                next += 1;
            }
            for _ in 0..receives {
                prop_assert_eq!(rx.try_recv().ok().map(|value| *value), model.pop_front());
            }
            prop_assert_eq!(rx.len(), model.len());
        }
        drop(tx);
        prop_assert!(rx.into_iter().map(|value| *value).eq(model));
    }
}
