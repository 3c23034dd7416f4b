//! Helpers that call the laboratory.

#![allow(dead_code)] // each test crate uses only some

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

pub fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sudog-lab")).args(arguments).output().unwrap()
}

#[track_caller]
pub fn stdout(arguments: &[&str]) -> String {
    let output = lab(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Parses every line of the output, which is JSON.
#[track_caller]
pub fn records(arguments: &[&str]) -> Vec<Value> {
    stdout(arguments).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks that the command is refused in a single line that contains `because`, and prints nothing else.
#[track_caller]
pub fn refused(arguments: &[&str], because: &str) {
    refused_by(&lab(arguments), arguments, because);
}

#[track_caller]
pub fn refused_by(output: &Output, arguments: &[&str], because: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(because), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

/// An empty folder for a test.
pub fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

pub fn has_fields(record: &Value, fields: &[&str]) {
    for field in fields {
        assert!(record.get(field).is_some(), "{field} is missing in {record}");
    }
}
