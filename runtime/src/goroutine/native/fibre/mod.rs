//! A fibre: a stack with a control block, and the goroutine that runs on the stack.
//!
//! ```text
//!  low                                                                                high
//!  ┌───────┬─────────────────────────────────┬───────────────────────────────┬────────┐
//!  │ guard │ room                     ◀ grows│ goroutine's frames  body, loop │ Fibre  │
//!  └───────┴─────────────────────────────────┴───────────────────────────────┴────────┘
//! ```
//!
//! The control block [`Fibre`] is at the high end of the stack, so that a blocked goroutine costs one page. A fibre
//! belongs to one worker as long as it exists, and runs one goroutine after another. When a goroutine has ended and the
//! next piece of work has not started yet, the fibre runs that work at once. Otherwise the fibre goes to its worker's
//! list of spare fibres, and keeps its stack.
//!
//! | state | the fibre is | next state |
//! |---|---|---|
//! | `Spare` | in the list of spare fibres | `Running`, with work in its `work` |
//! | `Running` | running on its worker | `Parked`, `Queued` (the goroutine yields) or `Spare` |
//! | `Parked` | known to the queue in which the goroutine waits, and perhaps in the worker's timers | `Queued`, by `ready` or by the timer |
//! | `Queued` | in the run queue of its worker | `Running` |
//!
//! Only the thread of the fibre's worker touches the fields, except `link` and `worker`. (The deadlock report reads the
//! fields, too, while no worker can wake.) So no field is atomic. And a goroutine that is about to wait may unlock the
//! queue of waiters before the switch to another goroutine: a waker only puts the fibre into the worker's inbox, which
//! the worker's thread reads after the switch.

pub(crate) mod current;
pub(crate) mod job;
pub(crate) mod locals;
pub(crate) mod pool;
pub(crate) mod wait;
#[cfg(debug_assertions)]
pub(crate) mod wait_check;

use crate::shim::system::atomic::AtomicU32;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::ParkResult;
use crate::event::steps;
use crate::goroutine::native::exit::{Goexit, OnPanic};
use crate::goroutine::native::fibre::job::{Details, Packed, SpareMemory, Unpacked, Work};
use crate::goroutine::native::fibre::wait::WaitCell;
use crate::goroutine::native::mains::MAINS;
use crate::goroutine::native::metrics::counters::Readied;
use crate::goroutine::native::sched::progress;
use crate::goroutine::native::sched::stall::Running;
use crate::goroutine::native::sched::timer_heap::{HeapItem, NONE};
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::stack;
use crate::goroutine::native::stack::{Extent, PooledStack};
use crate::goroutine::native::switch_hooks::{self, Entering, Leaving, Observed, Observers};
use crate::goroutine::protocol::inbox::Link;
use crate::panics::drop_payload;
use crate::sema::{self, Wake};
use crate::shim::stacks;

type Routine = Coroutine<(), (), (), PooledStack>;

/// The control block: see the top of this file.
#[repr(C)]
pub(crate) struct Fibre {
    /// The link in an inbox. The first field, so that a pointer to the link is a pointer to the fibre.
    pub(crate) link: Link,
    pub(crate) worker: &'static Worker,
    /// The memory of ended jobs that the worker keeps: a copy of the address, which saves each goroutine an instruction.
    jobs: &'static SpareMemory,
    routine: UnsafeCell<MaybeUninit<Routine>>,
    yielder: Cell<*const Yielder<(), ()>>,
    /// The next fibre in the run queue or in the list of spare fibres.
    pub(crate) next: Cell<Option<&'static Fibre>>,
    /// The neighbours in the list of all fibres of the worker.
    pub(crate) older: Cell<Option<&'static Fibre>>,
    pub(crate) younger: Cell<Option<&'static Fibre>>,
    /// The semaphore of the caller of `run`, once the main goroutine on this fibre has a result: see `run`.
    pub(crate) caller: Cell<Option<NonNull<AtomicU32>>>,
    pub(crate) extent: Extent,
    pub(crate) state: Cell<State>,
    /// The reason why the goroutine goes on.
    pub(crate) unparked: Cell<ParkResult>,
    /// True if a `ready` has come while the goroutine was not parked, for instance after a deadline.
    pub(crate) token: Cell<bool>,
    /// The mark of a goroutine whose latency is measured. Written by the fibre's worker only.
    pub(crate) readied: Readied,
    /// The tail of the worker's ring when the fibre came into the run queue: see `Ring::holds_older_than`.
    pub(crate) behind: Cell<u16>,
    /// The budget left to the futures of the poll that runs here: see [`coop`](crate::goroutine::native::coop).
    pub(crate) budget: Cell<Budget>,
    /// True if the stack is of the default size: then other goroutines may use the fibre again.
    pub(crate) usual: bool,
    /// True if the fibre has run since the stack was last trimmed.
    pub(crate) used: Cell<bool>,
    /// True until the goroutine blocks for the first time.
    pub(crate) fresh: Cell<bool>,
    /// Whether switches are observed. Set when the goroutine begins: see `switch_hooks`.
    pub(crate) observed: Observed,
    /// True if goroutines that this goroutine starts stay on the same worker: see `together`.
    pub(crate) together: Cell<bool>,
    timer: Cell<u32>,
    /// The work that a spare fibre runs when resumed. None: the fibre ends.
    pub(crate) work: Cell<Option<Work>>,
    pub(crate) id: Cell<u64>,
    /// The set of `sudog-csp` to which the goroutine belongs, or null: see `set_active_set`. Written by the goroutine
    /// only, which resets the field to null before the goroutine ends.
    pub(crate) active_set: Cell<*const ()>,
    pub(crate) name: Cell<Option<Arc<str>>>,
    /// The vtable of the closure that the goroutine runs; while no goroutine runs, that of a task.
    pub(crate) vtable: Cell<&'static job::Vtable>,
    pub(crate) wait: WaitCell,
    /// The call that started the goroutine, if stalls were reported or switch hooks were set at that time.
    pub(crate) created_at: Cell<Option<&'static Location<'static>>>,
    /// The goroutine's locals, which this fibre owns.
    pub(crate) locals: locals::Place,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Spare,
    Running,
    Parked,
    Queued,
}

/// The budget of a poll: see the table in `coop.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Budget {
    Unlimited,
    Open,
    Spent,
}

const _: () = assert!(size_of::<Fibre>() <= stack::HEADER && align_of::<Fibre>() <= stack::HEADER_ALIGN);

impl Fibre {
    /// Returns the goroutine's id, followed by the name if the goroutine has a name.
    ///
    /// May be called by the fibre's worker, or while that worker cannot wake.
    pub(crate) fn describe(&self) -> String {
        // A cell cannot lend its value, so take the name out and put the name back.
        let name = self.name.take();
        let text = match &name {
            Some(name) => format!("{} {name:?}", self.id.get()),
            None => self.id.get().to_string(),
        };
        self.name.set(name);
        text
    }

    /// Returns whether the fibre is about to begin a goroutine.
    ///
    /// May be called by the fibre's worker, or while that worker cannot wake.
    pub(crate) fn has_work(&self) -> bool {
        let work = self.work.take();
        let has_work = work.is_some();
        self.work.set(work);
        has_work
    }

    /// Returns the code that started this fibre's goroutine.
    ///
    /// May be called by the fibre's worker, or while that worker cannot wake.
    pub(crate) fn origin(&self) -> &'static str {
        self.vtable.get().origin()
    }

    /// Returns a clone of the goroutine's name, which another thread may use. Called by the fibre's worker.
    pub(crate) fn shared_name(&self) -> Option<Arc<str>> {
        let name = self.name.take();
        self.name.set(name.clone());
        name
    }

    /// Creates a spare fibre that is not in any list yet.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the stack.
    pub(crate) fn new(worker: &'static Worker, size: Option<usize>) -> io::Result<&'static Self> {
        let stack = stack::take(size)?;
        stacks::begins(stack.extent().addresses());
        let place = stack.header().cast::<Self>();
        let fibre = Self {
            link: Link::new(),
            worker,
            jobs: &worker.own.jobs,
            routine: UnsafeCell::new(MaybeUninit::uninit()),
            yielder: Cell::new(ptr::null()),
            next: Cell::new(None),
            behind: Cell::new(0),
            older: Cell::new(None),
            younger: Cell::new(None),
            state: Cell::new(State::Spare),
            unparked: Cell::new(ParkResult::Unparked),
            token: Cell::new(false),
            caller: Cell::new(None),
            extent: stack.extent(),
            usual: size.is_none(),
            used: Cell::new(false),
            fresh: Cell::new(false),
            observed: Observed::new(),
            together: Cell::new(false),
            budget: Cell::new(Budget::Unlimited),
            timer: Cell::new(NONE),
            work: Cell::new(None),
            id: Cell::new(0),
            active_set: Cell::new(ptr::null()),
            name: Cell::new(None),
            vtable: Cell::new(job::Vtable::TASK),
            wait: WaitCell::new(),
            created_at: Cell::new(None),
            locals: Cell::new(None),
            readied: Readied::new(),
        };
        // SAFETY: the header has room and alignment for a fibre, and nothing else uses the header.
        unsafe { place.write(fibre) };
        // SAFETY: `place` was initialised above, and is valid until `finish`. After `finish` nothing uses the fibre.
        let fibre: &'static Self = unsafe { place.as_ref() };
        let routine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| fibre.body(yielder));
        // SAFETY: only this thread knows the fibre, so nothing else uses `routine`.
        unsafe { (*fibre.routine.get()).write(routine) };
        Ok(fibre)
    }

    /// Runs one goroutine after another. The entry function of the stack.
    fn body(&'static self, yielder: &Yielder<(), ()>) {
        self.yielder.set(yielder);
        while let Some(work) = self.work.take() {
            self.run(work);
            // Only a main goroutine has a caller, and its stack is never of the usual size.
            if !self.usual
                && let Some(done) = self.caller.take()
            {
                release_caller(done);
            }
            while self.usual
                && let Some(work) = self.worker.pick_work()
            {
                self.run(work);
            }
            self.worker.spare(self);
            stacks::suspends(self.extent.addresses().start);
            yielder.suspend(());
        }
    }

    #[inline]
    fn run(&'static self, work: Work) {
        self.worker.begin(self);
        let observed = switch_hooks::is_observed();
        self.observed.begin(observed);
        if observed {
            return self.run_observed(work);
        }
        self.run_begun(work);
    }

    #[cold]
    #[inline(never)]
    fn run_observed(&'static self, work: Work) {
        self.created_at.set(None);
        if switch_hooks::is_traced() {
            steps::begins(work.vtable(), work.id());
        }
        self.enters(Entering::Begins);
        self.run_begun(work);
        self.leaves(Leaving::Ends);
        // A hook may have used locals: clear these, too. Their destructors, like hooks, must not switch to other
        // goroutines.
        current::without_switching(|| locals::clear(&self.locals));
    }

    /// Tells the observers of switches that the goroutine has got the worker.
    #[cold]
    fn enters(&self, why: Entering) {
        let observers = Observers::of(&self.observed);
        if observers.have_trace() {
            self.record_run();
        }
        if observers.have_stalls() {
            self.note_run();
        }
        switch_hooks::enters(observers, why);
    }

    /// Tells the observers of switches that the goroutine gives the worker up.
    #[cold]
    fn leaves(&self, why: Leaving) {
        let observers = Observers::of(&self.observed);
        switch_hooks::leaves(observers, why);
        if observers.have_stalls() {
            self.show_stall(why);
        }
        if observers.have_trace() {
            self.record_leave(why);
        }
    }

    /// Records, for a trace, that the goroutine has got its worker.
    pub(crate) fn record_run(&self) {
        steps::runs(ptr::from_ref(self.worker).addr(), self.worker.index);
    }

    /// Records, for a trace, that the goroutine gives its worker up.
    fn record_leave(&self, why: Leaving) {
        match (why, self.state.get()) {
            (Leaving::Ends, _) => steps::ends(),
            (Leaving::Waits, State::Parked) => steps::parks(self.wait.get().what()),
            (Leaving::Waits, _) => steps::yields(),
        }
    }

    /// Records, for a trace, the name of a goroutine that begins.
    fn record_name(&self) {
        let name = self.name.take();
        if let Some(name) = &name {
            steps::is_named(name);
        }
        self.name.set(name);
    }

    /// Tells the stall report that the goroutine runs, on its worker.
    fn note_run(&self) {
        let running = Running {
            id: self.id.get(),
            name: self.shared_name(),
            vtable: self.vtable.get(),
            timer: self.worker.next_timer(),
        };
        self.worker.stall.runs(running, self.worker.has_started_work());
    }

    /// Shows this goroutine's stack, if the goroutine has been reported as stalled.
    pub(crate) fn show_stall(&self, why: Leaving) {
        self.worker.stall.gives_up(why, || self.describe(), |bytes| self.has_room(bytes));
    }

    #[inline]
    fn run_begun(&'static self, work: Work) {
        match work.unpack() {
            Unpacked::Job(job) => {
                self.run_job(job);
                self.worker.end(self);
            }
            // A poll does not unwind: the future is wrapped in a `catch_unwind`.
            Unpacked::Task(task) => {
                self.budget.set(Budget::Open);
                task.run();
                self.budget.set(Budget::Unlimited);
                self.worker.end_poll(self);
            }
        }
    }

    /// Runs a job. Called by the fibre itself only. Does not unwind.
    ///
    /// All that does not depend on the closure's type is done here, and compiled once.
    #[inline]
    fn run_job(&self, mut job: Packed) {
        self.vtable.set(job.vtable());
        match job.take_details() {
            None => self.call(job, OnPanic::default()),
            Some(details) => self.call_with(job, *details),
        }
    }

    /// Gives the settings to the goroutine, and runs the job.
    #[cold]
    fn call_with(&self, job: Packed, details: Details) {
        self.name.set(details.name);
        if details.created_at.is_some() {
            self.created_at.set(details.created_at);
        }
        self.call(job, details.on_panic);
    }

    #[inline]
    fn call(&self, job: Packed, on_panic: OnPanic) {
        if switch_hooks::observes_names() {
            self.tell_name();
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job.call(self.jobs))) {
            self.ended_by_panic(payload, on_panic);
        }
    }

    /// Tells the stall report and a trace which goroutine runs.
    #[cold]
    fn tell_name(&self) {
        if switch_hooks::observes_stalls() {
            self.note_run();
        }
        if switch_hooks::is_traced() {
            self.record_name();
        }
    }

    #[cold]
    fn ended_by_panic(&self, payload: Box<dyn Any + Send>, on_panic: OnPanic) {
        if !payload.is::<Goexit>() && on_panic == OnPanic::Abort {
            job::die_of_panic(&*payload, Some(&self.describe()));
        }
        drop_payload(payload);
    }

    /// Runs the fibre until the fibre suspends. Called by the worker's loop only.
    #[inline]
    pub(crate) fn resume(&'static self) {
        // SAFETY: `routine` was initialised in `new`. Only the thread of the fibre's worker touches `routine`, and that
        // thread runs its loop now, so the coroutine is suspended.
        let routine = unsafe { (*self.routine.get()).assume_init_mut() };
        stacks::resumes(self.extent.addresses().start);
        let result = routine.resume(());
        debug_assert!(matches!(result, CoroutineResult::Yield(())));
    }

    /// Switches to the worker's loop, and returns when the loop resumes this fibre. Called by the fibre itself only.
    ///
    /// Always inlined, as the processor mispredicts each return after a switch.
    #[inline(always)]
    pub(crate) fn suspend(&'static self) {
        #[cfg(debug_assertions)]
        crate::goroutine::native::fibre::wait_check::check();
        if self.observed.get() {
            return self.suspend_observed();
        }
        self.switch();
    }

    #[cold]
    #[inline(never)]
    fn suspend_observed(&'static self) {
        if !self.observed.suspends() {
            return self.switch();
        }
        self.leaves(Leaving::Waits);
        self.switch();
        self.show_stack_if_asked();
        self.enters(Entering::Resumes);
    }

    /// Captures the stack and suspends again, as long as the fibre is resumed only to show its stack to a dump.
    fn show_stack_if_asked(&'static self) {
        let dump = &self.worker.own.dump;
        while dump.is_showing() {
            if self.has_room(progress::ROOM) {
                // The allocator may be a user's, and must not wait here.
                dump.shows(current::without_switching(progress::capture));
            }
            self.switch();
        }
    }

    #[inline(always)]
    fn switch(&'static self) {
        stacks::suspends(self.extent.addresses().start);
        // SAFETY: `yielder` points into the frame of `body`'s caller, which is on this stack and has not returned.
        unsafe { (*self.yielder.get()).suspend(()) };
    }

    /// Ends a spare fibre that is in no list, and frees the stack.
    pub(crate) fn finish(&'static self) {
        debug_assert_eq!(self.state.get(), State::Spare);
        // SAFETY: `routine` was initialised in `new`. Only the thread of the fibre's worker touches `routine`, and the
        // coroutine is suspended. Move the coroutine out, as the control block is freed with the stack; `routine` is
        // never used again.
        let mut routine = unsafe { (*self.routine.get()).assume_init_read() };
        let low = self.extent.addresses().start;
        // Without work the fibre leaves the loop in `body`. A coroutine that has never run is dropped unstarted.
        if routine.started() {
            stacks::resumes(low);
            let result = routine.resume(());
            debug_assert!(matches!(result, CoroutineResult::Return(())));
        }
        stacks::ends(low); // before another thread can take the stack
        drop(routine);
    }

    /// Returns whether the caller, which runs on this fibre, has `bytes` bytes of stack left. Returns false if the
    /// caller runs on the stack of another library's coroutine, whose size is not known.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let here = 0_u8;
        let here = (&raw const here).addr();
        self.extent.addresses().contains(&here) && here.saturating_sub(self.extent.guard().end) >= bytes
    }

    /// Returns to the system the stack memory that deep calls have touched. Called on a spare fibre only.
    pub(crate) fn trim(&self) {
        if self.used.replace(false) {
            // SAFETY: the stack is alive. The fibre is spare, so the only frames in use are those of `body` and of its
            // callers, at the high end.
            unsafe { self.extent.trim() };
        }
    }

    pub(crate) fn has_timer(&self) -> bool {
        self.timer.get() != NONE
    }

    /// Returns the fibre that has this link.
    ///
    /// # Safety
    ///
    /// `link` is the link of a fibre.
    pub(crate) unsafe fn from_link(link: *mut Link) -> &'static Self {
        // SAFETY: `link` is the first field of a `repr(C)` struct; a fibre that is in an inbox is alive.
        unsafe { NonNull::new_unchecked(link).cast::<Self>().as_ref() }
    }
}

/// Lets the caller of [`run`](fn@crate::goroutine::run) go on. Called by the fibre of the main goroutine.
#[cold]
#[inline(never)]
fn release_caller(done: NonNull<AtomicU32>) {
    MAINS.count_off();
    // SAFETY: `done` is alive until the permit is there; from then on the release uses `done` as an address only.
    current::without_switching(|| sema::semrelease(unsafe { done.as_ref() }, Wake::Normal));
}

/// The fibre as an item in the timer heap of its worker.
impl HeapItem for &'static Fibre {
    fn set_position(self, position: u32) {
        self.timer.set(position);
    }

    fn position(self) -> u32 {
        self.timer.get()
    }
}
