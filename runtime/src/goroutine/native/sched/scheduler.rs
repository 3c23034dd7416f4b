//! A scheduler: workers that share their work. The process has a scheduler whose workers never end. Each
//! [bubble](crate::goroutine::synctest) has a scheduler with a single worker.

use crate::shim::system;
use crate::shim::system::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use crate::shim::system::{Mutex, MutexGuard, OnceLock};
use std::collections::HashMap;
use std::ptr;
use std::sync::PoisonError;

use crate::Instant;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::job::Work;
use crate::goroutine::native::fork;
use crate::goroutine::native::netpoll;
use crate::goroutine::native::sched::procs::{self, Follower};
use crate::goroutine::native::sched::stall::{Reports, Turn};
use crate::goroutine::native::sched::sysmon::{self, Watch};
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::stack::overflow;
use crate::goroutine::protocol::global_queue::GlobalQueue;
use crate::goroutine::protocol::idle::{Idle, Wanted};

/// The greatest number of workers of a scheduler.
pub(crate) const MAX_WORKERS: usize = 256;

/// A scheduler: see the top of this file. Schedulers are never freed, so that a late wake-up does no harm.
pub(crate) struct Sched {
    pub(crate) idle: Idle,
    global: GlobalQueue<Work>,
    /// The workers, by their indices. Null: that worker has not joined yet.
    workers: [AtomicPtr<Worker>; MAX_WORKERS],
    /// The number of indices up to the highest that a worker has.
    indices: AtomicUsize,
    /// The number of workers that may do shared work: those with a smaller index. The others run only goroutines of
    /// their own.
    procs: AtomicUsize,
    is_bubble: bool,
    /// The numbers of goroutines and tasks made and ended by threads that are no workers of this scheduler.
    made: AtomicU64,
    ended: AtomicU64,
}

/// The numbers of searches and yields of idle workers since the process began. For tests.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Searches {
    /// The number of searches that found no work until their time was over.
    pub vain: u64,
    /// The number of times that a searcher has yielded the processor to another worker.
    pub yields: u64,
}

static PROCESS: Sched = Sched::new(false);
/// The schedulers that the watcher looks at: that of the process, and those of the bubbles that have not ended.
static LIVE: Mutex<Vec<&'static Sched>> = Mutex::new(Vec::new());

/// The function to call when the number of the process's workers has been set: see [`Sched::on_new_procs`].
static ON_NEW_PROCS: OnceLock<fn()> = OnceLock::new();

/// Locks the flag that is true until the program sets the number of workers.
fn follows_quota() -> MutexGuard<'static, bool> {
    static FOLLOWS: Mutex<bool> = Mutex::new(true);
    FOLLOWS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the list of live schedulers. Nothing panics under this lock, but for a failed allocation.
fn live() -> MutexGuard<'static, Vec<&'static Sched>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sched {
    const fn new(is_bubble: bool) -> Self {
        Self {
            idle: Idle::new(),
            global: GlobalQueue::new(),
            workers: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_WORKERS],
            indices: AtomicUsize::new(0),
            procs: AtomicUsize::new(1),
            is_bubble,
            made: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Returns the scheduler of the process.
    pub(crate) fn process() -> &'static Self {
        static STARTED: OnceLock<()> = OnceLock::new();
        fork::forbid_in_child();
        STARTED.get_or_init(|| {
            PROCESS.procs.store(procs::default_procs().min(MAX_WORKERS), Ordering::Relaxed);
            PROCESS.begin();
        });
        &PROCESS
    }

    /// Returns the scheduler of the calling worker. On other threads, returns the scheduler of the process.
    #[inline]
    pub(crate) fn here() -> &'static Self {
        current::worker().map_or_else(Self::process, Worker::sched)
    }

    /// Creates a scheduler for a bubble, and returns the scheduler's only worker.
    pub(crate) fn of_bubble() -> &'static Worker {
        let sched = Box::leak(Box::new(Self::new(true)));
        sched.new_worker(0)
    }

    /// Has the watcher look at this scheduler from now on.
    pub(crate) fn begin(&'static self) {
        static WATCHED: OnceLock<()> = OnceLock::new();
        WATCHED.get_or_init(|| sysmon::watch_also(&WATCH));
        overflow::install(current::running);
        live().push(self);
    }

    /// Ends the watcher's looks at this scheduler. Called when a bubble has ended, and nothing of that bubble is left.
    pub(crate) fn end(&'static self) {
        live().retain(|sched| !ptr::eq(*sched, self));
    }

    /// Returns the schedulers that the watcher looks at.
    pub(crate) fn all() -> Vec<&'static Self> {
        live().clone()
    }

    /// Returns whether `scheds` are exactly the schedulers that the watcher looks at now.
    pub(crate) fn are_all(scheds: &[&'static Self]) -> bool {
        let live = live();
        live.len() == scheds.len() && live.iter().zip(scheds).all(|(a, b)| ptr::eq(*a, *b))
    }

    pub(crate) fn is_bubble(&self) -> bool {
        self.is_bubble
    }

    // ---- workers --------------------------------------------------------------------------------------------------

    /// Creates the worker with this index; or, if that worker exists, as a thread could not be started earlier, the first
    /// worker that does not exist. The caller is, or starts, the thread that runs as this worker.
    fn new_worker(&'static self, index: usize) -> &'static Worker {
        let exists = |index: &usize| self.worker(*index).is_some();
        for index in std::iter::once(index).chain(0..self.workers.len()).filter(|index| !exists(index)) {
            let worker = Box::into_raw(Box::new(Worker::new(self, index)));
            // Release: a thread that loads the pointer sees the worker initialised.
            let slot = &self.workers[index];
            if slot.compare_exchange(ptr::null_mut(), worker, Ordering::Release, Ordering::Relaxed).is_ok() {
                self.indices.fetch_max(index + 1, Ordering::Relaxed);
                // SAFETY: `worker` is in `self.workers` now, and so is never freed.
                return unsafe { &*worker };
            }
            // SAFETY: `worker` came out of a box, and no other thread knows this pointer.
            drop(unsafe { Box::from_raw(worker) });
        }
        unreachable!("more workers than `Idle::expect` allows")
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &'static Worker> {
        (0..self.indices.load(Ordering::Relaxed)).filter_map(|index| self.worker(index))
    }

    /// Returns all workers but `me`, with their indices, from index `start` on.
    pub(crate) fn others(&self, me: &Worker, start: usize) -> impl Iterator<Item = (usize, &'static Worker)> {
        let all = self.indices.load(Ordering::Relaxed).max(1);
        let me = me.index;
        (0..all)
            .map(move |i| (start % all + i) % all)
            .filter(move |&i| i != me)
            .filter_map(|i| self.worker(i).map(|worker| (i, worker)))
    }

    pub(crate) fn worker(&self, index: usize) -> Option<&'static Worker> {
        // SAFETY: the pointer is null, or points to a worker, which is never freed. Acquire: the worker was initialised
        // before the pointer was stored.
        unsafe { self.workers.get(index)?.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the number of workers that may do shared work.
    #[inline]
    pub(crate) fn procs(&self) -> usize {
        self.procs.load(Ordering::Relaxed)
    }

    /// Sets the number of workers that may do shared work, and returns the former number. From then on the number does not
    /// follow the quota any more.
    pub(crate) fn set_procs(&'static self, n: usize) -> usize {
        if self.is_bubble {
            return self.procs(); // a bubble has one worker
        }
        *follows_quota() = false;
        self.change_procs(n)
    }

    /// Returns false once the program has set the number of workers.
    fn follows_quota() -> bool {
        *follows_quota()
    }

    /// Sets the number of workers of the process to a changed default, unless the program has set a number.
    pub(super) fn follow_quota(n: usize) {
        let follows = follows_quota(); // locked until the change is made: a number that the program sets comes later
        if *follows {
            PROCESS.change_procs(n.min(MAX_WORKERS));
        }
    }

    /// Has `call` called whenever the number of the process's workers has been set. Only the first call has an effect.
    pub(crate) fn on_new_procs(call: fn()) {
        ON_NEW_PROCS.get_or_init(|| call);
    }

    fn change_procs(&'static self, n: usize) -> usize {
        let before = self.procs.swap(n, Ordering::Relaxed);
        // Wake the workers that did no shared work and that now may.
        self.idle.wake_own_only();
        self.wake_for_work();
        ON_NEW_PROCS.get().inspect(|call| call());
        before
    }

    /// Returns whether another worker runs a goroutine, which may bring what the caller waits for while the caller
    /// spins.
    pub(crate) fn others_run(&self) -> bool {
        self.idle.others_run()
    }

    /// Returns whether a worker sleeps.
    pub(crate) fn any_sleeps(&self) -> bool {
        self.idle.any_sleeps()
    }

    /// Wakes a sleeping worker, or starts a worker, unless a worker searches for work already. Called when there is
    /// work for any worker.
    #[inline]
    pub(crate) fn wake_for_work(&'static self) {
        self.start_worker_if(self.idle.wake_any());
    }

    /// Does the same as [`wake_for_work`](Self::wake_for_work), for work that a running worker has just made.
    #[inline]
    pub(crate) fn wake_for_fresh_work(&'static self) {
        self.start_worker_if(self.idle.wake_any_for_fresh());
    }

    #[inline]
    fn start_worker_if(&'static self, wanted: Wanted) {
        // A bubble has a single worker, and no worker once that bubble has ended.
        if wanted == Wanted::AnotherWorker && !self.is_bubble && self.idle.workers() < self.procs() {
            _ = self.start_worker();
        }
    }

    /// Returns whether a worker has nothing to do, or has been started and not come yet. A hint.
    pub(crate) fn has_idle_worker(&self) -> bool {
        self.idle.any_is_idle() || self.workers().count() < self.idle.workers()
    }

    /// Starts workers until there is a worker with this index. Returns false if the scheduler may not have so many
    /// workers, or cannot start so many.
    pub(crate) fn start_up_to(&'static self, index: usize) -> bool {
        while self.worker(index).is_none() {
            if index >= self.procs() {
                return false;
            }
            // Wait for workers that have been started but have not come yet. Check in this order: no worker can be
            // started; then all started workers have come; then no worker has this index.
            let all_are_there = || self.workers().count() == self.idle.workers();
            if !self.start_worker() && all_are_there() && self.worker(index).is_none() {
                return false;
            }
            system::thread::yield_now();
        }
        true
    }

    /// Starts workers until there are `n`, or as many as the scheduler may have.
    pub(crate) fn start_workers(&'static self, n: usize) {
        while self.idle.workers() < n.min(self.procs()) && self.start_worker() {}
    }

    /// Starts a worker. Returns false if no more workers are to be started, or can be started.
    #[cold]
    fn start_worker(&'static self) -> bool {
        fork::forbid_in_child();
        let Some(before) = self.idle.expect(self.procs()) else { return false };
        let body = move || {
            let _stack = overflow::prepare_thread();
            self.idle.join();
            // The index in the thread's name, even if a worker that was expected later comes first.
            self.new_worker(before).run_thread();
        };
        sysmon::start();
        if let Err(error) = system::thread::Builder::new().name(format!("sudog-{before}")).spawn(body) {
            if before == 0 {
                crate::fatal(&format!("sudog: no thread for the first worker: {error}"));
            }
            self.idle.stays_away();
            return false;
        }
        true
    }

    // ---- work -----------------------------------------------------------------------------------------------------

    /// Queues work that may run on any worker. Any thread may call this function.
    #[inline]
    pub(crate) fn submit(&'static self, work: Work) {
        match current::worker() {
            Some(worker) if ptr::eq(worker.sched(), self) => worker.submit(work),
            _ => {
                fork::forbid_in_child();
                self.push_global([work]);
                self.wake_for_work();
            }
        }
    }

    /// Queues work for one worker, and wakes that worker once, after the last piece. A worker that is woken earlier
    /// might take the processor from the caller, which still has work to place.
    pub(crate) fn place(worker: &'static Worker, works: impl IntoIterator<Item = Work>) {
        let mut any = false;
        for work in works {
            // SAFETY: `worker`, and so `worker.placed`, is never freed.
            unsafe { worker.placed.push(work, &worker.inbox) };
            any = true;
        }
        if any {
            worker.wake();
        }
    }

    pub(crate) fn push_global(&self, works: impl IntoIterator<Item = Work>) {
        self.global.push(works);
    }

    #[inline]
    pub(crate) fn has_global_work(&self) -> bool {
        !self.global.is_empty()
    }

    /// Takes a worker's share of the global queue: at most `most` pieces of work, and at least one if there is any.
    pub(crate) fn pop_global(&self, most: usize) -> impl Iterator<Item = Work> + use<> {
        self.global.pop(most, self.idle.workers())
    }

    pub(crate) fn has_work_in_rings(&self) -> bool {
        self.workers().any(|worker| !worker.ring.is_empty())
    }

    /// Returns the number of goroutines and tasks of this scheduler that have been made and have not ended.
    pub(crate) fn live(&self) -> usize {
        // Read the numbers of ended goroutines first, so that the difference is not below 0.
        let ended = self.workers().map(|w| w.ended.load(Ordering::Acquire)).sum::<u64>();
        let ended = ended + self.ended.load(Ordering::Acquire);
        let made = self.workers().map(|w| w.made.load(Ordering::Acquire)).sum::<u64>();
        let made = made + self.made.load(Ordering::Acquire);
        made.saturating_sub(ended) as usize
    }

    /// Returns the number of goroutines and tasks of this scheduler that have been made.
    #[cfg(feature = "metrics")]
    pub(crate) fn created(&self) -> u64 {
        let made = self.workers().map(|w| w.made.load(Ordering::Relaxed)).sum::<u64>();
        made + self.made.load(Ordering::Relaxed)
    }

    /// Returns the number of pieces of work in the global queue.
    #[cfg(feature = "metrics")]
    pub(crate) fn global_work(&self) -> usize {
        self.global.len()
    }

    /// Sums up the searches of all workers.
    pub(crate) fn searches(&self) -> Searches {
        let sum = |number: fn(&Worker) -> &AtomicU64| self.workers().map(|w| number(w).load(Ordering::Relaxed)).sum();
        Searches { vain: sum(|worker| &worker.vain_searches), yields: sum(|worker| &worker.yields) }
    }

    #[inline]
    pub(crate) fn count_made(&'static self) {
        match current::worker() {
            Some(worker) if ptr::eq(worker.sched(), self) => worker.count_made(),
            _ => _ = self.made.fetch_add(1, Ordering::Relaxed),
        }
    }

    #[inline]
    pub(crate) fn count_end(&'static self) {
        match current::worker() {
            Some(worker) if ptr::eq(worker.sched(), self) => worker.count_end(),
            // Release, so that a thread that reads this count of an end also sees that the goroutine was made.
            _ => _ = self.ended.fetch_add(1, Ordering::Release),
        }
    }
}

// ---- the watcher's part ------------------------------------------------------------------------------------------

/// The watcher's part for all schedulers: see `sysmon`. Only the watcher takes the lock.
struct Schedulers(Mutex<Option<Looks>>);

static WATCH: Schedulers = Schedulers(Mutex::new(None));

/// The watcher's memory of the last tick.
struct Looks {
    /// The turn of each worker, by the worker's address: workers are never freed.
    turns: HashMap<usize, Turn>,
    stalls: Reports,
    /// None: the number of workers does not follow the quota.
    follower: Option<Follower>,
}

impl Watch for Schedulers {
    fn tick(&self, now: Instant) -> bool {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let looks = looks.get_or_insert_with(Looks::new);
        looks.follow_quota(now);
        let scheds = Sched::all();
        let is_awake = looks.look_at_workers(&scheds, now);
        if netpoll::lacks_holder() {
            netpoll::poll_now();
        }
        if is_awake {
            for sched in scheds.iter().filter(|sched| sched.has_global_work() || sched.has_work_in_rings()) {
                sched.wake_for_work();
            }
        } else if netpoll::lacks_holder() {
            scheds.iter().for_each(|sched| sched.wake_for_work()); // a woken worker will hold the poller
        }
        is_awake || netpoll::lacks_holder()
    }

    fn next_tick(&self, now: Instant) -> Option<Instant> {
        Sched::all().iter().any(|sched| sched.idle.awake() > 0).then_some(now)
    }
}

impl Looks {
    fn new() -> Self {
        Self { turns: HashMap::new(), stalls: Reports::default(), follower: Follower::new() }
    }

    fn follow_quota(&mut self, now: Instant) {
        if self.follower.is_some() && !Sched::follows_quota() {
            self.follower = None;
        }
        if let Some(n) = self.follower.as_mut().and_then(|follower| follower.tick(now)) {
            Sched::follow_quota(n);
        }
    }

    /// Asks each worker that is awake to look at the clock. At the worker's next choice, or at the next call of the
    /// running goroutine into the runtime, timers that are due fire, and the goroutine gives way to others (`preempt.rs`).
    /// If a worker has made no choice since the last tick, the goroutines in that worker's ring, which have not started,
    /// go to the global queue. Returns whether a worker is awake.
    fn look_at_workers(&mut self, scheds: &[&'static Sched], now: Instant) -> bool {
        let mut is_awake = false;
        let before = std::mem::take(&mut self.turns);
        for worker in scheds.iter().flat_map(|sched| sched.workers()).filter(|worker| !worker.sleeper.is_asleep()) {
            is_awake = true;
            let (name, seen) = (ptr::from_ref(worker).addr(), worker.turns.load(Ordering::Relaxed));
            let mut turn = Turn { seen, since: now, is_reported: false };
            if let Some(before) = before.get(&name).filter(|before| before.seen == seen) {
                turn = *before;
                self.stalls.look(&worker.stall, || worker.has_shared_work(), &mut turn, now);
                worker.hand_over();
            }
            worker.asked.store(true, Ordering::Relaxed);
            self.turns.insert(name, turn);
        }
        is_awake
    }
}
