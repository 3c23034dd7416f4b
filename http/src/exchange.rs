//! One request and its response: the goroutine that runs the handler.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::{Method, StatusCode, Version};
use sudog_runtime::chan::{Receiver, Sender, channel};
use sudog_runtime::goroutine::{Builder, Goexit, OnPanic};
use sudog_sync::context::{self, Context};

use crate::request::{Request, RequestBody, Rest};
use crate::response::{BodyWriter, IntoResponse, Kind, Outgoing, Response, length_of};
use crate::server::{Server, User};

/// A function that answers requests. Go's `http.Handler`. Closures of type `Fn(Request) -> impl IntoResponse` implement
/// this trait.
///
/// Each call runs in a goroutine of its own, and may wait. The requests of a connection are handled in turn. If a call
/// panics, its connection is closed without an answer (a stream that has begun is cut off), the panic is reported, and the
/// server goes on.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request.
    fn handle(&self, request: Request) -> Response;
}

impl<F, R> Handler for F
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn handle(&self, request: Request) -> Response {
        self(request).into_response()
    }
}

/// The head of a response, and the body in the form that hyper sends.
pub(crate) type Answer = hyper::Response<Outgoing>;

/// Starts the goroutine that answers a request, and drops `place` when the goroutine ends. The receiver gets the answer, or
/// fails if the connection is to be closed without an answer.
pub(crate) fn start(
    user: &Arc<User>,
    connection: &Context,
    peer: SocketAddr,
    mut request: hyper::Request<Incoming>,
    place: impl Send + 'static,
) -> Receiver<Answer> {
    let (sender, receiver) = channel(1);
    if let Err(status) = check(&mut request, user.settings.max_body_bytes) {
        let reason = Bytes::from(status.canonical_reason().unwrap_or_default());
        let mut refusal = Answer::new(Outgoing::whole(reason));
        *refusal.status_mut() = status;
        refusal.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let _ = sender.try_send(refusal); // there is room for a value
        return receiver;
    }
    let (user, connection) = (user.clone(), connection.clone());
    Builder::new().on_panic(OnPanic::Unwind).go(move || {
        let _place = place;
        let server: &Server = &user;
        let (context, cancel) = context::with_cancel(&connection);
        let method = request.method().clone();
        let (head, incoming) = request.into_parts();
        let rest = Rest::new(incoming);
        let body = RequestBody::incoming(rest.clone(), server.settings.max_body_bytes, server.settings.body_timeout);
        let request = Request { inner: hyper::Request::from_parts(head, body), context, remote_addr: peer };
        let handler = &*server.shared.handler;
        let answered = catch_unwind(AssertUnwindSafe(|| answer(handler, request, &rest, &method, sender)));
        rest.close();
        // The end of the context runs wakers, which are user code. A panic of a waker during a `goexit` would end the
        // process, so the `goexit` goes on afterwards.
        server.caught(format_args!("serving {peer}"), || cancel.cancel());
        match answered {
            Err(payload) if payload.is::<Goexit>() => resume_unwind(payload),
            Err(payload) => server.report_panic(format_args!("serving {peer}"), payload),
            Ok(()) => {}
        }
    });
    receiver
}

/// Calls the handler, sends the head of the response, and runs the function that writes the body, if there is one. Closes
/// the request's body before the response ends, so that hyper does not read on between the response and the next header.
fn answer(handler: &dyn Handler, request: Request, rest: &Rest, method: &Method, sender: Sender<Answer>) {
    let (mut head, body) = handler.handle(request).into_parts();
    // Drop extensions here: their destructors are user code, which the connection's task should not run.
    head.extensions.clear();
    // hyper knows the client's version, and panics at a version that is not of HTTP/1 in an answer to HTTP/1.
    head.version = Version::HTTP_11;
    match body.0 {
        Kind::Whole(bytes) => {
            // hyper believes this header. Let hyper write the length of the bytes. An empty body has the length that the
            // handler tells only in the answer to a HEAD request.
            if !bytes.is_empty() {
                head.headers.remove(CONTENT_LENGTH);
            }
            rest.close();
            let _ = sender.send(Answer::from_parts(head, Outgoing::whole(bytes)));
        }
        Kind::Stream(write) => {
            let status = head.status;
            let (mut writer, chunks) = BodyWriter::new(length_of(&head.headers));
            let sent = sender.send(Answer::from_parts(head, Outgoing::stream(chunks)));
            // If `write` fails or panics, the writer is dropped unfinished, and the connection is cut off.
            if sent.is_ok() && may_have_body(method, status) && write(&mut writer).is_ok() {
                rest.close();
                writer.finish();
            }
        }
    }
}

/// Returns whether the response to a request has a body.
pub(crate) fn may_have_body(method: &Method, status: StatusCode) -> bool {
    let is_tunnel = *method == Method::CONNECT && status.is_success();
    let has_none = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || status.is_informational();
    *method != Method::HEAD && !is_tunnel && !has_none
}

/// Checks what hyper does not check, and sets `Host` to the host of the target, if the target has a host. Returns the status
/// with which the request is refused. Go: `readRequest`, and `conn.serve`.
fn check(request: &mut hyper::Request<Incoming>, max_body_bytes: u64) -> Result<(), StatusCode> {
    let headers = request.headers();
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    let needs_host = request.version() == Version::HTTP_11 && *request.method() != Method::CONNECT;
    let is_valid = host.map_or(!needs_host, |host| host.as_bytes().iter().all(is_host_byte));
    if !is_valid || hosts.next().is_some() {
        return Err(StatusCode::BAD_REQUEST);
    }
    // hyper takes a target without a slash for a host. Go: `url.ParseRequestURI`, `ServeMux.Handler`.
    let is_valid = match request.uri().path() {
        "" => *request.method() == Method::CONNECT,
        "*" => *request.method() == Method::OPTIONS,
        _ => true,
    };
    if !is_valid {
        return Err(StatusCode::BAD_REQUEST);
    }
    // The target's host counts, not the header: RFC 9112, 3.2.2. A user's name before the host is refused: RFC 9110, 4.2.4.
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str()).ok();
        let host = host.filter(|host| host.as_bytes().iter().all(is_host_byte)).ok_or(StatusCode::BAD_REQUEST)?;
        request.headers_mut().insert(HOST, host);
    }
    let headers = request.headers();
    // hyper decodes `chunked` only, which it knows to be the last coding.
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if codings.next().is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        || codings.next().is_some()
    {
        return Err(StatusCode::NOT_IMPLEMENTED);
    }
    let expected = headers.get(EXPECT).map_or(&b""[..], HeaderValue::as_bytes);
    if !expected.is_empty() && !expected.eq_ignore_ascii_case(b"100-continue") {
        return Err(StatusCode::EXPECTATION_FAILED);
    }
    if request.body().size_hint().lower() > max_body_bytes {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    Ok(())
}

/// Returns whether a byte may stand in a host with a port: RFC 3986, 3.2.2 and 3.2.3.
fn is_host_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:[]".contains(byte)
}
