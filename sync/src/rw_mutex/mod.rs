//! Readers-writer mutexes, behind a common interface: [`RawRwLock`](crate::RawRwLock), and
//! [`RwMutexWith`](crate::RwMutexWith) for guards.
//!
//! | | next owner | a reader's cost, alone | readers on several processors | a writer's cost, alone |
//! |---|---|---|---|---|
//! | [`GoRwMutex`] | the readers that came during a write; writers by starvation mode | two locked instructions | take turns at the same cache line | two; four where writers meet others |
//! | [`PhaseFairRwMutex`] | the same; writers first come, first served | two | the same | four |
//! | [`ShardedRwMutex`] | as `GoRwMutex` | two; none from some ten thousand reads on, until a write | each uses its own line | five, and a look at the slots of each thread |
//!
//! | file | contents |
//! |---|---|
//! | `go_rw_mutex.rs` | the Go readers-writer mutex: the type, its contract, the fast paths |
//! | `state.rs` | its state word: the protocol as a table, predicates, transitions |
//! | `read.rs` | a reader that meets a writer: how it waits, and the slow path of `runlock` |
//! | `write.rs`, `successor.rs` | a writer: as the sole owner, in turn, and as the successor of a sole owner |
//! | `unlock.rs` | the end of a writer's phase, which admits the readers that wait |
//! | `spinning.rs`, `write_hint.rs` | for speed: spinning before a sleep, and what a writer expects |
//! | `sharded.rs`, `read_slots.rs` | a mutex whose readers scale, and where its readers write |
//! | `rlocker.rs` | the reader's side as a lock |
//!
//! `docs/journal/readers-and-writers.md` has the figures, and the rate of writes from which on the sharded mutex loses.

mod go_rw_mutex;
mod read;
mod read_slots;
mod rlocker;
mod sharded;
mod spinning;
mod state;
mod successor;
mod unlock;
mod write;
mod write_hint;

pub use go_rw_mutex::GoRwMutex;
pub use rlocker::RLocker;
pub use sharded::{ShardedRwMutex, SharedGuard};

/// A [`GoRwMutex`] whose writers go first come, first served. So a reader waits for a single writer at most, and a
/// writer waits for the writers that came before, and for a round of readers before each writer.
///
/// Source: Brandenburg and Anderson, "Spin-Based Reader-Writer Synchronization for Multiprocessor Real-Time Systems",
/// Real-Time Systems 46 (2010), defines phase-fair. The lock is Go's, whose readers are phase-fair already.
///
/// # Examples
///
/// ```
/// use sudog::sync::PhaseFairRwMutex;
///
/// static RW: PhaseFairRwMutex = PhaseFairRwMutex::const_new();
/// RW.lock();
/// RW.unlock();
/// ```
pub type PhaseFairRwMutex<S = crate::semaphore::RuntimeSema> = GoRwMutex<crate::mutex::FifoMutex<S>, S>;
