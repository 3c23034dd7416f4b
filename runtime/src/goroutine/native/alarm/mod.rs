//! Users' code that runs when its time comes: wakers on threads of their own, and calls put off to a goroutine.

pub(crate) mod alarms;
pub(crate) mod deferred;
