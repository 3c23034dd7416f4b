//! Types that run a function once. The function has already run.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use sudog_sync::Once;

use crate::rounds::Rounds;

/// A type that runs a function once.
pub trait RunOnce: Send + Sync + 'static {
    /// Creates a value that has run no function.
    fn new() -> Self;

    /// Runs `f` the first time that this is called.
    fn run(&self, f: impl FnOnce());
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
