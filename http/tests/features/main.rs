//! The client, TLS, HTTP/2 and services of tower, against servers of this crate, and against bytes that no good peer sends.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

mod client;
mod curl;
mod http2;
mod proxy;
mod running;
mod tls;
mod tower;

use std::io::{self, BufReader, Read};
use std::net::SocketAddr;
use std::time::Duration;

use sudog::http::rustls::pki_types::CertificateDer;
use sudog::http::rustls::pki_types::pem::PemObject;
use sudog::http::rustls::{ClientConfig, RootCertStore, ServerConfig};
use sudog::http::{Client, Request, Response, ResponseBody, load_key_pair};
use support::certificate;

use running::{Running, in_bubble, start};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

impl Running {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
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

/// Configurations of a server, and of a client that trusts the server.
fn configs() -> (ServerConfig, ClientConfig) {
    configs_of("localhost")
}

/// The same with another certificate of the tests.
fn configs_of(name: &str) -> (ServerConfig, ClientConfig) {
    let [cert, key] = certificate(name);
    let server = load_key_pair(&cert, key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(cert).unwrap()).unwrap();
    (server, ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// A client that connects to `addr`, whatever the host.
fn client_to(addr: SocketAddr) -> Client {
    Client::new().dial(move |_| sudog::net::TcpStream::connect(addr))
}
