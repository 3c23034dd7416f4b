//! The study of starvation mode: which contenders waited, which overtook which, and when the mutex changed its mode.
//!
//! Some contenders have the mutex nearly always, others want the mutex now and then: see [`contest`]. The events of the
//! mutex and its semaphore become an [`event_history`], which is shown as a picture for a page, and as
//! figures. The history also proves a claim: each handoff went to the waiter that had waited longest.

pub mod contest;
pub mod event_history;
mod line;
mod page;
mod timeline;

use crate::options::{OnArgs, seconds};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use sudog_runtime::event::{Event, Kind, Who};

pub use self::line::Verdict;

use self::contest::{Contender, Contest, HOLD, Outcome, VICTIM_HOLD, VICTIM_PAUSE, VICTIMS};
use self::event_history::{EventHistory, Lane};

use self::timeline::timeline;
use crate::measure::metrics::median;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::report::{ReportFile, deliver};
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::targets::policies::PolicyName;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct StarvationArgs {
    /// Policy of the mutex: go-1.8, go-1.9, go-1.14, fifo, threads
    #[arg(long, value_name = "NAME", default_value = "go-1.14")]
    pub policy: PolicyName,

    /// Length of the contest
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds)]
    pub seconds: Duration,

    /// Path of the HTML report [default: lab/starvation.html in the target directory]
    #[arg(long, value_name = "PATH")]
    pub report: Option<PathBuf>,

    /// File to which the picture alone is written, besides the report
    #[arg(long, value_name = "PATH")]
    pub svg: Option<PathBuf>,

    /// File to which the contest is written as a trace, which ui.perfetto.dev and chrome://tracing open
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,

    #[command(flatten)]
    pub on: OnArgs,
}

#[derive(Serialize)]
struct EventRecord<'a> {
    bench: &'static str,
    event: &'static str,
    at_ns: u64,
    who: String,
    contender: &'a str,
    role: &'static str,
    /// The identifier of the sleep, in events of contenders that sleep and are woken.
    waiter: Option<usize>,
}

/// The record of the whole contest.
#[derive(Serialize)]
struct Summary<'a> {
    bench: &'static str,
    summary: bool,
    policy: PolicyName,
    #[serde(flatten)]
    on: Contenders,
    seconds: f64,
    contenders: Vec<ContenderRecord<'a>>,
    handoffs: usize,
    handoffs_to_the_longest_waiting: usize,
    handoffs_to_one_who_had_passed: usize,
    handoffs_to_another: usize,
    handoffs_not_judged: usize,
    starving_enters: usize,
    starving_exits: usize,
    starving_ns: u64,
    barges: usize,
    spin_wins: usize,
    wakes: usize,
    requeues: usize,
    stolen_tokens: usize,
    dropped: u64,
}

#[derive(Serialize)]
struct ContenderRecord<'a> {
    contender: &'a str,
    role: &'static str,
    acquisitions: u64,
    share: f64,
    wait_p50_ns: Option<u64>,
    wait_max_ns: Option<u64>,
}

const NAME: &str = "starvation";
/// The length of the part that is drawn, from a little before starvation mode begins.
const WINDOW: Duration = Duration::from_millis(5);

impl Contest {
    fn headline(&self) -> String {
        format!(
            "{NAME} on {}: 1 hog, {VICTIMS} victims; {}: {}.\n\
             A hog holds the mutex for {} and wants it again at once; a victim holds it for {} and wants it again after {}.",
            self.on,
            self.policy.name(),
            self.policy.about(),
            time(HOLD),
            time(VICTIM_HOLD),
            time(VICTIM_PAUSE)
        )
    }
}

fn time(time: Duration) -> String {
    units::time(ns(time) as f64)
}

/// Runs the contest, shows the result, and writes the report.
pub fn run(args: &StarvationArgs, output: Output) -> Result<(), Failure> {
    let contest = Contest { policy: args.policy, duration: args.seconds, on: args.on.contenders()? };
    let file = ReportFile::create_or_default(args.report.as_deref(), "starvation.html")?;
    let svg = args.svg.as_deref().map(ReportFile::create).transpose()?;
    let trace = args.trace.as_deref().map(ReportFile::create).transpose()?;

    let contenders = contest.contenders();
    let outcome =
        contest.hold().map_err(|e| Failure::Run(format!("cannot start {} {}: {e}", contenders.len(), contest.on)))?;
    let history = EventHistory::new(&outcome.recording.events, &contenders, outcome.recording.dropped, outcome.elapsed);
    let names: Vec<_> = contenders.iter().map(ToString::to_string).collect();
    record(&contest, &contenders, &names, &outcome, &history, output)?;

    let window = history.window(WINDOW);
    let (table, remarks) = (table(&names, &outcome, &history), remarks(&contest, &outcome, &history));
    output.text(format_args!("{}\n", contest.headline()))?;
    output.text(format_args!("{table}\n"))?;
    for remark in &remarks {
        output.text(remark)?;
    }
    let picture = timeline(&history, &names, window);
    if let Some(svg) = svg {
        svg.commit(&picture)?;
    }
    if let Some(trace) = trace {
        let mut json = Vec::new();
        let written = outcome.recording.write_trace(&mut json);
        written.map_err(|error| Failure::Run(format!("cannot write the trace: {error}")))?;
        trace.commit(&String::from_utf8_lossy(&json))?;
    }
    deliver(file, &page::page(&contest.headline(), &picture, &table, &remarks, contest.on), output)
}

fn record(
    contest: &Contest,
    contenders: &[Contender],
    names: &[String],
    outcome: &Outcome,
    history: &EventHistory,
    output: Output,
) -> Result<(), Failure> {
    let contender = |who: Who| history.lanes.iter().position(|lane| lane.who == Some(who));
    for event in &outcome.recording.events {
        if let Some(n) = contender(event.who) {
            output.record(&EventRecord {
                bench: NAME,
                event: event.kind.name(),
                at_ns: ns(event.at),
                who: event.who.to_string(),
                contender: &names[n],
                role: contenders[n].role.name(),
                waiter: waiter(event),
            })?;
        }
    }
    let all = outcome.acquisitions.iter().sum::<u64>().max(1);
    let of_contender = |n: usize| {
        let Lane { waits, .. } = &history.lanes[n];
        ContenderRecord {
            contender: &names[n],
            role: contenders[n].role.name(),
            acquisitions: outcome.acquisitions[n],
            share: outcome.acquisitions[n] as f64 / all as f64,
            wait_p50_ns: (!waits.is_empty()).then(|| middle(waits) as u64),
            wait_max_ns: waits.iter().copied().max().map(ns),
        }
    };
    output.record(&Summary {
        bench: NAME,
        summary: true,
        policy: contest.policy,
        on: contest.on,
        seconds: history.end.as_secs_f64(),
        contenders: (0..contenders.len()).map(of_contender).collect(),
        handoffs: history.handoffs.len(),
        handoffs_to_the_longest_waiting: history.judged(Verdict::Longest),
        handoffs_to_one_who_had_passed: history.judged(Verdict::Passed),
        handoffs_to_another: history.judged(Verdict::Another),
        handoffs_not_judged: history.judged(Verdict::Unknown),
        starving_enters: history.count(Kind::StarvingEnter),
        starving_exits: history.count(Kind::StarvingExit),
        starving_ns: ns(history.time_starving()),
        barges: history.count(Kind::Barge),
        spin_wins: history.count(Kind::SpinWin),
        wakes: history.count(Kind::Wake),
        requeues: history.count(Kind::Requeue),
        stolen_tokens: history.count(Kind::StolenToken),
        dropped: outcome.recording.dropped,
    })
}

/// Returns the identifier of the sleep of an event. In other events contenders use this field to name themselves.
fn waiter(event: &Event) -> Option<usize> {
    let of_a_sleep = [Kind::Sleep, Kind::Requeue, Kind::Wake, Kind::Handoff, Kind::Leave].contains(&event.kind);
    of_a_sleep.then_some(event.waiter)
}

fn table(names: &[String], outcome: &Outcome, history: &EventHistory) -> Table {
    let all = outcome.acquisitions.iter().sum::<u64>().max(1);
    let header = ["", "events of", "acquisitions", "share", "median wait", "longest wait"];
    let mut table = Table::new(2, header);
    for ((name, lane), &acquisitions) in names.iter().zip(&history.lanes).zip(&outcome.acquisitions) {
        let longest = lane.waits.iter().copied().max().map_or(f64::NAN, |wait| ns(wait) as f64);
        table.row([
            name.clone(),
            lane.who.map_or_else(|| units::NOTHING.to_owned(), |who| who.to_string()),
            acquisitions.to_string(),
            format!("{:.1} %", 100.0 * acquisitions as f64 / all as f64),
            units::time(middle(&lane.waits)),
            units::time(longest),
        ]);
    }
    table
}

/// Returns the median in nanoseconds.
fn middle(waits: &[Duration]) -> f64 {
    median(waits.iter().map(|&wait| ns(wait) as f64))
}

fn remarks(contest: &Contest, outcome: &Outcome, history: &EventHistory) -> Vec<String> {
    let count = |kind| history.count(kind);
    let mut remarks = vec![
        format!(
            "Starvation mode: turned on {} times, turned off {} times; it lasted {} of {}.",
            count(Kind::StarvingEnter),
            count(Kind::StarvingExit),
            time(history.time_starving()),
            time(history.end)
        ),
        format!(
            "Newcomers that overtook sleepers (barges): {}. Locks after a spin: {}. Wake-ups to compete for the \
             mutex: {}, of which in vain: {}.",
            count(Kind::Barge),
            count(Kind::SpinWin),
            count(Kind::Wake),
            count(Kind::Requeue)
        ),
        check(history),
    ];
    if contest.policy == PolicyName::Threads {
        remarks.push(
            "Under this policy the mutex mostly goes to the successor, which is awake: only handoffs to a sleeping waiter \
             are counted."
                .to_owned(),
        );
    }
    if contest.on.have_one_worker() {
        remarks.push(
            "With one worker a busy goroutine keeps the others from running, so they seldom ask for the mutex."
                .to_owned(),
        );
    }
    if outcome.recording.dropped > 0 {
        remarks.push(format!(
            "The {} oldest events had no room: waits and counts are those of the other events. Acquisitions are \
             complete.",
            outcome.recording.dropped
        ));
    }
    remarks
}

/// Returns the proven claim about handoffs, in a sentence or two.
fn check(history: &EventHistory) -> String {
    let judged = |verdict| history.judged(verdict);
    let all = history.handoffs.len();
    let mut text = match (all, judged(Verdict::Another)) {
        (0, _) => return "No handoffs.".to_owned(),
        (_, 0) => format!("Handoffs: {all}, to the waiter that had waited longest: {}.", judged(Verdict::Longest)),
        (_, wrong) => format!("WRONG: of {all} handoffs {wrong} went to a waiter that had not waited longest."),
    };
    if judged(Verdict::Passed) > 0 {
        text += &format!(
            " To a waiter that had passed longer waiters on its way into the queue: {}.",
            judged(Verdict::Passed)
        );
    }
    if judged(Verdict::Unknown) > 0 {
        text += &format!(" Not judged, because events are missing: {}.", judged(Verdict::Unknown));
    }
    text
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}
