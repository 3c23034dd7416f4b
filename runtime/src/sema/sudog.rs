//! Sudog: the entry of a G in a queue. A waiter keeps its sudog on its own stack.
//!
//! | field | read and written |
//! |---|---|
//! | `g` | made by the waiter; the waker takes the address of `g` under the bucket's lock and readies the G after that |
//! | `addr`, `priority_seed` | fixed before the sudog is queued |
//! | `next`, `prev` | while queued, by the holder of the bucket's lock: the ring of the waiters for `addr` |
//! | `child`, `parent`, `priority` | the same, and set only in the ring's head, which is a node of the treap |
//! | `wait` | by the waiter before and after the sudog is queued; the waker reads `wait` under the lock |
//! | `outcome` | by the waiter before the sudog is queued, by the holder of the lock while it is, by the waiter after `ready` |

use std::ops::Deref;
use std::ptr::NonNull;

use crate::G;
use crate::profile::QueuedWait;
use crate::shim::Cell;

/// A waiter of an address.
pub struct Sudog {
    pub g: G,
    pub addr: usize,
    /// A hash of the address, never 0: the sudog's priority as a node. Computed before the bucket's lock is taken.
    pub priority_seed: u32,
    /// The children in the treap: `child[0]` has the smaller addresses, `child[1]` the larger addresses.
    pub child: [Cell<Link>; 2],
    pub parent: Cell<Link>,
    /// The priority seed in the head of a treap's ring, 1 in the head of a list's ring; 0 in all other sudogs.
    pub priority: Cell<u32>,
    /// The next waiter in the ring of the waiters for `addr`. The head's `prev` is the last waiter. In a ring with a
    /// single sudog, the sudog is its own neighbour.
    pub next: Cell<Link>,
    pub prev: Cell<Link>,
    /// The state of this wait in the mutex profile.
    pub(crate) wait: QueuedWait,
    pub outcome: Cell<WaitOutcome>,
}

/// The state or the result of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOutcome {
    /// The sudog is in no queue, and no wait of the sudog has ended.
    Idle,
    /// The sudog is in a queue: the G that unlinks it sets one of the other values.
    Queued,
    /// A release has unlinked the sudog: the permit is in the counter, and a newcomer may be faster.
    Woken,
    /// A release has unlinked the sudog, whose waiter owns the permit already. Go's `ticket == 1`.
    Granted,
    /// A cancel has unlinked the sudog.
    Cancelled,
}

pub type Link = Option<SudogPtr>;

/// A pointer to a sudog. The contract of [`Sudog::as_queued`] says when the pointer may be dereferenced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SudogPtr(NonNull<Sudog>);

impl Sudog {
    pub(crate) fn new(g: G, addr: usize, wait: QueuedWait) -> Self {
        Self {
            g,
            addr,
            priority_seed: priority_seed(addr),
            child: [Cell::new(None), Cell::new(None)],
            parent: Cell::new(None),
            priority: Cell::new(0),
            next: Cell::new(None),
            prev: Cell::new(None),
            wait,
            outcome: Cell::new(WaitOutcome::Idle),
        }
    }

    /// Tells the mutex profile that the waiter has left the queue. Called by the waiter, without the bucket's lock.
    #[inline]
    pub(super) fn end_wait(&self) {
        self.wait.end(self.addr, matches!(self.outcome.get(), WaitOutcome::Woken | WaitOutcome::Granted));
    }

    /// Returns a pointer to this sudog, by which a queue links the sudog.
    ///
    /// # Safety
    ///
    /// - The sudog stays in place and alive for as long as the result, or a copy of it, is dereferenced.
    /// - A copy is dereferenced only by the holder of the lock of the queue that holds the sudog, or, while the sudog
    ///   is in no queue, by the waiter.
    pub unsafe fn as_queued(&self) -> SudogPtr {
        SudogPtr(NonNull::from(self))
    }
}

/// Hashes an address by the finalizer of MurmurHash3: the addresses of a bucket are multiples of 2008 bytes apart.
#[inline]
fn priority_seed(addr: usize) -> u32 {
    let mut x = addr as u64;
    x = (x ^ (x >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x = (x ^ (x >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    (x >> 32) as u32 | 1
}

impl SudogPtr {
    /// Returns the address of the sudog's G, to be readied when the lock has been released.
    pub fn g(self) -> *const G {
        // Make no reference: when the address is used, another G may own the sudog.
        // SAFETY: the field is in bounds of the sudog that `as_queued` was given.
        unsafe { &raw const (*self.0.as_ptr()).g }
    }
}

impl Deref for SudogPtr {
    type Target = Sudog;

    #[inline]
    fn deref(&self) -> &Sudog {
        // SAFETY: the sudog is alive and no other thread accesses it meanwhile, by the contract of `as_queued`.
        unsafe { self.0.as_ref() }
    }
}
