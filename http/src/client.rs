//! `Client`: requests over a pool of connections, by hyper and the client of `hyper-util`.
//!
//! hyper's tasks are tasks of the runtime, and run no user code but destructors. A connection is dialled in a goroutine.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, BufRead, ErrorKind, Read};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TRANSFER_ENCODING};
use hyper::rt::{self, Executor, ReadBufCursor, Sleep, Timer};
use hyper::{Method, Uri, Version};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection, capture_connection};
use sudog_net::TcpStream;
use sudog_runtime::goroutine::{Builder, OnPanic, SleepAsync, block_on, now, sleep_async, spawn};
use sudog_runtime::panics::drop_payload;
use sudog_sync::context::{self, AfterFunc, CancelOnDrop, Context};

use crate::connection::start_task;
use crate::limit::{Closing, before};
use crate::listener::Stream;
use crate::raw::Raw;
use crate::request::{RequestBody, Rest};
use crate::response::{Body, BodyWriter, Kind, Outgoing, Response, length_of};

/// The longest time for a connection, with its TLS handshake, to be there. Go's `DefaultTransport` allows 30 s and 10 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(40);

/// The largest number of lines of a response's header over HTTP/1.1, for which hyper allocates memory at each response.
const MAX_LINES: usize = 500;

/// A time that no connection lasts: a hundred years.
const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The largest size of a response's header over HTTP/2: Go's default of `MaxResponseHeaderBytes`.
#[cfg(feature = "http2")]
const MAX_HEADER_BYTES: u32 = 10 << 20;

/// An HTTP client with a pool of connections. Go's `http.Client`.
///
/// A clone is a handle of the same client. A client whose settings are changed is a new client with a pool of its own.
///
/// A request waits in the calling goroutine or thread. A connection goes back into the pool when the response's body has been
/// read to its end, and is closed if the body is dropped before. Redirects are not followed, and there are no cookies and
/// no proxies. A request without a body whose method is safe, such as GET, is sent again, over another connection, if the
/// server closes a connection of HTTP/1.1 from the pool instead of an answer. Over HTTP/2 no request is sent again that the
/// server has refused (GOAWAY, REFUSED_STREAM), unlike in Go.
///
/// The header of a response has at most 500 lines and about 400 KiB over HTTP/1.1, and 10 MiB over HTTP/2. Go's
/// `Transport.MaxResponseHeaderBytes`.
///
/// # Examples
///
/// ```
/// use std::io::Read;
/// use std::time::Duration;
/// use sudog::context::background;
/// use sudog::http::{Client, Request, Server};
/// use sudog::net::TcpListener;
/// use sudog::{go, run};
///
/// run(|| {
///     let server = Server::new(|req: Request| format!("Hello, {}!", req.uri().path().trim_start_matches('/')));
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let addr = listener.local_addr()?;
///     go!(clone server; server.serve(listener).unwrap());
///
///     let client = Client::new().timeout(Duration::from_secs(10));
///     let mut response = client.get(&format!("http://{addr}/gopher"))?;
///     let mut text = String::new();
///     response.body_mut().read_to_string(&mut text)?;
///     assert_eq!(text, "Hello, gopher!");
///
///     server.shutdown(&background()).unwrap();
///     Ok::<_, std::io::Error>(())
/// })
/// # .unwrap();
/// ```
#[derive(Clone)]
pub struct Client {
    builder: legacy::Builder,
    connector: Connector,
    timeout: Option<Duration>,
    client: legacy::Client<Connector, Upload>,
}

impl Client {
    /// Creates a client with these settings: connections that are idle for 90 seconds are closed; any number of
    /// connections; no time limit of a request.
    #[must_use]
    pub fn new() -> Self {
        let mut builder = legacy::Client::builder(Spawn);
        builder.pool_timer(Clock).timer(Clock).pool_idle_timeout(Duration::from_secs(90));
        builder.http1_max_headers(MAX_LINES);
        #[cfg(feature = "http2")]
        builder.http2_max_header_list_size(MAX_HEADER_BYTES);
        let connector = Connector::default();
        Self { client: builder.build(connector.clone()), builder, connector, timeout: None }
    }

    fn change(mut self, change: impl FnOnce(&mut legacy::Builder, &mut Connector)) -> Self {
        change(&mut self.builder, &mut self.connector);
        self.client = self.builder.build(self.connector.clone());
        self
    }

    /// Sets the longest time from the beginning of a request until its response's body has been read. Go's
    /// `Client.Timeout`.
    ///
    /// Without this limit, a server may keep a request waiting for ever: by silence, or by interim responses (status 1xx)
    /// without end, whose number has no limit.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// Sets the time after which an idle connection is closed. Go's `Transport.IdleConnTimeout`.
    #[must_use]
    pub fn idle_timeout(self, timeout: impl Into<Option<Duration>>) -> Self {
        // The pool's task adds the time to the clock's, and panics if the sum cannot be told.
        let timeout = timeout.into().filter(|&timeout| timeout < AGES);
        self.change(|builder, _| _ = builder.pool_idle_timeout(timeout))
    }

    /// Sets the largest number of idle connections to a host; 0: no connection is used again. Go's
    /// `Transport.MaxIdleConnsPerHost`.
    #[must_use]
    pub fn max_idle_per_host(self, n: usize) -> Self {
        self.change(|builder, _| _ = builder.pool_max_idle_per_host(n))
    }

    /// Sets the function that connects to a host, which gets the host and the port of a URI, such as `example.com:80`. The
    /// function runs in a goroutine, and to its end even if the request is given up. Its connection is a `TcpStream`, a
    /// `UnixStream`, or, for tests, a `PipeStream`. Go's `Transport.DialContext`.
    ///
    /// # Examples
    ///
    /// A server without the network, in a bubble of `synctest`:
    ///
    /// ```
    /// use std::io::Read;
    /// use sudog::context::background;
    /// use sudog::http::{Client, Request, Server};
    /// use sudog::net::PipeListener;
    /// use sudog::{go, synctest};
    ///
    /// synctest::test(|| {
    ///     let server = Server::new(|_: Request| "hello");
    ///     let listener = PipeListener::new();
    ///     let dialer = listener.dialer();
    ///     go!(clone server; server.serve(listener).unwrap());
    ///
    ///     let client = Client::new().dial(move |_| dialer.dial());
    ///     let mut text = String::new();
    ///     client.get("http://example.com/").unwrap().body_mut().read_to_string(&mut text).unwrap();
    ///     assert_eq!(text, "hello");
    ///
    ///     drop(client);
    ///     server.shutdown(&background()).unwrap();
    /// });
    /// ```
    #[must_use]
    pub fn dial<S: Stream>(self, dial: impl Fn(&str) -> io::Result<S> + Send + Sync + 'static) -> Self {
        let dial: Arc<Dial> = Arc::new(move |addr| Ok(Box::new(Raw(Arc::new(dial(addr)?)))));
        self.change(|_, connector| connector.dial = Some(dial))
    }

    /// Sets the configuration of TLS, without which requests to `https` fail. If the configuration names no protocols for
    /// ALPN, the client offers `http/1.1`, and with the feature `http2` first of all `h2`. Go's
    /// `Transport.TLSClientConfig`.
    ///
    /// The configuration says which certificates are trusted: those of the crate `webpki-roots`, or
    /// `rustls-native-certs`, or your own. Its hooks run in a task and must not block.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, config: impl Into<Arc<rustls::ClientConfig>>) -> Self {
        let mut config = config.into();
        if config.alpn_protocols.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols = crate::tls::protocols();
        }
        self.change(|_, connector| connector.tls = Some(config.into()))
    }

    /// Sets whether all connections speak HTTP/2, also those without TLS, whose servers must expect HTTP/2. Unless set, a
    /// connection speaks HTTP/2 if TLS has negotiated HTTP/2.
    #[cfg(feature = "http2")]
    #[must_use]
    pub fn http2_only(self, only: bool) -> Self {
        self.change(|builder, connector| {
            builder.http2_only(only);
            connector.http2_only = only;
        })
    }

    /// Sends a GET request, and waits for the head of the response. Go's `Client.Get`.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send); `InvalidInput` if `uri` is no URI.
    pub fn get(&self, uri: &str) -> io::Result<Response<ResponseBody>> {
        self.send(request(uri, Body::default())?)
    }

    /// Sends a POST request, and waits for the head of the response. Go's `Client.Post`.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send); `InvalidInput` if `uri` is no URI, or `content_type` no value of a header.
    pub fn post(&self, uri: &str, content_type: &str, body: impl Into<Body>) -> io::Result<Response<ResponseBody>> {
        let mut request = request(uri, body.into())?;
        *request.method_mut() = Method::POST;
        let content_type = HeaderValue::from_str(content_type).map_err(invalid_input)?;
        request.headers_mut().insert(CONTENT_TYPE, content_type);
        self.send(request)
    }

    /// Sends a request, and waits for the head of the response. The function of a body by [`Body::stream`] runs in a
    /// goroutine of its own. Go's `Client.Do`.
    ///
    /// The headers `Content-Length` and `Transfer-Encoding` of the request are replaced, as in Go, but for the `Content-Length`
    /// of a body by `Body::stream`: the function must write as many bytes, and a write of more fails. Go's
    /// `Request.ContentLength`.
    ///
    /// # Errors
    ///
    /// An error of the connection; `TimedOut` after the [time limit](Self::timeout); `InvalidData` if the response, or a
    /// certificate, is malformed; `InvalidInput` if the URI has no host, names a user (Go sends `Authorization`), or has a
    /// scheme other than `http` and `https`, or if a body by `Body::stream` has no length in a request of HTTP/1.0 or by
    /// CONNECT. A response of any status is not an error.
    pub fn send<B: Into<Body>>(&self, request: hyper::Request<B>) -> io::Result<Response<ResponseBody>> {
        block_on(self.send_async(request))
    }

    /// Sends a request as [`send`](Self::send) does, but gives up when the context is done. The context also ends reads of
    /// the response's body. Go's `http.NewRequestWithContext`.
    ///
    /// # Errors
    ///
    /// The same as those of `send`, or the context's error: of kind `TimedOut` after a deadline, else `Other`.
    pub fn send_limited<B: Into<Body>>(
        &self,
        request: hyper::Request<B>,
        ctx: &Context,
    ) -> io::Result<Response<ResponseBody>> {
        block_on(self.exchange(request.map(Into::into), ctx.clone()))
    }

    /// Sends a request as [`send`](Self::send) does, for a task. If the future is dropped, the request is given up.
    ///
    /// # Errors
    ///
    /// The same as those of `send`.
    pub fn send_async<B: Into<Body>>(
        &self,
        request: hyper::Request<B>,
    ) -> impl Future<Output = io::Result<Response<ResponseBody>>> + Send + use<B> {
        self.exchange(request.map(Into::into), context::background())
    }

    fn exchange(
        &self,
        request: hyper::Request<Body>,
        ctx: Context,
    ) -> impl Future<Output = io::Result<Response<ResponseBody>>> + Send + use<> {
        let (client, timeout) = (self.client.clone(), self.timeout);
        async move {
            let (ctx, cancel) = match timeout {
                Some(timeout) => context::with_timeout(&ctx, timeout),
                None => context::with_cancel(&ctx),
            };
            let cancel = cancel.on_drop();
            // Neither connect nor call the function of a body for a context that has ended.
            if ctx.err().is_some() {
                return Err(end_of(&ctx));
            }
            if request.uri().authority().is_some_and(|authority| authority.as_str().contains('@')) {
                return Err(invalid_input("the URI names a user: set the header Authorization"));
            }
            let mut request = request;
            let length = set_length(&mut request)?;
            let again = head_to_repeat(&request);
            let mut request = request.map(|body| outgoing(body, length));
            let mark = GivenUp::default();
            let answer = async {
                loop {
                    let answer = answered(client.request(Upload::new(request, &mark)), &mark).await;
                    match (&answer, &again) {
                        (Err(error), Some(head)) if is_unanswered(error) => {
                            request = head.clone().map(|()| Outgoing::whole(Bytes::new()));
                        }
                        _ => return answer,
                    }
                }
            };
            let answered = before(Some(ctx.done()), answer).await;
            let Some(answered) = answered else { return Err(end_of(&ctx)) };
            let mut response = answered.map_err(to_io)?;
            if let Some(Link(connection)) = response.extensions_mut().remove() {
                connection.used.store(true, Ordering::Relaxed);
            }
            Ok(response.map(|incoming| ResponseBody::new(incoming, mark, ctx, cancel)))
        }
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

fn request(uri: &str, body: Body) -> io::Result<hyper::Request<Body>> {
    let mut request = hyper::Request::new(body);
    *request.uri_mut() = uri.parse().map_err(invalid_input)?;
    Ok(request)
}

fn invalid_input(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, error)
}

/// Sets the headers that tell where a body ends, which hyper believes. Of the user's, only the `Content-Length` of a stream is
/// left, and returned. Go: `reqWriteExcludeHeader`, `Request.ContentLength`, and `shouldSendChunkedRequestBody`.
///
/// # Errors
///
/// `InvalidInput` if the body is a stream without a length, and hyper would send no body.
fn set_length(request: &mut hyper::Request<Body>) -> io::Result<Option<u64>> {
    let is_stream = matches!(request.body().0, Kind::Stream(_));
    let has_chunks = request.version() >= Version::HTTP_11 && *request.method() != Method::CONNECT;
    let headers = request.headers_mut();
    let length = length_of(headers).filter(|_| is_stream);
    headers.remove(TRANSFER_ENCODING);
    headers.remove(CONTENT_LENGTH);
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    } else if is_stream && has_chunks {
        // Otherwise hyper sends no body of GET. Over HTTP/2, hyper removes this header.
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    } else if is_stream {
        return Err(invalid_input("HTTP/1.0 and CONNECT have no body of unknown length"));
    }
    Ok(length)
}

/// Returns the body in the form that hyper sends. Starts the goroutine of a function that writes the body, of `length` bytes
/// if the length is known.
fn outgoing(body: Body, length: Option<u64>) -> Outgoing {
    match body.0 {
        Kind::Whole(bytes) if bytes.is_empty() => Outgoing::whole(bytes),
        Kind::Whole(bytes) => Outgoing::whole(Bytes::from_owner(Guarded(bytes))),
        Kind::Stream(write) => {
            let (mut writer, chunks) = BodyWriter::new(length);
            // If `write` fails or panics, the writer is dropped unfinished, and so the request fails.
            Builder::new().on_panic(OnPanic::Unwind).go(move || {
                if write(&mut writer).is_ok() {
                    writer.finish();
                }
            });
            Outgoing::stream(chunks)
        }
    }
}

/// Bytes of a body, whose destructor may be user code. A panic of that destructor goes no further than the panic hook, as
/// `h2` drops bytes under a lock.
struct Guarded(Bytes);

impl AsRef<[u8]> for Guarded {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.0);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(bytes))) {
            drop_payload(payload);
        }
    }
}

/// Returns a copy of a request that may be sent again, and has no body. Go: `Request.isReplayable`.
fn head_to_repeat(request: &hyper::Request<Body>) -> Option<hyper::Request<()>> {
    let is_empty = matches!(&request.body().0, Kind::Whole(bytes) if bytes.is_empty());
    if !is_empty || !request.method().is_safe() {
        return None;
    }
    let mut head = hyper::Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.version_mut() = request.version();
    *head.headers_mut() = request.headers().clone();
    Some(head)
}

/// The state of a connection of HTTP/1.1, shared with the requests over the connection.
#[derive(Clone, Default)]
struct Link(Arc<LinkState>);

#[derive(Default)]
struct LinkState {
    /// True once the connection has had a response.
    used: AtomicBool,
    /// The mark of the request that hyper writes, or has written last. Locked by the connection's task only.
    request: Mutex<GivenUp>,
}

impl Link {
    fn of(connection: Option<&Connected>) -> Option<Self> {
        let mut extras = hyper::http::Extensions::new();
        connection?.get_extras(&mut extras);
        extras.remove()
    }

    fn request(&self) -> MutexGuard<'_, GivenUp> {
        self.0.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mark of a request that has been given up. If a write of such a request waits, the write fails: otherwise hyper would
/// wait until the server has taken what hyper has buffered of the body, maybe for ever. Set before hyper is told.
#[derive(Clone, Default)]
struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits for the answer to a request. If this future is dropped before, marks the request, and then drops `answer`.
async fn answered<T>(mut answer: impl Future<Output = T> + Unpin, mark: &GivenUp) -> T {
    struct SetInDrop<'a>(Option<&'a GivenUp>);

    impl Drop for SetInDrop<'_> {
        fn drop(&mut self) {
            if let Some(mark) = self.0 {
                mark.set();
            }
        }
    }

    // Declared after `answer`, and so dropped before `answer`, whose drop tells hyper.
    let mut unanswered = SetInDrop(Some(mark));
    let result = (&mut answer).await;
    unanswered.0 = None;
    result
}

/// The body of a request, which tells the connection whose body it writes.
struct Upload {
    body: Outgoing,
    mark: GivenUp,
    connection: CaptureConnection,
}

impl Upload {
    fn new(request: hyper::Request<Outgoing>, mark: &GivenUp) -> hyper::Request<Self> {
        let mut request = request;
        let connection = capture_connection(&mut request);
        request.map(|body| Self { body, mark: mark.clone(), connection })
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    /// hyper calls this function when it begins to write a request.
    fn is_end_stream(&self) -> bool {
        if let Some(link) = Link::of(self.connection.connection_metadata().as_ref()) {
            *link.request() = self.mark.clone();
        }
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns whether a connection of HTTP/1.1 that has had a response before has ended instead of a further response, as if the
/// server had closed an idle connection just before the request. Go: `persistConn.shouldRetryRequest`.
fn is_unanswered(error: &legacy::Error) -> bool {
    if !Link::of(error.connect_info()).is_some_and(|link| link.0.used.load(Ordering::Relaxed)) {
        return false;
    }
    let Some(error) = error.source().and_then(|error| error.downcast_ref::<hyper::Error>()) else { return false };
    let cause = error.source().and_then(|error| error.downcast_ref::<io::Error>());
    let is_cut = |kind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    error.is_incomplete_message() || cause.is_some_and(|error| is_cut(error.kind()))
}

fn end_of(ctx: &Context) -> io::Error {
    ctx.err().unwrap_or(context::Error::Canceled).into()
}

/// Makes an `io::Error` of an error of the client. The kind is that of the `io::Error` that has caused the error, if any.
fn to_io(error: legacy::Error) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    // Without a cause, the client has refused the request, or another request for the same server has failed to connect.
    let mut kind = if error.is_connect() { ErrorKind::ConnectionAborted } else { ErrorKind::InvalidInput };
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            kind = error.kind();
        } else if let Some(error) = error.downcast_ref::<hyper::Error>() {
            kind = match () {
                () if error.is_parse() => ErrorKind::InvalidData,
                () if error.is_incomplete_message() => ErrorKind::UnexpectedEof,
                () if error.is_user() => ErrorKind::InvalidInput,
                () => ErrorKind::ConnectionAborted,
            };
        }
        cause = error.source();
    }
    io::Error::new(kind, error)
}

/// The body of a response, which arrives while it is read. A read waits for the server.
///
/// If the body is dropped before its end, its connection is closed, or with HTTP/2 its stream is reset. Go's `resp.Body`.
pub struct ResponseBody {
    body: RequestBody,
    mark: GivenUp,
    ctx: Context,
    ends: AfterFunc,
    _cancel: CancelOnDrop,
}

impl ResponseBody {
    fn new(incoming: Incoming, mark: GivenUp, ctx: Context, cancel: CancelOnDrop) -> Self {
        let rest = Rest::new(incoming);
        let ends = context::after_func(&ctx, {
            let (mark, rest) = (mark.clone(), rest.clone());
            move || {
                mark.set();
                rest.close();
            }
        });
        Self { body: RequestBody::incoming(rest, u64::MAX, None), mark, ctx, ends, _cancel: cancel }
    }

    /// Returns the context's error if the context has ended a read.
    fn why(&self, error: io::Error) -> io::Error {
        if self.ctx.err().is_some() { end_of(&self.ctx) } else { error }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // Otherwise the drop of `_cancel` would end the connection, on which the request's body may still be sent.
        self.ends.stop();
        // Before the drop of `body`, which tells hyper.
        if !self.body.is_end_stream() {
            self.mark.set();
        }
    }
}

impl BufRead for ResponseBody {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Err(error) = self.body.fill_buf() {
            return Err(self.why(error));
        }
        self.body.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.body.consume(n);
    }
}

impl Read for ResponseBody {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.body.read(buf).map_err(|error| self.why(error))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        polled.map(|next| next.map(|frame| frame.map_err(|error| self.why(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("ResponseBody { .. }")
    }
}

type Dial = dyn Fn(&str) -> io::Result<Box<dyn Duplex>> + Send + Sync;

/// The service that connects: `legacy::Client` asks for connections by the trait of `tower`.
#[derive(Clone, Default)]
struct Connector {
    /// None: TCP.
    dial: Option<Arc<Dial>>,
    /// True if all connections speak HTTP/2.
    http2_only: bool,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Connector {
    async fn connect(self, uri: Uri) -> io::Result<Conn> {
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid_input("the scheme is neither http nor https")),
        };
        let host = uri.host().ok_or_else(|| invalid_input("no host"))?;
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let addr = format!("{host}:{port}");
        let io: Box<dyn Duplex> = match self.dial {
            None => Box::new(Raw(Arc::new(TcpStream::connect_async(addr).await?))),
            Some(dial) => spawn(move || dial(&addr)).await.unwrap_or_else(|payload| {
                drop_payload(payload);
                Err(io::Error::other("the function that dials has panicked"))
            })?,
        };
        if !is_secure {
            return Ok(Conn::new(io, false, self.http2_only));
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls {
            use hyper_util::rt::TokioIo;
            use rustls::pki_types::ServerName;

            let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(name).map_err(invalid_input)?;
            let stream = tls.connect(name, TokioIo::new(io)).await?;
            let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            if speaks_http2 && cfg!(not(feature = "http2")) {
                return Err(io::Error::new(ErrorKind::Unsupported, "HTTP/2 needs the feature `http2`"));
            }
            return Ok(Conn::new(Box::new(TokioIo::new(stream)), speaks_http2, self.http2_only));
        }
        Err(io::Error::new(ErrorKind::Unsupported, "https needs a configuration of TLS: Client::tls"))
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = Conn;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Conn>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = self.clone().connect(uri);
        Box::pin(async {
            let connected = before(Some(sleep_async(CONNECT_TIMEOUT)), connected).await;
            connected.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
        })
    }
}

/// A connection, whatever its type.
trait Duplex: rt::Read + rt::Write + Send + Unpin {}

impl<T: rt::Read + rt::Write + Send + Unpin> Duplex for T {}

struct Conn {
    io: Box<dyn Duplex>,
    /// True if TLS has negotiated HTTP/2.
    negotiated_http2: bool,
    /// None: the connection speaks HTTP/2, and so goes on when a request is given up.
    link: Option<Link>,
    closing: Closing,
}

impl Conn {
    fn new(io: Box<dyn Duplex>, negotiated_http2: bool, http2_only: bool) -> Self {
        let link = (!negotiated_http2 && !http2_only).then(Link::default);
        Self { io, negotiated_http2, link, closing: Closing::default() }
    }

    /// Returns what a write has returned, or an error if the write waits, and its request has been given up.
    fn unless_given_up<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let is_given_up = || self.link.as_ref().is_some_and(|link| link.request().0.load(Ordering::Acquire));
        if written.is_pending() && is_given_up() {
            Poll::Ready(Err(ErrorKind::ConnectionAborted.into()))
        } else {
            written
        }
    }
}

impl Connection for Conn {
    fn connected(&self) -> Connected {
        match &self.link {
            Some(link) => Connected::new().extra(link.clone()),
            None if self.negotiated_http2 => Connected::new().negotiated_h2(),
            None => Connected::new(),
        }
    }
}

impl rt::Read for Conn {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl rt::Write for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.unless_given_up(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.unless_given_up(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.unless_given_up(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.closing.limit(cx, shut)
    }
}

/// Starts the client's tasks. The panic hook has printed a panic of such a task.
#[derive(Clone)]
struct Spawn;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawn {
    fn execute(&self, task: F) {
        start_task(task, drop_payload);
    }
}

/// The runtime's clock, which is that of the bubble in a bubble.
#[derive(Clone, Copy)]
struct Clock;

impl Timer for Clock {
    fn sleep(&self, time: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Alarm(sleep_async(time)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(now()))
    }

    fn now(&self) -> Instant {
        now()
    }
}

struct Alarm(SleepAsync);

impl Sleep for Alarm {}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}
