//! Which lock makes the other goroutines wait? A service with a planted bottleneck, and the two profiles that find this
//! bottleneck.
//!
//! ```text
//! cargo run --release --features profile --example profile
//! ```
//!
//! Eight handlers look up prices in a cache. `Cache::refresh` holds the cache's lock for a whole millisecond;
//! `Cache::get` holds the lock for an instant. The mutex profile charges the waits to the guard that `refresh` drops,
//! and the block profile says that `get` waits. Both profiles are written to files for `go tool pprof` and for flame
//! graphs.

use std::collections::HashMap;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use sudog::runtime::profile;
use sudog::sync::Mutex;
use sudog::{compute, run, scope};

/// Prices by article.
#[derive(Default)]
struct Cache(Mutex<HashMap<u32, u64>>);

impl Cache {
    fn get(&self, article: u32) -> Option<u64> {
        self.0.lock().get(&article).copied()
    }

    /// The bottleneck: the prices are computed under the lock.
    fn refresh(&self) {
        let mut prices = self.0.lock();
        let begun = Instant::now();
        let mut price = 0;
        while begun.elapsed() < Duration::from_millis(1) {
            price = black_box(price + 1);
        }
        prices.insert(price as u32 % 100, price);
    }
}

fn main() -> io::Result<()> {
    profile::set_mutex_profile_fraction(1); // each release; a service that runs for long takes 1 release of 100
    profile::set_block_profile_rate(1); // each wait; a service takes 10_000, for a sample per 10 us of waiting

    let cache = Cache::default();
    run(|| {
        scope(|s| {
            s.spawn(|| compute(|| (0..100).for_each(|_| cache.refresh())));
            for handler in 0..8 {
                let cache = &cache;
                s.spawn(move || {
                    for request in 0..200 {
                        black_box(cache.get((handler * 31 + request) % 100));
                        sudog::time::sleep(Duration::from_micros(500));
                    }
                });
            }
        });
    });

    let (mutex, block) = (profile::mutex(), profile::block());
    for (name, profile) in [("mutex", &mutex), ("block", &block)] {
        println!("{name} profile: {:?} in all, most of it at", profile.delay());
        if let Some(record) = profile.records().first() {
            println!("  {:?} in {} waits", record.delay(), record.count());
            let ours = record.frames().iter().filter(|frame| frame.function.starts_with("profile::"));
            ours.for_each(|frame| println!("    {} ({}:{})", frame.function, frame.file, frame.line));
        }
        let path = std::env::temp_dir().join(format!("sudog-{name}.pb.gz"));
        profile.write_pprof(File::create(&path)?)?;
        profile.write_folded(File::create(path.with_file_name(format!("sudog-{name}.folded")))?)?;
        println!("  go tool pprof -http : {}", path.display());
    }

    let charged = |name: &str| {
        let has = |record: &&profile::Record| record.frames().iter().any(|frame| frame.function.contains(name));
        mutex.records().iter().filter(has).map(profile::Record::delay).sum::<Duration>()
    };
    assert!(charged("refresh") > charged("get"), "the bottleneck was not found");
    Ok(())
}
