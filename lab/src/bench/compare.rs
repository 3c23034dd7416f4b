//! The command `compare`: all comparisons, in about 25 seconds.

use crate::options::OnArgs;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

use super::plan::{self, Plan};
use super::summary::Summaries;
use super::uncontended::{self, PEERS};

use super::page;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::report::ReportFile;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::Contenders;
use crate::run::driver::Workload;
use crate::targets::locks::LockName;

#[derive(Args, Clone, Default, Debug)]
pub struct CompareArgs {
    /// A rehearsal of a few seconds: the figures are worth nothing
    #[arg(long)]
    pub quick: bool,

    /// Path of the HTML report [default: lab/report.html in the target directory]
    #[arg(long, value_name = "PATH")]
    pub report: Option<PathBuf>,

    #[command(flatten)]
    pub on: OnArgs,
}

/// The numbers of rounds and runs, and their sizes.
struct Scale {
    rounds: usize,
    runs: usize,
    run: Duration,
}

const FULL: Scale = Scale { rounds: 9, runs: 3, run: Duration::from_millis(130) };

const QUICK: Scale = Scale { rounds: 1, runs: 1, run: Duration::from_millis(20) };

/// Runs `compare`: measures everything, prints a table, writes the report.
pub fn run(args: &CompareArgs, output: Output) -> Result<(), Failure> {
    let scale = if args.quick { QUICK } else { FULL };
    let on = args.on.contenders()?;
    let file = ReportFile::create_or_default(args.report.as_deref(), "report.html")?;
    let plan = Plan {
        bench: "mutexbench",
        targets: plan::choose(on, &LockName::compared(), None)?,
        threads: vec![1, 2, 4, 16, 64],
        runs: scale.runs,
        on,
        logged: false,
        workload: Workload { duration: scale.run, ..Workload::USUAL },
    };
    let alone = uncontended::ROUND * (scale.rounds * plan.targets.len()) as u32;
    output.estimate("compare", alone + plan.time(plan.total()));
    let progress = output.progress("compare", scale.rounds * plan.targets.len() + plan.total());
    let alone = uncontended::measure(on, &plan.targets, &PEERS, scale.rounds, output, &progress)?;
    let records = plan.measure(output, &progress)?;
    progress.finish_and_clear();

    let summaries = Summaries::new(&plan, &records);
    output.text(table(&alone, &summaries))?;
    output.text(format_args!(
        "\nT: the number of contenders ({on}). Throughput: acquisitions per second. min/max: the fewest acquisitions \
         of a\ncontender over the most. p99.9: the wait that 999 acquisitions in 1000 do not exceed.\n{}",
        plan.headline()
    ))?;
    summaries.remarks().try_for_each(|remark| output.text(remark))?;
    output.text(left_out(on))?;
    page::write(&summaries, &alone, file, output)
}

fn table(alone: &[uncontended::UncontendedRecord], summaries: &Summaries) -> Table {
    let most = summaries.threads.iter().copied().max().unwrap_or(1);
    let throughputs = summaries.threads.iter().map(|t| format!("T={t}"));
    let fairness = [format!("min/max T={most}"), format!("p99.9 T={most}"), format!("max wait T={most}")];
    let header = ["lock".to_owned(), "alone".to_owned()].into_iter().chain(throughputs).chain(fairness);
    let mut table = Table::new(1, header);
    for record in alone {
        let lock = record.target;
        let throughputs = summaries.threads.iter().map(|&t| units::rate(summaries.get(lock, t).throughput));
        let last = summaries.get(lock, most);
        let fairness = [units::ratio(last.min_max), units::time(last.p999), units::time(last.max)];
        let row = [lock.name().to_owned(), units::time(record.ns)].into_iter().chain(throughputs).chain(fairness);
        table.row(row);
    }
    table
}

/// Returns a line that names the locks that are left out.
fn left_out(on: Contenders) -> String {
    let names: Vec<_> = LockName::usual()
        .into_iter()
        .filter(|&lock| !LockName::compared().contains(&lock) && on.may_contend_for(lock.into()))
        .map(|lock| lock.name())
        .collect();
    format!("Not measured, to save time: {}. See mutexbench.", names.join(", "))
}
