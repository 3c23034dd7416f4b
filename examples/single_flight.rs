//! x/sync's `singleflight`: of many goroutines that ask for the same key, a single goroutine does the work. No stampede
//! on the cache.
//!
//! `cargo run --example single_flight`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sudog::prelude::*;
use sudog::synctest;
use sudog::time::sleep;
use sudog::x::SingleFlight;

fn main() {
    // Run in a bubble, where the look-up's second passes at once.
    let look_ups = synctest::test(|| {
        let (flights, look_ups) = (Arc::new(SingleFlight::new()), Arc::new(AtomicU32::new(0)));
        let askers: Vec<_> = (0..100)
            .map(|n| {
                let (flights, look_ups) = (flights.clone(), look_ups.clone());
                spawn(move || {
                    let key = if n % 2 == 0 { "even" } else { "odd" };
                    let flight = flights.do_(key, || {
                        look_ups.fetch_add(1, Ordering::Relaxed);
                        sleep(Duration::from_secs(1));
                        Ok::<_, ()>(key.len())
                    });
                    flight.result.map(|length| length == key.len())
                })
            })
            .collect();
        for asker in askers {
            assert!(asker.join().expect("no panic").expect("no error"));
        }
        look_ups.load(Ordering::Relaxed)
    });
    println!("a hundred questions, {look_ups} look-ups");
    assert_eq!(look_ups, 2);
}
