//! The servers of `netbench`: echoes and HTTP, on goroutines and on tokio's tasks; echoes on our tasks, too.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::time::Duration;

use serde::Serialize;
use sudog_http::{Body, Bytes, Request, Response, header};
use sudog_runtime::goroutine::{go, go_async, run as run_goroutines, sleep};

use super::{Protocol, SLOW, say};

/// The object of a JSON response.
#[derive(Serialize)]
struct Message {
    message: &'static str,
}

/// Returns the type and the body of a response.
fn content(protocol: Protocol) -> (&'static str, Vec<u8>) {
    match protocol {
        Protocol::Json => {
            let json = serde_json::to_vec(&Message { message: "Hello, World!" }).expect("an object of one text");
            ("application/json", json)
        }
        Protocol::Http | Protocol::Echo => ("text/plain", b"Hello, World!".to_vec()),
    }
}

/// Returns how long the handler of a request sleeps.
fn pause(path: &str) -> Option<Duration> {
    (path == "/slow").then_some(SLOW)
}

fn response<B: From<Vec<u8>>>(protocol: Protocol) -> Response<B> {
    let (kind, body) = content(protocol);
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

pub(super) fn serve_by_goroutines(protocol: Protocol) -> io::Result<()> {
    run_goroutines(|| {
        let listener = sudog_net::TcpListener::bind("127.0.0.1:0")?;
        say(listener.local_addr()?.port())?;
        if protocol != Protocol::Echo {
            return sudog_http::serve(listener, move |request: Request| {
                if let Some(time) = pause(request.uri().path()) {
                    sleep(time);
                }
                response::<Body>(protocol)
            });
        }
        for stream in listener.incoming() {
            let mut stream = stream?;
            go(move || {
                let mut buf = [0; 1024];
                while let Ok(n) = stream.read(&mut buf)
                    && n > 0
                    && stream.write_all(&buf[..n]).is_ok()
                {}
            });
        }
        Ok(())
    })
}

pub(super) fn echo_by_our_tasks() -> io::Result<()> {
    run_goroutines(|| {
        let listener = sudog_net::TcpListener::bind("127.0.0.1:0")?;
        say(listener.local_addr()?.port())?;
        for stream in listener.incoming() {
            let stream = stream?;
            go_async(async move {
                let mut buf = [0; 1024];
                while let Ok(n) = stream.read_async(&mut buf).await
                    && n > 0
                    && stream.write_all_async(&buf[..n]).await.is_ok()
                {}
            });
        }
        Ok(())
    })
}

pub(super) fn serve_by_tasks(workers: usize, protocol: Protocol) -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        say(listener.local_addr()?.port())?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            if protocol != Protocol::Echo {
                tokio::spawn(serve_by_hyper(stream, protocol));
                continue;
            }
            tokio::spawn(async move {
                let mut buf = [0; 1024];
                while let Ok(n) = stream.read(&mut buf).await
                    && n > 0
                    && stream.write_all(&buf[..n]).await.is_ok()
                {}
            });
        }
    })
}

async fn serve_by_hyper(stream: tokio::net::TcpStream, protocol: Protocol) {
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| async move {
        if let Some(time) = pause(request.uri().path()) {
            tokio::time::sleep(time).await;
        }
        Ok::<_, Infallible>(response::<http_body_util::Full<Bytes>>(protocol))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(hyper_util::rt::TokioTimer::new())
        .serve_connection(hyper_util::rt::TokioIo::new(stream), service);
    // An error is the client's, which has gone.
    let _ = connection.await;
}
