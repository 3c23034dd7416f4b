//! The command `list`: the locks and semaphores that can be compared, and their properties.

use serde::Serialize;

use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::targets::compose::name::GRAMMAR;
use crate::targets::locks::{LockFacts, LockName};
use crate::targets::rw_locks::RwLockName;
use crate::targets::semaphores::{SemaphoreFacts, SemaphoreName};

#[derive(Serialize)]
struct ListRecord<F> {
    kind: &'static str,
    name: &'static str,
    about: &'static str,
    #[serde(flatten)]
    facts: F,
}

/// Runs `list`: prints the locks and semaphores.
pub fn run(output: Output) -> Result<(), Failure> {
    let record_locks = |kind, title, all: Vec<(&'static str, &'static str, LockFacts)>| -> Result<Table, Failure> {
        let mut table = Table::new(4, [title, "", "deadlines", "blocks", "bytes"]);
        for (name, about, facts) in all {
            let LockFacts { bytes, deadlines, blocks_threads } = facts;
            table.row([name, about, wait(deadlines), blocks(blocks_threads), &bytes.to_string()]);
            output.record(&ListRecord { kind, name, about, facts })?;
        }
        Ok(table)
    };
    let all = LockName::ALL.iter().map(|lock| (lock.name(), lock.about(), lock.facts()));
    let locks = record_locks("lock", "lock", all.collect())?;
    let all = RwLockName::ALL.iter().map(|lock| (lock.name(), lock.about(), lock.facts()));
    let rw_locks = record_locks("rwlock", "readers-writer lock", all.collect())?;
    let mut semaphores = Table::new(7, ["semaphore", "", "deadlines", "blocks", "LIFO", "FIFO", "handoff", "bytes"]);
    for &semaphore in SemaphoreName::ALL {
        let (name, about, facts) = (semaphore.name(), semaphore.about(), SemaphoreFacts::of(semaphore));
        semaphores.row([
            name,
            about,
            wait(facts.deadlines),
            blocks(facts.blocks_threads),
            yes(facts.lifo),
            yes(facts.fifo),
            yes(facts.handoff),
            &facts.bytes.to_string(),
        ]);
        output.record(&ListRecord { kind: "semaphore", name, about, facts })?;
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
