//! Numbers with units, three significant digits of them.

/// Formats a time given in nanoseconds.
pub fn time(ns: f64) -> String {
    with_unit(ns, &["ns", "µs", "ms", "s"])
}

/// Formats a number per second.
pub fn rate(per_second: f64) -> String {
    with_unit(per_second, &["/s", "k/s", "M/s", "G/s"])
}

/// Formats an amount of memory.
pub fn bytes(n: f64) -> String {
    with_unit(n, &["B", "kB", "MB", "GB"])
}

/// Formats a plain number, shortened: 1.23k, 45.6M.
pub fn count(n: f64) -> String {
    with_unit(n, &["", "k", "M", "G"]).replace(' ', "")
}

/// Formats a ratio or a share.
pub fn ratio(x: f64) -> String {
    if x.is_finite() { format!("{x:.3}") } else { NOTHING.into() }
}

/// The text where there is no number.
pub const NOTHING: &str = "-";

/// Formats a value with the largest fitting unit. Units are a thousand apart.
fn with_unit(mut value: f64, units: &[&str]) -> String {
    if !value.is_finite() {
        return NOTHING.into();
    }
    let mut unit = 0;
    // A value that would be rounded to 1000 belongs to the next unit.
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value.abs() {
        _ if value.fract() == 0.0 && unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        assert_eq!(time(12.345), "12.3 ns");
        assert_eq!(time(999.9), "1.00 µs");
        assert_eq!(time(1_234_567.0), "1.23 ms");
        assert_eq!(time(90e9), "90.0 s");
        assert_eq!(rate(0.0), "0 /s");
        assert_eq!(rate(123_456.0), "123 k/s");
        assert_eq!(count(7.0), "7");
        assert_eq!(count(45_678_901.0), "45.7M");
        assert_eq!(bytes(2_776_530_944.0), "2.78 GB");
        assert_eq!(time(f64::NAN), "-");
        assert_eq!(ratio(0.5), "0.500");
    }
}
