//! `rustls` over the streams of this crate: a server with a certificate, and clients that trust the certificate.
//!
//! `cargo run -p sudog-net --example tls`
#![cfg(target_os = "linux")]

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use sudog::net::{TcpListener, TcpStream};
use sudog::prelude::*;

/// The certificate of the tests, for `localhost`.
const CERT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/support/certificates/localhost.pem");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/support/certificates/localhost.key");

fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let certificate = CertificateDer::from_pem_file(CERT).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(KEY).expect("a key");
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.clone()], key).expect("a key for this certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

fn main() -> io::Result<()> {
    let (server, client) = configs();
    sudog::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        go!(for stream in listener.incoming() {
            let connection = ServerConnection::new(server.clone()).expect("a connection");
            let stream = stream.expect("a connection");
            go!({
                let mut stream = StreamOwned::new(connection, stream);
                let mut buf = [0; 1024];
                while let Ok(n) = stream.read(&mut buf)
                    && n > 0
                {
                    stream.write_all(&buf[..n]).expect("written");
                }
            });
        });
        let clients: Vec<_> = (0..10)
            .map(|n| {
                let client = client.clone();
                spawn(move || {
                    let name = ServerName::try_from("localhost").expect("a name");
                    let connection = ClientConnection::new(client, name).expect("a connection");
                    let mut stream = StreamOwned::new(connection, TcpStream::connect(addr)?);
                    let sent = format!("a secret of client {n}");
                    stream.write_all(sent.as_bytes())?;
                    let mut echo = vec![0; sent.len()];
                    stream.read_exact(&mut echo)?;
                    Ok::<_, io::Error>(echo == sent.as_bytes())
                })
            })
            .collect();
        for client in clients {
            assert!(client.join().expect("no panic")?);
        }
        println!("ten secrets");
        Ok(())
    })
}
