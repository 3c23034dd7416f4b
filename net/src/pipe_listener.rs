//! `PipeListener`: a listener of connections in memory, for tests of servers, also in bubbles of `synctest`.
//!
//! The listener is the socket of a [`NetFd`], as an end of a pipe is. An accept waits on the read side until a connection
//! is in the backlog. A dial waits on the write side until the backlog has room.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sudog_runtime::sema::{IntoLimit, WaitLimit};

use crate::common::{accepts, waits};
use crate::fd::{NetFd, Source, limited};
use crate::poller::Desc;
use crate::{PipeAddr, PipeStream, Side, buffered_pipe, is_closed, pipe};

/// The connections that wait to be accepted.
struct Backlog {
    pending: Mutex<VecDeque<PipeStream>>,
    /// The maximum number of connections in `pending`.
    limit: usize,
    desc: &'static Desc,
}

impl Backlog {
    fn lock(&self) -> MutexGuard<'_, VecDeque<PipeStream>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self) -> io::Result<(PipeStream, PipeAddr)> {
        let stream = self.lock().pop_front().ok_or_else(would_block)?;
        self.desc.direction(Side::Write).event();
        Ok((stream, PipeAddr))
    }

    /// Moves the connection of `stream` into the backlog, if there is room.
    fn add(&self, stream: &mut Option<PipeStream>) -> io::Result<()> {
        let mut pending = self.lock();
        if pending.len() >= self.limit {
            return Err(would_block());
        }
        pending.extend(stream.take());
        drop(pending);
        self.desc.direction(Side::Read).event();
        Ok(())
    }
}

fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

impl Source for Backlog {
    const OUTSIDE: bool = false;

    fn register(&self) -> io::Result<&'static Desc> {
        Ok(self.desc)
    }

    fn unregister(&self, desc: &'static Desc) {
        for stream in self.lock().drain(..) {
            stream.reset(io::ErrorKind::ConnectionReset.into());
        }
        desc.give_back();
    }

    fn is_ready(&self, side: Side) -> io::Result<()> {
        let n = self.lock().len();
        let ready = match side {
            Side::Read => n > 0,
            Side::Write => n < self.limit,
        };
        if ready { Ok(()) } else { Err(would_block()) }
    }
}

impl fmt::Debug for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeListener").field("backlog", &self.lock().len()).finish_non_exhaustive()
    }
}

/// A listener, which waits for connections in memory. A server can be tested with it without the network, and in a bubble
/// of `synctest`, where no time passes.
///
/// [`dialer`](Self::dialer) returns the handle that connects. As with a TCP listener, a dial returns once the connection
/// is in the listener's backlog, and waits while the backlog is full. Go has such a listener inside of
/// `httptest.NewTestServer`; `bufconn` of gRPC is another one.
///
/// # Examples
///
/// A server's timeout of a minute, tested without waiting:
///
/// ```
/// use std::io::{ErrorKind, Read, Write};
/// use std::time::Duration;
/// use sudog::net::PipeListener;
/// use sudog::{go, synctest, time};
///
/// const MINUTE: Duration = Duration::from_secs(60);
///
/// synctest::test(|| {
///     let listener = PipeListener::new();
///     let dialer = listener.dialer();
///     go(move || {
///         for stream in listener.incoming() {
///             let mut stream = stream.unwrap();
///             stream.set_read_deadline(Some(time::now() + MINUTE)).unwrap();
///             let error = stream.read(&mut [0]).unwrap_err();
///             assert_eq!(error.kind(), ErrorKind::TimedOut);
///             stream.write_all(b"too late").unwrap();
///             break;
///         }
///     });
///     let begun = time::now();
///     let mut answer = String::new();
///     dialer.dial().unwrap().read_to_string(&mut answer).unwrap();
///     assert_eq!(answer, "too late");
///     assert_eq!(time::now() - begun, MINUTE);
/// });
/// ```
pub struct PipeListener {
    fd: Arc<NetFd<Backlog>>,
    capacity: usize,
}

waits!(PipeListener);
accepts!(PipeListener, Backlog, PipeStream, PipeAddr);

/// The capacity of each direction of a connection: that of a pipe of Linux.
const CAPACITY: usize = 64 * 1024;
/// As many connections may wait to be accepted as with the sockets of the system.
const BACKLOG: usize = 4096;

impl PipeListener {
    /// Creates a listener whose connections have a buffer of 64 KiB for each direction. 4096 connections may wait to be
    /// accepted.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(BACKLOG, CAPACITY)
    }

    /// Creates a listener with a backlog of `backlog` connections, and at least of a single connection. Its connections
    /// have buffers of `capacity` bytes. If `capacity` is 0, the connections are synchronous, as those of
    /// [`pipe`](crate::pipe()) are.
    #[must_use]
    pub fn with_capacity(backlog: usize, capacity: usize) -> Self {
        let backlog = Backlog { pending: Mutex::default(), limit: backlog.max(1), desc: Desc::take() };
        let fd = NetFd::new(backlog).unwrap_or_else(|error| unreachable!("nothing is registered: {error}"));
        Self { fd: Arc::new(fd), capacity }
    }

    /// Returns a handle that connects to this listener. The handle does not keep the listener open.
    #[must_use]
    pub fn dialer(&self) -> PipeDialer {
        PipeDialer { fd: self.fd.clone(), capacity: self.capacity }
    }

    /// Closes the listener: pending and later calls fail with [`Closed`](crate::Closed). Connections that have not been
    /// accepted fail with `ConnectionReset` at their other end. A drop closes the listener, too.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::Closed), if the listener is closed already.
    pub fn close(&self) -> io::Result<()> {
        self.fd.close()
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::Closed).
    pub fn local_addr(&self) -> io::Result<PipeAddr> {
        self.fd.with(|_| Ok(PipeAddr))
    }
}

impl Default for PipeListener {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PipeListener {
    fn drop(&mut self) {
        _ = self.fd.close();
    }
}

/// A handle that connects to a [`PipeListener`].
#[derive(Clone, Debug)]
pub struct PipeDialer {
    fd: Arc<NetFd<Backlog>>,
    capacity: usize,
}

impl PipeDialer {
    /// Connects to the listener. Waits while the backlog is full.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused`, if the listener is closed.
    pub fn dial(&self) -> io::Result<PipeStream> {
        self.dial_limited(&WaitLimit::default())
    }

    /// Connects as [`dial`](Self::dial) does, but gives up at a limit: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The same as those of `dial`, or the limit's error: of kind `TimedOut` after a deadline, else `Other`.
    pub fn dial_limited<L: IntoLimit<Error: Into<io::Error>>>(&self, limit: L) -> io::Result<PipeStream> {
        let (here, there) = self.connection();
        let mut there = Some(there);
        let dial = |limit: &WaitLimit<'_>| self.fd.call(Side::Write, limit, |backlog| backlog.add(&mut there));
        limited(limit, dial).map_err(refused)?;
        Ok(here)
    }

    /// Connects as [`dial`](Self::dial) does, for a task. A future that is dropped before it is ready has not connected.
    ///
    /// # Errors
    ///
    /// The same as those of `dial`.
    pub async fn dial_async(&self) -> io::Result<PipeStream> {
        let (here, there) = self.connection();
        let mut there = Some(there);
        self.fd.call_async(Side::Write, |backlog| backlog.add(&mut there)).await.map_err(refused)?;
        Ok(here)
    }

    fn connection(&self) -> (PipeStream, PipeStream) {
        match self.capacity {
            0 => pipe(),
            capacity => buffered_pipe(capacity),
        }
    }
}

fn refused(error: io::Error) -> io::Error {
    if is_closed(&error) { io::ErrorKind::ConnectionRefused.into() } else { error }
}
