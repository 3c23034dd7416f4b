//! A service with a planted bottleneck, and what each tool for slow programs shows about it.
//!
//! Handlers look a price up under a lock (`get`). One goroutine fetches new prices, and waits for the fetch under that
//! lock (`refresh`): this is the bottleneck. The mutex profile charges the waits to the unlock in `refresh`; the block
//! profile and a dump show the handlers in `get`; the metrics tell how much of the time handlers wait; the trace shows
//! who had the lock. The command fails if a tool does not show this.
//!
//! The profiles, the metrics and the trace must be built in: the feature `observe`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use sudog_runtime::event::{self, Kind, Recording, Who};
use sudog_runtime::goroutine::{self, Builder, Dump, metrics, scope, sleep};
use sudog_runtime::profile::{self, Profile};
use sudog_sync::Mutex;

use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::report::default_path;

/// Options of `profile`.
#[derive(Args, Clone, Debug)]
pub struct ProfileArgs {
    /// Folder of the files [default: lab/profile in the target directory]
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

const HANDLERS: usize = 8;
/// The number of times that the price is fetched.
const FETCHES: usize = 100;
/// The time that a fetch takes, under the lock.
const FETCH: Duration = Duration::from_millis(2);
/// The time from a handler's lookup to its next one.
const PAUSE: Duration = Duration::from_micros(200);
/// The kind of the wait for the lock, in dumps.
const WAIT: &str = "sync.Mutex.Lock";

static PRICE: Mutex<u64> = Mutex::new(0);

/// Runs `f` with the price, and records for the trace who has the lock. Inlined, and ends with a call other than the
/// unlock, so that the caller is on the stack of the unlock.
#[inline(always)]
fn with_price<R>(f: impl FnOnce(&mut u64) -> R) -> R {
    let lock = (&raw const PRICE).addr();
    event::record(Kind::Want, lock, 0);
    let mut price = PRICE.lock();
    event::record(Kind::Locked, lock, 0);
    let result = f(&mut price);
    event::record(Kind::Unlocked, lock, 0);
    drop(price);
    black_box(result)
}

#[inline(never)]
fn get() -> u64 {
    with_price(|price| *price)
}

#[inline(never)]
fn refresh() {
    with_price(|price| {
        sleep(FETCH);
        *price += 1;
    });
}

/// Serves until the prices have been fetched [`FETCHES`] times.
fn serve() {
    let is_over = AtomicBool::new(false);
    scope(|s| {
        for _ in 0..HANDLERS {
            s.spawn(|| {
                while !is_over.load(Relaxed) {
                    black_box(get());
                    sleep(PAUSE);
                }
            });
        }
        Builder::new().name("refresh").spawn_scoped(s, || {
            (0..FETCHES).for_each(|_| refresh());
            is_over.store(true, Relaxed);
        });
    });
}

/// What a tool shows.
#[derive(Serialize, Debug)]
struct Finding {
    bench: &'static str,
    tool: &'static str,
    shows: String,
    found: bool,
    /// A command that shows more.
    next: String,
}

/// Returns the function of this file that has the largest part of a profile, and a sentence about that part.
fn largest(profile: &Profile, verb: &str) -> (String, String) {
    let here = concat!(module_path!(), "::");
    let mut sums = BTreeMap::<&str, (Duration, u64)>::new();
    for record in profile.records() {
        let mut names = record.frames().iter().filter_map(|frame| frame.function.strip_prefix(here));
        let sum = sums.entry(names.find(|name| !name.starts_with("with_price")).unwrap_or("?")).or_default();
        *sum = (sum.0 + record.delay(), sum.1 + record.count());
    }
    let (name, (delay, count)) = sums.into_iter().max_by_key(|(_, sum)| *sum).unwrap_or_default();
    let (name, shows) =
        (name.to_owned(), format!("{delay:.2?} of {:.2?} {verb} {name}, {count} times", profile.delay()));
    (name, shows)
}

/// Makes dumps until one shows a goroutine that waits for the lock while `refresh` fetches, or until the service ends.
fn dump_of_waits(is_over: impl Fn() -> bool) -> Dump {
    loop {
        let dump = goroutine::dump();
        let waits_in = |wait: &str, name| {
            dump.goroutines.iter().any(|info| info.wait_reason == wait && info.name.as_deref() == name)
        };
        if waits_in("sleep", Some("refresh")) && waits_in(WAIT, None) || is_over() {
            return dump;
        }
    }
}

/// Returns the time for which each goroutine had the lock.
fn times_with_lock(recording: &Recording) -> BTreeMap<Who, Duration> {
    let mut locked = Duration::ZERO;
    let mut times = BTreeMap::new();
    for event in &recording.events {
        match event.kind {
            Kind::Locked => locked = event.at,
            Kind::Unlocked => *times.entry(event.who).or_default() += event.at.saturating_sub(locked),
            _ => {}
        }
    }
    times
}

/// Runs the service, and prints what each tool shows.
pub fn run(args: &ProfileArgs, output: Output) -> Result<(), Failure> {
    let folder = args.out.clone().map_or_else(|| default_path("profile"), Ok)?;
    let cannot = |error: io::Error| Failure::Run(format!("cannot write in {}: {error}", folder.display()));
    fs::create_dir_all(&folder).map_err(cannot)?;
    profile::set_mutex_profile_fraction(1);
    profile::set_block_profile_rate(1);
    event::start();
    let service = thread::spawn(|| goroutine::run(serve));
    let dump = dump_of_waits(|| service.is_finished());
    service.join().map_err(|_| Failure::Run("the service has panicked".into()))?;
    let recording = event::stop();
    let findings = findings(&dump, &recording, &folder).map_err(cannot)?;
    output.text(format_args!(
        "{HANDLERS} handlers look a price up; refresh fetches it for {FETCH:?} under their lock, {FETCHES} times\n"
    ))?;
    for finding in &findings {
        output.record(finding)?;
        output.text(format_args!("{:<14} {}\n{:14} {}", finding.tool, finding.shows, "", finding.next))?;
    }
    match findings.iter().find(|finding| !finding.found) {
        Some(finding) => Err(Failure::Run(format!("the {} does not name the bottleneck", finding.tool))),
        None => Ok(()),
    }
}

fn findings(dump: &Dump, recording: &Recording, folder: &Path) -> io::Result<[Finding; 5]> {
    let finding = |tool, found, shows, next| Finding { bench: "profile", tool, shows, found, next };
    let file = |name: &str| folder.join(name);
    let pprof = |profile: &Profile, name: &str| {
        profile.write_pprof(File::create(file(name))?)?;
        io::Result::Ok(format!("go tool pprof -http : {}", file(name).display()))
    };
    let (mutex, block) = (profile::mutex(), profile::block());
    let (unlocks, mutex_shows) = largest(&mutex, "waited for the unlock in");
    let (waits, block_shows) = largest(&block, "waited in");

    let waiting = dump.goroutines.iter().filter(|info| info.wait_reason == WAIT).count();
    let owner = dump.goroutines.iter().find(|info| info.name.as_deref() == Some("refresh"));
    let dump_shows = format!("{waiting} of {} goroutines [{WAIT}], refresh [sleep]", dump.goroutines.len());

    let waited = metrics().mutex_wait;
    let waited_by = format!("/sync/mutex/wait/total:seconds {:.2}", waited.as_secs_f64());

    let times = times_with_lock(recording);
    let (who, time) = times.iter().max_by_key(|(_, time)| **time).unwrap_or((&Who::Thread(0), &Duration::ZERO));
    let is_owner = owner.is_some_and(|owner| *who == Who::Goroutine(owner.id));
    let all: Duration = times.values().sum();
    let trace_shows = format!("{time:.2?} of {all:.2?} {who} had the lock{}", if is_owner { ": refresh" } else { "" });
    let trace = file("trace.json");
    recording.write_trace(File::create(&trace)?)?;
    Ok([
        finding("mutex profile", unlocks == "refresh", mutex_shows, pprof(&mutex, "mutex.pb.gz")?),
        finding("block profile", waits == "get", block_shows, pprof(&block, "block.pb.gz")?),
        finding("dump", waiting > 0 && owner.is_some(), dump_shows, "eprintln!(\"{}\", runtime::dump())".into()),
        finding("metrics", waited > FETCH, waited_by, "SUDOG_DEBUG=schedtrace=1000".into()),
        finding("trace", is_owner, trace_shows, format!("ui.perfetto.dev: {}", trace.display())),
    ])
}
