//! UDP.

use std::io;
use std::net::SocketAddr;

use sudog_runtime::sema::WaitLimit;
use sudog_sync::context::Context;

use crate::Side;
use crate::addrs::ToAddrs;
use crate::common::{socket, writes};
use crate::fd::NetFd;

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

impl UdpSocket {
    /// A socket at the first of the addresses that can be bound. Port 0: one that is free.
    ///
    /// # Errors
    ///
    /// The system's for the last address; `InvalidInput` for what is no address.
    pub fn bind(addr: impl ToAddrs) -> io::Result<Self> {
        Self::from_std(std::net::UdpSocket::bind(&*addr.to_addrs()?)?)
    }

    /// Sets where [`send`](UdpSocket::send) sends to, and from where packets are received; others are dropped.
    ///
    /// # Errors
    ///
    /// The system's for the last address, and [`Closed`](crate::Closed).
    pub fn connect(&self, addr: impl ToAddrs) -> io::Result<()> {
        let addrs = addr.to_addrs()?;
        self.fd.with(|socket| socket.connect(&*addrs))
    }

    /// Sends a packet to the first of the addresses.
    ///
    /// # Errors
    ///
    /// The system's, `TimedOut` at the deadline, and [`Closed`](crate::Closed).
    pub fn send_to(&self, buf: &[u8], addr: impl ToAddrs) -> io::Result<usize> {
        let addr = *addr.to_addrs()?.first().ok_or(io::ErrorKind::InvalidInput)?;
        self.fd.call(Side::Write, &WaitLimit::default(), |socket| socket.send_to(buf, addr))
    }

    /// Waits for a packet: its length, and where it came from. What finds no room in `buf` is lost.
    ///
    /// # Errors
    ///
    /// The system's, `TimedOut` at the deadline, and [`Closed`](crate::Closed).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.call(Side::Read, &WaitLimit::default(), |socket| socket.recv_from(buf))
    }

    /// A [`recv_from`](UdpSocket::recv_from) that ends when a context is done.
    ///
    /// # Errors
    ///
    /// As those of `recv_from`, and the context's: of kind `TimedOut` after its deadline, else `Other`.
    pub fn recv_from_ctx(&self, ctx: &Context, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.call_ctx(ctx, Side::Read, |socket| socket.recv_from(buf))
    }

    /// Sends a packet to where the socket is connected to.
    ///
    /// # Errors
    ///
    /// As those of [`send_to`](UdpSocket::send_to).
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.fd.call(Side::Write, &WaitLimit::default(), |socket| socket.send(buf))
    }

    /// Waits for a packet from where the socket is connected to.
    ///
    /// # Errors
    ///
    /// As those of [`recv_from`](UdpSocket::recv_from).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.fd.call(Side::Read, &WaitLimit::default(), |socket| socket.recv(buf))
    }
}
