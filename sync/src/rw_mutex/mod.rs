//! Readers-writer mutexes, behind one interface: [`RawRwLock`](crate::RawRwLock), and
//! [`RwMutexWith`](crate::RwMutexWith) for guards.
//!
//! | | goes next | a reader's cost, alone | readers on several processors | a writer's cost, alone |
//! |---|---|---|---|---|
//! | [`GoRwMutex`] | the readers that came during a write; writers by starvation mode | two locked instructions | take turns at one cache line | two; four where writers meet others |
//! | [`PhaseFairRwMutex`] | the same; writers first come, first served | two | the same | four |
//! | [`ShardedRwMutex`] | as `GoRwMutex` | two | each at its own line | four, and one for each shard |
//!
//! Figures, and from how many writes on the sharded one loses: `docs/performance.md`.

mod go_rw_mutex;
mod rlocker;
mod sharded;
mod spinning;

pub use go_rw_mutex::GoRwMutex;
pub use rlocker::RLocker;
pub use sharded::{ShardedRwMutex, SharedGuard};

/// A [`GoRwMutex`] whose writers go first come, first served. So a reader waits for one writer at most, and a writer
/// for the writers that came before it, and for one round of readers before each.
///
/// Source: Brandenburg and Anderson, "Spin-Based Reader-Writer Synchronization for Multiprocessor Real-Time Systems",
/// Real-Time Systems 46 (2010), for what phase-fair means; the lock is Go's, whose readers are phase-fair as it is.
///
/// # Examples
///
/// ```
/// use sudog::sync::rw_mutex::PhaseFairRwMutex;
///
/// static RW: PhaseFairRwMutex = PhaseFairRwMutex::const_new();
/// RW.lock();
/// RW.unlock();
/// ```
pub type PhaseFairRwMutex<S = crate::semaphore::RuntimeSema> = GoRwMutex<crate::mutex::FifoMutex<S>, S>;
