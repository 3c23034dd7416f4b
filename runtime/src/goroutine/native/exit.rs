//! The ends of goroutines other than a return: panics and `goexit`.

/// The effect of a panic that ends a goroutine without a [`JoinHandle`](crate::goroutine::JoinHandle).
///
/// # Examples
///
/// A server that outlives the panics of its handlers.
///
/// ```standalone_crate
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
    /// Ends the goroutine only, after the panic hook has run.
    Unwind,
}

/// The payload with which [`goexit`](crate::goroutine::goexit) unwinds a goroutine. `join` returns the payload as an
/// error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goexit;

impl std::fmt::Display for Goexit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the goroutine ended by goexit")
    }
}

impl std::error::Error for Goexit {}
