//! The Go mutex: normal mode, starvation mode, over any semaphore, under a policy.

mod go_mutex;
pub mod policy;

pub use go_mutex::GoMutex;
