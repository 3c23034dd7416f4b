//! The untyped part of a channel: a lock, whose word is the channel's state (`state.rs`), and three queues of waiters.
//!
//! | step | how |
//! |---|---|
//! | lock | one compare-exchange that sets `LOCKED`, and returns the state to the owner |
//! | unlock | one store of the new state, without `LOCKED` |
//! | a `try_` call that must fail | a load, without the lock |
//!
//! Only the owner writes the word while `LOCKED` is set, so the unlock is a store. The lock therefore has no bit for
//! sleepers: a contender pauses, then yields its processor, then sleeps for short times. The owner holds the lock for
//! some ten instructions and the copy of a value. The owner never runs user code, never waits, and never switches
//! goroutines while it holds the lock.
//!
//! # Orderings
//!
//! The lock is taken with Acquire, and released with Release. The compare-exchange is SeqCst, and so is the load of the
//! failing `try_`. So a channel's calls are sequentially consistent with each other and with SeqCst atomics of the
//! caller. Take a caller A that writes X and then fails in `try_recv`, and a caller B that sends and then reads X. The
//! load of A read the word before B's compare-exchange changed the word: otherwise A's load would have found `LOCKED`,
//! or the value. So A's write and load are before B's compare-exchange and load in the total order, and B reads the
//! value that A wrote. The model `a_try_that_fails_is_ordered` checks this.

use std::ptr::NonNull;
use std::task::Waker;

use super::state::{AtomicState, State};
use super::value::Owned;
pub(super) use super::waiters::Dir;
use super::waiters::{Outcome, WaitQueue, Waiter};
use crate::g::ReadyBatch;
use crate::panics::Panics;
#[cfg(not(sudog_loom))]
use crate::shim::num_cpus;
use crate::shim::{self, Cell, Ordering};
use crate::{G, Instant, ParkResult};

/// The untyped part of a channel. See the top of this file.
pub(super) struct Raw {
    word: AtomicState,
    capacity: usize,
    /// The fields that only the owner of the lock reads and writes. Only [`Locked::fields`] borrows them.
    fields: Fields,
    #[cfg(sudog_loom)]
    model: model::Lock,
}

/// The fields of a channel that its lock protects.
struct Fields {
    /// The capacity minus the reserved places: a send without a reservation finds room while `len` is below this
    /// number.
    limit: Cell<usize>,
    /// The number of reserved places.
    reserved: Cell<usize>,
    /// The next ticket: see `Waiter::ticket`.
    tickets: Cell<u64>,
    /// The queues of receivers, senders and reservers, by [`Dir`].
    queues: [WaitQueue; 3],
    /// The waiters whose outcome is `Held`, ordered by the age of their values.
    held: WaitQueue,
}

/// The proof that the caller holds the lock. The caller must call [`Locked::unlock`]: there is no destructor that
/// unlocks, because nothing under the lock can panic.
#[must_use = "the lock stays locked"]
pub(super) struct Locked<'a> {
    raw: &'a Raw,
    /// The state that the unlock will store, without `LOCKED`.
    state: State,
}

/// A waiter whose last queue belongs to this channel.
pub(super) struct Entry<'w> {
    raw: &'w Raw,
    waiter: &'w Waiter,
}

/// A waiter that a call has claimed and taken out of its queue, and that the call must wake.
///
/// Only `Locked::dequeue_some` makes a `Peer`, inside a [`Claimed`]: a single one for each claim, because the waiter has
/// left its queue then. So as long as a `Peer` exists, its waiter has not been readied, and stays alive by the contract
/// of [`Locked::enqueue`]. A `Peer` is neither `Clone` nor `Copy`, and to wake it consumes it: so a waiter is readied
/// once, and the waker does not use the waiter afterwards. A `Peer` that is dropped lets its waiter sleep for ever.
#[must_use = "the waiter sleeps for ever"]
pub(super) struct Peer(NonNull<Waiter>);

/// A peer whose outcome is not decided yet: the call must serve the waiter, or tell it that the channel is closed.
#[must_use = "the waiter sleeps for ever"]
pub(super) struct Claimed(Peer);

impl Raw {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            word: AtomicState::new(),
            capacity,
            fields: Fields {
                limit: Cell::new(capacity),
                reserved: Cell::new(0),
                tickets: Cell::new(1),
                queues: [WaitQueue::new(), WaitQueue::new(), WaitQueue::new()],
                held: WaitQueue::new(),
            },
            #[cfg(sudog_loom)]
            model: model::Lock::new(),
        }
    }

    /// Returns the rank by which a select orders the locks of its channels.
    #[inline]
    pub(super) fn rank(&self) -> usize {
        #[cfg(not(sudog_loom))]
        return std::ptr::from_ref(self).addr();
        // In a model, use a serial number: an address is not the same in each execution.
        #[cfg(sudog_loom)]
        return self.model.serial();
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Loads the state with Acquire. For a caller that draws no conclusion from the absence of a value, a waiter or a
    /// flag.
    #[inline]
    pub(super) fn glance(&self) -> State {
        self.word.load(Ordering::Acquire)
    }

    /// Loads the state with SeqCst, in the total order of all channels' calls. For a `try_` call, which may fail
    /// because of this state.
    #[inline]
    pub(super) fn look(&self) -> State {
        self.word.load(Ordering::SeqCst)
    }

    #[inline]
    pub(super) fn lock(&self) -> Locked<'_> {
        #[cfg(sudog_loom)]
        self.model.lock();
        match self.try_lock() {
            Some(locked) => locked,
            None => self.lock_slow(),
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<Locked<'_>> {
        let state = self.word.load(Ordering::Relaxed);
        (!state.is_locked()
            && self.word.compare_exchange(state, state.lock(), Ordering::SeqCst, Ordering::Relaxed).is_ok())
        .then_some(Locked { raw: self, state })
    }

    #[cold]
    fn lock_slow(&self) -> Locked<'_> {
        let mut tries = 0;
        loop {
            back_off(tries);
            tries += 1;
            if let Some(locked) = self.try_lock() {
                return locked;
            }
        }
    }

    /// Returns the proof for a lock that the caller holds since an earlier [`Locked::keep`].
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and no other proof of that exists.
    #[inline]
    pub(super) unsafe fn held(&self) -> Locked<'_> {
        let state = self.word.load(Ordering::Relaxed);
        debug_assert!(state.is_locked());
        Locked { raw: self, state: state.unlock() }
    }

    /// Returns the number of waiters in a queue.
    pub(super) fn waiting(&self, dir: Dir) -> usize {
        let locked = self.lock();
        let n = locked.queue(dir).len();
        locked.unlock();
        n
    }

    /// Returns the entry that [`Locked::enqueue`] has returned before.
    ///
    /// # Safety
    ///
    /// The last queue that the waiter was put into belongs to this channel.
    pub(super) unsafe fn entry<'w>(&'w self, waiter: &'w Waiter) -> Entry<'w> {
        Entry { raw: self, waiter }
    }
}

impl Entry<'_> {
    /// Unlinks a waiter that gives up. Returns false if the waiter has left the queue before: a peer has taken the
    /// waiter, or has dropped the waiter from the queue because its claim was taken.
    pub(super) fn leave(&self) -> bool {
        let mut locked = self.raw.lock();
        let waiter = self.waiter;
        let queued = waiter.outcome.get() == Outcome::Queued;
        if queued {
            let dir = waiter.dir();
            // SAFETY: the outcome says that the waiter is still in the queue that it was put into, and that queue belongs
            // to this channel: this is an `Entry`.
            unsafe { locked.queue(dir).unlink(waiter) };
            waiter.outcome.set(Outcome::Idle);
            locked.mark(dir);
        }
        locked.unlock();
        queued
    }
}

/// Keeps a contender away from the lock for a while, depending on the number of its tries. Thirty pauses lie between
/// two tries, because a contender that looks all the time takes the cache line from the owner. A contender of higher
/// priority may occupy the owner's processor: the sleep lets the owner run.
#[cfg(not(sudog_loom))]
#[cold]
fn back_off(tries: u32) {
    const SPINS: u32 = 64;
    const YIELDS: u32 = 256;
    if tries < SPINS && num_cpus() > 1 {
        (0..30).for_each(|_| shim::pause());
    } else if tries < YIELDS {
        shim::yield_now();
    } else {
        crate::shim::system::thread::sleep(std::time::Duration::from_micros(50));
    }
}

#[cfg(sudog_loom)]
fn back_off(_tries: u32) {
    shim::yield_now();
}

impl<'a> Locked<'a> {
    #[inline]
    pub(super) fn unlock(self) {
        // Use Release, to publish all that was done under the lock.
        self.raw.word.store(self.state, Ordering::Release);
        #[cfg(sudog_loom)]
        self.raw.model.unlock();
    }

    /// Returns whether this is the proof for the lock of this channel.
    #[inline]
    pub(super) fn is_of(&self, raw: &Raw) -> bool {
        std::ptr::eq(self.raw, raw)
    }

    /// Returns the state as the unlock will store it.
    #[inline]
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Closes the channel. Returns false if the channel is closed already.
    pub(super) fn close(&mut self) -> bool {
        let first = !self.state.is_closed();
        self.state = self.state.close();
        first
    }

    /// Counts a value more.
    ///
    /// # Safety
    ///
    /// The channel's store has a value that is not counted.
    #[inline]
    pub(super) unsafe fn count_value(&mut self) {
        self.state = self.state.add_value();
    }

    /// Counts a value less. Returns false if the count is zero. If this returns true, the caller has to take a value out
    /// of the channel's store; otherwise that value is lost.
    #[inline]
    pub(super) fn discount_value(&mut self) -> bool {
        let is_positive = self.state.len() > 0;
        if is_positive {
            self.state = self.state.remove_value();
        }
        is_positive
    }

    /// Gives up this proof, but leaves the lock locked. A later call of [`Raw::held`] returns the proof.
    #[inline]
    pub(super) fn keep(self) {
        self.raw.word.store(self.state.lock(), Ordering::Relaxed);
    }

    /// Returns the fields that the lock protects. The result is borrowed from this proof, so it is not used after the
    /// unlock.
    #[inline]
    fn fields(&self) -> &Fields {
        &self.raw.fields
    }

    #[inline]
    fn queue(&self, dir: Dir) -> &WaitQueue {
        &self.fields().queues[dir as usize]
    }

    /// Puts a waiter at the end of a queue.
    ///
    /// # Safety
    ///
    /// - The waiter is in no queue.
    /// - The waiter stays alive and in place until it has left the queue; if a peer has taken the waiter, until its G has
    ///   been readied; and if its outcome is `Held`, until the hold has ended.
    /// - The waiter's G, slot and claim stay alive and in place as long as the waiter.
    /// - The slot of a sender has a value of the channel's type, which belongs to the channel from the time when a peer
    ///   has taken the waiter. The slot of a receiver has room for such a value.
    /// - Until then the G waits for nothing else, and its waiters that are queued at the same time share a claim, so
    ///   that a single peer takes one of them.
    pub(super) unsafe fn enqueue<'w>(&mut self, dir: Dir, waiter: &'w Waiter) -> Entry<'w>
    where
        'a: 'w,
    {
        waiter.outcome.set(Outcome::Queued);
        waiter.set_dir(dir);
        waiter.ticket.set(self.ticket());
        // SAFETY: the waiter is in no queue, and stays alive and in place while it is queued, by the contract of this
        // function. If a peer takes the waiter out, the waiter is readied after the unlock, or finds out under the lock.
        unsafe { self.queue(dir).push(waiter) };
        self.state = self.state.add_waiter(dir);
        Entry { raw: self.raw, waiter }
    }

    /// Queues a waiter of the caller, unlocks, and waits until a peer has served the waiter, the channel is closed, or
    /// the deadline has passed. Returns `None` if the deadline has passed. `what` names the wait in reports.
    ///
    /// # Safety
    ///
    /// - `slot` is the address of a value of the channel's type, if `dir` is `Send`, or of room for such a value, if
    ///   `dir` is `Recv`. Until this function returns, nothing else uses the slot.
    /// - If `dir` is `Send` and this returns `Done`, the value has been moved out of the slot.
    #[inline]
    pub(super) unsafe fn wait(
        mut self,
        dir: Dir,
        slot: *mut (),
        what: &'static str,
        deadline: Option<Instant>,
    ) -> Option<Outcome> {
        let g = G::current();
        let waiter = Waiter::new(&raw const g, slot);
        crate::note_wait_at(what, self.raw);
        // SAFETY:
        // - `waiter` is new, so no queue contains it.
        // - This frame stays while `waiter` is queued, or taken and not readied: `park_queued_spinning` returns only
        //   afterwards, and never unwinds. `g` and the slot outlive `waiter`. `waiter` is no task's, so it is not held.
        // - `g` waits for nothing else, and has a single waiter.
        // - The slot has a value, or room for a value, by the contract of this function.
        let entry = unsafe { self.enqueue(dir, &waiter) };
        let parked = g.park_queued_spinning(deadline, || self.unlock(), || entry.leave());
        (parked != ParkResult::TimedOut).then(|| waiter.outcome.get())
    }

    /// Takes the first waiter whose claim is free out of its queue, and takes the claim. The caller must serve and wake
    /// the returned waiter.
    #[inline]
    pub(super) fn dequeue(&mut self, dir: Dir) -> Option<Claimed> {
        if !self.state.has_waiters(dir) {
            return None;
        }
        // Pass the proof by value, so that the state stays in a register of the caller.
        let (state, claimed) = Locked { ..*self }.dequeue_some(dir);
        self.state = state;
        claimed
    }

    fn dequeue_some(mut self, dir: Dir) -> (State, Option<Claimed>) {
        let queue = self.queue(dir);
        let claimed = std::iter::from_fn(|| queue.pop()).find(|waiter| {
            // If the claim is taken already, the waiter is in no queue from now on. The waiter finds that out under the
            // lock.
            waiter.outcome.set(Outcome::Idle);
            let taken = waiter.claim();
            if !taken {
                shim::mark("a waiter whose claim is taken is passed over");
            }
            taken
        });
        let claimed = claimed.map(|waiter| Claimed(Peer(NonNull::from(waiter)))); // the only `Peer` of this claim
        self.mark(dir);
        (self.state, claimed)
    }

    /// Updates the state after waiters have left that queue.
    fn mark(&mut self, dir: Dir) {
        if self.queue(dir).is_empty() {
            self.state = self.state.without_waiters(dir);
        }
    }

    /// Returns a new ticket, which is greater than all earlier tickets.
    pub(super) fn ticket(&mut self) -> u64 {
        let tickets = &self.fields().tickets;
        let ticket = tickets.get();
        tickets.set(ticket + 1);
        ticket
    }

    /// Gives a value to a receiver. If the receiver is a task, the value in its slot belongs to the channel until the task
    /// is polled, and `age` is the value's ticket, if the value has a ticket already.
    ///
    /// # Safety
    ///
    /// The waiter was taken out of this channel's queue of receivers, and the channel's values have this type.
    #[inline]
    pub(super) unsafe fn give<T>(&mut self, receiver: Claimed, value: Owned<'_, T>, age: Option<u64>) -> Peer {
        let Claimed(peer) = receiver;
        // SAFETY: the slot has room for a value of this type, and stays in place until the waiter is readied, by the
        // contracts of this function and of `enqueue`. Nothing else uses the slot, because the waiter is claimed.
        value.move_to(unsafe { &mut *peer.waiter().slot.cast() }).leave();
        if peer.waiter().is_task() {
            self.hold(&peer, age);
        } else {
            peer.waiter().outcome.set(Outcome::Done);
        }
        peer
    }

    /// Adds a peer, which has a value in its slot, to the waiters that are `Held`.
    #[cold]
    fn hold(&mut self, peer: &Peer, age: Option<u64>) {
        let waiter = peer.waiter();
        waiter.outcome.set(Outcome::Held);
        waiter.ticket.set(age.unwrap_or_else(|| self.ticket()));
        // SAFETY: the waiter has been taken out of its queue, and stays alive until its task has had the lock and has
        // ended the hold (`release_held`), by the contract of `enqueue`.
        unsafe { self.fields().held.insert(waiter) };
        self.state = self.state.add_held();
    }

    /// Ends the hold, if the waiter holds a value: the value in the waiter's slot no longer belongs to the channel.
    /// Returns whether the waiter held a value.
    ///
    /// # Safety
    ///
    /// The last queue that the waiter was put into belongs to this channel.
    pub(super) unsafe fn release_held(&mut self, waiter: &Waiter) -> bool {
        let held = waiter.outcome.get() == Outcome::Held;
        if held {
            // SAFETY: a waiter of this channel that is `Held` is in this list.
            unsafe { self.fields().held.unlink(waiter) };
            waiter.outcome.set(Outcome::Idle);
            self.mark_held();
        }
        held
    }

    /// Updates the state after a waiter has left the list of waiters that hold a value.
    fn mark_held(&mut self) {
        if self.fields().held.is_empty() {
            self.state = self.state.without_held();
        }
    }

    /// Picks the oldest value that a task holds, and takes the value away from that task. When the task is polled, it
    /// tries to receive again. Returns the slot that contains the value.
    pub(super) fn take_held(&mut self) -> Option<*mut ()> {
        let waiter = self.fields().held.pop()?;
        waiter.outcome.set(Outcome::Idle);
        let slot = waiter.slot;
        self.mark_held();
        Some(slot)
    }

    /// Returns whether there is room for a value that is sent without a reservation.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.state.len() < self.fields().limit.get()
    }

    /// Returns whether a place can be reserved. A channel without capacity has a single place.
    pub(super) fn has_place(&self) -> bool {
        self.state.len() + self.fields().reserved.get() < self.raw.capacity.max(1)
    }

    /// Reserves a place, if there is a free place. If so, the caller has to end the reservation.
    pub(super) fn reserve(&mut self) -> bool {
        let has_place = self.has_place();
        if has_place {
            self.set_reserved(self.fields().reserved.get() + 1);
        }
        has_place
    }

    /// Ends the reservation of a place.
    ///
    /// # Safety
    ///
    /// A `reserve` of this channel has returned true, and nothing else ends that reservation.
    pub(super) unsafe fn end_reservation(&mut self) {
        self.set_reserved(self.fields().reserved.get() - 1);
    }

    fn set_reserved(&mut self, n: usize) {
        self.fields().reserved.set(n);
        self.fields().limit.set(self.raw.capacity.saturating_sub(n));
    }

    /// Returns the queue whose first waiter has waited longer: the queue of the senders, or the queue of the reservers.
    pub(super) fn first_to_send(&self) -> Dir {
        let first = |dir| self.queue(dir).first().map(|waiter| waiter.ticket.get());
        match (first(Dir::Send), first(Dir::Reserve)) {
            (Some(sender), Some(reserver)) if sender < reserver => Dir::Send,
            (Some(_), None) => Dir::Send,
            _ => Dir::Reserve,
        }
    }
}

impl Claimed {
    /// Takes possession of the value of a sender.
    ///
    /// # Safety
    ///
    /// The waiter sends to a channel of this type. The value is moved or dropped before the peer is woken.
    #[inline]
    pub(super) unsafe fn take<'v, T>(self) -> (Owned<'v, T>, Peer) {
        // SAFETY: the slot has a value of this type, which belongs to the channel because the waiter is claimed, and
        // stays in place until the waiter is readied, by the contracts of this function and of `Locked::enqueue`.
        let value = unsafe { Owned::new(&mut *self.0.waiter().slot.cast()) };
        (value, self.decide(Outcome::Done))
    }

    /// Gives a place to a reserver, which has to end the reservation.
    ///
    /// # Safety
    ///
    /// The waiter waits for a place of this channel. [`Locked::reserve`] has returned true, and nothing else ends that
    /// reservation.
    pub(super) unsafe fn give_place(self) -> Peer {
        self.decide(Outcome::Done)
    }

    /// Ends the wait because the channel is closed.
    pub(super) fn close(self) -> Peer {
        self.decide(Outcome::Closed)
    }

    #[inline]
    fn decide(self, outcome: Outcome) -> Peer {
        self.0.waiter().outcome.set(outcome);
        self.0
    }
}

impl Peer {
    #[inline]
    fn waiter(&self) -> &Waiter {
        // SAFETY: the waiter has been taken out of its queue, and has not been readied, because that consumes the
        // `Peer`. So the waiter is alive, by the contract of `Locked::enqueue`.
        unsafe { self.0.as_ref() }
    }

    /// Wakes the peer. If the peer is a task, this runs user code.
    #[inline]
    pub(super) fn wake(self) {
        if let Some(waker) = self.mark_ready() {
            crate::g::wake(waker);
        }
    }

    /// Readies the peer. If the peer is a task, returns the task's waker, which the caller must wake.
    #[inline]
    #[must_use = "the task sleeps until its waker is woken"]
    pub(super) fn mark_ready(self) -> Option<Waker> {
        let g = self.waiter().g;
        // SAFETY:
        // - `g` points to a live G, which lives as long as its waiter, by the contract of `Locked::enqueue`.
        // - This is the only `ready`: this `Peer` is the only one for the claim of its waiter, and is consumed.
        // - Only the queue led to `g`, which waits for nothing else, by the contract of `Locked::enqueue`.
        // - This function uses nothing of the waiter after this call begins.
        unsafe { G::mark_ready(g) }
    }
}

/// Readies several peers as a batch: goroutines of another worker are handed over together. Returns the wakers of the
/// tasks among the peers, which the caller must wake.
pub(super) fn mark_all_ready<const N: usize>(peers: [Option<Peer>; N]) -> [Option<Waker>; N] {
    let mut batch = ReadyBatch::new();
    peers.map(|peer| {
        let g = peer?.waiter().g;
        // SAFETY:
        // - `g` points to a live G, which lives as long as its waiter, by the contract of `Locked::enqueue`.
        // - This is the only `ready`: the `Peer` was the only one for the claim of its waiter, and has been consumed.
        // - Only the queue led to `g`, which waits for nothing else, by the contract of `Locked::enqueue`.
        // - This closure uses nothing of the waiter after this call begins.
        // - `batch` is dropped at the end of this function, which runs no user code and does not wait before that.
        unsafe { batch.mark_ready(g) }
    })
}

/// Wakes several peers. Readies all of them before it calls the first waker of a task, because wakers are user code and
/// may panic.
pub(super) fn wake_all(peers: [Option<Peer>; 2]) {
    let wakers = peers.map(|peer| peer.and_then(Peer::mark_ready));
    let mut panics = Panics::default();
    for waker in wakers.into_iter().flatten() {
        panics.catch(|| waker.wake());
    }
    panics.resume();
}

/// The lock in a loom model. Contenders wait for a mutex of loom, so that a model has fewer steps to explore. The word
/// is written as on the real machine.
#[cfg(sudog_loom)]
mod model {
    use crate::shim::system::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::cell::Cell;

    use crate::shim::{Mutex, MutexGuard};

    pub(super) struct Lock {
        mutex: Mutex<()>,
        guard: Cell<Option<MutexGuard<'static, ()>>>,
        serial: usize,
    }

    /// The number of channels that all executions have made.
    static MADE: AtomicUsize = AtomicUsize::new(0);

    impl Lock {
        pub(super) fn new() -> Self {
            Self { mutex: Mutex::new(()), guard: Cell::new(None), serial: MADE.fetch_add(1, Relaxed) }
        }

        pub(super) fn serial(&self) -> usize {
            self.serial
        }

        pub(super) fn lock(&self) {
            let guard = self.mutex.lock();
            // SAFETY: the guard is dropped in `unlock`, by a caller that has a reference to the mutex, so the mutex
            // outlives the guard.
            let guard = unsafe { std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard) };
            self.guard.set(Some(guard));
        }

        pub(super) fn unlock(&self) {
            // The mutex is locked until the guard is dropped, after this statement.
            let guard = self.guard.take();
            drop(guard);
        }
    }
}
