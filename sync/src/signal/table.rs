//! The table of channels, and of the signals that each channel gets.
//!
//! A single lock protects the whole table. Under the lock no user code runs: a send to a channel has no safepoint, and
//! the wakers of tasks that receive are called later, on a separate thread. So no signal waits for a waker, and a
//! waker may call any function of this module.
//!
//! When a channel is stopped, it first gets the signals that arrived before they became unwanted. Then, under the same
//! lock, the channel is removed from the table, and gets no more signals. (Go keeps the channel in a list until its
//! delivery goroutine is idle.)

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use sudog_runtime::chan::Chan;
use sudog_runtime::goroutine::alarm;

use super::hook::{self, Disposition, RELAY, set};
use super::kind::Signal;
use crate::now;

struct Table {
    entries: Vec<Entry>,
    /// The signals that have a handler of this module. Those of them that were ignored before the handler was installed
    /// are in `were_ignored`, and those that did their default action are in `were_default`.
    installed: u64,
    were_ignored: u64,
    were_default: u64,
    /// The signals that are to be ignored.
    ignored: u64,
}

/// A channel that is notified of signals.
struct Entry {
    channel: Chan<Signal>,
    wants: u64,
}

static TABLE: Mutex<Table> =
    Mutex::new(Table { entries: Vec::new(), installed: 0, were_ignored: 0, were_default: 0, ignored: 0 });

/// Locks the table. If an installation of a handler panics under the lock, the table stays as it was.
fn lock() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends these signals to a channel, in addition to the signals that the channel already gets.
///
/// # Panics
///
/// Panics if the system refuses a handler.
pub(super) fn add(channel: &Chan<Signal>, signals: &[Signal]) {
    hook::start(relay);
    let mut table = lock();
    table.install(signals);
    let wants = union(signals);
    table.ignored &= !wants;
    match table.entries.iter_mut().find(|entry| entry.channel == *channel) {
        Some(entry) => entry.wants |= wants,
        None => table.entries.push(Entry { channel: channel.clone(), wants }),
    }
    RELAY.want(wants);
    // Set the default last: otherwise a signal that was ignored could do its default action before the signal is
    // wanted.
    hook::set_default(wants & table.were_default, true);
}

/// Stops sending signals to a channel.
pub(super) fn remove(channel: &Chan<Signal>) {
    let mut table = lock();
    let Some(index) = table.entries.iter().position(|entry| entry.channel == *channel) else { return };
    let of_others = table.entries.iter().filter(|entry| entry.channel != *channel);
    let unwanted = table.entries[index].wants & !of_others.fold(0, |all, entry| all | entry.wants);
    RELAY.unwant(unwanted);
    let wakers = table.relay_the_last();
    let entry = table.entries.swap_remove(index);
    drop(table);
    wake(wakers);
    drop(entry);
}

/// Stops sending these signals to any channel. If `ignore` is true, the signals are ignored from now on; otherwise they
/// have the effect that they had before the handler.
///
/// # Panics
///
/// Panics if the system refuses a handler.
pub(super) fn cancel(signals: &[Signal], ignore: bool) {
    let mut table = lock();
    if ignore {
        table.install(signals);
    }
    let signals = union(signals) & table.installed;
    hook::set_default(signals & table.were_default, !ignore);
    if ignore {
        table.ignored |= signals;
    } else {
        table.ignored &= !signals;
    }
    RELAY.unwant(signals);
    let wakers = table.relay_the_last();
    table.entries.iter_mut().for_each(|entry| entry.wants &= !signals);
    let gone: Vec<Entry> = table.entries.extract_if(.., |entry| entry.wants == 0).collect();
    drop(table);
    wake(wakers);
    drop(gone);
}

/// Returns whether this signal does nothing.
pub(super) fn is_ignored(signal: Signal) -> bool {
    let table = lock();
    if table.installed & set(signal) == 0 {
        return hook::disposition(signal) == Disposition::Ignored;
    }
    let wanted = table.entries.iter().any(|entry| entry.wants & set(signal) != 0);
    !wanted && (table.ignored | table.were_ignored) & set(signal) != 0
}

/// Sends the signals that have arrived. Called by the thread that reads from the pipe.
fn relay() {
    let wakers = lock().relay();
    wake(wakers);
}

fn union(signals: &[Signal]) -> u64 {
    signals.iter().fold(0, |all, &signal| all | set(signal))
}

/// Calls the wakers on another thread: a waker is user code, which may panic or wait.
fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        _ = alarm(now(), waker); // a forgotten alarm still goes off
    }
}

impl Table {
    /// Installs a handler for each of `signals` that has no handler. Until a signal is wanted, the signal has the same
    /// effect as before.
    fn install(&mut self, signals: &[Signal]) {
        for &signal in signals {
            if self.installed & set(signal) != 0 {
                continue;
            }
            let before = hook::disposition(signal);
            // Set the default before the handler is installed: a signal that arrives at once then finds the default.
            hook::set_default(set(signal), before == Disposition::Default);
            hook::install(signal);
            self.installed |= set(signal);
            match before {
                Disposition::Default => self.were_default |= set(signal),
                Disposition::Ignored => self.were_ignored |= set(signal),
                Disposition::Handled => {}
            }
        }
    }

    /// Sends the signals that arrived before the caller made some signals unwanted.
    #[must_use]
    fn relay_the_last(&mut self) -> Vec<Waker> {
        RELAY.quiesce();
        self.relay()
    }

    /// Sends the signals that have arrived to the channels that want them and have room.
    #[must_use]
    fn relay(&mut self) -> Vec<Waker> {
        let arrived = RELAY.take();
        let mut wakers = Vec::new();
        for signal in Signal::all().filter(|&signal| arrived & set(signal) != 0) {
            for entry in self.entries.iter().filter(|entry| entry.wants & set(signal) != 0) {
                if let Ok(Some(waker)) = entry.channel.try_send_quietly(signal) {
                    wakers.push(waker);
                }
            }
        }
        wakers
    }
}
