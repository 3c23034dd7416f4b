//! `NetFd`: a non-blocking socket whose calls wait, as Go's `poll.FD`. Used by all socket types of this crate.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sudog_runtime::goroutine::{NetWait, now};
use sudog_runtime::sema::{Order, WaitError, WaitLimit, semacquire_limited, waiters};
use sudog_runtime::{note_wait, safepoint};
use sudog_sync::context::{self, Context};

use crate::fd_mutex::{FdMutex, FdRef, LockError, Side};
use crate::poller::{Desc, Registered};

/// The shortest and the longest pause before a call is retried after the system has run out of descriptors or memory.
/// Go's `net/http` uses the same pauses at `accept`.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

pub(crate) struct NetFd<S: AsFd> {
    mutex: FdMutex<Registered<S>>,
    desc: &'static Desc,
}

impl<S: AsFd> NetFd<S> {
    /// Registers a non-blocking socket with the poller.
    pub(crate) fn new(socket: S) -> io::Result<Self> {
        let registered = Registered::new(socket)?;
        let desc = registered.desc;
        Ok(Self { mutex: FdMutex::new(registered), desc })
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
            LockError::GaveUp(why) => gave_up(why),
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
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINPROGRESS) => back_off = None,
                    Some(libc::EINTR) => continue,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) if side == Side::Read => {
                        // The pending connection stays in the backlog and causes no further event, so retry after a
                        // pause.
                        let (first, longest) = BACK_OFF;
                        back_off = Some(back_off.map_or(first, |last: Duration| (last * 2).min(longest)));
                    }
                    _ => return Err(error),
                },
            }
            let again = back_off.and_then(|d| now().checked_add(d));
            let deadline = [limit.deadline, direction.deadline(), again].into_iter().flatten().min();
            let wait = NetWait::begin();
            // SAFETY: the holder is null.
            unsafe { note_wait("IO wait", std::ptr::null()) };
            let over = semacquire_limited(&direction.permits, Order::Fifo, &WaitLimit { deadline, ..*limit });
            drop(wait);
            match over {
                Err(WaitError::Cancelled) => return Err(gave_up(WaitError::Cancelled)),
                Err(WaitError::TimedOut) if limit.deadline.is_some_and(|deadline| deadline <= now()) => {
                    return Err(gave_up(WaitError::TimedOut));
                }
                Ok(()) => direction.took(),
                // The next iteration checks the direction's deadline before the next try.
                Err(_) => {}
            }
        }
    }

    /// Runs `call` as [`call`](Self::call) does, but gives up when a context is done.
    pub(crate) fn call_ctx<T>(
        &self,
        ctx: &Context,
        side: Side,
        call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut result = None;
        let over = ctx.limited(|limit| match self.call(side, limit, call) {
            Err(error) if let Some(why) = why_gave_up(&error) => Err(why),
            other => {
                result = Some(other);
                Ok(())
            }
        });
        match over {
            Ok(()) => result.unwrap_or_else(|| Err(closed())),
            Err(error) => Err(of_context(error)),
        }
    }

    /// Runs `f`, which must not block, without locking either side: for options and addresses.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&S) -> io::Result<T>) -> io::Result<T> {
        let registered: FdRef<'_, Registered<S>> = self.mutex.refer().ok_or_else(closed)?;
        f(registered.socket())
    }

    pub(crate) fn set_deadline(&self, sides: &[Side], deadline: Option<Instant>) -> io::Result<()> {
        // while the socket is referred to, `desc` belongs to this socket
        let _in_use = self.mutex.refer().ok_or_else(closed)?;
        sides.iter().for_each(|&side| self.desc.direction(side).set_deadline(deadline));
        Ok(())
    }

    /// Returns the number of calls that wait for an event or for their turn.
    pub(crate) fn waiters(&self, side: Side) -> usize {
        let Some(_in_use) = self.mutex.refer() else { return 0 };
        self.mutex.waiters(side) + waiters(&self.desc.direction(side).permits)
    }

    pub(crate) fn close(&self) -> io::Result<()> {
        if !self.mutex.close() {
            return Err(closed());
        }
        // The `Desc` may belong to another socket by now. The nudge then costs a user of that socket a needless look.
        [Side::Read, Side::Write].into_iter().for_each(|side| self.desc.direction(side).nudge());
        Ok(())
    }
}

impl<S: AsFd + fmt::Debug> fmt::Debug for NetFd<S> {
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

/// The error of a call that reached its own limit, as opposed to the socket's deadline.
#[derive(Debug)]
struct GaveUp(WaitError);

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for GaveUp {}

pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, Closed)
}

pub(crate) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "i/o timeout")
}

fn gave_up(why: WaitError) -> io::Error {
    let kind = if why == WaitError::TimedOut { io::ErrorKind::TimedOut } else { io::ErrorKind::Other };
    io::Error::new(kind, GaveUp(why))
}

fn why_gave_up(error: &io::Error) -> Option<WaitError> {
    error.get_ref()?.downcast_ref::<GaveUp>().map(|gave_up| gave_up.0)
}

pub(crate) fn of_context(error: context::Error) -> io::Error {
    let kind = if error.timeout() { io::ErrorKind::TimedOut } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}
