//! Capacitors and admissions that are chosen at run time.
//!
//! A capacitor is in a box, so the measured loop of composed locks is compiled once: for each primitive over each
//! semaphore this would take minutes.

use std::time::Instant;

use crossbeam_utils::CachePadded;
use sudog_locks::capacitor::{
    Admission, Always, ArriveDepart, Fractional, Gated, Multilane, Path, Platoon, SeparateLanes, SlidingWindow,
    WindowTicket,
};
use sudog_locks::waiting_array::{Spin, SpinThenYield};
use sudog_sync::{Order, Semaphore, Wake};

use super::extended::SliceExtension;
use super::name::{Admit, Front, Wait};
use crate::targets::semaphores::{SemaphoreFacts, SemaphoreJob, SemaphoreName, with_semaphore};

/// Any primitive.
pub struct AnyCapacitor(Box<dyn AnyPrimitive>);

/// A primitive in the box.
struct Primitive<C> {
    capacitor: CachePadded<C>,
    /// True if arrivals announce themselves. [`AnyAdmission`] always asks for announcements; only a platoon behind a gate
    /// pays for them.
    announces: bool,
}

/// A [`Primitive`] of any type.
trait AnyPrimitive: Send + Sync {
    fn limit(&self) -> u32;
    fn bound(&self) -> Option<u64>;
    fn arrive(&self) -> AnyTicket;
    fn try_arrive(&self) -> Option<AnyTicket>;
    fn arrive_until(&self, deadline: Instant) -> Option<AnyTicket>;
    fn depart(&self, ticket: AnyTicket);
    fn announce(&self);
    fn retract(&self);
    fn depart_and_retract(&self, ticket: AnyTicket);
    fn is_idle(&self) -> bool;
}

impl<C: ArriveDepart<Ticket: Ticket>> AnyPrimitive for Primitive<C> {
    fn limit(&self) -> u32 {
        self.capacitor.limit()
    }

    fn bound(&self) -> Option<u64> {
        self.capacitor.bound()
    }

    fn arrive(&self) -> AnyTicket {
        self.capacitor.arrive().any()
    }

    fn try_arrive(&self) -> Option<AnyTicket> {
        self.capacitor.try_arrive().map(Ticket::any)
    }

    fn arrive_until(&self, deadline: Instant) -> Option<AnyTicket> {
        self.capacitor.arrive_until(deadline).map(Ticket::any)
    }

    fn depart(&self, ticket: AnyTicket) {
        self.capacitor.depart(Ticket::of(ticket));
    }

    fn announce(&self) {
        if self.announces {
            self.capacitor.announce();
        }
    }

    fn retract(&self) {
        if self.announces {
            self.capacitor.retract();
        }
    }

    fn depart_and_retract(&self, ticket: AnyTicket) {
        match self.announces {
            true => self.capacitor.depart_and_retract(Ticket::of(ticket)),
            false => self.depart(ticket),
        }
    }

    fn is_idle(&self) -> bool {
        self.capacitor.is_idle()
    }
}

/// A ticket of a primitive.
trait Ticket: Copy {
    fn any(self) -> AnyTicket;

    /// Returns the ticket that the same primitive has turned into `any`.
    fn of(any: AnyTicket) -> Self;
}

macro_rules! tickets {
    ($($Variant:ident($Ticket:ty),)+) => {
        /// A ticket of any primitive.
        #[derive(Clone, Copy, Debug)]
        pub enum AnyTicket {
            $($Variant($Ticket),)+
        }

        $(impl Ticket for $Ticket {
            #[inline]
            fn any(self) -> AnyTicket {
                AnyTicket::$Variant(self)
            }

            #[inline]
            fn of(any: AnyTicket) -> Self {
                match any {
                    AnyTicket::$Variant(ticket) => ticket,
                    _ => unreachable!("a ticket of another primitive"),
                }
            }
        })+
    };
}

tickets! {
    Platoon(()),
    Lane(u32),
    Dealt(u64),
    Window(WindowTicket),
}

/// A semaphore of which only the caller of [`AnyCapacitor::new`] knows that it serves first come, first served. A
/// [`Platoon`] over another semaphore does not compile.
struct InOrder<S>(S);

// SAFETY: every call goes to the semaphore inside, which keeps the promises of `Semaphore`; `new` makes none whose constants
// differ from these.
unsafe impl<S: Semaphore> Semaphore for InOrder<S> {
    const LIFO: bool = S::LIFO;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = S::DEADLINES;

    fn new(permits: u32) -> Self {
        assert!(S::FIFO && S::HANDOFF, "the semaphore of a capacitor serves first come, first served");
        Self(S::new(permits))
    }

    #[inline]
    fn acquire(&self, order: Order) {
        self.0.acquire(order);
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }

    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        self.0.acquire_until(order, deadline)
    }

    #[inline]
    fn release(&self, wake: Wake) {
        self.0.release(wake);
    }

    #[inline]
    fn release_many(&self, n: u32) {
        self.0.release_many(n);
    }

    #[inline]
    fn grant_many(&self, n: u32) {
        self.0.grant_many(n);
    }
}

impl AnyCapacitor {
    /// Returns whether a capacitor can have this semaphore: the semaphore must serve first come, first served,
    /// newcomers included.
    pub fn can_have(sema: SemaphoreName) -> bool {
        let SemaphoreFacts { fifo, handoff, .. } = SemaphoreFacts::of(sema);
        fifo && handoff
    }

    /// Returns a capacitor of this description.
    ///
    /// # Panics
    ///
    /// If the description has a semaphore that a capacitor cannot have. The parser returns no such description.
    pub fn new(front: Front, limit: u32, admit: Admit) -> Self {
        /// A front end over a semaphore.
        struct Over(Front, u32, Admit);

        impl SemaphoreJob for Over {
            type Out = AnyCapacitor;

            fn run<S: Semaphore + 'static>(self) -> AnyCapacitor {
                let Self(front, limit, admit) = self;
                match front {
                    Front::Separate { lanes, dealing, .. } => {
                        AnyCapacitor::of(SeparateLanes::<InOrder<S>>::with_lanes(lanes, limit, dealing), false)
                    }
                    _ => AnyCapacitor::of(Platoon::<InOrder<S>>::with_limit(limit), admit == Admit::Gated),
                }
            }
        }

        match front {
            Front::Window { wait: Wait::Park } => Self::of(<SlidingWindow>::with_limit(limit), false),
            Front::Window { wait: Wait::Yield } => Self::of(SlidingWindow::<SpinThenYield>::with_limit(limit), false),
            Front::Window { wait: Wait::Spin } => Self::of(SlidingWindow::<Spin>::with_limit(limit), false),
            Front::Extended => Self::of(SliceExtension, false),
            Front::Together { lanes } => Self::of(Multilane::with_lanes(lanes, limit), false),
            Front::Platoon { sema } | Front::Separate { sema, .. } => with_semaphore(sema, Over(front, limit, admit)),
        }
    }

    fn of(capacitor: impl ArriveDepart<Ticket: Ticket> + 'static, announces: bool) -> Self {
        Self(Box::new(Primitive { capacitor: CachePadded::new(capacitor), announces }))
    }
}

impl ArriveDepart for AnyCapacitor {
    type Ticket = AnyTicket;

    /// False, as not all primitives have deadlines.
    const DEADLINES: bool = false;
    const GATE: bool = true;

    fn with_limit(limit: u32) -> Self {
        Self::new(Front::Window { wait: Wait::Park }, limit, Admit::Always)
    }

    fn limit(&self) -> u32 {
        self.0.limit()
    }

    fn bound(&self) -> Option<u64> {
        self.0.bound()
    }

    #[inline]
    fn arrive(&self) -> AnyTicket {
        self.0.arrive()
    }

    #[inline]
    fn try_arrive(&self) -> Option<AnyTicket> {
        self.0.try_arrive()
    }

    fn arrive_until(&self, deadline: Instant) -> Option<AnyTicket> {
        self.0.arrive_until(deadline)
    }

    #[inline]
    fn depart(&self, ticket: AnyTicket) {
        self.0.depart(ticket);
    }

    #[inline]
    fn announce(&self) {
        self.0.announce();
    }

    #[inline]
    fn retract(&self) {
        self.0.retract();
    }

    #[inline]
    fn depart_and_retract(&self, ticket: AnyTicket) {
        self.0.depart_and_retract(ticket);
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}

#[derive(Clone, Copy, Debug)]
pub enum AnyAdmission {
    Always(Always),
    Gated(Gated),
    Fractional(Fractional),
}

impl AnyAdmission {
    /// Returns an admission of this description.
    pub fn new(admit: Admit) -> Self {
        match admit {
            Admit::Always => Self::Always(Always),
            Admit::Gated => Self::Gated(Gated),
            Admit::Fractional(part) => Self::Fractional(Fractional::new(part)),
        }
    }
}

impl Admission for AnyAdmission {
    /// True, as [`Gated`] is gated. For the other admissions [`AnyCapacitor`] ignores announcements.
    const GATED: bool = true;

    #[inline]
    fn path(&self) -> Path {
        match self {
            Self::Always(admission) => admission.path(),
            Self::Gated(admission) => admission.path(),
            Self::Fractional(admission) => admission.path(),
        }
    }
}

impl Default for AnyAdmission {
    fn default() -> Self {
        Self::Always(Always)
    }
}
