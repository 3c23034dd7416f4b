//! What a log of all admissions tells, exactly and afterwards: for `--metrics`.
//!
//! | family | of | needs an order of admissions |
//! |---|---|---|
//! | [`mod@bypass`] | which contender came later and was first | yes |
//! | [`mod@windows`] | shares in stretches of the order | yes |
//! | [`mod@short_term`] | which contenders circulate, how soon one is back, runs | yes |
//! | [`mod@handover`] | the time from one to the next, and dead time | yes |
//! | [`mod@waits`] | from request to entry | no |
//! | [`mod@holds`] | shares by time of holding | for opportunities |
//! | [`Wakeups`] | sleeps, those beyond the first in a wait, system calls | no |
//!
//! The order is that of the room, which counts entries; the clock does not decide which contender was first. Where several may be
//! inside at once there is none, and what needs one is nothing. Each family is a function of the history alone, and
//! takes O(n log n).
//!
//! A run that is logged is a run of its own. Three readings of the clock make an acquisition longer by what three fast
//! locks take, and a critical section by one of them; so its throughput is not that of a run without a log, and waits
//! that are so short are mostly the clock's.

pub mod bypass;
pub mod handover;
pub mod holds;
pub mod short_term;
pub mod waits;
pub mod windows;

use serde::Serialize;

use self::bypass::{Bypass, bypass};
use self::handover::{Handover, handover};
use self::holds::{Holds, holds};
use self::short_term::{ShortTerm, short_term};
use self::waits::{WaitQuantiles, waits};
use self::windows::{Windows, windows};

/// One admission. Times are nanoseconds from the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// Whose.
    pub contender: u32,
    /// Just before the call; or the start, if that was later.
    pub request: u64,
    /// First thing inside.
    pub entry: u64,
    /// Last thing inside.
    pub release: u64,
}

/// One that still waited at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// The contender.
    pub contender: u32,
    /// Since when; or the start, if that was later.
    pub request: u64,
}

/// All that happened in a run.
#[derive(Clone, Debug)]
pub struct AdmissionHistory {
    /// How many contended.
    pub contenders: usize,
    /// In their order, if there is one.
    pub admissions: Vec<Admission>,
    /// Whether there is.
    pub in_order: bool,
    /// Contenders that came in after the end, or would have.
    pub pending: Vec<Pending>,
    /// When the end was: the stop, or the last release, if that was later.
    pub elapsed: u64,
}

/// What the system says of the contenders, for each acquisition.
#[derive(Clone, PartialEq, Serialize, Default, Debug)]
pub struct Wakeups {
    /// How often a contender slept: see [`SleepCounter`](crate::measure::wakeups::SleepCounter). As the next, nothing if the
    /// contenders are not threads, or it cannot be told.
    pub sleeps_per_acquisition: Option<f64>,
    /// Sleeps beyond the first in one wait. Where one waits in one place, there was a wake-up that was for nothing before
    /// each of them; a contender that waits in two, for a capacitor and then for the lock in it, may sleep in both with none.
    pub futile_wakeups_per_acquisition: Option<f64>,
    /// System calls of the contenders from start to end, those that count sleeps taken off. See
    /// [`CallCounter`](crate::measure::wakeups::CallCounter).
    pub syscalls_per_acquisition: Option<f64>,
    /// Why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_no_syscalls: Option<String>,
}

/// What comes of a logged run.
#[derive(Clone, Debug)]
pub struct Logged {
    /// What happened.
    pub history: AdmissionHistory,
    /// Whether it ended before its time, as the log was full.
    pub log_full: bool,
    /// What the system says.
    pub wakeups: Wakeups,
}

/// Everything: the object `metrics` of a record. What has no meaning for a run is nothing.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Metrics {
    /// How many admissions there were.
    pub acquisitions: u64,
    /// How long the run was.
    pub seconds: f64,
    /// Whether it ended before its time, as the log was full.
    pub log_full: bool,
    /// See [`mod@bypass`].
    pub bypass: Option<Bypass>,
    /// See [`mod@windows`].
    pub windows: Option<Windows>,
    /// See [`mod@short_term`].
    pub short_term: Option<ShortTerm>,
    /// See [`mod@handover`].
    pub handover: Option<Handover>,
    /// See [`mod@waits`].
    pub waits: Option<WaitQuantiles>,
    /// See [`mod@holds`].
    pub holds: Holds,
    /// What the system says.
    pub wakeups: Wakeups,
}

impl Metrics {
    /// With windows of so many admissions; see [`windows()`].
    #[must_use]
    pub fn new(logged: Logged, window: Option<usize>) -> Self {
        let Logged { history, log_full, wakeups } = logged;
        let ordered = history.in_order.then_some(&history);
        Self {
            acquisitions: history.admissions.len() as u64,
            seconds: history.elapsed as f64 / 1e9,
            log_full,
            bypass: ordered.and_then(bypass),
            windows: ordered.and_then(|history| windows(history, window)),
            short_term: ordered.map(short_term),
            handover: ordered.and_then(handover),
            waits: waits(&history),
            holds: holds(&history),
            wakeups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Admissions in their order: contender, request, entry, release. It ends with the last.
    pub fn history(contenders: usize, turns: &[(u32, u64, u64, u64)]) -> AdmissionHistory {
        let admission = |&(contender, request, entry, release)| Admission { contender, request, entry, release };
        let admissions: Vec<Admission> = turns.iter().map(admission).collect();
        let elapsed = admissions.last().map_or(0, |last| last.release);
        AdmissionHistory { contenders, admissions, in_order: true, pending: Vec::new(), elapsed }
    }

    /// The same, where times do not matter.
    pub fn order(contenders: usize, order: &[u32]) -> AdmissionHistory {
        let turn = |(n, &contender)| (contender, n as u64, n as u64, n as u64);
        history(contenders, &order.iter().enumerate().map(turn).collect::<Vec<_>>())
    }

    #[test]
    fn without_an_order_what_needs_one_is_nothing() {
        let mut history = history(2, &[(0, 0, 1, 5), (1, 1, 2, 6)]);
        history.in_order = false;
        let logged = Logged { history, log_full: false, wakeups: Wakeups::default() };
        let metrics = Metrics::new(logged.clone(), Some(1));
        assert!(metrics.bypass.is_none() && metrics.windows.is_none() && metrics.short_term.is_none());
        assert!(metrics.handover.is_none() && metrics.holds.lot_jain.is_none());
        assert_eq!((metrics.acquisitions, metrics.waits.unwrap().max_ns, metrics.holds.hold_jain), (2, 1, 1.0));
        let mut logged = logged;
        logged.history.in_order = true;
        let metrics = Metrics::new(logged, Some(1));
        assert!(metrics.bypass.is_some() && metrics.windows.is_some() && metrics.handover.is_some());
    }
}
