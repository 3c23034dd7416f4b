use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use super::domain::HAZARDS;
use super::*;
use crate::bias::READS_FOR_A_BIAS;

/// A number that counts its destructors.
struct Counted(u32, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
    }
}

struct World {
    pointer: HazardArc<Counted>,
    drops: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Self {
        let world = Self { pointer: HazardArc::new(), drops: Arc::default() };
        world.store(0);
        world
    }

    /// A world whose value is biased, if there are heavy fences.
    fn biased() -> Self {
        let world = Self::new();
        for _ in 0..READS_FOR_A_BIAS * HAZARDS as u32 {
            assert_eq!(world.load(), 0);
        }
        assert_eq!(world.pointer.word().is_biased(), asymmetric::is_available());
        world
    }

    fn store(&self, number: u32) {
        drop(self.pointer.swap(Some(Arc::new(Counted(number, self.drops.clone())))));
    }

    /// Takes the value out, and stores the same value again.
    fn store_again(&self) {
        let again = self.pointer.swap(None);
        self.pointer.swap(again);
    }

    fn load(&self) -> u32 {
        self.pointer.load_with(|value| value.0).unwrap()
    }

    fn drops(&self) -> usize {
        self.drops.load(Relaxed)
    }
}

#[test]
fn a_value_is_not_biased_at_once() {
    let world = World::new();
    assert_eq!(world.load(), 0);
    assert!(!world.pointer.word().is_biased());
}

/// Runs a test with a value that is not biased, and with a value that is, if that can be.
fn each(test: fn(World)) {
    test(World::new());
    test(World::biased());
}

#[test]
fn a_value_that_no_read_looks_at_is_freed_at_once() {
    each(|world| {
        for n in 1..10 {
            world.store(n);
            assert_eq!((world.load(), world.drops()), (n, n as usize));
        }
        let World { pointer, drops } = world;
        drop(pointer);
        assert_eq!(drops.load(Relaxed), 10);
    });
}

#[test]
fn the_last_read_of_a_value_frees_the_value() {
    // More reads at a time than a record has hazard pointers.
    fn nest(world: &World, depth: usize) {
        world.pointer.load_with(|value| {
            if depth == 0 {
                world.store(1);
            } else {
                nest(world, depth - 1);
            }
            assert_eq!((value.0, world.drops()), (0, 0));
        });
    }
    each(|world| {
        nest(&world, 2 * HAZARDS);
        assert_eq!((world.load(), world.drops()), (1, 1));
    });
}

#[test]
fn a_read_that_panics_ends() {
    each(|world| {
        let read = || {
            world.pointer.load_with(|_| {
                world.store(1);
                resume_unwind(Box::new(()));
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
        assert_eq!(world.drops(), 1);
    });
}

#[test]
fn a_read_on_another_thread_keeps_the_value() {
    each(|world| {
        let (reads, stored) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|s| {
            s.spawn(|| {
                world.pointer.load_with(|_| {
                    reads.wait();
                    stored.wait();
                    assert_eq!(world.drops(), 0);
                });
                assert_eq!(world.drops(), 1);
            });
            reads.wait();
            world.store(1);
            stored.wait();
        });
    });
}

#[test]
fn a_value_that_is_swapped_out_of_a_read_is_shared_with_the_read() {
    each(|world| {
        world.pointer.load_with(|value| {
            let old = world.pointer.swap(None).unwrap();
            assert!(ptr::eq(value, &raw const *old));
            assert!(Arc::try_unwrap(old).is_err(), "the read's value can be moved");
            assert_eq!((value.0, world.drops()), (0, 0));
        });
        assert_eq!(world.drops(), 1);
        assert!(world.pointer.load().is_none());
    });
}

#[test]
fn a_value_that_is_stored_again_in_a_read_is_freed_by_the_next_write() {
    each(|world| {
        world.pointer.load_with(|_| world.store_again());
        assert_eq!((world.load(), world.drops()), (0, 0));
        world.store(1);
        assert_eq!(world.drops(), 1);
    });
}

#[test]
fn values_that_are_stored_in_turn_in_a_read_are_kept_once() {
    each(|world| {
        let values = [1, 2].map(|n| Arc::new(Counted(n, world.drops.clone())));
        world.pointer.swap(Some(values[0].clone()));
        world.pointer.load_with(|_| {
            for n in 1..100 {
                world.pointer.swap(Some(values[n % 2].clone()));
            }
            // The variable, the word or the list of retired values.
            assert!(values.each_ref().map(Arc::strong_count).iter().sum::<usize>() <= 4);
        });
        drop(world.pointer.swap(None));
        assert_eq!(values.each_ref().map(Arc::strong_count), [1, 1]);
    });
}

#[test]
fn a_value_that_is_stored_again_in_a_read_is_freed_with_the_pointer() {
    each(|world| {
        world.pointer.load_with(|_| world.store_again());
        let World { pointer, drops } = world;
        drop(pointer);
        assert_eq!(drops.load(Relaxed), 1);
    });
}

#[test]
fn a_write_in_the_place_of_no_value_frees_what_is_left() {
    each(|world| {
        world.pointer.load_with(|_| {
            world.store_again();
            drop(world.pointer.swap(None));
            assert_eq!(world.drops(), 0);
        });
        world.store(1);
        assert_eq!(world.drops(), 1);
    });
}

#[test]
fn a_read_of_one_pointer_keeps_no_reference_of_another() {
    each(|world| {
        let other = HazardArc::new();
        other.swap(world.pointer.load());
        world.pointer.load_with(|_| drop(other.swap(None)));
        drop(world.pointer.swap(None));
        assert_eq!(world.drops(), 1);
    });
}

#[test]
fn a_read_inside_of_another_read_is_seen() {
    each(|world| {
        let other = World::new();
        other.pointer.load_with(|_| {
            world.pointer.load_with(|_| {
                world.store(1);
                assert_eq!(world.drops(), 0);
            });
            assert_eq!(world.drops(), 1);
        });
    });
}

#[test]
fn reads_inside_of_reads_use_records_again() {
    fn nest(world: &World, depth: usize) {
        world.pointer.load_with(|_| {
            if depth > 0 {
                nest(world, depth - 1)
            }
        });
    }
    let world = World::new();
    let records = || domain::of_this_process().records().count();
    nest(&world, 2 * HAZARDS);
    let before = records();
    (0..100).for_each(|_| nest(&world, 2 * HAZARDS));
    // Other tests' threads begin and end at the same time.
    assert!(records() < before + 100, "{} records, {before} before", records());
}

#[test]
fn a_destructor_of_a_retired_value_that_panics_keeps_no_other_value() {
    struct Bomb(Arc<AtomicUsize>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0.fetch_add(1, Relaxed) == 0 {
                resume_unwind(Box::new(()));
            }
        }
    }
    let (pointer, drops) = (HazardArc::new(), Arc::new(AtomicUsize::new(0)));
    let store = || drop(pointer.swap(Some(Arc::new(Bomb(drops.clone())))));
    store();
    // Two values are read, each by a read of its own, and replaced; the outer read ends last, and frees both.
    let reads = || {
        pointer.load_with(|_| {
            store();
            pointer.load_with(|_| store());
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(reads)).is_err());
    store();
    assert_eq!(drops.load(Relaxed), 3);
}

#[test]
fn a_thread_that_ends_reads() {
    struct ReadsAtTheEnd(Arc<World>);
    impl Drop for ReadsAtTheEnd {
        fn drop(&mut self) {
            assert_eq!(self.0.load(), 0);
            self.0.pointer.load_with(|_| self.0.store(1));
            assert_eq!((self.0.load(), self.0.drops()), (1, 1));
        }
    }
    std::thread_local!(static LAST: std::cell::OnceCell<ReadsAtTheEnd> = const { std::cell::OnceCell::new() });
    let world = Arc::new(World::new());
    let ends = world.clone();
    let end = std::thread::spawn(move || {
        // Registered before the thread's record is, and so destroyed later.
        LAST.with(|last| drop(last.set(ReadsAtTheEnd(ends.clone()))));
        assert_eq!(ends.load(), 0);
    });
    end.join().unwrap();
    assert_eq!(world.load(), 1, "the destructor has run");
}

/// Lets threads read for a second, while a thread writes as fast as it can, and while values become biased. A read that comes
/// too late sees a number that a destructor has overwritten.
#[test]
fn no_read_sees_a_value_that_was_freed() {
    struct Canary(std::sync::atomic::AtomicU32, Arc<AtomicUsize>);
    impl Drop for Canary {
        fn drop(&mut self) {
            self.0.store(0xdead, Relaxed);
            self.1.fetch_add(1, Relaxed);
        }
    }
    let (begun, mut writes) = (Instant::now(), 0);
    let (pointer, drops) = (HazardArc::new(), Arc::new(AtomicUsize::new(0)));
    let new = || Some(Arc::new(Canary(7.into(), drops.clone())));
    pointer.swap(new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let read = || {
            while !stop.load(Relaxed) {
                pointer.load_with(|canary: &Canary| {
                    for _ in 0..20 {
                        assert_eq!(canary.0.load(Relaxed), 7);
                    }
                });
            }
        };
        let readers = [s.spawn(read), s.spawn(read)];
        let goes_on = || begun.elapsed() < Duration::from_secs(1);
        while goes_on() {
            // Of each two values, the second one is biased when it is replaced.
            while writes % 2 == 1 && asymmetric::is_available() && !pointer.word().is_biased() && goes_on() {
                assert!(!readers.iter().all(|reader| reader.is_finished()), "no reader is left");
                std::thread::yield_now();
            }
            drop(pointer.swap(new()));
            writes += 1;
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(drops.load(Relaxed), writes);
}

#[test]
fn a_value_is_exchanged_if_it_is_identical_whether_biased_or_not() {
    each(|world| {
        let (current, other) = (world.pointer.load().unwrap(), Arc::new(Counted(7, world.drops.clone())));
        assert!(!world.pointer.compare_and_swap(Some(&other), None));
        assert!(!world.pointer.compare_and_swap(None, Some(other.clone())));
        assert!(world.pointer.compare_and_swap(Some(&current), Some(other)));
        assert_eq!(Arc::strong_count(&current), 1);
        assert_eq!(world.load(), 7);
    });
}

#[test]
fn a_thread_that_ends_gives_its_record_to_the_next_thread() {
    let world = World::new();
    let record = || std::thread::spawn(|| domain::with_hazard(|_, hazard| &raw const *hazard as usize)).join().unwrap();
    let records: std::collections::HashSet<_> = (0..100).map(|_| record()).collect();
    // Other tests' threads begin and end at the same time.
    assert!(records.len() < 50, "{} threads one after the other have {} records", 100, records.len());
    assert_eq!(world.load(), 0);
}
