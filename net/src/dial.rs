//! Connecting a stream. The system call is made once, before the wait. After each event the call looks only for the
//! result.

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use sudog_runtime::sema::WaitLimit;

use crate::Side;
use crate::fd::NetFd;

/// Creates a non-blocking socket of a stream.
pub(crate) fn stream_socket(domain: Domain, protocol: Option<Protocol>) -> io::Result<Socket> {
    #[cfg(target_os = "linux")]
    return Socket::new(domain, Type::STREAM.nonblocking(), protocol);
    #[cfg(not(target_os = "linux"))]
    {
        let socket = Socket::new(domain, Type::STREAM, protocol)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

/// Begins to connect a non-blocking socket.
fn begin<S: AsFd + From<Socket>>(socket: Socket, addr: &SockAddr) -> io::Result<NetFd<S>> {
    match socket.connect(addr) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        Ok(()) | Err(_) => NetFd::new(S::from(socket)),
    }
}

/// Looks for the result of a connect: EINPROGRESS, if there is none yet.
fn is_connected<S: AsFd>(socket: &S) -> io::Result<()> {
    let socket = SockRef::from(socket);
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    // A socket without an error and with a peer is connected.
    socket.peer_addr().map(drop).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTCONN) => io::Error::from_raw_os_error(libc::EINPROGRESS),
        _ => error,
    })
}

/// Connects a non-blocking socket, for a task.
pub(crate) async fn dial_async<S: AsFd + From<Socket>>(socket: Socket, addr: &SockAddr) -> io::Result<NetFd<S>> {
    let fd = begin(socket, addr)?;
    fd.call_async(Side::Write, is_connected::<S>).await?;
    Ok(fd)
}

/// Connects a non-blocking socket.
pub(crate) fn dial<S: AsFd + From<Socket>>(
    socket: Socket,
    addr: &SockAddr,
    limit: &WaitLimit<'_>,
) -> io::Result<NetFd<S>> {
    let fd = begin(socket, addr)?;
    fd.call(Side::Write, limit, is_connected::<S>)?;
    Ok(fd)
}
