//! Connecting a stream, to the first address of a list that answers. The system call is made once for each address,
//! before the wait. After each event the call looks only for the result.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use sudog_runtime::goroutine::now;
use sudog_runtime::sema::{WaitError, WaitLimit};

use crate::Side;
use crate::fd::{NetFd, why_gave_up};

/// The shortest share of the time that an address gets, as long as so much time is left. Go: `partialDeadline`.
const SHORTEST_SHARE: Duration = Duration::from_secs(2);

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

/// Calls `dial` for each address in turn, until a call succeeds or the limit ends a call. A silent address uses up no more
/// than its share of the time. Go: `dialSerial`.
pub(crate) fn dial_first<T>(
    addrs: &[SocketAddr],
    limit: &WaitLimit<'_>,
    mut dial: impl FnMut(SocketAddr, &WaitLimit<'_>) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for (tried, &addr) in addrs.iter().enumerate() {
        let deadline = limit.deadline.map(|end| share(now(), end, addrs.len() - tried));
        match dial(addr, &WaitLimit { deadline, ..*limit }) {
            Ok(dialled) => return Ok(dialled),
            Err(error) => match why_gave_up(&error) {
                Some(WaitError::Cancelled) => return Err(error),
                Some(WaitError::TimedOut) if deadline == limit.deadline => return Err(error),
                _ => last = Some(error),
            },
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::InvalidInput.into()))
}

/// Returns the time at which the next of `addrs` addresses has used up its share of the time until `end`. The shares are
/// equal, but not shorter than [`SHORTEST_SHARE`], at the cost of the last addresses.
fn share(now: Instant, end: Instant, addrs: usize) -> Instant {
    let equal = end.saturating_duration_since(now) / u32::try_from(addrs).unwrap_or(u32::MAX);
    end.min(now + equal.max(SHORTEST_SHARE))
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;

    use sudog_runtime::goroutine::{sleep, synctest};

    use super::*;
    use crate::fd::limited;

    const SECOND: Duration = Duration::from_secs(1);

    /// Dials addresses of which none answers, in a bubble, and returns the seconds that each has been waited for.
    fn waits(addrs: usize, seconds: u32) -> Vec<u64> {
        let _watchdog = support::Watchdog::new();
        synctest::test(move || {
            let addrs: Vec<_> = repeat_n(SocketAddr::from(([127, 0, 0, 1], 9)), addrs).collect();
            let mut waits = Vec::new();
            let silent = |_, limit: &WaitLimit<'_>| {
                let wait = limit.deadline.expect("a deadline") - now();
                sleep(wait);
                waits.push(wait.as_secs());
                Err::<(), _>(WaitError::TimedOut.into())
            };
            let error = limited(seconds * SECOND, |limit| dial_first(&addrs, limit, silent)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            waits
        })
    }

    /// Go: TestDialerPartialDeadline.
    #[test]
    fn silent_addresses_share_the_time() {
        assert_eq!(waits(1, 12), [12]);
        assert_eq!(waits(3, 12), [4, 4, 4]);
        assert_eq!(waits(3, 5), [2, 2, 1]);
        assert_eq!(waits(3, 2), [2]);
        assert_eq!(waits(2, 0), [0]);
    }

    #[test]
    fn a_cancel_ends_the_dial() {
        let addrs = [SocketAddr::from(([127, 0, 0, 1], 9)); 3];
        let mut dials = 0;
        let cancelled = |_, limit: &WaitLimit<'_>| {
            assert!(limit.deadline.is_none(), "there is no time to share");
            dials += 1;
            Err::<(), _>(WaitError::Cancelled.into())
        };
        let error = dial_first(&addrs, &WaitLimit::default(), cancelled).unwrap_err();
        assert_eq!((why_gave_up(&error), dials), (Some(WaitError::Cancelled), 1));
    }
}
