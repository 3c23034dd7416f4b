//! The number of a context's handles. The last to go takes what the handles alone keep: see `handle.rs`.
//!
//! | step | ordering |
//! |---|---|
//! | a handle is cloned: adds one | relaxed: the handle that is cloned is counted, so the count does not reach zero meanwhile |
//! | a handle goes, and reads one | acquire. It is the last, and takes none off: see below |
//! | a handle goes, and reads more: takes one off | release: what was done by way of it comes before what the last does. Acquire: it may be the last by now |
//!
//! A handle that reads one is the last. The value that it reads was there when it was counted itself, or later, so the
//! one is itself: at that value there was no other handle to be cloned. A clone of the handle itself needs a reference to
//! it; its drop has the only one.

use sudog_runtime::shim::{AtomicUsize, Ordering};

pub(super) struct HandleCount(AtomicUsize);

impl HandleCount {
    /// There is one.
    pub(super) fn one() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// One more. The caller has one.
    ///
    /// Aborts if there are more than fit: they have been forgotten, not dropped.
    #[inline]
    pub(super) fn add(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            std::process::abort();
        }
    }

    /// The caller's handle goes. True: it was the last, and what only handles touch is the caller's.
    #[inline]
    pub(super) fn remove(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1 || self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --lib handle_count`
#[cfg(all(test, sudog_loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;
    use sudog_runtime::reached::{mark, must_reach};

    const READS_ONE: &str = "the last handle reads one";
    const TAKES_THE_LAST: &str = "a handle that read two takes the last off";

    struct World {
        count: HandleCount,
        /// What each handle looks at, and the last takes.
        kept: UnsafeCell<Option<u32>>,
    }

    // SAFETY: loom's cell checks the accesses; that is the test.
    unsafe impl Sync for World {}

    fn look_and_go(world: &World) -> bool {
        // SAFETY: as above.
        world.kept.with(|kept| assert_eq!(unsafe { *kept }, Some(7)));
        let read = world.count.0.load(Ordering::Relaxed);
        let last = world.count.remove();
        if last {
            mark(if read == 1 { READS_ONE } else { TAKES_THE_LAST });
            // SAFETY: as above.
            world.kept.with_mut(|kept| assert_eq!(unsafe { (*kept).take() }, Some(7)));
        }
        last
    }

    /// Three handles, one of them cloned while another goes: one of them is the last, after all have looked.
    #[test]
    fn the_last_takes_what_they_keep() {
        must_reach(&[READS_ONE, TAKES_THE_LAST], || {
            loom::model(|| {
                let world = Arc::new(World { count: HandleCount::one(), kept: UnsafeCell::new(Some(7)) });
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
