//! `before`: a future that another future, such as a time limit, ends. `Closing`: the time limit of a shutdown.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sudog_runtime::goroutine::{SleepAsync, sleep_async};

/// Returns the result of `future`. None: `end` has been ready before. Without an `end` there is no limit.
#[cfg(any(feature = "client", feature = "http2", feature = "tls"))]
pub(crate) async fn before<T>(mut end: Option<impl Future + Unpin>, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(result) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(result));
        }
        match &mut end {
            Some(end) => Pin::new(end).poll(cx).map(|_| None),
            None => Poll::Pending,
        }
    })
    .await
}

/// The time in which the other end must take the last bytes of a connection, such as TLS's `close_notify`. Go's
/// `tls.Conn.Close` has the same.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// The time limit of a connection's shutdown, which begins when the shutdown first waits.
#[derive(Default)]
pub(crate) struct Closing(Option<SleepAsync>);

impl Closing {
    /// Returns what a poll of the shutdown has returned, or an error after the time limit.
    pub(crate) fn limit(&mut self, cx: &mut Context<'_>, shut: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if shut.is_pending() {
            ready!(Pin::new(self.0.get_or_insert_with(|| sleep_async(SHUTDOWN))).poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        shut
    }
}
