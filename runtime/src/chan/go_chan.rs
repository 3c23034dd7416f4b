//! Go's channel: the handle [`Chan`], and its views [`SendOnly`] and [`RecvOnly`].

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};
use std::task::Waker;

use super::core::Core;
use super::error::{GaveUp, TryRecvError};
use super::future::{RecvFuture, SendFuture};
use super::iter::{IntoIter, Iter, TryIter};
use super::limited::{self, Unsent};
use super::permit::{Permit, ReserveFuture};
use super::port::send_on_closed;
use super::raw::Dir;
use super::recv::NotReceived;
use super::select::nothing_comes;
use super::send::NotSent;
use crate::sema::{IntoLimit, WaitLimit};

/// Go's `chan T`: values go from goroutine to goroutine through the channel, first in, first out. Threads and async
/// tasks may use the channel too.
///
/// A `Chan` is a handle, cheap to clone, and all clones refer to the same channel. Only [`Chan::close`] closes the
/// channel. When the last handle is dropped, the values that are left are dropped.
///
/// Misuse panics with Go's messages: `send on closed channel`, `close of closed channel`, `close of nil channel`.
///
/// The capacity is the number of values that the channel keeps for later receivers. If the capacity is 0, a send waits
/// until a receiver takes its value: the value goes directly from the sender to the receiver.
///
/// # Examples
///
/// ```
/// # #[cfg(unix)]
/// sudog::run(|| {
///     use sudog::chan::Chan;
///     use sudog::go;
///
///     let squares = Chan::new(0);
///     let results = squares.clone();
///     go(move || {
///         for n in 1..=3 {
///             results.send(n * n);
///         }
///         results.close();
///     });
///     let sum: i32 = squares.iter().sum();
///     assert_eq!(sum, 14);
/// });
/// ```
pub struct Chan<T>(Option<Arc<Core<T>>>);

/// Go's `chan<- T`: a [`Chan`] that only sends.
///
/// # Examples
///
/// ```
/// use sudog::chan::{Chan, SendOnly};
///
/// fn produce(out: SendOnly<u32>) {
///     out.send(1);
///     out.close();
/// }
/// let ch = Chan::new(1);
/// produce(ch.send_only());
/// assert_eq!(ch.iter().collect::<Vec<_>>(), [1]);
/// ```
pub struct SendOnly<T>(Chan<T>);

/// Go's `<-chan T`: a [`Chan`] that only receives, and cannot close.
///
/// # Examples
///
/// ```
/// use sudog::chan::{Chan, RecvOnly};
///
/// fn sum(values: RecvOnly<u32>) -> u32 {
///     values.iter().sum()
/// }
/// let ch = Chan::new(2);
/// ch.send(1);
/// ch.send(2);
/// ch.close();
/// assert_eq!(sum(ch.recv_only()), 3);
/// ```
pub struct RecvOnly<T>(Chan<T>);

/// A weak reference to a channel, which does not keep the channel alive: see [`Chan::downgrade`].
#[doc(hidden)]
pub struct WeakChan<T>(Weak<Core<T>>);

impl<T> WeakChan<T> {
    /// Returns a handle of the channel, unless the last handle has been dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Chan<T>> {
        self.0.upgrade().map(|core| Chan(Some(core)))
    }

    /// Returns whether the last handle has been dropped. The values in the channel, and the value that
    /// [`Chan::keeping`] stores, may not have been dropped yet.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl<T> Clone for WeakChan<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for WeakChan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("WeakChan")
    }
}

impl<T> Chan<T> {
    /// Makes a channel: Go's `make(chan T, capacity)`.
    ///
    /// # Panics
    ///
    /// Panics with `makechan: size out of range` if `capacity` is too large, or there is not enough memory.
    #[track_caller]
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self(Some(Arc::new(Core::new(capacity))))
    }

    /// Returns Go's nil channel: sends and receives wait for ever, a case of a select with this channel is never ready,
    /// and a close panics. `Chan::default()` returns the nil channel, too.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::chan::{Chan, TryRecvError};
    ///
    /// let never = Chan::<u32>::nil();
    /// assert_eq!(never.try_recv(), Err(TryRecvError::Empty));
    /// assert!(never.is_nil());
    /// ```
    #[must_use]
    pub const fn nil() -> Self {
        Self(None)
    }

    #[inline]
    pub(super) fn shared(&self) -> Option<&Core<T>> {
        self.0.as_deref()
    }

    /// Closes the channel. Receivers get the values that are left, and then `None`. All sends panic, also those that
    /// wait now. Go's `close`.
    ///
    /// A receiver that gets `None` sees all that the caller has done before the close.
    ///
    /// # Panics
    ///
    /// Panics with `close of closed channel` or `close of nil channel`. If the waker of a waiting task panics, that
    /// panic is resumed here after all waiters have been woken.
    #[track_caller]
    pub fn close(&self) {
        let Some(core) = self.shared() else { panic!("close of nil channel") };
        assert!(core.close(), "close of closed channel");
        crate::goroutine::safepoint();
    }

    /// Makes a channel as [`Chan::new`] does, and stores `kept` until the last handle of the channel is dropped. For
    /// the crates of this project.
    #[doc(hidden)]
    #[must_use]
    pub fn keeping(capacity: usize, kept: Box<dyn Send + Sync>) -> Self {
        let mut core = Core::new(capacity);
        core.kept = Some(kept);
        Self(Some(Arc::new(core)))
    }

    /// Returns a weak reference, which does not keep the channel alive. For the crates of this project.
    #[doc(hidden)]
    #[must_use]
    pub fn downgrade(&self) -> WeakChan<T> {
        WeakChan(self.0.as_ref().map_or_else(Weak::new, Arc::downgrade))
    }

    /// Closes the channel as [`Chan::close`] does, but does nothing if the channel is closed or nil, and does not yield
    /// to other goroutines. For the crates of this project.
    #[doc(hidden)]
    pub fn close_and_go_on(&self) {
        if let Some(core) = self.shared() {
            core.close();
        }
    }

    /// Closes the channel, but leaves the waiters asleep until [`Chan::ready_waiters`]. May be called under a lock. For the
    /// crates of this project.
    #[doc(hidden)]
    pub fn mark_closed(&self) {
        if let Some(core) = self.shared() {
            core.mark_closed();
        }
    }

    /// Readies the waiters of a channel that [`Chan::mark_closed`] has closed. Returns the wakers of the tasks among them,
    /// which the caller must wake. For the crates of this project.
    #[doc(hidden)]
    #[must_use]
    pub fn ready_waiters(&self) -> Vec<Waker> {
        self.shared().map_or_else(Vec::new, Core::ready_waiters)
    }

    /// Sends as [`Chan::try_send`] does, for a caller that holds a lock: the call neither yields nor wakes a task. If a
    /// task has been given the value, `Ok` contains the task's waker, which the caller must wake. If there is no room,
    /// or the channel is closed, `Err` contains the value. For the crates of this project.
    #[doc(hidden)]
    pub fn try_send_quietly(&self, value: T) -> Result<Option<Waker>, T> {
        let Some(core) = self.shared() else { return Err(value) };
        core.try_send_quietly(value)
    }

    /// Returns a view that only sends.
    #[must_use]
    pub fn send_only(&self) -> SendOnly<T> {
        SendOnly(self.clone())
    }

    /// Returns a view that only receives.
    #[must_use]
    pub fn recv_only(&self) -> RecvOnly<T> {
        RecvOnly(self.clone())
    }
}

impl<T> RecvOnly<T> {
    /// Returns [`Chan::nil`] as a view that only receives. `RecvOnly::default()` returns the same.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::chan::RecvOnly;
    ///
    /// static NEVER: RecvOnly<u32> = RecvOnly::nil();
    ///
    /// assert!(NEVER.is_nil());
    /// ```
    #[must_use]
    pub const fn nil() -> Self {
        Self(Chan::nil())
    }
}

/// Writes the methods of sending handles (`send`), of receiving handles (`recv`), and of all handles (`all`).
macro_rules! methods {
    (send $Handle:ident) => {
        impl<T> $Handle<T> {
            /// Sends a value. Waits until there is room for the value, or until a receiver takes the value. Go's `ch <-
            /// value`.
            ///
            /// A goroutine that has run for long gives way here, before the send.
            ///
            /// # Panics
            ///
            /// Panics with `send on closed channel` if the channel is closed, or is closed while the send waits.
            #[inline]
            #[track_caller]
            pub fn send(&self, value: T) {
                match self.shared() {
                    Some(core) => {
                        // Box the value. A panic may be slow, but the value may be large, and must not be copied more
                        // often than needed.
                        if let Err(value) = core.send(value, Box::new) {
                            send_on_closed(value);
                        }
                    }
                    None => {
                        nothing_comes("chan send (nil chan)", &WaitLimit::default());
                    }
                }
            }

            /// Sends a value, if that is possible without waiting. Go's `select` with one send and a `default`.
            ///
            /// # Errors
            ///
            /// If there is no room, and no receiver waits, the error is the value.
            ///
            /// # Panics
            ///
            /// `send on closed channel`.
            #[inline]
            #[track_caller]
            pub fn try_send(&self, value: T) -> Result<(), T> {
                let Some(core) = self.shared() else { return Err(value) };
                let refused = |why, value| if why == NotSent::Closed { Err(Box::new(value)) } else { Ok(value) };
                match core.try_send(value, refused) {
                    Ok(()) => Ok(()),
                    Err(Ok(value)) => Err(value),
                    Err(Err(value)) => send_on_closed(value),
                }
            }

            /// Sends as [`send`](Self::send) does, but gives up at a limit: see [`IntoLimit`].
            ///
            /// # Errors
            ///
            /// The limit has ended the wait. The error contains the value, and the limit's error.
            ///
            /// # Panics
            ///
            /// The same as those of `send`.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::time::Duration;
            /// use sudog::WaitError;
            /// use sudog::chan::Chan;
            /// use sudog::context;
            ///
            /// let (ctx, cancel) = context::with_cancel(&context::background());
            /// let ch = Chan::new(1);
            /// assert!(ch.send_limited(1, &ctx).is_ok());
            /// let full = ch.send_limited(2, Duration::from_millis(1)).unwrap_err();
            /// assert_eq!((full.value, full.why), (2, WaitError::TimedOut));
            /// cancel.cancel();
            /// let done = ch.send_limited(2, &ctx).unwrap_err();
            /// assert_eq!((done.value, done.why), (2, context::Error::Canceled));
            /// ```
            #[track_caller]
            pub fn send_limited<L: IntoLimit>(&self, value: T, limit: L) -> Result<(), GaveUp<T, L::Error>> {
                match limited::send(self.shared(), value, limit) {
                    Ok(()) => Ok(()),
                    Err(Unsent::Closed(value)) => send_on_closed(value),
                    Err(Unsent::GaveUp(error)) => Err(error),
                }
            }

            /// Returns a future that sends as [`send`](Self::send) does, for async tasks. If the channel has a buffer,
            /// a future that is dropped before it is ready has sent nothing. If not, a receiver may have taken the
            /// value: see [`SendFuture`].
            ///
            /// A poll of the future panics as `send` does.
            pub fn send_async(&self, value: T) -> SendFuture<'_, Self> {
                SendFuture::new(self, value)
            }

            /// Returns a future that reserves a place for a value, for async tasks. The future returns a [`Permit`],
            /// whose [`send`](Permit::send) does not wait. So a task that gives up before it has the permit has sent
            /// nothing, and still has its value. The counterpart of tokio's `reserve`.
            ///
            /// In a channel with a buffer, a place is a slot that no other sender fills. A channel without a buffer has
            /// a single place: if no receiver waits, a value that is sent by a permit stays in that place until a
            /// receiver takes the value. So when the permit's `send` returns, the value may not have been received yet.
            ///
            /// If the channel is closed, the future returns a permit whose `send` panics. A nil channel never has a
            /// free place. There is an example at [`Sender::reserve_async`](super::Sender::reserve_async).
            pub fn reserve_async(&self) -> ReserveFuture<'_, Self> {
                ReserveFuture::new(self)
            }

            /// Reserves a place, if there is a free place now: see [`reserve_async`](Self::reserve_async).
            pub fn try_reserve(&self) -> Option<Permit<'_, Self>> {
                Permit::try_new(self)
            }
        }
    };
    (recv $Handle:ident) => {
        impl<T> $Handle<T> {
            /// Receives a value. Waits until there is a value. Returns `None` if the channel is closed and has no
            /// values left. Go's `value, ok := <-ch`.
            ///
            /// A goroutine that has run for long gives way here, before the receive.
            #[inline]
            pub fn recv(&self) -> Option<T> {
                match self.shared() {
                    Some(core) => core.recv(|| ()).ok(),
                    None => {
                        nothing_comes("chan receive (nil chan)", &WaitLimit::default());
                        None
                    }
                }
            }

            /// Receives a value, if the channel has a value, or a sender waits with a value. Go's `select` with one
            /// receive and a `default`.
            ///
            /// # Errors
            ///
            /// The error tells why there is no value.
            #[inline]
            pub fn try_recv(&self) -> Result<T, TryRecvError> {
                let Some(core) = self.shared() else { return Err(TryRecvError::Empty) };
                core.try_recv(|why| match why {
                    NotReceived::Closed => TryRecvError::Closed,
                    NotReceived::Empty | NotReceived::TimedOut => TryRecvError::Empty,
                })
            }

            /// Receives as [`recv`](Self::recv) does, but gives up at a limit: see [`IntoLimit`].
            ///
            /// # Errors
            ///
            /// The limit's error, if the limit has ended the wait. No value has been taken.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::time::Duration;
            /// use sudog::WaitError;
            /// use sudog::chan::Chan;
            /// use sudog::context;
            ///
            /// let (ctx, cancel) = context::with_cancel(&context::background());
            /// let ch = Chan::new(1);
            /// ch.send(1);
            /// assert_eq!(ch.recv_limited(&ctx), Ok(Some(1)));
            /// assert_eq!(ch.recv_limited(Duration::from_millis(1)), Err(WaitError::TimedOut));
            /// cancel.cancel();
            /// assert_eq!(ch.recv_limited(&ctx), Err(context::Error::Canceled));
            /// ```
            pub fn recv_limited<L: IntoLimit>(&self, limit: L) -> Result<Option<T>, L::Error> {
                limited::recv(self.shared(), limit)
            }

            /// Returns a future that receives as [`recv`](Self::recv) does, for async tasks. A future that is dropped
            /// before it is ready has received nothing: if a sender has just given a value to the future, that value
            /// goes to another receiver, even if the channel has been closed meanwhile.
            pub fn recv_async(&self) -> RecvFuture<'_, Self> {
                RecvFuture::new(self)
            }

            /// Returns an iterator that receives until the channel is closed and has no values left. Go's `for value :=
            /// range ch`.
            pub fn iter(&self) -> Iter<'_, Self> {
                Iter(self)
            }

            /// Returns an iterator that receives values, and ends when a receive would have to wait.
            pub fn try_iter(&self) -> TryIter<'_, Self> {
                TryIter(self)
            }
        }

        impl<'a, T> IntoIterator for &'a $Handle<T> {
            type Item = T;
            type IntoIter = Iter<'a, $Handle<T>>;

            fn into_iter(self) -> Self::IntoIter {
                self.iter()
            }
        }

        impl<T> IntoIterator for $Handle<T> {
            type Item = T;
            type IntoIter = IntoIter<Self>;

            fn into_iter(self) -> Self::IntoIter {
                IntoIter(self)
            }
        }
    };
    (all $Handle:ident) => {
        impl<T> $Handle<T> {
            /// Returns the number of values in the channel; 0 for a nil channel. Go's `len`. The number can exceed the
            /// capacity for two reasons: a future that is dropped gives back the value that a sender has given to it;
            /// and a permit of a channel without capacity leaves its value in the channel. A value that has been given
            /// to a task counts only if the task gives the value back.
            #[must_use]
            pub fn len(&self) -> usize {
                self.shared().map_or(0, |core| core.raw.look().len())
            }

            /// Returns the number of values that the channel can keep; 0 for a nil channel. Go's `cap`.
            #[must_use]
            pub fn capacity(&self) -> usize {
                self.shared().map_or(0, |core| core.raw.capacity())
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
                self.shared().map_or(0, |core| core.raw.waiting(Dir::Send) + core.raw.waiting(Dir::Reserve))
            }

            /// Returns the number of waiting calls that receive. A select counts once for each such case. For tests and
            /// diagnostics: the answer may be outdated when it is returned.
            #[must_use]
            pub fn waiting_receivers(&self) -> usize {
                self.shared().map_or(0, |core| core.raw.waiting(Dir::Recv))
            }

            /// Returns whether the channel has been closed. Go has no such function, because the answer may be outdated
            /// when it is returned. For tests and diagnostics.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.shared().is_some_and(|core| core.raw.look().is_closed())
            }

            /// Returns whether this is the nil channel.
            #[must_use]
            pub fn is_nil(&self) -> bool {
                self.shared().is_none()
            }

            fn address(&self) -> *const () {
                self.shared().map_or(std::ptr::null(), |core| std::ptr::from_ref(core).cast())
            }
        }

        /// Compares by identity: two handles are equal if they refer to the same channel.
        impl<T> PartialEq for $Handle<T> {
            fn eq(&self, other: &Self) -> bool {
                self.address() == other.address()
            }
        }

        impl<T> Eq for $Handle<T> {}

        impl<T> Hash for $Handle<T> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.address().hash(state);
            }
        }

        /// Returns the nil channel.
        impl<T> Default for $Handle<T> {
            fn default() -> Self {
                Self::from_chan(Chan::nil())
            }
        }

        impl<T> fmt::Debug for $Handle<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut debug = f.debug_struct(stringify!($Handle));
                if let Some(core) = self.shared() {
                    core.describe(&mut debug);
                }
                debug.finish_non_exhaustive()
            }
        }
    };
}

methods!(send Chan);
methods!(recv Chan);
methods!(all Chan);
methods!(send SendOnly);
methods!(all SendOnly);
methods!(recv RecvOnly);
methods!(all RecvOnly);

impl<T> Core<T> {
    pub(super) fn describe(&self, debug: &mut fmt::DebugStruct<'_, '_>) {
        let state = self.raw.look();
        debug.field("len", &state.len());
        debug.field("capacity", &self.raw.capacity());
        debug.field("closed", &state.is_closed());
    }
}

impl<T> Chan<T> {
    fn from_chan(chan: Self) -> Self {
        chan
    }
}

impl<T> SendOnly<T> {
    fn from_chan(chan: Chan<T>) -> Self {
        Self(chan)
    }

    #[inline]
    pub(super) fn shared(&self) -> Option<&Core<T>> {
        self.0.shared()
    }

    /// Closes the channel: see [`Chan::close`].
    ///
    /// # Panics
    ///
    /// The same as those of [`Chan::close`].
    #[track_caller]
    pub fn close(&self) {
        self.0.close();
    }
}

impl<T> RecvOnly<T> {
    fn from_chan(chan: Chan<T>) -> Self {
        Self(chan)
    }

    #[inline]
    pub(super) fn shared(&self) -> Option<&Core<T>> {
        self.0.shared()
    }
}

impl<T> Clone for Chan<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Clone for SendOnly<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Clone for RecvOnly<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> From<Chan<T>> for SendOnly<T> {
    fn from(chan: Chan<T>) -> Self {
        Self(chan)
    }
}

impl<T> From<Chan<T>> for RecvOnly<T> {
    fn from(chan: Chan<T>) -> Self {
        Self(chan)
    }
}
