//! The figures of the sources, drawn anew, with the claims of the sources and whether the measured curves show the claims.
//!
//! | figure | of | bench |
//! |---|---|---|
//! | semaphores | figure 1 of Dice and Kogan, *Semaphores Augmented with a Waiting Array* | semabench |
//! | listings | listings 1 to 5 of the same paper, as printed | semabench |
//! | capacitors | figure 1 of Dice, *Capacitors*: five locks, B = 10, the TWA semaphore as printed | mutexbench |
//! | window | locks behind the sliding window, over B | mutexbench, each run followed by a logged one |
//!
//! All contenders spin, as in the sources. The claims are those of `lab/src/claims` whose commands draw the figure.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sudog_runtime::shim::system::thread;

use super::capacitor;
use crate::bench::page::{self, FAIRNESS, Quantity, THROUGHPUT};
use crate::bench::plan::{Plan, choose};
use crate::bench::summary::Summaries;
use crate::claims::{Beside, Verdict, beside};
use crate::measure::usage::disturbance;
use crate::options::{List, MAX_RUNS, MAX_THREADS, number, numbers, seconds};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::report::{
    Escaped, Page, ReportFile, Style, deliver, facts, figures, legend as html_legend, place, table as html_table,
};
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::run::driver::Workload;
use crate::targets::compose::name::{Admit, Wait};
use crate::targets::locks::LockName;
use crate::targets::registry::names;
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::Target;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct FiguresArgs {
    /// Only this figure: semaphores, capacitors, window
    #[arg(long, value_name = "FIGURE")]
    pub only: Option<Figure>,

    /// Numbers of contenders [default: powers of two, up to 64 and to the processors; the window 1,8,16,64 of these]
    #[arg(long, value_name = "N,N", value_parser = numbers::<1, MAX_THREADS>)]
    pub threads: Option<List<usize>>,

    /// Length of a run
    #[arg(long, value_name = "S", default_value = DEFAULT_SECONDS, value_parser = seconds)]
    pub seconds: Duration,

    /// Path of the HTML report [default: lab/figures.html in the target directory]
    #[arg(long, value_name = "PATH")]
    pub report: Option<PathBuf>,

    /// Runs of each target with each number of contenders, taking turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,
}

/// The default length of a run. Simulated time is dear, and a simulated run has no noise.
const DEFAULT_SECONDS: &str = if cfg!(sudog_sim) { "0.002" } else { "0.1" };

names! {
    /// A figure.
    enum Figure;
    unknown "figure";
    Semaphores = "semaphores", "Figure 1 of the paper on waiting arrays.";
    Listings = "listings", "The listings of the paper on waiting arrays, as printed.";
    Capacitors = "capacitors", "Figure 1 of the paper on capacitors.";
    Window = "window", "The sliding window, over B.";
}

/// The semaphores of the paper's figure: its first two listings as printed; a later listing; and a semaphore whose
/// waiters sleep, for comparison.
const SEMAPHORES: [SemaphoreName; 4] =
    [SemaphoreName::TicketSpin, SemaphoreName::TwaSpin, SemaphoreName::TwaChainSpin, SemaphoreName::Benaphore];

/// The paper's listings as printed, in its order.
const LISTINGS: [SemaphoreName; 5] = [
    SemaphoreName::TicketSpin,
    SemaphoreName::TwaSpin,
    SemaphoreName::TwaChainPrintedSpin,
    SemaphoreName::TwaChannelPrintedSpin,
    SemaphoreName::TwaLocationPrinted,
];

/// The locks of the paper's figure, in its order.
const CAPACITOR_LOCKS: [LockName; 5] =
    [LockName::ReciprocatingSpin, LockName::TicketSpin, LockName::LifoSpin, LockName::McsSpin, LockName::TtsSpin];

/// The bypass limit of the paper's capacitor.
const CAPACITOR_LIMIT: u32 = 10;

/// The part of the contenders that goes through the capacitor, as in the paper: the other 99 in 100 go past the
/// capacitor.
const THROUGH: f64 = 0.01;

/// The locks of the sweep: a lock that spins globally, a fair lock, and an unfair lock.
const SWEPT_LOCKS: [LockName; 3] = [LockName::TtsSpin, LockName::McsSpin, LockName::ReciprocatingSpin];

/// The bypass limits of the sweep. The last is the largest limit of a window.
const BYPASS_LIMITS: [u32; 6] = [2, 4, 8, 10, 16, 31];

/// Returns the inner lock in the paper's capacitor.
fn platoon(inner: LockName) -> Target {
    capacitor::platoon(inner, CAPACITOR_LIMIT, SemaphoreName::TwaSpin, Admit::Always)
}

/// Returns the inner lock in the paper's capacitor, through which one contender in a hundred goes.
fn fractional(inner: LockName) -> Target {
    capacitor::platoon(inner, CAPACITOR_LIMIT, SemaphoreName::TwaSpin, Admit::Fractional(THROUGH))
}

/// Returns the inner lock behind the window: no contender passes a gate, and all spin.
fn window(inner: LockName, limit: u32) -> Target {
    capacitor::window(inner, limit, Wait::Spin, Admit::Always)
}

impl Figure {
    const fn title(self) -> &'static str {
        match self {
            Self::Semaphores => "Semaphores: figure 1 of \"Semaphores Augmented with a Waiting Array\"",
            Self::Listings => "Semaphores: the five listings of the same paper, as printed",
            Self::Capacitors => "Capacitors: figure 1 of \"Capacitors\", B = 10, with the TWA semaphore as printed",
            Self::Window => "The sliding window, over B",
        }
    }

    const fn explanation(self) -> &'static str {
        match self {
            Self::Semaphores => {
                "The paper: an X5-2 of 2 sockets, 36 cores and 72 threads; a step of a shared generator while a contender \
                 has the permit, a step of its own while it has not. Its third curve, sem_t of the system, cannot run on a \
                 simulated machine."
            }
            Self::Listings => {
                "All waiters spin. In listings 3 to 5 no waiter watches the grant, and there are 4096 buckets; in 3 and 4 each \
                 woken waiter wakes the next of its chain. Misses: accesses that another cache or memory served."
            }
            Self::Capacitors => {
                "The paper: an Altra of 128 cores on one socket; a step of a shared generator in the critical section, \
                 nothing outside. Solid and on the left: throughput. Dotted and on the right: min/max. Wrapped: each \
                 contender goes through the capacitor. Fractional: one in a hundred, drawn at random."
            }
            Self::Window => {
                "Locks behind the sliding window, without its gate; contenders that are not yet let in spin on the window's \
                 word. platoon: the capacitor above, with B = 10. The claims are those of a prototype of the simulated \
                 machine, in which these waiters watched a waiting array."
            }
        }
    }

    fn targets(self) -> Vec<Target> {
        match self {
            Self::Semaphores => SEMAPHORES.map(Target::Semaphore).to_vec(),
            Self::Listings => LISTINGS.map(Target::Semaphore).to_vec(),
            Self::Capacitors => {
                CAPACITOR_LOCKS.iter().flat_map(|&lock| [lock.into(), platoon(lock), fractional(lock)]).collect()
            }
            Self::Window => SWEPT_LOCKS.iter().flat_map(|&lock| Self::swept(lock)).collect(),
        }
    }

    /// Returns the targets of an inner lock in the sweep.
    fn swept(inner: LockName) -> Vec<Target> {
        [inner.into(), platoon(inner)].into_iter().chain(BYPASS_LIMITS.map(|limit| window(inner, limit))).collect()
    }

    /// Returns powers of two, as many as there are processors for. The window has twice as many runs, so fewer numbers.
    fn usual_threads(self, processors: usize) -> Vec<usize> {
        let all: &[usize] = match self {
            Self::Semaphores | Self::Listings | Self::Capacitors => &[1, 2, 4, 8, 16, 32, 64],
            Self::Window => &[1, 8, 16, 64],
        };
        all.iter().copied().filter(|&threads| threads <= processors.max(1)).collect()
    }

    fn plan(self, args: &FiguresArgs) -> Result<Plan, Failure> {
        let processors = thread::available_parallelism().map_or(1, |n| n.get());
        let threads = args.threads.as_ref().map_or_else(|| self.usual_threads(processors), |list| list.0.clone());
        Ok(Plan {
            bench: "figures",
            targets: choose(Contenders::Threads, &self.targets(), None)?,
            threads,
            runs: args.runs,
            on: Contenders::Threads,
            logged: self == Self::Window,
            workload: Workload {
                duration: args.seconds,
                ncs: u32::from(matches!(self, Self::Semaphores | Self::Listings)),
                sample: 0,
                ..Workload::USUAL
            },
        })
    }
}

/// A measured figure.
struct Measured {
    figure: Figure,
    headline: String,
    summaries: Summaries,
    claims: Vec<Beside>,
}

/// Measures, prints the claims and the answers, and writes the page.
pub fn run(args: &FiguresArgs, output: Output) -> Result<(), Failure> {
    let file = ReportFile::create_or_default(args.report.as_deref(), "figures.html")?;
    let asked = Figure::ALL.iter().copied().filter(|&figure| args.only.is_none_or(|only| only == figure));
    let plans = asked.map(|figure| Ok((figure, figure.plan(args)?))).collect::<Result<Vec<_>, Failure>>()?;
    output.estimate("figures", plans.iter().map(|(_, plan)| plan.time(plan.total())).sum());
    let progress = output.progress("figures", plans.iter().map(|(_, plan)| plan.total()).sum());
    let mut all = Vec::new();
    for (figure, plan) in plans {
        let records = plan.measure(output, &progress)?;
        let summaries = Summaries::new(&plan, &records);
        let claims = beside(figure.name(), &records)?;
        all.push(Measured { figure, headline: plan.headline(), summaries, claims });
    }
    progress.finish_and_clear();
    for Measured { figure, headline, summaries, claims } in &all {
        output.text(format_args!("{}\n{headline}\n\n{}\n", figure.title(), table(summaries)))?;
        for claim in claims {
            output.text(format_args!("{}: {}\n    {}", word(claim), claim.says, claim.figures.join("\n    ")))?;
            output.record(claim)?;
        }
        output.text("")?;
    }
    deliver(file, &html(&all), output)
}

/// Returns whether the measured curves show a claim.
const fn word(claim: &Beside) -> &'static str {
    match claim.verdict {
        Some(Verdict::Confirmed) => "shown",
        Some(Verdict::Open) => "shown in some runs",
        Some(Verdict::Refuted) => "not shown",
        None => "not measured",
    }
}

/// Returns the whole page.
fn html(all: &[Measured]) -> String {
    let mut page = Page::new(
        format!("The figures of the sources, drawn on {}", place()),
        "Each figure has beside it what its source says of it, the figures with the bounds that are asked, and whether they show it. The \
         sources print no numbers, so the bounds are ours. Compare shapes and ratios, and no throughput with that of \
         another machine.",
    );
    page.section("Where it was measured", facts(&Contenders::Threads));
    for measured in all {
        let Measured { figure, headline, summaries, claims } = measured;
        page.section(figure.title(), "");
        page.paragraph(figure.explanation());
        let (legend, mut plots) = plots(*figure, summaries);
        page.html(legend);
        plots.push(("What the source says".to_owned(), list(claims)));
        page.html(figures(plots));
        page.paragraph(headline);
        page.html(format_args!(
            "<details><summary>In figures</summary>\n{}</details>\n",
            html_table(&table(summaries))
        ));
        if let Some(disturbed) = disturbance(summaries.other_cpus) {
            page.paragraph(&disturbed);
        }
    }
    page.render()
}

/// Returns a table of all medians that are drawn or that a check uses, and of figures that explain them.
fn table(summaries: &Summaries) -> Table {
    let columns = ["T", "throughput", "min/max", "Jain", "longest bypass", "misses", "invalidations"];
    let mut table = Table::new(1, [summaries.kind()].into_iter().chain(columns));
    let number = |n: f64| if n.is_finite() { format!("{n:.1}") } else { units::NOTHING.to_owned() };
    for s in &summaries.all {
        table.row([
            s.target.name().to_owned(),
            s.threads.to_string(),
            units::rate(s.throughput),
            units::ratio(s.min_max),
            units::ratio(s.jain),
            units::count(s.logged_bypass),
            number(s.misses),
            number(s.invalidations),
        ]);
    }
    table
}

/// Returns claims and whether the curves show them, as HTML.
fn list(claims: &[Beside]) -> String {
    let mut html = String::from("<ul class=\"claims\">\n");
    for claim in claims {
        let class = word(claim).replace(' ', "-");
        let figures = claim.figures.join("; ");
        let [word, says, figures] = [word(claim), &claim.says, &figures].map(Escaped);
        let _ = writeln!(html, "<li class=\"{class}\"><b>{word}</b> {says}.<br><small>{figures}</small></li>");
    }
    html + "</ul>\n"
}

const MISSES: Quantity = Quantity {
    axis: "misses an acquisition",
    of: |s| s.misses,
    label: |misses| format!("{misses:.0}"),
    logarithmic: true,
};

const OF_THE_WINDOW: [(&str, Quantity); 3] = [
    ("throughput", THROUGHPUT),
    ("min/max", FAIRNESS),
    (
        "longest bypass",
        Quantity { axis: "longest bypass", of: |s| s.logged_bypass, label: units::count, logarithmic: false },
    ),
];

/// Returns a legend, and the plots with their titles. In each plot of a figure a variant has the same style.
fn plots(figure: Figure, summaries: &Summaries) -> (String, Vec<(String, String)>) {
    let legend = |names: &[&str]| html_legend(names.iter().enumerate().map(|(n, &name)| (name, "", Style::nth(n))));
    match figure {
        Figure::Semaphores | Figure::Listings => {
            let items = || (0..).map(Style::nth).zip(&summaries.targets);
            let named = || items().map(|(style, &target)| (target, target.name(), style));
            let legend = html_legend(items().map(|(style, target)| (target.name(), target.about(), style)));
            let mut plots = vec![("Throughput".to_owned(), page::plot(summaries, named(), THROUGHPUT))];
            if figure == Figure::Listings && summaries.all.iter().any(|s| s.misses.is_finite()) {
                plots.push(("Misses".to_owned(), page::plot(summaries, named(), MISSES)));
            }
            (legend, plots)
        }
        Figure::Capacitors => {
            let plot = |lock: LockName| {
                let of = [lock.into(), platoon(lock), fractional(lock)];
                let curves = of.into_iter().zip((0..).map(Style::nth));
                (lock.name().to_owned(), page::throughput_and_fairness(summaries, curves))
            };
            (legend(&["bare", "wrapped", "fractional"]), CAPACITOR_LOCKS.map(plot).to_vec())
        }
        Figure::Window => {
            let names = BYPASS_LIMITS.map(|limit| format!("B = {limit}"));
            let names: Vec<&str> = ["bare", "platoon"].into_iter().chain(names.iter().map(String::as_str)).collect();
            let plots = OF_THE_WINDOW.into_iter().flat_map(|(title, quantity)| {
                SWEPT_LOCKS.map(|lock| {
                    let named = Figure::swept(lock).into_iter().zip(&names).enumerate();
                    let curves = named.map(|(n, (target, &name))| (target, name, Style::nth(n)));
                    (format!("{}: {title}", lock.name()), page::plot(summaries, curves, quantity))
                })
            });
            let plots = plots.collect();
            (legend(&names), plots)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::summary::Summary;

    fn measured(figure: Figure) -> Measured {
        let threads = vec![1, 8, 64];
        let targets = figure.targets();
        let summary = |&target: &Target, threads: usize| {
            let mut summary = Summary::new(target, threads, &[]);
            summary.throughput = 1e6 / threads as f64;
            summary.min_max = 0.5;
            summary
        };
        let all = threads.iter().flat_map(|&t| targets.iter().map(move |target| summary(target, t))).collect();
        let summaries = Summaries { on: Contenders::Threads, targets, threads, all, other_cpus: None };
        let claims = beside(figure.name(), &[(); 0]).unwrap();
        assert!(claims.len() >= 4 && claims.iter().all(|claim| claim.verdict.is_none()));
        Measured { figure, headline: "a < b".to_owned(), summaries, claims }
    }

    #[test]
    fn each_claim_and_each_curve_is_on_the_page() {
        for &figure in Figure::ALL {
            let measured = measured(figure);
            let page = html(std::slice::from_ref(&measured));
            for claim in &measured.claims {
                assert!(page.contains(&Escaped(&claim.says).to_string()), "{}", claim.says);
            }
            assert!(page.contains(&Escaped(figure.title()).to_string()) && page.contains("<p>a &lt; b</p>"));
            let (plots, curves) = match figure {
                Figure::Semaphores => (1, SEMAPHORES.len()),
                // No misses were measured in this test.
                Figure::Listings => (1, LISTINGS.len()),
                Figure::Capacitors => (CAPACITOR_LOCKS.len(), 3 * CAPACITOR_LOCKS.len()),
                // The longest bypass was not measured in this test.
                Figure::Window => (2 * SWEPT_LOCKS.len(), 2 * SWEPT_LOCKS.len() * (2 + BYPASS_LIMITS.len())),
            };
            assert_eq!(page.matches("<svg").count(), plots);
            assert!(page.matches("stroke-width=\"2\"").count() >= curves, "{figure:?}");
        }
    }

    #[test]
    fn no_more_contenders_than_processors_unless_asked_for() {
        assert_eq!(Figure::Semaphores.usual_threads(72), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(Figure::Capacitors.usual_threads(4), [1, 2, 4]);
        assert_eq!(Figure::Window.usual_threads(0), [1]);
    }
}
