//! Reports of what keeps goroutines waiting that could run.
//!
//! | report | when |
//! |---|---|
//! | a goroutine holds its worker | it has run for [`LONG`] without a switch, and another goroutine of the worker could run |
//! | all threads for blocking calls are taken | a call has to wait for one |
//!
//! They are made in builds with debug assertions, unless `SUDOG_STALLS` is `0`; and in all builds if it is set to anything
//! else. They are lines on standard error.

use std::sync::OnceLock;

use crate::fatal::say;

const VARIABLE: &str = "SUDOG_STALLS";

/// Whether reports are made. Asked once.
pub(crate) fn is_reported() -> bool {
    static REPORTED: OnceLock<bool> = OnceLock::new();
    *REPORTED.get_or_init(|| match std::env::var_os(VARIABLE) {
        Some(value) => value != "0" && !value.is_empty(),
        None => cfg!(debug_assertions),
    })
}

/// A call has to wait, as there are so many under way.
#[cold]
pub(crate) fn all_threads_are_taken(limit: usize) {
    if is_reported() {
        say(&format!(
            "sudog: all {limit} threads for blocking calls are taken, and a call waits; see set_max_blocking\n"
        ));
    }
}
