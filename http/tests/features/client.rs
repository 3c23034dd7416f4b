//! `Client`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener as StdListener};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use sudog::chan::Chan;
use sudog::context::{self, background};
use sudog::http::{Body, Bytes, Client, IntoResponse, Request, Response, Server, StatusCode, Version, header};
use sudog::net::{PipeListener, TcpStream};
use sudog::runtime::goexit;
use sudog::time::{now, sleep};
use sudog::{block_on, go, spawn, synctest};
use support::{Watchdog, eventually};

use super::{HOUR, MS, echo, in_bubble, port, start, text};

const fn send_and_sync<T: Send + Sync>() {}
const _: () = send_and_sync::<Client>();

/// Go: TestClient, TestClientHead; `Client.Get`, `Post`, `Do`.
#[test]
fn requests() {
    let server = start(Server::new(echo));
    let client = Client::new();
    assert_eq!(text(client.get(&server.url("/a")).unwrap()).unwrap(), "HTTP/1.1 GET /a ");
    let posted = client.post(&server.url("/b"), "text/plain", "hello").unwrap();
    assert_eq!(posted.headers()[header::CONTENT_TYPE], "text/plain; charset=utf-8");
    assert_eq!(text(posted).unwrap(), "HTTP/1.1 POST /b hello");
    let head = hyper_request("HEAD", &server.url("/c"), Body::default());
    let head = client.send(head).unwrap();
    assert_eq!(head.headers()[header::CONTENT_LENGTH], "17");
    assert_eq!(text(head).unwrap(), "");
    let sent = block_on(client.send_async(hyper_request("PUT", &server.url("/d"), "x"))).unwrap();
    assert_eq!(text(sent).unwrap(), "HTTP/1.1 PUT /d x");
    // A status is no error.
    drop(server);
    let server = start(Server::new(|_: Request| StatusCode::NOT_FOUND));
    assert_eq!(client.get(&server.url("/")).unwrap().status(), StatusCode::NOT_FOUND);
}

pub(crate) fn hyper_request<B>(method: &str, uri: &str, body: B) -> sudog_request::Request<B> {
    sudog_request::Request::builder().method(method).uri(uri).body(body).unwrap()
}

/// Sends a request of the crate `http`.
mod sudog_request {
    pub(super) use hyper::Request;
}

/// A body that a function writes: sent in chunks, while the response may begin. Go: TestClientWrites and others.
#[test]
fn streamed_bodies() {
    let server = start(Server::new(echo).unencrypted_http2(true));
    let client = Client::new();
    let body = Body::stream(|w| {
        for n in 0..1000 {
            writeln!(w, "line {n}")?;
        }
        Ok(())
    });
    let answer = text(client.post(&server.url("/"), "text/plain", body).unwrap()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 POST / line 0\nline 1\n"), "{answer}");
    assert_eq!(answer.lines().count(), 1000);

    // Also of methods that have no bodies usually. Go: `probeRequestBody`.
    for client in [client.clone(), Client::new().http2_only(true)] {
        for method in ["GET", "DELETE", "OPTIONS"] {
            let body = Body::stream(|w| w.write_all(b"body"));
            let answer = text(client.send(hyper_request(method, &server.url("/"), body)).unwrap()).unwrap();
            assert!(answer.ends_with(&format!(" {method} / body")), "{answer}");
        }
    }
    // Refused, as neither has a body of unknown length.
    for (method, version) in [("POST", Version::HTTP_10), ("CONNECT", Version::HTTP_11)] {
        let mut request = hyper_request(method, &server.url("/"), Body::stream(|_| Ok(())));
        *request.version_mut() = version;
        assert_eq!(client.send(request).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    // The request fails if the function fails, panics or ends its goroutine. The server then never takes the part of the body
    // that has been sent for the whole body.
    let ends: [fn() -> std::io::Result<()>; 3] =
        [|| Err(ErrorKind::NotFound.into()), || panic!("in a test"), || goexit()];
    for end in ends {
        let body = Body::stream(move |w| {
            writeln!(w, "part")?;
            w.flush()?;
            end()
        });
        assert!(client.post(&server.url("/"), "text/plain", body).is_err());
    }
}

/// Headers that tell of another length than that of the body, by which a server would take a part of the body for a request,
/// or the next request for a part of the body. Go: `reqWriteExcludeHeader`.
#[test]
fn lengths_of_a_user() {
    let (server, client) = (start(Server::new(echo).unencrypted_http2(true)), Client::new());
    for client in [client.clone(), client.http2_only(true)] {
        for (name, value) in [("content-length", "3"), ("content-length", "40"), ("transfer-encoding", "gzip")] {
            for (method, body) in [("POST", "hello"), ("GET", "")] {
                let mut request = hyper_request(method, &server.url("/"), body);
                request.headers_mut().insert(name, value.parse().unwrap());
                let answer = text(client.send(request).unwrap()).unwrap();
                assert!(answer.ends_with(&format!(" {method} / {body}")), "{name}: {value}: {answer}");
            }
        }
    }
}

/// The length of a stream is that which the user tells. Go: TestTransportContentLength, `Request.ContentLength`.
#[test]
fn length_of_a_stream() {
    let server = start(
        Server::new(|mut request: Request| {
            let length = request.headers().get(header::CONTENT_LENGTH).cloned();
            let mut body = String::new();
            let read = request.body_mut().read_to_string(&mut body);
            format!("{length:?} {body} {}", read.is_ok())
        })
        .unencrypted_http2(true),
    );
    let client = Client::new();
    for client in [client.clone(), client.http2_only(true)] {
        let ask = |length: &str| {
            let written = Chan::new(1);
            let body = Body::stream({
                let written = written.clone();
                move |w| {
                    let result = w.write_all(b"hel").and_then(|()| w.write_all(b"lo"));
                    written.send(result.as_ref().map_err(std::io::Error::kind).copied());
                    result
                }
            });
            let mut request = hyper_request("POST", &server.url("/"), body);
            request.headers_mut().insert(header::CONTENT_LENGTH, length.parse().unwrap());
            (client.send(request).and_then(text).ok(), written.recv().unwrap())
        };
        let whole = |length: &str| Some(format!("{length} hello true"));
        assert_eq!(ask("5"), (whole("Some(\"5\")"), Ok(())));
        assert_eq!(ask("none"), (whole("None"), Ok(())));
        assert_eq!(ask("4").1, Err(ErrorKind::BrokenPipe));
        assert_eq!(ask("9"), (None, Ok(())));
    }
}

/// Headers of responses, larger than hyper's own limits. Go: `Transport.MaxResponseHeaderBytes`.
#[test]
fn large_headers() {
    let server = Server::new(|request: Request| {
        let mut response = Response::new(Body::default());
        let (lines, length) = request.uri().path()[1..].split_once('x').unwrap();
        let value: header::HeaderValue = "c".repeat(length.parse().unwrap()).parse().unwrap();
        for _ in 0..lines.parse().unwrap() {
            response.headers_mut().append(header::SET_COOKIE, value.clone());
        }
        response
    });
    let (server, client) = (start(server.unencrypted_http2(true)), Client::new());
    for client in [client.clone(), client.http2_only(true)] {
        for (lines, length) in [(400, 10), (20, 10_000)] {
            let response = client.get(&server.url(&format!("/{lines}x{length}"))).unwrap();
            assert_eq!(response.headers().get_all(header::SET_COOKIE).iter().count(), lines);
        }
    }
}

/// Go: TestTransportKeepAlives, TestTransportConnectionCloseOnResponse, TestTransportIdleConnCrash and others.
#[test]
fn connections_are_used_again() {
    let server = start(Server::new(|request: Request| match request.uri().path() {
        "/close" => Response::builder().header(header::CONNECTION, "close").body(Body::from(port(request))).unwrap(),
        "/long" => {
            let body = Body::stream(|w| {
                for _ in 0..1 << 12 {
                    w.write_all(&[b'x'; 1 << 12])?;
                }
                Ok(())
            });
            Response::builder().header("port", port(request)).body(body).unwrap()
        }
        _ => port(request).into_response(),
    }));
    let client = Client::new();
    let ask = |path| text(client.get(&server.url(path)).unwrap()).unwrap();
    // A connection is ready again soon after the end of its last response.
    eventually(|| ask("/") == ask("/"));
    // If a body is not read to its end, its connection is closed.
    let unread = client.get(&server.url("/long")).unwrap();
    let taken = unread.headers()["port"].to_str().unwrap().to_owned();
    drop(unread);
    assert!((0..10).all(|_| ask("/") != taken));
    // The server closes this connection.
    let closed = ask("/close");
    assert!((0..10).all(|_| ask("/") != closed));
    // Without a pool each request has a connection of its own.
    let client = Client::new().max_idle_per_host(0);
    let ask = |path| text(client.get(&server.url(path)).unwrap()).unwrap();
    assert_ne!(ask("/"), ask("/"));
}

/// A server closes an idle connection just before a request: the client sends the request over another connection. Go:
/// TestRetryRequestsOnError, TestTransportServerClosingUnexpectedly.
#[test]
fn a_connection_that_the_server_closed() {
    let server = start(Server::new(port).idle_timeout(MS));
    let client = Client::new();
    for _ in 0..20 {
        text(client.get(&server.url("/")).unwrap()).unwrap();
        thread::sleep(MS);
    }
}

/// Go: TestTransportIdleConnTimeout. By the bubble's clock, so exact.
#[test]
fn idle_connections_are_closed() {
    let server = || Server::new(|_: Request| "hello").idle_timeout(2 * HOUR);
    in_bubble(server, |_, dialer| {
        let connections = Arc::new(AtomicUsize::new(0));
        let dialer = dialer.clone();
        let count = connections.clone();
        let client = Client::new().idle_timeout(HOUR).dial(move |addr| {
            assert_eq!(addr, "example.com:80");
            count.fetch_add(1, SeqCst);
            dialer.dial()
        });
        for (pause, expected) in [(HOUR / 2, 1), (HOUR / 2, 1), (HOUR + 1000 * MS, 2)] {
            sleep(pause);
            assert_eq!(text(client.get("http://example.com/").unwrap()).unwrap(), "hello");
            assert_eq!(connections.load(SeqCst), expected, "after {pause:?}");
        }
        drop(client);
    });
}

/// The longest time that there is panics in no task: a child process, whose hook ends the process at a panic.
#[test]
fn idle_connections_are_kept() {
    const CHILD: &str = "SUDOG_TEST_IDLE_TIMEOUT";
    if support::started_child(module_path!(), "idle_connections_are_kept", CHILD) {
        return;
    }
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        std::process::abort();
    }));
    let server = || Server::new(port).idle_timeout(None);
    in_bubble(server, |_, dialer| {
        let (dialer, connections) = (dialer.clone(), Arc::new(AtomicUsize::new(0)));
        let count = connections.clone();
        let client = Client::new().idle_timeout(std::time::Duration::MAX).dial(move |_| {
            count.fetch_add(1, SeqCst);
            dialer.dial()
        });
        for _ in 0..3 {
            text(client.get("http://x/").unwrap()).unwrap();
            sleep(HOUR);
        }
        assert_eq!(connections.load(SeqCst), 1);
        drop(client);
    });
}

/// Go: TestClientTimeout, TestClientTimeoutCancel: the time also bounds the reading of the body.
#[test]
fn time_limit() {
    let server = || {
        Server::new(|request: Request| {
            let ctx = request.context().clone();
            if request.uri().path() == "/head" {
                ctx.wait();
            }
            Response::new(Body::stream(move |w| {
                w.write_all(b"part")?;
                w.flush()?;
                ctx.wait();
                Ok(())
            }))
        })
    };
    in_bubble(server, |_, dialer| {
        let dialer = dialer.clone();
        let client = Client::new().timeout(HOUR).dial(move |_| dialer.dial());
        let begun = now();
        assert_eq!(client.get("http://x/head").unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(now() - begun, HOUR);

        let mut body = client.get("http://x/body").unwrap().into_body();
        let mut part = [0; 4];
        body.read_exact(&mut part).unwrap();
        assert_eq!(body.read(&mut part).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(now() - begun, 2 * HOUR);
        drop((body, client));
    });
}

/// The end of a context ends the request, at both ends of the connection. Go: TestTransportCancelRequest,
/// TestTransportResponseCancelRace.
#[test]
fn contexts() {
    let (started, ended) = (Chan::new(1), Chan::new(1));
    let server = {
        let (started, ended) = (started.clone(), ended.clone());
        start(Server::new(move |request: Request| {
            started.send(());
            request.context().wait();
            ended.send(());
            "late"
        }))
    };
    let client = Client::new();
    let (ctx, cancel) = context::with_cancel(&background());
    let asking = spawn({
        let (client, url) = (client.clone(), server.url("/"));
        move || client.send_limited(hyper_request("GET", &url, ""), &ctx)
    });
    started.recv();
    cancel.cancel();
    let error = asking.join().unwrap().unwrap_err();
    assert_eq!(error.get_ref().unwrap().downcast_ref(), Some(&context::Error::Canceled));
    ended.recv();
}

/// Checks the `ErrorKind` of each error of a request.
#[test]
fn errors() {
    let _watchdog = Watchdog::new();
    let client = Client::new();
    let kind = |url: &str| match client.get(url) {
        Err(error) => error.kind(),
        Ok(response) => text(response).unwrap_err().kind(),
    };
    assert_eq!(kind("http://127.0.0.1:1/"), ErrorKind::ConnectionRefused);
    for url in ["/path", "ftp://127.0.0.1/", "http://", "not a uri", "http://user:secret@127.0.0.1:1/"] {
        assert_eq!(kind(url), ErrorKind::InvalidInput, "{url}");
    }
    assert_eq!(kind("https://127.0.0.1:1/"), ErrorKind::ConnectionRefused);
    let posted = client.post("http://127.0.0.1:1/", "a\nb", "");
    assert_eq!(posted.unwrap_err().kind(), ErrorKind::InvalidInput);

    // The answers of servers that close the connection behind the answer.
    for (answer, expected) in [
        ("", ErrorKind::UnexpectedEof),
        ("HTTP/1.1 200 OK\r\nContent-Le", ErrorKind::UnexpectedEof),
        ("SMTP ready\r\n\r\n", ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", ErrorKind::InvalidData),
    ] {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        thread::spawn(move || {
            // The client repeats a request that has not been answered.
            for stream in listener.incoming() {
                let (mut stream, mut request) = (stream.unwrap(), [0; 1024]);
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let _ = stream.read(&mut request); // until the client has closed
            }
        });
        assert_eq!(kind(&url), expected, "{answer:?}");
    }
    // A certificate is needed for https.
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(kind(&format!("https://{}/", listener.local_addr().unwrap())), ErrorKind::Unsupported);
}

/// A function that dials may panic.
#[test]
fn dial_panics() {
    let _watchdog = Watchdog::new();
    let client = Client::new().dial(|addr| -> std::io::Result<TcpStream> { panic!("no way to {addr}, in a test") });
    assert_eq!(client.get("http://x/").unwrap_err().kind(), ErrorKind::Other);
}

/// Requests of many goroutines at the same time.
#[test]
fn many_requests() {
    let server = start(Server::new(echo));
    let client = Client::new();
    let asking: Vec<_> = (0..50)
        .map(|n| {
            let (client, url) = (client.clone(), server.url(&format!("/{n}")));
            spawn(move || {
                for _ in 0..10 {
                    let answer = text(client.post(&url, "text/plain", vec![b'x'; 10_000]).unwrap()).unwrap();
                    assert!(answer.starts_with(&format!("HTTP/1.1 POST /{n} xxx")) && answer.len() > 10_000);
                }
            })
        })
        .collect();
    for asking in asking {
        asking.join().unwrap();
    }
}

/// A client that is dropped closes its idle connections.
#[test]
fn dropped_client() {
    let server = start(Server::new(port));
    let client = Client::new();
    text(client.get(&server.url("/")).unwrap()).unwrap();
    drop(client);
    let ended = spawn({
        let server = server.server.clone();
        move || server.shutdown(&background())
    });
    ended.join().unwrap().unwrap();
    eventually(|| server.server.is_shutting_down());
}

/// Runs a test in a bubble, with a client whose server answers `times` requests of each connection, and closes the
/// connection at the next request. The test also gets a function that returns the heads of the requests so far.
fn with_server_that_closes(times: usize, test: impl FnOnce(&Client, &dyn Fn() -> Vec<String>) + Send + 'static) {
    let _watchdog = Watchdog::new();
    synctest::test(move || {
        let (listener, heads) = (Arc::new(PipeListener::new()), Arc::new(Mutex::new(Vec::new())));
        let dialer = listener.dialer();
        let (accepting, seen) = (listener.clone(), heads.clone());
        go!(while let Ok((mut stream, _)) = accepting.accept() {
            let seen = seen.clone();
            go!({
                let mut head = [0; 1024];
                for n in 0.. {
                    let length = stream.read(&mut head).unwrap_or(0);
                    if length == 0 {
                        return;
                    }
                    seen.lock().unwrap().push(String::from_utf8_lossy(&head[..length]).into_owned());
                    if n == times {
                        return;
                    }
                    sleep(MS); // until all requests have come
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                }
            });
        });
        let client = Client::new().dial(move |_| dialer.dial());
        test(&client, &|| heads.lock().unwrap().clone());
        drop(client);
        listener.close().unwrap();
    });
}

/// The server has closed all connections of the pool: a request tries each, and is answered over a new one. Go:
/// TestRetryRequestsOnError, TestRetryIdempotentRequestsOnError.
#[test]
fn all_connections_are_stale() {
    with_server_that_closes(1, |client, heads| {
        let fill = || {
            let asking = [(); 3].map(|()| {
                spawn({
                    let client = client.clone();
                    move || text(client.get("http://x/")?)
                })
            });
            for asking in asking {
                asking.join().unwrap().unwrap();
            }
            sleep(MS); // until the connections are back in the pool
        };
        fill();
        assert_eq!(heads().len(), 3);
        let mut request = hyper_request("GET", "http://x/again", "");
        *request.version_mut() = Version::HTTP_10;
        request.headers_mut().insert("x-name", "value".parse().unwrap());
        assert_eq!(client.send(request).unwrap().status(), StatusCode::OK);
        let tries = heads().split_off(3);
        assert_eq!(tries.len(), 4);
        assert!(tries[0].starts_with("GET /again HTTP/1.0\r\n") && tries[0].contains("x-name: value\r\n"), "{tries:?}");
        assert!(tries.iter().all(|head| *head == tries[0]), "{tries:?}");
        // A request that the server may have executed.
        fill();
        for request in [hyper_request("POST", "http://x/", ""), hyper_request("GET", "http://x/", "body")] {
            let before = heads().len();
            assert_eq!(client.send(request).unwrap_err().kind(), ErrorKind::UnexpectedEof);
            assert_eq!(heads().len(), before + 1);
        }
    });
}

/// A server that closes a new connection instead of an answer is not asked again.
#[test]
fn a_new_connection_that_the_server_closed() {
    with_server_that_closes(0, |client, heads| {
        assert_eq!(client.get("http://x/").unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(heads().len(), 1);
    });
}

/// A context that has ended before the request: no connection is made, and no function of a body is called.
#[test]
fn a_context_that_has_ended() {
    let _watchdog = Watchdog::new();
    synctest::test(|| {
        let calls = Arc::new(AtomicUsize::new(0));
        let (dials, writes) = (calls.clone(), calls.clone());
        let client = Client::new().dial(move |_| -> std::io::Result<TcpStream> {
            dials.fetch_add(1, SeqCst);
            Err(ErrorKind::ConnectionRefused.into())
        });
        let body = Body::stream(move |_| {
            writes.fetch_add(1, SeqCst);
            Ok(())
        });
        let (ctx, cancel) = context::with_cancel(&background());
        cancel.cancel();
        let error = client.send_limited(hyper_request("POST", "http://x/", body), &ctx).unwrap_err();
        assert_eq!(error.get_ref().unwrap().downcast_ref(), Some(&context::Error::Canceled));
        sleep(MS); // until all goroutines have ended
        assert_eq!(calls.load(SeqCst), 0);
    });
}

/// Bytes whose destructor, which is user code, panics.
struct PanicsInDrop;

impl AsRef<[u8]> for PanicsInDrop {
    fn as_ref(&self) -> &[u8] {
        b"bytes"
    }
}

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in a test");
    }
}

/// The panic ends the connection, and neither the process nor the client.
#[test]
fn a_body_whose_drop_panics() {
    let (server, client) = (start(Server::new(echo).unencrypted_http2(true)), Client::new());
    for client in [client.clone(), client.http2_only(true)] {
        let _ = client.post(&server.url("/"), "text/plain", Bytes::from_owner(PanicsInDrop));
        assert!(text(client.get(&server.url("/")).unwrap()).unwrap().ends_with("GET / "));
    }
}

/// Gives up a request while the server reads no more of the request's body: the client closes the connection. Go:
/// TestTransportCancelRequest and the similar tests.
#[test]
fn a_server_that_does_not_read() {
    #[derive(Clone, Copy)]
    enum GiveUp {
        BeforeTheHead,
        ByADrop,
        ByTheContext,
        /// The whole response has been read.
        Not,
    }
    let _watchdog = Watchdog::new();
    for how in [GiveUp::BeforeTheHead, GiveUp::ByADrop, GiveUp::ByTheContext, GiveUp::Not] {
        synctest::test(move || {
            let listener = PipeListener::new();
            let dialer = listener.dialer();
            let client = Client::new().dial(move |_| dialer.dial());
            let (ctx, cancel) = context::with_cancel(&background());
            let asking = spawn(move || {
                let answer = client.send_limited(hyper_request("POST", "http://x/", vec![b'x'; 1_000_000]), &ctx);
                if let GiveUp::ByADrop = how {
                    return drop(answer.unwrap());
                }
                assert_eq!(answer.and_then(text).is_ok(), matches!(how, GiveUp::Not));
            });
            let (mut server, _) = listener.accept().unwrap();
            server.read_exact(&mut [0; 1000]).unwrap();
            let begin = match how {
                GiveUp::BeforeTheHead => "",
                GiveUp::Not => "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npart",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
            };
            server.write_all(begin.as_bytes()).unwrap();
            sleep(MS);
            cancel.cancel();
            asking.join().unwrap();
            sleep(MS);
            if let GiveUp::Not = how {
                // The body goes on to its end.
                let mut rest = vec![0; 999_000];
                server.read_exact(&mut rest).unwrap();
                assert!(rest.ends_with(&[b'x'; 900_000]));
                assert_eq!(server.write(b"x").unwrap(), 1);
            } else {
                assert_eq!(server.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
            }
        });
    }
}

/// Drops the body of a response before its end has been read. If hyper finds the end, the connection stays open, and the
/// server does not take the next request on this connection for a request that has been given up.
#[test]
fn a_connection_goes_on_behind_a_dropped_body() {
    let connections = Arc::new(AtomicUsize::new(0));
    let server = || Server::new(echo);
    in_bubble(server, move |_, dialer| {
        let (dialer, count) = (dialer.clone(), connections.clone());
        let client = Client::new().dial(move |_| {
            count.fetch_add(1, SeqCst);
            dialer.dial()
        });
        for _ in 0..3 {
            let body = Body::stream(|w| w.write_all(&vec![b'x'; 1_000_000]));
            let mut body = client.post("http://x/", "text/plain", body).unwrap().into_body();
            body.read_exact(&mut vec![0; 1_000_000 + "HTTP/1.1 POST / ".len()]).unwrap();
            sleep(MS);
            drop(body);
            sleep(MS);
        }
        assert_eq!(connections.load(SeqCst), 1);
    });
}
