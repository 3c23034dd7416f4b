//! No wait on a channel allocates, not even the first wait of a thread; nor does the end of a wait, nor a select.
#![cfg(all(unix, not(sudog_loom)))]

use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::{Chan, select};
use sudog::{Cancel, WaitError, WaitLimit};
use support::counting::without_allocating;
use support::{Watchdog, eventually};

#[test]
fn sends_and_receives() {
    let _watchdog = Watchdog::new();
    for capacity in [0, 1] {
        let (ch, back) = (Chan::new(capacity), Chan::new(capacity));
        thread::scope(|s| {
            s.spawn(|| {
                without_allocating(|| {
                    while let Some(n) = ch.recv() {
                        back.send(n + 1);
                    }
                    back.close();
                });
            });
            s.spawn(|| {
                without_allocating(|| {
                    for n in 0..100 {
                        ch.send(n);
                        assert_eq!(back.recv(), Some(n + 1));
                    }
                    ch.close();
                    assert_eq!(back.recv(), None);
                });
            });
        });
    }
}

#[test]
fn selects() {
    let _watchdog = Watchdog::new();
    let (a, b, quit) = (Chan::new(0), Chan::new(0), Chan::<()>::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            without_allocating(|| {
                loop {
                    select! {
                        recv(a) -> n => b.send(n.unwrap()),
                        recv(quit) => break,
                    }
                }
            });
        });
        s.spawn(|| {
            without_allocating(|| {
                for n in 0..100 {
                    select! {
                        send(a, n) => {}
                        recv(quit) => {}
                    }
                    assert_eq!(b.recv(), Some(n));
                }
                quit.close();
            });
        });
    });
}

#[test]
fn limits() {
    let _watchdog = Watchdog::new();
    let (ch, stop) = (Chan::<u32>::new(0), Cancel::new());
    thread::scope(|s| {
        s.spawn(|| {
            without_allocating(|| {
                let soon = Instant::now() + Duration::from_millis(2);
                assert_eq!(ch.recv_limited(soon), Err(WaitError::TimedOut));
                let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
                assert_eq!(ch.recv_limited(&limit), Err(WaitError::Cancelled));
            });
        });
        eventually(|| ch.waiting_receivers() == 1);
        stop.cancel();
    });
}
