//! `Request`, and its body as `Read`.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, BufRead, ErrorKind, Read};
use std::mem;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::body::{Body as _, Bytes, Frame, Incoming};
use sudog_runtime::goroutine::{SleepAsync, block_on_limited, now, sleep_async};
use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};
use sudog_sync::context::{self, Context};

use crate::listener::NO_ADDR;

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
    /// The time limit of a task that waits for a chunk.
    pause: Option<SleepAsync>,
    failed: Option<BodyError>,
}

/// The part of a body that has not arrived yet: shared by the body and the goroutine of the request, which closes this
/// part at its end, so that the connection need not wait for a body that is kept.
pub(crate) struct Rest {
    arriving: Mutex<Arriving>,
    /// Cancelled when the rest of the body is closed, which ends the reads that wait.
    closed: Cancel,
}

struct Arriving {
    /// The receiving end of hyper's channel. None: closed.
    incoming: Option<Incoming>,
    /// The task that waits for a frame, if the body is polled: a close wakes that task.
    task: Option<Waker>,
}

/// A frame from hyper. None: the end of the body.
type Next = Option<hyper::Result<Frame<Bytes>>>;

impl Rest {
    pub(crate) fn new(incoming: Incoming) -> Arc<Self> {
        let arriving = Mutex::new(Arriving { incoming: Some(incoming), task: None });
        Arc::new(Self { arriving, closed: Cancel::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Arriving> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the receiving end, so that hyper knows that no read will come. Reads that wait fail.
    pub(crate) fn close(&self) {
        // Unlock before the drop, which wakes hyper's task, and before the task that waits is woken.
        let (incoming, task) = {
            let mut arriving = self.lock();
            (arriving.incoming.take(), arriving.task.take())
        };
        drop(incoming);
        self.closed.cancel();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Polls for the next frame. Returns an error if the rest is closed. The caller waits for `closed`, too.
    fn poll_frame(&self, cx: &mut TaskContext<'_>) -> Poll<Result<Next, BodyError>> {
        match &mut self.lock().incoming {
            Some(incoming) => Pin::new(incoming).poll_frame(cx).map(Ok),
            None => Poll::Ready(Err(BodyError::CLOSED)),
        }
    }

    /// Polls for the next frame, for a task, which a close wakes.
    fn poll_frame_in_task(&self, cx: &mut TaskContext<'_>) -> Poll<Result<Next, BodyError>> {
        let waker = cx.waker().clone();
        let (next, old) = {
            let mut arriving = self.lock();
            let next = match &mut arriving.incoming {
                Some(incoming) => Pin::new(incoming).poll_frame(cx).map(Ok),
                None => Poll::Ready(Err(BodyError::CLOSED)),
            };
            (next, arriving.task.replace(waker))
        };
        drop(old); // unlocked: the drop of a waker is user code
        next
    }
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("is_closed", &self.lock().incoming.is_none()).finish()
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
    pub(crate) fn incoming(rest: Arc<Rest>, max_bytes: u64, timeout: Option<Duration>) -> Self {
        Self { rest: Some(Unread(rest)), left: max_bytes, timeout, ..Self::default() }
    }

    /// Sets the time at which reads fail, with `TimedOut` and the status 408, however steadily the client sends. None,
    /// the default: only [pauses](crate::Server::body_timeout) are limited. Go's `ResponseController.SetReadDeadline`.
    ///
    /// Calculate the deadline from [`now`].
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
        self.pause = None;
    }

    /// Returns the time at which a wait that begins now ends.
    fn limit(&self) -> Option<Instant> {
        let pause = self.timeout.and_then(|pause| now().checked_add(pause));
        [pause, self.deadline].into_iter().flatten().min()
    }

    /// Returns an error if the deadline has passed: a client that sends steadily lets no wait reach the deadline.
    fn check_deadline(&self) -> Result<(), BodyError> {
        if self.deadline.is_some_and(|deadline| deadline <= now()) { Err(BodyError::TIMED_OUT) } else { Ok(()) }
    }

    /// Takes a frame. Returns the frame's bytes. None: a frame without bytes, or the end of the body.
    fn accept(&mut self, next: Next) -> Result<Option<Bytes>, BodyError> {
        match next {
            None => self.rest = None,
            Some(Err(_)) => return Err(BodyError::BROKEN),
            Some(Ok(frame)) => {
                // A frame without data has trailers, which are not shown.
                let Ok(data) = frame.into_data() else { return Ok(None) };
                self.left = self.left.checked_sub(data.len() as u64).ok_or(BodyError::TOO_LARGE)?;
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Waits for the next chunk. Returns None at the end of the body.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        while let Some(Unread(rest)) = &self.rest {
            self.check_deadline()?;
            let limit = WaitLimit { deadline: self.limit(), cancel: Some(&rest.closed) };
            let next = block_on_limited(poll_fn(|cx| rest.poll_frame(cx)), &limit).map_err(|why| match why {
                WaitError::TimedOut => BodyError::TIMED_OUT,
                WaitError::Cancelled => BodyError::CLOSED,
            })?;
            if let Some(data) = self.accept(next?)? {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Polls for the next chunk.
    fn poll_chunk(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        while let Some(Unread(rest)) = &self.rest {
            self.check_deadline()?;
            if let Poll::Ready(next) = rest.poll_frame_in_task(cx) {
                self.pause = None;
                if let Some(data) = self.accept(next?)? {
                    return Poll::Ready(Ok(Some(data)));
                }
                continue;
            }
            if self.pause.is_none() {
                self.pause = self.limit().map(|limit| sleep_async(limit.saturating_duration_since(now())));
            }
            let Some(pause) = &mut self.pause else { return Poll::Pending };
            ready!(Pin::new(pause).poll(cx));
            return Poll::Ready(Err(BodyError::TIMED_OUT));
        }
        Poll::Ready(Ok(None))
    }

    /// Makes all further reads fail. Drops the rest, so that the connection knows that no read will come.
    fn fail(&mut self, error: BodyError) -> io::Error {
        self.failed = Some(error);
        self.rest = None;
        error.into()
    }
}

/// The body for a task, such as a service of `tower`. The limits and the errors are those of `Read`.
impl hyper::body::Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.chunk.is_empty() {
            let chunk = mem::take(&mut self.chunk);
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if let Some(error) = self.failed {
            return Poll::Ready(Some(Err(error.into())));
        }
        Poll::Ready(match ready!(self.poll_chunk(cx)) {
            Ok(chunk) => chunk.map(|chunk| Ok(Frame::data(chunk))),
            Err(error) => Some(Err(self.fail(error))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.chunk.is_empty()
            && self.failed.is_none()
            && self
                .rest
                .as_ref()
                .is_none_or(|rest| rest.0.lock().incoming.as_ref().is_some_and(Incoming::is_end_stream))
    }
}

impl BufRead for RequestBody {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.chunk.is_empty() {
            if let Some(error) = self.failed {
                return Err(error.into());
            }
            match self.next_chunk() {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) => break,
                Err(error) => return Err(self.fail(error)),
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
    const TOO_LARGE: Self =
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, kind: ErrorKind::FileTooLarge, text: "http: body too large" };
    const TIMED_OUT: Self = Self {
        status: StatusCode::REQUEST_TIMEOUT,
        kind: ErrorKind::TimedOut,
        text: "http: timed out waiting for the body",
    };
    const BROKEN: Self = Self {
        status: StatusCode::BAD_REQUEST,
        kind: ErrorKind::InvalidData,
        text: "http: the body broke off or is malformed",
    };
    /// The status is for completeness: the request has been answered.
    const CLOSED: Self = Self {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        kind: ErrorKind::NotConnected,
        text: "http: read of a body after its request has ended",
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

impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> Self {
        Self::new(error.kind, error)
    }
}
