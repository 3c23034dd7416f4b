//! `SUDOG_DEBUG=schedtrace=1000`: a line about the scheduler on standard error, every 1000 ms. Go's
//! `GODEBUG=schedtrace`.
//!
//! ```text
//! SCHED 1004ms: gomaxprocs=2 idleprocs=1 threads=3 runqueue=0 [0 4] goroutines=12 running=1 runnable=4 blocking=0 waiting=7
//! ```
//!
//! `runqueue` is the length of the global queue; then come the lengths of the workers' queues.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::sync::PoisonError;
use std::time::Duration;

use crate::Instant;
use crate::fatal::{fatal, say};
use crate::goroutine::native::metrics::snapshot;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::sysmon::{self, Watch};
use crate::shim::system::{self, Mutex, OnceLock};

const VARIABLE: &str = "SUDOG_DEBUG";

/// The lines that the watcher prints.
struct SchedTrace {
    began: Instant,
    period: Duration,
    /// The time of the next line. Only the watcher takes the lock.
    next: Mutex<Instant>,
}

/// Reads `SUDOG_DEBUG`, and has the watcher print the lines that this variable asks for. Any value but `schedtrace=` and
/// a number of milliseconds is a fatal error. Only the first call has an effect.
pub(in crate::goroutine::native) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else { return };
        let period = parse(&value).unwrap_or_else(|| {
            fatal(&format!("{VARIABLE} is {value:?}: it must be schedtrace=N, a line every N milliseconds"))
        });
        let began = system::now();
        sysmon::watch_also(Box::leak(Box::new(SchedTrace { began, period, next: Mutex::new(began + period) })));
    });
}

impl Watch for SchedTrace {
    fn tick(&self, now: Instant) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= *next {
            *next = now + self.period;
            say(&line(now.saturating_duration_since(self.began)));
        }
        false
    }

    fn next_tick(&self, _now: Instant) -> Option<Instant> {
        Some(*self.next.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn parse(value: &OsStr) -> Option<Duration> {
    let number = value.to_str()?.strip_prefix("schedtrace=")?;
    let number = number.strip_prefix(|c: char| c.is_ascii_digit()).and(Some(number))?;
    number.parse().ok().filter(|&ms| ms > 0).map(Duration::from_millis)
}

fn line(time: Duration) -> String {
    let metrics = snapshot::metrics();
    let idle = metrics.max_procs.saturating_sub(metrics.workers.iter().filter(|worker| !worker.is_idle).count());
    let global = Sched::process().global_work();
    let mut line = format!(
        "SCHED {}ms: gomaxprocs={} idleprocs={idle} threads={} runqueue={global} [",
        time.as_millis(),
        metrics.max_procs,
        metrics.threads
    );
    for (i, worker) in metrics.workers.iter().enumerate() {
        _ = write!(line, "{}{}", if i == 0 { "" } else { " " }, worker.run_queue);
    }
    _ = writeln!(
        line,
        "] goroutines={} running={} runnable={} blocking={} waiting={}",
        metrics.goroutines, metrics.running, metrics.runnable, metrics.blocking, metrics.waiting
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable() {
        assert_eq!(parse(OsStr::new("schedtrace=1000")), Some(Duration::from_secs(1)));
        for text in ["", "schedtrace", "schedtrace=", "schedtrace=0", "schedtrace=-1", "schedtrace=+1", "gctrace=1"] {
            assert_eq!(parse(OsStr::new(text)), None, "{text:?}");
        }
    }
}
