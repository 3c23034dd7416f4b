//! Tells the program which compiler builds it.

use std::env;
use std::process::Command;

fn main() {
    let rustc = env::var_os("RUSTC").expect("cargo sets it");
    let output = Command::new(rustc).arg("--version").output().expect("a compiler");
    println!("cargo::rustc-env=SUDOG_RUSTC={}", String::from_utf8_lossy(&output.stdout).trim());
}
