//! Runs a program under thousands of schedules, each decided by a seed.
//!
//! Each execution is a process of its own (`fork`). So a failure leaves nothing behind, all executions begin alike, and
//! a seed gives the same execution again at any time. A failure is a deadlock, a panic in any thread, or a program that
//! does not end. The explorer shortens the schedule of a failure by leaving out unneeded decisions, and prints it with
//! the steps of the threads.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::available_parallelism;

use crate::machine::explored::{Choice, Decision, Explored, Policy, TraceStep};
use crate::machine::{self, Mode};
use crate::{PRESETS, Stopped};

/// The way in which schedules are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Random: the turn of a thread ends at each step with a probability of 1 in this number.
    Random(u64),
    /// Priorities, with `n` changes of priority, where `n` is this number. Such schedules find bugs that need `n + 1`
    /// orderings of steps.
    Priorities(usize),
    /// Random or by priorities, as the seed decides: one to sixteen steps a turn, or one to four changes of priority.
    Mixed,
}

/// The settings of an exploration.
#[derive(Clone, Debug)]
pub struct Explore {
    /// The way in which schedules are decided.
    pub schedule: Schedule,
    /// True if faults happen: jumps of the clock, timers that go off while threads run, and sleepers in a futex that
    /// wake for no reason.
    pub faults: bool,
    /// The number of decisions after which a program counts as endless.
    pub most: u64,
    /// The number of shorter schedules that are tried for a failure.
    pub tries: usize,
}

impl Default for Explore {
    fn default() -> Self {
        Self { schedule: Schedule::Mixed, faults: true, most: 300_000, tries: 400 }
    }
}

/// A failure of the program, under the schedule of a seed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The panic's message, or the places of all threads.
    pub what: String,
    /// The shortest schedule that was found.
    pub schedule: Vec<Decision>,
    /// The length of the first schedule that failed.
    pub first: usize,
    /// The steps of the shortest schedule.
    pub trace: Vec<Traced>,
}

/// A step of a failure's trace, as text.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The thread's number.
    pub thread: usize,
    /// The time of the step, in simulated nanoseconds.
    pub at: u64,
    /// The kind of the step.
    pub what: String,
    /// The number of the word that the step accessed, or 0.
    pub word: usize,
    /// The place in the program.
    pub place: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, what, schedule, first, trace } = self;
        writeln!(f, "seed {seed}: {what}")?;
        writeln!(f, "schedule of {} decisions, made from {first}: {}", schedule.len(), write_schedule(schedule))?;
        const SHOWN: usize = 60;
        writeln!(f, "the last {} of {} steps:", trace.len().min(SHOWN), trace.len())?;
        for step in trace.iter().skip(trace.len().saturating_sub(SHOWN)) {
            writeln!(
                f,
                "{:>10} ns  thread {}  {} of word {}  {}",
                step.at, step.thread, step.what, step.word, step.place
            )?;
        }
        Ok(())
    }
}

impl Failure {
    /// Returns the trace as a timeline, for `chrome://tracing` or Perfetto.
    #[must_use]
    pub fn timeline(&self) -> String {
        let event = |step: &Traced| {
            let (name, place) = (&step.what, step.place.replace('\\', "/"));
            format!(
                r#"{{"name":"{name}","ph":"X","ts":{},"dur":0.01,"pid":1,"tid":{},"args":{{"word":{},"place":"{place}"}}}}"#,
                step.at as f64 / 1000.0,
                step.thread,
                step.word
            )
        };
        let events: Vec<_> = self.trace.iter().map(event).collect();
        format!("{{\"format\":\"{TIMELINE}\",\"traceEvents\":[{}]}}\n", events.join(",\n"))
    }
}

/// The version of the format of a timeline.
pub const TIMELINE: &str = "sudog-sim 1";

/// Writes a schedule as text, which [`read_schedule`] reads.
#[must_use]
pub fn write_schedule(schedule: &[Decision]) -> String {
    let word = |(at, choice): &Decision| match choice {
        Choice::Run(thread) => format!("{at}:run{thread}"),
        Choice::Timer => format!("{at}:timer"),
        Choice::Jump(ns) => format!("{at}:jump{ns}"),
        Choice::Spurious(thread) => format!("{at}:wake{thread}"),
    };
    schedule.iter().map(word).collect::<Vec<_>>().join(",")
}

/// Reads a schedule from a text of [`write_schedule`]. Returns None if the text is no schedule, or if the decisions do
/// not ascend.
#[must_use]
pub fn read_schedule(text: &str) -> Option<Vec<Decision>> {
    let word = |word: &str| {
        let (at, choice) = word.split_once(':')?;
        let number = |prefix: &str| choice.strip_prefix(prefix).and_then(|rest| rest.parse::<u64>().ok());
        let choice = match choice {
            "timer" => Choice::Timer,
            _ if choice.starts_with("run") => Choice::Run(number("run")? as usize),
            _ if choice.starts_with("jump") => Choice::Jump(number("jump")?),
            _ => Choice::Spurious(number("wake")? as usize),
        };
        Some((at.parse().ok()?, choice))
    };
    let words = text.split(',').filter(|_| !text.is_empty());
    words.map(word).collect::<Option<Vec<_>>>().filter(|schedule| schedule.is_sorted_by(|one, next| one.0 < next.0))
}

impl Explore {
    /// Runs `body` under each of these seeds until an execution fails. Returns the number of seeds, or the failure.
    ///
    /// As many executions run at a time as the calling process has processors. The calling process must have no other
    /// threads.
    ///
    /// # Errors
    ///
    /// Returns the failure of the smallest seed that fails, with a shortened schedule.
    ///
    /// # Panics
    ///
    /// Panics if the system creates no process or no pipe.
    pub fn check(&self, seeds: std::ops::Range<u64>, body: &dyn Fn()) -> Result<u64, Box<Failure>> {
        let at_a_time = available_parallelism().map_or(1, |n| n.get());
        let mut running = VecDeque::with_capacity(at_a_time);
        let mut to_start = seeds.clone();
        for seed in seeds.clone() {
            while running.len() < at_a_time
                && let Some(next) = to_start.next()
            {
                running.push_back(self.start(next, self.policy(next), false, body));
            }
            let execution = running.pop_front().expect("the execution of `seed` has been started");
            if let Some(failed) = execution.join() {
                drop(running);
                return Err(Box::new(self.shorten(seed, failed, body)));
            }
        }
        Ok(seeds.end - seeds.start)
    }

    /// Runs `body` once more under a schedule. Returns the failure, if the execution fails again.
    #[must_use]
    pub fn replay(&self, schedule: &[Decision], body: &dyn Fn()) -> Option<Failure> {
        let policy = Policy::Replay(schedule.iter().copied().collect());
        let Failed { what, schedule: found, trace } = self.fork(0, policy, true, body)?;
        Some(Failure { seed: 0, what, first: found.len(), schedule: found, trace })
    }

    fn policy(&self, seed: u64) -> Policy {
        match self.schedule {
            Schedule::Random(one_in) => Policy::Random { one_in },
            Schedule::Priorities(changes) => priorities(seed, changes, self.most),
            Schedule::Mixed if seed.is_multiple_of(2) => Policy::Random { one_in: 1 << (seed / 2 % 5) },
            Schedule::Mixed => priorities(seed, 1 + seed as usize / 2 % 4, self.most),
        }
    }

    /// Shortens a schedule: leaves out decisions that the failure does not need. Tries to leave out halves of the
    /// schedule first, then ever smaller pieces, down to single decisions.
    fn shorten(&self, seed: u64, failed: Failed, body: &dyn Fn()) -> Failure {
        let first = failed.schedule.len();
        let mut best = failed;
        let mut tries = self.tries;
        let fails = |schedule: &[Decision]| {
            let policy = Policy::Replay(schedule.iter().copied().collect());
            self.fork(seed, policy, false, body)
        };
        let mut piece = best.schedule.len().div_ceil(2);
        while piece > 0 && tries > 0 {
            let mut at = 0;
            while at < best.schedule.len() && tries > 0 {
                tries -= 1;
                let mut shorter = best.schedule.clone();
                shorter.drain(at..(at + piece).min(shorter.len()));
                match fails(&shorter) {
                    Some(failed) if failed.schedule.len() < best.schedule.len() => best = failed,
                    _ => at += piece,
                }
            }
            piece /= 2;
        }
        let policy = Policy::Replay(best.schedule.iter().copied().collect());
        let traced = self.fork(seed, policy, true, body).unwrap_or(best);
        Failure { seed, what: traced.what, schedule: traced.schedule, first, trace: traced.trace }
    }

    /// Runs an execution in a new process.
    fn fork(&self, seed: u64, policy: Policy, traced: bool, body: &dyn Fn()) -> Option<Failed> {
        self.start(seed, policy, traced, body).join()
    }

    /// Starts an execution in a new process.
    fn start(&self, seed: u64, policy: Policy, traced: bool, body: &dyn Fn()) -> Execution {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0, "a pipe: {}", io::Error::last_os_error());
        // SAFETY: this process has a single thread, by the contract of `check`. So the child has all threads that its
        // memory refers to.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "a process: {}", io::Error::last_os_error());
        // SAFETY: `pipe` has opened both descriptors, and each is given to a single `File`.
        let [read, mut write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
        if child != 0 {
            return Execution { process: child, report: read };
        }
        drop(read);
        report_exits_to(&write);
        // A panic of the machine itself must not unwind into the child's copy of `check`, whose drops kill processes.
        let code = match panic::catch_unwind(AssertUnwindSafe(|| self.execute(seed, policy, traced, body))) {
            Ok(None) => 0,
            Ok(Some(failed)) => i32::from(write.write_all(failed.to_text().as_bytes()).is_err()) + 1,
            Err(_) => 2,
        };
        // SAFETY: the child has nothing of the parent to undo, so it may end without destructors and exit handlers.
        unsafe { libc::_exit(code) }
    }

    /// Runs an execution in this process.
    fn execute(&self, seed: u64, policy: Policy, traced: bool, body: &dyn Fn()) -> Option<Failed> {
        static PANICKED: Mutex<Option<String>> = Mutex::new(None);
        panic::set_hook(Box::new(|info| {
            PANICKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(info.to_string());
        }));
        let mode = Mode::Explored(Box::new(Explored::new(policy, self.faults, seed, self.most, traced)));
        // SAFETY: `run` returns after the last use of `body`, and the process ends soon after.
        let body: &'static dyn Fn() = unsafe { std::mem::transmute::<&dyn Fn(), &'static dyn Fn()>(body) };
        let (result, _, mode) = machine::run(PRESETS[0].clone(), mode, seed, u64::MAX / 4, body);
        let panicked = PANICKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let what = match (result, panicked) {
            (_, Some(message)) => message,
            (Ok(Ok(())), None) => return None,
            (Ok(Err(_)), None) => "main panicked".into(),
            (Err(stopped), None) => describe(&stopped),
        };
        let Mode::Explored(explored) = mode else { unreachable!("schedules are explored") };
        let trace = texts(explored.trace);
        Some(Failed { what, schedule: explored.decisions, trace })
    }
}

/// An execution in a process of its own, which is killed if this is dropped before [`join`](Self::join).
struct Execution {
    /// The process, or 0 once the process has been waited for.
    process: libc::pid_t,
    /// The end of a pipe from which the failure is read.
    report: File,
}

impl Execution {
    /// Waits until the execution has ended, and returns its failure.
    fn join(mut self) -> Option<Failed> {
        let mut text = String::new();
        let read = self.report.read_to_string(&mut text);
        match self.wait() {
            0 => None,
            status if libc::WIFEXITED(status) && read.is_ok() && Failed::from_text(&text).is_some() => {
                Failed::from_text(&text)
            }
            status => Some(Failed {
                what: format!("the process ended by status {status:#x}"),
                schedule: Vec::new(),
                trace: Vec::new(),
            }),
        }
    }

    /// Waits until the process has ended, and returns the status of the process.
    fn wait(&mut self) -> libc::c_int {
        let mut status = 0;
        // SAFETY: `process` is a child of this process that has not been waited for, and `status` is writable.
        unsafe { libc::waitpid(self.process, &raw mut status, 0) };
        self.process = 0;
        status
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        if self.process != 0 {
            // SAFETY: `process` is a child of this process that has not been waited for.
            unsafe { libc::kill(self.process, libc::SIGKILL) };
            self.wait();
        }
    }
}

/// The descriptor to which the child reports its own end, if the program ends the process by `exit` or by `abort`.
static EXITS_TO: AtomicI32 = AtomicI32::new(-1);

fn report_exits_to(write: &File) {
    extern "C" fn at_exit() {
        report_exit("the program ended the process by exit");
    }
    extern "C" fn at_abort(_: i32) {
        report_exit("the program ended the process by abort");
        // SAFETY: this child has nothing to undo, so it may end without destructors and exit handlers.
        unsafe { libc::_exit(2) };
    }
    EXITS_TO.store(write.as_raw_fd(), Ordering::Relaxed);
    // SAFETY: both handlers run on the only thread of this process, inside a call of that thread to `exit` or `abort`,
    // and use only operations that are allowed there.
    unsafe {
        libc::atexit(at_exit);
        libc::signal(libc::SIGABRT, at_abort as extern "C" fn(i32) as libc::sighandler_t);
    }
}

fn report_exit(what: &str) {
    let Some((schedule, trace)) = machine::explored_so_far() else { return };
    let failed = Failed { what: what.into(), schedule, trace: texts(trace) };
    // SAFETY: the descriptor is the pipe's end, which lives as long as this process; `ManuallyDrop` keeps the `File`
    // from closing it.
    let mut write = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(EXITS_TO.load(Ordering::Relaxed)) });
    drop(write.write_all(failed.to_text().as_bytes()));
}

fn texts(trace: Option<Vec<TraceStep>>) -> Vec<Traced> {
    let text = |step: TraceStep| Traced {
        thread: step.thread,
        at: step.at,
        what: step.what.into(),
        word: step.word,
        place: step.place.to_string(),
    };
    trace.into_iter().flatten().map(text).collect()
}

fn describe(stopped: &Stopped) -> String {
    stopped.to_string()
}

fn priorities(seed: u64, changes: usize, most: u64) -> Policy {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // The lengths of executions are not known, and most executions are short. So draw the range of the changes, too.
    let reach = (64 << (random() % 10)).min(most);
    let changes = (0..changes).map(|_| random() % reach).collect();
    Policy::Priorities { of: Vec::new(), lowest: 1 << 31, changes }
}

/// The failure that a child reports.
#[derive(Debug)]
struct Failed {
    what: String,
    schedule: Vec<Decision>,
    trace: Vec<Traced>,
}

impl Failed {
    fn to_text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.what.replace('\n', "\u{1}"), write_schedule(&self.schedule));
        for Traced { thread, at, what, word, place } in &self.trace {
            text += &format!("{thread}\t{at}\t{what}\t{word}\t{place}\n");
        }
        text
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let what = lines.next()?.replace('\u{1}', "\n");
        let schedule = read_schedule(lines.next()?)?;
        let step = |line: &str| {
            let mut cells = line.split('\t');
            let mut next = || cells.next();
            Some(Traced {
                thread: next()?.parse().ok()?,
                at: next()?.parse().ok()?,
                what: next()?.into(),
                word: next()?.parse().ok()?,
                place: next()?.into(),
            })
        };
        Some(Self { what, schedule, trace: lines.map(step).collect::<Option<_>>()? })
    }
}
