//! Readers-writer locks.

use std::hint::black_box;

use crossbeam_utils::CachePadded;
use sudog_sync::RawRwLock;

use super::contestant::Role;
use super::round::{Round, Timed};
use crate::rounds::{Rounds, steps};
use crate::targets::rw_locks::RwLockName;

/// The role of a readers-writer lock.
pub trait RwRole {
    /// Returns the role in the comparison.
    fn role(self) -> Role;
}

impl RwRole for RwLockName {
    fn role(self) -> Role {
        match self {
            Self::Mutex => Role::Floor,
            _ if self.is_peer() => Role::Peer,
            _ => Role::Ours,
        }
    }
}

/// Makes two reads and a write, on a lock that only this thread uses. The reads follow each other, and are not nested
/// as in Go: the mutex among the contestants does not allow nested reads.
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

/// Contends for a single lock: each contender writes at every `every`-th operation, and reads at the others, with
/// `work` steps while reading.
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
    // SAFETY: `guard` comes from `rlock` of `lock` above, on this thread.
    unsafe { lock.runlock(guard) };
}

#[inline]
fn write<L: RawRwLock>(lock: &L) {
    let guard = lock.lock();
    // SAFETY: `guard` comes from `lock` of `lock` above, on this thread.
    unsafe { lock.unlock(guard) };
}
