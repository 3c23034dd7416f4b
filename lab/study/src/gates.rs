//! The study of gates: a whole chain of waiters is woken, either by the waker, which opens all gates, or systolically,
//! as in listing 3 of the paper on waiting arrays: the waker opens the first gate, and each waiter that wakes opens the
//! gate of the waiter beneath.
//!
//! ```text
//!   chain ─▶ e3 ─▶ e2 ─▶ e1 ─▶ e0      all: the waker opens e3, e2, e1, e0
//!                                      systolic: the waker opens e3, its owner e2, that one's owner e1, ...
//! ```
//!
//! Threads push themselves on a chain; when all wait, the waker detaches the chain and wakes them. The times are
//! measured from there: the time that the waker takes, and the times at which the first and the last waiter run.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use crossbeam_utils::CachePadded;
use serde::Serialize;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::atomic::{AtomicBool, AtomicUsize, Ordering};
use sudog_runtime::shim::system::thread;
use sudog_runtime::{Instant, spin};
use sudog_sync::semaphore::RuntimeSema;
use sudog_sync::{Order, Semaphore, Wake};

use crate::measure::metrics::median;
use crate::options::{List, MAX_RUNS, MAX_THREADS, number, numbers};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::{Contenders, Gate};
use crate::targets::registry::names;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct GatesArgs {
    /// Numbers of waiters in the chain
    #[arg(long, value_name = "N,N", default_value = "1,2,4,8,16", value_parser = numbers::<1, MAX_THREADS>)]
    pub ns: List<usize>,

    /// Number of times that each chain is woken
    #[arg(long, value_name = "N", default_value_t = 51, value_parser = number::<1, MAX_RUNS>)]
    pub rounds: usize,
}

/// A gate at which a waiter waits.
pub trait Wicket: Default + Send + Sync + 'static {
    /// Waits until the gate is open, and shuts the gate.
    fn pass(&self);

    /// Opens the gate.
    fn open(&self);
}

/// A gate whose waiter spins.
#[derive(Default)]
pub struct Spinning(AtomicBool);

impl Wicket for Spinning {
    fn pass(&self) {
        while !self.0.load(Ordering::Acquire) {
            spin::do_spin(1);
        }
        self.0.store(false, Ordering::Relaxed);
    }

    fn open(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A gate whose waiter sleeps.
pub struct Sleeping(RuntimeSema);

impl Default for Sleeping {
    fn default() -> Self {
        Self(RuntimeSema::new(0))
    }
}

impl Wicket for Sleeping {
    fn pass(&self) {
        self.0.acquire(Order::Fifo);
    }

    fn open(&self) {
        self.0.release(Wake::Normal);
    }
}

names! {
    /// The name of a way to wait.
    enum WicketName;
    unknown "way to wait";
    Spin = "spin", "waiters spin";
    Sleep = "sleep", "waiters sleep";
}

names! {
    /// The gates that the waker opens.
    enum Wakes;
    unknown "way to wake";
    All = "all", "All gates.";
    Systolic = "systolic", "The first gate; each waiter that wakes opens the next.";
}

struct Element<W> {
    wicket: W,
    /// The number of the element that was on top before, plus one.
    below: AtomicUsize,
}

/// The chain, and the counts by which waiters and waker keep step.
struct Arena<W> {
    wakes: Wakes,
    rounds: usize,
    elements: Box<[CachePadded<Element<W>>]>,
    /// The number of the element on top, plus one.
    top: CachePadded<AtomicUsize>,
    pushed: CachePadded<AtomicUsize>,
    awake: CachePadded<AtomicUsize>,
    /// The number of rounds that have begun.
    round: CachePadded<AtomicUsize>,
}

/// The parameters of a run.
#[derive(Clone, Copy)]
struct Run {
    wakes: Wakes,
    n: usize,
    rounds: usize,
}

/// Medians over the rounds, in nanoseconds.
#[derive(Clone, Copy, Serialize, Debug)]
struct GatesRecord {
    bench: &'static str,
    wait: WicketName,
    wakes: Wakes,
    n: usize,
    rounds: usize,
    waker_ns: f64,
    first_ns: f64,
    last_ns: f64,
}

impl<W: Wicket> Arena<W> {
    fn open_all(&self, mut next: usize) {
        while next > 0 {
            let element = &self.elements[next - 1];
            // Read before opening the gate: afterwards the owner of the element pushes it again.
            next = element.below.load(Ordering::Relaxed);
            element.wicket.open();
        }
    }

    /// Runs the loop of a waiter. Returns the time at which the waiter woke, for each round.
    fn wait(&self, me: usize, gate: &Gate) -> Vec<Instant> {
        let element = &self.elements[me];
        let mut woken = Vec::with_capacity(self.rounds);
        if !gate.wait() {
            return woken;
        }
        for round in 1..=self.rounds {
            while self.round.load(Ordering::Acquire) < round {
                thread::yield_now();
            }
            let below = self.top.swap(me + 1, Ordering::AcqRel);
            element.below.store(below, Ordering::Relaxed);
            self.pushed.fetch_add(1, Ordering::Release);
            element.wicket.pass();
            if self.wakes == Wakes::Systolic && below > 0 {
                self.elements[below - 1].wicket.open();
            }
            woken.push(system::now());
            self.awake.fetch_add(1, Ordering::Release);
        }
        woken
    }

    /// Runs the loop of the waker. Returns the time at which each round began, and the length of the waker's own part.
    fn wake(&self, gate: &Gate) -> Vec<(Instant, Duration)> {
        gate.open(true);
        let all = self.elements.len();
        let until = |count: &AtomicUsize| {
            while count.load(Ordering::Acquire) < all {
                thread::sleep(Duration::from_micros(50));
            }
            count.store(0, Ordering::Relaxed);
        };
        let mut rounds = Vec::with_capacity(self.rounds);
        for round in 1..=self.rounds {
            self.round.store(round, Ordering::Release);
            until(&self.pushed);
            thread::sleep(Duration::from_micros(200)); // until the sleeping kind is asleep
            let start = system::now();
            let top = self.top.swap(0, Ordering::AcqRel);
            match self.wakes {
                Wakes::All => self.open_all(top),
                Wakes::Systolic => self.elements[top - 1].wicket.open(),
            }
            rounds.push((start, system::now().saturating_duration_since(start)));
            until(&self.awake);
        }
        rounds
    }
}

impl Run {
    fn make(self, wait: WicketName) -> io::Result<[f64; 3]> {
        match wait {
            WicketName::Spin => self.with::<Spinning>(),
            WicketName::Sleep => self.with::<Sleeping>(),
        }
    }

    fn with<W: Wicket>(self) -> io::Result<[f64; 3]> {
        let element = |_| CachePadded::new(Element { wicket: W::default(), below: AtomicUsize::new(0) });
        let zero = || CachePadded::new(AtomicUsize::new(0));
        let arena = Arc::new(Arena {
            wakes: self.wakes,
            rounds: self.rounds,
            elements: (0..self.n).map(element).collect(),
            top: zero(),
            pushed: zero(),
            awake: zero(),
            round: zero(),
        });
        let theirs = Arc::clone(&arena);
        let (rounds, woken) =
            Contenders::Threads.fan_out(self.n, move |me, gate| theirs.wait(me, gate), |gate| arena.wake(gate))?;
        let after = |round: usize, woken: &Vec<Instant>| {
            woken[round].saturating_duration_since(rounds[round].0).as_nanos() as f64
        };
        let over = |of: &dyn Fn(usize) -> f64| median((0..self.rounds).map(of));
        let first = |round| woken.iter().map(|woken| after(round, woken)).fold(f64::INFINITY, f64::min);
        let last = |round| woken.iter().map(|woken| after(round, woken)).fold(0.0, f64::max);
        Ok([over(&|round| rounds[round].1.as_nanos() as f64), over(&first), over(&last)])
    }
}

/// Measures and prints.
pub fn run(args: &GatesArgs, output: Output) -> Result<(), Failure> {
    let ns = &args.ns.0;
    let progress = output.progress("gates", WicketName::ALL.len() * ns.len() * Wakes::ALL.len());
    let mut table = Table::new(2, ["waiters", "opens", "n", "waker", "first awake", "last awake"]);
    for &wait in WicketName::ALL {
        for &n in ns {
            for &wakes in Wakes::ALL {
                progress.inc(1);
                let run = Run { wakes, n, rounds: args.rounds };
                let [waker_ns, first_ns, last_ns] =
                    run.make(wait).map_err(|error| Failure::Run(format!("cannot start {n} threads: {error}")))?;
                let rounds = args.rounds;
                output.record(&GatesRecord { bench: "gates", wait, wakes, n, rounds, waker_ns, first_ns, last_ns })?;
                let times = [waker_ns, first_ns, last_ns].map(units::time);
                table.row(
                    [wait.name(), wakes.name()].map(str::to_owned).into_iter().chain([n.to_string()]).chain(times),
                );
            }
        }
    }
    progress.finish_and_clear();
    output.text(format_args!("gates on threads: medians of {} rounds\n\n{table}\n", args.rounds))?;
    output.text(
        "n threads wait in a chain. all: the waker opens all gates. systolic: the waker opens the first gate, and \
         each waiter the next.",
    )?;
    output.text(
        "waker: the time that the waker takes to open its gates. first, last awake: the time from the \
                 detaching of the chain.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_wake_up_either_way() {
        for &wait in WicketName::ALL {
            for &wakes in Wakes::ALL {
                let [waker, first, last] = Run { wakes, n: 3, rounds: 4 }.make(wait).unwrap();
                assert!(waker >= 0.0 && first <= last, "{} {wakes:?}", wait.name());
            }
        }
    }
}
