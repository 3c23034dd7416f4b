//! G: whatever can wait.
//!
//! Go's runtime calls a goroutine a *g*; its semaphores, channels and timers know nothing else. Here too, every call
//! that blocks does it through a [`G`], and every wake-up goes through [`G::ready`]. A G is one of three things, and no
//! queue can tell them apart:
//!
//! | kind | waits by | is woken by |
//! |---|---|---|
//! | operating-system thread | sleeping in the kernel | a futex |
//! | goroutine | switching to another goroutine of its worker | going to the front of its worker's run queue, or to its inbox |
//! | async task | returning `Poll::Pending` | its `Waker` |
//!
//! | step | actor | action |
//! |---|---|---|
//! | 1 | waiter | makes a [`G`] on its stack and links it where a waker will find it, under that queue's lock |
//! | 2 | waiter | calls [`G::park`], with the unlocking of the queue as its `commit`: no `ready` after that is lost |
//! | 3 | waker | unlinks the G under the queue's lock, unlocks, calls [`G::ready`] exactly once, and never touches the G again |
//! | 4 | waiter | returns from `park`; its G and all around it may be freed at once |
//!
//! At a deadline the waiter takes the queue's lock again to unlink itself. If it is no longer linked, step 3 is under
//! way, and the waiter parks again, without a deadline, to let it finish: [`G::park_queued`] does both.

use std::marker::PhantomData;
use std::task::Waker;

use crate::goroutine::{self, FibreRef};
use crate::panics::Panics;
use crate::profile::Blocked;
use crate::shim::{self, Instant, Mutex, Parker};

/// Whatever can wait: the current thread or goroutine, for as long as this value is on its stack; or an async task.
///
/// # Examples
///
/// The bare contract; real code links the `G` into a queue.
///
/// ```
/// use sudog::low_level::{G, ParkResult};
///
/// let g = G::current();
/// let shared = &raw const g as usize;
/// std::thread::scope(|s| {
///     s.spawn(move || {
///         // SAFETY: `g` outlives this scope, and this is the one `ready` for the one `park` below.
///         unsafe { G::ready(shared as *const G) };
///     });
///     assert_eq!(g.park(None, || ()), ParkResult::Unparked);
/// });
/// ```
pub struct G {
    kind: Kind,
    /// Only the thread that it represents may park it, so it is neither `Send` nor `Sync`.
    _thread: PhantomData<*const ()>,
}

enum Kind {
    Thread(Parker),
    Goroutine(FibreRef),
    Task(TaskWait),
}

/// Where a task and its waker meet. User code (a `Waker`'s clone, wake and drop) runs outside this lock.
struct TaskWait(Mutex<TaskState>);

struct TaskState {
    ready: bool,
    waker: Option<Waker>,
}

/// Why [`G::park`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParkResult {
    /// [`G::ready`] has been called.
    Unparked,
    /// The deadline passed first. A `ready` may still come, and the caller must wait for it unless the queue's lock
    /// shows that no waker can have found this G.
    TimedOut,
}

impl G {
    /// The calling goroutine, or else the calling thread, ready to wait. Allocates nothing where `std`'s locks do not
    /// (at least on Linux).
    ///
    /// A goroutine that may not switch now counts as its thread. That is so while its thread is panicking, and inside
    /// [`without_switching`](goroutine::without_switching).
    #[inline]
    #[must_use]
    pub fn current() -> Self {
        let kind = match goroutine::current() {
            Some(fibre) => Kind::Goroutine(fibre),
            None => Kind::Thread(Parker::new()),
        };
        Self { kind, _thread: PhantomData }
    }

    /// True if the caller waits as a goroutine: it is one, and may switch now.
    #[inline]
    #[must_use]
    pub fn is_goroutine() -> bool {
        #[cfg(sudog_loom)]
        if shim::model::is_goroutine() {
            return true;
        }
        goroutine::current().is_some()
    }

    /// An async task, ready to wait: to be [polled](G::poll_ready), not parked.
    #[inline]
    #[must_use]
    pub fn task() -> Self {
        let wait = TaskWait(Mutex::new(TaskState { ready: false, waker: None }));
        Self { kind: Kind::Task(wait), _thread: PhantomData }
    }

    /// Runs `commit`, then blocks until [`G::ready`] has been called once, or until `deadline`. There is no spurious
    /// return.
    ///
    /// `commit` makes this G known to its wakers: it unlocks the queue that the G is in. It runs first, on the caller's
    /// stack, and a `ready` that comes while it runs, or later, ends this `park`. A goroutine runs `commit` before it
    /// switches away, and loses nothing by that: a waker on another thread can only put the goroutine into the inbox of
    /// its worker, which this same thread reads after the switch.
    ///
    /// `commit` may panic or wait: this G has not parked then. It may wait only as long as no waker can have found this
    /// G.
    ///
    /// # Panics
    ///
    /// If this G is a task, or if `commit` panics.
    #[inline]
    pub fn park(&self, deadline: Option<Instant>, commit: impl FnOnce()) -> ParkResult {
        let mut blocked = Blocked::new();
        blocked.begin();
        self.park_unprofiled(deadline, commit)
    }

    /// [`G::park`] for a wait that is not in the block profile, or whose caller has begun a [`Blocked`].
    #[inline]
    pub(crate) fn park_unprofiled(&self, deadline: Option<Instant>, commit: impl FnOnce()) -> ParkResult {
        match &self.kind {
            Kind::Thread(parker) => {
                commit();
                if goroutine::in_place(|| parker.park(deadline.map(goroutine::of_the_system))) {
                    ParkResult::Unparked
                } else {
                    ParkResult::TimedOut
                }
            }
            Kind::Goroutine(fibre) => fibre.park(deadline, commit),
            Kind::Task(_) => panic!("a task is polled, not parked"),
        }
    }

    /// [`G::park`] for a wait that may well be short: a thread looks for its `ready` for a while before it sleeps. For the
    /// crates of this project.
    #[doc(hidden)]
    #[inline]
    pub fn park_spinning(&self, deadline: Option<Instant>, commit: impl FnOnce()) -> ParkResult {
        let mut blocked = Blocked::new();
        blocked.begin();
        self.park_standing_by(deadline, commit, |parker| spin_until(|| parker.is_ready()))
    }

    /// [`G::park`], where a thread calls `stand_by` after `commit`, before it sleeps. `stand_by` asks the parker whether this
    /// G has been readied, and returns once it has, or when the thread is to sleep. A goroutine gives its worker to others
    /// at once. Not in the block profile: the caller has begun a [`Blocked`].
    #[inline]
    pub(crate) fn park_standing_by(
        &self,
        deadline: Option<Instant>,
        commit: impl FnOnce(),
        stand_by: impl FnOnce(&Parker),
    ) -> ParkResult {
        match &self.kind {
            // In a model the looks would be states of their own, and prove nothing: `park` begins with one.
            Kind::Thread(parker) if cfg!(not(sudog_loom)) => self.park_unprofiled(deadline, || {
                commit();
                stand_by(parker);
            }),
            _ => self.park_unprofiled(deadline, commit),
        }
    }

    /// [`G::park`] by a waiter in a queue: at the deadline `leave` takes the waiter out of the queue, under the queue's
    /// lock, and returns true; or returns false, because a waker has taken the waiter out. Then this waits for that
    /// waker's `ready`, and returns [`ParkResult::Unparked`].
    #[inline]
    pub fn park_queued(
        &self,
        deadline: Option<Instant>,
        commit: impl FnOnce(),
        leave: impl FnOnce() -> bool,
    ) -> ParkResult {
        self.leave_or_await(self.park(deadline, commit), leave)
    }

    /// [`G::park_queued`] that spins first, as [`G::park_spinning`] does. For the crates of this project.
    #[doc(hidden)]
    #[inline]
    pub fn park_queued_spinning(
        &self,
        deadline: Option<Instant>,
        commit: impl FnOnce(),
        leave: impl FnOnce() -> bool,
    ) -> ParkResult {
        self.leave_or_await(self.park_spinning(deadline, commit), leave)
    }

    /// The end of a `park` of a waiter that is in a queue: see [`G::park_queued`].
    #[inline]
    pub(crate) fn leave_or_await(&self, parked: ParkResult, leave: impl FnOnce() -> bool) -> ParkResult {
        if parked == ParkResult::TimedOut {
            if leave() {
                return ParkResult::TimedOut;
            }
            // A waker has unlinked this waiter and will ready it, if it has not yet. Until then the waiter's frame must
            // stay.
            self.park_unprofiled(None, || ());
        }
        ParkResult::Unparked
    }

    /// True if the task has been readied since its last wait began. If false, `waker` will be woken when it is readied.
    ///
    /// Once this has returned true, the G can wait again.
    ///
    /// # Panics
    ///
    /// If this G is not a task.
    #[must_use]
    pub fn poll_ready(&self, waker: &Waker) -> bool {
        let Kind::Task(wait) = &self.kind else { panic!("only a task is polled") };
        let mut new = None;
        loop {
            let mut state = wait.0.lock();
            if std::mem::take(&mut state.ready) {
                return true;
            }
            let old = match &state.waker {
                Some(old) if old.will_wake(waker) => return false,
                // Second round: the lock has been taken anew, and the clone was made outside it.
                _ if new.is_some() => std::mem::replace(&mut state.waker, new.take()),
                _ => {
                    drop(state);
                    new = Some(waker.clone());
                    continue;
                }
            };
            drop(state);
            drop(old);
            return false;
        }
    }

    /// Waits for a `ready` that is under way, without switching to another goroutine. For a waiter that is being
    /// dropped.
    ///
    /// Call it once the queue's lock has shown that a waker has unlinked this G, while no return of [`G::park`] or
    /// [`G::poll_ready`] has consumed its `ready`. That waker runs on another thread, or has finished.
    pub fn await_ready(&self) {
        match &self.kind {
            Kind::Thread(parker) => {
                parker.park(None);
            }
            Kind::Goroutine(fibre) => fibre.await_ready(),
            Kind::Task(wait) => {
                while !std::mem::take(&mut wait.0.lock().ready) {
                    shim::yield_now();
                }
            }
        }
    }

    /// Makes a G run again that is parked or about to park. What the caller wrote before, the G sees after.
    ///
    /// A goroutine of the caller's own worker is the next to run there.
    ///
    /// # Safety
    ///
    /// - `g` points to a live G.
    /// - This is the only `ready` for the current `park` of `g`: the caller has unlinked it from where other wakers
    ///   find it.
    /// - Since the G became reachable by its wakers, its goroutine or thread has waited for nothing else, for example
    ///   in the `commit` of that `park`: this call would end that other wait.
    /// - The caller does not use `g`, or anything that lives with it, after this call begins: the waiter may return and
    ///   free it before this call ends.
    #[inline]
    pub unsafe fn ready(g: *const Self) {
        // SAFETY: by the contract.
        if let Some(waker) = unsafe { Self::mark_ready(g) } {
            wake(waker);
        }
    }

    /// [`G::ready`], but leaves a task's waker to the caller.
    ///
    /// # Safety
    ///
    /// As for [`G::ready`].
    #[inline]
    #[must_use = "the task sleeps until its waker is woken"]
    pub(crate) unsafe fn mark_ready(g: *const Self) -> Option<Waker> {
        // SAFETY: by the contract; a goroutine is parked or about to park, and not yet readied.
        unsafe { Self::mark_ready_by(g, |goroutine| goroutine.ready()) }
    }

    /// # Safety
    ///
    /// As for [`G::ready`]; and `ready` readies a goroutine.
    #[inline]
    unsafe fn mark_ready_by(g: *const Self, ready: impl FnOnce(FibreRef)) -> Option<Waker> {
        // No reference to the whole G is made: it may be freed while this call is under way.
        // SAFETY: alive until its waiter learns of this call, by the contract; and no thread writes to `kind`.
        match unsafe { &(*g).kind } {
            // SAFETY: alive and not yet readied, by the contract.
            Kind::Thread(parker) => unsafe { Parker::unpark(parker) },
            Kind::Goroutine(fibre) => ready(*fibre),
            Kind::Task(wait) => {
                let mut state = wait.0.lock();
                state.ready = true;
                // The task may be freed once another thread has had the lock after us: the unlock is the last access.
                return state.waker.take();
            }
        }
        None
    }

    /// [`G::ready`] for a G that has been given what it waited for. If the caller and the G are goroutines of one
    /// worker, the G runs at once, on the rest of the caller's time slice; otherwise the caller yields to the other
    /// goroutines of its worker. A caller that is a thread just goes on.
    ///
    /// Go: `readyWithTime` and `goyield` at the end of `semrelease1`.
    ///
    /// # Safety
    ///
    /// As for [`G::ready`].
    #[inline]
    pub unsafe fn ready_and_give_way(g: *const Self) {
        // SAFETY: by the contract.
        unsafe { Self::ready(g) };
        goroutine::give_way();
    }

    /// [`G::ready`] for a G that has been given what it waited for, and is to run before the caller. A goroutine of the
    /// caller's own worker does: it runs at once, on the rest of the caller's time slice, and the caller goes to the end
    /// of the run queue. If the slice is over, those in the run queue have their turn first. A caller whose G is a thread,
    /// or belongs to another worker, goes on. For the crates of this project.
    ///
    /// # Safety
    ///
    /// As for [`G::ready`].
    #[doc(hidden)]
    #[inline]
    pub unsafe fn ready_first(g: *const Self) {
        // SAFETY: alive and not yet readied, by the contract; and no thread writes to `kind`.
        let here = match unsafe { &(*g).kind } {
            // SAFETY: it waits, and has not been readied, by the contract.
            Kind::Goroutine(fibre) => unsafe { fibre.is_here() },
            Kind::Thread(_) | Kind::Task(_) => false,
        };
        // SAFETY: by the contract.
        unsafe { Self::ready(g) };
        if here {
            goroutine::give_way();
        }
    }

    /// Go's `Gosched`: lets another goroutine of this worker run; for a thread, another thread of this processor. A
    /// hint only: the caller may go on at once.
    #[inline]
    pub fn yield_now() {
        if !goroutine::yield_now() {
            shim::yield_now();
        }
    }
}

/// Readies several Gs: goroutines of another worker together, when the batch is dropped, or full.
///
/// It leaves the wakers of tasks to the caller: a waker is user code, which might wait for a G that has not been readied yet.
pub(crate) struct ReadyBatch(goroutine::ReadyBatch);

impl ReadyBatch {
    pub(crate) const fn new() -> Self {
        Self(goroutine::ReadyBatch::new())
    }

    /// [`G::ready`], but for the waker of a task.
    ///
    /// # Safety
    ///
    /// - As for [`G::ready`].
    /// - The caller drops the batch, and runs no user code and does not wait before.
    #[inline]
    #[must_use = "the task sleeps until its waker is woken"]
    pub(crate) unsafe fn mark_ready(&mut self, g: *const G) -> Option<Waker> {
        // SAFETY: alive and not yet readied, by the contract; and no thread writes to `kind`.
        if matches!(unsafe { &(*g).kind }, Kind::Thread(_)) {
            self.0.hand_over(); // to wake a thread takes microseconds
        }
        // SAFETY: by the contract; a goroutine is parked or about to park, and not yet readied.
        unsafe { G::mark_ready_by(g, |goroutine| self.0.ready(goroutine)) }
    }
}

/// A task's waker is user code. Its panic goes on to the caller that readies the task; unless the caller is a
/// destructor that runs because of a panic (a mutex guard's, for example): a second panic would end the process.
#[inline]
fn wake(waker: Waker) {
    if std::thread::panicking() { wake_in_a_panic(waker) } else { waker.wake() }
}

#[cold]
fn wake_in_a_panic(waker: Waker) {
    let mut panics = Panics::default();
    panics.catch(|| waker.wake());
    panics.resume(); // the thread is panicking: this drops the payload
}

/// For a short while, unless there is but one processor: pauses, then yields, as there may be more threads than
/// processors. A sleep and its wake-up cost some 5 us and more; this takes about as long if nothing comes.
#[cold]
fn spin_until(ready: impl Fn() -> bool) {
    const PAUSES: u32 = 100;
    const YIELDS: u32 = 16;
    let pauses = if shim::num_cpus() > 1 { PAUSES } else { 0 };
    let spin = |rounds, wait: fn()| {
        (0..rounds).any(|_| {
            ready() || {
                wait();
                false
            }
        })
    };
    _ = spin(pauses, shim::pause) || spin(YIELDS, shim::yield_now);
}
