//! The number of a context's handles. The last handle takes the data that only the handles keep: see `handle.rs`.
//!
//! | step | ordering |
//! |---|---|
//! | a handle is cloned: adds 1 | relaxed: the cloned handle is counted, so the count does not reach zero meanwhile |
//! | a handle is dropped, and reads 1 | acquire. The handle is the last, and does not decrement: see below |
//! | a handle is dropped, and reads more: decrements | release: every access through the handle comes before the accesses of the last handle. Acquire: the handle may be the last by now |
//!
//! A handle that reads 1 is the last. The value that the handle reads was stored when the handle itself was counted, or
//! later. So the count of 1 counts the handle itself, and no other handle was left that could be cloned. The handle
//! itself cannot be cloned: a clone needs a reference to the handle, and the drop has the only reference.

use sudog_runtime::shim::{AtomicUsize, Ordering};

pub(super) struct HandleCount(AtomicUsize);

impl HandleCount {
    /// Returns the count of a single handle.
    pub(super) fn one() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// Adds a handle. The caller has a handle.
    ///
    /// Aborts if the number overflows: then handles have been forgotten, not dropped.
    #[inline]
    pub(super) fn add(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            std::process::abort();
        }
    }

    /// Removes the caller's handle. Returns true if the handle was the last: in that case only the caller may access
    /// the data that handles keep.
    #[inline]
    pub(super) fn remove(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1 || self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --lib handle_count`
#[cfg(all(test, sudog_loom))]
mod model {
    use super::*;
    use loom::cell::Cell;
    use loom::sync::Arc;
    use sudog_runtime::model::thread;
    use sudog_runtime::reached::{mark, must_reach};

    const READS_ONE: &str = "the last handle reads one";
    const TAKES_THE_LAST: &str = "a handle that read two takes the last off";

    struct World {
        count: HandleCount,
        /// The data that each handle reads, and the last handle takes.
        kept: Cell<Option<u32>>,
    }

    // SAFETY: loom's cell checks the accesses to `kept`. That check is the test.
    unsafe impl Sync for World {}

    fn look_and_go(world: &World) -> bool {
        assert_eq!(world.kept.get(), Some(7));
        let read = world.count.0.load(Ordering::Relaxed);
        let last = world.count.remove();
        if last {
            mark(if read == 1 { READS_ONE } else { TAKES_THE_LAST });
            assert_eq!(world.kept.take(), Some(7));
        }
        last
    }

    /// Three handles, of which a handle is cloned while another is dropped: exactly one handle is the last, after all
    /// have read.
    #[test]
    fn the_last_takes_what_they_keep() {
        must_reach(&[READS_ONE, TAKES_THE_LAST], || {
            sudog_runtime::model::explore_all(|| {
                let world = Arc::new(World { count: HandleCount::one(), kept: Cell::new(Some(7)) });
                world.count.add();
                let other = thread::spawn({
                    let world = world.clone();
                    move || {
                        world.count.add();
                        let first = look_and_go(&world);
                        let second = look_and_go(&world);
                        assert!(!first);
                        second
                    }
                });
                let here = look_and_go(&world);
                assert!(here != other.join().unwrap());
            });
        });
    }
}
