//! Servers that run while a test does. The tests of `http.rs` use this file, too.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use sudog::context::background;
use sudog::http::Server;
use sudog::net::{PipeDialer, PipeListener, TcpListener};
use sudog::{spawn, synctest};
use support::{Watchdog, eventually};

/// A server that runs, with the lines that it has logged. The end of the test shuts the server down.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) addr: SocketAddr,
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
    serving: Option<sudog::JoinHandle<io::Result<()>>>,
    _watchdog: Watchdog,
}

/// A listener at a loopback address of its own: no other test, nor another process, takes its port when it is closed.
pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    static LISTENERS: AtomicU32 = AtomicU32::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let last = u8::try_from(LISTENERS.fetch_add(1, SeqCst)).unwrap();
    let listener = TcpListener::bind(SocketAddr::from(([127, high, low, last], 0))).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

pub(crate) fn start(server: Server) -> Running {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let server = server.error_log(move |line| log.lock().unwrap().push(line.to_owned()));
    let (listener, addr) = listen();
    let accepting = server.clone();
    let serving = Some(spawn(move || accepting.serve(listener)));
    Running { server, addr, lines, serving, _watchdog: Watchdog::new() }
}

impl Running {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.server.close();
            self.server.shutdown(&background()).unwrap();
            self.serving.take().unwrap().join().unwrap().unwrap();
            // The listener is closed. But a child process that another test has forked has the listener, until the child
            // executes its program.
            eventually(|| TcpStream::connect(self.addr).is_err());
        }
    }
}

/// Runs a test of a server on connections in memory, in a bubble. Go: `httptest.NewTestServer` in `synctest.Test`.
pub(crate) fn in_bubble(
    server: impl FnOnce() -> Server + Send + 'static,
    test: impl FnOnce(&Server, &PipeDialer) + Send + 'static,
) {
    let _watchdog = Watchdog::new();
    synctest::test(move || {
        let (server, listener) = (server(), PipeListener::new());
        let (accepting, dialer) = (server.clone(), listener.dialer());
        let serving = spawn(move || accepting.serve(listener));
        test(&server, &dialer);
        server.shutdown(&background()).unwrap();
        serving.join().unwrap().unwrap();
        assert_eq!(dialer.dial().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}
