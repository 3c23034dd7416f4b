//! A wait for a network event, which keeps a thread polling.

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fork;
use crate::goroutine::native::netpoll;
use crate::goroutine::native::sched::scheduler::Sched;

/// A caller's wait for an event. While this value lives, a thread polls, no deadlock is reported, and no bubble is at
/// rest.
pub struct NetWait {
    /// The bubble of the waiting goroutine. None: the caller is in no bubble.
    bubble: Option<&'static Sched>,
}

impl NetWait {
    /// Begins a wait of the calling goroutine or thread.
    #[must_use]
    pub fn begin() -> Self {
        fork::forbid_in_child();
        let worker = current::worker();
        netpoll::wait_begins(worker.is_none());
        match worker {
            // Count the event for a bubble. The scheduler of the process needs no count, as it asks `is_awaited`.
            Some(worker) => {
                let bubble = Some(worker.sched()).filter(|sched| sched.is_bubble());
                if let Some(sched) = bubble {
                    sched.idle.external_begins();
                }
                Self { bubble }
            }
            None => Self { bubble: None },
        }
    }
}

impl Drop for NetWait {
    fn drop(&mut self) {
        netpoll::wait_ends();
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
