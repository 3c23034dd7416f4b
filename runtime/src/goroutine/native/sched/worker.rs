//! A worker: Go's M and P in one, an operating-system thread that runs goroutines.
//!
//! | where work waits | what | put there by | taken by |
//! |---|---|---|---|
//! | `next` | a goroutine that was readied on this worker | the owner | the owner |
//! | `run_queue` | started goroutines | the owner | the owner |
//! | `yielder` | the goroutine that has just yielded: in `run_queue` after the next choice | the owner | the owner |
//! | `ring` | goroutines not started, async tasks to be polled | the owner | the owner; thieves, once it is old |
//! | `inbox` | started goroutines that were readied elsewhere | any thread | the owner |
//! | `placed` | goroutines not started: they asked for this worker, elsewhere; or another one has spread them | any thread | the owner |
//! | `timers` | goroutines that wait with a deadline | the owner | the owner |
//! | the scheduler's global queue | what found no room in a ring, or came from outside | any thread | any worker |
//!
//! Order of choice: `next`, on the rest of the time slice of the goroutine that has readied it; then the oldest of
//! `run_queue` and `ring`. Together these are one queue, as Go's `runq` is: a fibre that is queued notes the tail of the
//! ring, and its turn comes when the head of the ring has passed that tail. Goroutines whose timers have fired go first.
//!
//! A goroutine that yields is queued at the next choice, when the inbox has been emptied, the timers that are due have
//! fired, and this worker's share of the global queue is in the ring. So each goroutine that was ready here when it yielded
//! runs first. (Go's `Gosched` puts its caller into the global queue.)
//!
//! Every choice empties the inbox; `placed`, when a note in the inbox says so. Every 64th choice, and the first choice
//! after the watcher has asked, looks at timers, network and global queue. Go has the same in `schedule` and
//! `findRunnable` of `runtime/proc.go`.

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
use crate::goroutine::native::sched::dump;
use crate::goroutine::native::sched::ids;
use crate::goroutine::native::sched::preempt::Pace;
use crate::goroutine::native::sched::processor::{Courtesy, Note};
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
/// Poll timers, network and the global queue at every 64th choice.
const GLOBAL_POLL_INTERVAL: u32 = 64;

/// Adds 1. Not an RMW: the worker that owns the number alone writes.
#[inline]
pub(crate) fn count(number: &AtomicU64) {
    number.store(number.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// See the top of this file. Workers are never freed, so that a late wake-up does no harm.
pub(crate) struct Worker {
    pub(crate) ring: Ring,
    pub(crate) inbox: CachePadded<Inbox>,
    pub(crate) placed: PinnedWork<Work>,
    pub(crate) sleeper: CachePadded<Sleeper>,
    sched: &'static Sched,
    /// The worker's place among those of its scheduler.
    pub(crate) index: usize,
    /// The watcher asks the worker to look at the clock. Set at each of the watcher's ticks while the worker is awake.
    pub(crate) asked: AtomicBool,
    /// What the watcher wants to know of a goroutine that does not give way.
    pub(crate) stall: Stall,
    /// Its thread's processor time.
    pub(crate) clock: ThreadClock,
    /// The processor of its thread when it last searched, woke, or looked at the slow sources.
    pub(crate) processor: CachePadded<Note>,
    /// Number of searches that found no work until their time was over. Written by the owner only.
    pub(crate) vain_searches: AtomicU64,
    /// Number of times that a search has yielded the processor. Written by the owner only.
    pub(crate) yields: AtomicU64,
    /// How many choices it has made: by this the watcher sees a goroutine that holds its worker.
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
    /// The goroutine that has yielded, until `pick` queues it.
    pub(crate) yielder: Cell<Option<&'static Fibre>>,
    /// What `pick` has chosen for a fibre that could not run it itself.
    pub(crate) chosen: Cell<Option<Chosen>>,
    pub(crate) timers: UnsafeCell<TimerHeap<&'static Fibre>>,
    /// Since when the slice runs: looked up at the first call that asks.
    pub(crate) slice: Cell<Option<Instant>>,
    pub(crate) pace: Pace,
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
    pub(crate) courtesy: Courtesy,
    pub(crate) dump: dump::Progress,
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
    /// The worker describes its fibres: see [`dump`](mod@dump).
    Dump,
}

/// First in, first out, linked through the fibres.
pub(crate) struct FibreQueue {
    first: Cell<Option<&'static Fibre>>,
    last: Cell<Option<&'static Fibre>>,
}

impl FibreQueue {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(None), last: Cell::new(None) }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    /// The fibre that `pop` would take.
    #[inline]
    fn first(&self) -> Option<&'static Fibre> {
        self.first.get()
    }

    #[inline]
    pub(crate) fn push(&self, fibre: &'static Fibre) {
        fibre.next.set(None);
        match self.last.replace(Some(fibre)) {
            Some(last) => last.next.set(Some(fibre)),
            None => self.first.set(Some(fibre)),
        }
    }

    /// Puts all of another queue before all of this one.
    pub(crate) fn prepend(&self, others: &Self) {
        let (first, Some(last)) = (others.first.take(), others.last.take()) else { return };
        last.next.set(self.first.replace(first));
        if last.next.get().is_none() {
            self.last.set(Some(last));
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
            asked: AtomicBool::new(false),
            stall: Stall::default(),
            clock: ThreadClock::new(),
            processor: CachePadded::new(Note::new()),
            vain_searches: AtomicU64::new(0),
            yields: AtomicU64::new(0),
            turns: CachePadded::new(AtomicU32::new(0)),
            made: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            population: AtomicU32::new(0),
            looking: CachePadded::new(AtomicBool::new(false)),
            own: CachePadded::new(Own {
                next: Cell::new(None),
                run_queue: FibreQueue::new(),
                yielder: Cell::new(None),
                chosen: Cell::new(None),
                timers: UnsafeCell::new(TimerHeap::new()),
                slice: Cell::new(None),
                pace: Pace::new(),
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
                courtesy: Courtesy::new(),
                dump: dump::Progress::new(),
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
                Some(Chosen::Dump) => dump::answer(self),
                None if self.own.dump.is_wanted() => {}
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
    #[inline(always)]
    fn pick(&'static self) -> Option<Chosen> {
        let own = &*self.own;
        // A plain load and store: the owner alone writes, the watcher reads.
        let tick = self.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.turns.store(tick, Ordering::Relaxed);
        if !self.inbox.is_empty() {
            self.take_inbox();
        }
        if tick.is_multiple_of(GLOBAL_POLL_INTERVAL) || self.is_asked() {
            self.poll_slow_sources();
            if self.own.dump.is_due() {
                return Some(Chosen::Dump);
            }
        }
        let mut next = own.next.take();
        if let Some(fibre) = next {
            // It inherits the slice. Two goroutines that ready each other would keep all others out, were it without
            // end.
            if self.is_slice_over() {
                self.queue(fibre);
                next = None;
            }
        }
        self.queue_yielder();
        if let Some(next) = next {
            return Some(Chosen::Fibre(next));
        }
        own.slice.set(None);
        own.pace.slice_begins();
        let ring_is_older = |first: &Fibre| self.ring.holds_older_than(first.behind.get());
        if own.run_queue.first().is_none_or(ring_is_older)
            && let Some(work) = self.next_work()
        {
            return Some(Chosen::Work(work));
        }
        own.run_queue.pop().map(Chosen::Fibre).or_else(|| self.poll_local_sources())
    }

    /// Queues a fibre behind all that is queued here.
    #[inline]
    fn queue(&self, fibre: &'static Fibre) {
        fibre.behind.set(self.ring.tail() as u16);
        self.own.run_queue.push(fibre);
    }

    /// Queues the goroutine that has yielded, if one has, behind all that is ready.
    #[inline]
    fn queue_yielder(&'static self) {
        let Some(yielder) = self.own.yielder.get() else { return };
        self.own.yielder.set(None);
        if self.next_timer().is_some() {
            self.yields_beside_timers();
        }
        if self.sched().has_global_work() {
            self.take_global();
        }
        self.queue(yielder);
    }

    /// Takes work from the ring or, if the ring is empty, from the global queue.
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
        self.take_global();
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

    /// Looks at every source of work that `pick` does not, so that nothing waits for ever; and trims spare stacks.
    #[cold]
    fn poll_slow_sources(&'static self) {
        _ = self.processor.take();
        let asked = self.is_asked();
        if asked && self.own.next.get().is_none() {
            // A slice begins: its first call looks at the clock. (If `next` is set, `is_slice_over` does.)
            self.asked.store(false, Ordering::Relaxed);
            self.own.pace.look_soon();
        }
        self.fire_timers();
        if netpoll::is_awaited() {
            netpoll::poll_now();
        }
        if self.sched().has_global_work() {
            self.take_global();
        }
        if !self.is_enabled() {
            self.empty_ring();
        }
        if asked && self.wants_trim() {
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
        fibre.vtable.set(job::Vtable::TASK);
        fibre.together.set(false);
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
        count(&self.ended);
    }

    /// One goroutine or task more.
    #[inline]
    pub(crate) fn count_made(&self) {
        count(&self.made);
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
        self.set_queued(fibre, why);
        if !front {
            self.queue(fibre);
        } else if let Some(before) = self.own.next.replace(Some(fibre)) {
            self.queue(before);
        }
    }

    /// The caller puts the fibre into a queue of this worker.
    #[inline]
    pub(crate) fn set_queued(&self, fibre: &'static Fibre, why: ParkResult) {
        fibre.unparked.set(why);
        fibre.state.set(State::Queued);
        if fibre.observed.get() {
            self.stall.is_queued();
        }
        self.own.first_blocks.set(0);
    }

    /// The running goroutine yields: all others that are ready here have a turn first.
    #[inline]
    pub(crate) fn requeue(&'static self, fibre: &'static Fibre) {
        fibre.state.set(State::Queued);
        self.own.yielder.set(Some(fibre));
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
            self.start_on(work, false);
        }
    }

    /// Binds work to this worker, as work with a stack is not stolen, and returns its fibre. The work is queued behind all
    /// that is ready; if `front` is true, it runs next.
    pub(crate) fn start_on(&'static self, work: Work, front: bool) -> &'static Fibre {
        let fibre = self.fibre_for(job::stack_size(work));
        fibre.work.set(Some(work));
        fibre.observed.set(switch_hooks::is_observed()); // it waits to begin, and that is seen
        self.enqueue(fibre, ParkResult::Unparked, front);
        fibre
    }

    /// Takes this worker's share of the global queue, as far as the ring has room, unless `set_max_procs` has taken the
    /// worker out.
    #[cold]
    fn take_global(&'static self) {
        if !self.is_enabled() {
            return;
        }
        for work in self.sched().pop_global(self.ring.room().min(BATCH)) {
            // SAFETY: this is the owner.
            if let Err(work) = unsafe { self.ring.push(work) } {
                self.overflow(work); // never, as the owner alone takes room
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
        self.own.next.get().is_some() || self.own.yielder.get().is_some() || !self.own.run_queue.is_empty()
    }

    /// Whether something is queued here. "Can the yield be skipped" must look at every queue.
    pub(crate) fn has_work(&self) -> bool {
        self.has_started_work() || self.has_shared_work() || self.sched().has_global_work()
    }
}
