//! The client, TLS, HTTP/2 and services of tower, against servers of this crate, and against bytes that no good peer sends.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

mod client;
mod curl;
mod http2;
mod proxy;
mod tls;
mod tower;

use std::io::{self, BufReader, Read};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sudog::context::background;
use sudog::http::rustls::pki_types::PrivateKeyDer;
use sudog::http::rustls::{ClientConfig, RootCertStore, ServerConfig};
use sudog::http::{Client, Request, Response, ResponseBody, Server};
use sudog::net::TcpListener;
use sudog::spawn;
use support::Watchdog;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A server that runs, with the lines that it has logged. The end of the test shuts the server down.
struct Running {
    server: Server,
    addr: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
    serving: Option<sudog::JoinHandle<io::Result<()>>>,
    _watchdog: Watchdog,
}

/// A listener at a loopback address of its own: no other test, nor another process, takes its port when it is closed.
fn listen() -> (TcpListener, SocketAddr) {
    static LISTENERS: AtomicU32 = AtomicU32::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let last = u8::try_from(LISTENERS.fetch_add(1, SeqCst)).unwrap();
    let listener = TcpListener::bind(SocketAddr::from(([127, high, low, last], 0))).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

fn start(server: Server) -> Running {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let server = server.error_log(move |line| log.lock().unwrap().push(line.to_owned()));
    let (listener, addr) = listen();
    let accepting = server.clone();
    let serving = Some(spawn(move || accepting.serve(listener)));
    Running { server, addr, lines, serving, _watchdog: Watchdog::new() }
}

impl Running {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.server.close();
            self.server.shutdown(&background()).unwrap();
            self.serving.take().unwrap().join().unwrap().unwrap();
        }
    }
}

/// Reads a response's body to its end.
fn text(response: Response<ResponseBody>) -> io::Result<String> {
    let mut text = String::new();
    BufReader::new(response.into_body()).read_to_string(&mut text)?;
    Ok(text)
}

/// Answers with the version of the protocol, and with the body.
fn echo(mut request: Request) -> io::Result<String> {
    let mut body = format!("{:?} {} {} ", request.version(), request.method(), request.uri().path());
    request.body_mut().read_to_string(&mut body)?;
    Ok(body)
}

/// Answers with the port of the client's connection.
fn port(request: Request) -> String {
    request.remote_addr().port().to_string()
}

/// A certificate for `localhost` and its key, in PEM.
fn certificate() -> (rcgen::Certificate, rcgen::KeyPair) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (made.cert, made.signing_key)
}

/// Configurations of a server and of a client that trusts the server.
fn configs() -> (ServerConfig, ClientConfig) {
    let (cert, key) = certificate();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    (server, ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// A client that connects to `addr`, whatever the host.
fn client_to(addr: SocketAddr) -> Client {
    Client::new().dial(move |_| sudog::net::TcpStream::connect(addr))
}
