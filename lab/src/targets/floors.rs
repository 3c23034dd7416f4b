//! Floors: what no semaphore can be expected to beat, measured as the semaphores are.

use std::ptr;
use sudog_runtime::shim::system::atomic::{AtomicPtr, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use sudog_runtime::G;

use crate::targets::lockable::{Access, Admits, Lockable};
use crate::targets::registry::registry;

registry! {
    /// The name of a floor.
    enum FloorName;
    /// Something to do with a floor, whichever it is.
    trait FloorJob over Lockable<Setup = ()>;
    fn with_floor;
    unknown "floor";

    TwoRmws = "two-rmws": TwoRmws,
        "two RMWs on one line, uncontended: an acquire and a release that find nobody";
    Handover = "handover": Handover,
        "a turn handed round by contenders that sleep: a wake-up and a sleep each time";
}

/// A `fetch_sub` to go in, a `fetch_add` to go out, which is what a semaphore must do at least; it keeps no contender out.
pub struct TwoRmws(AtomicU64);

// SAFETY: it does not say that it lets in one.
unsafe impl Lockable for TwoRmws {
    type Guard = ();
    type Setup = ();

    fn admits(_: u32) -> Admits {
        Admits::Several
    }

    fn new((): &(), _: usize, permits: u32) -> Self {
        Self(AtomicU64::new(permits.into()))
    }

    #[inline]
    fn enter(&self, _: usize, _: Access) {
        self.0.fetch_sub(1, Ordering::Acquire);
    }

    #[inline]
    unsafe fn leave(&self, _: usize, (): ()) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// A turn that contenders hand round in the order of their numbers, each asleep until it comes.
///
/// That is what serving first come, first served costs when there are more contenders than processors: the contender that is
/// next sleeps, unless it has kept a processor from one that could have used it. No contender looks twice before it sleeps.
///
/// | place | means |
/// |---|---|
/// | null | its contender is awake, or will not come |
/// | [`TURN`] | its contender's turn has come |
/// | a G | its contender sleeps, or is about to |
pub struct Handover {
    places: Box<[CachePadded<AtomicPtr<G>>]>,
}

const TURN: *mut G = ptr::without_provenance_mut(1);

// SAFETY: there is one turn, which moves when its holder leaves: by a release that the next one acquires.
unsafe impl Lockable for Handover {
    type Guard = ();
    type Setup = ();

    const TAKES_OTHERS: bool = false;

    fn admits(_: u32) -> Admits {
        Admits::One
    }

    fn new((): &(), contenders: usize, _: u32) -> Self {
        let place = |n| CachePadded::new(AtomicPtr::new(if n == 0 { TURN } else { ptr::null_mut() }));
        Self { places: (0..contenders).map(place).collect() }
    }

    #[inline]
    fn enter(&self, me: usize, _: Access) {
        let g = G::current();
        let asleep = (&raw const g).cast_mut();
        // Release: a thread that finds the G sees it. Acquire, both times: the turn, with what its holder did.
        if self.places[me].compare_exchange(ptr::null_mut(), asleep, Ordering::Release, Ordering::Acquire).is_ok() {
            g.park(None, || ());
        }
        // No contender writes here before the turn has gone round.
        self.places[me].store(ptr::null_mut(), Ordering::Relaxed);
    }

    #[inline]
    unsafe fn leave(&self, me: usize, (): ()) {
        let next = (me + 1) % self.places.len();
        let sleeper = self.places[next].swap(TURN, Ordering::AcqRel);
        if !sleeper.is_null() {
            // SAFETY: its owner is in `park`, or about to be, and leaves it by this `ready` only, which comes once, as
            // there is one turn.
            unsafe { G::ready(sleeper) };
        }
    }
}
