//! HTTP, over `hyper`: Go's package `net/http`. A server whose handlers run on goroutines, and a client.
//!
//! Each connection is a task, which runs hyper. Each request is a goroutine, which runs the handler: the handler may
//! block, sleep, lock, select.
//!
//! | Go | here |
//! |---|---|
//! | `http.Serve(l, handler)` | [`serve`]`(listener, handler)`: see [`Listener`] |
//! | `http.Server{..}`, `srv.Serve(l)` | [`Server::new`]`(handler)`, with methods that set limits; [`Server::serve`] |
//! | `http.HandlerFunc` | a closure of type `Fn(Request) -> impl IntoResponse`: see [`Handler`] |
//! | `r.Context()` | [`Request::context`] |
//! | `r.Body` | [`Request::body_mut`](hyper::Request::body_mut), which is `Read` and `BufRead` |
//! | `fmt.Fprintf(w, ..)` | a [`Response`], or any other [`IntoResponse`]; [`Body::stream`] for a `Write` |
//! | `http.Error(w, text, code)` | `(StatusCode::NOT_FOUND, "text")` |
//! | `http.MaxBytesHandler` | [`Server::max_body_bytes`], 10 MiB unless set |
//! | `ReadHeaderTimeout`, `IdleTimeout`, `MaxHeaderBytes` | methods of [`Server`]: 10 s, 120 s, 64 KiB unless set |
//! | `ReadTimeout`, `WriteTimeout` | [`Server::body_timeout`], [`Server::write_timeout`]: bounds of a pause, not of the whole |
//! | `ResponseController.SetReadDeadline` | [`RequestBody::set_deadline`]: a bound of the whole body |
//! | `netutil.LimitListener` | [`Server::max_connections`] |
//! | `srv.Shutdown(ctx)`, `srv.Close()` | [`Server::shutdown`], [`Server::close`] |
//! | `srv.ErrorLog` | [`Server::error_log`] |
//! | `panic(http.ErrAbortHandler)` | `sudog::runtime::goexit()` |
//! | `net/http/pprof` | [`debug::handle`] |
//! | `http.Client`, `Get`, `Post`, `Do` (feature `http-client`) | `Client`, with methods that set limits; `get`, `post`, `send` |
//! | `http.NewRequestWithContext` | `Client::send_limited` |
//! | `srv.TLSConfig`, `ServeTLS`; `tls.LoadX509KeyPair` (feature `http-tls`) | `Server::tls`, and [`Server::serve`]; `load_key_pair` |
//! | HTTP/2 (feature `http2`) | spoken if TLS has negotiated HTTP/2, or by `Server::unencrypted_http2` |
//! | `http.ServeMux` | a `match` over method and path, the crate `matchit`, or a router of axum by `tower` (feature `http-tower`) |
//! | `httptest.NewRequest`, `httptest.NewTestServer` | [`Request::new`]; a server on a `sudog::net::PipeListener` |
//!
//! A request is not upgraded (WebSocket): use hyper itself with the feature `hyper`.
//!
//! # Examples
//!
//! ```
//! use std::io::{Read, Write};
//! use sudog::context::background;
//! use sudog::http::{Request, Server};
//! use sudog::net::{TcpListener, TcpStream};
//! use sudog::{go, run};
//!
//! run(|| {
//!     let server = Server::new(|req: Request| format!("Hello, {}!", req.uri().path().trim_start_matches('/')));
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let addr = listener.local_addr()?;
//!     go!(clone server; server.serve(listener).unwrap());
//!
//!     let mut client = TcpStream::connect(addr)?;
//!     client.write_all(b"GET /gopher HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")?;
//!     let mut answer = String::new();
//!     client.read_to_string(&mut answer)?;
//!     assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
//!     assert!(answer.ends_with("\r\n\r\nHello, gopher!"));
//!
//!     server.shutdown(&background()).unwrap();
//!     Ok::<_, std::io::Error>(())
//! })
//! # .unwrap();
//! ```
#![cfg(all(target_os = "linux", not(any(sudog_loom, sudog_sim))))]
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
mod client;
mod connection;
pub mod debug;
mod exchange;
#[cfg(feature = "http2")]
mod http2;
mod limit;
mod listener;
#[cfg(any(feature = "client", feature = "tls"))]
mod raw;
mod request;
mod response;
mod server;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tower")]
mod tower;

#[doc(no_inline)]
pub use hyper::body::Bytes;
#[doc(no_inline)]
pub use hyper::{HeaderMap, Method, StatusCode, Uri, Version, header};

#[cfg(feature = "client")]
pub use client::{Client, ResponseBody};
pub use exchange::Handler;
pub use listener::Listener;
pub use request::{Request, RequestBody};
pub use response::{Body, BodyWriter, IntoResponse, Response};
#[cfg(feature = "tls")]
#[doc(no_inline)]
pub use rustls;
pub use server::{Server, serve};
#[cfg(feature = "tls")]
pub use tls::load_key_pair;
#[cfg(feature = "tower")]
pub use tower::tower;
