//! The command line.

#[cfg(unix)]
use std::cell::RefCell;
use std::io::Write;
use std::process::ExitCode;

#[cfg(unix)]
use clap::{CommandFactory, FromArgMatches};
use clap::{Parser, Subcommand};

use crate::bench::{compare, list, mutexbench, rwbench, semabench, uncontended};
use crate::claims;
use crate::output::Output;
use crate::output::failure::Failure;
#[cfg(not(sudog_sim))]
use crate::run::noise::{self, Measured, Noise};
use crate::study::{capacitor, figures, stages};
#[cfg(all(feature = "peers", not(sudog_sim)))]
use sudog_lab_peers as peers;
#[cfg(any(target_os = "linux", sudog_sim))]
use sudog_lab_study::calibrate;
#[cfg(unix)]
use sudog_lab_study::csp;
#[cfg(all(unix, not(sudog_sim)))]
use sudog_lab_study::csp_stages;
use sudog_lab_study::{bypass, collide, collisions, gates, history, semtable, starvation};
#[cfg(sudog_sim)]
use sudog_lab_study::{collapse, explore};

/// Where the commands of the feature `peers` are.
#[cfg(not(feature = "peers"))]
const ELSEWHERE: &str = "Commands that measure other libraries, Go and goroutines are in 'cargo lab-peers': syncbench, chanbench, goroutines, \
     versus-go, netbench, tail. 'cargo lab-profile' shows the tools for slow programs.";

/// Compares locks and semaphores for throughput and for fairness. Without a command: compare.
#[derive(Parser, Debug)]
#[command(name = "sudog-lab", version)]
#[cfg_attr(not(feature = "peers"), command(after_help = ELSEWHERE))]
pub struct Cli {
    /// JSON lines on the standard output, and nothing else
    #[arg(long, global = true)]
    pub json: bool,

    #[cfg(sudog_sim)]
    #[command(flatten)]
    pub machine: crate::run::machine::MachineArgs,

    #[cfg(not(sudog_sim))]
    #[command(flatten)]
    pub noise: Noise,

    /// Profile all locks of the semaphore table while measuring: one release in FRACTION, with the stack
    #[cfg(all(feature = "profile", not(sudog_sim)))]
    #[arg(long, global = true, value_name = "FRACTION")]
    pub mutex_profile: Option<u32>,

    /// The command to run.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// A command of the laboratory.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Everything in about 25 seconds: a table and a report
    Compare(compare::CompareArgs),
    /// Threads or goroutines that contend for a lock: throughput, fairness, waits
    Mutexbench(mutexbench::MutexbenchArgs),
    /// The same for readers-writer locks: how throughput falls as writes become more frequent
    Rwbench(rwbench::RwbenchArgs),
    /// The same for one semaphore: the benchmark of the paper on waiting arrays, beside two floors
    Semabench(semabench::SemabenchArgs),
    /// Effects of many semaphores on each other in one waiting array: wake-ups in vain
    Collisions(collisions::CollisionsArgs),
    /// A chain of waiters that is woken whole: by the waker alone, or each waiter by the waiter above
    Gates(gates::GatesArgs),
    /// Two contended locks, or many, in one bucket of the semaphore table, with each of the table's queues
    Collide(collide::CollideArgs),
    /// A single thread or goroutine that locks and unlocks: nanoseconds
    Uncontended(uncontended::UncontendedArgs),
    /// Locks in capacitors: throughput and fairness, bare and wrapped; and the cost without contention
    Capacitor(capacitor::CapacitorArgs),
    /// The figures of the papers, with the papers' claims beside the curves: a report
    Figures(figures::FiguresArgs),
    /// Overtakings of waiters, counted by tickets, and whether they are within the bound
    Bypass(bypass::BypassArgs),
    /// MutexBench over the eight stages of the Go mutex: the gain of each stage
    Stages(stages::StagesArgs),
    /// Pairs of fibres on channels of csp, by the number of workers: in one active set, in several, outside of sets
    #[cfg(unix)]
    Csp(csp::CspArgs),
    /// The stages that lead to csp's channels, and fibres that hang: nanoseconds a step, bytes a fibre
    #[cfg(all(unix, not(sudog_sim)))]
    CspStages(csp_stages::CspStagesArgs),
    /// Two stories of the Go mutex, with the mutex's policies of that time: the hog, and the collapse
    History(history::HistoryArgs),
    /// Go's BenchmarkSemTable on the queue of the semaphore table; and cases that are slow on some of its queues
    Semtable(semtable::SemtableArgs),
    /// Starvation mode, seen: which contenders wait, which overtake, when the mutex is handed over
    Starvation(starvation::StarvationArgs),
    /// The library's code under thousands of schedules, by seed
    #[cfg(sudog_sim)]
    Explore(explore::ExploreArgs),
    /// Go issue 33747 on simulated processors: many contenders that need a mutex for a hundredth of their time
    #[cfg(sudog_sim)]
    Collapse(collapse::CollapseArgs),
    /// Costs of this machine, in the form of a preset of the simulated machine
    #[cfg(any(target_os = "linux", sudog_sim))]
    Calibrate(calibrate::CalibrateArgs),
    /// A service with a planted bottleneck, and what each tool for slow programs shows about it ('cargo lab-profile')
    #[cfg(all(unix, feature = "observe", not(sudog_sim)))]
    Profile(crate::study::profile::ProfileArgs),
    /// Each claim of the sources: confirmed, refuted or open, with the figures
    Claims(claims::ClaimsArgs),
    /// The locks and semaphores, and their properties
    List,
    /// A command of the feature `peers`.
    #[cfg(all(feature = "peers", not(sudog_sim)))]
    #[command(flatten)]
    Peers(peers::Command),
    /// A busy loop of '--beside', which that option starts
    #[cfg(not(sudog_sim))]
    #[command(hide = true)]
    BusyChild,
}

impl Cli {
    /// Parses the command line of this process. A wrong command line becomes a failure of a single line. If help is
    /// asked for, prints the help and ends the process.
    pub fn from_env() -> Result<Self, Failure> {
        Self::try_parse().map_err(|error| {
            if !error.use_stderr() {
                error.exit();
            }
            // The error may list several items, each on a separate line; after a blank line comes the correct usage.
            // Join the lines before the blank line.
            let text = error.render().to_string();
            let lines: Vec<_> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let why = lines.join(" ").trim_start_matches("error: ").to_owned();
            #[cfg(not(feature = "peers"))]
            if error.kind() == clap::error::ErrorKind::InvalidSubcommand {
                return Failure::Usage(format!("{why}. {ELSEWHERE}"));
            }
            Failure::Usage(why)
        })
    }
}

/// Runs the program.
pub fn main() -> ExitCode {
    #[cfg(sudog_sim)]
    let result = Cli::from_env().and_then(|cli| match &cli.command {
        // Explore makes its machines itself, and claims starts processes.
        Some(Command::Explore(_)) => cli.machine.refused("explore has no costs").and_then(|()| dispatch(&cli)),
        Some(Command::Claims(_)) => cli.machine.refused("each claim names its machine").and_then(|()| dispatch(&cli)),
        None | Some(Command::Compare(_)) => {
            Err(Failure::Usage("this command compares with code that runs on real machines only".into()))
        }
        command => {
            // The collapse was seen on machines with forty processors.
            let usual = if matches!(command, Some(Command::Collapse(_))) { "forty" } else { "x5-2" };
            cli.machine.clone().run(usual, Output { json: cli.json }, move || dispatch(&cli))
        }
    });
    #[cfg(not(sudog_sim))]
    let result = Cli::from_env().and_then(|cli| dispatch(&cli));
    let Err(failure) = result else { return ExitCode::SUCCESS };
    let text = failure.to_string();
    if !text.is_empty() {
        // If the standard error is closed too, there is nothing left to do.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    ExitCode::from(failure.exit_code())
}

impl Command {
    /// Returns where the measured threads are.
    #[cfg(not(sudog_sim))]
    fn measured(&self) -> Measured {
        match self {
            #[cfg(feature = "peers")]
            Self::Peers(command) => command.measured(),
            _ => Measured::Here,
        }
    }
}

/// Parses a command line whose words `text` contains, and renders the error if there is one.
#[cfg(unix)]
pub fn parse_words(text: &str) {
    thread_local! {
        /// The parser. Making the parser takes far longer than parsing a line.
        static PARSER: RefCell<clap::Command> = RefCell::new(Cli::command());
    }
    let words = std::iter::once("sudog-lab").chain(text.split_whitespace());
    let matches = PARSER.with_borrow_mut(|parser| parser.try_get_matches_from_mut(words));
    if let Err(error) = matches.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches)) {
        let _ = error.render().to_string();
    }
}

/// Checks that the words are a command line.
#[cfg(test)]
pub fn check(words: &[String]) -> Result<(), String> {
    let line = std::iter::once("sudog-lab").chain(words.iter().map(String::as_str));
    Cli::try_parse_from(line).map(drop).map_err(|error| error.to_string())
}

/// Runs the command of the command line.
pub fn dispatch(cli: &Cli) -> Result<(), Failure> {
    let output = Output { json: cli.json };
    #[cfg(not(sudog_sim))]
    let _neighbours = {
        if matches!(cli.command, Some(Command::BusyChild)) {
            noise::be_busy();
        }
        cli.noise.begin(cli.command.as_ref().map_or(Measured::Here, Command::measured), output)?
    };
    #[cfg(all(feature = "profile", not(sudog_sim)))]
    if let Some(fraction) = cli.mutex_profile {
        sudog_runtime::profile::set_mutex_profile_fraction(fraction);
    }
    match &cli.command {
        None => compare::run(&compare::CompareArgs::default(), output),
        Some(Command::Compare(args)) => compare::run(args, output),
        Some(Command::Mutexbench(args)) => mutexbench::run(args, output),
        Some(Command::Rwbench(args)) => rwbench::run(args, output),
        Some(Command::Semabench(args)) => semabench::run(args, output),
        Some(Command::Collisions(args)) => collisions::run(args, output),
        Some(Command::Gates(args)) => gates::run(args, output),
        Some(Command::Collide(args)) => collide::run(args, output),
        Some(Command::Uncontended(args)) => uncontended::run(args, output),
        Some(Command::Capacitor(args)) => capacitor::run(args, output),
        Some(Command::Figures(args)) => figures::run(args, output),
        Some(Command::Bypass(args)) => bypass::run(args, output),
        Some(Command::Semtable(args)) => semtable::run(args, output),
        Some(Command::Starvation(args)) => starvation::run(args, output),
        #[cfg(all(feature = "peers", not(sudog_sim)))]
        Some(Command::Peers(command)) => command.run(output),
        Some(Command::Stages(args)) => stages::run(args, output),
        #[cfg(unix)]
        Some(Command::Csp(args)) => csp::run(args, output),
        #[cfg(all(unix, not(sudog_sim)))]
        Some(Command::CspStages(args)) => csp_stages::run(args, output),
        Some(Command::History(args)) => history::run(args, output),
        #[cfg(sudog_sim)]
        Some(Command::Explore(args)) => explore::run(args, output),
        #[cfg(any(target_os = "linux", sudog_sim))]
        Some(Command::Calibrate(args)) => calibrate::run(args, output),
        #[cfg(sudog_sim)]
        Some(Command::Collapse(args)) => collapse::run(args, output),
        #[cfg(all(unix, feature = "observe", not(sudog_sim)))]
        Some(Command::Profile(args)) => crate::study::profile::run(args, output),
        Some(Command::Claims(args)) => claims::run(args, output),
        Some(Command::List) => list::run(output),
        #[cfg(not(sudog_sim))]
        Some(Command::BusyChild) => noise::be_busy(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// A link of rustdoc says nothing on a terminal.
    #[test]
    fn no_help_has_a_link() {
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            let link = help.lines().find(|line| line.contains("[`"));
            assert_eq!(link, None, "in the help of {}", command.get_name());
        }
    }
}
