//! How many instructions short paths take: what a clock is too coarse for.
//!
//! `cargo instructions` counts them, `cargo instructions --check` compares them with `counts.tsv` and fails if one differs,
//! `cargo instructions --write` writes that file anew. `--features event` after `cargo run --release -p sudog-instructions`
//! is for locks that report.
//!
//! A count is that of the fourth of [`paths::COUNTED`] rounds in ascending order, after [`paths::WARM_UP`] others: most paths
//! take the same in each round, and a `select` tosses a coin for its order. It takes in what the program executes of
//! itself, std included. Calls into the C library and the kernel's clock are counted apart, each as one: what they execute
//! differs between machines.

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
