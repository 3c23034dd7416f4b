//! Deadlock reports about goroutines that wait on channels, in Go's words. Each test is a child process.
//!
//! These tests run without the test harness, because the deadlock report must assume that any thread of the harness
//! could wake any goroutine.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

use std::process::Command;

use sudog::chan::{Chan, select};
use sudog::{go, run};

const CHILD: &str = "SUDOG_TEST_CHILD";

const TESTS: &[(&str, fn())] = &[
    ("chan receive", || _ = Chan::<u32>::new(0).recv()),
    ("chan send", || {
        let ch = Chan::new(1);
        ch.send(1);
        ch.send(2);
    }),
    ("chan receive (nil chan)", || _ = Chan::<u32>::nil().recv()),
    ("chan send (nil chan)", || Chan::nil().send(1)),
    ("select", || {
        let (a, b) = (Chan::<u32>::new(0), Chan::<u32>::new(0));
        select! {
            recv(a) => {}
            send(b, 1) => {}
        }
    }),
    ("select (no cases)", || select! {}),
];

fn main() {
    if let Ok(child) = std::env::var(CHILD) {
        let (_, waits) = TESTS.iter().find(|(what, _)| *what == child).unwrap();
        return run(|| {
            go(waits);
            waits();
        });
    }
    for (what, _) in TESTS {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.env(CHILD, what).env_remove("SUDOG_MAXPROCS").output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains("fatal error: all goroutines are asleep - deadlock!"), "{words}");
        assert_eq!(words.matches(&format!("[{what}, ")).count(), 2, "{words}");
        println!("test {what} ... ok");
    }
}
