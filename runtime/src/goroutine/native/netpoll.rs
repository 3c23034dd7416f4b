//! The network poller, as workers see it: which of them polls, and when. Go's `netpoll` in `runtime/proc.go`.
//!
//! What polls is in the crate `sudog-net`, which gives itself as a [`NetPoller`] when it is first used. A poll wakes
//! goroutines by semaphores; it runs no user code. These poll:
//!
//! | who | when | waits |
//! |---|---|---|
//! | a worker without work | while it looks for some | no |
//! | one of the workers that sleep: the *holder* | in place of its parker | until an event, its timer, or an interrupt by a waker |
//! | a busy worker | at every 64th choice, and at the first after a tick of the watcher | no |
//! | the watcher | each tick, if there is no holder | no |
//! | a thread of its own | from the first wait of a thread that is no worker on | yes; it is the holder from then on |
//!
//! So there is no thread in between, as a rule. A worker takes the place of the holder, if it is free, before it sleeps,
//! and leaves it when it wakes: so if all workers of a program sleep, the last to do so is the holder, or found one that
//! still sleeps. One exception: the holder is the worker of a bubble, and ends with the bubble, while other workers sleep.
//! The watcher sees that there is no holder, though something is awaited, and wakes one of them.

use crate::shim::system;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fork;
use crate::goroutine::native::sched::scheduler::Sched;

/// What polls.
pub trait NetPoller: Sync {
    /// Wakes those for whom something has happened. Waits for that until a timeout (none: for ever), or an interrupt.
    /// With a timeout of zero it leaves an interrupt to the call that waits.
    fn poll(&self, timeout: Option<Duration>);

    /// Ends the call that waits, or the next one that would.
    fn interrupt(&self);
}

static POLLER: OnceLock<&'static dyn NetPoller> = OnceLock::new();
/// A caller may wait in the poller.
static HELD: AtomicBool = AtomicBool::new(false);
/// A thread of its own waits there, from now on.
static BY_THREAD: AtomicBool = AtomicBool::new(false);
/// How many wait for an event.
static WAITERS: AtomicUsize = AtomicUsize::new(0);

/// Sets what polls, for the rest of the process. Once.
///
/// # Safety
///
/// `poll` and `interrupt` do not panic, and do not wait otherwise than in the system. A worker calls them outside of all
/// goroutines: a panic would free the stacks of the goroutines that it runs, while others refer to them.
pub unsafe fn set_net_poller(poller: &'static dyn NetPoller) {
    _ = POLLER.set(poller);
}

/// While it lives, its maker waits for an event: somebody polls, no deadlock is reported, and no bubble is at rest.
pub struct NetWait {
    /// The bubble that waits for the event.
    bubble: Option<&'static Sched>,
}

impl NetWait {
    /// By the caller that will wait.
    #[must_use]
    pub fn begin() -> Self {
        fork::forbid_in_child();
        WAITERS.fetch_add(1, Ordering::Relaxed);
        match current::worker() {
            // A bubble waits for the event; the scheduler of the process is looked at by `is_awaited`.
            Some(worker) => {
                let bubble = Some(worker.sched()).filter(|sched| sched.is_bubble());
                if let Some(sched) = bubble {
                    sched.idle.external_begins();
                }
                Self { bubble }
            }
            None => {
                poll_by_thread();
                Self { bubble: None }
            }
        }
    }
}

impl Drop for NetWait {
    fn drop(&mut self) {
        WAITERS.fetch_sub(1, Ordering::Relaxed);
        if let Some(sched) = self.bubble {
            sched.idle.external_ends();
        }
    }
}

impl std::fmt::Debug for NetWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("NetWait { .. }")
    }
}

/// Whether something is awaited.
#[inline]
pub(crate) fn is_awaited() -> bool {
    WAITERS.load(Ordering::Relaxed) > 0
}

/// Whether something is awaited, and no caller waits in the poller.
pub(crate) fn lacks_holder() -> bool {
    is_awaited() && !HELD.load(Ordering::Relaxed)
}

/// Polls, and does not wait. By a worker or the watcher, between goroutines: a fibre that has ended one goroutine and
/// looks for the next must not switch.
#[cold]
pub(crate) fn poll_now() {
    if let Some(poller) = POLLER.get() {
        current::without_switching(|| poller.poll(Some(Duration::ZERO)));
    }
}

/// By a waker, after its unpark.
pub(crate) fn interrupt() {
    if let Some(poller) = POLLER.get() {
        poller.interrupt();
    }
}

/// The place of the one that waits in the poller.
pub(crate) struct Holder(&'static dyn NetPoller);

impl Holder {
    /// None if nothing is awaited, or the place is taken.
    pub(crate) fn take() -> Option<Self> {
        if !is_awaited() || BY_THREAD.load(Ordering::Relaxed) {
            return None;
        }
        Self::take_place()
    }

    fn take_place() -> Option<Self> {
        let poller = *POLLER.get()?;
        // One at a time: an interrupt is taken by one that waits in the poller, whichever it was meant for.
        // Acquire, and Release as it is left: no more than good manners, as the poller has its own order.
        // Made only if it is: a holder that is dropped leaves the place.
        (!HELD.swap(true, Ordering::Acquire)).then(|| Self(poller))
    }

    /// Waits.
    pub(crate) fn poll(&self, deadline: Option<Instant>) {
        self.0.poll(deadline.map(|deadline| deadline.saturating_duration_since(system::now())));
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        HELD.store(false, Ordering::Release);
    }
}

/// Starts the thread that polls from now on, as threads that are no workers wait.
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
                interrupt(); // the worker there does not come back
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

    /// A caller that finds the place taken leaves it to its holder.
    #[test]
    fn there_is_one_holder() {
        // SAFETY: the two methods do nothing.
        unsafe { set_net_poller(&Nothing) };
        let holder = Holder::take_place().expect("the place");
        for _ in 0..3 {
            assert!(Holder::take_place().is_none());
        }
        drop(holder);
        assert!(Holder::take_place().is_some());
    }
}
