//! Spinning and parking of waiters, shared by locks and semaphores.

pub(crate) mod parker;
pub(crate) mod policy;
