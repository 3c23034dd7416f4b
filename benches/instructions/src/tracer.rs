//! Counts the instructions of a child process, one at a time (ptrace's single steps).
//!
//! | child | tracer |
//! |---|---|
//! | the thread that runs the path: [`begin`] asks for a tracer and stops | reads the child's map, steps the thread |
//! | [`mark`], at the start of each round and after the last | stores the count since the last `mark` |
//! | [`end`] stops | lets the child go |
//!
//! All other threads of the child stand still meanwhile: else the goroutines' watcher would find a worker that takes
//! ten thousand times as long as usual, and ask that worker to give way.

use std::fs;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::process::{self, Child};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The counts of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Instructions of the program itself.
    pub own: u64,
    /// Calls into libraries and the kernel's clock, each counted as one.
    pub foreign: u64,
}

/// The exit code of a child that may not be traced.
const NO_TRACING: i32 = 77;

/// Asks for a tracer for this thread, and waits for the tracer.
pub fn begin() {
    if ptrace::traceme().is_err() {
        process::exit(NO_TRACING);
    }
    raise(Signal::SIGSTOP).expect("a stop");
}

/// Stops for the tracer a second time, which lets this thread go.
pub fn end() {
    raise(Signal::SIGSTOP).expect("a stop");
}

/// Marks the beginning of a round: the tracer recognises the address of this function.
#[inline(never)]
pub extern "C" fn mark() {
    black_box(0x006d_6172_6b00_u64); // a number of no other function: the linker must not merge this one
}

/// Returns the counts of the rounds, each between two [`mark`]s.
///
/// # Errors
///
/// [`Unsupported`](io::ErrorKind::Unsupported) if this system allows no tracing, as some sandboxes do; others if the child
/// ends too early.
pub fn rounds(child: &mut Child) -> io::Result<Vec<Count>> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let thread = match waitpid(None, Some(WaitPidFlag::__WALL))? {
        WaitStatus::Stopped(thread, Signal::SIGSTOP) => thread,
        WaitStatus::Exited(_, NO_TRACING) => return Err(io::ErrorKind::Unsupported.into()),
        other => return Err(io::Error::other(format!("the child did not stop: {other:?}"))),
    };
    let others = stop_others(pid, thread)?;
    let counts = beside(thread, || step(pid, thread));
    if counts.is_err() {
        child.kill()?;
    } else {
        for thread in others.into_iter().chain([thread]) {
            ptrace::detach(thread, None)?;
        }
    }
    let status = child.wait()?;
    match counts {
        Ok(counts) if status.success() => Ok(counts),
        Ok(_) => Err(io::Error::other(format!("the child ended by {status}"))),
        Err(error) => Err(error),
    }
}

/// Runs `f` with this thread and `thread` on one processor: a step is two switches between them, which takes six times as long from
/// processor to processor. The path has learnt before how many processors it may use.
fn beside<T>(thread: Pid, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let (this, all) = (Pid::from_raw(0), sched_getaffinity(Pid::from_raw(0))?);
    let mut one = CpuSet::new();
    one.set((0..CpuSet::count()).rfind(|&n| all.is_set(n).unwrap_or(false)).unwrap_or(0))?;
    sched_setaffinity(this, &one)?;
    sched_setaffinity(thread, &one)?;
    let result = f();
    sched_setaffinity(this, &all)?;
    result
}

/// Stops all threads of the process except `but`, and returns the ids of the stopped threads.
fn stop_others(pid: Pid, but: Pid) -> io::Result<Vec<Pid>> {
    let mut stopped = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = entry?.file_name();
        let thread = Pid::from_raw(name.to_string_lossy().parse().map_err(io::Error::other)?);
        if thread != but {
            ptrace::seize(thread, ptrace::Options::empty())?;
            ptrace::interrupt(thread)?;
            waitpid(thread, Some(WaitPidFlag::__WALL))?;
            stopped.push(thread);
        }
    }
    Ok(stopped)
}

fn step(pid: Pid, thread: Pid) -> io::Result<Vec<Count>> {
    let map = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let program = fs::read_link(format!("/proc/{pid}/exe"))?;
    let program = executable_part(&map, &program.to_string_lossy())
        .ok_or_else(|| io::Error::other("the child's map has no code of the program"))?;
    // The same program is mapped in this process at another address, but at the same distance from the start.
    let ours =
        executable_part(&fs::read_to_string("/proc/self/maps")?, &fs::read_link("/proc/self/exe")?.to_string_lossy())
            .ok_or_else(|| io::Error::other("the own map has no code of the program"))?;
    let mark = program.start + (mark as *const () as u64 - ours.start);

    let mut rounds = Vec::new();
    let mut count = Count { own: 0, foreign: 0 };
    let mut marked = false;
    let mut inside = true;
    loop {
        ptrace::step(thread, None)?;
        match waitpid(thread, Some(WaitPidFlag::__WALL))? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Stopped(_, Signal::SIGSTOP) => return Ok(rounds),
            WaitStatus::Stopped(_, signal) => {
                return Err(io::Error::other(format!("the path was interrupted by {signal}")));
            }
            other => return Err(io::Error::other(format!("the path did not reach its end: {other:?}"))),
        }
        let at = match ptrace::getregs(thread) {
            Ok(registers) => registers.rip,
            Err(Errno::ESRCH) => return Err(io::Error::other("the child ended within the path")),
            Err(error) => return Err(error.into()),
        };
        if at == mark {
            if marked {
                rounds.push(count);
            }
            marked = true;
            count = Count { own: 0, foreign: 0 };
        }
        if program.contains(&at) {
            count.own += 1;
            inside = true;
        } else if inside {
            count.foreign += 1;
            inside = false;
        }
    }
}

/// Returns the addresses of the code of `program` in a map of `/proc`.
fn executable_part(map: &str, program: &str) -> Option<Range<u64>> {
    let line = map
        .lines()
        .find(|line| line.ends_with(program) && line.split_whitespace().nth(1).is_some_and(|p| p.contains('x')))?;
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
}
