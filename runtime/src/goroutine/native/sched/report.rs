//! The descriptions of goroutines in reports and dumps.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::goroutine::native::fibre::job::Vtable;
use crate::goroutine::native::fibre::wait::write_object;
use crate::goroutine::native::fibre::{Fibre, State};
use crate::goroutine::native::sched::clock;
use crate::goroutine::native::sched::frames::frames_of_the_user;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::threads::ThreadInfo;
use crate::lock_order::{self, Holder};

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
    /// tasks are not listed. (The printed dump names them.)
    pub holders: Vec<u64>,
    /// The [`holder_id`](lock_order::holder_id)s of all holders: goroutines, threads and polls.
    pub(super) awaited: Vec<u64>,
    /// The address of the awaited object, or of a part that no other object has; 0 if the object is not known.
    pub(super) object: usize,
    /// True if the goroutine polls an async task.
    pub(super) is_poll: bool,
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
            awaited: Vec::new(),
            object: 0,
            is_poll: ptr::eq(fibre.vtable.get(), Vtable::TASK),
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
            info.since = Duration::from_millis(fibre.wait.since(now));
            info.waited = Duration::from_millis(now) - info.since;
            info.has_deadline = fibre.has_timer();
            info.object = wait.object();
            // SAFETY: there are no holders, or the object is alive for as long as the fibre is parked, by the contract of
            // `note_wait_for`. The fibre stays parked during this call.
            let holders = unsafe { wait.holders() }.iter().map(|holder| holder.load(Ordering::Relaxed));
            info.awaited = holders.filter(|&id| id != 0).collect();
            info.awaited.sort_unstable();
            info.awaited.dedup();
            info.holders = info.awaited.iter().filter_map(|&holder| goroutine(holder)).collect();
        }
        Some(info)
    }

    /// Returns the [`holder_id`](lock_order::holder_id) by which locks know the goroutine.
    pub(super) fn waiter(&self) -> u64 {
        if self.is_poll { lock_order::id_of_poll(self.id) } else { self.id }
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

    /// Writes the report of the goroutine. `titles` has the titles of those that hold the awaited lock.
    fn write(&self, f: &mut impl fmt::Write, titles: &Titles, with_stack: bool) -> fmt::Result {
        write!(f, "goroutine {}", self.title())?;
        match self.state {
            GoroutineState::Waiting => {
                write!(f, " [{}, {:.2} s{}]", self.reason(), self.waited.as_secs_f64(), self.stuck())?
            }
            _ => write!(f, " [{}]", self.reason())?,
        }
        write_holders(f, &self.awaited, titles)?;
        write!(f, "\n    started as {}", self.started_as)?;
        if let Some(place) = self.created_at {
            write!(f, "\n    created at {place}")?;
        }
        write_object(f, self.object)?;
        f.write_char('\n')?;
        if with_stack && let Some(stack) = &self.stack {
            f.write_str(&frames_of_the_user(&stack.to_string()))?;
        }
        Ok(())
    }
}

impl fmt::Display for GoroutineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &Titles::default(), true)
    }
}

/// Returns the id of a goroutine that is a holder; `None` if the holder is a thread or a task.
fn goroutine(holder: u64) -> Option<u64> {
    match lock_order::decode(holder) {
        Holder::Goroutine(id) => Some(id),
        Holder::Poll(_) | Holder::Thread => None,
    }
}

/// The titles of goroutines and threads, by which a report names holders of locks.
#[derive(Default)]
struct Titles {
    by_holder: HashMap<u64, String>,
    /// True if a goroutine without a title has ended.
    are_all: bool,
}

impl Titles {
    fn of(&self, holder: u64) -> String {
        match (self.by_holder.get(&holder), lock_order::decode(holder)) {
            (Some(title), _) => title.clone(),
            (None, Holder::Goroutine(id)) if self.are_all => format!("{id}, which has ended"),
            (None, Holder::Goroutine(id)) => id.to_string(),
            (None, Holder::Poll(_)) => "an async task".to_owned(),
            (None, Holder::Thread) => "a thread".to_owned(),
        }
    }
}

/// Writes the holders of an awaited lock, as in `, held by goroutines 3, 4 "keeper" and thread 77`.
fn write_holders(f: &mut impl fmt::Write, holders: &[u64], titles: &Titles) -> fmt::Result {
    let (goroutines, others): (Vec<u64>, Vec<u64>) = holders.iter().partition(|&&holder| goroutine(holder).is_some());
    let [goroutines, others] =
        [goroutines, others].map(|of| of.into_iter().map(|id| titles.of(id)).collect::<Vec<_>>());
    let mut parts = Vec::new();
    match &goroutines[..] {
        [] => {}
        [title] => parts.push(format!("goroutine {title}")),
        titles => parts.push(format!("goroutines {}", titles.join(", "))),
    }
    parts.extend(others);
    if parts.is_empty() { Ok(()) } else { write!(f, ", held by {}", parts.join(" and ")) }
}

impl ThreadInfo {
    /// Writes the report of the thread.
    fn write(&self, f: &mut impl fmt::Write, titles: &Titles) -> fmt::Result {
        let reason = if self.wait_reason.is_empty() { "waiting" } else { self.wait_reason };
        write!(f, "{} [{reason}, {:.2} s]", self.title(), self.waited.as_secs_f64())?;
        write_holders(f, self.holders(), titles)?;
        write_object(f, self.object)?;
        if let Some(place) = self.place {
            write!(f, "\n    waits at {place}")?;
        }
        f.write_char('\n')
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

/// Reports goroutines, and then threads. Each awaited mutex has the names of those holders that are among the goroutines
/// and threads. Of goroutines that were started by the same call, wait for the same kind of thing, and have the same
/// holders, the first [`ALIKE`] show their stacks. If `are_all` is true, a holder that is not among `goroutines` has ended.
pub(super) fn list(goroutines: &[GoroutineInfo], threads: &[ThreadInfo], are_all: bool) -> String {
    let of_threads = threads.iter().filter(|info| goroutine(info.waiter).is_none());
    let of_threads = of_threads.map(|info| (info.waiter, info.title()));
    let of_goroutines = goroutines.iter().map(|info| match info.is_poll {
        true => (info.waiter(), format!("goroutine {}", info.title())),
        false => (info.id, info.title()),
    });
    let titles = Titles { by_holder: of_goroutines.chain(of_threads).collect(), are_all };
    let mut alike: HashMap<_, u32> = HashMap::new();
    let mut text = String::new();
    for info in goroutines {
        let shown = alike.entry((info.started_as, info.created_at, info.wait_reason, &info.awaited)).or_default();
        *shown += 1;
        _ = info.write(&mut text, &titles, *shown <= ALIKE);
    }
    for info in threads {
        _ = info.write(&mut text, &titles);
    }
    text
}

/// Describes each goroutine of a scheduler that has begun.
///
/// Must be called while no worker of the scheduler can wake.
pub(super) fn goroutines(sched: &Sched) -> Vec<GoroutineInfo> {
    sched.workers().flat_map(|worker| worker.fibres().filter_map(GoroutineInfo::of).collect::<Vec<_>>()).collect()
}
