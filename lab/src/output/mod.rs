//! Where results go: for people, or as JSON lines; and how far the work has come.

pub mod failure;
pub mod report;
pub mod table;
pub mod units;

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::output::failure::Failure;

/// The standard output, in one of its two manners.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// JSON lines, and nothing else.
    pub json: bool,
}

impl Output {
    /// One result: a line of JSON, at once. People get tables instead.
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

    /// Text for people, and a line's end. Not for JSON.
    pub fn text(self, text: impl std::fmt::Display) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        Ok(writeln!(io::stdout().lock(), "{text}")?)
    }

    /// A bar on the standard error, if that is a terminal. It is drawn only when it is moved, and moved only between
    /// measurements.
    #[must_use]
    pub fn progress(self, what: &'static str, steps: usize) -> ProgressBar {
        let target = if self.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let style =
            ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta}").expect("the template is good");
        ProgressBar::with_draw_target(Some(steps as u64), target).with_style(style).with_prefix(what)
    }
}
