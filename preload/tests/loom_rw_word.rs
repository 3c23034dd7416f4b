//! Models of `rw_word.rs`: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-preload --test loom_rw_word`
//!
//! A lost wake-up shows as a deadlock; too many inside, or an access that is not ordered, as a data race in loom's cell. The
//! chosen lock is loom's mutex.
#![cfg(sudog_loom)]

#[allow(dead_code, missing_docs)]
#[path = "../src/rw_word.rs"]
mod rw_word;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use rw_word::{Prefers, RwWord};
use sudog_runtime::model::thread;
use sudog_runtime::reached::{AT_ONCE, SLEEPS, must_reach, waiting};
use sudog_runtime::shim::futex;

struct World {
    word: RwWord,
    writers: Mutex<()>,
    data: UnsafeCell<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { word: RwWord::new(), writers: Mutex::new(()), data: UnsafeCell::new(0) })
    }

    fn read(&self, prefers: Prefers) -> u32 {
        assert_eq!(waiting(|| self.word.read(prefers, None)).0, Ok(()));
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        let seen = self.data.with(|data| unsafe { *data });
        assert!(self.word.leave_read());
        seen
    }

    fn write(&self) {
        let guard = self.writers.lock().unwrap();
        assert!(waiting(|| self.word.write(None)).0);
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.data.with_mut(|data| unsafe { *data += 1 });
        drop(guard);
        self.word.leave_write();
    }
}

fn model(preemptions: usize, reach: &'static [&'static str], f: impl Fn() + Sync + Send + 'static) {
    must_reach(reach, || sudog_runtime::model::explore(preemptions, f));
}

#[test]
fn a_reader_and_a_writer() {
    model(3, &[AT_ONCE, SLEEPS], || {
        let world = World::new();
        let theirs = Arc::clone(&world);
        let writer = thread::spawn(move || theirs.write());
        world.read(Prefers::Readers);
        writer.join().unwrap();
        assert_eq!(world.read(Prefers::Readers), 1);
        assert!(!world.word.is_locked() && world.word.reset());
    });
}

#[test]
fn two_readers_and_a_writer() {
    model(2, &[AT_ONCE, SLEEPS], || {
        let world = World::new();
        let theirs = Arc::clone(&world);
        let writer = thread::spawn(move || theirs.write());
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || theirs.read(Prefers::Readers));
        world.read(Prefers::Readers);
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn two_writers_and_a_reader_that_lets_writers_go_first() {
    model(2, &[AT_ONCE, SLEEPS], || {
        let world = World::new();
        let theirs = Arc::clone(&world);
        let other = thread::spawn(move || theirs.write());
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || theirs.read(Prefers::Writers));
        world.write();
        other.join().unwrap();
        reader.join().unwrap();
        assert_eq!(world.read(Prefers::Writers), 2);
    });
}

/// A reader that has slept behind a writer goes on when that writer gives up.
#[test]
fn a_writer_gives_up() {
    model(3, &[AT_ONCE, SLEEPS], || {
        let world = World::new();
        assert_eq!(world.word.read(Prefers::Readers, None), Ok(()));
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || theirs.read(Prefers::Writers));
        let theirs = Arc::clone(&world);
        let writer = thread::spawn(move || {
            let _guard = theirs.writers.lock().unwrap();
            assert!(!theirs.word.pend_and_give_up());
        });
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(world.word.leave_read());
    });
}
