//! The ticket lock: contenders draw numbers, and watch the one word that has the number of the owner.
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `next` | the next ticket to be drawn | contenders, by RMWs |
//! | `grant` | the ticket that has the lock, or the next ticket to have the lock | the owner only |
//!
//! | step | action |
//! |---|---|
//! | lock | `tx = next++`; has the lock once `grant == tx` |
//! | unlock | `grant = grant + 1` |
//! | try | has the lock if `next` goes from `grant` to `grant + 1` |
//!
//! `grant <= next`, and the lock is free if the two are equal. Tickets have 64 bits and never repeat, so a `next` that
//! equals a `grant` which was read before has not been any other number in between.
//!
//! A `try` that fails has found `next` different from `grant`: then the lock was held when `grant` was read, or has
//! been taken since. So at some moment of the `try` the lock was not free.
//!
//! Orderings: the owner's store of `grant` is a Release, which the next owner reads with Acquire, in `lock` or in
//! `try_lock`. `next` is Relaxed: a ticket gives a place, not the lock. `grant` and `next` share a cache line: without
//! contention the lock costs one miss instead of two.
//!
//! Source: Reed and Kanodia, *Synchronization with eventcounts and sequencers*, 1979; Mellor-Crummey and Scott, 1991.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::shim::AtomicU64;

use super::{watch, without_unwinding};
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

/// A ticket lock: first come, first served, without sleeping. 16 bytes.
///
/// A policy that would sleep yields instead. With more waiters than processors the next owner may not be running, and
/// all other waiters wait for that thread.
///
/// # Limits
///
/// The limits of the [module](super).
///
/// # Examples
///
/// ```
/// use sudog::sync::MutexWith;
/// use sudog::locks::spin_lock::TicketLock;
///
/// static QUEUE: MutexWith<TicketLock, Vec<u32>> = MutexWith::new(Vec::new());
/// QUEUE.lock().push(1);
/// ```
pub struct TicketLock<P = SpinThenPark> {
    next: AtomicU64,
    grant: AtomicU64,
    policy: PhantomData<P>,
}

impl<P: WaitPolicy> TicketLock<P> {
    #[cold]
    fn wait(&self, tx: u64) {
        without_unwinding(|| watch::<P, _>(|| (self.grant.load(Acquire) == tx).then_some(())));
    }

    /// Returns a value that changes when a contender joins the queue. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.next.load(Relaxed)
    }
}

// SAFETY: a ticket is drawn once, by an RMW of `next`, and its holder has the lock while the ticket is equal to
// `grant`; only the holder's unlock changes `grant` then. The module's comment argues the orderings. The words store no
// address and no thread.
unsafe impl<P: WaitPolicy> RawLock for TicketLock<P> {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { next: AtomicU64::new(0), grant: AtomicU64::new(0), policy: PhantomData }
    }

    #[inline]
    fn lock(&self) {
        let tx = self.next.fetch_add(1, Relaxed);
        if self.grant.load(Acquire) != tx {
            self.wait(tx);
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        let grant = self.grant.load(Acquire);
        self.next.compare_exchange(grant, grant + 1, Relaxed, Relaxed).is_ok().then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        self.grant.store(self.grant.load(Relaxed) + 1, Release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // Acquire: the load of `next` below must not read a value older than this `grant`, which would be less than
        // `grant`.
        let grant = self.grant.load(Acquire);
        self.next.load(Relaxed) != grant
    }
}

#[cfg(not(sudog_loom))]
impl<P: WaitPolicy> sudog_sync::ConstRawLock for TicketLock<P> {
    const INIT: Self = Self { next: AtomicU64::new(0), grant: AtomicU64::new(0), policy: PhantomData };
}

impl<P> fmt::Debug for TicketLock<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grant = self.grant.load(Acquire);
        let waiting = self.next.load(Relaxed).saturating_sub(grant); // the owner counts too
        f.debug_struct("TicketLock")
            .field("locked", &(waiting != 0))
            .field("waiters", &waiting.saturating_sub(1))
            .finish_non_exhaustive()
    }
}
