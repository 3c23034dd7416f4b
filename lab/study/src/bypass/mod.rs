//! The study of bypass: how often a waiter is overtaken, exactly, from the numbers of the arrivals and the order in
//! which they are admitted; and whether that is within the promised bound.
//!
//! The study measures the primitives of the library in [`Wrapped`](sudog_locks::capacitor::Wrapped), with a number for
//! each arrival: see [`doorway`] for the source of the numbers, and [`arrival_history`] for the bypasses that are
//! counted. Three measures make bypass likely: there are more contenders than the limit, so that an inner lock always
//! has a choice; at times a contender is delayed on its way to the inner lock; and where there is a gate contenders
//! also rest at times, as otherwise the gate would stay shut, or a contender would have the gate to itself.
//!
//! The platoon over the benaphore, which is the library's default, does not number arrivals. It is measured by the
//! clock, so only from the time when a contender has been let through to the lock: bypasses of waiters for a credit are
//! not seen. The promise of platoons is measured in full over the other two semaphores, whose tickets are the places in
//! the queue.
//!
//! Two cases that promise nothing are there for comparison: lanes that are counted separately, and a semaphore without
//! a capacitor. More bypasses are found there, which shows that the study would find them.

pub mod arrival_history;
mod contest;
mod doorway;

use crate::options::{List, MAX_THREADS, inner_locks, limit, number};
use clap::Args;
use std::io;

use serde::Serialize;
use sudog_locks::capacitor::{
    Admission, Always, ArriveDepart, Gated, LaneChoice, Multilane, Platoon, SeparateLanes, SlidingWindow,
};
use sudog_locks::waiting_array::{Benaphore, Ticket};
use sudog_locks::waiting_array::{BucketWait, GrantWait};

use self::arrival_history::{ArrivalHistory, Bypass, Entry, Sawtooth, bypasses, bypasses_by_one};
use self::contest::Stalls;
use self::doorway::{ByClock, ByTicket, Doorway, Permits};

use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::targets::compose::DynLock;
use crate::targets::compose::name::{Admit, Front, Recipe, Wait};
use crate::targets::locks::LockName;
use crate::targets::semaphores::SemaphoreName;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct BypassArgs {
    /// Inner locks, by name [default: reciprocating,ticket,lifo,mcs,clh,tts]
    #[arg(long, value_name = "A,B", value_parser = inner_locks)]
    pub locks: Option<List<LockName>>,

    /// Number of threads that contend: more than the bypass limit, or no contender waits before the lock
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number::<2, MAX_THREADS>)]
    pub threads: usize,

    /// The bypass limit
    #[arg(long, value_name = "N", default_value = "4", value_parser = limit)]
    pub b: u32,

    /// Acquisitions of each lock
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = number::<1, MAX_ACQUISITIONS>)]
    pub acquisitions: usize,

    /// Keep an arrival in a thousand from the lock for a while, on its way from the capacitor
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = on_or_off, action = clap::ArgAction::Set)]
    pub stall: bool,
}

/// The most acquisitions. The log of so many, with the counts of its analysis, takes half a gigabyte.
const MAX_ACQUISITIONS: usize = 10_000_000;

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is 'on' or 'off'"),
    }
}

const LANES: u32 = 2;

/// The capacitor before the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Platoon,
    PlatoonTicket,
    PlatoonTwa,
    PlatoonGated,
    Window,
    WindowGated,
    Together,
    Separate(LaneChoice),
    /// A semaphore, which is not a capacitor.
    Permits,
}

const CASES: [Case; 10] = [
    Case::Platoon,
    Case::PlatoonTicket,
    Case::PlatoonTwa,
    Case::PlatoonGated,
    Case::Window,
    Case::WindowGated,
    Case::Together,
    Case::Separate(LaneChoice::InTurn),
    Case::Separate(LaneChoice::ByThread),
    Case::Separate(LaneChoice::AtRandom),
];

/// The inner lock and the case of the control: a lock that always overtakes.
const CONTROL: (LockName, Case) = (LockName::Lifo, Case::Permits);

impl Case {
    /// Returns the name of the composition of this case.
    fn name(self, inner: LockName, limit: u32) -> String {
        let (sema, wait, lanes) = (SemaphoreName::Ticket, Wait::Park, LANES);
        let (front, admit) = match self {
            Self::Platoon => (Front::Platoon { sema: SemaphoreName::Benaphore }, Admit::Always),
            Self::PlatoonTicket => (Front::Platoon { sema }, Admit::Always),
            Self::PlatoonTwa => (Front::Platoon { sema: SemaphoreName::Twa }, Admit::Always),
            Self::PlatoonGated => (Front::Platoon { sema }, Admit::Gated),
            Self::Window => (Front::Window { wait }, Admit::Always),
            Self::WindowGated => (Front::Window { wait }, Admit::Gated),
            Self::Together => (Front::Together { lanes }, Admit::Always),
            Self::Separate(dealing) => (Front::Separate { sema, lanes, dealing }, Admit::Always),
            Self::Permits => return format!("{}, no capacitor: {limit} permits", inner.name()),
        };
        Recipe { inner, limit, front, admit }.to_string()
    }

    /// Returns whether the case is measured by the clock: see [`ByClock`].
    const fn is_by_clock(self) -> bool {
        matches!(self, Self::Platoon | Self::Separate(_))
    }

    /// Returns the bound that is claimed for the case by the library or by the paper; if there is no claim, the bound
    /// that would have to be claimed.
    const fn bound(self, limit: u32) -> u64 {
        match self {
            Self::Together | Self::Separate(_) => (LANES * limit) as u64 - 1,
            _ => limit as u64 - 1,
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Copy)]
struct Run {
    case: Case,
    limit: u32,
    threads: usize,
    acquisitions: usize,
    stall: bool,
}

/// The result of a run: the admissions, and the bound that the capacitor promises.
type Outcome = (ArrivalHistory, Option<u64>);

impl Run {
    /// Makes the run. The inner lock is always in a box: only the order of admissions is recorded, not times, and the
    /// capacitors are before the box.
    fn make(self, inner: LockName) -> io::Result<Outcome> {
        let (inner, limit) = (DynLock::of(inner), self.limit);
        match self.case {
            Case::Platoon => self.before(inner, ByClock::new(Platoon::<Benaphore>::with_limit(limit)), Always),
            Case::PlatoonTicket => self.before(inner, ByTicket::<GrantWait>::with_limit(limit), Always),
            Case::PlatoonTwa => self.before(inner, ByTicket::<BucketWait>::with_limit(limit), Always),
            Case::PlatoonGated => self.before(inner, ByTicket::<GrantWait>::with_limit(limit), Gated),
            Case::Window => self.before(inner, SlidingWindow::new(limit), Always),
            Case::WindowGated => self.before(inner, SlidingWindow::new(limit), Gated),
            Case::Together => self.before(inner, Multilane::with_lanes(LANES, limit), Always),
            Case::Separate(dealing) => {
                let lanes: SeparateLanes<Ticket> = SeparateLanes::with_lanes(LANES, limit, dealing);
                self.before(inner, ByClock::new(lanes), Always)
            }
            Case::Permits => self.before(inner, Permits::with_limit(limit), Always),
        }
    }

    fn before<C, A>(self, inner: DynLock, doorway: C, admission: A) -> io::Result<Outcome>
    where
        C: Doorway + 'static,
        A: Admission + Default + 'static,
    {
        let promise = doorway.bound();
        let rests = self.stall && A::GATED;
        let inner = Stalls::new(inner, self.stall);
        let history = contest::history(inner, doorway, admission, self.threads, self.acquisitions, rests)?;
        Ok((history, promise))
    }
}

/// The record of a run.
#[derive(Serialize)]
struct BypassRecord {
    bench: &'static str,
    lock: String,
    inner: LockName,
    threads: usize,
    b: u32,
    stall: bool,
    acquisitions: usize,
    /// The number of these acquisitions that went past the gate.
    past: usize,
    /// The number of late contenders that had arrived. They may have been bypassed, too, and count below.
    late: usize,
    /// True if the run is measured by the clock: then bypasses of contenders that wait for the capacitor are not seen.
    by_clock: bool,
    max: u32,
    p99: u32,
    mean: f64,
    /// The numbers of contenders that were bypassed 0 times, once, and so on up to the bound.
    histogram: Vec<u64>,
    beyond: u64,
    /// Bypasses by contenders that went past the gate: none, if the gate is right.
    by_past: u64,
    /// The most bypasses of a contender by the same contender. The next field is the number of contenders that were
    /// bypassed more than once by the same contender.
    by_one: u32,
    by_one_again: u64,
    /// The numbers of contenders that were at the lock at the admissions.
    #[serde(flatten)]
    sawtooth: Sawtooth,
    bound: u64,
    /// True if the library promises the bound.
    promised: bool,
    /// True if the bound holds. `None` if the bound is not promised, and no bypass beyond it was found.
    holds: Option<bool>,
}

impl BypassRecord {
    fn new(inner: LockName, run: Run, (history, promise): &Outcome) -> Self {
        let bound = promise.unwrap_or(run.case.bound(run.limit));
        let bypasses = bypasses(history);
        let arrived = |entries: &[Entry]| entries.iter().filter(|entry| matches!(entry, Entry::Arrived { .. })).count();
        let acquisitions = history.admitted.len();
        let Bypass { max, p99, mean, histogram, beyond, by_past } = Bypass::of(&bypasses, bound);
        let exceeded = beyond > 0 || by_past > 0;
        let by_one = bypasses_by_one(history);
        Self {
            bench: "bypass",
            lock: run.case.name(inner, run.limit),
            inner,
            threads: run.threads,
            b: run.limit,
            stall: run.stall,
            acquisitions,
            past: acquisitions - arrived(&history.admitted),
            late: arrived(&history.late),
            by_clock: run.case.is_by_clock(),
            max,
            p99,
            mean,
            histogram,
            beyond,
            by_past,
            by_one: by_one.iter().copied().max().unwrap_or(0),
            by_one_again: by_one.iter().filter(|&&times| times > 1).count() as u64,
            sawtooth: Sawtooth::of(&history.beside),
            bound,
            promised: promise.is_some(),
            holds: (promise.is_some() || exceeded).then_some(!exceeded),
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.promised, self.holds) {
            (true, Some(true)) => "holds",
            (true, _) => "BROKEN",
            (false, Some(false)) => "no bound: exceeded",
            (false, _) => "no bound: not exceeded",
        }
    }
}

/// Measures, prints, and fails if a promise is broken.
pub fn run(args: &BypassArgs, output: Output) -> Result<(), Failure> {
    let locks = args.locks.as_ref().map_or(LockName::INNER, |list| &list.0);
    let all = || locks.iter().flat_map(|&inner| CASES.map(|case| (inner, case))).chain([CONTROL]);
    let progress = output.progress("bypass", all().count());
    let mut records = Vec::new();
    for (inner, case) in all() {
        let &BypassArgs { b: limit, threads, acquisitions, stall, .. } = args;
        let run = Run { case, limit, threads, acquisitions, stall };
        let outcome =
            run.make(inner).map_err(|error| Failure::Run(format!("cannot start {threads} threads: {error}")))?;
        let record = BypassRecord::new(inner, run, &outcome);
        output.record(&record)?;
        records.push(record);
        progress.inc(1);
    }
    progress.finish_and_clear();
    print(args, &records, output)?;

    let broken: Vec<_> = records.iter().filter(|r| r.promised && r.holds == Some(false)).collect();
    if broken.is_empty() {
        return Ok(());
    }
    let broken: Vec<_> = broken
        .iter()
        .map(|r| match r.beyond {
            0 => format!("{}: {} times past the gate", r.lock, r.by_past),
            _ => format!("{}: {} > {}", r.lock, r.max, r.bound),
        })
        .collect();
    Err(Failure::Run(format!("bypassed more often than promised: {}", broken.join("; "))))
}

fn print(args: &BypassArgs, records: &[BypassRecord], output: Output) -> Result<(), Failure> {
    let kept =
        if args.stall { "one arrival in 1000 is delayed on its way to the lock" } else { "no arrival is delayed" };
    output.text(format_args!(
        "bypass on threads: {} contenders with {} acquisitions each, B = {}; {kept}\n",
        args.threads, args.acquisitions, args.b
    ))?;
    let header = ["lock", "", "bound", "max", "by one", "again", "p99", "mean", "past the gate"];
    let header = header.into_iter().chain(["bypassed 0, 1, 2... times", "more often", "at the lock", "falls", "jumps"]);
    let mut table = Table::new(2, header);
    for record in records {
        let counts: Vec<_> = record.histogram.iter().map(|&n| units::count(n as f64)).collect();
        table.row([
            record.lock.clone(),
            record.verdict().to_owned(),
            record.bound.to_string(),
            record.max.to_string(),
            record.by_one.to_string(),
            units::count(record.by_one_again as f64),
            record.p99.to_string(),
            units::ratio(record.mean),
            units::ratio(record.past as f64 / record.acquisitions.max(1) as f64),
            counts.join(" "),
            units::count(record.beyond as f64),
            units::ratio(record.sawtooth.at_lock_mean),
            units::ratio(record.sawtooth.falls),
            units::ratio(record.sawtooth.jumps),
        ]);
    }
    output.text(format_args!("{table}\n"))?;
    output.text("Bypassed: how many contenders arrived later than this contender, and had the lock earlier.")?;
    output.text(
        "by one: the most of these by the same contender. again: how many contenders were overtaken more than once by \
         the same one.",
    )?;
    output.text(
        "at the lock: the mean number, at an admission, of contenders that were let through and have not released the \
         lock. falls, jumps: the part of the admissions after which this number was one less, or larger by two or \
         more.",
    )?;
    output.text(
        "past the gate: the part of the acquisitions that bypassed the capacitor. These are neither counted as \
         bypassed nor as bypassing.",
    )?;
    output.text(
        "Over the benaphore, and in lanes that are counted separately, contenders have no numbers: a clock orders the \
         contenders that were let through, and bypassing before that is not seen.",
    )?;
    for record in records.iter().filter(|record| !record.promised) {
        let BypassRecord { lock, max, bound, .. } = record;
        output.text(match record.holds {
            Some(false) => format!("{lock}: a counterexample, bypassed {max} times, where {bound} would be the bound."),
            _ => format!("{lock}: no counterexample to a bound of {bound} in this run."),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Case {
        fn is_gated(self) -> bool {
            matches!(self, Self::PlatoonGated | Self::WindowGated)
        }
    }

    fn record(inner: LockName, case: Case, acquisitions: usize) -> BypassRecord {
        let run = Run { case, limit: 2, threads: 5, acquisitions, stall: true };
        BypassRecord::new(inner, run, &run.make(inner).unwrap())
    }

    #[test]
    fn what_is_promised_holds() {
        for inner in [LockName::Lifo, LockName::Tts, LockName::Std] {
            for case in CASES {
                let record = record(inner, case, 2_000);
                assert_eq!(record.promised, !matches!(case, Case::Separate(_)), "{case:?}");
                assert!(!record.promised || record.holds == Some(true), "{}: {}", record.lock, record.max);
                let counted = record.histogram.iter().sum::<u64>() + record.beyond;
                assert_eq!(counted as usize + record.past, 2_000 + record.late);
                assert!(record.late <= 5 && (record.late == 5 || case.is_gated()), "{}: {}", record.lock, record.late);
                assert_eq!(record.bound, case.bound(2), "{case:?}");
                assert!(record.past == 0 || case.is_gated(), "{case:?}");
            }
        }
    }

    #[test]
    fn no_key_of_a_record_comes_twice() {
        let text = serde_json::to_string(&record(LockName::Mcs, Case::Window, 100)).unwrap();
        let keys: Vec<_> = text.split('"').skip(1).step_by(2).collect();
        let twice = keys.iter().enumerate().find(|(n, key)| keys[..*n].contains(key));
        assert_eq!(twice, None, "{text}");
    }

    /// A contender in two thousand sleeps on its way to the lock, and the others do not wait for that contender.
    #[test]
    fn without_a_capacitor_somebody_is_bypassed_for_long() {
        let (inner, case) = CONTROL;
        assert!((0..100).any(|_| record(inner, case, 20_000).holds == Some(false)));
    }

    /// A window that lets through one contender more than its limit.
    #[test]
    fn a_broken_promise_is_noticed() {
        let history = |admitted: &[Entry], late: &[Entry]| ArrivalHistory {
            admitted: admitted.into(),
            late: late.into(),
            beside: Vec::new(),
        };
        let run = Run { case: Case::Window, limit: 2, threads: 3, acquisitions: 3, stall: false };
        let late = history(&[1, 2].map(Entry::at), &[Entry::at(0)]); // the late contender starved to the end
        for history in [history(&[1, 2, 0].map(Entry::at), &[]), late] {
            let record = BypassRecord::new(LockName::Tts, run, &(history, Some(1)));
            assert_eq!((record.max, record.beyond, record.holds, record.verdict()), (2, 1, Some(false), "BROKEN"));
        }
        // The number of bypasses is within the bound; but no contender may go past the gate while another is in the
        // capacitor.
        let history = history(&[Entry::Past { began: 1 }, Entry::at(0)], &[]);
        let record = BypassRecord::new(LockName::Tts, Run { case: Case::WindowGated, ..run }, &(history, Some(1)));
        assert_eq!((record.max, record.beyond, record.by_past, record.holds), (1, 0, 1, Some(false)));
    }
}
