//! Every interleaving, on loom's memory model, up to a bound of preemptions. A value that is freed while a read looks at
//! the value shows as a data race in loom's cell; a value that is left behind, in the count of destructors.
//!
//! Both fences of a pair are full fences here. Each read biases its value.

use loom::cell::UnsafeCell;
use loom::thread;
use sudog_runtime::model::{each_site, under_both};
use sudog_runtime::reached::must_reach;
use sudog_runtime::shim::system::atomic::{AtomicUsize, Ordering::Relaxed as StdRelaxed};

use super::*;

const ANEW: &str = "a read starts anew";
const BIASED: &str = "a biased value is replaced";
const RETIRED: &str = "a value is retired";
const SWEEPS: &str = "a read sweeps";
const ANOTHER: &str = "another word is current";
const NOT_EXCHANGED: &str = "another value is current";

/// A value whose memory loom watches.
struct Item {
    memory: UnsafeCell<()>,
    drops: std::sync::Arc<AtomicUsize>,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.memory.with_mut(|_| ());
        self.drops.fetch_add(1, StdRelaxed);
    }
}

struct World {
    pointer: HazardArc<Item>,
    domain: Domain,
    drops: std::sync::Arc<AtomicUsize>,
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self { pointer: HazardArc::new(), domain: Domain::new(), drops: std::sync::Arc::default() };
        world.write();
        Arc::new(world)
    }

    fn item(&self) -> Option<Arc<Item>> {
        Some(Arc::new(Item { memory: UnsafeCell::new(()), drops: self.drops.clone() }))
    }

    fn write(&self) {
        drop(self.pointer.replace(&self.domain, self.item()));
    }

    fn write_none(&self) {
        drop(self.pointer.replace(&self.domain, None));
    }

    /// Replaces the value if the value is still the one at `current`.
    fn exchange(&self, current: *const Item) -> bool {
        self.pointer.replace_if(&self.domain, current, self.item()).is_ok()
    }

    fn load(&self) -> Arc<Item> {
        let record = self.domain.acquire();
        let item =
            self.pointer.read(&self.domain, record.free_hazard().unwrap(), |read| Arc::clone(&read.value())).unwrap();
        record.give_back();
        item
    }

    /// Reads in a record of its own, as a thread does, `reads` times.
    fn read(&self, reads: usize) {
        self.read_with(reads, || ());
    }

    fn read_with(&self, reads: usize, f: impl Fn()) {
        let record = self.domain.acquire();
        for _ in 0..reads {
            let look = |read: &Read<'_, Item>| {
                f();
                read.value().memory.with(|_| ());
            };
            self.pointer.read(&self.domain, record.free_hazard().unwrap(), look);
        }
        record.give_back();
    }
}

fn explore(preemptions: usize, states: &[&'static str], writes: usize, model: fn(&Arc<World>)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    must_reach(states, || {
        builder.check(move || {
            let world = World::new();
            model(&world);
            let drops = world.drops.load(StdRelaxed);
            assert_eq!(drops, writes, "a value that no read looks at is there");
        });
    });
}

/// Explores under both conventions of sequential consistency.
fn explore_both(preemptions: usize, states: &[&'static str], writes: usize, model: fn(&Arc<World>)) {
    under_both(|| explore(preemptions, states, writes, model));
}

fn spawn(world: &Arc<World>, f: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

#[test]
fn a_read_and_a_write() {
    explore_both(6, &[ANEW, RETIRED, SWEEPS], 1, |world| {
        let read = spawn(world, |world| world.read(1));
        world.write();
        read.join().unwrap();
    });
}

#[test]
fn a_read_and_a_write_see_each_other() {
    let test = concat!(module_path!(), "::a_read_and_a_write_see_each_other");
    let needed =
        ["domain.rs, name_sc: swap", "domain.rs, records: load", "mod.rs, replace: swap", "mod.rs, word: load"];
    // The first two have a needed site beside them, whose fence is enough in a model: `docs/orderings.md`, section 10.
    let spare = [
        "domain.rs, acquire: compare_exchange",
        "domain.rs, names: load",
        "mod.rs, bias: compare_exchange",
        "asymmetric.rs, fence_others: fence",
    ];
    each_site(test, &needed, &spare, || {
        explore(3, &[ANEW, RETIRED, SWEEPS], 1, |world| {
            let read = spawn(world, |world| world.read(1));
            world.write();
            read.join().unwrap();
        });
    });
}

#[test]
fn two_reads_in_turn_and_a_write() {
    explore_both(5, &[ANEW, RETIRED, SWEEPS, BIASED], 1, |world| {
        let read = spawn(world, |world| world.read(2));
        world.write();
        read.join().unwrap();
    });
}

#[test]
fn a_read_of_a_biased_value_and_a_write() {
    explore_both(6, &[ANEW, RETIRED, SWEEPS, BIASED], 1, |world| {
        world.read(1);
        let read = spawn(world, |world| world.read(1));
        world.write();
        read.join().unwrap();
    });
}

#[test]
fn an_arc_is_loaded_beside_a_write() {
    explore_both(6, &[ANEW, RETIRED, SWEEPS], 1, |world| {
        let load = spawn(world, |world| {
            let item = world.load();
            item.memory.with(|_| ());
        });
        world.write();
        load.join().unwrap();
    });
}

#[test]
fn an_exchange_of_a_value_that_becomes_biased() {
    explore_both(4, &[RETIRED, SWEEPS, BIASED, ANOTHER], 1, |world| {
        let current = world.pointer.word().address(); // no other thread writes
        let read = spawn(world, |world| world.read(1));
        assert!(world.exchange(current));
        read.join().unwrap();
    });
}

#[test]
fn an_exchange_and_a_write() {
    explore_both(4, &[RETIRED, SWEEPS, NOT_EXCHANGED], 2, |world| {
        let exchange = spawn(world, |world| {
            let current = world.load();
            if !world.exchange(Arc::as_ptr(&current)) {
                mark(NOT_EXCHANGED);
            }
        });
        world.write();
        exchange.join().unwrap();
    });
}

#[test]
fn a_read_and_a_write_of_none() {
    explore_both(6, &[ANEW, RETIRED, SWEEPS], 1, |world| {
        let read = spawn(world, |world| world.read(1));
        world.write_none();
        read.join().unwrap();
    });
}

#[test]
fn two_reads_and_a_write_of_none() {
    explore_both(2, &[ANEW, RETIRED, SWEEPS], 1, |world| {
        let reads = [spawn(world, |world| world.read(1)), spawn(world, |world| world.read(1))];
        world.write_none();
        reads.into_iter().for_each(|read| read.join().unwrap());
    });
}

#[test]
fn a_read_and_two_writes_in_turn() {
    explore_both(4, &[ANEW, RETIRED, SWEEPS, BIASED], 2, |world| {
        let read = spawn(world, |world| world.read(1));
        world.write();
        world.write();
        read.join().unwrap();
    });
}

#[test]
fn two_reads_and_a_write() {
    explore_both(2, &[ANEW, RETIRED, SWEEPS], 1, |world| {
        let reads = [spawn(world, |world| world.read(1)), spawn(world, |world| world.read(1))];
        world.write();
        reads.into_iter().for_each(|read| read.join().unwrap());
    });
}

#[test]
fn a_read_and_two_writes() {
    explore_both(3, &[ANEW, RETIRED, SWEEPS], 2, |world| {
        let others = [spawn(world, |world| world.read(1)), spawn(world, World::write)];
        world.write();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn a_write_inside_of_a_read() {
    explore_both(3, &[RETIRED, SWEEPS], 2, |world| {
        let write = spawn(world, World::write);
        world.read_with(1, || world.write());
        write.join().unwrap();
    });
}

#[test]
fn the_next_owner_of_a_record_sees_the_end_of_the_last_read() {
    must_reach(&["a record is used again"], || {
        loom::model(|| {
            let domain = Arc::new(Domain::new());
            // The two owners meet at the record: of the two accesses of the list in `acquire`, loom explores the last only.
            domain.acquire();
            let first = domain.clone();
            let first = thread::spawn(move || {
                let record = first.records().next().unwrap();
                let hazard = record.free_hazard().unwrap();
                hazard.name(&raw const *hazard);
                hazard.name::<()>(ptr::null());
                record.give_back();
            });
            assert!(domain.acquire().free_hazard().is_some());
            first.join().unwrap();
        });
    });
}

#[test]
fn two_records_have_two_indices() {
    loom::model(|| {
        let domain = Arc::new(Domain::new());
        let other = domain.clone();
        let other = thread::spawn(move || other.acquire().index());
        assert_ne!(domain.acquire().index(), other.join().unwrap());
    });
}
