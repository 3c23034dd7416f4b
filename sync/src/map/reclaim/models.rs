//! Every interleaving, on loom's memory model, up to a bound of preemptions. An object that is freed while an operation looks at
//! the object shows as a data race in loom's cell; an object that is freed twice, or never, in the count of destructors.
//!
//! Both fences of a pair are full fences here, so the order of heavy fences and states is the part of `tests`. Each operation biases
//! its map, and a batch does not wait for more objects.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use sudog_runtime::model::{each_site, under_both};
use sudog_runtime::reached::must_reach;
use sudog_runtime::shim::system::atomic::{AtomicUsize, Ordering::Relaxed as StdRelaxed};

use super::collector::{Collector, Guard};
use super::test_slot::Slot;
use crate::hazard::domain::{Domain, own_record};

const WAITS: &str = "a batch waits";
const FREES: &str = "a guard looks at the batches";
const ENDS: &str = "a heavy fence is executed";
const ANOTHER: &str = "another batch ends the bias";

/// An object whose memory loom watches.
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

/// A map of two slots.
struct World {
    slots: [Slot<Item>; 2],
    collector: Collector,
    domain: Domain,
    drops: std::sync::Arc<AtomicUsize>,
}

impl World {
    fn under_guard<R>(&self, f: impl FnOnce(&Guard<'_>) -> R) -> R {
        let record = own_record(&self.domain);
        f(&self.collector.guard(&self.domain, record.free_hazard().unwrap()))
    }

    fn load(&self, slot: usize) {
        self.under_guard(|guard| {
            if let Some(item) = self.slots[slot].load(guard) {
                item.memory.with(|_| ());
            }
        });
    }

    /// Checks that no memory waits. Called after a batch that began when all other operations had ended.
    fn assert_is_empty(&self) {
        assert_eq!(self.drops.load(StdRelaxed), 2, "memory waits for no guard");
    }

    fn remove(&self, slot: usize) {
        self.under_guard(|guard| {
            self.slots[slot].replace(guard, None);
            guard.hasten();
        });
    }
}

fn explore(preemptions: usize, states: &[&'static str], model: fn(&Arc<World>)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    must_reach(states, || {
        builder.check(move || {
            let drops = std::sync::Arc::<AtomicUsize>::default();
            let slot = || Slot::new(Item { memory: UnsafeCell::new(()), drops: drops.clone() });
            let slots = [slot(), slot()];
            let (collector, domain) = (Collector::new(), Domain::new());
            let world = Arc::new(World { slots, collector, domain, drops: drops.clone() });
            model(&world);
            drop(world);
            assert_eq!(drops.load(StdRelaxed), 2, "each item is freed once");
        });
    });
}

fn spawn(world: &Arc<World>, f: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

fn load_beside_a_removal(world: &Arc<World>) {
    let load = spawn(world, |world| world.load(0));
    world.remove(0);
    load.join().unwrap();
    world.remove(1);
    world.assert_is_empty();
}

#[test]
fn a_load_and_a_removal() {
    under_both(|| {
        explore(5, &[WAITS, FREES], load_beside_a_removal);
    });
}

#[test]
fn a_load_and_a_removal_see_each_other() {
    let test = concat!(module_path!(), "::a_load_and_a_removal_see_each_other");
    let needed = ["asymmetric.rs, light: fence", "domain.rs, name_sc: swap"];
    // Each has a SeqCst access of the state beside it, whose fence is enough in a model: `docs/orderings.md`, section 10.
    let spare = [
        "asymmetric.rs, fence_others: fence",
        "collector.rs, begin_biased: load",
        "collector.rs, begin_biased: load",
        "collector.rs, bias: compare_exchange",
        "collector.rs, bias: load",
        "collector.rs, fence: compare_exchange",
        "collector.rs, fence: compare_exchange",
        "collector.rs, fence: load",
        "domain.rs, acquire: compare_exchange",
        "domain.rs, names: load",
        "domain.rs, records: load",
        "test_slot.rs, load: load",
        "test_slot.rs, replace: swap",
    ];
    each_site(test, &needed, &spare, || {
        explore(3, &[WAITS, FREES], load_beside_a_removal);
    });
}

#[test]
fn a_load_of_a_biased_map_and_a_removal() {
    under_both(|| {
        explore(5, &[WAITS, FREES, ENDS], |world| {
            world.load(0);
            load_beside_a_removal(world);
        });
    });
}

#[test]
fn two_loads_in_turn_and_a_removal() {
    under_both(|| {
        explore(4, &[WAITS, FREES, ENDS], |world| {
            let loads = spawn(world, |world| {
                world.load(0);
                world.load(1);
            });
            world.remove(0);
            loads.join().unwrap();
            world.remove(1);
            world.assert_is_empty();
        });
    });
}

#[test]
fn two_removals_end_a_bias() {
    under_both(|| {
        explore(3, &[WAITS, ENDS, ANOTHER], |world| {
            world.load(0);
            let removal = spawn(world, |world| world.remove(1));
            world.remove(0);
            removal.join().unwrap();
        });
    });
}

#[test]
fn a_load_and_two_removals() {
    under_both(|| {
        explore(2, &[WAITS, FREES, ENDS], |world| {
            world.load(0);
            let others = [spawn(world, |world| world.load(0)), spawn(world, |world| world.remove(1))];
            world.remove(0);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    });
}

/// The removal's own guard has ended when the batch lists the guards, and another guard of the same thread has not.
#[test]
fn a_removal_inside_of_a_guard() {
    under_both(|| {
        explore(3, &[WAITS, FREES], |world| {
            let other = spawn(world, |world| world.load(0));
            let outer = world.domain.acquire();
            let guard = world.collector.guard(&world.domain, outer.free_hazard().unwrap());
            world.remove(0);
            drop(guard);
            other.join().unwrap();
            world.remove(1);
            world.assert_is_empty();
        });
    });
}
