//! A G in a queue: what a waiter leaves of itself on its own stack.
//!
//! | field | read and written |
//! |---|---|
//! | `g` | made by the waiter; its waker takes the address under the bucket's lock and readies it after |
//! | `addr`, `rank` | fixed before it is queued |
//! | `next`, `prev` | by the holder of the bucket's lock while queued: the ring of those who wait for `addr` |
//! | `child`, `parent`, `priority` | the same, and set only in the ring's head, which is a node of the treap |
//! | `fate` | by the waiter before it is queued, by the holder of the lock while it is, by the waiter after `ready` |

use std::ops::Deref;
use std::ptr::NonNull;

use crate::G;
use crate::shim::Cell;

/// One waiter of one address.
pub struct Sudog {
    pub g: G,
    pub addr: usize,
    /// A hash of the address, never 0: what its priority will be. Made before the bucket's lock is taken.
    pub rank: u32,
    /// The treap: smaller addresses in `child[0]`, larger ones in `child[1]`.
    pub child: [Cell<Link>; 2],
    pub parent: Cell<Link>,
    /// Its rank in the head of a treap's ring, 1 in that of a list's; 0 in everybody else.
    pub priority: Cell<u32>,
    /// The ring: the head's `prev` is the last in line. Alone, a sudog is its own neighbour.
    pub next: Cell<Link>,
    pub prev: Cell<Link>,
    pub fate: Cell<WaitOutcome>,
}

/// What has become of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOutcome {
    /// Not in a queue, and nothing has happened to it.
    Idle,
    /// In a queue: exactly one of the others will be next, by the hand of whoever unlinks it.
    Queued,
    /// Unlinked by a release: its permit is in the counter, and must be fought for.
    Woken,
    /// Unlinked by a release, and the permit is its own already. Go's `ticket == 1`.
    Granted,
    /// Unlinked by a cancel.
    Cancelled,
}

pub type Link = Option<SudogPtr>;

/// A sudog that somebody vouches for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SudogPtr(NonNull<Sudog>);

impl Sudog {
    pub fn new(g: G, addr: usize) -> Self {
        Self {
            g,
            addr,
            rank: rank(addr),
            child: [Cell::new(None), Cell::new(None)],
            parent: Cell::new(None),
            priority: Cell::new(0),
            next: Cell::new(None),
            prev: Cell::new(None),
            fate: Cell::new(WaitOutcome::Idle),
        }
    }

    /// # Safety
    ///
    /// - The sudog stays where it is and alive for as long as the result, or a copy of it, is dereferenced.
    /// - Whoever dereferences a copy holds the lock of the queue that the sudog is in, or is its waiter while it is in
    ///   none.
    pub unsafe fn as_queued(&self) -> SudogPtr {
        SudogPtr(NonNull::from(self))
    }
}

/// By the finalizer of MurmurHash3, as the addresses of a bucket are at multiples of 2008 bytes from each other.
#[inline]
fn rank(addr: usize) -> u32 {
    let mut x = addr as u64;
    x = (x ^ (x >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x = (x ^ (x >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    (x >> 32) as u32 | 1
}

impl SudogPtr {
    /// Where its G lives, to be readied when the lock has been released.
    pub fn g(self) -> *const G {
        // No reference is made: by the time the address is used, others may hold the sudog.
        // SAFETY: in bounds of the sudog that `as_queued` was given.
        unsafe { &raw const (*self.0.as_ptr()).g }
    }
}

impl Deref for SudogPtr {
    type Target = Sudog;

    #[inline]
    fn deref(&self) -> &Sudog {
        // SAFETY: alive and not touched by another thread meanwhile, by the contract of `as_queued`.
        unsafe { self.0.as_ref() }
    }
}
