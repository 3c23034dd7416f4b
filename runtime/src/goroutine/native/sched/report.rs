//! The descriptions of goroutines in reports and dumps.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::goroutine::native::fibre::{Fibre, State};
use crate::goroutine::native::sched::clock;
use crate::goroutine::native::sched::frames::frames_of_the_user;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::lock_order;

/// A goroutine as its worker described it: see [`dump`](fn@crate::goroutine::dump).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GoroutineInfo {
    /// The number that the goroutine has for its life.
    pub id: u64,
    /// The name that [`Builder::name`](crate::goroutine::Builder::name) gave.
    pub name: Option<Arc<str>>,
    /// The state: the goroutine runs, could run, or waits.
    pub state: GoroutineState,
    /// The kind of the wait, in Go's words where Go has some: `sync.Mutex.Lock`, `chan receive`. Empty if the goroutine
    /// does not wait, or if the wait has no name.
    pub wait_reason: &'static str,
    /// The time since the wait began, within 10 ms; a wait of more than 49 days counts from 0 again. Zero if the
    /// goroutine does not wait.
    pub waited: Duration,
    /// The time at which the wait began, on the clock of waits.
    pub(super) since: Duration,
    /// The ids of the goroutines that hold the awaited lock: the owner of a mutex; the writer of a readers-writer mutex;
    /// or the readers, if the goroutine is the next writer, which waits for the readers only. Readers that come then
    /// wait for the next writer, so the next writer counts as a holder for those readers.
    ///
    /// Locks know their holders only in builds with debug assertions, and at most 8 readers at a time. Threads and async
    /// tasks are not listed.
    pub holders: Vec<u64>,
    /// True if the wait ends at a deadline, whatever happens.
    pub has_deadline: bool,
    /// True if, as far as is known, nothing can end the wait: a holder of the awaited lock has ended without an unlock,
    /// or waits for the goroutine itself, or is stuck, too. (Another goroutine may unlock in place of the holder, as
    /// Go's mutexes allow, or a context may end the wait. A goroutine of a bubble counts as ended.) Only waits of a
    /// quarter of a second or more are judged, and only in a dump in which all workers have answered.
    ///
    /// A goroutine that waits for counted ends of a channel that have gone, or for a csp channel on which no partner can
    /// come, is woken or reclaimed, and so is never stuck. The other waits for channels merely wait, as far as is known.
    pub is_stuck: bool,
    /// The number of the goroutine's worker.
    pub worker: usize,
    /// The type of the closure that the goroutine runs, which has the path of the function that started the goroutine.
    pub started_as: &'static str,
    /// The call that started the goroutine, if switches were observed then.
    pub created_at: Option<&'static Location<'static>>,
    /// The stack of a goroutine that does not run, if the goroutine's switches are observed.
    pub stack: Option<Arc<Backtrace>>,
    /// The return addresses on `stack`, innermost first, if the feature `profile` is on.
    pub(crate) addresses: Arc<[usize]>,
}

/// The state of a goroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GoroutineState {
    /// The goroutine runs on its worker.
    Running,
    /// The goroutine waits for a turn on its worker.
    Runnable,
    /// The goroutine waits for something.
    Waiting,
}

impl GoroutineInfo {
    /// Describes the goroutine of a fibre, without the stack. Returns None if the fibre has no goroutine that has
    /// begun.
    ///
    /// May be called by the fibre's worker, or while that worker cannot wake.
    pub(super) fn of(fibre: &'static Fibre) -> Option<Self> {
        let state = match fibre.state.get() {
            State::Running => GoroutineState::Running,
            State::Parked => GoroutineState::Waiting,
            State::Queued if !fibre.has_work() => GoroutineState::Runnable,
            State::Queued | State::Spare => return None,
        };
        let mut info = Self {
            id: fibre.id.get(),
            name: fibre.shared_name(),
            state,
            wait_reason: "",
            waited: Duration::ZERO,
            since: Duration::ZERO,
            holders: Vec::new(),
            has_deadline: false,
            is_stuck: false,
            worker: fibre.worker.index,
            started_as: fibre.origin(),
            created_at: fibre.created_at.get(),
            stack: None,
            addresses: Arc::default(),
        };
        if state == GoroutineState::Waiting {
            let wait = fibre.wait.get();
            let now = clock::coarse_now();
            info.wait_reason = wait.what();
            info.since = Duration::from_millis(wait.since(now));
            info.waited = Duration::from_millis(now) - info.since;
            info.has_deadline = fibre.has_timer();
            // SAFETY: the holders are null, or alive for as long as the fibre is parked, by the contract of
            // `note_wait_for`. The fibre stays parked during this call.
            let holders = unsafe { wait.holders() }.iter().map(|holder| holder.load(Ordering::Relaxed));
            info.holders = holders.filter(|&id| id != 0 && !lock_order::is_thread(id)).collect();
            info.holders.sort_unstable();
            info.holders.dedup();
        }
        Some(info)
    }

    /// Returns the state or the kind of the wait, and whether the goroutine is stuck.
    #[cfg(all(feature = "profile", not(sudog_sim)))]
    pub(crate) fn what(&self) -> String {
        format!("{}{}", self.reason(), self.stuck())
    }

    fn reason(&self) -> &'static str {
        match self.state {
            GoroutineState::Running => "running",
            GoroutineState::Runnable => "runnable",
            GoroutineState::Waiting if self.wait_reason.is_empty() => "waiting",
            GoroutineState::Waiting => self.wait_reason,
        }
    }

    fn stuck(&self) -> &'static str {
        if self.is_stuck { ", stuck" } else { "" }
    }

    /// Returns the goroutine's number, and the name if there is a name, as reports print them.
    fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{} {name:?}", self.id),
            None => self.id.to_string(),
        }
    }

    /// Writes the report of the goroutine. `title` returns the title of a goroutine that holds the awaited mutex.
    fn write(&self, f: &mut impl fmt::Write, title: impl Fn(u64) -> String, with_stack: bool) -> fmt::Result {
        write!(f, "goroutine {}", self.title())?;
        match self.state {
            GoroutineState::Waiting => {
                write!(f, " [{}, {:.2} s{}]", self.reason(), self.waited.as_secs_f64(), self.stuck())?
            }
            _ => write!(f, " [{}]", self.reason())?,
        }
        if let Some((first, others)) = self.holders.split_first() {
            write!(f, ", held by goroutine{} {}", if others.is_empty() { "" } else { "s" }, title(*first))?;
            others.iter().try_for_each(|&other| write!(f, ", {}", title(other)))?;
        }
        write!(f, "\n    started as {}", self.started_as)?;
        if let Some(place) = self.created_at {
            write!(f, "\n    created at {place}")?;
        }
        f.write_char('\n')?;
        if with_stack && let Some(stack) = &self.stack {
            f.write_str(&frames_of_the_user(&stack.to_string()))?;
        }
        Ok(())
    }
}

impl fmt::Display for GoroutineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |id| id.to_string(), true)
    }
}

/// Goroutines of a dump that are alike: see [`Dump::groups`](crate::goroutine::Dump::groups).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GoroutineGroup<'a> {
    /// Number of goroutines in the group.
    pub count: usize,
    /// The goroutine of the group that has waited longest.
    pub longest: &'a GoroutineInfo,
}

impl fmt::Display for GoroutineGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => self.longest.fmt(f),
            count => write!(f, "{count} goroutines; the one that has waited longest:\n{}", self.longest),
        }
    }
}

/// Groups goroutines that were started by the same call (as far as that is known) as the same closure, and wait for the
/// same kind of thing, and those that are stuck apart from the others. The largest group comes first.
pub(super) fn groups(goroutines: &[GoroutineInfo]) -> Vec<GoroutineGroup<'_>> {
    let mut groups: HashMap<_, GoroutineGroup<'_>> = HashMap::new();
    for info in goroutines {
        let is_waiting = info.state == GoroutineState::Waiting;
        let kind = (info.started_as, info.created_at, is_waiting, info.wait_reason, info.is_stuck);
        let group = groups.entry(kind).or_insert(GoroutineGroup { count: 0, longest: info });
        group.count += 1;
        if info.waited > group.longest.waited {
            group.longest = info;
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_unstable_by_key(|group| (std::cmp::Reverse(group.count), group.longest.id));
    groups
}

/// The number of similar goroutines whose stacks a report shows. Stacks are costly: most of a report's time goes into
/// looking up the names of functions.
const ALIKE: u32 = 3;

/// Reports goroutines. Each awaited mutex has the names of those holders that are among the goroutines. Of
/// goroutines that were started by the same call, wait for the same kind of thing, and have the same holders, the first
/// [`ALIKE`] show their stacks. If `are_all` is true, a holder that is not among `goroutines` has ended.
pub(super) fn list(goroutines: &[GoroutineInfo], are_all: bool) -> String {
    let by_id: HashMap<u64, &GoroutineInfo> = goroutines.iter().map(|info| (info.id, info)).collect();
    let mut alike: HashMap<_, u32> = HashMap::new();
    let mut text = String::new();
    for info in goroutines {
        let title = |id| match by_id.get(&id) {
            Some(holder) => holder.title(),
            None if are_all => format!("{id}, which has ended"),
            None => id.to_string(),
        };
        let shown = alike.entry((info.started_as, info.created_at, info.wait_reason, &info.holders)).or_default();
        *shown += 1;
        _ = info.write(&mut text, title, *shown <= ALIKE);
    }
    text
}

/// Describes each goroutine of a scheduler that has begun.
///
/// Must be called while no worker of the scheduler can wake.
pub(super) fn goroutines(sched: &Sched) -> Vec<GoroutineInfo> {
    sched.workers().flat_map(|worker| worker.fibres().filter_map(GoroutineInfo::of).collect::<Vec<_>>()).collect()
}
