//! `Wait`: the note of what a goroutine or a thread waits for, which reports read.

use std::cell::Cell;
use std::fmt;
use std::ptr;

use crate::shim::system::atomic::AtomicU64;

/// A note of the goroutine's wait, for reports.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    what: *const u8,
    sizes: Sizes,
    /// Points to the awaited object, or to a part that no other object has. Null if the object is not known.
    object: *const (),
}

#[derive(Clone, Copy)]
struct Sizes {
    /// The length of `what`.
    what: u16,
    /// The number of ids of holders. 0 if the holders of the awaited object are not known.
    holders: u8,
    /// The distance in bytes from `object` to the ids of the goroutines that hold the object.
    holders_at: u8,
}

/// A fibre's note of its wait, and the time of the wait. Three words: with a longer note, [`Fibre`](super::Fibre) would take
/// another cache line. Each field is a cell, so that a goroutine that suspends writes the time only.
pub(crate) struct WaitCell {
    what: Cell<*const u8>,
    sizes: Cell<Sizes>,
    /// The value of the coarse clock when the goroutine last suspended for a wait, in milliseconds. Wraps after 49 days.
    since: Cell<u32>,
    object: Cell<*const ()>,
}

impl WaitCell {
    pub(crate) const fn new() -> Self {
        let Wait { what, sizes, object } = Wait::NONE;
        Self { what: Cell::new(what), sizes: Cell::new(sizes), since: Cell::new(0), object: Cell::new(object) }
    }

    pub(crate) fn get(&self) -> Wait {
        Wait { what: self.what.get(), sizes: self.sizes.get(), object: self.object.get() }
    }

    #[inline]
    pub(crate) fn set(&self, wait: Wait) {
        self.what.set(wait.what);
        self.sizes.set(wait.sizes);
        self.object.set(wait.object);
    }

    /// Notes that the goroutine suspends for the wait, which may have no other note. `now` is the value of the coarse clock,
    /// in milliseconds.
    #[inline]
    pub(crate) fn begin(&self, now: u64) {
        self.since.set(now as u32);
    }

    /// Returns the value of the coarse clock when the goroutine last suspended for a wait, in milliseconds. `now` is the
    /// present value of that clock.
    pub(crate) fn since(&self, now: u64) -> u64 {
        now - u64::from((now as u32).wrapping_sub(self.since.get())).min(now)
    }
}

/// The ids of holders that are not known.
pub(crate) const NO_HOLDERS: *const [AtomicU64] = ptr::slice_from_raw_parts(ptr::null(), 0);

impl Wait {
    pub(crate) const NONE: Self = Self::new("", ptr::null());

    #[inline]
    pub(crate) const fn new(what: &'static str, object: *const ()) -> Self {
        let sizes = Sizes { what: what.len() as u16, holders: 0, holders_at: 0 };
        Self { what: what.as_ptr(), sizes, object }
    }

    /// Adds the ids of the holders, which are a part of the object.
    #[inline]
    pub(crate) fn held_by(self, holders: *const [AtomicU64]) -> Self {
        if holders.is_empty() {
            return self;
        }
        let distance = holders.addr() - self.object.addr();
        debug_assert!(holders.len() <= u8::MAX.into() && distance <= u8::MAX.into());
        let sizes = Sizes { holders: holders.len() as u8, holders_at: distance as u8, ..self.sizes };
        Self { sizes, ..self }
    }

    /// Returns whether the note says where the holders of the awaited object are.
    pub(crate) fn knows_holders(&self) -> bool {
        self.sizes.holders != 0
    }

    /// Returns the address of the awaited object, or of a part that no other object has; 0 if the object is not known.
    pub(crate) fn object(&self) -> usize {
        self.object.addr()
    }

    /// Returns the ids of the goroutines that hold the awaited object, as far as they are known. An id of 0 means
    /// nothing.
    ///
    /// # Safety
    ///
    /// The note has no holders, or the object that `new` was given stays alive and where it is for `'a`.
    pub(crate) unsafe fn holders<'a>(&self) -> &'a [AtomicU64] {
        if !self.knows_holders() {
            return &[];
        }
        // SAFETY: the ids are `sizes.holders` values at the distance `holders_at` from the start of the object, which is
        // alive for `'a`, by the contract of this function.
        unsafe {
            let first = self.object.byte_add(self.sizes.holders_at.into()).cast();
            std::slice::from_raw_parts(first, self.sizes.holders.into())
        }
    }

    /// Returns the kind of the wait.
    pub(crate) fn what(&self) -> &'static str {
        // SAFETY: `what` and `sizes.what` are those of the `&'static str` that `new` was given.
        unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(self.what, self.sizes.what.into())) }
    }
}

/// Writes a line for the address of an awaited object, if the address is known.
pub(crate) fn write_object(f: &mut impl fmt::Write, object: usize) -> fmt::Result {
    if object == 0 { Ok(()) } else { write!(f, "\n    waits for the object at {object:#x}") }
}
