//! The numbers of instructions of short paths, for which a clock is too coarse.
//!
//! `cargo instructions` counts the instructions, `cargo instructions --check` compares the counts with `counts.tsv` and
//! fails if any count differs, `cargo instructions --write` writes that file anew. `--features event` after `cargo run
//! --release -p sudog-instructions` is for locks that report.
//!
//! A count is that of the fourth of [`paths::COUNTED`] rounds in ascending order, after [`paths::WARM_UP`] other
//! rounds: most paths take the same number in each round, but a `select` tosses a coin for its order. The count
//! includes all instructions of the program itself, std included; those that lock a cache line are counted apart, too, as
//! these take 2 ns on one machine and 8 on another. Each call into the C library or the kernel's clock is
//! counted as one, in a separate count, as the number of instructions inside differs between machines.

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod figures;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod paths;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod tracer;

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn main() -> std::process::ExitCode {
    figures::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
fn main() {
    println!("instructions are counted on x86-64 Linux with glibc alone: nothing was counted");
}
