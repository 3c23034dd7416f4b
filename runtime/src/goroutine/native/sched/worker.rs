//! A worker: Go's M and P in one, an operating-system thread that runs goroutines.
//!
//! | where work waits | contents | put there by | taken by |
//! |---|---|---|---|
//! | `next` | a goroutine that was readied on this worker | the owner | the owner |
//! | `run_queue` | started goroutines | the owner | the owner |
//! | `yielder` | the goroutine that has just yielded: in `run_queue` after the next choice | the owner | the owner |
//! | `ring` | goroutines not started, async tasks to be polled | the owner | the owner; thieves, once the work is old |
//! | `inbox` | started goroutines that were readied elsewhere | any thread | the owner |
//! | `placed` | goroutines not started that other threads have placed on this worker (see [`Placement`](crate::goroutine::Placement)), or that another worker has spread | any thread | the owner |
//! | `timers` | goroutines that wait with a deadline | the owner | the owner |
//! | the scheduler's global queue | work that found no room in a ring, or came from outside | any thread | any worker |
//!
//! The worker first chooses `next`, which gets the rest of the time slice of the goroutine that readied `next`; then
//! the oldest entry of `run_queue` and `ring`. These two together are one queue, as Go's `runq` is: a fibre that enters
//! `run_queue` notes the tail of the ring, and has a turn when the head of the ring has passed that tail. Goroutines
//! whose timers have fired go before all others.
//!
//! A goroutine that yields is queued at the next choice, when the inbox has been emptied, the timers that are due have
//! fired, and this worker's share of the global queue is in the ring. So each goroutine that was ready on this worker
//! at the time of the yield runs first. (Go's `Gosched` puts the caller into the global queue.)
//!
//! Every choice empties the inbox, and empties `placed` if a note in the inbox says so. Every 64th choice, and the
//! first choice after the watcher has asked, looks at timers, network and global queue. Go has the same in `schedule`
//! and `findRunnable` of `runtime/proc.go`.

use crate::shim::system;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::event::steps;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fibre::job;
use crate::goroutine::native::fibre::job::{SpareMemory, Work};
use crate::goroutine::native::fibre::locals;
use crate::goroutine::native::fibre::{Fibre, State};
use crate::goroutine::native::metrics::counters::{Counters, Length, count};
use crate::goroutine::native::netpoll;
use crate::goroutine::native::sched::ids;
use crate::goroutine::native::sched::pace::Pace;
use crate::goroutine::native::sched::processor::{Courtesy, Note};
use crate::goroutine::native::sched::progress::Progress;
use crate::goroutine::native::sched::scheduler::{MAX_WORKERS, Sched};
use crate::goroutine::native::sched::stall::Stall;
use crate::goroutine::native::sched::sysmon;
use crate::goroutine::native::sched::timer_heap::TimerHeap;
use crate::goroutine::native::switch_hooks;
use crate::goroutine::protocol::idle::Sleeper;
use crate::goroutine::protocol::inbox::Inbox;
use crate::goroutine::protocol::pinned::PinnedWork;
use crate::goroutine::protocol::runq::{BATCH, Owner, Ring};
use crate::shim::ThreadClock;
use crate::{Instant, ParkResult};

/// The time for which an idle worker looks for work before it sleeps.
pub(crate) const SPIN: Duration = Duration::from_micros(50);
/// The age at which work may be stolen, if the work's worker has run for at least three quarters of that time: see
/// `Seen::is_old`.
pub(crate) const AGE: Duration = Duration::from_micros(10);
/// The age at which work is stolen whether its worker has run or not.
pub(crate) const OLD_AGE: Duration = Duration::from_millis(10);
/// The longest sleep of a worker that has found only work too fresh to be stolen.
pub(crate) const NAP: Duration = Duration::from_micros(200);
/// Poll timers, network and the global queue at every 64th choice.
const GLOBAL_POLL_INTERVAL: u32 = 64;

/// The function by which a worker answers a dump: see [`answer_dumps_by`].
static ANSWER: OnceLock<fn(&'static Worker)> = OnceLock::new();

/// Hands in the function by which a worker describes some of its fibres. Called before the first dump is asked for. Only
/// the first call has an effect.
pub(super) fn answer_dumps_by(answer: fn(&'static Worker)) {
    ANSWER.get_or_init(|| answer);
}

/// A worker: see the top of this file. Workers are never freed, so that a late wake-up does no harm.
pub(crate) struct Worker {
    pub(crate) ring: Ring<Work>,
    pub(crate) inbox: CachePadded<Inbox>,
    pub(crate) placed: PinnedWork<Work>,
    pub(crate) sleeper: CachePadded<Sleeper>,
    sched: &'static Sched,
    /// The worker's index in its scheduler.
    pub(crate) index: usize,
    /// The watcher's request to look at the clock. Set at each of the watcher's ticks while the worker is awake.
    pub(crate) asked: AtomicBool,
    /// The facts that the watcher needs to report a goroutine that does not give way.
    pub(crate) stall: Stall,
    /// A clock of the processor time that the worker's thread has used.
    pub(crate) clock: ThreadClock,
    /// The processor of the worker's thread at the last search, wake-up, or look at the slow sources.
    pub(crate) processor: CachePadded<Note>,
    /// Number of searches that found no work until their time was over. Written by the owner only.
    pub(crate) vain_searches: AtomicU64,
    /// Number of times that a search has yielded the processor. Written by the owner only.
    pub(crate) yields: AtomicU64,
    /// The number of choices made. While a goroutine holds the worker, this number stands still, which the watcher
    /// sees.
    pub(crate) turns: CachePadded<AtomicU32>,
    /// The numbers of goroutines and tasks made and ended on this worker. Written by the owner only.
    pub(crate) made: AtomicU64,
    pub(crate) ended: AtomicU64,
    /// The number of goroutines that have started on this worker and not ended: see `spread`. Written by the owner
    /// only.
    pub(crate) population: AtomicU32,
    /// True while the worker has no work, and looks for work or sleeps. Written by the owner only.
    pub(crate) looking: CachePadded<AtomicBool>,
    pub(crate) counters: Counters,
    pub(crate) own: CachePadded<Own>,
}

/// The fields that only the worker's thread touches.
pub(crate) struct Own {
    pub(crate) next: Cell<Option<&'static Fibre>>,
    pub(crate) run_queue: FibreQueue,
    /// The goroutine that has yielded, until `pick` queues it.
    pub(crate) yielder: Cell<Option<&'static Fibre>>,
    /// 0, or 1 and the number of goroutines that `fire_timers` has put in front of `run_queue` and that have not run. Becomes 0
    /// when something else has run after these.
    pub(crate) fired: Cell<u32>,
    /// True if the next piece of work comes from the global queue, whatever the ring has.
    pub(crate) passes_ring: Cell<bool>,
    /// A choice that `pick` has made for a fibre that cannot run the chosen goroutine itself: the worker's loop runs
    /// the choice.
    pub(crate) chosen: Cell<Option<Chosen>>,
    pub(crate) timers: UnsafeCell<TimerHeap<&'static Fibre>>,
    /// The time when the time slice began. Set at the first call that reads the clock.
    pub(crate) slice: Cell<Option<Instant>>,
    /// The index in the ring of the work that a running goroutine has left to a thief, and the time since when.
    pub(crate) waits_for_thief: Cell<Option<(u16, Instant)>>,
    pub(crate) pace: Pace,
    /// The youngest fibre of this worker: the head of the list of all fibres.
    pub(crate) fibres: Cell<Option<&'static Fibre>>,
    pub(crate) spare: Cell<Option<&'static Fibre>>,
    pub(crate) spares: Cell<usize>,
    /// The smallest number of spare fibres since the last trim.
    pub(crate) least_spares: Cell<usize>,
    pub(crate) trimmed: Cell<Option<Instant>>,
    pub(crate) jobs: SpareMemory,
    ids: Cell<(u64, u64)>,
    /// The number of goroutines in a row that have blocked in their first run: see `spread`.
    pub(crate) first_blocks: Cell<u32>,
    /// The number of choices until the next look at the populations of the other workers.
    pub(crate) spread_pause: Cell<u32>,
    /// The number of workers that this worker has waited for: see `await_workers`.
    pub(crate) awaited: Cell<usize>,
    pub(crate) searching: Cell<bool>,
    pub(crate) random: Cell<u32>,
    /// The last looks at the other workers' rings, by the workers' indices.
    pub(crate) seen: UnsafeCell<[Option<Seen>; MAX_WORKERS]>,
    pub(crate) looked: Cell<Option<Instant>>,
    pub(crate) courtesy: Courtesy,
    pub(crate) dump: Progress<&'static Fibre>,
    /// The number of the last trace for which the worker has marked its fibres: see `switch_hooks`.
    traces: Cell<u32>,
}

// SAFETY: `own` is touched by the worker's thread only (and read by the deadlock report, while no worker can wake; and
// `metrics` reads the length of `own.run_queue`, an atomic): every method that uses `own` is called by that thread,
// through `current::worker()`, a fibre that runs, or the worker's loop. The other fields are made for many threads.
// Of `counters`, the cells are touched by the worker's thread only.
unsafe impl Sync for Worker {}
// SAFETY: a worker is handed over to the thread that becomes the owner at a time when no other thread uses `own`. The
// other fields are made for many threads.
unsafe impl Send for Worker {}

/// The reason why a worker does not look for work any more: see `steal`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// There is work, or there was until another worker took that work.
    Work,
    /// The worker's bubble is at rest.
    AtRest,
}

/// A thief's memory of a ring: see `steal`.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) tail: u32,
    pub(crate) when: Instant,
    /// The processor time that the thread of the ring's worker had used until `when`. `None` if the system does not
    /// say.
    pub(crate) ran: Option<Duration>,
}

pub(crate) enum Chosen {
    Fibre(&'static Fibre),
    Work(Work),
    /// The worker describes its fibres: see `dump.rs`.
    Dump,
}

/// A queue of fibres, first in, first out, linked through [`Fibre::next`].
pub(crate) struct FibreQueue {
    first: Cell<Option<&'static Fibre>>,
    last: Cell<Option<&'static Fibre>>,
    length: Length,
}

impl FibreQueue {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(None), last: Cell::new(None), length: Length::new() }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    /// Returns the number of fibres. May be called by any thread.
    #[cfg(feature = "metrics")]
    pub(crate) fn len(&self) -> usize {
        self.length.get() as usize
    }

    /// Returns the fibre that `pop` would take.
    #[inline]
    fn first(&self) -> Option<&'static Fibre> {
        self.first.get()
    }

    #[inline]
    pub(crate) fn push(&self, fibre: &'static Fibre) {
        self.length.grow();
        fibre.next.set(None);
        match self.last.replace(Some(fibre)) {
            Some(last) => last.next.set(Some(fibre)),
            None => self.first.set(Some(fibre)),
        }
    }

    /// Moves all fibres of another queue in front of the fibres of this queue.
    pub(crate) fn prepend(&self, others: &Self) {
        let (first, Some(last)) = (others.first.take(), others.last.take()) else { return };
        self.length.add(&others.length);
        last.next.set(self.first.replace(first));
        if last.next.get().is_none() {
            self.last.set(Some(last));
        }
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<&'static Fibre> {
        let first = self.first.get()?;
        self.length.shrink();
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
            counters: Counters::new(),
            own: CachePadded::new(Own {
                next: Cell::new(None),
                run_queue: FibreQueue::new(),
                yielder: Cell::new(None),
                fired: Cell::new(0),
                passes_ring: Cell::new(false),
                chosen: Cell::new(None),
                timers: UnsafeCell::new(TimerHeap::new()),
                slice: Cell::new(None),
                waits_for_thief: Cell::new(None),
                pace: Pace::new(),
                fibres: Cell::new(None),
                spare: Cell::new(None),
                spares: Cell::new(0),
                least_spares: Cell::new(0),
                trimmed: Cell::new(None),
                jobs: SpareMemory::new(),
                ids: Cell::new((0, 0)),
                first_blocks: Cell::new(0),
                spread_pause: Cell::new(0),
                awaited: Cell::new(1),
                searching: Cell::new(false),
                random: Cell::new(0x9e37_79b9),
                seen: UnsafeCell::new([None; MAX_WORKERS]),
                looked: Cell::new(None),
                courtesy: Courtesy::new(),
                dump: Progress::new(),
                traces: Cell::new(0),
            }),
        }
    }

    #[inline]
    pub(crate) fn sched(&self) -> &'static Sched {
        self.sched
    }

    /// Returns the owner's half of the ring. Called on the worker's thread only, as are all functions that touch `own`.
    #[inline]
    pub(super) fn own_ring(&self) -> Owner<'_, Work> {
        debug_assert!(current::worker().is_some_and(|worker| ptr::eq(worker, self)), "called by another thread");
        // SAFETY: the calling thread is the worker's, which alone puts work into the ring.
        unsafe { self.ring.owner() }
    }

    /// Wakes the worker's thread, which has been given work that no other thread can do.
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

    /// Makes the calling thread this worker, and runs goroutines for ever.
    pub(crate) fn run_thread(&'static self) -> ! {
        self.looking.store(true, Ordering::Relaxed); // the worker has nothing to do yet
        self.enter_thread();
        self.wait_for_work();
        loop {
            self.run();
        }
    }

    /// Runs goroutines for ever; in a bubble, until the bubble is at rest.
    pub(crate) fn run(&'static self) {
        loop {
            match self.own.chosen.take().or_else(|| self.pick()) {
                Some(Chosen::Fibre(fibre)) => self.resume(fibre),
                Some(Chosen::Work(work)) => {
                    let fibre = self.fibre_for(work.stack_size());
                    fibre.work.set(Some(work));
                    self.resume(fibre);
                }
                Some(Chosen::Dump) => self.answer_dump(),
                None if self.own.dump.is_wanted() => {}
                None if self.wait_for_work() == Rest::AtRest => return,
                None => {}
            }
        }
    }

    #[cold]
    fn answer_dump(&'static self) {
        if let Some(answer) = ANSWER.get() {
            answer(self);
        }
    }

    #[inline]
    pub(crate) fn resume(&'static self, fibre: &'static Fibre) {
        fibre.state.set(State::Running);
        self.counters.runs(&fibre.readied);
        current::resume(fibre);
        if !fibre.usual && fibre.state.get() == State::Spare {
            self.forget(fibre);
        }
    }

    /// Returns the next fibre or work to run, if this worker knows of any.
    #[inline(always)]
    fn pick(&'static self) -> Option<Chosen> {
        let own = &*self.own;
        // A load and a store are enough: the owner alone writes, and the watcher only reads.
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
            // The chosen goroutine inherits the slice of the goroutine that readied this one. Queue the chosen
            // goroutine if that slice is over: otherwise two goroutines that ready each other would keep all others
            // out.
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
        // No age says whether work in the global queue is older than goroutines: both take turns.
        let is_turn_of_work = tick.is_multiple_of(2) && self.sched().has_global_work();
        if (is_turn_of_work || own.run_queue.first().is_none_or(ring_is_older))
            && let Some(work) = self.next_work()
        {
            // Goroutines that `fire_timers` has put in front, and that have not run, stay the first of the run queue.
            if own.fired.get() == 1 {
                own.fired.set(0);
            }
            return Some(Chosen::Work(work));
        }
        let fired = own.fired.get();
        if fired > 0 {
            own.fired.set(fired - 1);
        }
        own.run_queue.pop().map(Chosen::Fibre).or_else(|| self.poll_local_sources())
    }

    /// Queues a fibre behind all work that is queued on this worker.
    #[inline]
    pub(super) fn queue(&self, fibre: &'static Fibre) {
        fibre.behind.set(self.ring.tail() as u16);
        self.own.run_queue.push(fibre);
    }

    /// Queues the goroutine that has yielded, if there is one, behind all work that is ready.
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
        if self.own.passes_ring.get()
            && let Some(work) = self.pass_ring()
        {
            return Some(work);
        }
        if let Some(work) = self.own_ring().pop() {
            return Some(work);
        }
        if self.sched().has_global_work() { self.next_global() } else { None }
    }

    /// Takes a piece of work from the global queue, as the ring has no room for that piece.
    #[cold]
    fn pass_ring(&'static self) -> Option<Work> {
        self.own.passes_ring.set(false);
        if self.is_enabled() { self.sched().pop_global(1).next() } else { None }
    }

    #[cold]
    fn next_global(&'static self) -> Option<Work> {
        self.take_global();
        self.own_ring().pop()
    }

    /// Makes the next choice, and returns the chosen work if that is work for a stack of the default size. Leaves any
    /// other choice, such as a started goroutine, to the worker's loop. Called by a fibre whose goroutine has ended.
    #[inline]
    pub(crate) fn pick_work(&'static self) -> Option<Work> {
        match self.pick()? {
            Chosen::Work(work) if work.stack_size().is_none() => Some(work),
            chosen => {
                self.own.chosen.set(Some(chosen));
                None
            }
        }
    }

    /// Looks at all sources of work at which `pick` does not look, so that no work waits for ever. Also trims spare
    /// stacks.
    #[cold]
    fn poll_slow_sources(&'static self) {
        self.mark_for_trace();
        _ = self.processor.take();
        let asked = self.is_asked();
        if asked && self.own.next.get().is_none() {
            // A slice begins: have the first call of that slice look at the clock. (If `next` is set, no slice begins,
            // and `is_slice_over` looks at the clock.)
            self.asked.store(false, Ordering::Relaxed);
            self.own.pace.look_soon();
        }
        self.fire_timers();
        if netpoll::is_awaited() {
            current::without_switching(netpoll::poll_now);
        }
        if self.sched().has_global_work() {
            // Work that queues itself again can keep the ring full for ever. Then a piece of the global queue runs without the
            // ring, whose older half overflows when that piece is queued again; so the ring takes from the global queue next
            // time. Go's `schedule` asks the global queue first every 61st time.
            self.own.passes_ring.set(self.ring.room() == 0);
            self.take_global();
        }
        if !self.is_enabled() {
            self.empty_ring();
        }
        if asked && self.wants_trim() {
            self.trim(system::now());
        }
    }

    /// Marks the suspended fibres as observed, if a trace has begun since the last call.
    #[inline]
    fn mark_for_trace(&self) {
        let traces = switch_hooks::traces();
        if self.own.traces.replace(traces) != traces {
            self.mark_suspended();
        }
    }

    #[cold]
    fn mark_suspended(&self) {
        let is_suspended = |fibre: &&Fibre| matches!(fibre.state.get(), State::Parked | State::Queued);
        self.fibres().filter(|fibre| is_suspended(fibre)).for_each(|fibre| fibre.observed.join());
    }

    /// Looks for goroutines whose timers are due. Called when the queues are empty.
    #[cold]
    fn poll_local_sources(&'static self) -> Option<Chosen> {
        self.fire_timers();
        self.own.run_queue.pop().map(Chosen::Fibre)
    }

    // ---- fibres ----------------------------------------------------------------------------------------------------

    /// Notes that a goroutine begins, or that a task is polled.
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

    /// Notes that a goroutine has ended, and drops the goroutine's locals.
    #[inline]
    pub(crate) fn end(&self, fibre: &'static Fibre) {
        self.end_poll(fibre);
        fibre.vtable.set(job::Vtable::TASK);
        fibre.together.set(false);
        self.count_end();
    }

    /// Notes that a poll has ended.
    #[inline]
    pub(crate) fn end_poll(&self, fibre: &'static Fibre) {
        self.own.first_blocks.set(0);
        self.population.store(self.population.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        locals::clear(&fibre.locals);
        fibre.name.set(None);
    }

    /// Counts the end of a goroutine or task.
    #[inline]
    pub(crate) fn count_end(&self) {
        count(&self.ended);
    }

    /// Counts a new goroutine or task.
    #[inline]
    pub(crate) fn count_made(&self) {
        count(&self.made);
    }

    // ---- what goroutines ask of their worker ---------------------------------------------------------------------

    /// Queues work for any worker.
    #[inline]
    pub(crate) fn submit(&'static self, work: Work) {
        match self.own_ring().push(work) {
            Ok(()) => self.sched().wake_for_fresh_work(),
            Err(work) => self.overflow(work),
        }
    }

    #[cold]
    fn overflow(&'static self, work: Work) {
        let works = self.own_ring().take_half();
        self.sched().push_global(works.chain([work]));
        self.sched().wake_for_work();
    }

    /// Moves all work in the ring to the global queue, for other workers.
    pub(crate) fn empty_ring(&'static self) {
        let works = std::iter::from_fn(|| self.own_ring().pop());
        self.sched().push_global(works);
        self.sched().wake_for_work();
    }

    /// Readies a goroutine of this worker. If `front` is true, the goroutine runs next.
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

    /// Marks a fibre as queued. The caller puts the fibre into a queue of this worker.
    #[inline]
    pub(crate) fn set_queued(&self, fibre: &'static Fibre, why: ParkResult) {
        fibre.unparked.set(why);
        fibre.state.set(State::Queued);
        self.counters.is_readied(&fibre.readied);
        if fibre.observed.get() {
            self.observe_queued(fibre, why);
        }
        self.own.first_blocks.set(0);
    }

    /// Tells the observers of switches that a fibre of this worker has come into a queue of this worker.
    #[cold]
    fn observe_queued(&self, fibre: &Fibre, why: ParkResult) {
        self.stall.is_queued();
        if switch_hooks::is_traced() {
            self.record_queued(fibre, why);
        }
    }

    /// Records, for a trace, why a fibre of this worker has come into a queue of this worker.
    fn record_queued(&self, fibre: &Fibre, why: ParkResult) {
        if fibre.has_work() {
            return; // the fibre is about to begin a goroutine, which has no number yet
        }
        match why {
            ParkResult::Unparked => current::record_ready(fibre),
            ParkResult::TimedOut => steps::expires(fibre.id.get()),
        }
    }

    /// Yields for the running goroutine: all other goroutines that are ready on this worker have a turn first.
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
                // SAFETY: `link` is the link of a fibre: the inbox has only fibres and the note, and `link` is not the
                // note.
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

    /// Gives the work a fibre of this worker, and returns that fibre. From then on the work cannot be stolen. The fibre
    /// is queued behind all that is ready; if `front` is true, the fibre runs next.
    pub(crate) fn start_on(&'static self, work: Work, front: bool) -> &'static Fibre {
        let fibre = self.fibre_for(work.stack_size());
        fibre.work.set(Some(work));
        fibre.observed.begin(switch_hooks::is_observed()); // the wait to begin is observed, too
        self.enqueue(fibre, ParkResult::Unparked, front);
        fibre
    }

    /// Moves this worker's share of the global queue into the ring, as far as the ring has room, unless `set_max_procs`
    /// has made this worker surplus.
    #[cold]
    fn take_global(&'static self) {
        if !self.is_enabled() {
            return;
        }
        for work in self.sched().pop_global(self.ring.room().min(BATCH)) {
            if let Err(work) = self.own_ring().push(work) {
                self.overflow(work); // never, as the owner alone takes room
            }
        }
    }

    /// Returns whether this worker may do work that others could do too. False if `set_max_procs` has made this worker
    /// surplus.
    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.index < self.sched.procs()
    }

    /// Returns whether the worker has queued work that came from others, or that others may take.
    pub(crate) fn has_shared_work(&self) -> bool {
        !self.ring.is_empty() || !self.inbox.is_empty()
    }

    /// Returns whether a started goroutine is queued on this worker.
    pub(crate) fn has_started_work(&self) -> bool {
        self.own.next.get().is_some() || self.own.yielder.get().is_some() || !self.own.run_queue.is_empty()
    }

    /// Returns whether any work is queued for this worker. Looks at every queue, as a goroutine may skip a yield only
    /// if all are empty.
    pub(crate) fn has_work(&self) -> bool {
        self.has_started_work() || self.has_shared_work() || self.sched().has_global_work()
    }
}
