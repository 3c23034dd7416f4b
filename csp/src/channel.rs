//! A channel: a lock, the count of ends, and the list of the fibres that *hang*, which means: wait for a partner. All
//! steps under the lock are in this file.
//!
//! The *count* is the number of ends through which the channel may still be served: all existing ends, except those
//! whose fibre hangs on this channel without a limit (a deadline, or a cancel).
//!
//! | step | condition | count |
//! |---|---|---|
//! | an end is made, or duplicated | | +1 |
//! | a fibre hangs by its end | without a limit; with a limit | -1; 0, because the fibre comes back by itself |
//! | a hanging fibre leaves the list: met, reclaimed with its set, timed out, cancelled | | undoes the change that the hang made |
//! | an end is dropped | the channel is not dead | -1 |
//!
//! At zero no partner can ever reach the fibres in the list, and the channel is *dead* for good. Two steps can bring the
//! count to zero: the drop of the last counted end, or a hang without a limit by the fibre of that end. The G of that
//! step takes all fibres out of the list, in batches of [`BATCH`], and readies each batch after an unlock.
//!
//! Each fibre in the list of a dead channel hangs without a limit: the end of a fibre with a limit would still be
//! counted, and the count would not be zero. No fibre joins that list. A task whose future is dropped leaves the list.
//!
//! All fibres of a batch have been readied before the waker of a task is called. The reason: a waker is user code, and
//! may drop the future of another task that hangs here. That drop waits for the task's `ready`, if the task has been
//! taken out of the list. By the rule above, the task is then still in the list, or has been readied.
//!
//! A fibre of an active set enters and leaves the set's list together with the channel's list, under the channel's
//! lock. So a waiter that is in a set's list is also in the list of a channel that is not dead. Order of locks:
//! channel, then set.
//!
//! No user code runs under the lock, nothing waits, and nothing allocates.

use std::ptr::NonNull;

use sudog_runtime::G;
use sudog_runtime::panics::Panics;
use sudog_runtime::shim::{Mutex, MutexGuard, mark};

use crate::list::{Dir, List, Place, Waiter};
use crate::set::{Runner, Set};

/// The maximum number of fibres that are taken out of the list of a dead channel under one hold of the lock. The number
/// is limited because the wakers of tasks are stored on the stack. In a model a batch is a single fibre, so that two
/// fibres show what happens between batches.
const BATCH: usize = if cfg!(sudog_loom) { 1 } else { 32 };

/// The part of a channel that its ends share. The values are in the frames of the fibres that read and write them.
pub(crate) struct Channel {
    state: Mutex<State>,
}

struct State {
    /// The count of ends: see the top of this file. At zero the channel is dead. Changed under the channel's lock.
    count: usize,
    list: List,
    /// The number of waiters in the list that belong to active sets. Changed under the channel's lock.
    of_sets: usize,
}

// SAFETY: only the owner of the lock reads or writes the list and the waiters in the list. A waiter that has been taken
// out is used once, by the G that took the waiter out.
unsafe impl Send for Channel {}
// SAFETY: as for `Send`, only the owner of the lock reads or writes the list and the listed waiters.
unsafe impl Sync for Channel {}

/// The guard of the channel's lock.
pub(crate) struct Locked<'a>(MutexGuard<'a, State>);

/// The result of [`Channel::meet`], the first step of a read or a write.
pub(crate) enum Met<'a> {
    /// A partner, which has been taken out of the list.
    Partner(Partner),
    /// There is no partner. The lock is still held: the caller hangs or gives up.
    Nobody(Locked<'a>),
    Dead,
}

/// The result of [`Locked::hang`].
pub(crate) enum Hung<'a> {
    Listed(Listed<'a>),
    /// The fibre's end was the last counted end, so the channel is dead now. The caller must wake the fibres that hang.
    Last(Hanging<'a>),
    /// The fibre's active set has been dropped.
    SetIsClosed,
}

/// The guard of a channel's lock, while the channel's list contains the caller's waiter.
#[must_use = "the caller is in the list: unlock in the commit of its wait"]
pub(crate) struct Listed<'a> {
    locked: Locked<'a>,
    /// The G that waits for the caller's active set to be at rest. Set only if this hang has brought the set to rest.
    runner: Option<Runner>,
}

/// A fibre that has been taken out of the list, and that waits for its wake-up.
#[must_use = "the fibre sleeps for ever"]
#[derive(Clone, Copy)]
pub(crate) struct Partner(NonNull<Waiter>);

/// The fibres in the list of a channel that has just died, under the channel's lock.
#[must_use = "the fibres sleep for ever"]
pub(crate) struct Hanging<'a>(Locked<'a>);

impl Channel {
    pub(crate) fn new(ends: usize) -> Self {
        Self { state: Mutex::new(State { count: ends, list: List::new(), of_sets: 0 }) }
    }

    fn lock(&self) -> Locked<'_> {
        Locked(self.state.lock())
    }

    /// Takes a partner out of the list, if there is one: the first step of a read or a write.
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

    /// Takes a waiter out of the list, because its fibre gives up. Returns false if another G has taken the waiter out
    /// already, and will ready the waiter's G.
    ///
    /// # Safety
    ///
    /// The waiter is alive, and has been put into the list of this channel.
    pub(crate) unsafe fn leave(&self, waiter: &Waiter) -> bool {
        let mut locked = self.lock();
        let state = &mut *locked.0;
        let listed = waiter.place.get() == Place::Listed;
        if listed {
            // SAFETY: the lock is held, and the list contains each waiter of this channel whose place is `Listed`.
            unsafe { state.list.remove(waiter) };
            if state.count > 0 {
                state.left(waiter);
            } else {
                mark("a task leaves a dead channel");
            }
        }
        listed
    }

    /// Takes the first waiter of `set` out of this channel's list, if that waiter hangs on this channel. The caller
    /// must wake the returned fibre.
    pub(crate) fn reclaim(&self, set: &Set) -> Option<Partner> {
        let mut locked = self.lock();
        let state = &mut *locked.0;
        let first = set.first_on(self)?;
        // SAFETY: the set lists the waiter, and cannot unlist the waiter without this channel's lock. So the waiter is
        // alive, and in this channel's list.
        let waiter = unsafe { first.as_ref() };
        // SAFETY: the lock is held, and the waiter is in the list.
        unsafe { state.list.remove(waiter) };
        waiter.place.set(Place::Reclaimed);
        state.left(waiter);
        Some(Partner(first))
    }

    /// Counts a new end, which the caller makes from an end that does not hang. If the channel is dead, the new end is
    /// dead too.
    pub(crate) fn add_end(&self) {
        let state = &mut *self.lock().0;
        if state.count > 0 {
            state.count += 1;
        }
    }

    /// Removes an end from the count. If the channel dies by that, returns the fibres that hang; the caller must wake
    /// them.
    pub(crate) fn drop_end(&self) -> Option<Hanging<'_>> {
        let mut locked = self.lock();
        let state = &mut *locked.0;
        match state.count {
            0 => {
                mark("an end of a dead channel is dropped");
                None
            }
            1 => {
                state.die();
                Some(Hanging(locked))
            }
            _ => {
                state.count -= 1;
                None
            }
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.lock().0.count == 0
    }

    /// Returns the operation for which the waiters hang, the number of waiters, and the count of ends.
    pub(crate) fn look(&self) -> (Option<Dir>, usize, usize) {
        let state = &*self.lock().0;
        (state.list.dir(), state.list.len(), state.count)
    }
}

impl State {
    /// Updates the counts after a waiter has been taken out of the list: its fibre hangs no more.
    fn left(&mut self, waiter: &Waiter) {
        if !waiter.limited {
            self.count += 1;
        }
        // SAFETY: the fibre has not been readied, and keeps the set alive.
        if let Some(set) = unsafe { waiter.set.as_ref() } {
            self.of_sets -= 1;
            // SAFETY: the waiter was in the list of this channel, so the waiter's set lists the waiter.
            unsafe { set.unlist(waiter) };
        }
    }

    /// Makes the channel dead. The caller must wake the fibres in the list.
    fn die(&mut self) {
        self.count = 0;
        if std::mem::take(&mut self.of_sets) > 0 {
            // SAFETY: the lock is held.
            let waiters = unsafe { self.list.iter() };
            waiters.for_each(|waiter| {
                // SAFETY: the fibre has not been readied, and keeps the set alive.
                if let Some(set) = unsafe { waiter.set.as_ref() } {
                    // SAFETY: the waiter was in the list of this channel, so the waiter's set lists the waiter.
                    unsafe { set.unlist(waiter) };
                }
            });
        }
    }
}

impl<'a> Locked<'a> {
    /// Puts the caller's waiter into the list, if the caller may hang.
    ///
    /// # Safety
    ///
    /// - The waiter is in no list. The waiter and its set stay alive and in place until the waiter has left all lists.
    ///   If another G takes the waiter out, they stay until that G has readied the waiter's G.
    /// - The waiter's field `channel` points to this channel.
    /// - The caller has this lock from the [`Met::Nobody`] that `meet` returned for `dir`.
    pub(crate) unsafe fn hang(mut self, dir: Dir, waiter: &Waiter) -> Hung<'a> {
        let state = &mut *self.0;
        if !waiter.limited && state.count == 1 {
            mark("a fibre that would hang is the last");
            state.die();
            return Hung::Last(Hanging(self));
        }
        let mut runner = None;
        // SAFETY: the set is null or alive, by the contract of this function.
        if let Some(set) = unsafe { waiter.set.as_ref() } {
            // SAFETY: this channel's lock is held. The waiter is in no list, and stays alive while it is listed, by the
            // contract of this function.
            match unsafe { set.list(waiter) } {
                Ok(at_rest) => runner = at_rest,
                Err(_) => return Hung::SetIsClosed,
            }
            state.of_sets += 1;
        }
        if !waiter.limited {
            state.count -= 1;
        }
        // SAFETY: the lock is held. The waiter is in no channel's list, and stays alive while it is listed, by the
        // contract of this function. The push does not panic: the caller has found no waiter of the other kind.
        unsafe { state.list.push(dir, waiter) };
        Hung::Listed(Listed { locked: self, runner })
    }
}

impl Listed<'_> {
    /// Unlocks the channel: a partner may take the caller's waiter from now on.
    #[inline]
    pub(crate) fn unlock(self) {
        drop(self.locked);
        // Wake the runner without the lock, because a wake-up may take microseconds.
        if let Some(runner) = self.runner {
            mark("a fibre that hangs brings rest");
            runner.wake();
        }
    }
}

impl Partner {
    /// Returns the address of the partner's value, or of the room for the value.
    fn slot(self) -> *mut () {
        // SAFETY: the partner waits for `wake`, so the waiter is alive, and nothing writes to the field `slot`.
        unsafe { (*self.0.as_ptr()).slot }
    }

    /// Moves the value of a writer out, and wakes the writer.
    ///
    /// # Safety
    ///
    /// The partner was taken out of a channel of values of type `T`, for a read. The caller calls this once for the
    /// partner, and uses nothing of the partner afterwards.
    #[inline]
    pub(crate) unsafe fn take_value<T>(self) -> T {
        // SAFETY: a writer has a value of its channel's type in its slot, and treats the value as moved out once the
        // writer has been woken. The lock is not needed: the writer waits for its wake-up.
        let value = unsafe { self.slot().cast::<T>().read() };
        // SAFETY: the contract of this function is that of `wake`. If the waker of a task panics, `value` is dropped.
        unsafe { self.wake(false) };
        value
    }

    /// Moves a value to a reader, and wakes the reader, which goes on first.
    ///
    /// # Safety
    ///
    /// The partner was taken out of a channel of values of type `T`, for a write. The caller calls this once for the
    /// partner, and uses nothing of the partner afterwards.
    #[inline]
    pub(crate) unsafe fn give_value<T>(self, value: T) {
        // SAFETY: a reader has room for a value of its channel's type in its slot, and touches the slot only after its
        // wake-up. The lock is not needed: the reader waits for its wake-up.
        unsafe { self.slot().cast::<T>().write(value) };
        // SAFETY: the contract of this function is that of `wake`.
        unsafe { self.wake(true) };
    }

    /// Wakes the partner. If `first` is true and the partner is a fibre of the caller's worker, the partner runs before
    /// the caller goes on. The waker of a task is user code, and may panic.
    ///
    /// # Safety
    ///
    /// The caller calls this once for a partner, and uses nothing of the partner afterwards.
    pub(crate) unsafe fn wake(self, first: bool) {
        // SAFETY: the partner waits for this call, so the waiter is alive, and nothing writes to the field `g`.
        let g = unsafe { (*self.0.as_ptr()).g };
        // SAFETY:
        // - `g` points to a live G, because the partner waits for this call.
        // - The waiter has been taken out of its list and this function is called once, by its contract, so this is the
        //   only `ready`.
        // - Only this list led to the G. The waiter was listed just before the G's `park`, and the G waits for nothing
        //   else.
        // - The caller uses nothing of the partner afterwards, by the contract of this function.
        unsafe { if first { G::ready_first(g) } else { G::ready(g) } }
    }
}

impl<'a> Hanging<'a> {
    /// Unlocks `channel`, whose list this is, and wakes the fibres. Each fibre finds the channel dead, and returns an
    /// error to its caller, on its own worker.
    ///
    /// A fibre drops the ends that it holds when it returns, and such an end may be the last one of another channel.
    /// That drop happens on the fibre's own stack. The woken fibres go to the workers' run queues, and run one after
    /// the other, so nothing recurses.
    ///
    /// If wakers of tasks panic, resumes the first panic when all fibres have been woken.
    pub(crate) fn wake(self, channel: &'a Channel) {
        let mut panics = Panics::default();
        let mut locked = self.0;
        while locked.wake_some(&mut panics) {
            locked = channel.lock();
        }
        panics.resume();
    }
}

impl Locked<'_> {
    /// Takes a batch of fibres out of the list of a dead channel, unlocks, and wakes the batch. Returns false if no
    /// fibres are left.
    fn wake_some(mut self, panics: &mut Panics) -> bool {
        let list = &mut self.0.list;
        if list.dir().is_none() {
            return false;
        }
        let mut batch = [None; BATCH];
        for place in &mut batch {
            // SAFETY: the lock is held.
            let Some(waiter) = (unsafe { list.pop_first() }) else { break };
            // SAFETY: the waiter was listed until now, and its fibre waits for a wake-up.
            let waiter = unsafe { waiter.as_ref() };
            waiter.place.set(Place::Reclaimed);
            *place = Some(waiter.g);
        }
        drop(self);
        // SAFETY:
        // - Each G is alive: its fibre waits for this call. A fibre that gives up finds that its waiter has been taken
        //   out, and waits too.
        // - Each waiter has been taken out of its list, and is not used afterwards, so this is the only `ready`.
        // - Only this list led to each G, which waits for nothing else.
        let wakers = batch.map(|g| g.and_then(|g| unsafe { G::mark_ready(g) }));
        for waker in wakers.into_iter().flatten() {
            panics.catch(|| waker.wake());
        }
        batch[BATCH - 1].is_some()
    }
}
