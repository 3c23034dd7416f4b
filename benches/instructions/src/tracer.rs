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
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Instructions of the program itself.
    pub own: u64,
    /// Those of `own` that lock a cache line: see [`is_locked`].
    pub locked: u64,
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
    let (program, offset) = executable_part(&map, &program.to_string_lossy())
        .ok_or_else(|| io::Error::other("the child's map has no code of the program"))?;
    let code = fs::read(format!("/proc/{pid}/exe"))?;
    let code = code.get(offset..).ok_or_else(|| io::Error::other("the program's file is too short"))?;
    // The same program is mapped in this process at another address, but at the same distance from the start.
    let (ours, _) =
        executable_part(&fs::read_to_string("/proc/self/maps")?, &fs::read_link("/proc/self/exe")?.to_string_lossy())
            .ok_or_else(|| io::Error::other("the own map has no code of the program"))?;
    let mark = program.start + (mark as *const () as u64 - ours.start);

    let mut rounds = Vec::new();
    let mut count = Count::default();
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
            count = Count::default();
        }
        if program.contains(&at) {
            count.own += 1;
            count.locked += u64::from(code.get((at - program.start) as usize..).is_some_and(is_locked));
            inside = true;
        } else if inside {
            count.foreign += 1;
            inside = false;
        }
    }
}

/// Returns whether the code begins with an instruction that locks a cache line: an instruction with the prefix `lock`, or an
/// exchange with memory, which needs no prefix. Intel's manual, volume 2, sections 2.1.1 (prefixes) and 2.2.1 (REX).
fn is_locked(code: &[u8]) -> bool {
    const LOCK: u8 = 0xf0;
    const OTHER_PREFIXES: [u8; 10] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3];
    let prefixes = code.iter().take_while(|byte| **byte == LOCK || OTHER_PREFIXES.contains(byte)).count();
    let (prefixes, mut rest) = code.split_at(prefixes);
    if let [0x40..0x50, after @ ..] = rest {
        rest = after;
    }
    let is_exchange = matches!(rest, [0x86 | 0x87, operands, ..] if operands >> 6 != 3);
    prefixes.contains(&LOCK) || is_exchange
}

/// Returns the addresses of the code of `program` in a map of `/proc`, and the offset of that code in the program's file.
fn executable_part(map: &str, program: &str) -> Option<(Range<u64>, usize)> {
    let line = map
        .lines()
        .find(|line| line.ends_with(program) && line.split_whitespace().nth(1).is_some_and(|p| p.contains('x')))?;
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let offset = usize::from_str_radix(words.nth(1)?, 16).ok()?;
    Some((u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_instructions_are_told_from_others() {
        let locked: [&[u8]; 5] = [
            &[0xf0, 0x80, 0x0c, 0x24, 0x00],       // lock or byte ptr [rsp], 0
            &[0xf0, 0x48, 0x0f, 0xb1, 0x11],       // lock cmpxchg [rcx], rdx
            &[0x66, 0xf0, 0x0f, 0xc1, 0x07],       // lock xadd [rdi], ax
            &[0x87, 0x07],                         // xchg [rdi], eax
            &[0x64, 0x48, 0x87, 0x04, 0x25, 0, 0], // xchg fs:[0], rax
        ];
        let others: [&[u8]; 6] = [
            &[0x87, 0xc1],       // xchg ecx, eax
            &[0x48, 0x89, 0x07], // mov [rdi], rax
            &[0x0f, 0xae, 0xf0], // mfence
            &[0x66, 0x90],       // xchg ax, ax: a nop
            &[0xf3, 0x90],       // pause
            &[],
        ];
        assert!(locked.iter().all(|code| is_locked(code)));
        assert!(!others.iter().any(|code| is_locked(code)));
    }

    #[test]
    fn the_code_of_a_program_is_found_in_a_map() {
        let map = "5000-6000 r--p 00000000 fe:00 1 /a/program\n6000-9000 r-xp 00001000 fe:00 1 /a/program\n";
        assert_eq!(executable_part(map, "/a/program"), Some((0x6000..0x9000, 0x1000)));
        assert_eq!(executable_part(map, "/another"), None);
    }
}
