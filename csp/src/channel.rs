//! A channel: a lock, the count of ends, and the list of fibres that hang. All steps under the lock are in this file.
//!
//! The *count* is the number of ends through which the channel may still be served: those that exist, without those whose
//! fibre hangs on this channel without a limit.
//!
//! | step | condition | count |
//! |---|---|---|
//! | an end is made, or duplicated | | +1 |
//! | a fibre hangs by its end | without a limit; with a limit | -1; 0, as the fibre comes back by itself |
//! | a fibre that hangs leaves: met, reclaimed with its set, timed out, cancelled | | gives back what it took |
//! | an end is dropped | on a channel that lives | -1 |
//!
//! At zero no partner can ever reach the fibres in the list, and the channel is dead for good. The step that brings the
//! count to zero takes the list, and wakes each fibre in it after the unlock. A step would bring the count to zero if the
//! last end but those that hang is dropped, or is about to hang.
//!
//! Each fibre in the list of a dead channel has been discounted: a fibre with a limit is counted, so the count is not zero.
//!
//! A fibre of an active set enters and leaves the set's list together with the channel's list, under the channel's lock. So
//! a waiter that its set lists is in the list of a channel that lives. Order of locks: channel, then set.
//!
//! No user code runs under the lock, nothing waits, and nothing allocates.

use std::ptr::NonNull;

use sudog_runtime::G;
use sudog_runtime::shim::{Mutex, MutexGuard, mark};

use crate::list::{Dir, List, Place, Taken, Waiter};
use crate::set::{Runner, Set};

/// A channel without its values, which are in the frames of those that read and write them.
pub(crate) struct Channel {
    state: Mutex<State>,
}

struct State {
    /// The count of ends: see the top of this file. Zero: the channel is dead.
    count: usize,
    list: List,
    /// Number of waiters in the list that belong to active sets.
    of_sets: usize,
}

// SAFETY: the list, and the waiters in it, are touched by the owner of the lock only; and by the G that has taken a waiter
// out, once.
unsafe impl Send for Channel {}
// SAFETY: the same.
unsafe impl Sync for Channel {}

/// The channel's lock.
pub(crate) struct Locked<'a>(MutexGuard<'a, State>);

/// Result of the first step of a read or a write.
pub(crate) enum Met<'a> {
    /// A partner, taken out of the list.
    Partner(Partner),
    /// No partner. The lock is held still: the caller hangs, or goes.
    Nobody(Locked<'a>),
    Dead,
}

/// Result of an attempt to hang.
pub(crate) enum Hung<'a> {
    Listed(Listed<'a>),
    /// The fibre's end was the last that counts. The caller is to wake those that hang.
    Last(Hanging),
    /// The fibre's active set has been dropped.
    SetIsClosed,
}

/// A channel's lock, whose list has the caller's waiter.
#[must_use = "the caller is in the list: unlock in the commit of its wait"]
pub(crate) struct Listed<'a> {
    locked: Locked<'a>,
    /// The G that waits for the rest of the caller's set, which has come.
    runner: Option<Runner>,
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
        Self { state: Mutex::new(State { count: ends, list: List::new(), of_sets: 0 }) }
    }

    fn lock(&self) -> Locked<'_> {
        Locked(self.state.lock())
    }

    /// Takes a partner out, if there is one: the first step of a read or a write.
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
                // SAFETY: the waiter was listed until now, and its fibre waits for a wake-up.
                let partner = unsafe { waiter.as_ref() };
                partner.place.set(Place::Met);
                state.left(partner);
                Met::Partner(Partner(waiter))
            }
            None => Met::Nobody(locked),
        }
    }

    /// Takes a waiter out that gives up. Returns false if another G has taken the waiter, and readies it.
    ///
    /// # Safety
    ///
    /// The waiter is alive, and has been put into the list of this channel.
    pub(crate) unsafe fn leave(&self, waiter: &Waiter) -> bool {
        let mut locked = self.lock();
        let state = &mut *locked.0;
        let listed = state.count > 0 && waiter.place.get() == Place::Listed;
        if listed {
            // SAFETY: the lock is held; the list of a channel that lives has each waiter that is `Listed`.
            unsafe { state.list.remove(waiter) };
            state.left(waiter);
        }
        listed
    }

    /// Takes the first waiter of `set` out, if that waiter hangs on this channel, for its wake-up.
    pub(crate) fn reclaim(&self, set: &Set) -> Option<Partner> {
        let mut locked = self.lock();
        let state = &mut *locked.0;
        let first = set.first_on(self)?;
        // SAFETY: the set lists the waiter, and cannot unlist it without this channel's lock: the waiter is alive, and in
        // this channel's list.
        let waiter = unsafe { first.as_ref() };
        // SAFETY: the lock is held, and the waiter is in the list.
        unsafe { state.list.remove(waiter) };
        waiter.place.set(Place::Reclaimed);
        state.left(waiter);
        Some(Partner(first))
    }

    /// Counts one end more, made from an end that does not hang. On a dead channel the new end is dead too.
    pub(crate) fn add_end(&self) {
        let state = &mut *self.lock().0;
        if state.count > 0 {
            state.count += 1;
        }
    }

    /// Counts one end less. If that ends the channel, the caller is to wake those that hang.
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

    /// Returns what the waiters hang for, their number, and the count of ends.
    pub(crate) fn look(&self) -> (Option<Dir>, usize, usize) {
        let state = &*self.lock().0;
        (state.list.dir(), state.list.len(), state.count)
    }
}

impl State {
    /// Counts a fibre that does not hang any more. Its waiter has just been taken out of the list.
    fn left(&mut self, waiter: &Waiter) {
        if !waiter.limited {
            self.count += 1;
        }
        // SAFETY: the fibre has not been readied, and keeps its set.
        if let Some(set) = unsafe { waiter.set.as_ref() } {
            self.of_sets -= 1;
            // SAFETY: the waiter was in the list of this channel, so its set lists it.
            unsafe { set.unlist(waiter) };
        }
    }

    fn die(&mut self) -> Hanging {
        self.count = 0;
        let taken = self.list.take();
        if std::mem::take(&mut self.of_sets) > 0 {
            taken.for_each(|waiter| {
                // SAFETY: the fibre has not been readied, and keeps its set.
                if let Some(set) = unsafe { waiter.set.as_ref() } {
                    // SAFETY: the waiter was in the list of this channel, so its set lists it.
                    unsafe { set.unlist(waiter) };
                }
            });
        }
        Hanging(taken)
    }
}

impl<'a> Locked<'a> {
    /// Puts the caller's waiter into the list, if the caller may hang.
    ///
    /// # Safety
    ///
    /// - The waiter is in no list. It stays alive and in place until it is in none again, and has been readied unless its
    ///   own fibre has taken it out. So does its set.
    /// - The waiter names this channel.
    /// - The caller comes from [`Met::Nobody`] for this direction.
    pub(crate) unsafe fn hang(mut self, dir: Dir, waiter: &Waiter) -> Hung<'a> {
        let state = &mut *self.0;
        if !waiter.limited && state.count == 1 {
            return Hung::Last(state.die());
        }
        let mut runner = None;
        // SAFETY: the set is alive, by the contract.
        if let Some(set) = unsafe { waiter.set.as_ref() } {
            // SAFETY: the waiter is in no list, and alive for as long as needed, by the contract.
            match unsafe { set.list(waiter) } {
                Ok(at_rest) => runner = at_rest,
                Err(_) => return Hung::SetIsClosed,
            }
            state.of_sets += 1;
        }
        if !waiter.limited {
            state.count -= 1;
        }
        // SAFETY: the lock is held; the waiter is in no list, and alive for as long as needed, by the contract. This does
        // not panic: the caller has found no waiter of the other kind.
        unsafe { state.list.push(dir, waiter) };
        Hung::Listed(Listed { locked: self, runner })
    }
}

impl Listed<'_> {
    /// Unlocks the channel: a partner may take the caller's waiter from now on.
    #[inline]
    pub(crate) fn unlock(self) {
        drop(self.locked);
        // Wake without the lock, as a waking may take microseconds.
        if let Some(runner) = self.runner {
            mark("a fibre that hangs brings rest");
            runner.wake();
        }
    }
}

impl Partner {
    /// Returns where the partner's value is, or is to be.
    pub(crate) fn slot(self) -> *mut () {
        // SAFETY: the partner waits for `wake`, so its waiter is alive; and nothing writes to the slot pointer.
        unsafe { (*self.0.as_ptr()).slot }
    }

    /// Wakes the partner. If it is to be `first`, and is a fibre of the caller's worker, it runs before the caller goes on.
    ///
    /// # Safety
    ///
    /// The caller calls this once for a partner, and uses nothing of the partner after.
    pub(crate) unsafe fn wake(self, first: bool) {
        // SAFETY: the partner waits for this call, so its waiter is alive; and nothing writes to `g`.
        let g = unsafe { (*self.0.as_ptr()).g };
        // SAFETY:
        // - the G is alive, as the partner waits for this call;
        // - the caller has taken the waiter out of its list, so this is the only `ready`, by the contract;
        // - its G was found by this list alone, and waits for nothing else: it was listed just before its `park`.
        unsafe { if first { G::ready_first(g) } else { G::ready(g) } }
    }
}

impl Hanging {
    /// Wakes the fibres: each finds the channel dead, and returns an error to its caller, on its own worker.
    ///
    /// The ends that a fibre holds are dropped when it returns, and may be the last of the next channel. That happens on the
    /// fibre's stack, and by the workers' run queues one fibre after the other: the queue is the worklist, and nothing
    /// recurses.
    pub(crate) fn wake(mut self) {
        // SAFETY: the waiters were taken along with the list, so they are readied here only.
        while let Some(g) = unsafe { self.0.next() } {
            // SAFETY:
            // - the G is alive: its fibre waits for this call. One that gives up finds the channel dead, and waits too;
            // - the caller has taken the waiter out of its list, and does not use it after: this is the only `ready`;
            // - its G was found by this list alone, and waits for nothing else.
            unsafe { G::ready(g) };
        }
    }
}
