//! A service over TLS and HTTP/2, with a router, and a client: the same as a Go program.
//!
//! ```go
//! mux := http.NewServeMux()
//! mux.HandleFunc("GET /users/{id}", func(w http.ResponseWriter, r *http.Request) {
//!     fmt.Fprintf(w, "user %s, over %s", r.PathValue("id"), r.Proto)
//! })
//! srv := &http.Server{Handler: mux, TLSConfig: config}
//! go srv.ServeTLS(listener, "", "")
//!
//! client := &http.Client{Timeout: 10 * time.Second, Transport: transport}
//! resp, err := client.Get(url + "/users/7")
//! text, err := io.ReadAll(resp.Body)
//!
//! srv.Shutdown(ctx)
//! ```
//!
//! `cargo run -p sudog-http --example service`
#![cfg(target_os = "linux")]

use std::error::Error;
use std::io;
use std::time::Duration;

use sudog::http::rustls::pki_types::CertificateDer;
use sudog::http::rustls::pki_types::pem::PemObject;
use sudog::http::rustls::{ClientConfig, RootCertStore};
use sudog::http::{self, Client, IntoResponse, Method, Request, Response, Server, StatusCode};
use sudog::net::{TcpListener, TcpStream};
use sudog::prelude::*;

type BoxError = Box<dyn Error + Send + Sync>;

/// Go's `mux.HandleFunc`, by the crate `matchit`: paths lead to functions.
fn mux() -> io::Result<impl http::Handler> {
    type Handle = fn(&Request, &str) -> Response;
    let user: Handle = |r, id| format!("user {id}, over {:?}", r.version()).into_response();
    let mut mux = matchit::Router::new();
    mux.insert("/users/{id}", user).map_err(io::Error::other)?;
    Ok(move |r: Request| match mux.at(r.uri().path()) {
        Ok(found) if r.method() == Method::GET => (found.value)(&r, found.params.get("id").unwrap_or_default()),
        Ok(_) => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    })
}

/// The certificate of the tests, for `localhost`.
const CERT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/support/certificates/localhost.pem");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/support/certificates/localhost.key");

/// The configuration of a client that trusts the certificate.
fn trusting() -> Result<ClientConfig, BoxError> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(CERT)?)?;
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

fn main() -> Result<(), BoxError> {
    run(|| {
        let srv = Server::new(mux()?).tls(http::load_key_pair(CERT, KEY)?);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        go!(clone srv; srv.serve(listener).expect("served"));

        let client = Client::new().timeout(Duration::from_secs(10)).tls(trusting()?);
        let client = client.dial(move |_| TcpStream::connect(addr));
        let resp = client.get("https://localhost/users/7")?;
        assert_eq!(resp.status(), StatusCode::OK);
        let text = io::read_to_string(resp.into_body())?;
        println!("{text}");
        assert_eq!(text, "user 7, over HTTP/2.0");
        assert_eq!(client.get("https://localhost/nowhere")?.status(), StatusCode::NOT_FOUND);

        let (ctx, cancel) = context::with_timeout(&context::background(), Duration::from_secs(5));
        let _cancel = cancel.on_drop();
        Ok(srv.shutdown(&ctx)?)
    })
}
