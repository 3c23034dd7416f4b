//! The example `dump_on_signal`, in a child process that gets signals, also many during a dump: each dump is whole, and the
//! program ends.
#![cfg(all(unix, not(sudog_loom)))]

#[path = "../../examples/dump_on_signal.rs"]
mod example;

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, Command, Stdio};

/// If set, this process is the child.
const CHILD: &str = "SUDOG_TEST_CHILD";

/// Reads a dump, which ends with an empty line.
fn read_dump(stderr: &mut BufReader<ChildStderr>) -> String {
    let mut text = String::new();
    while !text.ends_with("\n\n") {
        assert!(stderr.read_line(&mut text).unwrap() > 0, "the child has ended after {text:?}");
    }
    text
}

/// Checks that a dump is whole: it has as many goroutines as its first line says.
fn check(dump: &str) {
    let count: usize = dump.split_once(" goroutines\n").and_then(|(count, _)| count.parse().ok()).expect(dump);
    assert_eq!(dump.lines().filter(|line| line.starts_with("goroutine ")).count(), count, "{dump:?}");
}

fn main() {
    if env::var_os(CHILD).is_some() {
        return example::main();
    }
    let mut child = Command::new(env::current_exe().unwrap());
    child.env(CHILD, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    // SAFETY: `kill` has no precondition. The child has not been waited for, so the id still belongs to the child.
    let quit = |id: u32| assert_eq!(unsafe { libc::kill(id as i32, libc::SIGQUIT) }, 0);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("kill -QUIT "), "{line:?}");

    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    // The reader may still be about to wait when the first dump is made.
    loop {
        quit(child.id());
        let dump = read_dump(&mut stderr);
        check(&dump);
        if dump.contains(" \"reader\" [chan receive, ") {
            break;
        }
    }
    (0..200).for_each(|_| quit(child.id()));
    drop(child.stdin.take());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {rest}");
    assert!(rest.ends_with("\n\n"), "the last dump is whole: {rest:?}");
    let dumps: Vec<_> = rest.split_inclusive("\n\n").collect();
    dumps.iter().for_each(|dump| check(dump));
    assert!(dumps.len() <= 200, "{}", dumps.len());
    println!("test a_dump_at_each_signal ... ok");
}
