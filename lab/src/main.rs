//! The command-line laboratory.

fn main() -> std::process::ExitCode {
    sudog_lab::main()
}
