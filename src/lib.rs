//! Go's concurrency for Rust.
pub use sudog_runtime as runtime;
pub use sudog_sync as sync;
