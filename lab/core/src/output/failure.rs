//! The reasons for which the laboratory gives up.

use std::fmt;
use std::io;

/// The reason for which the laboratory gives up.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that makes no sense or cannot be provided. Nothing has been done.
    Usage(String),
    /// Something went wrong on the way.
    Run(String),
    /// The reader of the output has closed the output: not an error, and there is no reader to tell.
    ClosedPipe,
}

impl Failure {
    /// Returns the exit code of the process.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Run(_) => 1,
            Self::ClosedPipe => 0,
        }
    }
}

/// Converts errors of writing to the standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Run(format!("cannot write to the standard output: {error}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) | Self::Run(why) => write!(f, "error: {why}"),
            Self::ClosedPipe => Ok(()),
        }
    }
}
