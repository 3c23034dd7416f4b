use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Barrier};

use super::domain::{HAZARDS, READS_FOR_A_BIAS};
use super::*;

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

    fn load(&self) -> u32 {
        self.pointer.load_with(|value| value.0).unwrap()
    }

    fn drops(&self) -> usize {
        self.drops.load(Relaxed)
    }
}

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
        world.pointer.load_with(|_| {
            let again = world.pointer.swap(None);
            world.pointer.swap(again);
        });
        assert_eq!((world.load(), world.drops()), (0, 0));
        world.store(1);
        assert_eq!(world.drops(), 1);
    });
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
