//! The report: a single HTML page that needs no other file.

mod file;
mod machine;
mod page;
mod plot;

use std::fmt::Display;
use std::io::Write;

pub use file::{ReportFile, default_path};
pub use machine::place;
pub use page::{Escaped, Page, definitions, figures, table};
pub use plot::{Line, Plot, Style, legend};

use crate::output::Output;
use crate::output::failure::Failure;

/// Writes a page, and prints the path: on the standard error if JSON is wanted, where the path does not disturb.
pub fn deliver(file: ReportFile, page: &str, output: Output) -> Result<(), Failure> {
    let path = file.path().display().to_string();
    file.commit(page)?;
    if output.json {
        // The report is written. A closed standard error is not a failure.
        let _ = writeln!(std::io::stderr(), "report: {path}");
    }
    output.text(format_args!("report: {path}"))
}

/// Returns a section on the circumstances of the figures: machine, programs, and contenders.
pub fn facts(on: &dyn Display) -> String {
    definitions(machine::facts(on))
}
