//! What is said when the process ends because of a goroutine, in Go's words.

use std::any::Any;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::{Fibre, State};
use crate::goroutine::native::sched::scheduler::Set;
use crate::goroutine::native::sched::sysmon;

/// Ids are dealt to workers in batches, as Go's are.
const BATCH: u64 = 16;

/// A batch of ids: from, to.
#[cold]
pub(crate) fn more_ids() -> (u64, u64) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let from = NEXT.fetch_add(BATCH, Ordering::Relaxed);
    (from, from + BATCH)
}

/// A goroutine has panicked and nobody will ask for its result: prints Go's report, and ends the process with Go's
/// status, 2.
#[cold]
pub(crate) fn die_of_panic(payload: &(dyn Any + Send)) -> ! {
    let what = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "(a value that is no text)",
    };
    let mut text = format!("panic: {what}\n\n");
    if let Some(fibre) = current::fibre() {
        let _ = writeln!(text, "goroutine {} [running]", describe(fibre));
    }
    say(&text);
    std::process::exit(2)
}

/// There is no memory for a goroutine's stack.
#[cold]
pub(crate) fn no_stack(error: &io::Error) -> ! {
    crate::fatal(&format!("sudog: no stack for a new goroutine: {error}"))
}

fn describe(fibre: &Fibre) -> String {
    // The name is taken out and put back, as a cell cannot lend it.
    let name = fibre.name.take();
    let text = match &name {
        Some(name) => format!("{} {name:?}", fibre.id.get()),
        None => fibre.id.get().to_string(),
    };
    fibre.name.set(name);
    text
}

/// One line per goroutine of a set that is at rest: its name, what it waits for, since when, and who holds that.
///
/// To be called while no worker of the set can wake.
pub(crate) fn goroutines(set: &Set) -> String {
    let mut text = String::new();
    let all = || set.workers().flat_map(|worker| worker.fibres().collect::<Vec<_>>());
    let now = sysmon::coarse_now();
    for fibre in all().filter(|fibre| fibre.state.get() == State::Parked) {
        let wait = fibre.wait.get();
        let what = if wait.what.is_empty() { "waiting" } else { wait.what };
        let since = now.saturating_sub(wait.since) as f64 / 1000.0;
        let _ = write!(text, "goroutine {} [{what}, {since:.2} s]", describe(fibre));
        // SAFETY: null, or alive for as long as the wait, by the contract of `note_wait`.
        if let Some(holder) = unsafe { wait.holder.as_ref() } {
            let id = holder.load(Ordering::Relaxed);
            match all().find(|other| other.id.get() == id && other.state.get() != State::Spare) {
                Some(holder) => _ = write!(text, ", held by goroutine {}", describe(holder)),
                None if id != 0 => _ = write!(text, ", held by goroutine {id}, which has ended"),
                None => {}
            }
        }
        text.push('\n');
    }
    text
}

/// Prints to standard error in one piece.
pub(crate) fn say(text: &str) {
    // Nothing can be done if it fails.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
