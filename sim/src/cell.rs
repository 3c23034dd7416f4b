//! A cell whose accesses are no steps, but must not meet freed memory where schedules are explored.

use std::fmt;
use std::panic::Location;

use crate::machine::plain_access;

/// As of `std`.
#[derive(Default)]
#[repr(transparent)]
pub struct Cell<T: ?Sized>(std::cell::Cell<T>);

impl<T> Cell<T> {
    /// As of `std`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::Cell::new(value))
    }

    #[inline]
    fn access(&self, what: &'static str, place: &'static Location<'static>) {
        plain_access((&raw const self.0).addr(), what, place);
    }

    /// As of `std`.
    #[inline]
    #[track_caller]
    pub fn get(&self) -> T
    where
        T: Copy,
    {
        self.access("plain load", Location::caller());
        self.0.get()
    }

    /// As of `std`.
    #[inline]
    #[track_caller]
    pub fn set(&self, value: T) {
        self.replace(value);
    }

    /// As of `std`.
    #[inline]
    #[track_caller]
    pub fn replace(&self, value: T) -> T {
        self.access("plain store", Location::caller());
        self.0.replace(value)
    }

    /// As of `std`.
    #[inline]
    #[track_caller]
    pub fn take(&self) -> T
    where
        T: Default,
    {
        self.replace(T::default())
    }

    /// As of `std`: looked at by its owner alone.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
