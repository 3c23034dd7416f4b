//! A proxy between a client and a server that trickles, cuts, resets and stalls: no request is answered wrongly, no worker
//! is stuck, and a shutdown ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::SockRef;
use sudog::http::{Client, Server};
use sudog::spawn;

use super::{HOUR, MS, configs, echo, start, text};

/// The fault of a connection.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The bytes pass one at a time, with a pause now and then.
    Trickle,
    /// The connection ends in both directions after so many bytes.
    Cut(usize),
    /// The connection is reset after so many bytes.
    Reset(usize),
    /// No byte passes after so many bytes, until the client gives up.
    Stall(usize),
}

/// Starts a proxy to `to`. Its threads end with their connections.
fn proxy(to: SocketAddr, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (Arc::new(client.unwrap()), Arc::new(TcpStream::connect(to).unwrap()));
            for (from, to) in [(client.clone(), server.clone()), (server, client)] {
                thread::spawn(move || pass(&from, &to, fault));
            }
        }
    });
    addr
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, fault: Fault) {
    let mut passed = 0;
    let mut buf = [0; 4096];
    let end = |how| {
        let _ = from.shutdown(how);
        let _ = to.shutdown(how);
    };
    while let Ok(n) = from.read(&mut buf)
        && n > 0
    {
        let mut bytes = &buf[..n];
        match fault {
            Fault::Trickle => {
                for (at, byte) in bytes.iter().enumerate() {
                    if at % 64 == 63 {
                        thread::sleep(MS);
                    }
                    if to.write_all(&[*byte]).is_err() {
                        return end(Shutdown::Both);
                    }
                }
                continue;
            }
            Fault::Cut(at) | Fault::Reset(at) | Fault::Stall(at) => bytes = &bytes[..n.min(at - passed)],
        }
        passed += bytes.len();
        if to.write_all(bytes).is_err() {
            return end(Shutdown::Both);
        }
        match fault {
            Fault::Cut(at) if passed == at => return end(Shutdown::Both),
            Fault::Reset(at) if passed == at => {
                for stream in [from, to] {
                    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
                }
                return end(Shutdown::Both);
            }
            Fault::Stall(at) if passed == at => {
                // Read, and pass nothing on.
                while from.read(&mut buf).is_ok_and(|n| n > 0) {}
                return end(Shutdown::Both);
            }
            _ => {}
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn run(server: Server, clients: &[(&str, Client)], scheme: &str) {
    let server = start(server);
    let body = "0123456789".repeat(300);
    let faults = [Fault::Trickle].into_iter().chain(
        [1, 20, 100, 700, 2000, 3000].into_iter().flat_map(|at| [Fault::Cut(at), Fault::Reset(at), Fault::Stall(at)]),
    );
    let asking: Vec<_> = faults
        .flat_map(|fault| clients.iter().map(move |client| (fault, client)))
        .map(|(fault, (name, client))| {
            let to = proxy(server.addr, fault);
            let client = client.clone().timeout(if matches!(fault, Fault::Trickle) { HOUR } else { 300 * MS });
            let client = client.dial(move |_| sudog::net::TcpStream::connect(to));
            let (name, body, url) = (name.to_string(), body.clone(), format!("{scheme}://localhost/"));
            spawn(move || {
                let answer = client.post(&url, "text/plain", body.clone()).and_then(text);
                match (fault, answer) {
                    (_, Ok(answer)) => assert!(answer.ends_with(&body), "{name}, {fault:?}: {answer}"),
                    (Fault::Trickle, Err(error)) => panic!("{name}, {fault:?}: {error:?}"),
                    (_, Err(_)) => {}
                }
            })
        })
        .collect();
    for asking in asking {
        asking.join().unwrap();
    }
    // The server still serves.
    let direct = server.addr;
    for (name, client) in clients {
        let client = client.clone().dial(move |_| sudog::net::TcpStream::connect(direct));
        let answer = text(client.post(&format!("{scheme}://localhost/"), "text/plain", body.clone()).unwrap());
        assert!(answer.unwrap().ends_with(&body), "{name}");
    }
}

#[test]
fn plain() {
    let clients = [("http1", Client::new()), ("http2", Client::new().http2_only(true))];
    run(Server::new(echo).unencrypted_http2(true), &clients, "http");
}

#[test]
fn tls() {
    let (server, config) = configs();
    let mut only_http1 = config.clone();
    only_http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    let clients = [("http1", Client::new().tls(only_http1)), ("http2", Client::new().tls(config))];
    run(Server::new(echo).tls(server), &clients, "https");
}
