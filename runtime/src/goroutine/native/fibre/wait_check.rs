//! A check for debug builds that no goroutine waits in an initialiser of which `std` assumes that the thread runs no
//! other code meanwhile.
//!
//! A goroutine must not wait in the initialiser of a `thread_local!`, of a `LazyLock`, a `OnceLock` or a `Once`
//! (docs/goroutines.md, "What std assumes about threads"). Nothing tells the library that an initialiser runs, but the
//! callers of the initialiser are on the stack. With `SUDOG_CHECK_WAITS` set, each wait and each yield looks at the
//! stack, and ends the process if such a caller is there. A look takes milliseconds, and needs the names of functions,
//! so this check is for tests.

use std::backtrace::Backtrace;
use std::sync::OnceLock;

use crate::fatal::say;

/// Part of the name of a function of `std` that runs an initialiser, and the type whose initialiser that is.
const INITIALISERS: [(&str, &str); 4] = [
    ("std::sys::thread_local::", "a std::thread_local!"),
    ("std::sync::lazy_lock::", "a std::sync::LazyLock"),
    ("std::sync::once_lock::", "a std::sync::OnceLock"),
    ("std::sync::once::", "a std::sync::Once"),
];
/// Part of the name of the function that calls a goroutine's closure. The frames of its callers are not the
/// goroutine's.
const BOTTOM: &str = "sudog_runtime::goroutine::native::fibre::job::run";

/// Ends the process if the check is on and the caller is in an initialiser. Called by a goroutine that is about to be
/// suspended.
pub(crate) fn check() {
    if is_on() {
        look();
    }
}

/// Returns whether the check is on.
pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("SUDOG_CHECK_WAITS").is_some_and(|value| value != "0"))
}

#[cold]
fn look() {
    let stack = Backtrace::force_capture().to_string();
    let goroutine = stack.split(BOTTOM).next().unwrap_or(&stack);
    let found = INITIALISERS.iter().find(|(name, _)| goroutine.contains(name));
    if let Some((_, what)) = found {
        say(&format!(
            "fatal error: sudog: a goroutine waits in the initialiser of {what}, which other goroutines of its thread \
             may enter meanwhile\n\n{goroutine}\n"
        ));
        std::process::abort();
    }
}
