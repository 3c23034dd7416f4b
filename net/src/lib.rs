//! Network I/O for goroutines, and for threads: TCP, UDP and Unix sockets. Go's package `net`, over `std`'s types.
//!
//! A call that would block blocks the goroutine, not the worker: the goroutine waits for a semaphore, which the poller
//! releases. Streams implement `Read` and `Write`, so code that is written for the streams of `std` runs on these too:
//! rustls, tungstenite, and others.
//!
//! | Go | here |
//! |---|---|
//! | `net.Dial("tcp", addr)`, `net.DialTimeout`, `DialContext` | [`TcpStream::connect`], [`connect_limited`](TcpStream::connect_limited) |
//! | a call that ends with a context | `x_limited` for each call `x` that waits: see [`IntoLimit`](sudog_runtime::sema::IntoLimit) |
//! | `net.Listen`, `l.Accept()` | [`TcpListener::bind`], [`accept`](TcpListener::accept), [`incoming`](TcpListener::incoming) |
//! | `c.SetDeadline(t)` | [`set_deadline`](TcpStream::set_deadline)`(Some(t))`: pending calls, too |
//! | `c.Close()`, which ends pending calls; `net.ErrClosed` | [`close`](TcpStream::close); [`is_closed`] |
//! | `c.CloseWrite()` | [`shutdown`](TcpStream::shutdown) |
//! | `os.ErrDeadlineExceeded` | `ErrorKind::TimedOut` |
//! | `net.ListenPacket("udp", addr)` | [`UdpSocket::bind`] |
//! | `net.Listen("unix", path)` | [`UnixListener::bind`] |
//! | a task, which Go has not | `x_async` for each call `x` that waits; [`readable`](TcpStream::readable), [`try_read`](TcpStream::try_read); with the features `futures-io` and `hyper` these crates' traits |
//! | `internal/poll.fdMutex` | [`low_level::FdMutex`] |
//! | `os.File` | [`BlockingIo`] |
//! | `net.Pipe`; `io.Pipe` | [`pipe`](fn@pipe), [`buffered_pipe`]; [`io_pipe`] |
//! | `os/exec` with a context | [`process`] |
//! | the listener of `httptest.NewTestServer` | [`PipeListener`] |
//!
//! The design, and figures: `docs/net.md`. Unix systems with epoll or kqueue.

// docs.rs shows which features and systems an item needs.
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(sudog_loom, sudog_sim))))]

#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod addrs;
mod awaited;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod blocking_io;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod common;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod dial;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod fd;
mod fd_mutex;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod pipe;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod pipe_listener;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim)), any(feature = "futures-io", feature = "hyper")))]
mod poll_io;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod poller;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
pub mod process;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod tcp;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod udp;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
mod unix;

#[doc(hidden)]
pub use awaited::{Awaited, Wait};
pub use fd_mutex::Side;
#[cfg(all(unix, not(any(sudog_loom, sudog_sim))))]
pub use {
    addrs::ToAddrs,
    blocking_io::BlockingIo,
    fd::{Closed, is_closed},
    pipe::{PipeAddr, PipeReader, PipeStream, PipeWriter, buffered_pipe, io_pipe, pipe},
    pipe_listener::{PipeDialer, PipeListener},
    tcp::{TcpListener, TcpStream},
    udp::UdpSocket,
    unix::{UnixDatagram, UnixListener, UnixStream},
};

/// The lock of a descriptor, for other sockets than those of this crate.
pub mod low_level {
    pub use crate::fd_mutex::{FdGuard, FdMutex, FdRef, LockError};
}
