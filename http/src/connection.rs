//! A connection: the task that runs hyper over a socket, with the time limits that hyper does not have. This file has
//! HTTP/1.1; a connection that speaks HTTP/2 goes on in `http2.rs`.
//!
//! All of this file's code runs in the connection's task, so the atomics of `Activity` are relaxed: they only make the
//! parts `Send`, which hyper stores apart from each other.
//!
//! | phase | begins | time limit |
//! |---|---|---|
//! | first header | with the connection | `header_timeout` |
//! | idle | when hyper looks for a further header | `idle_timeout`, until the next byte |
//! | header | with that byte | `header_timeout` |
//! | request | with the call of the service | of the body: in `request.rs`; of a write that waits: `write_timeout` |
//! | closing | when hyper is done, unless idle | `LINGER` |

use std::any::Any;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
#[cfg(any(feature = "client", feature = "http2"))]
use sudog_runtime::goroutine::go_async;
use sudog_runtime::goroutine::{Builder, OnPanic, SleepAsync, now, sleep_async};
use sudog_sync::context::{self, CancelFunc};

use crate::exchange;
#[cfg(feature = "http2")]
use crate::http2;
use crate::limit::Closing;
use crate::listener::Stream;
use crate::response::aborted;
use crate::server::{Server, User};
#[cfg(feature = "tls")]
use crate::tls;

/// The time for which a connection stays half-open after the last response, so that a client that still sends reads the
/// response, and not a reset. Go waits as long (`rstAvoidanceDelay`).
const LINGER: Duration = Duration::from_millis(500);

/// Serves a connection to its end.
pub(crate) async fn serve(user: Arc<User>, stream: impl Stream, peer: SocketAddr) {
    #[cfg(feature = "tls")]
    if let Some(config) = &user.settings.tls {
        let Some(stream) = tls::accept(&user, config, stream, peer).await else { return };
        #[cfg(feature = "http2")]
        if stream.speaks_http2() {
            return http2::serve(user, Arc::new(stream), Bytes::new(), peer).await;
        }
        return serve_http1(user, Arc::new(stream), Bytes::new(), peer).await;
    }
    let stream = Arc::new(stream);
    let ahead = Bytes::new();
    #[cfg(feature = "http2")]
    let ahead = if user.settings.unencrypted_http2 {
        let Some((is_preface, ahead)) = http2::read_preface(&user, &*stream).await else { return };
        if is_preface {
            return http2::serve(user, stream, ahead, peer).await;
        }
        ahead
    } else {
        ahead
    };
    serve_http1(user, stream, ahead, peer).await;
}

/// Serves a connection that speaks HTTP/1.1. `ahead` are bytes that have been read already.
async fn serve_http1(user: Arc<User>, stream: Arc<impl Stream>, ahead: Bytes, peer: SocketAddr) {
    let server: &Arc<Server> = &user;
    let (context, cancel) = context::with_cancel(&server.shared.base);
    let activity = Arc::new(Activity::default());
    let service = {
        let (user, activity) = (user.clone(), activity.clone());
        service_fn(move |mut request: hyper::Request<Incoming>| {
            activity.in_request.store(true, Relaxed);
            activity.is_watched.store(false, Relaxed);
            if request.extensions_mut().remove::<OnUpgrade>().is_some() {
                activity.wants_upgrade.store(true, Relaxed);
            }
            let answer = exchange::start(&user, &context, peer, request, ());
            async move { answer.recv_async().await.map_err(|_| aborted()) }
        })
    };
    let io = Io::new(stream.clone(), activity.clone(), ahead, server);
    let connection = http1::Builder::new()
        // A client that has closed its side still gets its answers, as in Go. `poll_client_gone` ends the context.
        .half_close(true)
        .max_header_size(server.settings.max_header_bytes)
        .max_buf_size(server.settings.max_header_bytes.max(400 << 10)) // about hyper's own, unless that is too small
        .timer(Clock { activity: activity.clone(), server: server.clone() })
        .header_read_timeout(Duration::from_secs(1)) // any value: `Clock` decides
        .serve_connection(io, service);
    let mut connection = Box::pin(connection);

    let (mut stopping, mut closing) = (server.shared.open.done(), server.shared.base.done());
    let mut told = false;
    // None: the server is closed, or a destructor has panicked.
    let ended = poll_fn(|cx| {
        if !told && Pin::new(&mut stopping).poll(cx).is_ready() {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        // `open` ends no later than `base`, so `told` is true if `base` has ended.
        if told && Pin::new(&mut closing).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let polled = caught(&user, peer, || {
            let mut polled = connection.as_mut().poll(cx);
            // If a request has asked for an upgrade, which no handler can accept, hyper is done without having flushed and
            // shut down. The next poll does both.
            if matches!(polled, Poll::Ready(Ok(()))) && activity.wants_upgrade.swap(false, Relaxed) {
                polled = connection.as_mut().poll(cx);
            }
            if polled.is_pending() {
                activity.poll_client_gone(cx, &*stream, &cancel);
            }
            polled
        });
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    })
    .await;
    caught(&user, peer, || drop(connection));
    caught(&user, peer, || cancel.cancel());

    if let Some(Err(error)) = &ended {
        // hyper refuses the response. An error with a source is that of a handler or of a stream that has broken off.
        if error.is_user() && error.source().is_none() {
            let line = format!("http: response to {peer} not sent: {error}");
            in_goroutine(&user, move |server| server.report(&line));
        }
    }
    let was_answered = match ended {
        Some(Ok(())) => activity.in_request.load(Relaxed),
        Some(Err(error)) => error.is_parse(),
        None => false,
    };
    if was_answered {
        linger(&*stream).await;
    }
}

/// Reads until the client's end, for a bounded time: a close before would reset a client that still sends.
pub(crate) async fn linger(stream: &impl Stream) {
    if stream.set_read_deadline(now().checked_add(LINGER)).is_ok() {
        let mut rest = [0; 1024];
        while stream.read_async(&mut rest).await.is_ok_and(|n| n > 0) {}
    }
}

/// Runs `f`, and reports a panic of `f`: hyper drops bytes that handlers have made, whose destructors are user code, and
/// the end of a context wakes tasks, whose wakers are user code.
pub(crate) fn caught<T>(user: &Arc<User>, peer: SocketAddr, f: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| report_panic(user, peer, payload)).ok()
}

/// Reports a panic of a connection's task.
pub(crate) fn report_panic(user: &Arc<User>, peer: SocketAddr, payload: Box<dyn Any + Send>) {
    in_goroutine(user, move |server| server.report_panic(format_args!("serving {peer}"), payload));
}

/// Starts a task of hyper's. A panic of the task is that of a destructor or a waker, which are user code: the panic ends this
/// task only, and `panicked` gets the payload.
#[cfg(any(feature = "client", feature = "http2"))]
pub(crate) fn start_task(
    task: impl Future<Output = ()> + Send + 'static,
    panicked: impl Fn(Box<dyn Any + Send>) + Send + 'static,
) {
    go_async(async move {
        let mut task = Box::pin(task);
        let polled = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
            polled.map_or_else(|payload| Poll::Ready(Err(payload)), |polled| polled.map(Ok))
        })
        .await;
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(task)));
        [polled, dropped].into_iter().filter_map(Result::err).for_each(panicked);
    });
}

/// Starts a goroutine that reports: the log is user code, which may wait.
pub(crate) fn in_goroutine(user: &Arc<User>, report: impl FnOnce(&Server) + Send + 'static) {
    let user = user.clone();
    Builder::new().on_panic(OnPanic::Unwind).go(move || report(&user));
}

/// The facts about a connection that the socket, the clock and the service tell each other.
#[derive(Default)]
pub(crate) struct Activity {
    /// True from the call of the service until hyper looks for a further header.
    in_request: AtomicBool,
    /// True once the task has been polled again since the call of the service.
    is_watched: AtomicBool,
    /// True if hyper has looked for a header.
    has_begun: AtomicBool,
    /// True if the last successful call on the socket was a read. When hyper looks for a further header, the response has
    /// been written, so the bytes of such a read belong to that header.
    has_read: AtomicBool,
    /// True if the socket has bytes that hyper does not read yet. The end behind these bytes cannot be seen.
    has_unread: AtomicBool,
    /// True if a request has asked for an upgrade, until hyper is done.
    wants_upgrade: AtomicBool,
}

impl Activity {
    /// During a request, watches for the end of what the client sends, and cancels the context then.
    fn poll_client_gone(&self, cx: &mut Context<'_>, stream: &impl Stream, cancel: &CancelFunc) {
        if !self.in_request.load(Relaxed) || self.has_unread.load(Relaxed) {
            return;
        }
        // A look at the socket is a system call. Most handlers have ended when the scheduler comes back to this task, and then
        // no look is needed. So put off the first look, and ask for a further poll.
        if !self.is_watched.swap(true, Relaxed) {
            cx.waker().wake_by_ref();
            return;
        }
        if let Poll::Ready(ready) = stream.poll_read_ready(cx) {
            // Look no more until hyper reads: the socket stays as it is until then.
            self.has_unread.store(true, Relaxed);
            // This poll may have ended hyper's wait for the same event, which has not woken the task yet. Poll hyper again.
            cx.waker().wake_by_ref();
            if ready.is_err() || stream.is_at_end() {
                cancel.cancel();
            }
        }
    }
}

/// The socket, for hyper.
pub(crate) struct Io<S> {
    stream: Arc<S>,
    activity: Arc<Activity>,
    /// Bytes that have been read already, for the next reads.
    ahead: Bytes,
    write_timeout: Option<Duration>,
    /// The time limit of a write that waits.
    stalled: Option<SleepAsync>,
    closing: Closing,
}

impl<S> Io<S> {
    pub(crate) fn new(stream: Arc<S>, activity: Arc<Activity>, ahead: Bytes, server: &Server) -> Self {
        Self {
            stream,
            activity,
            ahead,
            write_timeout: server.settings.write_timeout,
            stalled: None,
            closing: Closing::default(),
        }
    }

    /// Fails a write that has waited for the client for too long.
    fn limit<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.activity.has_read.store(false, Relaxed);
            self.stalled = None;
        } else if let Some(timeout) = self.write_timeout {
            let stalled = self.stalled.get_or_insert_with(|| sleep_async(timeout));
            ready!(Pin::new(stalled).poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }
}

impl<S: Stream> Read for Io<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let n = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(n));
            return Poll::Ready(Ok(()));
        }
        let read = self.stream.poll_read(cx, buf);
        self.activity.has_unread.store(false, Relaxed);
        if read.is_ready() {
            self.activity.has_read.store(true, Relaxed);
        }
        read
    }
}

impl<S: Stream> Write for Io<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream.poll_write(cx, &[io::IoSlice::new(buf)]);
        self.limit(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.poll_write(cx, bufs);
        self.limit(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream.poll_flush(cx) {
            // A stream without a buffer: not a write.
            Poll::Ready(Ok(())) if self.stalled.is_none() => Poll::Ready(Ok(())),
            flushed => self.limit(cx, flushed),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = self.stream.poll_shutdown(cx);
        self.closing.limit(cx, shut)
    }
}

/// The timer that hyper asks for the time limit of a header, each time hyper looks for a header, and for nothing else.
struct Clock {
    activity: Arc<Activity>,
    server: Arc<Server>,
}

impl Timer for Clock {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(now())
    }

    /// Begins the first header, or the idle phase. The settings decide the time limit, not the argument.
    fn sleep_until(&self, _: Instant) -> Pin<Box<dyn Sleep>> {
        let settings = &self.server.settings;
        self.activity.in_request.store(false, Relaxed);
        let is_first = !self.activity.has_begun.swap(true, Relaxed);
        let limit = if is_first { settings.header_timeout } else { settings.idle_timeout };
        Box::pin(HeaderLimit {
            activity: self.activity.clone(),
            header_timeout: settings.header_timeout,
            is_idle: !is_first,
            sleep: limit.map(sleep_async),
        })
    }

    fn now(&self) -> Instant {
        now()
    }
}

/// The time limit of a header. hyper polls this future after each read.
struct HeaderLimit {
    activity: Arc<Activity>,
    header_timeout: Option<Duration>,
    /// True until the first byte of a header that is not the connection's first.
    is_idle: bool,
    sleep: Option<SleepAsync>,
}

impl Sleep for HeaderLimit {}

impl Future for HeaderLimit {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_idle && self.activity.has_read.load(Relaxed) {
            self.is_idle = false;
            self.sleep = self.header_timeout.map(sleep_async);
        }
        match &mut self.sleep {
            Some(sleep) => Pin::new(sleep).poll(cx),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use hyper::rt::ReadBuf;
    use sudog_runtime::goroutine::{block_on, synctest};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// hyper waits for bytes, which come while the task is polled. `poll_client_gone` sees the bytes before the event wakes
    /// the task, and must wake the task itself, because it has ended hyper's wait.
    #[test]
    fn bytes_that_come_between_two_polls() {
        let _watchdog = support::Watchdog::new();
        let listener = sudog_net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = sudog_net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Arc::new(listener.accept().unwrap().0);
        let activity = Arc::new(Activity::default());
        activity.in_request.store(true, Relaxed);
        activity.is_watched.store(true, Relaxed);
        let (_context, cancel) = context::with_cancel(&context::background());
        let mut io = Io {
            stream: stream.clone(),
            activity: activity.clone(),
            ahead: Bytes::new(),
            write_timeout: None,
            stalled: None,
            closing: Closing::default(),
        };

        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let cx = &mut Context::from_waker(&waker);
        let mut bytes = [0; 1];
        assert!(Pin::new(&mut io).poll_read(cx, ReadBuf::new(&mut bytes).unfilled()).is_pending());
        client.write_all(b"x").unwrap();
        // The event has been counted, and its wake is over, so the next wake is that of `poll_client_gone`.
        support::eventually(|| wakes.0.load(Relaxed) > 0);
        wakes.0.store(0, Relaxed);
        activity.poll_client_gone(cx, &*stream, &cancel);
        assert!(activity.has_unread.load(Relaxed));
        assert_eq!(wakes.0.load(Relaxed), 1);
        // No further wake, or the task would spin until hyper reads.
        activity.poll_client_gone(cx, &*stream, &cancel);
        assert_eq!(wakes.0.load(Relaxed), 1);
    }

    /// A connection whose client takes no bytes.
    struct Stuck;

    impl Stream for Stuck {
        fn poll_read(&self, _: &mut Context<'_>, _: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_write(&self, _: &mut Context<'_>, _: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_read_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn is_at_end(&self) -> bool {
            false
        }

        fn set_read_deadline(&self, _: Option<Instant>) -> io::Result<()> {
            Ok(())
        }

        async fn read_async(&self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    /// `close_notify` cannot be sent. Go: `tls.Conn.Close` waits for five seconds.
    #[test]
    fn a_shutdown_that_the_client_does_not_let_go_on() {
        let _watchdog = support::Watchdog::new();
        synctest::test(|| {
            let server = Server::new(|_: crate::Request| "").write_timeout(None);
            let mut io = Io::new(Arc::new(Stuck), Arc::default(), Bytes::new(), &server);
            let begun = now();
            let shut = block_on(poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)));
            assert_eq!(shut.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(now() - begun, Duration::from_secs(5));
        });
    }
}
