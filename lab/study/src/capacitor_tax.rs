//! The measured loops of the cost of a capacitor for a single contender: for the command `capacitor`.
//!
//! A jump is a good part of a few nanoseconds, so the types are exact here: the compiled code is that which a user of
//! the library would have. An inner lock that is not in [`LockName::INNER`] is in a box, bare as well as wrapped.

use std::time::Duration;

use crossbeam_utils::CachePadded;
use sudog_locks::capacitor::{Always, ArriveDepart, Gated, Platoon, SlidingWindow, Wrapped};
use sudog_locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, TicketLock, Tts};
use sudog_locks::waiting_array::Benaphore;
use sudog_sync::RawLock;

use crate::run::driver::pairs;
use crate::run::lockable::Locked;
use crate::targets::compose::DynLock;
use crate::targets::locks::LockName;

/// The capacitor before the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    Bare,
    Platoon,
    PlatoonGated,
    Window,
    WindowGated,
}

/// All variants, the inner lock alone first.
pub const VARIANTS: [Variant; 5] =
    [Variant::Bare, Variant::Platoon, Variant::PlatoonGated, Variant::Window, Variant::WindowGated];

impl Variant {
    /// Returns the title of a column.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Platoon => "platoon",
            Self::PlatoonGated => "platoon, gate",
            Self::Window => "window",
            Self::WindowGated => "window, gate",
        }
    }

    /// Returns the nanoseconds of a pair of lock and unlock, of the lock of a name behind this capacitor, measured for at
    /// least the given time.
    pub fn pairs(self, inner: LockName, limit: u32, at_least: Duration) -> f64 {
        match inner {
            LockName::Reciprocating => self.pairs_of(<Reciprocating>::new(), limit, at_least),
            LockName::Ticket => self.pairs_of(<TicketLock>::new(), limit, at_least),
            LockName::Lifo => self.pairs_of(<Lifo>::new(), limit, at_least),
            LockName::Mcs => self.pairs_of(<Mcs>::new(), limit, at_least),
            LockName::Clh => self.pairs_of(<Clh>::new(), limit, at_least),
            LockName::Tts => self.pairs_of(<Tts>::new(), limit, at_least),
            _ => self.pairs_of(DynLock::of(inner), limit, at_least),
        }
    }

    fn pairs_of<L: RawLock + 'static>(self, inner: L, limit: u32, at_least: Duration) -> f64 {
        fn of<L: RawLock + 'static>(lock: L, at_least: Duration) -> f64 {
            pairs(&*CachePadded::new(Locked(lock)), at_least)
        }

        match self {
            Self::Bare => of(inner, at_least),
            Self::Platoon => of(Wrapped::with(inner, Platoon::<Benaphore>::with_limit(limit), Always), at_least),
            Self::PlatoonGated => of(Wrapped::with(inner, Platoon::<Benaphore>::with_limit(limit), Gated), at_least),
            Self::Window => of(Wrapped::with(inner, SlidingWindow::new(limit), Always), at_least),
            Self::WindowGated => of(Wrapped::with(inner, SlidingWindow::new(limit), Gated), at_least),
        }
    }
}
