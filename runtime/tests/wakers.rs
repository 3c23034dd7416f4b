//! Tests of wakers that panic: a task's waker is user code.
#![cfg(not(sudog_loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Wake as Waked, Waker};

use sudog_runtime::sema::{Acquire, Order, SemTable, Wake};

/// A waker that counts its calls, and panics if `panics` is set.
struct Counting {
    woken: AtomicU32,
    panics: bool,
}

impl Waked for Counting {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Relaxed);
        if self.panics {
            std::panic::resume_unwind(Box::new("by intent"));
        }
    }
}

fn queue<'a>(table: &'a SemTable<1>, permits: &'a AtomicU32, waker: &Waker) -> Pin<Box<Acquire<'a>>> {
    let mut acquire = Box::pin(table.acquire_async(permits, Order::Fifo));
    assert!(acquire.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    acquire
}

/// There are more tasks than one critical section of the bucket's lock unlinks.
#[test]
fn a_waker_that_panics_leaves_no_task_asleep() {
    const TASKS: u32 = 70;
    let (table, permits) = (SemTable::new(), AtomicU32::new(0));
    let [good, bad] = [false, true].map(|panics| Arc::new(Counting { woken: AtomicU32::new(0), panics }));
    let wakers = [&good, &bad].map(|waker| Waker::from(waker.clone()));
    let tasks: Vec<_> = (0..TASKS).map(|i| queue(&table, &permits, &wakers[usize::from(i == 3)])).collect();
    let outcome = catch_unwind(AssertUnwindSafe(|| table.release_many(&permits, TASKS)));
    assert!(outcome.is_err());
    assert_eq!((good.woken.load(Relaxed), bad.woken.load(Relaxed)), (TASKS - 1, 1));
    for mut task in tasks {
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
    assert_eq!(permits.into_inner(), 0);
}

#[test]
fn a_panic_of_the_only_waker_is_the_releasers() {
    for wake in [Wake::Normal, Wake::Handoff] {
        let (table, permits) = (SemTable::new(), AtomicU32::new(0));
        let bad = Arc::new(Counting { woken: AtomicU32::new(0), panics: true });
        let mut task = queue(&table, &permits, &Waker::from(bad));
        assert!(catch_unwind(AssertUnwindSafe(|| table.release(&permits, wake))).is_err());
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
