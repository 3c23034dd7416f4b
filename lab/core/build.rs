//! Tells the report what it was built with: the compiler, and the versions of the peers in the lock file.

use std::process::Command;
use std::{env, fs};

const LOCK_FILE: &str = "../../Cargo.lock";

fn main() {
    println!("cargo:rerun-if-changed={LOCK_FILE}");
    println!("cargo:rustc-env=SUDOG_LAB_RUSTC={}", rustc_version().unwrap_or_else(|| "unknown".into()));
    let lock_file = fs::read_to_string(LOCK_FILE).unwrap_or_default();
    println!("cargo:rustc-env=SUDOG_LAB_PARKING_LOT={}", versions(&lock_file, "parking_lot"));
}

fn rustc_version() -> Option<String> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// Every locked version of a package.
fn versions(lock_file: &str, package: &str) -> String {
    let name = format!("name = \"{package}\"");
    let lines: Vec<&str> = lock_file.lines().collect();
    let found = lines.windows(2).filter(|pair| pair[0] == name);
    found.filter_map(|pair| pair[1].split('"').nth(1)).collect::<Vec<_>>().join(", ")
}
