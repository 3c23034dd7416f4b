//! The words of which kernels are made. What a kernel makes lives as long as its process.

use sudog::Builder;
use sudog::chan::Chan;
use sudog::runtime::gosched;

/// Starts a goroutine that has a name.
pub fn go(name: &str, f: impl FnOnce() + Send + 'static) {
    Builder::new().name(name).go(f);
}

/// Makes a lock, a wait group, a Cond.
pub fn new<T: Default>() -> &'static T {
    Box::leak(Box::default())
}

/// Makes a channel.
pub fn chan<T>(capacity: usize) -> &'static Chan<T> {
    Box::leak(Box::new(Chan::new(capacity)))
}

/// Waits for the state in which a bug shows.
pub fn until(state: impl Fn() -> bool) {
    while !state() {
        gosched();
    }
}
