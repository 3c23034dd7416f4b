//! A stack, and the goroutine that runs on it.
//!
//! ```text
//!  low                                                                                high
//!  ┌───────┬─────────────────────────────────┬───────────────────────────────┬────────┐
//!  │ guard │ room                     ◀ grows│ goroutine's frames  body, loop │ Fibre  │
//!  └───────┴─────────────────────────────────┴───────────────────────────────┴────────┘
//! ```
//!
//! The control block lives at the high end of the stack that it controls, so that a blocked goroutine costs one page.
//! A fibre belongs to one worker from its making to its end. It runs one goroutine after another: when one has ended
//! and the next piece of work has not started yet, it runs that at once; otherwise it lies in its worker's list of
//! spare fibres, its stack warm.
//!
//! | state | it is | next |
//! |---|---|---|
//! | `Spare` | in the list of spare fibres | `Running`, with work in its `work` |
//! | `Running` | the one that runs on its worker | `Parked`, `Queued` (it yields) or `Spare` |
//! | `Parked` | where its waker finds it, and perhaps in the timers | `Queued`, by `ready` or by its timer |
//! | `Queued` | in its worker's run queue | `Running` |
//!
//! Everything here but `link` and `worker` is touched by the thread of its worker only (and read by the deadlock
//! report, while no worker can wake). That is why no field is atomic, and why a goroutine may unlock a queue before it
//! switches away: its waker can only put it into the inbox, which this thread will read.

pub(crate) mod current;
pub(crate) mod job;
pub(crate) mod pool;
#[cfg(debug_assertions)]
pub(crate) mod wait_check;

use crate::shim::system::atomic::{AtomicU32, AtomicU64};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::ParkResult;
use crate::goroutine::native::coop::Budget;
use crate::goroutine::native::fibre::job::{Job, Unpacked, unpack};
use crate::goroutine::native::locals::{self, Locals};
use crate::goroutine::native::mains;
use crate::goroutine::native::sched::dump;
use crate::goroutine::native::sched::timer_heap::{HeapItem, NONE};
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::stack;
use crate::goroutine::native::stack::{Extent, PooledStack};
use crate::goroutine::native::switch_hooks::{self, Entering, Leaving};
use crate::goroutine::protocol::inbox::Link;
use crate::goroutine::protocol::runq::Work;
use crate::shim::stacks;

type Routine = Coroutine<(), (), (), PooledStack>;

/// The control block: see the top of this file.
#[repr(C)]
pub(crate) struct Fibre {
    /// In an inbox. First, so that the link is the fibre.
    pub(crate) link: Link,
    pub(crate) worker: &'static Worker,
    routine: UnsafeCell<MaybeUninit<Routine>>,
    yielder: Cell<*const Yielder<(), ()>>,
    /// In the run queue or in the list of spare fibres.
    pub(crate) next: Cell<Option<&'static Fibre>>,
    /// Among all fibres of its worker.
    pub(crate) older: Cell<Option<&'static Fibre>>,
    pub(crate) younger: Cell<Option<&'static Fibre>>,
    /// The semaphore of the caller of `run`, once the main goroutine on this fibre has its result: see `run`.
    pub(crate) caller: Cell<Option<NonNull<AtomicU32>>>,
    pub(crate) extent: Extent,
    pub(crate) state: Cell<State>,
    /// Why it goes on.
    pub(crate) unparked: Cell<ParkResult>,
    /// A `ready` that came when it was not parked: after its deadline.
    pub(crate) token: Cell<bool>,
    /// The tail of its worker's ring when it came into the run queue: see `Ring::holds_older_than`.
    pub(crate) behind: Cell<u16>,
    /// What is left to the futures of the poll that runs here: see [`coop`](crate::goroutine::native::coop).
    pub(crate) budget: Cell<Budget>,
    /// Its stack is of the usual size: it may be used again.
    pub(crate) usual: bool,
    /// It has run since its stack was last trimmed.
    pub(crate) used: Cell<bool>,
    /// Its goroutine has not blocked yet.
    pub(crate) fresh: Cell<bool>,
    /// Its switches are observed, as they were when its goroutine began: see `switch_hooks`.
    pub(crate) observed: Cell<bool>,
    /// Goroutines that its goroutine starts stay on its worker: see `together`.
    pub(crate) together: Cell<bool>,
    timer: Cell<u32>,
    /// What to run when it is resumed as a spare one. None: end.
    pub(crate) work: Cell<Option<Work>>,
    pub(crate) id: Cell<u64>,
    /// The active set of `sudog-csp` that its goroutine belongs to, or null. Written by the goroutine only, which resets it
    /// before it ends.
    pub(crate) active_set: Cell<*const ()>,
    pub(crate) name: Cell<Option<Arc<str>>>,
    /// The type of the closure that its goroutine runs; of a task's, while none runs.
    pub(crate) vtable: Cell<&'static job::Vtable>,
    pub(crate) wait: Cell<Wait>,
    /// The call that started the goroutine, if switches were observed then.
    pub(crate) created_at: Cell<Option<&'static Location<'static>>>,
    /// The goroutine's locals, which this fibre owns.
    pub(crate) locals: Cell<Option<NonNull<Locals>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Spare,
    Running,
    Parked,
    Queued,
}

/// A note of a wait, for reports. Three words: with a longer note the header of a stack would take a cache line more.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    what: *const u8,
    /// The length of `what`.
    len: u32,
    /// The coarse clock at the begin of the wait, in milliseconds. Wraps after 49 days.
    since: u32,
    /// Points to the id of the goroutine that holds what is waited for, or null if that is not known.
    pub(crate) holder: *const AtomicU64,
}

impl Wait {
    pub(crate) const NONE: Self = Self::new("", 0, ptr::null());

    #[inline]
    pub(crate) const fn new(what: &'static str, since: u64, holder: *const AtomicU64) -> Self {
        Self { what: what.as_ptr(), len: what.len() as u32, since: since as u32, holder }
    }

    /// Returns the kind of the wait.
    pub(crate) fn what(&self) -> &'static str {
        // SAFETY: `what` and `len` are those of the `&'static str` that `new` was given.
        unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(self.what, self.len as usize)) }
    }

    /// Returns the coarse clock at the begin of the wait, in milliseconds, given that clock as it is now.
    pub(crate) fn since(&self, now: u64) -> u64 {
        now - u64::from((now as u32).wrapping_sub(self.since)).min(now)
    }
}

const _: () = assert!(size_of::<Fibre>() <= stack::HEADER && align_of::<Fibre>() <= stack::HEADER_ALIGN);

impl Fibre {
    /// Its id, and its name if it has one.
    ///
    /// By its worker, or while its worker cannot wake.
    pub(crate) fn describe(&self) -> String {
        // The name is taken out and put back, as a cell cannot lend it.
        let name = self.name.take();
        let text = match &name {
            Some(name) => format!("{} {name:?}", self.id.get()),
            None => self.id.get().to_string(),
        };
        self.name.set(name);
        text
    }

    /// Returns the code that started this fibre's goroutine.
    ///
    /// By its worker, or while its worker cannot wake.
    pub(crate) fn origin(&self) -> &'static str {
        self.vtable.get().origin()
    }

    /// Its name, for another thread. By its worker.
    pub(crate) fn shared_name(&self) -> Option<Arc<str>> {
        let name = self.name.take();
        self.name.set(name.clone());
        name
    }

    /// A spare fibre, not yet in any list.
    ///
    /// # Errors
    ///
    /// When there is no memory for its stack.
    pub(crate) fn new(worker: &'static Worker, size: Option<usize>) -> io::Result<&'static Self> {
        let stack = stack::take(size)?;
        stacks::begins(stack.extent().addresses());
        let place = stack.header().cast::<Self>();
        let fibre = Self {
            link: Link::new(),
            worker,
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
            observed: Cell::new(false),
            together: Cell::new(false),
            budget: Cell::new(Budget::Unlimited),
            timer: Cell::new(NONE),
            work: Cell::new(None),
            id: Cell::new(0),
            active_set: Cell::new(ptr::null()),
            name: Cell::new(None),
            vtable: Cell::new(job::Vtable::TASK),
            wait: Cell::new(Wait::NONE),
            created_at: Cell::new(None),
            locals: Cell::new(None),
        };
        // SAFETY: the header has room and alignment for a fibre, and it is not in use elsewhere.
        unsafe { place.write(fibre) };
        // SAFETY: just written; it stays until `end`, after which it is not used.
        let fibre: &'static Self = unsafe { place.as_ref() };
        let routine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| fibre.body(yielder));
        // SAFETY: only this thread knows the fibre.
        unsafe { (*fibre.routine.get()).write(routine) };
        Ok(fibre)
    }

    /// What runs on the stack: one goroutine after another.
    fn body(&'static self, yielder: &Yielder<(), ()>) {
        self.yielder.set(yielder);
        while let Some(work) = self.work.take() {
            self.run(work);
            // A main goroutine has a stack of its own size.
            if !self.usual
                && let Some(done) = self.caller.take()
            {
                mains::release_caller(done);
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
        self.observed.set(observed);
        if observed {
            return self.run_observed(work);
        }
        self.run_begun(work);
    }

    #[cold]
    #[inline(never)]
    fn run_observed(&'static self, work: Work) {
        self.created_at.set(None);
        switch_hooks::enters(self, Entering::Begins);
        self.run_begun(work);
        switch_hooks::leaves(self, Leaving::Ends);
        // A hook may have used some; as in the hook, their destructors do not switch.
        current::without_switching(|| locals::clear(self));
    }

    #[inline]
    fn run_begun(&'static self, work: Work) {
        // SAFETY: packed by its maker, and taken out of its queue by us.
        match unsafe { unpack(work) } {
            Unpacked::Job(job) => {
                // SAFETY: as above.
                unsafe { Job::run(job, self) };
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

    /// Runs it until it suspends. By the worker's loop only.
    #[inline]
    pub(crate) fn resume(&'static self) {
        // SAFETY: initialised in `new`; the thread of its worker alone touches it, and it is suspended: the loop runs.
        let routine = unsafe { (*self.routine.get()).assume_init_mut() };
        stacks::resumes(self.extent.addresses().start);
        let result = routine.resume(());
        debug_assert!(matches!(result, CoroutineResult::Yield(())));
    }

    /// Back to the worker's loop, until it resumes this fibre. By the fibre itself only.
    ///
    /// Always inline, as each return after a switch is mispredicted.
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
        switch_hooks::leaves(self, Leaving::Waits);
        self.switch();
        dump::show_stack_if_asked(self, || self.switch());
        switch_hooks::enters(self, Entering::Resumes);
    }

    #[inline(always)]
    fn switch(&'static self) {
        stacks::suspends(self.extent.addresses().start);
        // SAFETY: the yielder stands in the frame of `body`'s caller, below us on this stack.
        unsafe { (*self.yielder.get()).suspend(()) };
    }

    /// Ends a spare fibre that is in no list, and frees its stack.
    pub(crate) fn finish(&'static self) {
        debug_assert_eq!(self.state.get(), State::Spare);
        // SAFETY: as in `resume`; moved out, since the control block goes with the stack, and never used again.
        let mut routine = unsafe { (*self.routine.get()).assume_init_read() };
        let low = self.extent.addresses().start;
        // Without work it leaves its loop. One that has never run is dropped unstarted.
        if routine.started() {
            stacks::resumes(low);
            let result = routine.resume(());
            debug_assert!(matches!(result, CoroutineResult::Return(())));
        }
        stacks::ends(low); // before another thread can take it
        drop(routine);
    }

    /// Returns whether the caller, which runs on this fibre, has so many bytes of stack left. Not on the stack of a coroutine of
    /// another library's, of which nothing is known.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let here = 0_u8;
        let here = (&raw const here).addr();
        self.extent.addresses().contains(&here) && here.saturating_sub(self.extent.guard().end) >= bytes
    }

    /// Gives back the memory of deep calls. Of a spare fibre only.
    pub(crate) fn trim(&self) {
        if self.used.replace(false) {
            // SAFETY: spare, so nothing of its stack is in use but the frames of `body` and below, at the high end.
            unsafe { self.extent.trim() };
        }
    }

    pub(crate) fn has_timer(&self) -> bool {
        self.timer.get() != NONE
    }

    /// A reference from the link of an inbox.
    ///
    /// # Safety
    ///
    /// The link is a fibre's.
    pub(crate) unsafe fn from_link(link: *mut Link) -> &'static Self {
        // SAFETY: `link` is the first field of a `repr(C)` struct; a fibre that is in an inbox is alive.
        unsafe { NonNull::new_unchecked(link).cast::<Self>().as_ref() }
    }
}

/// In the timers of its worker.
impl HeapItem for &'static Fibre {
    fn set_position(self, position: u32) {
        self.timer.set(position);
    }

    fn position(self) -> u32 {
        self.timer.get()
    }
}
