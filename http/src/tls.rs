//! TLS by rustls: the handshakes, and the streams behind the handshakes.
//!
//! `tokio_rustls` drives rustls over asynchronous streams. Nothing of tokio's runtime is used.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use hyper::body::Bytes;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use sudog_runtime::goroutine::sleep_async;

use crate::connection::{caught, in_goroutine};
use crate::limit::before;
use crate::listener::Stream;
use crate::raw::Raw;
use crate::server::User;

/// The protocols that a server or a client offers by ALPN, in the order of preference.
pub(crate) fn protocols() -> Vec<Vec<u8>> {
    let http2 = cfg!(feature = "http2").then(|| b"h2".to_vec());
    http2.into_iter().chain([b"http/1.1".to_vec()]).collect()
}

/// Adds the protocols to a configuration that has none.
pub(crate) fn with_protocols(mut config: Arc<ServerConfig>) -> Arc<ServerConfig> {
    if config.alpn_protocols.is_empty() {
        Arc::make_mut(&mut config).alpn_protocols = protocols();
    }
    config
}

/// Reads a certificate, with its chain, and the certificate's private key from files in the format PEM, and makes a
/// configuration for [`Server::tls`](crate::Server::tls). Go's `tls.LoadX509KeyPair`.
///
/// # Errors
///
/// The system's error if a file cannot be read. `InvalidData` if a file has no certificate or no key, if a certificate or a
/// key does not parse, or if the key is not that of the certificate.
///
/// # Examples
///
/// ```no_run
/// use sudog::http::{Request, Server, load_key_pair};
/// use sudog::net::TcpListener;
///
/// fn main() -> std::io::Result<()> {
///     sudog::run(|| {
///         let server = Server::new(|_: Request| "hello").tls(load_key_pair("cert.pem", "key.pem")?);
///         server.serve(TcpListener::bind(":443")?)
///     })
/// }
/// ```
pub fn load_key_pair(certificates: impl AsRef<Path>, key: impl AsRef<Path>) -> io::Result<ServerConfig> {
    let invalid = |error: rustls::Error| io::Error::new(ErrorKind::InvalidData, error);
    let chain = CertificateDer::pem_file_iter(certificates).map_err(not_pem)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(not_pem)?;
    if chain.is_empty() {
        return Err(not_pem(pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(not_pem)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(invalid)?;
    config.with_no_client_auth().with_single_cert(chain, key).map_err(invalid)
}

fn not_pem(error: pem::Error) -> io::Error {
    match error {
        pem::Error::Io(error) => error,
        error => io::Error::new(ErrorKind::InvalidData, error),
    }
}

/// Waits for the client's handshake. None: the handshake has failed, or the server stops.
pub(crate) async fn accept<S: Stream>(
    user: &Arc<User>,
    config: &Arc<ServerConfig>,
    stream: S,
    peer: SocketAddr,
) -> Option<Tls<S>> {
    let raw = Arc::new(stream);
    let mut handshake = TlsAcceptor::from(config.clone()).accept(TokioIo::new(Raw(raw.clone())));
    // The hooks of the configuration are user code.
    let handshake = std::future::poll_fn(|cx| {
        let polled = caught(user, peer, || Pin::new(&mut handshake).poll(cx));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    });
    let timed_out = || Some(Err(ErrorKind::TimedOut.into()));
    let handshake = before(user.settings.header_timeout.map(sleep_async), handshake);
    let accepted = before(Some(user.shared.open.done()), handshake).await?.unwrap_or_else(timed_out)?;
    match accepted {
        Ok(stream) => Some(Tls::new(raw, stream)),
        // A client that has only connected, such as a check of a load balancer, is not worth a line. Go writes a line.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
        Err(error) => {
            let line = format!("http: TLS handshake error from {peer}: {error}");
            in_goroutine(user, move |server| server.report(&line));
            None
        }
    }
}

/// The server's side of a connection behind the handshake.
pub(crate) struct Tls<S> {
    raw: Arc<S>,
    /// Locked by the connection's task only, so without a wait.
    session: Mutex<Session<S>>,
}

struct Session<S> {
    io: TokioIo<TlsStream<TokioIo<Raw<S>>>>,
    /// Bytes that a look for the client's end has read.
    ahead: Bytes,
    /// True if such a look has found the client's end.
    is_at_end: bool,
}

impl<S: Stream> Tls<S> {
    fn new(raw: Arc<S>, stream: TlsStream<TokioIo<Raw<S>>>) -> Self {
        let session = Session { io: TokioIo::new(stream), ahead: Bytes::new(), is_at_end: false };
        Self { raw, session: Mutex::new(session) }
    }

    /// Returns whether the handshake has chosen HTTP/2.
    #[cfg(feature = "http2")]
    pub(crate) fn speaks_http2(&self) -> bool {
        self.lock().io.inner().get_ref().1.alpn_protocol() == Some(b"h2")
    }

    fn lock(&self) -> MutexGuard<'_, Session<S>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Stream> Stream for Tls<S> {
    fn poll_read(&self, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut session = self.lock();
        if session.is_at_end || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !session.ahead.is_empty() {
            let n = session.ahead.len().min(buf.remaining());
            buf.put_slice(&session.ahead.split_to(n));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut session.io).poll_read(cx, buf)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.lock().io).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().io).poll_flush(cx)
    }

    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().io).poll_shutdown(cx)
    }

    /// Polls for plaintext: a socket that is ready may have the client's `close_notify`, or no plaintext at all.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let session = &mut *self.lock();
        if session.ahead.is_empty() && !session.is_at_end {
            // Some room, so that a body that is looked for does not come in tiny pieces.
            let mut bytes = [0; 4096];
            let mut buf = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut session.io).poll_read(cx, buf.unfilled()))?;
            session.ahead = Bytes::copy_from_slice(buf.filled());
            session.is_at_end = session.ahead.is_empty();
        }
        Poll::Ready(Ok(()))
    }

    fn is_at_end(&self) -> bool {
        self.lock().is_at_end
    }

    fn set_read_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        self.raw.set_read_deadline(deadline)
    }

    /// Reads bytes that are thrown away, so without a look into them.
    fn read_async(&self, buf: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send {
        self.raw.read_async(buf)
    }
}
