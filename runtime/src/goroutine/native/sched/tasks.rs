//! The async tasks of the process, for dumps. A task has no stack and no fibre, so a dump finds it in this list.
//!
//! Where switches are observed, each new task is wrapped into a [`Watched`], which lists the task until the task's end.
//! Other tasks are not listed, and cost nothing. The futures of this project note what they wait for as goroutines do
//! (`note_task_wait`); after a poll that returns `Pending`, the last such note is that of the task.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::check_lock::CheckLock;
use crate::goroutine::native::fibre::wait::write_object;
use crate::goroutine::native::sched::clock;
use crate::shim::system::Mutex;
use crate::shim::system::atomic::{AtomicU64, Ordering};

/// All tasks that are listed, by their numbers.
static TASKS: CheckLock<BTreeMap<u64, Arc<Entry>>> = CheckLock::new(BTreeMap::new());

/// A task in the list.
struct Entry {
    number: u64,
    /// The type of the task's future, which has the path of the function that made the future.
    started_as: &'static str,
    /// The call that started the task.
    created_at: &'static Location<'static>,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct State {
    /// The id of the goroutine that polls the task. 0 if the task is not polled.
    polled_by: u64,
    /// The note of the wait by the last poll: the kind, and the address of the awaited object. Empty if the poll has made
    /// no note.
    note: Note,
    /// The time of the start or of the end of the last poll, in milliseconds of the coarse clock.
    since: u64,
}

/// The kind of a wait, and the address of the awaited object; 0 if the object is not known.
type Note = (&'static str, usize);

impl Entry {
    fn set(&self, polled_by: u64, note: Note) {
        let new = State { polled_by, note, since: clock::coarse_now() };
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = new;
    }
}

/// The future of a task that is listed.
pub(crate) struct Watched<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    entry: Arc<Entry>,
    /// Returns the id of the calling goroutine.
    id: fn() -> u64,
    /// Takes the note of the calling goroutine's wait.
    take_note: fn() -> Note,
}

impl<T> Watched<T> {
    /// Lists a task that begins. `id` returns the id of the calling goroutine, and `take_note` takes the note of that
    /// goroutine's wait.
    pub(crate) fn new(
        future: Pin<Box<dyn Future<Output = T> + Send>>,
        started_as: &'static str,
        created_at: &'static Location<'static>,
        id: fn() -> u64,
        take_note: fn() -> Note,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let state = Mutex::new(State { polled_by: 0, note: ("", 0), since: clock::coarse_now() });
        let entry = Arc::new(Entry { number, started_as, created_at, state });
        TASKS.enter(|tasks| _ = tasks.insert(number, entry.clone()));
        Self { future, entry, id, take_note }
    }
}

impl<T> Future for Watched<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        this.entry.set((this.id)(), ("", 0));
        _ = (this.take_note)(); // of an earlier poll
        let polled = this.future.as_mut().poll(cx);
        this.entry.set(0, (this.take_note)());
        polled
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        let entry = TASKS.enter(|tasks| tasks.remove(&self.entry.number));
        drop(entry); // outside of the lock
    }
}

/// A task as a dump describes it.
#[derive(Clone, Debug)]
pub(super) struct TaskInfo {
    number: u64,
    started_as: &'static str,
    created_at: &'static Location<'static>,
    polled_by: u64,
    note: Note,
    /// The time since the start or the end of the last poll.
    pub(super) waited: Duration,
}

/// Describes the tasks that are listed, in the order of their numbers.
pub(super) fn all() -> Vec<TaskInfo> {
    let entries = TASKS.enter(|tasks| tasks.values().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let now = clock::coarse_now();
    entries.iter().map(|entry| TaskInfo::of(entry, now)).collect()
}

impl TaskInfo {
    fn of(entry: &Entry, now: u64) -> Self {
        let State { polled_by, note, since } = *entry.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Entry { number, started_as, created_at, .. } = *entry;
        let waited = Duration::from_millis(now.saturating_sub(since));
        Self { number, started_as, created_at, polled_by, note, waited }
    }

    /// Returns whether the task waits to be woken, or has been woken and not been polled since.
    pub(super) fn is_waiting(&self) -> bool {
        self.polled_by == 0
    }
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.number)?;
        let (wait_reason, object) = self.note;
        match (self.is_waiting(), wait_reason) {
            (false, _) => write!(f, " [polled by goroutine {}]", self.polled_by)?,
            (true, "") => write!(f, " [waiting, {:.2} s]", self.waited.as_secs_f64())?,
            (true, reason) => write!(f, " [{reason}, {:.2} s]", self.waited.as_secs_f64())?,
        }
        write!(f, "\n    started as {}\n    created at {}", self.started_as, self.created_at)?;
        write_object(f, object)?;
        f.write_str("\n")
    }
}
