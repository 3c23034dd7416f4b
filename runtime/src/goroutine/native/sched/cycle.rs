//! The search for goroutines and threads that wait for each other's locks, while the rest of the program goes on.
//!
//! | step | by | |
//! |---|---|---|
//! | 1 | goroutine or thread | notes its wait for a lock whose holder is known |
//! | 2 | watcher | [`PAUSE`] later starts a thread that looks for cycles, unless such a thread runs |
//! | 3 | that thread | makes a dump, and looks for waiters each of which waits for a lock that the next holds |
//! | 4 | that thread | if there are some, makes a second dump of these waiters, and reports the cycles of the second dump whose waits are in both dumps |
//!
//! A dump is not of a single moment. But each goroutine of a reported cycle waited when its worker answered the first
//! dump, and was in the same wait when its worker answered the second dump: so between the dumps all of them waited. The
//! same holds for threads: each dump reads the list of waiting threads once. A waiter that only waits locks nothing: so
//! each lock that the waiter holds in the second dump was held at the first dump, too. The wait that closes a cycle is
//! noted in step 1 like any other. If a worker has not answered, there is another look.
//!
//! Such waits may still end: another goroutine unlocks a mutex of the cycle, as Go's mutexes allow, or a context ends a
//! wait. So the report does not end the process. Waits with a deadline are left out.
//!
//! Locks know their holders in builds with debug assertions. An edge leads from a waiter to each holder:
//!
//! | a goroutine or thread waits | for |
//! |---|---|
//! | to lock a mutex | the owner |
//! | to write, behind a writer | that writer, which owns the mutex among writers |
//! | to write, as the next writer | each reader, because the wait ends after the last one has unlocked |
//! | to read | the writer, or the next writer |
//!
//! The waiters are
//!
//! * goroutines. One that waits where goroutines do not switch (in a destructor while it panics, in `without_switching`)
//!   blocks its worker, which does not answer dumps; the list of waiting threads has such a goroutine;
//! * threads that are no workers, from the time on when the process has started a goroutine: before, there is no watcher;
//! * polls of async tasks that lock the blocking way. A task's number is that of the poll, so only locks count that the
//!   same poll has taken.
//!
//! The search does not see a cycle through
//!
//! * an async task that waits for a future. The task may also wait for other futures, which this project does not know:
//!   `select!` over a lock's future and a timer looks like a deadlock, and is none. So a report could be false;
//! * a lock that an async task has taken in an earlier poll;
//! * a reader without a place in the mutex, which has 8 places. Each reader leaves its place if a caller without a place
//!   unlocks. A reader of a `ShardedRwMutex` has no place, and neither has an async task;
//! * a semaphore, also if the program uses the semaphore as a lock: a semaphore does not know who will release;
//! * a channel, a wait group, or a condition.
//!
//! A caller that has locked counts as the holder until the unlock, also if that caller has given the guard, or the duty
//! to unlock, to another goroutine or thread. So a cycle through such a caller is reported, though the other one may
//! unlock.
//!
//! This needs no proof about other threads, unlike the report of a [deadlock](mod@super::deadlock).

use crate::shim::system::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::shim::system::thread;
use crate::shim::system::{Mutex, OnceLock};
use std::collections::{BTreeMap, HashSet};
use std::slice;
use std::sync::PoisonError;
use std::time::Duration;

use crate::Instant;
use crate::fatal::say;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::sched::clock::TICK;
use crate::goroutine::native::sched::dump;
use crate::goroutine::native::sched::dump::Wanted;
use crate::goroutine::native::sched::report;
use crate::goroutine::native::sched::report::{GoroutineInfo, GoroutineState};
use crate::goroutine::native::sched::stall;
use crate::goroutine::native::sched::sysmon;
use crate::goroutine::native::sched::threads;
use crate::goroutine::native::sched::threads::ThreadInfo;
use crate::lock_order::{self, Holder};

/// The time from a wait to the look for cycles. Much longer than the steps of the coarse clock of waits.
const PAUSE: Duration = Duration::from_secs(1);

/// True if a goroutine or thread has begun to wait for a lock whose holder is known, and no look has been arranged since.
static NOTED: AtomicBool = AtomicBool::new(false);
/// True if a thread looks for cycles, or has ended and has not been joined. Written by the watcher only.
static LOOKING: AtomicBool = AtomicBool::new(false);

/// Notes a wait as [`current::note_wait_for`] does. If a holder is known, has the watcher look for cycles. Step 1.
#[inline]
pub(crate) fn note_wait_for(what: &'static str, object: *const (), holders: *const [AtomicU64]) {
    current::note_wait_for(what, object, holders);
    if cfg!(debug_assertions) && !holders.is_empty() {
        note();
    }
}

#[cold]
fn note() {
    static WATCHED: OnceLock<()> = OnceLock::new();
    WATCHED.get_or_init(|| sysmon::watch_also(&WATCH));
    if current::fibre().is_some() {
        NOTED.store(true, Ordering::Relaxed);
    } else {
        note_of_thread();
    }
}

/// Notes the wait of a thread that is no worker. Workers rouse the watcher when they wake; this thread does it here.
fn note_of_thread() {
    if !NOTED.swap(true, Ordering::Relaxed) {
        sysmon::rouse_for_note();
    }
}

/// Returns whether a thread looks for cycles, or has ended and has not been joined, for the deadlock report.
pub(super) fn is_looking() -> bool {
    LOOKING.load(Ordering::Relaxed)
}

/// The watcher's part of the search for cycles. Step 2. Only the watcher takes the lock.
struct Watch(Mutex<Looks>);

static WATCH: Watch = Watch(Mutex::new(Looks { due: None, thread: None, next: None }));

impl sysmon::Watch for Watch {
    fn tick(&self, now: Instant) -> bool {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.next = looks.tick(now);
        false
    }

    fn next_tick(&self, now: Instant) -> Option<Instant> {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.are_wanted() { Some(now) } else { looks.next }
    }
}

/// The time of the next look, and the thread of the last look.
struct Looks {
    due: Option<Instant>,
    /// The thread that looks for cycles.
    thread: Option<thread::JoinHandle<()>>,
    /// The time of the watcher's next tick that is needed, as of the last tick.
    next: Option<Instant>,
}

impl Looks {
    /// Arranges and starts looks. Returns the time of the watcher's next tick that is needed for this, if any.
    fn tick(&mut self, now: Instant) -> Option<Instant> {
        if self.due.is_none() && NOTED.swap(false, Ordering::Relaxed) && stall::is_reported() {
            self.due = Some(now + PAUSE);
        }
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            // Ignore a panic of the thread, whose message has been printed. Then have the watcher tick again: an
            // attempt to prove a deadlock may have failed because this thread had not ended.
            _ = thread.join();
            LOOKING.store(false, Ordering::Relaxed);
            return Some(now + TICK);
        }
        if self.thread.is_some() {
            return Some(now + TICK);
        }
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            // If there is no thread to be had, there is no look.
            self.thread = thread::Builder::new().name("sudog-cycles".into()).spawn(look).ok();
            LOOKING.store(self.thread.is_some(), Ordering::Relaxed);
            return Some(now + TICK);
        }
        self.due
    }

    /// Returns whether a wait has been noted since the last tick.
    fn are_wanted(&self) -> bool {
        self.due.is_none() && self.thread.is_none() && NOTED.load(Ordering::Relaxed)
    }
}

/// The [number](GoroutineInfo::waiter) of a waiter and the time when a wait began: two dumps that agree in both show the
/// same wait.
pub(super) type Wait = (u64, Duration);

/// Makes two dumps, and reports the cycles that are in both. Steps 3 and 4.
fn look() {
    static REPORTED: OnceLock<Mutex<HashSet<Wait>>> = OnceLock::new();
    let first = dump::ask(Wanted::HolderWaits);
    let found: HashSet<Wait> = cycles(&first.goroutines, &first.threads).into_iter().flatten().collect();
    let second = match found.is_empty() {
        true => None,
        false => Some(dump::ask(Wanted::Ids(found.iter().filter_map(|wait| goroutine_of(wait.0)).collect()))),
    };
    if [Some(&first), second.as_ref()].into_iter().flatten().any(|dump| !dump.silent_workers.is_empty()) {
        // Look again: a goroutine of a cycle may be on a worker that has not answered.
        NOTED.store(true, Ordering::Relaxed);
    }
    let Some(mut second) = second else { return };
    let mut reported = REPORTED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    for cycle in cycles(&second.goroutines, &second.threads) {
        let is_new = cycle.iter().all(|wait| found.contains(wait)) && !cycle.iter().any(|wait| reported.contains(wait));
        if is_new {
            threads::add_names(&mut second.threads);
            let is_member = |waiter| cycle.iter().any(|wait| wait.0 == waiter);
            let goroutines: Vec<_> = cycle
                .iter()
                .filter_map(|wait| second.goroutines.iter().find(|info| info.waiter() == wait.0))
                .cloned()
                .collect();
            let threads: Vec<_> = second.threads.iter().filter(|info| is_member(info.waiter)).cloned().collect();
            let these = if threads.is_empty() { "these goroutines" } else { "these goroutines and threads" };
            say(&format!(
                "sudog: deadlock: each of {these} waits for the next, the last for the first\n\n{}\n",
                report::list(&goroutines, &threads, false)
            ));
            reported.extend(cycle);
        }
    }
}

/// Returns the id of the goroutine that a waiter is, or by which a task is polled; `None` for a thread.
fn goroutine_of(waiter: u64) -> Option<u64> {
    match lock_order::decode(waiter) {
        Holder::Goroutine(id) | Holder::Poll(id) => Some(id),
        Holder::Thread => None,
    }
}

/// A wait, and the holders of the awaited lock.
type Edges<'a> = (Wait, &'a [u64]);

/// Returns the wait of a goroutine, if the wait has lasted for some time and, as far as is known, only an unlock can
/// end the wait.
pub(super) fn wait_of(info: &GoroutineInfo) -> Option<Wait> {
    let waits = info.state == GoroutineState::Waiting && !info.has_deadline && info.waited >= PAUSE / 4;
    (waits && !info.awaited.is_empty()).then_some((info.waiter(), info.since))
}

/// Returns the wait of a thread, by the same rule.
fn wait_of_thread(info: &ThreadInfo) -> Option<Wait> {
    let waits = !info.has_deadline && info.waited >= PAUSE / 4;
    (waits && !info.holders().is_empty()).then_some((info.waiter, info.since))
}

/// Returns the waits for locks, with the holders of these locks.
pub(super) fn waits<'a>(goroutines: &'a [GoroutineInfo], threads: &'a [ThreadInfo]) -> impl Iterator<Item = Edges<'a>> {
    let of_goroutines = goroutines.iter().filter_map(|info| Some((wait_of(info)?, &*info.awaited)));
    of_goroutines.chain(threads.iter().filter_map(|info| Some((wait_of_thread(info)?, info.holders()))))
}

/// Returns cycles among goroutines and threads that wait for locks that the next one holds. Each is in at most one of the
/// cycles, though a writer that waits for several readers may be in more. The cycles are in the order in which their last
/// waits began.
pub(super) fn cycles(goroutines: &[GoroutineInfo], threads: &[ThreadInfo]) -> Vec<Vec<Wait>> {
    let waits: BTreeMap<u64, Edges<'_>> =
        waits(goroutines, threads).map(|(wait, holders)| (wait.0, (wait, holders))).collect();
    let mut seen = HashSet::new();
    let mut found: Vec<Vec<Wait>> = Vec::new();
    for &start in waits.keys() {
        // The path of a depth-first search: the waits, each with the holders that have not been looked at yet.
        let mut path: Vec<(Wait, slice::Iter<'_, u64>)> = Vec::new();
        let mut next = Some(start);
        loop {
            let new = next.take().filter(|id| waits.contains_key(id) && seen.insert(*id));
            path.extend(new.map(|id| (waits[&id].0, waits[&id].1.iter())));
            let Some((_, holders)) = path.last_mut() else { break };
            let Some(&holder) = holders.next() else {
                path.pop();
                continue;
            };
            match path.iter().position(|(wait, _)| wait.0 == holder) {
                Some(begin) => found.push(path.drain(begin..).map(|(wait, _)| wait).collect()),
                None => next = Some(holder),
            }
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
pub(super) mod tests {
    use super::*;

    fn info(id: u64, holders: &[u64], waited: Duration) -> GoroutineInfo {
        GoroutineInfo {
            id,
            name: None,
            state: GoroutineState::Waiting,
            wait_reason: "sync.Mutex.Lock",
            waited,
            since: Duration::ZERO,
            holders: holders.to_vec(),
            awaited: holders.to_vec(),
            object: 0,
            is_poll: false,
            has_deadline: false,
            worker: 0,
            started_as: "",
            created_at: None,
            is_stuck: false,
            stack: None,
            addresses: Default::default(),
        }
    }

    /// Returns a goroutine that waits for locks.
    pub(crate) fn waiting(id: u64, holders: &[u64]) -> GoroutineInfo {
        info(id, holders, PAUSE)
    }

    fn ids(goroutines: &[(u64, &[u64])]) -> Vec<Vec<u64>> {
        let infos: Vec<_> = goroutines.iter().map(|&(id, holders)| info(id, holders, PAUSE)).collect();
        let mut found: Vec<Vec<u64>> = cycles(&infos, &[])
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
        assert!(ids(&[(1, &[2]), (2, &[3]), (3, &[]), (4, &[9])]).is_empty());
        assert_eq!(ids(&[(1, &[1])]), [[1]]);
        assert_eq!(ids(&[(1, &[2]), (2, &[1])]), [[1, 2]]);
        // Two cycles, and other goroutines that wait for members of the cycles.
        let goroutines: [(u64, &[u64]); 7] =
            [(1, &[2]), (2, &[3]), (3, &[2]), (4, &[1]), (5, &[6]), (6, &[5]), (7, &[4])];
        assert_eq!(ids(&goroutines), [[2, 3], [5, 6]]);
        // The cycle whose last wait is the oldest comes first, and the lowest id first in a cycle.
        let infos = [(3, 4, 1), (9, 8, 3), (4, 3, 9), (8, 7, 5), (7, 9, 2)].map(|(id, holder, since)| GoroutineInfo {
            since: Duration::from_secs(since),
            ..info(id, &[holder], PAUSE)
        });
        let in_order = cycles(&infos, &[]).into_iter().flatten().map(|wait| wait.0);
        assert_eq!(in_order.collect::<Vec<_>>(), [7, 9, 8, 3, 4]);
    }

    #[test]
    fn a_writer_waits_for_each_reader() {
        // The first reader goes on, and the second one waits for the writer.
        assert_eq!(ids(&[(1, &[2, 3]), (3, &[1])]), [[1, 3]]);
        // Both readers wait for the writer: one of the cycles is found.
        assert_eq!(ids(&[(1, &[2, 3]), (2, &[1]), (3, &[1])]), [[1, 2]]);
        // The cycle of a reader does not hide the cycle of the writer.
        assert_eq!(ids(&[(1, &[2, 3]), (2, &[2]), (3, &[1])]), [vec![1, 3], vec![2]]);
        // All readers will unlock.
        assert!(ids(&[(1, &[2, 3]), (2, &[4]), (3, &[4])]).is_empty());
    }

    #[test]
    fn some_waits_do_not_count() {
        assert!(wait_of(&info(1, &[2], PAUSE)).is_some());
        assert!(wait_of(&info(1, &[], PAUSE)).is_none());
        assert!(wait_of(&info(1, &[2], Duration::ZERO)).is_none(), "too short to be told from the next wait");
        assert!(wait_of(&GoroutineInfo { has_deadline: true, ..info(1, &[2], PAUSE) }).is_none());
        assert!(wait_of(&GoroutineInfo { state: GoroutineState::Runnable, ..info(1, &[2], PAUSE) }).is_none());
    }
}
