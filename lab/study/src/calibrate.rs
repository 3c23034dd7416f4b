//! The costs of this machine, in the form of a preset of the simulated machine.
//!
//! | preset | measured by |
//! |---|---|
//! | `mhz` | a chain of dependent instructions, six cycles a link |
//! | `load` | loads of a line that do not depend on each other: a processor begins the next before it has the value |
//! | `store`, `rmw`, `pause`, `clock` | a loop of that operation |
//! | `near` | loads of lines that a thread of another processor has written; each load gives the place of the next |
//! | `first` | a walk through more lines than the caches hold, in random order |
//! | `syscall` | futex wake-ups of no thread |
//! | `switch` | two threads of one processor that yield to each other |
//! | `wake` | the time for which a futex wake-up keeps the waker, if the waiter sleeps on another processor |
//! | `idle_exit` | the time from a futex wake-up to the next reading of the clock by the waiter, which has slept for 20 us; without `syscall` and `wake` |
//! | `quantum` | two threads of one processor that never yield: the time for which each runs without a gap |
//!
//! The costs that two processors cannot show (`far`, occupancies, invalidations, the granule) are not measured, and
//! have the numbers of the other presets. Three measurements are checks, and no part of a preset: a line that two
//! threads hand to each other by stores (two transactions on a real machine; in the model the store is seen at once,
//! and only the load misses), a fetch-add where `near` is measured by loads, and a step of the laboratory's critical
//! section.
//!
//! On a simulated machine the command measures that machine, and must find the numbers of the preset. With a single
//! processor the command makes the measurements that need one, otherwise those that need several.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};
use sudog_runtime::shim;
use sudog_runtime::shim::system::atomic::{AtomicU32, AtomicU64};
use sudog_runtime::shim::system::{self, thread};

use crate::measure::mt::Mt;
use clap::Args;
use crossbeam_utils::CachePadded;
use serde::Serialize;

use crate::measure::metrics::median;
use crate::options::{MAX_RUNS, number};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::calibration::{Calibration, MemoryCosts, SystemCosts};
use crate::run::driver::steps;
use crate::run::pinned::Pinned;

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CalibrateArgs {
    /// Rounds of each measurement, taking turns; medians count
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = number::<1, MAX_RUNS>)]
    pub rounds: usize,
}

/// The cost that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
enum Cost {
    Cycle,
    Load,
    Store,
    Rmw,
    Pause,
    Clock,
    Step,
    NearLoad,
    NearRmw,
    HandOver,
    First,
    Syscall,
    Switch,
    Wake,
    Woken,
    Quantum,
}

/// The processors that a measurement needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    One,
    /// A processor that both threads of the measurement share.
    Shared,
    Two,
}

/// A measurement: its cost, a description, the processors, and a function that makes a round and returns its
/// nanoseconds.
type Measurement = (Cost, &'static str, Needs, fn() -> f64);

const MEASUREMENTS: &[Measurement] = &[
    (Cost::Cycle, "one dependent instruction", Needs::One, cycle),
    (Cost::Load, "a load of an own line", Needs::One, load),
    (Cost::Store, "a store to an own line", Needs::One, store),
    (Cost::Rmw, "a compare-exchange of an own line", Needs::One, rmw),
    (Cost::Pause, "a pause", Needs::One, || per_call(1000, shim::pause)),
    (Cost::Clock, "a reading of the clock", Needs::One, || per_call(1000, || _ = black_box(system::now()))),
    (Cost::Step, "a step of a critical section", Needs::One, step),
    (Cost::NearLoad, "a load of a line that another wrote", Needs::Two, near_load),
    (Cost::NearRmw, "a fetch-add to a line that another wrote", Needs::Two, near_rmw),
    (Cost::HandOver, "a line handed over by a store", Needs::Two, hand_over),
    (Cost::First, "a line from memory", Needs::One, first),
    (Cost::Syscall, "a futex wake-up of no thread", Needs::One, syscall),
    (Cost::Switch, "a switch by sched_yield", Needs::Shared, switch),
    (Cost::Wake, "a futex wake-up, for the waker", Needs::Two, wake),
    (Cost::Woken, "from a futex wake-up to the waiter", Needs::Two, woken),
    (Cost::Quantum, "a run between two others", Needs::Shared, quantum),
];

/// The record of a cost, in nanoseconds.
#[derive(Clone, Serialize, Debug)]
struct CostRecord {
    bench: &'static str,
    cost: Cost,
    rounds: usize,
    /// The median of the rounds.
    ns: f64,
    ns_min: f64,
    ns_max: f64,
}

/// Measures and prints.
pub fn run(args: &CalibrateArgs, output: Output) -> Result<(), Failure> {
    let processors = shim::num_cpus();
    let simulated = cfg!(sudog_sim);
    // A simulated thread cannot be bound to a processor.
    let can = |needs| match needs {
        Needs::One => true,
        Needs::Shared => !simulated || processors == 1,
        Needs::Two => processors > 1,
    };
    let measured: Vec<&Measurement> = MEASUREMENTS.iter().filter(|(_, _, needs, _)| can(*needs)).collect();
    let progress = output.progress("calibrate", args.rounds * measured.len());
    let mut rounds = vec![Vec::with_capacity(args.rounds); measured.len()];
    for _ in 0..args.rounds {
        for ((_, _, needs, of), rounds) in measured.iter().copied().zip(&mut rounds) {
            let _pinned = (*needs == Needs::One).then(|| place(0));
            rounds.push(of());
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let mut found = Found::default();
    let mut table = Table::new(1, ["what", "median", "least", "most", "cycles"]);
    for (&&(cost, words, ..), rounds) in measured.iter().zip(&rounds) {
        let [least, most] = [f64::min, f64::max].map(|of| rounds.iter().copied().reduce(of).unwrap_or(f64::NAN));
        let ns = median(rounds.iter().copied());
        output.record(&CostRecord {
            bench: "calibrate",
            cost,
            rounds: args.rounds,
            ns,
            ns_min: least,
            ns_max: most,
        })?;
        found.0.push((cost, ns));
        let cycles = found.cycles(ns);
        table.row([words.to_owned(), units::time(ns), units::time(least), units::time(most), format!("{cycles:.1}")]);
    }
    let calibration = found.calibration(processors as usize);
    output.record(&calibration)?;
    output.text(format_args!(
        "calibrate, {processors} processors: medians of {} rounds\n\n{table}\n\n{}\nand of the laboratory: CYCLES {:.1}",
        args.rounds,
        serde_json::to_string_pretty(&calibration).map_err(|error| Failure::Run(error.to_string()))?,
        found.cycles(found.ns(Cost::Step))
    ))
}

/// The costs that the rounds found, in nanoseconds.
#[derive(Default)]
struct Found(Vec<(Cost, f64)>);

/// The mean factor by which a miss takes longer than its cost: up to an eighth more.
const VARIATION: f64 = 1.0 + 1.0 / 16.0;

impl Found {
    fn ns(&self, cost: Cost) -> f64 {
        self.0.iter().find(|(found, _)| *found == cost).map_or(f64::NAN, |&(_, ns)| ns)
    }

    fn cycles(&self, ns: f64) -> f64 {
        ns / self.ns(Cost::Cycle)
    }

    /// Returns the fields of a preset.
    fn calibration(&self, processors: usize) -> Calibration {
        let whole = |value: f64| value.is_finite().then_some(value.max(0.0).round() as u64);
        let cycles = |cost| self.cycles(self.ns(cost));
        let syscall = self.ns(Cost::Syscall);
        let wake = self.ns(Cost::Wake) - syscall;
        let memory = MemoryCosts {
            load: whole(cycles(Cost::Load).max(1.0)),
            store: whole(cycles(Cost::Store).max(1.0)),
            rmw: whole(cycles(Cost::Rmw)),
            pause: whole(cycles(Cost::Pause)),
            clock: whole(cycles(Cost::Clock)),
            near: whole(cycles(Cost::NearLoad) / VARIATION),
            first: whole(cycles(Cost::First) / VARIATION),
        };
        let system = SystemCosts {
            syscall: whole(syscall),
            switch: whole(self.ns(Cost::Switch) - syscall),
            wake: whole(wake),
            idle_exit: whole(self.ns(Cost::Woken) - syscall - wake),
            quantum: whole(self.ns(Cost::Quantum)),
        };
        Calibration::new(processors, (1000.0 / self.ns(Cost::Cycle)).round() as u64, memory, system)
    }
}

/// Binds this thread to the n-th processor. A simulated thread stays where the machine put it.
fn place(n: usize) -> Option<Pinned> {
    (!cfg!(sudog_sim)).then(|| Pinned::to(n))
}

fn since(start: Instant) -> f64 {
    system::now().saturating_duration_since(start).as_nanos() as f64
}

/// Returns the nanoseconds of a call, on average over so many calls.
fn per_call(calls: u32, mut call: impl FnMut()) -> f64 {
    let start = system::now();
    (0..calls).for_each(|_| call());
    since(start) / f64::from(calls)
}

fn cycle() -> f64 {
    const LINKS: u32 = 100_000;
    let mut x = black_box(1_u64);
    let start = system::now();
    shim::work(6 * u64::from(LINKS));
    for _ in 0..LINKS {
        // Marsaglia's xorshift: three shifts and three exclusive ors, each of which needs the result of the step
        // before.
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
    since(start) / f64::from(6 * LINKS)
}

fn load() -> f64 {
    let places: CachePadded<[AtomicU64; 8]> = CachePadded::default();
    let places = black_box(&places);
    let (mut seen, mut place) = (0, 0);
    let ns = per_call(10_000, || {
        seen ^= places[place % 8].load(Relaxed);
        place += 1;
    });
    black_box(seen);
    ns
}

fn store() -> f64 {
    let place = CachePadded::new(AtomicU64::new(0));
    let place = black_box(&place);
    per_call(10_000, || place.store(1, Release))
}

fn rmw() -> f64 {
    let place = CachePadded::new(AtomicU64::new(0));
    let place = black_box(&place);
    let mut value = 0;
    per_call(10_000, || {
        let seen = place.compare_exchange(value, value ^ 1, AcqRel, Relaxed);
        value = seen.map_or_else(|seen| seen, |old| old ^ 1);
    })
}

fn step() -> f64 {
    const STEPS: u32 = 100_000;
    let mut random = Mt::new(1);
    let start = system::now();
    steps(&mut random, STEPS);
    since(start) / f64::from(STEPS)
}

fn first() -> f64 {
    // More lines than the last caches hold; on a simulated machine each line is new in any case.
    const LINES: usize = if cfg!(sudog_sim) { 1 << 12 } else { 1 << 21 };
    const WALK: usize = if cfg!(sudog_sim) { LINES } else { LINES / 16 };
    let lines: Vec<CachePadded<AtomicU64>> = (0..LINES as u64).map(|_| CachePadded::default()).collect();
    // A full cycle (Hull and Dobell): a congruential generator modulo a power of two.
    let next = |at: usize| (at.wrapping_mul(1_103_515_245).wrapping_add(12_345)) % LINES;
    if !cfg!(sudog_sim) {
        (0..LINES).for_each(|at| lines[at].store(next(at) as u64, Relaxed));
    }
    let mut at = 0;
    let start = system::now();
    for _ in 0..WALK {
        let seen = lines[at].load(Relaxed) as usize;
        at = if cfg!(sudog_sim) { next(at) } else { seen };
    }
    black_box(at);
    since(start) / WALK as f64
}

fn syscall() -> f64 {
    let word = AtomicU32::new(0);
    per_call(1000, || shim::futex::wake(&raw const word, 1))
}

/// The words that two threads share, each on lines of its own.
#[derive(Default)]
struct Shared {
    arrived: CachePadded<AtomicU32>,
    word: CachePadded<AtomicU32>,
    turn: CachePadded<AtomicU64>,
}

impl Shared {
    /// Waits for the other thread, so that both go on at about the same time.
    fn meet(&self) {
        self.arrived.fetch_add(1, AcqRel);
        while self.arrived.load(Acquire) < 2 {
            thread::yield_now();
        }
    }
}

/// Runs `body` as two threads, 0 and 1, each on its processor. Returns the results of both.
fn both<T: Send + 'static>(places: [usize; 2], body: impl Fn(u32, &Shared) -> T + Clone + Send + 'static) -> [T; 2] {
    let shared = Arc::new(Shared::default());
    let threads = [0, 1].map(|me| {
        let (shared, body) = (Arc::clone(&shared), body.clone());
        let place_of_it = places[me as usize];
        let work = move || {
            let _pinned = place(place_of_it);
            shared.meet();
            body(me, &shared)
        };
        thread::Builder::new().name(format!("calibrate {me}")).spawn(work).expect("two threads can be had")
    });
    threads.map(|thread| thread.join().expect("a measurement does not panic"))
}

const APART: [usize; 2] = [0, 1];
const TOGETHER: [usize; 2] = [0, 0];

fn hand_over() -> f64 {
    const TURNS: u64 = 4000;
    let [ns, _] = both(APART, |me, shared| {
        let start = system::now();
        for turn in (u64::from(me)..TURNS).step_by(2) {
            while shared.turn.load(Acquire) != turn {}
            shared.turn.store(turn + 1, Release);
        }
        since(start)
    });
    ns / TURNS as f64
}

/// Measures a walk: a thread writes lines; then the other thread walks through the lines, from each to the next.
fn walk(through: fn(&AtomicU64) -> u64) -> f64 {
    const LINES: usize = 256;
    const WALKS: u64 = 8;
    let lines: Arc<[CachePadded<AtomicU64>]> = (0..LINES).map(|_| CachePadded::default()).collect();
    let [ns, _] = both(APART, move |me, shared| {
        let mut ns = 0.0;
        for walk in 0..WALKS {
            while shared.turn.load(Acquire) != 2 * walk + u64::from(1 - me) {}
            if me == 1 {
                // The steps form a cycle through all lines, without a pattern: see `first`.
                (0..LINES).for_each(|at| lines[at].store((at as u64 * 109 + 89) % LINES as u64, Relaxed));
            } else {
                let mut at = 0;
                let start = system::now();
                (0..LINES).for_each(|_| at = through(&lines[at as usize % LINES]));
                ns += since(start);
                black_box(at);
            }
            shared.turn.fetch_add(1, AcqRel);
        }
        ns
    });
    ns / (WALKS as usize * LINES) as f64
}

fn near_load() -> f64 {
    walk(|line| line.load(Relaxed))
}

fn near_rmw() -> f64 {
    walk(|line| line.fetch_add(0, AcqRel))
}

fn switch() -> f64 {
    const YIELDS: u32 = 1000;
    let [one, other] = both(TOGETHER, |me, shared| {
        let start = system::now();
        let mut switches = 0_u32;
        for _ in 0..YIELDS {
            thread::yield_now();
            // The system need not switch. It has switched only if the other thread has run meanwhile.
            switches += u32::from(shared.word.load(Relaxed) != me);
            shared.word.store(me, Relaxed);
        }
        since(start) / f64::from(2 * switches.max(1))
    });
    f64::midpoint(one, other)
}

/// Lets a thread wake another that sleeps on another processor, over and over. Returns the length of the call, and the
/// time from the beginning of the call to the other thread's next reading of the clock.
fn wake_ups() -> [f64; 2] {
    const WAKES: u32 = 100;
    const ASLEEP: Duration = Duration::from_micros(20);
    let base = system::now();
    let [(began, waking), (woken, _)] = both(APART, move |me, shared| {
        let word = &*shared.word;
        let (mut times, mut waking) = (0.0, 0.0);
        for n in 0..WAKES {
            if me == 1 {
                shared.turn.store(u64::from(n) + 1, Release);
                while word.load(Acquire) == n {
                    shim::futex::wait(word, n, None);
                }
                times += since(base);
                continue;
            }
            while shared.turn.load(Acquire) <= u64::from(n) {}
            let start = system::now();
            // Wait until the other thread sleeps.
            while system::now().saturating_duration_since(start) < ASLEEP {}
            word.store(n + 1, Release);
            let begin = since(base);
            shim::futex::wake(word, 1);
            times += begin;
            waking += since(base) - begin;
        }
        (times, waking)
    });
    [waking, woken - began].map(|ns| ns / f64::from(WAKES))
}

fn wake() -> f64 {
    wake_ups()[0]
}

fn woken() -> f64 {
    wake_ups()[1]
}

fn quantum() -> f64 {
    const LASTS: Duration = Duration::from_millis(60);
    /// A time that is longer than an interrupt, and shorter than a quantum.
    const GAP: Duration = Duration::from_micros(200);
    let [one, other] = both(TOGETHER, |_, shared| {
        let start = system::now();
        let (mut last, mut begin, mut runs) = (start, start, Vec::new());
        while last.saturating_duration_since(start) < LASTS {
            let now = system::now();
            if now.saturating_duration_since(last) > GAP {
                runs.push(last.saturating_duration_since(begin).as_nanos() as f64);
                begin = now;
            }
            last = now;
            // The clock alone is no step of a simulated machine: read a word, too.
            black_box(shared.word.load(Relaxed));
        }
        median(runs)
    });
    f64::midpoint(one, other)
}
