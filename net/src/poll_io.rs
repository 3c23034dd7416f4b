//! The traits of `futures-io` and of `hyper` for the streams.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Side;
use crate::{PipeStream, TcpStream, UnixStream};

/// Implements the traits of `futures-io` for a stream, and for a reference to the stream.
#[cfg(feature = "futures-io")]
macro_rules! futures_io {
    ($($Stream:ty),+) => {$(
        impl futures_io::AsyncRead for $Stream {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
                self.fd().poll(Side::Read, cx, |socket| crate::common::read(socket, buf))
            }
        }

        impl futures_io::AsyncWrite for $Stream {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.fd().poll(Side::Write, cx, |mut socket| io::Write::write(&mut socket, buf))
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Shuts down the direction of writes.
            fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(end_of_writes(self.shutdown(std::net::Shutdown::Write)))
            }
        }
    )+};
}

#[cfg(feature = "futures-io")]
futures_io!(PipeStream, &PipeStream, TcpStream, &TcpStream, UnixStream, &UnixStream);

/// Returns `Ok` for a connection that the peer has reset: there is no direction left to shut down.
fn end_of_writes(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.raw_os_error() == Some(libc::ENOTCONN) { Ok(()) } else { Err(error) })
}

/// Implements the traits of `hyper` for a stream, and for a reference to the stream. `$recv` receives from the stream's
/// socket into memory that need not be initialised.
#[cfg(feature = "hyper")]
macro_rules! hyper {
    ($recv:path: $($Stream:ty),+) => {$(
        impl hyper::rt::Read for $Stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                mut buf: hyper::rt::ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                // SAFETY: `$recv` only writes initialised bytes into the room.
                let room = unsafe { buf.as_mut() };
                let received = self.fd().poll(Side::Read, cx, |socket| $recv(socket, room));
                received.map_ok(|n| {
                    // SAFETY: `$recv` has initialised the first `n` bytes of the room.
                    unsafe { buf.advance(n) };
                })
            }
        }

        impl hyper::rt::Write for $Stream {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.fd().poll(Side::Write, cx, |mut socket| io::Write::write(&mut socket, buf))
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.fd().poll(Side::Write, cx, |mut socket| io::Write::write_vectored(&mut socket, bufs))
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Shuts down the direction of writes.
            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(end_of_writes(self.shutdown(std::net::Shutdown::Write)))
            }
        }
    )+};
}

#[cfg(feature = "hyper")]
hyper!(recv: TcpStream, &TcpStream, UnixStream, &UnixStream);
#[cfg(feature = "hyper")]
hyper!(PipeStream::recv: PipeStream, &PipeStream);

#[cfg(feature = "hyper")]
fn recv(socket: &impl std::os::fd::AsFd, room: &mut [std::mem::MaybeUninit<u8>]) -> io::Result<usize> {
    socket2::SockRef::from(socket).recv(room)
}
