//! TCP sockets: `TcpStream` and `TcpListener`.

use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive};
use sudog_runtime::goroutine::spawn;
use sudog_runtime::sema::{IntoLimit, WaitLimit};

use crate::addrs::ToAddrs;
use crate::common::{listener, socket, stream, writes};
use crate::dial::{dial, dial_async, dial_first, stream_socket};
use crate::fd::{NetFd, limited};

/// A TCP connection. Go's `net.TCPConn`.
///
/// The stream implements `Read` and `Write`, and so does a reference to the stream: one goroutine may read while
/// another writes, and a third [`close`](TcpStream::close)s the stream. Reads wait for each other, and so do writes. As
/// in Go, the delay of small packets is off at both ends, and [probes](TcpStream::set_keepalive) find peers that are
/// gone: for connected streams and for accepted streams, but not for a socket that [`from_std`](TcpStream::from_std) takes.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use sudog::net::{TcpListener, TcpStream};
/// use sudog::{go, run};
///
/// run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let addr = listener.local_addr()?;
///     go(move || {
///         let (stream, _) = listener.accept().unwrap();
///         std::io::copy(&mut &stream, &mut &stream).unwrap(); // an echo
///     });
///     let mut stream = TcpStream::connect(addr)?;
///     stream.write_all(b"hello")?;
///     stream.shutdown(std::net::Shutdown::Write)?;
///     let mut echo = String::new();
///     stream.read_to_string(&mut echo)?;
///     assert_eq!(echo, "hello");
///     Ok::<_, std::io::Error>(())
/// })
/// # .unwrap();
/// ```
pub struct TcpStream {
    fd: NetFd<std::net::TcpStream>,
}

stream!(TcpStream, std::net::TcpStream);

impl TcpStream {
    /// Connects to the first of the addresses that answers. The addresses are tried one after another, and a silent
    /// address for as long as the system waits, which is minutes: see [`connect_limited`](TcpStream::connect_limited).
    /// Go's `Dial` tries IPv4 beside IPv6 after 300 ms.
    ///
    /// # Errors
    ///
    /// The system's error for the last address; `InvalidInput` for a text that is no address.
    pub fn connect(addr: impl ToAddrs) -> io::Result<Self> {
        Self::connect_within(&addr, &WaitLimit::default())
    }

    /// Connects as [`connect`](TcpStream::connect) does, but gives up at a limit: see [`IntoLimit`]. The limit is that of
    /// the look-up of the name and of all addresses together. Until a deadline each address has an equal share of the time, but
    /// at least two seconds, so that the next address is tried if an address is silent. Go's `net.DialTimeout` and
    /// `Dialer.DialContext`.
    ///
    /// # Errors
    ///
    /// The same as those of `connect`, or the limit's error: of kind `TimedOut` after a deadline, else `Other`.
    pub fn connect_limited<L: IntoLimit<Error: Into<io::Error>>>(addr: impl ToAddrs, limit: L) -> io::Result<Self> {
        limited(limit, |limit| Self::connect_within(&addr, limit))
    }

    /// Connects as [`connect`](TcpStream::connect) does, for a task. A goroutine looks up names, and so owns `addr`.
    ///
    /// # Errors
    ///
    /// The same as those of `connect`.
    pub async fn connect_async(addr: impl ToAddrs + Send + 'static) -> io::Result<Self> {
        let addrs = spawn(move || addr.to_addrs()).await.unwrap_or_else(|payload| resume_unwind(payload))?;
        let mut last = None;
        for addr in addrs {
            match Self::connect_to_async(addr).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::InvalidInput.into()))
    }

    fn socket(addr: SocketAddr) -> io::Result<Socket> {
        stream_socket(Domain::for_address(addr), Some(Protocol::TCP))
    }

    /// Makes a stream of a connected socket. If no socket listens at a port of those from which the system chooses, the
    /// system may choose the same port for this end, and connect the socket to itself. Any other port would have been
    /// refused, and so is this one. Go: `selfConnect`, after which Go dials again.
    fn connected(fd: NetFd<std::net::TcpStream>) -> io::Result<Self> {
        fd.with(|socket| {
            if matches!((socket.local_addr(), socket.peer_addr()), (Ok(here), Ok(there)) if here == there) {
                return Err(io::Error::from_raw_os_error(libc::ECONNREFUSED));
            }
            Self::set_options(socket);
            Ok(())
        })?;
        Ok(Self { fd })
    }

    /// Makes a stream of a socket that a listener accepted, with the options of a connected stream.
    fn accepted(socket: std::net::TcpStream) -> io::Result<Self> {
        Self::set_options(&socket);
        Self::from_std(socket)
    }

    /// Sets the options of a new connection. Go: `newTCPConn`. Ignores errors, which are no reason to lose the connection.
    fn set_options(socket: &std::net::TcpStream) {
        _ = socket.set_nodelay(true);
        _ = SockRef::from(socket).set_tcp_keepalive(&keepalive());
    }

    fn connect_within(addr: &impl ToAddrs, limit: &WaitLimit<'_>) -> io::Result<Self> {
        dial_first(&addr.to_addrs_limited(limit)?, limit, Self::connect_to)
    }

    fn connect_to(addr: SocketAddr, limit: &WaitLimit<'_>) -> io::Result<Self> {
        Self::connected(dial(Self::socket(addr)?, &SockAddr::from(addr), limit)?)
    }

    async fn connect_to_async(addr: SocketAddr) -> io::Result<Self> {
        Self::connected(dial_async(Self::socket(addr)?, &SockAddr::from(addr)).await?)
    }

    /// Returns whether small packets are sent at once.
    ///
    /// # Errors
    ///
    /// An error of the system, or [`Closed`](crate::Closed).
    pub fn nodelay(&self) -> io::Result<bool> {
        self.fd.with(std::net::TcpStream::nodelay)
    }

    /// Sets whether small packets are sent at once. Go's `SetNoDelay`.
    ///
    /// # Errors
    ///
    /// An error of the system, or [`Closed`](crate::Closed).
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.fd.with(|socket| socket.set_nodelay(nodelay))
    }

    /// Returns whether the system probes a peer that sends nothing.
    ///
    /// # Errors
    ///
    /// An error of the system, or [`Closed`](crate::Closed).
    pub fn keepalive(&self) -> io::Result<bool> {
        self.fd.with(|socket| SockRef::from(socket).keepalive())
    }

    /// Sets whether the system probes a peer that sends nothing: after 15 seconds, then every 15 seconds. After 9 probes
    /// without an answer the connection is gone, and reads fail with `TimedOut`. For other times use the crate `socket2` in
    /// [`with_std`](Self::with_std). Go's `SetKeepAlive`.
    ///
    /// # Errors
    ///
    /// An error of the system, or [`Closed`](crate::Closed).
    pub fn set_keepalive(&self, keep_alive: bool) -> io::Result<()> {
        self.fd.with(|socket| {
            let socket = SockRef::from(socket);
            if keep_alive { socket.set_tcp_keepalive(&keepalive()) } else { socket.set_keepalive(false) }
        })
    }
}

/// Returns the times of probes that Go uses unless told otherwise (`net.KeepAliveConfig`).
fn keepalive() -> TcpKeepalive {
    let pause = Duration::from_secs(15);
    TcpKeepalive::new().with_time(pause).with_interval(pause).with_retries(9)
}

/// A listener, which waits for TCP connections. Go's `net.TCPListener`.
///
/// # Examples
///
/// The example `echo_server` is a server that stops.
pub struct TcpListener {
    fd: NetFd<std::net::TcpListener>,
}

listener!(TcpListener, std::net::TcpListener, TcpStream, SocketAddr);

/// The number of connections that may wait to be accepted. The system may allow fewer. Go asks the system for its
/// limit.
const BACKLOG: i32 = 4096;

impl TcpListener {
    /// Listens on the first of the addresses that can be bound. With port 0, the system chooses a free port.
    ///
    /// # Errors
    ///
    /// The system's error for the last address (`AddrInUse`, ...); `InvalidInput` for a text that is no address.
    pub fn bind(addr: impl ToAddrs) -> io::Result<Self> {
        let mut last = None;
        for addr in addr.to_addrs()? {
            let listen = || {
                let socket = TcpStream::socket(addr)?;
                socket.set_reuse_address(true)?;
                socket.bind(&addr.into())?;
                socket.listen(BACKLOG)?;
                NetFd::new(socket.into())
            };
            match listen() {
                Ok(fd) => return Ok(Self { fd }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::InvalidInput.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Go: TestSelfConnect.
    #[test]
    fn a_socket_that_is_connected_to_itself_is_refused() {
        let socket = TcpStream::socket(([127, 0, 0, 1], 0).into()).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let addr = socket.local_addr().unwrap();
        let fd = dial(socket, &addr, &WaitLimit::default()).unwrap();
        assert_eq!(TcpStream::connected(fd).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
