//! The end of a process whose locks have been misused beyond repair.

use std::io::Write;

/// Prints `fatal error: MESSAGE` to standard error and aborts the process, as Go's `fatal` does.
///
/// It is not a panic: nothing can recover from it, because the structure that found the misuse is already damaged
/// (an unlock of an unlocked mutex has changed its state word before it was noticed).
///
/// Go's runtime exits with status 2; here the process aborts (`SIGABRT`), which leaves a core where one is wanted.
#[cold]
#[inline(never)]
pub fn fatal(message: &str) -> ! {
    // One write, so that two threads that die at once do not mix their letters; and nothing to do if it fails.
    let _ = std::io::stderr().lock().write_all(format!("fatal error: {message}\n").as_bytes());
    std::process::abort()
}
