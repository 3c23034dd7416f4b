//! G: a thread, a goroutine or an async task that can wait.
//!
//! Go's runtime calls a goroutine a *g*; Go's semaphores, channels and timers deal only with *g*s. Here too, every call
//! that blocks does so through a [`G`], and every wake-up goes through [`G::ready`]. A G is of one of three kinds, and
//! a queue treats all three alike:
//!
//! | kind | waits by | is woken by |
//! |---|---|---|
//! | operating-system thread | sleeping in the kernel | a futex |
//! | goroutine | switching to another goroutine of its worker | a move to the front of its worker's run queue, or to its inbox |
//! | async task | returning `Poll::Pending` | its `Waker` |
//!
//! | step | actor | action |
//! |---|---|---|
//! | 1 | waiter | makes a [`G`] on its stack and links the G where a waker will find it, under that queue's lock |
//! | 2 | waiter | calls [`G::park`], with the unlocking of the queue as the `commit`: no `ready` after that is lost |
//! | 3 | waker | unlinks the G under the queue's lock, unlocks, calls [`G::ready`] exactly once, and never touches the G again |
//! | 4 | waiter | returns from `park`; the G and all around it may be freed at once |
//!
//! At a deadline the waiter takes the queue's lock again to unlink its G. If the G is no longer linked, step 3 is under
//! way, and the waiter parks again, without a deadline, so that step 3 can finish: [`G::park_queued`] does both.

use std::marker::PhantomData;
use std::task::Waker;

use crate::goroutine::{self, FibreRef};
use crate::panics::Panics;
use crate::profile::Blocked;
use crate::shim::{self, Instant, Mutex, Parker};
use crate::unpolled::Watch;

/// A waiter: the thread or goroutine that has made this value on its stack, or an async task.
///
/// # Examples
///
/// This example has no queue, to show the contract alone. Real code links the `G` into a queue.
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
    /// Makes G neither `Send` nor `Sync`: only the thread that a G represents may park it.
    _thread: PhantomData<*const ()>,
}

enum Kind {
    Thread(Parker),
    Goroutine(FibreRef),
    Task(TaskWait),
}

/// The state that is shared by a task and the code that readies the task. User code (a `Waker`'s clone, wake and drop)
/// runs outside this lock.
struct TaskWait(Mutex<TaskState>);

struct TaskState {
    ready: bool,
    waker: Option<Waker>,
    /// The note that the task has been readied, and not polled since, if the task waits for a lock.
    watch: Watch,
}

/// The reason why [`G::park`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParkResult {
    /// [`G::ready`] has been called.
    Unparked,
    /// The deadline has passed before a `ready`. A `ready` may still come. The caller must wait for that `ready`,
    /// unless the caller sees, under the queue's lock, that no waker has found this G.
    TimedOut,
}

impl G {
    /// Returns a G for the calling goroutine, or else for the calling thread. Allocates nothing where `std`'s locks do
    /// not (at least on Linux).
    ///
    /// If a goroutine may not switch to another goroutine now, the result is a G for its thread. This is the case while
    /// that thread is panicking, and inside [`without_switching`](goroutine::without_switching).
    #[inline]
    #[must_use]
    pub fn current() -> Self {
        let kind = match goroutine::current() {
            Some(fibre) => Kind::Goroutine(fibre),
            None => Kind::Thread(Parker::new()),
        };
        Self { kind, _thread: PhantomData }
    }

    /// Returns true if the caller waits as a goroutine: the caller is a goroutine, and may switch to another goroutine
    /// now.
    #[inline]
    #[must_use]
    pub fn is_goroutine() -> bool {
        #[cfg(sudog_loom)]
        if shim::model::is_goroutine() {
            return true;
        }
        goroutine::switchable().is_some()
    }

    /// Returns a G for an async task. The task [polls](G::poll_ready) this G, and never parks it.
    #[inline]
    #[must_use]
    pub fn task() -> Self {
        Self::watched_task(Watch::NONE)
    }

    /// Returns a G for an async task, as [`G::task`] does. The `watch` notes when the task is readied and polled.
    #[inline]
    pub(crate) fn watched_task(watch: Watch) -> Self {
        let wait = TaskWait(Mutex::new(TaskState { ready: false, waker: None, watch }));
        Self { kind: Kind::Task(wait), _thread: PhantomData }
    }

    /// Runs `commit`, then blocks until [`G::ready`] has been called once, or until `deadline`. There is no spurious
    /// return.
    ///
    /// `commit` makes this G known to its wakers: `commit` unlocks the queue that holds the G. `commit` runs first, on
    /// the caller's stack, and a `ready` that comes while `commit` runs, or later, ends this `park`. A goroutine runs
    /// `commit` before it switches away, and loses no `ready` by that: a waker on another thread can only put the
    /// goroutine into the inbox of its worker, and the thread that runs `commit` reads that inbox after the switch.
    ///
    /// This G parks only after `commit` has returned. So `commit` may panic; and `commit` may wait, but only as long as
    /// no waker can have found this G.
    ///
    /// # Panics
    ///
    /// Panics if this G is a task, or if `commit` panics.
    #[inline]
    pub fn park(&self, deadline: Option<Instant>, commit: impl FnOnce()) -> ParkResult {
        let mut blocked = Blocked::new();
        blocked.begin();
        self.park_unprofiled(deadline, commit)
    }

    /// Parks as [`G::park`] does, but does not record the wait in the block profile: the wait does not belong there, or
    /// the caller has begun a [`Blocked`].
    #[inline]
    pub(crate) fn park_unprofiled(&self, deadline: Option<Instant>, commit: impl FnOnce()) -> ParkResult {
        match &self.kind {
            Kind::Thread(parker) => {
                commit();
                if goroutine::in_place(deadline.is_some(), || parker.park(deadline.map(goroutine::of_the_system))) {
                    ParkResult::Unparked
                } else {
                    ParkResult::TimedOut
                }
            }
            Kind::Goroutine(fibre) => fibre.park(deadline, commit),
            Kind::Task(_) => panic!("a task is polled, not parked"),
        }
    }

    /// Parks as [`G::park`] does, for a wait that may well be short: a thread polls for the `ready` for a while before
    /// it sleeps. For the crates of this project.
    #[doc(hidden)]
    #[inline]
    pub fn park_spinning(&self, deadline: Option<Instant>, commit: impl FnOnce()) -> ParkResult {
        let mut blocked = Blocked::new();
        blocked.begin();
        self.park_standing_by(deadline, commit, |parker| spin_until(|| parker.is_ready()))
    }

    /// Parks as [`G::park`] does, but a thread calls `stand_by` after `commit`, before sleeping. `stand_by` asks the
    /// parker whether this G has been readied, and returns when the G has been readied or when the thread is to sleep.
    /// A goroutine does not call `stand_by`, but gives its worker to other goroutines at once. This call does not
    /// record the wait in the block profile: the caller has begun a [`Blocked`].
    #[inline]
    pub(crate) fn park_standing_by(
        &self,
        deadline: Option<Instant>,
        commit: impl FnOnce(),
        stand_by: impl FnOnce(&Parker),
    ) -> ParkResult {
        match &self.kind {
            // In a model each poll would be a state of its own, and prove nothing: `park` begins with a poll.
            Kind::Thread(parker) if cfg!(not(sudog_loom)) => self.park_unprofiled(deadline, || {
                commit();
                stand_by(parker);
            }),
            _ => self.park_unprofiled(deadline, commit),
        }
    }

    /// Parks a waiter that is in a queue, as [`G::park`] does. At the deadline this function calls `leave`, which takes
    /// the waiter out of the queue, under the queue's lock, and returns true. If a waker has already taken the waiter
    /// out, `leave` returns false. Then this function waits for that waker's `ready`, and returns
    /// [`ParkResult::Unparked`].
    #[inline]
    pub fn park_queued(
        &self,
        deadline: Option<Instant>,
        commit: impl FnOnce(),
        leave: impl FnOnce() -> bool,
    ) -> ParkResult {
        self.leave_or_await(self.park(deadline, commit), leave)
    }

    /// Parks as [`G::park_queued`] does, but spins first, as [`G::park_spinning`] does. For the crates of this project.
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

    /// Does the part of [`G::park_queued`] that follows the `park`, whose result is `parked`.
    #[inline]
    pub(crate) fn leave_or_await(&self, parked: ParkResult, leave: impl FnOnce() -> bool) -> ParkResult {
        if parked == ParkResult::TimedOut {
            if leave() {
                return ParkResult::TimedOut;
            }
            // A waker has unlinked this waiter, and has readied it or will ready it. Keep the waiter's frame until
            // then.
            self.park_unprofiled(None, || ());
        }
        ParkResult::Unparked
    }

    /// Returns true if the task has been readied since the task's last wait began. If this returns false, `waker` will
    /// be woken when the task is readied.
    ///
    /// After this function has returned true, the G can wait again.
    ///
    /// # Panics
    ///
    /// Panics if this G is not a task.
    #[must_use]
    pub fn poll_ready(&self, waker: &Waker) -> bool {
        let Kind::Task(wait) = &self.kind else { panic!("only a task is polled") };
        let mut new = None;
        loop {
            let mut state = wait.0.lock();
            if std::mem::take(&mut state.ready) {
                state.watch.is_polled();
                return true;
            }
            let old = match &state.waker {
                Some(old) if old.will_wake(waker) => return false,
                // Store the clone: this is the second round, which has taken the lock anew, after the clone was made
                // outside the lock.
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
    /// The caller must have seen, under the queue's lock, that a waker has unlinked this G. That waker's `ready` must
    /// not yet have been consumed by a return of [`G::park`] or [`G::poll_ready`]. The waker runs on another thread, or
    /// has finished.
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

    /// Makes a parked G, or a G that is about to park, run again. The caller's earlier writes are visible to the G
    /// afterwards.
    ///
    /// If the G is a goroutine of the caller's own worker, this worker runs that goroutine next.
    ///
    /// # Safety
    ///
    /// - `g` points to a live G.
    /// - This is the only `ready` for the current `park` of `g`: the caller has unlinked `g` from the place where other
    ///   wakers find it.
    /// - Since the time from which wakers can find the G, its goroutine or thread has not waited for anything else, for
    ///   example in the `commit` of that `park`. Otherwise this call would end that other wait.
    /// - The caller does not use `g`, or anything that lives with `g`, after this call begins: the waiter may return
    ///   and free `g` before this call ends.
    #[inline]
    pub unsafe fn ready(g: *const Self) {
        // SAFETY: the caller keeps the contract of `ready`, which is that of `mark_ready`.
        if let Some(waker) = unsafe { Self::mark_ready(g) } {
            wake(waker);
        }
    }

    /// Readies a G as [`G::ready`] does, but returns a task's waker instead of calling that waker. For the crates of
    /// this project.
    ///
    /// # Safety
    ///
    /// The same as for [`G::ready`].
    #[doc(hidden)]
    #[inline]
    #[must_use = "the task sleeps until its waker is woken"]
    pub unsafe fn mark_ready(g: *const Self) -> Option<Waker> {
        // SAFETY: the caller keeps the contract of `G::ready` for `g`. So a goroutine is parked, or about to park, and
        // the closure's `ready` is the only `ready` for that park.
        unsafe { Self::mark_ready_by(g, |goroutine| goroutine.ready()) }
    }

    /// Readies a G as [`G::mark_ready`] does, but calls the closure `ready` to ready a goroutine.
    ///
    /// # Safety
    ///
    /// The same as for [`G::ready`]. The closure readies the goroutine that is passed to it.
    #[inline]
    unsafe fn mark_ready_by(g: *const Self, ready: impl FnOnce(FibreRef)) -> Option<Waker> {
        // Make no reference to the whole G: the waiter may free the G while this call is under way.
        // SAFETY: `g` is alive until its waiter learns of this call, by the contract of `G::ready`; and no thread
        // writes to `kind`.
        match unsafe { &(*g).kind } {
            // SAFETY: `parker` is alive and not yet readied, as the G is, by the contract of `G::ready`.
            Kind::Thread(parker) => unsafe { Parker::unpark(parker) },
            Kind::Goroutine(fibre) => ready(*fibre),
            Kind::Task(wait) => {
                // The alarm, if there is one, is set when `_alarm` is dropped, after the unlock. Let the unlock be the last
                // access: the task may be freed once another thread has had the lock after this thread.
                let (_alarm, waker) = {
                    let mut state = wait.0.lock();
                    state.ready = true;
                    (state.watch.wakes(), state.waker.take())
                };
                return waker;
            }
        }
        None
    }

    /// Readies a G as [`G::ready`] does, and then yields, because the G has been given the resource for which the G
    /// waited. If the caller and the G are goroutines of the same worker, the G runs at once, on the rest of the
    /// caller's time slice. Otherwise the caller yields to the other goroutines of its worker. A caller that is a
    /// thread just goes on.
    ///
    /// Go: `readyWithTime` and `goyield` at the end of `semrelease1`.
    ///
    /// # Safety
    ///
    /// The same as for [`G::ready`].
    #[inline]
    pub unsafe fn ready_and_give_way(g: *const Self) {
        // SAFETY: the caller keeps the contract of `G::ready` for `g`.
        unsafe { Self::ready(g) };
        goroutine::give_way();
    }

    /// Readies a G as [`G::ready`] does, and lets the G run before the caller, because the G has been given the
    /// resource for which the G waited. If the G is a goroutine of the caller's own worker, the G runs at once, on the
    /// rest of the caller's time slice, and the caller goes to the end of the run queue. If the caller's time slice is
    /// over, the goroutines in the run queue run before the G. If the G is a thread, or belongs to another worker, the
    /// caller goes on. For the crates of this project.
    ///
    /// # Safety
    ///
    /// The same as for [`G::ready`].
    #[doc(hidden)]
    #[inline]
    pub unsafe fn ready_first(g: *const Self) {
        // SAFETY: `g` is alive and not yet readied, by the contract of `G::ready`; and no thread writes to `kind`.
        let here = match unsafe { &(*g).kind } {
            // SAFETY: the goroutine is parked, or about to park, and has not been readied, by the contract of
            // `G::ready`.
            Kind::Goroutine(fibre) => unsafe { fibre.is_here() },
            Kind::Thread(_) | Kind::Task(_) => false,
        };
        // SAFETY: the caller keeps the contract of `G::ready` for `g`.
        unsafe { Self::ready(g) };
        if here {
            goroutine::give_way();
        }
    }

    /// Lets another goroutine of this worker run, or, if the caller is a thread, another thread of this processor: Go's
    /// `Gosched`. A hint only: the caller may go on at once.
    #[inline]
    pub fn yield_now() {
        if !goroutine::yield_now() {
            shim::yield_now();
        }
    }
}

/// A batch of Gs to be readied. Goroutines that belong to another worker are collected, and are readied together when
/// the batch is full or is dropped.
///
/// The batch leaves the wakers of tasks to the caller: a waker is user code, which might wait for a G that has not been
/// readied yet.
pub(crate) struct ReadyBatch(goroutine::ReadyBatch);

impl ReadyBatch {
    pub(crate) const fn new() -> Self {
        Self(goroutine::ReadyBatch::new())
    }

    /// Readies a G as [`G::ready`] does, but returns a task's waker instead of calling that waker.
    ///
    /// # Safety
    ///
    /// - The same as for [`G::ready`].
    /// - The caller drops the batch, and neither runs user code nor waits before that.
    #[inline]
    #[must_use = "the task sleeps until its waker is woken"]
    pub(crate) unsafe fn mark_ready(&mut self, g: *const G) -> Option<Waker> {
        // SAFETY: `g` is alive and not yet readied, by the contract of `G::ready`; and no thread writes to `kind`.
        if matches!(unsafe { &(*g).kind }, Kind::Thread(_)) {
            // Ready the goroutines of the batch first, as waking a thread takes microseconds.
            self.0.hand_over();
        }
        // SAFETY: the caller keeps the contract of `G::ready` for `g`, so a goroutine is parked, or about to park, and
        // not yet readied. The caller drops the batch, and does not wait before that, by the contract of this function.
        unsafe { G::mark_ready_by(g, |goroutine| self.0.ready(goroutine)) }
    }
}

/// Wakes a task by a waker, which is user code. A panic of the waker goes on to the caller that readies the task. But
/// if the caller is a destructor that runs because of a panic (for example the destructor of a mutex guard), the
/// waker's panic is dropped, because a second panic would end the process.
#[inline]
pub(crate) fn wake(waker: Waker) {
    if std::thread::panicking() { wake_in_a_panic(waker) } else { waker.wake() }
}

#[cold]
fn wake_in_a_panic(waker: Waker) {
    let mut panics = Panics::default();
    panics.catch(|| waker.wake());
    panics.resume(); // the thread is panicking: this drops the payload
}

/// Polls `ready` for a short while. Between the first polls the thread pauses, unless there is only one processor;
/// between the later polls the thread yields, as there may be more threads than processors. A sleep and its wake-up
/// cost 5 us or more; a failed spin takes about as long.
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
