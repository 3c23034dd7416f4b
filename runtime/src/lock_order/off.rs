//! The check of the order of locks where there is none: in builds without debug assertions, in models, and on the
//! simulated machine. See `mod.rs`.

/// The kind of an acquisition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The caller will own the lock alone.
    Write,
    /// Other readers may own the lock, too.
    Read,
}

/// The number of a lock in the check: nothing.
pub struct LockTag;

impl LockTag {
    /// A tag.
    pub const NEW: Self = Self;

    /// Does nothing.
    #[inline(always)]
    pub fn begin(&self, _: Access, _: bool) -> Acquisition {
        Acquisition
    }

    /// Does nothing.
    #[inline(always)]
    pub fn unlocked(&self) {}
}

/// An acquisition that is under way: nothing.
pub struct Acquisition;

impl Acquisition {
    /// Does nothing.
    #[inline(always)]
    pub fn done(self) {}
}
