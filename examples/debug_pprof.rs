//! Go's `net/http/pprof`, for a service: profiles for `go tool pprof`, all goroutines, and numbers for Prometheus.
//!
//! | path | answer |
//! |---|---|
//! | `/debug/pprof/mutex`, `/debug/pprof/block` | the profile, for `go tool pprof`; with `?debug=1` as text |
//! | `/debug/pprof/goroutine` | each goroutine; with `?debug=1` in groups |
//! | `/metrics` | `runtime::metrics`, in the text format of Prometheus |
//!
//! `cargo run --features metrics,net,profile --example debug_pprof` asks for each of them once, and ends. With an address
//! it serves for ever:
//!
//! ```text
//! cargo run --features metrics,net,profile --example debug_pprof -- 127.0.0.1:6060
//! go tool pprof http://127.0.0.1:6060/debug/pprof/mutex
//! ```

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use sudog::compute;
use sudog::net::{TcpListener, TcpStream};
use sudog::prelude::*;
use sudog::runtime::{dump, metrics, profile};
use sudog::time::{now, sleep};

/// Returns the type and the body of an answer. `None`: there is no such path.
fn answer(target: &str) -> Option<(&'static str, Vec<u8>)> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let as_text = query.split('&').any(|option| option == "debug=1");
    let of = |profile: profile::Profile| {
        if as_text {
            return ("text/plain; charset=utf-8", profile.to_string().into_bytes());
        }
        let mut file = Vec::new();
        profile.write_pprof(&mut file).expect("a vector takes all bytes");
        ("application/octet-stream", file)
    };
    match path {
        "/debug/pprof/mutex" => Some(of(profile::mutex())),
        "/debug/pprof/block" => Some(of(profile::block())),
        "/debug/pprof/goroutine" => {
            let dump = dump();
            let mut text = dump.to_string();
            if as_text {
                text.clear();
                dump.groups().iter().for_each(|group| writeln!(text, "{group}").expect("a string takes all text"));
            }
            Some(("text/plain; charset=utf-8", text.into_bytes()))
        }
        "/metrics" => Some(("text/plain; version=0.0.4", prometheus().into_bytes())),
        _ => None,
    }
}

/// Returns all numbers in the text format of Prometheus: `/sched/threads/total:threads` is `go_sched_threads_total_threads`
/// there, as Go's own collector names it.
fn prometheus() -> String {
    let now = metrics();
    let mut text = String::new();
    for (name, value) in now.values() {
        writeln!(text, "go{} {value}", name.replace(['/', ':', '-'], "_")).expect("a string takes all text");
    }
    for part in [0.5, 0.99, 0.999] {
        let seconds = now.latencies.quantile(part).as_secs_f64();
        writeln!(text, "go_sched_latencies_seconds{{quantile=\"{part}\"}} {seconds}").expect("a string takes all text");
    }
    text
}

/// Answers one request, and closes the connection.
fn serve(stream: &TcpStream) -> io::Result<()> {
    stream.set_deadline(Some(now() + Duration::from_secs(10)))?;
    let mut request = BufReader::new(stream.take(8 << 10));
    let mut line = String::new();
    request.read_line(&mut line)?;
    let mut header = String::new();
    while request.read_line(&mut header)? > 2 {
        header.clear();
    }
    let mut words = line.split_whitespace();
    // To look up the names of functions takes long: elsewhere, so that the goroutines of this worker go on.
    let answer = |target| compute(|| answer(target));
    let (status, (kind, body)) = match (words.next(), words.next().and_then(answer)) {
        (Some("GET"), Some(answer)) => ("200 OK", answer),
        (Some("GET"), None) => ("404 Not Found", ("text/plain", Vec::new())),
        _ => ("405 Method Not Allowed", ("text/plain", Vec::new())),
    };
    let mut writer = stream;
    write!(writer, "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len())?;
    writer.write_all(&body)
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
        let server = spawn(move || -> io::Result<()> {
            loop {
                let (stream, _) = listener.accept()?;
                go(move || {
                    if let Err(error) = serve(&stream) {
                        eprintln!("a request: {error}");
                    }
                });
            }
        });
        if addr.is_some() {
            println!("http://{at}/debug/pprof/");
            return server.join().expect("no panic");
        }

        sleep(Duration::from_millis(50));
        let (status, profile) = get(at, "/debug/pprof/mutex")?;
        assert_eq!(status, "HTTP/1.0 200 OK");
        assert!(profile.starts_with(&[0x1f, 0x8b]), "a gzipped file");
        for target in ["/debug/pprof/block?debug=1", "/debug/pprof/goroutine?debug=1", "/metrics"] {
            let (status, text) = get(at, target)?;
            assert_eq!(status, "HTTP/1.0 200 OK");
            let text = String::from_utf8_lossy(&text).into_owned();
            println!("---- {target}\n{}", text.lines().take(12).collect::<Vec<_>>().join("\n"));
        }
        assert_eq!(get(at, "/debug/pprof/heap")?.0, "HTTP/1.0 404 Not Found");
        Ok(())
    })
}
