//! HTTP/2: by a client of this crate, and by frames that a test writes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use sudog::chan::Chan;
use sudog::context::{self, background};
use sudog::http::{Body, Client, IntoResponse, Request, Response, Server, StatusCode, header};
use sudog::net::PipeStream;
use sudog::spawn;
use sudog::time::now;
use support::eventually;

use super::client::hyper_request;
use super::{HOUR, MS, Running, echo, port, start, text};

fn start_http2(server: Server) -> (Running, Client) {
    (start(server.unencrypted_http2(true)), Client::new().http2_only(true))
}

/// A port for both versions, which the first bytes tell apart. Go: `Protocols.SetUnencryptedHTTP2`.
#[test]
fn both_versions() {
    let (server, client) = start_http2(Server::new(echo));
    let url = server.url("/a");
    assert_eq!(text(client.get(&url).unwrap()).unwrap(), "HTTP/2.0 GET /a ");
    assert_eq!(text(client.post(&url, "text/plain", "body").unwrap()).unwrap(), "HTTP/2.0 POST /a body");
    let http1 = Client::new();
    assert_eq!(text(http1.get(&url).unwrap()).unwrap(), "HTTP/1.1 GET /a ");
    for method in ["POST", "PUT", "PATCH", "PRI"] {
        let answer = http1.send(hyper_request(method, &url, "x")).unwrap();
        assert_eq!(text(answer).unwrap(), format!("HTTP/1.1 {method} /a x"));
    }
    // A server that does not expect HTTP/2.
    let plain = start(Server::new(echo));
    assert!(client.get(&plain.url("/")).is_err());
}

/// The requests of a connection are handled at the same time.
#[test]
fn concurrent_requests() {
    let meeting = Chan::new(0);
    let (server, client) = start_http2(Server::new(move |request: Request| {
        assert!(request.headers().contains_key(header::HOST), "the authority");
        match request.uri().path() {
            "/send" => meeting.send(request.remote_addr().port()),
            _ => assert_eq!(meeting.recv(), Some(request.remote_addr().port())),
        }
        port(request)
    }));
    let asking = ["/send", "/recv"].map(|path| {
        let (client, url) = (client.clone(), server.url(path));
        spawn(move || text(client.get(&url)?))
    });
    let [first, second] = asking.map(|asking| asking.join().unwrap().unwrap());
    assert_eq!(first, second);
}

/// Bodies larger than all windows, both ways, and a HEAD request, whose answer has no body.
#[test]
fn bodies() {
    let (server, client) = start_http2(Server::new(|mut request: Request| match request.uri().path() {
        "/empty" => StatusCode::NO_CONTENT.into_response(),
        "/stream" => Response::new(Body::stream(move |w| {
            std::io::copy(request.body_mut(), w)?;
            Ok(())
        })),
        _ => echo(request).into_response(),
    }));
    let large = "0123456789".repeat(200_000);
    let answer = client.post(&server.url("/stream"), "text/plain", large.clone()).unwrap();
    assert_eq!(text(answer).unwrap(), large);
    let sent = large.clone();
    let body = Body::stream(move |w| w.write_all(sent.as_bytes()));
    let answer = client.post(&server.url("/echo"), "text/plain", body).unwrap();
    assert_eq!(text(answer).unwrap().len(), large.len() + "HTTP/2.0 POST /echo ".len());
    for path in ["/echo", "/stream"] {
        let head = client.send(hyper_request("HEAD", &server.url(path), "")).unwrap();
        assert_eq!(
            head.headers().get(header::CONTENT_LENGTH).map(|n| n.to_str().unwrap()),
            (path == "/echo").then_some("20")
        );
        assert_eq!(text(head).unwrap(), "", "{path}");
    }
    assert_eq!(client.get(&server.url("/empty")).unwrap().status(), StatusCode::NO_CONTENT);
}

/// A write behind the `Content-Length` of a stream fails, and sends nothing. Go: `http.ErrContentLength`.
#[test]
fn length_of_a_stream() {
    let written = Chan::new(1);
    let (server, client) = start_http2(Server::new({
        let written = written.clone();
        move |request: Request| {
            let written = written.clone();
            let body = Body::stream(move |w| {
                w.write_all(b"hel")?;
                let result = w.write_all(b"lo").and_then(|()| w.flush());
                written.send(result.map_err(|error| error.kind()));
                Ok(())
            });
            let length = request.uri().query().unwrap();
            Response::builder().header(header::CONTENT_LENGTH, length).body(body).unwrap()
        }
    }));
    for (length, body, result) in [("5", "hello", Ok(())), ("3", "hel", Err(ErrorKind::BrokenPipe))] {
        let answer = client.get(&server.url(&format!("/?{length}"))).unwrap();
        assert_eq!(answer.headers()[header::CONTENT_LENGTH], length);
        assert_eq!(written.recv().unwrap(), result);
        assert_eq!(text(answer).unwrap(), body);
    }
}

/// Limits of sizes, with their statuses.
#[test]
fn sizes() {
    let (server, client) = start_http2(Server::new(echo).max_body_bytes(1000));
    let status = |body: Body| client.post(&server.url("/"), "text/plain", body).unwrap().status();
    assert_eq!(status(vec![b'x'; 1000].into()), StatusCode::OK);
    assert_eq!(status(vec![b'x'; 1001].into()), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(status(Body::stream(|w| w.write_all(&[b'x'; 1001]))), StatusCode::PAYLOAD_TOO_LARGE);
    let mut large = hyper_request("GET", &server.url("/"), "");
    for n in 0..10 {
        let name: header::HeaderName = format!("x-{n}").parse().unwrap();
        large.headers_mut().insert(name, "x".repeat(10_000).parse().unwrap());
    }
    let refused = client.send(large);
    assert!(refused.is_err() || refused.is_ok_and(|r| r.status() == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    assert!(client.get(&server.url("/")).is_ok());
}

/// A handler that panics, and a stream that breaks off, end their request only.
#[test]
fn panics() {
    let answered = Chan::new(0);
    let (server, client) = {
        let answered = answered.clone();
        start_http2(Server::new(move |request: Request| match request.uri().path() {
            "/panic" => panic!("in a test"),
            "/broken" => {
                let answered = answered.clone();
                Response::new(Body::stream(move |w| {
                    w.write_all(b"part")?;
                    w.flush()?;
                    answered.recv(); // h2 forgets the headers of a stream that is reset before they are written
                    Err(std::io::ErrorKind::NotFound.into())
                }))
            }
            _ => port(request).into_response(),
        }))
    };
    let first = text(client.get(&server.url("/")).unwrap()).unwrap();
    assert!(client.get(&server.url("/panic")).is_err());
    let broken = client.get(&server.url("/broken")).unwrap();
    answered.send(());
    assert!(text(broken).is_err());
    assert_eq!(text(client.get(&server.url("/")).unwrap()).unwrap(), first, "the connection goes on");
    eventually(|| server.lines().len() == 1);
}

/// Statuses that no handler can send are reported, as over HTTP/1.1: the client gets status 500.
#[test]
fn informational_statuses() {
    let (server, client) = start_http2(Server::new(|request: Request| {
        let status: u16 = request.uri().path()[1..].parse().unwrap();
        (StatusCode::from_u16(status).unwrap(), Response::new(Body::stream(|w| w.write_all(b"sent"))))
    }));
    for status in [100, 101, 103] {
        let answer = client.get(&server.url(&format!("/{status}"))).unwrap();
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(text(answer).unwrap(), "");
        eventually(|| server.lines().len() == 1);
        let line = server.lines.lock().unwrap().pop().unwrap();
        assert!(line.starts_with("http: response to 127.") && line.contains(" not sent: "), "{line}");
    }
}

/// A client that gives up a request resets the request's stream: the context of this request ends, and the context of another
/// request does not.
#[test]
fn reset() {
    let (started, ended) = (Chan::new(2), Chan::new(2));
    let (server, client) = {
        let (started, ended) = (started.clone(), ended.clone());
        start_http2(Server::new(move |request: Request| {
            let ctx = request.context().clone();
            let path = request.uri().path().to_owned();
            let (started, ended) = (started.clone(), ended.clone());
            if path == "/stream" {
                return Response::new(Body::stream(move |w| {
                    w.write_all(b"part")?;
                    w.flush()?;
                    started.send(ctx.clone());
                    ctx.wait();
                    ended.send(path);
                    Ok(())
                }));
            }
            started.send(ctx.clone());
            ctx.wait();
            ended.send(path);
            "late".into_response()
        }))
    };
    let mut clients = Vec::new();
    let mut contexts = Vec::new();
    for path in ["/stream", "/whole", "/other"] {
        let (ctx, cancel) = context::with_cancel(&background());
        let (client, url) = (client.clone(), server.url(path));
        let asking = spawn(move || text(client.send_limited(hyper_request("GET", &url, ""), &ctx)?));
        contexts.push(started.recv().unwrap());
        clients.push((asking, cancel));
    }
    let other = clients.pop().unwrap();
    for ((asking, cancel), path) in clients.into_iter().zip(["/stream", "/whole"]) {
        cancel.cancel();
        asking.join().unwrap().unwrap_err();
        assert_eq!(ended.recv().unwrap(), path);
    }
    assert_eq!(contexts[2].err(), None);
    other.1.cancel();
    other.0.join().unwrap().unwrap_err();
}

/// Go: the tests like TestServerGracefulClose, for HTTP/2. A request that runs is answered, and then the connection is
/// closed.
#[test]
fn shutdown() {
    let (started, go_on) = (Chan::new(1), Chan::new(1));
    let (server, client) = {
        let (started, go_on) = (started.clone(), go_on.clone());
        start_http2(Server::new(move |_: Request| {
            started.send(());
            go_on.recv();
            "answered"
        }))
    };
    let url = server.url("/");
    let asking = spawn(move || text(client.get(&url)?));
    started.recv();
    let stopping = spawn({
        let server = server.server.clone();
        move || server.shutdown(&background())
    });
    eventually(|| server.server.is_shutting_down());
    go_on.send(());
    assert_eq!(asking.join().unwrap().unwrap(), "answered");
    stopping.join().unwrap().unwrap();
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET / HTTP/2`, with the authority `x`: indexes of the static table, and a literal. The stream's half ends, if `ends`.
fn get(stream: u32, ends: bool, more: &[u8]) -> Vec<u8> {
    let headers = [&[0x82, 0x86, 0x84, 0x41, 1, b'x'], more].concat();
    frame(1, 4 | u8::from(ends), stream, &headers)
}

/// A header of `get`: a literal without an index.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0, name.len() as u8];
    bytes.extend(name.bytes());
    bytes.push(value.len() as u8);
    bytes.extend(value.bytes());
    bytes
}

/// Reads frames until `f` returns a value, or the end.
fn find<T>(from: &mut impl Read, mut f: impl FnMut(u8, u32, &[u8]) -> Option<T>) -> Option<T> {
    loop {
        let mut head = [0; 9];
        from.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        from.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        if let Some(found) = f(head[3], stream, &payload) {
            return Some(found);
        }
    }
}

/// Sends frames behind the preface, and returns the code of the first RST_STREAM or GOAWAY.
fn refusal(server: &Running, frames: &[u8]) -> Option<(u8, u32)> {
    let mut client = TcpStream::connect(server.addr).unwrap();
    client.write_all(&[PREFACE, &SETTINGS, frames].concat()).unwrap();
    find(&mut client, |kind, _, payload| {
        let code = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        match kind {
            RST_STREAM => Some((kind, code(0))),
            GOAWAY => Some((kind, code(4))),
            _ => None,
        }
    })
}

const PROTOCOL_ERROR: u32 = 1;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Cases after h2spec: what a server must refuse, and with which code.
#[test]
fn malformed_frames() {
    let (server, _) = start_http2(Server::new(echo));
    for (what, frames, expected) in [
        ("DATA on stream 0", frame(0, 0, 0, b"x"), (GOAWAY, PROTOCOL_ERROR)),
        ("HEADERS on stream 0", get(0, true, &[]), (GOAWAY, PROTOCOL_ERROR)),
        ("HEADERS on an even stream", get(2, true, &[]), (GOAWAY, PROTOCOL_ERROR)),
        ("DATA on an idle stream", frame(0, 0, 1, b"x"), (GOAWAY, PROTOCOL_ERROR)),
        ("a PING of 7 bytes", frame(6, 0, 0, &[0; 7]), (GOAWAY, FRAME_SIZE_ERROR)),
        ("SETTINGS on a stream", frame(4, 0, 1, &[]), (GOAWAY, PROTOCOL_ERROR)),
        ("SETTINGS of 5 bytes", frame(4, 0, 0, &[0; 5]), (GOAWAY, FRAME_SIZE_ERROR)),
        ("a frame that is too long", frame(0, 0, 1, &[0; 20_000]), (GOAWAY, FRAME_SIZE_ERROR)),
        ("an index behind the table", frame(1, 5, 1, &[0xff, 0xff, 0x7f]), (GOAWAY, COMPRESSION_ERROR)),
        ("a window update of 0", frame(8, 0, 0, &[0; 4]), (GOAWAY, PROTOCOL_ERROR)),
        ("CONTINUATION without HEADERS", frame(9, 4, 1, &[0x82]), (GOAWAY, PROTOCOL_ERROR)),
        ("PUSH_PROMISE of a client", frame(5, 4, 1, &[0, 0, 0, 2, 0x82]), (GOAWAY, PROTOCOL_ERROR)),
        ("a header of upper case", get(1, true, &literal("X-A", "1")), (RST_STREAM, PROTOCOL_ERROR)),
        ("a header of the connection", get(1, true, &literal("connection", "close")), (RST_STREAM, PROTOCOL_ERROR)),
        ("te", get(1, true, &literal("te", "gzip")), (RST_STREAM, PROTOCOL_ERROR)),
        ("no path", frame(1, 5, 1, &[0x82, 0x86, 0x41, 1, b'x']), (RST_STREAM, PROTOCOL_ERROR)),
        ("no method", frame(1, 5, 1, &[0x86, 0x84, 0x41, 1, b'x']), (RST_STREAM, PROTOCOL_ERROR)),
        (
            "a body that is shorter than announced",
            [get(1, false, &literal("content-length", "9")), frame(0, 1, 1, b"x")].concat(),
            (RST_STREAM, PROTOCOL_ERROR),
        ),
        ("HEADERS on a closed stream", [get(3, true, &[]), get(1, true, &[])].concat(), (GOAWAY, STREAM_CLOSED)),
    ] {
        let refused = refusal(&server, &frames);
        let (kind, code) = expected;
        assert!(
            refused == Some(expected) || refused == Some((kind, PROTOCOL_ERROR)) || refused == Some((GOAWAY, code)),
            "{what}: {refused:?}, not {expected:?}"
        );
    }
    // Bytes that are not the preface are read as a request of HTTP/1.1, which is malformed here.
    for bytes in ["PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n\r\n"] {
        let mut client = TcpStream::connect(server.addr).unwrap();
        client.write_all(bytes.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 5"), "{answer}");
    }
}

/// Sends frames behind the preface, and returns the first DATA.
fn first_data(server: &Running, frames: &[u8]) -> String {
    let mut client = TcpStream::connect(server.addr).unwrap();
    client.write_all(&[PREFACE, &SETTINGS, frames].concat()).unwrap();
    let data = find(&mut client, |kind, _, payload| (kind == 0).then(|| payload.to_vec()));
    String::from_utf8(data.unwrap()).unwrap()
}

/// Browsers send the cookies in several fields: RFC 9113, 8.2.3. Go: TestServer_Request_CookieConcat.
#[test]
fn cookies() {
    let (server, _) = start_http2(Server::new(|request: Request| {
        format!("{:?}", request.headers().get_all(header::COOKIE).iter().collect::<Vec<_>>())
    }));
    for (fields, expected) in [
        (&[][..], "[]"),
        (&["a=1; b=2"], r#"["a=1; b=2"]"#),
        (&["a=1", "b=2", "c=3; d=4"], r#"["a=1; b=2; c=3; d=4"]"#),
    ] {
        let fields: Vec<u8> = fields.iter().flat_map(|cookie| literal("cookie", cookie)).collect();
        assert_eq!(first_data(&server, &get(1, true, &fields)), expected);
    }
}

/// A request with an authority, and with other hosts: the authority counts. Go: TestServer_Request_Get_Host.
#[test]
fn authority() {
    let (server, _) = start_http2(Server::new(|request: Request| {
        format!("{:?}", request.headers().get_all(header::HOST).iter().collect::<Vec<_>>())
    }));
    assert_eq!(first_data(&server, &get(1, true, &[])), r#"["x"]"#);
    assert_eq!(first_data(&server, &get(1, true, &literal("host", "other"))), r#"["x"]"#);
    let only_host = [&[0x82, 0x86, 0x84][..], &literal("host", "other")].concat();
    assert_eq!(first_data(&server, &frame(1, 5, 1, &only_host)), r#"["other"]"#);
    let userinfo = [&[0x82, 0x86, 0x84, 0x41, 3][..], b"u@x"].concat();
    assert_eq!(first_data(&server, &frame(1, 5, 1, &userinfo)), "Bad Request");
}

/// An asterisk is a target of OPTIONS only.
#[test]
fn targets() {
    let (server, _) = start_http2(Server::new(|request: Request| format!("target {}", request.uri())));
    let asterisk = [0x86, 0x44, 1, b'*', 0x41, 1, b'x'];
    assert_eq!(first_data(&server, &frame(1, 5, 1, &[&[0x82][..], &asterisk].concat())), "Bad Request");
    let options = [&[0x42, 7], &b"OPTIONS"[..], &asterisk].concat();
    assert!(first_data(&server, &frame(1, 5, 1, &options)).starts_with("target "));
}

/// Streams that are reset at once, again and again (CVE-2023-44487), end the connection, and cost no more goroutines than
/// the limits allow. Go: TestServerRapidReset and the similar tests.
#[test]
fn rapid_reset() {
    let handlers = Arc::new(AtomicUsize::new(0));
    let (server, client) = {
        let handlers = handlers.clone();
        start_http2(Server::new(move |request: Request| {
            handlers.fetch_add(1, SeqCst);
            if request.uri().path() == "/" {
                request.context().wait();
            }
            handlers.fetch_sub(1, SeqCst);
            "late"
        }))
    };
    let mut flood = Vec::new();
    for n in 0..10_000 {
        flood.extend(get(2 * n + 1, true, &[]));
        flood.extend(frame(RST_STREAM, 0, 2 * n + 1, &8u32.to_be_bytes()));
    }
    let mut stream = TcpStream::connect(server.addr).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let _ = writing.write_all(&[PREFACE, &SETTINGS, &flood].concat()); // fails when the server has closed
    });
    let code = find(&mut stream, |kind, _, payload| {
        (kind == GOAWAY).then(|| u32::from_be_bytes(payload[4..8].try_into().unwrap()))
    });
    writing.join().unwrap();
    assert!(code.is_none_or(|code| code == ENHANCE_YOUR_CALM), "{code:?}");
    eventually(|| handlers.load(SeqCst) == 0);
    assert!(client.get(&server.url("/other")).is_ok());
}

/// Streams that the client resets as soon as their handlers have begun: no more handlers than the connection may have streams
/// run at once, also if the handlers do not look at their contexts. Go: TestServerMaxHandlerGoroutines.
#[test]
fn handlers_of_reset_streams() {
    const PLACES: usize = 200;
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let server = || {
        Server::new(|_: Request| {
            BEGUN.fetch_add(1, SeqCst);
            sudog::time::sleep(HOUR);
            "late"
        })
    };
    in_bubble(server, PREFACE, |_, mut client| {
        client.write_all(&SETTINGS).unwrap();
        let streams = PLACES as u32 + 50;
        for n in 0..streams {
            client.write_all(&get(2 * n + 1, true, &[])).unwrap();
            sudog::time::sleep(MS); // until all is at rest
            client.write_all(&frame(RST_STREAM, 0, 2 * n + 1, &8u32.to_be_bytes())).unwrap();
        }
        client.write_all(&get(2 * streams + 1, true, &[])).unwrap();
        sudog::time::sleep(MS);
        assert_eq!(BEGUN.load(SeqCst), PLACES);
        // The stream that is still open gets the first place. The streams that have been reset before get none.
        let answered = find(&mut client, |kind, stream, _| (kind == 0).then_some(stream));
        assert_eq!(answered, Some(2 * streams + 1));
        sudog::time::sleep(HOUR);
        assert_eq!(BEGUN.load(SeqCst), PLACES + 1);
    });
}

/// Runs a test of a server in a bubble, with a connection that has sent `bytes`.
fn in_bubble(server: fn() -> Server, bytes: &'static [u8], test: fn(&Server, PipeStream)) {
    super::in_bubble(
        move || server().unencrypted_http2(true),
        move |server, dialer| {
            let mut client = dialer.dial().unwrap();
            client.write_all(bytes).unwrap();
            test(server, client);
            server.close();
        },
    );
}

/// The time limits are those of the bubble's clock, so each is exact.
#[test]
fn time_limits() {
    let server = || Server::new(|_: Request| "hello").header_timeout(HOUR / 2).idle_timeout(HOUR);
    // The client sends nothing, or only a part of the preface.
    for bytes in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
        in_bubble(server, bytes, |_, mut client| {
            let begun = now();
            assert_eq!(client.read_to_end(&mut Vec::new()).unwrap(), 0);
            assert_eq!(now() - begun, HOUR / 2);
        });
    }
    // An idle connection gets GOAWAY after an hour. No stream is open, and this client answers no ping, so the connection
    // ends at once, or a second later.
    in_bubble(server, PREFACE, |_, mut client| {
        client.write_all(&SETTINGS).unwrap();
        let begun = now();
        let found = find(&mut client, |kind, _, _| (kind == GOAWAY).then_some(()));
        assert!(found.is_some());
        assert_eq!(now() - begun, HOUR);
        let _ = client.read_to_end(&mut Vec::new());
        assert!(now() - begun <= HOUR + 1000 * MS);
    });
    // The time of an idle connection begins anew when a stream ends.
    in_bubble(server, PREFACE, |_, mut client| {
        client.write_all(&SETTINGS).unwrap();
        sudog::time::sleep(HOUR / 2);
        client.write_all(&get(1, true, &[])).unwrap();
        let begun = now();
        let found = find(&mut client, |kind, _, _| (kind == GOAWAY).then_some(()));
        assert!(found.is_some());
        assert_eq!(now() - begun, HOUR);
    });
}

/// A client that does not answer the ping of a shutdown holds the shutdown for a second. Go: `goAwayTimeout`.
#[test]
fn shutdown_of_a_silent_client() {
    in_bubble(
        || Server::new(|_: Request| "hello"),
        PREFACE,
        |server, mut client| {
            client.write_all(&SETTINGS).unwrap();
            find(&mut client, |kind, _, _| (kind == 4).then_some(())).unwrap();
            let begun = now();
            server.shutdown(&background()).unwrap();
            assert!(now() - begun <= 2000 * MS, "{:?}", now() - begun);
            drop(client);
        },
    );
}
