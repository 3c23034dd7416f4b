//! A thread that looks for waits that take too long: see [`on_long_wait`](crate::event::Recorder::on_long_wait).
//!
//! The thread makes a dump of the long waits, and sleeps then. The sleep is [`SHARE`] times as long as the look and the
//! user's code have taken, within [`SLEEPS`], so that a program of many goroutines goes on.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use crate::goroutine::native::sched::dump;
use crate::goroutine::native::sched::dump::{Dump, Wanted};
use crate::shim::system;
use crate::shim::system::atomic::{AtomicUsize, Ordering};
use crate::shim::system::thread;

/// The shortest and the longest sleep between two looks.
const SLEEPS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));
/// The ratio of a sleep to the time that the look before has taken, if that is long.
const SHARE: u32 = 20;

/// The number of these threads that sleep and never call a user's function, for the deadlock report. A user's function may
/// end a wait, so a thread that calls such a function counts as a foreign thread.
static SLEEPING: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of these threads that sleep and never call a user's function.
pub(super) fn sleeping_threads() -> usize {
    SLEEPING.load(Ordering::Relaxed)
}

/// Starts a thread that calls `f` with the waits that have lasted for longer than `threshold`, if there is a new one.
/// Waits count whose kinds begin with one of `kinds`. The thread ends when `is_over` returns true. `is_users` is true if `f`
/// calls a function of the user.
pub(crate) fn watch(
    kinds: &'static [&'static str],
    threshold: Duration,
    is_over: impl Fn() -> bool + Send + 'static,
    is_users: bool,
    mut f: impl FnMut(&Dump) + Send + 'static,
) -> io::Result<()> {
    let shortest = (threshold / 4).clamp(SLEEPS.0, SLEEPS.1);
    let run = move || {
        let mut known = HashSet::new();
        let mut pause = shortest;
        loop {
            let counted = usize::from(!is_users);
            SLEEPING.fetch_add(counted, Ordering::Relaxed);
            thread::sleep(pause);
            SLEEPING.fetch_sub(counted, Ordering::Relaxed);
            if is_over() {
                return;
            }
            let begun = system::now();
            let dump = dump::ask(Wanted::Long { kinds, threshold });
            let waits: HashSet<_> = dump.waits().collect();
            if !waits.is_subset(&known) {
                f(&dump);
            }
            known = waits;
            let took = system::now().saturating_duration_since(begun);
            pause = took.saturating_mul(SHARE).clamp(shortest, SLEEPS.1);
        }
    };
    thread::Builder::new().name("sudog-long-wait".into()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goroutine::{go, gosched, run};
    use crate::shim::system::atomic::AtomicU32;
    use crate::{note_wait, sema};
    use std::sync::Arc;

    /// A wait that goes on is told by the first look only that sees the wait.
    #[test]
    fn a_wait_is_told_once() {
        const WAIT: &str = "a long wait of a test";
        static PERMITS: AtomicU32 = AtomicU32::new(0);
        let (told, looks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        run(|| {
            go(|| {
                note_wait(WAIT);
                sema::semacquire(&PERMITS);
            });
            let (theirs, told_before) = (told.clone(), told.clone());
            let is_over = move || told_before.load(Ordering::Relaxed) > 0 && looks.fetch_add(1, Ordering::Relaxed) == 3;
            let f = move |_: &Dump| _ = theirs.fetch_add(1, Ordering::Relaxed);
            watch(&[WAIT], Duration::from_millis(20), is_over, true, f).unwrap();
            // The closures go with the thread.
            while Arc::strong_count(&told) > 1 {
                gosched();
            }
            sema::semrelease(&PERMITS, sema::Wake::Normal);
        });
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}
