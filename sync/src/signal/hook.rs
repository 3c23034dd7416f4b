//! The handlers of signals. What runs in one is in [`on_signal`], and is safe there: atomics, a `write`, and what
//! `signal-hook` says may be called.
//!
//! A handler that has been installed stays. Whether its signal is relayed, ignored, or does what it does by default is
//! decided each time it arrives, by three sets.

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
/// Those that do what they do by default, unless they are relayed. Written under the table's lock. SeqCst, as it costs
/// nothing here: a handler that finds a signal unwanted sees what was set before.
static BY_DEFAULT: AtomicU64 = AtomicU64::new(0);
/// A byte is written for each signal that is relayed. Never closed.
static PIPE: OnceLock<Pipe> = OnceLock::new();

struct Pipe {
    read: UnixStream,
    write: UnixStream,
}

/// What a signal did before this module was told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disposition {
    Default,
    Ignored,
    /// Another handler, which is called in any case.
    Handled,
}

/// The set of one signal.
pub(super) fn set(signal: Signal) -> u64 {
    bit(signal.as_raw() as u32)
}

fn no_thread<T>(error: io::Error) -> T {
    sudog_runtime::fatal(&format!("sudog: no thread for signals: {error}"))
}

/// Makes the pipe, and starts the thread that reads from it. Once, before the first handler is installed.
pub(super) fn start(relay: fn()) {
    goroutine::forbid_in_child(); // nothing would read from the pipe
    PIPE.get_or_init(|| {
        goroutine::mark_children();
        let (read, write) = UnixStream::pair().unwrap_or_else(no_thread);
        // A handler does not wait: if there is no room, there is something to read.
        write.set_nonblocking(true).unwrap_or_else(no_thread);
        let body = move || {
            let pipe = PIPE.wait();
            let mut some = [0; 64];
            loop {
                // What fails is a read that a signal has interrupted.
                _ = (&pipe.read).read(&mut some);
                relay();
            }
        };
        std::thread::Builder::new().name("sudog-signals".into()).spawn(body).unwrap_or_else(no_thread);
        Pipe { read, write }
    });
}

/// Runs on any thread, between any two instructions of it.
fn on_signal(signal: Signal) {
    match RELAY.arrive(signal.as_raw() as u32) {
        Arrival::Relayed => {
            let Some(pipe) = PIPE.get() else { return };
            // SAFETY: a descriptor that stays open, and one byte that is there.
            unsafe { libc::write(pipe.write.as_raw_fd(), [0_u8].as_ptr().cast(), 1) };
        }
        Arrival::Unwanted if BY_DEFAULT.load(Ordering::SeqCst) & set(signal) != 0 => {
            // It knows all that are `Signal`s.
            _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
        }
        Arrival::Unwanted => {}
    }
}

/// What the signal does now, as the system says.
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
    // - changes nothing, and writes to `action`;
    // - zeros are a value of it, should that fail.
    unsafe {
        libc::sigaction(signal.as_raw(), null(), action.as_mut_ptr());
        action.assume_init()
    }
}

/// Installs the handler. From then on the signal does what the sets say: none of them has it yet, unless the caller has
/// put it there.
///
/// # Panics
///
/// If the system refuses.
pub(super) fn install(signal: Signal) {
    // SAFETY: what runs in the handler is safe there, see above: it takes no lock, does not allocate, and does not panic.
    let installed = unsafe { signal_hook::low_level::register(signal.as_raw(), move || on_signal(signal)) };
    if let Err(error) = installed {
        panic!("no handler for the signal {signal}: {error}");
    }
    // A handler would otherwise run on the stack of a goroutine, which may have little room left.
    let mut action = action(signal);
    action.sa_flags |= libc::SA_ONSTACK;
    // SAFETY: the handler that is installed, on the alternate stack of its thread, if that has one.
    unsafe { libc::sigaction(signal.as_raw(), &raw const action, null_mut()) };
}

/// What these signals are to do when they are not wanted: what they do by default, or nothing.
pub(super) fn set_default(signals: u64, by_default: bool) {
    if by_default {
        BY_DEFAULT.fetch_or(signals, Ordering::SeqCst);
    } else {
        BY_DEFAULT.fetch_and(!signals, Ordering::SeqCst);
    }
}
