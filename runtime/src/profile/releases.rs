//! The mutex profile: what each release made others wait.
//!
//! The ledger has an entry for each address with waiters that are counted: their number, and the sum of the times since when
//! each waits. It stands beside the semaphore table, under locks of its own, as under a bucket's lock nothing may be allocated.
//!
//! | step | by | action on the entry |
//! |---|---|---|
//! | 1 | waiter, before the bucket's lock | counts itself: `waiters += 1`, `sum += now` |
//! | 2 | releaser, after the bucket's lock, before `ready` | charges itself `waiters * now - sum + given_up`; `waiters -=` those unlinked; `sum = waiters * now` |
//! | 3 | waiter that was not unlinked by a releaser: it found a permit, was cancelled, gave up | `given_up += now - since`, `waiters -= 1`, `sum -= since` |
//!
//! Step 1 comes before the waiter is queued, and step 2 after it was unlinked, so step 2 finds it counted. Between the two a
//! waiter's `since` is the later one of its own step 1 and the entry's last step 2.
//!
//! A waiter that began while the profile was off is not counted, and step 2 does not count it out: the sudog says which (its
//! epoch). Turning the profile on begins a new epoch, in which entries begin anew.

use std::cell::Cell;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sites::{Quiet, Sites, random};
use crate::goroutine::now;
use crate::sema::sudog::Sudog;
use crate::shim::system;
use crate::shim::system::atomic::{AtomicU32, Ordering};
use crate::shim::system::{Mutex, MutexGuard, OnceLock};

/// One of so many releases is charged; 0: the profile is off.
pub(super) static FRACTION: AtomicU32 = AtomicU32::new(0);
/// How often the profile has been turned on.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// What has been charged.
pub(super) static SITES: Sites = Sites::new();

pub(super) fn set_fraction(fraction: u32) -> u32 {
    let before = FRACTION.load(Ordering::Relaxed);
    if before == 0 && fraction != 0 {
        // Release: a waiter that reads the fraction reads this epoch, or a later one.
        EPOCH.fetch_add(1, Ordering::Relaxed);
    }
    FRACTION.swap(fraction, Ordering::Release)
}

/// Nanoseconds since the first call; below zero in a bubble whose clock stands at an earlier time.
fn nanoseconds() -> i64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let (now, begin) = (now(), *BEGIN.get_or_init(system::now));
    now.saturating_duration_since(begin).as_nanos() as i64 - begin.saturating_duration_since(now).as_nanos() as i64
}

// ---- the waiter -------------------------------------------------------------------------------------------------------

/// The state of a waiter in the mutex profile: a field of its sudog. Written by the waiter while its sudog is in no queue; read
/// by the releaser, under the bucket's lock.
pub(crate) struct QueuedWait {
    /// The epoch in which this wait is counted. 0: it is not.
    epoch: Cell<u32>,
    /// When the wait began, in nanoseconds.
    since: Cell<i64>,
}

impl QueuedWait {
    pub(crate) const fn new() -> Self {
        Self { epoch: Cell::new(0), since: Cell::new(0) }
    }

    /// Notes that the waiter is about to be queued.
    #[inline]
    pub(crate) fn begin(&self, addr: usize) {
        if FRACTION.load(Ordering::Acquire) != 0 {
            self.begin_counted(addr);
        }
    }

    #[cold]
    fn begin_counted(&self, addr: usize) {
        let Some(_quiet) = Quiet::enter() else { return };
        let epoch = EPOCH.load(Ordering::Relaxed);
        let since = nanoseconds();
        with_entry(addr, |entry| {
            entry.renew(epoch);
            entry.waiters += 1;
            entry.sum += i128::from(since);
        });
        self.since.set(since);
        self.epoch.set(epoch);
    }

    /// Notes that the waiter has left the queue. `is_woken`: a releaser has unlinked it.
    #[inline]
    pub(crate) fn end(&self, addr: usize, is_woken: bool) {
        if self.epoch.get() != 0 {
            self.end_counted(addr, is_woken);
        }
    }

    #[cold]
    fn end_counted(&self, addr: usize, is_woken: bool) {
        let epoch = self.epoch.replace(0);
        if is_woken {
            return; // the releaser has counted this waiter out
        }
        let _quiet = Quiet::enter();
        let now = nanoseconds();
        with_entry(addr, |entry| {
            if entry.epoch == epoch && entry.waiters > 0 {
                let since = self.since.get().max(entry.charged);
                entry.waiters -= 1;
                entry.sum -= i128::from(since);
                entry.given_up += i128::from(now - since);
            }
        });
    }
}

// ---- the releaser -----------------------------------------------------------------------------------------------------

/// The waiters that a release has taken out of a queue.
pub(crate) struct Released {
    /// How many of them are counted in `epoch`.
    counted: u32,
    epoch: u32,
}

impl Released {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { counted: 0, epoch: 0 }
    }

    /// Adds a waiter, which has been taken out of the queue. Under the bucket's lock.
    #[inline]
    pub(crate) fn add(&mut self, sudog: &Sudog) {
        let epoch = sudog.wait.epoch.get();
        if epoch != 0 {
            // The latest epoch is that of the entry, if waiters of several come together.
            if epoch > self.epoch {
                (self.epoch, self.counted) = (epoch, 0);
            }
            self.counted += u32::from(epoch == self.epoch);
        }
    }

    /// Charges the release by the calling goroutine or thread, around `ready`, which readies the waiters.
    #[inline]
    pub(crate) fn charge<R>(self, addr: usize, ready: impl FnOnce() -> R) -> R {
        match FRACTION.load(Ordering::Relaxed) {
            0 => ready(),
            fraction => self.charge_counted(addr, fraction, ready),
        }
    }

    /// Settles with the clock of the moment, but walks the stack when the waiters run already.
    #[cold]
    fn charge_counted<R>(self, addr: usize, fraction: u32, ready: impl FnOnce() -> R) -> R {
        let delay = Quiet::enter().and_then(|_quiet| self.settle(addr));
        let result = ready();
        if let Some(delay) = delay
            && let Some(_quiet) = Quiet::enter()
            && sample(fraction)
        {
            SITES.add(f64::from(fraction), delay.saturating_mul(fraction));
        }
        result
    }

    /// Returns what the release is charged. None: no waiter was counted.
    fn settle(self, addr: usize) -> Option<Duration> {
        let (now, epoch) = (nanoseconds(), EPOCH.load(Ordering::Relaxed));
        with_entry_if_any(addr, |entry| {
            if entry.epoch != epoch {
                return None;
            }
            let waiters = entry.waiters;
            let delay = i128::from(waiters) * i128::from(now) - entry.sum + std::mem::take(&mut entry.given_up);
            if self.epoch == epoch {
                entry.waiters -= self.counted.min(entry.waiters);
            }
            entry.sum = i128::from(entry.waiters) * i128::from(now);
            entry.charged = now;
            (waiters > 0).then(|| Duration::from_nanos(delay.clamp(0, i128::from(u64::MAX)) as u64))
        })?
    }
}

/// True for one of `fraction` calls, at random.
fn sample(fraction: u32) -> bool {
    fraction == 1 || random().is_multiple_of(u64::from(fraction))
}

// ---- the ledger -------------------------------------------------------------------------------------------------------

/// The counted waiters of one address.
struct Entry {
    addr: usize,
    epoch: u32,
    waiters: u32,
    /// The sum of the times since when each waiter waits that has not been charged, in nanoseconds.
    sum: i128,
    /// What waiters that gave up have waited, and no release has been charged.
    given_up: i128,
    /// When a release was last charged.
    charged: i64,
    next: Link,
}

type Link = Option<Box<Entry>>;

const SHARDS: usize = 128;

static LEDGER: [Mutex<Link>; SHARDS] = [const { Mutex::new(None) }; SHARDS];

impl Entry {
    fn of(addr: usize) -> Self {
        Self { addr, epoch: 0, waiters: 0, sum: 0, given_up: 0, charged: i64::MIN, next: None }
    }

    /// Forgets waiters of earlier epochs.
    fn renew(&mut self, epoch: u32) {
        if self.epoch != epoch {
            *self = Self { epoch, next: self.next.take(), ..Self::of(self.addr) };
        }
    }
}

/// Under this lock nothing is allocated or freed, and no code of a user runs.
fn lock(addr: usize) -> MutexGuard<'static, Link> {
    LEDGER[(addr >> 3) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `f` with the entry, which is made if there is none.
fn with_entry(addr: usize, f: impl Fn(&mut Entry)) {
    if with_entry_if_any(addr, &f).is_some() {
        return;
    }
    let made = Box::new(Entry::of(addr));
    let mut list = lock(addr);
    if let Some(entry) = find(&mut list, addr) {
        f(entry.as_mut().expect("found"));
        drop(list);
        drop(made); // another thread was faster; not under the lock
        return;
    }
    let mut entry = made;
    f(&mut entry);
    entry.next = list.take();
    *list = Some(entry);
}

/// Calls `f` with the entry, if there is one, and frees the entry if no waiter is left in it.
fn with_entry_if_any<R>(addr: usize, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
    let mut list = lock(addr);
    let link = find(&mut list, addr)?;
    let entry = link.as_mut().expect("found");
    let result = f(entry);
    let mut done = None;
    if entry.waiters == 0 {
        let rest = entry.next.take();
        done = std::mem::replace(link, rest);
    }
    drop(list);
    drop(done); // not under the lock
    Some(result)
}

/// The link to the entry of this address.
fn find(list: &mut Link, addr: usize) -> Option<&mut Link> {
    let mut link = list;
    while link.as_ref().is_some_and(|entry| entry.addr != addr) {
        link = &mut link.as_mut().expect("not the last").next;
    }
    link.is_some().then_some(link)
}
