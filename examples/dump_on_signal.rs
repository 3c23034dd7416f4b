//! Dumps all goroutines on standard error at each SIGQUIT (Ctrl-\), as Go programs do. (Go then ends the process; this
//! program goes on.)
//!
//! A thread makes the dumps, so they are made even if all workers are stuck. The channel has room for one signal: signals
//! that arrive during a dump lead to one more dump.

use std::io;
use std::io::Write;
use std::thread;

use sudog::chan::{Chan, channel};
use sudog::runtime::dump;
use sudog::signal;
use sudog::signal::Signal;
use sudog::{Builder, blocking, run};

/// Runs the program.
pub fn main() {
    let quits = Chan::new(1);
    signal::notify(&quits, &[Signal::QUIT]);
    let signals = quits.clone();
    let dumper = thread::spawn(move || {
        while signals.recv().is_some() {
            // Write the text at once, so that no other output comes in between.
            let dump = dump();
            let text = format!("{} goroutines\n{dump}\n", dump.goroutines.len());
            _ = io::stderr().write_all(text.as_bytes());
        }
    });

    run(|| {
        let (tx, rx) = channel::<u32>(0);
        let reader = Builder::new().name("reader").spawn(move || rx.recv());
        println!("kill -QUIT {}, or press Enter", std::process::id());
        _ = blocking(|| io::stdin().read_line(&mut String::new()));
        drop(tx);
        _ = reader.join();
    });

    // Let the last dump end before the process does.
    signal::stop(&quits);
    quits.close();
    dumper.join().expect("a dump does not panic");
}
