//! The queue of a ticket semaphore: the next ticket, and the position of the grants. Waiters can leave the queue.
//!
//! | word | meaning |
//! |---|---|
//! | `next` | the position of the next ticket to be drawn |
//! | `grant` | the position before which all tickets have been granted, and the flags CLOSED and GAPS: see `grant.rs` |
//! | `gaps` | tickets that were given up before they were granted: their grants go to the tickets behind them |
//!
//! A position is four times a ticket's number, and wraps: two positions are compared by their difference. So the number
//! of tickets is unlimited; but there may be at most 2^60 tickets that are drawn and not granted, or granted and not
//! drawn.
//!
//! | step | by | action |
//! |---|---|---|
//! | draw | taker | `tx = next.fetch_add(1)`; enabled as soon as `grant > tx`; else waits by the protocol |
//! | grant | poster, no GAPS | `CAS(grant → grant + 1)`; wakes the ticket's holder by address and number |
//! | grant | poster, GAPS | the same under a lock; skips the gaps in the way, then gives back their permits |
//! | leave | taker, under the lock | `grant.fetch_or(GAPS)`; if the tickets are granted already: stays; else the tickets become a gap |
//!
//! **The need for gaps, and not a count.** Of three waiters one leaves, and one permit comes. If the first waiter left,
//! the permit is for the second; if the third left, the permit is for the first. A count of the waiters that left does
//! not decide this, so there must be a record of each given-up ticket. Adjacent tickets share a record, so there is at
//! most one record more than there are waiters.
//!
//! **The reason for GAPS in the word of the grants.** A leaver and a poster both write that word, so one of them comes
//! first: either the poster sees GAPS, or the leaver sees the poster's grant. This needs no sequential consistency. A
//! poster could not read another word after its grant: the semaphore may be freed.
//!
//! **The moment at which the semaphore may be freed.** A grant's last access is its compare-exchange or, if the grant
//! has skipped a gap, the return of that gap's permits to the doorway; the grant finds the waiters to wake by the
//! *number* of the address. So the taker of the last permit may free the semaphore at once. The lock of the gaps is
//! global, and found by address while the semaphore is alive; the data under that lock, `gaps`, is touched before the
//! grant.
//!
//! Permits are conserved. A taker leaves with its ticket granted, or its ticket is in the gaps, once. A ticket in a gap
//! is skipped once, by a poster that instead grants another ticket, or gives a unit to the doorway. The waiters that
//! stay are served in FIFO order: grants only increase.

use std::marker::PhantomData;
use std::ops::Range;

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicU64, Cell, Mutex, MutexGuard, Ordering, mark};
use sudog_runtime::{Instant, fatal};

use super::gaps::{Gap, Gaps};
use super::grant::{AtomicGrant, ONE, end};
#[cfg(not(sudog_loom))]
use super::hash::fibonacci;
use super::ticket_sema::Doorway;

/// A protocol by which the holder of a ticket waits, and a poster wakes that holder: one of the paper's listings.
///
/// # Safety
///
/// - [`TicketWait::wait`] returns true only if the turn has come.
/// - After the turn of a ticket has come, each wake of the semaphore and ticket ends the wait for that ticket, at
///   whatever moment of the wait the wake comes.
/// - A wake uses the semaphore's address only as a number.
pub unsafe trait TicketWait: Send + Sync + 'static {
    /// The largest number of following tickets that a wake of a ticket wakes, too.
    const NEAR: u32;

    /// The condition under which a post wakes no waiter. With `Some(n)`, a post reads the tickets that have been drawn,
    /// and wakes no waiter if no waiter is more than `n` tickets from its turn. Such a post uses the semaphore after
    /// its grant. See [`TicketSema::OUTLIVES_GRANT`].
    ///
    /// [`TicketSema::OUTLIVES_GRANT`]: super::TicketSema::OUTLIVES_GRANT
    const LOOKS_AT_TICKETS: Option<u64>;

    /// True if a wake tells waiters of the grant by the semaphore's address. Then a semaphore must outlive its posts: the
    /// waiter of a new semaphore at the same address must not be told of the old one's grant. And each post acquires what
    /// earlier posts have released.
    const TELLS: bool = false;

    /// Waits until the turn has come (true), or until the deadline (false).
    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool;

    /// Makes the holders of these tickets, which have just been granted, check their turns again. The semaphore may be
    /// freed already.
    fn wake(sema: usize, tickets: Range<u64>);

    /// Makes the holders of these tickets check their turns again, because the semaphore was closed.
    fn wake_closed(sema: usize, tickets: Range<u64>) {
        Self::wake(sema, tickets);
    }
}

/// The condition of a waiter: its ticket is granted, or the semaphore is closed.
pub struct Turn<'a> {
    next: &'a AtomicU64,
    grant: &'a AtomicGrant,
    sema: usize,
    position: u64,
    /// True once the waiter was told that its ticket is granted. Only the waiter uses the cell.
    told: std::cell::Cell<bool>,
}

/// A message to a waiter: all tickets of the semaphore at this address before `end` have been granted.
#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) sema: usize,
    pub(super) end: u64,
}

impl Turn<'_> {
    /// Returns the address of the semaphore, as a number: the same number that [`TicketWait::wake`] gets.
    #[inline]
    #[must_use]
    pub fn sema(&self) -> usize {
        self.sema
    }

    /// Returns the ticket.
    #[inline]
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.position / ONE
    }

    /// Returns the number of tickets before this ticket that have not been granted; 0 if this ticket is the next to be
    /// granted. Returns `None` if the turn has come.
    #[inline]
    #[must_use]
    pub fn distance(&self) -> Option<u64> {
        self.grant.load(Ordering::Acquire).ahead_of(self.position)
    }

    /// Returns the number of tickets that have been drawn and not granted, including given-up tickets: a hint.
    #[must_use]
    pub fn queue_len(&self) -> u64 {
        // Relaxed: the two words are read one after another, and no other data depends on their values.
        let next = self.next.load(Ordering::Relaxed);
        self.grant.load(Ordering::Relaxed).owed(next) / ONE
    }

    /// Returns true if the turn has come.
    #[inline]
    #[must_use]
    pub fn has_come(&self) -> bool {
        self.distance().is_none()
    }

    /// Returns the end of the wait, or `None` if the turn has not come. Any thread may ask.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let grant = self.grant.load(Ordering::Acquire);
        let end = if grant.is_closed() { Outcome::Closed } else { Outcome::Granted };
        grant.ahead_of(self.position).is_none().then_some(end)
    }

    /// Returns the message that this ticket is granted.
    pub(super) fn as_posted(&self) -> Posted {
        Posted { sema: self.sema, end: self.ticket() + 1 }
    }

    /// Tells the waiter that tickets have been granted. Returns true if its own ticket is among them: then the wait does not
    /// read the grant any more.
    pub(super) fn is_told(&self, posted: Posted) -> bool {
        let behind = self.ticket().wrapping_sub(posted.end).wrapping_mul(ONE) as i64;
        let granted = posted.sema == self.sema && behind < 0;
        if granted {
            mark("a waiter is told of its grant");
            self.told.set(true);
        }
        granted
    }
}

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Granted,
    Closed,
    TimedOut,
}

pub struct TicketQueue<W, D> {
    next: AtomicU64,
    grant: AtomicGrant,
    /// The given-up tickets. Changed under the lock of [`lock_of`].
    gaps: Cell<Gaps>,
    protocol: PhantomData<fn() -> (W, D)>,
}

// SAFETY: `gaps` is touched under the lock, or with exclusive access to the queue; the rest is atomic.
unsafe impl<W, D> Sync for TicketQueue<W, D> {}

impl<W, D> TicketQueue<W, D> {
    const_unless_model! {
        pub(super) const fn granting(tickets: u32) -> Self {
            Self {
                next: AtomicU64::new(0),
                grant: AtomicGrant::granting(tickets),
                gaps: Cell::new(Gaps::NONE),
                protocol: PhantomData,
            }
        }
    }
}

impl<W: TicketWait, D: Doorway> TicketQueue<W, D> {
    /// The value of [`TicketWait::LOOKS_AT_TICKETS`]; `None` if the doorway knows whether there are waiters, because
    /// then no post needs to read the tickets.
    pub(super) const LOOKS: Option<u64> = if D::KNOWS_WHO_WAITS { None } else { W::LOOKS_AT_TICKETS };

    /// The ordering of a draw. Where a post reads the tickets, sequentially consistent: the taker draws a ticket, then
    /// reads the grant; the poster grants, then reads the tickets. See `docs/orderings.md`, section 4. Elsewhere
    /// Acquire: if a draw comes after `close` has read the tickets, the taker sees CLOSED.
    const DRAW: Ordering = if Self::LOOKS.is_some() { Ordering::SeqCst } else { Ordering::Acquire };
    const FIRST_LOOK: Ordering = if Self::LOOKS.is_some() { Ordering::SeqCst } else { Ordering::Acquire };
    /// The ordering of a grant. At least Release: the taker sees the writes of the poster and, by the release sequence,
    /// of all earlier posters.
    const GRANT: Ordering = match (Self::LOOKS, W::TELLS) {
        (Some(_), _) => Ordering::SeqCst,
        (None, true) => Ordering::AcqRel,
        (None, false) => Ordering::Release,
    };

    /// The value of [`TicketSema::OUTLIVES_GRANT`](super::TicketSema::OUTLIVES_GRANT).
    pub(super) const OUTLIVES: bool = Self::LOOKS.is_some() || W::TELLS;

    #[inline]
    fn sema(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Draws `n` tickets. Returns the position of the first ticket.
    #[inline]
    pub(super) fn draw(&self, n: u32) -> u64 {
        self.next.fetch_add(u64::from(n) * ONE, Self::DRAW)
    }

    /// Returns true if these tickets have all been granted. Reads `grant` once.
    #[inline]
    pub(super) fn are_granted(&self, first: u64, n: u32) -> bool {
        self.grant.load(Self::FIRST_LOOK).covers(end(first, n))
    }

    /// Draws `n` tickets if they have been granted already.
    #[inline]
    pub(super) fn try_draw(&self, n: u32) -> bool {
        // Load `next` first. In the other order `try_draw` could fail although a permit was available all the time, if
        // a permit is granted and another taken between the two loads.
        let mut next = self.next.load(Ordering::Acquire);
        loop {
            let after = end(next, n);
            if !self.grant.load(Ordering::Acquire).covers(after) {
                return false;
            }
            match self.next.compare_exchange_weak(next, after, Self::DRAW, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => next = now,
            }
        }
    }

    /// Grants `n` tickets. For each given-up ticket among them the doorway gets a unit back. If the doorway owes that
    /// unit to the queue, another ticket is granted instead.
    ///
    /// # Safety
    ///
    /// `queue` and `doorway` are alive. The taker of the last permit that is given here may free them at once; but if
    /// [`TicketQueue::OUTLIVES`] is true, they are alive until this call returns.
    #[inline]
    pub(super) unsafe fn grant(queue: *const Self, doorway: *const D, n: u64) {
        // SAFETY: `queue` is alive until the compare-exchange below. No reference to the queue lives longer.
        let (grant, next) = unsafe { (&raw const (*queue).grant, &raw const (*queue).next) };
        // SAFETY: `grant` points into `queue`, which is alive until the compare-exchange below.
        let mut old = unsafe { (*grant).load(Ordering::Relaxed) };
        // Check the limit for several permits only: to reach the limit by single permits would take a lifetime.
        // SAFETY: `next` points into `queue`, which is alive until the compare-exchange below.
        if n > 1 && old.is_too_far_ahead(unsafe { (*next).load(Ordering::Relaxed) }) {
            fatal("sema: more than 2^60 permits");
        }
        let first = loop {
            if old.needs_lock() {
                // SAFETY: the contract of `grant_slow` is that of `grant`, and no permit has been given yet.
                return unsafe { Self::grant_slow(queue, doorway, n) };
            }
            // SAFETY: `grant` points into `queue`, which is alive until this compare-exchange succeeds.
            match unsafe { (*grant).compare_exchange_weak(old, old.grant(n), Self::GRANT, Ordering::Relaxed) } {
                Ok(_) => break old.position(),
                Err(now) => old = now,
            }
        };
        if let Some(near) = Self::LOOKS {
            // SAFETY: `next` points into `queue`, which is alive, as a semaphore with `LOOKS` must outlive its grants.
            let next = unsafe { (*next).load(Ordering::SeqCst) };
            if next.wrapping_sub(first) as i64 <= (near * ONE) as i64 {
                mark("a post finds no ticket to wake");
                return; // the ticket to wake has not been drawn; the taker of that ticket will see this grant
            }
        }
        wake::<W>(queue.addr(), first, first.wrapping_add(n * ONE));
    }

    /// Grants `n` tickets under the lock, stretch by stretch: a stretch is a gap, or tickets that are held.
    ///
    /// A gap is skipped before the doorway gets the units of that gap, because such a unit may admit the taker of the
    /// last permit. But the units that the doorway owes to the queue are taken out before the skip. So a gap is skipped
    /// in a single step, however long it is.
    ///
    /// # Safety
    ///
    /// The contract of [`TicketQueue::grant`].
    #[cold]
    unsafe fn grant_slow(queue: *const Self, doorway: *const D, mut n: u64) {
        let sema = queue.addr();
        let locked = lock_of(sema);
        // SAFETY: by the contract of `grant_slow`, `queue` is alive for as long as there are permits left to give.
        let (grant, gaps) = unsafe { (&raw const (*queue).grant, &raw const (*queue).gaps) };
        // SAFETY: `grant` points into `queue`, which is alive: there are permits left to give.
        let mut old = unsafe { (*grant).load(Ordering::Relaxed) };
        // Record the granted stretches: to wake their holders, and to free the nodes, after the unlock.
        let mut stretches = Stretches { sema, from: old.position(), to: old.position(), gaps: Gaps::NONE };
        // Stop at CLOSED: after the closing there is no waiter, and there will be no waiter.
        while n > 0 && !old.is_closed() {
            let at = old.position();
            // SAFETY: `gaps` points into `queue`, which is alive, as there are permits left to give; the lock is held.
            let mut left = unsafe { (*gaps).replace(Gaps::NONE) };
            let (step, units) = match left.first_mut() {
                Some(gap) if gap.start == at => {
                    mark("a grant goes over a gap");
                    let given_up = gap.len() / ONE;
                    // SAFETY: `doorway` is alive, as there are permits left to give.
                    let owed = unsafe { D::pay_debts(doorway, given_up) };
                    n += owed;
                    let step = n.min(given_up);
                    if step == given_up {
                        stretches.gaps.push_front(left.pop_first().expect("just seen"));
                    } else {
                        gap.start = at.wrapping_add(step * ONE);
                    }
                    (step, step - owed)
                }
                Some(gap) => (n.min(gap.start.wrapping_sub(at) / ONE), 0),
                None => (n, 0),
            };
            let new = old.grant_under_lock(step, !left.is_empty());
            // SAFETY: `gaps` and `grant` point into `queue`, which is alive, as there are permits left to give. If this
            // step gives all of them, nothing is used after the compare-exchange: the thread that frees the queue sees
            // all earlier accesses.
            let advanced = unsafe {
                (*gaps).set(left);
                (*grant).compare_exchange(old, new, Self::GRANT, Ordering::Relaxed)
            };
            match advanced {
                Ok(_) => {
                    if stretches.is_empty() {
                        stretches.from = at;
                    }
                    stretches.to = new.position();
                    n -= step;
                    if units > 0 {
                        // SAFETY: `doorway` is alive, as these units have still to be given.
                        n += unsafe { D::give(doorway, units) };
                    }
                    old = new;
                }
                // Retry. This step was not over a gap: while GAPS is set, grants happen under this lock only.
                Err(now) => old = now,
            }
        }
        drop(locked);
        stretches.wake::<W>();
    }

    /// Returns the turn of the holder of `n` tickets from `first` on: the turn of the last ticket, which is granted
    /// after the others.
    pub(super) fn turn(&self, first: u64, n: u32) -> Turn<'_> {
        let position = end(first, n).wrapping_sub(ONE);
        Turn { next: &self.next, grant: &self.grant, sema: self.sema(), position, told: std::cell::Cell::new(false) }
    }

    /// Waits until `n` tickets from `first` on have been granted. At a deadline gives the tickets up, and calls
    /// `give_back` with the number of those that had been granted, if any. Does the same if the user's policy panics.
    #[cold]
    pub(super) fn wait(&self, first: u64, n: u32, deadline: Option<Instant>, give_back: &dyn Fn(u64)) -> Outcome {
        if n > 1 && self.grant.load(Ordering::Relaxed).is_too_far_behind(end(first, n)) {
            fatal("sema: more than 2^60 permits asked for");
        }
        let guard = LeaveOnPanic { queue: self, first, n, give_back };
        let turn = self.turn(first, n);
        let in_time = W::wait(&turn, deadline);
        std::mem::forget(guard);
        if !in_time {
            return self.leave(first, n, give_back);
        }
        // The wait has read the grant with Acquire, or was told by a thread that has.
        if !turn.told.get() && self.is_closed() { Outcome::Closed } else { Outcome::Granted }
    }

    /// Gives up the tickets, unless they have all been granted.
    #[cold]
    pub(super) fn leave(&self, first: u64, n: u32, give_back: &dyn Fn(u64)) -> Outcome {
        let mut gap = Gap::boxed();
        let locked = lock_of(self.sema());
        // Acquire: if `old` contains the grant of these tickets, this step takes the permits too. A later grant sees
        // GAPS.
        let old = self.grant.set_gaps(Ordering::Acquire);
        let mut gaps = self.gaps.replace(Gaps::NONE);
        let got = old.part_of(first, n);
        let mut spare = Gaps::NONE;
        let outcome = if old.is_closed() {
            mark("a waiter that gives up has been told of the closing");
            Outcome::Closed
        } else if got == u64::from(n) * ONE {
            mark("a waiter that gives up has been granted its permit");
            Outcome::Granted
        } else {
            mark("a waiter that gives up leaves a gap");
            (gap.start, gap.end) = (first.wrapping_add(got), end(first, n));
            spare = gaps.insert(gap, old.position());
            Outcome::TimedOut
        };
        if gaps.is_empty() {
            // Relaxed: this RMW continues the release sequences of the grants before it.
            self.grant.clear_gaps(Ordering::Relaxed);
        }
        self.gaps.set(gaps);
        drop(locked);
        drop(spare);
        if outcome == Outcome::TimedOut && got > 0 {
            mark("a waiter that gives up gives back a part");
            give_back(got / ONE);
        }
        outcome
    }

    /// Lets all waiters, and all later arrivals, go without a permit.
    pub(super) fn close(&self) {
        let locked = lock_of(self.sema());
        self.grant.close(Ordering::Release);
        drop(locked);
        // Use an RMW without a change. If a draw comes before this RMW, this thread wakes the holder of that ticket. If
        // a draw comes after this RMW, the draw reads from it, so the taker sees CLOSED. Release, without Acquire: this
        // thread takes nothing from the draws but their number.
        let drawn = self.next.fetch_add(0, Ordering::Release);
        let grant = self.grant.load(Ordering::Relaxed);
        if grant.owed(drawn) > 0 {
            W::wake_closed(self.sema(), tickets(grant.position(), drawn));
        }
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.grant.load(Ordering::Acquire).is_closed()
    }

    /// Returns the number of tickets that have been granted and not drawn.
    pub(super) fn surplus(&self) -> u64 {
        let next = self.next.load(Ordering::Acquire);
        self.grant.load(Ordering::Acquire).surplus(next)
    }

    /// Returns the number of tickets that waiters hold.
    pub(super) fn waiting(&self) -> u64 {
        let _locked = lock_of(self.sema());
        let gaps = self.gaps.replace(Gaps::NONE);
        let given_up: u64 = gaps.lengths().sum();
        self.gaps.set(gaps);
        let grant = self.grant.load(Ordering::Acquire);
        let drawn = self.next.load(Ordering::Acquire);
        if grant.is_closed() { 0 } else { grant.owed(drawn).saturating_sub(given_up) / ONE }
    }
}

/// Wakes the holders of the tickets between two positions.
#[inline]
fn wake<W: TicketWait>(sema: usize, from: u64, to: u64) {
    W::wake(sema, tickets(from, to));
}

/// Returns the tickets between two positions.
#[inline]
fn tickets(from: u64, to: u64) -> Range<u64> {
    let first = from / ONE;
    first..first + to.wrapping_sub(from) / ONE
}

/// The range of positions that a grant has covered: the tickets that are held, and the gaps between them. `gaps` is a
/// list of these gaps, the last gap first.
struct Stretches {
    sema: usize,
    from: u64,
    to: u64,
    gaps: Gaps,
}

impl Stretches {
    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Wakes the holders of the granted tickets. A gap has no waiters. But as the last tickets of a gap were granted,
    /// waiters behind the gap may be near now, and are woken through these tickets.
    fn wake<W: TicketWait>(mut self) {
        let mut to = self.to;
        while let Some(gap) = self.gaps.pop_first() {
            let near = gap.len().min(u64::from(W::NEAR) * ONE);
            wake::<W>(self.sema, gap.end.wrapping_sub(near), to);
            to = gap.start;
        }
        if to != self.from {
            wake::<W>(self.sema, self.from, to);
        }
    }
}

#[cfg(all(test, not(sudog_loom)))]
impl<W: TicketWait, D: Doorway> TicketQueue<W, D> {
    /// Brings the queue into its state after this number of tickets have been drawn and granted.
    pub(super) fn begin_at(&self, tickets: u64) {
        self.next.fetch_add(tickets.wrapping_mul(ONE), Ordering::Relaxed);
        self.grant.0.fetch_add(tickets.wrapping_mul(ONE), Ordering::Relaxed);
    }

    /// Returns the number of records of given-up tickets.
    pub(super) fn gaps(&self) -> usize {
        let _locked = lock_of(self.sema());
        let gaps = self.gaps.replace(Gaps::NONE);
        let n = gaps.lengths().count();
        self.gaps.set(gaps);
        n
    }
}

/// Locks the global lock that guards the gaps of the semaphore at this address.
#[cfg(not(sudog_loom))]
fn lock_of(sema: usize) -> MutexGuard<'static, ()> {
    const LOCKS: usize = 64;
    static GAP_LOCKS: [Mutex<()>; LOCKS] = [const { Mutex::new(()) }; LOCKS];
    GAP_LOCKS[fibonacci(sema, LOCKS)].lock()
}

#[cfg(sudog_loom)]
fn lock_of(_: usize) -> MutexGuard<'static, ()> {
    loom::lazy_static! { static ref GAP_LOCK: Mutex<()> = Mutex::new(()); }
    GAP_LOCK.lock()
}

/// Checks, in a model, that no thread uses the queue any more when the queue is freed.
#[cfg(sudog_loom)]
impl<W, D> Drop for TicketQueue<W, D> {
    fn drop(&mut self) {
        self.next.with_mut(|_| ());
        self.grant.0.with_mut(|_| ());
        self.gaps.replace(Gaps::NONE);
    }
}

/// The guard of a waiter with tickets, which is dropped when the user's policy panics.
struct LeaveOnPanic<'a, W: TicketWait, D: Doorway> {
    queue: &'a TicketQueue<W, D>,
    first: u64,
    n: u32,
    give_back: &'a dyn Fn(u64),
}

impl<W: TicketWait, D: Doorway> Drop for LeaveOnPanic<'_, W, D> {
    #[cold]
    fn drop(&mut self) {
        if self.queue.leave(self.first, self.n, self.give_back) == Outcome::Granted {
            (self.give_back)(u64::from(self.n));
        }
    }
}
