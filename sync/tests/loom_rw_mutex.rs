//! Models of the readers-writer mutexes.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_rw_mutex`
//!
//! Writers lock a `FifoMutex` among themselves, because a `FifoMutex` is small. In a model, a wait with a deadline ends
//! as soon as it begins. The deadline is far by the clock, so that no caller gives up before the wait begins.
//! Semaphores must be left without a permit.
#![cfg(sudog_loom)]

mod world;

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use sudog_runtime::Instant;
use sudog_runtime::model::thread::{self, JoinHandle};
use sudog_runtime::model::{each_site, set_clock, under_both};
use sudog_runtime::reached::{TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, mark, must_reach, waiting};
use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};
use sudog_sync::mutex::FifoMutex;
use sudog_sync::rw_mutex::ShardedRwMutex;
use sudog_sync::{GoRwMutex, RawLock, RawRwLock};
use world::Checked;

/// A `FifoMutex` that newcomers may pass, so that a readers-writer mutex above it has sole owners.
struct Barging<const RICH: bool>(FifoMutex<Checked<RICH>>);

// SAFETY: every call is passed on to the `FifoMutex`, which keeps the contract of `RawLock`.
unsafe impl<const RICH: bool> RawLock for Barging<RICH> {
    type Guard = ();

    const DEADLINES: bool = true;

    fn new() -> Self {
        Self(FifoMutex::new())
    }
    fn barging_guard() -> Option<()> {
        Some(())
    }
    fn lock(&self) {
        RawLock::lock(&self.0);
    }
    fn try_lock(&self) -> Option<()> {
        RawLock::try_lock(&self.0)
    }
    fn try_lock_until(&self, deadline: Instant) -> Option<()> {
        RawLock::try_lock_until(&self.0, deadline)
    }
    fn lock_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        RawLock::lock_limited(&self.0, limit)
    }
    unsafe fn unlock(&self, (): ()) {
        // SAFETY: the caller keeps the contract of `RawLock::unlock`, which is the contract of the inner `unlock`, too.
        unsafe { RawLock::unlock(&self.0, ()) };
    }
    fn is_locked(&self) -> bool {
        RawLock::is_locked(&self.0)
    }
}

type Writers = FifoMutex<Checked<true>>;
type Plain = GoRwMutex<Writers, Checked<true>>;
/// A mutex over semaphores that cannot grant permits past newcomers.
type Poor = GoRwMutex<FifoMutex<Checked<false>>, Checked<false>>;
/// A mutex with sole owners.
type Sole = GoRwMutex<Barging<true>, Checked<true>>;
type SolePoor = GoRwMutex<Barging<false>, Checked<false>>;
type SoleSharded = ShardedRwMutex<Barging<true>, Checked<true>>;
type Sharded = ShardedRwMutex<Writers, Checked<true>>;

// The outcomes of a call.
const READER_AT_ONCE: &str = "a reader does not wait";
const READER_WAITS: &str = "a reader waits";
const READER_GIVES_UP: &str = "a reader gives up";
const READER_WAITS_IN_TIME: &str = "a reader in haste waits, and is let in";
const WRITER_AT_ONCE: &str = "a writer does not wait";
const WRITER_WAITS: &str = "a writer waits";
const WRITER_GIVES_UP: &str = "a writer gives up";
const WRITER_IS_CANCELLED: &str = "a writer is cancelled";
const WRITER_WAITS_IN_TIME: &str = "a writer in haste waits, and is let in";
const TRY_READS: &str = "a try to read comes off";
const TRY_READS_NOT: &str = "a try to read fails";
const TRY_WRITES: &str = "a try to write comes off";
const TRY_WRITES_NOT: &str = "a try to write fails";
// The outcomes that only a lock with sole owners can reach. The lock marks these states.
const SUCCEEDS: &str = "a writer succeeds a sole owner";
const SOLE_ADMITS_TWO: &str = "a sole owner admits more than one";
const SUCCESSOR_AND_READER: &str = "a successor reads beside others";
const SUCCESSOR_GIVES_UP: &str = "a successor gives up";
const SUCCESSOR_HAS_IT: &str = "a successor has the lock as it announces itself";

// The outcomes that only readers that wait for a word to change can reach. The lock marks these states, too.
const READER_NEED_NOT_SLEEP: &str = "a reader that is about to sleep sees the end of its phase";
const READER_TAKES_ANOTHERS_PERMIT: &str = "a reader that does not sleep takes the permit of one that does";
const READER_WOKEN_TOO_EARLY: &str = "a reader is woken by the writer of an earlier phase";

// The outcomes that only a sharded lock can reach. The lock marks these states, too.
const WITHDRAWS: &str = "a reader withdraws its name";
const BIASED_IS_CLOSED: &str = "a biased mutex is closed";
const LAST_WAKES: &str = "the last reader wakes the writer";
const LEAVES_IT_TO_ANOTHER: &str = "a reader leaves the wake-up of the writer to another reader";
const WRITER_SEES_THE_END: &str = "a writer that is about to wait sees the last reader's end";
const WRITER_TAKES_PERMIT: &str = "a writer takes the permit of a reader that has come first";

struct Rw<L> {
    lock: L,
    data: UnsafeCell<u32>,
}

impl<L: RawRwLock> Rw<L> {
    fn look(&self) -> u32 {
        // SAFETY: loom's cell checks that a write does not overlap; that is the test.
        self.data.with(|data| unsafe { *data })
    }

    fn change(&self) {
        // SAFETY: loom's cell checks that no access overlaps this write; that is the test.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }

    fn read(&self) {
        let (guard, waits) = waiting(|| self.lock.rlock());
        mark(if waits { READER_WAITS } else { READER_AT_ONCE });
        self.look();
        // SAFETY: `guard` came from `rlock` above, and has not been released.
        unsafe { self.lock.runlock(guard) };
    }

    fn write(&self) -> u32 {
        let (guard, waits) = waiting(|| self.lock.lock());
        mark(if waits { WRITER_WAITS } else { WRITER_AT_ONCE });
        self.change();
        // SAFETY: `guard` came from `lock` above, and has not been released.
        unsafe { self.lock.unlock(guard) };
        1
    }

    fn hasty_read(&self) {
        let (guard, waits) = waiting(|| self.lock.try_rlock_until(Instant::now() + Duration::from_secs(1)));
        mark(match (&guard, waits) {
            (None, _) => READER_GIVES_UP,
            (_, true) => READER_WAITS_IN_TIME,
            (_, false) => READER_AT_ONCE,
        });
        if let Some(guard) = guard {
            self.look();
            // SAFETY: `guard` came from `try_rlock_until` above, and has not been released.
            unsafe { self.lock.runlock(guard) };
        }
    }

    fn hasty_write(&self) -> u32 {
        let (guard, waits) = waiting(|| self.lock.try_lock_until(Instant::now() + Duration::from_secs(1)));
        mark(match (&guard, waits) {
            (None, _) => WRITER_GIVES_UP,
            (_, true) => WRITER_WAITS_IN_TIME,
            (_, false) => WRITER_AT_ONCE,
        });
        let Some(guard) = guard else { return 0 };
        self.change();
        // SAFETY: `guard` came from `try_lock_until` above, and has not been released.
        unsafe { self.lock.unlock(guard) };
        1
    }

    /// Writes, unless `stop` is cancelled first.
    fn write_unless(&self, stop: &Cancel) -> u32 {
        let limit = WaitLimit { cancel: Some(stop), ..WaitLimit::default() };
        let (guard, waits) = waiting(|| self.lock.lock_limited(&limit));
        mark(match (&guard, waits) {
            (Err(_), _) => WRITER_IS_CANCELLED,
            (_, true) => WRITER_WAITS,
            (_, false) => WRITER_AT_ONCE,
        });
        let Ok(guard) = guard else { return 0 };
        self.change();
        // SAFETY: `guard` came from `lock_limited` above, and has not been released.
        unsafe { self.lock.unlock(guard) };
        1
    }

    fn try_write(&self) -> u32 {
        let guard = self.lock.try_lock();
        mark(if guard.is_some() { TRY_WRITES } else { TRY_WRITES_NOT });
        let Some(guard) = guard else { return 0 };
        self.change();
        // SAFETY: `guard` came from `try_lock` above, and has not been released.
        unsafe { self.lock.unlock(guard) };
        1
    }

    fn try_read(&self) {
        let guard = self.lock.try_rlock();
        mark(if guard.is_some() { TRY_READS } else { TRY_READS_NOT });
        if let Some(guard) = guard {
            self.look();
            // SAFETY: `guard` came from `try_rlock` above, and has not been released.
            unsafe { self.lock.runlock(guard) };
        }
    }

    /// Writes, then reads, without another write in between.
    fn write_then_read(&self) -> u32 {
        let (guard, waits) = waiting(|| self.lock.lock());
        mark(if waits { WRITER_WAITS } else { WRITER_AT_ONCE });
        self.change();
        let written = self.look();
        // SAFETY: `guard` came from `lock` above, and has not been released.
        let guard = unsafe { self.lock.downgrade(guard) };
        assert_eq!(self.look(), written);
        // SAFETY: `guard` came from `downgrade` above, and has not been released.
        unsafe { self.lock.runlock(guard) };
        1
    }

    /// Asserts that the lock is unlocked, and that `writes` writes have been made.
    fn finish(&self, writes: u32) {
        assert!(!self.lock.is_locked());
        let guard = self.lock.try_lock().expect("nobody is there");
        assert_eq!(self.look(), writes);
        // SAFETY: `guard` came from `try_lock` above, and has not been released.
        unsafe { self.lock.unlock(guard) };
        let guard = self.lock.try_rlock().expect("nobody is there");
        // SAFETY: `guard` came from `try_rlock` above, and has not been released.
        unsafe { self.lock.runlock(guard) };
    }
}

fn explore<L: RawRwLock + 'static>(
    preemptions: usize,
    states: &[&'static str],
    model: impl Fn(Arc<Rw<L>>) + Sync + Send + 'static,
) {
    let run = move || {
        // While time passes, a spinning thread does not wait for the others to go first.
        set_clock(1000);
        model(Arc::new(Rw { lock: L::new(), data: UnsafeCell::new(0) }));
    };
    must_reach(states, || sudog_runtime::model::explore(preemptions, run));
}

fn spawn<L: RawRwLock + 'static, T: 'static>(rw: &Arc<Rw<L>>, f: impl FnOnce(&Rw<L>) -> T + 'static) -> JoinHandle<T> {
    let rw = rw.clone();
    thread::spawn(move || f(&rw))
}

fn readers_and_a_writer<L: RawRwLock + 'static>() {
    let states = [READER_AT_ONCE, READER_WAITS, WRITER_AT_ONCE, WRITER_WAITS, TWO_SLEEP, READER_TAKES_ANOTHERS_PERMIT];
    explore::<L>(2, &states, |rw| {
        let reader = spawn(&rw, |rw| {
            rw.read();
            rw.read();
        });
        let writer = spawn(&rw, |rw| rw.write() + rw.write());
        rw.read();
        reader.join().unwrap();
        let writes = writer.join().unwrap();
        rw.finish(writes);
    });
}

fn writers_and_a_reader<L: RawRwLock + 'static>() {
    explore::<L>(2, &[READER_AT_ONCE, READER_WAITS, WRITER_AT_ONCE, WRITER_WAITS, TWO_SLEEP], |rw| {
        let reader = spawn(&rw, |rw| rw.read());
        let writer = spawn(&rw, |rw| rw.write());
        let writes = rw.write();
        reader.join().unwrap();
        let writes = writes + writer.join().unwrap();
        rw.finish(writes);
    });
}

fn attempts<L: RawRwLock + 'static>() {
    explore::<L>(
        2,
        &[
            READER_AT_ONCE,
            READER_WAITS,
            WRITER_AT_ONCE,
            WRITER_WAITS,
            TWO_SLEEP,
            TRY_READS,
            TRY_READS_NOT,
            TRY_WRITES,
            TRY_WRITES_NOT,
        ],
        |rw| {
            let writer = spawn(&rw, |rw| rw.write() + rw.try_write());
            let reader = spawn(&rw, |rw| {
                rw.try_read();
                rw.read();
            });
            let writes = rw.try_write();
            reader.join().unwrap();
            let writes = writes + writer.join().unwrap();
            rw.finish(writes);
        },
    );
}

fn downgrades<L: RawRwLock + 'static>() {
    explore::<L>(2, &[READER_AT_ONCE, READER_WAITS, WRITER_AT_ONCE, WRITER_WAITS, TWO_SLEEP], |rw| {
        let writer = spawn(&rw, |rw| rw.write_then_read());
        let reader = spawn(&rw, |rw| rw.read());
        let writes = rw.write_then_read();
        reader.join().unwrap();
        let writes = writes + writer.join().unwrap();
        rw.finish(writes);
    });
}

fn a_hasty_reader<L: RawRwLock + 'static>() {
    explore::<L>(2, &[READER_AT_ONCE, READER_WAITS, WRITER_AT_ONCE, WRITER_WAITS, TWO_SLEEP, READER_GIVES_UP], |rw| {
        let writer = spawn(&rw, |rw| rw.write() + rw.write());
        let reader = spawn(&rw, |rw| rw.read());
        rw.hasty_read();
        reader.join().unwrap();
        let writes = writer.join().unwrap();
        rw.finish(writes);
    });
}

/// The last reader wakes the writer at the moment of the writer's deadline only with one preemption more:
/// `two_in_haste` covers that case.
fn a_hasty_writer<L: RawRwLock + 'static>() {
    explore::<L>(2, &[READER_AT_ONCE, READER_WAITS, WRITER_AT_ONCE, WRITER_GIVES_UP, WRITER_WAITS_IN_TIME], |rw| {
        let reader = spawn(&rw, |rw| rw.read());
        let other = spawn(&rw, |rw| rw.read());
        let writes = rw.hasty_write() + rw.hasty_write();
        reader.join().unwrap();
        other.join().unwrap();
        rw.finish(writes);
    });
}

/// Two threads only, which leave time to explore further.
fn two_in_haste<L: RawRwLock + 'static>() {
    explore::<L>(
        3,
        &[
            READER_WAITS,
            READER_GIVES_UP,
            WRITER_GIVES_UP,
            WRITER_WAITS_IN_TIME,
            TRY_WRITES,
            TRY_WRITES_NOT,
            TOO_LATE_AND_WOKEN,
        ],
        |rw| {
            let reader = spawn(&rw, |rw| {
                rw.read();
                rw.hasty_read();
            });
            let writes = rw.hasty_write() + rw.try_write();
            reader.join().unwrap();
            rw.finish(writes);
        },
    );
}

/// A reader that gives up long after it came: writers have come, given up, and come again. By its one bit, the phase is
/// the reader's own again, unless the writers that gave up waited for the reader.
fn a_hasty_reader_and_a_hasty_writer<L: RawRwLock + 'static>() {
    explore::<L>(
        3,
        &[
            READER_GIVES_UP,
            READER_WAITS_IN_TIME,
            WRITER_GIVES_UP,
            WRITER_WAITS_IN_TIME,
            WRITER_WAITS,
            TOO_LATE_AND_WOKEN,
        ],
        both_in_haste,
    );
}

/// The models of `a_hasty_reader_and_a_hasty_writer`, with a successor. They have more steps, so one preemption less.
fn a_hasty_reader_and_a_hasty_successor<L: RawRwLock + 'static>() {
    explore::<L>(
        2,
        &[READER_GIVES_UP, READER_WAITS_IN_TIME, WRITER_GIVES_UP, SUCCEEDS, SUCCESSOR_GIVES_UP, SUCCESSOR_AND_READER],
        both_in_haste,
    );
}

fn both_in_haste<L: RawRwLock + 'static>(rw: Arc<Rw<L>>) {
    let reader = spawn(&rw, |rw| rw.hasty_read());
    let writer = spawn(&rw, |rw| rw.hasty_write() + rw.hasty_write());
    let writes = rw.write();
    reader.join().unwrap();
    let writes = writes + writer.join().unwrap();
    rw.finish(writes);
}

/// Two writers and a reader: the second writer finds the first writer as a sole owner, with the reader behind that
/// owner.
fn a_sole_owner_has_a_successor<L: RawRwLock + 'static>() {
    explore::<L>(
        2,
        &[
            READER_AT_ONCE,
            READER_WAITS,
            WRITER_AT_ONCE,
            WRITER_WAITS,
            TWO_SLEEP,
            SUCCEEDS,
            SUCCESSOR_HAS_IT,
            SUCCESSOR_AND_READER,
            SOLE_ADMITS_TWO,
        ],
        |rw| {
            let reader = spawn(&rw, |rw| rw.read());
            let writer = spawn(&rw, |rw| rw.write());
            let writes = rw.write() + rw.write();
            reader.join().unwrap();
            let writes = writes + writer.join().unwrap();
            rw.finish(writes);
        },
    );
}

/// A successor that gives up, either while it waits or once it reads.
fn a_hasty_successor<L: RawRwLock + 'static>() {
    explore::<L>(
        2,
        &[
            READER_WAITS,
            WRITER_AT_ONCE,
            WRITER_GIVES_UP,
            WRITER_WAITS_IN_TIME,
            TOO_LATE_AND_WOKEN,
            SUCCEEDS,
            SUCCESSOR_GIVES_UP,
            SUCCESSOR_HAS_IT,
        ],
        |rw| {
            let reader = spawn(&rw, |rw| rw.read());
            let writer = spawn(&rw, |rw| rw.hasty_write() + rw.hasty_write());
            let writes = rw.write() + rw.write();
            reader.join().unwrap();
            let writes = writes + writer.join().unwrap();
            rw.finish(writes);
        },
    );
}

/// A sole owner admits a reader that is about to give up. Writers come, give up, and come again: the phase is the
/// reader's own again, unless the writer that gave up waited for the reader.
fn a_sole_owner_admits_a_hasty_reader<L: RawRwLock + 'static>() {
    explore::<L>(
        3,
        &[READER_GIVES_UP, READER_WAITS_IN_TIME, WRITER_GIVES_UP, WRITER_AT_ONCE, WRITER_WAITS, TOO_LATE_AND_WOKEN],
        |rw| {
            let guard = rw.lock.lock();
            rw.change();
            let reader = spawn(&rw, |rw| rw.hasty_read());
            thread::yield_now();
            let writer = spawn(&rw, |rw| rw.hasty_write() + rw.write());
            // SAFETY: the guard of the acquisition above.
            unsafe { rw.lock.unlock(guard) };
            reader.join().unwrap();
            let writes = 1 + writer.join().unwrap();
            rw.finish(writes);
        },
    );
}

/// A sole owner has unlocked, and looks for sleepers late. Its reader has left, a second writer has locked and
/// unlocked, a third writer has the lock, and a reader sleeps in the third writer's phase, which has the same parity.
/// At each yield, the other threads must proceed.
fn a_late_sole_owner<L: RawRwLock + 'static>() {
    explore::<L>(2, &[READER_WAITS, WRITER_AT_ONCE, READER_NEED_NOT_SLEEP, READER_WOKEN_TOO_EARLY], |rw| {
        let slow_write = |rw: &Rw<L>| {
            let guard = rw.lock.lock();
            rw.change();
            thread::yield_now();
            // SAFETY: the guard of the acquisition above.
            unsafe { rw.lock.unlock(guard) };
        };
        let reader = spawn(&rw, |rw| {
            rw.read();
            thread::yield_now();
            rw.read();
        });
        let writer = spawn(&rw, move |rw| {
            rw.write();
            slow_write(rw);
        });
        slow_write(&rw);
        reader.join().unwrap();
        writer.join().unwrap();
        rw.finish(3);
    });
}

// The sites of `each_site` that each reader that waits for the end of a phase needs, and those in its semaphore.
const READER_SITES: [&str; 3] =
    ["read.rs, register: fetch_add", "read.rs, must_wait: load", "unlock.rs, wake_sleepers: load"];
const SEMAPHORE_SITES: [&str; 4] = [
    "model_lock.rs, lock_and_count: fetch_add",
    "model_lock.rs, count: load",
    "table.rs, add: fetch_add",
    "table.rs, take: load",
];
const SPARE_IN_SEMAPHORE: &str = "table.rs, take: compare_exchange";

/// A reader that is about to sleep, and a writer at the end of its phase, are a Dekker pair.
fn a_reader_and_a_writer_see_each_other<L: RawRwLock + 'static>(test: &str, end_of_phase: &str, spare: &[&str]) {
    let needed = [&READER_SITES[..], &SEMAPHORE_SITES, &[end_of_phase]].concat();
    let spare = [spare, &[SPARE_IN_SEMAPHORE]].concat();
    each_site(test, &needed, &spare, || {
        explore::<L>(3, &[READER_WAITS, READER_NEED_NOT_SLEEP], |rw| {
            let reader = spawn(&rw, |rw| rw.read());
            let writes = rw.write();
            reader.join().unwrap();
            rw.finish(writes);
        });
    });
}

#[test]
fn a_reader_and_a_writer_in_turn_see_each_other() {
    let test = concat!(module_path!(), "::a_reader_and_a_writer_in_turn_see_each_other");
    a_reader_and_a_writer_see_each_other::<Plain>(test, "unlock.rs, end_phase: fetch_add", &[]);
}

/// The writer must be a sole owner: a writer that locks in turn has met the reader before.
#[test]
fn a_reader_and_a_sole_owner_see_each_other() {
    let test = concat!(module_path!(), "::a_reader_and_a_sole_owner_see_each_other");
    let end = "unlock.rs, end_sole_and_admit: compare_exchange";
    a_reader_and_a_writer_see_each_other::<Sole>(test, end, &["unlock.rs, end_phase: fetch_add"]);
}

/// A writer that gives up ends its phase, too.
#[test]
fn a_reader_and_a_writer_that_gives_up_see_each_other() {
    let test = concat!(module_path!(), "::a_reader_and_a_writer_that_gives_up_see_each_other");
    let needed = [&READER_SITES[..], &["write.rs, retract: compare_exchange"]].concat();
    let spare = [&SEMAPHORE_SITES[..], &["unlock.rs, end_phase: fetch_add", SPARE_IN_SEMAPHORE]].concat();
    each_site(test, &needed, &spare, || {
        explore::<Plain>(2, &[READER_WAITS, WRITER_GIVES_UP, READER_NEED_NOT_SLEEP], |rw| {
            assert!(rw.lock.try_rlock());
            let reader = spawn(&rw, |rw| rw.read());
            let writes = rw.hasty_write();
            rw.lock.runlock();
            reader.join().unwrap();
            rw.finish(writes);
        });
    });
}

/// Readers of slots, and a writer. The mutex is biased by the first read, and by the first read after each write.
fn a_sharded_reader_and_a_writer(rw: &Arc<Rw<Sharded>>) {
    rw.read();
    let reader = spawn(rw, |rw| {
        rw.read();
        rw.read();
    });
    let writes = rw.write();
    reader.join().unwrap();
    rw.finish(writes);
}

#[test]
fn a_reader_of_a_slot_and_a_writer() {
    let states = [WITHDRAWS, BIASED_IS_CLOSED, LAST_WAKES, WRITER_SEES_THE_END, WRITER_TAKES_PERMIT];
    under_both(|| explore(4, &states, |rw| a_sharded_reader_and_a_writer(&rw)));
}

#[test]
fn a_reader_of_a_slot_and_a_writer_see_each_other() {
    let test = concat!(module_path!(), "::a_reader_of_a_slot_and_a_writer_see_each_other");
    let needed = ["asymmetric.rs, light: fence"];
    let spare = [
        "sharded.rs, state: load",
        "sharded.rs, close: fetch_or",
        "read_slots.rs, write: swap",
        "read_slots.rs, is_read: load",
    ];
    slots_need(test, &needed, &spare, || {
        explore(3, &[WITHDRAWS, BIASED_IS_CLOSED, LAST_WAKES], |rw| a_sharded_reader_and_a_writer(&rw));
    });
}

#[test]
fn an_unbiased_reader_of_a_slot_and_a_writer_see_each_other() {
    let test = concat!(module_path!(), "::an_unbiased_reader_of_a_slot_and_a_writer_see_each_other");
    let needed = [
        "sharded.rs, state: load",
        "sharded.rs, close: fetch_or",
        "read_slots.rs, write: swap",
        "read_slots.rs, is_read: load",
    ];
    slots_need(test, &needed, &[], || {
        explore(3, &[WITHDRAWS, LAST_WAKES], |rw: Arc<Rw<Sharded>>| {
            rw.read();
            let writes = rw.write(); // ends the bias
            let reader = spawn(&rw, |rw| rw.read());
            let writes = writes + rw.write();
            reader.join().unwrap();
            rw.finish(writes);
        });
    });
}

/// The sites that readers of slots and a writer need, biased or not, and `needed`.
fn slots_need(test: &str, needed: &[&str], spare: &[&str], explore: impl Fn()) {
    let common = ["unlock.rs, end_phase: fetch_add", "sharded.rs, wait: swap"];
    let needed = [needed, &READER_SITES, &SEMAPHORE_SITES, &common].concat();
    // The loads, and the fence of a reader that leaves, have a needed site beside them, whose fence is enough in a model:
    // `docs/orderings.md`, section 10.
    let common = [
        "read_slots.rs, acquire: fetch_max",
        "read_slots.rs, name: load",
        "sharded.rs, left_closed: fence",
        "asymmetric.rs, fence_others: fence",
        SPARE_IN_SEMAPHORE,
    ];
    each_site(test, &needed, &[spare, &common].concat(), explore);
}

#[test]
fn two_readers_of_slots_and_a_writer() {
    explore(2, &[WITHDRAWS, BIASED_IS_CLOSED, LAST_WAKES, LEAVES_IT_TO_ANOTHER], |rw: Arc<Rw<Sharded>>| {
        rw.read();
        let readers = [spawn(&rw, |rw| rw.read()), spawn(&rw, |rw| rw.read())];
        let writes = rw.write();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        rw.finish(writes);
    });
}

#[test]
fn two_readers_of_slots_and_a_writer_that_gives_up() {
    explore(2, &[WITHDRAWS, BIASED_IS_CLOSED, WRITER_GIVES_UP], |rw: Arc<Rw<Sharded>>| {
        rw.read();
        let readers = [spawn(&rw, |rw| rw.read()), spawn(&rw, |rw| rw.read())];
        let writes = rw.hasty_write();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        rw.finish(writes);
    });
}

/// A reader that came before the mutex was biased leaves later.
#[test]
fn a_mutex_is_biased_beside_a_reader() {
    explore(2, &["a mutex is biased", BIASED_IS_CLOSED, LAST_WAKES], |rw: Arc<Rw<Sharded>>| {
        let readers = [spawn(&rw, |rw| rw.read()), spawn(&rw, |rw| rw.read())];
        let writes = rw.write();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        rw.finish(writes);
    });
}

/// A writer gives up, and leaves the mutex biased; the next writer waits for the same reader.
#[test]
fn a_writer_of_a_biased_mutex_gives_up() {
    let states =
        [WRITER_GIVES_UP, WRITER_WAITS_IN_TIME, WRITER_WAITS, LAST_WAKES, WRITER_TAKES_PERMIT, BIASED_IS_CLOSED];
    explore(3, &states, |rw: Arc<Rw<Sharded>>| {
        rw.read();
        let reader = spawn(&rw, |rw| rw.read());
        let writes = rw.hasty_write() + rw.write();
        reader.join().unwrap();
        rw.finish(writes);
    });
}

/// A reader cancels the writer that waits for the reader, and leaves. The writer gives up, or has the mutex.
#[test]
fn a_writer_is_cancelled_beside_a_reader_of_a_slot() {
    let states = [WRITER_IS_CANCELLED, WRITER_WAITS, LAST_WAKES, WRITER_TAKES_PERMIT, BIASED_IS_CLOSED];
    explore(3, &states, |rw: Arc<Rw<Sharded>>| {
        let stop = Arc::new(Cancel::new());
        rw.read();
        let reader = spawn(&rw, {
            let stop = stop.clone();
            move |rw| {
                let guard = rw.lock.rlock();
                rw.look();
                stop.cancel();
                // SAFETY: `guard` came from `rlock` above, and has not been released.
                unsafe { rw.lock.runlock(guard) };
            }
        });
        let writes = rw.write_unless(&stop) + rw.write();
        reader.join().unwrap();
        rw.finish(writes);
    });
}

/// A reader that comes lightly meets a writer; the next writer executes no heavy fence. The mutant
/// `sharded-a-withdrawal-is-light` shows what the store would then be worth: here a light fence is a full fence.
#[test]
fn a_reader_withdraws_between_two_writers() {
    explore(3, &[WITHDRAWS, BIASED_IS_CLOSED, LAST_WAKES, WRITER_WAITS], |rw: Arc<Rw<Sharded>>| {
        rw.read();
        let reader = spawn(&rw, |rw| rw.read());
        let writes = rw.write() + rw.write();
        reader.join().unwrap();
        rw.finish(writes);
    });
}

/// A writer has the mutex while readers write and withdraw their names.
#[test]
fn a_writer_knows_that_it_has_the_mutex() {
    explore(3, &[WITHDRAWS], |rw: Arc<Rw<Sharded>>| {
        rw.read();
        let reader = spawn(&rw, |rw| rw.read());
        rw.lock.lock();
        assert!(rw.lock.is_locked_exclusive());
        rw.change();
        // SAFETY: the mutex has been locked above. The guard has no state.
        unsafe { rw.lock.unlock(()) };
        assert!(!rw.lock.is_locked_exclusive());
        reader.join().unwrap();
        rw.finish(1);
    });
}

/// Inside of a read the slot is in use, so the second read locks the mutex inside.
#[test]
fn a_reader_without_a_slot() {
    explore(3, &[WRITER_WAITS, LAST_WAKES, TRY_READS, TRY_READS_NOT], |rw: Arc<Rw<Sharded>>| {
        let writer = spawn(&rw, |rw| rw.write());
        let guard = rw.lock.rlock();
        rw.try_read();
        rw.look();
        // SAFETY: `guard` came from `rlock` above, and has not been released.
        unsafe { rw.lock.runlock(guard) };
        let writes = writer.join().unwrap();
        rw.finish(writes);
    });
}

/// The lock among writers alone, with a writer that gives up.
#[test]
fn in_turn() {
    const IN_TIME: &str = "one in haste has it";
    const GIVES_UP: &str = "one in haste gives up";
    let run = || {
        set_clock(1000);
        let shared = Arc::new((Writers::new(), UnsafeCell::new(0)));
        let turn = |shared: &(Writers, UnsafeCell<u32>)| {
            // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
            shared.1.with_mut(|turns| unsafe { *turns += 1 });
            // SAFETY: each caller of `turn` has locked this lock and not unlocked it since.
            unsafe { shared.0.unlock(()) };
        };
        let patient = thread::spawn({
            let shared = shared.clone();
            move || {
                waiting(|| shared.0.lock());
                turn(&shared);
            }
        });
        let hasty = thread::spawn({
            let shared = shared.clone();
            move || {
                let (got, _) = waiting(|| shared.0.try_lock_until(Instant::now() + Duration::from_secs(1)));
                mark(if got.is_some() { IN_TIME } else { GIVES_UP });
                if got.is_some() {
                    turn(&shared);
                }
            }
        });
        waiting(|| shared.0.lock());
        turn(&shared);
        patient.join().unwrap();
        hasty.join().unwrap();
        assert!(shared.0.try_lock().is_some());
    };
    must_reach(&[IN_TIME, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP], || {
        sudog_runtime::model::explore(3, run)
    });
}

macro_rules! models {
    ($($name:ident: $lock:ty, $($model:ident)+;)+) => {
        $(
            mod $name {
                use super::*;

                $(
                    #[test]
                    fn $model() {
                        super::$model::<$lock>();
                    }
                )+
            }
        )+
    };
}

models! {
    plain: Plain, readers_and_a_writer writers_and_a_reader attempts downgrades a_hasty_reader a_hasty_writer
        a_hasty_reader_and_a_hasty_writer two_in_haste;
    poor: Poor, readers_and_a_writer two_in_haste a_hasty_reader a_hasty_writer a_hasty_reader_and_a_hasty_writer;
    sharded: Sharded, readers_and_a_writer attempts downgrades a_hasty_reader two_in_haste;
    sole: Sole, readers_and_a_writer writers_and_a_reader attempts downgrades a_hasty_reader a_hasty_writer
        a_hasty_reader_and_a_hasty_successor two_in_haste a_sole_owner_has_a_successor a_hasty_successor
        a_sole_owner_admits_a_hasty_reader a_late_sole_owner;
    sole_poor: SolePoor, readers_and_a_writer a_hasty_reader a_hasty_writer a_sole_owner_has_a_successor a_hasty_successor;
    sole_sharded: SoleSharded, readers_and_a_writer two_in_haste;
}
