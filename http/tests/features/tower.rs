//! Services of tower.

use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use hyper::body::{Body as _, Frame, SizeHint};
use sudog::context::Context;
use sudog::http::{self, Bytes, Client, Handler, HeaderMap, Request, RequestBody, Server, StatusCode};
use sudog::time::{SleepAsync, sleep, sleep_async};
use tower_service::Service;

use super::{MS, start, text};

/// A body of frames, each after a wait.
struct Frames {
    /// The frames that are left, the last one first.
    frames: Vec<io::Result<Frame<Bytes>>>,
    /// The number of bytes, if the body tells.
    length: Option<u64>,
    /// True if the body tells that the last frame is the last.
    tells_end: bool,
    pause: SleepAsync,
}

impl Frames {
    fn new(frames: Vec<io::Result<Frame<Bytes>>>) -> Self {
        Self { frames: frames.into_iter().rev().collect(), length: None, tells_end: false, pause: sleep_async(MS) }
    }

    fn texts(texts: &[&'static str]) -> Self {
        Self::new(texts.iter().map(|&text| Ok(Frame::data(text.into()))).collect())
    }

    fn of_known_length(texts: &[&'static str]) -> Self {
        Self { length: Some(texts.concat().len() as u64), tells_end: true, ..Self::texts(texts) }
    }
}

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        ready!(Pin::new(&mut self.pause).poll(cx));
        self.pause = sleep_async(MS);
        Poll::Ready(self.frames.pop())
    }

    fn is_end_stream(&self) -> bool {
        self.tells_end && self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A service that does what routers and their handlers do.
#[derive(Clone, Default)]
struct Routes {
    is_ready: bool,
}

/// Reads the body to its end, as extractors do.
async fn read(mut body: RequestBody) -> io::Result<String> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        bytes.extend(frame?.into_data().unwrap());
    }
    Ok(String::from_utf8(bytes).unwrap())
}

impl Service<hyper::Request<RequestBody>> for Routes {
    type Response = hyper::Response<Frames>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if !self.is_ready {
            self.is_ready = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: hyper::Request<RequestBody>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called before it was ready");
        Box::pin(async move {
            Ok(hyper::Response::new(match request.uri().path() {
                "/one" => Frames::of_known_length(&["one"]),
                "/two" => Frames::of_known_length(&["one", "two"]),
                "/frames" => Frames::texts(&["1\n", "2\n", "3\n"]),
                "/none" => Frames::texts(&[]),
                "/empty" => Frames { length: Some(0), ..Frames::texts(&[]) },
                "/trailers" => Frames::new(vec![
                    Ok(Frame::data("data".into())),
                    Ok(Frame::trailers(HeaderMap::from_iter([(http::header::ETAG, "x".parse().unwrap())]))),
                ]),
                "/broken" => Frames::new(vec![Ok(Frame::data("part".into())), Err(io::ErrorKind::NotFound.into())]),
                // A service may block, as it runs in a goroutine.
                "/block" => {
                    sleep(MS);
                    Frames::texts(&["slept"])
                }
                "/echo" => match read(request.into_body()).await {
                    Ok(body) => Frames::texts(&[body.leak()]),
                    Err(_) => {
                        let mut refused = hyper::Response::new(Frames::texts(&[]));
                        *refused.status_mut() = StatusCode::BAD_REQUEST;
                        return Ok(refused);
                    }
                },
                "/who" => {
                    assert!(request.extensions().get::<Context>().unwrap().err().is_none());
                    let peer = request.extensions().get::<SocketAddr>().unwrap().ip();
                    Frames::texts(&[peer.to_string().leak()])
                }
                "/panic" => panic!("in a test"),
                _ => return Err(io::ErrorKind::NotFound.into()),
            }))
        })
    }
}

#[test]
fn services() {
    let server = start(Server::new(http::tower(Routes::default())).max_body_bytes(100_000));
    let client = Client::new();
    let ask = |path: &str| {
        let response = client.get(&server.url(path)).unwrap();
        (response.status().as_u16(), text(response).unwrap())
    };
    for (path, expected) in [
        ("/one", "one"),
        ("/two", "onetwo"),
        ("/frames", "1\n2\n3\n"),
        ("/none", ""),
        ("/empty", ""),
        ("/trailers", "data"),
        ("/block", "slept"),
    ] {
        assert_eq!(ask(path), (200, expected.to_owned()), "{path}");
    }
    let one = client.get(&server.url("/one")).unwrap();
    assert_eq!(one.headers()[http::header::CONTENT_LENGTH], "3", "a single frame has its length");
    let (_, who) = ask("/who");
    assert!(who.starts_with("127."), "{who}");
    // An error of the service.
    assert_eq!(ask("/nowhere").0, 500);
    assert!(text(client.get(&server.url("/broken")).unwrap()).is_err());
    for n in [0, 10, 99_999] {
        let echo = client.post(&server.url("/echo"), "text/plain", vec![b'x'; n]).unwrap();
        assert_eq!(text(echo).unwrap().len(), n);
    }
    // A body that turns out to be too large fails the read.
    let large = http::Body::stream(|w| w.write_all(&[b'x'; 200_000]));
    let refused = client.post(&server.url("/echo"), "text/plain", large);
    assert!(refused.is_ok_and(|response| response.status() == StatusCode::BAD_REQUEST));
    assert!(client.post(&server.url("/panic"), "text/plain", "").is_err());
    assert_eq!(server.lines().len(), 1);
}

/// A service that is never ready.
#[derive(Clone)]
struct Exhausted;

impl Service<hyper::Request<RequestBody>> for Exhausted {
    type Response = hyper::Response<Frames>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::ResourceBusy.into()))
    }

    fn call(&mut self, _: hyper::Request<RequestBody>) -> Self::Future {
        unreachable!("not ready")
    }
}

#[test]
fn a_service_that_is_not_ready() {
    assert_eq!(http::tower(Exhausted).handle(Request::new("/", "")).status(), StatusCode::INTERNAL_SERVER_ERROR);
}

/// The body of a request is polled by a task: its limits are those of reads.
#[test]
fn polled_bodies() {
    let request = http::Request::new("/", "hello");
    let mut body = request.into_inner().into_body();
    assert!(!body.is_end_stream());
    let mut next = || sudog::block_on(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)));
    assert_eq!(next().unwrap().unwrap().into_data().unwrap(), "hello");
    assert!(next().is_none());
    assert!(body.is_end_stream());
}
