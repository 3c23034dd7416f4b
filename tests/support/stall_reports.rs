//! Sets the time after which a goroutine that keeps others from its worker is reported. The time is longer than any test
//! runs: some tests keep others out on purpose, and others do so while the machine is busy.

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
