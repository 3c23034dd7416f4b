//! Models of the semaphore on a futex.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_futex_sema`
//!
//! A lost wake-up shows as a deadlock. The modelled futex is no fence, because nothing promises that the kernel's futex
//! is a fence.
#![cfg(all(sudog_loom, target_os = "linux"))]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use sudog_runtime::model::each_site;
use sudog_runtime::model::thread;
use sudog_sync::semaphore::FutexSema;
use sudog_sync::{Order, Semaphore, Wake};

struct World {
    sema: FutexSema,
    data: UnsafeCell<u32>,
}

// SAFETY: loom's cell checks that accesses do not overlap; that is the test.
unsafe impl Sync for World {}

impl World {
    fn turn(&self) {
        self.sema.acquire(Order::Fifo);
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.data.with_mut(|data| unsafe { *data += 1 });
        self.sema.release(Wake::Normal);
    }

    fn left(&self) -> u32 {
        std::iter::from_fn(|| self.sema.try_acquire().then_some(())).count() as u32
    }
}

fn explore(preemptions: usize, permits: u32, model: impl Fn(&Arc<World>) + Sync + Send + 'static) {
    sudog_runtime::model::explore(preemptions, move || {
        model(&Arc::new(World { sema: FutexSema::new(permits), data: UnsafeCell::new(0) }))
    });
}

fn spawn(world: &Arc<World>, f: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

#[test]
fn a_release_sees_the_acquirer_or_is_seen() {
    let test = concat!(module_path!(), "::a_release_sees_the_acquirer_or_is_seen");
    let needed = [
        "futex.rs, acquire_slow: fetch_add",
        "futex.rs, try_acquire: load",
        "futex.rs, release_many: fetch_add",
        "futex.rs, release_many: load",
    ];
    each_site(test, &needed, &["futex.rs, try_acquire: compare_exchange"], || {
        explore(4, 0, |w| {
            let waiter = spawn(w, |w| w.sema.acquire(Order::Fifo));
            w.sema.release(Wake::Normal);
            waiter.join().unwrap();
            assert_eq!(w.left(), 0);
        });
    });
}

#[test]
fn one_release_of_two_wakes_two() {
    explore(3, 0, |w| {
        let waiters = [(); 2].map(|()| spawn(w, |w| w.sema.acquire(Order::Fifo)));
        w.sema.release_many(2);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(w.left(), 0);
    });
}

#[test]
fn a_permit_excludes() {
    explore(3, 1, |w| {
        let others = [(); 2].map(|()| spawn(w, World::turn));
        w.turn();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(w.left(), 1);
    });
}
