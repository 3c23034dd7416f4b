//! Capacitors and admissions that are chosen at run time.
//!
//! The types are enums and not boxes. A window costs a jump that always goes the same way. A primitive over a semaphore
//! costs a call and two jumps, as copies of all of these primitives in each measured loop would take minutes to
//! compile. Tickets are those of the primitive, or 0 if the primitive has none.

use std::time::Instant;

use sudog_locks::capacitor::{
    Admission, Always, ArriveDepart, Fractional, Gated, Multilane, Path, Platoon, SeparateLanes, SlidingWindow,
    WindowTicket,
};
use sudog_locks::waiting_array::{Benaphore, Ticket, TicketSema, Twa, TwaChain, TwaChannel, TwaLocation};
use sudog_locks::waiting_array::{
    BucketWait, Conservative, GrayHash, MixedHash, OrbitHash, PairedHash, PlainHash, Spin, SpinThenPark, SpinThenYield,
    ToldWait,
};
use sudog_sync::Semaphore;
use sudog_sync::semaphore::{ParkingLotSema, RuntimeSema};

use super::name::{Admit, Front, Wait};
use crate::targets::semaphores::{EventCountSema, SemaphoreName, StrideOneHash};

/// Any primitive over a semaphore.
#[derive(Debug)]
pub enum Over<S> {
    Platoon(Platoon<S>),
    /// Platoons behind a gate: arrivals announce themselves.
    Announced(Platoon<S>),
    /// Lanes that are counted separately.
    Separate(SeparateLanes<S>),
}

impl<S: Semaphore> Over<S> {
    fn new(front: Front, limit: u32, gated: bool) -> Self {
        match front {
            Front::Separate { lanes, dealing, .. } => Self::Separate(SeparateLanes::with_lanes(lanes, limit, dealing)),
            _ if gated => Self::Announced(Platoon::with_limit(limit)),
            _ => Self::Platoon(Platoon::with_limit(limit)),
        }
    }
}

/// Makes methods that only pass the call on, by one of the macros `on`, `over_any` and `any`.
macro_rules! forward {
    ($on:ident: $($(#[$inline:meta])? fn $method:ident($($argument:ident: $Argument:ty)?) -> $Out:ty;)+) => {
        $($(#[$inline])? fn $method(&self $(, $argument: $Argument)?) -> $Out {
            $on!(self, c => c.$method($($argument)?))
        })+
    };
}

/// Passes a call on to the primitive of the variant.
macro_rules! on {
    ($which:expr, $c:ident => $does:expr) => {
        match $which {
            Self::Platoon($c) | Self::Announced($c) => $does,
            Self::Separate($c) => $does,
        }
    };
}

impl<S: Semaphore> ArriveDepart for Over<S> {
    type Ticket = u32;

    /// False, as not all semaphores have deadlines.
    const DEADLINES: bool = false;
    const GATE: bool = true;

    fn with_limit(limit: u32) -> Self {
        Self::Announced(Platoon::with_limit(limit))
    }

    forward! { on:
        fn limit() -> u32;
        fn bound() -> Option<u64>;
        #[inline] fn is_idle() -> bool;
    }

    #[inline]
    fn arrive(&self) -> u32 {
        match self {
            Self::Platoon(platoon) | Self::Announced(platoon) => platoon.arrive(),
            Self::Separate(lanes) => return lanes.arrive(),
        }
        0
    }

    #[inline]
    fn try_arrive(&self) -> Option<u32> {
        match self {
            Self::Platoon(platoon) | Self::Announced(platoon) => platoon.try_arrive().map(|()| 0),
            Self::Separate(lanes) => lanes.try_arrive(),
        }
    }

    fn arrive_until(&self, deadline: Instant) -> Option<u32> {
        match self {
            Self::Platoon(platoon) | Self::Announced(platoon) => platoon.arrive_until(deadline).map(|()| 0),
            Self::Separate(lanes) => lanes.arrive_until(deadline),
        }
    }

    #[inline]
    fn depart(&self, ticket: u32) {
        match self {
            Self::Platoon(platoon) | Self::Announced(platoon) => platoon.depart(()),
            Self::Separate(lanes) => lanes.depart(ticket),
        }
    }

    #[inline]
    fn depart_and_retract(&self, ticket: u32) {
        match self {
            Self::Platoon(platoon) => platoon.depart(()),
            Self::Announced(platoon) => platoon.depart_and_retract(()),
            Self::Separate(lanes) => lanes.depart_and_retract(ticket),
        }
    }

    /// Announces an arrival. [`AnyAdmission`] always asks for announcements; only a platoon behind a gate pays for
    /// them.
    #[inline]
    fn announce(&self) {
        if let Self::Announced(platoon) = self {
            platoon.announce();
        }
    }

    #[inline]
    fn retract(&self) {
        if let Self::Announced(platoon) = self {
            platoon.retract();
        }
    }
}

/// Makes the enum over the semaphores. `$d` stands for the dollar sign of a macro inside this macro.
macro_rules! any_over {
    ($d:tt $($Sema:ident: $S:ty;)+) => {
        /// Any primitive, over any semaphore that serves in order.
        #[derive(Debug)]
        #[allow(missing_docs)] // the names of the semaphores
        pub enum AnyOver {
            $($Sema(Over<$S>),)+
        }

        impl AnyOver {
            const fn can_have(sema: SemaphoreName) -> bool {
                matches!(sema, $(SemaphoreName::$Sema)|+)
            }

            fn new(sema: SemaphoreName, front: Front, limit: u32, gated: bool) -> Self {
                match sema {
                    $(SemaphoreName::$Sema => Self::$Sema(Over::new(front, limit, gated)),)+
                    #[allow(unreachable_patterns)] // where all of them serve in order
                    _ => panic!("{} does not serve in order", sema.name()),
                }
            }
        }

        /// Passes a call on to the primitive over the semaphore of the variant.
        macro_rules! over_any {
            ($d which:expr, $d c:ident => $d does:expr) => {
                match $d which {
                    $(AnyOver::$Sema($d c) => $d does,)+
                }
            };
        }
    };
}

any_over! { $
    Runtime: RuntimeSema;
    ParkingLotCore: ParkingLotSema;
    Benaphore: Benaphore;
    BenaphoreTwa: Benaphore<BucketWait>;
    Ticket: Ticket;
    Twa: Twa;
    TwaFar: Twa<SpinThenPark, 0>;
    TwaChain: TwaChain;
    TwaChannel: TwaChannel;
    TwaLocation: TwaLocation;
    TicketSpin: Ticket<Spin>;
    TwaSpin: Twa<Spin, 1, PlainHash>;
    TwaChainSpin: TwaChain<Spin>;
    TwaYield: Twa<SpinThenYield>;
    TwaChainYield: TwaChain<SpinThenYield>;
    TwaSpin0: Twa<Spin, 0, PlainHash>;
    TwaSpin2: Twa<Spin, 2, PlainHash>;
    TwaSpin4: Twa<Spin, 4, PlainHash>;
    TwaSpin8: Twa<Spin, 8, PlainHash>;
    Twa2: Twa<SpinThenPark, 2>;
    Twa4: Twa<SpinThenPark, 4>;
    Twa8: Twa<SpinThenPark, 8>;
    TwaSpinPaired: Twa<Spin, 1, PairedHash>;
    TwaSpinMixed: Twa<Spin, 1, MixedHash>;
    TwaPaired: Twa<SpinThenPark, 1, PairedHash>;
    TwaChainPrinted: TwaChain<SpinThenPark, 0, PlainHash<4096>, true>;
    TwaChainPrintedSpin: TwaChain<Spin, 0, PlainHash<4096>, true>;
    TwaChannelPrinted: TwaChannel<SpinThenPark, 0, PlainHash<4096>, true>;
    TwaChannelPrintedSpin: TwaChannel<Spin, 0, PlainHash<4096>, true>;
    TwaLocationPrinted: TwaLocation<Spin, 0, PlainHash<4096>>;
    TwaChainToldSpin: TicketSema<ToldWait<Spin, PlainHash<4096>>>;
    TwaChainDelegatedSpin: TicketSema<ToldWait<Spin, PlainHash<4096>, true>>;
    TwaConservative: TicketSema<Conservative<BucketWait>>;
    TwaSpinConservative: TicketSema<Conservative<BucketWait<Spin, 1, PlainHash>>>;
    TicketSpinProportional: Ticket<Spin, true>;
    Twa4096: Twa<SpinThenPark, 1, MixedHash<4096>>;
    TwaSpinOrbit: Twa<Spin, 1, OrbitHash>;
    TwaSpinGray: Twa<Spin, 1, GrayHash>;
    TwaSpinStrideOne: Twa<Spin, 1, StrideOneHash>;
    EventCount: EventCountSema;
    EventCountPolite: EventCountSema<true>;
    EventCountOneKey: EventCountSema<false, true>;
}

impl ArriveDepart for AnyOver {
    type Ticket = u32;

    /// False, as not all semaphores have deadlines.
    const DEADLINES: bool = false;
    const GATE: bool = true;

    fn with_limit(limit: u32) -> Self {
        Self::Benaphore(Over::with_limit(limit))
    }

    forward! { over_any:
        fn limit() -> u32;
        fn bound() -> Option<u64>;
        fn arrive_until(deadline: Instant) -> Option<u32>;
        #[inline(never)] fn arrive() -> u32;
        #[inline(never)] fn try_arrive() -> Option<u32>;
        #[inline(never)] fn depart(ticket: u32) -> ();
        #[inline(never)] fn depart_and_retract(ticket: u32) -> ();
        #[inline(never)] fn announce() -> ();
        #[inline(never)] fn retract() -> ();
        #[inline(never)] fn is_idle() -> bool;
    }
}

/// Lanes that are counted together, whose tickets nothing uses.
#[derive(Debug)]
pub struct AnyLanes(Multilane);

impl ArriveDepart for AnyLanes {
    type Ticket = u32;

    const DEADLINES: bool = false;
    const GATE: bool = false;

    fn with_limit(limit: u32) -> Self {
        Self(Multilane::with_limit(limit))
    }

    fn limit(&self) -> u32 {
        self.0.limit()
    }

    fn bound(&self) -> Option<u64> {
        self.0.bound()
    }

    #[inline(never)]
    fn arrive(&self) -> u32 {
        self.0.arrive() as u32
    }

    #[inline(never)]
    fn try_arrive(&self) -> Option<u32> {
        self.0.try_arrive().map(|ticket| ticket as u32)
    }

    fn arrive_until(&self, deadline: Instant) -> Option<u32> {
        self.0.arrive_until(deadline).map(|ticket| ticket as u32)
    }

    /// Departs. `ticket` makes no difference to the lanes.
    #[inline(never)]
    fn depart(&self, ticket: u32) {
        self.0.depart(u64::from(ticket));
    }
}

/// Any primitive.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one at a time, and another box would be another line to fetch
pub enum AnyCapacitor {
    /// The window, whose waiters sleep.
    Window(SlidingWindow),
    /// The window, whose waiters yield.
    WindowYield(SlidingWindow<SpinThenYield>),
    /// The window, whose waiters spin.
    WindowSpin(SlidingWindow<Spin>),
    /// Lanes that are counted together.
    Together(AnyLanes),
    /// A primitive over a semaphore.
    Over(AnyOver),
}

impl AnyCapacitor {
    /// Returns whether a capacitor can have this semaphore: the semaphore must serve first come, first served,
    /// newcomers included.
    pub const fn can_have(sema: SemaphoreName) -> bool {
        AnyOver::can_have(sema)
    }

    /// Returns a capacitor of this description.
    ///
    /// # Panics
    ///
    /// If there is no such capacitor. For every description that the parser returns there is a capacitor.
    pub fn new(front: Front, limit: u32, admit: Admit) -> Self {
        match front {
            Front::Window { wait: Wait::Park } => Self::Window(SlidingWindow::with_limit(limit)),
            Front::Window { wait: Wait::Yield } => Self::WindowYield(SlidingWindow::with_limit(limit)),
            Front::Window { wait: Wait::Spin } => Self::WindowSpin(SlidingWindow::with_limit(limit)),
            Front::Together { lanes } => Self::Together(AnyLanes(Multilane::with_lanes(lanes, limit))),
            Front::Platoon { sema } | Front::Separate { sema, .. } => {
                Self::Over(AnyOver::new(sema, front, limit, admit == Admit::Gated))
            }
        }
    }
}

/// Passes a call on to the primitive of the variant.
macro_rules! any {
    ($which:expr, $c:ident => $does:expr) => {
        match $which {
            Self::Window($c) => $does,
            Self::WindowYield($c) => $does,
            Self::WindowSpin($c) => $does,
            Self::Together($c) => $does,
            Self::Over($c) => $does,
        }
    };
}

/// A ticket of any primitive.
#[derive(Clone, Copy, Debug)]
pub enum AnyTicket {
    Window(WindowTicket),
    /// A ticket of another primitive.
    Other(u32),
}

impl ArriveDepart for AnyCapacitor {
    type Ticket = AnyTicket;

    /// False, as not all primitives have deadlines.
    const DEADLINES: bool = false;
    const GATE: bool = true;

    fn with_limit(limit: u32) -> Self {
        Self::Window(SlidingWindow::new(limit))
    }

    forward! { any:
        fn limit() -> u32;
        fn bound() -> Option<u64>;
        #[inline] fn announce() -> ();
        #[inline] fn retract() -> ();
        #[inline] fn is_idle() -> bool;
    }

    #[inline]
    fn arrive(&self) -> AnyTicket {
        match self {
            Self::Window(window) => AnyTicket::Window(window.arrive()),
            Self::WindowYield(window) => AnyTicket::Window(window.arrive()),
            Self::WindowSpin(window) => AnyTicket::Window(window.arrive()),
            Self::Together(lanes) => AnyTicket::Other(lanes.arrive()),
            Self::Over(over) => AnyTicket::Other(over.arrive()),
        }
    }

    #[inline]
    fn try_arrive(&self) -> Option<AnyTicket> {
        match self {
            Self::Window(window) => window.try_arrive().map(AnyTicket::Window),
            Self::WindowYield(window) => window.try_arrive().map(AnyTicket::Window),
            Self::WindowSpin(window) => window.try_arrive().map(AnyTicket::Window),
            Self::Together(lanes) => lanes.try_arrive().map(AnyTicket::Other),
            Self::Over(over) => over.try_arrive().map(AnyTicket::Other),
        }
    }

    fn arrive_until(&self, deadline: Instant) -> Option<AnyTicket> {
        match self {
            Self::Window(window) => window.arrive_until(deadline).map(AnyTicket::Window),
            Self::WindowYield(window) => window.arrive_until(deadline).map(AnyTicket::Window),
            Self::WindowSpin(window) => window.arrive_until(deadline).map(AnyTicket::Window),
            Self::Together(lanes) => lanes.arrive_until(deadline).map(AnyTicket::Other),
            Self::Over(over) => over.arrive_until(deadline).map(AnyTicket::Other),
        }
    }

    #[inline]
    fn depart(&self, ticket: AnyTicket) {
        match (self, ticket) {
            (Self::Window(window), AnyTicket::Window(ticket)) => window.depart(ticket),
            (Self::WindowYield(window), AnyTicket::Window(ticket)) => window.depart(ticket),
            (Self::WindowSpin(window), AnyTicket::Window(ticket)) => window.depart(ticket),
            (Self::Together(lanes), AnyTicket::Other(ticket)) => lanes.depart(ticket),
            (Self::Over(over), AnyTicket::Other(ticket)) => over.depart(ticket),
            _ => unreachable!("a ticket of another"),
        }
    }

    #[inline]
    fn depart_and_retract(&self, ticket: AnyTicket) {
        match (self, ticket) {
            (Self::Over(over), AnyTicket::Other(ticket)) => over.depart_and_retract(ticket),
            _ => self.depart(ticket), // the other capacitors ignore announcements
        }
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
