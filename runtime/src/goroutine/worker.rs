//! A worker: Go's M and P in one, an operating-system thread that runs goroutines.
//!
//! | where work waits | what | who puts it there | who takes it |
//! |---|---|---|---|
//! | `next` | a goroutine that was readied on this worker | the owner | the owner |
//! | `run_queue` | started goroutines | the owner | the owner |
//! | `ring` | goroutines not started, async tasks to be polled | the owner | the owner; others, once it is old |
//! | `inbox` | started goroutines, readied elsewhere | anybody | the owner |
//! | `placed` | goroutines not started that asked for this worker | anybody | the owner |
//! | `timers` | goroutines that wait with a deadline | the owner | the owner |
//! | the set's global queue | what found no room in a ring, or came from outside | anybody | any worker |
//!
//! Order of choice: `next`, on what is left of the time slice of the one before it; then `run_queue` and `ring` by
//! turns. Every 64th choice looks at the rest first, so that nothing waits for ever. Go has the same in `schedule` and
//! `findRunnable` of `runtime/proc.go`.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::fibre::{Fibre, State};
use super::idle::{Sleeper, Woken};
use super::inbox::Inbox;
use super::job::{self, Job};
use super::ring::{BATCH, Ring, Work};
use super::set::{MAX_WORKERS, Set};
use super::timer_heap::TimerHeap;
use super::{context, locals, report};
use crate::{Instant, Unparked};

/// For how long a goroutine runs beside others before a call into the runtime makes it give way.
const SLICE: Duration = Duration::from_micros(100);
/// For how long an idle worker looks for work before it sleeps.
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// How old work must be to be stolen.
pub(super) const AGE: Duration = Duration::from_micros(10);
/// How long a worker sleeps at most while others have work that was too young to be stolen.
pub(super) const NAP: Duration = Duration::from_micros(200);
/// How often spare memory is given back.
pub(super) const TRIM: Duration = Duration::from_secs(1);
/// How many spare fibres and jobs a worker keeps whatever happens.
const SPARE_FIBRES: usize = 64;
const SPARE_JOBS: u32 = 256;
/// How often a worker looks where it usually does not.
const NOW_AND_THEN: u32 = 64;
/// How often a worker that is never idle thinks of its spare memory.
const SELDOM: u32 = 1 << 16;
/// How many fibres it looks at then: a millisecond's work.
const TRIM_AT_ONCE: usize = 1024;

/// See the top of this file. Workers are never freed, so that a late wake-up does no harm; they are used again.
pub(super) struct Worker {
    pub(super) ring: Ring,
    pub(super) inbox: CachePadded<Inbox>,
    pub(super) placed: Inbox,
    pub(super) sleeper: CachePadded<Sleeper>,
    set: AtomicPtr<Set>,
    /// Its place in its set.
    pub(super) index: AtomicUsize,
    /// The watcher asks the running goroutine to give way.
    pub(super) preempt: AtomicBool,
    /// How many choices it has made: by this the watcher sees a goroutine that runs for long.
    pub(super) turns: CachePadded<AtomicU32>,
    /// Goroutines and tasks made and ended here. Written by the owner only.
    pub(super) made: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) own: CachePadded<Own>,
}

/// What only the worker's thread touches.
pub(super) struct Own {
    pub(super) next: Cell<Option<&'static Fibre>>,
    pub(super) run_queue: FibreQueue,
    /// What `pick` has chosen for a fibre that could not run it itself.
    pub(super) chosen: Cell<Option<Chosen>>,
    timers: UnsafeCell<TimerHeap<&'static Fibre>>,
    /// Since when the slice runs: looked up at the first call that asks.
    slice: Cell<Option<Instant>>,
    calls: Cell<u32>,
    /// Whose turn it is: the ring's, or the run queue's.
    ring_first: Cell<bool>,
    /// The youngest of all fibres.
    fibres: Cell<Option<&'static Fibre>>,
    spare: Cell<Option<&'static Fibre>>,
    spares: Cell<usize>,
    /// The fewest spares since the last trimming.
    least_spares: Cell<usize>,
    trimmed: Cell<Option<Instant>>,
    jobs: Cell<Option<NonNull<Job>>>,
    job_count: Cell<u32>,
    ids: Cell<(u64, u64)>,
    pub(super) searching: Cell<bool>,
    pub(super) random: Cell<u32>,
    /// The tails of the others' rings, as they were `AGE` ago or more.
    pub(super) seen: UnsafeCell<[u32; MAX_WORKERS]>,
    pub(super) looked: Cell<Option<Instant>>,
}

// SAFETY: `own` is touched by the worker's thread only: every method that uses it is called by that thread, through
// `context::worker()`, a fibre that runs, or the worker's loop. The rest is made for many threads.
unsafe impl Sync for Worker {}
// SAFETY: as above: a worker is handed to the thread that becomes its owner when nobody else uses `own`.
unsafe impl Send for Worker {}

#[derive(Clone, Copy)]
pub(super) enum Chosen {
    Fibre(&'static Fibre),
    Work(Work),
}

/// First in, first out, linked through the fibres.
pub(super) struct FibreQueue {
    first: Cell<Option<&'static Fibre>>,
    last: Cell<Option<&'static Fibre>>,
}

impl FibreQueue {
    const fn new() -> Self {
        Self { first: Cell::new(None), last: Cell::new(None) }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    #[inline]
    fn push(&self, fibre: &'static Fibre) {
        fibre.next.set(None);
        match self.last.replace(Some(fibre)) {
            Some(last) => last.next.set(Some(fibre)),
            None => self.first.set(Some(fibre)),
        }
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<&'static Fibre> {
        let first = self.first.get()?;
        let next = first.next.get();
        self.first.set(next);
        if next.is_none() {
            self.last.set(None);
        }
        Some(first)
    }
}

impl Worker {
    pub(super) fn new() -> Self {
        Self {
            ring: Ring::new(),
            inbox: CachePadded::new(Inbox::new()),
            placed: Inbox::new(),
            sleeper: CachePadded::new(Sleeper::new()),
            set: AtomicPtr::new(ptr::null_mut()),
            index: AtomicUsize::new(0),
            preempt: AtomicBool::new(false),
            turns: CachePadded::new(AtomicU32::new(0)),
            made: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            own: CachePadded::new(Own {
                next: Cell::new(None),
                run_queue: FibreQueue::new(),
                chosen: Cell::new(None),
                timers: UnsafeCell::new(TimerHeap::new()),
                slice: Cell::new(None),
                calls: Cell::new(0),
                ring_first: Cell::new(false),
                fibres: Cell::new(None),
                spare: Cell::new(None),
                spares: Cell::new(0),
                least_spares: Cell::new(0),
                trimmed: Cell::new(None),
                jobs: Cell::new(None),
                job_count: Cell::new(0),
                ids: Cell::new((0, 0)),
                searching: Cell::new(false),
                random: Cell::new(0x9e37_79b9),
                seen: UnsafeCell::new([0; MAX_WORKERS]),
                looked: Cell::new(None),
            }),
        }
    }

    #[inline]
    pub(super) fn set(&self) -> &'static Set {
        // SAFETY: set when the worker joined, before anybody could know it; sets are never freed.
        unsafe { &*self.set.load(Ordering::Relaxed) }
    }

    pub(super) fn join(&'static self, set: &'static Set, index: usize) {
        self.set.store(ptr::from_ref(set).cast_mut(), Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        self.own.searching.set(false);
        self.own.looked.set(None);
    }

    /// Wakes its thread, which has been given work that it alone can do.
    #[inline]
    pub(super) fn wake(&self) {
        self.set().idle.wake(&self.sleeper);
    }

    // ---- the loop -----------------------------------------------------------------------------------------------

    /// Runs goroutines until the set is over.
    pub(super) fn run(&'static self) {
        while !self.is_over() {
            match self.own.chosen.take().or_else(|| self.pick()) {
                Some(Chosen::Fibre(fibre)) => self.resume(fibre),
                Some(Chosen::Work(work)) => {
                    let fibre = self.fibre_for(work);
                    fibre.work.set(Some(work));
                    self.resume(fibre);
                }
                None => {
                    if self.wait_for_work() == Woken::Over {
                        return;
                    }
                }
            }
        }
    }

    /// Whether its set is over for it.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.set().idle.is_over(self.sleeper.epoch.get())
    }

    #[inline]
    pub(super) fn resume(&'static self, fibre: &'static Fibre) {
        fibre.state.set(State::Running);
        context::resume(fibre);
        if !fibre.usual && fibre.state.get() == State::Spare {
            self.forget(fibre);
        }
    }

    /// A spare fibre, or a new one.
    #[inline]
    fn fibre_for(&'static self, work: Work) -> &'static Fibre {
        if job::stack_size(work).is_none()
            && let Some(fibre) = self.own.spare.get()
        {
            self.own.spare.set(fibre.next.get());
            let spares = self.own.spares.get() - 1;
            self.own.spares.set(spares);
            self.own.least_spares.set(self.own.least_spares.get().min(spares));
            return fibre;
        }
        self.new_fibre(job::stack_size(work))
    }

    #[cold]
    fn new_fibre(&'static self, stack_size: Option<usize>) -> &'static Fibre {
        match Fibre::new(self, stack_size) {
            Ok(fibre) => {
                let older = self.own.fibres.replace(Some(fibre));
                fibre.older.set(older);
                if let Some(older) = older {
                    older.younger.set(Some(fibre));
                }
                fibre
            }
            Err(error) => report::no_stack(&error),
        }
    }

    /// What runs next here, if anything waits that this worker knows of.
    #[inline]
    fn pick(&'static self) -> Option<Chosen> {
        let own = &*self.own;
        // A plain load and store: the owner alone writes, the watcher reads.
        let tick = self.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.turns.store(tick, Ordering::Relaxed);
        if !self.inbox.is_empty() {
            self.take_inbox();
        }
        if tick.is_multiple_of(NOW_AND_THEN) {
            self.now_and_then();
        }
        if let Some(next) = own.next.take() {
            // It inherits the slice. Two goroutines that ready each other would keep all others out, were it without
            // end.
            if !self.is_slice_over() {
                return Some(Chosen::Fibre(next));
            }
            own.run_queue.push(next);
        }
        own.slice.set(None);
        own.calls.set(0);
        let from_ring = || self.next_work().map(Chosen::Work);
        let from_queue = || own.run_queue.pop().map(Chosen::Fibre);
        // Not by the parity of `tick`, which choices of `next` advance too.
        let ring_first = !own.ring_first.replace(!own.ring_first.get());
        let chosen = if ring_first { from_ring().or_else(from_queue) } else { from_queue().or_else(from_ring) };
        chosen.or_else(|| self.look_around())
    }

    /// From the ring, or from the global queue: goroutines that keep yielding must not keep those out.
    #[inline]
    fn next_work(&'static self) -> Option<Work> {
        // SAFETY: this is the owner.
        if let Some(work) = unsafe { self.ring.pop() } {
            return Some(work);
        }
        if self.set().has_global_work() { self.next_global() } else { None }
    }

    #[cold]
    fn next_global(&'static self) -> Option<Work> {
        if self.takes_work() {
            self.take_global(BATCH);
        }
        // SAFETY: this is the owner.
        unsafe { self.ring.pop() }
    }

    /// For a fibre that has ended a goroutine: the next piece of work, if that is what is to run next. If it is a
    /// started goroutine the loop will find it.
    #[inline]
    pub(super) fn pick_work(&'static self) -> Option<Work> {
        if self.is_over() {
            return None;
        }
        match self.pick()? {
            Chosen::Work(work) if job::stack_size(work).is_none() => Some(work),
            chosen => {
                self.own.chosen.set(Some(chosen));
                None
            }
        }
    }

    /// Where a worker looks once in a while, so that nothing waits for ever behind the rest.
    #[cold]
    fn now_and_then(&'static self) {
        self.fire_timers();
        self.take_placed();
        if self.takes_work() && self.set().has_global_work() {
            self.take_global(1);
        }
        if !self.takes_work() {
            self.empty_ring();
        }
        if self.turns.load(Ordering::Relaxed).is_multiple_of(SELDOM) && self.wants_trim() {
            self.trim(Instant::now());
        }
    }

    /// The queues are empty: where else could work be?
    #[cold]
    fn look_around(&'static self) -> Option<Chosen> {
        self.fire_timers();
        self.take_placed();
        self.own.run_queue.pop().map(Chosen::Fibre)
    }

    // ---- fibres ----------------------------------------------------------------------------------------------------

    /// A goroutine begins, or a task is polled.
    #[inline]
    pub(super) fn begin(&self, fibre: &'static Fibre) {
        let (next, end) = self.own.ids.get();
        let (id, end) = if next < end { (next, end) } else { report::more_ids() };
        self.own.ids.set((id + 1, end));
        fibre.id.set(id);
        fibre.used.set(true);
        fibre.state.set(State::Running);
    }

    /// A goroutine has ended. Its locals go last, as a thread's do.
    #[inline]
    pub(super) fn end(&self, fibre: &'static Fibre) {
        self.end_poll(fibre);
        self.count_end();
    }

    /// A poll has ended.
    #[inline]
    pub(super) fn end_poll(&self, fibre: &'static Fibre) {
        locals::clear(fibre);
        fibre.name.set(None);
    }

    /// One goroutine or task fewer.
    #[inline]
    pub(super) fn count_end(&self) {
        // Not an RMW: the owner alone writes.
        self.ended.store(self.ended.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// One goroutine or task more.
    #[inline]
    pub(super) fn count_made(&self) {
        self.made.store(self.made.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A fibre has nothing to run.
    #[inline]
    pub(super) fn spare(&self, fibre: &'static Fibre) {
        fibre.state.set(State::Spare);
        if fibre.usual {
            fibre.next.set(self.own.spare.replace(Some(fibre)));
            self.own.spares.set(self.own.spares.get() + 1);
        }
    }

    /// Frees a spare fibre that is not in the list of spare ones.
    #[cold]
    pub(super) fn forget(&self, fibre: &'static Fibre) {
        let (older, younger) = (fibre.older.get(), fibre.younger.get());
        match younger {
            Some(younger) => younger.older.set(older),
            None => self.own.fibres.set(older),
        }
        if let Some(older) = older {
            older.younger.set(younger);
        }
        fibre.finish();
    }

    /// Gives back memory that has not been used for a while: half of the fibres that nobody needed since the last
    /// time, and what deep calls took of the stacks of the others.
    #[cold]
    pub(super) fn trim(&self, now: Instant) {
        let own = &*self.own;
        match own.trimmed.get() {
            Some(last) if now.saturating_duration_since(last) < TRIM => return,
            _ => own.trimmed.set(Some(now)),
        }
        let unneeded = own.least_spares.get().saturating_sub(SPARE_FIBRES).div_ceil(2);
        for _ in 0..unneeded.min(TRIM_AT_ONCE) {
            let Some(fibre) = own.spare.get() else { break };
            own.spare.set(fibre.next.get());
            own.spares.set(own.spares.get() - 1);
            self.forget(fibre);
        }
        if unneeded > TRIM_AT_ONCE {
            own.trimmed.set(now.checked_sub(TRIM * 49 / 50)); // more of it soon
        }
        own.least_spares.set(own.spares.get());
        let mut at = own.spare.get();
        for _ in 0..TRIM_AT_ONCE {
            let Some(fibre) = at else { break };
            fibre.trim();
            at = fibre.next.get();
        }
    }

    /// All fibres have been forgotten, and the spare jobs go to the allocator.
    pub(super) fn forget_spares(&self) {
        self.own.spare.set(None);
        self.own.spares.set(0);
        self.own.least_spares.set(0);
        self.own.job_count.set(0);
        let mut at = self.own.jobs.take();
        while let Some(job) = at {
            at = job::next_spare(job);
            // SAFETY: spare, so nobody uses it.
            unsafe { job::free(job) };
        }
    }

    /// When there will be something to trim.
    pub(super) fn next_trim(&self, now: Instant) -> Option<Instant> {
        self.wants_trim().then(|| self.own.trimmed.get().unwrap_or(now) + TRIM)
    }

    fn wants_trim(&self) -> bool {
        self.own.spares.get() > SPARE_FIBRES
    }

    #[inline]
    pub(super) fn spare_job(&self) -> Option<NonNull<Job>> {
        let job = self.own.jobs.get()?;
        self.own.jobs.set(job::next_spare(job));
        self.own.job_count.set(self.own.job_count.get() - 1);
        Some(job)
    }

    #[inline]
    pub(super) fn keep_job(&self, job: NonNull<Job>) {
        if self.own.job_count.get() < SPARE_JOBS {
            job::link_spare(job, self.own.jobs.get());
            self.own.jobs.set(Some(job));
            self.own.job_count.set(self.own.job_count.get() + 1);
        } else {
            // SAFETY: opened by the caller, who has no more use for it.
            unsafe { job::free(job) };
        }
    }

    /// All fibres, the youngest first. By the owner; or by anybody while all workers of the set sleep and cannot wake.
    pub(super) fn fibres(&self) -> impl Iterator<Item = &'static Fibre> {
        std::iter::successors(self.own.fibres.get(), |fibre| fibre.older.get())
    }

    // ---- what goroutines ask of their worker ---------------------------------------------------------------------

    /// Queues work that anybody may do.
    #[inline]
    pub(super) fn submit(&'static self, work: Work) {
        // SAFETY: this is the owner.
        if let Err(work) = unsafe { self.ring.push(work) } {
            self.overflow(work);
        }
        self.set().wake_for_work();
    }

    #[cold]
    fn overflow(&'static self, work: Work) {
        let mut half = [const { MaybeUninit::uninit() }; BATCH];
        // SAFETY: this is the owner.
        let n = unsafe { self.ring.take_half(&mut half) };
        // SAFETY: `take_half` has filled the first `n`.
        let works = half[..n].iter().map(|work| unsafe { work.assume_init() });
        self.set().push_global(works.chain([work]));
    }

    /// Leaves the work in its ring to the others.
    pub(super) fn empty_ring(&'static self) {
        // SAFETY: this is the owner.
        let works = std::iter::from_fn(|| unsafe { self.ring.pop() });
        self.set().push_global(works);
        self.set().wake_for_work();
    }

    /// The ready of a goroutine of this worker. In `front` it runs next.
    #[inline]
    pub(super) fn deliver(&'static self, fibre: &'static Fibre, front: bool) {
        if fibre.state.get() != State::Parked {
            fibre.token.set(true);
            return;
        }
        self.disarm(fibre);
        self.enqueue(fibre, Unparked::Ready, front);
    }

    #[inline]
    fn enqueue(&'static self, fibre: &'static Fibre, why: Unparked, front: bool) {
        fibre.unparked.set(why);
        fibre.state.set(State::Queued);
        if !front {
            self.own.run_queue.push(fibre);
        } else if let Some(before) = self.own.next.replace(Some(fibre)) {
            self.own.run_queue.push(before);
        }
    }

    /// The running goroutine goes to the end of the run queue, and everybody else has a turn.
    #[inline]
    pub(super) fn requeue(&'static self, fibre: &'static Fibre) {
        if fibre.dying.get() {
            return;
        }
        // Nobody has readied it: should it be unwound in the queue, no token is due to it.
        fibre.unparked.set(Unparked::Deadline);
        fibre.state.set(State::Queued);
        self.own.run_queue.push(fibre);
        fibre.suspend();
        if fibre.dying.get() {
            context::unwind();
        }
    }

    /// A destructor of a goroutine that is unwound lets the others' run.
    #[cold]
    pub(super) fn requeue_dying(&'static self, fibre: &'static Fibre) {
        fibre.state.set(State::Queued);
        fibre.suspend();
    }

    /// Empties the inbox into the run queue.
    #[cold]
    pub(super) fn take_inbox(&'static self) {
        for link in self.inbox.take_all() {
            // SAFETY: only fibres are put there.
            self.deliver(unsafe { Fibre::from_link(link) }, false);
        }
    }

    fn take_placed(&'static self) {
        if self.placed.is_empty() {
            return;
        }
        for link in self.placed.take_all() {
            self.begin_with(job::work_of_link(link));
        }
    }

    /// Binds work to this worker: with a stack it cannot be stolen. It runs when its turn comes.
    pub(super) fn begin_with(&'static self, work: Work) {
        let fibre = self.fibre_for(work);
        fibre.work.set(Some(work));
        self.enqueue(fibre, Unparked::Ready, false);
    }

    fn take_global(&'static self, most: usize) {
        for work in self.set().pop_global(most) {
            // SAFETY: this is the owner.
            if let Err(work) = unsafe { self.ring.push(work) } {
                self.overflow(work);
            }
        }
    }

    /// Whether it may do work that others could do too: not if `set_max_procs` has taken it out.
    #[inline]
    pub(super) fn takes_work(&self) -> bool {
        let set = self.set();
        self.place() < set.procs() || set.rank(self) < set.procs()
    }

    /// Whether something is queued here that came from others, or that others may take.
    pub(super) fn has_shared_work(&self) -> bool {
        !self.ring.is_empty() || !self.inbox.is_empty() || !self.placed.is_empty()
    }

    /// Its place in its set.
    pub(super) fn place(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }

    // ---- timers and slices ----------------------------------------------------------------------------------------

    fn timers<R>(&self, f: impl FnOnce(&mut TimerHeap<&'static Fibre>) -> R) -> R {
        // SAFETY: the owner's, and `f`, which is ours, does not come back here.
        f(unsafe { &mut *self.own.timers.get() })
    }

    pub(super) fn set_timer(&self, fibre: &'static Fibre, when: Instant) {
        self.timers(|timers| timers.insert(when, fibre));
    }

    /// Takes a fibre out of the timers.
    pub(super) fn disarm(&self, fibre: &'static Fibre) {
        if fibre.has_timer() {
            self.timers(|timers| timers.remove(fibre));
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers(|timers| timers.next())
    }

    pub(super) fn fire_timers(&'static self) {
        if self.next_timer().is_none() {
            return;
        }
        let now = Instant::now();
        while let Some(fibre) = self.timers(|timers| timers.pop_due(now)) {
            self.enqueue(fibre, Unparked::Deadline, false);
        }
    }

    /// Whether the running goroutine has had its slice, and somebody else is there to have one. Asks the clock only at
    /// every 64th call.
    #[inline]
    pub(super) fn is_slice_over(&self) -> bool {
        let calls = self.own.calls.get().wrapping_add(1);
        self.own.calls.set(calls);
        (calls.is_multiple_of(64) || self.preempt.load(Ordering::Relaxed)) && self.ask_clock()
    }

    #[cold]
    fn ask_clock(&self) -> bool {
        let now = Instant::now();
        let over = match self.own.slice.get() {
            None => {
                self.own.slice.set(Some(now));
                false
            }
            Some(since) => now - since > SLICE,
        };
        // The watcher has seen it run for many slices, whatever this clock says.
        let preempted = self.preempt.load(Ordering::Relaxed);
        if preempted {
            self.preempt.store(false, Ordering::Relaxed);
        }
        let due = || self.next_timer().is_some_and(|when| when <= now);
        (over || preempted) && (self.has_work() || due())
    }

    /// Whether something is queued here. "Can the yield be skipped" must look at every queue.
    pub(super) fn has_work(&self) -> bool {
        self.own.next.get().is_some()
            || !self.own.run_queue.is_empty()
            || !self.ring.is_empty()
            || !self.inbox.is_empty()
            || !self.placed.is_empty()
            || self.set().has_global_work()
    }

    /// The running goroutine is the only one here, and other workers run.
    #[inline]
    pub(super) fn is_idle_but_for_one(&self) -> bool {
        !self.has_work() && self.set().is_parallel()
    }
}
