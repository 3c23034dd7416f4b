//! The two orders of a select's cases: the shuffled order, in which the cases are polled, and the order of the locks.

use std::cell::Cell;

use super::case::CaseRef;
use crate::chan::raw::Raw;
use crate::shim::system;

/// The maximum number of cases of a select, as in Go.
pub const MAX_CASES: usize = 1 << 16;

/// The two orders of the cases that can be ready at all, as indices of the cases. A case of a nil channel is in neither
/// order.
pub(super) struct Order<'s> {
    polls: &'s [u16],
    locks: &'s [u16],
    what: Option<&'static str>,
}

impl<'s> Order<'s> {
    /// Shuffles the cases that can be ready at all: those whose channel is not nil. Returns the indices of these cases,
    /// which are stored in `polls`.
    ///
    /// # Panics
    ///
    /// Panics if there are more than [`MAX_CASES`] cases, or if `polls` is too short.
    #[inline]
    pub(super) fn shuffle(cases: &[CaseRef<'_>], polls: &'s mut [u16]) -> &'s [u16] {
        Self::shuffle_those(cases, polls, |_, case| case.raw.is_some())
    }

    /// Shuffles the cases for which `wanted` returns true, as [`Order::shuffle`] does, and returns their indices.
    #[inline]
    pub(super) fn shuffle_those(
        cases: &[CaseRef<'_>],
        polls: &'s mut [u16],
        wanted: impl Fn(usize, &CaseRef<'_>) -> bool,
    ) -> &'s [u16] {
        assert!(cases.len() <= MAX_CASES, "too many cases");
        let mut n = 0;
        for (index, _) in cases.iter().enumerate().filter(|&(index, case)| wanted(index, case)) {
            // Fisher and Yates, from the inside out: all orders are equally likely.
            let at = random_below(n as u32 + 1) as usize;
            polls[n] = polls[at];
            polls[at] = index as u16;
            n += 1;
        }
        &polls[..n]
    }

    /// Returns both orders of the cases. `polls` has the cases that [`Order::shuffle`] has shuffled. Stores these cases
    /// in `locks`, too, in the order in which the channels are locked.
    ///
    /// # Panics
    ///
    /// Panics if `locks` is shorter than `polls`.
    #[inline]
    pub(super) fn new(cases: &[CaseRef<'_>], polls: &'s [u16], locks: &'s mut [u16]) -> Self {
        let n = polls.len();
        // Copy the shuffled order, then sort. The sort need not be stable: two cases of the same channel may be queued
        // in any order.
        let locks = &mut locks[..n];
        locks.copy_from_slice(polls);
        if n > 1 {
            locks.sort_unstable_by_key(|&index| cases[usize::from(index)].raw.map_or(0, Raw::rank));
        }
        Self { polls, locks, what: None }
    }

    /// Returns the orders that `new` has stored, with `n` cases that can be ready.
    pub(super) fn stored(n: usize, polls: &'s [u16], locks: &'s [u16]) -> Self {
        Self { polls: &polls[..n], locks: &locks[..n], what: None }
    }

    /// Returns the number of cases that can be ready at all.
    pub(super) fn len(&self) -> usize {
        self.polls.len()
    }

    /// Returns the order of a select without cases.
    pub(super) fn nothing(what: &'static str) -> Self {
        Self { polls: &[], locks: &[], what: Some(what) }
    }

    /// Returns the order of a select with a single case.
    pub(super) fn one(what: &'static str) -> Self {
        Self { polls: &[0], locks: &[0], what: Some(what) }
    }

    /// Returns the same order, with a name of the wait for the deadlock report.
    #[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
    pub(super) fn called(self, what: &'static str) -> Self {
        Self { what: Some(what), ..self }
    }

    /// Returns the name of the wait in the deadlock report.
    pub(super) fn what(&self) -> &'static str {
        self.what.unwrap_or(if self.polls.is_empty() { "select (no cases)" } else { "select" })
    }

    pub(super) fn polls(&self) -> impl Iterator<Item = usize> {
        self.polls.iter().map(|&index| usize::from(index))
    }

    pub(super) fn locks(&self) -> impl Iterator<Item = usize> {
        self.locks.iter().map(|&index| usize::from(index))
    }

    /// Returns each channel once, in the order in which the channels are locked.
    #[inline]
    pub(super) fn channels<'c>(&self, cases: &'c [CaseRef<'_>]) -> impl Iterator<Item = &'c Raw> {
        let mut last = std::ptr::null();
        self.locks().filter_map(move |index| {
            let raw = cases[index].raw?;
            (!std::ptr::eq(std::mem::replace(&mut last, raw), raw)).then_some(raw)
        })
    }
}

system::thread_local! {
    // Because of the const initialiser, and without a destructor, an access to this thread-local is a load. A goroutine
    // does not change its thread.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Returns a random number below `n`, by Marsaglia's xorshift, with a state for each thread. Go's `cheaprandn`.
#[inline]
fn random_below(n: u32) -> u32 {
    // In a model, do not shuffle: the model explores this order only, and the orders that its threads bring about.
    if n == 1 || cfg!(sudog_loom) {
        return n - 1;
    }
    let mut x = RANDOM.get();
    if x == 0 {
        x = seed();
    }
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    RANDOM.set(x);
    ((u64::from((x >> 32) as u32) * u64::from(n)) >> 32) as u32
}

/// Returns a seed that differs between threads and is not 0: the scrambled address of the thread's own [`RANDOM`].
#[cold]
fn seed() -> u64 {
    let address = RANDOM.with(|random| std::ptr::from_ref(random).addr()) as u64;
    (address ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xC4CE_B9FE_1A85_EC53) | 1
}
