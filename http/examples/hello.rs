//! Go's first server, in Rust: it greets, counts its guests, streams, and shuts down.
//!
//! ```go
//! func hello(w http.ResponseWriter, r *http.Request) {
//!     mu.Lock()
//!     guests++
//!     mu.Unlock()
//!     fmt.Fprintf(w, "Hello, %s!\n", r.URL.Path[1:])
//! }
//! ```
//!
//! `cargo run -p sudog-http --example hello` asks itself a few times, and ends. With an address it serves until it is
//! killed: `cargo run -p sudog-http --example hello -- 127.0.0.1:8080`, then `curl 127.0.0.1:8080/gopher`.
#![cfg(target_os = "linux")]

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use sudog::compute;
use sudog::http::{self, Body, IntoResponse, Request, Response, Server, StatusCode};
use sudog::net::{TcpListener, TcpStream};
use sudog::prelude::*;

static GUESTS: Mutex<u32> = Mutex::new(0);

fn hello(r: Request) -> String {
    *GUESTS.lock() += 1;
    format!("Hello, {}!\n", r.uri().path().trim_start_matches('/'))
}

/// Reads the body, which may fail: then the client is told why.
fn shout(mut r: Request) -> io::Result<String> {
    let mut text = String::new();
    r.body_mut().read_to_string(&mut text)?;
    Ok(text.to_uppercase())
}

/// Writes while the client listens.
fn ticks(r: Request) -> Response {
    let ctx = r.context().clone();
    Response::new(Body::stream(move |w| {
        for n in 1..=3 {
            if ctx.sleep(Duration::from_millis(1)).is_err() {
                break; // the client is gone
            }
            writeln!(w, "tick {n}")?;
            w.flush()?;
        }
        Ok(())
    }))
}

/// Computes for long: on another thread, so that other goroutines of this worker go on.
fn checksum(mut r: Request) -> io::Result<String> {
    let mut data = Vec::new();
    r.body_mut().read_to_end(&mut data)?;
    let hash = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3); // FNV-1a
    let sum = compute(|| data.iter().fold(0xcbf2_9ce4_8422_2325, hash));
    Ok(format!("{sum:016x}\n"))
}

/// Go's `ServeMux`.
fn routes(r: Request) -> Response {
    match (r.method(), r.uri().path()) {
        (&http::Method::GET, "/guests") => GUESTS.lock().to_string().into_response(),
        (&http::Method::GET, "/ticks") => ticks(r),
        (&http::Method::POST, "/checksum") => checksum(r).into_response(),
        (&http::Method::POST, "/shout") => shout(r).into_response(),
        (&http::Method::GET, _) => hello(r).into_response(),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

/// Asks over a connection of its own, and returns the answer.
fn ask(addr: SocketAddr, request: &str) -> io::Result<String> {
    let mut conn = TcpStream::connect(addr)?;
    conn.write_all(request.as_bytes())?;
    let mut answer = String::new();
    conn.read_to_string(&mut answer)?;
    Ok(answer)
}

fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1);
    run(move || {
        let listener = TcpListener::bind(addr.as_deref().unwrap_or("127.0.0.1:0"))?;
        if addr.is_some() {
            return http::serve(listener, routes);
        }

        let addr = listener.local_addr()?;
        let srv = Server::new(routes);
        let served = spawn({
            let srv = srv.clone();
            move || srv.serve(listener)
        });

        for name in ["gopher", "ferris"] {
            print!("{}", ask(addr, &format!("GET /{name} HTTP/1.0\r\n\r\n"))?);
        }
        print!("{}", ask(addr, "POST /shout HTTP/1.0\r\nContent-Length: 6\r\n\r\nhello\n")?);
        let sum = ask(addr, "POST /checksum HTTP/1.0\r\nContent-Length: 1\r\n\r\na")?;
        assert!(sum.ends_with("\r\n\r\naf63dc4c8601ec8c\n"), "{sum}");
        print!("{}", ask(addr, "GET /ticks HTTP/1.0\r\n\r\n")?);
        let guests = ask(addr, "GET /guests HTTP/1.0\r\n\r\n")?;
        assert!(guests.ends_with("\r\n\r\n2"), "{guests}");

        let (ctx, cancel) = context::with_timeout(&context::background(), Duration::from_secs(5));
        let _cancel = cancel.on_drop();
        srv.shutdown(&ctx).expect("no request runs for so long");
        served.join().expect("no panic")
    })
}
