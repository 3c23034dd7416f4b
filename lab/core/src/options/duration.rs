//! Times as Go writes them: 100us, 1.5ms, 2s.

use std::time::Duration;

const UNITS: [(&str, f64); 6] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9)];

/// Parses a time, ten seconds at most.
pub fn duration(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(10);
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let unit = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some(&(_, ns)) => ns,
        None if number == "0" && unit.is_empty() => 1.0,
        None if unit.is_empty() => return Err("it has no unit: as in '100us', '1.5ms', '2s'".into()),
        None => return Err("not a time: as in '100us', '1.5ms', '2s'".into()),
    };
    let number: f64 = number.parse().map_err(|_| "not a time: as in '100us', '1.5ms', '2s'")?;
    // The conversion saturates: a number that is too large becomes the largest possible number.
    let time = Duration::from_nanos((number * unit).round() as u64);
    if time > MOST { Err("must be 10s at most".into()) } else { Ok(time) }
}

/// Parses a time of at least 1us.
pub fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < Duration::from_micros(1) => Err("must be 1us at least".into()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_go() {
        for (text, ns) in [("100us", 100_000), ("1.5ms", 1_500_000), ("2s", 2_000_000_000), (".5µs", 500), ("0", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        assert_eq!(duration("3μs"), duration("3000ns"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, because) in [
            ("100", "it has no unit"),
            ("", "it has no unit"),
            ("ms", "not a time"),
            ("1.2.3ms", "not a time"),
            ("-1ms", "not a time"),
            ("1h", "not a time"),
            ("1 ms", "not a time"),
            ("11s", "10s at most"),
            ("99999999999999999999999s", "10s at most"),
        ] {
            assert!(duration(text).unwrap_err().contains(because), "{text}");
        }
        assert!(some_time("0").is_err());
    }
}
