//! Channels with counted ends, as in `std`: dropping the last [`Sender`] or the last [`Receiver`] closes the channel.
//!
//! | dropped | effect |
//! |---|---|
//! | the last [`Sender`] | the channel is closed: receivers get the values that are left, then an error |
//! | the last [`Receiver`] | the channel is closed: all sends, also those that wait, fail and return their values; the values that are left in the channel are dropped |
//!
//! The counts order the close after every use of an end: all that a thread does before it drops its end happens before
//! the close. Each drop decrements the count with Release, and the last drop also with Acquire. A clone is made from an
//! existing end, so the count is not 0, and the increment orders nothing.

use std::fmt;
use std::sync::Arc;

use super::core::Core;
use super::error::{RecvError, RecvLimitedError, SendError, SendLimitedError, TryRecvError, TrySendError};
use super::future::{RecvFuture, SendFuture};
use super::iter::{IntoIter, Iter, TryIter};
use super::limited::{self, Unsent};
use super::permit::{Permit, ReserveFuture};
use super::raw::Dir;
use super::recv::NotReceived;
use super::send::NotSent;
use crate::panics::Panics;
use crate::sema::IntoLimit;
use crate::shim::{AtomicUsize, Ordering};

/// Makes a channel with counted ends. The channel keeps up to `capacity` values for later receivers. If `capacity` is
/// 0, a send waits until a receiver takes its value.
///
/// # Panics
///
/// Panics with `makechan: size out of range` if `capacity` is too large, or there is not enough memory.
///
/// # Examples
///
/// ```
/// use std::thread;
/// use sudog::chan::channel;
///
/// let (tx, rx) = channel(4);
/// for n in 0..3 {
///     let tx = tx.clone();
///     thread::spawn(move || tx.send(n).unwrap());
/// }
/// drop(tx); // else the loop below would wait for more
/// assert_eq!(rx.iter().sum::<i32>(), 3);
/// ```
#[track_caller]
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let core = Arc::new(Core::new(capacity));
    (Sender(core.clone()), Receiver(core))
}

/// Makes a channel with counted ends and without a bound: the channel keeps all values that have not been received, and
/// no send waits. Senders that are faster than the receivers fill the memory, which nothing bounds: use [`channel`] if the
/// senders can wait. A global allocator must not use such a channel, which may allocate under its own lock.
///
/// The memory of values that have been received is freed, apart from room for 64 values, and 16 to 32 bytes for each 32 of
/// the most values that the channel has had. The [`capacity`](Sender::capacity) is the most that the channel can count:
/// 2<sup>58</sup> - 1, or 2<sup>26</sup> - 1 on a system of 32 bits.
///
/// # Examples
///
/// ```
/// use sudog::chan::{TryRecvError, select, unbounded};
///
/// let (tx, rx) = unbounded();
/// (0..1000).for_each(|n| tx.send(n).unwrap()); // waits for no receiver
/// select! {
///     send(tx, 1000) -> sent => sent.unwrap(),
///     default => unreachable!("a send is always ready"),
/// }
/// drop(tx);
/// assert_eq!(rx.iter().sum::<i32>(), 500_500);
/// assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
/// ```
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let core = Arc::new(Core::unbounded());
    (Sender(core.clone()), Receiver(core))
}

/// The sending end of a [`channel`] or of an [`unbounded`] channel. When the last clone is dropped, the channel is closed.
pub struct Sender<T>(Arc<Core<T>>);

/// The receiving end of a [`channel`] or of an [`unbounded`] channel. Each value goes to a single receiver. When the last
/// clone is dropped, the channel is closed.
pub struct Receiver<T>(Arc<Core<T>>);

impl<T> Sender<T> {
    #[inline]
    pub(super) fn shared(&self) -> &Core<T> {
        &self.0
    }

    /// Sends a value. Waits until there is room for the value, or until a receiver takes the value.
    ///
    /// A goroutine that has run for long gives way here, before the send.
    ///
    /// # Errors
    ///
    /// The channel is closed, or no receiver is left; this may happen while the send waits. The error contains the
    /// value.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value, SendError)
    }

    /// Sends a value, if that is possible without waiting.
    ///
    /// # Errors
    ///
    /// The error tells why the value was not sent, and contains the value.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(value, |why, value| match why {
            NotSent::Closed => TrySendError::Closed(value),
            NotSent::Full | NotSent::TimedOut => TrySendError::Full(value),
        })
    }

    /// Sends as [`send`](Self::send) does, but gives up at a limit: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The error tells why the value was not sent, and contains the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::chan::{SendLimitedError, channel};
    ///
    /// let (tx, rx) = channel(1);
    /// assert_eq!(tx.send_limited(1, Duration::from_millis(1)), Ok(()));
    /// assert!(matches!(tx.send_limited(2, Duration::from_millis(1)), Err(SendLimitedError::GaveUp(_))));
    /// drop(rx);
    /// assert_eq!(tx.send_limited(2, Duration::from_millis(1)), Err(SendLimitedError::Closed(2)));
    /// ```
    pub fn send_limited<L: IntoLimit>(&self, value: T, limit: L) -> Result<(), SendLimitedError<T, L::Error>> {
        limited::send(Some(&self.0), value, limit).map_err(|error| match error {
            Unsent::Closed(value) => SendLimitedError::Closed(value),
            Unsent::GaveUp(error) => SendLimitedError::GaveUp(error),
        })
    }

    /// Returns a future that sends as [`send`](Self::send) does, for async tasks. If the channel has a buffer, a future
    /// that is dropped before it is ready has sent nothing. If not, a receiver may have taken the value: see
    /// [`SendFuture`].
    pub fn send_async(&self, value: T) -> SendFuture<'_, Self> {
        SendFuture::new(self, value)
    }

    /// Returns a future that reserves a place for a value, for async tasks. The future returns a [`Permit`], whose
    /// [`send`](Permit::send) does not wait. So a task that gives up before it has the permit has sent nothing, and
    /// still has its value. The counterpart of tokio's `reserve`.
    ///
    /// In a channel with a buffer, a place is a slot that no other sender fills. A channel without a buffer has a
    /// single place: if no receiver waits, a value that is sent by a permit stays in that place until a receiver takes
    /// the value. So when the permit's `send` returns, the value may not have been received yet.
    ///
    /// If the channel is closed, the future returns a permit whose `send` fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use std::time::Duration;
    /// use sudog::chan::{channel, select_async};
    /// use sudog::{run, spawn_async};
    ///
    /// let received = run(|| {
    ///     let (tx, rx) = channel(1);
    ///     let task = spawn_async(async move {
    ///         for n in 0..3 {
    ///             // Gives up and tries again, and yet sends each number once.
    ///             loop {
    ///                 select_async! {
    ///                     future(tx.reserve_async()) -> permit => { permit.send(n).unwrap(); break },
    ///                     default(Duration::from_micros(1)) => {},
    ///                 }
    ///             }
    ///         }
    ///     });
    ///     let received: Vec<_> = rx.iter().collect();
    ///     task.join().unwrap();
    ///     received
    /// });
    /// assert_eq!(received, [0, 1, 2]);
    /// # }
    /// ```
    pub fn reserve_async(&self) -> ReserveFuture<'_, Self> {
        ReserveFuture::new(self)
    }

    /// Reserves a place, if there is a free place now: see [`reserve_async`](Self::reserve_async).
    pub fn try_reserve(&self) -> Option<Permit<'_, Self>> {
        Permit::try_new(self)
    }
}

impl<T> Receiver<T> {
    #[inline]
    pub(super) fn shared(&self) -> &Core<T> {
        &self.0
    }

    /// Receives a value. Waits until there is a value.
    ///
    /// A goroutine that has run for long gives way here, before the receive.
    ///
    /// # Errors
    ///
    /// All values have been received, and the channel is closed or no sender is left.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.recv(|| RecvError)
    }

    /// Receives a value, if the channel has a value, or a sender waits with a value.
    ///
    /// # Errors
    ///
    /// The error tells why there is no value.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv(|why| match why {
            NotReceived::Closed => TryRecvError::Closed,
            NotReceived::Empty | NotReceived::TimedOut => TryRecvError::Empty,
        })
    }

    /// Receives as [`recv`](Self::recv) does, but gives up at a limit: see [`IntoLimit`].
    ///
    /// # Errors
    ///
    /// The error tells why there is no value. The call has taken no value.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::WaitError;
    /// use sudog::chan::{RecvLimitedError, channel};
    ///
    /// let (tx, rx) = channel::<u32>(0);
    /// let late = rx.recv_limited(Duration::from_millis(1));
    /// assert_eq!(late, Err(RecvLimitedError::GaveUp(WaitError::TimedOut)));
    /// drop(tx);
    /// assert_eq!(rx.recv_limited(Duration::from_millis(1)), Err(RecvLimitedError::Closed));
    /// ```
    pub fn recv_limited<L: IntoLimit>(&self, limit: L) -> Result<T, RecvLimitedError<L::Error>> {
        match limited::recv(Some(&self.0), limit) {
            Ok(received) => received.ok_or(RecvLimitedError::Closed),
            Err(why) => Err(RecvLimitedError::GaveUp(why)),
        }
    }

    /// Returns a future that receives as [`recv`](Self::recv) does, for async tasks. A future that is dropped before it
    /// is ready has received nothing: if a sender has just given a value to the future, that value goes to another
    /// receiver, even if the channel has been closed meanwhile.
    pub fn recv_async(&self) -> RecvFuture<'_, Self> {
        RecvFuture::new(self)
    }

    /// Returns an iterator that receives until no values are left, and the channel is closed or no sender is left.
    pub fn iter(&self) -> Iter<'_, Self> {
        Iter(self)
    }

    /// Returns an iterator that receives values, and ends when a receive would have to wait.
    pub fn try_iter(&self) -> TryIter<'_, Self> {
        TryIter(self)
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, Receiver<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<Self>;

    fn into_iter(self) -> Self::IntoIter {
        IntoIter(self)
    }
}

macro_rules! end {
    ($End:ident, $count:ident) => {
        impl<T> $End<T> {
            /// Closes the channel. All sends fail from then on, also those that wait now; receivers still get the
            /// values that are left. Returns false if the channel was closed already.
            pub fn close(&self) -> bool {
                let closes = self.0.close();
                crate::goroutine::safepoint();
                closes
            }

            /// Returns the number of values in the channel. The number can exceed the capacity for two reasons: a
            /// future that is dropped gives back the value that a sender has given to it; and a permit of a channel
            /// without capacity leaves its value in the channel. A value that has been given to a task counts only if
            /// the task gives the value back.
            #[must_use]
            pub fn len(&self) -> usize {
                self.0.raw.look().len()
            }

            /// Returns the number of values that the channel can keep.
            #[must_use]
            pub fn capacity(&self) -> usize {
                self.0.raw.capacity()
            }

            /// Returns whether no value is in the channel. A channel without capacity is always empty, apart from the
            /// exceptions that [`len`](Self::len) names.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns whether the channel has no room for another value. A channel without capacity is always full.
            #[must_use]
            pub fn is_full(&self) -> bool {
                self.len() >= self.capacity()
            }

            /// Returns the number of waiting calls that send a value or reserve a place. A select counts once for each
            /// such case. For tests and diagnostics: the answer may be outdated when it is returned.
            #[must_use]
            pub fn waiting_senders(&self) -> usize {
                self.0.raw.waiting(Dir::Send) + self.0.raw.waiting(Dir::Reserve)
            }

            /// Returns the number of waiting calls that receive. A select counts once for each such case. For tests and
            /// diagnostics: the answer may be outdated when it is returned.
            #[must_use]
            pub fn waiting_receivers(&self) -> usize {
                self.0.raw.waiting(Dir::Recv)
            }

            /// Returns whether the channel is closed: by [`close`](Self::close), or because the last sender or the last
            /// receiver was dropped. For tests and diagnostics: the answer may be outdated when it is returned.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.0.raw.look().is_closed()
            }

            /// Returns whether `self` and `other` are ends of the same channel.
            #[must_use]
            pub fn same_channel(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0)
            }
        }

        impl<T> Clone for $End<T> {
            fn clone(&self) -> Self {
                // Use Relaxed: see the head of this file. The count cannot overflow: each end is also counted by its
                // `Arc`, which aborts earlier.
                self.0.$count.fetch_add(1, Ordering::Relaxed);
                Self(self.0.clone())
            }
        }

        impl<T> fmt::Debug for $End<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut debug = f.debug_struct(stringify!($End));
                self.0.describe(&mut debug);
                debug.finish_non_exhaustive()
            }
        }
    };
}

end!(Sender, send_ends);
end!(Receiver, recv_ends);

/// Decrements the count of ends, and returns whether this end was the last.
fn is_last(ends: &AtomicUsize) -> bool {
    ends.fetch_sub(1, Ordering::AcqRel) == 1
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if is_last(&self.0.send_ends) {
            self.0.close();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if is_last(&self.0.recv_ends) {
            let mut panics = Panics::default();
            panics.catch(|| _ = self.0.close());
            panics.catch(|| self.0.discard());
            panics.resume();
        }
    }
}
