//! The report: one HTML page that needs nothing else.

mod file;
mod machine;
mod page;
mod picture;
mod plot;
mod two_scales;

use std::fmt::Display;
use std::io::Write;

pub use file::{ReportFile, default_path};
pub use machine::place;
pub use page::{Escaped, Page, definitions, figures, table};
pub use picture::Picture;
pub use plot::{Curve, Curves, colours, legend, queue_plots};
pub use two_scales::{TwoCurves, TwoScales};

use crate::output::Output;
use crate::output::failure::Failure;

/// Writes a page, and says where it is: where that does not disturb, on the standard error if JSON is wanted.
pub fn deliver(file: ReportFile, page: &str, output: Output) -> Result<(), Failure> {
    let path = file.path().display().to_string();
    file.commit(page)?;
    if output.json {
        // The report is there. A closed standard error is not a failure.
        let _ = writeln!(std::io::stderr(), "report: {path}");
    }
    output.text(format_args!("report: {path}"))
}

/// Where and with what the figures were taken, and on what: for a section.
#[must_use]
pub fn facts(on: &dyn Display) -> String {
    definitions(machine::facts(on))
}
