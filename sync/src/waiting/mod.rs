//! How those who wait pass the time, and what they sleep before: shared by locks and semaphores.

pub(crate) mod gate;
pub(crate) mod policy;

#[cfg(all(unix, not(sudog_loom)))]
pub(crate) use sudog_runtime::goroutine::without_switching;

/// Where nobody switches.
#[cfg(any(not(unix), sudog_loom))]
pub(crate) fn without_switching<T>(f: impl FnOnce() -> T) -> T {
    f()
}
