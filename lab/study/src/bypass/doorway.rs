//! Capacitors that tell the place of a contender in the order of arrivals.
//!
//! | doorway | capacitor | place of a contender |
//! |---|---|---|
//! | [`ByTicket`] | [`Platoon`] | the ticket of its semaphore |
//! | [`SlidingWindow`] | the doorway itself | the contender's ticket |
//! | [`Multilane`] | the doorway itself | the number that the contender was dealt |
//! | [`ByClock`] | any | two values of a count that all contenders advance: when the contender began to arrive, and when the contender had been let through |
//! | [`Permits`] | no capacitor: a semaphore, for comparison | the contender's ticket |
//!
//! The first three are exact. [`ByClock`] takes an arrival to end when the contender has been let through, which is
//! later than the actual end. So [`ByClock`] misses bypasses of contenders that wait for the capacitor, but each bypass
//! that it reports is real.

use std::time::Instant;
use sudog_runtime::shim::system::atomic::{AtomicU32, Ordering};

use sudog_locks::capacitor::{ArriveDepart, Multilane, Platoon, SlidingWindow, WindowTicket};
use sudog_locks::waiting_array::TicketWait;
use sudog_locks::waiting_array::{Ticket, TicketSema};
use sudog_sync::{Semaphore, Wake};

use super::arrival_history::Entry;

/// A capacitor that tells the place of a contender.
pub trait Doorway: ArriveDepart {
    /// Returns the admission of the contender with this ticket.
    fn entry(ticket: Self::Ticket) -> Entry;

    /// Returns the number of contenders that have announced themselves, for a contender that may go past the gate.
    /// Called before the second look of that contender.
    fn announced(&self) -> u32 {
        0
    }
}

/// A platoon whose semaphore numbers arrivals.
pub struct ByTicket<W> {
    platoon: Platoon<TicketSema<W>>,
    /// The number of contenders that have announced themselves. Each contender counts itself after it has announced
    /// itself to the platoon.
    announced: AtomicU32,
}

/// The place of a contender in a [`ByTicket`].
#[derive(Clone, Copy, Debug)]
pub struct Numbered {
    ticket: u32,
    announced: u32,
}

impl<W: TicketWait> Doorway for ByTicket<W> {
    fn entry(Numbered { ticket, announced }: Numbered) -> Entry {
        Entry::Arrived { began: ticket, ended: ticket, announced }
    }

    /// Acquire: a thread that sees a contender counted here also sees that contender's announcement to the platoon, so
    /// the thread cannot take the platoon for idle.
    fn announced(&self) -> u32 {
        self.announced.load(Ordering::Acquire)
    }
}

impl<W: TicketWait> ArriveDepart for ByTicket<W> {
    type Ticket = Numbered;

    const DEADLINES: bool = false;
    const GATE: bool = true;

    fn with_limit(limit: u32) -> Self {
        Self { platoon: Platoon::with_limit(limit), announced: AtomicU32::new(0) }
    }

    fn limit(&self) -> u32 {
        self.platoon.limit()
    }

    fn bound(&self) -> Option<u64> {
        self.platoon.bound()
    }

    fn arrive(&self) -> Numbered {
        let announced = self.announced.fetch_add(1, Ordering::AcqRel);
        let ticket = self.platoon.semaphore().acquire_numbered().expect("it is never closed");
        Numbered { ticket, announced }
    }

    /// Returns `None`: a permit that is taken by a try has no number.
    fn try_arrive(&self) -> Option<Numbered> {
        None
    }

    fn arrive_until(&self, _: Instant) -> Option<Numbered> {
        None
    }

    fn depart(&self, _: Numbered) {
        self.platoon.depart(());
    }

    fn depart_and_retract(&self, _: Numbered) {
        self.platoon.depart_and_retract(());
    }

    fn announce(&self) {
        self.platoon.announce();
    }

    fn retract(&self) {
        self.platoon.retract();
    }

    fn is_idle(&self) -> bool {
        self.platoon.is_idle()
    }
}

impl Doorway for SlidingWindow {
    fn entry(ticket: WindowTicket) -> Entry {
        Entry::at(ticket.number())
    }

    fn announced(&self) -> u32 {
        self.drawn() as u32
    }
}

impl Doorway for Multilane {
    /// Truncates the number to 32 bits: the numbers that are compared are not that far apart.
    fn entry(number: u64) -> Entry {
        Entry::at(number as u32)
    }
}

/// Any capacitor, with a count that each contender advances when it has been let through.
pub struct ByClock<C> {
    capacitor: C,
    count: AtomicU32,
}

/// The values of the count for a contender in a [`ByClock`], and the ticket of its capacitor.
#[derive(Clone, Copy, Debug)]
pub struct Timed<T> {
    ticket: T,
    began: u32,
    ended: u32,
}

impl<C> ByClock<C> {
    /// Puts a count around a capacitor that no contender has come to.
    pub const fn new(capacitor: C) -> Self {
        Self { capacitor, count: AtomicU32::new(0) }
    }
}

impl<C: ArriveDepart> Doorway for ByClock<C> {
    fn entry(Timed { began, ended, .. }: Timed<C::Ticket>) -> Entry {
        Entry::Arrived { began, ended, announced: ended }
    }
}

impl<C: ArriveDepart> ArriveDepart for ByClock<C> {
    type Ticket = Timed<C::Ticket>;

    const DEADLINES: bool = C::DEADLINES;
    const GATE: bool = false;

    fn with_limit(limit: u32) -> Self {
        Self::new(C::with_limit(limit))
    }

    fn limit(&self) -> u32 {
        self.capacitor.limit()
    }

    fn bound(&self) -> Option<u64> {
        self.capacitor.bound()
    }

    /// Arrives. All accesses of the count are sequentially consistent: a thread that reads a count of `n` has begun
    /// after all contenders with a smaller `ended` had ended.
    fn arrive(&self) -> Self::Ticket {
        let began = self.count.load(Ordering::SeqCst);
        let ticket = self.capacitor.arrive();
        Timed { ticket, began, ended: self.count.fetch_add(1, Ordering::SeqCst) }
    }

    fn try_arrive(&self) -> Option<Self::Ticket> {
        let began = self.count.load(Ordering::SeqCst);
        let ticket = self.capacitor.try_arrive()?;
        Some(Timed { ticket, began, ended: self.count.fetch_add(1, Ordering::SeqCst) })
    }

    fn arrive_until(&self, deadline: Instant) -> Option<Self::Ticket> {
        let began = self.count.load(Ordering::SeqCst);
        let ticket = self.capacitor.arrive_until(deadline)?;
        Some(Timed { ticket, began, ended: self.count.fetch_add(1, Ordering::SeqCst) })
    }

    fn depart(&self, ticket: Self::Ticket) {
        self.capacitor.depart(ticket.ticket);
    }
}

/// A semaphore in the place of a capacitor: lets through so many contenders at a time, first come, first served. There
/// is no bound on bypasses.
pub struct Permits {
    sema: Ticket,
    limit: u32,
}

impl Doorway for Permits {
    fn entry(ticket: u32) -> Entry {
        Entry::at(ticket)
    }
}

impl ArriveDepart for Permits {
    type Ticket = u32;

    const DEADLINES: bool = false;
    const GATE: bool = false;

    fn with_limit(limit: u32) -> Self {
        Self { sema: Ticket::new(limit), limit }
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn bound(&self) -> Option<u64> {
        None
    }

    fn arrive(&self) -> u32 {
        self.sema.acquire_numbered().expect("it is never closed")
    }

    /// Returns `None`: a permit that is taken by a try has no number.
    fn try_arrive(&self) -> Option<u32> {
        None
    }

    fn arrive_until(&self, _: Instant) -> Option<u32> {
        None
    }

    fn depart(&self, _: u32) {
        self.sema.release(Wake::Normal);
    }
}
