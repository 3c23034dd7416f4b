use std::sync::atomic::AtomicU32 as StdAtomicU32;
use std::thread;
use std::time::Duration;

use sudog_runtime::sema::Cancel;

use super::*;
use crate::bias::READS_FOR_A_BIAS;
use crate::rw_mutex::read_slots::{READ_SLOTS, THREADS_WITH_SLOTS};

type Sharded = ShardedRwMutex;

impl Sharded {
    fn read(&self) {
        self.end_read(self.rlock());
    }

    fn end_read(&self, guard: SharedGuard) {
        match guard.0 {
            Some(slot) => self.leave(slot),
            None => self.inner.runlock(),
        }
    }

    fn write_once(&self) {
        RawRwLock::lock(self);
        self.end_write();
    }

    fn end_write(&self) {
        self.open();
        self.inner.unlock();
    }

    fn can_be_written(&self) -> bool {
        let comes_off = RawRwLock::try_lock(self).is_some();
        if comes_off {
            self.end_write();
        }
        comes_off
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
        rw.end_read(reader);
        assert!(rw.can_be_written());
    });
}

#[test]
fn a_cancel_keeps_nobody_from_a_free_lock() {
    each(|rw| {
        let stop = Cancel::new();
        stop.cancel();
        let limit = WaitLimit { deadline: None, cancel: Some(&stop) };
        let reader = RawRwLock::rlock_limited(&rw, &limit).expect("free");
        assert_eq!(RawRwLock::lock_limited(&rw, &limit), Err(WaitError::Cancelled));
        rw.end_read(reader);
        assert_eq!(RawRwLock::lock_limited(&rw, &limit), Ok(()));
        assert_eq!(RawRwLock::rlock_limited(&rw, &limit).err(), Some(WaitError::Cancelled));
        assert_eq!(RawRwLock::lock_limited(&rw, &limit), Err(WaitError::Cancelled));
        rw.end_write();
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
            rw.end_read(guard);
        }
        assert!(!rw.is_locked() && rw.can_be_written());
    });
}

#[test]
fn threads_without_slots_read_too() {
    const FURTHER: usize = 8;
    let (rw, has_none) = (Sharded::new(), StdAtomicU32::new(0));
    let threads = THREADS_WITH_SLOTS + FURTHER;
    let [all_read, tried] = [(); 2].map(|()| std::sync::Barrier::new(threads + 1));
    thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                let guard = rw.rlock();
                has_none.fetch_add(u32::from(guard.0.is_none()), Relaxed);
                all_read.wait();
                tried.wait();
                rw.end_read(guard);
            });
        }
        all_read.wait();
        assert!(!rw.can_be_written());
        tried.wait();
    });
    assert!(has_none.into_inner() as usize >= FURTHER);
    assert!(rw.can_be_written());
    thread::scope(|s| {
        let later = s.spawn(|| {
            let guard = rw.rlock();
            let has_slot = guard.0.is_some();
            rw.end_read(guard);
            has_slot
        });
        assert!(later.join().unwrap(), "a later thread has no slots");
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
            rw.end_read(guard);
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
                rw.end_read(guard);
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
            rw.end_write();
        }
    });
    assert!(biased >= rounds / 2 || !asymmetric::is_available());
}

/// Two threads that come to the end of each step together.
struct Steps(StdAtomicU32);

impl Steps {
    fn meet(&self, number: u32) {
        self.0.fetch_add(1, SeqCst);
        let mut looks = 0;
        while self.0.load(SeqCst) < 2 * number {
            looks += 1;
            if looks % 1_000 == 0 { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    /// Lets the other thread go on to its end.
    fn give_up(&self) {
        self.0.store(u32::MAX / 2, SeqCst);
    }
}

/// The race of a reader and a writer for the mutex, which is biased in each second round. Each thread has in its cache what it will
/// look at, so that a write that no fence holds back comes late.
#[test]
fn of_a_reader_and_a_writer_one_sees_the_other() {
    const ROUNDS: u32 = 50_000;
    let (rw, steps, has_read) = (Sharded::new(), Steps(StdAtomicU32::new(0)), AtomicBool::new(false));
    rw.read();
    let unbiased = rw.state();
    thread::scope(|s| {
        s.spawn(|| {
            for round in 0..ROUNDS {
                rw.state();
                steps.meet(3 * round + 1);
                let guard = rw.enter();
                has_read.store(guard.is_some(), Relaxed);
                steps.meet(3 * round + 2);
                guard.into_iter().for_each(|guard| rw.end_read(guard));
                steps.meet(3 * round + 3);
            }
        });
        for round in 0..ROUNDS {
            rw.state().is_read();
            steps.meet(3 * round + 1);
            let has_written = rw.close(None).is_ok();
            steps.meet(3 * round + 2);
            if has_written && has_read.load(Relaxed) {
                steps.give_up();
                panic!("a writer and a reader have the mutex in round {round}");
            }
            let biased = round % 2 == 0 && asymmetric::is_available();
            rw.word.store(if biased { unbiased.biased() } else { unbiased }.0, SeqCst);
            steps.meet(3 * round + 3);
        }
    });
}

/// The race of `left_closed` and `wait`, with a reader whose fence is light.
#[test]
fn the_last_reader_and_the_writer_see_each_other() {
    const ROUNDS: u32 = 20_000;
    let (rw, steps) = (Sharded::new(), Steps(StdAtomicU32::new(0)));
    if !asymmetric::is_available() {
        return;
    }
    thread::scope(|s| {
        s.spawn(|| {
            rw.bias_by_reads();
            for round in 0..ROUNDS {
                let guard = rw.rlock();
                assert!(guard.0.is_some_and(|slot| State(slot.own_name()).is_biased()));
                steps.meet(4 * round + 1);
                steps.meet(4 * round + 2);
                // What the reader will look at is in the cache.
                assert!(rw.state().is_closed() && !rw.waits.load(Relaxed));
                steps.meet(4 * round + 3);
                rw.end_read(guard);
                steps.meet(4 * round + 4);
            }
        });
        for round in 0..ROUNDS {
            steps.meet(4 * round + 1);
            rw.word.fetch_or(CLOSED, SeqCst);
            assert!(asymmetric::heavy() && rw.state().is_read());
            steps.meet(4 * round + 2);
            steps.meet(4 * round + 3);
            let in_time = WaitLimit::until(Instant::now() + Duration::from_secs(10));
            if rw.wait(rw.state(), &in_time).is_err() {
                steps.give_up();
                panic!("no wake-up in round {round}");
            }
            rw.word.store(rw.state().reopened().0, SeqCst);
            steps.meet(4 * round + 4);
        }
    });
}
