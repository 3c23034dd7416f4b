use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sudog_runtime::shim::asymmetric;

use super::collector::{BATCH, Collector, Guard, State};
use super::test_slot::Slot;
use crate::bias::READS_FOR_A_BIAS;
use crate::hazard::domain::of_this_process;

/// An object that counts how many objects were freed.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[derive(Default)]
struct World {
    collector: Collector,
    freed: Arc<AtomicUsize>,
}

impl Default for Collector {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    fn retire(&self, guard: &Guard<'_>, objects: usize) {
        for _ in 0..objects {
            Slot::new(Counted(self.freed.clone())).replace(guard, None);
        }
    }

    fn retire_at_once(&self, guard: &Guard<'_>, objects: usize) {
        self.retire(guard, objects);
        guard.hasten();
    }

    fn freed(&self) -> usize {
        self.freed.load(Relaxed)
    }
}

/// A batch has at least as many objects as there are records, of which other tests may make some.
const MANY: usize = 32 * BATCH;

#[test]
fn a_hastened_batch_is_freed_at_the_end_of_its_guard() {
    let world = World::default();
    world.collector.with_guard(|guard| {
        world.retire_at_once(guard, MANY);
        assert_eq!(world.freed(), 0);
    });
    assert_eq!(world.freed(), MANY);
}

#[test]
fn fewer_objects_wait_for_a_batch_unless_they_are_hastened() {
    let world = World::default();
    world.collector.with_guard(|guard| world.retire(guard, BATCH - 1));
    assert_eq!(world.freed(), 0);
    world.collector.with_guard(|guard| {
        world.retire(guard, 2);
        guard.hasten();
    });
    assert_eq!(world.freed(), BATCH + 1);
}

#[test]
fn all_objects_are_freed_with_the_map() {
    let world = World::default();
    world.collector.with_guard(|guard| world.retire(guard, BATCH - 1));
    let World { collector, freed } = world;
    drop(collector);
    assert_eq!(freed.load(Relaxed), BATCH - 1);
}

/// The guard that a batch waits for frees the batch at its end, even if it retires an object; until then, nothing frees the batch.
#[test]
fn the_last_guard_frees_a_batch() {
    for also in [0, 1] {
        let world = World::default();
        world.collector.with_guard(|guard| {
            world.collector.with_own_guard(|_| {
                world.collector.with_guard(|guard| world.retire_at_once(guard, MANY));
                world.collector.with_guard(|guard| world.retire_at_once(guard, MANY));
            });
            world.retire(guard, also);
            assert_eq!(world.freed(), 0);
        });
        assert_eq!(world.freed(), 2 * MANY);
    }
}

/// The objects of a batch are freed one by one, when others are retired, and at the latest with the next batch.
#[test]
fn a_batch_is_freed_while_others_are_retired() {
    let world = World::default();
    let batch = || world.collector.with_guard(|guard| world.retire(guard, MANY));
    batch();
    assert_eq!(world.freed(), 0);
    for freed in 1..BATCH {
        world.collector.with_guard(|guard| world.retire(guard, 1));
        assert_eq!(world.freed(), freed);
    }
    batch();
    assert_eq!(world.freed(), MANY);
    let World { collector, freed } = world;
    drop(collector);
    assert_eq!(freed.load(Relaxed), 2 * MANY + BATCH - 1);
}

#[test]
fn a_guard_of_another_map_keeps_nothing() {
    let (world, other) = (World::default(), World::default());
    other.collector.with_guard(|_| {
        world.collector.with_guard(|guard| world.retire_at_once(guard, MANY));
        assert_eq!(world.freed(), MANY);
    });
}

#[test]
fn a_guard_that_began_after_the_batch_keeps_nothing() {
    let world = World::default();
    let (begin, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let collector = &world.collector;
        s.spawn(move || {
            collector.with_guard(|_| {
                begin.send(()).unwrap();
                ends.recv().unwrap();
            });
            collector.with_guard(|_| {
                begin.send(()).unwrap();
                ends.recv().unwrap();
            });
        });
        begun.recv().unwrap();
        world.collector.with_guard(|guard| world.retire_at_once(guard, MANY));
        assert_eq!(world.freed(), 0);
        end.send(()).unwrap();
        begun.recv().unwrap();
        assert_eq!(world.freed(), MANY, "freed at the end of the first guard");
        end.send(()).unwrap();
    });
}

#[test]
fn a_guard_that_has_ended_is_told_from_the_next_guard() {
    let collector = Collector::new();
    let guards = || of_this_process().guards_of(&collector);
    let first = collector.with_guard(|_| guards());
    collector.with_guard(|_| {
        assert_eq!((first.len(), guards().len()), (1, 1));
        assert!(first[0].has_ended(&collector) && !guards()[0].has_ended(&collector));
    });
}

#[test]
fn threads_have_bags_of_their_own() {
    let world = World::default();
    std::thread::scope(|s| {
        for _ in 0..20 {
            s.spawn(|| world.collector.with_guard(|guard| world.retire(guard, 1)));
        }
    });
    let World { collector, freed } = world;
    drop(collector);
    assert_eq!(freed.load(Relaxed), 20);
}

#[test]
fn a_late_batch_does_not_end_the_revoking_of_another_batch() {
    let collector = Collector::new();
    let state = collector.state();
    let next = |expected: fn(State) -> bool| {
        let state = state.advance(state.load());
        assert!(expected(state));
        state
    };
    assert!(state.load().is_unbiased());
    next(State::is_biased);
    let late = next(State::is_revoking);
    next(State::is_unbiased);
    next(State::is_biased);
    next(State::is_revoking);
    assert!(state.advance(late).is_revoking(), "the late batch ends a bias that it has not fenced");
}

/// Makes the map biased, if there are heavy fences.
fn bias(collector: &Collector) {
    for _ in 0..READS_FOR_A_BIAS {
        collector.with_guard(|_| ());
    }
    assert_eq!(collector.state().load().is_biased(), asymmetric::is_available());
}

#[test]
fn a_batch_ends_the_bias() {
    let world = World::default();
    assert!(world.collector.state().load().is_unbiased());
    bias(&world.collector);
    world.collector.with_guard(|guard| world.retire_at_once(guard, MANY));
    assert!(world.collector.state().load().is_unbiased());
    assert_eq!(world.freed(), MANY);
}

/// Lets threads look at an object under guards for a second, while a thread replaces and retires the object, and while the map becomes
/// biased and unbiased. A look that comes too late sees a number that `free` has overwritten.
#[test]
fn no_guard_sees_an_object_that_was_freed() {
    use std::sync::atomic::{AtomicBool, AtomicU32};

    struct Canary(AtomicU32, Arc<AtomicUsize>);
    impl Drop for Canary {
        fn drop(&mut self) {
            self.0.store(0xdead, Relaxed);
            self.1.fetch_add(1, Relaxed);
        }
    }
    let (world, begun, stop) = (World::default(), Instant::now(), AtomicBool::new(false));
    let new = || Canary(7.into(), world.freed.clone());
    let slot = Slot::new(new());
    let mut replaced = 0;
    std::thread::scope(|s| {
        let read = || {
            while !stop.load(Relaxed) {
                world.collector.with_guard(|guard| {
                    let canary = slot.load(guard).unwrap();
                    for _ in 0..20 {
                        assert_eq!(canary.0.load(Relaxed), 7);
                    }
                });
            }
        };
        let readers = [s.spawn(read), s.spawn(read)];
        let goes_on = || begun.elapsed() < Duration::from_secs(1);
        while goes_on() {
            // Of each two batches, which have one object each, the second one ends a bias.
            let is_biased = || world.collector.state().load().is_biased();
            while replaced % 2 == 1 && asymmetric::is_available() && !is_biased() && goes_on() {
                assert!(!readers.iter().all(|reader| reader.is_finished()), "no reader is left");
                std::thread::yield_now();
            }
            world.collector.with_guard(|guard| {
                slot.replace(guard, Some(new()));
                guard.hasten();
            });
            replaced += 1;
        }
        stop.store(true, Relaxed);
    });
    world.collector.with_guard(|guard| slot.replace(guard, None));
    let World { collector, freed } = world;
    drop(collector);
    assert_eq!(freed.load(Relaxed), replaced + 1);
}

/// The destructor of each value removes a later key, so destructors nest. They nest once for each batch, not for each value.
#[test]
fn destructors_that_remove_keys_nest_by_batches() {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use crate::Map;

    const KEYS: usize = 2000;
    static MAP: LazyLock<Map<usize, Value>> = LazyLock::new(Map::default);
    std::thread_local! {
        /// The number of destructors that run, and the largest such number.
        static DEPTH: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }
    struct Value(usize);
    impl Drop for Value {
        fn drop(&mut self) {
            let (depth, most) = DEPTH.get();
            DEPTH.set((depth + 1, most.max(depth + 1)));
            MAP.delete(&self.0);
            DEPTH.set((depth, DEPTH.get().1));
        }
    }
    for key in 0..KEYS {
        MAP.store(key, Value(key + 2 * BATCH));
    }
    for key in 0..2 * BATCH {
        MAP.delete(&key);
    }
    let most = DEPTH.get().1;
    assert!((2..=2 * KEYS / BATCH).contains(&most), "{most} destructors in each other");
}

/// The keys have the same hash, so the root of the map is a list.
#[test]
fn a_long_list_is_freed_when_the_map_is_cleared() {
    use std::hash::{BuildHasherDefault, Hasher};

    use crate::Map;

    #[derive(Default)]
    struct Same;
    impl Hasher for Same {
        fn write(&mut self, _: &[u8]) {}
        fn finish(&self) -> u64 {
            0
        }
    }
    const KEYS: usize = 300;
    let freed = Arc::new(AtomicUsize::new(0));
    let map = Map::with_hasher(BuildHasherDefault::<Same>::default());
    for key in 0..KEYS {
        map.store(key, Arc::new(Counted(freed.clone())));
    }
    map.clear();
    assert_eq!(freed.load(Relaxed), KEYS);
}
