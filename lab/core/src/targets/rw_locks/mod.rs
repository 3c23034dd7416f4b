//! The readers-writer locks under comparison: those of this project, and adapters that make every peer a [`RawRwLock`].

mod crossbeam;
mod exclusive;
mod parking_lot;
mod std_rw_lock;

pub use crossbeam::CrossbeamSharded;
pub use exclusive::Exclusive;
pub use parking_lot::{RwParkingLot012, RwParkingLot013};
pub use std_rw_lock::StdRwLock;

use std::sync::{TryLockError, TryLockResult};

use sudog_sync::rw_mutex::{PhaseFairRwMutex, ShardedRwMutex};
use sudog_sync::{GoMutex, GoRwMutex, RawRwLock};

use crate::targets::locks::LockFacts;
use crate::targets::registry::registry;

registry! {
    /// The name of a readers-writer lock.
    enum RwLockName;
    /// A job on a readers-writer lock of any type.
    trait RwJob over RawRwLock;
    fn with_rw_lock;
    unknown "readers-writer lock";

    Sudog = "sudog": GoRwMutex,
        "Go's RWMutex";
    PhaseFair = "phase-fair": PhaseFairRwMutex,
        "Go's RWMutex, whose writers go first come, first served";
    Sharded = "sharded": ShardedRwMutex,
        "readers write to a line of their thread, and writers look at those of all threads";
    Mutex = "mutex": Exclusive<GoMutex>,
        "the Go mutex, for readers as well: a readers-writer lock should be faster";
    Std = "std": StdRwLock,
        "std::sync::RwLock, poisoning included";
    ParkingLot012 = "parking_lot_0_12": RwParkingLot012,
        "parking_lot 0.12, unlocked without fairness";
    ParkingLot013 = "parking_lot_0_13": RwParkingLot013,
        "parking_lot 0.13, unlocked without fairness";
    Crossbeam = "crossbeam": CrossbeamSharded,
        "ShardedLock of crossbeam-utils: eight of std's, of which readers take one and writers all";
}

impl RwLockName {
    /// Returns whether the lock is a peer's.
    pub const fn is_peer(self) -> bool {
        matches!(self, Self::Std | Self::ParkingLot012 | Self::ParkingLot013 | Self::Crossbeam)
    }

    /// Returns whether a goroutine that waits for the lock blocks the thread of its worker, and with the thread all
    /// other goroutines there.
    pub const fn blocks_threads(self) -> bool {
        // A waiter of a lock over a semaphore of this project waits as a goroutine.
        self.is_peer()
    }

    /// Returns the abilities and limits of the lock.
    pub fn facts(self) -> LockFacts {
        struct Ask(RwLockName);
        impl RwJob for Ask {
            type Out = LockFacts;
            fn run<L: RawRwLock>(self) -> LockFacts {
                LockFacts { bytes: size_of::<L>(), deadlines: L::DEADLINES, blocks_threads: self.0.blocks_threads() }
            }
        }
        with_rw_lock(self, Ask(self))
    }
}

/// Returns the guard of a successful try of `std` or a lock with the same interface, poisoned or not.
#[inline]
fn tried<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_guard_leaves_a_lock_that_can_be_moved_and_dropped() {
        struct Forget;
        impl RwJob for Forget {
            type Out = ();
            fn run<L: RawRwLock>(self) {
                let (read, written) = (L::new(), L::new());
                std::mem::forget((read.rlock(), written.lock()));
                let [read, written] = [read, written].map(Box::new);
                assert!(read.is_locked() && written.is_locked_exclusive());
                assert!(read.try_lock().is_none() && written.try_rlock().is_none());
            }
        }
        RwLockName::ALL.iter().for_each(|&name| with_rw_lock(name, Forget));
    }
}
