//! Go's `net/http/pprof`, for a service: profiles for `go tool pprof`, all goroutines, and numbers for Prometheus.
//! `sudog::http::debug` lists the pages.
//!
//! `cargo run --features http,metrics,profile --example debug_pprof` asks for some of them, and ends. With an address it
//! serves for ever:
//!
//! ```text
//! cargo run --features http,metrics,profile --example debug_pprof -- 127.0.0.1:6060
//! go tool pprof http://127.0.0.1:6060/debug/pprof/mutex
//! ```

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use sudog::http::{self, IntoResponse, Request, Response, StatusCode, debug};
use sudog::net::{TcpListener, TcpStream};
use sudog::prelude::*;
use sudog::runtime::profile;
use sudog::time::sleep;

fn pages(request: Request) -> Response {
    debug::handle(&request).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
}

fn get(addr: SocketAddr, target: &str) -> io::Result<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(addr)?;
    write!(stream, "GET {target} HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let body = answer.split_off(end + 4);
    Ok((String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned(), body))
}

/// The service itself: goroutines that wait for one lock.
fn work() {
    static LOCK: Mutex<()> = Mutex::new(());
    for _ in 0..4 {
        go(|| {
            loop {
                let _guard = LOCK.lock();
                sleep(Duration::from_millis(1));
            }
        });
    }
}

fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1);
    profile::set_mutex_profile_fraction(1);
    profile::set_block_profile_rate(1);
    sudog::run(move || {
        let listener = TcpListener::bind(addr.as_deref().unwrap_or("127.0.0.1:0"))?;
        let at = listener.local_addr()?;
        work();
        if addr.is_some() {
            println!("http://{at}/debug/pprof/");
            return http::serve(listener, pages);
        }
        go(move || http::serve(listener, pages).expect("the listener works"));

        sleep(Duration::from_millis(50));
        let (status, profile) = get(at, "/debug/pprof/mutex")?;
        assert_eq!(status, "HTTP/1.0 200 OK");
        assert!(profile.starts_with(&[0x1f, 0x8b]), "a gzipped file");
        let pages = [
            "/debug/pprof/block?debug=1",
            "/debug/pprof/goroutine?debug=1",
            "/debug/pprof/goroutineleak?debug=1",
            "/metrics",
        ];
        for target in pages {
            let (status, text) = get(at, target)?;
            assert_eq!(status, "HTTP/1.0 200 OK");
            let text = String::from_utf8_lossy(&text).into_owned();
            println!("---- {target}\n{}", text.lines().take(12).collect::<Vec<_>>().join("\n"));
        }
        assert_eq!(get(at, "/debug/pprof/heap")?.0, "HTTP/1.0 404 Not Found");
        Ok(())
    })
}
