//! The command `list`: the locks and semaphores that can be compared, and their properties.

use serde::Serialize;

use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::targets::compose::name::{GRAMMAR, KINDS, OptionFacts};
use crate::targets::locks::{LockFacts, LockName};
use crate::targets::rw_locks::{RwLockFacts, RwLockName};
use crate::targets::semaphores::{SemaphoreFacts, SemaphoreName};

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum ListRecord {
    Lock {
        name: LockName,
        about: &'static str,
        #[serde(flatten)]
        facts: LockFacts,
    },
    /// A kind of composed locks.
    Composition { name: &'static str, about: &'static str, options: Vec<OptionFacts> },
    RwLock {
        name: RwLockName,
        about: &'static str,
        #[serde(flatten)]
        facts: RwLockFacts,
    },
    Semaphore {
        name: SemaphoreName,
        about: &'static str,
        #[serde(flatten)]
        facts: SemaphoreFacts,
    },
}

/// Runs `list`: prints the locks and semaphores.
pub fn run(output: Output) -> Result<(), Failure> {
    let mut locks = Table::new(4, ["lock", "", "deadlines", "blocks", "bytes"]);
    for &name in LockName::ALL {
        let facts = LockFacts::of(name);
        locks.row([
            name.name(),
            name.about(),
            wait(facts.deadlines),
            blocks(facts.blocks_threads),
            &facts.bytes.to_string(),
        ]);
        output.record(&ListRecord::Lock { name, about: name.about(), facts })?;
    }
    for kind in &KINDS {
        output.record(&ListRecord::Composition { name: kind.name, about: kind.about, options: kind.options() })?;
    }
    let mut rw_locks = Table::new(4, ["readers-writer lock", "", "deadlines", "blocks", "bytes"]);
    for &name in RwLockName::ALL {
        let facts = RwLockFacts::of(name);
        rw_locks.row([
            name.name(),
            name.about(),
            wait(facts.deadlines),
            blocks(facts.blocks_threads),
            &facts.bytes.to_string(),
        ]);
        output.record(&ListRecord::RwLock { name, about: name.about(), facts })?;
    }
    let mut semaphores = Table::new(7, ["semaphore", "", "deadlines", "blocks", "LIFO", "FIFO", "handoff", "bytes"]);
    for &name in SemaphoreName::ALL {
        let facts = SemaphoreFacts::of(name);
        semaphores.row([
            name.name(),
            name.about(),
            wait(facts.deadlines),
            blocks(facts.blocks_threads),
            yes(facts.lifo),
            yes(facts.fifo),
            yes(facts.handoff),
            &facts.bytes.to_string(),
        ]);
        output.record(&ListRecord::Semaphore { name, about: name.about(), facts })?;
    }
    output.text(format_args!("{locks}\n\n{GRAMMAR}\n\n{rw_locks}\n\n{semaphores}\n"))?;
    output.text("deadlines: whether a waiter with a deadline is queued like the others; otherwise it polls.")?;
    output.text(
        "blocks: what a waiting goroutine blocks: only itself, or the thread of its worker, and so the worker's \
               other goroutines.",
    )?;
    output.text("LIFO: a waiter can be queued at the head. FIFO: first in, first out.")?;
    output.text("handoff: a release can hand its permit to a waiter, so that newcomers cannot take it.")?;
    output.text("bytes: the size of the object itself, without memory that it has elsewhere.")
}

fn wait(in_line: bool) -> &'static str {
    if in_line { "in line" } else { "polls" }
}

fn blocks(threads: bool) -> &'static str {
    if threads { "thread" } else { "goroutine" }
}

fn yes(can: bool) -> &'static str {
    if can { "yes" } else { "no" }
}
