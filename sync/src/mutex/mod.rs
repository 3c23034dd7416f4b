//! The Go mutex: normal mode, starvation mode, over any semaphore, under a policy.

mod future;
mod go_mutex;
mod hints;
mod in_turn;
mod owner;
pub mod policy;
mod slow;
mod stand_by;

pub use future::LockFuture;
pub use go_mutex::GoMutex;
pub use in_turn::InTurn;
