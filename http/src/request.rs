//! `Request`, and its body as `Read`.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, BufRead, ErrorKind, Read};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::body::{Body as _, Bytes, Frame, Incoming};
use sudog_runtime::goroutine::{block_on_limited, now};
use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};
use sudog_sync::context::{self, Context};

use crate::listener::NO_ADDR;
use crate::server::Settings;

/// A request: that of the crate `http`, by `Deref`, with a context and the client's address.
///
/// # Examples
///
/// A handler can be called without a server:
///
/// ```
/// use std::io::Read;
/// use sudog::http::{IntoResponse, Request, StatusCode};
///
/// fn length(mut request: Request) -> std::io::Result<String> {
///     let mut body = String::new();
///     request.body_mut().read_to_string(&mut body)?;
///     Ok(format!("{} has {} bytes", request.uri().path(), body.len()))
/// }
///
/// let request = Request::new("/text", "hello");
/// assert_eq!(length(request).unwrap(), "/text has 5 bytes");
/// ```
#[derive(Debug)]
pub struct Request {
    pub(crate) inner: hyper::Request<RequestBody>,
    pub(crate) context: Context,
    pub(crate) remote_addr: SocketAddr,
}

impl Request {
    /// Creates a request for a test of a handler, with the method GET, the background context and the address 0.0.0.0.
    /// Go's `httptest.NewRequest`.
    ///
    /// # Panics
    ///
    /// If `uri` is no URI.
    #[track_caller]
    pub fn new(uri: &str, body: impl Into<Bytes>) -> Self {
        let mut inner = hyper::Request::new(RequestBody { chunk: body.into(), ..RequestBody::default() });
        *inner.uri_mut() = uri.parse().expect("a URI");
        Self { inner, context: context::background(), remote_addr: NO_ADDR }
    }

    /// Returns the request's context. The context ends when the client goes away or half-closes the connection, when the
    /// server is [closed](crate::Server::close), and when the handler has ended. Go's `r.Context()`.
    ///
    /// The client's end is noticed once the handler has read the whole body, and behind a further request that the client
    /// has sent ahead only if that request has been read already.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the client's address; of a client over a Unix socket or a pipe: 0.0.0.0, with port 0. Go's `r.RemoteAddr`.
    #[must_use]
    pub fn remote_addr(&self) -> SocketAddr {
        self.remote_addr
    }

    /// Returns the request of the crate `http`.
    #[must_use]
    pub fn into_inner(self) -> hyper::Request<RequestBody> {
        self.inner
    }
}

impl Deref for Request {
    type Target = hyper::Request<RequestBody>;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl DerefMut for Request {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

/// The body of a request, which arrives while it is read. A read waits for the client.
///
/// The error of a read is [a response](crate::IntoResponse): of status 413 if the body is larger than the
/// [limit](crate::Server::max_body_bytes), of 408 if the client [pauses too long](crate::Server::body_timeout), of 400 if
/// the client breaks off or breaks the rules of the protocol. After an error each read fails.
///
/// A body that is kept longer than its request is closed: once the handler has returned, and the function of
/// [`Body::stream`](crate::Body::stream), if any, bytes that have not arrived yet cannot be read. Go's
/// `http.ErrBodyReadAfterClose`.
#[derive(Debug, Default)]
pub struct RequestBody {
    /// Bytes that have arrived and have not been read.
    chunk: Bytes,
    /// The rest of the body, until its end.
    rest: Option<Unread>,
    /// The number of bytes that may still arrive.
    left: u64,
    /// The longest wait for a chunk.
    timeout: Option<Duration>,
    /// The time at which reads fail.
    deadline: Option<Instant>,
    failed: Option<BodyError>,
}

/// The part of a body that has not arrived yet: shared by the body and the goroutine of the request, which closes this
/// part at its end, so that the connection need not wait for a body that is kept.
pub(crate) struct Rest {
    /// The receiving end of hyper's channel. None: closed.
    incoming: Mutex<Option<Incoming>>,
    /// Ends reads that wait when the rest is closed.
    closed: Cancel,
}

impl Rest {
    pub(crate) fn new(incoming: Incoming) -> Arc<Self> {
        Arc::new(Self { incoming: Mutex::new(Some(incoming)), closed: Cancel::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Incoming>> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the receiving end, so that hyper knows that no read will come. Reads that wait fail.
    pub(crate) fn close(&self) {
        // Unlock before the drop, which wakes hyper's task.
        let incoming = self.lock().take();
        drop(incoming);
        self.closed.cancel();
    }

    /// Polls for the next frame. Returns an error if the rest is closed.
    fn poll_frame(&self, cx: &mut TaskContext<'_>) -> Poll<Result<Option<hyper::Result<Frame<Bytes>>>, BodyError>> {
        match &mut *self.lock() {
            Some(incoming) => Pin::new(incoming).poll_frame(cx).map(Ok),
            None => Poll::Ready(Err(BodyError::CLOSED)),
        }
    }
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("is_closed", &self.lock().is_none()).finish()
    }
}

/// The body's share of its rest. A drop closes the rest.
#[derive(Debug)]
struct Unread(Arc<Rest>);

impl Drop for Unread {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl RequestBody {
    pub(crate) fn incoming(rest: Arc<Rest>, settings: &Settings) -> Self {
        let (left, timeout) = (settings.max_body_bytes, settings.body_timeout);
        Self { rest: Some(Unread(rest)), left, timeout, ..Self::default() }
    }

    /// Sets the time at which reads fail, with `TimedOut` and the status 408, however steadily the client sends. None,
    /// the default: only [pauses](crate::Server::body_timeout) are limited. Go's `ResponseController.SetReadDeadline`.
    ///
    /// Calculate the deadline from [`now`].
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Waits for the next chunk. Returns None at the end of the body.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        while let Some(Unread(rest)) = &self.rest {
            // A client that sends steadily lets no wait reach the deadline.
            if self.deadline.is_some_and(|deadline| deadline <= now()) {
                return Err(BodyError::TIMED_OUT);
            }
            let pause = self.timeout.and_then(|pause| now().checked_add(pause));
            let deadline = [pause, self.deadline].into_iter().flatten().min();
            let limit = WaitLimit { deadline, cancel: Some(&rest.closed) };
            let next = block_on_limited(poll_fn(|cx| rest.poll_frame(cx)), &limit).map_err(|why| match why {
                WaitError::TimedOut => BodyError::TIMED_OUT,
                WaitError::Cancelled => BodyError::CLOSED,
            })?;
            match next? {
                None => self.rest = None,
                Some(Err(_)) => return Err(BodyError::BROKEN),
                Some(Ok(frame)) => {
                    // A frame without data has trailers, which are not shown.
                    let Ok(data) = frame.into_data() else { continue };
                    self.left = self.left.checked_sub(data.len() as u64).ok_or(BodyError::TOO_LARGE)?;
                    return Ok(Some(data));
                }
            }
        }
        Ok(None)
    }
}

impl BufRead for RequestBody {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.chunk.is_empty() {
            if let Some(error) = self.failed {
                return Err(io::Error::new(error.kind, error));
            }
            match self.next_chunk() {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) => break,
                Err(error) => {
                    self.failed = Some(error);
                    // Drop the rest, so that the connection knows that no read will come.
                    self.rest = None;
                }
            }
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, n: usize) {
        let _ = self.chunk.split_to(n);
    }
}

impl Read for RequestBody {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}

/// The reason why a body cannot be read further, inside an `io::Error`.
#[derive(Clone, Copy, Debug)]
struct BodyError {
    /// The status that tells the client.
    status: StatusCode,
    kind: ErrorKind,
    text: &'static str,
}

impl BodyError {
    const TOO_LARGE: Self = Self {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        kind: ErrorKind::FileTooLarge,
        text: "http: request body too large",
    };
    const TIMED_OUT: Self = Self {
        status: StatusCode::REQUEST_TIMEOUT,
        kind: ErrorKind::TimedOut,
        text: "http: timed out waiting for the request body",
    };
    const BROKEN: Self = Self {
        status: StatusCode::BAD_REQUEST,
        kind: ErrorKind::InvalidData,
        text: "http: the request body broke off or is malformed",
    };
    /// The status is for completeness: the request has been answered.
    const CLOSED: Self = Self {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        kind: ErrorKind::NotConnected,
        text: "http: read of a request body after its request has ended",
    };
}

/// Returns the status that tells the client of a failed read of its body. None for any other error.
pub(crate) fn status_of(error: &io::Error) -> Option<StatusCode> {
    Some(error.get_ref()?.downcast_ref::<BodyError>()?.status)
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text)
    }
}

impl Error for BodyError {}
