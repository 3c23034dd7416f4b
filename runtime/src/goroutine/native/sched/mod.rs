//! The scheduler: workers, each a thread; the choice of the goroutine to run next; timers; and the thread that watches
//! the workers.

pub(crate) mod bubble;
pub(crate) mod clock;
pub(crate) mod cycle;
pub(crate) mod deadlock;
pub(crate) mod dump;
pub(crate) mod ids;
pub(crate) mod preempt;
pub(crate) mod processor;
pub(crate) mod procs;
pub(crate) mod report;
pub(crate) mod scheduler;
pub(crate) mod spread;
pub(crate) mod stall;
pub(crate) mod steal;
pub(crate) mod sysmon;
pub(crate) mod threads;
pub(crate) mod timer_heap;
pub(crate) mod worker;
