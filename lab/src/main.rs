//! The command-line laboratory.

use std::io::Write;
use std::process::ExitCode;

use sudog_lab::bench;
use sudog_lab::cli::Cli;

fn main() -> ExitCode {
    let Err(failure) = Cli::from_env().and_then(|cli| bench::dispatch(&cli)) else { return ExitCode::SUCCESS };
    let text = failure.to_string();
    if !text.is_empty() {
        // If nobody listens to errors either, there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    ExitCode::from(failure.exit_code())
}
