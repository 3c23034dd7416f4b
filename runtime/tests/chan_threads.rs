//! Threads on channels, with payloads that are not atomic: for the sanitizers, which do not follow goroutines.
//!
//! ```text
//! RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!     cargo test --target x86_64-unknown-linux-gnu -p sudog-runtime --test chan_threads
//! ```
#![cfg(not(sudog_loom))]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog_runtime::chan::{Chan, channel, select, unbounded};
use sudog_runtime::sema::{Cancel, WaitLimit};

/// A value that is written by its sender, and read and written by its receiver.
type Payload = Box<[usize; 4]>;

const N: usize = 3_000;

#[test]
fn values_go_from_thread_to_thread() {
    for capacity in [Some(0), Some(1), Some(7), None] {
        let (tx, rx) = capacity.map_or_else(unbounded::<Payload>, channel);
        let (other_tx, other_rx) = capacity.map_or_else(unbounded::<Payload>, |n| channel(n / 2));
        let (sent, got) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stops = [const { Cancel::new() }; 8];
        thread::scope(|s| {
            for form in 0..4 {
                let (tx, other, sent, stops) = (tx.clone(), other_tx.clone(), &sent, &stops);
                s.spawn(move || {
                    for n in 0..N {
                        let payload = Box::new([n; 4]);
                        let done = match form {
                            0 => tx.send(payload).is_ok(),
                            1 => select! {
                                send(tx, payload) -> sent => sent.is_ok(),
                                send(other, Box::new([n; 4])) -> sent => sent.is_ok(),
                            },
                            2 => tx.send_limited(payload, Duration::from_micros(n as u64 % 30)).is_ok(),
                            _ => {
                                let limit = WaitLimit { deadline: None, cancel: Some(&stops[n * 8 / N]) };
                                other.send_limited(payload, &limit).is_ok()
                            }
                        };
                        sent.fetch_add(usize::from(done), Relaxed);
                    }
                });
            }
            drop((tx, other_tx));
            for form in 0..4 {
                let (rx, other, got, stops) = (rx.clone(), other_rx.clone(), &got, &stops);
                s.spawn(move || {
                    let keep = |payload: Payload| {
                        let mut payload = payload;
                        payload[0] += 1;
                        assert_eq!(payload[0], payload[3] + 1);
                        got.fetch_add(1, Relaxed);
                    };
                    for n in 0.. {
                        let soon = Instant::now() + Duration::from_micros(n % 30);
                        let received = match form {
                            0 => rx.recv().map_err(|_| rx.is_closed()),
                            1 => select! {
                                recv(rx) -> payload => payload.map_err(|_| true),
                                recv(other) -> payload => payload.map_err(|_| rx.is_closed()),
                            },
                            2 => match pin!(rx.recv_async()).poll(&mut Context::from_waker(Waker::noop())) {
                                Poll::Ready(payload) => payload.map_err(|_| true),
                                Poll::Pending => Err(false),
                            },
                            _ => other.recv_limited(soon).map_err(|_| other.is_closed() && other.is_empty()),
                        };
                        match received {
                            Ok(payload) => keep(payload),
                            Err(true) => break,
                            Err(false) => thread::yield_now(),
                        }
                        if n % 1000 == 0 {
                            stops[(n as usize / 1000).min(7)].cancel();
                        }
                    }
                    rx.iter().for_each(keep);
                    other.iter().for_each(keep);
                });
            }
            drop((rx, other_rx));
        });
        assert_eq!(sent.load(Relaxed), got.load(Relaxed));
    }
}

#[test]
fn a_close_is_seen_with_all_that_came_before() {
    for _ in 0..300 {
        let ch = Chan::<()>::new(0);
        let mut before = 0;
        let at: *mut u32 = &raw mut before;
        let at = at.expose_provenance();
        // A sanitizer does not see the end of a scope, so count the threads that have ended.
        let over = AtomicUsize::new(0);
        thread::scope(|s| {
            for form in 0..3 {
                let (ch, over) = (&ch, &over);
                s.spawn(move || {
                    match form {
                        0 => assert_eq!(ch.recv(), None),
                        1 => select! { recv(ch) -> end => assert_eq!(end, None) },
                        _ => while ch.try_recv() != Err(sudog_runtime::chan::TryRecvError::Closed) {},
                    }
                    // SAFETY: `before` is alive until the scope ends, and is written only before the close, which this
                    // thread has seen.
                    assert_eq!(unsafe { *std::ptr::with_exposed_provenance::<u32>(at) }, 1);
                    over.fetch_add(1, Release);
                });
            }
            // SAFETY: `before` is alive, and the threads read it only after the close below.
            unsafe { *std::ptr::with_exposed_provenance_mut::<u32>(at) = 1 };
            ch.close();
            while over.load(Acquire) < 3 {
                thread::yield_now();
            }
        });
    }
}
