//! `hyper` over the sockets of this crate: an HTTP/1.1 server with a task for each connection, which awaits a goroutine
//! for each request. The goroutine may block. Ten clients keep their connections alive.
//!
//! `cargo run -p sudog-net --example hyper_server`
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use sudog::net::{TcpListener, TcpStream};
use sudog::prelude::*;
use sudog::time::sleep;
use sudog::{go_async, spawn_async};

const CLIENTS: usize = 10;
const REQUESTS: usize = 20;

/// Answers a request, in a goroutine that blocks for a while.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let text = spawn(move || {
        sleep(Duration::from_micros(100)); // a database, a file, a lock
        format!("{path}: {}", String::from_utf8_lossy(&body))
    });
    Ok(Response::new(Full::from(text.await.expect("no panic"))))
}

async fn serve(listener: TcpListener) {
    for _ in 0..CLIENTS {
        let (stream, _) = listener.accept_async().await.expect("a connection");
        go_async(async {
            let served = http1::Builder::new().serve_connection(stream, service_fn(answer)).await;
            served.expect("served to the end of the stream");
        });
    }
}

/// Sends requests over a single connection, and returns the number of right answers. A client that blocks.
fn client(addr: SocketAddr, client: usize) -> std::io::Result<usize> {
    let stream = TcpStream::connect(addr)?;
    let mut reader = BufReader::new(&stream);
    let mut right = 0;
    for n in 0..REQUESTS {
        let body = format!("request {n} of client {client}");
        write!(&stream, "POST /page/{n} HTTP/1.1\r\nHost: {addr}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer)?;
        right += usize::from(answer == format!("/page/{n}: {body}").into_bytes());
    }
    Ok(right)
}

fn main() {
    sudog::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let addr = listener.local_addr().expect("its address");
        let server = spawn_async(serve(listener));
        let clients: Vec<_> = (0..CLIENTS).map(|n| spawn(move || client(addr, n).expect("answers"))).collect();
        let right: usize = clients.into_iter().map(|client| client.join().expect("no panic")).sum();
        server.join().expect("no panic");
        println!("{right} answers");
        assert_eq!(right, CLIENTS * REQUESTS);
    });
}
