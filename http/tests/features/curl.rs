//! A real client: curl, if the machine has curl. Otherwise nothing is tested, and a line says so.

use std::process::Command;

use sudog::http::Server;

use super::{configs, echo, start};

/// Runs curl. None: there is no curl.
fn curl(args: &[&str]) -> Option<String> {
    let output = match Command::new("curl").args(["--silent", "--show-error", "--max-time", "60"]).args(args).output() {
        Err(error) => {
            println!("not tested, as curl does not run: {error}");
            return None;
        }
        Ok(output) => output,
    };
    assert!(output.status.success(), "curl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn requests() {
    let Some(version) = curl(&["--version"]) else { return };
    let plain = start(Server::new(echo).unencrypted_http2(true));
    let url = plain.url("/path");
    assert_eq!(curl(&[&url]).unwrap(), "HTTP/1.1 GET /path ");
    assert_eq!(curl(&["--http1.0", &url]).unwrap(), "HTTP/1.0 GET /path ");
    // Two requests over a connection; a body in chunks; a body for which curl waits for "100 Continue".
    assert_eq!(curl(&[&url, &url]).unwrap(), "HTTP/1.1 GET /path HTTP/1.1 GET /path ");
    let chunked = ["-H", "Transfer-Encoding: chunked", "--data", "hello", &url];
    assert_eq!(curl(&chunked).unwrap(), "HTTP/1.1 POST /path hello");
    let large = "x".repeat(100_000);
    let expects = ["-H", "Expect: 100-continue", "--data", &large, &url];
    assert_eq!(curl(&expects).unwrap().len(), "HTTP/1.1 POST /path ".len() + large.len());
    assert!(curl(&["--head", &url]).unwrap().starts_with("HTTP/1.1 200 OK\r\n"));

    let secure = start(Server::new(echo).tls(configs().0));
    let url = format!("https://{}/path", secure.addr);
    assert_eq!(curl(&["--insecure", "--http1.1", &url]).unwrap(), "HTTP/1.1 GET /path ");
    if version.contains("HTTP2") {
        assert_eq!(curl(&["--insecure", "--http2", &url]).unwrap(), "HTTP/2.0 GET /path ");
        assert_eq!(curl(&["--insecure", "--http2", "--data", &large, &url]).unwrap().len(), 20 + large.len());
        assert_eq!(curl(&["--http2-prior-knowledge", &plain.url("/path")]).unwrap(), "HTTP/2.0 GET /path ");
    }
}
