//! One thread, or goroutine, that locks and unlocks.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use indicatif::ProgressBar;
use serde::Serialize;
use sudog_sync::RawLock;

use crate::cli::UncontendedArgs;
use crate::contenders::Contenders;
use crate::failure::Failure;
use crate::locks::{Job, LockName, with_lock};
use crate::metrics::median;
use crate::output::Output;
use crate::table::Table;
use crate::units;

/// How long each lock is measured in a round.
pub const ROUND: Duration = Duration::from_millis(20);

/// The locks that others must measure up to: the usual ones, by their usual release.
const PEERS: [LockName; 3] = [LockName::Std, LockName::ParkingLot012, LockName::ParkingLot013];

/// What came of one lock.
#[derive(Clone, Serialize, Debug)]
pub struct Record {
    bench: &'static str,
    /// The lock.
    pub lock: LockName,
    #[serde(flatten)]
    on: Contenders,
    rounds: usize,
    /// Of a pair of lock and unlock: the median over the rounds.
    pub ns: f64,
    /// The best round.
    pub ns_min: f64,
    /// `ns` over that of the fastest of std, parking_lot 0.12 and 0.13; nothing, if none of them was measured.
    pub ratio: Option<f64>,
}

/// Nanoseconds of one pair, over a time.
struct Pairs(Duration);

impl Job for Pairs {
    type Out = f64;

    fn run<L: RawLock + 'static>(self) -> f64 {
        /// Between two looks at the time, which are lost among so many.
        const BATCH: u32 = 10_000;

        let lock = CachePadded::new(L::new());
        // From here on the compiler must take it for a lock that others know of, as one in a static is.
        let lock: &L = black_box(&lock);
        let start = Instant::now();
        let mut pairs = 0_u64;
        loop {
            for _ in 0..BATCH {
                let guard = lock.lock();
                // SAFETY: acquired above, on this thread.
                unsafe { lock.unlock(guard) };
            }
            pairs += u64::from(BATCH);
            let elapsed = start.elapsed();
            if elapsed >= self.0 {
                return elapsed.as_nanos() as f64 / pairs as f64;
            }
        }
    }
}

/// Measures the locks, which take turns.
pub fn measure(
    on: Contenders,
    locks: &[LockName],
    rounds: usize,
    output: Output,
    progress: &ProgressBar,
) -> Result<Vec<Record>, Failure> {
    let mut times = vec![Vec::with_capacity(rounds); locks.len()];
    for _ in 0..rounds {
        for (&lock, times) in locks.iter().zip(&mut times) {
            times.push(on.alone(move || with_lock(lock, Pairs(ROUND))));
            progress.inc(1);
        }
    }
    let medians: Vec<f64> = times.iter().map(|times| median(times.iter().copied())).collect();
    let fastest =
        locks.iter().zip(&medians).filter(|(lock, _)| PEERS.contains(lock)).map(|(_, &ns)| ns).reduce(f64::min);
    let mut records = Vec::with_capacity(locks.len());
    for ((&lock, times), ns) in locks.iter().zip(&times).zip(medians) {
        let ns_min = times.iter().copied().fold(f64::INFINITY, f64::min);
        let ratio = fastest.map(|fastest| ns / fastest);
        let record = Record { bench: "uncontended", lock, on, rounds, ns, ns_min, ratio };
        output.record(&record)?;
        records.push(record);
    }
    Ok(records)
}

/// Measures and prints.
pub fn run(args: &UncontendedArgs, output: Output) -> Result<(), Failure> {
    let on = args.on.contenders()?;
    // All of them, on goroutines too: nobody waits.
    let locks = args.locks.as_ref().map_or(LockName::ALL, |list| &list.0);
    let progress = output.progress("uncontended", args.rounds * locks.len());
    let records = measure(on, locks, args.rounds, output, &progress)?;
    progress.finish_and_clear();
    let mut table = Table::new(1, ["lock", "lock + unlock", "best round", "ratio"]);
    for r in &records {
        let ratio = units::ratio(r.ratio.unwrap_or(f64::NAN));
        table.row([r.lock.name(), &units::time(r.ns), &units::time(r.ns_min), &ratio]);
    }
    output.text(format_args!("uncontended on {on}: medians of {} rounds of {ROUND:?}\n\n{table}\n", args.rounds))?;
    output.text("ratio: to the fastest of std, parking_lot_0_12 and parking_lot_0_13.")
}
