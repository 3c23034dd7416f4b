//! What a thread has lately seen of mutexes, whichever they were. Hints: nothing but speed hangs on them.
//!
//! Goroutines share those of their worker.

use std::cell::Cell;

use sudog_runtime::{G, safepoint};

use super::policy::{Policy, SpinStrategy};

struct Lately {
    /// An unlock left somebody waiting, and no lock has found its mutex free of others since.
    contended: Cell<bool>,
    /// How many unlocks left somebody waiting awake, since a contender of this thread last had to stand by.
    kept: Cell<u32>,
}

thread_local! {
    static LATELY: Lately = const { Lately { contended: Cell::new(false), kept: Cell::new(0) } };
}

/// A model must not hang on what was before it.
const MODEL: bool = cfg!(sudog_loom);

/// An unlock has left somebody waiting.
#[inline(always)]
pub(super) fn note_contention() {
    LATELY.with(|lately| lately.contended.set(true));
}

/// Hands out the guess whether the next mutex to be locked has others waiting for it, to be used and renewed.
#[inline(always)]
pub(super) fn guess<T>(lock: impl FnOnce(&Cell<bool>) -> T) -> T {
    if MODEL { lock(&Cell::new(true)) } else { LATELY.with(|lately| lock(&lately.contended)) }
}

/// Whether this thread, which must wait now, has *not* kept a mutex from somebody for many turns since it last waited.
/// Those who do so meet others who do. Starts the count anew.
pub(super) fn is_quick() -> bool {
    const TURNS: u32 = 64;
    !MODEL && LATELY.with(|lately| lately.kept.replace(0)) < TURNS
}

/// An owner has unlocked a mutex that somebody awake is waiting for, and may be about to lock it again: once in a while
/// it lets its processor run somebody else.
#[inline(always)]
pub(super) fn give_way_at_times<P: Policy>() {
    if !MODEL {
        let kept = LATELY.with(|lately| {
            let kept = lately.kept.get().wrapping_add(1);
            lately.kept.set(kept);
            kept
        });
        if kept.is_multiple_of(OFTEN) {
            give_way::<P>(kept);
        }
    }
}

/// How often a goroutine looks whether it has had its slice: the one who waits may be on its worker.
const OFTEN: u32 = 64;

/// How often a thread yields its processor: the one who waits may have been put there behind it, and the scheduler
/// would leave it there for milliseconds.
const RARELY: u32 = 8192;

#[cold]
fn give_way<P: Policy>(kept: u32) {
    if G::is_goroutine() {
        safepoint();
    } else if matches!(P::STRATEGY, SpinStrategy::Successor { .. }) && kept.is_multiple_of(RARELY) {
        G::yield_now();
    }
}
