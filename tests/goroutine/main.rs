//! Goroutines, timers, tasks and channels. Apart from `behaviour`, because some of these tests set the number of workers, or
//! keep them busy; those take turns (`support::goroutine::alone`).
#![cfg(all(unix, not(sudog_loom)))]

mod basics;
mod chan;
mod compute;
mod coop;
mod csp;
mod dump;
mod edges;
mod fair;
mod large;
mod safepoints;
mod scope;
mod select_future;
mod sync;
mod synctest;
mod tasks;
mod time;
mod together;
mod user_code;
mod waiting_array;
mod yields;

/// Sets the time after which a goroutine that keeps others from its worker is reported. The time is longer than any test
/// runs: some tests keep others out on purpose, and others do so while the machine is busy.
#[cfg(target_os = "linux")]
mod stall_reports {
    extern "C" fn postpone() {
        // In builds without debug assertions there are no reports by default: leave that so.
        if cfg!(debug_assertions) && std::env::var_os("SUDOG_STALLS").is_none() {
            // SAFETY: the loader calls this function before `main`, while the process has one thread.
            unsafe { std::env::set_var("SUDOG_STALLS", "60000ms") };
        }
    }

    // SAFETY: the loader calls each function in this section, and `postpone` takes none of the arguments.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static POSTPONE: extern "C" fn() = postpone;
}
