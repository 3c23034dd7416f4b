//! Channels and select: Go's, and channels with counted ends as Rust has them.
//!
//! | Go | here |
//! |---|---|
//! | `make(chan T, n)` | [`Chan::new`]`(n)`; or [`channel`]`(n)`: a [`Sender`] and a [`Receiver`] |
//! | (none) | [`unbounded`]`()`: the same ends, and sends that never wait |
//! | `ch <- v` | [`ch.send(v)`](Chan::send) |
//! | `v, ok := <-ch` | [`ch.recv()`](Chan::recv): `Some(v)`, or `None` once the channel is closed and has no values left |
//! | `close(ch)`, `len(ch)`, `cap(ch)` | [`ch.close()`](Chan::close), [`ch.len()`](Chan::len), [`ch.capacity()`](Chan::capacity) |
//! | `for v := range ch` | `for v in &ch` |
//! | `chan<- T`, `<-chan T` | [`SendOnly`], [`RecvOnly`] |
//! | `nil` | [`Chan::nil`]; in a select also `None` |
//! | `select { case v := <-a: ..; case b <- w: ..; default: .. }` | [`select!`]`{ recv(a) -> v => .., send(b, w) => .., default => .. }` |
//! | `case <-time.After(d):` | `recv(time::after(d)) => ..`, and any other [`Timer`](crate::goroutine::Timer) or [`Ticker`](crate::goroutine::Ticker); or `default(d) => ..` |
//! | `reflect.Select` | [`Select`] |
//!
//! [`Chan`] and the counted ends ([`Sender`], [`Receiver`]) use the same channel inside. They differ in two points. A
//! `Chan` is closed only by a call of `close`, a counted channel also when the last sender or receiver is dropped. A
//! send on a closed channel panics with a `Chan`, and returns the value with a `Sender`.
//!
//! Threads, goroutines and async tasks wait in the same queues, first come, first served; no waiter allocates to wait.
//! Each blocking call exists also with the prefix `try_`, and with the suffixes `_limited` (for any
//! [`IntoLimit`](crate::sema::IntoLimit)) and `_async`. Each value is received, or returned to its sender, or dropped,
//! exactly once. This holds also if a wait gives up at its limit, or if a future is dropped.
//!
//! # Happens-before relations
//!
//! As in Go's memory model:
//!
//! * A send happens before the receive of its value returns.
//! * A close happens before a receive that returns because of the close.
//! * In a channel without capacity, a receive happens before the send of its value returns.
//! * In a channel with capacity C, the k-th receive happens before the k+C-th send returns.
//!
//! Design, protocol and orderings: `docs/channels.md`. Source: Go's `runtime/chan.go` and `runtime/select.go`, 1.27.

mod buffer;
mod close;
mod core;
mod ends;
mod error;
mod future;
mod go_chan;
mod iter;
mod limited;
mod permit;
mod port;
mod raw;
mod recv;
mod segments;
mod select;
mod send;
mod state;
#[cfg(all(unix, not(sudog_loom)))]
mod timer;
mod value;
mod waiters;

pub use ends::{Receiver, Sender, channel, unbounded};
pub use error::{GaveUp, RecvError, RecvLimitedError, SendError, SendLimitedError, TryRecvError, TrySendError};
#[cfg(feature = "stream")]
pub use future::RecvStream;
pub use future::{RecvFuture, SendFuture};
#[doc(hidden)]
pub use go_chan::WeakChan;
pub use go_chan::{Chan, RecvOnly, SendOnly};
pub use iter::{IntoIter, Iter, TryIter};
pub use permit::{Permit, ReserveFuture};
pub use port::{RecvArm, RecvPort, SendPort};
#[cfg(all(unix, not(sudog_loom)))]
pub use select::SelectUntil;
pub use select::{MAX_CASES, Select, SelectFuture};

pub use crate::{select, select_async};

#[cfg(all(unix, not(sudog_loom)))]
pub(crate) use select::timed::recv as recv_time;
pub(crate) use waiters::Claim;

/// The items that the expansions of `select!` and `select_async!` use.
#[doc(hidden)]
pub mod macros {
    use std::time::Duration;

    pub use super::port::RecvArm;
    pub use super::select::case::{CaseList, Either, FutureCase, RecvCase, SendCase, SendFromCase};
    pub use super::select::{Cases, Static, StaticCases};
    use crate::Instant;
    use crate::goroutine::now;

    /// The types that `default(limit)` of `select_async!` accepts.
    pub trait IntoDeadline {
        fn into_deadline(self) -> Option<Instant>;
    }

    impl IntoDeadline for Duration {
        fn into_deadline(self) -> Option<Instant> {
            now().checked_add(self)
        }
    }

    impl IntoDeadline for Instant {
        fn into_deadline(self) -> Option<Instant> {
            Some(self)
        }
    }
}
