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

/// Returns nothing: the call by which a thread takes a lock is not noted.
#[cfg(all(unix, not(sudog_loom)))]
pub(crate) fn place() -> Option<&'static std::panic::Location<'static>> {
    None
}

/// Returns the id of the calling goroutine; 0 for a thread.
#[must_use]
pub fn holder_id() -> u64 {
    crate::goroutine_id()
}

/// A [`holder_id`], decoded.
#[cfg(all(unix, not(sudog_loom)))]
#[allow(dead_code)] // one interface over two implementations
#[derive(Clone, Copy)]
pub(crate) enum Holder {
    /// A goroutine, by its id.
    Goroutine(u64),
    /// The poll of an async task. There are none here.
    Poll(u64),
    /// A thread. There are none here.
    Thread,
}

/// Decodes a [`holder_id`].
#[cfg(all(unix, not(sudog_loom)))]
pub(crate) fn decode(holder: u64) -> Holder {
    Holder::Goroutine(holder)
}

/// Returns the number of the goroutine that polls.
#[cfg(all(unix, not(sudog_loom)))]
pub(crate) fn id_of_poll(goroutine: u64) -> u64 {
    goroutine
}

/// Returns the [`holder_id`] of the caller.
#[must_use]
pub fn reader_id() -> u64 {
    holder_id()
}
