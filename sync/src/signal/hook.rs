//! The handlers of signals. All code that runs in a handler is in [`on_signal`], and is safe in a handler: atomics, a
//! `write`, and a function that `signal-hook` documents as safe.
//!
//! A handler that has been installed stays installed. When a signal arrives, two sets of signals decide whether the
//! signal is relayed, is ignored, or does its default action: the wanted signals of [`RELAY`], and [`BY_DEFAULT`].

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sudog_runtime::goroutine;

use super::kind::Signal;
use super::relay::{Arrival, Relay, bit};

pub(super) static RELAY: Relay = Relay::new();
/// The signals that do their default action unless they are relayed. Written under the table's lock. All accesses are
/// SeqCst, so a handler that finds a signal unwanted sees the writes that came before; SeqCst costs nothing here.
static BY_DEFAULT: AtomicU64 = AtomicU64::new(0);
/// The pipe to which the handler writes a byte for each relayed signal. The pipe is never closed.
static PIPE: OnceLock<Pipe> = OnceLock::new();

struct Pipe {
    read: UnixStream,
    write: UnixStream,
}

/// The action of a signal before this module installed its handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disposition {
    Default,
    Ignored,
    /// Another handler handles the signal. That handler is still called, in any case.
    Handled,
}

/// Returns the set that contains only this signal.
pub(super) fn set(signal: Signal) -> u64 {
    bit(signal.as_raw() as u32)
}

fn no_thread<T>(error: io::Error) -> T {
    sudog_runtime::fatal(&format!("sudog: no thread for signals: {error}"))
}

/// Makes the pipe, and starts the thread that reads from the pipe. Does so once, before the first handler is
/// installed.
pub(super) fn start(relay: fn()) {
    goroutine::forbid_in_child(); // in a child process no thread reads from the pipe
    PIPE.get_or_init(|| {
        goroutine::mark_children();
        let (read, write) = UnixStream::pair().unwrap_or_else(no_thread);
        // A handler must not wait. If the pipe has no room, the reader already has bytes to read.
        write.set_nonblocking(true).unwrap_or_else(no_thread);
        let body = move || {
            let pipe = PIPE.wait();
            let mut some = [0; 64];
            loop {
                // The read fails only if a signal interrupts the read.
                _ = (&pipe.read).read(&mut some);
                relay();
            }
        };
        std::thread::Builder::new().name("sudog-signals".into()).spawn(body).unwrap_or_else(no_thread);
        Pipe { read, write }
    });
}

/// Handles a signal. Runs on any thread, between any two instructions of that thread.
fn on_signal(signal: Signal) {
    match RELAY.arrive(signal.as_raw() as u32) {
        Arrival::Relayed => {
            let Some(pipe) = PIPE.get() else { return };
            // SAFETY: the descriptor is the pipe's, which stays open. The buffer has the single byte that is written.
            unsafe { libc::write(pipe.write.as_raw_fd(), [0_u8].as_ptr().cast(), 1) };
        }
        Arrival::Unwanted if BY_DEFAULT.load(Ordering::SeqCst) & set(signal) != 0 => {
            // `emulate_default_handler` knows every `Signal`.
            _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
        }
        Arrival::Unwanted => {}
    }
}

/// Asks the system for the current action of the signal.
pub(super) fn disposition(signal: Signal) -> Disposition {
    match action(signal).sa_sigaction {
        libc::SIG_DFL => Disposition::Default,
        libc::SIG_IGN => Disposition::Ignored,
        _ => Disposition::Handled,
    }
}

fn action(signal: Signal) -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY:
    // - The new action is null, so the call changes nothing and only writes the old action to `action`.
    // - If the call fails, `action` is all zeros, which is a valid `sigaction`.
    unsafe {
        libc::sigaction(signal.as_raw(), null(), action.as_mut_ptr());
        action.assume_init()
    }
}

/// Installs the handler of this signal. From then on two sets, the wanted signals of [`RELAY`] and [`BY_DEFAULT`],
/// decide the effect of the signal. This function adds the signal to neither set; the caller may have done so.
///
/// # Panics
///
/// Panics if the system refuses the handler.
pub(super) fn install(signal: Signal) {
    // SAFETY: `on_signal` is safe in a handler, as the top of this file says: it takes no lock, does not allocate, and
    // does not panic.
    let installed = unsafe { signal_hook::low_level::register(signal.as_raw(), move || on_signal(signal)) };
    if let Err(error) = installed {
        panic!("no handler for the signal {signal}: {error}");
    }
    // Use the alternate stack: a handler would otherwise run on the stack of a goroutine, which may have little room
    // left.
    let mut action = action(signal);
    action.sa_flags |= libc::SA_ONSTACK;
    // SAFETY: `action` is the installed handler's action with `SA_ONSTACK` added. So the same handler runs, on the
    // alternate stack of its thread, if the thread has an alternate stack.
    unsafe { libc::sigaction(signal.as_raw(), &raw const action, null_mut()) };
}

/// Sets the effect of these signals while they are not wanted. If `by_default` is true, each signal does its default
/// action; otherwise the signals do nothing.
pub(super) fn set_default(signals: u64, by_default: bool) {
    if by_default {
        BY_DEFAULT.fetch_or(signals, Ordering::SeqCst);
    } else {
        BY_DEFAULT.fetch_and(!signals, Ordering::SeqCst);
    }
}
