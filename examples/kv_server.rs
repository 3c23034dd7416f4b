//! A key-value service over HTTP, with a graceful stop: Go's `net/http` server with `http.Server.Shutdown`, in small.
//!
//! `PUT /key` stores the body, `GET /key` answers with the stored body, `DELETE /key` removes the key. Each connection
//! has a goroutine. The end of a context stops the listener; requests that are under way are answered.
//!
//! `cargo run --features net --example kv_server`

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sudog::net::{TcpListener, TcpStream, is_closed};
use sudog::prelude::*;
use sudog::time::now;

#[derive(Default)]
struct Store(Map<String, Vec<u8>>);

struct Request {
    method: String,
    key: String,
    body: Vec<u8>,
}

/// Reads a request. Returns `None` if the client has closed the connection.
fn read_request(from: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (method, key) = (method.to_owned(), path.trim_start_matches('/').to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        from.read_line(&mut header)?;
        let header = header.trim_end();
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        }
    }
    if length > 1 << 20 {
        return Err(io::Error::other("a body of more than a megabyte"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some(Request { method, key, body }))
}

impl Store {
    fn answer(&self, Request { method, key, body }: Request) -> (&'static str, Vec<u8>) {
        match method.as_str() {
            "PUT" => {
                self.0.store(key, body);
                ("204 No Content", Vec::new())
            }
            "GET" => self.0.load(&key).map_or(("404 Not Found", Vec::new()), |value| ("200 OK", value)),
            "DELETE" => match self.0.load_and_delete(&key) {
                Some(_) => ("204 No Content", Vec::new()),
                None => ("404 Not Found", Vec::new()),
            },
            _ => ("405 Method Not Allowed", Vec::new()),
        }
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            stream.set_deadline(Some(now() + Duration::from_secs(5)))?;
            let Some(request) = read_request(&mut reader)? else { return Ok(()) };
            let (status, body) = self.answer(request);
            let mut writer = stream;
            write!(writer, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len())?;
            writer.write_all(&body)?;
        }
    }
}

/// Serves until the context is done; then waits for the open connections.
fn listen_and_serve(ctx: &Context, listener: &TcpListener) -> io::Result<()> {
    let (store, open) = (Arc::new(Store::default()), Arc::new(WaitGroup::new()));
    loop {
        match listener.accept_limited(ctx) {
            Ok((stream, _)) => {
                let store = store.clone();
                open.go(move || {
                    if let Err(error) = store.serve(&stream)
                        && !is_closed(&error)
                    {
                        eprintln!("a connection: {error}");
                    }
                });
            }
            Err(_) if ctx.err().is_some() => break,
            Err(error) => return Err(error),
        }
    }
    open.wait();
    Ok(())
}

fn request(addr: SocketAddr, method: &str, key: &str, body: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(addr)?;
    write!(stream, "{method} /{key} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok((head.lines().next().unwrap_or_default().replace("HTTP/1.1 ", ""), body.to_owned()))
}

fn main() -> io::Result<()> {
    sudog::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        // A program that runs for long would use `sudog::signal::notify_context`, whose context ends at Ctrl-C.
        let (ctx, cancel) = context::with_cancel(&context::background());
        let server = spawn(move || listen_and_serve(&ctx, &listener));

        assert_eq!(request(addr, "GET", "colour", "")?.0, "404 Not Found");
        assert_eq!(request(addr, "PUT", "colour", "blue")?.0, "204 No Content");
        assert_eq!(request(addr, "GET", "colour", "")?, ("200 OK".to_owned(), "blue".to_owned()));
        let writers: Vec<_> = (0..50)
            .map(|n| spawn(move || request(addr, "PUT", &format!("key{n}"), &n.to_string()).map(|answer| answer.0)))
            .collect();
        for writer in writers {
            assert_eq!(writer.join().expect("no panic")?, "204 No Content");
        }
        assert_eq!(request(addr, "GET", "key49", "")?.1, "49");
        assert_eq!(request(addr, "DELETE", "colour", "")?.0, "204 No Content");
        assert_eq!(request(addr, "PATCH", "colour", "")?.0, "405 Method Not Allowed");
        cancel.cancel();
        server.join().expect("no panic")?;
        println!("stopped");
        Ok(())
    })
}
