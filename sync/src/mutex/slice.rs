//! How long an owner may keep the mutex from its successor: the *slice*. Ours, not Go's.
//!
//! A policy with a goal for the longest wait ([`Policy::LONGEST_WAIT`]) shortens the slices while many contenders
//! wait. A contender that sleeps waits for a slice of each contender in front; so the slice is the goal, divided by the
//! number of contenders. Slices last longer than planned, as wake-ups and other programs take time. Each thread
//! corrects for that time: the thread cuts a part off its slices. A wait above the goal raises that part, and each other
//! wait lowers the part.
//!
//! The part is a thread's, for all mutexes together: a thread that meets a slow machine at a mutex will meet the
//! machine at the next mutex, too. Only speed depends on slices.
//!
//! Source: the reorder window of `LibASL` (Liu, Chen et al., Asymmetry-aware scalable locking, PPoPP 2022), which also
//! follows a goal by measured waits. `LibASL` lowers by halves, and raises by a hundredth.

use std::time::Duration;

use super::policy::Policy;
use crate::thread_hints::{HINTS, MODEL};

/// The least slice. Below, the mutex goes from processor to processor more often than contenders can wake up.
const LEAST: Duration = Duration::from_micros(10);

/// A whole slice. A thread's *cut* is the part of this number by which the thread's slices are shorter.
const WHOLE: u32 = 1024;
/// The greatest cut.
const GREATEST_CUT: u32 = WHOLE - WHOLE / 8;
/// The part of a cut that a wait within the goal takes back.
const STEP: u32 = WHOLE / 64;

/// Returns whether the policy `P` has a goal.
pub(super) const fn has_goal<P: Policy>() -> bool {
    P::LONGEST_WAIT.as_nanos() < Duration::MAX.as_nanos()
}

/// Returns the time for which the successor watches before the successor claims the mutex, while `waiters` contenders
/// sleep.
#[inline]
pub(super) fn slice<P: Policy>(waiters: u32) -> Duration {
    if MODEL || !has_goal::<P>() {
        return P::THRESHOLD;
    }
    within(P::LONGEST_WAIT, P::THRESHOLD, waiters, HINTS.with(|hint| hint.slice_cut.get()))
}

/// Notes that a contender has slept, and has locked the mutex `wait` after the contender first slept.
pub(super) fn note_wait<P: Policy>(wait: Duration) {
    if !MODEL {
        HINTS.with(|hint| hint.slice_cut.set(corrected(hint.slice_cut.get(), wait > P::LONGEST_WAIT)));
    }
}

/// Returns the slice for a `goal`, of at most `most`.
fn within(goal: Duration, most: Duration, waiters: u32, cut: u32) -> Duration {
    // The successor and the owner are contenders, too.
    let share = goal / waiters.saturating_add(2);
    (share * (WHOLE - cut) / WHOLE).max(LEAST).min(most)
}

/// Returns the cut after a wait that was too long, or was not.
fn corrected(cut: u32, too_long: bool) -> u32 {
    if too_long { ((WHOLE + cut) / 2).min(GREATEST_CUT) } else { cut.saturating_sub(STEP) }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::super::policy::{Go, Threads};
    use super::*;

    const GOAL: Duration = Duration::from_millis(6);
    const MOST: Duration = Duration::from_micros(100);

    #[test]
    fn the_goal_is_shared_by_all_contenders() {
        assert_eq!(within(GOAL, Duration::MAX, 0, 0), GOAL / 2);
        assert_eq!(within(GOAL, Duration::MAX, 58, 0), GOAL / 60);
        assert_eq!(within(GOAL, Duration::MAX, 58, WHOLE / 2), GOAL / 120);
    }

    #[test]
    fn a_slice_stays_within_its_bounds() {
        assert_eq!(within(GOAL, MOST, 0, 0), MOST);
        assert_eq!(within(GOAL, MOST, 58, 0), MOST);
        assert_eq!(within(GOAL, MOST, u32::MAX, GREATEST_CUT), LEAST);
        assert_eq!(within(Duration::ZERO, MOST, 1, 0), LEAST);
        assert_eq!(within(GOAL, Duration::ZERO, 1, 0), Duration::ZERO);
    }

    #[test]
    fn waits_correct_the_cut() {
        assert_eq!(corrected(0, true), WHOLE / 2);
        assert_eq!(corrected(WHOLE / 2, true), WHOLE / 4 * 3);
        assert_eq!(corrected(GREATEST_CUT, true), GREATEST_CUT);
        assert_eq!(corrected(WHOLE / 2, false), WHOLE / 2 - STEP);
        assert_eq!(corrected(0, false), 0);
    }

    #[test]
    fn a_policy_without_a_goal_has_constant_slices() {
        assert!(!has_goal::<Go>());
        assert_eq!(slice::<Go>(1_000_000), Go::THRESHOLD);
        assert_eq!(slice::<Threads>(0), Threads::THRESHOLD);
    }
}
