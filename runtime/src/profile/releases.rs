//! The mutex profile: how long each release has kept others waiting.
//!
//! The ledger has an [`Entry`] for each address with counted waiters. An entry stores the number of these waiters, and
//! the sum of the times at which their uncharged waits began. The ledger is separate from the semaphore table and has
//! locks of its own, because nothing may be allocated under a bucket's lock.
//!
//! | step | by | action on the entry |
//! |---|---|---|
//! | 1 | waiter, before the bucket's lock | counts itself in: `waiters += 1`, `sum += now` |
//! | 2 | releaser, after the bucket's lock, before `ready` | `charge = waiters * now - sum + given_up`; counts out the unlinked waiters; `sum = waiters * now` |
//! | 3 | waiter that no releaser has unlinked (found a permit, was cancelled, gave up) | counts itself out: `waiters -= 1`, `sum -= since`, `given_up += now - since` |
//!
//! Step 1 comes before the waiter is queued, and step 2 after the waiter was unlinked: so step 2 finds the waiter counted. A
//! waiter's `since` in step 3 is the time of its step 1, or of the entry's last step 2 if that was later.
//!
//! Invariant: a waiter that has been counted in is counted out once, whether or not the profile is on by then. The
//! waiter's sudog stores whether the waiter is counted.
//!
//! No user code runs here: the ledger does not use the global allocator, which may use this project's locks.

use std::cell::Cell;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sites::{Sites, random};
use super::system_box::SystemBox;
use crate::goroutine::now;
use crate::sema::sudog::Sudog;
use crate::shim::system;
use crate::shim::system::atomic::{AtomicU32, Ordering};
use crate::shim::system::{Mutex, MutexGuard, OnceLock};

/// The fraction of the mutex profile. If this number is `n`, one in `n` releases is charged, chosen at random. 0 if the
/// profile is off.
pub(super) static FRACTION: AtomicU32 = AtomicU32::new(0);
/// All charges.
pub(super) static SITES: Sites = Sites::new();

/// Returns the time in nanoseconds since the first call of this function. The time is below zero in a bubble whose
/// clock shows an earlier time.
fn nanoseconds() -> i64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let (now, begin) = (now(), *BEGIN.get_or_init(system::now));
    now.saturating_duration_since(begin).as_nanos() as i64 - begin.saturating_duration_since(now).as_nanos() as i64
}

// ---- the waiter -------------------------------------------------------------------------------------------------------

/// The state of a waiter in the mutex profile: a field of the waiter's sudog. Written by the waiter while its sudog is in no
/// queue; read by the releaser, under the bucket's lock.
pub(crate) struct QueuedWait {
    /// True if the wait is for a lock. Other waits (for a wait group, a join, a socket) are charged to no release.
    is_for_lock: bool,
    is_counted: Cell<bool>,
    /// The time of step 1: see the table at the head of this file.
    since: Cell<i64>,
}

impl QueuedWait {
    /// Makes the state of a wait for a mutex, a readers-writer lock or a semaphore.
    pub(crate) const fn for_lock() -> Self {
        Self { is_for_lock: true, is_counted: Cell::new(false), since: Cell::new(0) }
    }

    /// Makes the state of any other wait.
    pub(crate) const fn for_other() -> Self {
        Self { is_for_lock: false, is_counted: Cell::new(false), since: Cell::new(0) }
    }

    /// Returns whether the wait is for a lock.
    #[cfg(feature = "metrics")]
    pub(crate) fn is_for_lock(&self) -> bool {
        self.is_for_lock
    }

    /// Does step 1: the waiter is about to be queued.
    #[inline]
    pub(crate) fn begin(&self, addr: usize) {
        if FRACTION.load(Ordering::Relaxed) != 0 && self.is_for_lock {
            self.begin_counted(addr);
        }
    }

    #[cold]
    fn begin_counted(&self, addr: usize) {
        let counted = with_entry(addr, |entry| {
            let since = nanoseconds();
            entry.waiters += 1;
            entry.sum += i128::from(since);
            self.since.set(since);
        });
        self.is_counted.set(counted.is_some());
    }

    /// Notes that the waiter has left the queue. `is_woken` is true if a releaser has unlinked the waiter, and has
    /// counted the waiter out.
    #[inline]
    pub(crate) fn end(&self, addr: usize, is_woken: bool) {
        if self.is_counted.replace(false) && !is_woken {
            self.end_counted(addr);
        }
    }

    /// Does step 3.
    #[cold]
    fn end_counted(&self, addr: usize) {
        with_entry(addr, |entry| {
            let since = self.since.get().max(entry.charged);
            entry.waiters -= 1;
            entry.sum -= i128::from(since);
            entry.given_up += i128::from(nanoseconds() - since);
        });
    }
}

// ---- the releaser -----------------------------------------------------------------------------------------------------

/// A release that takes waiters out of a queue.
pub(crate) struct Released {
    /// The number of counted waiters that have been unlinked since the last [`Released::settle`].
    counted: u32,
    charge: Option<Duration>,
}

impl Released {
    pub(crate) const fn new() -> Self {
        Self { counted: 0, charge: None }
    }

    /// Adds a waiter that has been unlinked. Called under the bucket's lock.
    #[inline]
    pub(crate) fn add(&mut self, sudog: &Sudog) {
        self.counted += u32::from(sudog.wait.is_counted.get());
    }

    /// Does step 2. Called after the bucket has been unlocked, before the waiters are readied.
    #[inline]
    pub(crate) fn settle(&mut self, addr: usize) {
        if self.counted > 0 || FRACTION.load(Ordering::Relaxed) != 0 {
            self.settle_counted(addr);
        }
    }

    #[cold]
    fn settle_counted(&mut self, addr: usize) {
        let counted = std::mem::take(&mut self.counted);
        let charge = with_entry_if_any(addr, |entry| {
            let now = nanoseconds();
            let charge = i128::from(entry.waiters) * i128::from(now) - entry.sum + std::mem::take(&mut entry.given_up);
            entry.waiters -= counted;
            entry.sum = i128::from(entry.waiters) * i128::from(now);
            entry.charged = now;
            // Below zero only if clocks of bubbles and of the system meet at this address.
            Duration::from_nanos(charge.clamp(0, i128::from(u64::MAX)) as u64)
        });
        if let Some(charge) = charge {
            self.charge = Some(self.charge.unwrap_or_default().saturating_add(charge));
        }
    }

    /// Charges the stack of the caller. Called after the waiters have been readied, because walking a stack takes
    /// microseconds.
    #[inline]
    pub(crate) fn record(self) {
        if let Some(charge) = self.charge {
            record(charge);
        }
    }
}

#[cold]
fn record(charge: Duration) {
    let fraction = FRACTION.load(Ordering::Relaxed);
    if fraction == 1 || fraction > 1 && random().is_multiple_of(u64::from(fraction)) {
        SITES.add(f64::from(fraction), charge.saturating_mul(fraction));
    }
}

// ---- the ledger -------------------------------------------------------------------------------------------------------

/// The counted waiters of one address.
struct Entry {
    addr: usize,
    waiters: u32,
    /// The sum, over the counted waiters, of the time at which the uncharged part of the wait began, in nanoseconds.
    sum: i128,
    /// The sum of the uncharged waits of waiters that gave up, in nanoseconds.
    given_up: i128,
    /// The time of the last charge.
    charged: i64,
    next: Link,
}

type Link = Option<SystemBox<Entry>>;

const SHARDS: usize = 251;

static LEDGER: [Mutex<Link>; SHARDS] = [const { Mutex::new(None) }; SHARDS];

fn lock(addr: usize) -> MutexGuard<'static, Link> {
    LEDGER[(addr >> 3) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `f` with the entry of `addr`. Makes the entry if there is none. Returns `None` if there is no memory.
fn with_entry<R>(addr: usize, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    let mut list = lock(addr);
    if find(&mut list, addr).is_none() {
        let entry = Entry { addr, waiters: 0, sum: 0, given_up: 0, charged: i64::MIN, next: None };
        let mut entry = SystemBox::new(entry)?;
        entry.next = list.take();
        *list = Some(entry);
    }
    call(&mut list, addr, f)
}

/// Calls `f` with the entry of `addr`, if there is such an entry.
fn with_entry_if_any<R>(addr: usize, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    call(&mut lock(addr), addr, f)
}

/// Calls `f` with the entry of `addr`, if there is such an entry, and frees the entry if no waiter is left.
fn call<R>(list: &mut Link, addr: usize, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    let link = find(list, addr)?;
    let entry = link.as_mut().expect("found");
    let result = f(entry);
    if entry.waiters == 0 {
        *link = entry.next.take();
    }
    Some(result)
}

/// Returns the link to the entry of this address.
fn find(list: &mut Link, addr: usize) -> Option<&mut Link> {
    let mut link = list;
    while link.as_ref().is_some_and(|entry| entry.addr != addr) {
        link = &mut link.as_mut().expect("not the last").next;
    }
    link.is_some().then_some(link)
}
