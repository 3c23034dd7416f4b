//! A channel: the steps of a send and of a receive under the channel's lock. Go's `hchan`.
//!
//! | under the lock | send ([`Guard::offer`]) | receive ([`Guard::take`]) |
//! |---|---|---|
//! | 1 | closed: fails | a value is there: takes the oldest value; then gives the freed slot to a waiting sender or reserver ([`Guard::refill`]) |
//! | 2 | a receiver waits: gives the value to that receiver | closed: takes a value that a task holds (see below); if there is no such value, fails |
//! | 3 | room: puts the value into the ring | a sender waits: takes its value |
//! | 4 | waits | waits |
//!
//! Receivers wait only while there is no value, and senders wait only while there is no room. So values are received in
//! the order in which they were sent. A call and the waiter that it takes out of a queue are *peers* of each other. The
//! waiter is woken after the unlock.
//!
//! Once the channel is closed, only `close` takes the blocked senders out of their queues. Their sends fail, even if
//! there is room.
//!
//! # Tasks
//!
//! A task that has been readied may be dropped before it is polled. So a value or a place (see `permit.rs`) that is
//! given to a waiting task is provisional:
//!
//! | a task that | is given | the channel owns the value | when the task is polled | when the task is dropped |
//! |---|---|---|---|---|
//! | receives | a value, which the task holds in its slot (`Outcome::Held`) | until the task is polled or dropped, or until another receiver finds the channel closed and empty and takes the value from the task | the task has received the value; or tries to receive again, if the value has been taken away | the value goes to the next receiver, or stays in the channel ([`Readied::give_back`]) |
//! | sends to a buffer, or reserves | a place | from the time when the task is polled | the task sends ([`Place::send`]), or has a permit | the place goes to the next sender ([`Place`]) |
//! | sends without a buffer | nothing: a receiver takes the task's value at once | never | the task has sent | the task has sent |
//!
//! Two invariants hold for the waiters whose claims (`Claim`) are not taken. A receiver waits only if there is no value
//! in the channel and no sender waits with a value. A sender waits only if there is no room, and a reserver only if
//! there is no free place.
//!
//! Values move by copying bytes, so no code of `T` runs under the lock.

use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::buffer::{Node, Store};
use super::raw::{Dir, Locked, Peer, Raw};
use super::state::State;
use super::value::Owned;
use super::waiters::{Outcome, Waiter};
use crate::panics::Panics;
use crate::shim::AtomicUsize;

/// A channel, without its handles.
pub struct Core<T> {
    pub(super) raw: Raw,
    /// The values. Only [`Guard::store`] borrows this field, under the lock.
    store: UnsafeCell<Store<T>>,
    /// Tells a model or the simulated machine that the store is used, which must happen under the lock.
    #[cfg(any(sudog_loom, sudog_sim))]
    store_is_used: crate::shim::Cell<bool>,
    /// The number of [`Sender`](super::Sender)s, if the ends of this channel are counted.
    pub(super) send_ends: AtomicUsize,
    pub(super) recv_ends: AtomicUsize,
    /// A value that is dropped together with the channel: see [`Chan::keeping`](super::Chan::keeping).
    pub(super) kept: Option<Box<dyn Send + Sync>>,
}

// SAFETY: values are moved from thread to thread, and never shared. Only the owner of the lock reads or writes the
// store, the queues, and the waiters and values that these refer to.
unsafe impl<T: Send> Send for Core<T> {}
// SAFETY: values are moved out of the channel, and never shared, so `T: Send` is enough. Only the owner of the lock
// reads or writes the store, the queues, and the waiters and values that these refer to.
unsafe impl<T: Send> Sync for Core<T> {}

// A panic in user code leaves the channel consistent.
impl<T> UnwindSafe for Core<T> {}
impl<T> RefUnwindSafe for Core<T> {}

/// The proof that the caller holds the lock of a channel. The caller must call [`Guard::unlock`], as with [`Locked`].
///
/// The proof carries the channel and the type of its values. The slots of the waiters in the channel's queues have this
/// type, by the contract of [`Locked::enqueue`].
#[must_use = "the lock stays locked"]
pub(super) struct Guard<'a, T> {
    core: &'a Core<T>,
    locked: Locked<'a>,
}

/// The result of a send under the lock. A value that has not been sent is returned.
pub(super) enum Offer<'v, T> {
    /// The value has been sent. If the value went to a waiting receiver, this is that receiver, which the caller must
    /// wake.
    Sent(Option<Peer>),
    Full(Owned<'v, T>),
    Closed(Owned<'v, T>),
}

/// A value that has been received under the lock, and the peer that the caller must wake: the blocked sender whose value
/// this was, or the sender or reserver that has been given the freed slot.
pub(super) type Got<'v, T> = (Owned<'v, T>, Option<Peer>);

/// A send or a receive that is over.
pub(super) struct Done {
    /// True if the channel was closed: no value was sent, or received.
    pub(super) closed: bool,
    /// The peer that the caller must wake.
    pub(super) peer: Option<Peer>,
}

impl<T> Core<T> {
    /// Creates an empty channel with one sending and one receiving end.
    ///
    /// # Panics
    ///
    /// Panics if `capacity` is too large, or there is not enough memory.
    #[track_caller]
    pub(super) fn new(capacity: usize) -> Self {
        let Some(store) = Store::new(capacity) else { panic!("makechan: size out of range") };
        Self::with_store(store, capacity)
    }

    /// Creates an empty channel without a bound, with one sending and one receiving end.
    pub(super) fn unbounded() -> Self {
        Self::with_store(Store::unbounded(), State::MAX_LEN)
    }

    fn with_store(store: Store<T>, capacity: usize) -> Self {
        Self {
            raw: Raw::new(capacity),
            store: UnsafeCell::new(store),
            #[cfg(any(sudog_loom, sudog_sim))]
            store_is_used: crate::shim::Cell::new(false),
            send_ends: AtomicUsize::new(1),
            recv_ends: AtomicUsize::new(1),
            kept: None,
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        Guard { core: self, locked: self.raw.lock() }
    }

    /// Adds the channel to the proof that the channel is locked.
    ///
    /// # Panics
    ///
    /// Panics if another channel is locked.
    #[inline]
    pub(super) fn guard<'a>(&'a self, locked: Locked<'a>) -> Guard<'a, T> {
        assert!(locked.is_of(&self.raw), "another channel is locked");
        Guard { core: self, locked }
    }

    /// Reserves a place. Returns `Ok(None)` if the channel is closed. If there is no place, returns the proof that the
    /// channel is still locked.
    pub(super) fn try_reserve(&self) -> Result<Option<Place<'_, T>>, Guard<'_, T>> {
        let mut guard = self.lock();
        let reserved = !guard.state().is_closed() && guard.reserve();
        if !reserved && !guard.state().is_closed() {
            return Err(guard);
        }
        guard.unlock();
        Ok(reserved.then(|| Place(self)))
    }

    /// Drops all values that are in the channel.
    pub(super) fn discard(&self) {
        let mut panics = Panics::default();
        loop {
            let mut room = MaybeUninit::uninit();
            let mut guard = self.lock();
            let taken = guard.take_apart(&mut room);
            guard.unlock();
            let Some((value, peer)) = taken else { break };
            if let Some(peer) = peer {
                panics.catch(|| peer.wake());
            }
            panics.catch(|| drop(value));
        }
        panics.resume();
    }
}

impl<T> Drop for Core<T> {
    fn drop(&mut self) {
        // Skip values without a destructor: the drop of the ring frees them.
        if std::mem::needs_drop::<T>() || !self.store.get_mut().has_none_returned() {
            self.discard();
        }
    }
}

impl<'a, T> Deref for Guard<'a, T> {
    type Target = Locked<'a>;

    #[inline]
    fn deref(&self) -> &Locked<'a> {
        &self.locked
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.locked
    }
}

impl<'a, T> Guard<'a, T> {
    #[inline]
    pub(super) fn unlock(self) {
        self.locked.unlock();
    }

    pub(super) fn core(&self) -> &'a Core<T> {
        self.core
    }

    /// Returns the proof without the type of the values.
    #[inline]
    pub(super) fn into_locked(self) -> Locked<'a> {
        self.locked
    }

    #[inline]
    fn store(&mut self) -> &mut Store<T> {
        #[cfg(any(sudog_loom, sudog_sim))]
        self.core.store_is_used.set(true);
        // SAFETY: this is the proof that the caller holds the lock. The result borrows the proof, so nothing else refers
        // to the store.
        unsafe { &mut *self.core.store.get() }
    }

    /// Does steps 1 to 3 of a send: see the table at the head of this file.
    #[inline]
    pub(super) fn offer<'v>(&mut self, value: Owned<'v, T>) -> Offer<'v, T> {
        if self.state().is_closed() {
            return Offer::Closed(value);
        }
        match self.hand_over(value, None) {
            Ok(peer) => Offer::Sent(Some(peer)),
            Err(value) => match self.try_push(value) {
                Ok(()) => Offer::Sent(None),
                Err(value) => Offer::Full(value),
            },
        }
    }

    /// Puts a value into the ring, or returns the value if there is no room.
    #[inline]
    fn try_push<'v>(&mut self, value: Owned<'v, T>) -> Result<(), Owned<'v, T>> {
        if !self.has_room() {
            return Err(value);
        }
        // SAFETY: there is room, so `len`, which counts the values of the ring, is below the capacity.
        unsafe { self.push(value) };
        Ok(())
    }

    /// Puts a value into the ring.
    ///
    /// # Safety
    ///
    /// A slot of the ring is free.
    #[inline]
    unsafe fn push(&mut self, value: Owned<'_, T>) {
        self.store().push(value);
        // SAFETY: the store has this value, which is not counted yet, because a slot of the ring was free, by the contract of
        // this function.
        unsafe { self.count_value() };
    }

    /// Keeps a value in the list beside the ring.
    fn insert(&mut self, node: Box<Node<T>>, value: Owned<'_, T>, ticket: u64) {
        self.store().insert(node, value, ticket);
        // SAFETY: the store has this value, which is not counted yet.
        unsafe { self.count_value() };
    }

    /// Gives a value to the first receiver that waits, and returns that receiver, which the caller must wake. Returns
    /// the value if no receiver waits. `age` is the value's ticket, if the value was handed to another receiver before.
    #[inline]
    fn hand_over<'v>(&mut self, value: Owned<'v, T>, age: Option<u64>) -> Result<Peer, Owned<'v, T>> {
        if self.state().has_waiters(Dir::Recv) { self.hand_over_some(value, age) } else { Err(value) }
    }

    #[inline]
    fn hand_over_some<'v>(&mut self, value: Owned<'v, T>, age: Option<u64>) -> Result<Peer, Owned<'v, T>> {
        let Some(receiver) = self.dequeue(Dir::Recv) else { return Err(value) };
        // SAFETY: the waiter was taken out of the receivers of this channel, whose values have this type.
        Ok(unsafe { self.give(receiver, value, age) })
    }

    /// Does steps 1 to 3 of a receive: see the table at the head of this file. If there is no value, returns `None`: then
    /// the receive must wait, or the channel is closed.
    #[inline(always)]
    pub(super) fn take<'v>(&mut self, room: &'v mut MaybeUninit<T>) -> Option<Got<'v, T>> {
        if self.discount_value() {
            // SAFETY: the store has the value that has just been discounted.
            let value = unsafe { self.store().pop(room) };
            return Some((value, self.refill()));
        }
        if self.state().is_closed() {
            return self.take_at_the_end(room);
        }
        let mut taken = None;
        let peer = self.take_from_sender(|_, value| taken = Some(value.move_to(room)))?;
        taken.map(|value| (value, Some(peer)))
    }

    /// Takes the value of the sender that has waited longest. The caller must wake the returned peer.
    #[inline(always)]
    fn take_from_sender(&mut self, take: impl FnOnce(&mut Self, Owned<'_, T>)) -> Option<Peer> {
        let sender = self.dequeue(Dir::Send)?;
        // SAFETY: the senders in the queue of this channel send values of this type. `take` moves or drops the value.
        let (value, peer) = unsafe { sender.take() };
        take(self, value);
        Some(peer)
    }

    /// Receives as `take` does. For the rare paths, so that `take` is inlined into the others.
    #[inline(never)]
    pub(super) fn take_apart<'v>(&mut self, room: &'v mut MaybeUninit<T>) -> Option<Got<'v, T>> {
        self.take(room)
    }

    /// Takes a value away from a task that holds the value (`Outcome::Held`). The channel is closed and has no other
    /// value.
    #[cold]
    #[inline(never)]
    fn take_at_the_end<'v>(&mut self, room: &'v mut MaybeUninit<T>) -> Option<Got<'v, T>> {
        let held = self.take_held()?;
        crate::shim::mark("a value that a task holds is taken as the channel is closed");
        // SAFETY: `held` has a value of this channel's type, which `take_held` has taken away from its task. The task
        // uses its slot only after it has had the lock.
        let value = unsafe { Owned::new(&mut *held.cast()) };
        Some((value.move_to(room), None))
    }

    /// Gives room that has become free to the sender or reserver that has waited longest. A sender's value moves into
    /// the ring; a reserver gets a place. The caller must wake the returned peer.
    #[inline]
    fn refill(&mut self) -> Option<Peer> {
        if self.state().wants_room() { self.refill_some() } else { None }
    }

    #[inline(never)]
    fn refill_some(&mut self) -> Option<Peer> {
        if self.state().is_closed() {
            return None;
        }
        let first = self.first_to_send();
        let second = if first == Dir::Send { Dir::Reserve } else { Dir::Send };
        // Try the second queue too, in case all waiters of the first queue have been claimed elsewhere.
        [first, second].into_iter().find_map(|dir| {
            if dir == Dir::Reserve {
                let reserver = self.has_place().then(|| self.dequeue(dir))??;
                self.reserve();
                // SAFETY: `reserver` waits for a place of this channel, and there was a place, which has been reserved
                // just now.
                return Some(unsafe { reserver.give_place() });
            }
            if !self.has_room() {
                return None;
            }
            // No receiver waits, because there is a sender with a value.
            self.take_from_sender(|guard, value| {
                let pushed = guard.try_push(value);
                debug_assert!(pushed.is_ok(), "there is room");
            })
        })
    }
}

/// A reserved place for a value in a channel. To drop the place is to give the place to the next sender.
pub(super) struct Place<'c, T>(&'c Core<T>);

impl<T> Place<'_, T> {
    /// Sends a value to the place. If a receiver waits, that receiver gets the value, and the next sender or reserver
    /// gets the place. In a channel without capacity, the value stays beside the ring if no receiver waits. Returns the
    /// peers that the caller must wake. Returns the value if the channel is closed.
    pub(super) fn send<'v>(self, value: Owned<'v, T>) -> Result<[Option<Peer>; 2], Owned<'v, T>> {
        // Allocate before the lock is taken.
        let node = (self.0.raw.capacity() == 0).then(Node::new);
        let mut guard = self.end();
        if guard.state().is_closed() {
            guard.unlock();
            return Err(value);
        }
        let peers = match (guard.hand_over(value, None), node) {
            // The place is still free, so give the place to the next waiter.
            (Ok(peer), _) => [Some(peer), guard.refill()],
            (Err(value), Some(node)) => {
                let ticket = guard.ticket();
                guard.insert(node, value, ticket);
                [None, None]
            }
            (Err(value), None) => {
                // `len` may be above the capacity: it includes values beside the ring that were given back since the
                // place was reserved.
                // SAFETY: the channel has a capacity, so the reserved place was a free slot of the ring.
                unsafe { guard.push(value) };
                [None, None]
            }
        };
        guard.unlock();
        Ok(peers)
    }
}

impl<'c, T> Place<'c, T> {
    /// Locks the channel, and ends the reservation.
    #[inline]
    fn end(self) -> Guard<'c, T> {
        let core = ManuallyDrop::new(self).0;
        let mut guard = core.lock();
        // SAFETY: the place was a reservation of this channel, and neither is dropped nor used again.
        unsafe { guard.end_reservation() };
        guard
    }

    /// Returns the same place, with a reference to the channel that may live longer.
    ///
    /// # Panics
    ///
    /// Panics if `core` is another channel.
    pub(super) fn with(self, core: &Core<T>) -> Place<'_, T> {
        assert!(std::ptr::eq(self.0, core), "a place of another channel");
        std::mem::forget(self);
        Place(core)
    }
}

impl<T> Drop for Place<'_, T> {
    #[cold]
    fn drop(&mut self) {
        let mut guard = Place(self.0).end();
        let next = guard.refill();
        guard.unlock();
        if let Some(next) = next {
            crate::shim::mark("a place that is given up goes to the next sender");
            next.wake();
        }
    }
}

/// A waiter that a peer has readied: how its owner finds out what the peer has done.
pub(super) struct Readied<'c, 'w, T> {
    core: &'c Core<T>,
    waiter: &'w Waiter,
}

impl<'c, 'w, T> Readied<'c, 'w, T> {
    /// Creates the view of a waiter that a peer has readied.
    ///
    /// # Safety
    ///
    /// - The last queue that the waiter was put into belongs to this channel. Since then, a peer has taken and readied
    ///   the waiter, and this is called once.
    /// - Only the result uses the waiter's slot, as long as the result exists, or a value that [`receive`](Self::receive)
    ///   has returned; and the slot is alive and in place.
    pub(super) unsafe fn new(core: &'c Core<T>, waiter: &'w Waiter) -> Self {
        Self { core, waiter }
    }

    /// Panics if this is not the slot of the waiter.
    pub(super) fn check_slot(&self, slot: *mut MaybeUninit<T>) {
        assert!(self.waiter.slot == slot.cast(), "the slot of another waiter");
    }

    /// Returns whether the waiter was a sender whose value has been taken.
    pub(super) fn is_sent(&self) -> bool {
        self.waiter.dir() == Dir::Send && self.waiter.outcome.get() == Outcome::Done
    }

    /// Returns the place that the waiter was given, if the waiter waited for a place.
    pub(super) fn place(self) -> Option<Place<'c, T>> {
        let has_place = self.waiter.dir() == Dir::Reserve && self.waiter.outcome.get() == Outcome::Done;
        has_place.then(|| Place(self.core))
    }

    /// Finishes a receive. If the waiter is a thread or a goroutine and was given a value, or is a task and holds a value,
    /// the caller owns that value from now on. Otherwise the channel is closed, and this call tries to receive another
    /// value: a task may have held a value at the time of the close. The result is in the waiter's slot.
    ///
    /// # Panics
    ///
    /// Panics if the waiter did not wait to receive: a sender's value is not the receiver's to take.
    pub(super) fn receive(self) -> Option<Owned<'w, T>> {
        assert!(self.waiter.dir() == Dir::Recv, "a receive by a sender");
        // Do not read the outcome of a task here: another receiver may change it, under the lock.
        if !self.waiter.is_task() && self.waiter.outcome.get() == Outcome::Done {
            // SAFETY: the peer has moved a value to the slot, which nothing else uses, by the contract of `new`.
            return Some(unsafe { Owned::new(&mut *self.waiter.slot.cast()) });
        }
        let (mut guard, held) = self.end_hold();
        let received = held.or_else(|| {
            // SAFETY: the waiter holds no value for the channel, so nothing else uses the slot, by the contract of `new`.
            let slot = unsafe { &mut *self.waiter.slot.cast() };
            // There is no peer to wake, because the channel is closed.
            guard.take_apart(slot).map(|(value, _)| value)
        });
        guard.unlock();
        received
    }

    /// Locks the channel, and takes the value that the task holds, if there is such a value.
    fn end_hold(&self) -> (Guard<'c, T>, Option<Owned<'w, T>>) {
        let mut guard = self.core.lock();
        // SAFETY: the waiter was in a queue of this channel, by the contract of `new`.
        if !unsafe { guard.release_held(self.waiter) } {
            return (guard, None);
        }
        // SAFETY: the waiter held a value in its slot, which nothing else uses, by the contract of `new`.
        let value = unsafe { Owned::new(&mut *self.waiter.slot.cast()) };
        (guard, Some(value))
    }

    /// Undoes a receive of a task that will not return a value. If the task holds a value, that value goes to the next
    /// receiver, or stays in the channel.
    #[cold]
    pub(super) fn give_back(self) {
        let node = Node::new();
        let (mut guard, held) = self.end_hold();
        let Some(value) = held else { return guard.unlock() };
        let ticket = self.waiter.ticket.get();
        match guard.hand_over(value, Some(ticket)) {
            Ok(peer) => {
                crate::shim::mark("a value that is given back goes to the next receiver");
                guard.unlock();
                peer.wake();
            }
            Err(value) => {
                crate::shim::mark("a value that is given back stays in the channel");
                guard.insert(node, value, ticket);
                guard.unlock();
            }
        }
    }
}
