//! `Server`: the settings, the loop that accepts, and the two ways to stop.

use std::any::Any;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sudog_runtime::goroutine::{Builder, OnPanic, go_async};
use sudog_runtime::panics::drop_payload;
use sudog_sync::WaitGroup;
use sudog_sync::context::{self, CancelFunc, Context};
use sudog_sync::x::Weighted;

use crate::connection;
use crate::exchange::Handler;
use crate::listener::Listener;

/// Serves the connections of a listener, with the settings of [`Server::new`]. Does not return before the listener
/// fails. Go's `http.Serve`.
///
/// # Errors
///
/// The listener's error.
pub fn serve(listener: impl Listener, handler: impl Handler) -> io::Result<()> {
    Server::new(handler).serve(listener)
}

/// An HTTP server. Go's `http.Server`.
///
/// A clone is a handle of the same server: [`shutdown`](Self::shutdown) and [`close`](Self::close) end all listeners and
/// connections of all clones. A setting holds for later calls of [`serve`](Self::serve) on the same value.
#[derive(Clone)]
pub struct Server {
    pub(crate) settings: Settings,
    pub(crate) shared: Arc<Shared>,
}

type Log = dyn Fn(&str) + Send + Sync;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) header_timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) body_timeout: Option<Duration>,
    pub(crate) write_timeout: Option<Duration>,
    pub(crate) max_header_bytes: usize,
    pub(crate) max_body_bytes: u64,
    /// The semaphore whose tokens are the connections, if their number is limited.
    places: Option<Arc<Weighted>>,
    error_log: Arc<Log>,
    #[cfg(feature = "http2")]
    pub(crate) unencrypted_http2: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
}

/// The state that all handles and all connections of a server share.
pub(crate) struct Shared {
    pub(crate) handler: Box<dyn Handler>,
    /// The context that ends by `close`. All contexts of requests derive from this context.
    pub(crate) base: Context,
    cut: CancelFunc,
    /// The context that ends by `shutdown`, and, as a child of `base`, by `close`.
    pub(crate) open: Context,
    stop: CancelFunc,
    /// True once no listener may join `users` any more.
    stopped: Mutex<bool>,
    /// Counts listeners and connections. A connection joins only while its listener is counted, so a wait that
    /// begins after `stopped` is set never meets a count that rises from 0.
    users: WaitGroup,
}

macro_rules! timeouts {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, timeout: impl Into<Option<Duration>>) -> Self {
            self.settings.$name = timeout.into();
            self
        }
    )+};
}

impl Server {
    /// Creates a server with these settings: 10 seconds for a request's header, 120 seconds for an idle connection, 60
    /// seconds for a pause in the reading of a body or in the writing of a response; 64 KiB for a header, 10 MiB for a
    /// body; any number of connections; errors go to standard error.
    pub fn new(handler: impl Handler) -> Self {
        let (base, cut) = context::with_cancel(&context::background());
        let (open, stop) = context::with_cancel(&base);
        let (stopped, users) = (Mutex::new(false), WaitGroup::new());
        Self {
            settings: Settings {
                header_timeout: Some(Duration::from_secs(10)),
                idle_timeout: Some(Duration::from_secs(120)),
                body_timeout: Some(Duration::from_secs(60)),
                write_timeout: Some(Duration::from_secs(60)),
                max_header_bytes: 64 << 10,
                max_body_bytes: 10 << 20,
                places: None,
                error_log: Arc::new(|line| eprintln!("{line}")),
                #[cfg(feature = "http2")]
                unencrypted_http2: false,
                #[cfg(feature = "tls")]
                tls: None,
            },
            shared: Arc::new(Shared { handler: Box::new(handler), base, cut, open, stop, stopped, users }),
        }
    }

    timeouts! {
        /// Sets the time in which a client must send a request's header: from the connection's beginning, or from the
        /// first byte of a later request. After that time the connection is closed. Go's `ReadHeaderTimeout`.
        header_timeout;
        /// Sets the time after which a connection is closed on which no further request begins. Go's `IdleTimeout`.
        idle_timeout;
        /// Sets the longest wait for the next bytes of a request's body. After that time the handler's read fails with
        /// `TimedOut`. A body that arrives slowly but steadily has no limit but a
        /// [deadline](crate::RequestBody::set_deadline) that the handler sets.
        body_timeout;
        /// Sets the longest wait for a client to take the next bytes of a response. After that time the connection is
        /// closed.
        write_timeout;
    }

    /// Sets the largest size of a request's header. A larger header is answered with status 431. Go's `MaxHeaderBytes`.
    /// (A header of more than 100 lines is answered with 431, too.)
    #[must_use]
    pub fn max_header_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_header_bytes = bytes;
        self
    }

    /// Sets the largest size of a request's body. If a request announces a larger body, the server answers with status
    /// 413 and calls no handler. If a body turns out to be larger, the handler's read fails, and that error is
    /// [a response](crate::IntoResponse) of status 413. Go's `MaxBytesHandler`.
    #[must_use]
    pub fn max_body_bytes(mut self, bytes: u64) -> Self {
        self.settings.max_body_bytes = bytes;
        self
    }

    /// Limits the number of connections. While there are `n` connections, further ones wait in the system's queue. A
    /// connection counts until its handler has ended. Go's `netutil.LimitListener`.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_connections(mut self, n: u32) -> Self {
        assert!(n > 0, "a server needs a connection");
        self.settings.places = Some(Arc::new(Weighted::new(n.into())));
        self
    }

    /// Sets the function that gets a line for each panic of a handler, and for each response that cannot be sent because
    /// of its status or its headers. Go's `ErrorLog`. The function runs in a goroutine.
    #[must_use]
    pub fn error_log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.settings.error_log = Arc::new(log);
        self
    }

    /// Sets whether a client may speak HTTP/2 without TLS, with prior knowledge: without an upgrade. Such a connection is
    /// recognised by its first bytes; all others speak HTTP/1.1. Unless set, a server speaks HTTP/2 only if TLS has
    /// negotiated HTTP/2. Go's `Protocols.SetUnencryptedHTTP2`.
    #[cfg(feature = "http2")]
    #[must_use]
    pub fn unencrypted_http2(mut self, allowed: bool) -> Self {
        self.settings.unencrypted_http2 = allowed;
        self
    }

    /// Makes later calls of [`serve`](Self::serve) on this value expect TLS. A client must finish the handshake within the
    /// [time limit of a header](Self::header_timeout). If the configuration names no protocols for ALPN, the server offers
    /// `http/1.1`, and with the feature `http2` first of all `h2`. A handshake that fails is told to
    /// [`error_log`](Self::error_log). Go's `TLSConfig` with `ServeTLS`.
    ///
    /// [`load_key_pair`](crate::load_key_pair) reads a configuration from files. The hooks of a configuration, such as a
    /// resolver of certificates, run in a task and must not block.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, config: impl Into<Arc<rustls::ServerConfig>>) -> Self {
        self.settings.tls = Some(crate::tls::with_protocols(config.into()));
        self
    }

    /// Accepts connections and serves their requests, until [`shutdown`](Self::shutdown) or [`close`](Self::close). The
    /// listener is closed when this call returns. Several listeners may be served at the same time. Go's
    /// `Server.Serve`.
    ///
    /// # Errors
    ///
    /// The listener's error. After a shutdown or a close the result is `Ok`, also if the call begins afterwards.
    pub fn serve(&self, listener: impl Listener) -> io::Result<()> {
        let server = Arc::new(self.clone());
        let Some(_listening) = User::listener(&server) else { return Ok(()) };
        let listener = listener; // declared after `_listening`, so closed before the listener is subtracted
        let (open, places) = (&server.shared.open, &server.settings.places);
        loop {
            if places.as_ref().is_some_and(|places| places.acquire(open, 1).is_err()) {
                return Ok(());
            }
            let user = User::connection(&server, places.clone());
            match listener.accept(open) {
                Ok((stream, peer)) => go_async(connection::serve(Arc::new(user), stream, peer)),
                Err(_) if open.err().is_some() => return Ok(()),
                // The client has gone already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Stops the server without interrupting requests: closes all listeners, then all idle connections, and waits until
    /// the other connections have answered their current request. Go's `Server.Shutdown`.
    ///
    /// A connection whose first header has begun is waited for, too: up to the
    /// [time limit of a header](Self::header_timeout), and then for the handler. A handler that calls this method waits for
    /// itself: start a goroutine that calls the method.
    ///
    /// A handler that has no end, such as a stream of events, should end when
    /// [`is_shutting_down`](Self::is_shutting_down) returns true.
    ///
    /// # Errors
    ///
    /// Returns the context's error if the context is done before. The server then goes on with its shutdown;
    /// [`close`](Self::close) ends the remaining connections.
    pub fn shutdown(&self, ctx: &Context) -> Result<(), context::Error> {
        self.refuse_listeners();
        self.shared.stop.cancel();
        self.shared.users.wait_limited(ctx)
    }

    /// Stops the server at once: closes all listeners and connections, and ends the contexts of all requests. Does not
    /// wait: call [`shutdown`](Self::shutdown) afterwards to wait for the handlers. Go's `Server.Close`.
    pub fn close(&self) {
        self.refuse_listeners();
        self.caught("closing the server", || self.shared.cut.cancel());
    }

    /// Returns whether [`shutdown`](Self::shutdown) or [`close`](Self::close) has been called.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shared.open.err().is_some()
    }

    fn refuse_listeners(&self) {
        *self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Runs `f`, which runs user code, and reports a panic of `f`. `doing` says what `f` does.
    pub(crate) fn caught<T>(&self, doing: impl fmt::Display, f: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(f)).map_err(|payload| self.report_panic(doing, payload)).ok()
    }

    /// Reports a panic.
    pub(crate) fn report_panic(&self, doing: impl fmt::Display, payload: Box<dyn Any + Send>) {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)");
        self.report(&format!("http: panic {doing}: {text}"));
        drop_payload(payload);
    }

    /// Hands a line to the log, which is user code, too: a panic of the log is dropped.
    pub(crate) fn report(&self, line: &str) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (self.settings.error_log)(line))) {
            drop_payload(payload);
        }
    }
}

/// A listener or a connection, which is counted in `users`. The goroutines of a connection's requests share the
/// connection's user, so that the connection counts until they have ended. The drop subtracts the user.
pub(crate) struct User {
    /// The server. None in the drop only.
    server: Option<Arc<Server>>,
    /// The semaphore of which a connection holds a token.
    place: Option<Arc<Weighted>>,
}

impl User {
    /// Counts a listener, unless the server has been stopped.
    fn listener(server: &Arc<Server>) -> Option<Self> {
        let stopped = server.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        (!*stopped).then(|| Self::connection(server, None))
    }

    /// Counts a connection of a listener that is counted.
    fn connection(server: &Arc<Server>, place: Option<Arc<Weighted>>) -> Self {
        server.shared.users.add(1);
        Self { server: Some(server.clone()), place }
    }
}

impl Deref for User {
    type Target = Arc<Server>;

    fn deref(&self) -> &Arc<Server> {
        self.server.as_ref().expect("only the drop takes the server")
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(places) = &self.place {
            places.release(1);
        }
        self.shared.users.done();
        // If no other handle is left, the drop of the server runs user code: destructors of values that the handler and the
        // log have captured. A goroutine runs them, because a task should not, and because they may panic.
        if let Some(server) = self.server.take().and_then(Arc::into_inner) {
            Builder::new().on_panic(OnPanic::Unwind).go(move || drop(server));
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Server { .. }")
    }
}
