//! `Wait`: the note of what a goroutine or a thread waits for, which reports read.

use std::ptr;

use crate::shim::system::atomic::AtomicU64;

/// A note of the goroutine's wait, for reports. Three words: with a longer note, [`Fibre`](super::Fibre) would take another cache
/// line.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    what: *const u8,
    /// The length of `what`.
    len: u16,
    /// The number of ids at `holders`.
    holders_len: u16,
    /// The value of the coarse clock when the wait began, in milliseconds. Wraps after 49 days.
    since: u32,
    /// Points to the ids of the goroutines that hold the awaited resource, or null if these goroutines are not known.
    holders: *const AtomicU64,
}

impl Wait {
    pub(crate) const NONE: Self = Self::new("", 0, ptr::slice_from_raw_parts(ptr::null(), 0));

    #[inline]
    pub(crate) const fn new(what: &'static str, since: u64, holders: *const [AtomicU64]) -> Self {
        Self {
            what: what.as_ptr(),
            len: what.len() as u16,
            holders_len: holders.len() as u16,
            since: since as u32,
            holders: holders.cast(),
        }
    }

    /// Returns whether the note says where the holders of the awaited resource are.
    pub(crate) fn knows_holders(&self) -> bool {
        !self.holders.is_null()
    }

    /// Returns the ids of the goroutines that hold the awaited resource, as far as they are known. An id of 0 means
    /// nothing.
    ///
    /// # Safety
    ///
    /// The `holders` that `new` was given are null, or stay alive and where they are for `'a`.
    pub(crate) unsafe fn holders<'a>(&self) -> &'a [AtomicU64] {
        if self.holders.is_null() {
            return &[];
        }
        // SAFETY: `holders` and `holders_len` are the parts of a pointer to a slice that is alive for `'a`, by the
        // contract of this function.
        unsafe { std::slice::from_raw_parts(self.holders, self.holders_len.into()) }
    }

    /// Returns the kind of the wait.
    pub(crate) fn what(&self) -> &'static str {
        // SAFETY: `what` and `len` are those of the `&'static str` that `new` was given.
        unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(self.what, self.len.into())) }
    }

    /// Returns the value of the coarse clock when the wait began, in milliseconds. `now` is the present value of that
    /// clock.
    pub(crate) fn since(&self, now: u64) -> u64 {
        now - u64::from((now as u32).wrapping_sub(self.since)).min(now)
    }
}
