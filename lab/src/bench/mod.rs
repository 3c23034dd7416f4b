//! The commands of the laboratory.

pub mod bypass;
pub mod capacitor;
pub mod collide;
pub mod collisions;
pub mod compare;
#[cfg(unix)]
pub mod goroutines;
pub mod history;
pub mod list;
pub mod logged;
pub mod mutexbench;
pub mod plan;
pub mod rwbench;
pub mod semabench;
pub mod semtable;
pub mod stages;
pub mod starvation;
pub mod summary;
pub mod syncbench;
pub mod uncontended;
#[cfg(unix)]
pub mod versus_go;

use crate::cli::{Cli, Command, CompareArgs};
use crate::failure::Failure;
use crate::output::Output;

/// Does what the command line says.
pub fn dispatch(cli: &Cli) -> Result<(), Failure> {
    let output = Output { json: cli.json };
    let report = cli.report.as_deref();
    match &cli.command {
        None => compare::run(&CompareArgs::default(), report, output),
        Some(Command::Compare(args)) => compare::run(args, report, output),
        Some(Command::Mutexbench(args)) => mutexbench::run(args, report, output),
        Some(Command::Rwbench(args)) => rwbench::run(args, output),
        Some(Command::Semabench(args)) => semabench::run(args, report, output),
        Some(Command::Collisions(args)) => collisions::run(args, output),
        Some(Command::Collide(args)) => collide::run(args, report, output),
        Some(Command::Uncontended(args)) => uncontended::run(args, output),
        Some(Command::Capacitor(args)) => capacitor::run(args, report, output),
        Some(Command::Bypass(args)) => bypass::run(args, output),
        Some(Command::Syncbench(args)) => syncbench::run(args, output),
        Some(Command::Semtable(args)) => semtable::run(args, report, output),
        Some(Command::Starvation(args)) => starvation::run(args, report, output),
        #[cfg(unix)]
        Some(Command::Goroutines(args)) => goroutines::run(args, output),
        #[cfg(unix)]
        Some(Command::VersusGo(args)) => versus_go::run(args, output),
        #[cfg(unix)]
        Some(Command::VersusGoChild(args)) => versus_go::child::be(args),
        Some(Command::Stages(args)) => stages::run(args, output),
        Some(Command::History(args)) => history::run(args, output),
        Some(Command::List) => list::run(output),
    }
}
