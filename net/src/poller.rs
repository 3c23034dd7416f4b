//! The poller: one epoll for the process, and what its events wake.
//!
//! A descriptor is put into it once, edge-triggered, for both directions. Each direction has a semaphore of at most about
//! one permit, which means: *something may have happened, try again*.
//!
//! | step | by | does |
//! |---|---|---|
//! | prepare | a user that has locked the side | takes what permits there are |
//! | try | the same | the system call; unless it would block, that is all |
//! | wait | the same | waits for a permit, then from the top |
//! | event | the poller | if there is no permit: gives one |
//! | nudge | a close, a new deadline | the same: the user looks what has changed |
//!
//! *No readiness is lost.* An edge that the poller reports before the permits were taken is of something that was there
//! before the try, which finds it. One that it reports later gives a permit, and the wait ends. If the poller finds a
//! permit and gives none, that permit has not been taken yet: its taker tries after that. (A sequentially consistent
//! fence stands before the poller's look, and another after each taking of a permit: [`Direction::took`]. The look read
//! what the taking replaced, so the first fence comes before the second in their order, and the try sees what was there
//! before the first: the event, the close, the new deadline. The order of the taking alone does not say so: a later load
//! may pass it where it is no locked instruction.) A permit too many costs a try.
//!
//! So an event may be reported for a descriptor that has been closed, and whose [`Desc`] another one has by now. `Desc`s
//! are never freed, but used again.
//!
//! Why not the crate `polling` (3.11): each of its waits makes three system calls (it sets a timerfd, and arms it anew),
//! and a call while another one waits returns at once without a look; here workers poll a lot, and while one waits.
//!
//! Go: `runtime/netpoll.go`, `runtime/netpoll_epoll.go` (1.27).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sudog_runtime::goroutine::{NetPoller, now, set_net_poller};
use sudog_runtime::sema::{Wake, semrelease, try_semacquire};

use crate::fd_mutex::Side;

/// What waits for one descriptor.
pub(crate) struct Desc {
    read: Direction,
    write: Direction,
}

/// See the top of this file.
pub(crate) struct Direction {
    /// What users wait on.
    pub(crate) permits: AtomicU32,
    /// Whether there is a deadline: so that calls without one take no lock.
    has_deadline: AtomicBool,
    deadline: Mutex<Option<Instant>>,
}

impl Desc {
    pub(crate) fn direction(&self, side: Side) -> &Direction {
        match side {
            Side::Read => &self.read,
            Side::Write => &self.write,
        }
    }
}

impl Direction {
    const fn new() -> Self {
        Self { permits: AtomicU32::new(0), has_deadline: AtomicBool::new(false), deadline: Mutex::new(None) }
    }

    /// By a user, before it tries.
    pub(crate) fn prepare(&self) {
        while try_semacquire(&self.permits) {
            self.took();
        }
    }

    /// By a user that has taken a permit, before it tries: pairs with the fence of [`nudge`](Self::nudge).
    pub(crate) fn took(&self) {
        fence(Ordering::SeqCst);
    }

    /// Its user is to try again, or to look what has changed.
    pub(crate) fn nudge(&self) {
        fence(Ordering::SeqCst);
        if self.permits.load(Ordering::SeqCst) == 0 {
            semrelease(&self.permits, Wake::Normal);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        // Acquire: what the setter of the deadline has stored before.
        if !self.has_deadline.load(Ordering::Acquire) {
            return None;
        }
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_timed_out(&self) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now())
    }

    /// A call that waits looks at it at once.
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
        self.has_deadline.store(deadline.is_some(), Ordering::Release);
        self.nudge();
    }
}

/// What is not in use.
static SPARE: Mutex<Vec<&'static Desc>> = Mutex::new(Vec::new());

/// A descriptor in the poller. Dropped, it is taken out, and closed.
pub(crate) struct Registered<S: AsFd> {
    socket: S,
    pub(crate) desc: &'static Desc,
}

impl<S: AsFd> Registered<S> {
    /// A descriptor that does not block.
    pub(crate) fn new(socket: S) -> io::Result<Self> {
        let poller = Poller::get()?;
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let desc =
            spare.unwrap_or_else(|| Box::leak(Box::new(Desc { read: Direction::new(), write: Direction::new() })));
        for side in [Side::Read, Side::Write] {
            desc.direction(side).set_deadline(None);
        }
        let registered = Self { socket, desc };
        poller.add(registered.socket.as_fd(), std::ptr::from_ref(desc) as u64)?;
        Ok(registered)
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }
}

impl<S: AsFd> Drop for Registered<S> {
    fn drop(&mut self) {
        if let Ok(poller) = Poller::get() {
            poller.remove(self.socket.as_fd());
        }
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(self.desc);
        // The socket is closed now.
    }
}

struct Poller {
    epoll: OwnedFd,
    /// Readable: an interrupt.
    interrupt: OwnedFd,
}

/// How many events a poll takes at most.
const BATCH: usize = 128;
/// The interrupt's; no `Desc` is there.
const INTERRUPT: u64 = 0;

/// The time that `epoll_pwait2` reads: 64-bit fields on 32-bit systems too, where the C library's `timespec` is narrower.
#[repr(C)]
struct KernelTimespec {
    seconds: i64,
    nanoseconds: i64,
}

impl Poller {
    /// The process's. It is made when it is first asked for; if that fails, as no descriptors are left, when it is asked
    /// for again.
    fn get() -> io::Result<&'static Self> {
        static POLLER: OnceLock<Poller> = OnceLock::new();
        let poller = match POLLER.get() {
            Some(poller) => poller,
            None => {
                let made = Self::new()?;
                POLLER.get_or_init(|| made) // or another caller's: then this one is closed
            }
        };
        // SAFETY: `poll` and `interrupt` call the system, and wake; neither panics, nor waits elsewhere.
        unsafe { set_net_poller(poller) };
        Ok(poller)
    }

    fn new() -> io::Result<Self> {
        // SAFETY: no preconditions.
        let epoll = own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: no preconditions.
        let interrupt = own(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let poller = Self { epoll, interrupt };
        // Level-triggered: it is seen by the call that waits, even if others have seen it.
        poller.control(libc::EPOLL_CTL_ADD, poller.interrupt.as_fd(), libc::EPOLLIN as u32, INTERRUPT)?;
        Ok(poller)
    }

    fn add(&self, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd, events as u32, data)
    }

    fn remove(&self, fd: BorrowedFd<'_>) {
        _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0); // it is closed next, which takes it out too
    }

    fn control(&self, operation: i32, fd: BorrowedFd<'_>, events: u32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: both are open; the event is alive.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) })?;
        Ok(())
    }

    /// How many events there were.
    fn wait(&self, events: &mut [libc::epoll_event; BATCH], timeout: Option<Duration>) -> usize {
        let epoll = self.epoll.as_raw_fd();
        let n = match timeout {
            // Nanoseconds, for the timers of goroutines; Linux 5.11.
            Some(timeout) if !timeout.is_zero() => {
                let left = KernelTimespec {
                    seconds: timeout.as_secs().try_into().unwrap_or(i64::MAX),
                    nanoseconds: timeout.subsec_nanos().into(),
                };
                let no_mask = std::ptr::null::<libc::sigset_t>();
                // SAFETY: the buffer has room for BATCH events; the time is alive.
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
                // EPERM: filters of system calls that do not know it. It is no error of the call's own.
                let no_such_call = |error: io::Error| matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
                if n < 0 && no_such_call(io::Error::last_os_error()) {
                    let millis = timeout.as_millis().saturating_add(1).try_into().unwrap_or(i32::MAX);
                    // SAFETY: as above.
                    unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), BATCH as i32, millis) }
                } else {
                    n as i32
                }
            }
            _ => {
                let millis = if timeout.is_some() { 0 } else { -1 };
                // SAFETY: as above.
                unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), BATCH as i32, millis) }
            }
        };
        n.max(0) as usize // an error: a signal came
    }

    fn take_interrupt(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes, for an eventfd that does not block.
        _ = unsafe { libc::read(self.interrupt.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl NetPoller for Poller {
    fn poll(&self, timeout: Option<Duration>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let n = self.wait(&mut events, timeout);
        for event in &events[..n] {
            let (happened, data) = (event.events as i32, event.u64);
            if data == INTERRUPT {
                if timeout.is_none_or(|timeout| !timeout.is_zero()) {
                    self.take_interrupt();
                }
                continue;
            }
            // SAFETY: only `Desc`s are added, and they are never freed.
            let desc = unsafe { &*(data as *const Desc) };
            let both = libc::EPOLLHUP | libc::EPOLLERR;
            if happened & (libc::EPOLLIN | libc::EPOLLRDHUP | both) != 0 {
                desc.read.nudge();
            }
            if happened & (libc::EPOLLOUT | both) != 0 {
                desc.write.nudge();
            }
        }
    }

    fn interrupt(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes, for an eventfd. If its counter is full it is readable, which is all that is asked for.
        _ = unsafe { libc::write(self.interrupt.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn own(result: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: it was opened for this call alone.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}
