//! The circumstances of the figures: machine, system and programs.

use std::fmt::Display;
#[cfg(not(sudog_sim))]
use std::fs;
#[cfg(not(sudog_sim))]
use std::thread;
#[cfg(not(sudog_sim))]
use std::time::{SystemTime, UNIX_EPOCH};

use crate::output::RUSTC;

/// Returns a name for the machine on which the figures were taken, for a title.
pub fn place() -> String {
    #[cfg(sudog_sim)]
    return crate::run::machine::name();
    #[cfg(not(sudog_sim))]
    format!("{} real processors", processors())
}

#[cfg(not(sudog_sim))]
pub fn facts(on: &dyn Display) -> Vec<(&'static str, String)> {
    vec![
        ("date", date(SystemTime::now())),
        ("command", command()),
        ("on", on.to_string()),
        ("processor", cpu_model().unwrap_or_else(unknown)),
        ("processors", processors()),
        ("system", kernel().unwrap_or_else(|| std::env::consts::OS.to_owned())),
        ("compiler", RUSTC.to_owned()),
        ("parking_lot", env!("SUDOG_LAB_PARKING_LOT").to_owned()),
        ("std", "the compiler's".to_owned()),
        ("pthread", c_library()),
        ("sudog", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

/// Returns facts by name. The figures of a simulated machine are the same on any day and on any real machine.
#[cfg(sudog_sim)]
pub fn facts(on: &dyn Display) -> Vec<(&'static str, String)> {
    vec![
        ("command", command()),
        ("on", on.to_string()),
        ("processors", place()),
        ("compiler", RUSTC.to_owned()),
        ("sudog", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

/// Returns the command, with a short program name: the name by which the program was called tells nothing, and neither
/// does the place of the report.
fn command() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    asked(arguments)
}

fn asked(mut arguments: impl Iterator<Item = String>) -> String {
    let mut command = "sudog-lab".to_owned();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--report" => drop(arguments.next()),
            _ if argument.starts_with("--report=") => {}
            _ => command = command + " " + &argument,
        }
    }
    command
}

#[cfg(not(sudog_sim))]
fn processors() -> String {
    thread::available_parallelism().map_or_else(|_| unknown(), |n| n.to_string())
}

#[cfg(not(sudog_sim))]
fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(not(sudog_sim))]
fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(not(sudog_sim))]
fn kernel() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(format!("Linux {}", release.trim()))
}

#[cfg(all(target_os = "linux", target_env = "gnu", not(sudog_sim)))]
fn c_library() -> String {
    // SAFETY: `gnu_get_libc_version` returns a NUL-terminated string that lives as long as the process.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(any(sudog_sim, all(target_os = "linux", target_env = "gnu"))))]
fn c_library() -> String {
    "the system's".to_owned()
}

/// Formats the date and the time of day, UTC.
#[cfg(not(sudog_sim))]
fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    let minutes = seconds % 86_400 / 60;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// Returns the civil date, `days` days after 1970-01-01. Years are counted from March, so that the leap day is the last
/// day of the year and the months before the leap day have a regular pattern: five months are 153 days.
#[cfg(not(sudog_sim))]
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(all(test, not(sudog_sim)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_command_without_the_place_of_its_report() {
        let of = |text: &str| asked(text.split_whitespace().map(str::to_owned));
        assert_eq!(of("--json figures --report a.html --seed 2"), "sudog-lab --json figures --seed 2");
        assert_eq!(of("--report=a.html figures"), "sudog-lab figures");
        assert_eq!(of("figures --report"), "sudog-lab figures");
    }

    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(date(UNIX_EPOCH + Duration::from_secs(1_700_000_000)), "2023-11-14 22:13 UTC");
    }
}
