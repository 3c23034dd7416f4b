//! The last panics of the process, which are printed only if the process fails: many tests expect panics, and a reader of
//! the output of tests that pass should see no panic.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// The texts of the last panics.
static LAST: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// The number of panics that are kept.
const MOST: usize = 100;

/// Keeps the text of a panic. Prints the text at once on systems where the end of the process cannot be observed.
pub fn note(text: String) {
    if cfg!(not(all(target_os = "linux", target_env = "gnu"))) {
        let _ = writeln!(std::io::stderr(), "{text}");
        return;
    }
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == MOST {
        last.pop_front();
    }
    last.push_back(text);
}

/// Makes the process print the panics that have been noted when the process aborts, or exits with another status than 0.
pub fn print_at_failure() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::{c_int, c_void};

        unsafe extern "C" {
            /// Registers a function that `exit` calls with the status and with `argument`.
            fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
        }

        extern "C" fn exits(status: c_int, _: *mut c_void) {
            if status != 0 {
                print();
            }
        }

        extern "C" fn aborts(_: c_int) {
            print();
        }

        // SAFETY: `exits` ignores its pointer, and does not unwind.
        unsafe { on_exit(exits, std::ptr::null_mut()) };
        // SAFETY: `abort` raises SIGABRT on the thread that calls it, so `aborts` runs as a function of that thread, and
        // may lock and write. `aborts` does not unwind, and `abort` ends the process when it has returned.
        unsafe { libc::signal(libc::SIGABRT, aborts as extern "C" fn(c_int) as libc::sighandler_t) };
    }
}

/// Prints the panics that have been noted. Prints nothing if another thread is noting a panic: waiting might last for
/// ever.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn print() {
    let Ok(last) = LAST.try_lock() else { return };
    // Ignore write errors: nothing can be done about them.
    let mut stderr = std::io::stderr().lock();
    if !last.is_empty() {
        let _ = writeln!(stderr, "The last panics of this process, expected ones among them:");
    }
    for text in &*last {
        let _ = writeln!(stderr, "{text}");
    }
}
