//! The checks of [`RawRwLock`].

use std::any::TypeId;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rand_mt::Mt64;
use sudog_runtime::shim::system::{
    atomic::{AtomicBool, AtomicU32, AtomicU64},
    now, thread,
};
use sudog_sync::{GoMutex, RawRwLock};

use super::{Check, eventually, far, real_or_simulated, scope};
use crate::targets::rw_locks::{CrossbeamSharded, Exclusive};

/// Returns all checks of readers-writer locks.
pub fn checks<L: RawRwLock + 'static>() -> Vec<Check> {
    checks_of(Subject::of::<L>())
}

fn checks_of(subject: Subject) -> Vec<Check> {
    super::checks![subject;
        who_excludes_whom,
        one_writer_or_readers,
        readers_are_inside_together,
        a_deadline_in_the_past_is_a_try,
        a_deadline_ends_a_wait_and_not_too_soon,
        a_release_ends_all_waits,
        a_writer_that_gives_up_lets_readers_in,
        a_downgrade_lets_readers_in_and_no_writer,
        a_storm_of_timeouts_leaves_nothing_behind,
    ]
}

/// A type of readers-writer locks.
#[derive(Clone, Copy)]
struct Subject {
    make: fn() -> Box<dyn AnyRwLock>,
    /// True if readers share the lock: a mutex in the place of a readers-writer lock lets in a single reader.
    readers_share: bool,
    /// True if readers share the lock with a writer that has become a reader: crossbeam's lock has no downgrade, and
    /// after the adapter's downgrade the lock is still held for writing.
    readers_share_after_downgrade: bool,
}

impl Subject {
    fn of<L: RawRwLock + 'static>() -> Self {
        let readers_share = TypeId::of::<L>() != TypeId::of::<Exclusive<GoMutex>>();
        Self {
            make: || Box::new(L::new()),
            readers_share,
            readers_share_after_downgrade: readers_share && TypeId::of::<L>() != TypeId::of::<CrossbeamSharded>(),
        }
    }

    fn fresh(self) -> Box<dyn AnyRwLock> {
        (self.make)()
    }
}

/// A readers-writer lock of any type.
trait AnyRwLock: Send + Sync {
    fn read(&self) -> Reading<'_>;
    fn try_read(&self) -> Option<Reading<'_>>;
    fn read_until(&self, deadline: Instant) -> Option<Reading<'_>>;
    fn write(&self) -> Writing<'_>;
    fn try_write(&self) -> Option<Writing<'_>>;
    fn write_until(&self, deadline: Instant) -> Option<Writing<'_>>;
    fn is_locked(&self) -> bool;
    fn is_locked_exclusive(&self) -> bool;
}

impl<L: RawRwLock> AnyRwLock for L {
    fn read(&self) -> Reading<'_> {
        Reader::boxed(self, self.rlock())
    }

    fn try_read(&self) -> Option<Reading<'_>> {
        self.try_rlock().map(|guard| Reader::boxed(self, guard))
    }

    fn read_until(&self, deadline: Instant) -> Option<Reading<'_>> {
        self.try_rlock_until(deadline).map(|guard| Reader::boxed(self, guard))
    }

    fn write(&self) -> Writing<'_> {
        Writer::boxed(self, self.lock())
    }

    fn try_write(&self) -> Option<Writing<'_>> {
        self.try_lock().map(|guard| Writer::boxed(self, guard))
    }

    fn write_until(&self, deadline: Instant) -> Option<Writing<'_>> {
        self.try_lock_until(deadline).map(|guard| Writer::boxed(self, guard))
    }

    fn is_locked(&self) -> bool {
        RawRwLock::is_locked(self)
    }

    fn is_locked_exclusive(&self) -> bool {
        RawRwLock::is_locked_exclusive(self)
    }
}

/// A reader's acquisition that its drop releases. The box is not `Send`, so the drop runs where a release is allowed.
type Reading<'a> = Box<dyn ReaderInside + 'a>;

/// A writer's acquisition that its drop releases, as in [`Reading`].
type Writing<'a> = Box<dyn WriterInside<'a> + 'a>;

trait ReaderInside {}

trait WriterInside<'a> {
    fn downgrade(self: Box<Self>) -> Reading<'a>;
}

struct Reader<'a, L: RawRwLock>(&'a L, ManuallyDrop<L::SharedGuard>);

impl<'a, L: RawRwLock> Reader<'a, L> {
    fn boxed(lock: &'a L, guard: L::SharedGuard) -> Reading<'a> {
        Box::new(Self(lock, ManuallyDrop::new(guard)))
    }
}

impl<L: RawRwLock> ReaderInside for Reader<'_, L> {}

impl<L: RawRwLock> Drop for Reader<'_, L> {
    fn drop(&mut self) {
        // SAFETY:
        // - `self.1` is taken once, here.
        // - `self.1` came from an acquisition of this lock. A `Reading` is not `Send`, so this is the thread of the
        //   acquisition.
        unsafe { self.0.runlock(ManuallyDrop::take(&mut self.1)) };
    }
}

struct Writer<'a, L: RawRwLock>(&'a L, ManuallyDrop<L::ExclusiveGuard>);

impl<'a, L: RawRwLock> Writer<'a, L> {
    fn boxed(lock: &'a L, guard: L::ExclusiveGuard) -> Writing<'a> {
        Box::new(Self(lock, ManuallyDrop::new(guard)))
    }
}

impl<'a, L: RawRwLock> WriterInside<'a> for Writer<'a, L> {
    fn downgrade(self: Box<Self>) -> Reading<'a> {
        let mut this = ManuallyDrop::new(*self);
        // SAFETY:
        // - `this.1` is taken once, here: `this` is not dropped, so no drop takes it again.
        // - `this.1` came from an acquisition of this lock. A `Writing` is not `Send`, so this is the thread of the
        //   acquisition.
        let guard = unsafe { this.0.downgrade(ManuallyDrop::take(&mut this.1)) };
        Reader::boxed(this.0, guard)
    }
}

impl<L: RawRwLock> Drop for Writer<'_, L> {
    fn drop(&mut self) {
        // SAFETY: `self.1` is taken once, here, and came from an acquisition of this lock. A `Writing` is not `Send`,
        // so this is the thread of the acquisition.
        unsafe { self.0.unlock(ManuallyDrop::take(&mut self.1)) };
    }
}

/// Returns whether another thread could read, and whether another thread could write.
fn elsewhere(lock: &dyn AnyRwLock) -> (bool, bool) {
    scope(|s| {
        let read = s.spawn(|| lock.try_read().is_some()).join().unwrap();
        let write = s.spawn(|| lock.try_write().is_some()).join().unwrap();
        (read, write)
    })
}

fn assert_free(lock: &dyn AnyRwLock) {
    assert!(!lock.is_locked() && !lock.is_locked_exclusive());
    assert_eq!(elsewhere(lock), (true, true));
}

/// A number that only writers count up, a single writer at a time.
#[derive(Default)]
struct Inside {
    count: AtomicU64,
    readers: AtomicU32,
    writer: AtomicBool,
}

impl Inside {
    fn write(&self, _writing: &Writing<'_>) {
        assert!(!self.writer.swap(true, Relaxed), "two writers at once");
        let count = self.count.load(Relaxed);
        if count.is_multiple_of(64) {
            thread::yield_now(); // let others run while this thread is inside
        }
        assert_eq!(self.readers.load(Relaxed), 0, "readers beside a writer");
        self.count.store(count + 1, Relaxed);
        self.writer.store(false, Relaxed);
    }

    fn read(&self, _reading: &Reading<'_>) {
        self.readers.fetch_add(1, Relaxed);
        let count = self.count.load(Relaxed);
        if count.is_multiple_of(64) {
            thread::yield_now();
        }
        assert!(!self.writer.load(Relaxed), "a writer beside readers");
        assert_eq!(self.count.load(Relaxed), count, "a writer was inside");
        self.readers.fetch_sub(1, Relaxed);
    }
}

fn who_excludes_whom(subject: Subject, _progress: fn()) {
    let lock = &*subject.fresh();
    let share = subject.readers_share;
    let share_after_downgrade = subject.readers_share_after_downgrade;
    assert_free(lock);
    let reads: [fn(&dyn AnyRwLock) -> Reading<'_>; 3] =
        [|lock| lock.try_read().expect("free"), |lock| lock.read(), |lock| lock.read_until(far()).unwrap()];
    for read in reads {
        let reading = read(lock);
        assert!(lock.is_locked());
        assert_eq!(lock.is_locked_exclusive(), !share);
        assert!(lock.try_write().is_none());
        assert_eq!(lock.try_read().is_some(), share);
        assert_eq!(elsewhere(lock), (share, false));
        drop(reading);
        assert_free(lock);
    }
    let writes: [fn(&dyn AnyRwLock) -> Writing<'_>; 3] =
        [|lock| lock.try_write().expect("free"), |lock| lock.write(), |lock| lock.write_until(far()).unwrap()];
    for write in writes {
        let writing = write(lock);
        assert!(lock.is_locked() && lock.is_locked_exclusive());
        assert!(lock.try_write().is_none() && lock.try_read().is_none());
        assert_eq!(elsewhere(lock), (false, false));
        let reading = writing.downgrade();
        assert!(lock.is_locked());
        assert_eq!(lock.is_locked_exclusive(), !share_after_downgrade);
        assert_eq!(elsewhere(lock), (share_after_downgrade, false));
        drop(reading);
        assert_free(lock);
        drop(write(lock));
        assert_free(lock);
    }
}

fn one_writer_or_readers(subject: Subject, _progress: fn()) {
    const THREADS: u64 = real_or_simulated(4, 3) as u64;
    const ROUNDS: u64 = real_or_simulated(3_000, 3) as u64;
    let (lock, inside, written) = (&*subject.fresh(), Inside::default(), AtomicU64::new(0));
    scope(|s| {
        for thread in 0..THREADS {
            let (lock, inside, written) = (lock, &inside, &written);
            s.spawn(move || {
                let write = |writing: Writing<'_>| {
                    inside.write(&writing);
                    written.fetch_add(1, Relaxed);
                };
                for round in 0..ROUNDS {
                    // Three threads with three rounds take all seven cases.
                    match (2 * thread + round) % 7 {
                        0 => write(lock.write()),
                        1 => inside.read(&lock.read()),
                        2 => write(lock.write_until(far()).expect("it comes before the hour is over")),
                        3 => inside.read(&lock.read_until(far()).expect("it comes before the hour is over")),
                        4 => write(lock.try_write().unwrap_or_else(|| lock.write())),
                        5 => inside.read(&lock.try_read().unwrap_or_else(|| lock.read())),
                        _ => {
                            let writing = lock.write();
                            inside.write(&writing);
                            written.fetch_add(1, Relaxed);
                            inside.read(&writing.downgrade());
                        }
                    }
                }
            });
        }
    });
    assert_eq!(inside.count.load(Relaxed), written.load(Relaxed));
    assert_free(lock);
}

fn readers_are_inside_together(subject: Subject, _progress: fn()) {
    if !subject.readers_share {
        return;
    }
    const READERS: u32 = real_or_simulated(4, 3);
    let (lock, inside) = (&*subject.fresh(), AtomicU32::new(0));
    // The readers come while a writer is inside, or find the lock free: each of them must be let in, whatever its state
    // at the writer's release.
    for round in 0..real_or_simulated(40, 2).into() {
        let writing = lock.write();
        inside.store(0, Relaxed);
        scope(|s| {
            for _ in 0..READERS {
                s.spawn(|| {
                    let _reading = lock.read();
                    inside.fetch_add(1, Relaxed);
                    eventually(|| inside.load(Relaxed) == READERS);
                });
            }
            thread::sleep(Duration::from_micros(round * 20));
            assert_eq!(inside.load(Relaxed), 0);
            drop(writing);
        });
    }
    assert_free(lock);
}

fn a_deadline_in_the_past_is_a_try(subject: Subject, _progress: fn()) {
    let lock = &*subject.fresh();
    let past = now();
    let by_deadline = || {
        scope(|s| {
            let read = s.spawn(|| lock.read_until(past).is_some()).join().unwrap();
            let write = s.spawn(|| lock.write_until(past).is_some()).join().unwrap();
            (read, write)
        })
    };
    let reading = lock.read_until(past).expect("free");
    assert!(lock.write_until(past).is_none());
    assert_eq!(by_deadline(), (subject.readers_share, false));
    drop(reading);
    let writing = lock.write_until(past).expect("free");
    assert!(lock.read_until(past).is_none() && lock.write_until(past).is_none());
    assert_eq!(by_deadline(), (false, false));
    drop(writing);
    assert_eq!(by_deadline(), (true, true));
}

fn a_deadline_ends_a_wait_and_not_too_soon(subject: Subject, _progress: fn()) {
    let lock = &*subject.fresh();
    let in_vain = |acquires: &dyn Fn(Instant) -> bool| {
        for micros in [50, 500, real_or_simulated(5_000, 1).into()] {
            let deadline = now() + Duration::from_micros(micros);
            assert!(!acquires(deadline));
            assert!(now() >= deadline, "it gave up early");
        }
    };
    let writing = lock.write();
    in_vain(&|deadline| lock.write_until(deadline).is_some());
    in_vain(&|deadline| lock.read_until(deadline).is_some());
    let _reading = writing.downgrade();
    in_vain(&|deadline| lock.write_until(deadline).is_some());
}

/// A function that makes a holder of the lock, and returns the function that releases the lock.
type Holds = fn(&dyn AnyRwLock) -> Box<dyn FnOnce() + '_>;

fn a_release_ends_all_waits(subject: Subject, _progress: fn()) {
    let lock = &*subject.fresh();
    let holders: [Holds; 2] = [
        |lock| {
            Box::new({
                let held = lock.write();
                move || drop(held)
            })
        },
        |lock| {
            Box::new({
                let held = lock.read();
                move || drop(held)
            })
        },
    ];
    for round in 0..real_or_simulated(40, 2).into() {
        let release = holders[(round % 2) as usize](lock);
        let started = AtomicU32::new(0);
        scope(|s| {
            let waiters: [_; 4] = std::array::from_fn(|waiter| {
                let (lock, started) = (lock, &started);
                s.spawn(move || {
                    started.fetch_add(1, Relaxed);
                    match waiter {
                        0 => drop(lock.write()),
                        1 => drop(lock.read_until(far()).expect("it comes before the hour is over")),
                        2 => drop(lock.write_until(far()).expect("it comes before the hour is over")),
                        _ => drop(lock.read()),
                    }
                })
            });
            eventually(|| started.load(Relaxed) == 4);
            // Let the waiters get from spinning to sound asleep: the release must reach them in every state.
            thread::sleep(Duration::from_micros(round * 20));
            release();
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        });
    }
    assert_free(lock);
}

fn a_writer_that_gives_up_lets_readers_in(subject: Subject, _progress: fn()) {
    if !subject.readers_share {
        return;
    }
    let lock = &*subject.fresh();
    // The first reader stays inside, so the writer's wait is in vain. A reader that comes meanwhile may wait behind the
    // writer, but for no longer than the writer waits.
    let first = lock.read();
    for round in 0..real_or_simulated(40, 2).into() {
        let started = &AtomicBool::new(false);
        scope(|s| {
            let writer = s.spawn(move || {
                started.store(true, Relaxed);
                lock.write_until(now() + Duration::from_micros(100 + round * 10)).is_some()
            });
            eventually(|| started.load(Relaxed));
            let readers = [
                s.spawn(|| drop(lock.read())),
                s.spawn(|| drop(lock.read_until(far()).expect("it comes before the hour is over"))),
            ];
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            assert!(!writer.join().unwrap());
        });
        assert!(lock.try_read().is_some() && lock.try_write().is_none());
    }
    drop(first);
    assert_free(lock);
}

fn a_downgrade_lets_readers_in_and_no_writer(subject: Subject, _progress: fn()) {
    if !subject.readers_share_after_downgrade {
        return;
    }
    let (lock, inside) = (&*subject.fresh(), Inside::default());
    for round in 0..real_or_simulated(40, 2).into() {
        let writing = lock.write();
        scope(|s| {
            let readers: [_; 2] = std::array::from_fn(|_| s.spawn(|| inside.read(&lock.read())));
            thread::sleep(Duration::from_micros(round * 20));
            inside.write(&writing);
            let reading = writing.downgrade();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            let writer = s.spawn(|| inside.write(&lock.write()));
            thread::sleep(Duration::from_micros(round * 20));
            inside.read(&reading);
            assert!(lock.try_write().is_none());
            drop(reading);
            writer.join().unwrap();
        });
    }
    assert_free(lock);
}

fn a_storm_of_timeouts_leaves_nothing_behind(subject: Subject, _progress: fn()) {
    const ROUNDS: u64 = real_or_simulated(400, 2) as u64;
    let (lock, inside, in_time) = (&*subject.fresh(), Inside::default(), AtomicU64::new(0));
    scope(|s| {
        for seed in 0..real_or_simulated(4, 2).into() {
            let (lock, inside, in_time) = (lock, &inside, &in_time);
            s.spawn(move || {
                let mut rng = Mt64::new(seed);
                for _ in 0..ROUNDS {
                    let deadline = now() + Duration::from_micros(rng.next_u64() % 60);
                    if rng.next_u64().is_multiple_of(2) {
                        if let Some(writing) = lock.write_until(deadline) {
                            in_time.fetch_add(1, Relaxed);
                            inside.write(&writing);
                        }
                    } else if let Some(reading) = lock.read_until(deadline) {
                        inside.read(&reading);
                    }
                }
            });
        }
        s.spawn(|| (0..ROUNDS).for_each(|_| inside.write(&lock.write())));
        s.spawn(|| (0..ROUNDS).for_each(|_| inside.read(&lock.read())));
    });
    assert_eq!(inside.count.load(Relaxed), ROUNDS + in_time.load(Relaxed));
    // If a waiter had stayed in the queue, the lock would be promised to that waiter now, or at the second release.
    for _ in 0..2 {
        assert_free(lock);
        drop(lock.write_until(now()).expect("free"));
        drop(lock.write());
        drop(lock.read_until(now()).expect("free"));
        drop(lock.read());
    }
}
