//! The poller of the process, whose events wake the calls that wait for a socket.
//!
//! | system | poller | |
//! |---|---|---|
//! | Linux | an epoll instance | `poller/epoll.rs` |
//! | other Unix systems; Linux with `--cfg sudog_polling`, for tests | the crate `polling` (kqueue) | `poller/polling.rs` |
//!
//! A descriptor is added to the poller once, edge-triggered, for both directions. Each direction has a semaphore that holds at most about one permit. A permit means: *something may have happened, try again*.
//!
//! | step | by | does |
//! |---|---|---|
//! | prepare | a user that has locked the side | takes all permits that there are |
//! | try | the same user | makes the system call; done, unless the call would block |
//! | wait | the same user | waits for a permit, then starts again with *prepare* |
//! | event | the poller | gives a permit, if there is none |
//! | nudge | a close, a new deadline | the same as *event*: the user looks for the change |
//!
//! *No readiness is lost.* There are three cases. If the poller reports an edge before the user takes the permits, the
//! cause of the edge was there before the user's try, and the try finds the cause. If the poller reports an edge later,
//! and finds no permit, the poller gives a permit, and the wait ends. If the poller finds a permit and therefore gives
//! none, that permit has not been taken yet, and its taker tries afterwards. A surplus permit costs a try.
//!
//! The last case needs two sequentially consistent fences: one before the poller's look at the permits (in
//! [`Direction::nudge_blocked`]), and one after each taking of a permit (in [`Direction::took`]). The look read the
//! value that the taking replaced, so the first fence precedes the second in the order of the fences. So the try sees
//! everything that was there before the first fence: the event, the close, the new deadline. The ordering of the taking
//! alone does not guarantee this: on a processor where the taking is not a locked instruction, a later load may pass
//! the taking.
//!
//! Tasks await a direction beside the blocked call, and take none of these permits: see `awaited.rs`.
//!
//! An event may be reported for a descriptor that has been closed, and whose [`Desc`] belongs to another descriptor by
//! then. A `Desc` is therefore never freed, but used again.
//!
//! Reasons not to use the crate `polling` (3.11) on Linux: each of its waits makes three system calls, of which two set
//! a timerfd and arm the timerfd anew. A call returns at once, without looking for events, while another call waits. The
//! workers of this runtime poll often, also while another worker waits.
//!
//! Go: `runtime/netpoll.go`, `runtime/netpoll_epoll.go` (1.27).

#[cfg(all(target_os = "linux", not(sudog_polling)))]
#[path = "poller/epoll.rs"]
mod backend;
#[cfg(not(all(target_os = "linux", not(sudog_polling))))]
#[path = "poller/polling.rs"]
mod backend;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sudog_runtime::goroutine::{NetPoller, go, now, set_net_poller};
use sudog_runtime::panics::{Panics, drop_payload};
use sudog_runtime::sema::{Wake, semrelease, try_semacquire};

use crate::awaited::Awaited;
use crate::fd::{self, Source};
use crate::fd_mutex::Side;

/// The two directions of a descriptor. A call on the descriptor waits on the direction of the call's [`Side`].
pub(crate) struct Desc {
    read: Direction,
    write: Direction,
}

/// A direction of a descriptor: a semaphore and a deadline. See the top of this file.
pub(crate) struct Direction {
    /// The permits of the semaphore on which users of this direction wait.
    pub(crate) permits: AtomicU32,
    /// True if `deadline` is set. Spares calls without a deadline the lock.
    has_deadline: AtomicBool,
    deadline: Mutex<Option<Instant>>,
    /// The tasks that await this direction.
    pub(crate) awaited: Awaited,
}

impl Desc {
    /// Returns directions without a deadline, for a new socket. Give them back by [`give_back`](Self::give_back).
    pub(crate) fn take() -> &'static Self {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let desc =
            spare.unwrap_or_else(|| Box::leak(Box::new(Self { read: Direction::new(), write: Direction::new() })));
        for side in [Side::Read, Side::Write] {
            // Without a nudge: tasks that still await the last socket of `desc` are woken by the `close` of that socket.
            desc.direction(side).store_deadline(None);
        }
        desc
    }

    /// Keeps the directions for a later socket.
    pub(crate) fn give_back(&'static self) {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    pub(crate) fn direction(&self, side: Side) -> &Direction {
        match side {
            Side::Read => &self.read,
            Side::Write => &self.write,
        }
    }

    /// Makes the users of some directions try again, or look for a change. Runs the wakers of tasks after all blocked
    /// users have been woken. If a waker panics, the panic goes on at the end.
    pub(crate) fn nudge(&self, sides: &[Side], panics: &mut Panics) {
        let tasks_wait: Vec<_> = sides.iter().map(|&side| self.direction(side)).filter(|d| d.nudge_blocked()).collect();
        for direction in tasks_wait {
            panics.catch(|| direction.awaited.wake());
        }
    }
}

impl Direction {
    const fn new() -> Self {
        Self {
            permits: AtomicU32::new(0),
            has_deadline: AtomicBool::new(false),
            deadline: Mutex::new(None),
            awaited: Awaited::new(),
        }
    }

    /// Takes all permits. A user calls this before each try.
    pub(crate) fn prepare(&self) {
        while try_semacquire(&self.permits) {
            self.took();
        }
    }

    /// Orders the taking of a permit before the try. A user calls this after it has taken a permit and before it tries.
    /// The fence pairs with the fence of [`nudge_blocked`](Self::nudge_blocked).
    pub(crate) fn took(&self) {
        fence(Ordering::SeqCst);
    }

    /// Does the same as [`Desc::nudge`], for a caller that may run no user code: a goroutine runs the wakers of tasks. A
    /// waker that waits, or panics, does so there.
    pub(crate) fn event(&'static self) {
        // A task that is counted and not queued yet is not seen here. It reads the new number of events when it has queued.
        if self.nudge_blocked() && self.awaited.waiters() > 0 {
            go(|| _ = catch_unwind(|| self.awaited.wake()).map_err(drop_payload));
        }
    }

    /// Makes the blocked user of this direction try again. Returns true if tasks must be woken, too.
    fn nudge_blocked(&self) -> bool {
        let tasks_wait = self.awaited.event();
        // Relaxed: `event` has made the sequentially consistent fence that stands before this look at the permits.
        if self.permits.load(Ordering::Relaxed) == 0 {
            semrelease(&self.permits, Wake::Normal);
        }
        tasks_wait
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        // Acquire: pairs with the Release of `set_deadline`, which has stored the deadline before.
        if !self.has_deadline.load(Ordering::Acquire) {
            return None;
        }
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_timed_out(&self) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now())
    }

    /// Stores the deadline. Calls that wait look at the new deadline at the next nudge.
    pub(crate) fn store_deadline(&self, deadline: Option<Instant>) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
        self.has_deadline.store(deadline.is_some(), Ordering::Release);
    }
}

/// The `Desc`s that belong to no descriptor now, kept for later descriptors.
static SPARE: Mutex<Vec<&'static Desc>> = Mutex::new(Vec::new());

/// The sockets of the system.
impl<S: AsFd> Source for S {
    const OUTSIDE: bool = true;

    fn register(&self) -> io::Result<&'static Desc> {
        let poller = Poller::get()?;
        let desc = Desc::take();
        let added = poller.events.add(self.as_fd(), std::ptr::from_ref(desc).expose_provenance());
        added.inspect_err(|_| desc.give_back())?;
        Ok(desc)
    }

    fn unregister(&self, desc: &'static Desc) {
        if let Ok(poller) = Poller::get() {
            poller.events.remove(self.as_fd());
        }
        desc.give_back();
    }

    fn is_ready(&self, side: Side) -> io::Result<()> {
        fd::is_ready(self, side)
    }
}

/// A socket that is registered. A drop unregisters the socket, and then drops, and so closes, the socket.
pub(crate) struct Registered<S: Source> {
    socket: S,
    pub(crate) desc: &'static Desc,
}

impl<S: Source> Registered<S> {
    pub(crate) fn new(socket: S) -> io::Result<Self> {
        let desc = socket.register()?;
        Ok(Self { socket, desc })
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }
}

impl<S: Source> Drop for Registered<S> {
    fn drop(&mut self) {
        self.socket.unregister(self.desc);
    }
}

/// The events of the system. The number that is added with a descriptor is the address of a [`Desc`], and so neither 0 nor
/// `usize::MAX`.
trait Events: Sync + Sized {
    fn new() -> io::Result<Self>;

    /// Reports the events of a descriptor of both directions from now on, edge-triggered, with `data`.
    fn add(&self, fd: BorrowedFd<'_>, data: usize) -> io::Result<()>;

    /// Reports no more events of a descriptor that is still open, and that is closed next.
    fn remove(&self, fd: BorrowedFd<'_>);

    /// Calls `happened` for each event that has happened. Waits for an event as [`NetPoller::poll`] says. Neither panics
    /// nor runs user code.
    fn wait(&self, timeout: Option<Duration>, happened: impl FnMut(Event));

    /// Ends the wait, as [`NetPoller::interrupt`] says.
    fn interrupt(&self);
}

/// An event of a descriptor.
struct Event {
    /// The number that was added with the descriptor.
    data: usize,
    /// True if a call on this side may not block any more.
    read: bool,
    write: bool,
}

struct Poller {
    events: backend::Backend,
}

impl Poller {
    /// Returns the poller of the process. The first call creates the poller. If the creation fails, because no
    /// descriptors are left for instance, the next call tries again.
    fn get() -> io::Result<&'static Self> {
        static POLLER: OnceLock<Poller> = OnceLock::new();
        let poller = match POLLER.get() {
            Some(poller) => poller,
            None => {
                let made = Self { events: backend::Backend::new()? };
                // if another caller was faster, `made` is closed, and that caller's poller is used
                POLLER.get_or_init(|| made)
            }
        };
        // SAFETY: `poll` and `interrupt` only make system calls, wake waiters that are no tasks, and start goroutines:
        // neither panics, nor waits elsewhere than in the system.
        unsafe { set_net_poller(poller) };
        Ok(poller)
    }
}

impl NetPoller for Poller {
    fn poll(&self, timeout: Option<Duration>) {
        self.events.wait(timeout, |event| {
            // SAFETY: only addresses of `Desc`s are added (`Source::register`), and no `Desc` is ever freed.
            let desc: &'static Desc = unsafe { &*std::ptr::with_exposed_provenance(event.data) };
            if event.read {
                desc.read.event();
            }
            if event.write {
                desc.write.event();
            }
        });
    }

    fn interrupt(&self) {
        self.events.interrupt();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::backend::Backend;
    use super::*;

    fn nothing_happens(event: Event) {
        panic!("an event of {:#x}", event.data);
    }

    #[test]
    fn an_interrupt_is_left_to_the_call_that_waits() {
        let _watchdog = support::Watchdog::new();
        let events = Backend::new().unwrap();
        for _ in 0..3 {
            events.interrupt();
            events.wait(Some(Duration::ZERO), nothing_happens);
            events.wait(None, nothing_happens);
        }
    }

    #[test]
    fn an_interrupt_ends_a_wait_beside_polls() {
        let _watchdog = support::Watchdog::new();
        let events = Backend::new().unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|s| {
            s.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    events.wait(Some(Duration::ZERO), nothing_happens);
                }
            });
            s.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    events.interrupt();
                    thread::yield_now();
                }
            });
            (0..1000).for_each(|_| events.wait(None, nothing_happens));
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
