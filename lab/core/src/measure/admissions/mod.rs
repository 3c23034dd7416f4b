//! The evaluation of a log of all admissions, exact and after the run: for `--metrics`.
//!
//! | family | of | needs an order of admissions |
//! |---|---|---|
//! | [`mod@bypass`] | which contender came later and was first | yes |
//! | [`mod@windows`] | shares in stretches of the order | yes |
//! | [`mod@short_term`] | which contenders circulate, how soon a contender is back, runs | yes |
//! | [`mod@handover`] | the time from a contender to the next, and dead time | yes |
//! | [`mod@waits`] | from request to entry | no |
//! | [`mod@holds`] | shares by time of holding | for opportunities |
//! | [`Wakeups`] | sleeps, those beyond the first in a wait | no |
//!
//! The critical section counts entries, and this count is the order; the clock does not decide which contender was
//! first. Where several contenders may be inside at once there is no order, and every result that needs an order is
//! `None`. Each family is a function of the history alone, and takes O(n log n).
//!
//! A logged run is a separate run. Three readings of the clock make an acquisition longer by the time of three fast
//! locks, and a critical section by the time of one. So the throughput differs from that of a run without a log, and
//! very short waits are mostly the time of the clock.

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

/// An admission. Times are nanoseconds from the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// The contender that was admitted.
    pub contender: u32,
    /// The time just before the call; or the start, if the start was later.
    pub request: u64,
    /// The time at the beginning of the critical section.
    pub entry: u64,
    /// The time at the end of the critical section.
    pub release: u64,
}

/// A wait that had not ended at the end of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    pub contender: u32,
    /// The time of the request; or the start, if the start was later.
    pub request: u64,
}

/// The history of a run.
#[derive(Clone, Debug)]
pub struct AdmissionHistory {
    pub contenders: usize,
    /// The admissions, in the order of admission if there is an order.
    pub admissions: Vec<Admission>,
    /// True if there is an order of admissions.
    pub in_order: bool,
    /// Contenders that came in after the end, or would have come in.
    pub pending: Vec<Pending>,
    /// The time of the end: the stop, or the last release, if the last release was later.
    pub elapsed: u64,
}

/// The system's counts of the contenders' sleeps, for each acquisition.
#[derive(Clone, Copy, PartialEq, Serialize, Default, Debug)]
pub struct Wakeups {
    /// The number of sleeps of the contenders: see [`SleepCounter`](crate::measure::wakeups::SleepCounter). This field
    /// and the next are `None` if the contenders are not threads, or if the system does not tell.
    pub sleeps_per_acquisition: Option<f64>,
    /// Sleeps beyond the first in a wait. If contenders wait at a single place, each such sleep follows a wake-up in
    /// vain. A contender that waits at two places, for a capacitor and then for the lock in the capacitor, may sleep at
    /// both without a wake-up in vain.
    pub futile_wakeups_per_acquisition: Option<f64>,
}

/// The result of a logged run.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The history of the run.
    pub history: AdmissionHistory,
    /// True if the run ended early because the log was full.
    pub log_full: bool,
    /// The system's counts.
    pub wakeups: Wakeups,
}

/// All results: the object `metrics` of a record. A result that has no meaning for a run is `None`.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Metrics {
    /// The number of admissions.
    pub acquisitions: u64,
    /// The length of the run, in seconds.
    pub seconds: f64,
    /// True if the run ended early because the log was full.
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
    /// The system's counts.
    pub wakeups: Wakeups,
}

impl Metrics {
    /// Computes the metrics.
    pub fn new(logged: Logged) -> Self {
        let Logged { history, log_full, wakeups } = logged;
        let ordered = history.in_order.then_some(&history);
        Self {
            acquisitions: history.admissions.len() as u64,
            seconds: history.elapsed as f64 / 1e9,
            log_full,
            bypass: ordered.and_then(bypass),
            windows: ordered.and_then(windows),
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

    /// Returns a history of admissions in order: contender, request, entry, release. The history ends with the last
    /// admission.
    pub fn history(contenders: usize, turns: &[(u32, u64, u64, u64)]) -> AdmissionHistory {
        let admission = |&(contender, request, entry, release)| Admission { contender, request, entry, release };
        let admissions: Vec<Admission> = turns.iter().map(admission).collect();
        let elapsed = admissions.last().map_or(0, |last| last.release);
        AdmissionHistory { contenders, admissions, in_order: true, pending: Vec::new(), elapsed }
    }

    /// Returns a history of admissions in order, for tests in which times do not matter.
    pub fn order(contenders: usize, order: &[u32]) -> AdmissionHistory {
        let turn = |(n, &contender)| (contender, n as u64, n as u64, n as u64);
        history(contenders, &order.iter().enumerate().map(turn).collect::<Vec<_>>())
    }

    #[test]
    fn without_an_order_what_needs_one_is_nothing() {
        let mut history = history(2, &[(0, 0, 1, 5), (1, 1, 2, 6)]);
        history.in_order = false;
        let logged = Logged { history, log_full: false, wakeups: Wakeups::default() };
        let metrics = Metrics::new(logged.clone());
        assert!(metrics.bypass.is_none() && metrics.windows.is_none() && metrics.short_term.is_none());
        assert!(metrics.handover.is_none() && metrics.holds.lot_jain.is_none());
        assert_eq!((metrics.acquisitions, metrics.waits.unwrap().max_ns, metrics.holds.hold_jain), (2, 1, 1.0));
        let mut logged = logged;
        logged.history.in_order = true;
        let metrics = Metrics::new(logged);
        assert!(metrics.bypass.is_some() && metrics.short_term.is_some() && metrics.handover.is_some());
    }
}
