//! Counted ends, as Rust's own channels have them: the channel is closed when the last of one kind is dropped.
//!
//! | the last is dropped | then |
//! |---|---|
//! | [`Sender`] | the channel is closed: receivers get what is left, then an error |
//! | [`Receiver`] | the channel is closed: sends fail, with their values, also those that wait; values that are left are dropped |
//!
//! The count of an end orders what its user did before the drop with the closing: Release as it is counted down, Acquire
//! by the last. A clone is made from an end that is there, so the count is not 0, and its increment orders nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::error::{RecvError, RecvLimitedError, SendError, SendLimitedError, TryRecvError, TrySendError};
use super::future::{RecvFuture, SendFuture};
use super::iter::{IntoIter, Iter, TryIter};
use super::limited::{self, Unreceived, Unsent};
use super::permit::{Permit, ReserveFuture};
use super::raw::Dir;
use super::recv::NotReceived;
use super::send::NotSent;
use crate::Instant;
use crate::panics::Panics;
use crate::sema::WaitLimit;
use crate::shim::{AtomicUsize, Ordering};

/// Makes a channel with counted ends. `capacity` values are kept for receivers to come; with 0, a send waits for its
/// receiver.
///
/// # Panics
///
/// `makechan: size out of range`, if there cannot be so many values.
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

/// The end of a [`channel`] that sends. Clones are counted.
pub struct Sender<T>(Arc<Core<T>>);

/// The end of a [`channel`] that receives. Clones are counted; each value goes to one of them.
pub struct Receiver<T>(Arc<Core<T>>);

impl<T> Sender<T> {
    #[inline]
    pub(super) fn shared(&self) -> &Core<T> {
        &self.0
    }

    /// Sends; waits for room, or for a receiver.
    ///
    /// A goroutine that has run for long gives way here, before.
    ///
    /// # Errors
    ///
    /// The value, if the channel is closed or no receiver is left; also if that comes while the send waits.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value, None, |_, value| SendError(value))
    }

    /// Sends if that need not wait.
    ///
    /// # Errors
    ///
    /// Why not, with the value.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(value, |why, value| match why {
            NotSent::Closed => TrySendError::Closed(value),
            NotSent::Full | NotSent::TimedOut => TrySendError::Full(value),
        })
    }

    /// [`send`](Self::send) that gives up at a limit: a deadline, a [`Cancel`](crate::sema::Cancel), or both.
    ///
    /// # Errors
    ///
    /// Why, with the value.
    pub fn send_limited(&self, value: T, limit: &WaitLimit<'_>) -> Result<(), SendLimitedError<T>> {
        limited::send(Some(&self.0), value, limit).map_err(|error| match error {
            Unsent::Closed(value) => SendLimitedError::Closed(value),
            Unsent::GaveUp(error) => SendLimitedError::GaveUp(error),
        })
    }

    /// [`send`](Self::send) that gives up at a deadline.
    ///
    /// # Errors
    ///
    /// Why, with the value.
    pub fn send_until(&self, value: T, deadline: Instant) -> Result<(), SendLimitedError<T>> {
        self.send_limited(value, &WaitLimit::until(deadline))
    }

    /// [`send`](Self::send) that gives up after a time.
    ///
    /// # Errors
    ///
    /// Why, with the value.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendLimitedError<T>> {
        self.send_limited(value, &limited::within(timeout))
    }

    /// [`send`](Self::send) as a future, for async tasks. A future that is dropped before it was ready has sent nothing, if
    /// the channel has a buffer; without one, its value may have been received: see [`SendFuture`].
    pub fn send_async(&self, value: T) -> SendFuture<'_, Self> {
        SendFuture::new(self, value)
    }

    /// Reserves a place for a value, as a future, for async tasks: a [`Permit`], whose [`send`](Permit::send) does not
    /// wait. So a task that gives up before it has the permit has sent nothing, and still has its value. tokio's `reserve`.
    ///
    /// Of a channel with a buffer, a place is a slot that no other sender fills. A channel without a buffer lends one place
    /// at a time: a value that is sent by a permit then stays there until it is received, if no receiver waits. So unlike
    /// `send`, the permit does not tell that the value has been received.
    ///
    /// A closed channel gives a permit, whose send fails.
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

    /// Reserves a place, if there is one now: see [`reserve_async`](Self::reserve_async).
    pub fn try_reserve(&self) -> Option<Permit<'_, Self>> {
        Permit::try_new(self)
    }
}

impl<T> Receiver<T> {
    #[inline]
    pub(super) fn shared(&self) -> &Core<T> {
        &self.0
    }

    /// Receives; waits for a value.
    ///
    /// A goroutine that has run for long gives way here, before.
    ///
    /// # Errors
    ///
    /// The channel is closed, or no sender is left, and all values have been received.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.recv(None, |_| RecvError)
    }

    /// Receives if a value is there, or a sender waits with one.
    ///
    /// # Errors
    ///
    /// Why there is no value.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv(|why| match why {
            NotReceived::Closed => TryRecvError::Closed,
            NotReceived::Empty | NotReceived::TimedOut => TryRecvError::Empty,
        })
    }

    /// [`recv`](Self::recv) that gives up at a limit: a deadline, a [`Cancel`](crate::sema::Cancel), or both.
    ///
    /// # Errors
    ///
    /// Why. No value has been taken then.
    pub fn recv_limited(&self, limit: &WaitLimit<'_>) -> Result<T, RecvLimitedError> {
        limited::recv(Some(&self.0), limit).map_err(|error| match error {
            Unreceived::Closed => RecvLimitedError::Closed,
            Unreceived::GaveUp(why) => RecvLimitedError::GaveUp(why),
        })
    }

    /// [`recv`](Self::recv) that gives up at a deadline.
    ///
    /// # Errors
    ///
    /// Why.
    pub fn recv_until(&self, deadline: Instant) -> Result<T, RecvLimitedError> {
        self.recv_limited(&WaitLimit::until(deadline))
    }

    /// [`recv`](Self::recv) that gives up after a time.
    ///
    /// # Errors
    ///
    /// Why.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvLimitedError> {
        self.recv_limited(&limited::within(timeout))
    }

    /// [`recv`](Self::recv) as a future, for async tasks. A future that is dropped before it was ready has taken nothing:
    /// a value that it had just been given is received by another, also if the channel has been closed meanwhile.
    pub fn recv_async(&self) -> RecvFuture<'_, Self> {
        RecvFuture::new(self)
    }

    /// Receives until the channel is closed, or no sender is left, and all values have been received.
    pub fn iter(&self) -> Iter<'_, Self> {
        Iter(self)
    }

    /// Receives for as long as that need not wait.
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
            /// Closes the channel: sends fail from now on, also those that wait, and receivers get what is left. False
            /// if it was closed already.
            pub fn close(&self) -> bool {
                self.0.close()
            }

            /// How many values wait to be received. More than the capacity, if receivers have given back what they had
            /// been given, or if a permit of a channel without capacity has sent. A value that was given to a task counts
            /// again if the task gives it back.
            #[must_use]
            pub fn len(&self) -> usize {
                self.0.raw.look().len()
            }

            /// How many values it can keep.
            #[must_use]
            pub fn capacity(&self) -> usize {
                self.0.raw.capacity()
            }

            /// Whether no value waits to be received. So it is always without capacity.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Whether there is no room. So it is always without capacity.
            #[must_use]
            pub fn is_full(&self) -> bool {
                self.len() >= self.capacity()
            }

            /// Returns the number of waiters that send or reserve; a select counts once for each case. For tests and diagnostics: the answer is
            /// old when it arrives.
            #[must_use]
            pub fn waiting_senders(&self) -> usize {
                self.0.raw.waiting(Dir::Send) + self.0.raw.waiting(Dir::Reserve)
            }

            /// How many wait here to receive, a select once for each of its cases. For tests and diagnostics: the answer is
            /// old when it arrives.
            #[must_use]
            pub fn waiting_receivers(&self) -> usize {
                self.0.raw.waiting(Dir::Recv)
            }

            /// Whether it is closed: by [`close`](Self::close), or as one kind of end is gone. For tests and diagnostics,
            /// as the answer may be old when it arrives.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.0.raw.look().is_closed()
            }

            /// Whether both are ends of the same channel.
            #[must_use]
            pub fn same_channel(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0)
            }
        }

        impl<T> Clone for $End<T> {
            fn clone(&self) -> Self {
                // Relaxed: see the top of this file. It cannot overflow: each end has a count in its `Arc`, too, which
                // aborts before.
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

/// Counts an end off; says whether it was the last.
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
