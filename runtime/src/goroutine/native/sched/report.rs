//! The descriptions of goroutines in reports and dumps.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::fmt;
use std::fmt::Write as _;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::goroutine::native::fibre::{Fibre, State};
use crate::goroutine::native::sched::clock;
use crate::goroutine::native::sched::scheduler::Sched;

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
    /// The id of the goroutine that holds the awaited mutex, or holds the awaited readers-writer mutex for writing.
    /// Locks know their holders only in builds with debug assertions.
    pub holder: Option<u64>,
    /// True if the wait ends at a deadline, whatever happens.
    pub has_deadline: bool,
    /// The number of the goroutine's worker.
    pub worker: usize,
    /// The type of the closure that the goroutine runs, which has the path of the function that started the goroutine.
    pub started_as: &'static str,
    /// The call that started the goroutine, if switches were observed then.
    pub created_at: Option<&'static Location<'static>>,
    /// The stack of a goroutine that does not run, if the goroutine's switches are observed.
    pub stack: Option<Arc<Backtrace>>,
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
            State::Queued if fibre.work.get().is_none() => GoroutineState::Runnable,
            State::Queued | State::Spare => return None,
        };
        let mut info = Self {
            id: fibre.id.get(),
            name: fibre.shared_name(),
            state,
            wait_reason: "",
            waited: Duration::ZERO,
            since: Duration::ZERO,
            holder: None,
            has_deadline: false,
            worker: fibre.worker.index,
            started_as: fibre.origin(),
            created_at: fibre.created_at.get(),
            stack: None,
        };
        if state == GoroutineState::Waiting {
            let wait = fibre.wait.get();
            let now = clock::coarse_now();
            info.wait_reason = wait.what();
            info.since = Duration::from_millis(wait.since(now));
            info.waited = Duration::from_millis(now) - info.since;
            info.has_deadline = fibre.has_timer();
            // SAFETY: `holder` is null, or alive for as long as the fibre is parked, by the contract of `note_wait`.
            let holder = unsafe { wait.holder.as_ref() }.map(|holder| holder.load(Ordering::Relaxed));
            info.holder = holder.filter(|&id| id != 0);
        }
        Some(info)
    }

    /// Returns the goroutine's number, and the name if there is a name, as reports print them.
    fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{} {name:?}", self.id),
            None => self.id.to_string(),
        }
    }

    /// Writes the report of the goroutine. `holder` is the title of the goroutine that holds the awaited mutex.
    fn write(&self, f: &mut impl fmt::Write, holder: Option<&str>, with_stack: bool) -> fmt::Result {
        write!(f, "goroutine {}", self.title())?;
        match self.state {
            GoroutineState::Running => f.write_str(" [running]")?,
            GoroutineState::Runnable => f.write_str(" [runnable]")?,
            GoroutineState::Waiting => {
                let reason = if self.wait_reason.is_empty() { "waiting" } else { self.wait_reason };
                write!(f, " [{reason}, {:.2} s]", self.waited.as_secs_f64())?;
            }
        }
        if let Some(holder) = holder {
            write!(f, ", held by goroutine {holder}")?;
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
        let holder = self.holder.map(|id| id.to_string());
        self.write(f, holder.as_deref(), true)
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
/// same kind of thing. The largest group comes first.
pub(super) fn groups(goroutines: &[GoroutineInfo]) -> Vec<GoroutineGroup<'_>> {
    let mut groups: HashMap<_, GoroutineGroup<'_>> = HashMap::new();
    for info in goroutines {
        let kind = (info.started_as, info.created_at, info.state == GoroutineState::Waiting, info.wait_reason);
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

/// Reports goroutines. Each awaited mutex has the name of its holder, if the holder is among the goroutines. Of
/// goroutines that were started by the same call, wait for the same kind of thing, and have the same holder, the first
/// [`ALIKE`] show their stacks. If `are_all` is true, a holder that is not among `goroutines` has ended.
pub(super) fn list(goroutines: &[GoroutineInfo], are_all: bool) -> String {
    let by_id: HashMap<u64, &GoroutineInfo> = goroutines.iter().map(|info| (info.id, info)).collect();
    let mut alike: HashMap<_, u32> = HashMap::new();
    let mut text = String::new();
    for info in goroutines {
        let holder = info.holder.map(|id| match by_id.get(&id) {
            Some(holder) => holder.title(),
            None if are_all => format!("{id}, which has ended"),
            None => id.to_string(),
        });
        let shown = alike.entry((info.started_as, info.created_at, info.wait_reason, info.holder)).or_default();
        *shown += 1;
        _ = info.write(&mut text, holder.as_deref(), *shown <= ALIKE);
    }
    text
}

/// Describes each goroutine of a scheduler that has begun.
///
/// Must be called while no worker of the scheduler can wake.
pub(super) fn goroutines(sched: &Sched) -> Vec<GoroutineInfo> {
    sched.workers().flat_map(|worker| worker.fibres().filter_map(GoroutineInfo::of).collect::<Vec<_>>()).collect()
}

/// Returns the range of the user's frames in a stack, innermost first. Leaves out the frames of this project at the
/// wait, and the frames of the runtime at the goroutine's base. `name` returns the path of a frame's function.
pub(crate) fn of_the_user<T>(frames: &[T], name: impl Fn(&T) -> &str) -> Range<usize> {
    /// The frames between a wait and the caller of that wait.
    const WAIT: [&str; 10] = [
        "backtrace::",
        "core::",
        "lock_api::",
        "std::backtrace",
        "std::thread::local",
        "sudog_csp::",
        "sudog_locks::",
        "sudog_net::",
        "sudog_runtime::",
        "sudog_sync::",
    ];
    /// The frames between a goroutine's closure and the fibre.
    const BASE: [&str; 7] =
        ["std::panicking::", "std::panic::", "core::panic::", "core::ops::", "alloc::", "__rust_try", "sudog_"];
    let is_of = |frame: &T, list: &[&str]| {
        // `<&sudog_runtime::..::WaitLimit as ..>::limited` is a function of this project, too.
        let name = name(frame).trim_start_matches(['<', '&']);
        list.iter().any(|prefix| name.starts_with(prefix))
    };
    let base = frames.iter().position(|frame| name(frame).contains("goroutine::native::fibre::job::run"));
    let frames = &frames[..base.unwrap_or(frames.len())];
    let begin = frames.iter().position(|frame| !is_of(frame, &WAIT)).unwrap_or(0);
    let end = frames.iter().rposition(|frame| !is_of(frame, &BASE)).map_or(frames.len(), |last| last + 1);
    begin..end.max(begin)
}

/// Prints the frames [of the user](of_the_user) of a printed backtrace.
pub(crate) fn frames_of_the_user(stack: &str) -> String {
    // A frame is a line with number and name, and perhaps a line with the place.
    let mut frames: Vec<&str> = Vec::new();
    let mut start = 0;
    for (at, _) in stack.match_indices('\n') {
        let next = stack[at + 1..].lines().next().unwrap_or("").trim_start();
        if !next.starts_with("at ") {
            frames.push(&stack[start..at]);
            start = at + 1;
        }
    }
    frames.extend(Some(&stack[start..]).filter(|frame| !frame.trim().is_empty()));
    let range = of_the_user(&frames, |frame| frame.split_once(": ").map_or("", |(_, name)| name));
    let mut text = String::new();
    for frame in &frames[range] {
        let mut lines = frame.lines();
        let name = lines.next().and_then(|line| line.split_once(": ")).map_or("?", |(_, name)| name);
        _ = writeln!(text, "      {name}");
        lines.for_each(|place| _ = writeln!(text, "          {}", place.trim_start()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_runtime_are_left_out() {
        let stack = "   0: <std::backtrace::Backtrace>::force_capture\n   1: sudog_runtime::goroutine::native::sched::dump::show\n             \
            at /src/dump.rs:1:2\n   2: <&sudog_sync::mutex::Mutex<T> as A>::lock\n   3: app::serve\n             at /app.rs:3:4\n   \
            4: core::ops::function::FnOnce::call_once\n   5: sudog_runtime::goroutine::native::fibre::job::run\n   6: corosensei::on\n";
        assert_eq!(frames_of_the_user(stack), "      app::serve\n          at /app.rs:3:4\n");
        // Without symbols, frames of the user cannot be told from others: all are printed.
        assert_eq!(frames_of_the_user("   0: <unknown>\n   1: <unknown>\n"), "      <unknown>\n      <unknown>\n");
        assert_eq!(frames_of_the_user(""), "");
    }
}
