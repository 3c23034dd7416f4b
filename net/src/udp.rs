//! UDP sockets: `UdpSocket`.

use std::io;
use std::net::SocketAddr;

use sudog_runtime::sema::{IntoLimit, WaitLimit};

use crate::Side;
use crate::addrs::ToAddrs;
use crate::common::{datagrams, socket, writes};
use crate::fd::{NetFd, limited};

/// A UDP socket. Go's `net.UDPConn`.
///
/// # Examples
///
/// ```
/// use sudog::net::UdpSocket;
///
/// let (here, there) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
/// here.send_to(b"hello", there.local_addr()?)?;
/// let mut buf = [0; 16];
/// assert_eq!(there.recv_from(&mut buf)?, (5, here.local_addr()?));
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct UdpSocket {
    fd: NetFd<std::net::UdpSocket>,
}

socket!(UdpSocket, std::net::UdpSocket);
writes!(UdpSocket, std::net::UdpSocket);
datagrams!(UdpSocket, SocketAddr, SocketAddr);

impl UdpSocket {
    /// Creates a socket at the first of the addresses that can be bound. With port 0, the system chooses a free port. A
    /// socket at an IPv6 address sends to IPv4 by mapped addresses only: [`Ipv4Addr::to_ipv6_mapped`]. The socket may send to
    /// broadcast addresses, as in Go.
    ///
    /// [`Ipv4Addr::to_ipv6_mapped`]: std::net::Ipv4Addr::to_ipv6_mapped
    ///
    /// # Errors
    ///
    /// The system's error for the last address; `InvalidInput` for a text that is no address.
    pub fn bind(addr: impl ToAddrs) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(&*addr.to_addrs()?)?;
        socket.set_broadcast(true)?;
        Self::from_std(socket)
    }

    /// Sets the address to which [`send`](UdpSocket::send) sends, and from which packets are received. Packets from
    /// other addresses are dropped.
    ///
    /// # Errors
    ///
    /// The system's error for the last address, or [`Closed`](crate::Closed).
    pub fn connect(&self, addr: impl ToAddrs) -> io::Result<()> {
        let addrs = addr.to_addrs()?;
        self.fd.with(|socket| socket.connect(&*addrs))
    }

    /// Sends a packet to the first of the addresses.
    ///
    /// # Errors
    ///
    /// An error of the system, `TimedOut` at the deadline, or [`Closed`](crate::Closed).
    pub fn send_to(&self, buf: &[u8], addr: impl ToAddrs) -> io::Result<usize> {
        let addr = *addr.to_addrs()?.first().ok_or(io::ErrorKind::InvalidInput)?;
        self.fd.call(Side::Write, &WaitLimit::default(), |socket| socket.send_to(buf, addr))
    }

    /// Waits for a packet. Returns the number of bytes stored in `buf`, and the sender's address. The part of a packet
    /// that finds no room in `buf` is lost.
    ///
    /// # Errors
    ///
    /// An error of the system, `TimedOut` at the deadline, or [`Closed`](crate::Closed).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.call(Side::Read, &WaitLimit::default(), |socket| socket.recv_from(buf))
    }

    /// Waits as [`recv_from`](UdpSocket::recv_from) does, but gives up at a limit: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The same as those of `recv_from`, or the limit's error: of kind `TimedOut` after a deadline, else `Other`.
    pub fn recv_from_limited<L: IntoLimit<Error: Into<io::Error>>>(
        &self,
        buf: &mut [u8],
        limit: L,
    ) -> io::Result<(usize, SocketAddr)> {
        limited(limit, |limit| self.fd.call(Side::Read, limit, |socket| socket.recv_from(buf)))
    }

    /// Sends a packet to the address that the socket is connected to.
    ///
    /// # Errors
    ///
    /// The same as those of [`send_to`](UdpSocket::send_to).
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.fd.call(Side::Write, &WaitLimit::default(), |socket| socket.send(buf))
    }

    /// Waits for a packet from the address that the socket is connected to.
    ///
    /// # Errors
    ///
    /// The same as those of [`recv_from`](UdpSocket::recv_from).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.fd.call(Side::Read, &WaitLimit::default(), |socket| socket.recv(buf))
    }
}
