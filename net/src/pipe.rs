//! Connections in memory: [`PipeStream`], and [`PipeReader`] with [`PipeWriter`]. Go's `net.Pipe` and `io.Pipe`.
//!
//! An end of a pipe is the socket of a [`NetFd`], like a socket of the system. So turns, deadlines, contexts, closes and
//! tasks are those of all sockets. Different: the calls of the *other end* make the events, not the poller; and so a wait
//! for an event is durable in a bubble.
//!
//! A pipe has two halves, one for each direction of bytes. A half has a buffer with a capacity. If the capacity is 0, the
//! half is *synchronous*: a write that waits puts its bytes into the empty buffer as an *offer*, and returns when a reader
//! has taken the bytes. A write that gives up takes the unread bytes back. The steps, each under the lock of the half:
//!
//! | step | if | then |
//! |---|---|---|
//! | offer | the buffer is empty | the buffer holds up to [`OFFER`] bytes of the write; event for the reader |
//! | | a reader has taken all bytes of the offer | the next offer, or the write is done |
//! | put: a write into a buffer; or of a task, which makes no offers | there is room, in a synchronous half: the buffer is empty | the buffer holds the bytes; event for the reader |
//! | take | the buffer has bytes, which are no offer of a closed end | the reader has bytes; event for the writer |
//! | take back | the offer has not been read | the buffer is empty; event for the next writer |
//! | leave | an end is closed or shut down | the half knows; events for both ends |
//!
//! A task makes no offers, because a future may be dropped, or polled with other bytes. A caller that finds no room, or no
//! bytes, waits for the event that follows the step that it needs. No event is lost: see `poller.rs`.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sudog_runtime::sema::{IntoLimit, WaitLimit};

use crate::Side;
use crate::common::{reads_and_writes, waits, write_waits};
use crate::fd::{NetFd, Source, closed};
use crate::poller::Desc;

/// The maximum number of bytes of an offer, and of a task's write to a synchronous half.
const OFFER: usize = 64 * 1024;

/// The bytes of one direction.
struct Half {
    /// The capacity of the buffer. 0: the half is synchronous.
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The bytes that have been written and not read.
    buffer: VecDeque<u8>,
    /// The number of bytes that have been read.
    taken: u64,
    /// True if the bytes of `buffer` are an offer.
    is_offer: bool,
    /// How the end that reads has left. None: that end has not left.
    reader: Option<Left>,
    /// How the end that writes has left. None: that end has not left.
    writer: Option<Left>,
}

/// The ways in which an end leaves a half.
#[derive(Clone)]
enum Left {
    Shut,
    Closed,
    /// Closed, with an error for the other end.
    With(Arc<io::Error>),
}

impl Half {
    fn new(capacity: usize) -> Self {
        Self { capacity, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_synchronous(&self) -> bool {
        self.capacity == 0
    }

    /// Returns the number of bytes that a put may add.
    fn room(&self, state: &State) -> usize {
        match self.capacity {
            0 if state.buffer.is_empty() => OFFER,
            0 => 0,
            capacity => capacity - state.buffer.len(),
        }
    }

    /// Marks the end on `side` as left. An end that has been closed stays closed in the way in which it was closed first.
    fn leave(&self, side: Side, how: &Left) {
        let mut state = self.lock();
        let end = match side {
            Side::Read => &mut state.reader,
            Side::Write => &mut state.writer,
        };
        if matches!(end, None | Some(Left::Shut)) {
            *end = Some(how.clone());
        }
    }
}

impl State {
    /// Returns true if a read finds bytes.
    fn has_bytes(&self) -> bool {
        let is_withdrawn = self.is_offer && self.writer.is_some();
        !self.buffer.is_empty() && !is_withdrawn
    }

    /// Returns the result of a read that finds no bytes.
    fn without_bytes(&self) -> io::Result<usize> {
        match (&self.reader, &self.writer) {
            (Some(Left::Shut), _) => Ok(0),
            (Some(_), _) => Err(closed()),
            (None, Some(Left::With(error))) => Err(shared(error)),
            (None, Some(_)) => Ok(0),
            (None, None) => Err(would_block()),
        }
    }

    /// Returns the error of a write if an end has left.
    fn check_write(&self) -> io::Result<()> {
        match (&self.writer, &self.reader) {
            (Some(Left::Shut), _) => Err(io::ErrorKind::BrokenPipe.into()),
            (Some(_), _) => Err(closed()),
            (None, Some(Left::With(error))) => Err(shared(error)),
            (None, Some(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            (None, None) => Ok(()),
        }
    }

    /// Moves up to `room` bytes out of the buffer: `copy` receives slices, and the position of each slice. Returns the
    /// number of bytes.
    fn take(&mut self, room: usize, mut copy: impl FnMut(usize, &[u8])) -> usize {
        let n = room.min(self.buffer.len());
        let (front, back) = self.buffer.as_slices();
        let from_front = n.min(front.len());
        copy(0, &front[..from_front]);
        copy(from_front, &back[..n - from_front]);
        self.buffer.drain(..n);
        self.taken += n as u64;
        n
    }
}

fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

fn shared(error: &Arc<io::Error>) -> io::Error {
    io::Error::new(error.kind(), error.clone())
}

/// The two halves of a pipe, and the directions on which the calls of its two ends wait.
struct Shared {
    /// `halves[n]` has the bytes that end `n` reads.
    halves: [Half; 2],
    descs: [&'static Desc; 2],
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.descs.iter().for_each(|desc| desc.give_back());
    }
}

/// An end of a pipe.
#[derive(Clone)]
pub(crate) struct PipeEnd {
    shared: Arc<Shared>,
    /// The index of this end: 0 or 1.
    end: usize,
}

/// The state of a write that makes offers.
#[derive(Default)]
struct Offer {
    /// The number of bytes that have been offered, in all offers.
    offered: usize,
    /// The value of `State::taken` once the last offer has been read.
    end: u64,
}

impl PipeEnd {
    fn pair(capacity: usize) -> [Self; 2] {
        let halves = [Half::new(capacity), Half::new(capacity)];
        let shared = Arc::new(Shared { halves, descs: [Desc::take(), Desc::take()] });
        [Self { shared: shared.clone(), end: 0 }, Self { shared, end: 1 }]
    }

    fn incoming(&self) -> &Half {
        &self.shared.halves[self.end]
    }

    fn outgoing(&self) -> &Half {
        &self.shared.halves[1 - self.end]
    }

    fn event_here(&self, side: Side) {
        self.shared.descs[self.end].direction(side).event();
    }

    fn event_there(&self, side: Side) {
        self.shared.descs[1 - self.end].direction(side).event();
    }

    /// Reads up to `room` bytes by `copy`: see [`State::take`].
    fn read_with(&self, room: usize, copy: impl FnMut(usize, &[u8])) -> io::Result<usize> {
        if room == 0 {
            return Ok(0);
        }
        let half = self.incoming();
        let mut state = half.lock();
        if !state.has_bytes() || state.reader.is_some() {
            return state.without_bytes();
        }
        let n = state.take(room, copy);
        let is_empty = state.buffer.is_empty();
        drop(state);
        // A write to a synchronous half waits for the last of its bytes.
        if is_empty || !half.is_synchronous() {
            self.event_there(Side::Write);
        }
        Ok(n)
    }

    /// Writes as many bytes as there is room for.
    fn put(&self, bytes: &[u8]) -> io::Result<usize> {
        let half = self.outgoing();
        let mut state = half.lock();
        state.check_write()?;
        let n = bytes.len().min(half.room(&state));
        if n == 0 {
            return if bytes.is_empty() { Ok(0) } else { Err(would_block()) };
        }
        state.buffer.extend(&bytes[..n]);
        state.is_offer = false;
        drop(state);
        self.event_there(Side::Read);
        Ok(n)
    }

    /// Makes the next offer of a write of `bytes`, if the last one has been read. Returns the number of bytes if all of
    /// them have been read.
    fn offer(&self, bytes: &[u8], offer: &mut Offer) -> io::Result<usize> {
        let mut state = self.outgoing().lock();
        state.check_write()?;
        if offer.offered == bytes.len() && state.taken >= offer.end {
            return Ok(offer.offered);
        }
        if !state.buffer.is_empty() {
            return Err(would_block()); // the buffer holds the last offer, or bytes of a task
        }
        let next = &bytes[offer.offered..];
        let next = &next[..next.len().min(OFFER)];
        state.buffer.extend(next);
        state.is_offer = true;
        offer.offered += next.len();
        offer.end = state.taken + next.len() as u64;
        drop(state);
        self.event_there(Side::Read);
        Err(would_block())
    }

    /// Takes back the bytes of an offer that have not been read. Returns the number of bytes that have been read, of all
    /// offers of the write.
    fn take_back(&self, offer: &Offer) -> usize {
        let mut state = self.outgoing().lock();
        // If bytes of the offer are left, the buffer holds only these: nothing else is put into a buffer that is not empty.
        let unread = offer.end.saturating_sub(state.taken) as usize;
        if unread > 0 {
            state.buffer.clear();
            drop(state);
            self.event_here(Side::Write);
        }
        offer.offered - unread
    }

    fn leave(&self, shutdown: Shutdown, how: &Left) {
        if shutdown != Shutdown::Write {
            self.incoming().leave(Side::Read, how);
        }
        if shutdown != Shutdown::Read {
            self.outgoing().leave(Side::Write, how);
        }
        for side in [Side::Read, Side::Write] {
            self.event_here(side);
            self.event_there(side);
        }
    }
}

impl Source for PipeEnd {
    const OUTSIDE: bool = false;

    fn register(&self) -> io::Result<&'static Desc> {
        Ok(self.shared.descs[self.end])
    }

    fn unregister(&self, _: &'static Desc) {
        self.leave(Shutdown::Both, &Left::Closed);
    }

    fn is_ready(&self, side: Side) -> io::Result<()> {
        let ready = match side {
            Side::Read => {
                let state = self.incoming().lock();
                state.has_bytes() || state.reader.is_some() || state.writer.is_some()
            }
            Side::Write => {
                let half = self.outgoing();
                let state = half.lock();
                half.room(&state) > 0 || state.check_write().is_err()
            }
        };
        if ready { Ok(()) } else { Err(would_block()) }
    }
}

impl io::Read for &PipeEnd {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_with(buf.len(), |at, bytes| buf[at..at + bytes.len()].copy_from_slice(bytes))
    }
}

impl io::Write for &PipeEnd {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.put(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for PipeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unread = self.incoming().lock().buffer.len();
        f.debug_struct("PipeStream").field("unread", &unread).finish_non_exhaustive()
    }
}

/// The address of each end of a pipe. All addresses are equal. Displayed as `pipe`, as in Go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PipeAddr;

impl fmt::Display for PipeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("pipe")
    }
}

/// Creates two streams in memory that are connected to each other, without a buffer. Go's `net.Pipe`.
///
/// A write waits until the other end has read all of its bytes: by one read, or by several. See [`PipeStream`].
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use sudog::{net, run, spawn};
///
/// run(|| {
///     let (mut client, mut server) = net::pipe();
///     let server = spawn(move || {
///         let mut line = [0; 5];
///         server.read_exact(&mut line)?;
///         server.write_all(&line)
///     });
///     client.write_all(b"hello")?;
///     let mut echo = String::new();
///     client.read_to_string(&mut echo)?; // until the server has dropped its end
///     assert_eq!(echo, "hello");
///     server.join().unwrap()
/// })
/// # .unwrap();
/// ```
///
/// Deadlines are by the clock of a bubble of `synctest`, and no time passes:
///
/// ```
/// use std::io::{ErrorKind, Read};
/// use std::time::Duration;
/// use sudog::{net, synctest, time};
///
/// synctest::test(|| {
///     let (mut client, _server) = net::pipe();
///     let deadline = time::now() + Duration::from_secs(3600);
///     client.set_read_deadline(Some(deadline)).unwrap();
///     assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
///     assert_eq!(time::now(), deadline);
/// });
/// ```
#[must_use]
pub fn pipe() -> (PipeStream, PipeStream) {
    let [one, other] = PipeEnd::pair(0).map(PipeStream::new);
    (one, other)
}

/// Creates two streams in memory that are connected to each other, with a buffer of `capacity` bytes for each direction.
/// A write waits only while the buffer is full, and so behaves as that of a socket.
///
/// # Panics
///
/// If `capacity` is 0: call [`pipe`] instead.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
///
/// let (mut here, mut there) = sudog::net::buffered_pipe(1024);
/// here.write_all(b"hello")?; // goes into the buffer
/// drop(here);
/// let mut text = String::new();
/// there.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # Ok::<_, std::io::Error>(())
/// ```
#[must_use]
pub fn buffered_pipe(capacity: usize) -> (PipeStream, PipeStream) {
    assert!(capacity > 0, "a buffer of 0 bytes");
    let [one, other] = PipeEnd::pair(capacity).map(PipeStream::new);
    (one, other)
}

/// A connection in memory, used like a [`TcpStream`](crate::TcpStream): an end of a [`pipe`], or of a connection to a
/// [`PipeListener`](crate::PipeListener).
///
/// Threads, goroutines and tasks may use it. In a bubble of `synctest` a wait of a goroutine is durable, and deadlines are
/// by the bubble's clock; both ends should be used in that bubble.
///
/// * When an end is closed, the other end reads the bytes in the buffer, and then the end of the stream; its writes fail
///   with `BrokenPipe`.
/// * Without a buffer, a write that ends early (at a deadline, for instance) after a part of its bytes has been read
///   returns the number of these bytes, and the next write fails. Go returns both at once. A write of no bytes returns at
///   once; in Go it waits for a read.
/// * Without a buffer, a *task's* write, and `try_write`, are not synchronous: the pipe keeps the bytes, up to 64 KiB, if
///   all earlier ones have been read. A future may be dropped at any time, and so cannot wait for a reader.
pub struct PipeStream {
    fd: NetFd<PipeEnd>,
    /// The same end as in `fd`, for use after a close.
    end: PipeEnd,
}

waits!(PipeStream);
write_waits!(PipeStream);
reads_and_writes!(PipeStream, PipeEnd);

impl PipeStream {
    fn new(end: PipeEnd) -> Self {
        let fd = NetFd::new(end.clone()).unwrap_or_else(|error| unreachable!("a pipe registers nothing: {error}"));
        Self { fd, end }
    }

    /// Closes this end: pending and later calls of this end fail with [`Closed`](crate::Closed). A drop closes the end,
    /// too.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::Closed), if the end is closed already. (In Go a second close succeeds.)
    pub fn close(&self) -> io::Result<()> {
        self.close_as(&Left::Closed)
    }

    fn close_as(&self, how: &Left) -> io::Result<()> {
        // Leave before the pending calls of this end have returned: the last of them would do so.
        self.fd.with(|end| {
            end.leave(Shutdown::Both, how);
            Ok(())
        })?;
        self.fd.close()
    }

    /// Returns true if a read would find the end of the stream, or would fail, now. For the crates of this project.
    #[doc(hidden)]
    pub fn is_at_end(&self) -> bool {
        let state = self.end.incoming().lock();
        state.reader.is_some() || (state.writer.is_some() && !state.has_bytes())
    }

    /// Makes the calls of the other end fail, and leaves the pipe.
    pub(crate) fn reset(&self, error: io::Error) {
        self.end.leave(Shutdown::Both, &Left::With(Arc::new(error)));
    }

    /// Shuts down one direction, or both. The other end reads the bytes in the buffer, and then the end of the stream.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::Closed).
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.fd.with(|end| {
            end.leave(how, &Left::Shut);
            Ok(())
        })
    }

    /// Returns the address of this end.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::Closed).
    pub fn local_addr(&self) -> io::Result<PipeAddr> {
        self.fd.with(|_| Ok(PipeAddr))
    }

    /// Returns the address of the other end.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::Closed).
    pub fn peer_addr(&self) -> io::Result<PipeAddr> {
        self.fd.with(|_| Ok(PipeAddr))
    }

    pub(crate) fn accepted(stream: Self) -> io::Result<Self> {
        Ok(stream)
    }

    fn call_write(&self, buf: &[u8], limit: &WaitLimit<'_>) -> io::Result<usize> {
        self.write_by(buf, |step| self.fd.call(Side::Write, limit, step))
    }

    /// Writes the first slice that is not empty.
    fn call_write_vectored(&self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let first = bufs.iter().find(|buf| !buf.is_empty());
        self.call_write(first.map_or(&[], |buf| buf), &WaitLimit::default())
    }

    /// Writes `buf`. `call` is given a step, and repeats that step until the step returns a result.
    fn write_by(
        &self,
        buf: &[u8],
        call: impl FnOnce(&mut dyn FnMut(&PipeEnd) -> io::Result<usize>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !self.end.outgoing().is_synchronous() {
            return call(&mut |end| end.put(buf));
        }
        let mut offer = Offer::default();
        call(&mut |end| end.offer(buf, &mut offer)).or_else(|error| match self.end.take_back(&offer) {
            0 => Err(error),
            n => Ok(n),
        })
    }

    /// Reads into memory that need not be initialised.
    #[cfg(feature = "hyper")]
    pub(crate) fn recv(end: &PipeEnd, room: &mut [std::mem::MaybeUninit<u8>]) -> io::Result<usize> {
        end.read_with(room.len(), |at, bytes| _ = room[at..at + bytes.len()].write_copy_of_slice(bytes))
    }
}

/// Creates a pipe without a buffer: what is written to the writer is read from the reader. Go's `io.Pipe`.
///
/// Connects code that writes with code that reads. A write waits until all of its bytes have been read.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use sudog::{go, net, run};
///
/// run(|| {
///     let (mut reader, mut writer) = net::io_pipe();
///     go(move || {
///         writeln!(writer, "some text").unwrap();
///         writer.close().unwrap();
///     });
///     let mut text = String::new();
///     reader.read_to_string(&mut text).unwrap();
///     assert_eq!(text, "some text\n");
/// });
/// ```
#[must_use]
pub fn io_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe();
    (PipeReader(reader), PipeWriter(writer))
}

/// The end of an [`io_pipe`] that reads. Go's `io.PipeReader`.
#[derive(Debug)]
pub struct PipeReader(PipeStream);

/// The end of an [`io_pipe`] that writes. Go's `io.PipeWriter`.
#[derive(Debug)]
pub struct PipeWriter(PipeStream);

/// Generates the closes of an end of an [`io_pipe`].
macro_rules! closes {
    ($End:ident, $calls:literal) => {
        impl $End {
            /// Closes this end. Pending and later calls of this end fail with [`Closed`](crate::Closed). A drop closes the
            /// end, too.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed), if the end is closed already.
            pub fn close(&self) -> io::Result<()> {
                self.0.close()
            }

            #[doc = concat!("Closes this end as [`close`](Self::close) does. ", $calls, " of the other end fail with an")]
            /// error of the same kind as `error`, in which [`get_ref`](io::Error::get_ref) finds `error` as an
            /// `Arc<io::Error>`. Go's `CloseWithError`.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed), if the end is closed already. The first error stays then.
            pub fn close_with_error(&self, error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Result<()> {
                let error = match error.into().downcast::<io::Error>() {
                    Ok(error) => *error,
                    Err(error) => io::Error::other(error),
                };
                self.0.close_as(&Left::With(Arc::new(error)))
            }
        }
    };
}

closes!(PipeReader, "Writes");
closes!(PipeWriter, "Reads");

impl PipeReader {
    /// Reads as `Read::read` does, but gives up at a limit: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The error of the writer's close, [`Closed`](crate::Closed), or the limit's error.
    pub fn read_limited<L: IntoLimit<Error: Into<io::Error>>>(&self, buf: &mut [u8], limit: L) -> io::Result<usize> {
        self.0.read_limited(buf, limit)
    }

    /// Returns the number of reads that wait. For tests.
    pub fn waiters(&self) -> usize {
        self.0.waiters(Side::Read)
    }
}

impl PipeWriter {
    /// Writes as `Write::write` does, but gives up at a limit: see [`IntoLimit`]. Returns the number of bytes that have
    /// been read, which may be fewer than those of `buf` then.
    ///
    /// # Errors
    ///
    /// The error of the reader's close, [`Closed`](crate::Closed), or the limit's error.
    pub fn write_limited<L: IntoLimit<Error: Into<io::Error>>>(&self, buf: &[u8], limit: L) -> io::Result<usize> {
        self.0.write_limited(buf, limit)
    }

    /// Returns the number of writes that wait. For tests.
    pub fn waiters(&self) -> usize {
        self.0.waiters(Side::Write)
    }
}

impl io::Read for &PipeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buf)
    }
}

impl io::Read for PipeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl io::Write for &PipeWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&self.0).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Write for PipeWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
