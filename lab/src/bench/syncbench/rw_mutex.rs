//! Readers-writer locks.

use std::hint::black_box;

use crossbeam_utils::CachePadded;
use sudog_sync::RawRwLock;

use super::contestant::Role;
use super::round::{Round, Timed};
use crate::run::rounds::{Rounds, steps};
use crate::targets::rw_locks::RwLockName;

impl RwLockName {
    /// What it is in the comparison.
    #[must_use]
    pub const fn role(self) -> Role {
        match self {
            Self::Mutex => Role::Floor,
            _ if self.is_peer() => Role::Peer,
            _ => Role::Ours,
        }
    }
}

/// Each thread has a lock of its own: two reads and a write. One after the other, not one in the other as in Go: the mutex
/// among the contestants could not do that.
pub fn uncontended<L: RawRwLock + 'static>(round: &Round) -> Timed {
    round.parallel(|_, portion| {
        let lock = CachePadded::new(L::new());
        let lock: &L = black_box(&lock);
        portion.each(|| {
            read(lock, || ());
            read(lock, || ());
            write(lock);
        });
    })
}

/// One lock: each contender writes every so many operations, and reads else, with steps of work meanwhile.
pub fn mixed<L: RawRwLock + 'static, R: Rounds>(round: R, every: u32, work: u32) -> R::Out {
    let lock = CachePadded::new(L::new());
    round.divide(move |_, portion| {
        let (mut n, mut x) = (0, 1);
        portion.each(|| {
            n += 1;
            if n == every {
                n = 0;
                write::<L>(&lock);
            } else {
                read::<L>(&lock, || {
                    if work > 0 {
                        x = steps(work, x);
                    }
                });
            }
        });
        black_box(x);
    })
}

#[inline]
fn read<L: RawRwLock>(lock: &L, inside: impl FnOnce()) {
    let guard = lock.rlock();
    inside();
    // SAFETY: acquired above, on this thread.
    unsafe { lock.runlock(guard) };
}

#[inline]
fn write<L: RawRwLock>(lock: &L) {
    let guard = lock.lock();
    // SAFETY: acquired above, on this thread.
    unsafe { lock.unlock(guard) };
}
