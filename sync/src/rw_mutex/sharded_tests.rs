use std::sync::atomic::AtomicU32 as StdAtomicU32;
use std::thread;
use std::time::Duration;

use super::*;
use crate::hazard::domain::READS_FOR_A_BIAS;
use crate::hazard::read_slots::READ_SLOTS;

type Sharded = ShardedRwMutex;

impl Sharded {
    fn read(&self) {
        let guard = self.rlock();
        // SAFETY: `guard` came from `rlock` above, and has not been released.
        unsafe { self.runlock(guard) };
    }

    fn write_once(&self) {
        RawRwLock::lock(self);
        // SAFETY: the mutex has been locked above. The guard has no state.
        unsafe { RawRwLock::unlock(self, ()) };
    }

    fn can_be_written(&self) -> bool {
        let guard = RawRwLock::try_lock(self);
        // SAFETY: `guard` came from `try_lock` above, and has not been released.
        guard.map(|guard| unsafe { RawRwLock::unlock(self, guard) }).is_some()
    }

    /// Reads until the mutex is biased, if there are heavy fences.
    fn bias_by_reads(&self) {
        (0..READS_FOR_A_BIAS).for_each(|_| self.read());
        assert_eq!(self.state().is_biased(), asymmetric::is_available());
    }
}

/// Runs a test with a mutex that is not biased, and with a mutex that is, if that can be.
fn each(test: impl Fn(Sharded)) {
    test(Sharded::new());
    let biased = Sharded::new();
    biased.bias_by_reads();
    test(biased);
}

#[test]
fn a_write_ends_the_bias() {
    let rw = Sharded::new();
    rw.read();
    assert!(!rw.state().is_biased());
    rw.bias_by_reads();
    rw.write_once();
    assert!(!rw.state().is_biased());
    rw.bias_by_reads();
}

#[test]
fn a_writer_that_gives_up_keeps_the_bias() {
    each(|rw| {
        let reader = rw.rlock();
        let before = rw.state();
        assert!(RawRwLock::try_lock(&rw).is_none());
        assert!(rw.try_lock_until(Instant::now() + Duration::from_millis(1)).is_none());
        assert!(rw.state() == before);
        // SAFETY: `reader` came from `rlock` above, and has not been released.
        unsafe { rw.runlock(reader) };
        assert!(rw.can_be_written());
    });
}

#[test]
fn a_mutex_without_readers_gets_no_name() {
    let rw = Sharded::new();
    rw.write_once();
    assert!(rw.state() == State::UNNAMED);
    assert!(!rw.is_locked());
}

#[test]
fn more_reads_at_a_time_than_slots() {
    each(|rw| {
        let mut guards: Vec<_> = (0..2 * READ_SLOTS).map(|_| rw.rlock()).collect();
        // A read that another thread has to end may be in the thread's record.
        let in_slots = guards.iter().filter(|guard| guard.0.is_some()).count();
        assert!((1..=READ_SLOTS).contains(&in_slots), "{in_slots}");
        while let Some(guard) = guards.pop() {
            assert!(rw.is_locked() && !rw.can_be_written());
            // SAFETY: `guard` came from `rlock` above, and has not been released.
            unsafe { rw.runlock(guard) };
        }
        assert!(!rw.is_locked() && rw.can_be_written());
    });
}

#[test]
fn another_thread_ends_a_read() {
    each(|rw| {
        thread::scope(|s| {
            // The thread that has read ends before the read does.
            let guard = s.spawn(|| rw.rlock()).join().unwrap();
            let writer = s.spawn(|| rw.write_once());
            while !rw.waits.load(SeqCst) {
                thread::yield_now();
            }
            // SAFETY: `guard` came from `rlock` above, and has not been released.
            unsafe { rw.runlock(guard) };
            writer.join().unwrap();
        });
        assert!(rw.can_be_written());
    });
}

#[test]
fn a_read_that_was_forgotten_locks_no_other_mutex_in_the_same_place() {
    let (mut place, mut forgotten) = (Sharded::new(), Vec::new());
    for _ in 0..2 * READ_SLOTS {
        place = Sharded::new();
        place.read();
        assert!(place.can_be_written());
        forgotten.push(place.rlock());
        assert!(!place.can_be_written());
    }
    let elsewhere = Box::new(place);
    assert!(!elsewhere.can_be_written(), "a mutex that was moved is not locked");
    // For the next owner of the thread's record.
    forgotten.into_iter().filter_map(|guard| guard.0).for_each(|slot| slot.write(0));
}

/// A reader and a writer, while the mutex is biased again and again. A writer that goes beside the reader shows as an odd
/// number.
#[test]
fn no_writer_goes_beside_a_reader() {
    let (rw, number) = (Sharded::new(), StdAtomicU32::new(0));
    let (rounds, mut biased) = (20_000, 0);
    thread::scope(|s| {
        let reader = s.spawn(|| {
            while number.load(Relaxed) < 2 * rounds {
                let guard = rw.rlock();
                (0..20).for_each(|_| assert_eq!(number.load(Relaxed) % 2, 0));
                // SAFETY: `guard` came from `rlock` above, and has not been released.
                unsafe { rw.runlock(guard) };
            }
        });
        for round in 0..rounds {
            // Before each second write, wait for the bias.
            while round % 2 == 0 && asymmetric::is_available() && !rw.state().is_biased() {
                assert!(!reader.is_finished(), "the reader has ended");
                thread::yield_now();
            }
            biased += u32::from(rw.state().is_biased());
            RawRwLock::lock(&rw);
            number.fetch_add(1, Relaxed);
            (0..10).for_each(|_| std::hint::spin_loop());
            number.fetch_add(1, Relaxed);
            // SAFETY: the mutex has been locked above. The guard has no state.
            unsafe { RawRwLock::unlock(&rw, ()) };
        }
    });
    assert!(biased >= rounds / 2 || !asymmetric::is_available());
}

/// The race of `left_closed` and `wait`, with a reader whose fence is light.
#[test]
fn the_last_reader_and_the_writer_see_each_other() {
    const ROUNDS: u32 = 20_000;
    let (rw, step) = (Sharded::new(), StdAtomicU32::new(0));
    if !asymmetric::is_available() {
        return;
    }
    // Both threads have come to the end of a step.
    let meet = |number: u32| {
        step.fetch_add(1, SeqCst);
        let mut looks = 0;
        while step.load(SeqCst) < 2 * number {
            looks += 1;
            if looks % 1_000 == 0 { thread::yield_now() } else { std::hint::spin_loop() }
        }
    };
    thread::scope(|s| {
        s.spawn(|| {
            rw.bias_by_reads();
            for round in 0..ROUNDS {
                let guard = rw.rlock();
                assert!(guard.0.is_some_and(|slot| State(slot.own_name()).is_biased()));
                meet(4 * round + 1);
                meet(4 * round + 2);
                // What the reader will look at is in the cache.
                assert!(rw.state().is_closed() && !rw.waits.load(Relaxed));
                meet(4 * round + 3);
                // SAFETY: `guard` came from `rlock` above, and has not been released.
                unsafe { rw.runlock(guard) };
                meet(4 * round + 4);
            }
        });
        for round in 0..ROUNDS {
            meet(4 * round + 1);
            rw.word.fetch_or(CLOSED, SeqCst);
            assert!(asymmetric::heavy() && rw.is_read());
            meet(4 * round + 2);
            meet(4 * round + 3);
            let in_time = || rw.drained.acquire_until(Order::Fifo, Instant::now() + Duration::from_secs(10));
            if !rw.wait(in_time) {
                step.store(u32::MAX / 2, SeqCst); // lets the reader go on to its end
                panic!("no wake-up in round {round}");
            }
            rw.word.store(rw.state().reopened().0, SeqCst);
            meet(4 * round + 4);
        }
    });
}
