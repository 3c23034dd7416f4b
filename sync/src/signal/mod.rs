//! Signals of the system as values of a channel: Go's package `os/signal`.
//!
//! | Go | here |
//! |---|---|
//! | `signal.Notify(c, os.Interrupt)` | [`notify`]`(&c, &[Signal::INT])` |
//! | `signal.Stop(c)` | [`stop`]`(&c)` |
//! | `signal.Ignore`, `signal.Ignored`, `signal.Reset` | [`ignore`], [`ignored`], [`reset`] |
//! | `signal.NotifyContext` | [`notify_context`] |
//!
//! A signal that a channel is notified of does not do what it does by default: an interrupt does not end the process. The
//! handler notes that it has arrived; a thread, which the first [`notify`] starts, sends it to each channel that wants it.
//! It does not wait: a channel without room for it misses it. A signal that arrives again before it is sent is sent once.
//!
//! # Deadlocks
//!
//! Once a program has called [`notify`], no deadlock is reported any more, as in Go: a signal may end each wait. In a bubble
//! of [`synctest`](sudog_runtime::goroutine::synctest) goroutines that wait for a signal do not hold the clock, and are a
//! deadlock when nothing else can come, as in Go: a signal comes from outside.
//!
//! # Other handlers
//!
//! Handlers are installed by the crate `signal-hook`, and stay. A handler that was there before is still called, before this
//! one. To "do again what it did before" is to do nothing beside such a handler. It is the same with signals that were
//! ignored. What is installed for the same signal later, by other parts of the program, does not keep a signal that is not
//! wanted any more from its default action.
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

/// Sends these signals to a channel from now on, or all of them if the list is empty. Go's `signal.Notify`.
///
/// No send waits: the caller sees to it that the channel has room. For one signal a capacity of 1 is enough. A channel that
/// is full, or is without capacity while no receiver waits, misses the signal; so does one that has been closed (in Go the
/// process panics).
///
/// Called again with the same channel it adds to its signals. Several channels may be sent the same signal. The channel
/// lives until [`stop`], whatever becomes of its handles.
///
/// # Panics
///
/// `os/signal: Notify using nil channel`; and if the system refuses a handler, which no system does for a [`Signal`].
///
/// The process ends if there is no thread to be had at the first call.
///
/// # Examples
///
/// See [the module](self).
#[track_caller]
pub fn notify(channel: &Chan<Signal>, signals: &[Signal]) {
    assert!(!channel.is_nil(), "os/signal: Notify using nil channel");
    or_all(signals, |signals| table::add(channel, signals));
}

/// Sends no more signals to a channel. Go's `signal.Stop`.
///
/// Those that have arrived before are in the channel when this returns, if there was room, and no more will come. A signal
/// that no other channel is sent does again what it did before the first [`notify`]: an interrupt ends the process. So each
/// signal is either sent, or does that.
///
/// Does nothing for a channel that is not notified.
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

/// From now on these signals do nothing, or all signals, if the list is empty. Go's `signal.Ignore`.
///
/// Undoes each [`notify`] for them. Programs that the process starts do not inherit it (in Go they do): the signal has a
/// handler, which does nothing.
///
/// # Panics
///
/// If the system refuses a handler, which no system does for a [`Signal`].
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

/// Whether a signal does nothing: because of [`ignore`], or because the process was started so. Go's `signal.Ignored`.
///
/// # Examples
///
/// See [`ignore`].
#[must_use]
pub fn ignored(signal: Signal) -> bool {
    table::is_ignored(signal)
}

/// Undoes each [`notify`] and [`ignore`] for these signals, or for all, if the list is empty. Go's `signal.Reset`.
///
/// # Examples
///
/// See [`ignore`].
pub fn reset(signals: &[Signal]) {
    or_all(signals, |signals| table::cancel(signals, false));
}

/// As in Go, no signals are all signals.
fn or_all(signals: &[Signal], f: impl FnOnce(&[Signal])) {
    if signals.is_empty() { f(&Signal::all().collect::<Vec<_>>()) } else { f(signals) }
}
