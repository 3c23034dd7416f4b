//! The server, by clients that write bytes to a socket: Go's tests (`net/http/serve_test.go` of 1.27), whose names stand
//! at ours, and situations that a service meets.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

#[path = "features/running.rs"]
mod running;

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{self, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::{Chan, channel};
use sudog::context::{self, Context, Error, background};
use sudog::http::{
    Body, BodyWriter, Bytes, IntoResponse, Request, RequestBody, Response, Server, StatusCode, Version, debug, header,
};
use sudog::net::{PipeDialer, PipeStream, TcpListener, UnixListener};
use sudog::runtime::{goexit, gosched};
use sudog::time::{now, sleep};
use sudog::{go, spawn};
use support::{Watchdog, eventually};

use running::{Running, in_bubble, listen, start};

const MS: Duration = Duration::from_millis(1);
const SHORT: Duration = Duration::from_millis(20);
const HOUR: Duration = Duration::from_secs(3600);

const _: () = {
    const fn send<T: Send>() {}
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<(Server, Request, RequestBody, BodyWriter)>();
    send::<(Body, Response)>();
};

impl Running {
    fn connect(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(self.addr).unwrap()))
    }

    /// Sends bytes over a connection of their own, and returns all that the server sends until the end.
    fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.connect();
        client.send(bytes);
        client.rest()
    }

    /// Checks that a shutdown waits for what still runs, which `go_on` lets end.
    fn shutdown_waits_for(&self, go_on: &Chan<()>, what: &str) {
        let (soon, _cancel) = context::with_timeout(&background(), SHORT);
        assert_eq!(self.server.shutdown(&soon), Err(Error::DeadlineExceeded), "{what}");
        go_on.send(());
        self.server.shutdown(&background()).unwrap();
    }
}

struct Client(BufReader<TcpStream>);

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Client {
    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    fn half_close(&mut self) {
        self.0.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    /// Reads to the end. A reset counts as an end.
    fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        if let Err(error) = self.0.read_to_end(&mut bytes) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Returns whether no byte has come.
    fn has_no_answer(&self) -> bool {
        let stream = self.0.get_ref();
        stream.set_nonblocking(true).unwrap();
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Returns whether the server still reads. A reset that answers a write fails the next write.
    fn takes_more(&mut self) -> bool {
        (0..20).all(|_| {
            thread::sleep(MS);
            self.0.get_mut().write_all(&[b'x'; 1000]).is_ok()
        })
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the answer ends with {line:?}");
        line.truncate(line.len() - 2);
        line
    }

    fn head(&mut self) -> Answer {
        let line = self.line();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = HashMap::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        Answer { status, headers, body: String::new() }
    }

    fn bytes(&mut self, n: usize) -> String {
        let mut bytes = vec![0; n];
        self.0.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn chunk(&mut self) -> String {
        let length = usize::from_str_radix(&self.line(), 16).unwrap();
        let chunk = self.bytes(length);
        assert_eq!(self.line(), "");
        chunk
    }

    fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if answer.headers.contains_key("transfer-encoding") {
            loop {
                let chunk = self.chunk();
                if chunk.is_empty() {
                    break;
                }
                answer.body += &chunk;
            }
        } else if let Some(length) = answer.headers.get("content-length") {
            answer.body = self.bytes(length.parse().unwrap());
        }
        answer
    }

    fn get(&mut self, path: &str) -> Answer {
        self.send(get(path));
        self.answer()
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

fn path(request: Request) -> String {
    format!("{} {}", request.method(), request.uri().path())
}

/// Answers with the body.
fn echo(mut request: Request) -> io::Result<String> {
    let mut body = String::new();
    request.body_mut().read_to_string(&mut body)?;
    Ok(body)
}

/// A handler that tells of its context, waits until the context ends, and then answers.
fn waiting(started: &Chan<Context>) -> impl Fn(Request) -> &'static str + use<> {
    let started = started.clone();
    move |request| {
        started.send(request.context().clone());
        assert_eq!(request.context().wait(), Error::Canceled);
        "late"
    }
}

// ---- requests and responses -----------------------------------------------------------------------------------------

/// Go: TestServeHTTP10Close, TestHandlersCanSetConnectionClose11.
#[test]
fn keep_alive() {
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = peers.clone();
    let running = start(Server::new(move |request: Request| {
        seen.lock().unwrap().push(request.remote_addr());
        let mut response = Response::new(Body::from(path(request)));
        if seen.lock().unwrap().len() == 4 {
            response.headers_mut().insert(header::CONNECTION, "close".parse().unwrap());
        }
        response
    }));
    let mut client = running.connect();
    for n in 0..3 {
        let answer = client.get(&format!("/{n}"));
        assert_eq!((answer.status, answer.body), (200, format!("GET /{n}")));
        assert!(answer.headers.contains_key("date"));
    }
    assert_eq!(client.get("/").headers["connection"], "close");
    assert_eq!(client.rest(), "");
    let here = client.0.get_ref().local_addr().unwrap();
    assert_eq!(*peers.lock().unwrap(), [here; 4]);

    let answer = running.ask("GET /close HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\nGET /close"), "{answer}");
    let answer = running.ask("GET /old HTTP/1.0\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\nGET /old"), "{answer}");
}

/// The handlers of one connection run one after another, in order.
#[test]
fn pipelining() {
    let running = start(Server::new(path));
    let mut client = running.connect();
    client.send((0..100).map(|n| get(&format!("/{n}"))).collect::<String>());
    for n in 0..100 {
        assert_eq!(client.answer().body, format!("GET /{n}"));
    }
}

#[test]
fn one_byte_at_a_time() {
    let running = start(Server::new(echo));
    let mut client = running.connect();
    for byte in b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" {
        client.send([*byte]);
        thread::yield_now();
    }
    assert_eq!(client.answer().body, "hello");
    for byte in b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n" {
        client.send([*byte]);
        thread::yield_now();
    }
    assert_eq!(client.answer().body, "hello");
}

#[test]
fn chunked_bodies() {
    let running = start(Server::new(echo));
    let mut client = running.connect();
    let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}5\r\nhello\r\n6; ext=1\r\n world\r\n0\r\nTrailer: 1\r\n\r\n"));
    assert_eq!(client.answer().body, "hello world");
    client.send(format!("{head}0\r\n\r\n"));
    assert_eq!(client.answer().body, "");
    for bad in ["x\r\n", "-1\r\n", "\r\n", "ffffffffffffffffff\r\n", "1\r\nab\r\n0\r\n\r\n"] {
        let answer = running.ask(format!("{head}{bad}"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{bad:?}: {answer}");
    }
}

/// Go: TestServerUnreadRequestBodyLittle. The connection goes on after a body that no handler has read, if the body ends
/// in the piece that hyper still reads. Otherwise the client gets the answer, and then the end, not a reset.
#[test]
fn unread_body() {
    let running = start(Server::new(path));
    let mut client = running.connect();
    for _ in 0..3 {
        client.send("POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.answer().body, "POST /unread");
    }
    let chunked = "POST /chunks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(chunked.to_owned() + &"5\r\nhello\r\n".repeat(3) + "0\r\n\r\n");
    assert_eq!(client.answer().body, "POST /chunks");
    assert_eq!(client.rest(), "");
    for (length, sent) in [(1_000_000, 0), (1_000_000, 5), (1_000_000, 10_000)] {
        let mut client = running.connect();
        client.send(format!("POST /part HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"));
        client.send("x".repeat(sent));
        assert_eq!(client.answer().body, "POST /part");
        let mut end = [0];
        assert_eq!(client.0.read(&mut end).unwrap(), 0, "{sent}");
    }
}

/// Go: TestServerExpect.
#[test]
fn expect_100_continue() {
    let running = start(Server::new(|request: Request| match request.uri().path() {
        "/read" => echo(request).into_response(),
        path => path.to_owned().into_response(),
    }));
    let expect = |path| format!("POST {path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let mut client = running.connect();
    client.send(expect("/read"));
    assert_eq!(client.head().status, 100);
    client.send("hello");
    assert_eq!(client.answer().body, "hello");

    client.send(expect("/unread"));
    let answer = client.answer();
    assert_eq!((answer.status, &*answer.body), (200, "/unread"));

    let mut client = running.connect();
    client.send(expect("/read").replace("100-continue", "") + "hello");
    assert_eq!(client.answer().body, "hello", "Go ignores an empty expectation");

    let answer = running.ask(expect("/read").replace("100-continue", "more"));
    assert!(answer.starts_with("HTTP/1.1 417 "), "{answer}");
}

/// Go: TestServerValidatesHostHeader, and others of this kind.
#[test]
fn malformed_requests() {
    let running = start(Server::new(path));
    for bad in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: <a>\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a@b\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 2\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nbad header: 1\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        "GET  HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET gopher HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET gopher:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET ?query HTTP/1.1\r\nHost: x\r\n\r\n",
        "OPTIONS gopher HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: x\r\n\r\n",
        "\u{1}\u{2}\u{3}\r\n\r\n",
    ] {
        let answer = running.ask(bad);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{bad:?}: {answer:?}");
    }
    for other in ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "chunked, chunked"] {
        let answer = running.ask(format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {other}\r\n\r\n0\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 501 "), "{other:?}: {answer:?}");
    }
    for good in [
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a-b_c.example%20:80\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://x HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let mut client = running.connect();
        client.send(good);
        assert_eq!(client.head().status, 200, "{good:?}");
    }
    let twice = "POST /twice HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab";
    let mut client = running.connect();
    client.send(twice);
    assert_eq!(client.answer().body, "POST /twice");
}

/// A target with a host: that host counts, not the header. RFC 9112, 3.2.2. Go: TestReadRequest.
#[test]
fn absolute_form() {
    let running = start(Server::new(|request: Request| {
        format!("{:?}", request.headers().get_all(header::HOST).iter().collect::<Vec<_>>())
    }));
    for (target, expected) in [
        ("GET http://a.example:80/path", r#"["a.example:80"]"#),
        ("GET http://x", r#"["x"]"#),
        ("GET /path", r#"["other"]"#),
        ("OPTIONS *", r#"["other"]"#),
    ] {
        let mut client = running.connect();
        client.send(format!("{target} HTTP/1.1\r\nHost: other\r\n\r\n"));
        assert_eq!(client.answer().body, expected, "{target}");
    }
    let answer = running.ask("GET http://user@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

/// A request with a length and with chunks: the chunks count, and the connection is closed behind the response. So no client
/// can hide a request from a proxy that believes the length. Go: `fixLength`.
#[test]
fn two_lengths() {
    let running = start(Server::new(echo));
    let hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
    for (length, order) in [(3, true), (3, false), (5 + hidden.len(), true)] {
        let (length, coding) = (format!("Content-Length: {length}\r\n"), "Transfer-Encoding: chunked\r\n".to_owned());
        let headers = if order { length + &coding } else { coding + &length };
        let mut client = running.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n5\r\nhello\r\n0\r\n\r\n"));
        assert_eq!(client.answer().body, "hello");
        assert_eq!(client.rest(), "");
    }
    // HTTP/1.0 has no chunks.
    let answer = running
        .ask("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.0 400 "), "{answer}");
}

/// Go: TestTolerateCRLFBeforeRequestLine.
#[test]
fn empty_lines_before_a_request() {
    let running = start(Server::new(path));
    let mut client = running.connect();
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nABC\r\n");
    assert_eq!(client.answer().body, "POST /a");
    client.send(get("/b"));
    assert_eq!(client.answer().body, "GET /b");
}

/// Go: TestHTTP10KeepAlive204Response, TestHTTP11KeepAlive204Response, TestHTTP10KeepAlive304Response.
#[test]
fn keep_alive_without_a_body() {
    let running = start(Server::new(|request: Request| match request.uri().path() {
        "/204" => StatusCode::NO_CONTENT,
        _ => StatusCode::NOT_MODIFIED,
    }));
    for (version, header) in [("1.1", ""), ("1.0", "Connection: keep-alive\r\n")] {
        let mut client = running.connect();
        for status in [204, 304, 204] {
            client.send(format!("GET /{status} HTTP/{version}\r\nHost: x\r\n{header}\r\n"));
            let answer = client.head();
            assert_eq!(answer.status, status);
            assert!(!answer.headers.contains_key("content-length"), "{answer:?}");
        }
    }
}

/// Go: TestCaseSensitiveMethod.
#[test]
fn case_sensitive_method() {
    let running = start(Server::new(path));
    let mut client = running.connect();
    client.send("get / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.answer().body, "get /");
}

#[test]
fn invalid_utf8_in_a_path() {
    let running = start(Server::new(path));
    assert_eq!(running.connect().get("/%ff%fe").body, "GET /%ff%fe");
    let answer = running.ask(b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut client = running.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\nX: \xff\xfe\r\n\r\n");
    assert_eq!(client.answer().body, "GET /");
}

#[test]
fn responses() {
    let running = start(Server::new(|request: Request| -> Response {
        match request.uri().path() {
            "/text" => "text".into_response(),
            "/bytes" => vec![b'x'; 3].into_response(),
            "/status" => StatusCode::NOT_FOUND.into_response(),
            "/no-content" => StatusCode::NO_CONTENT.into_response(),
            "/both" => (StatusCode::CONFLICT, "both").into_response(),
            "/error" => Err::<&str, _>(io::Error::other("a secret")).into_response(),
            "/bytes-of-own" => Response::new(Bytes::from_static(b"own")).into_response(),
            _ => Response::default(),
        }
    }));
    let mut client = running.connect();
    for (path, status, body) in [
        ("/text", 200, "text"),
        ("/bytes", 200, "xxx"),
        ("/status", 404, "Not Found"),
        ("/no-content", 204, ""),
        ("/both", 409, "both"),
        ("/error", 500, "Internal Server Error"),
        ("/bytes-of-own", 200, "own"),
        ("/", 200, ""),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, &*answer.body), (status, body), "{path}");
    }
    assert_eq!(client.get("/text").headers["content-type"], "text/plain; charset=utf-8");
    client.send("HEAD /text HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.head().headers["content-length"], "4");
    assert_eq!(client.get("/text").body, "text");
}

/// A handler's `Content-Length` is not believed, but for the answer to a HEAD request without a body, and for a stream,
/// which the length then bounds.
#[test]
fn content_length_of_a_handler() {
    let running = start(Server::new(|request: Request| {
        let body = match request.uri().path() {
            "/empty" => Body::default(),
            "/stream" => Body::stream(|w| w.write_all(b"hello")),
            _ => Body::from("hello"),
        };
        let mut response = Response::new(body);
        let told = request.uri().query().unwrap_or("7");
        response.headers_mut().insert(header::CONTENT_LENGTH, told.parse().unwrap());
        response
    }));
    let mut client = running.connect();
    for told in ["3", "5", "7", "none"] {
        let answer = client.get(&format!("/?{told}"));
        assert_eq!((&*answer.headers["content-length"], &*answer.body), ("5", "hello"), "{told}");
        client.send(format!("HEAD /?{told} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(client.head().headers["content-length"], "5", "{told}");
    }
    client.send("HEAD /empty HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.head().headers["content-length"], "7");
    assert_eq!(client.get("/empty").headers["content-length"], "0");
    assert_eq!(client.get("/stream?5").body, "hello");
    assert_eq!(client.get("/stream?3").body, "hel");
    client.send(get("/stream?7"));
    let rest = client.rest();
    assert!(rest.is_empty() || rest.ends_with("\r\n\r\nhello"), "cut off: {rest}");
}

/// Go: TestServerBufferedChunking. Flushed bytes reach the client before the handler goes on.
#[test]
fn streams() {
    let go_on = Chan::new(0);
    let wait = go_on.clone();
    let running = start(Server::new(move |request: Request| {
        let wait = (request.uri().path() == "/waits").then(|| wait.clone());
        Response::new(Body::stream(move |w| {
            write!(w, "one ")?;
            w.flush()?;
            w.flush()?;
            wait.map(|wait| wait.recv());
            write!(w, "two")
        }))
    }));
    let mut client = running.connect();
    client.send(get("/waits"));
    assert_eq!(client.head().headers["transfer-encoding"], "chunked");
    assert_eq!(client.chunk(), "one ");
    go_on.send(());
    assert_eq!(client.chunk(), "two");
    assert_eq!(client.chunk(), "");
    client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.get("/").body, "one two");
    let answer = running.ask("GET / HTTP/1.0\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\none two"), "{answer}");
}

/// A body that outlives its request does not hold the connection. Reads that wait fail, and so do later reads. Go:
/// ErrBodyReadAfterClose.
#[test]
fn kept_body() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (reading, keep) = (Chan::new(0), kept.clone());
    let (tell, errors) = (reading.clone(), Chan::new(1));
    let found = errors.clone();
    let running = start(Server::new(move |request: Request| match request.uri().path() {
        "/keep" => {
            keep.lock().unwrap().push(request.into_inner());
            "kept".into_response()
        }
        "/read" => {
            let (tell, found) = (tell.clone(), found.clone());
            let mut body = request.into_inner().into_body();
            let go_on = Chan::new(0);
            let begin = go_on.clone();
            spawn(move || {
                begin.send(());
                found.send(body.read(&mut [0]).unwrap_err().kind());
            });
            go_on.recv();
            tell.recv();
            "read elsewhere".into_response()
        }
        _ => "alive".into_response(),
    }));
    // Half of the body is missing, so the connection cannot be used again, and is closed.
    let half = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
    assert!(running.ask(half("/keep") + "hello").ends_with("kept"));
    let mut body = kept.lock().unwrap().pop().unwrap().into_body();
    assert_eq!(body.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(body.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::NotConnected);

    let mut client = running.connect();
    client.send(half("/read"));
    reading.send(());
    assert_eq!(client.answer().body, "read elsewhere");
    assert_eq!(errors.recv(), Some(ErrorKind::NotConnected));
    assert_eq!(client.rest(), "");

    // The body has come as a whole, so the connection goes on.
    let mut client = running.connect();
    client.send(half("/keep") + "helloworld");
    assert_eq!(client.answer().body, "kept");
    assert_eq!(client.get("/").body, "alive");
}

/// Sends bodies that are larger than all buffers, both ways at the same time.
#[test]
fn large_bodies() {
    let running = start(Server::new(|mut request: Request| {
        Response::new(Body::stream(move |w| io::copy(request.body_mut(), w).map(drop)))
    }));
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| b'a' + (n % 25) as u8).collect();
    let mut client = running.connect();
    let mut writer = client.0.get_ref().try_clone().unwrap();
    let body = sent.clone();
    let writing = thread::spawn(move || {
        write!(writer, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
        writer.write_all(&body).unwrap();
    });
    assert!(client.answer().body.as_bytes() == sent);
    writing.join().unwrap();
}

// ---- limits ---------------------------------------------------------------------------------------------------------

/// Go: TestServerTimeouts, for ReadHeaderTimeout: bytes that come slowly do not prolong the time.
#[test]
fn header_timeout() {
    let running = start(Server::new(path).header_timeout(SHORT).idle_timeout(HOUR));
    let begin = Instant::now();
    assert_eq!(running.ask(""), "");
    assert_eq!(running.ask("GET / HTTP/1.1\r\nHost:"), "");
    assert!(begin.elapsed() >= 2 * SHORT);
    let mut client = running.connect();
    assert_eq!(client.get("/").status, 200);
    client.send("GET");
    assert_eq!(client.rest(), "");
}

/// Begins the header of a request while the handler of the previous request runs, so that hyper reads the first bytes
/// of the header before it looks for a header.
#[test]
fn header_timeout_of_an_early_header() {
    let (started, go_on) = (Chan::new(0), Chan::new(0));
    let (tell, wait) = (started.clone(), go_on.clone());
    let server = Server::new(move |_: Request| {
        tell.send(());
        wait.recv();
        "answered"
    });
    let running = start(server.header_timeout(SHORT).idle_timeout(HOUR));
    let mut client = running.connect();
    client.send(get("/"));
    started.recv();
    client.send("GET");
    go_on.send(());
    assert_eq!(client.answer().body, "answered");
    assert_eq!(client.rest(), "");
}

#[test]
fn slow_loris() {
    let running = start(Server::new(path).header_timeout(SHORT).idle_timeout(HOUR));
    for requests in 0..2 {
        let mut client = running.connect();
        for _ in 0..requests {
            assert_eq!(client.get("/").status, 200);
        }
        client.send("GET / HTTP/1.1\r\n");
        while client.0.get_mut().write_all(b"x").is_ok() {
            thread::sleep(MS);
        }
        assert_eq!(client.rest(), "");
    }
}

/// Go: TestServerIdleTimeout.
#[test]
fn idle_timeout() {
    let running = start(Server::new(path).header_timeout(HOUR).idle_timeout(SHORT));
    let mut client = running.connect();
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.rest(), "");
}

/// An idle connection outlives the time for a header, and an untimed server has no limits.
#[test]
fn timeouts_apart() {
    for server in [Server::new(path).header_timeout(SHORT), Server::new(path).header_timeout(None).idle_timeout(None)] {
        let running = start(server);
        let mut client = running.connect();
        for _ in 0..2 {
            assert_eq!(client.get("/").status, 200);
            thread::sleep(3 * SHORT);
        }
    }
}

/// Go: TestServerTimeouts, for ReadTimeout.
#[test]
fn body_timeout() {
    let running = start(Server::new(echo).body_timeout(SHORT));
    let answer = running.ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhell");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

/// A client sends without a pause. The deadline ends the read even if bytes are there. Go: ResponseController.SetReadDeadline.
#[test]
fn body_deadline() {
    let running = start(Server::new(|mut request: Request| {
        let left = if request.uri().path() == "/past" { Duration::ZERO } else { SHORT };
        request.body_mut().set_deadline(Some(now() + left));
        echo(request)
    }));
    let mut client = running.connect();
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n");
    while client.0.get_mut().write_all(b"x").is_ok() {
        thread::sleep(MS);
    }
    let mut client = running.connect();
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhell");
    assert_eq!(client.answer().status, 408);
    let mut client = running.connect();
    client.send("POST /past HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.answer().status, 408);
}

/// Go: TestOnlyWriteTimeout.
#[test]
fn write_timeout() {
    let (failed, error) = mpsc::channel();
    let server = Server::new(move |_: Request| {
        let failed = failed.clone();
        Response::new(Body::stream(move |w| {
            loop {
                if let Err(error) = w.write_all(&[0; 4096]) {
                    failed.send(error.kind()).unwrap();
                    return Err(error);
                }
            }
        }))
    });
    let running = start(server.write_timeout(SHORT));
    let mut client = running.connect();
    client.send(get("/"));
    assert_eq!(error.recv(), Ok(ErrorKind::BrokenPipe));
}

/// Go: TestRequestLimit.
#[test]
fn large_header() {
    let running = start(Server::new(path).max_header_bytes(1000));
    let line = |n| format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(n));
    let mut client = running.connect();
    client.send(line(900));
    assert_eq!(client.answer().status, 200);
    for large in [line(1000), line(1_000_000), line(2000).trim_end().to_owned()] {
        let mut client = running.connect();
        let _ = client.0.get_mut().write_all(large.as_bytes()); // the server may have closed the connection before
        assert_eq!(client.answer().status, 431);
    }
    let many: String = (0..101).map(|n| format!("X{n}: 1\r\n")).collect();
    let answer = running.ask(format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let running = start(Server::new(path).max_header_bytes(1 << 20));
    let mut client = running.connect();
    client.send(line(1_000_000));
    assert_eq!(client.answer().status, 200);
    client.send(format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(100_000)));
    assert_eq!(client.answer().status, 414);
}

/// Go: TestRequestBodyLimit, TestMaxBytesHandler.
#[test]
fn large_body() {
    let handled = Arc::new(AtomicUsize::new(0));
    let count = handled.clone();
    let server = Server::new(move |request: Request| {
        count.fetch_add(1, SeqCst);
        echo(request)
    });
    let running = start(server.max_body_bytes(5));
    let mut client = running.connect();
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.answer().body, "hello");
    assert_eq!(handled.load(SeqCst), 1);
    // The length is announced: no handler is called, and the client, which goes on sending, reads the answer.
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    client.send([b'x'; 1000]);
    let answer = client.answer();
    assert_eq!((answer.status, &*answer.headers["connection"]), (413, "close"));
    assert_eq!(handled.load(SeqCst), 1);
    // The length is not announced: the handler finds that the body is too large.
    let mut client = running.connect();
    client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    assert_eq!(handled.load(SeqCst), 2);
    let answer = running.ask("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

/// Go: TestServerGracefulClose. A client that sends on after the last response is not reset at once.
#[test]
fn last_response() {
    let running = start(Server::new(path));
    let mut client = running.connect();
    let is_patient = |client: &mut Client| {
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
        assert_eq!(client.answer().status, 413);
        assert_eq!(client.rest(), "");
        client.takes_more()
    };
    // Again, if this thread has been away for longer than the server waits.
    while !is_patient(&mut client) {
        client = running.connect();
    }
    // The server does not wait for ever for the client to stop.
    running.server.shutdown(&background()).unwrap();
}

/// After an error each read fails.
#[test]
fn a_failed_body_has_no_end() {
    let running = start(Server::new(|mut request: Request| {
        let kinds: Vec<_> =
            (0..3).map(|_| request.body_mut().read(&mut [0; 10]).map_err(|error| error.kind())).collect();
        format!("{kinds:?}")
    }));
    let answer = running.ask("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nx\r\n");
    assert!(answer.ends_with("[Ok(2), Err(InvalidData), Err(InvalidData)]"), "{answer}");
}

#[test]
fn number_of_connections() {
    let running = start(Server::new(path).max_connections(2));
    let mut clients = [running.connect(), running.connect(), running.connect()];
    assert_eq!(clients[0].get("/").status, 200);
    assert_eq!(clients[1].get("/").status, 200);
    clients[2].send(get("/third"));
    assert!(clients[2].has_no_answer());
    let [first, _second, mut third] = clients;
    drop(first);
    assert_eq!(third.answer().body, "GET /third");
}

// ---- the end of a client --------------------------------------------------------------------------------------------

/// Go: TestServerRequestContextCancel_ConnClose.
#[test]
fn client_gone() {
    let started = Chan::new(0);
    let running = start(Server::new(waiting(&started)));
    let mut client = running.connect();
    client.send(get("/"));
    let ctx = started.recv().unwrap();
    assert_eq!(ctx.err(), None);
    drop(client);
    ctx.wait();
}

/// A handler that does not look at its context goes on; its answer goes nowhere.
#[test]
fn client_gone_unnoticed() {
    let (started, go_on) = (Chan::new(0), Chan::new(0));
    let (tell, wait) = (started.clone(), go_on.clone());
    let running = start(Server::new(move |request: Request| {
        tell.send(request.context().clone());
        wait.recv();
        "nobody reads this"
    }));
    let mut client = running.connect();
    client.send(get("/"));
    let ctx = started.recv().unwrap();
    drop(client);
    ctx.wait();
    running.shutdown_waits_for(&go_on, "the handler runs");
}

/// The context also ends after a body has been read, and while a response is streamed.
#[test]
fn client_gone_later() {
    let started = Chan::new(0);
    let tell = started.clone();
    let running = start(Server::new(move |mut request: Request| {
        let mut body = Vec::new();
        request.body_mut().read_to_end(&mut body).unwrap();
        let (ctx, tell) = (request.context().clone(), tell.clone());
        Response::new(Body::stream(move |w| {
            w.write_all(&body)?;
            w.flush()?;
            tell.send(ctx.clone());
            ctx.wait();
            Ok(())
        }))
    }));
    for reset in [false, true] {
        let mut client = running.connect();
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
        client.send("hello");
        let ctx = started.recv().unwrap();
        if reset {
            client.0.get_mut().peek(&mut [0]).unwrap(); // a close with unread bytes resets the connection
        } else {
            assert_eq!(client.head().status, 200);
            assert_eq!(client.chunk(), "hello");
        }
        assert_eq!(ctx.err(), None);
        drop(client);
        ctx.wait();
    }
}

/// The function of a stream goes on after its connection has ended, and still counts as a connection.
#[test]
fn client_gone_amid_a_stream() {
    let (failed, go_on) = (Chan::new(0), Chan::new(0));
    let (tell, wait) = (failed.clone(), go_on.clone());
    let server = Server::new(move |request: Request| {
        if request.uri().path() == "/next" {
            return path(request).into_response();
        }
        let (tell, wait) = (tell.clone(), wait.clone());
        Response::new(Body::stream(move |w| {
            while w.write_all(&[0; 4096]).is_ok() {}
            tell.send(());
            wait.recv();
            Ok(())
        }))
    });
    let running = start(server.max_connections(1));
    let mut client = running.connect();
    client.send(get("/"));
    client.head();
    drop(client);
    failed.recv();
    let mut next = running.connect();
    next.send(get("/next"));
    thread::sleep(SHORT);
    assert!(next.has_no_answer(), "no place is free");
    go_on.send(());
    assert_eq!(next.answer().body, "GET /next");

    let mut client = running.connect();
    drop(next);
    client.send(get("/"));
    client.head();
    drop(client);
    failed.recv();
    running.shutdown_waits_for(&go_on, "the function runs");
}

/// A request for an upgrade is answered as any other request, and the end of its connection is sent at once, behind the
/// whole response.
#[test]
fn upgrades_are_not_accepted() {
    const LARGE: usize = 10_000_000;
    let running = start(Server::new(|request: Request| match request.uri().path() {
        "/large" => vec![b'x'; LARGE].into_response(),
        _ => path(request).into_response(),
    }));
    let upgrade = |path: &str, connection: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\nUpgrade: h2c\r\n\r\n")
    };
    for requests in [
        vec![upgrade("/1", "close, upgrade")],
        vec![upgrade("/1", "upgrade"), upgrade("/2", "close")],
        vec![upgrade("/1", "upgrade"), get("/2").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")],
    ] {
        let is_half_open = || {
            let mut client = running.connect();
            for request in &requests {
                client.send(request);
                assert!(client.answer().body.starts_with("GET /"));
            }
            assert_eq!(client.rest(), "");
            client.takes_more()
        };
        // Again, if this thread has been away for longer than the server waits.
        while !is_half_open() {}
    }
    // The response is larger than all buffers.
    let answer = running.ask(upgrade("/large", "close, upgrade"));
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), LARGE);
}

/// A response that may have no body: the function that would write the body does not run.
#[test]
fn streams_without_a_body() {
    let running = start(Server::new(|request: Request| {
        let status = request.uri().path()[1..].parse().unwrap();
        (status, Response::new(Body::stream(|_| panic!("a body"))))
    }));
    let mut client = running.connect();
    for status in [204, 304] {
        client.send(get(&format!("/{status}")));
        assert_eq!(client.head().status, status);
    }
    client.send("HEAD /200 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.head().status, 200);
    running.server.shutdown(&background()).unwrap();
    assert!(running.lines().is_empty());
}

/// A client that half-closes still gets its answers. As in Go, the contexts end.
#[test]
fn half_closed() {
    let started = Chan::new(0);
    let running = start(Server::new(waiting(&started)));
    let mut client = running.connect();
    client.send(get("/"));
    let ctx = started.recv().unwrap();
    assert_eq!(ctx.err(), None);
    client.half_close();
    assert_eq!(client.answer().body, "late");
    assert_eq!(client.rest(), "");

    let running = start(Server::new(path));
    let mut client = running.connect();
    client.send(get("/1") + &get("/2"));
    client.half_close();
    assert_eq!(client.answer().body, "GET /1");
    assert_eq!(client.answer().body, "GET /2");
    assert_eq!(client.rest(), "");
}

/// Go: TestServerRequestContextCancel_ServeHTTPDone.
#[test]
fn handler_done() {
    let contexts = Arc::new(Mutex::new(Vec::new()));
    let keep = contexts.clone();
    let running = start(Server::new(move |request: Request| {
        keep.lock().unwrap().push(request.context().clone());
        assert_eq!(request.context().err(), None);
        "done"
    }));
    let mut client = running.connect();
    client.get("/");
    client.get("/");
    for ctx in contexts.lock().unwrap().iter() {
        ctx.wait();
    }
}

/// A body that breaks off.
#[test]
fn client_gone_in_a_body() {
    let running = start(Server::new(echo));
    let mut client = running.connect();
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhell");
    client.half_close();
    assert_eq!(client.answer().status, 400);
}

// ---- the end of a server --------------------------------------------------------------------------------------------

/// Go: TestServerShutdown. The request that runs is answered, and the connection closed.
#[test]
fn shutdown_waits_for_a_request() {
    let (started, go_on) = (Chan::new(0), Chan::new(0));
    let (tell, wait) = (started.clone(), go_on.clone());
    let running = start(Server::new(move |request: Request| {
        tell.send(());
        wait.recv();
        assert_eq!(request.context().err(), None, "a graceful shutdown ends no context");
        "answered"
    }));
    let mut client = running.connect();
    client.send(get("/"));
    started.recv();
    let shutting = running.server.clone();
    let ended = Arc::new(AtomicBool::new(false));
    let end = ended.clone();
    let shutdown = spawn(move || {
        let result = shutting.shutdown(&background());
        end.store(true, SeqCst);
        result
    });
    eventually(|| TcpStream::connect(running.addr).is_err());
    assert!(running.server.is_shutting_down());
    assert!(!ended.load(SeqCst));
    go_on.send(());
    let answer = client.answer();
    assert_eq!((&*answer.body, &*answer.headers["connection"]), ("answered", "close"));
    assert_eq!(client.rest(), "");
    drop(client);
    assert_eq!(shutdown.join().unwrap(), Ok(()));
}

/// Go: TestServerShutdownStateNew, and connections that are idle or amid a header.
#[test]
fn shutdown_closes_idle_connections() {
    let running = start(Server::new(path));
    let (mut new, mut idle, mut amid) = (running.connect(), running.connect(), running.connect());
    assert_eq!(idle.get("/").status, 200);
    assert_eq!(amid.get("/").status, 200);
    amid.send("GET / HT");
    running.server.shutdown(&background()).unwrap();
    for client in [&mut new, &mut idle, &mut amid] {
        assert_eq!(client.rest(), "");
    }
}

/// Ends a shutdown by its context, then closes the server.
#[test]
fn close_ends_contexts() {
    let started = Chan::new(0);
    let running = start(Server::new(waiting(&started)));
    let mut client = running.connect();
    client.send(get("/"));
    let ctx = started.recv().unwrap();
    let (soon, _cancel) = context::with_timeout(&background(), SHORT);
    assert_eq!(running.server.shutdown(&soon), Err(Error::DeadlineExceeded));
    assert_eq!(ctx.err(), None);
    running.server.close();
    assert_eq!(ctx.err(), Some(Error::Canceled));
    assert_eq!(client.rest(), "");
    running.server.shutdown(&background()).unwrap();
}

/// Go: TestServerShutdownThenServe.
#[test]
fn serve_after_shutdown() {
    let running = start(Server::new(path));
    running.server.shutdown(&background()).unwrap();
    let (listener, addr) = listen();
    running.server.serve(listener).unwrap();
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn several_listeners() {
    let running = start(Server::new(path));
    let (listener, addr) = listen();
    assert_eq!(TcpListener::bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
    let server = running.server.clone();
    let serving = spawn(move || server.serve(listener));
    let mut client = Client(BufReader::new(TcpStream::connect(addr).unwrap()));
    assert_eq!(client.get("/").status, 200);
    assert_eq!(running.connect().get("/").status, 200);
    running.server.shutdown(&background()).unwrap();
    TcpListener::bind(addr).unwrap();
    serving.join().unwrap().unwrap();
}

// ---- other listeners ------------------------------------------------------------------------------------------------

/// Connects, sends `bytes`, and returns the connection.
fn dial(dialer: &PipeDialer, bytes: impl AsRef<[u8]>) -> PipeStream {
    let mut client = dialer.dial().unwrap();
    client.write_all(bytes.as_ref()).unwrap();
    client
}

/// Reads to the end. Returns the text and the time that has passed.
fn rest_of(client: &mut PipeStream) -> (String, Duration) {
    let begun = now();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    (text, now() - begun)
}

/// The time limits are those of the bubble's clock, so each is exact, and none takes time.
#[test]
fn limits_in_a_bubble() {
    const SECOND: Duration = Duration::from_secs(1);
    in_bubble(
        || Server::new(echo),
        |_, dialer| {
            // No byte; a part of a header.
            assert_eq!(rest_of(&mut dial(dialer, "")), (String::new(), 10 * SECOND));
            assert_eq!(rest_of(&mut dial(dialer, "GET / HT")), (String::new(), 10 * SECOND));
            // Idle.
            let (answer, passed) = rest_of(&mut dial(dialer, get("/")));
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert_eq!(passed, 120 * SECOND);
            // A part of a later header.
            let (answer, passed) = rest_of(&mut dial(dialer, get("/") + "GET"));
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert_eq!(passed, 120 * SECOND, "the first bytes have come with the request before");
            let mut client = dial(dialer, get("/"));
            sleep(119 * SECOND);
            client.write_all(b"GET").unwrap();
            assert_eq!(rest_of(&mut client).1, 10 * SECOND);
            // A part of a body.
            let half = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello";
            let (answer, passed) = rest_of(&mut dial(dialer, half));
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
            assert_eq!(passed, 60 * SECOND);
        },
    );
    in_bubble(
        || Server::new(|_: Request| Response::new(Body::stream(|w| io::copy(&mut io::repeat(b'x'), w).map(drop)))),
        |_, dialer| {
            // The client takes nothing.
            let mut client = dial(dialer, get("/"));
            sleep(61 * SECOND);
            let (answer, passed) = rest_of(&mut client);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
            assert_eq!(passed, Duration::ZERO);
        },
    );
    in_bubble(
        || {
            Server::new(|mut request: Request| {
                request.body_mut().set_deadline(Some(now() + 90 * SECOND));
                echo(request)
            })
        },
        |_, dialer| {
            // The client sends steadily.
            let mut client = dial(dialer, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
            sleep(50 * SECOND);
            client.write_all(b"x").unwrap();
            let (answer, passed) = rest_of(&mut client);
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
            assert_eq!(passed, 40 * SECOND);
        },
    );
}

/// The end of the client is seen, and a connection stays half-open for 500 ms after its last response.
#[test]
fn ends_in_a_bubble() {
    in_bubble(
        || {
            Server::new(|request: Request| {
                assert_eq!(request.remote_addr(), ([0, 0, 0, 0], 0).into());
                assert_eq!(request.context().wait(), Error::Canceled);
                "late"
            })
        },
        |_, dialer| {
            drop(dial(dialer, get("/")));
            let mut client = dial(dialer, get("/"));
            client.shutdown(Shutdown::Write).unwrap();
            let (answer, _) = rest_of(&mut client);
            assert!(answer.ends_with("\r\n\r\nlate"), "{answer}");
        },
    );
    in_bubble(
        || Server::new(path),
        |_, dialer| {
            let mut client = dial(dialer, get("/").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
            let (answer, passed) = rest_of(&mut client);
            assert!(answer.ends_with("\r\n\r\nGET /"), "{answer}");
            assert_eq!(passed, Duration::ZERO);
            sleep(499 * MS);
            client.write_all(b"more").unwrap();
            sleep(2 * MS);
            assert_eq!(client.write_all(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
        },
    );
}

#[test]
fn unix_sockets() {
    let _watchdog = Watchdog::new();
    let file = std::env::temp_dir().join(format!("sudog-http-{}", std::process::id()));
    let listener = UnixListener::bind(&file).unwrap();
    let (started, ended) = (Chan::new(0), Chan::new(0));
    let (tell, end) = (started.clone(), ended.clone());
    let server = Server::new(move |mut request: Request| {
        let mut body = String::new();
        request.body_mut().read_to_string(&mut body)?;
        tell.send(());
        end.send(request.context().wait());
        io::Result::Ok(body)
    });
    let accepting = server.clone();
    let serving = spawn(move || accepting.serve(listener));
    let mut client = std::os::unix::net::UnixStream::connect(&file).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    started.recv();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ended.recv(), Some(Error::Canceled));
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    server.shutdown(&background()).unwrap();
    serving.join().unwrap().unwrap();
    std::fs::remove_file(&file).unwrap();
}

// ---- handlers that fail ---------------------------------------------------------------------------------------------

/// A value whose destructor panics.
struct PanicsOnDrop(&'static [u8]);

impl AsRef<[u8]> for PanicsOnDrop {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic_any("in a destructor");
    }
}

/// Go: TestHandlerPanic, TestHandlerPanicNil; and a `goexit`, which is Go's ErrAbortHandler.
#[test]
fn handler_panics() {
    let running = start(Server::new(|request: Request| match request.uri().path() {
        "/panic" => panic!("a bug in {}", "a handler"),
        "/no-text" => panic_any(7),
        "/abort" => goexit(),
        "/stream" => Response::new(Body::stream(|w| {
            w.write_all(b"begun")?;
            w.flush()?;
            panic!("in a stream")
        })),
        "/stream-fails" => Response::new(Body::stream(|w| {
            w.write_all(b"begun")?;
            w.flush()?;
            Err(io::Error::other("no more"))
        })),
        "/drop" => Response::new(Bytes::from_owner(PanicsOnDrop(b"dropped")).into()),
        _ => "alive".into_response(),
    }));
    let is_cut_off = |path: &str, begun: &str, line: Option<&str>| {
        let mut client = running.connect();
        let addr = client.0.get_ref().local_addr().unwrap();
        client.send(get(path));
        let rest = client.rest();
        assert!(rest.ends_with(begun) && !rest.ends_with("0\r\n\r\n"), "{path}: {rest:?}");
        assert_eq!(rest.is_empty(), begun.is_empty(), "{path}: {rest:?}");
        let lines: Vec<_> = line.map(|line| format!("http: panic serving {addr}: {line}")).into_iter().collect();
        eventually(|| running.lines().len() >= lines.len());
        assert_eq!(running.lines(), lines, "{path}");
        running.lines.lock().unwrap().clear();
        assert_eq!(running.connect().get("/").body, "alive");
    };
    is_cut_off("/panic", "", Some("a bug in a handler"));
    is_cut_off("/no-text", "", Some("(no text)"));
    is_cut_off("/abort", "", None);
    is_cut_off("/stream", "\r\n\r\n5\r\nbegun\r\n", Some("in a stream"));
    is_cut_off("/stream-fails", "\r\n\r\n5\r\nbegun\r\n", None);
    is_cut_off("/drop", "\r\n\r\ndropped", Some("in a destructor"));
}

/// If a log or a waker panics, only its connection ends.
#[test]
fn user_code_panics() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic_any("in a waker");
        }
    }
    let (waits, after) = (Chan::new(0), Chan::new(0));
    let (tell, go_on) = (waits.clone(), after.clone());
    // The futures whose wakers panic.
    let kept = Mutex::new(Vec::new());
    let server = Server::new(move |request: Request| {
        let path = request.uri().path();
        match path {
            "/log" => panic_any("log"),
            "/" => return "alive",
            _ => {}
        }
        let ctx = request.context().clone();
        let mut done = Box::pin({
            let ctx = ctx.clone();
            async move { ctx.done().await }
        });
        assert!(done.as_mut().poll(&mut task::Context::from_waker(&Waker::from(Arc::new(Panics)))).is_pending());
        kept.lock().unwrap().push(done);
        match path {
            "/exits" => goexit(),
            "/panics" => panic_any("in a handler"),
            "/waits" => {
                tell.send(ctx);
                go_on.recv();
            }
            _ => {}
        }
        "nobody reads this"
    });
    let running = start(server);
    let is_reported = |line: &str| {
        eventually(|| running.lines().iter().any(|reported| reported.ends_with(line)));
        running.lines.lock().unwrap().clear();
    };
    // The client goes away.
    let mut client = running.connect();
    client.send(get("/waits"));
    let ctx = waits.recv().unwrap();
    drop(client);
    ctx.wait();
    after.send(());
    is_reported(": in a waker");
    // The handler ends, in each way.
    for path in ["/returns", "/exits", "/panics"] {
        let mut client = running.connect();
        client.send(get(path).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
        client.rest();
        is_reported(": in a waker");
    }

    let (listener, addr) = listen();
    let server = running.server.clone().error_log(|_| panic_any("in a log"));
    let serving = spawn(move || server.serve(listener));
    for (path, answer) in [("/log", ""), ("/", "alive")] {
        let mut client = Client(BufReader::new(TcpStream::connect(addr).unwrap()));
        client.send(get(path).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
        let rest = client.rest();
        assert!(rest.ends_with(answer) && rest.is_empty() == answer.is_empty(), "{path}: {rest}");
    }

    // The server is closed.
    let mut client = running.connect();
    client.send(get("/waits"));
    waits.recv().unwrap();
    running.server.close();
    is_reported("http: panic closing the server: in a waker");
    after.send(());
    serving.join().unwrap().unwrap();
}

/// A log may wait. Meanwhile the connection ends.
#[test]
fn log_that_waits() {
    let (reported, go_on) = (Chan::new(0), Chan::<()>::new(0));
    let (tell, wait) = (reported.clone(), go_on.clone());
    let server = Server::new(|_: Request| Response::new(Bytes::from_owner(PanicsOnDrop(b"dropped"))));
    let server = server.error_log(move |line| {
        tell.send(line.to_owned());
        wait.recv();
    });
    let watchdog = Watchdog::new();
    let (listener, addr) = listen();
    let accepting = server.clone();
    let serving = spawn(move || accepting.serve(listener));
    let mut client = Client(BufReader::new(TcpStream::connect(addr).unwrap()));
    client.send(get("/"));
    assert!(reported.recv().unwrap().ends_with(": in a destructor"));
    assert!(client.rest().ends_with("dropped"));
    go_on.send(());
    server.shutdown(&background()).unwrap();
    serving.join().unwrap().unwrap();
    drop(watchdog);
}

/// The last handle of a server is that of a connection. The values that the handler has captured are dropped with that
/// connection, and their panics end nothing.
#[test]
fn last_handle() {
    struct Last(mpsc::Sender<()>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            panic_any("in the last handle");
        }
    }
    let _watchdog = Watchdog::new();
    let (dropped, is_dropped) = mpsc::channel();
    let captured = Last(dropped);
    let (listener, addr) = listen();
    let stop = listener.with_std(std::net::TcpListener::try_clone).unwrap();
    let serving = spawn(move || {
        Server::new(move |request: Request| {
            let _captured = &captured;
            path(request)
        })
        .serve(listener)
    });
    let mut client = Client(BufReader::new(TcpStream::connect(addr).unwrap()));
    assert_eq!(client.get("/1").status, 200);
    // End the listener by an error, without a shutdown of the server.
    TcpStream::from(OwnedFd::from(stop)).shutdown(Shutdown::Both).unwrap();
    assert_eq!(serving.join().unwrap().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(client.get("/2").status, 200);
    assert_eq!(is_dropped.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(client);
    is_dropped.recv().unwrap();
    // The panic has ended no thread of the scheduler: goroutines run.
    spawn(|| ()).join().unwrap();
}

/// A response that hyper refuses is reported.
#[test]
fn responses_that_cannot_be_sent() {
    let running = start(Server::new(|request: Request| {
        let mut response = Response::new(Body::stream(|w| w.write_all(b"sent")));
        match request.uri().path() {
            "/status" => *response.status_mut() = StatusCode::EARLY_HINTS,
            "/lengths" => {
                for length in ["1", "2"] {
                    response.headers_mut().append(header::CONTENT_LENGTH, length.parse().unwrap());
                }
            }
            _ => *response.version_mut() = Version::HTTP_3,
        }
        response
    }));
    for path in ["/status", "/lengths"] {
        let answer = running.ask(get(path));
        assert!(!answer.contains(" 200 ") && !answer.contains("sent"), "{path}: {answer}");
        eventually(|| running.lines().len() == 1);
        let line = running.lines.lock().unwrap().pop().unwrap();
        assert!(line.starts_with("http: response to 127.") && line.contains(" not sent: "), "{path}: {line}");
    }
    assert_eq!(running.connect().get("/version").body, "sent");
    assert!(running.lines().is_empty());
}

/// Handlers may wait for each other, however few workers there are.
#[test]
fn handlers_wait_for_each_other() {
    let meet = Chan::<()>::new(0);
    let running = start(Server::new(move |request: Request| {
        match request.uri().path() {
            "/send" => meet.send(()),
            _ => assert!(meet.recv().is_some()),
        }
        "met"
    }));
    let mut clients: Vec<_> = (0..100).map(|_| running.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(get(if n % 2 == 0 { "/send" } else { "/receive" }));
    }
    for client in &mut clients {
        assert_eq!(client.answer().body, "met");
    }
}

/// Clients connect, send whole requests or parts, and leave, some before their answer. A graceful shutdown then comes to its
/// end.
#[test]
fn many_clients() {
    let running = start(Server::new(|request: Request| {
        gosched();
        echo(request)
    }));
    let addr = running.addr;
    let clients: Vec<_> = (0..8_u32)
        .map(|seed| {
            thread::spawn(move || {
                for n in 0..100 {
                    let mut client = Client(BufReader::new(TcpStream::connect(addr).unwrap()));
                    let request = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
                    match (n * 7 + seed) % 4 {
                        0 => client.send(&request[..(n as usize * 13) % request.len()]),
                        1 => client.send(request),
                        _ => {
                            client.send(request);
                            assert_eq!(client.answer().body, "hello");
                        }
                    }
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    running.server.shutdown(&background()).unwrap();
}

#[test]
fn debug_pages() {
    let running = start(Server::new(|request: Request| {
        debug::handle(&request).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
    }));
    let mut client = running.connect();
    let index = client.get("/debug/pprof/").body;
    let pages: Vec<_> = index.lines().collect();
    assert!(pages.len() >= 2, "{index}");
    for page in pages {
        let answer = client.get(page);
        assert_eq!(answer.status, 200, "{page}");
        if page.contains("/goroutine") && !page.contains("leak") {
            assert!(answer.body.contains("goroutine"), "{page}: {}", answer.body);
        }
    }
    assert_eq!(client.get("/debug/pprof/heap").status, 404);
    assert_eq!(client.get("/debug/pprof/goroutineleak?seconds=x").status, 400);
    // A goroutine that waits for a moment only is no leak after a minute.
    let (theirs, mine) = channel::<()>(0);
    go(move || _ = mine.recv());
    let leaks = |client: &mut Client, seconds| {
        client.get(&format!("/debug/pprof/goroutineleak?debug=1&seconds={seconds}")).body
    };
    while !leaks(&mut client, 0).contains("debug_pages") {
        thread::yield_now();
    }
    assert!(!leaks(&mut client, 60).contains("debug_pages"));
    drop(theirs);
}
