//! TLS: handshakes, certificates, and the ends of clients behind a handshake.

use std::fs;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as StdStream};
use std::path::PathBuf;
use std::sync::Arc;

use sudog::chan::Chan;
use sudog::context::background;
use sudog::http::rustls::{ClientConnection, ServerConnection, StreamOwned};
use sudog::http::{Body, Client, Request, Response, Server, load_key_pair};
use sudog::net::{PipeListener, PipeStream};
use sudog::time::{now, sleep};
use sudog::{go, spawn, synctest};
use support::{Watchdog, certificate, eventually};

use super::{HOUR, MS, client_to, configs, configs_of, echo, in_bubble, start, text};

/// ALPN chooses HTTP/2, if both ends offer HTTP/2. Go: TestServerTLSNextProtos and the similar tests, TestNextProtoUpgrade.
#[test]
fn requests() {
    let (server, config) = configs();
    let mut only_http1 = config.clone();
    only_http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut none = config.clone();
    none.alpn_protocols = vec![b"unknown".to_vec()];
    let server = start(Server::new(echo).tls(server));
    let client = client_to(server.addr).tls(config);
    for _ in 0..2 {
        assert_eq!(text(client.get("https://localhost/a").unwrap()).unwrap(), "HTTP/2.0 GET /a ");
    }
    let client = client_to(server.addr).tls(only_http1);
    for n in [0, 1, 100_000, 1_000_000] {
        let body = vec![b'x'; n];
        let answer = text(client.post("https://localhost/b", "text/plain", body).unwrap()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 POST /b "));
        assert_eq!(answer.len(), n + 17);
    }
    assert!(client_to(server.addr).tls(none).get("https://localhost/").is_err());
}

/// Go: TestTLSServerRejectHTTPRequests, TestTLSHandshakeTimeout and the similar tests. A failed handshake is logged, and
/// ends only its connection.
#[test]
fn failed_handshakes() {
    let (server, config) = configs();
    let (_, other) = configs_of("other");
    let server = start(Server::new(echo).tls(server));
    // A client that does not know the certificate's issuer.
    let error = client_to(server.addr).tls(other).get("https://localhost/").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error:?}");
    // A certificate for another name.
    let error = client_to(server.addr).tls(config.clone()).get("https://example.com/").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error:?}");
    // A certificate that has expired.
    let (expired, trusting) = configs_of("expired");
    let expired = start(Server::new(echo).tls(expired));
    let error = client_to(expired.addr).tls(trusting).get("https://localhost/").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error:?}");
    // A client that speaks no TLS, and one that only connects.
    let mut plain = StdStream::connect(server.addr).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
    drop(StdStream::connect(server.addr).unwrap());
    eventually(|| server.lines().len() >= 3);
    let lines = server.lines();
    assert!(lines.iter().all(|line| line.starts_with("http: TLS handshake error from 127.")), "{lines:?}");
    assert_eq!(text(client_to(server.addr).tls(config).get("https://localhost/").unwrap()).unwrap(), "HTTP/2.0 GET / ");
}

/// A client that is silent, or stops amid the handshake, is closed after the time limit of a header.
#[test]
fn handshake_timeout() {
    let server = || Server::new(echo).tls(configs().0).header_timeout(HOUR).error_log(|_| {});
    in_bubble(server, |server, dialer| {
        for part in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00"] {
            let begun = now();
            let mut client = dialer.dial().unwrap();
            client.write_all(part).unwrap();
            assert_eq!(client.read_to_end(&mut Vec::new()).unwrap(), 0);
            assert_eq!(now() - begun, HOUR);
        }
        // A shutdown does not wait for handshakes.
        let _silent = dialer.dial().unwrap();
        let begun = now();
        server.shutdown(&background()).unwrap();
        assert_eq!(now(), begun);
    });
}

/// When the client closes its side, with `close_notify` or without, the context of the request ends. The client still gets
/// the answer.
#[test]
fn client_gone() {
    let started = Chan::new(1);
    let (server, mut config) = configs();
    let server = {
        let started = started.clone();
        start(
            Server::new(move |request: Request| {
                started.send(());
                request.context().wait();
                "late"
            })
            .tls(server),
        )
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    for notifies in [true, false] {
        let connection = ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
        let mut client = StreamOwned::new(connection, StdStream::connect(server.addr).unwrap());
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        started.recv();
        if notifies {
            client.conn.send_close_notify();
            client.flush().unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("\r\n\r\nlate"), "{answer}");
        } else {
            client.sock.shutdown(Shutdown::Both).unwrap();
        }
    }
    // All handlers have ended, or this waits for ever.
    server.server.shutdown(&background()).unwrap();
}

/// Sends a second request while the handler of the first runs. The server, which looks for the client's end meanwhile,
/// reads bytes of the second request, and loses none of them.
#[test]
fn pipelining() {
    let (server, mut config) = configs();
    let (started, go_on) = (Chan::new(1), Chan::new(1));
    let server = {
        let (started, go_on) = (started.clone(), go_on.clone());
        start(
            Server::new(move |request: Request| {
                started.send(());
                go_on.recv();
                request.uri().path().to_owned()
            })
            .tls(server),
        )
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut client = StreamOwned::new(connection, StdStream::connect(server.addr).unwrap());
    client.write_all(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    started.recv();
    client.write_all(b"GET /second HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    std::thread::sleep(super::MS * 20); // most likely the server looks meanwhile
    go_on.send(());
    started.recv();
    go_on.send(());
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    let (first, second) = answers.split_once("/first").unwrap();
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && second.ends_with("\r\n\r\n/second"), "{answers}");
}

/// A body comes in pieces of some size, although the server looks for the client's end behind each piece.
#[test]
fn pieces_of_a_body() {
    let (server, mut config) = configs();
    let handler = |mut request: Request| {
        let (mut pieces, body) = (0, request.body_mut());
        while let Ok(piece) = body.fill_buf()
            && !piece.is_empty()
        {
            let n = piece.len();
            body.consume(n);
            pieces += 1;
        }
        pieces.to_string()
    };
    let server = start(Server::new(handler).tls(server));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let client = client_to(server.addr).tls(config);
    let pieces = text(client.post("https://localhost/", "text/plain", vec![b'x'; 1_000_000]).unwrap()).unwrap();
    assert!(pieces.parse::<u32>().unwrap() < 2_000, "{pieces} pieces");
}

/// A stream, whose flushed bytes reach the client before the handler goes on.
#[test]
fn streams() {
    let (server, config) = configs();
    for protocol in [&b"http/1.1"[..], b"h2"] {
        let go_on = Chan::new(0);
        let handler = {
            let go_on = go_on.clone();
            move |_: Request| {
                let go_on = go_on.clone();
                Response::new(Body::stream(move |w| {
                    w.write_all(b"first ")?;
                    w.flush()?;
                    go_on.recv();
                    w.write_all(b"second")
                }))
            }
        };
        let server = start(Server::new(handler).tls(server.clone()));
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let mut body = client_to(server.addr).tls(config).get("https://localhost/").unwrap().into_body();
        let mut first = [0; 6];
        body.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"first ");
        go_on.send(());
        let mut second = String::new();
        body.read_to_string(&mut second).unwrap();
        assert_eq!(second, "second");
    }
}

/// Files that are not there, have no certificate or no key, do not parse, or do not belong together.
#[test]
fn key_pairs() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("key-pairs-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let ([cert_file, key_file], [_, other]) = (certificate("localhost"), certificate("other"));
    let cert = fs::read_to_string(&cert_file).unwrap();
    let kind = |cert: &PathBuf, key: &PathBuf| load_key_pair(cert, key).unwrap_err().kind();
    assert_eq!(kind(&folder.join("none"), &key_file), ErrorKind::NotFound);
    assert_eq!(kind(&cert_file, &folder.join("none")), ErrorKind::NotFound);
    let text = file("text", "hello".to_owned());
    let cut = file("cut", cert[..200].to_owned());
    let not_base64 = file("not_base64", cert.replace('M', "!"));
    let garbage = file("garbage", "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n".to_owned());
    for cert in [&text, &cut, &not_base64, &garbage, &key_file] {
        assert_eq!(kind(cert, &key_file), ErrorKind::InvalidData, "{cert:?}");
    }
    let garbage = file("garbage_key", "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n".to_owned());
    for key in [&text, &garbage, &cert_file, &other] {
        assert_eq!(kind(&cert_file, key), ErrorKind::InvalidData, "{key:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// A client without a configuration, and a server name that is an address.
#[test]
fn names() {
    let (server, config) = configs();
    let server = start(Server::new(echo).tls(server));
    let client = client_to(server.addr).tls(config);
    assert!(client.get("https://127.0.0.1/").is_ok());
    assert_eq!(Client::new().get("https://127.0.0.1:1/").unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// A client over pipes without buffers, and the server's ends of its connections, whose handshake is done.
fn client_over_pipes() -> (Client, impl Fn() -> StreamOwned<ServerConnection, PipeStream>) {
    let (server, mut config) = configs();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let (server, listener) = (Arc::new(server), PipeListener::with_capacity(1, 0));
    let dialer = listener.dialer();
    let client = Client::new().tls(config).dial(move |_| dialer.dial());
    let accept = move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(server.clone()).unwrap(), stream);
        stream.conn.complete_io(&mut stream.sock).unwrap();
        stream
    };
    (client, accept)
}

/// A request that is given up while the server reads nothing: the client closes the connection.
#[test]
fn a_server_that_does_not_read() {
    let _watchdog = Watchdog::new();
    synctest::test(|| {
        let (client, accept) = client_over_pipes();
        let client = client.timeout(HOUR);
        let asking = spawn(move || client.post("https://localhost/", "text/plain", vec![b'x'; 1_000_000]));
        let mut server = accept();
        assert_eq!(asking.join().unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        sleep(MS);
        assert_eq!(server.sock.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

/// A body without a length ends with `close_notify`. If the connection ends without, the body has been cut.
#[test]
fn a_body_that_is_cut() {
    let _watchdog = Watchdog::new();
    synctest::test(|| {
        for is_whole in [true, false] {
            let (client, accept) = client_over_pipes();
            let asking = spawn(move || text(client.get("https://localhost/")?));
            let mut server = accept();
            let _ = server.read(&mut [0; 1024]).unwrap();
            server.write_all(b"HTTP/1.1 200 OK\r\n\r\nbody").unwrap();
            if is_whole {
                server.conn.send_close_notify();
            }
            server.flush().unwrap();
            drop(server);
            let body = asking.join().unwrap();
            assert_eq!(body.is_ok(), is_whole, "{body:?}");
        }
    });
}

/// A client that reads nothing: the server closes the connection after the time limit of a write.
#[test]
fn a_client_that_does_not_read() {
    let _watchdog = Watchdog::new();
    synctest::test(|| {
        let (config, mut trusting) = configs();
        trusting.alpn_protocols = vec![b"http/1.1".to_vec()];
        let started = Chan::new(0);
        let tell = started.clone();
        let handler = move |_: Request| {
            tell.send(());
            vec![b'x'; 10_000]
        };
        let server = Server::new(handler).tls(config).write_timeout(HOUR);
        let listener = PipeListener::with_capacity(1, 4096);
        let dialer = listener.dialer();
        go!(clone server; server.serve(listener).unwrap());
        let connection = ClientConnection::new(Arc::new(trusting), "localhost".try_into().unwrap()).unwrap();
        let mut client = StreamOwned::new(connection, dialer.dial().unwrap());
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        started.recv();
        let begun = now();
        server.shutdown(&background()).unwrap();
        assert_eq!(now() - begun, HOUR);
    });
}
