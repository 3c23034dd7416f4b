//! Types that run a function once. The function has already run.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use sudog_sync::Once;

use super::contestant::Role;
use crate::peers::rounds::Rounds;
use crate::targets::registry::registry;

/// A type that runs a function once.
pub trait RunOnce: Send + Sync + 'static {
    /// Creates a value that has run no function.
    fn new() -> Self;

    /// Runs `f` the first time that this is called.
    fn run(&self, f: impl FnOnce());
}

registry! {
    /// The name of a type that runs a function once.
    enum OnceName;
    /// A job for any type that runs a function once.
    trait OnceJob over RunOnce;
    fn with_once;
    unknown "once";

    Sudog = "sudog": Once,
        "Go's Once";
    Std = "std": std::sync::Once,
        "std::sync::Once";
    ParkingLot012 = "parking_lot_0_12": parking_lot_0_12::Once,
        "parking_lot 0.12's Once";
    ParkingLot013 = "parking_lot_0_13": parking_lot_0_13::Once,
        "parking_lot 0.13's Once";
    Load = "acquire-load": AcquireLoad,
        "one Acquire load and a comparison";
}

impl OnceName {
    /// Returns the role in the comparison.
    #[must_use]
    pub const fn role(self) -> Role {
        match self {
            Self::Sudog => Role::Ours,
            Self::Std | Self::ParkingLot012 | Self::ParkingLot013 => Role::Peer,
            Self::Load => Role::Floor,
        }
    }
}

impl RunOnce for Once {
    fn new() -> Self {
        Self::new()
    }

    #[inline]
    fn run(&self, f: impl FnOnce()) {
        self.do_(f);
    }
}

macro_rules! call_once {
    ($($Once:ty),+) => {$(
        impl RunOnce for $Once {
            fn new() -> Self {
                Self::new()
            }

            #[inline]
            fn run(&self, f: impl FnOnce()) {
                self.call_once(f);
            }
        }
    )+};
}

call_once!(std::sync::Once, parking_lot_0_12::Once, parking_lot_0_13::Once);

/// The least work of a `Once`. Does not keep apart two threads that come first at the same time.
pub struct AcquireLoad(AtomicU32);

impl RunOnce for AcquireLoad {
    fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[inline]
    fn run(&self, f: impl FnOnce()) {
        if self.0.load(Ordering::Acquire) != 1 {
            self.first_time(f);
        }
    }
}

impl AcquireLoad {
    #[cold]
    #[inline(never)]
    fn first_time(&self, f: impl FnOnce()) {
        f();
        self.0.store(1, Ordering::Release);
    }
}

/// Runs a function by a `Once` that all contenders share.
pub fn once<O: RunOnce, R: Rounds>(round: R) -> R::Out {
    let once = CachePadded::new(O::new());
    round.divide(move |_, portion| portion.each(|| once.run(|| _ = black_box(1))))
}
