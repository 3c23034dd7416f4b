//! A program that waits only for a signal is no deadlock. A program whose notification has stopped, or has not begun,
//! may be.
//!
//! These tests run without the test harness, because the deadlock report must assume that any thread of the harness
//! could wake any goroutine: see `chan_fatal`.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use sudog::chan::Chan;
use sudog::{go, run};
use sudog_sync::signal::{Signal, notify, notify_context};

const CHILD: &str = "SUDOG_TEST_CHILD";

fn ready() {
    println!("ready");
}

/// Programs that wait for SIGUSR1 only, and then return.
const TESTS: &[(&str, fn())] = &[
    ("the main goroutine of run", || {
        run(|| {
            let ch = Chan::new(1);
            notify(&ch, &[Signal::USR1]);
            ready();
            assert_eq!(ch.recv(), Some(Signal::USR1));
        });
    }),
    ("a goroutine of run", || {
        run(|| {
            let (ch, done) = (Chan::new(1), Chan::<()>::new(0));
            let closed = done.clone();
            go(move || {
                notify(&ch, &[Signal::USR1]);
                ready();
                assert_eq!(ch.recv(), Some(Signal::USR1));
                closed.close();
            });
            assert_eq!(done.recv(), None);
        });
    }),
    ("a context in run", || {
        run(|| {
            let (ctx, _stop) = notify_context(&sudog::context::background(), &[Signal::USR1]);
            ready();
            ctx.wait();
        });
    }),
];

fn main() {
    if let Ok(child) = std::env::var(CHILD) {
        let (_, waits) = TESTS.iter().find(|(name, _)| *name == child).unwrap();
        return waits();
    }
    for (name, _) in TESTS {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(CHILD, name).env_remove("SUDOG_MAXPROCS").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        // Give the watcher the time to report a deadlock, in case it takes this wait for a deadlock. The result does
        // not depend on the time.
        std::thread::sleep(Duration::from_millis(200));
        // SAFETY: `kill` has no precondition. The child has not been waited for, so the id still belongs to the child.
        unsafe { libc::kill(child.id() as i32, libc::SIGUSR1) };
        let status = child.wait().unwrap();
        let mut words = String::new();
        child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
        assert!(status.success(), "{name}: {status}: {words}");
        println!("test {name} ... ok");
    }
}
