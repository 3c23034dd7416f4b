//! The sudogs of a channel: waiters in a queue, first in, first out, each on its own stack or in its future.
//!
//! | field | read and written |
//! |---|---|
//! | `g`, `slot`, `claim`, `case` | fixed before it is queued |
//! | `next`, `prev` | by the owner of the channel's lock while it is queued |
//! | `outcome` | by the waiter before it is queued; by the owner of the lock while it is; by the waiter after it was readied |
//! | the value at `slot` | as `outcome`; and by the peer that has taken it, until it readies it |
//!
//! | outcome | meaning | next |
//! |---|---|---|
//! | `Idle` | in no queue | `Queued`, by the waiter |
//! | `Queued` | in a queue | `Done`, `Closed`: a peer takes it. `Idle`: it gives up, or a peer finds its claim taken |
//! | `Done` | its value has been taken, or given to it; a `ready` follows | |
//! | `Closed` | the channel was closed; a `ready` follows | |

use std::ptr::{self, NonNull};

use crate::G;
use crate::shim::{AtomicU32, Cell, Ordering};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Idle,
    Queued,
    Done,
    Closed,
}

type Link = Option<NonNull<Waiter>>;

/// One waiter in one queue; a select has one for each of its cases.
pub(super) struct Waiter {
    pub(super) g: *const G,
    /// Where a sender's value is, or where a receiver wants it.
    pub(super) slot: *mut (),
    /// Null: what unlinks it has taken it.
    claim: *const Claim,
    /// What the claim is taken with.
    case: u32,
    pub(super) outcome: Cell<Outcome>,
    next: Cell<Link>,
    prev: Cell<Link>,
}

impl Waiter {
    /// Of one operation.
    #[inline]
    pub(super) fn new(g: *const G, slot: *mut ()) -> Self {
        Self::of_case(g, slot, ptr::null(), 0)
    }

    /// Of one case of a select.
    #[inline]
    pub(super) fn of_case(g: *const G, slot: *mut (), claim: *const Claim, case: u32) -> Self {
        let (next, prev) = (Cell::new(None), Cell::new(None));
        Self { g, slot, claim, case, outcome: Cell::new(Outcome::Idle), next, prev }
    }

    /// Takes it for the caller, which has unlinked it and holds the lock.
    pub(super) fn claim(&self) -> bool {
        // SAFETY: null, or alive for as long as the waiter may be queued.
        unsafe { self.claim.as_ref() }.is_none_or(|claim| claim.take(self.case))
    }
}

/// What decides how a select ends: the first that takes it. Go's `g.selectDone`.
///
/// Relaxed: a read-modify-write has one winner whatever its ordering. What the winner wrote, the waiter sees by the
/// `ready`; what a loser did with a waiter, by the channel's lock.
pub(crate) struct Claim(AtomicU32);

impl Claim {
    pub(crate) const FREE: u32 = u32::MAX;
    /// The deadline has passed, or the waiter is unwound or dropped.
    pub(crate) const GIVEN_UP: u32 = u32::MAX - 1;
    pub(crate) const CANCELLED: u32 = u32::MAX - 2;
    /// A case was ready before the select waited.
    pub(crate) const AT_ONCE: u32 = u32::MAX - 3;

    #[inline]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(Self::FREE))
    }

    /// Whether the caller is the first.
    #[inline]
    pub(crate) fn take(&self, by: u32) -> bool {
        self.0.compare_exchange(Self::FREE, by, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// As new, for the next wait. Its waiters are in no queue: nothing takes it.
    #[inline]
    pub(crate) fn reset(&self) {
        self.0.store(Self::FREE, Ordering::Relaxed);
    }

    /// What has taken it.
    #[inline]
    pub(crate) fn taken_by(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A queue, under its channel's lock.
pub(super) struct WaitQueue {
    first: Cell<Link>,
    last: Cell<Link>,
}

impl WaitQueue {
    pub(super) fn new() -> Self {
        Self { first: Cell::new(None), last: Cell::new(None) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    /// # Safety
    ///
    /// The lock is held.
    pub(super) unsafe fn len(&self) -> usize {
        // SAFETY: queued, hence alive, and the lock is held.
        std::iter::successors(self.first.get(), |waiter| unsafe { waiter.as_ref() }.next.get()).count()
    }

    /// # Safety
    ///
    /// - The lock is held.
    /// - The waiter is in no queue, and stays alive and in place until it is in none again.
    pub(super) unsafe fn push(&self, waiter: &Waiter) {
        let this = Some(NonNull::from(waiter));
        let last = self.last.replace(this);
        waiter.next.set(None);
        waiter.prev.set(last);
        match last {
            // SAFETY: queued, hence alive, and the lock is held.
            Some(last) => unsafe { last.as_ref() }.next.set(this),
            None => self.first.set(this),
        }
    }

    /// # Safety
    ///
    /// The lock is held.
    #[inline]
    pub(super) unsafe fn pop(&self) -> Link {
        let first = self.first.get()?;
        // SAFETY: queued, hence alive, and the lock is held.
        unsafe { self.unlink(first.as_ref()) };
        Some(first)
    }

    /// # Safety
    ///
    /// The lock is held, and the waiter is in this queue.
    #[inline]
    pub(super) unsafe fn unlink(&self, waiter: &Waiter) {
        let (prev, next) = (waiter.prev.get(), waiter.next.get());
        match prev {
            // SAFETY: queued, hence alive, and the lock is held.
            Some(prev) => unsafe { prev.as_ref() }.next.set(next),
            None => self.first.set(next),
        }
        match next {
            // SAFETY: as above.
            Some(next) => unsafe { next.as_ref() }.prev.set(prev),
            None => self.last.set(prev),
        }
    }
}
