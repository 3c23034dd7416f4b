//! The network poller, as workers see it: the threads that poll, and when they do. Go's `netpoll` in `runtime/proc.go`.
//!
//! The poller is in the crate `sudog-net`, which registers a [`NetPoller`] when the crate is first used. A poll wakes
//! goroutines by semaphores, and runs no user code. These threads poll:
//!
//! | thread | when | waits |
//! |---|---|---|
//! | a worker without work | while it looks for work | no |
//! | a sleeping worker, at most a single one: the *holder* | in place of its parker | until an event, its timer, or an interrupt by a waker |
//! | a busy worker | at every 64th choice of a goroutine, and at the first choice after a tick of the watcher | no |
//! | the watcher | each tick, if there is no holder | no |
//! | a thread of the poller | always, once a thread that is no worker has waited for an event | yes; the thread is the holder from then on |
//!
//! So as a rule no further thread stands between the system and the workers. Before a worker sleeps, the worker becomes
//! the holder, if there is none. When the worker wakes, it is the holder no more. So if all workers of a program sleep,
//! the last worker that fell asleep is the holder, or found a holder that still sleeps. One exception: the holder is
//! the worker of a bubble, and ends with the bubble, while other workers sleep. The watcher sees that there is no
//! holder, though an event is awaited, and wakes a sleeping worker.

use crate::shim::system;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::goroutine::native::fork;

/// A poller of network events.
pub trait NetPoller: Sync {
    /// Wakes the waiters of the events that have happened. Waits for events until a timeout (none: for ever), or an
    /// interrupt. With a timeout of zero, `poll` leaves an interrupt to the call that waits.
    fn poll(&self, timeout: Option<Duration>);

    /// Ends the `poll` that waits, or the next `poll` that would.
    fn interrupt(&self);
}

static POLLER: OnceLock<&'static dyn NetPoller> = OnceLock::new();
/// True while there is a [`Holder`], which may wait in the poller.
static HELD: AtomicBool = AtomicBool::new(false);
/// True once the thread of the poller has been started, which waits in the poller from then on.
static BY_THREAD: AtomicBool = AtomicBool::new(false);
/// True once the thread of the poller exists. The thread runs no user code, and never ends.
static THREAD_EXISTS: AtomicBool = AtomicBool::new(false);
/// Number of callers that wait for an event.
static WAITERS: AtomicUsize = AtomicUsize::new(0);

/// Sets the poller for the rest of the process. Called once.
///
/// # Safety
///
/// `poll` and `interrupt` do not panic, and wait only in system calls. A worker calls them outside of all goroutines: a
/// panic would free the stacks of the goroutines that the worker runs, while other code refers to those stacks.
pub unsafe fn set_net_poller(poller: &'static dyn NetPoller) {
    _ = POLLER.set(poller);
}

/// Counts a caller that waits for an event from now on. If the caller is no worker (`by_thread`), there may be no worker
/// that polls, so a thread of the poller does.
pub(super) fn wait_begins(by_thread: bool) {
    WAITERS.fetch_add(1, Ordering::Relaxed);
    if by_thread {
        poll_by_thread();
    }
}

/// Counts off a caller that has waited for an event.
pub(super) fn wait_ends() {
    WAITERS.fetch_sub(1, Ordering::Relaxed);
}

/// Returns whether an event is awaited.
#[inline]
pub(crate) fn is_awaited() -> bool {
    WAITERS.load(Ordering::Relaxed) > 0
}

/// Returns the number of threads of the poller, for the deadlock report. While no event is awaited, the thread wakes nobody.
pub(crate) fn threads() -> usize {
    usize::from(THREAD_EXISTS.load(Ordering::Acquire))
}

/// Returns whether an event is awaited, and no caller waits in the poller.
pub(crate) fn lacks_holder() -> bool {
    is_awaited() && !HELD.load(Ordering::Relaxed)
}

/// Polls without waiting for events.
///
/// A worker calls this function between two goroutines, on a fibre that has ended one goroutine and looks for the next:
/// such a fibre must not switch, so the worker calls `without_switching`. The watcher calls this function, too.
#[cold]
pub(crate) fn poll_now() {
    if let Some(poller) = POLLER.get() {
        poller.poll(Some(Duration::ZERO));
    }
}

/// Interrupts the poll that waits. Called by a waker, after the unpark.
pub(crate) fn interrupt() {
    if let Some(poller) = POLLER.get() {
        poller.interrupt();
    }
}

/// The right to wait in the poller, which a single thread has at a time: the holder.
pub(crate) struct Holder(&'static dyn NetPoller);

impl Holder {
    /// Makes the caller the holder. Returns None if no event is awaited, or if there is a holder.
    pub(crate) fn take() -> Option<Self> {
        if !is_awaited() || BY_THREAD.load(Ordering::Relaxed) {
            return None;
        }
        Self::take_place()
    }

    fn take_place() -> Option<Self> {
        let poller = *POLLER.get()?;
        // One holder at a time: any thread that waits in the poller takes an interrupt, whichever thread the interrupt
        // was meant for. Acquire, and Release in `drop`, are not needed, as the poller has an order of its own. Make
        // the `Holder` only if `HELD` was false: the drop of a `Holder` sets `HELD` to false.
        (!HELD.swap(true, Ordering::Acquire)).then(|| Self(poller))
    }

    /// Waits for events until `deadline`.
    pub(crate) fn poll(&self, deadline: Option<Instant>) {
        self.0.poll(deadline.map(|deadline| deadline.saturating_duration_since(system::now())));
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        HELD.store(false, Ordering::Release);
    }
}

/// Starts the thread that polls from now on. Called when a thread that is no worker waits.
#[cold]
fn poll_by_thread() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        fork::mark_children();
        BY_THREAD.store(true, Ordering::Relaxed);
        let poll = || {
            let holder = loop {
                if let Some(holder) = Holder::take_place() {
                    break holder;
                }
                interrupt(); // a worker that is the holder stops polling, and is not the holder again
                poll_now();
                system::thread::sleep(Duration::from_micros(100));
            };
            loop {
                holder.poll(None);
            }
        };
        if let Err(error) = system::thread::Builder::new().name("sudog-netpoll".into()).spawn(poll) {
            crate::fatal(&format!("sudog: no thread for the network poller: {error}"));
        }
        THREAD_EXISTS.store(true, Ordering::Release);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl NetPoller for Nothing {
        fn poll(&self, _: Option<Duration>) {}

        fn interrupt(&self) {}
    }

    /// Tests that `take_place` returns None while there is a holder, and that this holder remains.
    #[test]
    fn there_is_one_holder() {
        // SAFETY: the two methods of `Nothing` do nothing.
        unsafe { set_net_poller(&Nothing) };
        let holder = Holder::take_place().expect("the place");
        for _ in 0..3 {
            assert!(Holder::take_place().is_none());
        }
        drop(holder);
        assert!(Holder::take_place().is_some());
    }
}
