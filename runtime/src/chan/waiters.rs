//! The sudogs of a channel: waiters in a queue, first in, first out. Each waiter is on the stack of its thread or
//! goroutine, or in its future.
//!
//! | field | read and written |
//! |---|---|
//! | `g`, `slot`, `claim`, `case`, `is_task` | fixed before the waiter is queued |
//! | `dir` | written by the waiter as it is queued, then fixed |
//! | `next`, `prev`, `ticket` | by the owner of the channel's lock while the waiter is queued or `Held` |
//! | `outcome` | by the waiter before it is queued; by the owner of the lock while the outcome is `Queued` or `Held`; by the waiter after it was readied |
//! | the value at `slot` | the same as for `outcome`; and by the peer that has taken the waiter, until the peer readies the waiter |
//!
//! | outcome | meaning | next |
//! |---|---|---|
//! | `Idle` | in no queue | `Queued`, by the waiter |
//! | `Queued` | in a queue | `Done`, `Held`, `Closed`: a peer takes the waiter. `Idle`: the waiter gives up, or a peer finds its claim taken |
//! | `Done` | a send: its value has been taken. A reservation: the waiter has a place. A receive of a thread or goroutine: the waiter has a value. A `ready` follows | |
//! | `Held` | a receive of a task: a value is in its slot, and still belongs to the channel; a `ready` follows | `Idle`: the task takes the value, or gives the value back, or the value goes to another receiver because the channel is closed |
//! | `Closed` | the channel was closed; a `ready` follows. A receiver tries to receive again | |

use std::ptr::{self, NonNull};

use crate::G;
use crate::shim::{AtomicU32, Cell, Ordering};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Idle,
    Queued,
    Done,
    Held,
    Closed,
}

/// The kind of operation for which a waiter waits. Each kind has a queue of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dir {
    Recv,
    /// A send, whose value a receiver may take.
    Send,
    /// A reservation of a place for a value. The value stays with the sender.
    Reserve,
}

type Link = Option<Queued>;

/// An entry in a queue of a channel: a waiting send, receive or reservation. A select has a waiter for each of its
/// cases.
pub(super) struct Waiter {
    pub(super) g: *const G,
    /// The address of a sender's value, or of the room for a receiver's value.
    pub(super) slot: *mut (),
    /// The claim of the waiter's select: a peer must take the claim before it takes the waiter. Null if the waiter
    /// belongs to no select: then a peer takes the waiter just by unlinking the waiter.
    claim: *const Claim,
    /// The index of the waiter's case, which is stored in the claim when this waiter is taken.
    case: u32,
    /// True if `g` is a task. A task may be dropped after it was readied, so a value that the task is given belongs to
    /// the channel until the task is polled.
    is_task: bool,
    dir: Cell<Dir>,
    pub(super) outcome: Cell<Outcome>,
    /// A number that tells which of two waiters, or of two values, is older. Tickets order the waiters of two queues,
    /// and the values that tasks hold or have given back.
    pub(super) ticket: Cell<u64>,
    next: Cell<Link>,
    prev: Cell<Link>,
}

impl Waiter {
    /// Makes a waiter for a single operation of a thread or a goroutine.
    #[inline]
    pub(super) fn new(g: *const G, slot: *mut ()) -> Self {
        Self::of_case(g, slot, ptr::null(), 0, false)
    }

    /// Makes a waiter for a single operation of a task.
    pub(super) fn of_task(g: *const G, slot: *mut ()) -> Self {
        Self::of_case(g, slot, ptr::null(), 0, true)
    }

    /// Makes a waiter for a case of a select.
    #[inline]
    pub(super) fn of_case(g: *const G, slot: *mut (), claim: *const Claim, case: u32, is_task: bool) -> Self {
        let (next, prev) = (Cell::new(None), Cell::new(None));
        let (dir, outcome, ticket) = (Cell::new(Dir::Recv), Cell::new(Outcome::Idle), Cell::new(0));
        Self { g, slot, claim, case, is_task, dir, outcome, ticket, next, prev }
    }

    pub(super) fn is_task(&self) -> bool {
        self.is_task
    }

    /// Returns the queue that the waiter has been put into last.
    pub(super) fn dir(&self) -> Dir {
        self.dir.get()
    }

    /// Names the queue that the waiter is about to be put into.
    pub(super) fn set_dir(&self, dir: Dir) {
        self.dir.set(dir);
    }

    /// Takes the waiter for the caller, which has unlinked the waiter and holds the lock. Returns false if the claim
    /// was taken before.
    pub(super) fn claim(&self) -> bool {
        // SAFETY: `claim` is null, or is alive for as long as the waiter may be queued, by the contract of
        // `Locked::enqueue`.
        unsafe { self.claim.as_ref() }.is_none_or(|claim| claim.take(self.case))
    }
}

/// The decision how a select ends. The first peer, deadline or cancel that takes the claim decides. Go's
/// `g.selectDone`.
///
/// The accesses are Relaxed, because read-modify-writes have a single winner under any ordering. `G::ready` publishes
/// the winner's writes to the waiter. The channel's lock publishes the changes that a loser made to a waiter.
pub(crate) struct Claim(AtomicU32);

impl Claim {
    pub(crate) const FREE: u32 = u32::MAX;
    /// The claim was taken because the deadline has passed, or because the waiter's future was dropped.
    pub(crate) const GIVEN_UP: u32 = u32::MAX - 1;
    pub(crate) const CANCELLED: u32 = u32::MAX - 2;
    /// The claim was taken because a case was ready before the select waited.
    pub(crate) const AT_ONCE: u32 = u32::MAX - 3;

    #[inline]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(Self::FREE))
    }

    /// Takes the claim for `by`. Returns true if the caller is the first.
    #[inline]
    pub(crate) fn take(&self, by: u32) -> bool {
        self.0.compare_exchange(Self::FREE, by, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Makes the claim free again, for the next wait.
    ///
    /// # Safety
    ///
    /// The waiters of this claim are in no queue, and no cancel knows of this claim.
    #[inline]
    pub(super) unsafe fn reset(&self) {
        self.0.store(Self::FREE, Ordering::Relaxed);
    }

    /// Returns the value that has taken the claim, or `FREE`.
    #[inline]
    pub(crate) fn taken_by(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A waiter in a queue. Such a waiter is alive, by the contract of [`WaitQueue::push`].
///
/// Only the links of a queue contain values of this type, and only while the waiter is in that queue.
#[derive(Clone, Copy)]
struct Queued(NonNull<Waiter>);

impl Queued {
    /// Returns the waiter. A caller has a reference to the queue only while it holds the lock of the channel, and the
    /// waiter cannot go away before it has had that lock. So the result is valid as long as that reference, even if the
    /// waiter is taken out of the queue meanwhile.
    #[inline]
    fn of(self, _queue: &WaitQueue) -> &Waiter {
        // SAFETY: the waiter is alive, because it is in the queue, and stays alive until the lock is released, by the
        // contract of `WaitQueue::push`.
        unsafe { self.0.as_ref() }
    }
}

/// A queue of waiters. Only the owner of the channel's lock has a reference to the queue.
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

    pub(super) fn len(&self) -> usize {
        std::iter::successors(self.first(), |waiter| waiter.next.get().map(|next| next.of(self))).count()
    }

    pub(super) fn first(&self) -> Option<&Waiter> {
        self.first.get().map(|first| first.of(self))
    }

    /// Puts a waiter at the end of the queue.
    ///
    /// # Safety
    ///
    /// - The waiter is in no queue.
    /// - The waiter stays alive and in place until it has left the queue, and then until the lock is released.
    pub(super) unsafe fn push(&self, waiter: &Waiter) {
        let this = Some(Queued(NonNull::from(waiter)));
        let last = self.last.replace(this);
        waiter.next.set(None);
        waiter.prev.set(last);
        match last {
            Some(last) => last.of(self).next.set(this),
            None => self.first.set(this),
        }
    }

    /// Puts a waiter before all waiters with a later ticket.
    ///
    /// # Safety
    ///
    /// The contract of `push`.
    pub(super) unsafe fn insert(&self, waiter: &Waiter) {
        let mut before = self.last.get();
        let mut after = None;
        while let Some(other) = before {
            if other.of(self).ticket.get() <= waiter.ticket.get() {
                break;
            }
            after = before;
            before = other.of(self).prev.get();
        }
        let this = Some(Queued(NonNull::from(waiter)));
        waiter.prev.set(before);
        waiter.next.set(after);
        match before {
            Some(before) => before.of(self).next.set(this),
            None => self.first.set(this),
        }
        match after {
            Some(after) => after.of(self).prev.set(this),
            None => self.last.set(this),
        }
    }

    /// Takes the first waiter out of the queue.
    #[inline]
    pub(super) fn pop(&self) -> Option<&Waiter> {
        let first = self.first()?;
        let next = first.next.get();
        self.first.set(next);
        match next {
            Some(next) => next.of(self).prev.set(None),
            None => self.last.set(None),
        }
        Some(first)
    }

    /// Takes a waiter out of the queue.
    ///
    /// # Safety
    ///
    /// The waiter is in this queue.
    #[inline]
    pub(super) unsafe fn unlink(&self, waiter: &Waiter) {
        let (prev, next) = (waiter.prev.get(), waiter.next.get());
        match prev {
            Some(prev) => prev.of(self).next.set(next),
            None => self.first.set(next),
        }
        match next {
            Some(next) => next.of(self).prev.set(prev),
            None => self.last.set(prev),
        }
    }
}
