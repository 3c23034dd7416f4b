//! Requests at a steady rate: a ticker lets a request through every millisecond. After Go by Example, "Rate Limiting".
//!
//! `cargo run --example rate_limit`

use std::time::{Duration, Instant};

use sudog::time::Ticker;

const PERIOD: Duration = Duration::from_millis(1);
const REQUESTS: u32 = 20;

fn main() {
    let took = sudog::run(|| {
        let limiter = Ticker::new(PERIOD);
        let start = Instant::now();
        for request in 1..=REQUESTS {
            limiter.recv();
            println!("request {request} after {:?}", start.elapsed());
        }
        start.elapsed()
    });
    // A ticker drops ticks for a slow receiver and never comes early: the last request has waited for all but one period.
    assert!(took >= PERIOD * (REQUESTS - 1), "{took:?}");
}
