//! The lock of a queue, with the length of the queue in the lock's word.
//!
//! ```text
//!   31                                      2        1         0
//!  ┌─────────────────────────────────────────┬──────────┬────────┐
//!  │ count: waiters in the queue or joining  │ SLEEPERS │ LOCKED │
//!  └─────────────────────────────────────────┴──────────┴────────┘
//! ```
//!
//! | step | how |
//! |---|---|
//! | lock, and count a waiter | a compare-exchange; if locked: spin for a while, set `SLEEPERS`, sleep on the word |
//! | unlock, and uncount some waiters | a compare-exchange, which clears `SLEEPERS`; if that was set: wake a sleeper |
//! | read the count | a load, without the lock |
//!
//! A thread that has slept sets `SLEEPERS` as it takes the lock, because other threads may sleep too. So each unlock
//! wakes a sleeper until no sleeper is left. Only holders of the lock write the count. Counting and locking are one
//! step, so a waiter and its waker execute two locked instructions each; with a separate counter beside the lock they
//! would execute three each.
//!
//! Orderings: a lock has Acquire, an unlock has Release. An increment of the count and a load of the count are the two
//! halves of the Dekker pair of `table.rs`, so both are SeqCst. A decrement may become visible late.
//!
//! The count has 30 bits, which is enough: so many waiters in one bucket would take more than 100 GiB of memory.
//!
//! After the unlock a thread does not touch the lock's memory: the futex wake uses the address only as a key.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::shim::{self, AtomicU32, Ordering, futex};

const LOCKED: u32 = 1;
const SLEEPERS: u32 = 2;
/// The amount by which a waiter increases the word: the lowest bit of the count.
const ONE: u32 = 4;
/// The number of times that a thread checks the word before the thread assumes that the holder was preempted, and
/// sleeps.
#[cfg(not(sudog_loom))]
const SPINS: u32 = 100;
#[cfg(sudog_loom)]
const SPINS: u32 = 0;

/// A lock and a count in the same word: see the top of this file.
pub(super) struct CountedLock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock accesses the value.
unsafe impl<T: Send> Sync for CountedLock<T> {}

/// A guard of the lock: the lock is held until the guard is dropped.
pub(super) struct Guard<'a, T> {
    lock: &'a CountedLock<T>,
    /// The number by which the unlock reduces the count.
    uncounted: u32,
    _thread: PhantomData<*const ()>,
}

impl<T> CountedLock<T> {
    crate::const_unless_model! {
        pub(super) const fn new(value: T) -> Self {
            Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
        }
    }

    /// Returns the count: the waiters in the queue, and the waiters that are about to join. The count is never less
    /// than the number of waiters in the queue.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.word.load(Ordering::SeqCst) / ONE
    }

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        self.lock_and_add(0)
    }

    /// Locks, and adds a waiter to the count.
    #[inline]
    pub(super) fn lock_and_count(&self) -> Guard<'_, T> {
        self.lock_and_add(ONE)
    }

    #[inline]
    fn lock_and_add(&self, more: u32) -> Guard<'_, T> {
        let word = self.word.load(Ordering::Relaxed);
        if word & (LOCKED | SLEEPERS) != 0 || !self.take(word, LOCKED + more) {
            self.lock_slow(more);
        }
        Guard { lock: self, uncounted: 0, _thread: PhantomData }
    }

    #[inline]
    fn take(&self, word: u32, more: u32) -> bool {
        self.word.compare_exchange(word, word + more, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self, more: u32) {
        let mut others_may_sleep = 0;
        let mut spins = 0;
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & LOCKED == 0 {
                if self.take(word, (LOCKED | others_may_sleep & !word) + more) {
                    return;
                }
            } else if word & SLEEPERS == 0 && spins != SPINS {
                spins += 1;
                shim::pause();
            } else if word & SLEEPERS != 0 || self.take(word, SLEEPERS) {
                // The wait may return for other reasons than an unlock: the count may have changed.
                futex::wait(&self.word, word | SLEEPERS, None);
                others_may_sleep = SLEEPERS;
                spins = 0;
            }
        }
    }
}

impl<T> Guard<'_, T> {
    /// Reduces the count by `n`, as part of the unlock.
    #[inline]
    pub(super) fn uncount(&mut self, n: u32) {
        self.uncounted += n;
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock of the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock of the value, and is the only guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = &self.lock.word;
        let mut now = word.load(Ordering::Relaxed);
        // While the lock is held, other threads change only SLEEPERS in the word, and only once. So this loop tries at
        // most twice.
        while let Err(new) = word.compare_exchange(
            now,
            (now & !SLEEPERS) - LOCKED - self.uncounted * ONE,
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            now = new;
        }
        if now & SLEEPERS != 0 {
            wake(word);
        }
    }
}

#[cold]
fn wake(word: *const AtomicU32) {
    futex::wake(word, 1);
}

#[cfg(all(test, sudog_loom))]
mod model {
    use std::sync::Arc;

    use super::super::table::{add, take};
    use super::{CountedLock, SLEEPERS};
    use crate::shim::model::each_site;
    use crate::shim::reached::{AT_ONCE, SLEEPS, TWO_SLEEP, mark, must_reach, waiting};
    use crate::shim::{AtomicU32, Cell, Ordering};

    fn bounded(preemptions: usize, states: &[&'static str], f: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        must_reach(states, || model.check(f));
    }

    /// Lets threads take the lock in turn. Loom's cell panics if two threads are inside at a time, or if a thread does
    /// not see the previous thread's write. A lost wake-up is a deadlock.
    fn take_turns(threads: u32, preemptions: usize, states: &[&'static str]) {
        bounded(preemptions, states, move || {
            let lock = Arc::new(CountedLock::new(Cell::new(0)));
            let enter = |lock: &CountedLock<Cell<u32>>| {
                let (value, _) = waiting(|| lock.lock());
                value.set(value.get() + 1);
            };
            let others: Vec<_> = (1..threads)
                .map(|_| {
                    let lock = lock.clone();
                    loom::thread::spawn(move || enter(&lock))
                })
                .collect();
            enter(&lock);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(lock.lock().get(), threads);
            let word = lock.word.load(Ordering::Relaxed);
            assert_eq!(word & SLEEPERS, 0, "each unlock would be a system call");
        });
    }

    #[test]
    fn two_in_turn() {
        take_turns(2, 5, &[AT_ONCE, SLEEPS]);
    }

    #[test]
    fn three_in_turn_and_two_sleep() {
        take_turns(3, 2, &[AT_ONCE, SLEEPS, TWO_SLEEP]);
    }

    /// The count goes up and down under the lock, while other threads sleep on the word: each of them is woken.
    #[test]
    fn the_count_is_kept() {
        const COUNTED_AND_SLEEPS: &str = "a thread that counts itself sleeps";
        const OTHERS: &str = "two are counted";
        bounded(3, &[AT_ONCE, SLEEPS, COUNTED_AND_SLEEPS, OTHERS], || {
            let lock = Arc::new(CountedLock::new(Cell::new(0)));
            let count_and_uncount = |lock: &CountedLock<Cell<u32>>| {
                let (value, waited) = waiting(|| lock.lock_and_count());
                if waited {
                    mark(COUNTED_AND_SLEEPS);
                }
                value.set(value.get() + 1);
                drop(value);
                let count = lock.count();
                assert!(count > 0, "until it is uncounted");
                if count == 2 {
                    mark(OTHERS);
                }
                let (mut value, _) = waiting(|| lock.lock());
                value.set(value.get() - 1);
                value.uncount(1);
            };
            let other = {
                let lock = lock.clone();
                loom::thread::spawn(move || count_and_uncount(&lock))
            };
            count_and_uncount(&lock);
            other.join().unwrap();
            assert_eq!((lock.count(), lock.lock().get()), (0, 0));
        });
    }

    /// The Dekker pair of the table: a waiter that counts itself and finds no permit is seen by the releaser.
    #[test]
    fn a_waiter_that_counts_itself_is_seen() {
        const SEEN: &str = "the releaser sees the waiter";
        const SEES: &str = "the waiter sees the permit";
        const BOTH: &str = "each sees the other";
        let test = concat!(module_path!(), "::a_waiter_that_counts_itself_is_seen");
        let needed = [
            "counted_lock.rs, take: compare_exchange",
            "counted_lock.rs, count: load",
            "table.rs, add: fetch_add",
            "table.rs, take: load",
        ];
        each_site(test, &needed, &["table.rs, take: compare_exchange"], || {
            let model = || {
                let lock = Arc::new((CountedLock::new(()), AtomicU32::new(0)));
                let waiter = {
                    let lock = lock.clone();
                    loom::thread::spawn(move || {
                        let _queue = lock.0.lock_and_count();
                        take(&lock.1)
                    })
                };
                add(&lock.1, 1);
                let seen = lock.0.count() > 0;
                let sees = waiter.join().unwrap();
                assert!(sees || seen, "both looked before the other wrote");
                mark(match (sees, seen) {
                    (false, _) => SEEN,
                    (_, false) => SEES,
                    _ => BOTH,
                });
            };
            must_reach(&[SEEN, SEES, BOTH], || loom::model(model));
        });
    }
}
