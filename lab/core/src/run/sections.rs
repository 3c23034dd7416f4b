//! The lengths of critical sections: the same for all contenders, or a length for each contender.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Steps of a generator, by contender. In the records a number, if there is one number; otherwise an array.
#[derive(Clone, Copy)]
pub struct CriticalSections {
    steps: [u32; Self::MOST],
    len: usize,
}

impl CriticalSections {
    /// The most numbers that can be given.
    pub const MOST: usize = 64;

    /// The largest number of steps of a critical section.
    pub const MAX_STEPS: u32 = 1_000_000;

    /// Returns the same number of steps for all contenders.
    pub const fn all(steps: u32) -> Self {
        let mut all = [0; Self::MOST];
        all[0] = steps;
        Self { steps: all, len: 1 }
    }

    /// Returns the steps of a contender. With more contenders than numbers, the numbers begin anew.
    pub fn of(&self, contender: usize) -> u32 {
        self.steps[contender % self.len]
    }

    /// Returns whether there is one number for all contenders.
    pub fn is_one(&self) -> bool {
        self.len == 1
    }

    fn numbers(&self) -> &[u32] {
        &self.steps[..self.len]
    }
}

impl FromStr for CriticalSections {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sections = Self { steps: [0; Self::MOST], len: 0 };
        for item in text.split(',').map(str::trim) {
            let steps = item.parse().map_err(|error| format!("'{item}' is no number of steps: {error}"))?;
            if steps > Self::MAX_STEPS {
                return Err(format!("must be from 0 to {}", Self::MAX_STEPS));
            }
            let free = sections.steps.get_mut(sections.len);
            *free.ok_or_else(|| format!("more than {} numbers", Self::MOST))? = steps;
            sections.len += 1;
        }
        Ok(sections)
    }
}

/// Formats the numbers as they are given on the command line.
impl fmt::Display for CriticalSections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers().iter().map(u32::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

impl fmt::Debug for CriticalSections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CriticalSections({self})")
    }
}

impl Serialize for CriticalSections {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.numbers() {
            [steps] => steps.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<CriticalSections, String> {
        text.parse()
    }

    #[test]
    fn one_for_all_or_one_for_each() {
        let one = parse("7").unwrap();
        assert_eq!((one.of(0), one.of(100), one.to_string().as_str()), (7, 7, "7"));
        assert_eq!(serde_json::to_string(&one).unwrap(), "7");
        let three = parse("1, 1,100").unwrap();
        assert_eq!([0, 1, 2, 3, 4, 5].map(|n| three.of(n)), [1, 1, 100, 1, 1, 100]);
        assert_eq!(three.to_string(), "1,1,100");
        assert_eq!(serde_json::to_string(&three).unwrap(), "[1,1,100]");
        assert_eq!(CriticalSections::all(3).of(9), 3);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(parse("1,2,x").unwrap_err(), "'x' is no number of steps: invalid digit found in string");
        assert_eq!(parse("1000001").unwrap_err(), "must be from 0 to 1000000");
        for bad in ["", "1,,2", "-1", "1,"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let most = vec!["1"; CriticalSections::MOST].join(",");
        assert!(parse(&most).is_ok());
        assert_eq!(parse(&(most + ",1")).unwrap_err(), "more than 64 numbers");
    }
}
