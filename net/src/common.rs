//! What all sockets have: written once, by macros.

/// Of each socket over `NetFd<$Std>`, which is its field `fd`: options, deadlines, the end.
macro_rules! socket {
    ($Socket:ident, $Std:ty) => {
        impl $Socket {
            /// Takes a socket of `std`'s, and makes it one that does not block.
            ///
            /// # Errors
            ///
            /// The system's. The socket has been closed then.
            pub fn from_std(socket: $Std) -> std::io::Result<Self> {
                socket.set_nonblocking(true)?;
                Ok(Self { fd: crate::fd::NetFd::new(socket)? })
            }

            /// Lends the socket of `std`'s, for what takes no time: options. It does not block: a read or a write in here
            /// may fail with `WouldBlock`. It is not closed meanwhile.
            ///
            /// The socket must stay non-blocking: a clone (`try_clone`) shares the mode with this socket. If a clone is set to blocking, or
            /// `f` sets the socket, each later call on this socket that has to wait blocks its worker, and with it all
            /// goroutines that have started there.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed), and as `f`.
            pub fn with_std<T>(&self, f: impl FnOnce(&$Std) -> std::io::Result<T>) -> std::io::Result<T> {
                self.fd.with(f)
            }

            /// Closes it: pending and later calls fail with [`Closed`](crate::Closed). The descriptor is closed when the
            /// last pending call has returned. A socket that is dropped is closed, too.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed), if it is closed already.
            pub fn close(&self) -> std::io::Result<()> {
                self.fd.close()
            }

            /// The time at which reads (of a listener: `accept`) fail with `TimedOut`, those that wait at this moment as
            /// well as all later ones, until another deadline is set. A time that has passed: at once. None: never.
            ///
            /// Go's `SetReadDeadline`. Make it from [`now`](sudog_runtime::goroutine::now).
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed).
            pub fn set_read_deadline(&self, deadline: Option<std::time::Instant>) -> std::io::Result<()> {
                self.fd.set_deadline(&[crate::Side::Read], deadline)
            }

            /// How many calls of one side wait: for an event, or for their turn. For tests.
            pub fn waiters(&self, side: crate::Side) -> usize {
                self.fd.waiters(side)
            }

            /// The address of this end.
            ///
            /// # Errors
            ///
            /// The system's, and [`Closed`](crate::Closed).
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

/// What is written to, too.
macro_rules! writes {
    ($Socket:ident, $Std:ty) => {
        impl $Socket {
            /// As [`set_read_deadline`](Self::set_read_deadline), for writes. Go's `SetWriteDeadline`.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed).
            pub fn set_write_deadline(&self, deadline: Option<std::time::Instant>) -> std::io::Result<()> {
                self.fd.set_deadline(&[crate::Side::Write], deadline)
            }

            /// Both deadlines. Go's `SetDeadline`.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::Closed).
            pub fn set_deadline(&self, deadline: Option<std::time::Instant>) -> std::io::Result<()> {
                self.fd.set_deadline(&[crate::Side::Read, crate::Side::Write], deadline)
            }

            /// The address of the other end.
            ///
            /// # Errors
            ///
            /// The system's, and [`Closed`](crate::Closed).
            pub fn peer_addr(&self) -> std::io::Result<<$Std as crate::common::Addressed>::Addr> {
                self.fd.with(crate::common::Addressed::peer)
            }
        }
    };
}

/// Of a stream: `Read` and `Write`, of it and of a reference to it.
macro_rules! stream {
    ($Stream:ident, $Std:ty) => {
        socket!($Stream, $Std);
        writes!($Stream, $Std);

        impl $Stream {
            /// A read that ends when a context is done.
            ///
            /// # Errors
            ///
            /// The system's, [`Closed`](crate::Closed), and the context's: of kind `TimedOut` after its deadline, else
            /// `Other`.
            pub fn read_ctx(&self, ctx: &sudog_sync::context::Context, buf: &mut [u8]) -> std::io::Result<usize> {
                self.fd.call_ctx(ctx, crate::Side::Read, |socket| crate::common::read(socket, buf))
            }

            /// A write that ends when a context is done: how much has been written.
            ///
            /// # Errors
            ///
            /// As [`read_ctx`](Self::read_ctx).
            pub fn write_ctx(&self, ctx: &sudog_sync::context::Context, buf: &[u8]) -> std::io::Result<usize> {
                self.fd.call_ctx(ctx, crate::Side::Write, |mut socket| std::io::Write::write(&mut socket, buf))
            }

            /// Ends one direction, or both: the other end reads to the end. Go's `CloseRead` and `CloseWrite`.
            ///
            /// # Errors
            ///
            /// The system's, and [`Closed`](crate::Closed).
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

/// Of a listener of these streams, which `accept` makes of what `std` accepts, by `accepted`.
macro_rules! listener {
    ($Listener:ident, $Std:ty, $Stream:ident, $Addr:ty) => {
        socket!($Listener, $Std);

        impl $Listener {
            /// Waits for a connection: it, and the address of its other end.
            ///
            /// A connection that was given up before it was accepted is passed over. If the process, or the system, has no
            /// descriptors left, or no memory, this looks again after 5 milliseconds, and then after longer and longer,
            /// up to a second: the connections stay in the queue meanwhile.
            ///
            /// # Errors
            ///
            /// The system's, `TimedOut` at the deadline, and [`Closed`](crate::Closed).
            pub fn accept(&self) -> std::io::Result<($Stream, $Addr)> {
                let limit = sudog_runtime::sema::WaitLimit::default();
                let (socket, addr) =
                    self.fd.call(crate::Side::Read, &limit, |socket| crate::common::once(socket.accept()))?;
                Ok(($Stream::accepted(socket)?, addr))
            }

            /// An [`accept`](Self::accept) that ends when a context is done.
            ///
            /// # Errors
            ///
            /// As those of `accept`, and the context's: of kind `TimedOut` after its deadline, else `Other`.
            pub fn accept_ctx(&self, ctx: &sudog_sync::context::Context) -> std::io::Result<($Stream, $Addr)> {
                let call = |socket: &$Std| crate::common::once(socket.accept());
                let (socket, addr) = self.fd.call_ctx(ctx, crate::Side::Read, call)?;
                Ok(($Stream::accepted(socket)?, addr))
            }

            /// The connections, one after the other, until the listener is closed. Other errors are given.
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

/// A read into nothing has nothing to wait for. Go: `FD.Read`.
pub(crate) fn read(mut socket: impl std::io::Read, buf: &mut [u8]) -> std::io::Result<usize> {
    if buf.is_empty() { Ok(0) } else { socket.read(buf) }
}

/// What has addresses.
pub trait Addressed {
    /// Of this kind.
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

/// A listener has no other end.
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

/// A connection that its other end gave up before it was accepted: the next one.
pub(crate) fn once<T>(accepted: std::io::Result<T>) -> std::io::Result<T> {
    accepted.map_err(|error| match error.raw_os_error() {
        Some(libc::ECONNABORTED) => std::io::Error::from_raw_os_error(libc::EINTR),
        _ => error,
    })
}
