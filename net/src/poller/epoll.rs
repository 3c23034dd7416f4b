//! The events of Linux: an epoll instance, and an eventfd for interrupts.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{Event, Events};

pub(super) struct Backend {
    epoll: OwnedFd,
    /// An eventfd that is readable after an interrupt.
    interrupt: File,
}

/// The maximum number of events that a poll takes.
const BATCH: usize = 128;
/// The epoll data of the interrupt's eventfd. No `Desc` has this address.
const INTERRUPT: usize = 0;

/// The time that `epoll_pwait2` reads. Both fields have 64 bits on 32-bit systems too, where the C library's `timespec`
/// is narrower.
#[repr(C)]
struct KernelTimespec {
    seconds: i64,
    nanoseconds: i64,
}

impl Backend {
    fn control(&self, operation: i32, fd: BorrowedFd<'_>, events: u32, data: usize) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: data as u64 };
        // SAFETY: both descriptors are open; the kernel reads `event` during the call only.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) })?;
        Ok(())
    }

    /// Waits for events, fills `events`, and returns the number of events.
    fn wait_into(&self, events: &mut [libc::epoll_event; BATCH], timeout: Option<Duration>) -> usize {
        let epoll = self.epoll.as_raw_fd();
        let wait_for = |events: &mut [libc::epoll_event; BATCH], millis| {
            // SAFETY: `events` has room for BATCH events.
            unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), BATCH as i32, millis) }
        };
        let n = match timeout {
            // Use nanoseconds, for the timers of goroutines. The system call exists since Linux 5.11.
            Some(timeout) if !timeout.is_zero() => {
                let left = KernelTimespec {
                    seconds: timeout.as_secs().try_into().unwrap_or(i64::MAX),
                    nanoseconds: timeout.subsec_nanos().into(),
                };
                let no_mask = std::ptr::null::<libc::sigset_t>();
                // SAFETY: `events` has room for BATCH events, and `left` outlives the call.
                let n = unsafe {
                    libc::syscall(
                        libc::SYS_epoll_pwait2,
                        epoll,
                        events.as_mut_ptr(),
                        BATCH as i32,
                        &raw const left,
                        no_mask,
                        0_usize,
                    )
                };
                // EPERM: a filter of system calls does not know this call. The call itself never fails with EPERM.
                let no_such_call = |error: io::Error| matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
                if n < 0 && no_such_call(io::Error::last_os_error()) {
                    let millis = timeout.as_millis().saturating_add(1).try_into().unwrap_or(i32::MAX);
                    wait_for(events, millis)
                } else {
                    n as i32
                }
            }
            _ => wait_for(events, if timeout.is_some() { 0 } else { -1 }),
        };
        n.max(0) as usize // an error means that a signal came
    }

    fn take_interrupt(&self) {
        // The read does not block. An error means that another call has taken the interrupt.
        _ = (&self.interrupt).read(&mut [0; 8]);
    }
}

impl Events for Backend {
    fn new() -> io::Result<Self> {
        // SAFETY: the call has no preconditions, and opens the descriptor, if it succeeds.
        let epoll = unsafe { own(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
        // SAFETY: the call has no preconditions, and opens the descriptor, if it succeeds.
        let interrupt = unsafe { own(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) }?;
        let poller = Self { epoll, interrupt: interrupt.into() };
        // Level-triggered: the call that waits sees the interrupt, even if other calls have seen the interrupt before.
        poller.control(libc::EPOLL_CTL_ADD, poller.interrupt.as_fd(), libc::EPOLLIN as u32, INTERRUPT)?;
        Ok(poller)
    }

    fn add(&self, fd: BorrowedFd<'_>, data: usize) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd, events as u32, data)
    }

    fn remove(&self, fd: BorrowedFd<'_>) {
        // ignore errors: the socket is closed next, which removes the descriptor too
        _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn wait(&self, timeout: Option<Duration>, mut happened: impl FnMut(Event)) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let n = self.wait_into(&mut events, timeout);
        for event in &events[..n] {
            let (flags, data) = (event.events as i32, event.u64 as usize);
            if data == INTERRUPT {
                if timeout.is_none_or(|timeout| !timeout.is_zero()) {
                    self.take_interrupt();
                }
                continue;
            }
            let both = libc::EPOLLHUP | libc::EPOLLERR;
            let read = flags & (libc::EPOLLIN | libc::EPOLLRDHUP | both) != 0;
            happened(Event { data, read, write: flags & (libc::EPOLLOUT | both) != 0 });
        }
    }

    fn interrupt(&self) {
        // If the counter of the eventfd is full, the write fails, but the eventfd is readable, which is all that an
        // interrupt needs.
        _ = (&self.interrupt).write(&1_u64.to_ne_bytes());
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes possession of a descriptor.
///
/// # Safety
///
/// `result` is the result of a system call that has just opened a descriptor, or has failed.
unsafe fn own(result: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the system call has just opened the descriptor, so nothing else owns it, by the contract of this function.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}
