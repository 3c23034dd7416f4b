//! A channel: a lock, the count of ends, and the list of fibres that hang. What is done under the lock is here.
//!
//! The *count* is of ends through which the channel may still be served: those that exist, without those whose fibre hangs
//! on this channel for as long as it takes.
//!
//! | step | condition | count |
//! |---|---|---|
//! | an end is made, or duplicated | | +1 |
//! | a fibre hangs by its end | without a limit; with one | -1; 0, as it comes back by itself |
//! | a fibre that hangs is met by a partner, or leaves because it is unwound | | gives back what it took |
//! | an end is dropped | on a channel that lives | -1 |
//!
//! At zero nothing can ever reach the fibres in the list. The channel is dead from then on: the step that brought the
//! count there takes the list along, and wakes each of them when it has unlocked. A step would bring the count to zero if
//! the last end but those that hang is dropped, or is about to hang.
//!
//! Every fibre in the list of a dead channel has been discounted: one with a limit is counted, so the count is not zero.
//!
//! No user code runs under the lock, nothing waits, and nothing allocates.

use std::ptr::NonNull;

use sudog_runtime::G;
use sudog_runtime::shim::{Mutex, MutexGuard, mark};

use crate::list::{Dir, List, Place, Taken, Waiter};

/// A channel without its values, which are in the frames of those that read and write them.
pub(crate) struct Channel {
    state: Mutex<State>,
}

struct State {
    /// See the top of this file. Zero: the channel is dead.
    count: usize,
    list: List,
}

// SAFETY: the list, and what it links, is touched by the owner of the lock only; and by what has taken it out, once.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// The channel's lock.
pub(crate) struct Locked<'a>(MutexGuard<'a, State>);

/// What a read or a write finds.
pub(crate) enum Met<'a> {
    /// A partner, taken out of the list.
    Partner(Partner),
    /// No partner. The lock is held still: the caller hangs, or goes.
    Nobody(Locked<'a>),
    Dead,
}

/// A fibre that has been taken out of the list, and waits for its wake-up.
#[must_use = "the fibre sleeps for ever"]
#[derive(Clone, Copy)]
pub(crate) struct Partner(NonNull<Waiter>);

/// The fibres of a channel that is dead.
#[must_use = "the fibres sleep for ever"]
pub(crate) struct Hanging(Taken);

impl Channel {
    pub(crate) fn new(ends: usize) -> Self {
        Self { state: Mutex::new(State { count: ends, list: List::new() }) }
    }

    fn lock(&self) -> Locked<'_> {
        Locked(self.state.lock())
    }

    /// The first step of a read or a write.
    pub(crate) fn meet(&self, dir: Dir) -> Met<'_> {
        let mut locked = self.lock();
        let state = &mut *locked.0;
        if state.count == 0 {
            mark("a call finds the channel dead");
            return Met::Dead;
        }
        // SAFETY: the lock is held.
        match unsafe { state.list.pop(dir.opposite()) } {
            Some(waiter) => {
                // SAFETY: it was listed just now, and waits for its wake-up.
                let partner = unsafe { waiter.as_ref() };
                partner.place.set(Place::Met);
                state.recount(partner);
                Met::Partner(Partner(waiter))
            }
            None => Met::Nobody(locked),
        }
    }

    /// Takes a waiter out that gives up. False if something else has it, and readies it.
    ///
    /// # Safety
    ///
    /// The waiter is alive, and has been put into the list of this channel.
    pub(crate) unsafe fn leave(&self, waiter: &Waiter) -> bool {
        let mut locked = self.lock();
        let state = &mut *locked.0;
        let listed = state.count > 0 && waiter.place.get() == Place::Listed;
        if listed {
            // SAFETY: the lock is held; a list of a channel that lives has all that is `Listed`.
            unsafe { state.list.remove(waiter) };
            state.recount(waiter);
        }
        listed
    }

    /// One end more, by an end that does not hang. On a dead channel it is as dead as the others.
    pub(crate) fn add_end(&self) {
        let state = &mut *self.lock().0;
        if state.count > 0 {
            state.count += 1;
        }
    }

    /// One end less. If that is the end of the channel, the caller is to wake those that hang.
    pub(crate) fn drop_end(&self) -> Option<Hanging> {
        let mut locked = self.lock();
        let state = &mut *locked.0;
        match state.count {
            0 => {
                mark("an end of a dead channel is dropped");
                None
            }
            1 => Some(state.die()),
            _ => {
                state.count -= 1;
                None
            }
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.lock().0.count == 0
    }

    /// What its list has, and how many; and the count.
    pub(crate) fn look(&self) -> (Option<Dir>, usize, usize) {
        let state = &*self.lock().0;
        (state.list.dir(), state.list.len(), state.count)
    }
}

impl State {
    /// A fibre does not hang any more.
    fn recount(&mut self, waiter: &Waiter) {
        if !waiter.counted {
            self.count += 1;
        }
    }

    fn die(&mut self) -> Hanging {
        self.count = 0;
        Hanging(self.list.take())
    }
}

impl<'a> Locked<'a> {
    /// Puts the caller's waiter into the list. If the caller's end is the last that counts, and would not any more, the
    /// channel dies instead, and the caller is to wake those that hang.
    ///
    /// # Safety
    ///
    /// - As for [`List::push`].
    /// - The caller comes from [`Met::Nobody`] for this direction.
    pub(crate) unsafe fn hang(mut self, dir: Dir, waiter: &Waiter) -> Result<Self, Hanging> {
        let state = &mut *self.0;
        if !waiter.counted {
            if state.count == 1 {
                return Err(state.die());
            }
            state.count -= 1;
        }
        // SAFETY: the lock is held; by the contract. It does not panic: none of the other kind was there.
        unsafe { state.list.push(dir, waiter) };
        Ok(self)
    }
}

impl Partner {
    /// Where its value is, or is to be.
    pub(crate) fn slot(self) -> *mut () {
        // SAFETY: it waits for `wake`, so it is alive; and nothing writes to its slot pointer.
        unsafe { (*self.0.as_ptr()).slot }
    }

    /// Wakes it. If it is to be `first`, and is a fibre of the caller's worker, it runs before the caller goes on.
    ///
    /// # Safety
    ///
    /// This is the only call for this partner, and nothing of it is used after.
    pub(crate) unsafe fn wake(self, first: bool) {
        // SAFETY: as in `slot`.
        let g = unsafe { (*self.0.as_ptr()).g };
        // SAFETY:
        // - alive: it waits for this call;
        // - taken out of its list by the caller, so this is the only `ready`, by the contract;
        // - its G was found by this list alone, and waits for nothing else: it was listed just before its `park`.
        unsafe { if first { G::ready_first(g) } else { G::ready(g) } }
    }
}

impl Hanging {
    /// Wakes them: each finds the channel dead, and ends by itself, on its own worker.
    ///
    /// What they hold goes when they end, and may be the last end of the next channel. That happens on their stacks and
    /// by their workers' run queues, one fibre after the other: the queue is the worklist, and nothing recurses.
    pub(crate) fn wake(mut self) {
        // SAFETY: they were taken along with the list, so they are readied here only.
        while let Some(g) = unsafe { self.0.next() } {
            // SAFETY:
            // - alive: it waits for this call; a waiter that gives up finds the channel dead, and waits too;
            // - taken out of its list by the caller, and not used after: the only `ready`;
            // - its G was found by this list alone, and waits for nothing else.
            unsafe { G::ready(g) };
        }
    }
}
