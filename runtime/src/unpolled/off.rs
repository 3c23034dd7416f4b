//! The check for futures that are not polled where there is none: in builds without debug assertions, in models, and on
//! the simulated machine. See `mod.rs`.

/// A future that queues for a lock: nothing.
pub(crate) struct Watch;

impl Watch {
    pub(crate) const NONE: Self = Self;

    /// Returns a watch.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self
    }

    /// Does nothing.
    #[inline(always)]
    pub(crate) fn wakes(&self) -> AlarmToSet {
        AlarmToSet
    }

    /// Does nothing.
    #[inline(always)]
    pub(crate) fn is_polled(&self) {}
}

/// An alarm to be set: nothing.
pub(crate) struct AlarmToSet;
