//! The calling thread's worker and running goroutine, and the steps by which a goroutine waits.

use crate::shim::system;
use crate::shim::system::atomic::AtomicU64;
use crate::shim::system::thread;
use std::cell::Cell;
use std::ptr::{self, NonNull};

use crate::event::steps;
#[cfg(all(debug_assertions, not(sudog_sim)))]
use crate::goroutine::native::fibre::job::Vtable;
use crate::goroutine::native::fibre::wait::{NO_HOLDERS, Wait};
use crate::goroutine::native::fibre::{Fibre, State};
use crate::goroutine::native::fork;
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::sched::{clock, threads};
use crate::goroutine::native::stack::overflow::Running;
use crate::goroutine::native::switch_hooks;
use crate::goroutine::protocol::inbox::{Chain, Free};
use crate::{Instant, ParkResult, shim};

struct Current {
    worker: Cell<Option<&'static Worker>>,
    fibre: Cell<Option<&'static Fibre>>,
    /// The number of calls of `without_switching` that are under way.
    fixed: Cell<u32>,
}

system::thread_local! {
    // Constant and without a destructor: an access is a load from the thread's block. The compiler may keep the address
    // of that block across a switch, as a goroutine never changes its thread.
    static CURRENT: Current =
        const { Current { worker: Cell::new(None), fibre: Cell::new(None), fixed: Cell::new(0) } };
}

/// Returns the worker whose thread the caller is. None: the thread is no worker.
#[inline]
pub(crate) fn worker() -> Option<&'static Worker> {
    CURRENT.with(|here| here.worker.get())
}

/// Ends a forked child that waits for a goroutine, unless the caller is a worker: if a worker forked, the worker exists
/// in the child too, and may still run that goroutine.
#[inline(always)]
pub(crate) fn forbid_wait_in_child() {
    fork::forbid_in_child_unless(|| worker().is_some());
}

pub(crate) fn set_worker(worker: Option<&'static Worker>) {
    CURRENT.with(|here| here.worker.set(worker));
}

/// Returns the goroutine that runs on the calling thread, whether or not that goroutine may switch.
#[inline]
pub(crate) fn fibre() -> Option<&'static Fibre> {
    CURRENT.with(|here| here.fibre.get())
}

/// Returns the pointer that the calling goroutine has passed to [`set_active_set`]: the set of `sudog-csp` to which the
/// goroutine belongs. Null if the goroutine has set none, or if the caller is a thread.
///
/// This is no goroutine-local, which would cost a hash lookup at each wait on a channel, and an allocation in each
/// goroutine that waits.
#[inline]
#[must_use]
pub fn active_set() -> *const () {
    fibre().map_or(ptr::null(), |fibre| fibre.active_set.get())
}

/// Sets the [`active_set`] of the calling goroutine, which must reset the set to null before it ends. Does nothing on a
/// thread.
///
/// # Safety
///
/// `set` is null, or points to a set of `sudog-csp` that is alive until the goroutine calls this function again.
#[inline]
pub unsafe fn set_active_set(set: *const ()) {
    if let Some(fibre) = fibre() {
        fibre.active_set.set(set);
    }
}

/// Runs a fibre on this thread until it suspends.
#[inline]
pub(crate) fn resume(fibre: &'static Fibre) {
    CURRENT.with(|here| {
        here.fibre.set(Some(fibre));
        fibre.resume();
        here.fibre.set(None);
    });
}

/// Describes the running goroutine, for the report of a stack overflow. Called from a signal handler.
pub(crate) fn running() -> Option<Running> {
    let fibre = CURRENT.with(|here| here.fibre.get())?;
    // SAFETY: only this thread would change the name, and this thread has stopped in the signal handler.
    let name = unsafe { &*fibre.name.as_ptr() };
    let name: *const [u8] = name.as_ref().map_or(&[], |name| name.as_bytes());
    Some(Running { guard: fibre.extent.guard(), size: fibre.extent.size(), name, id: fibre.id.get() })
}

/// Returns whether the calling goroutine has `bytes` bytes of stack left. True if the caller is a thread.
#[cfg(all(feature = "profile", not(sudog_sim)))]
pub(crate) fn has_room(bytes: usize) -> bool {
    fibre().is_none_or(|fibre| fibre.has_room(bytes))
}

/// Returns the addresses of the calling goroutine's stack. None: the caller is a thread.
#[cfg(all(feature = "profile", not(sudog_sim)))]
pub(crate) fn stack_addresses() -> Option<std::ops::Range<usize>> {
    fibre().map(|fibre| fibre.extent.addresses())
}

/// A goroutine that waits, or may wait.
///
/// A `FibreRef` is only an identity, and may outlive the goroutine and the fibre. Two kinds of code look into the
/// fibre: `ready`, whose caller guarantees that the fibre is alive, and code that has found this fibre to be the
/// running fibre.
#[derive(Clone, Copy)]
pub(crate) struct FibreRef(NonNull<Fibre>);

/// Returns the calling goroutine, if that goroutine may switch.
#[inline]
pub(crate) fn current() -> Option<FibreRef> {
    switch_hooks::forbid_wait_in_hook();
    switchable().map(|fibre| FibreRef(NonNull::from(fibre)))
}

/// Returns the calling goroutine, if that goroutine may switch. Also works in a switch hook, where [`current`] ends the
/// process.
#[inline]
pub(crate) fn switchable() -> Option<&'static Fibre> {
    // A goroutine does not switch while the thread panics: `thread::panicking` would be true in the other goroutines.
    CURRENT.with(|here| here.fibre.get().filter(|_| here.fixed.get() == 0 && !thread::panicking()))
}

impl FibreRef {
    #[inline]
    pub(crate) fn park(self, deadline: Option<Instant>, commit: impl FnOnce()) -> ParkResult {
        self.running();
        // Commit before anything else. `commit` may be a user's code, and may panic, wait, or end the goroutine: the
        // fibre must be running then, and have no timer. A `ready` that comes meanwhile leaves a token.
        commit();
        let fibre = self.running(); // looks again: in a foreign coroutine, `commit` may return in another goroutine
        if fibre.token.take() {
            fibre.wait.set(Wait::NONE);
            return ParkResult::Unparked;
        }
        if deadline.is_some_and(|deadline| deadline <= clock::now()) {
            // A caller that polls must not starve the other goroutines. A `ready` that comes meanwhile leaves a token.
            safepoint();
            fibre.wait.set(Wait::NONE);
            return ParkResult::TimedOut;
        }
        if switchable().is_none() {
            return park_in_place(fibre, deadline);
        }
        suspend_parked(fibre, deadline);
        fibre.wait.set(Wait::NONE);
        fibre.unparked.get()
    }

    pub(crate) fn await_ready(self) {
        park_in_place(self.running(), None);
    }

    /// Returns the fibre. Panics unless that fibre runs on this thread: safe code may hand a goroutine's `G` to another
    /// goroutine.
    #[inline]
    fn running(self) -> &'static Fibre {
        match fibre() {
            Some(fibre) if ptr::eq(fibre, self.0.as_ptr()) => fibre,
            _ => panic!("a G was parked by another than the goroutine that it stands for"),
        }
    }

    /// Returns whether this goroutine's worker is the caller's worker.
    ///
    /// # Safety
    ///
    /// The goroutine is parked, or is about to park, and has not been readied.
    #[inline]
    pub(crate) unsafe fn is_here(self) -> bool {
        // SAFETY: the goroutine waits and has not been readied, by the contract of `is_here`, so its fibre is alive.
        let home = unsafe { self.0.as_ref() }.worker;
        worker().is_some_and(|here| ptr::eq(here, home))
    }

    /// Makes the goroutine runnable.
    ///
    /// # Safety
    ///
    /// The goroutine is parked, or is about to park, and this is the only `ready` for that wait.
    #[inline]
    pub(crate) unsafe fn ready(self) {
        // SAFETY: the goroutine waits for this `ready`, by the contract of `ready`, so its fibre is alive until then.
        let fibre = unsafe { self.0.as_ref() };
        let home = fibre.worker;
        if worker().is_some_and(|here| ptr::eq(here, home)) {
            home.ready_local(fibre, true);
        } else {
            note_ready(fibre);
            // The link is the fibre's first field.
            // SAFETY: the fibre is in no inbox, as this is the only `ready` for the wait. The fibre stays alive until
            // its worker has read the inbox.
            home.inbox.push(unsafe { Free::new(self.0.cast()) });
            // Wake through `home`, not through the fibre: the fibre may be freed by now; a worker never is.
            home.wake();
        }
    }
}

/// Tells a trace that the caller is about to hand a goroutine over to another worker.
#[inline]
fn note_ready(fibre: &Fibre) {
    if switch_hooks::is_traced() {
        record_ready(fibre);
    }
}

/// Records, for a trace, that the caller readies the goroutine of a fibre, which is parked or about to park. The caller
/// may be on another thread, and so may read only what does not change while the goroutine waits.
#[cold]
pub(crate) fn record_ready(readied: &Fibre) {
    let actor = match fibre() {
        Some(_) => 0,
        None => worker().map_or(0, |worker| ptr::from_ref(worker).addr()),
    };
    steps::readies(actor, readied.id.get());
}

/// A batch of goroutines to ready. The batch hands goroutines of another worker over together, so that the other worker
/// looks into its inbox once, and not while the next goroutine comes in.
pub(crate) struct ReadyBatch {
    /// The worker of the goroutines in the chain.
    home: Option<&'static Worker>,
    chain: Chain,
    len: u32,
}

impl ReadyBatch {
    /// The number of goroutines at which the batch hands them over.
    const MAX: u32 = 32;

    pub(crate) const fn new() -> Self {
        Self { home: None, chain: Chain::new(), len: 0 }
    }

    /// Readies a goroutine as [`FibreRef::ready`] does, at the latest when the batch is full or is dropped.
    ///
    /// # Safety
    ///
    /// The contract of [`FibreRef::ready`] holds. The batch is dropped, and the caller does not switch to another
    /// goroutine before that.
    #[inline]
    pub(crate) unsafe fn ready(&mut self, goroutine: FibreRef) {
        // SAFETY: the goroutine waits for this `ready`, by the contract of `ready`, so its fibre is alive until then.
        let fibre = unsafe { goroutine.0.as_ref() };
        let home = fibre.worker;
        if worker().is_some_and(|here| ptr::eq(here, home)) {
            home.ready_local(fibre, true);
        } else {
            if self.len == Self::MAX || self.home.is_some_and(|other| !ptr::eq(other, home)) {
                self.hand_over();
            }
            self.home = Some(home);
            self.len += 1;
            note_ready(fibre);
            // The link is the fibre's first field.
            // SAFETY: the fibre is in no inbox, as this is the only `ready` for the wait. The fibre stays alive until
            // its worker has read the inbox.
            self.chain.add(unsafe { Free::new(goroutine.0.cast()) });
        }
    }

    /// Readies the goroutines that the batch holds.
    pub(crate) fn hand_over(&mut self) {
        if let Some(home) = self.home.take() {
            self.len = 0;
            home.inbox.push_all(&mut self.chain);
            // Wake through `home`, not through a fibre: the fibres may be freed by now; a worker never is.
            home.wake();
        }
    }
}

impl Drop for ReadyBatch {
    #[inline]
    fn drop(&mut self) {
        self.hand_over();
    }
}

#[inline]
fn suspend_parked(fibre: &'static Fibre, deadline: Option<Instant>) {
    fibre.state.set(State::Parked);
    fibre.wait.begin(clock::coarse_now());
    fibre.worker.count_block(fibre);
    if let Some(deadline) = deadline {
        fibre.worker.set_timer(fibre, deadline);
    }
    fibre.suspend();
}

/// Waits for `ready` without switching to another goroutine: the whole worker waits.
#[cold]
fn park_in_place(fibre: &'static Fibre, deadline: Option<Instant>) -> ParkResult {
    let result = in_place(deadline.is_some(), || wait_in_place(fibre, deadline));
    fibre.wait.set(Wait::NONE);
    result
}

/// Calls `wait`, in which the whole thread waits: the caller is no goroutine, or a goroutine that may not switch.
/// `has_deadline` is true if the wait ends at a deadline, whatever happens.
#[inline]
pub(crate) fn in_place<T>(has_deadline: bool, wait: impl FnOnce() -> T) -> T {
    if switch_hooks::is_observed() { in_place_observed(has_deadline, wait) } else { wait() }
}

#[cold]
fn in_place_observed<T>(has_deadline: bool, wait: impl FnOnce() -> T) -> T {
    let Some(fibre) = fibre() else { return threads::while_listed(None, has_deadline, wait) };
    let _noted = fibre.worker.stall.wait_in_place();
    threads::while_listed(Some(fibre.wait.get()), has_deadline, wait)
}

fn wait_in_place(fibre: &'static Fibre, deadline: Option<Instant>) -> ParkResult {
    while !fibre.token.take() {
        if deadline.is_some_and(|deadline| deadline <= clock::now()) {
            return ParkResult::TimedOut;
        }
        fibre.worker.take_inbox();
        if let Some(deadline) = deadline
            && !fibre.token.get()
        {
            of_the_system(deadline);
        }
        shim::yield_now();
    }
    ParkResult::Unparked
}

/// Converts a deadline to the system's clock, for a goroutine or thread that waits until `deadline` without switching to
/// others: see [`clock::of_the_system`].
#[inline]
pub(crate) fn of_the_system(deadline: Instant) -> Instant {
    clock::of_the_system(deadline, || worker().is_some_and(|worker| worker.sched().idle.outside() > 0))
}

/// Lets the other goroutines of this worker run first. Called, for instance, at the end of a release that has handed
/// its permit to a waiter.
#[inline]
pub(crate) fn give_way() {
    if let Some(fibre) = switchable() {
        fibre.worker.requeue(fibre);
    }
}

/// Yields to other goroutines: `gosched`. Returns false if the caller is not a goroutine, or may not switch.
///
/// Always inlined: the processor mispredicts each return that follows a switch to another stack, which costs more than
/// the switch.
#[inline(always)]
pub(crate) fn yield_now() -> bool {
    let Some(fibre) = switchable() else { return false };
    fibre.worker.requeue(fibre);
    true
}

/// Lets other goroutines run if the calling goroutine has run for long. Part of many calls into the runtime.
#[inline(always)]
pub(crate) fn safepoint() {
    if let Some(fibre) = fibre()
        && fibre.worker.count_call()
    {
        look_at_clock(fibre);
    }
}

/// Returns whether the watcher has asked for a [`safepoint`]. For calls that are so frequent that even [`safepoint`]
/// costs too much.
#[inline(always)]
pub(crate) fn safepoint_is_asked_for() -> bool {
    fibre().is_some_and(|fibre| fibre.worker.is_asked())
}

#[cold]
#[inline(never)]
fn look_at_clock(fibre: &Fibre) {
    // A switch hook may call a function that is a safepoint, and must not switch.
    if !switch_hooks::is_in_hook() && fibre.worker.ask_clock() {
        give_way();
    }
}

/// Returns whether a caller that waits may spin for round number `iter`.
///
/// A thread may spin, and so may a goroutine that may not switch. Another goroutine may spin if another worker runs a
/// goroutine and, except in the first round, the caller's worker has no other goroutine to run.
#[inline]
pub(crate) fn may_spin(iter: u32) -> bool {
    // A goroutine that cannot switch lets no other goroutine of its worker run, whether that goroutine spins or sleeps.
    switchable().is_none_or(|fibre| fibre.worker.sched().others_run() && (iter == 0 || !fibre.worker.has_work()))
}

/// Returns whether a worker of the caller's scheduler sleeps. True if the caller is a thread, or a goroutine that may
/// not switch.
#[must_use]
pub(crate) fn any_worker_sleeps() -> bool {
    switchable().is_none_or(|fibre| fibre.worker.sched().any_sleeps())
}

/// Returns whether the caller is a goroutine.
#[inline]
#[must_use]
pub fn on_goroutine() -> bool {
    fibre().is_some()
}

/// Runs `f` without switching to other goroutines: a call in `f` that blocks the goroutine blocks the whole worker.
///
/// For code that relies on strictly nested frames on a thread. An example is a scope that a library keeps in a
/// thread-local, by saving the outer scope and restoring that scope later. Other goroutines of this worker run only
/// when `f` has returned. If `f` waits for another goroutine of this worker, then `f` waits for ever.
///
/// # Examples
///
/// ```
/// use sudog::{run, without_switching};
///
/// run(|| without_switching(|| { /* enters and leaves a scoped thread-local */ }));
/// ```
pub fn without_switching<T>(f: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.with(|here| here.fixed.set(here.fixed.get() - 1));
        }
    }
    CURRENT.with(|here| here.fixed.set(here.fixed.get() + 1));
    let _leave = Leave;
    f()
}

/// Notes the kind of wait that the caller is about to begin: for dumps and for the deadlock report. Notes a thread's wait
/// only in builds with debug assertions.
#[inline]
pub(crate) fn note_wait(what: &'static str) {
    note_wait_for(what, ptr::null(), NO_HOLDERS);
}

/// Does the same as [`note_wait`] for a wait for an object. `object`, if not null, points to the object. `holders` points
/// to the ids of those that hold the object, a part of the object, which is alive for as long as the wait; or
/// `holders` is empty.
#[inline]
pub(crate) fn note_wait_for(what: &'static str, object: *const (), holders: *const [AtomicU64]) {
    if let Some(fibre) = fibre() {
        fibre.wait.set(Wait::new(what, object).held_by(holders));
    } else if cfg!(debug_assertions) {
        threads::note_wait(Wait::new(what, object).held_by(holders));
    }
}

/// Notes what the task waits for that the calling goroutine polls: for dumps. Does nothing on a thread.
pub(crate) fn note_task_wait(what: &'static str, object: *const ()) {
    if let Some(fibre) = fibre() {
        fibre.wait.set(Wait::new(what, object));
    }
}

/// Takes the note of the calling goroutine's wait: the kind, and the address of the object. Empty on a thread.
pub(crate) fn take_note() -> (&'static str, usize) {
    let Some(fibre) = fibre() else { return ("", 0) };
    let wait = fibre.wait.get();
    fibre.wait.set(Wait::NONE);
    (wait.what(), wait.object())
}

/// Returns the id of the calling goroutine, or 0.
#[inline]
pub(crate) fn id() -> u64 {
    fibre().map_or(0, |fibre| fibre.id.get())
}

/// Returns whether the caller is an async task that a worker polls.
#[cfg(all(debug_assertions, not(sudog_sim)))]
pub(crate) fn is_task() -> bool {
    fibre().is_some_and(|fibre| ptr::eq(fibre.vtable.get(), Vtable::TASK))
}

/// Returns the number and the name of the calling goroutine, as reports print them.
#[cold]
pub(crate) fn describe() -> Option<String> {
    fibre().map(Fibre::describe)
}
