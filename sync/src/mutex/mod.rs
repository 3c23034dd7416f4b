//! The Go mutex: normal mode, starvation mode, over any semaphore, under a policy.
//!
//! | file | contents |
//! |---|---|
//! | `go_mutex.rs` | the type, its contract, the fast paths |
//! | `state.rs` | the state word: the protocol as a table, predicates, transitions |
//! | `lock.rs`, `contender.rs` | the slow path of `lock`: the steps of a contender, and its local state |
//! | `unlock.rs` | the slow path of `unlock` |
//! | `future.rs` | an async task as a contender |
//! | `policy.rs` | the parameters, and Go's versions |
//! | `spin.rs`, `successor.rs` | the two strategies before a sleep: Go's, and the strategy for threads |
//! | `contention_hint.rs`, `yielding.rs` | for speed: what a contender expects, and when an owner or a successor yields |
//! | `fifo.rs` | another mutex: first come, first served |
//! | `stages/` | the Go mutex in eight stages, to be read in turn |

mod contender;
mod contention_hint;
mod fifo;
mod future;
mod go_mutex;
mod lock;
pub mod policy;
mod spin;
pub mod stages;
mod state;
mod successor;
mod unlock;
mod yielding;

use crate::RawLock;
use crate::raw::Semaphore;

pub use fifo::FifoMutex;
pub use future::LockFuture;
pub use go_mutex::GoMutex;

/// A lock whose misuse is safe: an unlock of an unlocked lock corrupts the lock or ends the process, but is never
/// undefined behaviour. For other locks, [`RawLock::unlock`] allows undefined behaviour there. Other locks are built on
/// these locks. The trait is sealed.
pub trait UnguardedLock: RawLock<Guard = ()> + sealed::Sealed {}

impl<S: Semaphore, P: policy::Policy> UnguardedLock for GoMutex<S, P> {}
impl<S: Semaphore> UnguardedLock for FifoMutex<S> {}

mod sealed {
    pub trait Sealed {}

    impl<S, P> Sealed for super::GoMutex<S, P> {}
    impl<S> Sealed for super::FifoMutex<S> {}
}
