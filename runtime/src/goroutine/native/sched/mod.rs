//! The scheduler: workers, each a thread; the choice of the goroutine to run next; timers; and the thread that watches
//! the workers.
//!
//! | concern of a [`Worker`](worker::Worker) | `impl Worker` in |
//! |---|---|
//! | the loop, the choice of the next goroutine, the start and the end of goroutines | `worker.rs` |
//! | timers, and the end of a time slice | `preempt.rs` |
//! | the search for work, stealing, sleep | `steal.rs` |
//! | the workers on which new goroutines start | `spread.rs` |
//! | spare fibres | `fibre/pool.rs` |

pub(crate) mod bubble;
pub(crate) mod clock;
pub(crate) mod cycle;
pub(crate) mod deadlock;
pub(crate) mod dump;
pub(crate) mod frames;
pub(crate) mod ids;
pub(crate) mod long_waits;
pub(crate) mod pace;
pub(crate) mod preempt;
pub(crate) mod processor;
pub(crate) mod procs;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod scheduler;
pub(crate) mod spread;
pub(crate) mod stall;
pub(crate) mod steal;
pub(crate) mod stuck;
pub(crate) mod sysmon;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod timer_heap;
pub(crate) mod worker;
