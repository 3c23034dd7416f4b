//! Signals of the system as values of a channel: Go's package `os/signal`.
//!
//! | Go | here |
//! |---|---|
//! | `signal.Notify(c, os.Interrupt)` | [`notify`]`(&c, &[Signal::INT])` |
//! | `signal.Stop(c)` | [`stop`]`(&c)` |
//! | `signal.Ignore`, `signal.Ignored`, `signal.Reset` | [`ignore`], [`ignored`], [`reset`] |
//! | `signal.NotifyContext` | [`notify_context`] |
//!
//! If a channel is notified of a signal, the signal does not do its default action: an interrupt does not end the
//! process. The handler records that the signal has arrived. A thread, which the first [`notify`] starts, sends the
//! signal to each channel that wants the signal. The thread does not wait: a channel without room misses the signal. If
//! the signal arrives twice before the thread sends it, the thread sends it once.
//!
//! # Deadlocks
//!
//! Once a program has called [`notify`], no deadlock is reported any more, as in Go: a signal may end each wait. In a
//! bubble of [`synctest`](sudog_runtime::goroutine::synctest), goroutines that wait for a signal do not keep the clock
//! from advancing. If no other event can come, they count as a deadlock, as in Go: a signal comes from outside of the
//! bubble.
//!
//! # Other handlers
//!
//! The crate `signal-hook` installs the handlers, and the handlers stay installed. A handler that was installed before
//! is still called, before the handler of this module. If a signal had such a handler, or was ignored, then the handler
//! of this module does nothing once the signal is not wanted any more. If other parts of the program later install
//! handlers for the same signal, a signal that is not wanted any more still does its default action.
//!
//! Go: `src/os/signal/signal.go`, `src/runtime/sigqueue.go` (1.27).
//!
//! # Examples
//!
//! ```
//! use sudog::chan::Chan;
//! use sudog::run;
//! use sudog::signal;
//! use sudog::signal::Signal;
//!
//! run(|| {
//!     let signals = Chan::new(1);
//!     signal::notify(&signals, &[Signal::INT, Signal::TERM]);
//!     signal_hook::low_level::raise(libc::SIGTERM).unwrap(); // the system does that
//!     assert_eq!(signals.recv(), Some(Signal::TERM));
//!     signal::stop(&signals);
//! });
//! ```

mod context;
mod hook;
mod kind;
mod relay;
mod table;

use sudog_runtime::chan::Chan;

pub use context::{Received, StopFunc, StopOnDrop, notify_context};
pub use kind::Signal;

/// Sends `signals`, or all signals if `signals` is empty, to `channel` from now on. Go's `signal.Notify`.
///
/// A send to the channel never waits, so the caller must make sure that the channel has room. For a single signal a
/// capacity of 1 is enough. A channel that is full, or that has no capacity and no waiting receiver, misses the signal;
/// so does a channel that has been closed (in Go the process panics).
///
/// A second call with the same channel adds to the channel's signals. Several channels may get the same signal. The
/// channel lives until [`stop`], even if all its other handles are dropped.
///
/// # Panics
///
/// Panics if `channel` is nil: `os/signal: Notify using nil channel`. Also panics if the system refuses a handler,
/// which no system does for a [`Signal`].
///
/// The process ends if the first call cannot start a thread.
///
/// # Examples
///
/// See [the module](self).
#[track_caller]
pub fn notify(channel: &Chan<Signal>, signals: &[Signal]) {
    assert!(!channel.is_nil(), "os/signal: Notify using nil channel");
    or_all(signals, |signals| table::add(channel, signals));
}

/// Stops sending signals to a channel. Go's `signal.Stop`.
///
/// When this call returns, the signals that arrived before are in the channel, if there was room, and no more signals
/// will come. If no other channel wants a signal, the signal again has the effect that it had before the first
/// [`notify`]: an interrupt ends the process. So each signal either is sent or has that effect.
///
/// Does nothing if the channel is not notified of signals.
///
/// # Examples
///
/// ```
/// use sudog::chan::{Chan, TryRecvError};
/// use sudog::signal;
/// use sudog::signal::Signal;
///
/// let (a, b) = (Chan::new(1), Chan::new(1));
/// signal::notify(&a, &[Signal::WINCH]);
/// signal::notify(&b, &[Signal::WINCH]);
/// signal::stop(&b);
/// signal_hook::low_level::raise(libc::SIGWINCH).unwrap();
/// assert_eq!(a.recv(), Some(Signal::WINCH));
/// assert_eq!(b.try_recv(), Err(TryRecvError::Empty));
/// # signal::stop(&a);
/// ```
pub fn stop(channel: &Chan<Signal>) {
    table::remove(channel);
}

/// Makes `signals`, or all signals if `signals` is empty, do nothing from now on. Go's `signal.Ignore`.
///
/// Undoes each [`notify`] for these signals. Processes that this process starts do not inherit the setting (in Go they
/// do), because an ignored signal has a handler here, which does nothing.
///
/// # Panics
///
/// Panics if the system refuses a handler, which no system does for a [`Signal`].
///
/// # Examples
///
/// ```
/// use sudog::signal;
/// use sudog::signal::Signal;
///
/// signal::ignore(&[Signal::USR2]);
/// assert!(signal::ignored(Signal::USR2));
/// signal_hook::low_level::raise(libc::SIGUSR2).unwrap(); // would have ended the process
/// signal::reset(&[Signal::USR2]);
/// assert!(!signal::ignored(Signal::USR2));
/// ```
#[track_caller]
pub fn ignore(signals: &[Signal]) {
    or_all(signals, |signals| table::cancel(signals, true));
}

/// Returns whether a signal does nothing, because of [`ignore`] or because the process was started with the signal
/// ignored. Go's `signal.Ignored`.
///
/// # Examples
///
/// See [`ignore`].
#[must_use]
pub fn ignored(signal: Signal) -> bool {
    table::is_ignored(signal)
}

/// Undoes each [`notify`] and [`ignore`] for `signals`, or for all signals if `signals` is empty. Go's `signal.Reset`.
///
/// # Examples
///
/// See [`ignore`].
pub fn reset(signals: &[Signal]) {
    or_all(signals, |signals| table::cancel(signals, false));
}

/// Calls `f` with `signals`, or with all signals if `signals` is empty, as in Go.
fn or_all(signals: &[Signal], f: impl FnOnce(&[Signal])) {
    if signals.is_empty() { f(&Signal::all().collect::<Vec<_>>()) } else { f(signals) }
}
