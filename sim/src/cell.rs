//! A cell whose accesses are not steps of the machine. Where schedules are explored, an access to a cell in freed
//! memory fails the execution.

use std::fmt;
use std::panic::Location;

use crate::machine::plain_access;

/// The counterpart of `std`'s `Cell`.
#[derive(Default)]
#[repr(transparent)]
pub struct Cell<T: ?Sized>(std::cell::Cell<T>);

impl<T> Cell<T> {
    /// The counterpart of `std`'s `new`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::Cell::new(value))
    }

    #[inline]
    fn access(&self, what: &'static str, place: &'static Location<'static>) {
        plain_access((&raw const self.0).addr(), what, place);
    }

    /// The counterpart of `std`'s `get`.
    #[inline]
    #[track_caller]
    pub fn get(&self) -> T
    where
        T: Copy,
    {
        self.access("plain load", Location::caller());
        self.0.get()
    }

    /// The counterpart of `std`'s `set`.
    #[inline]
    #[track_caller]
    pub fn set(&self, value: T) {
        self.replace(value);
    }

    /// The counterpart of `std`'s `replace`.
    #[inline]
    #[track_caller]
    pub fn replace(&self, value: T) -> T {
        self.access("plain store", Location::caller());
        self.0.replace(value)
    }

    /// The counterpart of `std`'s `take`.
    #[inline]
    #[track_caller]
    pub fn take(&self) -> T
    where
        T: Default,
    {
        self.replace(T::default())
    }

    /// The counterpart of `std`'s `into_inner`. The machine does not check this access, as only the owner can do so.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
