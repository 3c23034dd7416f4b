//! Go by Example: "Timers", "Tickers", "Timeouts" and "Non-Blocking Channel Operations"; in a bubble, whose clock jumps.
//!
//! `cargo run --example tickers_and_timers`

use std::time::Duration;

use sudog::chan::{Chan, select};
use sudog::prelude::*;
use sudog::synctest;
use sudog::time::{self, Ticker, Timer, now, sleep};

const SECOND: Duration = Duration::from_secs(1);

fn timers() {
    let begun = now();
    let first = time::after(2 * SECOND);
    first.recv();
    println!("timer 1 fired after {:?}", now() - begun);
    assert_eq!(now() - begun, 2 * SECOND);
    let second = Timer::new(SECOND);
    assert!(second.stop());
    println!("timer 2 stopped");
}

fn tickers() {
    let begun = now();
    let ticker = Ticker::new(SECOND / 2);
    let done = time::after(SECOND * 8 / 5);
    let mut ticks = 0;
    loop {
        let over = select! {
            recv(done) => true,
            recv(ticker) -> _ => {
                ticks += 1;
                false
            },
        };
        if over {
            break;
        }
        println!("tick at {:?}", now() - begun);
    }
    assert_eq!(ticks, 3);
}

fn timeouts() {
    let results = Chan::new(1);
    go!(clone results; {
        sleep(2 * SECOND);
        results.send("a result");
    });
    let early = select! {
        recv(results) -> result => result,
        recv(time::after(SECOND)) => Some("timeout 1"),
    };
    assert_eq!(early, Some("timeout 1"));
    let late = select! {
        recv(results) -> result => result,
        default(3 * SECOND) => Some("timeout 2"),
    };
    assert_eq!(late, Some("a result"));
}

fn non_blocking() {
    let messages = Chan::<&str>::new(0);
    let text = select! {
        recv(messages) -> message => message.unwrap_or("closed"),
        default => "no message",
    };
    let sent = select! {
        send(messages, "hi") => true,
        default => false, // no receiver, and no buffer
    };
    assert_eq!((text, sent), ("no message", false));
}

fn main() {
    synctest::test(|| {
        timers();
        tickers();
        timeouts();
        non_blocking();
    });
}
