//! The checks of [`RawRwLock`].

use std::any::TypeId;
use std::marker::PhantomData;
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
    super::checks![PhantomData::<L>;
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

/// Returns whether readers share the lock: a mutex in the place of a readers-writer lock lets in a single reader.
fn readers_share<L: 'static>() -> bool {
    TypeId::of::<L>() != TypeId::of::<Exclusive<GoMutex>>()
}

/// Returns whether readers share the lock with a writer that has become a reader: crossbeam's lock has no downgrade,
/// and after the adapter's downgrade the lock is still held for writing.
fn readers_share_after_downgrade<L: 'static>() -> bool {
    readers_share::<L>() && TypeId::of::<L>() != TypeId::of::<CrossbeamSharded>()
}

/// A reader's acquisition that its drop releases. This type is `Send` only if the lock's guard is, so the drop runs
/// where a release is allowed.
struct Reading<'a, L: RawRwLock>(&'a L, ManuallyDrop<L::SharedGuard>);

impl<'a, L: RawRwLock> Reading<'a, L> {
    fn by_lock(lock: &'a L) -> Self {
        Self(lock, ManuallyDrop::new(lock.rlock()))
    }

    fn by_try(lock: &'a L) -> Option<Self> {
        Some(Self(lock, ManuallyDrop::new(lock.try_rlock()?)))
    }

    fn until(lock: &'a L, deadline: Instant) -> Option<Self> {
        Some(Self(lock, ManuallyDrop::new(lock.try_rlock_until(deadline)?)))
    }
}

impl<L: RawRwLock> Drop for Reading<'_, L> {
    fn drop(&mut self) {
        // SAFETY:
        // - `self.1` is taken once, here.
        // - `self.1` came from an acquisition of this lock. If that guard is not `Send`, neither is `self`, so this is
        //   the thread of the acquisition.
        unsafe { self.0.runlock(ManuallyDrop::take(&mut self.1)) };
    }
}

/// A writer's acquisition that its drop releases, as in [`Reading`].
struct Writing<'a, L: RawRwLock>(&'a L, ManuallyDrop<L::ExclusiveGuard>);

impl<'a, L: RawRwLock> Writing<'a, L> {
    fn by_lock(lock: &'a L) -> Self {
        Self(lock, ManuallyDrop::new(lock.lock()))
    }

    fn by_try(lock: &'a L) -> Option<Self> {
        Some(Self(lock, ManuallyDrop::new(lock.try_lock()?)))
    }

    fn until(lock: &'a L, deadline: Instant) -> Option<Self> {
        Some(Self(lock, ManuallyDrop::new(lock.try_lock_until(deadline)?)))
    }

    fn downgrade(self) -> Reading<'a, L> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY:
        // - `this.1` is taken once, here: `this` is not dropped, so no drop takes it again.
        // - `this.1` came from an acquisition of this lock. If that guard is not `Send`, neither was `self`, so this is
        //   the thread of the acquisition.
        let read = unsafe { this.0.downgrade(ManuallyDrop::take(&mut this.1)) };
        Reading(this.0, ManuallyDrop::new(read))
    }
}

impl<L: RawRwLock> Drop for Writing<'_, L> {
    fn drop(&mut self) {
        // SAFETY: `self.1` is taken once, here, and came from an acquisition of this lock; unless that guard is `Send`,
        // this is the thread of the acquisition.
        unsafe { self.0.unlock(ManuallyDrop::take(&mut self.1)) };
    }
}

/// Returns whether another thread could read, and whether another thread could write.
fn elsewhere<L: RawRwLock>(lock: &L) -> (bool, bool) {
    scope(|s| {
        let read = s.spawn(|| Reading::by_try(lock).is_some()).join().unwrap();
        let write = s.spawn(|| Writing::by_try(lock).is_some()).join().unwrap();
        (read, write)
    })
}

fn assert_free<L: RawRwLock>(lock: &L) {
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
    fn write<L: RawRwLock>(&self, _writing: &Writing<'_, L>) {
        assert!(!self.writer.swap(true, Relaxed), "two writers at once");
        let count = self.count.load(Relaxed);
        if count.is_multiple_of(64) {
            thread::yield_now(); // let others run while this thread is inside
        }
        assert_eq!(self.readers.load(Relaxed), 0, "readers beside a writer");
        self.count.store(count + 1, Relaxed);
        self.writer.store(false, Relaxed);
    }

    fn read<L: RawRwLock>(&self, _reading: &Reading<'_, L>) {
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

fn who_excludes_whom<L: RawRwLock + 'static>(_: PhantomData<L>, _progress: fn()) {
    let lock = L::new();
    let share = readers_share::<L>();
    let share_after_downgrade = readers_share_after_downgrade::<L>();
    assert_free(&lock);
    for read in
        [|lock| Reading::by_try(lock).expect("free"), Reading::by_lock, |lock| Reading::until(lock, far()).unwrap()]
    {
        let reading = read(&lock);
        assert!(lock.is_locked());
        assert_eq!(lock.is_locked_exclusive(), !share);
        assert!(Writing::by_try(&lock).is_none());
        assert_eq!(Reading::by_try(&lock).is_some(), share);
        assert_eq!(elsewhere(&lock), (share, false));
        drop(reading);
        assert_free(&lock);
    }
    for write in
        [|lock| Writing::by_try(lock).expect("free"), Writing::by_lock, |lock| Writing::until(lock, far()).unwrap()]
    {
        let writing = write(&lock);
        assert!(lock.is_locked() && lock.is_locked_exclusive());
        assert!(Writing::by_try(&lock).is_none() && Reading::by_try(&lock).is_none());
        assert_eq!(elsewhere(&lock), (false, false));
        let reading = writing.downgrade();
        assert!(lock.is_locked());
        assert_eq!(lock.is_locked_exclusive(), !share_after_downgrade);
        assert_eq!(elsewhere(&lock), (share_after_downgrade, false));
        drop(reading);
        assert_free(&lock);
        drop(write(&lock));
        assert_free(&lock);
    }
}

fn one_writer_or_readers<L: RawRwLock + 'static>(_: PhantomData<L>, _progress: fn()) {
    const THREADS: u64 = real_or_simulated(4, 3) as u64;
    const ROUNDS: u64 = real_or_simulated(3_000, 3) as u64;
    let (lock, inside, written) = (L::new(), Inside::default(), AtomicU64::new(0));
    scope(|s| {
        for thread in 0..THREADS {
            let (lock, inside, written) = (&lock, &inside, &written);
            s.spawn(move || {
                let write = |writing: Writing<'_, L>| {
                    inside.write(&writing);
                    written.fetch_add(1, Relaxed);
                };
                for round in 0..ROUNDS {
                    // Three threads with three rounds take all seven cases.
                    match (2 * thread + round) % 7 {
                        0 => write(Writing::by_lock(lock)),
                        1 => inside.read(&Reading::by_lock(lock)),
                        2 => write(Writing::until(lock, far()).expect("it comes before the hour is over")),
                        3 => inside.read(&Reading::until(lock, far()).expect("it comes before the hour is over")),
                        4 => write(Writing::by_try(lock).unwrap_or_else(|| Writing::by_lock(lock))),
                        5 => inside.read(&Reading::by_try(lock).unwrap_or_else(|| Reading::by_lock(lock))),
                        _ => {
                            let writing = Writing::by_lock(lock);
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
    assert_free(&lock);
}

fn readers_are_inside_together<L: RawRwLock + 'static>(_: PhantomData<L>, _progress: fn()) {
    if !readers_share::<L>() {
        return;
    }
    const READERS: u32 = real_or_simulated(4, 3);
    let (lock, inside) = (L::new(), AtomicU32::new(0));
    // The readers come while a writer is inside, or find the lock free: each of them must be let in, whatever its state
    // at the writer's release.
    for round in 0..real_or_simulated(40, 2).into() {
        let writing = Writing::by_lock(&lock);
        inside.store(0, Relaxed);
        scope(|s| {
            for _ in 0..READERS {
                s.spawn(|| {
                    let _reading = Reading::by_lock(&lock);
                    inside.fetch_add(1, Relaxed);
                    eventually(|| inside.load(Relaxed) == READERS);
                });
            }
            thread::sleep(Duration::from_micros(round * 20));
            assert_eq!(inside.load(Relaxed), 0);
            drop(writing);
        });
    }
    assert_free(&lock);
}

fn a_deadline_in_the_past_is_a_try<L: RawRwLock + 'static>(_: PhantomData<L>, _progress: fn()) {
    let lock = L::new();
    let past = now();
    let by_deadline = || {
        scope(|s| {
            let read = s.spawn(|| Reading::until(&lock, past).is_some()).join().unwrap();
            let write = s.spawn(|| Writing::until(&lock, past).is_some()).join().unwrap();
            (read, write)
        })
    };
    let reading = Reading::until(&lock, past).expect("free");
    assert!(Writing::until(&lock, past).is_none());
    assert_eq!(by_deadline(), (readers_share::<L>(), false));
    drop(reading);
    let writing = Writing::until(&lock, past).expect("free");
    assert!(Reading::until(&lock, past).is_none() && Writing::until(&lock, past).is_none());
    assert_eq!(by_deadline(), (false, false));
    drop(writing);
    assert_eq!(by_deadline(), (true, true));
}

fn a_deadline_ends_a_wait_and_not_too_soon<L: RawRwLock + 'static>(_: PhantomData<L>, _progress: fn()) {
    let lock = L::new();
    let in_vain = |acquires: &dyn Fn(Instant) -> bool| {
        for micros in [50, 500, real_or_simulated(5_000, 1).into()] {
            let deadline = now() + Duration::from_micros(micros);
            assert!(!acquires(deadline));
            assert!(now() >= deadline, "it gave up early");
        }
    };
    let writing = Writing::by_lock(&lock);
    in_vain(&|deadline| Writing::until(&lock, deadline).is_some());
    in_vain(&|deadline| Reading::until(&lock, deadline).is_some());
    let _reading = writing.downgrade();
    in_vain(&|deadline| Writing::until(&lock, deadline).is_some());
}

/// A function that makes a holder of the lock, and returns the function that releases the lock.
type Holds<L> = fn(&L) -> Box<dyn FnOnce() + '_>;

fn a_release_ends_all_waits<L: RawRwLock + 'static>(_: PhantomData<L>, _progress: fn()) {
    let lock = L::new();
    let holders: [Holds<L>; 2] = [
        |lock| {
            Box::new({
                let held = Writing::by_lock(lock);
                move || drop(held)
            })
        },
        |lock| {
            Box::new({
                let held = Reading::by_lock(lock);
                move || drop(held)
            })
        },
    ];
    for round in 0..real_or_simulated(40, 2).into() {
        let release = holders[(round % 2) as usize](&lock);
        let started = AtomicU32::new(0);
        scope(|s| {
            let waiters: [_; 4] = std::array::from_fn(|waiter| {
                let (lock, started) = (&lock, &started);
                s.spawn(move || {
                    started.fetch_add(1, Relaxed);
                    match waiter {
                        0 => drop(Writing::by_lock(lock)),
                        1 => drop(Reading::until(lock, far()).expect("it comes before the hour is over")),
                        2 => drop(Writing::until(lock, far()).expect("it comes before the hour is over")),
                        _ => drop(Reading::by_lock(lock)),
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
    assert_free(&lock);
}

fn a_writer_that_gives_up_lets_readers_in<L: RawRwLock + 'static>(_: PhantomData<L>, _progress: fn()) {
    if !readers_share::<L>() {
        return;
    }
    let lock = L::new();
    // The first reader stays inside, so the writer's wait is in vain. A reader that comes meanwhile may wait behind the
    // writer, but for no longer than the writer waits.
    let first = Reading::by_lock(&lock);
    for round in 0..real_or_simulated(40, 2).into() {
        let started = &AtomicBool::new(false);
        let lock = &lock;
        scope(|s| {
            let writer = s.spawn(move || {
                started.store(true, Relaxed);
                Writing::until(lock, now() + Duration::from_micros(100 + round * 10)).is_some()
            });
            eventually(|| started.load(Relaxed));
            let readers = [
                s.spawn(|| drop(Reading::by_lock(lock))),
                s.spawn(|| drop(Reading::until(lock, far()).expect("it comes before the hour is over"))),
            ];
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            assert!(!writer.join().unwrap());
        });
        assert!(Reading::by_try(lock).is_some() && Writing::by_try(lock).is_none());
    }
    drop(first);
    assert_free(&lock);
}

fn a_downgrade_lets_readers_in_and_no_writer<L: RawRwLock + 'static>(_: PhantomData<L>, _progress: fn()) {
    if !readers_share_after_downgrade::<L>() {
        return;
    }
    let (lock, inside) = (L::new(), Inside::default());
    for round in 0..real_or_simulated(40, 2).into() {
        let writing = Writing::by_lock(&lock);
        scope(|s| {
            let readers: [_; 2] = std::array::from_fn(|_| s.spawn(|| inside.read(&Reading::by_lock(&lock))));
            thread::sleep(Duration::from_micros(round * 20));
            inside.write(&writing);
            let reading = writing.downgrade();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            let writer = s.spawn(|| inside.write(&Writing::by_lock(&lock)));
            thread::sleep(Duration::from_micros(round * 20));
            inside.read(&reading);
            assert!(Writing::by_try(&lock).is_none());
            drop(reading);
            writer.join().unwrap();
        });
    }
    assert_free(&lock);
}

fn a_storm_of_timeouts_leaves_nothing_behind<L: RawRwLock + 'static>(_: PhantomData<L>, _progress: fn()) {
    const ROUNDS: u64 = real_or_simulated(400, 2) as u64;
    let (lock, inside, in_time) = (L::new(), Inside::default(), AtomicU64::new(0));
    scope(|s| {
        for seed in 0..real_or_simulated(4, 2).into() {
            let (lock, inside, in_time) = (&lock, &inside, &in_time);
            s.spawn(move || {
                let mut rng = Mt64::new(seed);
                for _ in 0..ROUNDS {
                    let deadline = now() + Duration::from_micros(rng.next_u64() % 60);
                    if rng.next_u64().is_multiple_of(2) {
                        if let Some(writing) = Writing::until(lock, deadline) {
                            in_time.fetch_add(1, Relaxed);
                            inside.write(&writing);
                        }
                    } else if let Some(reading) = Reading::until(lock, deadline) {
                        inside.read(&reading);
                    }
                }
            });
        }
        s.spawn(|| (0..ROUNDS).for_each(|_| inside.write(&Writing::by_lock(&lock))));
        s.spawn(|| (0..ROUNDS).for_each(|_| inside.read(&Reading::by_lock(&lock))));
    });
    assert_eq!(inside.count.load(Relaxed), ROUNDS + in_time.load(Relaxed));
    // If a waiter had stayed in the queue, the lock would be promised to that waiter now, or at the second release.
    for _ in 0..2 {
        assert_free(&lock);
        drop(Writing::until(&lock, now()).expect("free"));
        drop(Writing::by_lock(&lock));
        drop(Reading::until(&lock, now()).expect("free"));
        drop(Reading::by_lock(&lock));
    }
}
