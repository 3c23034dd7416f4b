//! The Go mutex: normal mode, starvation mode, over any semaphore, under a policy.

mod fifo;
mod future;
mod go_mutex;
mod hints;
mod owner;
pub mod policy;
mod slow;
pub mod stages;
mod stand_by;

use crate::RawLock;
use crate::raw::Semaphore;

pub use fifo::FifoMutex;
pub use future::LockFuture;
pub use go_mutex::GoMutex;

/// Locks that one may unlock wrongly: that comes to a lock in disorder, or to the end of the process, but never to
/// undefined behaviour, which [`RawLock::unlock`] otherwise allows. For what is locked and unlocked by hand on top of
/// them. Sealed.
pub trait UnguardedLock: RawLock<Guard = ()> + sealed::Sealed {}

impl<S: Semaphore, P: policy::Policy> UnguardedLock for GoMutex<S, P> {}
impl<S: Semaphore> UnguardedLock for FifoMutex<S> {}

mod sealed {
    pub trait Sealed {}

    impl<S, P> Sealed for super::GoMutex<S, P> {}
    impl<S> Sealed for super::FifoMutex<S> {}
}
