//! How goroutines end other than by a return.

/// What a panic does that ends a goroutine without a [`JoinHandle`](crate::goroutine::JoinHandle).
///
/// # Examples
///
/// A server that outlives the panics of its handlers.
///
/// ```
/// use sudog::{Builder, OnPanic, run};
/// use sudog::runtime::{gosched, num_goroutine};
///
/// run(|| {
///     Builder::new().name("handler").on_panic(OnPanic::Unwind).go(|| panic!("a bad request"));
///     while num_goroutine() > 1 {
///         gosched();
///     }
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum OnPanic {
    /// Ends the process, as in Go: `panic: ...` and status 2.
    #[default]
    Abort,
    /// Ends the goroutine only. The panic hook has had its say.
    Unwind,
}

/// The payload with which [`goexit`](crate::goroutine::goexit) unwinds a goroutine, and which `join` returns then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goexit;

impl std::fmt::Display for Goexit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the goroutine ended by goexit")
    }
}

impl std::error::Error for Goexit {}
