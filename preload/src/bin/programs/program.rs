//! The programs, how each is run, and how its output is read.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::memcached;

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Operations in a second, in the program's unit.
    pub rate: f64,
    /// The time that 99 of 100 operations do not exceed, in microseconds, if the program says.
    pub p99: Option<f64>,
    /// The longest time of an operation, in microseconds, if the program says.
    pub longest: Option<f64>,
}

/// Where everything is, and how long a run is.
#[derive(Debug)]
pub struct Place {
    /// The folder with the unpacked programs.
    root: PathBuf,
    library: PathBuf,
    /// The length of a run, for programs that take a length.
    pub seconds: f64,
    /// The number of threads of each program.
    pub threads: u32,
}

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    KcCacheTest,
    CacheBench,
    DbBench,
    Memcached,
    Sysbench,
    Pbzip2,
    Xz,
}

/// Bytes of the file that is compressed.
const BYTES: usize = 12 << 20;
/// Operations of each thread, for programs that take a number.
const KC_OPERATIONS: u32 = 60_000;
const CACHE_OPERATIONS: u32 = 60_000;
const DB_KEYS: u32 = 100_000;

impl Program {
    pub const ALL: &[Self] =
        &[Self::KcCacheTest, Self::CacheBench, Self::DbBench, Self::Memcached, Self::Sysbench, Self::Pbzip2, Self::Xz];

    pub const fn name(self) -> &'static str {
        match self {
            Self::KcCacheTest => "kccachetest",
            Self::CacheBench => "cache_bench",
            Self::DbBench => "db_bench",
            Self::Memcached => "memcached",
            Self::Sysbench => "sysbench",
            Self::Pbzip2 => "pbzip2",
            Self::Xz => "xz",
        }
    }

    /// What is run, and the unit of the rate.
    const fn about(self) -> &'static str {
        match self {
            Self::KcCacheTest => "Kyoto Cabinet, `wicked` on a cache database: thousand operations/s",
            Self::CacheBench => "RocksDB's LRU cache, one shard: thousand operations/s",
            Self::DbBench => "RocksDB, `readrandom`, block cache of one shard: thousand reads/s",
            Self::Memcached => "requests of 24 keys by as many connections over loopback: thousand requests/s",
            Self::Sysbench => "`threads`, 2 locks, 4 yields in an event: thousand events/s",
            Self::Pbzip2 => "compresses blocks of 100 kB: MB/s",
            Self::Xz => "`-0`, compresses blocks of 64 KiB: MB/s",
        }
    }

    pub fn named(name: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .copied()
            .find(|program| program.name() == name)
            .ok_or_else(|| format!("unknown program {name}"))
    }

    /// Runs the program once.
    fn run(self, place: &Place, lock: &str) -> Result<Figures, String> {
        let threads = place.threads;
        match self {
            Self::KcCacheTest => {
                let args = format!("wicked -th {threads} -capcnt 100000 {KC_OPERATIONS}");
                let output = place.output(self, lock, &args)?;
                let seconds = after(&output, "time:")?;
                Ok(Figures { rate: f64::from(KC_OPERATIONS * threads) / seconds / 1e3, p99: None, longest: None })
            }
            Self::CacheBench => {
                let args = format!(
                    "-threads={threads} -ops_per_thread={CACHE_OPERATIONS} -cache_size=8388608 -num_shard_bits=0 -value_bytes=64 \
                     -lean"
                );
                let output = place.output(self, lock, &args)?;
                // In nanoseconds.
                let [p99, longest] = [after(&output, "P99:")? / 1e3, after(&output, "Max:")? / 1e3];
                let rate = after(&output, "ops/sec =")? / 1e3;
                Ok(Figures { rate, p99: Some(p99), longest: Some(longest) })
            }
            Self::DbBench => {
                let seconds = place.seconds.ceil();
                let args = format!(
                    "--db={} --use_existing_db --benchmarks=readrandom --num={DB_KEYS} --threads={threads} --duration={seconds} \
                     --cache_size=4000000 --cache_numshardbits=0 --histogram",
                    place.db().display()
                );
                let output = place.output(self, lock, &args)?;
                let rate = before(&output, "ops/sec")? / 1e3;
                Ok(Figures { rate, p99: Some(after(&output, "P99:")?), longest: Some(after(&output, "Max:")?) })
            }
            Self::Memcached => memcached::run(place.command("memcached", lock), threads, place.seconds),
            Self::Sysbench => {
                let seconds = place.seconds.ceil();
                let args = format!(
                    "threads --threads={threads} --thread-locks=2 --thread-yields=4 --time={seconds} --percentile=99 run"
                );
                let output = place.output(self, lock, &args)?;
                let rate = after(&output, "total number of events:")? / after(&output, "total time:")? / 1e3;
                // In milliseconds.
                let [p99, longest] = [after(&output, "99th percentile:")? * 1e3, after(&output, "max:")? * 1e3];
                Ok(Figures { rate, p99: Some(p99), longest: Some(longest) })
            }
            Self::Pbzip2 => place.compress(self, lock, &format!("-k -c -b1 -1 -p{threads}")),
            Self::Xz => place.compress(self, lock, &format!("-k -c -0 --block-size=64KiB -T{threads}")),
        }
    }
}

/// Returns the number that follows a text, for its last occurrence.
fn after(output: &str, text: &str) -> Result<f64, String> {
    let rest = output.rfind(text).map(|at| output[at + text.len()..].trim_start()).ok_or("no such output")?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().map_err(|_| format!("no number after {text}"))
}

/// Returns the number that precedes a text, for its last occurrence.
fn before(output: &str, text: &str) -> Result<f64, String> {
    let at = output.rfind(text).ok_or("no such output")?;
    let number = output[..at].split_whitespace().last().unwrap_or_default();
    number.parse().map_err(|_| format!("no number before {text}"))
}

impl Place {
    /// Returns the place, with the usual length of runs and number of threads.
    pub fn find() -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|error| error.to_string())?;
        // target/release/programs
        let build = me.parent().ok_or("no folder")?;
        let root = build.parent().ok_or("no folder")?.join("programs");
        let library = build.join("libsudog_preload.so");
        if !library.exists() {
            return Err(format!("{} is not built", library.display()));
        }
        if !root.join("usr/bin/db_bench").exists() {
            return Err("the programs are not there: run preload/fetch-programs".to_owned());
        }
        Ok(Self { root, library, seconds: 1.0, threads: 8 })
    }

    fn db(&self) -> PathBuf {
        self.root.join("db")
    }

    fn text(&self) -> PathBuf {
        self.root.join("text")
    }

    /// Makes the file that is compressed, and the database.
    pub fn prepare(&self) -> Result<(), String> {
        // Words of a small vocabulary, by a generator of random numbers: 64-bit LCG, Knuth's constants.
        let mut random = 1_u64;
        let mut text = String::with_capacity(BYTES + 16);
        while text.len() < BYTES {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let _ = write!(text, "{:x} ", (random >> 33) % 4096 * 2_654_435);
        }
        fs::write(self.text(), text).map_err(|error| error.to_string())?;
        let _ = fs::remove_dir_all(self.db());
        let args = format!(
            "--db={} --benchmarks=fillseq,compact --num={DB_KEYS} --threads=1 --compression_type=none --disable_wal",
            self.db().display()
        );
        self.output(Program::DbBench, "none", &args).map(drop)
    }

    /// Returns a command for a program on a lock, which is stopped if it takes much longer than a run.
    fn command(&self, program: &str, lock: &str) -> Command {
        let mut command = Command::new("timeout");
        let libraries = ["usr/lib", "lib"].map(|folder| self.root.join(folder));
        let libraries = libraries.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let libraries: Vec<_> = libraries.map(|folder| folder.path().display().to_string()).collect();
        command
            .arg("--kill-after=1")
            .arg(format!("{}", (self.seconds * 4.0).max(6.0)))
            .arg(self.root.join("usr/bin").join(program));
        command.env("LD_LIBRARY_PATH", libraries.join(":")).env_remove("LD_PRELOAD");
        if lock != "none" {
            command.env("LD_PRELOAD", &self.library).env("SUDOG_LOCK", lock);
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs a program to its end, and returns its output.
    fn output(&self, program: Program, lock: &str, args: &str) -> Result<String, String> {
        let output =
            self.command(program.name(), lock).args(args.split(' ')).output().map_err(|error| error.to_string())?;
        match output.status.code() {
            Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Some(124 | 137) => Err("not in time".to_owned()),
            Some(status) => Err(format!("status {status}")),
            None => Err("killed".to_owned()),
        }
    }

    /// Compresses the file.
    fn compress(&self, program: Program, lock: &str, args: &str) -> Result<Figures, String> {
        let text = self.text();
        let mut command = self.command(program.name(), lock);
        command.args(args.split(' ')).arg(Path::new(&text)).stdout(Stdio::null());
        let begun = Instant::now();
        let status = command.status().map_err(|error| error.to_string())?;
        let rate = BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64();
        if status.success() { Ok(Figures { rate, p99: None, longest: None }) } else { Err("not in time".to_owned()) }
    }
}

/// A program on a lock, and the figures so far.
#[derive(Debug)]
pub struct Row<'a> {
    pub program: Program,
    pub lock: &'a str,
    figures: Vec<Figures>,
    failure: Option<String>,
}

impl<'a> Row<'a> {
    pub fn new(program: Program, lock: &'a str) -> Self {
        Self { program, lock, figures: Vec::new(), failure: None }
    }

    /// Measures once more, unless a run has failed.
    pub fn measure(&mut self, place: &Place) {
        if self.failure.is_none() {
            match self.program.run(place, self.lock) {
                Ok(figures) => self.figures.push(figures),
                Err(failure) => self.failure = Some(failure),
            }
        }
    }

    /// Returns the values of a figure, in order.
    fn sorted(&self, figure: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
        let mut values: Vec<f64> = self.figures.iter().filter_map(figure).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

/// Prints the table of a program.
pub fn print(program: Program, rows: &[&Row<'_>]) {
    let median = |values: &[f64]| values.get(values.len() / 2).copied();
    let show = |value: Option<f64>| {
        value.map_or(String::new(), |value| format!("{value:.*}", if value < 100.0 { 1 } else { 0 }))
    };
    println!("\n**{}**: {}\n", program.name(), program.about());
    println!("| lock | rate | to glibc | worst | p99, µs | longest, ms |\n|---|--:|--:|--:|--:|--:|");
    let rate = |row: &Row<'_>| row.sorted(|figures| Some(figures.rate));
    let glibc = rows.iter().find(|row| row.lock == "none").and_then(|row| median(&rate(row)));
    for row in rows {
        if let Some(failure) = &row.failure {
            println!("| `{}` | {failure} | | | | |", row.lock);
            continue;
        }
        let rates = rate(row);
        let ratio = median(&rates).zip(glibc).map_or(String::new(), |(rate, glibc)| format!("{:.2}", rate / glibc));
        let p99 = median(&row.sorted(|figures| figures.p99));
        let longest = row.sorted(|figures| figures.longest).last().map(|longest| longest / 1e3);
        let [rate, worst] = [median(&rates), rates.first().copied()].map(show);
        println!("| `{}` | {rate} | {ratio} | {worst} | {} | {} |", row.lock, show(p99), show(longest));
    }
}
