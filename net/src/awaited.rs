//! `Awaited`: the tasks that await a direction of a descriptor, woken by the same events as blocked calls.
//!
//! A blocked call locks the side of its descriptor, so that a single call waits for the direction's permit. A task locks
//! nothing: a future may be dropped, or never be polled again, and must keep no other caller out meanwhile. So an event
//! wakes *all* tasks that await the direction, beside the blocked call, and each tries.
//!
//! | step | by | does |
//! |---|---|---|
//! | 1 look | a task | reads the number of events, then tries: done, unless the call would block |
//! | 2 join | the task | adds 1 to the number of tasks, and joins the queue of the semaphore `turns` |
//! | 3 look again | the task | reads the number of events: if it has changed since step 1, leaves the queue, and starts again |
//! | 4 wait | the task | is pending until it has a permit, then leaves and starts again |
//! | leave | the task, also when its future is dropped | leaves the queue, then subtracts 1 from the number of tasks |
//! | event | the poller, a close, a new deadline | adds 1 to the number of events; wakes, if the number of tasks is not 0 |
//! | wake | a goroutine that the poller starts; the closer itself | gives each task in the queue a permit |
//!
//! *No event is lost.* What has caused an event is there before the event adds 1. If the task reads the new number in
//! step 1, its try finds the cause. Otherwise steps 2 and 3 and the event are a Dekker pair, by two sequentially
//! consistent fences: the task reads the new number in step 3, or the event reads the task in the number of tasks, and
//! wakes. A wake takes the lock of the queue: it finds the task in the queue, or the task joins afterwards, and reads
//! the new number in step 3. A permit that no task waits for any more is taken by the
//! next task that joins.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sudog_runtime::sema::{Acquire, semacquire_async, semgrant_many, try_semacquire, waiters};
use sudog_runtime::shim::{AtomicU32, Ordering, fence};
use sudog_runtime::{Coop, const_unless_model};

/// The tasks that await a direction: see the top of this file. Public for the model only.
#[doc(hidden)]
#[derive(Debug)]
pub struct Awaited {
    /// The number of events so far, which wraps around.
    events: AtomicU32,
    /// The number of tasks that have joined the queue of `turns`, or are about to.
    tasks: AtomicU32,
    /// The permits of the semaphore in whose queue the tasks wait.
    turns: AtomicU32,
}

impl Awaited {
    const_unless_model! {
        /// Creates a direction that no task awaits.
        #[must_use]
        pub const fn new() -> Self {
            Self { events: AtomicU32::new(0), tasks: AtomicU32::new(0), turns: AtomicU32::new(0) }
        }
    }

    /// Counts an event. Returns true if tasks must be [woken](Self::wake). Makes a sequentially consistent fence.
    #[must_use]
    pub fn event(&self) -> bool {
        self.events.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.tasks.load(Ordering::Relaxed) > 0
    }

    /// Wakes the tasks in the queue. This runs wakers, which are user code.
    pub fn wake(&self) {
        semgrant_many(&self.turns, waiters(&self.turns) as u32);
    }

    /// Returns the number of tasks in the queue.
    pub fn waiters(&self) -> usize {
        waiters(&self.turns)
    }
}

impl Default for Awaited {
    fn default() -> Self {
        Self::new()
    }
}

/// A task's wait for events of a direction. Public for the model only.
#[doc(hidden)]
pub struct Wait<'a> {
    awaited: &'a Awaited,
    /// The number of events before the last try.
    seen: u32,
    /// The place in the queue, from the try that would have blocked until the next try.
    turn: Option<Turn<'a>>,
    coop: Coop,
}

/// A task's place in the queue. A drop leaves the queue, then subtracts the task: in the order of the fields, and also if
/// the drop of `acquire` runs another task's waker, which panics.
struct Turn<'a> {
    /// The future of a permit, in a box, so that the wait can be moved.
    acquire: Pin<Box<Acquire<'a>>>,
    _counted: Counted<'a>,
}

/// A task that is counted in `tasks`. A drop subtracts the task.
struct Counted<'a>(&'a Awaited);

impl<'a> Turn<'a> {
    /// Creates a place that joins the queue at its first poll.
    fn new(awaited: &'a Awaited) -> Self {
        awaited.tasks.fetch_add(1, Ordering::Relaxed);
        Self { acquire: Box::pin(semacquire_async(&awaited.turns)), _counted: Counted(awaited) }
    }

    /// Returns true if the task has been woken. Joins the queue at the first call.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.acquire.as_mut().poll(cx).is_ready()
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> Wait<'a> {
    /// Creates a wait that has not tried yet.
    #[must_use]
    pub fn new(awaited: &'a Awaited) -> Self {
        Self { awaited, seen: 0, turn: None, coop: Coop::new() }
    }

    /// Tries, unless the task waits and no event has come. If the result is `Pending`, the next event wakes the task.
    pub fn poll_try<T>(&mut self, cx: &mut Context<'_>, mut attempt: impl FnMut() -> Poll<T>) -> Poll<T> {
        ready!(self.coop.poll_proceed(cx));
        loop {
            if let Some(turn) = &mut self.turn {
                let woken = turn.poll(cx);
                fence(Ordering::SeqCst);
                if !woken && self.awaited.events.load(Ordering::Relaxed) == self.seen {
                    return Poll::Pending;
                }
                self.turn = None;
            }
            // Acquire: the try sees what has caused the events that this load has read.
            self.seen = self.awaited.events.load(Ordering::Acquire);
            if let Poll::Ready(result) = attempt() {
                return Poll::Ready(result);
            }
            // Take permits that no task waited for: each would cost a needless try.
            while try_semacquire(&self.awaited.turns) {}
            self.turn = Some(Turn::new(self.awaited));
        }
    }

    /// Makes the next [`poll_try`](Self::poll_try) try, although no event has come.
    pub fn try_again(&mut self) {
        self.turn = None;
    }
}
