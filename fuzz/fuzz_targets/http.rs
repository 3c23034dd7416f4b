//! Bytes of a client for a server of HTTP/1.1 and HTTP/2. The bytes are sent in one piece over a connection, and in small
//! pieces over another: the handler must see the same requests, whose bodies are whole. Whatever the bytes are, the
//! connection ends, nothing panics, and an answer of HTTP/1.1 begins as an answer.
#![no_main]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use sudog::go;
use sudog::http::{Request, Server};
use sudog::net::{PipeDialer, PipeListener};

/// The requests that the handler has seen.
static SEEN: Mutex<Vec<(String, Vec<u8>)>> = Mutex::new(Vec::new());

static SERVER: LazyLock<PipeDialer> = LazyLock::new(|| {
    let server = Server::new(|mut request: Request| {
        let head = format!("{} {} {:?} {:?}", request.method(), request.uri(), request.version(), request.headers());
        let mut body = Vec::new();
        request.body_mut().read_to_end(&mut body)?;
        SEEN.lock().unwrap().push((head, body));
        Ok::<_, std::io::Error>("seen")
    });
    let server = server.unencrypted_http2(true).max_body_bytes(1000).error_log(|line| {
        eprintln!("{line}");
        std::process::abort(); // a panic of the log would be caught
    });
    let listener = PipeListener::new();
    let dialer = listener.dialer();
    go!(server.serve(listener).expect("pipes do not fail"));
    dialer
});

/// Sends the bytes, and returns the requests that the handler has seen, and the answer.
fn send(bytes: &[u8], piece: usize) -> (Vec<(String, Vec<u8>)>, Vec<u8>) {
    let mut client = SERVER.dial().expect("a connection");
    for piece in bytes.chunks(piece) {
        if client.write_all(piece).is_err() {
            break; // the server has closed the connection
        }
    }
    let _ = client.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    (std::mem::take(&mut *SEEN.lock().unwrap()), answer)
}

fuzz_target!(|bytes: &[u8]| {
    let (seen, answer) = send(bytes, bytes.len().max(1));
    if !bytes.starts_with(b"PR") {
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{}", answer.escape_ascii());
        let (seen_in_pieces, _) = send(bytes, 1 + bytes.len() % 7);
        assert_eq!(seen, seen_in_pieces);
    }
});
