//! The methods that all sockets have. Macros write them once.

/// Writes the methods of every socket: options, deadlines, the close. The socket's field `fd` is a `NetFd<$Std>`.
macro_rules! socket {
    ($Socket:ident, $Std:ty) => {
        impl $Socket {
            /// Takes a socket of `std`, and makes the socket non-blocking.
            ///
            /// # Errors
            ///
            /// An error of the system. The socket has been closed then.
            pub fn from_std(socket: $Std) -> std::io::Result<Self> {
                socket.set_nonblocking(true)?;
                Ok(Self { fd: crate::fd::NetFd::new(socket)? })
            }

            /// Lends the socket of `std` to `f`, which must not wait: for options. The socket is non-blocking, so a
            /// read or a write in `f` may fail with `WouldBlock`. The socket is not closed while `f` runs.
            ///
            /// The socket must stay non-blocking. A clone (`try_clone`) shares the mode with this socket. If a clone is
            /// set to blocking, or `f` sets the socket to blocking, each later call on this socket that has to wait
            /// blocks its worker, and with the worker all goroutines that have started there.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed), and the errors of `f`.
            pub fn with_std<T>(&self, f: impl FnOnce(&$Std) -> std::io::Result<T>) -> std::io::Result<T> {
                self.fd.with(f)
            }

            /// Closes the socket: pending and later calls fail with [`Closed`](crate::Closed). The descriptor is closed
            /// when the last pending call has returned. A drop closes the socket, too.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed), if the socket is closed already.
            pub fn close(&self) -> std::io::Result<()> {
                self.fd.close()
            }

            /// Sets the time at which reads (of a listener: `accept`) fail with `TimedOut`: the reads that wait at this
            /// moment and all later reads, until another deadline is set. With a time that has passed, they fail at
            /// once; with None, never.
            ///
            /// Go's `SetReadDeadline`. Calculate the deadline from [`now`](sudog_runtime::goroutine::now).
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed).
            pub fn set_read_deadline(&self, deadline: Option<std::time::Instant>) -> std::io::Result<()> {
                self.fd.set_deadline(&[crate::Side::Read], deadline)
            }

            /// Returns the number of calls on one side that wait for an event or for their turn. For tests.
            pub fn waiters(&self, side: crate::Side) -> usize {
                self.fd.waiters(side)
            }

            /// Returns the address of this end.
            ///
            /// # Errors
            ///
            /// An error of the system, or [`Closed`](crate::Closed).
            pub fn local_addr(&self) -> std::io::Result<<$Std as crate::common::Addressed>::Addr> {
                self.fd.with(crate::common::Addressed::local)
            }
        }

        impl std::fmt::Debug for $Socket {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.fd.fmt(f)
            }
        }
    };
}

/// Writes the methods of sockets that can be written to.
macro_rules! writes {
    ($Socket:ident, $Std:ty) => {
        impl $Socket {
            /// Sets the deadline of writes, as [`set_read_deadline`](Self::set_read_deadline) does for reads. Go's
            /// `SetWriteDeadline`.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed).
            pub fn set_write_deadline(&self, deadline: Option<std::time::Instant>) -> std::io::Result<()> {
                self.fd.set_deadline(&[crate::Side::Write], deadline)
            }

            /// Sets both deadlines. Go's `SetDeadline`.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed).
            pub fn set_deadline(&self, deadline: Option<std::time::Instant>) -> std::io::Result<()> {
                self.fd.set_deadline(&[crate::Side::Read, crate::Side::Write], deadline)
            }

            /// Returns the address of the other end.
            ///
            /// # Errors
            ///
            /// An error of the system, or [`Closed`](crate::Closed).
            pub fn peer_addr(&self) -> std::io::Result<<$Std as crate::common::Addressed>::Addr> {
                self.fd.with(crate::common::Addressed::peer)
            }
        }
    };
}

/// Writes the methods of a stream, and implements `Read` and `Write` for the stream and for references to the stream.
macro_rules! stream {
    ($Stream:ident, $Std:ty) => {
        socket!($Stream, $Std);
        writes!($Stream, $Std);

        impl $Stream {
            /// Reads, but ends when a context is done.
            ///
            /// # Errors
            ///
            /// An error of the system, [`Closed`](crate::Closed), or the context's error: of kind `TimedOut` after the
            /// context's deadline, else `Other`.
            pub fn read_ctx(&self, ctx: &sudog_sync::context::Context, buf: &mut [u8]) -> std::io::Result<usize> {
                self.fd.call_ctx(ctx, crate::Side::Read, |socket| crate::common::read(socket, buf))
            }

            /// Writes, but ends when a context is done. Returns the number of bytes that were written.
            ///
            /// # Errors
            ///
            /// The same as those of [`read_ctx`](Self::read_ctx).
            pub fn write_ctx(&self, ctx: &sudog_sync::context::Context, buf: &[u8]) -> std::io::Result<usize> {
                self.fd.call_ctx(ctx, crate::Side::Write, |mut socket| std::io::Write::write(&mut socket, buf))
            }

            /// Ends one direction, or both. The other end reads the remaining bytes, then the end. Go's `CloseRead` and
            /// `CloseWrite`.
            ///
            /// # Errors
            ///
            /// An error of the system, or [`Closed`](crate::Closed).
            pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
                self.fd.with(|socket| socket.shutdown(how))
            }

            fn read_side<T>(&self, call: impl FnMut(&$Std) -> std::io::Result<T>) -> std::io::Result<T> {
                self.fd.call(crate::Side::Read, &sudog_runtime::sema::WaitLimit::default(), call)
            }

            fn write_side<T>(&self, call: impl FnMut(&$Std) -> std::io::Result<T>) -> std::io::Result<T> {
                self.fd.call(crate::Side::Write, &sudog_runtime::sema::WaitLimit::default(), call)
            }
        }

        impl std::io::Read for &$Stream {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.read_side(|socket| crate::common::read(socket, buf))
            }

            fn read_vectored(&mut self, bufs: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                self.read_side(|mut socket| socket.read_vectored(bufs))
            }
        }

        impl std::io::Write for &$Stream {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                self.write_side(|mut socket| socket.write(buf))
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.write_side(|mut socket| socket.write_vectored(bufs))
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::io::Read for $Stream {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buf)
            }

            fn read_vectored(&mut self, bufs: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                (&*self).read_vectored(bufs)
            }
        }

        impl std::io::Write for $Stream {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}

/// Writes the methods of a listener. `$Stream::accepted` makes a stream of each socket that the `std` listener accepts.
macro_rules! listener {
    ($Listener:ident, $Std:ty, $Stream:ident, $Addr:ty) => {
        socket!($Listener, $Std);

        impl $Listener {
            /// Waits for a connection. Returns the connection and the address of its other end.
            ///
            /// A connection that its other end gave up before it was accepted is skipped. If the process or the system
            /// has no descriptors left, or no memory, this call retries after 5 milliseconds, and then after longer and
            /// longer pauses, up to a second. The connections stay in the queue meanwhile.
            ///
            /// # Errors
            ///
            /// An error of the system, `TimedOut` at the deadline, or [`Closed`](crate::Closed).
            pub fn accept(&self) -> std::io::Result<($Stream, $Addr)> {
                let limit = sudog_runtime::sema::WaitLimit::default();
                let (socket, addr) =
                    self.fd.call(crate::Side::Read, &limit, |socket| crate::common::once(socket.accept()))?;
                Ok(($Stream::accepted(socket)?, addr))
            }

            /// Waits as [`accept`](Self::accept) does, but ends when a context is done.
            ///
            /// # Errors
            ///
            /// The same as those of `accept`, or the context's error: of kind `TimedOut` after the context's deadline,
            /// else `Other`.
            pub fn accept_ctx(&self, ctx: &sudog_sync::context::Context) -> std::io::Result<($Stream, $Addr)> {
                let call = |socket: &$Std| crate::common::once(socket.accept());
                let (socket, addr) = self.fd.call_ctx(ctx, crate::Side::Read, call)?;
                Ok(($Stream::accepted(socket)?, addr))
            }

            /// Returns an iterator of connections, which ends when the listener is closed. The iterator yields all
            /// other errors.
            pub fn incoming(&self) -> impl Iterator<Item = std::io::Result<$Stream>> + '_ {
                std::iter::from_fn(|| match self.accept() {
                    Err(error) if crate::is_closed(&error) => None,
                    accepted => Some(accepted.map(|(stream, _)| stream)),
                })
            }
        }
    };
}

pub(crate) use {listener, socket, stream, writes};

/// Reads, unless `buf` is empty: then there is nothing to wait for. Go: `FD.Read`.
pub(crate) fn read(mut socket: impl std::io::Read, buf: &mut [u8]) -> std::io::Result<usize> {
    if buf.is_empty() { Ok(0) } else { socket.read(buf) }
}

/// A socket that has addresses.
pub trait Addressed {
    /// The type of the addresses.
    type Addr;

    #[doc(hidden)]
    fn local(&self) -> std::io::Result<Self::Addr>;

    #[doc(hidden)]
    fn peer(&self) -> std::io::Result<Self::Addr>;
}

macro_rules! addressed {
    ($($Std:ty: $Addr:ty;)+) => {$(
        impl Addressed for $Std {
            type Addr = $Addr;

            fn local(&self) -> std::io::Result<Self::Addr> {
                self.local_addr()
            }

            fn peer(&self) -> std::io::Result<Self::Addr> {
                self.peer_addr()
            }
        }
    )+};
}

addressed! {
    std::net::TcpStream: std::net::SocketAddr;
    std::net::UdpSocket: std::net::SocketAddr;
    std::os::unix::net::UnixStream: std::os::unix::net::SocketAddr;
    std::os::unix::net::UnixDatagram: std::os::unix::net::SocketAddr;
}

/// Implements [`Addressed`] for listeners, which have no other end.
macro_rules! listens {
    ($($Std:ty: $Addr:ty;)+) => {$(
        impl Addressed for $Std {
            type Addr = $Addr;

            fn local(&self) -> std::io::Result<Self::Addr> {
                self.local_addr()
            }

            fn peer(&self) -> std::io::Result<Self::Addr> {
                Err(std::io::ErrorKind::NotConnected.into())
            }
        }
    )+};
}

listens! {
    std::net::TcpListener: std::net::SocketAddr;
    std::os::unix::net::UnixListener: std::os::unix::net::SocketAddr;
}

/// Turns the error of a connection that its other end gave up before it was accepted into EINTR, so that the call
/// accepts the next connection.
pub(crate) fn once<T>(accepted: std::io::Result<T>) -> std::io::Result<T> {
    accepted.map_err(|error| match error.raw_os_error() {
        Some(libc::ECONNABORTED) => std::io::Error::from_raw_os_error(libc::EINTR),
        _ => error,
    })
}
