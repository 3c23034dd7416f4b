//! How waiters pass the time, and what they sleep on: shared by locks and semaphores.

pub(crate) mod gate;
pub(crate) mod policy;
