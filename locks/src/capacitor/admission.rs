//! Admissions: policies that choose the acquisitions that go through the capacitor.

use std::cell::Cell;

use sudog_runtime::shim::system;
use sudog_sync::internal::thread_index;

/// The path of an acquisition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// The acquisition goes through the capacitor.
    Through,
    /// The acquisition goes past the capacitor, if the capacitor is empty and the lock is free; otherwise through.
    Gate,
    /// The acquisition goes past the capacitor. Then the number of times that a waiter is bypassed is not bounded.
    Past,
}

/// Chooses the path of each acquisition.
///
/// # Examples
///
/// A policy that can be changed while the lock is in use:
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use sudog::sync::MutexWith;
/// use sudog::locks::capacitor::{Admission, ConstAdmission, Path, Sliding};
/// use sudog::locks::spin_lock::Tts;
///
/// static FAIR: AtomicBool = AtomicBool::new(false);
///
/// #[derive(Default)]
/// struct WhenFair;
///
/// impl Admission for WhenFair {
///     const GATED: bool = true;
///
///     fn path(&self) -> Path {
///         if FAIR.load(Relaxed) { Path::Gate } else { Path::Past }
///     }
/// }
///
/// impl ConstAdmission for WhenFair {
///     const DEFAULT: Self = Self;
/// }
///
/// static M: MutexWith<Sliding<Tts, WhenFair>, u32> = MutexWith::new(1);
/// assert_eq!(*M.lock(), 1);
/// ```
pub trait Admission: Send + Sync {
    /// True if [`Admission::path`] may return [`Path::Gate`]. If false, arrivals are not announced, and an acquisition
    /// that takes the gate all the same can overtake them.
    const GATED: bool;

    /// Returns the path of an acquisition that is about to begin.
    fn path(&self) -> Path;
}

/// An admission that a `static` can hold.
pub trait ConstAdmission: Admission {
    /// The default admission.
    #[allow(clippy::declare_interior_mutable_const)] // copied into place
    const DEFAULT: Self;
}

/// An admission that sends every acquisition through the capacitor.
#[derive(Clone, Copy, Default, Debug)]
pub struct Always;

/// A contention-activated admission: an acquisition that finds the lock free and the capacitor empty takes the lock
/// without arriving. If the capacitor has no gate ([`ArriveDepart::GATE`](super::ArriveDepart::GATE)), every
/// acquisition arrives.
///
/// The acquisition checks the capacitor again once the lock is taken: so no earlier arrival is overtaken, and the
/// capacitor's bound holds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Gated;

/// An admission that sends a random fraction of the acquisitions through the capacitor, and the others past the
/// capacitor: the paper's *fractional bypass*.
///
/// The acquisitions that go past are not bounded by the capacitor, and may starve at the inner lock.
#[derive(Clone, Copy, Debug)]
pub struct Fractional {
    /// The fraction of the acquisitions that go through, in units of 2^-32. Never changed.
    through: u32,
}

impl Admission for Always {
    const GATED: bool = false;

    #[inline]
    fn path(&self) -> Path {
        Path::Through
    }
}

impl ConstAdmission for Always {
    const DEFAULT: Self = Self;
}

impl Admission for Gated {
    const GATED: bool = true;

    #[inline]
    fn path(&self) -> Path {
        Path::Gate
    }
}

impl ConstAdmission for Gated {
    const DEFAULT: Self = Self;
}

impl Fractional {
    /// Sends this fraction of the acquisitions through the capacitor.
    ///
    /// # Panics
    ///
    /// Panics unless `through` is from 0 to 1.
    #[must_use]
    #[track_caller]
    pub const fn new(through: f64) -> Self {
        assert!(through >= 0.0 && through <= 1.0, "a part is from 0 to 1");
        Self { through: (through * u32::MAX as f64) as u32 }
    }
}

impl Admission for Fractional {
    const GATED: bool = false;

    #[inline]
    fn path(&self) -> Path {
        if draw() <= self.through && self.through > 0 { Path::Through } else { Path::Past }
    }
}

impl ConstAdmission for Fractional {
    /// The paper's fraction: 0.01.
    const DEFAULT: Self = Self::new(0.01);
}

impl Default for Fractional {
    fn default() -> Self {
        <Self as ConstAdmission>::DEFAULT
    }
}

system::thread_local! {
    // This thread-local has no destructor, so that destructors can use it.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Returns the next random number of this thread's generator.
#[inline]
pub(super) fn draw() -> u32 {
    let mut x = STATE.get();
    if x == 0 {
        // Any seed but 0 is good enough, as long as threads have different ones.
        x = (thread_index() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    // Marsaglia's xorshift, with Vigna's multiplication.
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    STATE.set(x);
    (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_part_goes_through() {
        const DRAWS: u32 = 1_000_000;
        for part in [0.0, 0.01, 0.5, 1.0] {
            let admission = Fractional::new(part);
            let through = (0..DRAWS).filter(|_| admission.path() == Path::Through).count() as f64;
            // Allow six standard deviations.
            let expected = f64::from(DRAWS) * part;
            assert!((through - expected).abs() <= 6.0 * (expected * (1.0 - part)).sqrt(), "{part}: {through}");
        }
    }

    #[test]
    #[should_panic(expected = "from 0 to 1")]
    fn no_more_than_all() {
        let _ = Fractional::new(1.5);
    }
}
