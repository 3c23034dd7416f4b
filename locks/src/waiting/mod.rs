//! How waiters wait: spinning and parking, shared by locks and semaphores.

pub(crate) mod parker;
pub(crate) mod policy;
