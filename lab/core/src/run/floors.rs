//! Floors: operations that no semaphore can be expected to beat, measured as the semaphores are.

use std::ptr;
use sudog_runtime::shim::system::atomic::{AtomicPtr, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use sudog_runtime::G;

use super::driver::{Exclusive, Shared};
use super::lockable::{Access, Lockable};

/// A `fetch_sub` to go in, and a `fetch_add` to go out: the least that a semaphore must do. This floor keeps no
/// contender out.
pub struct TwoRmws(AtomicU64);

impl TwoRmws {
    pub fn new() -> Self {
        Self(AtomicU64::new(1))
    }
}

// SAFETY: the section is for any number of contenders.
unsafe impl Lockable for TwoRmws {
    type Guard = ();
    type Section = Shared;

    #[inline]
    fn enter(&self, _: usize, _: Access) {
        self.0.fetch_sub(1, Ordering::Acquire);
    }

    #[inline]
    unsafe fn leave(&self, _: usize, (): ()) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// A turn that contenders hand round in the order of their numbers. Each contender sleeps until its turn comes.
///
/// This floor is the cost of serving first come, first served when there are more contenders than processors: the next
/// contender sleeps, unless it has kept a processor from a contender that could have used it. No contender looks twice
/// before it sleeps.
///
/// | place of a contender | meaning |
/// |---|---|
/// | null | the contender is awake, or will not come |
/// | [`TURN`] | the contender's turn has come |
/// | a G | the contender sleeps, or is about to |
pub struct Handover {
    places: Box<[CachePadded<AtomicPtr<G>>]>,
}

const TURN: *mut G = ptr::without_provenance_mut(1);

impl Handover {
    pub fn new(contenders: usize) -> Self {
        let place = |n| CachePadded::new(AtomicPtr::new(if n == 0 { TURN } else { ptr::null_mut() }));
        Self { places: (0..contenders).map(place).collect() }
    }
}

// SAFETY: there is one turn, so one contender is inside. The turn moves when its holder leaves: by a release that the
// next holder acquires.
unsafe impl Lockable for Handover {
    type Guard = ();
    type Section = Exclusive;

    const TAKES_OTHERS: bool = false;

    #[inline]
    fn enter(&self, me: usize, _: Access) {
        let g = G::current();
        let asleep = (&raw const g).cast_mut();
        // Release: a thread that reads the pointer sees the G. Acquire, on failure: this contender sees the turn, with
        // everything that the turn's last holder did. On success, the `ready` that ends `park` orders the same.
        if self.places[me].compare_exchange(ptr::null_mut(), asleep, Ordering::Release, Ordering::Acquire).is_ok() {
            g.park(None, || ());
        }
        // No other contender writes here before the turn has gone round.
        self.places[me].store(ptr::null_mut(), Ordering::Relaxed);
    }

    #[inline]
    unsafe fn leave(&self, me: usize, (): ()) {
        let next = (me + 1) % self.places.len();
        let sleeper = self.places[next].swap(TURN, Ordering::AcqRel);
        if !sleeper.is_null() {
            // SAFETY:
            // - `sleeper` points to the G of a contender that is in `park`, or about to be, so the G is alive.
            // - The contender leaves that `park` only by this `ready`, which comes once, as there is one turn.
            unsafe { G::ready(sleeper) };
        }
    }
}
