//! Dumps: descriptions of all goroutines, made while the program runs.
//!
//! | step | by | |
//! |---|---|---|
//! | 1 | caller of [`ask`] | makes a [`Request`], which others find at [`REQUEST`], and asks and wakes each worker |
//! | 2 | worker's loop | describes a chunk of its fibres, then makes a choice, and so on to the last fibre |
//! | 3 | caller of [`ask`] | takes the answers, once all workers have answered, or no chunk has come in [`PATIENCE`] |
//!
//! A worker that has not answered does not sleep: `Progress::is_wanted` counts as work of that worker.
//!
//! Only a worker may look into its fibres, so the only goroutines that stop are those of the worker that answers. To
//! show the stack of a goroutine that waits, the worker resumes the fibre, which captures a backtrace and suspends
//! again; state, timer and queue stay as they are. Only a fibre whose switches are observed checks whether it was
//! resumed just for the stack: see `switch_hooks`.

use crate::shim::system;
use crate::shim::system::atomic::Ordering;
use crate::shim::system::{Condvar, Mutex, MutexGuard};
use std::collections::HashSet;
use std::fmt;
use std::ptr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::goroutine::native::fibre::{Fibre, State, current};
use crate::goroutine::native::fork;
use crate::goroutine::native::sched::clock;
use crate::goroutine::native::sched::progress::{self, Stack};
use crate::goroutine::native::sched::report;
use crate::goroutine::native::sched::report::{GoroutineGroup, GoroutineInfo, GoroutineState};
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::tasks;
use crate::goroutine::native::sched::tasks::TaskInfo;
use crate::goroutine::native::sched::threads;
use crate::goroutine::native::sched::threads::ThreadInfo;
use crate::goroutine::native::sched::worker::{self, Worker};

/// The time for which a dump waits for the next chunk before the dump gives up.
const PATIENCE: Duration = Duration::from_millis(200);
/// The time after which workers that have not answered are asked again: a worker's choice after a chunk clears the
/// request.
const AGAIN: Duration = Duration::from_millis(1);
/// The greatest number of fibres that a worker describes between two choices.
const CHUNK: usize = 256;
/// The time, roughly, for which a worker describes fibres between two choices.
const CHUNK_TIME: Duration = Duration::from_millis(2);

/// The goroutines of the process: see [`dump`](crate::goroutine::dump).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Dump {
    /// Goroutines that have begun, in the order of their ids.
    pub goroutines: Vec<GoroutineInfo>,
    /// The number of goroutines that have not begun, of goroutines on `silent_workers`, and of async tasks that the printed
    /// dump does not list.
    pub others: usize,
    /// The workers that have not answered in 200 ms, because a goroutine there computes, or blocks the thread. If a
    /// goroutine calls [`dump`](fn@super::stuck::dump) at a point where the goroutine may not switch, this call, too, blocks the worker's
    /// thread.
    pub silent_workers: Vec<usize>,
    /// The threads that waited for locks, semaphores, channels or the like when the dump was made.
    pub(super) threads: Vec<ThreadInfo>,
    /// The async tasks, where switches are observed.
    pub(super) tasks: Vec<TaskInfo>,
}

impl Dump {
    /// Groups goroutines that were started by the same call (as far as that is known) as the same closure, and wait for
    /// the same kind of thing; those that are [stuck](GoroutineInfo::is_stuck) apart from the others. The largest group
    /// comes first. Go's profile `goroutine` with `debug=1`.
    ///
    /// A leak is a group that grows from dump to dump, with a longest wait that grows, too.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::run;
    /// use sudog::runtime::dump;
    ///
    /// run(|| {
    ///     for group in dump().groups().iter().take(10) {
    ///         eprintln!("{group}");
    ///     }
    /// });
    /// ```
    #[must_use]
    pub fn groups(&self) -> Vec<GoroutineGroup<'_>> {
        report::groups(&self.goroutines)
    }

    /// Returns a dump of the goroutines that have waited for longer than a threshold, without a deadline: leaks, and
    /// goroutines that serve others and have had nothing to do. [`groups`](Self::groups) tells the goroutines that are
    /// [stuck](GoroutineInfo::is_stuck) from those that merely wait. Go's profile `goroutineleak`, for which
    /// the garbage collector finds the goroutines that cannot be woken.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::chan::Chan;
    /// use sudog::runtime::{Dump, dump};
    /// use sudog::{go, run};
    ///
    /// run(|| {
    ///     let never = Chan::<u32>::new(0);
    ///     go(move || _ = never.recv());
    ///     let is_leak = |leaks: Dump| leaks.goroutines.iter().any(|info| info.wait_reason == "chan receive");
    ///     while !is_leak(dump().leaks(Duration::from_millis(50))) {}
    /// });
    /// ```
    #[must_use]
    pub fn leaks(&self, longer_than: Duration) -> Self {
        let is_leak = |info: &&GoroutineInfo| {
            info.state == GoroutineState::Waiting && !info.has_deadline && info.waited > longer_than
        };
        Self {
            goroutines: self.goroutines.iter().filter(is_leak).cloned().collect(),
            others: 0,
            threads: Vec::new(),
            tasks: self.tasks.iter().filter(|task| task.is_waiting() && task.waited > longer_than).cloned().collect(),
            silent_workers: self.silent_workers.clone(),
        }
    }

    /// Returns the waits of the listed goroutines and threads: the number of each, and the time when the wait began.
    pub(super) fn waits(&self) -> impl Iterator<Item = (u64, Duration)> {
        let goroutines = self.goroutines.iter().map(|info| (info.id, info.since));
        goroutines.chain(self.threads.iter().map(|info| (!info.id, info.since)))
    }

    /// Returns the goroutines as a profile, for `go tool pprof` and for flame graphs: Go's profile `goroutine`. The
    /// innermost function of each stack is the kind of the wait.
    ///
    /// A goroutine whose switches are not observed has no stack, but the closure that the goroutine runs.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::fs::File;
    /// use std::time::Duration;
    /// use sudog::runtime::dump;
    ///
    /// let leaks = dump().leaks(Duration::from_secs(60));
    /// leaks.profile().write_pprof(File::create("leaks.pb.gz")?)?;
    /// // go tool pprof -http : leaks.pb.gz
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(all(feature = "profile", not(sudog_sim)))]
    #[must_use]
    pub fn profile(&self) -> crate::profile::Profile {
        crate::profile::of_goroutines(&self.goroutines)
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&report::list(&self.goroutines, &self.threads, false))?;
        self.tasks.iter().try_for_each(|task| task.fmt(f))?;
        if self.others > 0 {
            writeln!(f, "{} goroutines that have not begun, or async tasks", self.others)?;
        }
        for worker in &self.silent_workers {
            writeln!(f, "worker {worker} has not answered: a goroutine computes there, or blocks the thread")?;
        }
        Ok(())
    }
}

/// The goroutines that a request asks for.
pub(super) enum Wanted {
    /// Each goroutine, with the stack.
    All,
    /// Goroutines that wait for mutexes whose holders are known, without stacks.
    HolderWaits,
    /// Goroutines with these ids, with stacks.
    Ids(HashSet<u64>),
    /// Goroutines and threads whose waits have lasted for longer than `threshold`, and are of one of these kinds, with
    /// stacks.
    Long { kinds: &'static [&'static str], threshold: Duration },
}

impl Wanted {
    fn includes(&self, info: &GoroutineInfo) -> bool {
        match self {
            Self::All => true,
            Self::HolderWaits => !info.awaited.is_empty(),
            Self::Ids(ids) => ids.contains(&info.id),
            Self::Long { .. } => info.state == GoroutineState::Waiting && self.is_long(info.wait_reason, info.waited),
        }
    }

    fn includes_thread(&self, info: &ThreadInfo) -> bool {
        !matches!(self, Self::Long { .. }) || self.is_long(info.wait_reason, info.waited)
    }

    /// Returns whether a wait has lasted for too long, if such waits are asked for.
    fn is_long(&self, wait_reason: &str, waited: Duration) -> bool {
        let Self::Long { kinds, threshold } = self else { return false };
        waited > *threshold && kinds.iter().any(|kind| wait_reason.starts_with(kind))
    }
}

/// A dump that is being made.
struct Request {
    number: u64,
    wanted: Wanted,
    answers: Mutex<Answers>,
    answered: Condvar,
}

struct Answers {
    goroutines: Vec<GoroutineInfo>,
    /// The number of chunks that workers have described so far.
    chunks: u64,
    /// The workers that have not yet described all of their fibres.
    missing: Vec<&'static Worker>,
}

/// The request that workers are to answer.
static REQUEST: Mutex<Option<Arc<Request>>> = Mutex::new(None);
/// The lock that a thread holds while it makes a dump: only one dump is made at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Locks one of the mutexes of this file. Nothing panics under these locks, but for a failed allocation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a dump: steps 1 and 3. Called by a thread that is no worker, or on a worker whose goroutine cannot switch.
pub(super) fn ask(wanted: Wanted) -> Dump {
    let sched = Sched::process(); // before any lock, as this refuses in a forked child
    clock::refresh(system::now());
    let _turn = lock(&TURN);
    let missing: Vec<_> = sched.workers().collect();
    worker::answer_dumps_by(answer);
    let number = progress::last_request() + 1;
    let answers = Mutex::new(Answers { goroutines: Vec::new(), chunks: 0, missing });
    let request = Arc::new(Request { number, wanted, answers, answered: Condvar::new() });
    *lock(&REQUEST) = Some(request.clone());
    progress::request(number);
    if let Some(worker) = current::worker().filter(|worker| ptr::eq(worker.sched(), sched)) {
        // The loop of the caller's worker cannot answer while this call runs: answer here.
        let infos =
            worker.fibres().filter_map(GoroutineInfo::of).filter(|info| request.wanted.includes(info)).collect();
        request.take_answer(worker, infos, true);
    }
    let mut answers = lock(&request.answers);
    let (mut chunks, mut since) = (0, system::now());
    while !answers.missing.is_empty() {
        let now = system::now();
        if answers.chunks > chunks {
            (chunks, since) = (answers.chunks, now);
        } else if now >= since + PATIENCE {
            break;
        }
        let missing = answers.missing.clone();
        drop(answers);
        for worker in missing {
            worker.asked.store(true, Ordering::Relaxed);
            worker.wake();
        }
        answers = lock(&request.answers);
        if !answers.missing.is_empty() {
            answers = request.answered.wait_timeout(answers, AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    let mut goroutines = std::mem::take(&mut answers.goroutines);
    let silent_workers = answers.missing.iter().map(|worker| worker.index).collect();
    drop(answers); // no thread holds two of these locks
    *lock(&REQUEST) = None;
    goroutines.sort_unstable_by_key(|info| info.id);
    let tasks = if matches!(request.wanted, Wanted::All) { tasks::all() } else { Vec::new() };
    // A task that is polled is among the goroutines.
    let waiting = tasks.iter().filter(|task| task.is_waiting()).count();
    let others = match request.wanted {
        Wanted::All => sched.live().saturating_sub(goroutines.len() + waiting),
        _ => 0,
    };
    let mut threads = threads::waiting();
    threads.retain(|info| request.wanted.includes_thread(info));
    Dump { goroutines, others, silent_workers, threads, tasks }
}

impl Request {
    fn take_answer(&self, worker: &'static Worker, infos: Vec<GoroutineInfo>, is_whole: bool) {
        let mut answers = lock(&self.answers);
        answers.goroutines.extend(infos);
        answers.chunks += 1;
        if is_whole {
            answers.missing.retain(|other| !ptr::eq(*other, worker));
            if answers.missing.is_empty() {
                self.answered.notify_one();
            }
        }
    }

    /// Returns whether the worker has to answer, and has not answered yet.
    fn lacks(&self, worker: &'static Worker) -> bool {
        lock(&self.answers).missing.iter().any(|other| ptr::eq(*other, worker))
    }
}

/// Describes a chunk of fibres: step 2, on the stack of the worker's loop.
#[cold]
fn answer(worker: &'static Worker) {
    fork::forbid_in_child(); // another thread of the parent may have held the locks at the fork
    let progress = &worker.own.dump;
    let number = progress::last_request();
    if progress.number.replace(number) != number {
        progress.next.set(worker.fibres().next());
    }
    let request = lock(&REQUEST).clone(); // the lock is free again: `lacks` takes another
    let Some(request) = request.filter(|request| request.number == number && request.lacks(worker)) else {
        progress.is_done.set(true); // too late, or a bubble's worker
        return;
    };
    let mut infos = Vec::new();
    let begun = system::now();
    for _ in 0..CHUNK {
        let Some(fibre) = progress.next.get() else { break };
        progress.next.set(fibre.older.get());
        let Some(mut info) = GoroutineInfo::of(fibre).filter(|info| request.wanted.includes(info)) else { continue };
        if !matches!(request.wanted, Wanted::HolderWaits)
            && let Some((stack, addresses)) = stack_of(worker, fibre)
        {
            info.stack = Some(Arc::new(stack));
            info.addresses = addresses;
        }
        infos.push(info);
        if system::now() >= begun + CHUNK_TIME {
            break;
        }
    }
    let is_whole = progress.next.get().is_none();
    progress.is_done.set(is_whole);
    progress.pauses.set(!is_whole);
    request.take_answer(worker, infos, is_whole);
    if !is_whole {
        worker.asked.store(true, Ordering::Relaxed);
    }
}

/// Resumes a suspended fibre of this worker, so that the fibre shows its stack, and returns that stack.
fn stack_of(worker: &'static Worker, fibre: &'static Fibre) -> Option<Stack> {
    if !fibre.observed.was_seen() || fibre.state.get() == State::Running {
        return None;
    }
    let wait = fibre.wait.get(); // keep the note: a user's allocator may wait, and note that wait
    worker.own.dump.is_showing.set(true);
    current::resume(fibre);
    worker.own.dump.is_showing.set(false);
    fibre.wait.set(wait);
    worker.own.dump.stack.take()
}
