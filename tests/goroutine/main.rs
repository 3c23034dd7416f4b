//! Goroutines, timers and tasks. Apart from `behaviour`, because some of these tests set the number of workers, or
//! keep them busy; those take turns (`support::goroutine::alone`).
#![cfg(all(unix, not(sudog_loom)))]

mod basics;
mod compute;
mod coop;
mod dump;
mod edges;
mod fair;
mod large;
mod safepoints;
mod scope;
mod sync;
mod synctest;
mod tasks;
mod time;
mod together;
mod user_code;
mod waiting_array;
mod yields;

#[cfg(target_os = "linux")]
#[path = "../support/stall_reports.rs"]
mod stall_reports;
