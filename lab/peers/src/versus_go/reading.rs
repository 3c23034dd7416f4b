//! The result of a run of a benchmark, on either side, as a line:
//!
//! ```text
//! PingPongHog 323.511 hog_share=0.0004
//! ```

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::output::units;

/// The result of a run of a benchmark.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// The name of the benchmark on the side that ran.
    pub name: String,
    /// The time of an operation, in nanoseconds.
    pub ns: f64,
    /// Other quantities, with their keys.
    pub extras: Vec<(String, f64)>,
}

/// The kind of a quantity.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A time in nanoseconds.
    Ns,
    /// An amount of memory.
    Bytes,
    /// A part of 1.
    Share,
}

impl Unit {
    /// Returns the unit of the quantity with this key, and the name of the quantity: `first_ns` is a time called
    /// `first`. A share's name is the whole key.
    fn of(key: &str) -> Option<(Self, &str)> {
        let (name, unit) = key.rsplit_once('_')?;
        match unit {
            "ns" => Some((Self::Ns, name)),
            "bytes" => Some((Self::Bytes, name)),
            "share" => Some((Self::Share, key)),
            _ => None,
        }
    }

    /// Formats a number of this kind.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Ns => units::time(value),
            Self::Bytes => units::bytes(value),
            Self::Share => units::ratio(value),
        }
    }

    /// Returns whether less is better, so that a ratio says something.
    pub const fn is_cost(self) -> bool {
        !matches!(self, Self::Share)
    }
}

impl Reading {
    /// Returns all quantities: the time of an operation, whose name is empty, then the others, with their names.
    pub fn quantities(&self) -> impl Iterator<Item = (&str, Unit, f64)> {
        let others =
            self.extras.iter().filter_map(|(key, value)| Unit::of(key).map(|(unit, name)| (name, unit, *value)));
        std::iter::once(("", Unit::Ns, self.ns)).chain(others)
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.3}", self.name, self.ns)?;
        self.extras.iter().try_for_each(|(key, value)| write!(f, " {key}={value:.4}"))
    }
}

impl FromStr for Reading {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let bad = || format!("not a reading: '{line}'");
        let mut words = line.split_whitespace();
        let name = words.next().ok_or_else(bad)?.to_owned();
        let ns = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
        let extra = |word: &str| {
            let (key, value) = word.split_once('=')?;
            Unit::of(key)?;
            Some((key.to_owned(), value.parse().ok()?))
        };
        let extras = words.map(|word| extra(word).ok_or_else(bad)).collect::<Result<_, _>>()?;
        Ok(Self { name, ns, extras })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_and_back() {
        let line = "Million 1.500 first_ns=7.0000 peak_bytes=8.0000 won_share=0.5000";
        let reading: Reading = line.parse().unwrap();
        assert_eq!(reading.to_string(), line);
        let expected = [
            ("", Unit::Ns, 1.5),
            ("first", Unit::Ns, 7.0),
            ("peak", Unit::Bytes, 8.0),
            ("won_share", Unit::Share, 0.5),
        ];
        assert_eq!(reading.quantities().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_no_reading() {
        for bad in ["", "Mutex", "Mutex soon", "Mutex 1 x", "Mutex 1 x=2", "Mutex 1 x_ns=y"] {
            assert!(bad.parse::<Reading>().is_err(), "{bad}");
        }
    }
}
