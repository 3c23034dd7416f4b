//! The machine: its threads, its clock, and the code that both ways of running a program share.
//!
//! Simulated threads are coroutines of a single thread of the process. All effects of a simulated thread on another go
//! through the functions below. There are two ways to decide which thread runs:
//!
//! | | [`timed`] | [`explored`] |
//! |---|---|---|
//! | runs | the processor with the earliest clock, ties by number | the thread that a seed chooses, at each step |
//! | time | costs of memory and of the system, on the chosen number of processors | ten nanoseconds a step, and jumps |
//! | answers | how much the program costs, how fair the program is | whether the program is correct |
//!
//! Both are exact: a seed and a program give the same execution on any computer.
//!
//! A step takes effect when it is issued, in the order of the processors' clocks. The cost of the step is added to the
//! clock of the processor afterwards. So memory is sequentially consistent.

pub(crate) mod cache;
pub(crate) mod explored;
pub(crate) mod freed;
mod limited;
pub(crate) mod preset;
pub(crate) mod region;
mod stack;
pub(crate) mod timed;

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr;
use std::time::Duration;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::arena::{self, Step};

pub(crate) use self::cache::Access;
use self::cache::{Request, Served, Traffic};
use self::explored::Explored;
use self::freed::frame;
use self::preset::Preset;
use self::region::Region;
use self::stack::Stack;
use self::timed::Timed;

/// The number of a simulated thread.
pub(crate) type ThreadId = usize;

thread_local! {
    static MACHINE: Cell<*mut Machine> = const { Cell::new(ptr::null_mut()) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The thread runs, or could run.
    Ready,
    /// The thread sleeps on the futex at this address, until a wake-up or until its deadline.
    Waits(usize),
    /// The thread sleeps until its deadline.
    Sleeps,
    /// The thread spins, and none of the lines that it reads has changed.
    Spins,
    Done,
}

/// The way in which a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Woken,
    TimeIsUp,
}

type Body = Box<dyn FnOnce()>;

pub(crate) struct Thread {
    name: Option<String>,
    /// The place where the thread was spawned. None for the first thread.
    started: Option<&'static Location<'static>>,
    pub(crate) state: State,
    pub(crate) ended: Ended,
    /// The number of sleeps of this thread so far. A timer that was set for an earlier sleep is ignored.
    pub(crate) sleep: u64,
    /// The latest time at which the sleep ends, in the units of the clock.
    pub(crate) deadline: Option<u64>,
    /// The place of the latest step; at first, the place where the thread was started.
    place: &'static Location<'static>,
    /// The address at which the thread's frames end, while the thread is suspended. 0: the thread has not run yet.
    frame: usize,
    /// The access of this thread that has not taken effect yet. Used only if the machine has costs.
    request: Option<Requested>,
    spin: Spin,
    /// True if the thread asks for an extension of its slice: see [`request_slice_extension`].
    pub(super) requests_extension: bool,
    locals: Vec<(usize, Box<dyn Any>)>,
    yielder: *const Yielder<(), ()>,
    coroutine: Option<Coroutine<(), (), (), Stack>>,
}

/// An access that a thread waits for.
#[derive(Clone, Copy, Debug)]
struct Requested {
    address: usize,
    kind: Access,
    /// The line and the time at which the thread goes on, if the access has missed.
    missed: Option<(u32, u64)>,
}

/// The lines that a thread has read in its latest pauses, while it did nothing else.
#[derive(Clone, Copy, Debug, Default)]
struct Spin {
    lines: [u32; 4],
    /// The version of each line at the first read in the latest round that read the line, and the number of that round.
    seen: [(u32, u32); 4],
    len: usize,
    /// The number of rounds. A round is a read with a pause after it. In all these rounds the thread has only loaded
    /// from `lines`, and all loads were hits.
    rounds: u32,
    /// True if the thread has read a line since the last pause.
    looked: bool,
    /// The time at which the last round ended.
    at: u64,
    /// True if the thread has done anything else since the last round ended.
    busy: bool,
}

impl Spin {
    fn look(&mut self, line: u32, version: u32) {
        self.looked = true;
        let now = (version, self.rounds);
        if let Some(known) = self.lines[..self.len].iter().position(|known| *known == line) {
            if self.seen[known].1 != self.rounds {
                self.seen[known] = now;
            }
            return;
        }
        if let Some(free) = self.lines.get_mut(self.len) {
            *free = line;
            self.seen[self.len] = now;
            self.len += 1;
        } else {
            self.busy = true;
        }
    }
}

/// The number of rounds after which a thread counts as a thread that spins until a line changes. A loop that gives up
/// after some number of reads gives up earlier, or reads the clock meanwhile.
const SPINS_FOR_EVER: u32 = 512;

/// The reason why a machine stopped before its program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No thread can run, and no timer is set.
    Deadlock,
    /// The simulated time is up.
    OutOfTime,
    /// The program made this many decisions without ending. Only if schedules are explored.
    OutOfDecisions(u64),
    /// The program accessed memory that has been freed, or the frame of a function that has returned. The text
    /// describes the access. Only if schedules are explored.
    FreedMemory(String),
}

/// A program that did not end: the reason, and the places of its threads.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// The reason.
    pub why: Why,
    /// The simulated time.
    pub at: Duration,
    /// The threads that have not ended.
    pub threads: Vec<ThreadReport>,
}

/// The place of a thread that has not ended.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// The thread's name; "thread" and the thread's number, if there is no name.
    pub name: String,
    /// The place in the program where the thread was spawned; empty for the first thread.
    pub started: String,
    /// The event that the thread waits for.
    pub waits_for: String,
    /// The place of the thread's latest step.
    pub place: String,
    /// The thread's stack: without names, if the program has no debug information.
    pub backtrace: String,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Deadlock => f.write_str("deadlock: no thread can run, and no timer is set"),
            Why::OutOfTime => f.write_str("the simulated time is up"),
            Why::OutOfDecisions(most) => write!(f, "no end after {most} decisions"),
            Why::FreedMemory(what) => f.write_str(what),
        }?;
        write!(f, " (at {:?})", self.at)?;
        for thread in &self.threads {
            write!(f, "\n  {} {}, at {}", thread.name, thread.waits_for, thread.place)?;
            if !thread.started.is_empty() {
                write!(f, "; spawned at {}", thread.started)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Stopped {}

pub(crate) enum Mode {
    Timed(Box<Timed>),
    Explored(Box<Explored>),
}

pub(crate) struct Machine {
    pub(crate) preset: Preset,
    pub(crate) mode: Mode,
    pub(crate) threads: Vec<Thread>,
    /// The thread that runs.
    pub(crate) current: ThreadId,
    /// The clock of the processor that runs, in cycles; in nanoseconds, if schedules are explored.
    pub(crate) clock: u64,
    /// The threads that sleep on each futex, by the futex's address, in the order of their arrival.
    pub(crate) sleepers: HashMap<usize, VecDeque<ThreadId>>,
    /// The number of each address that a report or a trace mentions: addresses themselves differ between processes.
    words: HashMap<usize, usize>,
    /// The buckets of the system's futex table that are locked: see [`preset::Details::futex`].
    locked_buckets: HashSet<usize>,
    region: Region,
    limit: u64,
    random: u64,
    pub(crate) stop: Option<Why>,
    reports: Vec<ThreadReport>,
}

/// Returns the machine that runs on this thread of the process, or null.
#[inline]
fn current() -> *mut Machine {
    MACHINE.get()
}

/// Returns true inside a simulation.
#[inline]
#[must_use]
pub fn is_simulated() -> bool {
    !current().is_null()
}

/// Calls `f` with the machine. `f` must not suspend the thread, nor call this function.
#[inline]
fn with<R>(f: impl FnOnce(&mut Machine) -> R) -> R {
    let machine = current();
    assert!(!machine.is_null(), "a simulation runs");
    // SAFETY:
    // - the machine lives as long as the simulation, and only this thread uses the machine;
    // - `f` neither suspends nor calls this function, so this is the only reference to the machine.
    f(unsafe { &mut *machine })
}

// The operations of threads.

/// Makes a step: an access to the memory at this address.
#[inline]
pub(crate) fn access(address: usize, kind: Access, place: &'static Location<'static>) {
    if is_simulated() {
        access_simulated(address, kind, place);
    }
}

fn access_simulated(address: usize, kind: Access, place: &'static Location<'static>) {
    let is_explored = with(|machine| {
        machine.here().place = place;
        matches!(machine.mode, Mode::Explored(_))
    });
    if is_explored { access_explored(address, kind) } else { access_timed(address, kind) }
}

fn access_explored(address: usize, kind: Access) {
    let frame = frame();
    order(address, kind, frame);
    let freed = with(|machine| {
        machine.tell_arena();
        machine.meets_freed_memory(address, kind.name(), frame)
    });
    if freed {
        suspend(frame);
    }
}

fn access_timed(address: usize, kind: Access) {
    order(address, kind, 0);
    let waits = with(|machine| {
        machine.here().request = Some(Requested { address, kind, missed: None });
        !machine.goes_on()
    });
    if waits {
        // Wait until the access has taken effect.
        suspend(0);
    }
}

/// Checks an access that is no step, to memory that must not be freed.
#[inline]
pub(crate) fn plain_access(address: usize, what: &'static str, place: &'static Location<'static>) {
    if arena::keeps() && is_simulated() {
        plain_access_explored(address, what, place);
    }
}

fn plain_access_explored(address: usize, what: &'static str, place: &'static Location<'static>) {
    let frame = frame();
    let freed = with(|machine| {
        let step = std::mem::replace(&mut machine.here().place, place);
        let freed = machine.meets_freed_memory(address, what, frame);
        if !freed {
            machine.here().place = step;
        }
        freed
    });
    if freed {
        suspend(frame);
    }
}

/// Waits until this thread's step is the next. The thread's frames end at `frame`, if schedules are explored.
fn order(address: usize, kind: Access, frame: usize) {
    loop {
        let (waits, again) = with(|machine| match &mut machine.mode {
            Mode::Timed(timed) => (!timed.is_next(machine.clock), true),
            Mode::Explored(_) => (machine.switches_at_step(address, kind), false),
        });
        if waits {
            suspend(frame);
        }
        if !(waits && again) {
            return;
        }
    }
}

/// Executes a full fence.
pub(crate) fn fence(place: &'static Location<'static>) {
    if is_simulated() {
        with(|machine| {
            machine.here().place = place;
            if let Mode::Timed(timed) = &mut machine.mode {
                machine.clock = timed.drained(machine.clock) + machine.preset.memory.rmw;
            }
        });
    }
}

/// Does work that touches no shared memory, for this number of cycles.
pub fn work(cycles: u64) {
    if is_simulated() {
        let mut left = cycles;
        while left > 0 {
            let done = with(|machine| match &mut machine.mode {
                Mode::Timed(timed) => timed.work(&mut machine.clock, left),
                Mode::Explored(_) => left,
            });
            left -= done;
            if left > 0 {
                suspend(frame()); // the slice of time has ended, and others wait
            }
        }
    }
}

/// Pauses once in a spin loop.
pub(crate) fn pause() {
    if !is_simulated() {
        return std::hint::spin_loop();
    }
    let sleeps = with(|machine| match &mut machine.mode {
        Mode::Timed(_) => {
            machine.clock += machine.preset.memory.pause;
            machine.spins_for_ever()
        }
        Mode::Explored(_) => machine.gives_way(),
    });
    if sleeps {
        suspend(frame());
    }
}

/// Lets another thread of this processor run.
pub fn yield_now() {
    if !is_simulated() {
        return std::thread::yield_now();
    }
    order(0, Access::Load, frame());
    let gives_way = with(|machine| {
        machine.clock += machine.system(machine.preset.system.syscall);
        machine.gives_way()
    });
    if gives_way {
        suspend(frame());
    }
}

/// Asks the system to extend the calling thread's slice of time once, by 5 us at most, if the slice ends before the thread
/// calls [`end_slice_extension`]. Costs a store. The rseq area of Linux 7.0 has such a request.
pub fn request_slice_extension() {
    if is_simulated() {
        with(|machine| {
            machine.here().requests_extension = true;
            machine.clock += machine.preset.memory.store;
        });
    }
}

/// Withdraws the request of [`request_slice_extension`]. If the slice has been extended, gives way to another thread.
/// Costs a store and a load.
pub fn end_slice_extension() {
    if is_simulated() {
        with(|machine| {
            machine.here().requests_extension = false;
            machine.clock += machine.preset.memory.store + machine.preset.memory.load;
        });
        enter_system(frame());
    }
}

/// Gives way to another thread, if this thread's slice has been extended: Linux ends an extension at the entry of each
/// system call.
fn enter_system(frame: usize) {
    let gives_way = with(|machine| {
        let is_extended = match &mut machine.mode {
            Mode::Timed(timed) => timed.end_extension(),
            Mode::Explored(_) => false,
        };
        if is_extended {
            machine.clock += machine.system(machine.preset.system.syscall);
        }
        is_extended && machine.gives_way()
    });
    if gives_way {
        suspend(frame);
    }
}

/// Returns the simulated time since the machine began, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    with(|machine| {
        machine.here().spin.busy = true;
        match machine.mode {
            Mode::Timed(_) => {
                machine.clock += machine.preset.memory.clock;
                machine.preset.ns(machine.clock)
            }
            Mode::Explored(_) => machine.clock,
        }
    })
}

/// Sleeps if `unchanged` returns true: until a wake-up for this address, or until the deadline, in nanoseconds since
/// the machine began. Returns false if the deadline has passed.
pub(crate) fn wait(
    address: usize,
    unchanged: impl FnOnce() -> bool,
    deadline: Option<u64>,
    place: &'static Location<'static>,
) -> bool {
    let frame = frame();
    access_simulated(address, Access::Load, place);
    enter_system(frame);
    with(|machine| machine.clock += machine.system(machine.preset.system.syscall));
    pass_bucket(address);
    order(address, Access::Load, frame);
    let explored = |machine: &Machine| matches!(machine.mode, Mode::Explored(_));
    if with(|machine| explored(machine) && machine.meets_freed_memory(address, "futex wait", frame)) {
        suspend(frame);
    }
    if !unchanged() {
        return true;
    }
    with(|machine| {
        let id = machine.current;
        machine.sleepers.entry(address).or_default().push_back(id);
        machine.sleep(State::Waits(address), deadline);
    });
    suspend(frame);
    with(|machine| machine.here().ended == Ended::Woken)
}

/// Wakes up to `n` threads that sleep on this address.
///
/// The memory at the address may not exist any more: the system uses the address as a key, and does not read the
/// memory. A waker that stores to a word and then wakes the word's waiter cannot avoid this: the waiter may see the
/// store and free the word before the wake-up.
pub(crate) fn wake(address: usize, n: u32) {
    order(address, Access::Rmw, frame());
    enter_system(frame());
    with(|machine| machine.clock += machine.system(machine.preset.system.syscall));
    pass_bucket(address);
    with(|machine| {
        for _ in 0..n {
            let Some(sleeper) = machine.sleepers.get_mut(&address).and_then(VecDeque::pop_front) else { break };
            machine.clock += machine.system(machine.preset.system.wake);
            machine.end_sleep(sleeper, Ended::Woken);
        }
    });
}

/// Locks and unlocks the address's bucket of the system's futex table, if the machine has such a table. The caller then
/// does its work on the queue of the address at once, as the system does inside the lock.
fn pass_bucket(address: usize) {
    /// The time for which a call holds the lock, in nanoseconds: a search and a change of the bucket's list.
    const HOLD: u64 = 50;
    /// The place of the table, where there is no memory of the program.
    const TABLE: usize = 1 << 50;
    let bucket = with(|machine| {
        let buckets = machine.preset.details.futex;
        let is_timed = matches!(machine.mode, Mode::Timed(_));
        let word = (is_timed && buckets > 0).then(|| machine.word(address))?;
        Some((word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % buckets)
    });
    let Some(bucket) = bucket else { return };
    let lock = TABLE + bucket * 64;
    let mut waits = false;
    loop {
        access_timed(lock, Access::Rmw);
        if with(|machine| machine.locked_buckets.insert(bucket)) {
            break;
        }
        if !std::mem::replace(&mut waits, true) {
            with(|machine| {
                if let Mode::Timed(timed) = &mut machine.mode {
                    timed.count_futex_wait()
                }
            });
        }
        pause();
    }
    work(with(|machine| machine.system(HOLD)));
    access_timed(lock, Access::Store);
    with(|machine| machine.locked_buckets.remove(&bucket));
}

/// Sleeps until this number of nanoseconds after the machine began.
pub(crate) fn sleep_until(deadline: u64) {
    let frame = frame();
    order(0, Access::Load, frame);
    with(|machine| machine.sleep(State::Sleeps, Some(deadline)));
    suspend(frame);
}

/// Starts a thread.
pub(crate) fn spawn(name: Option<String>, body: Body, place: &'static Location<'static>) -> std::io::Result<ThreadId> {
    with(|machine| machine.here().place = place);
    order(0, Access::Rmw, frame());
    with(|machine| {
        machine.clock += machine.system(20 * machine.preset.system.syscall);
        machine.start(name, body, Some(place))
    })
}

/// Returns the number of this thread; 0 outside a simulation.
pub(crate) fn thread_id() -> ThreadId {
    if is_simulated() { with(|machine| machine.current) } else { 0 }
}

/// Returns the number of threads that have not ended.
#[must_use]
pub fn live_threads() -> usize {
    with(|machine| machine.threads.iter().filter(|thread| thread.state != State::Done).count())
}

/// Returns the decisions and the steps so far, if schedules are explored.
pub(crate) fn explored_so_far() -> Option<(Vec<explored::Decision>, Option<Vec<explored::TraceStep>>)> {
    if !is_simulated() {
        return None;
    }
    with(|machine| match &machine.mode {
        Mode::Timed(_) => None,
        Mode::Explored(explored) => Some((explored.decisions.clone(), explored.trace.clone())),
    })
}

/// Returns the number of processors of this machine.
#[must_use]
pub(crate) fn processors() -> Option<usize> {
    is_simulated().then(|| {
        with(|machine| match &machine.mode {
            Mode::Timed(timed) => timed.processors(),
            Mode::Explored(_) => 4,
        })
    })
}

/// Returns the processor that runs this thread. If schedules are explored, threads alternate between two processors.
#[must_use]
pub(crate) fn processor() -> Option<usize> {
    is_simulated().then(|| {
        with(|machine| match &machine.mode {
            Mode::Timed(timed) => timed.processor(),
            Mode::Explored(_) => machine.current % 2,
        })
    })
}

/// Returns the socket of the processor that runs this thread. If schedules are explored, threads alternate between two
/// sockets.
#[must_use]
pub fn socket() -> usize {
    with(|machine| match &machine.mode {
        Mode::Timed(timed) => timed.socket(),
        Mode::Explored(_) => machine.current % 2,
    })
}

/// Returns the next of a sequence of random numbers that the seed decides.
#[must_use]
pub fn random() -> u64 {
    with(Machine::random)
}

/// Returns the costs of accesses since the machine began: all zero if schedules are explored.
#[must_use]
pub fn traffic() -> Traffic {
    with(|machine| match &machine.mode {
        Mode::Timed(timed) => timed.traffic(),
        Mode::Explored(_) => Traffic::default(),
    })
}

/// Returns this thread's value for the key. The first call for a key creates the value by `init`, which may call the
/// machine.
pub(crate) fn local<T: 'static>(key: usize, init: impl FnOnce() -> T) -> *const T {
    let find = |machine: &mut Machine| {
        let found = machine.here().locals.iter().find(|local| local.0 == key);
        found.map(|local| ptr::from_ref(local.1.downcast_ref::<T>().expect("a key has one type")))
    };
    with(find).unwrap_or_else(|| {
        let value: Box<dyn Any> = Box::new(init());
        with(|machine| machine.here().locals.push((key, value)));
        with(find).expect("it has just been stored")
    })
}

/// Suspends this thread until the machine runs it again. On a machine that has stopped, the thread reports its place
/// and never returns. The frames of the program end at `frame`: the frames below belong to the machine.
fn suspend(frame: usize) {
    let yielder = with(|machine| {
        machine.here().frame = frame;
        machine.here().yielder
    });
    // SAFETY: `yielder` is the yielder of the coroutine that runs this code, and lives as long as that coroutine runs.
    let yielder = unsafe { &*yielder };
    yielder.suspend(());
    while with(|machine| machine.stop.is_some()) {
        let backtrace = Backtrace::force_capture().to_string();
        with(|machine| machine.report(backtrace));
        yielder.suspend(());
    }
}

impl Machine {
    fn new(preset: Preset, mode: Mode, seed: u64, region: Region, limit: u64) -> Self {
        Self {
            preset,
            mode,
            threads: Vec::new(),
            current: 0,
            clock: 0,
            sleepers: HashMap::new(),
            words: HashMap::new(),
            locked_buckets: HashSet::new(),
            region,
            limit,
            random: seed ^ 0x5851_f42d_4c95_7f2d,
            stop: None,
            reports: Vec::new(),
        }
    }

    fn here(&mut self) -> &mut Thread {
        &mut self.threads[self.current]
    }

    /// Goes on with the pending access of the current thread, if there is one. Returns false if another processor's
    /// step comes before the next step of that access.
    fn goes_on(&mut self) -> bool {
        while let Some(request) = self.here().request {
            let (clock, Requested { address, kind, missed }) = (self.clock, request);
            let Mode::Timed(timed) = &mut self.mode else { unreachable!("schedules are not explored") };
            if !timed.is_next(clock) {
                return false;
            }
            let answer = match missed {
                None => timed.request(&self.preset, address, kind, clock),
                // If the thread has lost its processor in the meantime, its access is done late.
                Some((line, done)) => timed.reach(&self.preset, line, kind, clock, clock.max(done)),
            };
            match answer {
                Request::Hit(served) => {
                    self.here().request = None;
                    self.served(kind, &served, missed.is_none());
                }
                Request::Later { at } => self.clock = at,
                Request::Miss { line, reaches, done } => {
                    self.clock = reaches;
                    self.here().request = Some(Requested { missed: Some((line, done)), ..request });
                }
            }
        }
        true
    }

    /// Records that the access of the current thread takes effect.
    fn served(&mut self, kind: Access, served: &Served, hit: bool) {
        let Mode::Timed(timed) = &mut self.mode else { return };
        self.clock = served.done;
        let spin = &mut self.threads[self.current].spin;
        if kind == Access::Load && hit {
            spin.look(served.line, timed.version(served.line));
        } else {
            spin.busy = true;
        }
        if served.changed {
            self.wake_spinners(served.line);
        }
    }

    /// Tells the arena that blocks freed from now on are freed by this thread, after this step.
    fn tell_arena(&self) {
        let (thread, place, at) = (self.current, self.threads[self.current].place, self.clock);
        arena::step(Step { thread, place, at });
    }

    /// Returns the thread that runs next. Returns None if no thread will ever run again, or if the time is up.
    fn next(&mut self) -> Option<ThreadId> {
        match self.mode {
            Mode::Timed(_) => timed::next(self),
            Mode::Explored(_) => explored::next(self),
        }
    }

    /// Records that the running thread is suspended, or has ended.
    fn suspended(&mut self) {
        match self.mode {
            Mode::Timed(_) => timed::suspended(self),
            Mode::Explored(_) => explored::suspended(self),
        }
    }

    /// Converts a duration of the system to the units of the clock.
    pub(crate) fn system(&self, ns: u64) -> u64 {
        match self.mode {
            Mode::Timed(_) => self.preset.cycles(ns),
            Mode::Explored(_) => 0,
        }
    }

    /// Converts a point of time to the units of the clock.
    fn at(&self, ns: u64) -> u64 {
        match self.mode {
            Mode::Timed(_) => self.preset.cycles(ns),
            Mode::Explored(_) => ns,
        }
    }

    /// Returns the next random number, by SplitMix64.
    pub(crate) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn start(
        &mut self,
        name: Option<String>,
        body: Body,
        started: Option<&'static Location<'static>>,
    ) -> std::io::Result<ThreadId> {
        let id = self.threads.len();
        let coroutine = Coroutine::with_stack(Stack::new(self.region, id)?, move |yielder: &Yielder<(), ()>, ()| {
            with(|machine| machine.here().yielder = yielder);
            body();
            // Pop the values one at a time: destructors of thread-locals may wait, and may create other thread-locals.
            while let Some((_, value)) = with(|machine| machine.here().locals.pop()) {
                drop(value);
            }
            with(|machine| machine.here().state = State::Done);
        });
        self.threads.push(Thread {
            name,
            started,
            state: State::Ready,
            ended: Ended::Woken,
            sleep: 0,
            deadline: None,
            place: started.unwrap_or(Location::caller()),
            frame: 0,
            request: None,
            spin: Spin::default(),
            requests_extension: false,
            locals: Vec::new(),
            yielder: ptr::null(),
            coroutine: Some(coroutine),
        });
        self.make_ready(id);
        Ok(id)
    }

    /// Marks a thread as able to run again, from now on.
    fn make_ready(&mut self, id: ThreadId) {
        self.threads[id].state = State::Ready;
        match &mut self.mode {
            Mode::Timed(timed) => timed.make_ready(&self.preset, id, self.clock),
            Mode::Explored(explored) => explored.make_ready(id),
        }
    }

    /// Puts the current thread to sleep from now on.
    fn sleep(&mut self, state: State, deadline_ns: Option<u64>) {
        let deadline = deadline_ns.map(|ns| self.at(ns));
        let id = self.current;
        let thread = &mut self.threads[id];
        thread.state = state;
        thread.sleep += 1;
        thread.deadline = deadline;
        let sleep = thread.sleep;
        if let (Mode::Timed(timed), Some(deadline)) = (&mut self.mode, deadline) {
            timed.set_timer(deadline.max(self.clock), id, sleep);
        }
        if let Mode::Explored(explored) = &mut self.mode {
            explored.make_unready(id);
        }
    }

    /// Ends the sleep of a thread that is in no queue of a futex any more.
    fn end_sleep(&mut self, id: ThreadId, ended: Ended) {
        self.threads[id].ended = ended;
        self.threads[id].deadline = None;
        self.make_ready(id);
    }

    /// Ends the sleep of a thread whose deadline has come.
    fn time_is_up(&mut self, id: ThreadId) {
        if let State::Waits(address) = self.threads[id].state
            && let Some(queue) = self.sleepers.get_mut(&address)
        {
            queue.retain(|sleeper| *sleeper != id);
        }
        self.end_sleep(id, Ended::TimeIsUp);
    }

    /// Records a pause of the current thread. Returns true if the thread is to sleep until a line that it reads
    /// changes.
    fn spins_for_ever(&mut self) -> bool {
        let id = self.current;
        let clock = self.clock;
        let spin = &mut self.threads[id].spin;
        if spin.busy {
            *spin = Spin { at: clock, ..Spin::default() };
            return false;
        }
        if !std::mem::take(&mut spin.looked) {
            return false; // the thread waits by pauses alone, and will read later
        }
        spin.rounds += 1;
        let period = clock - std::mem::replace(&mut spin.at, clock);
        if spin.rounds < SPINS_FOR_EVER {
            return false;
        }
        let spin = std::mem::replace(spin, Spin { at: clock, ..Spin::default() });
        let Mode::Timed(timed) = &mut self.mode else { return false };
        // A round may read several lines, and other threads run between these reads. Check the versions, so that no
        // write is missed.
        let lines = &spin.lines[..spin.len];
        if lines.iter().zip(&spin.seen).any(|(line, seen)| timed.version(*line) != seen.0) {
            return false;
        }
        timed.spin(lines, id, period.max(1), clock);
        self.threads[id].state = State::Spins;
        true
    }

    fn wake_spinners(&mut self, line: u32) {
        if let Mode::Timed(timed) = &mut self.mode {
            for id in timed.wake_spinners(line, self.clock) {
                self.threads[id].state = State::Ready;
            }
        }
    }

    /// Returns the number of an address, from 1 on, by the order of first mention; 0 is no address.
    pub(crate) fn word(&mut self, address: usize) -> usize {
        let next = self.words.len() + 1;
        if address == 0 { 0 } else { *self.words.entry(address).or_insert(next) }
    }

    fn report(&mut self, backtrace: String) {
        let futex = match self.here().state {
            State::Waits(address) => self.word(address),
            _ => 0,
        };
        let thread = &self.threads[self.current];
        let waits_for = match thread.state {
            State::Waits(_) => format!("sleeps on futex {futex}"),
            State::Sleeps => "sleeps".into(),
            State::Spins => "spins on a line that no thread changes".into(),
            State::Ready | State::Done => "could run".into(),
        };
        let name = thread.name.clone().unwrap_or_else(|| format!("thread {}", self.current));
        let started = thread.started.map(ToString::to_string).unwrap_or_default();
        self.reports.push(ThreadReport { name, started, waits_for, place: thread.place.to_string(), backtrace });
    }

    /// Describes a thread by its number, and by its name if there is a name.
    fn describe(&self, id: ThreadId) -> String {
        match &self.threads[id].name {
            Some(name) => format!("thread {id} ({name})"),
            None => format!("thread {id}"),
        }
    }
}

/// Runs a thread until it suspends itself or ends.
fn resume(id: ThreadId) {
    // Take the coroutine out of the machine: the running thread uses the machine.
    let mut coroutine = with(|machine| {
        machine.current = id;
        if matches!(machine.mode, Mode::Explored(_)) {
            machine.tell_arena();
        }
        machine.threads[id].coroutine.take().expect("it does not run")
    });
    let result = coroutine.resume(());
    let suspended = matches!(result, CoroutineResult::Yield(())).then_some(coroutine);
    with(|machine| machine.threads[id].coroutine = suspended);
}

/// Runs `main` as the first thread of a machine, until `main` returns. The other threads stop then.
pub(crate) fn run<T: 'static>(
    preset: Preset,
    mode: Mode,
    seed: u64,
    limit_ns: u64,
    main: impl FnOnce() -> T + 'static,
) -> (Result<std::thread::Result<T>, Stopped>, Duration, Mode) {
    assert!(!is_simulated(), "one simulation inside another");
    let region = Region::new().expect("addresses for a machine");
    arena::begin(region.arena(), matches!(mode, Mode::Explored(_)));
    let mut machine = Machine::new(preset, mode, seed, region, 0);
    machine.limit = machine.at(limit_ns);
    let machine = Box::into_raw(Box::new(machine));
    let result = std::rc::Rc::new(Cell::new(None));
    let theirs = result.clone();
    MACHINE.set(machine);
    let body = move || theirs.set(Some(catch_unwind(AssertUnwindSafe(main))));
    with(|machine| machine.start(Some("main".into()), Box::new(body), None)).expect("memory for a stack");
    loop {
        if with(|machine| machine.threads[0].state == State::Done || machine.stop.is_some()) {
            break;
        }
        match with(|machine| if machine.clock > machine.limit { None } else { machine.next() }) {
            // Go on with the access without switching to its thread: a switch costs as much as the rest.
            Some(id) => {
                let goes_on = with(|machine| {
                    machine.current = id;
                    machine.goes_on()
                });
                if goes_on {
                    resume(id);
                }
            }
            None => {
                let too_late = |machine: &Machine| machine.clock > machine.limit;
                let why = |machine: &Machine| if too_late(machine) { Why::OutOfTime } else { Why::Deadlock };
                with(|machine| machine.stop = machine.stop.take().or_else(|| Some(why(machine))));
                break;
            }
        }
        with(Machine::suspended);
    }
    let stopped = with(|machine| machine.stop.clone()).map(|why| {
        for id in 0..with(|machine| machine.threads.len()) {
            // Skip a thread that has not begun: there is nothing to report.
            if with(|machine| machine.threads[id].state != State::Done && !machine.threads[id].yielder.is_null()) {
                resume(id);
            }
        }
        let at = with(|machine| machine.elapsed());
        Stopped { why, at, threads: with(|machine| std::mem::take(&mut machine.reports)) }
    });
    MACHINE.set(ptr::null_mut());
    // SAFETY: the pointer is from `into_raw` above, and nothing refers to the machine any more.
    let mut machine = unsafe { Box::from_raw(machine) };
    for thread in &mut machine.threads {
        // Leak the stacks and the thread-locals of threads that have not ended: statics may refer to the values there.
        std::mem::forget(thread.coroutine.take());
        std::mem::forget(std::mem::take(&mut thread.locals));
    }
    let elapsed = machine.elapsed();
    let Machine { mode, .. } = *machine;
    match (stopped, result.take()) {
        (Some(stopped), _) => (Err(stopped), elapsed, mode),
        (None, Some(result)) => (Ok(result), elapsed, mode),
        (None, None) => unreachable!("main has ended"),
    }
}

impl Machine {
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(match self.mode {
            Mode::Timed(_) => self.preset.ns(self.clock),
            Mode::Explored(_) => self.clock,
        })
    }
}
