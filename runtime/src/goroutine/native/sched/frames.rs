//! The part of a stack that is the user's: without this project's functions at the wait, and without the runtime's
//! functions at the goroutine's base.
//!
//! A function belongs to the crate that defines the function. The name of a function of an `impl` has no such crate,
//! only a type and perhaps a trait, as in `<T as Trait>::f`. The `impl` is in the crate of the type or in that of the
//! trait, whichever depends on the other: `std` depends on none, then come the crates that this project uses, then this
//! project's own crates, then all others, which are the user's. So `<sudog_sync::M as app::Lock>::lock` and
//! `<app::M as sudog_sync::Locker>::lock` are the user's, and `<sudog_sync::M as lock_api::RawMutex>::lock` is this
//! project's. An `impl` of this project for all types (`impl<F: Fn()> Handler for F`) looks like the user's; no such
//! function waits.

use std::fmt::Write as _;
use std::ops::Range;

/// The crates of this project that programs use.
const OURS: [&str; 7] = ["sudog", "sudog_csp", "sudog_http", "sudog_locks", "sudog_net", "sudog_runtime", "sudog_sync"];
/// The first words of the names of the crates, used by this project, whose traits this project implements.
const USED: [&str; 8] = ["async_task", "bytes", "futures", "http_body", "hyper", "lock_api", "serde", "tracing"];

/// Returns whether a function of this name is this project's.
#[cfg(any(test, all(feature = "profile", not(sudog_sim))))]
pub(crate) fn is_ours(name: &str) -> bool {
    OURS.contains(&crate_of(definition(name)))
}

/// Returns the range of the user's frames in a stack, innermost first. Leaves out the frames of this project at the
/// wait, and the frames of the runtime at the goroutine's base. `name` returns the path of a frame's function.
pub(crate) fn of_the_user<T>(frames: &[T], name: impl Fn(&T) -> &str) -> Range<usize> {
    /// The frames between a wait and the caller of that wait, beside this project's.
    const WAIT: [&str; 5] = ["backtrace::", "core::", "lock_api::", "std::backtrace", "std::thread::local"];
    /// The frames between a goroutine's closure and the fibre, beside this project's.
    const BASE: [&str; 6] =
        ["std::panicking::", "std::panic::", "core::panic::", "core::ops::", "alloc::", "__rust_try"];
    let is_of = |frame: &T, list: &[&str]| {
        let path = definition(name(frame));
        OURS.contains(&crate_of(path)) || list.iter().any(|prefix| path.starts_with(prefix))
    };
    let is_base = |name: &str| {
        name.contains("goroutine::native::fibre::job::run") || definition(name).starts_with("async_task::")
    };
    let base = frames.iter().position(|frame| is_base(name(frame)));
    let frames = &frames[..base.unwrap_or(frames.len())];
    let begin = frames.iter().position(|frame| !is_of(frame, &WAIT)).unwrap_or(0);
    let end = frames.iter().rposition(|frame| !is_of(frame, &BASE)).map_or(frames.len(), |last| last + 1);
    begin..end.max(begin)
}

/// Returns the path, in the name of a function, that begins with the crate of the function's definition.
fn definition(name: &str) -> &str {
    let Some(rest) = name.strip_prefix('<') else { return name };
    let (of_type, of_trait) = type_and_trait(rest);
    let of_type = path_of_type(of_type);
    match of_trait {
        Some(of_trait) if rank(of_trait) > rank(of_type) => of_trait,
        _ => of_type,
    }
}

/// Splits the rest of `<T>::f` or `<T as Trait>::f`, after the first bracket, into the type and the trait.
fn type_and_trait(rest: &str) -> (&str, Option<&str>) {
    let mut depth = 0;
    let mut split = None;
    let mut end = rest.len();
    for (at, char) in rest.char_indices() {
        match char {
            '<' | '(' | '[' => depth += 1,
            '>' if rest[..at].ends_with('-') => {} // the arrow of a function's type
            '>' | ')' | ']' if depth > 0 => depth -= 1,
            '>' => {
                end = at;
                break;
            }
            ' ' if depth == 0 && split.is_none() && rest[at..].starts_with(" as ") => split = Some(at),
            _ => {}
        }
    }
    match split {
        Some(at) => (&rest[..at], Some(&rest[at + " as ".len()..end])),
        None => (&rest[..end], None),
    }
}

/// Returns the path that decides where an `impl` for a type may be: that of the type itself; for a reference, a
/// pointer, a slice and a tuple, that of the first type inside; and for a `Box` and a `Pin` that of the type inside,
/// unless the type inside is a type of `std` or a parameter.
fn path_of_type(mut of_type: &str) -> &str {
    const AROUND: [&str; 8] = ["&", "*", "[", "(", "mut ", "const ", "dyn ", "for<'a> "];
    const BOXES: [&str; 2] = ["alloc::boxed::Box<", "core::pin::Pin<"];
    while let Some(inner) = AROUND.iter().find_map(|around| of_type.strip_prefix(around)) {
        of_type = inner;
    }
    let inner = BOXES.iter().find_map(|name| of_type.strip_prefix(name)).map(path_of_type);
    inner.filter(|inner| rank(inner) > 0).unwrap_or_else(|| definition(of_type))
}

/// Returns the place of a path's crate in the order of dependencies: a crate depends on those of lower rank.
fn rank(path: &str) -> u8 {
    let of = crate_of(path);
    if !path.contains("::") || ["core", "alloc", "std"].contains(&of) {
        0 // a primitive type has no crate
    } else if USED.iter().any(|used| of.starts_with(used)) {
        1
    } else if OURS.contains(&of) {
        2
    } else {
        3
    }
}

/// Returns the crate of a path.
fn crate_of(path: &str) -> &str {
    path.split("::").next().unwrap_or(path)
}

/// Prints the frames [of the user](of_the_user) of a printed backtrace.
pub(crate) fn frames_of_the_user(stack: &str) -> String {
    // A frame is a line with number and name, and perhaps a line with the place.
    let mut frames: Vec<&str> = Vec::new();
    let mut start = 0;
    for (at, _) in stack.match_indices('\n') {
        let next = stack[at + 1..].lines().next().unwrap_or("").trim_start();
        if !next.starts_with("at ") {
            frames.push(&stack[start..at]);
            start = at + 1;
        }
    }
    frames.extend(Some(&stack[start..]).filter(|frame| !frame.trim().is_empty()));
    let range = of_the_user(&frames, |frame| frame.split_once(": ").map_or("", |(_, name)| name));
    let mut text = String::new();
    for frame in &frames[range] {
        let mut lines = frame.lines();
        let name = lines.next().and_then(|line| line.split_once(": ")).map_or("?", |(_, name)| name);
        _ = writeln!(text, "      {name}");
        lines.for_each(|place| _ = writeln!(text, "          {}", place.trim_start()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_belong_to_the_crate_that_defines_them() {
        for ours in [
            "sudog_runtime::sema::semacquire",
            "sudog_sync::once::Once::do_::<app::main::{closure#0}>",
            "sudog_sync::f::{{closure}}",
            "<sudog_sync::mutex::GoMutex>::lock",
            "<sudog_sync::mutex::GoMutex<S, P>>::lock",
            "<sudog_sync::api_lock::ApiLock<app::MyLock> as lock_api::mutex::RawMutex>::lock",
            "<sudog_runtime::chan::GoChan<fn(u8) -> app::Job> as core::iter::IntoIterator>::into_iter::{closure#0}",
            "<&sudog_runtime::sema::limit::WaitLimit as sudog_runtime::sema::limit::IntoLimit>::limited",
            "<&mut sudog_net::tcp::TcpStream as std::io::Read>::read",
            "<sudog_net::tcp::TcpStream as futures_io::if_std::AsyncRead>::poll_read",
            "<core::time::Duration as sudog_runtime::sema::limit::IntoLimit>::limited",
            "<(sudog_net::fd::Fd, app::Job) as core::cmp::PartialEq>::eq",
            "<alloc::sync::Arc<app::Job> as sudog_sync::Locker>::lock",
            "<u64 as sudog_sync::Value>::get",
            "<<sudog_sync::a::B as core::T>::C as core::fmt::Debug>::fmt",
        ] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in [
            "app::serve",
            "app::serve::<sudog_sync::mutex::GoMutex>",
            "sudog_demo::serve",
            "<app::My as sudog_runtime::X>::f",
            "<app::My<sudog_sync::mutex::GoMutex> as sudog_sync::Locker>::lock::{{closure}}",
            "<&app::My as sudog_sync::Locker>::lock",
            "<alloc::boxed::Box<app::My> as sudog_sync::Locker>::lock",
            "<alloc::boxed::Box<dyn app::Lock> as sudog_sync::Locker>::lock",
            "<sudog_sync::mutex::GoMutex as app::Lock>::lock",
            "<sudog_sync::mutex::GoMutex as app::Lock<sudog_sync::mutex::GoMutex>>::lock",
            "<app::main::{closure#0} as core::ops::function::FnOnce<()>>::call_once::{shim:vtable#0}",
            "<app::My>::f",
            "<<sudog_sync::a::B as app::T>::C as core::fmt::Debug>::fmt",
            "core::ptr::drop_in_place::<sudog_sync::mutex::GoMutex>",
            "<alloc::vec::Vec<sudog_sync::mutex::GoMutex> as core::ops::drop::Drop>::drop",
            "lock_api::mutex::Mutex<R,T>::lock",
            "<unknown>",
            "__rust_try",
            "<",
            "",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn frames_at_the_base_are_left_out() {
        let frames = [
            "sudog_sync::lock",
            "app::serve",
            "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
            "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once",
            "sudog_runtime::goroutine::native::fibre::job::run",
        ];
        assert_eq!(of_the_user(&frames, |name| name), 1..2);
        let frames = [
            "sudog_sync::lock",
            "app::serve::{{closure}}",
            "<sudog_runtime::goroutine::native::task::Body<F,D> as core::future::future::Future>::poll",
            "async_task::raw::RawTask<F,T,S,M>::run",
            "sudog_runtime::goroutine::native::fibre::Fibre::body",
            "std::rt::lang_start",
        ];
        assert_eq!(of_the_user(&frames, |name| name), 1..2);
    }

    #[test]
    fn frames_of_the_runtime_are_left_out() {
        let stack = "   0: <std::backtrace::Backtrace>::force_capture\n   1: sudog_runtime::goroutine::native::sched::dump::show\n             \
            at /src/dump.rs:1:2\n   2: <&sudog_sync::mutex::Mutex<T> as A>::lock\n   3: app::serve\n             at /app.rs:3:4\n   \
            4: core::ops::function::FnOnce::call_once\n   5: sudog_runtime::goroutine::native::fibre::job::run\n   6: corosensei::on\n";
        assert_eq!(frames_of_the_user(stack), "      app::serve\n          at /app.rs:3:4\n");
        // The user's implementation of a trait of this project is a frame of the user.
        let stack = "   0: sudog_runtime::park\n   1: <app::Limit as sudog_runtime::sema::limit::IntoLimit>::limited\n   2: \
            sudog_sync::lock\n   3: app::serve\n   4: sudog_runtime::goroutine::native::fibre::job::run\n";
        let frames = "      <app::Limit as sudog_runtime::sema::limit::IntoLimit>::limited\n      sudog_sync::lock\n      app::serve\n";
        assert_eq!(frames_of_the_user(stack), frames);
        // Without symbols, frames of the user cannot be told from others: all are printed.
        assert_eq!(frames_of_the_user("   0: <unknown>\n   1: <unknown>\n"), "      <unknown>\n      <unknown>\n");
        assert_eq!(frames_of_the_user(""), "");
    }
}
