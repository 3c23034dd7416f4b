//! How those who wait pass the time, and what they sleep before: shared by locks and semaphores.

#[cfg_attr(not(feature = "waiting-array"), allow(dead_code))]
pub(crate) mod gate;
pub(crate) mod policy;
