//! The state that the threads of a scheduler share: queues, the idle protocol. Each file has a loom model.

pub(crate) mod global_queue;
pub(crate) mod idle;
pub(crate) mod inbox;
pub(crate) mod pinned;
pub(crate) mod poll_sleep;
pub(crate) mod runq;
pub(crate) mod signal;
