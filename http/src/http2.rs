//! A connection that speaks HTTP/2: the task that runs hyper, and a task for each stream, which hyper starts.
//!
//! hyper and the crate `h2` keep the rules of the protocol, and their limits against floods are hyper's defaults, which
//! `docs/http.md` lists. This file adds the time limits:
//!
//! | phase | time limit |
//! |---|---|
//! | the client's preface | `header_timeout`, in [`read_preface`]; behind a TLS handshake as idle |
//! | idle: no stream is open | `idle_timeout`, then GOAWAY |
//! | after GOAWAY, no stream is open | `GOAWAY`, then closed |
//! | a write that waits for the socket | `write_timeout`, in `Io` |

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, COOKIE, HeaderValue};
use hyper::rt::{Executor, ReadBuf};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, StatusCode};
use sudog_runtime::chan::Chan;
use sudog_runtime::goroutine::{now, sleep_async};
use sudog_sync::context::{self, CancelOnDrop, Context};

use crate::connection::{Activity, Io, caught, in_goroutine, linger, report_panic, start_task};
use crate::exchange::{self, Answer, may_have_body};
use crate::limit::before;
use crate::listener::Stream;
use crate::response::{Outgoing, aborted};
use crate::server::User;

/// The time in which a client closes its side after GOAWAY. Go's `goAwayTimeout`.
const GOAWAY: Duration = Duration::from_secs(1);

/// The number of open streams of a connection, and of the handlers of a connection that run at once: a handler may run on
/// after the client has reset the handler's stream. Go: `serverConn.scheduleHandler`.
const STREAMS: u32 = 200;

/// The first bytes of a client that speaks HTTP/2. No request of HTTP/1 begins so.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads until the bytes are the preface, or cannot become the preface. Returns the answer and the bytes. None: the client
/// is too slow or gone, or the server stops.
pub(crate) async fn read_preface(user: &User, stream: &impl Stream) -> Option<(bool, Bytes)> {
    let read = async {
        let mut bytes = [0; PREFACE.len()];
        let mut n = 0;
        loop {
            let mut buf = ReadBuf::new(&mut bytes[n..]);
            poll_fn(|cx| stream.poll_read(cx, buf.unfilled())).await.ok()?;
            let read = buf.filled().len();
            n += read;
            let may_be_preface = PREFACE.starts_with(&bytes[..n]);
            if read == 0 || !may_be_preface || n == PREFACE.len() {
                return (n > 0).then(|| (may_be_preface && read > 0, Bytes::copy_from_slice(&bytes[..n])));
            }
        }
    };
    let read = before(user.settings.header_timeout.map(sleep_async), read);
    before(Some(user.shared.open.done()), read).await.flatten().flatten()
}

/// Serves a connection. `ahead` are bytes that have been read already.
pub(crate) async fn serve(user: Arc<User>, stream: Arc<impl Stream>, ahead: Bytes, peer: SocketAddr) {
    let server = &user;
    let (context, cancel) = context::with_cancel(&server.shared.base);
    let streams = Arc::new(Streams::new());
    let service = {
        let (user, streams, places) = (user.clone(), streams.clone(), Chan::new(STREAMS as usize));
        service_fn(move |request| answer(&user, &streams, &places, &context, peer, request))
    };
    let io = Io::new(stream.clone(), Arc::<Activity>::default(), ahead, server);
    let header_bytes = u32::try_from(server.settings.max_header_bytes).unwrap_or(u32::MAX);
    let connection = http2::Builder::new(Spawn { user: user.clone(), peer })
        .max_header_list_size(header_bytes)
        .max_concurrent_streams(STREAMS)
        .serve_connection(io, service);
    let mut connection = Box::pin(connection);

    let (mut stopping, mut closing) = (server.shared.open.done(), server.shared.base.done());
    let mut told = false;
    let mut limit = server.settings.idle_timeout;
    let mut alarm = limit.map(sleep_async);
    // None: the server is closed, the client does not close its side, or a destructor has panicked.
    let ended = poll_fn(|cx| {
        if !told && Pin::new(&mut stopping).poll(cx).is_ready() {
            told = true;
            limit = Some(GOAWAY);
            alarm = limit.map(sleep_async);
            connection.as_mut().graceful_shutdown();
        }
        if Pin::new(&mut closing).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        // The end of the last stream sets no alarm. An alarm that comes too early is set again, for the rest of the time.
        while let (Some(time), Some(rung)) = (limit, &mut alarm)
            && Pin::new(rung).poll(cx).is_ready()
        {
            let idle = streams.idle();
            if idle >= time && told {
                return Poll::Ready(None);
            }
            if idle >= time {
                told = true;
                limit = Some(GOAWAY);
                alarm = limit.map(sleep_async);
                connection.as_mut().graceful_shutdown();
            } else {
                alarm = Some(sleep_async(time - idle));
            }
        }
        let polled = caught(&user, peer, || connection.as_mut().poll(cx));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    })
    .await;
    caught(&user, peer, || drop(connection));
    caught(&user, peer, || cancel.cancel());
    if let Some(Ok(())) = ended {
        linger(&*stream).await;
    }
}

/// Returns the future of the answer to a request, which waits for a place, and then starts the goroutine that answers. If the
/// client resets the stream, hyper drops that future, or the body of the answer: then the request's context ends.
fn answer(
    user: &Arc<User>,
    streams: &Arc<Streams>,
    places: &Chan<()>,
    connection: &Context,
    peer: SocketAddr,
    mut request: Request<Incoming>,
) -> impl Future<Output = io::Result<hyper::Response<Body>>> + use<> {
    let (context, cancel) = context::with_cancel(connection);
    let open = Open { _cancel: cancel.on_drop(), _stream: streams.open() };
    join_cookies(request.headers_mut());
    let method = request.method().clone();
    let (user, places) = (user.clone(), places.clone());
    async move {
        places.send_async(()).await;
        let answer = exchange::start(&user, &context, peer, request, Place(places));
        let mut answer = answer.recv_async().await.map_err(|_| aborted())?;
        // hyper would send such a status as the last one. Over HTTP/1.1, hyper does the same as this.
        if answer.status().is_informational() {
            let line = format!("http: response to {peer} not sent: unsupported status code {}", answer.status());
            in_goroutine(&user, move |server| server.report(&line));
            answer = Answer::new(Outgoing::whole(Bytes::new()));
            *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        Ok(without_needless_body(answer, &method).map(|outgoing| Body { outgoing, _open: open }))
    }
}

/// Joins the cookies, which a client may send in several fields of HTTP/2: RFC 9113, 8.2.3.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// The place of a handler that runs: a value in the channel of its connection.
struct Place(Chan<()>);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.0.try_recv(); // there is this place's value
    }
}

/// Removes a body that the response may not have, which hyper would send.
fn without_needless_body(mut answer: Answer, method: &Method) -> Answer {
    if may_have_body(method, answer.status()) {
        return answer;
    }
    let length = answer.body().size_hint().exact().filter(|&length| length > 0);
    if let Some(length) = length.filter(|_| *method == Method::HEAD) {
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    answer.map(|_| Outgoing::whole(Bytes::new()))
}

/// Starts hyper's tasks. A panic of such a task ends its stream only.
#[derive(Clone)]
struct Spawn {
    user: Arc<User>,
    peer: SocketAddr,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawn {
    fn execute(&self, task: F) {
        let Self { user, peer } = self.clone();
        start_task(task, move |payload| report_panic(&user, peer, payload));
    }
}

/// The open streams of a connection.
struct Streams(Mutex<Count>);

struct Count {
    open: usize,
    /// The time when the last stream ended, or the connection began.
    since: Instant,
}

impl Streams {
    fn new() -> Self {
        Self(Mutex::new(Count { open: 0, since: now() }))
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a stream until the guard is dropped.
    fn open(self: &Arc<Self>) -> OpenStream {
        self.lock().open += 1;
        OpenStream(self.clone())
    }

    /// Returns the time for which no stream has been open.
    fn idle(&self) -> Duration {
        let count = self.lock();
        if count.open == 0 { now().saturating_duration_since(count.since) } else { Duration::ZERO }
    }
}

struct OpenStream(Arc<Streams>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        count.open -= 1;
        count.since = now();
    }
}

/// A stream whose response has not been sent. A drop ends the context of the request.
struct Open {
    _cancel: CancelOnDrop,
    _stream: OpenStream,
}

/// The body of a response, which hyper drops when the stream ends.
struct Body {
    outgoing: Outgoing,
    _open: Open,
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.outgoing).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.outgoing.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.outgoing.size_hint()
    }
}
