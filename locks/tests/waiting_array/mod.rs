//! Shared by the models of the waiting arrays.

mod addresses;
mod keys;
mod locations;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use sudog_locks::waiting_array::{Closed, Doorway, TicketSema, TicketWait};
use sudog_runtime::Instant;
use sudog_runtime::model::set_clock;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{mark, unmarked, waiting};
use sudog_sync::Semaphore;

use crate::explore::step;

/// States that a model can reach, in addition to a call's states. The queue marks some of these states by itself.
pub mod states {
    pub const WAITS: &str = "a taker waits";
    pub const IN_TIME: &str = "one in haste has its permit";
    pub const GIVES_UP: &str = "one in haste gives up";
    pub const TAKES: &str = "a taker has its permit before the closing";
    pub const CLOSED_BEFORE: &str = "a taker finds the semaphore closed";
    pub const CLOSED: &str = "a taker waits, and is told of the closing";

    pub const LEAVES_A_GAP: &str = "a waiter that gives up leaves a gap";
    pub const GRANTED_AT_LAST: &str = "a waiter that gives up has been granted its permit";
    pub const CLOSED_AT_LAST: &str = "a waiter that gives up has been told of the closing";
    pub const GIVES_BACK: &str = "a waiter that gives up gives back a part";
    pub const OVER_A_GAP: &str = "a grant goes over a gap";
}
use states::*;

/// What models call of a [`TicketSema`]. Through this trait each model is compiled once, and not for each semaphore.
pub trait Sema: Sync {
    fn acquire_many(&self, n: u32) -> Result<(), Closed>;
    fn acquire_many_until(&self, n: u32, deadline: Instant) -> bool;
    fn try_acquire_many(&self, n: u32) -> bool;
    fn post(&self, n: u32);
    fn close(&self);
    fn wanted(&self) -> u64;
    fn available(&self) -> u64;
}

impl<W: TicketWait, D: Doorway> Sema for TicketSema<W, D> {
    fn acquire_many(&self, n: u32) -> Result<(), Closed> {
        self.acquire_many(n)
    }

    fn acquire_many_until(&self, n: u32, deadline: Instant) -> bool {
        self.acquire_many_until(n, deadline).is_ok()
    }

    fn try_acquire_many(&self, n: u32) -> bool {
        self.try_acquire_many(n)
    }

    fn post(&self, n: u32) {
        self.post(n);
    }

    fn close(&self) {
        self.close();
    }

    fn wanted(&self) -> u64 {
        self.wanted()
    }

    fn available(&self) -> u64 {
        self.available()
    }
}

/// A function that returns a new semaphore without permits.
pub type NewSema = fn() -> Box<dyn Sema>;

pub fn new_sema<W: TicketWait, D: Doorway>() -> Box<dyn Sema> {
    Box::new(TicketSema::<W, D>::new(0))
}

/// Takes permits if they are available when the thread would sleep; if the thread never sleeps, some readings of the
/// clock later.
pub fn hasty_acquire(sema: &dyn Sema, n: u32) -> bool {
    let (got, _) = waiting(|| sema.acquire_many_until(n, Instant::now() + Duration::from_nanos(2)));
    mark(if got { IN_TIME } else { GIVES_UP });
    got
}

/// A semaphore, and data for the threads that hold permits.
pub struct World {
    pub sema: Box<dyn Sema>,
    data: UnsafeCell<u32>,
}

// SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
unsafe impl Sync for World {}

impl World {
    /// Returns an `Arc` of `std`, not of `loom`: the counting of loom's `Arc` would order the threads, and add steps to
    /// explore.
    #[expect(clippy::arc_with_non_send_sync, reason = "loom's threads are one thread of the system")]
    pub fn new(sema: NewSema, permits: u32) -> Arc<Self> {
        let world = Arc::new(Self { sema: sema(), data: UnsafeCell::new(0) });
        world.touch_tables();
        world.sema.post(permits);
        world
    }

    /// Makes the tables, as [`explore`] does, by a wait that is given up, and by the grant that meets the abandoned
    /// wait.
    fn touch_tables(&self) {
        set_clock(1);
        unmarked(|| {
            assert!(!self.hasty(1));
            self.sema.post(1);
            assert!(self.sema.try_acquire_many(1));
        });
        set_clock(step());
    }

    pub fn spawn<T: 'static>(self: &Arc<Self>, f: impl FnOnce(&Self) -> T + 'static) -> thread::JoinHandle<T> {
        let world = self.clone();
        thread::spawn(move || f(&world))
    }

    pub fn write(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }

    pub fn read(&self) -> u32 {
        // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
        self.data.with(|data| unsafe { *data })
    }

    pub fn take(&self, n: u32) {
        let (taken, waits) = waiting(|| self.sema.acquire_many(n));
        assert_eq!(taken, Ok(()));
        if waits {
            mark(WAITS);
        }
    }

    pub fn hasty(&self, n: u32) -> bool {
        hasty_acquire(&*self.sema, n)
    }

    /// Uses the semaphore as a lock: takes a permit, writes, and posts.
    pub fn turn(&self) {
        self.take(1);
        self.write();
        self.sema.post(1);
    }

    pub fn hasty_turn(&self) -> u32 {
        let got = self.hasty(1);
        if got {
            self.write();
            self.sema.post(1);
        }
        u32::from(got)
    }

    pub fn take_unless_closed(&self) -> u32 {
        let (taken, waits) = waiting(|| self.sema.acquire_many(1));
        mark(match (taken, waits) {
            (Ok(()), _) => TAKES,
            (Err(Closed), true) => CLOSED,
            (Err(Closed), false) => CLOSED_BEFORE,
        });
        u32::from(taken.is_ok())
    }

    /// Checks that all waiters have left, and that `permits` permits remain. If a waiter had left tickets behind that
    /// no post skips, the last permit would not be found.
    pub fn finish(&self, permits: u32) {
        assert_eq!(self.sema.wanted(), 0);
        self.sema.post(1);
        assert_eq!(self.sema.available(), u64::from(permits) + 1);
        for _ in 0..=permits {
            assert!(self.sema.try_acquire_many(1), "a permit is lost");
        }
        assert!(!self.sema.try_acquire_many(1), "a permit too many");
    }
}

/// The condition of a waiter. The accesses are Relaxed: even so no wake-up may be lost.
#[derive(Clone)]
pub struct Flag(Arc<AtomicBool>);

impl Flag {
    pub fn new() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    pub fn is_up(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub fn raise(&self) {
        self.0.store(true, Relaxed);
    }

    pub fn spawn<T: 'static>(&self, f: impl FnOnce(&Self) -> T + 'static) -> thread::JoinHandle<T> {
        let flag = self.clone();
        thread::spawn(move || f(&flag))
    }
}

/// A deadline that passes as soon as a thread sleeps.
pub fn soon() -> Instant {
    Instant::now() + Duration::from_nanos(1)
}
