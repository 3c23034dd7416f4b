//! The claims of the sources about the figures, and the checks whether the curves show them.
//!
//! The sources print curves and no numbers. So each claim has a check with a bound of this project's choice, which is
//! printed beside the claim. A check uses [`Summaries`] alone; a claim on numbers of contenders that were not measured
//! has no answer.

use serde::Serialize;

use super::{BYPASS_LIMITS, CAPACITOR_LIMIT, CAPACITOR_LOCKS, SWEPT_LOCKS, fractional, platoon, window};
use crate::bench::summary::{Summaries, Summary};
use crate::output::units;
use crate::targets::locks::LockName;
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::Target;

/// A claim of a source about a figure.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The claim, in words of this project.
    pub says: &'static str,
    /// The property that the check asks of the curves.
    pub asked: &'static str,
    /// The check, which returns the answer.
    pub check: fn(&Summaries) -> Verdict,
}

/// The answer of a check.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Verdict {
    /// True if the curves show the claim; `None` if the figures that the claim is about were not measured.
    pub shown: Option<bool>,
    /// The numbers that decide.
    pub found: String,
}

/// The number of contenders from which on contention is high.
const MANY: usize = 32;

pub const OF_SEMAPHORES: &[Claim] = &[
    Claim {
        says: "With few threads the ticket and the TWA semaphore perform about the same",
        asked: "at T = 1 and 2, TWA has 0.75 to 1.33 of ticket's throughput",
        check: |s| {
            let of = |threads| (at(threads), ratio(s, TWA, TICKET, threads));
            all([1, 2].map(of), |x| (0.75..=1.33).contains(&x))
        },
    },
    Claim {
        says: "The throughput of all semaphores drops from one thread to two",
        asked: "each has less at T = 2 than at T = 1",
        check: |s| all(s.targets.iter().map(|&target| (name(target), change(s, target, 1, 2))), |x| x < 1.0),
    },
    Claim {
        says: "As threads are added, TWA outperforms ticket",
        asked: "TWA has more at each T from 16 on",
        check: |s| all(each_from(s, 16, |threads| ratio(s, TWA, TICKET, threads)), |x| x > 1.0),
    },
    Claim {
        says: "Throughput drops at about 16 threads, as the scheduler spreads them over two sockets",
        asked: "ticket and TWA have less at T = 32 than at T = 8",
        check: |s| all([TICKET, TWA].map(|target| (name(target), change(s, target, 8, 32))), |x| x < 1.0),
    },
    Claim {
        says: "Ticket falls with each waiter, TWA is flat (a prototype of this machine)",
        asked: "from T = 8 to the most, ticket falls to half or less, and TWA keeps 0.75 or more",
        check: |s| {
            let [ticket, twa] = [TICKET, TWA].map(|target| most(s).and_then(|most| change(s, target, 8, most)));
            Verdict::both(all([(name(TICKET), ticket)], |x| x <= 0.5), all([(name(TWA), twa)], |x| x >= 0.75))
        },
    },
];

pub const OF_CAPACITORS: &[Claim] = &[
    Claim {
        says: "The tax at low contention is modest",
        asked: "at T = 1 each wrapped lock has 0.75 or more of the bare one",
        check: |s| all(CAPACITOR_LOCKS.map(|lock| (name(lock), ratio(s, wrapped(lock), lock, 1))), |x| x >= 0.75),
    },
    Claim {
        says: "The capacitor enforces fairness in the long run, even on LIFO",
        asked: "with the most contenders min/max of each wrapped lock is 0.8 or more",
        check: |s| all(CAPACITOR_LOCKS.map(|lock| (name(lock), fairness(s, wrapped(lock)))), |x| x >= 0.8),
    },
    Claim {
        says: "LIFO alone is as unfair as can be",
        asked: "with the most contenders its min/max is 0.05 at most",
        check: |s| all([(name(LockName::LifoSpin), fairness(s, LockName::LifoSpin))], |x| x <= 0.05),
    },
    Claim {
        says: "Beyond 9 threads the capacitor improves both fairness and throughput of test-and-test-and-set",
        asked: "it has more throughput and a higher min/max than the bare lock at each T from 16 on",
        check: |s| {
            let (bare, wrapped) = (LockName::TtsSpin, wrapped(LockName::TtsSpin));
            let fairer = |threads| Some(of(s, wrapped, threads)?.min_max - of(s, bare, threads)?.min_max);
            Verdict::both(
                all(each_from(s, 16, |threads| ratio(s, wrapped, bare, threads)), |x| x > 1.0),
                all(each_from(s, 16, fairer), |x| x > 0.0).about("min/max, difference"),
            )
        },
    },
    Claim {
        says: "MCS gains nothing: it is local and fair already",
        asked: "wrapped MCS has 1.03 of the bare one's throughput at most, at each T",
        check: |s| {
            let of = |threads| ratio(s, wrapped(LockName::McsSpin), LockName::McsSpin, threads);
            all(each_from(s, 1, of), |x| x <= 1.03)
        },
    },
    Claim {
        says: "Locks that spin globally can become scalable: fewer contenders are at them",
        asked: "with the most contenders wrapped ticket and test-and-test-and-set have more than bare, and 0.75 or more of \
                what they have at T = 8",
        check: |s| {
            let locks = [LockName::TicketSpin, LockName::TtsSpin];
            let many = most(s);
            let gain = |lock| (name(lock), many.and_then(|most| ratio(s, wrapped(lock), lock, most)));
            let kept = |lock| (name(lock), many.and_then(|most| change(s, wrapped(lock), 8, most)));
            Verdict::both(
                all(locks.map(gain), |x| x > 1.0),
                all(locks.map(kept), |x| x >= 0.75).about("of that at T = 8"),
            )
        },
    },
    Claim {
        says: "Fractional admission does not improve the throughput of locks that spin globally",
        asked: "with the most contenders fractional ticket and test-and-test-and-set have 1.1 of the bare one's at most",
        check: |s| {
            let of = |lock| (name(lock), most(s).and_then(|most| ratio(s, fractional(lock), lock, most)));
            all([LockName::TicketSpin, LockName::TtsSpin].map(of), |x| x <= 1.1)
        },
    },
    Claim {
        says: "Fractional admission avoids the tax (a prototype of this machine)",
        asked: "at T = 1 each fractional lock has 0.95 or more of the bare one",
        check: |s| all(CAPACITOR_LOCKS.map(|lock| (name(lock), ratio(s, fractional(lock), lock, 1))), |x| x >= 0.95),
    },
    Claim {
        says: "The reciprocating lock is unfair by up to a factor of 2, and the capacitor mitigates that",
        asked: "with the most contenders its min/max is 0.45 to 0.75 bare, and higher when wrapped",
        check: |s| {
            let bare = LockName::ReciprocatingSpin;
            let gain = fairness(s, wrapped(bare)).zip(fairness(s, bare)).map(|(with, without)| with - without);
            Verdict::both(
                all([("bare".to_owned(), fairness(s, bare))], |x| (0.45..=0.75).contains(&x)),
                all([("gain".to_owned(), gain)], |x| x > 0.0),
            )
        },
    },
];

pub const OF_THE_WINDOW: &[Claim] = &[
    Claim {
        says: "The window costs MCS nothing, whatever B is",
        asked: "behind each window MCS has 0.97 or more of the bare one's throughput at each T from 8 on",
        check: |s| {
            let bare = LockName::McsSpin;
            let worst = |limit| worst_from(s, 8, |threads| ratio(s, window(bare, limit), bare, threads));
            all(BYPASS_LIMITS.map(|limit| (b(limit), worst(limit))), |x| x >= 0.97)
        },
    },
    Claim {
        says: "The window flattens test-and-test-and-set, and overtakes the bare lock",
        asked: "up to B = 10: with the most contenders it has more than bare, and 0.9 or more of what it has at T = 8",
        check: |s| {
            let inner = LockName::TtsSpin;
            let limits = || BYPASS_LIMITS.into_iter().filter(|&limit| limit <= CAPACITOR_LIMIT);
            let many = most(s);
            let gain = |limit| (b(limit), many.and_then(|most| ratio(s, window(inner, limit), inner, most)));
            let kept = |limit| (b(limit), many.and_then(|most| change(s, window(inner, limit), 8, most)));
            Verdict::both(
                all(limits().map(gain), |x| x > 1.0),
                all(limits().map(kept), |x| x >= 0.9).about("of that at T = 8"),
            )
        },
    },
    Claim {
        says: "The window has more throughput than the platoon: MCS by about a tenth, the reciprocating lock by an eighth \
               or more",
        asked: "at B = 10 and each T from 16 on, 1.05 or more of the platoon's for MCS, 1.1 for the reciprocating lock",
        check: |s| {
            let against = |inner, bound: f64| {
                let of = |threads| ratio(s, window(inner, CAPACITOR_LIMIT), platoon(inner), threads);
                all(each_from(s, 16, of), |x| x >= bound).about(inner.name())
            };
            Verdict::both(against(LockName::McsSpin, 1.05), against(LockName::ReciprocatingSpin, 1.1))
        },
    },
    Claim {
        says: "Fairness in the long run needs a small B: with B = 10 the reciprocating lock is as uneven as bare, with B = 4 \
               even",
        asked: "at T = 8, min/max is 0.75 at most with B = 10, and 0.9 or more with B = 4",
        check: |s| {
            let of = |limit| Some(of(s, window(LockName::ReciprocatingSpin, limit), 8)?.min_max);
            Verdict::both(all([(b(10), of(10))], |x| x <= 0.75), all([(b(4), of(4))], |x| x >= 0.9))
        },
    },
    Claim {
        says: "A waiter in the window is overtaken B - 1 times at most",
        asked: "the longest bypass of the logged runs is B - 1 at most. It counts from the request, which is a little before the \
                place in line, so contenders that arrive in between count, too: `bypass` counts by tickets. Below is the most of \
                each B",
        check: |s| {
            let longest = |limit| {
                let bypass = |inner, threads| Some(of(s, window(inner, limit), threads)?.logged_bypass);
                let of = |inner| s.threads.iter().map(move |&threads| bypass(inner, threads).filter(|n| n.is_finite()));
                let all: Option<Vec<f64>> = SWEPT_LOCKS.into_iter().flat_map(of).collect();
                all?.into_iter().reduce(f64::max)
            };
            let within = |limit: u32| all([(b(limit), longest(limit))], |n| n <= f64::from(limit - 1));
            BYPASS_LIMITS.map(within).into_iter().reduce(Verdict::both).expect("there are limits")
        },
    },
];

const TICKET: Target = Target::Semaphore(SemaphoreName::TicketSpin);
const TWA: Target = Target::Semaphore(SemaphoreName::TwaSpin);

impl Verdict {
    /// Returns whether both claims are shown. A claim that is not shown decides, even if the other was not measured.
    fn both(one: Self, other: Self) -> Self {
        let shown = match (one.shown, other.shown) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
        Self { shown, found: format!("{}; {}", one.found, other.found) }
    }

    /// Puts a label in front of the numbers.
    fn about(self, what: &str) -> Self {
        Self { found: format!("{what}: {}", self.found), ..self }
    }
}

/// Returns whether `holds` is true of all values, each of which has a label. If it is false of any value, the answer is
/// no; otherwise, if any value was not measured, there is no answer.
fn all(values: impl IntoIterator<Item = (String, Option<f64>)>, holds: impl Fn(f64) -> bool) -> Verdict {
    let values: Vec<_> = values.into_iter().collect();
    let held: Vec<Option<bool>> = values.iter().map(|(_, value)| value.map(&holds)).collect();
    let shown = match () {
        () if held.contains(&Some(false)) => Some(false),
        () if held.is_empty() || held.contains(&None) => None,
        () => Some(true),
    };
    let write = |(label, value): &(String, Option<f64>)| {
        format!("{label} {}", value.map_or_else(|| units::NOTHING.to_owned(), |value| format!("{value:.2}")))
    };
    let found = values.iter().map(write).collect::<Vec<_>>().join(", ");
    Verdict { shown, found: if found.is_empty() { "not measured".to_owned() } else { found } }
}

fn name(target: impl Into<Target>) -> String {
    target.into().name().to_owned()
}

fn at(threads: usize) -> String {
    format!("T={threads}")
}

fn b(limit: u32) -> String {
    format!("B={limit}")
}

fn wrapped(inner: LockName) -> Target {
    platoon(inner)
}

fn of(s: &Summaries, target: impl Into<Target>, threads: usize) -> Option<&Summary> {
    let target = target.into();
    s.all.iter().find(|summary| summary.target == target && summary.threads == threads)
}

/// Returns the throughput of `one` over that of `other`.
fn ratio(s: &Summaries, one: impl Into<Target>, other: impl Into<Target>, threads: usize) -> Option<f64> {
    let ratio = of(s, one, threads)?.throughput / of(s, other, threads)?.throughput;
    ratio.is_finite().then_some(ratio)
}

/// Returns the throughput with `many` contenders over that with `few`.
fn change(s: &Summaries, target: impl Into<Target>, few: usize, many: usize) -> Option<f64> {
    let target = target.into();
    let ratio = of(s, target, many)?.throughput / of(s, target, few)?.throughput;
    ratio.is_finite().then_some(ratio)
}

/// Returns the largest number of contenders, if contention is high with so many.
fn most(s: &Summaries) -> Option<usize> {
    s.threads.iter().copied().max().filter(|&most| most >= MANY)
}

/// Returns min/max with the most contenders.
fn fairness(s: &Summaries, target: impl Into<Target>) -> Option<f64> {
    let min_max = of(s, target, most(s)?)?.min_max;
    min_max.is_finite().then_some(min_max)
}

/// Returns the values for each measured number of contenders that is at least `least`.
fn each_from(
    s: &Summaries,
    least: usize,
    of: impl Fn(usize) -> Option<f64>,
) -> impl Iterator<Item = (String, Option<f64>)> {
    s.threads.iter().filter(move |&&threads| threads >= least).map(move |&threads| (at(threads), of(threads)))
}

/// Returns the least of these values.
fn worst_from(s: &Summaries, least: usize, of: impl Fn(usize) -> Option<f64>) -> Option<f64> {
    let all: Option<Vec<f64>> = each_from(s, least, of).map(|(_, value)| value).collect();
    all?.into_iter().reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::contenders::Contenders;

    const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

    /// A target, its throughput as a function of the number of contenders, and its min/max.
    type Made = (Target, fn(f64) -> f64, f64);

    /// Makes curves of these targets, in which each waiter is overtaken once at most.
    fn made(lines: &[Made], threads: &[usize]) -> Summaries {
        let summary = |&(target, throughput, min_max): &Made, threads: usize| {
            let mut summary = Summary::new(target, threads, &[]);
            summary.throughput = throughput(threads as f64);
            summary.min_max = min_max;
            summary.logged_bypass = 1.0;
            summary
        };
        Summaries {
            on: Contenders::Threads,
            targets: lines.iter().map(|line| line.0).collect(),
            threads: threads.to_vec(),
            all: threads.iter().flat_map(|&t| lines.iter().map(move |line| summary(line, t))).collect(),
            other_cpus: None,
        }
    }

    fn shown(claims: &[Claim], s: &Summaries) -> Vec<Option<bool>> {
        claims.iter().map(|claim| (claim.check)(s).shown).collect()
    }

    /// Checks that each claim is shown by curves as the source describes them, and not by flat curves.
    #[test]
    fn semaphores() {
        let dip = |t: f64| {
            if t < 2.0 {
                10.0
            } else if t < 16.0 {
                5.0
            } else {
                4.0
            }
        };
        let s = made(&[(TICKET, |t| 10.0 / t, 1.0), (TWA, dip, 1.0)], &THREADS);
        assert_eq!(shown(OF_SEMAPHORES, &s), [Some(true); 5]);
        let s = made(&[(TICKET, |_| 10.0, 1.0), (TWA, |_| 5.0, 1.0)], &THREADS);
        assert_eq!(shown(OF_SEMAPHORES, &s), [Some(false); 5]);
        // With numbers 1 and 2 only some claims have an answer, and flat curves still show no drop.
        let s = made(&[(TICKET, |t| 10.0 / t, 1.0), (TWA, |t| 10.0 / t, 1.0)], &[1, 2]);
        assert_eq!(shown(OF_SEMAPHORES, &s), [Some(true), Some(true), None, None, None]);
    }

    #[test]
    fn capacitors() {
        let mut lines: Vec<Made> = Vec::new();
        for lock in CAPACITOR_LOCKS {
            let bare: fn(f64) -> f64 = |t| 10.0 / t.sqrt();
            let (bare, fair): (fn(f64) -> f64, f64) = match lock {
                LockName::McsSpin => (|_| 10.0, 1.0),
                LockName::LifoSpin => (|_| 10.0, 0.0),
                LockName::ReciprocatingSpin => (|_| 10.0, 0.5),
                _ => (bare, 0.3),
            };
            lines.push((lock.into(), bare, fair));
            lines.push((platoon(lock), |t| if t < 2.0 { 8.0 } else { 5.0 }, 0.9));
            lines.push((fractional(lock), bare, fair));
        }
        assert_eq!(shown(OF_CAPACITORS, &made(&lines, &THREADS)), [Some(true); 9]);

        // A capacitor that costs most of the throughput alone, regains the throughput only as the fractional capacitor,
        // and evens out nothing.
        let mut lines: Vec<Made> = Vec::new();
        for lock in CAPACITOR_LOCKS {
            lines.push((lock.into(), |_| 10.0, 0.2));
            let wrapped: fn(f64) -> f64 = if lock == LockName::McsSpin { |t| t } else { |t| 10.0 / t / 2.0 };
            lines.push((platoon(lock), wrapped, 0.1));
            lines.push((fractional(lock), |t| t, 0.1));
        }
        assert_eq!(shown(OF_CAPACITORS, &made(&lines, &THREADS)), [Some(false); 9]);
    }

    #[test]
    fn the_window() {
        let lines = |mcs: fn(f64) -> f64, tts: fn(f64) -> f64, small: f64| {
            let mut lines: Vec<Made> = Vec::new();
            for lock in SWEPT_LOCKS {
                lines.push((lock.into(), if lock == LockName::TtsSpin { |t| 10.0 / t } else { |_| 10.0 }, 0.5));
                lines.push((platoon(lock), |_| 8.5, 0.5));
                for limit in BYPASS_LIMITS {
                    let even = if limit <= 4 { small } else { 0.5 };
                    lines.push((window(lock, limit), if lock == LockName::TtsSpin { tts } else { mcs }, even));
                }
            }
            lines
        };
        let s = made(&lines(|_| 9.9, |_| 5.0, 1.0), &THREADS);
        assert_eq!(shown(OF_THE_WINDOW, &s), [Some(true); 5]);
        let mut s = made(&lines(|_| 8.0, |t| 5.0 / t, 0.5), &THREADS);
        s.all.iter_mut().for_each(|summary| summary.logged_bypass = 200.0);
        assert_eq!(shown(OF_THE_WINDOW, &s), [Some(false); 5]);
        s.all.iter_mut().for_each(|summary| summary.logged_bypass = f64::NAN);
        assert_eq!(shown(&OF_THE_WINDOW[4..], &s), [None]);
    }

    #[test]
    fn what_was_not_measured_is_neither_shown_nor_not() {
        for claims in [OF_SEMAPHORES, OF_CAPACITORS, OF_THE_WINDOW] {
            let s = made(&[], &THREADS);
            for claim in claims {
                let verdict = (claim.check)(&s);
                assert_eq!(verdict.shown, None, "{claim:?}: {verdict:?}");
            }
        }
    }

    #[test]
    fn one_that_does_not_hold_decides() {
        let of = |values: [Option<f64>; 2]| all(values.map(|value| ("x".to_owned(), value)), |x| x > 1.0).shown;
        assert_eq!(of([Some(2.0), Some(3.0)]), Some(true));
        assert_eq!(of([Some(2.0), None]), None);
        assert_eq!(of([Some(0.0), None]), Some(false));
        assert_eq!(all([], |_| true), Verdict { shown: None, found: "not measured".to_owned() });
    }
}
