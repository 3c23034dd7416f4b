//! `tower`: services of the crate `tower` as handlers.

use std::error::Error;
use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::Pin;

use hyper::body::{Body as HttpBody, Bytes};
use sudog_runtime::goroutine::block_on;
use tower_service::Service;

use crate::{Body, Handler, Request, RequestBody, Response, StatusCode};

/// Makes a handler of a service of the crate `tower`, such as a router of axum. The service's futures, and the body of the
/// response, run in the request's goroutine, so they may also block.
///
/// Each request is handled by a clone of the service. The service finds the request's [context](Request::context) and the
/// client's address, a `SocketAddr`, in the request's extensions. If the client goes away, the context ends, and the
/// futures run on. An error of the service is answered with status 500.
///
/// No runtime of tokio runs. So parts of axum that need tokio, such as `axum::serve`, do not work, and need not.
///
/// # Examples
///
/// A router of axum 0.8, on which this crate does not depend:
///
/// ```ignore
/// use axum::Router;
/// use axum::extract::Path;
/// use axum::routing::get;
/// use sudog::http::{self, Handler, Request};
///
/// sudog::run(|| {
///     let router = Router::new().route("/hello/{name}", get(async |Path(name): Path<String>| format!("Hello, {name}!")));
///     let response = http::tower(router).handle(Request::new("/hello/gopher", ""));
///     assert!(response.status().is_success());
///     // http::serve(listener, http::tower(router))
/// });
/// ```
pub fn tower<S, B>(service: S) -> impl Handler
where
    S: Service<hyper::Request<RequestBody>, Response = hyper::Response<B>> + Clone + Send + Sync + 'static,
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    move |request: Request| {
        let mut service = service.clone();
        let (context, peer) = (request.context().clone(), request.remote_addr());
        let mut request = request.into_inner();
        request.extensions_mut().insert(context);
        request.extensions_mut().insert(peer);
        let answered = block_on(async {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await
        });
        answered.map(body).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Makes a response whose body is that of the service's response: bytes, if the body has a single frame, or else a stream.
fn body<B>(response: hyper::Response<B>) -> Response
where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let (head, body) = response.into_parts();
    let mut body = Box::pin(body);
    if body.is_end_stream() {
        return Response::from_parts(head, Body::default());
    }
    let is_short = body.size_hint().exact().is_some_and(|length| length <= 64 << 10);
    let first = if is_short { next(&mut body) } else { None };
    match first {
        None if is_short => Response::from_parts(head, Body::default()),
        Some(Ok(first)) if body.is_end_stream() => Response::from_parts(head, first.into()),
        first => {
            let write = move |w: &mut crate::BodyWriter| {
                let mut first = first;
                while let Some(chunk) = first.take().or_else(|| next(&mut body)) {
                    w.write_all(&chunk?)?;
                    w.flush()?;
                }
                Ok(())
            };
            Response::from_parts(head, Body::stream(write))
        }
    }
}

/// Waits for the next bytes. None: the body has ended. Trailers are not sent.
fn next<B>(body: &mut Pin<Box<B>>) -> Option<io::Result<Bytes>>
where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    block_on(async {
        loop {
            match poll_fn(|cx| body.as_mut().poll_frame(cx)).await? {
                Err(error) => return Some(Err(io::Error::other(error))),
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
            }
        }
    })
}
