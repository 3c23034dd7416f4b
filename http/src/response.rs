//! `Response`, its body, and what can be returned in its place.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use sudog_runtime::chan::{Receiver, RecvStream, Sender, channel};

use crate::request::status_of;

/// A response: that of the crate `http`. The default is an empty response of status 200.
pub type Response<T = Body> = hyper::Response<T>;

/// The body of a response: bytes, none by default, or a function that writes the body.
#[derive(Default)]
pub struct Body(pub(crate) Kind);

pub(crate) enum Kind {
    Whole(Bytes),
    Stream(Box<WriteBody>),
}

type WriteBody = dyn FnOnce(&mut BodyWriter) -> io::Result<()> + Send;

impl Default for Kind {
    fn default() -> Self {
        Self::Whole(Bytes::new())
    }
}

impl Body {
    /// Creates a body that `write` writes, after the handler has returned, in the goroutine of the handler. The client
    /// gets what is written as soon as 8 KiB have come together, or at a `flush`.
    ///
    /// If `write` returns an error or panics, the connection is cut off, so that a client of HTTP/1.1 does not take the part
    /// for the whole. A client of HTTP/1.0 cannot tell, unless the response has a `Content-Length`: there the end of the
    /// connection is the end of the body.
    ///
    /// If the response may have no body (the answer to a HEAD request, the statuses 204 and 304), `write` is dropped. If the
    /// response has a `Content-Length`, its client gets no more bytes, and `write` may run on while the connection's next
    /// request is handled.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Write;
    /// use std::time::Duration;
    /// use sudog::context;
    /// use sudog::http::{Body, Request, Response};
    ///
    /// fn clock(request: Request) -> Response {
    ///     let ctx = request.context().clone();
    ///     Response::new(Body::stream(move |w| {
    ///         while ctx.sleep(Duration::from_secs(1)).is_ok() {
    ///             writeln!(w, "tick")?;
    ///             w.flush()?;
    ///         }
    ///         Ok(())
    ///     }))
    /// }
    /// # let _ = clock;
    /// ```
    pub fn stream(write: impl FnOnce(&mut BodyWriter) -> io::Result<()> + Send + 'static) -> Self {
        Self(Kind::Stream(Box::new(write)))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Whole(bytes) => bytes.fmt(f),
            Kind::Stream(_) => f.pad("Body::stream(..)"),
        }
    }
}

macro_rules! bodies {
    ($($Bytes:ty),+) => {$(
        impl From<$Bytes> for Body {
            fn from(bytes: $Bytes) -> Self {
                Self(Kind::Whole(bytes.into()))
            }
        }
    )+};
}

bodies!(Bytes, String, Vec<u8>, &'static str, &'static [u8]);

/// A value that a handler may return.
///
/// | value | response |
/// |---|---|
/// | `Response<B>`, where `B` is a [`Body`], text or bytes | the response itself |
/// | `&'static str`, `String` | status 200, `text/plain; charset=utf-8` |
/// | `Vec<u8>`, [`Bytes`] | status 200, without a `Content-Type` |
/// | a [`StatusCode`] | the status, and its reason as a text |
/// | `(StatusCode, value)` | the value's response, with this status |
/// | `Result<value, value>` | the response of either value |
/// | `io::Error` | status 413, 408 or 400 for an error of a [body](crate::RequestBody); otherwise 500. The error's text is not sent |
pub trait IntoResponse {
    /// Makes the response.
    fn into_response(self) -> Response;
}

impl<B: Into<Body>> IntoResponse for Response<B> {
    fn into_response(self) -> Response {
        self.map(Into::into)
    }
}

fn text(text: Body) -> Response {
    let mut response = Response::new(text);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

macro_rules! responses {
    ($($Value:ty => $function:expr),+) => {$(
        impl IntoResponse for $Value {
            fn into_response(self) -> Response {
                $function(self.into())
            }
        }
    )+};
}

responses!(&'static str => text, String => text, Vec<u8> => Response::new, Bytes => Response::new);

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        let has_body = !self.is_informational() && self != Self::NO_CONTENT && self != Self::NOT_MODIFIED;
        let mut response = match self.canonical_reason() {
            Some(reason) if has_body => text(reason.into()),
            _ => Response::default(),
        };
        *response.status_mut() = self;
        response
    }
}

impl<T: IntoResponse> IntoResponse for (StatusCode, T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        *response.status_mut() = self.0;
        response
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

impl IntoResponse for io::Error {
    fn into_response(self) -> Response {
        status_of(&self).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response()
    }
}

/// Returns the `Content-Length` that a user has set.
pub(crate) fn length_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The number of bytes that a writer collects before it sends them.
const CHUNK: usize = 8 << 10;

/// The writer of [`Body::stream`]. A write waits while the client takes no more. If the connection is gone, a write fails
/// with `BrokenPipe`; so does a write behind the last byte that the `Content-Length` of the message allows.
#[derive(Debug)]
pub struct BodyWriter {
    /// The channel to the connection's task. `None` is the end of the body: a channel that closes without this value
    /// belongs to a body that has broken off.
    chunks: Sender<Option<Bytes>>,
    buffer: Vec<u8>,
    /// The number of bytes that may still be written.
    left: u64,
}

impl BodyWriter {
    /// Creates a writer of a body of `length` bytes, or of any number.
    pub(crate) fn new(length: Option<u64>) -> (Self, Receiver<Option<Bytes>>) {
        let (sender, receiver) = channel(1);
        (Self { chunks: sender, buffer: Vec::new(), left: length.unwrap_or(u64::MAX) }, receiver)
    }

    /// Sends the end of the body. If the connection is gone, nothing is left to do.
    pub(crate) fn finish(mut self) {
        if self.flush().is_ok() {
            let _ = self.chunks.send(None);
        }
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        if n == 0 && !bytes.is_empty() {
            return Err(io::Error::new(ErrorKind::BrokenPipe, "http: more bytes than the Content-Length"));
        }
        self.buffer.extend_from_slice(&bytes[..n]);
        self.left -= n as u64;
        if self.buffer.len() >= CHUNK || self.left == 0 {
            self.flush()?;
        }
        Ok(n)
    }

    /// Hands all bytes to the connection, which sends them.
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.buffer).into();
        self.chunks.send(Some(chunk)).map_err(|_| io::Error::from(ErrorKind::BrokenPipe))
    }
}

/// The body of a response in the form that hyper polls.
pub(crate) enum Outgoing {
    Whole(Option<Bytes>),
    Stream(Pin<Box<RecvStream<Receiver<Option<Bytes>>>>>),
    /// A stream that has broken off.
    Broken,
}

impl Outgoing {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    pub(crate) fn stream(chunks: Receiver<Option<Bytes>>) -> Self {
        Self::Stream(Box::pin(RecvStream::new(chunks)))
    }
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(match &mut *self {
            Self::Whole(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Self::Stream(chunks) => match ready!(chunks.as_mut().poll_next(cx)) {
                Some(Some(chunk)) => Some(Ok(Frame::data(chunk))),
                Some(None) => None,
                None => {
                    // hyper would forget what it has not sent yet. Be pending once, so that hyper sends it.
                    *self = Self::Broken;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            },
            Self::Broken => Some(Err(aborted())),
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream(_) | Self::Broken => SizeHint::default(),
        }
    }
}

/// Returns the error by which hyper closes a connection whose response, or whose client's request, has not been finished.
pub(crate) fn aborted() -> io::Error {
    io::Error::other("the body has not been finished")
}
