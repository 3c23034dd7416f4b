//! The end of a process whose locks have been misused beyond repair.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;

/// Prints `fatal error: MESSAGE` and the caller's goroutine to standard error; with `RUST_BACKTRACE=1` also the
/// caller's stack. Then aborts the process, as Go's `fatal` does.
///
/// This is not a panic: no code can recover, because the structure that detected the misuse is already damaged (an
/// unlock of an unlocked mutex changes the state word before the error is detected).
///
/// Go's runtime exits with status 2; here the process aborts (`SIGABRT`), which leaves a core dump where core dumps are
/// enabled.
#[cold]
#[inline(never)]
pub fn fatal(message: &str) -> ! {
    // Write in parts, because an allocation may be the operation that failed. Lock, so that the messages of two threads
    // that fail at once do not mix. Ignore write errors: nothing can be done about them.
    let mut stderr = std::io::stderr().lock();
    for part in ["fatal error: ", message, "\n"] {
        let _ = stderr.write_all(part.as_bytes());
    }
    let goroutine = crate::goroutine::id();
    if goroutine != 0 {
        let _ = writeln!(stderr, "in goroutine {goroutine}");
    }
    // Print the place, for users that ask for it. The backtrace allocates, so print it last.
    let place = Backtrace::capture();
    if place.status() == BacktraceStatus::Captured {
        let _ = write!(stderr, "{place}");
    }
    std::process::abort()
}

/// Writes to standard error by the system call alone: for signal handlers, and for the child of a `fork`. Returns the number
/// of bytes written, or a negative number.
#[cfg(all(unix, not(sudog_loom)))]
pub(crate) fn write_raw(bytes: &[u8]) -> isize {
    // SAFETY: `bytes` is a slice, so its bytes are readable.
    unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) }
}

/// Prints to standard error in one piece.
#[cfg(all(unix, not(sudog_loom)))]
pub(crate) fn say(text: &str) {
    // Ignore write errors: nothing can be done about them.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
