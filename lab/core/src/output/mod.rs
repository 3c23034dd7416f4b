//! The output of results: text, or JSON lines; and the progress of the work.

pub mod failure;
pub mod report;
pub mod table;
pub mod units;

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::output::failure::Failure;

/// The compiler that the laboratory was built with.
pub const RUSTC: &str = env!("SUDOG_LAB_RUSTC");

/// The standard output, for text or for JSON lines.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Writes JSON lines, and nothing else.
    pub json: bool,
}

impl Output {
    /// Writes a result as a line of JSON, at once. For text output, writes nothing: results come in tables.
    pub fn record(self, record: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let mut line = serde_json::to_vec(record).map_err(|e| Failure::Run(e.to_string()))?;
        line.push(b'\n');
        let mut stdout = io::stdout().lock();
        stdout.write_all(&line)?;
        Ok(stdout.flush()?)
    }

    /// Writes text, and a line's end. For JSON output, writes nothing.
    pub fn text(self, text: impl std::fmt::Display) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        Ok(writeln!(io::stdout().lock(), "{text}")?)
    }

    /// Prints how long a measurement will take, on the standard error, if the measurement takes more than a few seconds.
    pub fn estimate(self, what: &str, time: Duration) {
        // Simulated runs take another time than the one that they simulate.
        if cfg!(not(sudog_sim)) && time > Duration::from_secs(5) {
            // A closed standard error is not a failure.
            let _ = writeln!(io::stderr(), "{what}: takes about {} s", time.as_secs());
        }
    }

    /// Returns a progress bar on the standard error. The bar is hidden if the standard error is not a terminal, or if
    /// the output is JSON. The bar is drawn only when the bar is moved, and is moved only between measurements.
    pub fn progress(self, what: &'static str, steps: usize) -> ProgressBar {
        let target = if self.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let style =
            ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta}").expect("the template is good");
        ProgressBar::with_draw_target(Some(steps as u64), target).with_style(style).with_prefix(what)
    }
}
