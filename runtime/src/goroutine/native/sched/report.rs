//! What the report of a deadlock says of each goroutine.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::goroutine::native::fibre::{Fibre, State};
use crate::goroutine::native::sched::clock;
use crate::goroutine::native::sched::scheduler::Sched;

/// Describes each goroutine of a scheduler that is at rest, in two lines: name, reason and begin of the wait, owner of what is
/// waited for; and the code that started the goroutine.
///
/// To be called while no worker of the scheduler can wake.
pub(crate) fn goroutines(sched: &Sched) -> Vec<String> {
    let all = || sched.workers().flat_map(|worker| worker.fibres().collect::<Vec<_>>());
    let now = clock::coarse_now();
    let describe = |fibre: &'static Fibre| {
        let mut text = String::new();
        let wait = fibre.wait.get();
        let what = if wait.what.is_empty() { "waiting" } else { wait.what };
        let since = now.saturating_sub(wait.since) as f64 / 1000.0;
        let _ = write!(text, "goroutine {} [{what}, {since:.2} s]", fibre.describe());
        // SAFETY: null, or alive for as long as the wait, by the contract of `note_wait`.
        if let Some(holder) = unsafe { wait.holder.as_ref() } {
            let id = holder.load(Ordering::Relaxed);
            match all().find(|other| other.id.get() == id && other.state.get() != State::Spare) {
                Some(holder) => _ = write!(text, ", held by goroutine {}", holder.describe()),
                None if id != 0 => _ = write!(text, ", held by goroutine {id}, which has ended"),
                None => {}
            }
        }
        _ = writeln!(text, "\n    started as {}", fibre.origin());
        text
    };
    all().filter(|fibre| fibre.state.get() == State::Parked).map(describe).collect()
}
