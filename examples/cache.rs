//! A cache that computes each missing page once: many goroutines ask for the same page, and a single goroutine fetches
//! the page.
//!
//! `cargo run --example cache`

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sudog::prelude::*;
use sudog::x::SingleFlight;

static PAGES: Map<u32, String> = Map::new();
static FLIGHTS: SingleFlight<u32, String, Infallible> = SingleFlight::new();
static FETCHES: AtomicUsize = AtomicUsize::new(0);

fn fetch(id: u32) -> String {
    FETCHES.fetch_add(1, Relaxed);
    sleep(Duration::from_millis(5));
    format!("page {id}")
}

fn page(id: u32) -> String {
    if let Some(page) = PAGES.load(&id) {
        return page;
    }
    let flight = FLIGHTS.do_(id, move || {
        // Look again: a flight that has just ended may have stored the page.
        Ok(PAGES.load(&id).unwrap_or_else(|| {
            let page = fetch(id);
            PAGES.store(id, page.clone());
            page
        }))
    });
    flight.result.unwrap()
}

fn main() {
    sudog::run(|| {
        let done = Arc::new(WaitGroup::new());
        for n in 0..100 {
            done.go(move || assert_eq!(page(n % 2), format!("page {}", n % 2)));
        }
        done.wait();
    });
    println!("100 requests for 2 pages: {} fetches", FETCHES.load(Relaxed));
    assert_eq!(FETCHES.load(Relaxed), 2);
}
