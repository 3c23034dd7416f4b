//! A set of workers that share their work: those of one `run`, the schedulers of one [`ActiveSet`](super::ActiveSet),
//! or the ones in the background, who serve threads that are no workers.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_task::Task;
use crossbeam_utils::CachePadded;

use super::idle::{Idle, Wanted};
use super::job::{self, Job};
use super::ring::Work;
use super::worker::Worker;
use super::{context, overflow, procs, watcher};

/// How many workers a set has at most.
pub(super) const MAX_WORKERS: usize = 256;

/// Sets are never freed, so that a late wake-up does no harm; they are used again.
pub(super) struct Set {
    pub(super) idle: Idle,
    /// Work for any worker: what found no room in a ring, or came from outside.
    global: CachePadded<Mutex<VecDeque<Work>>>,
    global_len: CachePadded<AtomicUsize>,
    workers: [AtomicPtr<Worker>; MAX_WORKERS],
    /// One more than the highest place that is, or was, taken.
    places: AtomicUsize,
    /// How many workers there are.
    started: AtomicUsize,
    /// How many workers of this set do any work.
    procs: AtomicUsize,
    /// It is an [`ActiveSet`](super::ActiveSet): it ends when it is at rest, and starts no threads.
    local: AtomicBool,
    /// Whether it has a main goroutine: see [`main`].
    main: AtomicU32,
    /// Goroutines and tasks made and ended by threads that are no workers of this set.
    made: AtomicU64,
    ended: AtomicU64,
    /// The tasks of a local set, to be given up when it is over.
    tasks: Mutex<HashMap<u64, Task<()>, BuildHasherDefault<DefaultHasher>>>,
    next_task: AtomicU64,
}

/// What has become of a set's main goroutine.
pub(super) mod main {
    /// There is none.
    pub(in super::super) const NONE: u32 = 0;
    pub(in super::super) const RUNNING: u32 = 1;
    /// It has called `goexit`.
    pub(in super::super) const EXITED: u32 = 2;
}

/// The one of those who have no other: threads that are no workers.
static BACKGROUND: Set = Set::new();
/// All sets with threads of their own: for the watcher.
static LIVE: Mutex<Vec<&'static Set>> = Mutex::new(Vec::new());
/// How many workers a set has that is yet to be made. 0: nobody has asked.
static PROCS: AtomicUsize = AtomicUsize::new(0);
static SPARE_WORKERS: Mutex<Vec<&'static Worker>> = Mutex::new(Vec::new());
static SPARE_SETS: Mutex<Vec<&'static Set>> = Mutex::new(Vec::new());

/// Nothing panics under these locks, but for a failed allocation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `set_max_procs` has said outside of all sets; or what the system says.
fn default_procs() -> usize {
    if PROCS.load(Ordering::Relaxed) == 0 {
        let asked = procs::default_procs().min(MAX_WORKERS);
        let _ = PROCS.compare_exchange(0, asked, Ordering::Relaxed, Ordering::Relaxed);
    }
    PROCS.load(Ordering::Relaxed)
}

impl Set {
    const fn new() -> Self {
        Self {
            idle: Idle::new(),
            global: CachePadded::new(Mutex::new(VecDeque::new())),
            global_len: CachePadded::new(AtomicUsize::new(0)),
            workers: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_WORKERS],
            places: AtomicUsize::new(0),
            started: AtomicUsize::new(0),
            procs: AtomicUsize::new(0),
            local: AtomicBool::new(false),
            main: AtomicU32::new(main::NONE),
            made: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            tasks: Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())),
            next_task: AtomicU64::new(0),
        }
    }

    /// The one that `go` uses for threads that are no workers.
    pub(super) fn background() -> &'static Self {
        static STARTED: OnceLock<()> = OnceLock::new();
        STARTED.get_or_init(|| BACKGROUND.begin(default_procs()));
        &BACKGROUND
    }

    /// The set of the calling worker, or the background one.
    #[inline]
    pub(super) fn here() -> &'static Self {
        context::worker().map_or_else(Self::background, Worker::set)
    }

    /// A set for a `run`.
    pub(super) fn of_run() -> &'static Self {
        let set = Self::spare();
        set.local.store(false, Ordering::Relaxed);
        set.main.store(main::RUNNING, Ordering::Relaxed);
        set.begin(default_procs());
        set
    }

    /// A set for schedulers of one's own.
    pub(super) fn local() -> &'static Self {
        overflow::install(context::running);
        let set = Self::spare();
        set.local.store(true, Ordering::Relaxed);
        set.procs.store(MAX_WORKERS, Ordering::Relaxed);
        set
    }

    fn spare() -> &'static Self {
        let set = lock(&SPARE_SETS).pop().unwrap_or_else(|| Box::leak(Box::new(Self::new())));
        set.made.store(0, Ordering::Relaxed);
        set.ended.store(0, Ordering::Relaxed);
        set
    }

    fn begin(&'static self, procs: usize) {
        overflow::install(context::running);
        self.procs.store(procs, Ordering::Relaxed);
        self.idle.open();
        lock(&LIVE).push(self);
    }

    /// No worker is in it, and nobody will use it any more.
    pub(super) fn recycle(&'static self) {
        lock(&LIVE).retain(|set| !ptr::eq(*set, self));
        self.main.store(main::NONE, Ordering::Relaxed);
        // Not one whose tasks may still be woken; nor one that a leaked handle would keep from ever being at rest.
        if self.live() == 0 {
            self.idle.if_at_rest(|| lock(&SPARE_SETS).push(self));
        }
    }

    /// All sets with threads of their own.
    pub(super) fn all() -> Vec<&'static Self> {
        lock(&LIVE).clone()
    }

    pub(super) fn main(&self) -> u32 {
        self.main.load(Ordering::Relaxed)
    }

    pub(super) fn set_main(&self, main: u32) {
        self.main.store(main, Ordering::Relaxed);
    }

    pub(super) fn ends_at_rest(&self) -> bool {
        self.local.load(Ordering::Relaxed)
    }

    // ---- workers --------------------------------------------------------------------------------------------------

    /// Makes the calling thread a worker.
    pub(super) fn enter(&'static self) -> &'static Worker {
        self.started.fetch_add(1, Ordering::Relaxed);
        loop {
            if let Some(epoch) = self.idle.join() {
                return self.enter_joined(epoch);
            }
            std::thread::sleep(Duration::from_micros(50)); // the last of an epoch that has ended are leaving
        }
    }

    fn enter_joined(&'static self, epoch: u32) -> &'static Worker {
        let worker = lock(&SPARE_WORKERS).pop().unwrap_or_else(|| Box::leak(Box::new(Worker::new())));
        let free = |place: &&AtomicPtr<Worker>| {
            let new = ptr::from_ref(worker).cast_mut();
            // Release: who finds it there finds it made.
            place.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        let Some(index) = self.workers.iter().position(|place| free(&place)) else {
            crate::fatal("sudog: more than 256 workers");
        };
        self.places.fetch_max(index + 1, Ordering::Relaxed);
        worker.join(self, index);
        worker.sleeper.epoch.set(epoch);
        watcher::rouse();
        context::set_worker(Some(worker));
        worker
    }

    /// The calling thread ceases to be a worker. Its goroutines have been unwound; if some could not be, the worker is
    /// never used again.
    pub(super) fn leave(&'static self, worker: &'static Worker, clean: bool) {
        context::set_worker(None);
        self.made.fetch_add(worker.made.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.ended.fetch_add(worker.ended.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.workers[worker.place()].store(ptr::null_mut(), Ordering::Relaxed);
        self.idle.leave(self.ends_at_rest());
        if clean {
            lock(&SPARE_WORKERS).push(worker);
        }
        // What nobody has begun, if destructors have started it; and the futures of the tasks that were given up.
        if self.ends_at_rest() {
            self.discard_work();
        }
        self.idle.has_left();
        let last = self.started.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && !self.ends_at_rest() {
            self.discard_work();
            self.recycle();
        }
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &'static Worker> {
        let places = self.places.load(Ordering::Relaxed);
        self.workers[..places].iter().filter_map(|place| {
            // SAFETY: workers are never freed. Acquire: made before it was put there.
            unsafe { place.load(Ordering::Acquire).as_ref() }
        })
    }

    /// All workers but this one, with their places, from some place on.
    pub(super) fn others(&self, me: &Worker, start: usize) -> impl Iterator<Item = (usize, &'static Worker)> {
        let me = me.index.load(Ordering::Relaxed);
        let places = self.places.load(Ordering::Relaxed).max(1);
        (0..places).map(move |i| (start + i) % places).filter(move |&i| i != me).filter_map(|i| {
            // SAFETY: as in `workers`.
            unsafe { self.workers[i].load(Ordering::Acquire).as_ref() }.map(|worker| (i, worker))
        })
    }

    pub(super) fn worker(&'static self, index: usize) -> Option<&'static Worker> {
        // SAFETY: as in `workers`.
        unsafe { self.workers.get(index)?.load(Ordering::Acquire).as_ref() }
    }

    /// How many workers stand before this one. Those that `run` has made leave, and their places may stay free.
    #[cold]
    pub(super) fn rank(&self, worker: &Worker) -> usize {
        let before = &self.workers[..worker.place()];
        before.iter().filter(|place| !place.load(Ordering::Relaxed).is_null()).count()
    }

    /// How many workers do any work.
    #[inline]
    pub(super) fn procs(&self) -> usize {
        self.procs.load(Ordering::Relaxed)
    }

    pub(super) fn set_procs(&'static self, n: usize) -> usize {
        if ptr::eq(self, &raw const BACKGROUND) {
            PROCS.store(n, Ordering::Relaxed);
        }
        let before = self.procs.swap(n, Ordering::Relaxed);
        self.wake_for_work();
        before
    }

    /// Whether others may run while a worker of this set spins.
    pub(super) fn is_parallel(&self) -> bool {
        self.started.load(Ordering::Relaxed) > 1
    }

    /// Wakes a sleeping worker, or starts one, if there is work that nobody has looked for.
    #[inline]
    pub(super) fn wake_for_work(&'static self) {
        if self.idle.wake_any() == Wanted::AnotherWorker && self.started.load(Ordering::Relaxed) < self.procs() {
            _ = self.start_worker();
        }
    }

    /// Starts workers up to this place. False if there are not to be so many.
    pub(super) fn start_up_to(&'static self, index: usize) -> bool {
        while self.worker(index).is_none() {
            if index >= self.procs() || self.ends_at_rest() {
                return false;
            }
            // One that has been started, but has not come yet, is worth waiting for. In this order: no room to start
            // one, then all have come, then none is in this place.
            let all_are_there = || self.workers().count() == self.started.load(Ordering::Relaxed);
            if !self.start_worker() && all_are_there() && self.worker(index).is_none() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// How many workers there are, for a message.
    pub(super) fn limit(&self) -> usize {
        if self.ends_at_rest() { self.workers().count() } else { self.procs() }
    }

    /// False if no more are to be started, or can be.
    #[cold]
    fn start_worker(&'static self) -> bool {
        // The workers of a local set come by themselves: it is never open.
        let Some(epoch) = self.idle.epoch_if_open() else { return false };
        let room = |started| (started < self.procs()).then_some(started + 1);
        let Ok(before) = self.started.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) else { return false };
        let body = move || {
            let _stack = overflow::prepare_thread();
            self.idle.join_late();
            let worker = self.enter_joined(epoch);
            worker.run();
            self.leave(worker, worker.reclaim());
        };
        watcher::start();
        if let Err(error) = std::thread::Builder::new().name(format!("sudog-{before}")).spawn(body) {
            self.started.fetch_sub(1, Ordering::Relaxed);
            if before == 0 {
                crate::fatal(&format!("sudog: no thread for the first worker: {error}"));
            }
            return false;
        }
        true
    }

    // ---- work -----------------------------------------------------------------------------------------------------

    /// Queues work that anybody may do, from wherever the caller is.
    #[inline]
    pub(super) fn submit(&'static self, work: Work) {
        match context::worker() {
            Some(worker) if ptr::eq(worker.set(), self) => worker.submit(work),
            _ => {
                self.push_global([work]);
                self.wake_for_work();
            }
        }
    }

    /// Queues a job for one worker.
    pub(super) fn place(&'static self, worker: &'static Worker, work: Work) {
        // SAFETY: a packed job that is in no queue; its link is its first field.
        unsafe { worker.placed.push(job::job_of(work).cast().as_ptr()) };
        worker.wake();
    }

    pub(super) fn push_global(&self, works: impl IntoIterator<Item = Work>) {
        let mut global = lock(&self.global);
        global.extend(works);
        self.global_len.store(global.len(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn has_global_work(&self) -> bool {
        self.global_len.load(Ordering::Relaxed) > 0
    }

    /// Takes this worker's share of the global queue: at least one piece, at most `most`.
    pub(super) fn pop_global(&self, most: usize) -> impl Iterator<Item = Work> {
        let mut global = lock(&self.global);
        let share = (global.len() / self.started.load(Ordering::Relaxed).max(1) + 1).min(most).min(global.len());
        let mut out = [None; super::ring::BATCH];
        for place in &mut out[..share] {
            *place = global.pop_front();
        }
        self.global_len.store(global.len(), Ordering::Relaxed);
        drop(global);
        out.into_iter().map_while(|work| work)
    }

    /// Drops work that has not begun, of a set that is over. Destructors may bring more.
    pub(super) fn discard_work(&'static self) {
        while let Some(work) = self.pop_global(1).next() {
            if job::is_job(work) {
                self.count_end(); // a task counts itself
            }
            // SAFETY: packed, and in no queue any more.
            unsafe { job::discard_work(work) };
        }
    }

    // ---- the tasks of a local set ---------------------------------------------------------------------------------

    /// A name for a task to come. Of a local set only.
    pub(super) fn name_task(&self) -> Option<u64> {
        self.ends_at_rest().then(|| self.next_task.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn keep_task(&self, name: u64, task: Task<()>) {
        lock(&self.tasks).insert(name, task);
    }

    /// The task has ended.
    pub(super) fn forget_task(&self, name: u64) {
        let task = lock(&self.tasks).remove(&name);
        if let Some(task) = task {
            task.detach();
        }
    }

    /// Gives up all tasks: their futures will be dropped.
    pub(super) fn cancel_tasks(&self) {
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        drop(tasks);
    }

    pub(super) fn has_work_in_rings(&self) -> bool {
        self.workers().any(|worker| !worker.ring.is_empty())
    }

    /// How many goroutines and tasks of this set have been made and not ended.
    pub(super) fn live(&self) -> usize {
        // Those that ended first, so that the difference is not below 0.
        let ended: u64 =
            self.workers().map(|w| w.ended.load(Ordering::Acquire)).sum::<u64>() + self.ended.load(Ordering::Acquire);
        let made: u64 =
            self.workers().map(|w| w.made.load(Ordering::Acquire)).sum::<u64>() + self.made.load(Ordering::Acquire);
        made.saturating_sub(ended) as usize
    }

    #[inline]
    pub(super) fn count_made(&'static self) {
        match context::worker() {
            Some(worker) if ptr::eq(worker.set(), self) => worker.count_made(),
            _ => _ = self.made.fetch_add(1, Ordering::Relaxed),
        }
    }

    #[inline]
    pub(super) fn count_end(&'static self) {
        match context::worker() {
            Some(worker) if ptr::eq(worker.set(), self) => worker.count_end(),
            _ => _ = self.ended.fetch_add(1, Ordering::Relaxed),
        }
    }
}

const _: () = assert!(std::mem::offset_of!(Job, link) == 0);
