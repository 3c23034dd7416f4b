//! Go's channel: one handle, cloned at will, and its directional views.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use super::core::Core;
use super::error::{GaveUp, TryRecvError};
use super::future::{RecvFuture, SendFuture};
use super::iter::{IntoIter, Iter, TryIter};
use super::limited::{self, Unreceived, Unsent};
use super::permit::{Permit, ReserveFuture};
use super::port::send_on_closed;
use super::raw::Dir;
use super::recv::NotReceived;
use super::select::nothing_comes;
use super::send::NotSent;
use crate::Instant;
use crate::sema::{WaitError, WaitLimit};

/// Go's `chan T`: values go from goroutine to goroutine through it, first in, first out. Threads and async tasks may use
/// it too.
///
/// It is a handle, cheap to clone, and all clones are the same channel. The channel is closed by [`Chan::close`] only.
/// When the last handle is dropped, the values that are left are dropped.
///
/// Misuse panics with Go's words: `send on closed channel`, `close of closed channel`, `close of nil channel`.
///
/// Its capacity is how many values it keeps for receivers to come. Without capacity a send waits for its receiver: the
/// value goes from the one to the other.
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

/// See [`Chan::downgrade`].
#[doc(hidden)]
pub struct WeakChan<T>(Weak<Core<T>>);

impl<T> WeakChan<T> {
    /// A handle of the channel, unless the last one has been dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Chan<T>> {
        self.0.upgrade().map(|core| Chan(Some(core)))
    }

    /// Returns whether the last handle has been dropped; what the channel keeps may not have been dropped yet.
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
    /// Go's `make(chan T, capacity)`.
    ///
    /// # Panics
    ///
    /// `makechan: size out of range`, if there cannot be so many values.
    #[track_caller]
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self(Some(Arc::new(Core::new(capacity))))
    }

    /// Go's nil channel: sends and receives wait for ever, a case of a select with it is never ready, and to close it
    /// panics. Also the `Default`.
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

    /// Closes it: receivers get the values that are left, and then `None`; sends panic, also those that wait now. Go's
    /// `close`.
    ///
    /// Whatever the caller has done before, a receiver that gets `None` sees.
    ///
    /// # Panics
    ///
    /// `close of closed channel`; `close of nil channel`. And as the waker of a waiting task does, when all waiters have
    /// been woken.
    #[track_caller]
    pub fn close(&self) {
        let Some(core) = self.shared() else { panic!("close of nil channel") };
        assert!(core.close(), "close of closed channel");
        crate::goroutine::safepoint();
    }

    /// [`Chan::new`] with a value that is dropped when the last handle of the channel is. For the crates of this project.
    #[doc(hidden)]
    #[must_use]
    pub fn keeping(capacity: usize, kept: Box<dyn Send + Sync>) -> Self {
        let mut core = Core::new(capacity);
        core.kept = Some(kept);
        Self(Some(Arc::new(core)))
    }

    /// A reference to the channel that is no handle: the channel may be dropped meanwhile. For the crates of this project.
    #[doc(hidden)]
    #[must_use]
    pub fn downgrade(&self) -> WeakChan<T> {
        WeakChan(self.0.as_ref().map_or_else(Weak::new, Arc::downgrade))
    }

    /// [`Chan::close`], unless it is closed or nil; and the caller does not give way. For the crates of this project.
    #[doc(hidden)]
    pub fn close_and_go_on(&self) {
        if let Some(core) = self.shared() {
            core.close();
        }
    }

    /// [`Chan::try_send`] for a caller that holds a lock: it does not give way, and wakes no task. `Ok` with the waker of
    /// a task that has been given the value: the caller wakes it. The value, if there is no room, or the channel is closed.
    /// For the crates of this project.
    #[doc(hidden)]
    pub fn try_send_quietly(&self, value: T) -> Result<Option<Waker>, T> {
        let Some(core) = self.shared() else { return Err(value) };
        core.try_send_quietly(value)
    }

    /// A view that only sends.
    #[must_use]
    pub fn send_only(&self) -> SendOnly<T> {
        SendOnly(self.clone())
    }

    /// A view that only receives.
    #[must_use]
    pub fn recv_only(&self) -> RecvOnly<T> {
        RecvOnly(self.clone())
    }
}

impl<T> RecvOnly<T> {
    /// [`Chan::nil`], of which only receives are to be seen. Also the `Default`.
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

/// The methods of all that send, of all that receive, and of all: each handle has its share.
macro_rules! methods {
    (send $Handle:ident) => {
        impl<T> $Handle<T> {
            /// Sends; waits for room, or for a receiver. Go's `ch <- value`.
            ///
            /// A goroutine that has run for long gives way here, before.
            ///
            /// # Panics
            ///
            /// `send on closed channel`, also if it is closed while the send waits.
            #[inline]
            #[track_caller]
            pub fn send(&self, value: T) {
                match self.shared() {
                    Some(core) => {
                        // A box, as the panic does not matter, and the copies of a value that may be large do.
                        if let Err(value) = core.send(value, None, |_, value| Box::new(value)) {
                            send_on_closed(value);
                        }
                    }
                    None => {
                        nothing_comes("chan send (nil chan)", &WaitLimit::default());
                    }
                }
            }

            /// Sends if that need not wait. Go's `select` with one send and a `default`.
            ///
            /// # Errors
            ///
            /// The value, if there is no room, and no receiver waits.
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

            /// [`send`](Self::send) that gives up at a limit: a deadline, a [`Cancel`](crate::sema::Cancel), or both.
            ///
            /// # Errors
            ///
            /// Which came first, with the value.
            ///
            /// # Panics
            ///
            /// As `send`.
            #[track_caller]
            pub fn send_limited(&self, value: T, limit: &WaitLimit<'_>) -> Result<(), GaveUp<T>> {
                match limited::send(self.shared(), value, limit) {
                    Ok(()) => Ok(()),
                    Err(Unsent::Closed(value)) => send_on_closed(value),
                    Err(Unsent::GaveUp(error)) => Err(error),
                }
            }

            /// [`send`](Self::send) that gives up at a deadline.
            ///
            /// # Errors
            ///
            /// The deadline came first: the value.
            ///
            /// # Panics
            ///
            /// As `send`.
            #[track_caller]
            pub fn send_until(&self, value: T, deadline: Instant) -> Result<(), GaveUp<T>> {
                self.send_limited(value, &WaitLimit::until(deadline))
            }

            /// [`send`](Self::send) that gives up after a time.
            ///
            /// # Errors
            ///
            /// The time came first: the value.
            ///
            /// # Panics
            ///
            /// As `send`.
            #[track_caller]
            pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), GaveUp<T>> {
                self.send_limited(value, &limited::within(timeout))
            }

            /// [`send`](Self::send) as a future, for async tasks. A future that is dropped before it was ready has sent
            /// nothing, if the channel has a buffer; without one, its value may have been received: see [`SendFuture`].
            ///
            /// It panics, when it is polled, as `send` does.
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
            /// A closed channel gives a permit, whose send panics. There is an example at
            /// [`Sender::reserve_async`](super::Sender::reserve_async). A nil channel has no place.
            pub fn reserve_async(&self) -> ReserveFuture<'_, Self> {
                ReserveFuture::new(self)
            }

            /// Reserves a place, if there is one now: see [`reserve_async`](Self::reserve_async).
            pub fn try_reserve(&self) -> Option<Permit<'_, Self>> {
                Permit::try_new(self)
            }
        }
    };
    (recv $Handle:ident) => {
        impl<T> $Handle<T> {
            /// Receives; waits for a value. `None`: it is closed, and has no values left. Go's `value, ok := <-ch`.
            ///
            /// A goroutine that has run for long gives way here, before.
            #[inline]
            pub fn recv(&self) -> Option<T> {
                match self.shared() {
                    Some(core) => core.recv(None, |_| ()).ok(),
                    None => {
                        nothing_comes("chan receive (nil chan)", &WaitLimit::default());
                        None
                    }
                }
            }

            /// Receives if a value is there, or a sender waits with one. Go's `select` with one receive and a `default`.
            ///
            /// # Errors
            ///
            /// Why there is no value.
            #[inline]
            pub fn try_recv(&self) -> Result<T, TryRecvError> {
                let Some(core) = self.shared() else { return Err(TryRecvError::Empty) };
                core.try_recv(|why| match why {
                    NotReceived::Closed => TryRecvError::Closed,
                    NotReceived::Empty | NotReceived::TimedOut => TryRecvError::Empty,
                })
            }

            /// [`recv`](Self::recv) that gives up at a limit: a deadline, a [`Cancel`](crate::sema::Cancel), or both.
            ///
            /// # Errors
            ///
            /// Which came first. No value has been taken then.
            pub fn recv_limited(&self, limit: &WaitLimit<'_>) -> Result<Option<T>, WaitError> {
                match limited::recv(self.shared(), limit) {
                    Ok(value) => Ok(Some(value)),
                    Err(Unreceived::Closed) => Ok(None),
                    Err(Unreceived::GaveUp(why)) => Err(why),
                }
            }

            /// [`recv`](Self::recv) that gives up at a deadline.
            ///
            /// # Errors
            ///
            /// The deadline came first.
            pub fn recv_until(&self, deadline: Instant) -> Result<Option<T>, WaitError> {
                self.recv_limited(&WaitLimit::until(deadline))
            }

            /// [`recv`](Self::recv) that gives up after a time.
            ///
            /// # Errors
            ///
            /// The time came first.
            pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<T>, WaitError> {
                self.recv_limited(&limited::within(timeout))
            }

            /// [`recv`](Self::recv) as a future, for async tasks. A future that is dropped before it was ready has taken
            /// nothing: a value that it had just been given is received by another, also if the channel has been closed
            /// meanwhile.
            pub fn recv_async(&self) -> RecvFuture<'_, Self> {
                RecvFuture::new(self)
            }

            /// Receives until the channel is closed and has no values left. Go's `for value := range ch`.
            pub fn iter(&self) -> Iter<'_, Self> {
                Iter(self)
            }

            /// Receives for as long as that need not wait.
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
            /// How many values wait to be received; 0 of a nil channel. Go's `len`. More than the capacity, if receivers
            /// have given back what they had been given, or if a permit of a channel without capacity has sent. A value
            /// that was given to a task counts again if the task gives it back.
            #[must_use]
            pub fn len(&self) -> usize {
                self.shared().map_or(0, |core| core.raw.look().len())
            }

            /// How many values it can keep; 0 of a nil channel. Go's `cap`.
            #[must_use]
            pub fn capacity(&self) -> usize {
                self.shared().map_or(0, |core| core.raw.capacity())
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
                self.shared().map_or(0, |core| core.raw.waiting(Dir::Send) + core.raw.waiting(Dir::Reserve))
            }

            /// How many wait here to receive, a select once for each of its cases. For tests and diagnostics: the answer is
            /// old when it arrives.
            #[must_use]
            pub fn waiting_receivers(&self) -> usize {
                self.shared().map_or(0, |core| core.raw.waiting(Dir::Recv))
            }

            /// Whether it has been closed. Not in Go, as the answer may be old when it arrives: for tests and
            /// diagnostics.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.shared().is_some_and(|core| core.raw.look().is_closed())
            }

            /// Whether it is the nil channel.
            #[must_use]
            pub fn is_nil(&self) -> bool {
                self.shared().is_none()
            }

            fn address(&self) -> *const () {
                self.shared().map_or(std::ptr::null(), |core| std::ptr::from_ref(core).cast())
            }
        }

        /// Whether both are the same channel.
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

        /// The nil channel.
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

    /// [`Chan::close`].
    ///
    /// # Panics
    ///
    /// As that does.
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
