//! The memory of a task that waits, and that a task that has ended leaves no memory behind.

use std::sync::atomic::AtomicU32;

use sudog::low_level::sema::{semacquire_async, semrelease_many, waiters};
use sudog::runtime::{num_goroutine, set_max_procs};
use sudog::{go_async, run};
use support::counting::live_bytes;
use support::goroutine::until;
use support::{Watchdog, test_command};

const CROWD: usize = 1000;

const MOST: usize = 250;

/// Runs all tasks on a single worker, because bytes are counted for each thread. The tasks run in rounds: the first
/// round makes room that later rounds use again.
///
/// Runs in a child process without reports: with reports, as in debug builds, tasks are listed for dumps.
#[test]
fn memory_of_tasks() {
    static GATE: AtomicU32 = AtomicU32::new(0);
    const REPORTS: &str = "SUDOG_STALLS";
    if std::env::var(REPORTS).as_deref() != Ok("0") {
        let child = test_command(module_path!(), "memory_of_tasks").env(REPORTS, "0").output().unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        return;
    }
    let _watchdog = Watchdog::new();
    set_max_procs(1); // before `run`: the main goroutine stays on the worker where it has begun
    run(|| {
        let mut ends = Vec::new();
        let rounds = [(); 4].map(|()| {
            let before = live_bytes();
            (0..CROWD).for_each(|_| go_async(semacquire_async(&GATE)));
            until(|| waiters(&GATE) == CROWD);
            let each = live_bytes().wrapping_sub(before) / CROWD;
            semrelease_many(&GATE, CROWD as u32);
            until(|| num_goroutine() == 1);
            ends.push(live_bytes());
            each
        });
        assert!(rounds[3] <= MOST, "bytes for each task that waits: {rounds:?}");
        let more = ends[3].wrapping_sub(ends[0]) as isize;
        assert!(more < CROWD as isize, "{more} bytes are left of {} tasks", 3 * CROWD);
    });
}
