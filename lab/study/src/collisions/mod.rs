//! The study of collisions: the disturbance that many semaphores cause each other in one waiting array.
//!
//! Two threads hand a permit back and forth by two semaphores: the thread that has the permit posts the other's
//! semaphore, and waits for its own. So at any time one thread of each pair waits, asleep, as the only waiter of its
//! semaphore; and many pairs go forward in step:
//!
//! ```text
//!   first array    | A of pair 0 | A of pair 1 | …      128 bytes each
//!   second array   | B of pair 0 | B of pair 1 | …
//! ```
//!
//! A waiter that is woken although its turn has not come was woken for another semaphore's sake; or by a poster that
//! wakes the ticket after the granted ticket, as posters do, but so late that the woken waiter already waits with that
//! ticket.
//!
//! `counting.rs` describes how these wake-ups are counted, and `entrainment.rs` computes the part of the waiters that
//! share a bucket.

mod counting;
mod entrainment;

use crate::options::{List, MAX_RUNS, MAX_THREADS, list, number, numbers, seconds};
use clap::Args;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use sudog_runtime::shim::system;
use sudog_runtime::shim::system::atomic::{AtomicBool, Ordering};
use sudog_runtime::shim::system::thread;

use crossbeam_utils::CachePadded;
use serde::Serialize;
use sudog_locks::waiting_array::Benaphore;
use sudog_locks::waiting_array::{
    BucketWait, ChainWait, ChannelWait, LocationWait, MixedHash, PlainHash, TicketHash, TicketWait,
};

use self::counting::{AtOnce, Counting, waits_begun};

use crate::measure::metrics::median;
use crate::measure::usage::{Counts, Usage, disturbance, others};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;
use crate::run::contenders::{Contenders, Gate};
use crate::targets::registry::{names, registry};

#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct CollisionsArgs {
    /// Numbers of pairs of threads, each of which hands a permit back and forth by two semaphores
    #[arg(long, value_name = "N,N", default_value = "1,4,16,64,256", value_parser = numbers::<1, MAX_PAIRS>)]
    pub ns: List<usize>,

    /// Hashes, by name and number of buckets [default: all]
    #[arg(long, value_name = "A,B", value_parser = list::<HashName>)]
    pub hashes: Option<List<HashName>>,

    /// Length of a run
    #[arg(long, value_name = "S", default_value = "0.1", value_parser = seconds)]
    pub seconds: Duration,

    /// Runs of each, taking turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,
}

const MAX_PAIRS: usize = MAX_THREADS / 2;

registry! {
    /// The name of a hash, with its number of buckets.
    enum HashName;
    /// A job on a hash of any type.
    trait HashJob over TicketHash;
    fn with_hash;
    unknown "hash";

    Plain64 = "plain-64": PlainHash<64>, "the address as it is; 64 buckets";
    Mixed64 = "mixed-64": MixedHash<64>, "the address mixed; 64 buckets";
    Plain2048 = "plain-2048": PlainHash<2048>, "the address as it is; 2048 buckets";
    Mixed2048 = "mixed-2048": MixedHash<2048>, "the address mixed; 2048 buckets";
}

names! {
    /// The name of a way to wait.
    enum ProtocolName;
    unknown "protocol";
    Chains = "chains", "the benaphore, whose waiters sleep in chains";
    Buckets = "buckets", "the benaphore, whose waiters sleep on buckets";
    Channels = "channels", "the benaphore, whose waiters sleep in channels";
    Locations = "locations", "the benaphore, whose waiters enlist at locations";
}

/// The parameters of a run.
#[derive(Clone, Copy)]
struct Run {
    protocol: ProtocolName,
    hash: HashName,
    pairs: usize,
    duration: Duration,
}

/// The counts of a thread, or of all threads together.
#[derive(Clone, Copy, Default)]
struct Tally {
    acquisitions: u64,
    /// The number of acquisitions that did not find a permit.
    waited: u64,
    futile: u64,
}

/// The record of a run.
#[derive(Clone, Serialize, Debug)]
struct CollisionRecord {
    bench: &'static str,
    protocol: ProtocolName,
    hash: HashName,
    pairs: usize,
    threads: usize,
    run: usize,
    seconds: f64,
    acquisitions: u64,
    throughput: f64,
    waited: u64,
    futile: u64,
    futile_per_acquisition: f64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    cpus: f64,
    other_cpus: Option<f64>,
}

/// The semaphores, those of the first thread of each pair and those of the second, 128 bytes apart; and the flag that
/// ends the run.
struct Arena<W> {
    semaphores: [Box<[CachePadded<Benaphore<W>>]>; 2],
    stop: CachePadded<AtomicBool>,
}

impl Run {
    fn threads(&self) -> usize {
        2 * self.pairs
    }

    fn make(self) -> io::Result<(Duration, Tally, Usage)> {
        with_hash(self.hash, self)
    }

    /// Makes the run with a way to wait, which begins so many waits for each wake-up.
    fn with<W: TicketWait>(self, begins: u64) -> io::Result<(Duration, Tally, Usage)> {
        let one = |permits| CachePadded::new(Benaphore::<W>::with_permits(permits));
        // Give a permit to one thread of each pair, which begins.
        let semaphores = [1, 0].map(|permits| (0..self.pairs).map(|_| one(permits)).collect());
        self.with_arena(Arc::new(Arena { semaphores, stop: CachePadded::new(AtomicBool::new(false)) }), begins)
    }

    /// Makes the run. This part is compiled once, and the loop of a thread for each way to wait.
    fn with_arena(self, arena: Arc<dyn AnyArena>, begins: u64) -> io::Result<(Duration, Tally, Usage)> {
        let theirs = Arc::clone(&arena);
        let work = move |me, gate: &Gate| theirs.work(me, begins, gate);
        let conduct = |gate: &Gate| {
            let (counts, start) = (Counts::now(), system::now());
            gate.open(true);
            thread::sleep(self.duration);
            let elapsed = system::now().saturating_duration_since(start);
            arena.stop().store(true, Ordering::Relaxed);
            (counts, elapsed)
        };
        let ((counts, elapsed), tallies) = Contenders::Threads.fan_out(self.threads(), work, conduct)?;
        Ok((elapsed, tallies.into_iter().fold(Tally::default(), Tally::and), counts.usage_until_now()))
    }

    fn record(&self, run: usize, (elapsed, tally, usage): (Duration, Tally, Usage)) -> CollisionRecord {
        let seconds = elapsed.as_secs_f64();
        CollisionRecord {
            bench: "collisions",
            protocol: self.protocol,
            hash: self.hash,
            pairs: self.pairs,
            threads: self.threads(),
            run,
            seconds,
            acquisitions: tally.acquisitions,
            throughput: tally.acquisitions as f64 / seconds,
            waited: tally.waited,
            futile: tally.futile,
            futile_per_acquisition: tally.futile as f64 / tally.acquisitions as f64,
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
            cpus: usage.cpus,
            other_cpus: usage.other_cpus,
        }
    }
}

impl HashJob for Run {
    type Out = io::Result<(Duration, Tally, Usage)>;

    fn run<H: TicketHash>(self) -> Self::Out {
        match self.protocol {
            ProtocolName::Chains => self.with::<ChainWait<Counting<AtOnce>, 1, H>>(1),
            ProtocolName::Buckets => self.with::<BucketWait<Counting<AtOnce>, 1, H>>(1),
            ProtocolName::Channels => self.with::<ChannelWait<Counting<AtOnce>, 1, H>>(1),
            // Two waits begin for each wake-up: the waiter enlists, looks once more, and waits.
            ProtocolName::Locations => self.with::<LocationWait<Counting<AtOnce>, 1, H>>(2),
        }
    }
}

/// An [`Arena`] of any way to wait.
trait AnyArena: Send + Sync {
    /// Runs the loop of a thread of a pair.
    fn work(&self, me: usize, begins: u64, gate: &Gate) -> Tally;

    /// Returns the flag that ends the run.
    fn stop(&self) -> &AtomicBool;
}

impl<W: TicketWait> AnyArena for Arena<W> {
    fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn work(&self, me: usize, begins: u64, gate: &Gate) -> Tally {
        let [ours, theirs] = [me, me + 1].map(|side| &self.semaphores[side % 2][me / 2]);
        let mut tally = Tally::default();
        let mut running = gate.wait();
        while running {
            let before = waits_begun();
            ours.acquire_many(1).expect("nobody closes it");
            // Read the flag while this thread has the permit: at the end the other thread gets the permit once more,
            // and leaves.
            running = !self.stop.load(Ordering::Relaxed);
            theirs.post(1);
            if running {
                let begun = waits_begun() - before;
                tally = tally.and(Tally {
                    acquisitions: 1,
                    waited: begun.min(1),
                    futile: begun.saturating_sub(1) / begins,
                });
            }
        }
        tally
    }
}

impl Tally {
    fn and(self, other: Self) -> Self {
        Self {
            acquisitions: self.acquisitions + other.acquisitions,
            waited: self.waited + other.waited,
            futile: self.futile + other.futile,
        }
    }
}

/// The measurements to be made.
struct Plan<'a> {
    ns: &'a [usize],
    hashes: &'a [HashName],
    duration: Duration,
    runs: usize,
}

impl Plan<'_> {
    fn rows(&self) -> impl Iterator<Item = (ProtocolName, HashName)> {
        ProtocolName::ALL.iter().flat_map(|&protocol| self.hashes.iter().map(move |&hash| (protocol, hash)))
    }

    fn measure(&self, output: Output) -> Result<Vec<CollisionRecord>, Failure> {
        let progress = output.progress("collisions", self.runs * self.ns.len() * self.rows().count());
        let mut records = Vec::new();
        for number in 1..=self.runs {
            for &pairs in self.ns {
                for (protocol, hash) in self.rows() {
                    let run = Run { protocol, hash, pairs, duration: self.duration };
                    let outcome = run
                        .make()
                        .map_err(|error| Failure::Run(format!("cannot start {} threads: {error}", run.threads())))?;
                    let record = run.record(number, outcome);
                    output.record(&record)?;
                    records.push(record);
                    progress.inc(1);
                }
            }
        }
        progress.finish_and_clear();
        Ok(records)
    }

    fn table(&self, records: &[CollisionRecord], of: fn(&CollisionRecord) -> f64, show: fn(f64) -> String) -> Table {
        let mut table = Table::new(2, self.header(["protocol", "hash"]));
        for (protocol, hash) in self.rows() {
            let cell = |&n: &usize| {
                let ours = records.iter().filter(|r| r.protocol == protocol && r.hash == hash && r.pairs == n);
                show(median(ours.map(of)))
            };
            table.row([protocol.name(), hash.name()].map(str::to_owned).into_iter().chain(self.ns.iter().map(cell)));
        }
        table
    }

    /// Returns the table of the computed parts, and of those by chance.
    fn computed(&self, records: &[entrainment::EntrainmentRecord]) -> Table {
        let mut table = Table::new(1, self.header(["hash"]));
        let mut chances: Vec<usize> = Vec::new();
        for of_hash in records.chunks(self.ns.len()) {
            let name = of_hash[0].hash.name().to_owned();
            table.row([name].into_iter().chain(of_hash.iter().map(|r| units::ratio(r.shared))));
        }
        for of_hash in records.chunks(self.ns.len()) {
            let buckets = of_hash[0].buckets;
            if !chances.contains(&buckets) {
                chances.push(buckets);
                let name = format!("by chance, {buckets}");
                table.row([name].into_iter().chain(of_hash.iter().map(|r| units::ratio(r.by_chance))));
            }
        }
        table
    }

    fn header<const N: usize>(&self, words: [&str; N]) -> impl Iterator<Item = String> {
        words.map(str::to_owned).into_iter().chain(self.ns.iter().map(|n| format!("n={n}")))
    }
}

/// Measures and prints.
pub fn run(args: &CollisionsArgs, output: Output) -> Result<(), Failure> {
    let plan = Plan {
        ns: &args.ns.0,
        hashes: args.hashes.as_ref().map_or(HashName::ALL, |list| &list.0),
        duration: args.seconds,
        runs: args.runs,
    };
    let records = plan.measure(output)?;
    let computed: Vec<_> =
        plan.hashes.iter().flat_map(|&hash| plan.ns.iter().map(move |&n| entrainment::record(hash, n))).collect();
    computed.iter().try_for_each(|record| output.record(record))?;

    output.text(format_args!(
        "collisions: medians of {} runs of {:?}; n pairs of threads, each of which hands a permit back and forth\n",
        args.runs, args.seconds
    ))?;
    for (title, of, show) in QUANTITIES {
        output.text(format_args!("{title}:\n{}\n", plan.table(&records, of, show)))?;
    }
    output.text(format_args!(
        "Computed: the part of n waiters that share a bucket, their semaphores {} bytes apart, their tickets the \
         same:\n{}\n",
        entrainment::SPACING,
        plan.computed(&computed)
    ))?;
    REMARKS.iter().try_for_each(|remark| output.text(remark))?;
    disturbance(others(records.iter().map(|r| r.other_cpus))).map_or(Ok(()), |warning| output.text(warning))
}

const REMARKS: [&str; 4] = [
    "Futile: a waiter was woken before its turn. Counted for the first waiter in line, which all waiters are here.",
    "With n=1 no other waiters collide: a post also wakes the waiter after the one whose ticket is granted, and wakes \
     it late.",
    "On buckets, also: a waiter that was about to sleep found its bucket changed, and did not sleep.",
    "In step, waiters that share a bucket once share a bucket at each ticket, with each hash, because all move on \
     alike.",
];

/// A quantity: its title, its source, its format.
type Quantity = (&'static str, fn(&CollisionRecord) -> f64, fn(f64) -> String);

const QUANTITIES: [Quantity; 2] = [
    ("Futile wake-ups per acquisition", |record| record.futile_per_acquisition, units::ratio),
    ("Acquisitions per second of all contenders together", |record| record.throughput, units::rate),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_ends() {
        for &hash in HashName::ALL {
            for &protocol in ProtocolName::ALL {
                let run = Run { protocol, hash, pairs: 3, duration: Duration::from_millis(20) };
                let (_, tally, _) = run.make().unwrap();
                assert!(tally.waited <= tally.acquisitions && (tally.waited > 0 || tally.futile == 0));
            }
        }
    }
}
