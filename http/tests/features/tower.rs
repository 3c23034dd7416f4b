//! Services of tower: axum's routers.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use axum::Router;
use axum::body::{Body as AxumBody, Bytes};
use axum::extract::{Extension, Path};
use axum::http::StatusCode;
use axum::routing::{get, post};
use hyper::body::{Body as _, Frame};
use sudog::context::Context;
use sudog::http::{self, Client, Server};
use sudog::time::{sleep, sleep_async};

use super::{MS, start, text};

/// A body of three frames, each after a wait.
struct Frames(u32, Pin<Box<dyn Future<Output = ()> + Send>>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0 == 3 {
            return Poll::Ready(None);
        }
        std::task::ready!(self.1.as_mut().poll(cx));
        self.0 += 1;
        self.1 = Box::pin(sleep_async(MS));
        Poll::Ready(Some(Ok(Frame::data(format!("{}\n", self.0).into()))))
    }
}

fn router() -> Router {
    Router::new()
        .route("/hello/{name}", get(async |Path(name): Path<String>| format!("Hello, {name}!")))
        .route("/echo", post(async |body: Bytes| body))
        .route("/frames", get(async || AxumBody::new(Frames(0, Box::pin(sleep_async(MS))))))
        // A handler may block, as it runs in a goroutine.
        .route("/block", get(async || sleep(MS)))
        .route("/empty", get(async || StatusCode::NO_CONTENT))
        .route(
            "/who",
            get(async |Extension(ctx): Extension<Context>, Extension(peer): Extension<SocketAddr>| {
                assert!(ctx.err().is_none());
                peer.ip().to_string()
            }),
        )
        .route("/panic", post(async || -> String { panic!("in a test") }))
}

#[test]
fn routers_of_axum() {
    let server = start(Server::new(http::tower(router())).max_body_bytes(100_000));
    let client = Client::new();
    let ask = |path: &str| {
        let response = client.get(&server.url(path)).unwrap();
        (response.status().as_u16(), text(response).unwrap())
    };
    assert_eq!(ask("/hello/gopher"), (200, "Hello, gopher!".to_owned()));
    assert_eq!(ask("/frames"), (200, "1\n2\n3\n".to_owned()));
    assert_eq!(ask("/block"), (200, String::new()));
    assert_eq!(ask("/empty"), (204, String::new()));
    assert_eq!(ask("/who"), (200, "127.0.0.1".to_owned()));
    assert_eq!(ask("/nowhere").0, 404);
    assert_eq!(ask("/echo").0, 405);
    for n in [0, 10, 99_999] {
        let echo = client.post(&server.url("/echo"), "text/plain", vec![b'x'; n]).unwrap();
        assert_eq!(text(echo).unwrap().len(), n);
    }
    // A body that turns out to be too large fails the extractor.
    let large = http::Body::stream(|w| w.write_all(&[b'x'; 200_000]));
    let refused = client.post(&server.url("/echo"), "text/plain", large);
    assert!(refused.is_ok_and(|response| response.status() == StatusCode::BAD_REQUEST));
    assert!(client.post(&server.url("/panic"), "text/plain", "").is_err());
    assert_eq!(server.lines().len(), 1);
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
