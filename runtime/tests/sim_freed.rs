//! Wakers touch nothing of a waiter after waking it. Under explored schedules, the simulated machine finds accesses to
//! freed frames, of threads and of goroutines.
//!
//! `RUSTFLAGS="--cfg sudog_sim" cargo stress -p sudog-runtime --test sim_freed`

#[cfg(not(sudog_sim))]
fn main() {}

#[cfg(sudog_sim)]
fn main() {
    explored::main();
}

#[cfg(sudog_sim)]
mod explored {
    use std::hint::black_box;
    use std::ptr;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

    use sudog_runtime::goroutine::{Builder, run};
    use sudog_runtime::shim::{AtomicPtr, AtomicU32};
    use sudog_runtime::{G, ParkResult};
    use sudog_sim::explore::{Explore, Schedule};
    use sudog_sim::thread;

    #[global_allocator]
    static ARENA: sudog_sim::Arena = sudog_sim::Arena;

    const SEEDS: u64 = 1000;

    /// The frame contents of a waiter.
    struct Waiter {
        g: G,
        /// A field that a waker with the planted mistake reads after waking the waiter.
        outcome: AtomicU32,
    }

    /// A place for one waiter: null, or a pointer into the frame of the waiter.
    #[derive(Default)]
    struct Place(AtomicPtr<Waiter>);

    impl Place {
        /// Waits in a frame far below that of the caller, so that the caller's next steps use other parts of the stack.
        #[inline(never)]
        fn wait(&self) {
            #[inline(never)]
            fn park(place: &Place) {
                let waiter = Waiter { g: G::current(), outcome: AtomicU32::new(0) };
                let commit = || place.0.store(ptr::from_ref(black_box(&waiter)).cast_mut(), Release);
                assert_eq!(waiter.g.park(None, commit), ParkResult::Unparked);
            }
            let room = black_box([0_u8; 4096]);
            park(self);
            black_box(&room);
        }

        /// Wakes the waiter, if there is a waiter by now, and returns whether there was. With `looks`, reads the waiter
        /// after that.
        fn wake(&self, looks: bool) -> bool {
            let waiter = self.0.swap(ptr::null_mut(), Acquire);
            if waiter.is_null() {
                return false;
            }
            // SAFETY:
            // - the waiter waits, and its frame stays alive until the waiter is readied;
            // - the swap has taken the waiter out of the place, so no other `ready` is made for this wait;
            // - the waiter's thread or goroutine waits for nothing else.
            unsafe { G::ready(&raw const (*waiter).g) };
            if looks {
                // SAFETY: none, on purpose. The machine stops before this load if the frame has been freed.
                unsafe { (*waiter).outcome.load(Relaxed) };
            }
            true
        }
    }

    /// A thread wakes another thread.
    fn threads(looks: bool) {
        let place = Arc::new(Place::default());
        let theirs = place.clone();
        let waiter = thread::spawn(move || {
            theirs.wait();
            theirs.0.load(Relaxed); // a step, from a frame above the freed frame
        });
        while !place.wake(looks) {
            thread::yield_now();
        }
        waiter.join().expect("it does not panic");
    }

    /// A thread wakes a goroutine, which then takes another step, or ends and frees its stack.
    fn goroutine(looks: bool) {
        run(move || {
            let place = Arc::new(Place::default());
            let theirs = place.clone();
            let waker = thread::spawn(move || {
                while !theirs.wake(looks) {
                    thread::yield_now();
                }
            });
            let waiter = Builder::new().spawn(move || {
                place.wait();
                place.0.load(Relaxed);
            });
            waiter.join().expect("it does not panic");
            waker.join().expect("it does not panic");
        });
    }

    pub(super) fn main() {
        for (name, program) in [("threads", threads as fn(bool)), ("a goroutine", goroutine)] {
            for schedule in [Schedule::Random(4), Schedule::Mixed] {
                let explore = Explore { schedule, ..Explore::default() };
                let right = explore.check(0..SEEDS, &|| program(false));
                assert_eq!(right.map_err(|failure| failure.to_string()), Ok(SEEDS), "{name}");
                let failure = explore.check(0..SEEDS, &|| program(true)).expect_err(name);
                assert!(failure.what.contains("load of freed memory"), "{name}: {failure}");
                assert!(failure.what.contains("runtime/tests/sim_freed.rs"), "the place is told: {failure}");
                println!("{name}: seed {}, {}", failure.seed, failure.what.lines().next().unwrap_or_default());
            }
        }
    }
}
