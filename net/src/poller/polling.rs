//! The events of other systems, by the crate `polling`. For kqueue this is compiled only. The tests run on Linux, over
//! the crate's backend for epoll.
//!
//! A single thread waits at a time: `polling` returns at once from a second wait, without events. So a worker that polls
//! while another worker waits finds nothing, and the other worker gets all events.
//!
//! A poll without a wait must leave an interrupt to the call that waits, but takes the notification of `polling`. So an
//! interrupt stores `interrupted` first, and a call that waits looks there first. No interrupt is lost: all operations on
//! `interrupted` and on the flag in `polling` are sequentially consistent, and a single call at a time is between its look
//! and the end of its wait, as the call has locked `events`. If the call reads false, the notification comes later, and
//! ends the wait, unless an earlier notification does. If the call reads true, it does not wait.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use polling::{PollMode, Poller};

use super::{Event, Events};

pub(super) struct Backend {
    poller: Poller,
    /// The room for events, locked by the thread that polls.
    events: Mutex<polling::Events>,
    /// True if a call that waits must return.
    interrupted: AtomicBool,
}

impl Events for Backend {
    fn new() -> io::Result<Self> {
        let poller = Poller::new()?;
        if !poller.supports_edge() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no edge-triggered events"));
        }
        Ok(Self { poller, events: Mutex::new(polling::Events::new()), interrupted: AtomicBool::new(false) })
    }

    fn add(&self, fd: BorrowedFd<'_>, data: usize) -> io::Result<()> {
        // SAFETY: `Registered` removes the descriptor before it closes the descriptor.
        unsafe { self.poller.add_with_mode(&fd, polling::Event::all(data), PollMode::Edge) }
    }

    fn remove(&self, fd: BorrowedFd<'_>) {
        // ignore errors: the socket is closed next, which removes the descriptor too
        _ = self.poller.delete(fd);
    }

    fn wait(&self, timeout: Option<Duration>, mut happened: impl FnMut(Event)) {
        let mut events = match self.events.try_lock() {
            Ok(events) => events,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return, // the thread that has the lock sees the events
        };
        let waits = timeout.is_none_or(|timeout| !timeout.is_zero());
        let timeout =
            if waits && self.interrupted.swap(false, Ordering::SeqCst) { Some(Duration::ZERO) } else { timeout };
        events.clear();
        _ = self.poller.wait(&mut events, timeout); // an error means that a signal came
        if waits {
            // A swap: the caller must see what precedes an interrupt that this ends.
            self.interrupted.swap(false, Ordering::SeqCst);
        }
        events
            .iter()
            .for_each(|event| happened(Event { data: event.key, read: event.readable, write: event.writable }));
    }

    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
        _ = self.poller.notify(); // fails only if the system has no memory
    }
}
