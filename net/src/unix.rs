//! Unix sockets: `UnixStream`, `UnixListener` and `UnixDatagram`.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::{Domain, SockAddr};
use sudog_runtime::sema::{IntoLimit, WaitLimit};

use crate::Side;
use crate::common::{datagrams, listener, socket, stream, writes};
use crate::dial::{dial, dial_async, stream_socket};
use crate::fd::{NetFd, limited};

/// A connection of Unix sockets, used like a [`TcpStream`](crate::TcpStream). Go's `net.UnixConn`, of network `unix`.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use sudog::net::UnixStream;
///
/// let (mut here, mut there) = UnixStream::pair()?;
/// here.write_all(b"hello")?;
/// drop(here);
/// let mut text = String::new();
/// there.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct UnixStream {
    fd: NetFd<std::os::unix::net::UnixStream>,
}

stream!(UnixStream, std::os::unix::net::UnixStream);

impl UnixStream {
    /// Connects to the listener at a path.
    ///
    /// # Errors
    ///
    /// An error of the system. `WouldBlock` means that the listener has a full queue.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_within(path.as_ref(), &WaitLimit::default())
    }

    /// Connects as [`connect`](UnixStream::connect) does, but gives up at a limit: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The same as those of `connect`, or the limit's error: of kind `TimedOut` after a deadline, else `Other`.
    pub fn connect_limited<L: IntoLimit<Error: Into<io::Error>>>(path: impl AsRef<Path>, limit: L) -> io::Result<Self> {
        limited(limit, |limit| Self::connect_within(path.as_ref(), limit))
    }

    /// Connects as [`connect`](UnixStream::connect) does, for a task.
    ///
    /// # Errors
    ///
    /// The same as those of `connect`.
    pub async fn connect_async(path: impl AsRef<Path>) -> io::Result<Self> {
        let socket = stream_socket(Domain::UNIX, None)?;
        Ok(Self { fd: dial_async(socket, &SockAddr::unix(path)?).await? })
    }

    fn accepted(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        Self::from_std(socket)
    }

    fn connect_within(path: &Path, limit: &WaitLimit<'_>) -> io::Result<Self> {
        let socket = stream_socket(Domain::UNIX, None)?;
        Ok(Self { fd: dial(socket, &SockAddr::unix(path)?, limit)? })
    }

    /// Creates two streams that are connected to each other. Go's `net.Pipe`, with a buffer.
    ///
    /// # Errors
    ///
    /// An error of the system.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }
}

/// A listener, which waits for connections at a path. Go's `net.UnixListener`.
///
/// Different from Go: the path stays when the listener is closed, as with the listener of `std`.
pub struct UnixListener {
    fd: NetFd<std::os::unix::net::UnixListener>,
}

listener!(UnixListener, std::os::unix::net::UnixListener, UnixStream, SocketAddr);

impl UnixListener {
    /// Listens at a path, at which no file may exist.
    ///
    /// # Errors
    ///
    /// An error of the system: `AddrInUse`, if the path exists.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(std::os::unix::net::UnixListener::bind(path)?)
    }
}

/// A Unix socket of packets. Go's `net.UnixConn`, of network `unixgram`.
pub struct UnixDatagram {
    fd: NetFd<std::os::unix::net::UnixDatagram>,
}

socket!(UnixDatagram, std::os::unix::net::UnixDatagram);
writes!(UnixDatagram, std::os::unix::net::UnixDatagram);
datagrams!(UnixDatagram, SocketAddr, &Path);

impl UnixDatagram {
    /// Creates a socket at a path, at which no file may exist.
    ///
    /// # Errors
    ///
    /// An error of the system.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(std::os::unix::net::UnixDatagram::bind(path)?)
    }

    /// Creates two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// An error of the system.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std::os::unix::net::UnixDatagram::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }

    /// Sends a packet to a path.
    ///
    /// # Errors
    ///
    /// An error of the system, `TimedOut` at the deadline, or [`Closed`](crate::Closed).
    pub fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.fd.call(Side::Write, &WaitLimit::default(), |socket| socket.send_to(buf, path))
    }

    /// Waits for a packet. Returns the number of bytes stored in `buf`, and the sender's address.
    ///
    /// # Errors
    ///
    /// An error of the system, `TimedOut` at the deadline, or [`Closed`](crate::Closed).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.call(Side::Read, &WaitLimit::default(), |socket| socket.recv_from(buf))
    }

    /// Sends a packet to the other socket of a [`pair`](UnixDatagram::pair).
    ///
    /// # Errors
    ///
    /// The same as those of [`send_to`](UnixDatagram::send_to).
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.fd.call(Side::Write, &WaitLimit::default(), |socket| socket.send(buf))
    }

    /// Waits for a packet. Returns the number of bytes stored in `buf`.
    ///
    /// # Errors
    ///
    /// The same as those of [`recv_from`](UnixDatagram::recv_from).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.fd.call(Side::Read, &WaitLimit::default(), |socket| socket.recv(buf))
    }
}
