//! A worker: Go's M and P in one, an operating-system thread that runs goroutines.
//!
//! | where work waits | what | put there by | taken by |
//! |---|---|---|---|
//! | `next` | a goroutine that was readied on this worker | the owner | the owner |
//! | `run_queue` | started goroutines | the owner | the owner |
//! | `ring` | goroutines not started, async tasks to be polled | the owner | the owner; thieves, once it is old |
//! | `inbox` | started goroutines, | readied elsewhere | any thread | the owner |
//! | `placed` | goroutines not started: they asked for this worker, elsewhere; or another one has spread them | any thread | the owner |
//! | `timers` | goroutines that wait with a deadline | the owner | the owner |
//! | the scheduler's global queue | what found no room in a ring, or came from outside | any thread | any worker |
//!
//! Order of choice: `next`, on what is left of the time slice of the one before it; then `run_queue` and `ring` by
//! turns. Every 64th choice looks at the rest first, so that nothing waits for ever. Go has the same in `schedule` and
//! `findRunnable` of `runtime/proc.go`. The inbox is emptied before each choice; `placed`, when a note in it says so.

use crate::shim::system;
use crate::shim::system::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::job;
use crate::goroutine::native::fibre::job::Job;
use crate::goroutine::native::fibre::{Fibre, State};
use crate::goroutine::native::locals;
use crate::goroutine::native::netpoll;
use crate::goroutine::native::sched::ids;
use crate::goroutine::native::sched::scheduler::{MAX_WORKERS, Sched};
use crate::goroutine::native::sched::stall::Stall;
use crate::goroutine::native::sched::steal::Rest;
use crate::goroutine::native::sched::sysmon;
use crate::goroutine::native::sched::timer_heap::TimerHeap;
use crate::goroutine::native::switch_hooks;
use crate::goroutine::protocol::idle::Sleeper;
use crate::goroutine::protocol::inbox::Inbox;
use crate::goroutine::protocol::pinned::PinnedWork;
use crate::goroutine::protocol::runq::{BATCH, Ring, Work};
use crate::shim::ThreadClock;
use crate::{Instant, ParkResult};

/// For how long an idle worker looks for work before it sleeps.
pub(crate) const SPIN: Duration = Duration::from_micros(50);
/// How old work must be to be stolen. For three quarters of that at least its worker must have run: see `Seen::is_old`.
pub(crate) const AGE: Duration = Duration::from_micros(10);
/// Work that has waited for so long is stolen whether its worker has run or not.
pub(crate) const OLD_AGE: Duration = Duration::from_millis(10);
/// The longest sleep of a worker that has found only work too fresh to be stolen.
pub(crate) const NAP: Duration = Duration::from_micros(200);
/// Poll timers, pinned jobs and the global queue at every 64th choice.
const GLOBAL_POLL_INTERVAL: u32 = 64;
/// A worker that is never idle trims its spare stacks at every 65,536th choice.
const TRIM_INTERVAL: u32 = 1 << 16;
/// See the top of this file. Workers are never freed, so that a late wake-up does no harm.
pub(crate) struct Worker {
    pub(crate) ring: Ring,
    pub(crate) inbox: CachePadded<Inbox>,
    pub(crate) placed: PinnedWork<Work>,
    pub(crate) sleeper: CachePadded<Sleeper>,
    sched: &'static Sched,
    /// The worker's place among those of its scheduler.
    pub(crate) index: usize,
    /// The watcher asks the running goroutine to give way.
    pub(crate) preempt: AtomicBool,
    /// What the watcher wants to know of a goroutine that does not give way.
    pub(crate) stall: Stall,
    /// Its thread's processor time.
    pub(crate) clock: ThreadClock,
    /// How many choices it has made: by this the watcher sees a goroutine that runs for long.
    pub(crate) turns: CachePadded<AtomicU32>,
    /// Goroutines and tasks made and ended here. Written by the owner only.
    pub(crate) made: AtomicU64,
    pub(crate) ended: AtomicU64,
    /// Goroutines that have started here and not ended: see `spread`. Written by the owner only.
    pub(crate) population: AtomicU32,
    /// It has no work, and looks for some, or sleeps. Written by the owner only.
    pub(crate) looking: CachePadded<AtomicBool>,
    pub(crate) own: CachePadded<Own>,
}

/// What only the worker's thread touches.
pub(crate) struct Own {
    pub(crate) next: Cell<Option<&'static Fibre>>,
    pub(crate) run_queue: FibreQueue,
    /// What `pick` has chosen for a fibre that could not run it itself.
    pub(crate) chosen: Cell<Option<Chosen>>,
    pub(crate) timers: UnsafeCell<TimerHeap<&'static Fibre>>,
    /// Since when the slice runs: looked up at the first call that asks.
    pub(crate) slice: Cell<Option<Instant>>,
    pub(crate) calls: Cell<u32>,
    /// Whose turn it is: the ring's, or the run queue's.
    ring_first: Cell<bool>,
    /// The youngest of all fibres.
    pub(crate) fibres: Cell<Option<&'static Fibre>>,
    pub(crate) spare: Cell<Option<&'static Fibre>>,
    pub(crate) spares: Cell<usize>,
    /// The fewest spares since the last trimming.
    pub(crate) least_spares: Cell<usize>,
    pub(crate) trimmed: Cell<Option<Instant>>,
    pub(crate) jobs: Cell<Option<NonNull<Job>>>,
    pub(crate) job_count: Cell<u32>,
    ids: Cell<(u64, u64)>,
    /// See `spread`.
    pub(crate) first_blocks: Cell<u32>,
    /// Choices until the next look at the others' populations.
    pub(crate) spread_pause: Cell<u32>,
    /// How many workers it has waited for.
    pub(crate) awaited: Cell<usize>,
    pub(crate) searching: Cell<bool>,
    pub(crate) random: Cell<u32>,
    /// The others' rings, by their places.
    pub(crate) seen: UnsafeCell<[Option<Seen>; MAX_WORKERS]>,
    pub(crate) looked: Cell<Option<Instant>>,
}

// SAFETY: `own` is touched by the worker's thread only (and read by the deadlock report, while no worker can wake):
// every method that uses it is called by that thread, through `current::worker()`, a fibre that runs, or the worker's
// loop. The rest is made for many threads.
unsafe impl Sync for Worker {}
// SAFETY: as above: a worker is handed to the thread that becomes its owner when no other thread uses `own`.
unsafe impl Send for Worker {}

/// What a thief remembers of a ring: see `steal`.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) tail: u32,
    pub(crate) when: Instant,
    /// How long the worker's thread had run.
    pub(crate) ran: Option<Duration>,
}

#[derive(Clone, Copy)]
pub(crate) enum Chosen {
    Fibre(&'static Fibre),
    Work(Work),
}

/// First in, first out, linked through the fibres.
pub(crate) struct FibreQueue {
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
    pub(crate) fn pop(&self) -> Option<&'static Fibre> {
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
    pub(crate) fn new(sched: &'static Sched, index: usize) -> Self {
        Self {
            ring: Ring::new(),
            inbox: CachePadded::new(Inbox::new()),
            placed: PinnedWork::new(),
            sleeper: CachePadded::new(Sleeper::new()),
            sched,
            index,
            preempt: AtomicBool::new(false),
            stall: Stall::default(),
            clock: ThreadClock::new(),
            turns: CachePadded::new(AtomicU32::new(0)),
            made: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            population: AtomicU32::new(0),
            looking: CachePadded::new(AtomicBool::new(false)),
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
                first_blocks: Cell::new(0),
                spread_pause: Cell::new(0),
                awaited: Cell::new(1),
                searching: Cell::new(false),
                random: Cell::new(0x9e37_79b9),
                seen: UnsafeCell::new([None; MAX_WORKERS]),
                looked: Cell::new(None),
            }),
        }
    }

    #[inline]
    pub(crate) fn sched(&self) -> &'static Sched {
        self.sched
    }

    /// Wakes its thread, which has been given work that it alone can do.
    #[inline]
    pub(crate) fn wake(&self) {
        self.sched().idle.wake(&self.sleeper);
    }

    // ---- the loop -----------------------------------------------------------------------------------------------

    /// Makes the calling thread this worker.
    pub(crate) fn enter_thread(&'static self) {
        self.clock.start();
        current::set_worker(Some(self));
        sysmon::rouse();
    }

    /// Makes the calling thread this worker, for ever.
    pub(crate) fn run_thread(&'static self) -> ! {
        self.looking.store(true, Ordering::Relaxed); // the worker has nothing to do yet
        self.enter_thread();
        self.wait_for_work();
        loop {
            self.run();
        }
    }

    /// Runs goroutines; of a bubble, until it is at rest.
    pub(crate) fn run(&'static self) {
        loop {
            match self.own.chosen.take().or_else(|| self.pick()) {
                Some(Chosen::Fibre(fibre)) => self.resume(fibre),
                Some(Chosen::Work(work)) => {
                    let fibre = self.fibre_for(job::stack_size(work));
                    fibre.work.set(Some(work));
                    self.resume(fibre);
                }
                None if self.wait_for_work() == Rest::AtRest => return,
                None => {}
            }
        }
    }

    #[inline]
    pub(crate) fn resume(&'static self, fibre: &'static Fibre) {
        fibre.state.set(State::Running);
        current::resume(fibre);
        if !fibre.usual && fibre.state.get() == State::Spare {
            self.forget(fibre);
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
        if tick.is_multiple_of(GLOBAL_POLL_INTERVAL) {
            self.poll_slow_sources();
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
        chosen.or_else(|| self.poll_local_sources())
    }

    /// From the ring, or from the global queue: goroutines that keep yielding must not keep those out.
    #[inline]
    fn next_work(&'static self) -> Option<Work> {
        if self.starts_family() {
            self.spread();
        }
        // SAFETY: this is the owner.
        if let Some(work) = unsafe { self.ring.pop() } {
            return Some(work);
        }
        if self.sched().has_global_work() { self.next_global() } else { None }
    }

    #[cold]
    fn next_global(&'static self) -> Option<Work> {
        if self.is_enabled() {
            self.take_global(BATCH);
        }
        // SAFETY: this is the owner.
        unsafe { self.ring.pop() }
    }

    /// For a fibre that has ended a goroutine: the next piece of work, if that is what is to run next. If it is a
    /// started goroutine the loop will find it.
    #[inline]
    pub(crate) fn pick_work(&'static self) -> Option<Work> {
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
    fn poll_slow_sources(&'static self) {
        self.fire_timers();
        if netpoll::is_awaited() {
            netpoll::poll_now();
        }
        if self.is_enabled() && self.sched().has_global_work() {
            self.take_global(1);
        }
        if !self.is_enabled() {
            self.empty_ring();
        }
        if self.turns.load(Ordering::Relaxed).is_multiple_of(TRIM_INTERVAL) && self.wants_trim() {
            self.trim(system::now());
        }
    }

    /// The queues are empty: where else could work be?
    #[cold]
    fn poll_local_sources(&'static self) -> Option<Chosen> {
        self.fire_timers();
        self.own.run_queue.pop().map(Chosen::Fibre)
    }

    // ---- fibres ----------------------------------------------------------------------------------------------------

    /// A goroutine begins, or a task is polled.
    #[inline]
    pub(crate) fn begin(&self, fibre: &'static Fibre) {
        let (next, end) = self.own.ids.get();
        let (id, end) = if next < end { (next, end) } else { ids::more_ids() };
        self.own.ids.set((id + 1, end));
        fibre.id.set(id);
        fibre.used.set(true);
        fibre.fresh.set(true);
        fibre.state.set(State::Running);
        self.population.store(self.population.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A goroutine has ended. Its locals go last, as a thread's do.
    #[inline]
    pub(crate) fn end(&self, fibre: &'static Fibre) {
        self.end_poll(fibre);
        self.count_end();
    }

    /// A poll has ended.
    #[inline]
    pub(crate) fn end_poll(&self, fibre: &'static Fibre) {
        self.own.first_blocks.set(0);
        self.population.store(self.population.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        locals::clear(fibre);
        fibre.name.set(None);
    }

    /// One goroutine or task fewer.
    #[inline]
    pub(crate) fn count_end(&self) {
        // Not an RMW: the owner alone writes.
        self.ended.store(self.ended.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// One goroutine or task more.
    #[inline]
    pub(crate) fn count_made(&self) {
        self.made.store(self.made.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    // ---- what goroutines ask of their worker ---------------------------------------------------------------------

    /// Queues work for any worker.
    #[inline]
    pub(crate) fn submit(&'static self, work: Work) {
        // SAFETY: this is the owner.
        match unsafe { self.ring.push(work) } {
            Ok(()) => self.sched().wake_for_fresh_work(),
            Err(work) => self.overflow(work),
        }
    }

    #[cold]
    fn overflow(&'static self, work: Work) {
        let mut half = [const { MaybeUninit::uninit() }; BATCH];
        // SAFETY: this is the owner.
        let n = unsafe { self.ring.take_half(&mut half) };
        // SAFETY: `take_half` has filled the first `n`.
        let works = half[..n].iter().map(|work| unsafe { work.assume_init() });
        self.sched().push_global(works.chain([work]));
        self.sched().wake_for_work();
    }

    /// Leaves the work in its ring to the others.
    pub(crate) fn empty_ring(&'static self) {
        // SAFETY: this is the owner.
        let works = std::iter::from_fn(|| unsafe { self.ring.pop() });
        self.sched().push_global(works);
        self.sched().wake_for_work();
    }

    /// The ready of a goroutine of this worker. In `front` it runs next.
    #[inline]
    pub(crate) fn ready_local(&'static self, fibre: &'static Fibre, front: bool) {
        if fibre.state.get() != State::Parked {
            fibre.token.set(true);
            return;
        }
        self.disarm(fibre);
        self.enqueue(fibre, ParkResult::Unparked, front);
    }

    #[inline]
    pub(crate) fn enqueue(&'static self, fibre: &'static Fibre, why: ParkResult, front: bool) {
        fibre.unparked.set(why);
        fibre.state.set(State::Queued);
        if fibre.observed.get() {
            self.stall.is_queued();
        }
        self.own.first_blocks.set(0);
        if !front {
            self.own.run_queue.push(fibre);
        } else if let Some(before) = self.own.next.replace(Some(fibre)) {
            self.own.run_queue.push(before);
        }
    }

    /// The running goroutine goes to the end of the run queue, and all others have a turn.
    #[inline]
    pub(crate) fn requeue(&'static self, fibre: &'static Fibre) {
        fibre.state.set(State::Queued);
        self.own.run_queue.push(fibre);
        fibre.suspend();
    }

    /// Empties the inbox into the run queue.
    #[cold]
    pub(crate) fn take_inbox(&'static self) {
        for link in self.inbox.take_all() {
            if self.placed.is_note(link) {
                self.take_pinned();
            } else {
                // SAFETY: only fibres, and the note, are put there.
                self.ready_local(unsafe { Fibre::from_link(link) }, false);
            }
        }
    }

    #[cold]
    fn take_pinned(&'static self) {
        self.placed.note_read();
        while let Some(work) = self.placed.take() {
            self.start_on(work);
        }
    }

    /// Binds work to this worker: with a stack it cannot be stolen. It runs when its turn comes.
    pub(crate) fn start_on(&'static self, work: Work) {
        let fibre = self.fibre_for(job::stack_size(work));
        fibre.work.set(Some(work));
        fibre.observed.set(switch_hooks::is_observed()); // it waits to begin, and that is seen
        self.enqueue(fibre, ParkResult::Unparked, false);
    }

    /// [`Worker::start_on`], and its turn is next.
    pub(crate) fn start_first(&'static self, work: Work) {
        let fibre = self.fibre_for(job::stack_size(work));
        fibre.work.set(Some(work));
        fibre.observed.set(switch_hooks::is_observed());
        self.enqueue(fibre, ParkResult::Unparked, true);
    }

    fn take_global(&'static self, most: usize) {
        for work in self.sched().pop_global(most) {
            // SAFETY: this is the owner.
            if let Err(work) = unsafe { self.ring.push(work) } {
                self.overflow(work);
            }
        }
    }

    /// Whether it may do work that others could do too: not if `set_max_procs` has taken it out.
    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.index < self.sched.procs()
    }

    /// Whether something is queued here that came from others, or that others may take.
    pub(crate) fn has_shared_work(&self) -> bool {
        !self.ring.is_empty() || !self.inbox.is_empty()
    }

    /// Whether a started goroutine is queued here.
    pub(crate) fn has_started_work(&self) -> bool {
        self.own.next.get().is_some() || !self.own.run_queue.is_empty()
    }

    /// Whether something is queued here. "Can the yield be skipped" must look at every queue.
    pub(crate) fn has_work(&self) -> bool {
        self.own.next.get().is_some()
            || !self.own.run_queue.is_empty()
            || !self.ring.is_empty()
            || !self.inbox.is_empty()
            || self.sched().has_global_work()
    }
}
