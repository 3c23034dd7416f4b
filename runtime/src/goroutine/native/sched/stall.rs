//! Reports of goroutines, and of blocking calls, that keep waiting goroutines from running.
//!
//! | report | when | by |
//! |---|---|---|
//! | a goroutine holds its worker | the goroutine has run for 100 ms without a switch, while another goroutine could run on that worker | the watcher |
//! | the stack of that goroutine, or that the goroutine has ended | at its next call into the runtime, or at its end | the goroutine itself |
//! | all threads for blocking calls are taken | a call has to wait for a thread | the caller |
//!
//! | `SUDOG_STALLS` | reports |
//! |---|---|
//! | not set | as with `1` in builds with debug assertions, else none |
//! | `0`, or empty | none |
//! | `1` | the three above |
//! | `20ms` | the three above, with 20 ms in the first row, measured in steps of 10 ms |
//! | anything else | ends the process |
//!
//! Reports are lines on standard error. A goroutine is reported once for each stall. Goroutines that the same code has
//! started are reported once in [`SELDOM`].
//!
//! The report shows the stack at the next call, not at the moment of the report: to walk a running stack the watcher
//! would have to interrupt the thread by a signal, which also interrupts the thread's system calls. So a report that is
//! on by default would change the behaviour of the program.

use crate::shim::system::atomic::{AtomicBool, Ordering};
use crate::shim::system::{Mutex, MutexGuard, OnceLock};
use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::fatal::{fatal, say};
use crate::goroutine::native::fibre::job::Vtable;
use crate::goroutine::native::sched::frames::frames_of_the_user;
use crate::goroutine::native::switch_hooks::{self, Leaving};

const VARIABLE: &str = "SUDOG_STALLS";
/// The time for which a goroutine may run without a switch while others wait, unless `SUDOG_STALLS` sets another time.
const LONG: Duration = Duration::from_millis(100);
/// The time from a report to the next report of goroutines that the same code has started.
const SELDOM: Duration = Duration::from_secs(10);

/// The number of bytes of stack that a goroutine must have left to look up the names of functions.
const ROOM: usize = 128 << 10;

/// The facts that a worker tells the watcher, if stalls are reported. The worker's thread and its goroutines write them,
/// but for `reported`, which the watcher sets.
#[derive(Default)]
pub(crate) struct Stall {
    running: Mutex<Option<Running>>,
    /// True if a started goroutine is in the worker's queues.
    queued: AtomicBool,
    /// True if the running goroutine has been reported, and is to show its stack.
    reported: AtomicBool,
    /// True while the running goroutine waits without switching to another goroutine.
    waits_in_place: AtomicBool,
}

/// The goroutine that runs.
pub(crate) struct Running {
    pub(crate) id: u64,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) vtable: &'static Vtable,
    /// The time at which the first timer of the worker was due when the goroutine began to run.
    pub(crate) timer: Option<Instant>,
}

impl Stall {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a goroutine has come into the worker's queues. Called by the owner.
    #[cold]
    pub(crate) fn is_queued(&self) {
        self.queued.store(true, Ordering::Relaxed);
    }

    /// Notes the goroutine that has got the worker. `queued` is true if another started goroutine is in the worker's
    /// queues.
    pub(crate) fn runs(&self, running: Running, queued: bool) {
        // The old value may have the last reference to a name, which is only text.
        let before = self.running().replace(running);
        drop(before);
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Shows the stack of the calling goroutine, if that goroutine has been reported. Called when the goroutine is about
    /// to give up its worker, or calls into the runtime. A goroutine that has ended has no stack any more.
    ///
    /// `describe` returns the goroutine's number and name, and `has_room` whether so many bytes of stack are left.
    pub(crate) fn gives_up(&self, why: Leaving, describe: impl Fn() -> String, has_room: impl Fn(usize) -> bool) {
        if self.reported.swap(false, Ordering::Relaxed) {
            match why {
                Leaving::Waits => show_stack(&describe(), has_room(ROOM)),
                Leaving::Ends => say(&format!("sudog: goroutine {} has ended\n", describe())),
            }
        }
    }

    /// Notes that the running goroutine waits without switching to another goroutine, until the result is dropped.
    pub(crate) fn wait_in_place(&self) -> InPlace<'_> {
        self.waits_in_place.store(true, Ordering::Relaxed);
        InPlace(&self.waits_in_place)
    }
}

/// A wait of the running goroutine without a switch. Ended by the drop, also in a panic.
pub(crate) struct InPlace<'a>(&'a AtomicBool);

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Returns whether reports are made.
pub(crate) fn is_reported() -> bool {
    threshold().is_some()
}

/// Returns the time for which a goroutine may run without a switch while others wait; `None`: no reports are made.
/// Reads `SUDOG_STALLS` once.
fn threshold() -> Option<Duration> {
    static THRESHOLD: OnceLock<Option<Duration>> = OnceLock::new();
    *THRESHOLD.get_or_init(|| match std::env::var_os(VARIABLE) {
        Some(value) => parse(&value).unwrap_or_else(|| {
            fatal(&format!("{VARIABLE} is {value:?}: it must be 0, 1, or a number of milliseconds such as 20ms"))
        }),
        None => cfg!(debug_assertions).then_some(LONG),
    })
}

/// Parses the value of `SUDOG_STALLS`. Returns `None` if the value is not valid.
#[allow(clippy::option_option)]
fn parse(value: &OsStr) -> Option<Option<Duration>> {
    match value.to_str()? {
        "" | "0" => Some(None),
        "1" => Some(Some(LONG)),
        time => {
            let number = time.strip_suffix("ms").filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))?;
            Some(Some(Duration::from_millis(number.parse().ok()?)))
        }
    }
}

/// Turns the observation of stalls on, if reports are made. Called before the first worker runs.
pub(crate) fn start() {
    if is_reported() {
        switch_hooks::observe_stalls();
    }
}

#[cold]
fn show_stack(goroutine: &str, has_room: bool) {
    let stack = if !has_room {
        "    (too little of the stack is left to show the stack)\n".into()
    } else {
        frames_of_the_user(&Backtrace::force_capture().to_string())
    };
    say(&format!("sudog: goroutine {goroutine} calls into the runtime again:\n{stack}"));
}

/// The watcher's memory of a worker.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) seen: u32,
    pub(crate) since: Instant,
    pub(crate) is_reported: bool,
}

/// The time of the last report for each code that has started reported goroutines. Used by the watcher only.
#[derive(Default)]
pub(crate) struct Reports(HashMap<&'static str, Instant>);

impl Reports {
    /// Looks at a worker that has made no choice for some time. `has_shared_work` returns whether the worker has queued
    /// work that came from others, or that others may take.
    pub(crate) fn look(
        &mut self,
        worker: &Stall,
        has_shared_work: impl FnOnce() -> bool,
        turn: &mut Turn,
        now: Instant,
    ) {
        let held = now - turn.since;
        if turn.is_reported || !switch_hooks::observes_stalls() {
            return;
        }
        let Some(long) = threshold().filter(|&long| held >= long) else { return };
        let text = {
            let running = worker.running();
            let Some(running) = &*running else { return };
            let waits = worker.queued.load(Ordering::Relaxed)
                || has_shared_work()
                || running.timer.is_some_and(|timer| timer + long <= now);
            if !waits {
                return;
            }
            turn.is_reported = true;
            let before = self.0.insert(running.vtable.origin(), now);
            if before.is_some_and(|before| now - before < SELDOM) {
                return;
            }
            running.report(held, worker.waits_in_place.load(Ordering::Relaxed))
        };
        worker.reported.store(true, Ordering::Relaxed);
        say(&text);
    }
}

impl Running {
    fn report(&self, held: Duration, waits: bool) -> String {
        let mut text = format!("sudog: goroutine {}", self.id);
        if let Some(name) = &self.name {
            _ = write!(text, " {name:?}");
        }
        let (does, advice) = if waits {
            (
                "has not given way",
                "it waits where a goroutine may not switch: in a destructor while it panics, or in without_switching",
            )
        } else {
            ("has run", "wrap what computes there into sudog::compute(|| ..), what blocks into sudog::blocking(|| ..)")
        };
        _ = write!(
            text,
            " {does} for {} ms, and others of its worker wait\n    started as {}\n    {advice}\n",
            held.as_millis(),
            self.vtable.origin(),
        );
        text
    }
}

/// Reports that a blocking call has to wait, as all threads for such calls are taken.
#[cold]
pub(crate) fn all_threads_are_taken(limit: usize) {
    if is_reported() {
        say(&format!(
            "sudog: all {limit} threads for blocking calls are taken, and a call waits; see set_max_blocking\n"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable() {
        for (text, threshold) in [
            ("", None),
            ("0", None),
            ("1", Some(LONG)),
            ("0ms", Some(Duration::ZERO)),
            ("20ms", Some(Duration::from_millis(20))),
        ] {
            assert_eq!(parse(OsStr::new(text)), Some(threshold), "{text:?}");
        }
        for text in ["yes", "20", "ms", "-1ms", "+1ms", "1s", "1.5ms", " 1ms", "99999999999999999999ms"] {
            assert_eq!(parse(OsStr::new(text)), None, "{text:?}");
        }
    }
}
