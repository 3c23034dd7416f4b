//! User code that runs at a later time: wakers on a thread that only wakes, and the timers of contexts.

pub(crate) mod alarms;
pub(crate) mod deferred;
pub(crate) mod here;
