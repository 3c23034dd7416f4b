//! Hints from a thread's recent use of mutexes, kept for all mutexes together. Only speed depends on these hints.
//!
//! | hints | used by |
//! |---|---|
//! | `contended`, `held_streak`, `turns_from` | `mutex/contention_hint.rs` |
//! | `yields_to_skip`, `skipped` | `mutex/yielding.rs` |
//! | `writes_in_turn`, which `mutex/contention_hint.rs` reads; reads `contended` | `rw_mutex/write_hint.rs` |
//!
//! All goroutines of a worker share the hints of the worker's thread. All hints of a thread are in a single
//! thread-local, so that a path that reads two hints computes a single address.

use std::cell::Cell;

use sudog_runtime::Instant;
use sudog_runtime::shim::system;

pub(crate) struct ThreadHints {
    /// True if an unlock of this thread has left contenders behind, and since then no lock of this thread has found its
    /// mutex without contenders.
    pub(crate) contended: Cell<bool>,
    /// The number of unlocks that left a designated waker behind since a contender of this thread last entered the slow
    /// path.
    pub(crate) held_streak: Cell<u32>,
    /// The time at which a contender of this thread last read the clock as it waited.
    pub(crate) turns_from: Cell<Option<Instant>>,
    /// The number of yields of the processor to leave out, because the last yields have cost a slice.
    pub(crate) yields_to_skip: Cell<u32>,
    /// The number of yields that were left out after the last yield that has cost a slice; 0 if the last yield was
    /// cheap.
    pub(crate) skipped: Cell<u32>,
    /// The number of further writes that must meet no other thread until the next write is expected to meet none. The
    /// top bit is a flag of `rw_mutex/write_hint.rs`.
    pub(crate) writes_in_turn: Cell<u32>,
}

system::thread_local! {
    pub(crate) static HINTS: ThreadHints = const {
        ThreadHints {
            contended: Cell::new(false),
            held_streak: Cell::new(0),
            turns_from: Cell::new(None),
            yields_to_skip: Cell::new(0),
            skipped: Cell::new(0),
            writes_in_turn: Cell::new(0),
        }
    };
}

/// True in a build for loom: a model must not depend on the hints of earlier models.
pub(crate) const MODEL: bool = cfg!(sudog_loom);
