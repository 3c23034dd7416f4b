//! A laboratory for locks and semaphores, and for the rest of `sync`: the same benches for all, for throughput and for
//! fairness.
//!
//! | crate | folder | holds |
//! |---|---|---|
//! | `sudog-lab-core` | `targets` | the objects that are measured, by name: locks, readers-writer locks, semaphores, composed locks, floors |
//! | | `conformance` | the requirements for every lock, readers-writer lock and semaphore |
//! | | `run` | contenders (threads or goroutines), the measured loops |
//! | | `measure` | waits, wake-ups, admissions, processors used, metrics |
//! | | `output` | tables, units, the HTML report |
//! | | `options` | options that several commands have |
//! | `sudog-lab-study` | | commands that study a question each, and measured loops of commands of `sudog-lab` |
//! | `sudog-lab-peers` | | commands that measure other libraries, Go, or goroutines: the feature `peers` |
//! | `sudog-lab` | `bench` | commands that compare, with their options |
//! | | `study` | commands that study a question each, by the benches |
//! | | `claims` | the command that runs the others, and judges the claims of the sources by their records |
//!
//! Imports between crates and between folders go up this table only: `study` imports `bench`, and nothing imports `study`
//! but the command line (`cli`). No measured loop is in `sudog-lab`, whose code is built in many units, and not optimised.

#![allow(missing_docs)] // published nowhere; used by the workspace's tests only

mod bench;
mod claims;
mod cli;
mod study;

use sudog_lab_core::{compose, measure, options, output, run, targets};

pub use self::cli::main;

/// Gives a text to each parser of the laboratory, for the fuzz target `parsers`: to the parser of the command line, word
/// by word, and to the parsers of the lines that commands read.
#[doc(hidden)]
#[cfg(unix)]
pub fn parse_anything(text: &str) {
    cli::parse_words(text);
    for line in text.lines() {
        #[cfg(all(feature = "peers", not(sudog_sim)))]
        let _ = line.parse::<sudog_lab_peers::versus_go::reading::Reading>();
        let _ = line.parse::<compose::Composition>();
        let _ = line.parse::<targets::target::Target>();
        let _ = options::duration(line);
        let _ = options::seconds(line);
    }
}

/// The names that the command line takes, for the tests of the command line.
pub mod names {
    pub use crate::targets::queues::QueueName;
    #[cfg(all(feature = "peers", not(sudog_sim)))]
    pub use sudog_lab_peers::syncbench::BenchName;
    #[cfg(all(unix, feature = "peers", not(sudog_sim)))]
    pub use sudog_lab_peers::versus_go::benches::Name as VersusGoName;
    pub use sudog_lab_study::collisions::HashName;
}
