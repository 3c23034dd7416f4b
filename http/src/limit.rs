//! `before`: a future that another future, such as a time limit, ends.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Returns the result of `future`. None: `end` has been ready before. Without an `end` there is no limit.
pub(crate) async fn before<T>(mut end: Option<impl Future + Unpin>, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
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
