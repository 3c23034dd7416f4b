//! Noise as a condition of a measurement: busy neighbours, and a single processor for all threads.

use std::env;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
#[cfg(unix)]
use sudog_runtime::goroutine;
use sudog_runtime::spin;

use super::pinned::{self, Pinned};
use crate::options::number;
use crate::output::Output;
use crate::output::failure::Failure;

/// The command that is a busy loop.
pub const BUSY: &str = "busy-child";
/// The longest life of a busy loop whose command never ends.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// Conditions of a measurement.
#[derive(Args, Clone, Copy, Default, Debug, Serialize)]
pub struct Noise {
    /// Busy loops beside the command, each in a process that ends with the command
    #[arg(long, global = true, value_name = "N", default_value_t = 0, value_parser = number::<0, 256>)]
    pub beside: usize,

    /// Run all threads of a measured process on one processor, after the process has counted its processors
    #[arg(long, global = true)]
    pub one_processor: bool,
}

#[derive(Serialize)]
struct Record {
    bench: &'static str,
    #[serde(flatten)]
    noise: Noise,
}

static NOISE: OnceLock<Noise> = OnceLock::new();

/// Returns the conditions of this command.
pub fn noise() -> Noise {
    NOISE.get().copied().unwrap_or_default()
}

/// The process of a command's measured threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measured {
    /// This process.
    Here,
    /// Processes that this process starts, and that bind themselves.
    InChildren,
    /// This process, started by another process, which prints the conditions.
    IsChild,
}

/// The busy loops. They end when this value is dropped.
#[derive(Debug)]
pub struct Neighbours(Vec<Child>);

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Noise {
    /// Starts the busy loops, binds this process if its threads are measured, and prints the conditions.
    pub fn begin(self, measured: Measured, output: Output) -> Result<Neighbours, Failure> {
        NOISE.set(self).expect("one command in a process");
        let neighbours = (0..self.beside).map(|_| busy_loop()).collect::<io::Result<_>>();
        let neighbours = neighbours.map_err(|error| Failure::Run(format!("a busy loop does not start: {error}")))?;
        if self.one_processor && measured != Measured::InChildren {
            bind_here();
        }
        if measured != Measured::IsChild && (self.beside > 0 || self.one_processor) {
            output.record(&Record { bench: "noise", noise: self })?;
            let loops = if self.beside == 1 { "busy loop" } else { "busy loops" };
            let processors = if self.one_processor { "one processor" } else { "all processors" };
            output.text(format_args!("Beside {} {loops}, on {processors}.", self.beside))?;
        }
        Ok(Neighbours(neighbours))
    }

    /// Passes the option on to a child process of this program that measures.
    pub fn ask(self, command: &mut Command) {
        if self.one_processor {
            command.arg("--one-processor");
        }
    }

    /// Binds the calling thread, and the threads and processes that the calling thread starts, to one processor for as
    /// long as the result lives, if the option was given. (Another program finds one processor when it counts its
    /// processors.)
    pub fn bind_what_starts(self) -> Option<Pinned> {
        self.one_processor.then(|| Pinned::to(0))
    }
}

fn busy_loop() -> io::Result<Child> {
    // The loop ends when this process ends: then no process holds the other end of the loop's input.
    Command::new(env::current_exe()?).arg(BUSY).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
}

/// Ends this process when the standard input ends, as the process at the other end has ended.
pub fn end_with_input() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
}

/// Loops until the standard input ends.
pub fn be_busy() -> ! {
    end_with_input();
    thread::spawn(|| {
        thread::sleep(LONGEST);
        std::process::exit(0);
    });
    loop {
        std::hint::spin_loop();
    }
}

/// Binds the threads of this process, and the threads that are started from now on, to one processor. The runtime
/// counts all processors first, as in a program whose threads the system has put on one of several processors.
fn bind_here() {
    let _ = spin::can_spin(0, 1);
    #[cfg(unix)]
    let _ = goroutine::max_procs();
    pinned::bind_process();
}
