//! A scheduler that is run again, and whose fibres stay where they hang in between.

use std::fmt;
use std::time::Duration;
use sudog_runtime::shim::system::thread::{self, ThreadId};

use sudog_runtime::chan::Chan;
use sudog_runtime::goroutine::{Builder, Placement, Scheduler, forbid_in_child, gosched, is_alone, sleep};

/// Fibres with a thread of their own: the source's scheduler, which can be run again. A fibre that hangs when
/// [`run`](ActiveSet::run) returns goes on in a later `run`, if that brings its partner. The set is emptied when it is
/// dropped: the fibres that hang then are unwound.
///
/// Different from the source: a partner outside (a thread, a goroutine of another scheduler) may meet a fibre of the set at
/// any time, and the fibre then goes on at once, `run` or not.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use sudog::csp::{ActiveSet, make_channel};
///
/// let sum = Arc::new(Mutex::new(0));
/// let [mut numbers, mut input] = make_channel::<u32, 2>();
/// let mut set = ActiveSet::new();
/// let total = sum.clone();
/// set.run(move || {
///     while let Ok(n) = input.read() {
///         *total.lock().unwrap() += n;
///     }
/// });
/// assert_eq!(*sum.lock().unwrap(), 0); // it hangs
/// set.run(move || (1..=4).for_each(|n| numbers.write(n).unwrap()));
/// assert_eq!(*sum.lock().unwrap(), 10);
/// ```
pub struct ActiveSet {
    jobs: Chan<Job>,
    /// Closed when all fibres have ended.
    ended: Chan<()>,
    thread: ThreadId,
}

struct Job {
    main: Box<dyn FnOnce() + Send>,
    /// Closed when the set has nothing to do.
    done: Chan<()>,
}

impl ActiveSet {
    /// A set without fibres.
    ///
    /// # Panics
    ///
    /// If the system has no thread for it.
    #[must_use]
    pub fn new() -> Self {
        let (jobs, ended) = (Chan::new(0), Chan::new(0));
        let (of_set, last) = (jobs.clone(), ended.clone());
        let thread = thread::Builder::new().name("sudog-csp".into()).spawn(move || {
            let _last = ClosedOnDrop(last);
            let scheduler = Scheduler::new();
            // It is not at rest before the set is dropped.
            let stays = scheduler.keep_alive();
            scheduler.run(move || {
                while let Some(job) = of_set.recv() {
                    serve(job);
                }
                drop(stays);
            });
        });
        let thread = thread.expect("a thread for the fibres of the set").thread().id();
        Self { jobs, ended, thread }
    }

    /// Runs `main` as a fibre of the set, and all that can run with it; returns when nothing can: no fibre is ready, none
    /// sleeps, and no blocking call is under way.
    ///
    /// A panic in a fibre ends the process, as in [`go`](fn@sudog_runtime::goroutine::go).
    pub fn run(&mut self, main: impl FnOnce() + Send + 'static) {
        forbid_in_child();
        let done = Chan::new(0);
        self.jobs.send(Job { main: Box::new(main), done: done.clone() });
        done.recv();
    }
}

fn serve(Job { main, done }: Job) {
    const LOOK: Duration = Duration::from_micros(100);
    let _done = ClosedOnDrop(done);
    Builder::new().on(Placement::Here).go(main);
    loop {
        gosched();
        match is_alone() {
            // One source of work from outside is the set itself.
            None | Some((true, ..=1)) => return,
            // What comes by the clock, or from a blocking call, comes later.
            Some(_) => sleep(LOOK),
        }
    }
}

struct ClosedOnDrop(Chan<()>);

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for ActiveSet {
    /// Unwinds the fibres that hang, and waits for their ends; unless one of them drops the set: then they end as they are
    /// unwound, after this call.
    fn drop(&mut self) {
        forbid_in_child();
        self.jobs.close();
        if thread::current().id() != self.thread {
            self.ended.recv();
        }
    }
}

impl Default for ActiveSet {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ActiveSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("ActiveSet")
    }
}
