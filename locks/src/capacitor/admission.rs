//! Who takes the way through the capacitor.

use std::cell::Cell;

use sudog_sync::internal::thread_index;

/// The way of one acquisition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through the capacitor.
    Through,
    /// Past it, if nobody is in it and the lock is free; else through.
    Gate,
    /// Past it. There is no bound for those who wait then.
    Past,
}

/// Who takes the way through the capacitor.
///
/// # Examples
///
/// A policy of one's own, to be changed while the lock is in use:
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use sudog_sync::MutexWith;
/// use sudog_locks::capacitor::{Admission, ConstAdmission, Sliding, Way};
/// use sudog_locks::spin_lock::Tts;
///
/// static FAIR: AtomicBool = AtomicBool::new(false);
///
/// #[derive(Default)]
/// struct WhenFair;
///
/// impl Admission for WhenFair {
///     const GATED: bool = true;
///
///     fn way(&self) -> Way {
///         if FAIR.load(Relaxed) { Way::Gate } else { Way::Past }
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
    /// Whether it ever says [`Way::Gate`]. If not, those who arrive do not announce it, and whoever says so all the same
    /// is not kept from overtaking them.
    const GATED: bool;

    /// The way of an acquisition that begins.
    fn way(&self) -> Way;
}

/// An admission that a `static` can hold.
pub trait ConstAdmission: Admission {
    /// The usual one.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    const DEFAULT: Self;
}

/// Everybody, always.
#[derive(Clone, Copy, Default, Debug)]
pub struct Always;

/// Contention-activated: whoever finds the lock free and nobody in the capacitor has it without arriving. Where the
/// capacitor has no gate ([`ArriveDepart::GATE`](super::ArriveDepart::GATE)), nobody finds that.
///
/// That nobody is there is looked at once more when one has the lock: so nobody who arrived before is overtaken, and
/// the bound is that of the capacitor.
#[derive(Clone, Copy, Default, Debug)]
pub struct Gated;

/// One in so many, drawn at random; the others go past it. The paper's *fractional bypass*.
///
/// Whoever goes past the capacitor is not bounded by it, nor kept from starving in the inner lock.
#[derive(Clone, Copy, Debug)]
pub struct Fractional {
    /// Of 2^32.
    through: u32,
}

impl Admission for Always {
    const GATED: bool = false;

    #[inline]
    fn way(&self) -> Way {
        Way::Through
    }
}

impl ConstAdmission for Always {
    const DEFAULT: Self = Self;
}

impl Admission for Gated {
    const GATED: bool = true;

    #[inline]
    fn way(&self) -> Way {
        Way::Gate
    }
}

impl ConstAdmission for Gated {
    const DEFAULT: Self = Self;
}

impl Fractional {
    /// Sends this part of the acquisitions through the capacitor.
    ///
    /// # Panics
    ///
    /// Unless it is from 0 to 1.
    #[must_use]
    pub const fn new(through: f64) -> Self {
        assert!(through >= 0.0 && through <= 1.0, "a part is from 0 to 1");
        Self { through: (through * u32::MAX as f64) as u32 }
    }
}

impl Admission for Fractional {
    const GATED: bool = false;

    #[inline]
    fn way(&self) -> Way {
        if draw() <= self.through && self.through > 0 { Way::Through } else { Way::Past }
    }
}

impl ConstAdmission for Fractional {
    /// The paper's: one in a hundred.
    const DEFAULT: Self = Self::new(0.01);
}

impl Default for Fractional {
    fn default() -> Self {
        <Self as ConstAdmission>::DEFAULT
    }
}

thread_local! {
    // Without a destructor, so that destructors can use it.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// A number at random, this thread's.
#[inline]
pub(super) fn draw() -> u32 {
    let mut x = STATE.get();
    if x == 0 {
        // Any seed but 0 will do, as long as threads have different ones.
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
            let through = (0..DRAWS).filter(|_| admission.way() == Way::Through).count() as f64;
            // Six standard deviations.
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
