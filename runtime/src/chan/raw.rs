//! What a channel is without its values: a lock, the state in the lock's word, and two queues of waiters.
//!
//! ```text
//!   usize::BITS-1                        6      5         4          3           2          1        0
//!  ┌──────────────────────────────────────┬──────┬───────────┬─────────┬───────────┬────────┬────────┐
//!  │ len: how many values the channel has │ HELD │ RESERVERS │ SENDERS │ RECEIVERS │ CLOSED │ LOCKED │
//!  └──────────────────────────────────────┴──────┴───────────┴─────────┴───────────┴────────┴────────┘
//! ```
//!
//! | step | how |
//! |---|---|
//! | lock | one compare-exchange that sets `LOCKED`; it tells the owner the state |
//! | unlock | one store of the new state, without `LOCKED` |
//! | a `try_` call that must fail | a load, without the lock |
//!
//! The owner alone writes the word while `LOCKED` is set, so the unlock is a store. The lock therefore has no bit for
//! sleepers: a contender pauses, then yields its processor, then sleeps for short times. The owner holds the lock for
//! some ten instructions and the copy of one value. It never runs user code, never waits, and never switches goroutines
//! while it holds the lock.
//!
//! `SENDERS`, `RESERVERS` and `RECEIVERS` say that the queue is not empty. A waiter in it may be taken already (see `Claim`),
//! so a set bit proves nothing, and a clear bit proves that no waiter is there.
//!
//! `HELD` says that a task which has been given a value has neither been polled nor been dropped since. The task may give
//! that value back, so a closed channel is at its end only when the bit is clear, too. `len` does not count the value.
//!
//! # Orderings
//!
//! The lock: Acquire as it is taken, Release as it is given. The compare-exchange is SeqCst, and so is the load of the
//! failing `try_`. So a channel's calls are sequentially consistent with each other and with SeqCst atomics of the caller.
//! Take a caller A that writes X and then fails in `try_recv`, and a caller B that sends and then reads X. The load of A
//! has seen the word before B's compare-exchange (else it had found `LOCKED`, or the value). So A's write and load are
//! before B's compare-exchange and load in the total order, and B reads what A wrote. The model is
//! `a_try_that_fails_is_ordered`.

use std::ptr::NonNull;

pub(super) use super::waiters::Dir;
use super::waiters::{Outcome, WaitQueue, Waiter};
use crate::panics::Panics;
#[cfg(not(sudog_loom))]
use crate::shim::num_cpus;
use crate::shim::{self, AtomicUsize, Cell, Ordering};

const LOCKED: usize = 1;
pub(super) const CLOSED: usize = 2;
pub(super) const RECEIVERS: usize = 4;
pub(super) const SENDERS: usize = 8;
pub(super) const RESERVERS: usize = 16;
pub(super) const HELD: usize = 32;
/// One value.
pub(super) const ONE: usize = 64;

/// The most values that the word can count.
pub(super) const MAX_LEN: usize = usize::MAX / ONE;

/// See the top of this file.
pub(super) struct Raw {
    word: AtomicUsize,
    capacity: usize,
    /// The capacity without the reserved places: a send that reserved nothing finds room while `len` is less. Changed under
    /// the lock, as are the two fields below.
    limit: Cell<usize>,
    /// Number of places that are reserved.
    reserved: Cell<usize>,
    /// The next ticket.
    tickets: Cell<u64>,
    receivers: WaitQueue,
    senders: WaitQueue,
    reservers: WaitQueue,
    /// The waiters whose outcome is `Held`, by the age of their values.
    held: WaitQueue,
    #[cfg(sudog_loom)]
    model: model::Lock,
}

/// The lock is held until [`Locked::unlock`]; nothing unlocks by itself, as nothing under the lock can panic.
#[must_use = "the lock stays locked"]
pub(super) struct Locked<'a> {
    raw: &'a Raw,
    /// The state to be, without `LOCKED`.
    pub(super) word: usize,
}

/// A waiter that has been taken out of its queue and waits for its wake-up.
#[must_use = "the waiter sleeps for ever"]
#[derive(Clone, Copy)]
pub(super) struct Peer(NonNull<Waiter>);

impl Raw {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            word: AtomicUsize::new(0),
            capacity,
            limit: Cell::new(capacity),
            reserved: Cell::new(0),
            tickets: Cell::new(1),
            receivers: WaitQueue::new(),
            senders: WaitQueue::new(),
            reservers: WaitQueue::new(),
            held: WaitQueue::new(),
            #[cfg(sudog_loom)]
            model: model::Lock::new(),
        }
    }

    /// By what the locks of several channels are ordered.
    #[inline]
    pub(super) fn rank(&self) -> usize {
        #[cfg(not(sudog_loom))]
        return std::ptr::from_ref(self).addr();
        // An address is not the same in each execution.
        #[cfg(sudog_loom)]
        return self.model.serial();
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The state at this moment, for a caller that draws no conclusion from what it does not see.
    #[inline]
    pub(super) fn glance(&self) -> State {
        State { word: self.word.load(Ordering::Acquire), capacity: self.capacity }
    }

    /// The state at this moment, in the total order of all channels' calls: for a `try_` that may fail by it.
    #[inline]
    pub(super) fn look(&self) -> State {
        State { word: self.word.load(Ordering::SeqCst), capacity: self.capacity }
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
        let word = self.word.load(Ordering::Relaxed);
        let free = word & LOCKED == 0;
        (free && self.word.compare_exchange(word, word | LOCKED, Ordering::SeqCst, Ordering::Relaxed).is_ok())
            .then_some(Locked { raw: self, word })
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

    /// The lock, which the caller holds by a [`Locked::keep`].
    #[inline]
    pub(super) fn held(&self) -> Locked<'_> {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & LOCKED != 0);
        Locked { raw: self, word: word & !LOCKED }
    }

    /// How many waiters are in a queue.
    pub(super) fn waiting(&self, dir: Dir) -> usize {
        let locked = self.lock();
        // SAFETY: the lock is held.
        let n = unsafe { self.queue(dir).len() };
        locked.unlock();
        n
    }

    /// Takes a waiter out that gives up. False if a peer has taken it out, or has passed it over.
    ///
    /// # Safety
    ///
    /// The waiter is alive, and the last queue that it has been put into is one of this channel.
    pub(super) unsafe fn leave(&self, waiter: &Waiter) -> bool {
        let mut locked = self.lock();
        let queued = waiter.outcome.get() == Outcome::Queued;
        if queued {
            let dir = waiter.dir();
            // SAFETY: the waiter is alive and the lock is held; its outcome says that it is still in the queue that it has
            // been put into.
            unsafe { self.queue(dir).unlink(waiter) };
            waiter.outcome.set(Outcome::Idle);
            locked.mark(dir);
        }
        locked.unlock();
        queued
    }

    fn queue(&self, dir: Dir) -> &WaitQueue {
        match dir {
            Dir::Send => &self.senders,
            Dir::Reserve => &self.reservers,
            Dir::Recv => &self.receivers,
        }
    }
}

/// How long a contender stays away before it tries again. Thirty pauses between two tries: a contender that looks all the
/// time takes the cache line from the owner. The sleep is for an owner that a contender of higher priority keeps off its
/// processor.
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
        // Release: what was done under the lock.
        self.raw.word.store(self.word, Ordering::Release);
        #[cfg(sudog_loom)]
        self.raw.model.unlock();
    }

    /// Leaves the lock locked, until [`Raw::held`].
    #[inline]
    pub(super) fn keep(self) {
        self.raw.word.store(self.word | LOCKED, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        State { word: self.word, capacity: self.raw.capacity }
    }

    /// Puts a waiter at the end of its queue.
    ///
    /// # Safety
    ///
    /// - The waiter is in no queue.
    /// - It stays where it is, alive, until its outcome is no longer `Queued`, and if it is `Done` or `Closed` until its G
    ///   has been readied.
    /// - What it knows (its G, its slot, its claim) stays so for as long.
    pub(super) unsafe fn enqueue(&mut self, dir: Dir, waiter: &Waiter) {
        waiter.outcome.set(Outcome::Queued);
        waiter.set_dir(dir);
        waiter.ticket.set(self.ticket());
        // SAFETY: by the contract; the lock is held.
        unsafe { self.raw.queue(dir).push(waiter) };
        self.word |= bit(dir);
    }

    /// Takes out the first waiter that nothing else has taken, and tells it `outcome`. It is the caller's to wake.
    #[inline]
    pub(super) fn dequeue(&mut self, dir: Dir, outcome: Outcome) -> Option<Peer> {
        if self.word & bit(dir) == 0 { None } else { self.dequeue_some(dir, outcome) }
    }

    fn dequeue_some(&mut self, dir: Dir, outcome: Outcome) -> Option<Peer> {
        let queue = self.raw.queue(dir);
        // SAFETY: the lock is held, so what is queued is alive.
        let peer = std::iter::from_fn(|| unsafe { queue.pop() }).find(|waiter| {
            // SAFETY: it was queued just now, and cannot leave before it has had the lock.
            let waiter = unsafe { waiter.as_ref() };
            // One that has lost its claim is in no queue now, and learns that under the lock.
            let taken = waiter.claim();
            if !taken {
                shim::mark("a waiter whose claim is taken is passed over");
            }
            waiter.outcome.set(if taken { outcome } else { Outcome::Idle });
            taken
        });
        self.mark(dir);
        peer.map(Peer)
    }

    /// After waiters have left.
    fn mark(&mut self, dir: Dir) {
        if self.raw.queue(dir).is_empty() {
            self.word &= !bit(dir);
        }
    }

    /// Takes a ticket that is later than all that have been taken.
    pub(super) fn ticket(&mut self) -> u64 {
        let ticket = self.raw.tickets.get();
        self.raw.tickets.set(ticket + 1);
        ticket
    }

    /// Notes that the value in this peer's slot is the channel's until the peer, a task, is polled. `ticket` is the value's
    /// age.
    ///
    /// # Safety
    ///
    /// The peer is a receiver that this owner of the lock has taken out, and has not woken.
    #[cold]
    pub(super) unsafe fn hold(&mut self, peer: Peer, ticket: u64) {
        // SAFETY: a peer that has not been woken is alive, and stays so until it has had the lock (`release_held`).
        let waiter = unsafe { peer.0.as_ref() };
        waiter.outcome.set(Outcome::Held);
        waiter.ticket.set(ticket);
        // SAFETY: the lock is held; the waiter was taken out of its queue; its owner does not free it while it is `Held`.
        unsafe { self.raw.held.insert(waiter) };
        self.word |= HELD;
    }

    /// Takes a waiter out of the list of those that hold a value. The value in the waiter's slot is no longer the channel's.
    ///
    /// # Safety
    ///
    /// The waiter's outcome is `Held`, by a hand-over of this channel.
    pub(super) unsafe fn release_held(&mut self, waiter: &Waiter) {
        // SAFETY: the lock is held; a waiter that is `Held` is in this list.
        unsafe { self.raw.held.unlink(waiter) };
        waiter.outcome.set(Outcome::Idle);
        if self.raw.held.is_empty() {
            self.word &= !HELD;
        }
    }

    /// Takes the oldest value that a task holds away from that task, which looks once more when it is polled. Returns the
    /// slot that has the value.
    pub(super) fn take_held(&mut self) -> Option<*mut ()> {
        // SAFETY: the lock is held; a waiter that is `Held` is alive until it has had the lock.
        let waiter = unsafe { self.raw.held.first()?.as_ref() };
        // SAFETY: the waiter was found among those that are `Held`.
        unsafe { self.release_held(waiter) };
        Some(waiter.slot)
    }

    /// Returns whether there is room for a value whose send reserved nothing.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.state().len() < self.raw.limit.get()
    }

    /// Returns whether a place can be reserved. A channel without capacity has one.
    pub(super) fn has_place(&self) -> bool {
        self.state().len() + self.raw.reserved.get() < self.raw.capacity.max(1)
    }

    /// Reserves a place, if there is one. `Some(false)`: the channel is closed.
    pub(super) fn try_reserve(&mut self) -> Option<bool> {
        if self.state().is_closed() {
            return Some(false);
        }
        self.has_place().then(|| {
            self.reserve(true);
            true
        })
    }

    /// Reserves a place, or frees a reserved one.
    pub(super) fn reserve(&mut self, reserved: bool) {
        let n = if reserved { self.raw.reserved.get() + 1 } else { self.raw.reserved.get() - 1 };
        self.raw.reserved.set(n);
        self.raw.limit.set(self.raw.capacity.saturating_sub(n));
    }

    /// Returns the queue whose first waiter has waited longer: that of the senders, or that of the reservers.
    pub(super) fn first_to_send(&self) -> Dir {
        // SAFETY: the lock is held.
        let (sender, reserver) = unsafe { (self.raw.senders.first_ticket(), self.raw.reservers.first_ticket()) };
        match (sender, reserver) {
            (Some(sender), Some(reserver)) if sender < reserver => Dir::Send,
            (Some(_), None) => Dir::Send,
            _ => Dir::Reserve,
        }
    }
}

fn bit(dir: Dir) -> usize {
    match dir {
        Dir::Send => SENDERS,
        Dir::Reserve => RESERVERS,
        Dir::Recv => RECEIVERS,
    }
}

impl Peer {
    /// Where its value is, or will be.
    pub(super) fn slot(self) -> *mut () {
        // SAFETY: it waits for `wake`, so it is alive; and nothing writes to its slot pointer.
        unsafe { (*self.0.as_ptr()).slot }
    }

    /// Returns whether the channel keeps the value of this peer until the peer is polled.
    pub(super) fn is_task(self) -> bool {
        // SAFETY: it waits for `wake`, so it is alive; and nothing writes to this field.
        unsafe { (*self.0.as_ptr()).is_task() }
    }

    /// Its G, to be readied once.
    pub(super) fn g(self) -> *const crate::G {
        // SAFETY: as in `slot`.
        unsafe { (*self.0.as_ptr()).g }
    }

    /// Wakes it. If it is a task, that runs user code.
    ///
    /// # Safety
    ///
    /// This is the only call for this peer, and nothing of it is used after.
    #[inline]
    pub(super) unsafe fn wake(self) {
        // SAFETY:
        // - alive: it waits for this call;
        // - taken out of its queue by the caller, so this is the only `ready`, by the contract;
        // - its G was found by the queue alone, and waits for nothing else: it was queued just before its `park`.
        unsafe { crate::G::ready(self.g()) };
    }
}

/// Wakes several peers. All are readied before the first waker of a task is called: wakers are user code, and may panic.
///
/// # Safety
///
/// The contract of [`Peer::wake`], for each peer.
pub(super) unsafe fn wake_all(peers: [Option<Peer>; 2]) {
    // SAFETY: each peer is alive until it is readied, and this is its only `ready`, by the contract.
    let wakers = peers.map(|peer| peer.and_then(|peer| unsafe { crate::G::mark_ready(peer.g()) }));
    let mut panics = Panics::default();
    for waker in wakers.into_iter().flatten() {
        panics.catch(|| waker.wake());
    }
    panics.resume();
}

/// The word, at one moment.
#[derive(Clone, Copy)]
pub(super) struct State {
    word: usize,
    capacity: usize,
}

impl State {
    #[inline]
    pub(super) fn is_closed(self) -> bool {
        self.word & CLOSED != 0
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.word / ONE
    }

    /// A receive from this open channel finds no value, and no sender that could bring one; and the state is not about to
    /// change.
    #[inline]
    pub(super) fn is_empty_for_certain(self) -> bool {
        self.word & !(RECEIVERS | RESERVERS | HELD) == 0
    }

    /// The channel is closed, no value is left, and none can be given back: so it stays.
    #[inline]
    pub(super) fn is_at_its_end(self) -> bool {
        self.word & !(RECEIVERS | SENDERS | RESERVERS) == CLOSED
    }

    /// A send to this open channel finds neither room nor a receiver; and the state is not about to change.
    #[inline]
    pub(super) fn is_full_for_certain(self) -> bool {
        self.word & (LOCKED | CLOSED | RECEIVERS) == 0 && self.len() >= self.capacity
    }
}

/// In a model, contenders wait for a lock of loom's: the same in fewer steps. The word is written as on the real machine.
#[cfg(sudog_loom)]
mod model {
    use crate::shim::system::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::cell::UnsafeCell;

    use crate::shim::{Mutex, MutexGuard};

    pub(super) struct Lock {
        mutex: Mutex<()>,
        guard: UnsafeCell<Option<MutexGuard<'static, ()>>>,
        serial: usize,
    }

    /// How many channels all executions have made.
    static MADE: AtomicUsize = AtomicUsize::new(0);

    impl Lock {
        pub(super) fn new() -> Self {
            Self { mutex: Mutex::new(()), guard: UnsafeCell::new(None), serial: MADE.fetch_add(1, Relaxed) }
        }

        pub(super) fn serial(&self) -> usize {
            self.serial
        }

        pub(super) fn lock(&self) {
            let guard = self.mutex.lock();
            // SAFETY: the guard is dropped in `unlock`, by a caller that has a reference to the mutex.
            let guard = unsafe { std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard) };
            // SAFETY: the lock is held.
            unsafe { *self.guard.get() = Some(guard) };
        }

        pub(super) fn unlock(&self) {
            // SAFETY: the lock is held until the guard is dropped, after this statement.
            let guard = unsafe { (*self.guard.get()).take() };
            drop(guard);
        }
    }
}
