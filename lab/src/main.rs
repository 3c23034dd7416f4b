//! The command-line laboratory.

/// The allocator of simulations: allocations lie at the same addresses in each process.
#[cfg(sudog_sim)]
#[global_allocator]
static ARENA: sudog_sim::Arena = sudog_sim::Arena;

fn main() -> std::process::ExitCode {
    sudog_lab::main()
}
