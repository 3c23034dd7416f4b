//! `NetFd`: a non-blocking socket whose calls wait, as Go's `poll.FD`. Used by all socket types of this crate, and by
//! pipes in memory.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use sudog_runtime::goroutine::{NetWait, SleepAsync, now, sleep_async};
use sudog_runtime::panics::Panics;
use sudog_runtime::sema::{IntoLimit, Order, WaitError, WaitLimit, semacquire_limited, waiters};
use sudog_runtime::{note_task_wait_at, note_wait_at, safepoint};

use crate::awaited::Wait;
use crate::fd_mutex::{FdMutex, FdRef, LockError, Side};
use crate::poller::{Desc, Registered};

/// The shortest and the longest pause before a call is retried after the system has run out of descriptors or memory.
/// Go's `net/http` uses the same pauses at `accept`.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// A socket whose calls may wait for an event of one of two directions: a socket of the system, whose events the poller
/// reports, or an end of a pipe in memory, whose events the other end reports.
pub(crate) trait Source {
    /// True if events come from the system. Then a thread polls while a call waits, and the call keeps a bubble from
    /// being at rest.
    const OUTSIDE: bool;

    /// Returns the directions on which the calls of this socket wait. From here on their events are reported.
    fn register(&self) -> io::Result<&'static Desc>;

    /// Ends what [`register`](Self::register) has begun. No call uses the socket any more.
    fn unregister(&self, desc: &'static Desc);

    /// Returns `Ok` if a call on `side` would not block, or would fail; otherwise EAGAIN.
    fn is_ready(&self, side: Side) -> io::Result<()>;
}

pub(crate) struct NetFd<S: Source> {
    /// The waits of [`poll`](Self::poll), for the read side and the write side, from the first call on.
    polls: OnceLock<Box<[Mutex<Option<Awaiting>>; 2]>>,
    mutex: FdMutex<Registered<S>>,
    desc: &'static Desc,
}

impl<S: Source> NetFd<S> {
    /// Registers a non-blocking socket, with the poller if the socket is one of the system.
    pub(crate) fn new(socket: S) -> io::Result<Self> {
        let registered = Registered::new(socket)?;
        let desc = registered.desc;
        Ok(Self { polls: OnceLock::new(), mutex: FdMutex::new(registered), desc })
    }

    /// Runs `call`. While `call` would block, waits for an event of the poller and runs `call` again.
    pub(crate) fn call<T>(
        &self,
        side: Side,
        limit: &WaitLimit<'_>,
        mut call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        safepoint(); // a socket that is always ready must not starve the other goroutines of this worker
        let guard = self.mutex.lock_limited(side, limit).map_err(|why| match why {
            LockError::Closed => closed(),
            LockError::GaveUp(why) => why.into(),
        })?;
        let direction = self.desc.direction(side);
        let mut back_off = None;
        loop {
            direction.prepare();
            if guard.is_closed() {
                return Err(closed());
            }
            if direction.is_timed_out() {
                return Err(timed_out());
            }
            match call(guard.socket()) {
                Ok(result) => return Ok(result),
                Err(error) => match Failure::of(&error, side) {
                    Failure::WouldBlock => back_off = None,
                    Failure::Interrupted => continue,
                    Failure::OutOfResources => back_off = Some(next_pause(back_off)),
                    Failure::Other => return Err(error),
                },
            }
            let again = back_off.and_then(|d| now().checked_add(d));
            let deadline = [limit.deadline, direction.deadline(), again].into_iter().flatten().min();
            let wait = S::OUTSIDE.then(NetWait::begin);
            note_wait_at("IO wait", self);
            let over = semacquire_limited(&direction.permits, Order::Fifo, &WaitLimit { deadline, ..*limit });
            drop(wait);
            match over {
                Err(why @ WaitError::Cancelled) => return Err(why.into()),
                Err(why @ WaitError::TimedOut) if limit.deadline.is_some_and(|deadline| deadline <= now()) => {
                    return Err(why.into());
                }
                Ok(()) => direction.took(),
                // The next iteration checks the direction's deadline before the next try.
                Err(_) => {}
            }
        }
    }

    /// Runs `call` once, without locking a side: see `awaited.rs`. An interrupted call is run again.
    pub(crate) fn try_call<T>(&self, side: Side, mut call: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        let registered = self.mutex.refer().ok_or_else(closed)?;
        if self.desc.direction(side).is_timed_out() {
            return Err(timed_out());
        }
        loop {
            match call(registered.socket()) {
                Err(error) if Failure::of(&error, side) == Failure::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Runs `call` as [`call`](Self::call) does, for a task: while `call` would block, the future is pending. The future
    /// locks no side.
    pub(crate) async fn call_async<T>(&self, side: Side, mut call: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        let mut awaiting = Awaiting::new(self.desc, side);
        poll_fn(|cx| self.poll_call(side, &mut awaiting, cx, &mut call)).await
    }

    /// Polls as the future of [`call_async`](Self::call_async) does. The socket stores the wait of a single task for each
    /// side: a poll by another task takes the place, and wakes the task that had the place, which must poll again.
    pub(crate) fn poll<T>(
        &self,
        side: Side,
        cx: &mut task::Context<'_>,
        call: impl FnMut(&S) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let slot = &self.polls.get_or_init(Box::default)[usize::from(side == Side::Write)];
        let lock = || slot.lock().unwrap_or_else(PoisonError::into_inner);
        // Take the wait out: polling it clones and drops wakers, which are user code.
        let stored = lock().take();
        let mut awaiting = stored.unwrap_or_else(|| Awaiting::new(self.desc, side));
        let displaced = awaiting.waker.take();
        let polled = self.poll_call(side, &mut awaiting, cx, call);
        let mut replaced = None;
        if polled.is_pending() {
            awaiting.waker = Some(cx.waker().clone());
            replaced = lock().replace(awaiting);
        }
        // Another task's wait is over without an event. That task must poll again, or it would never be woken.
        for waker in [displaced, replaced.and_then(|mut awaiting| awaiting.waker.take())].into_iter().flatten() {
            if !waker.will_wake(cx.waker()) {
                waker.wake();
            }
        }
        polled
    }

    fn poll_call<T>(
        &self,
        side: Side,
        awaiting: &mut Awaiting,
        cx: &mut task::Context<'_>,
        mut call: impl FnMut(&S) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            let Awaiting { wait, back_off, .. } = awaiting;
            let polled = wait.poll_try(cx, || match self.try_call(side, &mut call) {
                Err(error) => match Failure::of(&error, side) {
                    Failure::WouldBlock => {
                        *back_off = None;
                        Poll::Pending
                    }
                    Failure::OutOfResources => {
                        let pause = next_pause(back_off.map(|(pause, _)| pause));
                        *back_off = Some((pause, now() + pause));
                        Poll::Pending
                    }
                    Failure::Interrupted | Failure::Other => Poll::Ready(Err(error)),
                },
                result => Poll::Ready(result),
            });
            awaiting.alarm = None;
            if polled.is_ready() {
                awaiting.in_poller = None;
                return polled;
            }
            if S::OUTSIDE {
                awaiting.in_poller.get_or_insert_with(NetWait::begin);
            }
            let again = awaiting.back_off.map(|(_, again)| again);
            let Some(deadline) = [self.desc.direction(side).deadline(), again].into_iter().flatten().min() else {
                note_task_wait_at("IO wait", self);
                return Poll::Pending;
            };
            let alarm = awaiting.alarm.insert(sleep_async(deadline.saturating_duration_since(now())));
            if Pin::new(alarm).poll(cx).is_pending() {
                note_task_wait_at("IO wait", self);
                return Poll::Pending;
            }
            awaiting.wait.try_again(); // if the time is the socket's deadline, the try fails with `TimedOut`
        }
    }

    /// Waits until a call on `side` would not block, or would fail.
    pub(crate) async fn ready_async(&self, side: Side) -> io::Result<()> {
        self.call_async(side, |socket| socket.is_ready(side)).await
    }

    /// Polls as the future of [`ready_async`](Self::ready_async) does.
    pub(crate) fn poll_ready(&self, side: Side, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.poll(side, cx, |socket| socket.is_ready(side))
    }

    /// Runs `f`, which must not block, without locking either side: for options and addresses.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&S) -> io::Result<T>) -> io::Result<T> {
        let registered: FdRef<'_, Registered<S>> = self.mutex.refer().ok_or_else(closed)?;
        f(registered.socket())
    }

    pub(crate) fn set_deadline(&self, sides: &[Side], deadline: Option<Instant>) -> io::Result<()> {
        // while the socket is referred to, `desc` belongs to this socket
        let _in_use = self.mutex.refer().ok_or_else(closed)?;
        sides.iter().for_each(|&side| self.desc.direction(side).store_deadline(deadline));
        let mut panics = Panics::default();
        self.desc.nudge(sides, &mut panics);
        panics.resume();
        Ok(())
    }

    /// Returns the number of calls that wait for an event or for their turn, and of tasks that await an event.
    pub(crate) fn waiters(&self, side: Side) -> usize {
        let Some(_in_use) = self.mutex.refer() else { return 0 };
        let direction = self.desc.direction(side);
        self.mutex.waiters(side) + waiters(&direction.permits) + direction.awaited.waiters()
    }

    pub(crate) fn close(&self) -> io::Result<()> {
        // While a reference to the socket exists, `desc` belongs to this socket. So the nudge wakes no task of another socket.
        let in_use = self.mutex.refer().ok_or_else(closed)?;
        if !self.mutex.close() {
            return Err(closed());
        }
        let mut panics = Panics::default();
        self.desc.nudge(&[Side::Read, Side::Write], &mut panics);
        // Drop the stored waits of tasks. These tasks have been woken, and find the socket closed.
        for slot in self.polls.get().into_iter().flat_map(|slots| slots.iter()) {
            let stored = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            panics.catch(|| drop(stored));
        }
        drop(in_use);
        panics.resume();
        Ok(())
    }
}

/// A task's wait for an event.
struct Awaiting {
    wait: Wait<'static>,
    /// The alarm at the socket's deadline, or at the end of a pause. The alarm wakes the task.
    alarm: Option<SleepAsync>,
    /// The last pause, and the time of its end, at which the call is run again. None, unless the system has run out of
    /// resources.
    back_off: Option<(Duration, Instant)>,
    /// Keeps a thread polling while the task waits.
    in_poller: Option<NetWait>,
    /// The waker of the task whose wait the socket stores.
    waker: Option<task::Waker>,
}

impl Awaiting {
    fn new(desc: &'static Desc, side: Side) -> Self {
        Self {
            wait: Wait::new(&desc.direction(side).awaited),
            alarm: None,
            back_off: None,
            in_poller: None,
            waker: None,
        }
    }
}

/// The kind of a call's error, by which a wait decides what to do next.
#[derive(PartialEq, Eq)]
enum Failure {
    WouldBlock,
    Interrupted,
    /// A pending connection stays in the backlog and causes no further event, so the call is retried after a pause.
    OutOfResources,
    Other,
}

impl Failure {
    fn of(error: &io::Error, side: Side) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINPROGRESS) => Self::WouldBlock,
            Some(libc::EINTR) => Self::Interrupted,
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) if side == Side::Read => {
                Self::OutOfResources
            }
            _ => Self::Other,
        }
    }
}

/// Returns the pause that follows the pause `last`.
fn next_pause(last: Option<Duration>) -> Duration {
    let (first, longest) = BACK_OFF;
    last.map_or(first, |last| (last * 2).min(longest))
}

/// Asks the system whether a socket is ready: see [`Source::is_ready`].
pub(crate) fn is_ready(socket: &impl AsFd, side: Side) -> io::Result<()> {
    let events = match side {
        #[cfg(target_os = "linux")]
        Side::Read => libc::POLLIN | libc::POLLRDHUP,
        #[cfg(not(target_os = "linux"))]
        Side::Read => libc::POLLIN,
        Side::Write => libc::POLLOUT,
    };
    let mut polled = libc::pollfd { fd: socket.as_fd().as_raw_fd(), events, revents: 0 };
    // SAFETY: `polled` is a single entry, and outlives the call.
    match unsafe { libc::poll(&mut polled, 1, 0) } {
        0 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        n if n < 0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl<S: Source + fmt::Debug> fmt::Debug for NetFd<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mutex.refer() {
            Some(registered) => registered.socket().fmt(f),
            None => f.pad("(closed)"),
        }
    }
}

/// The error of an operation on a socket if [`close`](crate::TcpStream::close) closed the socket before or during the
/// operation. Go's `net.ErrClosed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("use of closed network connection")
    }
}

impl std::error::Error for Closed {}

/// Returns whether an error says that the socket has been closed on this side: Go's `errors.Is(err, net.ErrClosed)`.
#[must_use]
pub fn is_closed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Closed>())
}

pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, Closed)
}

pub(crate) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "i/o timeout")
}

/// Returns the reason, if an error says that a call reached its own limit, as opposed to the socket's deadline.
pub(crate) fn why_gave_up(error: &io::Error) -> Option<WaitError> {
    error.get_ref()?.downcast_ref().copied()
}

/// Runs `call` under a limit. The outer result is an error if the limit ended the call, or if the limit had come before.
pub(crate) fn run_limited<T, L: IntoLimit>(
    limit: L,
    call: impl FnOnce(&WaitLimit<'_>) -> io::Result<T>,
) -> Result<io::Result<T>, L::Error> {
    limit.limited(|limit| match call(limit) {
        Err(error) if let Some(why) = why_gave_up(&error) => Err(why),
        result => Ok(result),
    })
}

/// Runs `call` under a limit. The error of a call that the limit ended is the limit's error.
pub(crate) fn limited<T, L: IntoLimit<Error: Into<io::Error>>>(
    limit: L,
    call: impl FnOnce(&WaitLimit<'_>) -> io::Result<T>,
) -> io::Result<T> {
    run_limited(limit, call).unwrap_or_else(|error| Err(error.into()))
}
