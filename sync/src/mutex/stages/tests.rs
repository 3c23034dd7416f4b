//! What comes of a goroutine that is unwound while it waits.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use sudog_runtime::goroutine::{Builder, Placement, gosched, run_local, without_switching};

use super::{V1, V2, V3, V4, V5, V6, V7};
use crate::RawLock;

/// Goroutines sleep on a lock until they are unwound; then it is unlocked.
fn after_sleepers<L: RawLock<Guard = ()> + Debug + 'static>(starving: bool) -> Arc<L> {
    let lock = Arc::new(L::new());
    let theirs = lock.clone();
    run_local(move || {
        theirs.lock();
        let waits = Arc::new(AtomicU32::new(0));
        for _ in 0..3 {
            let (lock, waits) = (theirs.clone(), waits.clone());
            drop(Builder::new().on(Placement::Here).spawn(move || {
                waits.fetch_add(1, Relaxed);
                lock.lock();
                unreachable!("nobody unlocks it");
            }));
        }
        while starving && waits.load(Relaxed) < 3 {
            gosched();
        }
        while starving && !format!("{theirs:?}").contains("starving: true") {
            thread::sleep(Duration::from_millis(2));
            // Before the one that this wakes can run.
            without_switching(|| {
                // SAFETY: it is ours.
                unsafe { theirs.unlock(()) };
                theirs.try_lock().expect("who else runs here?");
            });
            gosched();
        }
    });
    assert!(lock.is_locked());
    // SAFETY: locked above, and its owner is gone.
    unsafe { lock.unlock(()) };
    lock
}

fn it_still_works<L: RawLock<Guard = ()>>(lock: &L) {
    let inside = AtomicU32::new(0);
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..2_000 {
                    lock.lock();
                    let old = inside.load(Relaxed);
                    if old.is_multiple_of(64) {
                        thread::yield_now(); // be waited for
                    }
                    inside.store(old + 1, Relaxed);
                    // SAFETY: locked above.
                    unsafe { lock.unlock(()) };
                }
            });
        }
    });
    assert_eq!(inside.into_inner(), 8_000);
    assert!(!lock.is_locked());
}

#[test]
fn sleepers_that_are_unwound_lose_nothing_for_others() {
    fn check<L: RawLock<Guard = ()> + Debug + 'static>() {
        let lock = after_sleepers::<L>(false);
        lock.try_lock().expect("nobody has it");
        // SAFETY: locked above.
        unsafe { lock.unlock(()) };
        it_still_works(&*lock);
    }
    check::<V1>();
    check::<V2>();
    check::<V3>();
    check::<V4>();
    check::<V5>();
    check::<V6>();
    check::<V7>();
}

/// The mutex is promised to a waiter that is gone, and the next caller has it.
#[test]
fn starvation_mode_outlives_the_starved_waiters() {
    let lock = after_sleepers::<V7>(true);
    assert!(!lock.is_locked() && lock.try_lock().is_none());
    lock.lock();
    // SAFETY: locked above.
    unsafe { lock.unlock(()) };
    lock.try_lock().expect("as it says");
    // SAFETY: locked above.
    unsafe { lock.unlock(()) };
    it_still_works(&*lock);
}
