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
    // In parts, as an allocation may be what went wrong; locked, so that two threads that die at once do not mix their
    // letters. Nothing can be done if it fails.
    let mut stderr = std::io::stderr().lock();
    for part in ["fatal error: ", message, "\n"] {
        let _ = stderr.write_all(part.as_bytes());
    }
    std::process::abort()
}

/// Prints to standard error in one piece.
#[cfg(all(unix, not(sudog_loom)))]
pub(crate) fn say(text: &str) {
    // Nothing can be done if it fails.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
