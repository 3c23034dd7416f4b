//! Channels of goroutines and threads, and the channels of `sudog::csp`. Apart from `goroutine`, as each takes a minute to build.
#![cfg(all(unix, not(sudog_loom)))]

mod chan;
mod csp;
mod select_future;

#[cfg(target_os = "linux")]
#[path = "../support/stall_reports.rs"]
mod stall_reports;
