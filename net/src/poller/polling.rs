//! The events of systems other than Linux, by the crate `polling`. The code for kqueue has been compiled and never run.
//! The tests run on Linux, over the crate's backend for epoll.
//!
//! A single thread waits at a time: `polling` returns at once from a second wait, without events. So a worker that polls
//! while another worker waits finds nothing, and the other worker gets all events.
//!
//! An interrupt must end a call that waits. An interrupt is a notification of `polling`, which also a call that does not
//! wait takes away. So an interrupt first sets `interrupted`, and each call that is to wait first reads that flag. If the
//! call reads true, it does not wait. If the call reads false, the notification comes after that read and ends the wait,
//! unless an earlier notification has ended the wait. No interrupt is lost: all operations on `interrupted` and on the
//! flag in `polling` are sequentially consistent, and the lock of `events` lets a single call at a time read the flag and
//! wait.

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
        // Ignore errors: the socket is closed next, which removes the descriptor, too.
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
