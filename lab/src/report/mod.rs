//! The report: one HTML page that needs nothing else.

mod file;
mod html;
mod machine;
mod page;
mod picture;
mod plot;
mod timeline;
mod two_scales;

use std::fmt::Display;
use std::io::Write;

pub use file::{ReportFile, default_path};
pub use page::{Page, definitions, figures, table};
pub use picture::Picture;
pub use plot::{Curve, Curves, legend, queue_plots};
pub use timeline::timeline;
pub use two_scales::{TwoCurves, TwoScales};

use crate::bench::summary::Summaries;
use crate::bench::{semtable, uncontended};
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;

/// What a report is about. What was not measured is empty, and has no section.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// With contention.
    pub contended: &'a Summaries,
    /// Everything in one table.
    pub overview: Option<&'a Table>,
    /// Without contention.
    pub uncontended: &'a [uncontended::Record],
    /// The queue of the semaphore table.
    pub semtable: &'a [semtable::Record],
}

impl Report<'_> {
    /// Writes the page, and says where it is.
    pub fn write(&self, file: ReportFile, output: Output) -> Result<(), Failure> {
        deliver(file, &html::page(self)?, output)
    }
}

/// Writes a page, and says where it is: where that does not disturb, on the standard error if JSON is wanted.
pub fn deliver(file: ReportFile, page: &str, output: Output) -> Result<(), Failure> {
    let path = file.path().display().to_string();
    file.commit(page)?;
    if output.json {
        // The report is there. That nobody listens is no failure.
        let _ = writeln!(std::io::stderr(), "report: {path}");
    }
    output.text(format_args!("report: {path}"))
}

/// Where and with what the figures were taken, and on what: for a section.
#[must_use]
pub fn facts(on: &dyn Display) -> String {
    definitions(machine::facts(on))
}
