//! `Listener`: the listeners whose connections a server serves.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use hyper::rt::{Read, ReadBufCursor, Write};
use sudog_net::{PipeListener, PipeStream, TcpListener, TcpStream, UnixListener, UnixStream};
use sudog_sync::context::Context;

/// A listener that [`Server::serve`](crate::Server::serve) accepts: a [`TcpListener`], a [`UnixListener`], or, for tests, a
/// [`PipeListener`]. Go's `net.Listener`. No other type can implement this trait.
///
/// # Examples
///
/// A server in a bubble of `synctest`: the time limit of an idle connection, tested without waiting. Go's
/// `httptest.NewTestServer`.
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// use sudog::context::background;
/// use sudog::http::{Request, Server};
/// use sudog::net::PipeListener;
/// use sudog::{go, synctest, time};
///
/// synctest::test(|| {
///     let server = Server::new(|_: Request| "hello").idle_timeout(Duration::from_secs(3600));
///     let listener = PipeListener::new();
///     let dialer = listener.dialer();
///     go!(clone server; server.serve(listener).unwrap());
///
///     let begun = time::now();
///     let mut client = dialer.dial().unwrap();
///     client.write_all(b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n").unwrap();
///     let mut answer = String::new();
///     client.read_to_string(&mut answer).unwrap(); // until the server closes the connection
///     assert!(answer.ends_with("\r\n\r\nhello"));
///     assert_eq!(time::now() - begun, Duration::from_secs(3600));
///
///     server.shutdown(&background()).unwrap();
/// });
/// ```
pub trait Listener: Accept {}

impl<T: Accept> Listener for T {}

/// The implementation of [`Listener`], which other crates cannot name.
pub trait Accept {
    /// The type of the connections.
    type Stream: Stream;

    /// Waits for a connection until the context ends. Returns the connection and the address of its other end.
    fn accept(&self, ctx: &Context) -> io::Result<(Self::Stream, SocketAddr)>;
}

/// A connection. The methods are those of its type in `sudog_net`.
pub trait Stream: Send + Sync + Sized + 'static {
    fn poll_read(&self, cx: &mut TaskContext<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>>;
    fn poll_write(&self, cx: &mut TaskContext<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>>;
    /// Sends what earlier writes have left in a buffer. Streams of `sudog_net` have no buffer.
    fn poll_flush(&self, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(&self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>>;
    fn poll_read_ready(&self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>>;
    fn is_at_end(&self) -> bool;
    fn set_read_deadline(&self, deadline: Option<Instant>) -> io::Result<()>;
    fn read_async(&self, buf: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// Implements the traits for listeners and their streams. `$addr` is a function that turns the address that the listener
/// returns into a `SocketAddr`.
macro_rules! listener {
    ($($Listener:ident, $Stream:ident, $addr:expr;)+) => {$(
        impl Accept for $Listener {
            type Stream = $Stream;

            fn accept(&self, ctx: &Context) -> io::Result<($Stream, SocketAddr)> {
                self.accept_limited(ctx).map(|(stream, addr)| (stream, $addr(addr)))
            }
        }

        impl Stream for $Stream {
            fn poll_read(&self, cx: &mut TaskContext<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut &*self).poll_read(cx, buf)
            }

            fn poll_write(&self, cx: &mut TaskContext<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self).poll_write_vectored(cx, bufs)
            }

            fn poll_shutdown(&self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut &*self).poll_shutdown(cx)
            }

            fn poll_read_ready(&self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
                self.poll_read_ready(cx)
            }

            fn is_at_end(&self) -> bool {
                self.is_at_end()
            }

            fn set_read_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                self.set_read_deadline(deadline)
            }

            fn read_async(&self, buf: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send {
                self.read_async(buf)
            }
        }
    )+};
}

listener! {
    TcpListener, TcpStream, |addr| addr;
    UnixListener, UnixStream, |_| NO_ADDR;
    PipeListener, PipeStream, |_| NO_ADDR;
}

/// The address of a client that has no address of the Internet.
pub(crate) const NO_ADDR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
