//! The search for goroutines that wait for each other's locks, while the rest of the program goes on.
//!
//! | step | by | |
//! |---|---|---|
//! | 1 | goroutine | notes its wait for a lock whose holder is known |
//! | 2 | watcher | [`PAUSE`] later starts a thread that looks for cycles, unless such a thread runs |
//! | 3 | that thread | makes a dump, and looks for goroutines each of which waits for a lock that the next holds |
//! | 4 | that thread | if there are some, makes a second dump of these goroutines, and reports the cycles of the second dump whose waits are in both dumps |
//!
//! A dump is not of a single moment. But each goroutine of a reported cycle waited when its worker answered the first
//! dump, and was in the same wait when its worker answered the second dump: so between the dumps all of them waited. A
//! goroutine that only waits locks nothing: so each lock that the goroutine holds in the second dump was held at the
//! first dump, too. The wait that closes a cycle is noted in step 1 like any other. If a worker has not answered, there
//! is another look.
//!
//! Such waits may still end: another goroutine unlocks a mutex of the cycle, as Go's mutexes allow, or a context ends a
//! wait. So the report does not end the process. Waits with a deadline are left out. Locks know their holders in
//! builds with debug assertions: a mutex its owner, a readers-writer mutex its writer, but not its readers. Only
//! goroutines, not threads, are known as holders.
//!
//! This needs no proof about other threads, unlike the report of a [deadlock](mod@super::deadlock).

use crate::shim::system::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::shim::system::thread;
use crate::shim::system::{Mutex, OnceLock};
use std::collections::{BTreeMap, HashSet};
use std::sync::PoisonError;
use std::time::Duration;

use crate::Instant;
use crate::fatal::say;
use crate::goroutine::native::sched::clock::TICK;
use crate::goroutine::native::sched::dump;
use crate::goroutine::native::sched::dump::Wanted;
use crate::goroutine::native::sched::report;
use crate::goroutine::native::sched::report::{GoroutineInfo, GoroutineState};
use crate::goroutine::native::sched::stall;

/// The time from a wait to the look for cycles. Much longer than the steps of the coarse clock of waits.
const PAUSE: Duration = Duration::from_secs(1);

/// True if a goroutine has begun to wait for a lock whose holder is known, and no look has been arranged since.
static NOTED: AtomicBool = AtomicBool::new(false);
/// The number of threads that look for cycles, or that have ended and have not been joined. Written by the watcher
/// only.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

/// Notes a wait for a lock whose holder is known. Step 1.
#[cold]
pub(crate) fn note() {
    NOTED.store(true, Ordering::Relaxed);
}

/// Returns the number of threads that look for cycles, for the deadlock report.
pub(super) fn threads() -> usize {
    LOOKING.load(Ordering::Relaxed)
}

/// The watcher's state of the search for cycles: the time of the next look, and the thread of the last look.
#[derive(Default)]
pub(super) struct Looks {
    due: Option<Instant>,
    /// The thread that looks for cycles.
    thread: Option<thread::JoinHandle<()>>,
}

impl Looks {
    /// Arranges and starts looks. Step 2. Returns the time of the watcher's next tick that is needed for this, if any.
    pub(super) fn tick(&mut self, now: Instant) -> Option<Instant> {
        if self.due.is_none() && NOTED.swap(false, Ordering::Relaxed) && stall::is_reported() {
            self.due = Some(now + PAUSE);
        }
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            // Ignore a panic of the thread, whose message has been printed. Then have the watcher tick again: an
            // attempt to prove a deadlock may have failed because this thread had not ended.
            _ = thread.join();
            LOOKING.store(0, Ordering::Relaxed);
            return Some(now + TICK);
        }
        if self.thread.is_some() {
            return Some(now + TICK);
        }
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            // If there is no thread to be had, there is no look.
            self.thread = thread::Builder::new().name("sudog-cycles".into()).spawn(look).ok();
            LOOKING.store(usize::from(self.thread.is_some()), Ordering::Relaxed);
            return Some(now + TICK);
        }
        self.due
    }

    /// Returns whether a wait has been noted since the last tick. If so, the watcher must not sleep until a worker
    /// rouses the watcher.
    pub(super) fn are_wanted(&self) -> bool {
        self.due.is_none() && self.thread.is_none() && NOTED.load(Ordering::Relaxed)
    }
}

/// The id of a goroutine and the time when a wait began: two dumps that agree in both show the same wait.
type Wait = (u64, Duration);

/// Makes two dumps, and reports the cycles that are in both. Steps 3 and 4.
fn look() {
    static REPORTED: OnceLock<Mutex<HashSet<Wait>>> = OnceLock::new();
    let first = dump::ask(Wanted::HolderWaits);
    let found: HashSet<Wait> = cycles(&first.goroutines).into_iter().flatten().collect();
    let second = match found.is_empty() {
        true => None,
        false => Some(dump::ask(Wanted::Ids(found.iter().map(|wait| wait.0).collect()))),
    };
    if [Some(&first), second.as_ref()].into_iter().flatten().any(|dump| !dump.silent_workers.is_empty()) {
        note(); // look again: a goroutine of a cycle may be on a worker that has not answered
    }
    let Some(second) = second.map(|dump| dump.goroutines) else { return };
    let mut reported = REPORTED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    for cycle in cycles(&second) {
        let is_new = cycle.iter().all(|wait| found.contains(wait)) && !cycle.iter().any(|wait| reported.contains(wait));
        if is_new {
            let members: Vec<_> =
                cycle.iter().filter_map(|wait| second.iter().find(|info| info.id == wait.0)).cloned().collect();
            say(&format!(
                "sudog: deadlock: each of these goroutines waits for the next, the last for the first\n\n{}\n",
                report::list(&members, false)
            ));
            reported.extend(cycle);
        }
    }
}

/// Returns the wait of a goroutine, if the wait has lasted for some time and, as far as is known, only an unlock can
/// end the wait.
fn wait_of(info: &GoroutineInfo) -> Option<Wait> {
    let waits = info.state == GoroutineState::Waiting && !info.has_deadline && info.waited >= PAUSE / 4;
    (waits && info.holder.is_some()).then_some((info.id, info.since))
}

/// Returns the cycles among goroutines that wait for each other's locks. Each goroutine is in at most one cycle, as a
/// goroutine waits for a single lock. The cycles are in the order in which their last waits began.
fn cycles(goroutines: &[GoroutineInfo]) -> Vec<Vec<Wait>> {
    let waits: BTreeMap<u64, (Wait, u64)> =
        goroutines.iter().filter_map(|info| Some((info.id, (wait_of(info)?, info.holder?)))).collect();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for &start in waits.keys() {
        let mut path = Vec::new();
        let mut at = start;
        while let Some(&(wait, holder)) = waits.get(&at).filter(|_| seen.insert(at)) {
            path.push(wait);
            at = holder;
        }
        // The path may have come to a cycle from outside, or to a goroutine of an earlier path.
        if let Some(begin) = path.iter().position(|wait| wait.0 == at) {
            found.push(path.split_off(begin));
        }
    }
    // Report the oldest cycle first, and each from its lowest id on.
    for cycle in &mut found {
        let lowest = (0..cycle.len()).min_by_key(|&at| cycle[at].0).unwrap_or(0);
        cycle.rotate_left(lowest);
    }
    found.sort_by_key(|cycle| cycle.iter().map(|wait| wait.1).max());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: u64, holder: Option<u64>, waited: Duration) -> GoroutineInfo {
        GoroutineInfo {
            id,
            name: None,
            state: GoroutineState::Waiting,
            wait_reason: "sync.Mutex.Lock",
            waited,
            since: Duration::ZERO,
            holder,
            has_deadline: false,
            worker: 0,
            started_as: "",
            created_at: None,
            stack: None,
        }
    }

    fn ids(goroutines: &[(u64, Option<u64>)]) -> Vec<Vec<u64>> {
        let infos: Vec<_> = goroutines.iter().map(|&(id, holder)| info(id, holder, PAUSE)).collect();
        let mut found: Vec<Vec<u64>> = cycles(&infos)
            .into_iter()
            .map(|cycle| {
                let mut ids: Vec<u64> = cycle.into_iter().map(|wait| wait.0).collect();
                ids.sort_unstable();
                ids
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn cycles_are_found() {
        assert!(ids(&[]).is_empty());
        // A chain to a goroutine that does not wait, and a chain to a goroutine that is not in the list.
        assert!(ids(&[(1, Some(2)), (2, Some(3)), (3, None), (4, Some(9))]).is_empty());
        assert_eq!(ids(&[(1, Some(1))]), [[1]]);
        assert_eq!(ids(&[(1, Some(2)), (2, Some(1))]), [[1, 2]]);
        // Two cycles, and other goroutines that wait for members of the cycles.
        let goroutines =
            [(1, Some(2)), (2, Some(3)), (3, Some(2)), (4, Some(1)), (5, Some(6)), (6, Some(5)), (7, Some(4))];
        assert_eq!(ids(&goroutines), [[2, 3], [5, 6]]);
        // The cycle whose last wait is the oldest comes first, and the lowest id first in a cycle.
        let infos = [(3, 4, 1), (9, 8, 3), (4, 3, 9), (8, 7, 5), (7, 9, 2)].map(|(id, holder, since)| GoroutineInfo {
            since: Duration::from_secs(since),
            ..info(id, Some(holder), PAUSE)
        });
        let in_order = cycles(&infos).into_iter().flatten().map(|wait| wait.0);
        assert_eq!(in_order.collect::<Vec<_>>(), [7, 9, 8, 3, 4]);
    }

    #[test]
    fn some_waits_do_not_count() {
        assert!(wait_of(&info(1, Some(2), PAUSE)).is_some());
        assert!(wait_of(&info(1, None, PAUSE)).is_none());
        assert!(wait_of(&info(1, Some(2), Duration::ZERO)).is_none(), "too short to be told from the next wait");
        assert!(wait_of(&GoroutineInfo { has_deadline: true, ..info(1, Some(2), PAUSE) }).is_none());
        assert!(wait_of(&GoroutineInfo { state: GoroutineState::Runnable, ..info(1, Some(2), PAUSE) }).is_none());
    }
}
