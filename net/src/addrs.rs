//! `ToAddrs`: the types that can be dialled or bound, namely addresses, and names that are looked up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::panic::resume_unwind;

use sudog_runtime::goroutine::{blocking, spawn};
use sudog_runtime::sema::WaitLimit;

/// A value that names one or more addresses: an address itself, or `"host:port"`, or `("host", port)`.
///
/// An empty host, as in `":443"`, is the unspecified address: [`TcpListener::bind`](crate::TcpListener::bind) listens at all
/// addresses of this system, and [`TcpStream::connect`](crate::TcpStream::connect) dials this system. `[::]` is tried before
/// `0.0.0.0`. By Linux's default a socket at `[::]` takes IPv4, too, whose addresses are mapped there: `[::ffff:127.0.0.1]`.
///
/// The system's resolver looks a name up in a [`blocking`] call; a literal address needs no look-up. The counterpart of
/// [`std::net::ToSocketAddrs`], whose look-up would block the worker.
pub trait ToAddrs {
    /// Returns the addresses, at least one.
    ///
    /// # Errors
    ///
    /// The resolver's error; `InvalidInput` for a text that is no address.
    fn to_addrs(&self) -> io::Result<Vec<SocketAddr>>;

    /// Returns the addresses as [`to_addrs`](ToAddrs::to_addrs) does, but gives up at a limit. The resolver's look-up then
    /// goes on without the caller, as in Go. The provided method ignores the limit.
    ///
    /// # Errors
    ///
    /// The same as those of `to_addrs`, or the [`WaitError`](sudog_runtime::sema::WaitError) of the limit.
    fn to_addrs_limited(&self, limit: &WaitLimit<'_>) -> io::Result<Vec<SocketAddr>> {
        _ = limit;
        self.to_addrs()
    }
}

/// Looks a name up as [`resolve`] does, but gives up at a limit. A goroutine looks the name up, and so owns the name.
fn resolve_limited(
    name: impl ToSocketAddrs + Send + Sync + 'static,
    limit: &WaitLimit<'_>,
) -> io::Result<Vec<SocketAddr>> {
    if limit.deadline.is_none() && limit.cancel.is_none() {
        return resolve(&name);
    }
    spawn(move || resolve(&name)).join_limited(limit)?.unwrap_or_else(|payload| resume_unwind(payload))
}

/// Looks a name up in a blocking call. The callers have handled literal addresses already.
fn resolve(name: &(impl ToSocketAddrs + Sync)) -> io::Result<Vec<SocketAddr>> {
    let addrs: Vec<_> = blocking(|| name.to_socket_addrs().map(Iterator::collect))?;
    if addrs.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addrs)
}

/// Returns the addresses of an empty host.
fn unspecified(port: u16) -> Vec<SocketAddr> {
    vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
}

impl ToAddrs for str {
    fn to_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.to_addrs_limited(&WaitLimit::default())
    }

    fn to_addrs_limited(&self, limit: &WaitLimit<'_>) -> io::Result<Vec<SocketAddr>> {
        if let Ok(addr) = self.parse() {
            return Ok(vec![addr]);
        }
        match self.strip_prefix(':').map(str::parse) {
            Some(Ok(port)) => Ok(unspecified(port)),
            _ => resolve_limited(self.to_owned(), limit),
        }
    }
}

impl ToAddrs for String {
    fn to_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.as_str().to_addrs()
    }

    fn to_addrs_limited(&self, limit: &WaitLimit<'_>) -> io::Result<Vec<SocketAddr>> {
        self.as_str().to_addrs_limited(limit)
    }
}

impl ToAddrs for (&str, u16) {
    fn to_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.to_addrs_limited(&WaitLimit::default())
    }

    fn to_addrs_limited(&self, limit: &WaitLimit<'_>) -> io::Result<Vec<SocketAddr>> {
        let (name, port) = *self;
        match name.parse::<IpAddr>() {
            Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
            Err(_) if name.is_empty() => Ok(unspecified(port)),
            Err(_) => resolve_limited((name.to_owned(), port), limit),
        }
    }
}

impl ToAddrs for [SocketAddr] {
    fn to_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        if self.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address"));
        }
        Ok(self.to_vec())
    }
}

impl<T: ToAddrs + ?Sized> ToAddrs for &T {
    fn to_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        (**self).to_addrs()
    }

    fn to_addrs_limited(&self, limit: &WaitLimit<'_>) -> io::Result<Vec<SocketAddr>> {
        (**self).to_addrs_limited(limit)
    }
}

/// Implements `ToAddrs` for types that hold a single address.
macro_rules! one {
    ($($Addr:ty: $it:ident => $addr:expr;)+) => {$(
        impl ToAddrs for $Addr {
            fn to_addrs(&self) -> io::Result<Vec<SocketAddr>> {
                let $it = *self;
                Ok(vec![$addr])
            }
        }
    )+};
}

one! {
    SocketAddr: addr => addr;
    SocketAddrV4: addr => addr.into();
    SocketAddrV6: addr => addr.into();
    (IpAddr, u16): addr => addr.into();
    (Ipv4Addr, u16): addr => addr.into();
    (Ipv6Addr, u16): addr => addr.into();
}
