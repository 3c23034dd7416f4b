//! Benchmarks by name: the values of the options that choose among the benchmarks of a list.

use std::fmt;
use std::ops::Deref;
use std::ptr;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A benchmark of a list.
pub trait Listed: Sized + 'static {
    /// Returns the list, in the order in which the benchmarks are shown.
    fn all() -> &'static [Self];

    /// Returns the name of the benchmark.
    fn name(&self) -> &'static str;

    /// Returns the end of the message about an unknown name: the known names, or where they are shown.
    fn known() -> String;
}

/// A benchmark, by name.
pub struct Name<B: 'static>(&'static B);

impl<B: Listed> Name<B> {
    /// All benchmarks, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Self> {
        B::all().iter().map(Self)
    }
}

impl<B> Clone for Name<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Name<B> {}

impl<B> PartialEq for Name<B> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl<B> Eq for Name<B> {}

impl<B> Deref for Name<B> {
    type Target = B;

    fn deref(&self) -> &B {
        self.0
    }
}

impl<B: Listed> FromStr for Name<B> {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::all().find(|known| known.0.name() == name);
        known.ok_or_else(|| format!("unknown benchmark '{name}'; {}", B::known()))
    }
}

impl<B: Listed> fmt::Debug for Name<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl<B: Listed> Serialize for Name<B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}
