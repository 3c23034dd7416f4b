//! User code that runs at a later time: wakers on threads of their own, and calls put off to a goroutine.

pub(crate) mod alarms;
pub(crate) mod deferred;
