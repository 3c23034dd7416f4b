//! A scheduler: workers that share their work. Those of one `run`, the threads that run one
//! [`Scheduler`](crate::goroutine::Scheduler), or the background ones, which serve threads that are not workers.

use crate::shim::system;
use crate::shim::system::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::shim::system::{Mutex, MutexGuard, OnceLock};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ptr;
use std::sync::PoisonError;
use std::time::Duration;

use async_task::Task;

use crate::goroutine::native::fibre::job::Job;
use crate::goroutine::native::fibre::{current, job};
use crate::goroutine::native::fork;
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::sched::{procs, spread, sysmon};
use crate::goroutine::native::stack::overflow;
use crate::goroutine::protocol::global_queue::GlobalQueue;
use crate::goroutine::protocol::idle::{Idle, Wanted};
use crate::goroutine::protocol::pinned::SchedName;
use crate::goroutine::protocol::retirement::{Retirement, Spares};
use crate::goroutine::protocol::runq::Work;

/// How many workers a scheduler has at most.
pub(crate) const MAX_WORKERS: usize = 256;

/// Schedulers are never freed, so that a late wake-up does no harm; they are used again.
pub(crate) struct Sched {
    pub(crate) idle: Idle,
    global: GlobalQueue<Work>,
    workers: [AtomicPtr<Worker>; MAX_WORKERS],
    /// One more than the highest place that is, or was, taken.
    places: AtomicUsize,
    /// How many workers of this scheduler do any work.
    procs: AtomicUsize,
    /// It is a [`Scheduler`](crate::goroutine::Scheduler): it ends when it is at rest, and starts no threads.
    local: AtomicBool,
    /// Whether it has a main goroutine: see [`main`].
    main: AtomicU32,
    /// Goroutines and tasks made and ended by threads that are no workers of this scheduler, or not any more.
    retirement: Retirement,
    /// The tasks of a local scheduler, to be given up when it is over.
    tasks: Mutex<Tasks>,
    next_task: AtomicU64,
}

/// By their names.
pub(crate) type Tasks = HashMap<u64, Task<()>, BuildHasherDefault<DefaultHasher>>;

/// What has become of a scheduler's main goroutine.
pub(crate) mod main {
    /// There is none.
    pub(crate) const NONE: u32 = 0;
    pub(crate) const RUNNING: u32 = 1;
    /// It has called `goexit`.
    pub(crate) const EXITED: u32 = 2;
}

/// The scheduler of threads that are not workers.
static BACKGROUND: Sched = Sched::new();
/// All schedulers in use: for the watcher.
static LIVE: Mutex<Vec<&'static Sched>> = Mutex::new(Vec::new());
/// How many workers a scheduler has that is yet to be made. 0: not asked yet.
static PROCS: AtomicUsize = AtomicUsize::new(0);
static SPARE_WORKERS: Spares<&'static Worker> = Spares::new();
static SPARE_SCHEDS: Spares<&'static Sched> = Spares::new();
/// How many schedulers, and workers, have been made.
static SCHEDS: AtomicUsize = AtomicUsize::new(1);
static WORKERS: AtomicUsize = AtomicUsize::new(0);

/// How many there are in this process, for tests: none is ever freed, but those that are spare are used again.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Census {
    /// Schedulers, with the one in the background.
    pub scheds: usize,
    /// Those that the next `run` or `Scheduler` may have.
    pub spare_scheds: usize,
    /// Workers, awake or asleep or spare.
    pub workers: usize,
    /// Those that a thread may be next.
    pub spare_workers: usize,
    /// Goroutines that have been spread over idle workers, as a family of them blocked at once.
    pub spread: usize,
}

/// See [`Census`].
#[must_use]
pub fn census() -> Census {
    Census {
        spare_scheds: SPARE_SCHEDS.len(),
        spare_workers: SPARE_WORKERS.len(),
        scheds: SCHEDS.load(Ordering::Relaxed),
        workers: WORKERS.load(Ordering::Relaxed),
        spread: spread::spread_so_far(),
    }
}

/// Nothing panics under these locks, but for a failed allocation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `set_max_procs` has said outside of all schedulers; or what the system says.
pub(crate) fn default_procs() -> usize {
    if PROCS.load(Ordering::Relaxed) == 0 {
        let asked = procs::default_procs().min(MAX_WORKERS);
        let _ = PROCS.compare_exchange(0, asked, Ordering::Relaxed, Ordering::Relaxed);
    }
    PROCS.load(Ordering::Relaxed)
}

/// Threads that stay for the goroutines that have been left on them.
static KEPT_THREADS: AtomicUsize = AtomicUsize::new(0);

impl Sched {
    const fn new() -> Self {
        Self {
            idle: Idle::new(),
            global: GlobalQueue::new(),
            workers: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_WORKERS],
            places: AtomicUsize::new(0),
            procs: AtomicUsize::new(0),
            local: AtomicBool::new(false),
            main: AtomicU32::new(main::NONE),
            retirement: Retirement::new(),
            tasks: Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())),
            next_task: AtomicU64::new(0),
        }
    }

    /// The one that `go` uses for threads that are no workers.
    pub(crate) fn background() -> &'static Self {
        static STARTED: OnceLock<()> = OnceLock::new();
        fork::forbid_in_child();
        STARTED.get_or_init(|| {
            BACKGROUND.begin(default_procs());
            BACKGROUND.idle.open();
        });
        &BACKGROUND
    }

    /// The scheduler of the calling worker, or the background one.
    #[inline]
    pub(crate) fn here() -> &'static Self {
        current::worker().map_or_else(Self::background, Worker::sched)
    }

    /// A scheduler for a `run`.
    pub(crate) fn for_run() -> &'static Self {
        let sched = Self::spare();
        sched.local.store(false, Ordering::Relaxed);
        sched.main.store(main::RUNNING, Ordering::Relaxed);
        sched.begin(default_procs());
        sched
    }

    /// A scheduler for a `Scheduler`.
    pub(crate) fn local() -> &'static Self {
        let sched = Self::spare();
        sched.local.store(true, Ordering::Relaxed);
        sched.begin(MAX_WORKERS);
        sched
    }

    fn spare() -> &'static Self {
        fork::forbid_in_child();
        let new = || {
            SCHEDS.fetch_add(1, Ordering::Relaxed);
            &*Box::leak(Box::new(Self::new()))
        };
        let sched = SPARE_SCHEDS.take().unwrap_or_else(new);
        sched.retirement.start_anew();
        sched
    }

    fn begin(&'static self, procs: usize) {
        overflow::install(current::running);
        self.procs.store(procs, Ordering::Relaxed);
        lock(&LIVE).push(self);
    }

    /// Its owner will not use it again, and no worker is in it. It becomes a spare scheduler as soon as nothing refers
    /// to it: timers and blocking calls, and tasks that were given up and whose wakers are still somewhere. A scheduler
    /// that one of them refers to for ever is never used again.
    pub(crate) fn retire(&'static self) {
        lock(&LIVE).retain(|sched| !ptr::eq(*sched, self));
        self.main.store(main::NONE, Ordering::Relaxed);
        self.retirement.retire(self, &SPARE_SCHEDS, || self.idle.is_unused());
    }

    /// Something that referred to the scheduler has ended, and was counted off.
    fn recycle_if_retired(&'static self) {
        self.retirement.look_if_retired(self, &SPARE_SCHEDS, || self.idle.is_unused());
    }

    /// The last worker has left, or the last that was expected stays away.
    fn is_deserted(&'static self) {
        if !self.ends_at_rest() {
            self.retire();
        }
    }

    /// By which its workers know it.
    pub(crate) fn name(&self) -> SchedName {
        ptr::from_ref(self).addr()
    }

    /// How many threads stay for goroutines that have been left on them.
    pub(crate) fn kept_threads() -> usize {
        KEPT_THREADS.load(Ordering::Relaxed)
    }

    /// All schedulers in use.
    pub(crate) fn all() -> Vec<&'static Self> {
        lock(&LIVE).clone()
    }

    pub(crate) fn main(&self) -> u32 {
        self.main.load(Ordering::Relaxed)
    }

    pub(crate) fn set_main(&self, main: u32) {
        self.main.store(main, Ordering::Relaxed);
    }

    /// Whether it is a [`Scheduler`](crate::goroutine::Scheduler)'s. Asked only by work that the scheduler must wait
    /// for: in its next life it may be a `run`'s.
    pub(crate) fn ends_at_rest(&self) -> bool {
        self.local.load(Ordering::Relaxed)
    }

    // ---- workers --------------------------------------------------------------------------------------------------

    /// Makes the calling thread a worker.
    pub(crate) fn enter(&'static self) -> &'static Worker {
        fork::forbid_in_child();
        sysmon::start();
        loop {
            if let Some(epoch) = self.idle.join(!self.ends_at_rest()) {
                return self.enter_joined(epoch, false);
            }
            system::thread::sleep(Duration::from_micros(50)); // the last of an epoch that has ended are leaving
        }
    }

    /// `looking` if the worker has nothing to do yet.
    fn enter_joined(&'static self, epoch: u64, looking: bool) -> &'static Worker {
        self.global.join();
        let new = || {
            WORKERS.fetch_add(1, Ordering::Relaxed);
            &*Box::leak(Box::new(Worker::new()))
        };
        let worker = SPARE_WORKERS.take().unwrap_or_else(new);
        worker.join(self, epoch);
        worker.looking.store(looking, Ordering::Relaxed);
        let free = |(index, place): (usize, &AtomicPtr<Worker>)| {
            worker.index.store(index, Ordering::Relaxed);
            let new = ptr::from_ref(worker).cast_mut();
            // Release: a thread that finds the worker there finds all that was written above.
            place.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        if !self.workers.iter().enumerate().any(free) {
            crate::fatal("sudog: more than 256 workers");
        }
        self.places.fetch_max(worker.place() + 1, Ordering::Relaxed);
        sysmon::rouse();
        current::set_worker(Some(worker));
        worker
    }

    /// The calling thread ceases to be a worker. Its goroutines have been unwound, and it has given up its share of the
    /// work ([`Sched::leave_work`]). If goroutines are left on it, the worker is never used again.
    pub(crate) fn leave(&'static self, worker: &'static Worker, clean: bool) {
        current::set_worker(None);
        // Before it has left: see `retirement`.
        self.retirement.add(worker.made.swap(0, Ordering::Relaxed), worker.ended.swap(0, Ordering::Relaxed));
        self.workers[worker.place()].store(ptr::null_mut(), Ordering::Relaxed);
        // One that `set_procs` has taken out may be in again, in the place of this one.
        self.idle.wake_own_only();
        self.idle.leave(self.ends_at_rest());
        if clean {
            SPARE_WORKERS.put(worker);
        }
        if self.idle.has_left() {
            self.is_deserted();
        }
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &'static Worker> {
        let places = self.places.load(Ordering::Relaxed);
        self.workers[..places].iter().filter_map(|place| {
            // SAFETY: workers are never freed. Acquire: made before it was put there.
            unsafe { place.load(Ordering::Acquire).as_ref() }
        })
    }

    /// All workers but this one, with their places, from some place on.
    pub(crate) fn others(&self, me: &Worker, start: usize) -> impl Iterator<Item = (usize, &'static Worker)> {
        let me = me.index.load(Ordering::Relaxed);
        let places = self.places.load(Ordering::Relaxed).max(1);
        (0..places).map(move |i| (start + i) % places).filter(move |&i| i != me).filter_map(|i| {
            // SAFETY: as in `workers`.
            unsafe { self.workers[i].load(Ordering::Acquire).as_ref() }.map(|worker| (i, worker))
        })
    }

    pub(crate) fn worker(&'static self, index: usize) -> Option<&'static Worker> {
        // SAFETY: as in `workers`.
        unsafe { self.workers.get(index)?.load(Ordering::Acquire).as_ref() }
    }

    /// How many workers stand before this one. Those that `run` has made leave, and their places may stay free.
    #[cold]
    pub(crate) fn rank(&self, worker: &Worker) -> usize {
        let before = &self.workers[..worker.place()];
        before.iter().filter(|place| !place.load(Ordering::Relaxed).is_null()).count()
    }

    /// How many workers do any work.
    #[inline]
    pub(crate) fn procs(&self) -> usize {
        self.procs.load(Ordering::Relaxed)
    }

    pub(crate) fn set_procs(&'static self, n: usize) -> usize {
        if ptr::eq(self, &raw const BACKGROUND) {
            PROCS.store(n, Ordering::Relaxed);
        }
        let before = self.procs.swap(n, Ordering::Relaxed);
        // Workers that were taken out, and may be in again.
        self.idle.wake_own_only();
        self.wake_for_work();
        before
    }

    /// Whether another worker may do, while the caller's spins, what the caller waits for.
    pub(crate) fn others_run(&self) -> bool {
        self.idle.others_run()
    }

    /// Whether a worker sleeps.
    pub(crate) fn any_sleeps(&self) -> bool {
        self.idle.any_sleeps()
    }

    /// Wakes a sleeping worker, or starts one, if there is work that no worker has looked for.
    #[inline]
    pub(crate) fn wake_for_work(&'static self) {
        self.start_worker_if(self.idle.wake_any());
    }

    /// [`wake_for_work`](Self::wake_for_work), for work that has just been made by a worker that runs.
    #[inline]
    pub(crate) fn wake_for_fresh_work(&'static self) {
        self.start_worker_if(self.idle.wake_any_for_fresh());
    }

    #[inline]
    fn start_worker_if(&'static self, wanted: Wanted) {
        if wanted == Wanted::AnotherWorker && self.idle.workers() < self.procs() {
            _ = self.start_worker();
        }
    }

    /// Whether a worker has nothing to do, or is about to come. A hint.
    pub(crate) fn has_idle_worker(&self) -> bool {
        self.idle.any_is_idle() || self.workers().count() < self.idle.workers()
    }

    /// Starts workers up to this place. False if there are not to be so many.
    pub(crate) fn start_up_to(&'static self, index: usize) -> bool {
        while self.worker(index).is_none() {
            if index >= self.procs() || self.ends_at_rest() {
                return false;
            }
            // One that has been started, but has not come yet, is worth waiting for. In this order: no room to start
            // one, then all have come, then none is in this place.
            let all_are_there = || self.workers().count() == self.idle.workers();
            if !self.start_worker() && all_are_there() && self.worker(index).is_none() {
                return false;
            }
            system::thread::yield_now();
        }
        true
    }

    /// Starts workers until there are `n`, if there are to be so many. Those of a local scheduler come by themselves.
    pub(crate) fn start_workers(&'static self, n: usize) {
        while self.idle.workers() < n.min(self.procs()) && self.start_worker() {}
    }

    /// How many workers there are, for a message.
    pub(crate) fn limit(&self) -> usize {
        if self.ends_at_rest() { self.workers().count() } else { self.procs() }
    }

    /// False if no more are to be started, or can be.
    #[cold]
    fn start_worker(&'static self) -> bool {
        fork::forbid_in_child();
        // The workers of a local scheduler come by themselves: it is never open.
        let Some((epoch, before)) = self.idle.expect(self.procs()) else { return false };
        let body = move || {
            let _stack = overflow::prepare_thread();
            self.idle.join_late();
            let worker = self.enter_joined(epoch, true);
            _ = worker.wait_for_work();
            worker.run();
            let clean = worker.reclaim();
            if !clean {
                KEPT_THREADS.fetch_add(1, Ordering::Relaxed);
            }
            self.leave(worker, clean);
            if !clean {
                // A goroutine that is left where it is may have lent out a thread-local of this thread.
                loop {
                    system::thread::sleep(Duration::from_secs(3600));
                }
            }
        };
        sysmon::start();
        if let Err(error) = system::thread::Builder::new().name(format!("sudog-{before}")).spawn(body) {
            if before == 0 {
                crate::fatal(&format!("sudog: no thread for the first worker: {error}"));
            }
            if self.idle.stays_away() {
                self.is_deserted();
            }
            return false;
        }
        true
    }

    // ---- work -----------------------------------------------------------------------------------------------------

    /// Queues work that any worker may do, from wherever the caller is, for the epoch in which the caller made it or
    /// which it names. If that is over the work comes back: the caller drops it, as no worker of the scheduler would.
    #[inline]
    pub(crate) fn submit(&'static self, work: Work, epoch: u64) -> Result<(), Work> {
        match current::worker() {
            Some(worker) if ptr::eq(worker.sched(), self) => {
                if worker.sleeper.epoch.get() != epoch {
                    return Err(work); // of an earlier one
                }
                worker.submit(work);
                Ok(())
            }
            _ => self.submit_from_outside(work, epoch, || ()),
        }
    }

    /// A goroutine in the name of a caller of earlier, by whatever thread. If that epoch is over, `f` is dropped here,
    /// and should its destructor panic, that is the caller's.
    pub(crate) fn submit_late<F: FnOnce() + Send + 'static>(&'static self, f: F, epoch: u64) {
        let worker = current::worker();
        let submitted = match worker {
            Some(here) if ptr::eq(here.sched(), self) => {
                if self.idle.is_over(epoch) {
                    return;
                }
                here.count_made();
                self.submit(job::pack(f, None, worker), epoch).inspect_err(|_| here.count_end())
            }
            _ => {
                // Keeps a scheduler that ends at rest from ending before the work is in; and a retired one from being
                // used again.
                if !self.idle.external_begins_in(epoch) {
                    return;
                }
                let work = job::pack(f, None, worker);
                let submitted = self.submit_from_outside(work, epoch, || self.retirement.add(1, 0));
                self.external_ends();
                submitted
            }
        };
        if let Err(work) = submitted {
            // SAFETY: packed, and in no queue.
            unsafe { job::discard_work(work) };
        }
    }

    fn submit_from_outside(&'static self, work: Work, epoch: u64, taken: impl FnOnce()) -> Result<(), Work> {
        fork::forbid_in_child();
        self.global.submit(work, epoch, taken)?;
        self.wake_for_work();
        Ok(())
    }

    /// Queues a job for one worker of the caller's scheduler. It comes back if that worker has left, or is about to:
    /// then the scheduler is over.
    pub(crate) fn place(&'static self, worker: &'static Worker, work: Work) -> Result<(), Work> {
        // SAFETY: workers are never freed.
        unsafe { worker.placed.push(self.name(), work, &worker.inbox) }?;
        // As a worker of this scheduler: should it be in another one by now, it has seen to the work.
        self.idle.wake(&worker.sleeper);
        Ok(())
    }

    /// By a worker of this scheduler.
    pub(crate) fn push_global(&self, works: impl IntoIterator<Item = Work>) {
        self.global.push(works);
    }

    #[inline]
    pub(crate) fn has_global_work(&self) -> bool {
        !self.global.is_empty()
    }

    /// Takes this worker's share of the global queue: at least one piece, at most `most`.
    pub(crate) fn pop_global(&self, most: usize) -> impl Iterator<Item = Work> + use<> {
        self.global.pop(most, self.idle.workers())
    }

    /// A worker of an epoch that is over takes and drops no more work. False if it is the last, and there is some.
    #[must_use]
    pub(crate) fn leave_work(&self, epoch: u64) -> bool {
        self.global.leave(epoch)
    }

    // ---- the tasks of a local scheduler
    // ---------------------------------------------------------------------------------

    /// A name for a task to come. Of a local scheduler only.
    pub(crate) fn name_task(&self) -> Option<u64> {
        self.ends_at_rest().then(|| self.next_task.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn keep_task(&self, name: u64, task: Task<()>) {
        lock(&self.tasks).insert(name, task);
    }

    /// The task has ended.
    pub(crate) fn forget_task(&self, name: u64) {
        let task = lock(&self.tasks).remove(&name);
        if let Some(task) = task {
            task.detach();
        }
    }

    /// Takes the tasks that have not ended, to give them up: dropped, they drop their futures.
    pub(crate) fn take_tasks(&self) -> Tasks {
        std::mem::take(&mut *lock(&self.tasks))
    }

    pub(crate) fn has_work_in_rings(&self) -> bool {
        self.workers().any(|worker| !worker.ring.is_empty())
    }

    /// How many goroutines and tasks of this scheduler have been made and not ended.
    pub(crate) fn live(&self) -> usize {
        // Those that ended first, so that the difference is not below 0.
        let ended = self.workers().map(|w| w.ended.load(Ordering::Acquire)).sum::<u64>() + self.retirement.ended();
        let made = self.workers().map(|w| w.made.load(Ordering::Acquire)).sum::<u64>() + self.retirement.made();
        made.saturating_sub(ended) as usize
    }

    #[inline]
    pub(crate) fn count_made(&'static self) {
        match current::worker() {
            Some(worker) if ptr::eq(worker.sched(), self) => worker.count_made(),
            _ => self.retirement.add(1, 0),
        }
    }

    #[inline]
    pub(crate) fn count_end(&'static self) {
        match current::worker() {
            Some(worker) if ptr::eq(worker.sched(), self) => worker.count_end(),
            _ => {
                self.retirement.add(0, 1);
                self.recycle_if_retired();
            }
        }
    }

    /// What was to bring work from outside has brought it: see [`Idle::external_begins`].
    pub(crate) fn external_ends(&'static self) {
        self.idle.external_ends(self.ends_at_rest());
        self.recycle_if_retired();
    }
}

const _: () = assert!(std::mem::offset_of!(Job, link) == 0);
