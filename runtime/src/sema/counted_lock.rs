//! The lock of a queue, with the length of the queue in the lock's word.
//!
//! ```text
//!   31                                      2        1         0
//!  ┌─────────────────────────────────────────┬──────────┬────────┐
//!  │ count: waiters in the queue or joining  │ SLEEPERS │ LOCKED │
//!  └─────────────────────────────────────────┴──────────┴────────┘
//! ```
//!
//! | step | transition | how |
//! |---|---|---|
//! | lock, and count a waiter | `lock` | a compare-exchange; if locked: spin for a while, set `SLEEPERS`, sleep on the word |
//! | prepare to sleep; lock after a sleep | `add_sleepers` | a compare-exchange, if `SLEEPERS` is not set; a part of the step that locks |
//! | unlock, and uncount some waiters | `unlock` | a compare-exchange, which clears `SLEEPERS`; if that was set: wake a sleeper |
//! | read the count | | a load, without the lock |
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
const WAITER: u32 = 4;

/// The value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u32);

/// Predicates.
impl State {
    /// No holder, no sleeper, no waiter.
    const UNLOCKED: Self = Self(0);

    #[inline]
    const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    #[inline]
    const fn has_sleepers(self) -> bool {
        self.0 & SLEEPERS != 0
    }

    /// True if the lock is free, and `SLEEPERS` is clear.
    #[inline]
    const fn is_uncontended(self) -> bool {
        self.0 & (LOCKED | SLEEPERS) == 0
    }

    /// Returns the number of waiters in the queue, and of waiters that are about to join.
    #[inline]
    const fn count(self) -> u32 {
        self.0 / WAITER
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl State {
    /// A thread takes the free lock, and counts `joining` waiters.
    #[inline]
    const fn lock(self, joining: u32) -> Self {
        Self(self.0 + LOCKED + joining * WAITER)
    }

    /// A thread is about to sleep; or a thread that has slept takes the lock, and other threads may sleep.
    #[inline]
    const fn add_sleepers(self) -> Self {
        Self(self.0 | SLEEPERS)
    }

    /// The holder unlocks, and uncounts `leaving` waiters. If `SLEEPERS` was set, the holder must wake a sleeper.
    #[inline]
    const fn unlock(self, leaving: u32) -> Self {
        Self((self.0 & !SLEEPERS) - LOCKED - leaving * WAITER)
    }
}

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
            Self { word: AtomicU32::new(State::UNLOCKED.0), value: UnsafeCell::new(value) }
        }
    }

    /// Returns the count: the waiters in the queue, and the waiters that are about to join. The count is never less
    /// than the number of waiters in the queue.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.load(Ordering::SeqCst).count()
    }

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        self.lock_with(0)
    }

    /// Locks, and adds a waiter to the count.
    #[inline]
    pub(super) fn lock_and_count(&self) -> Guard<'_, T> {
        self.lock_with(1)
    }

    #[inline]
    fn lock_with(&self, joining: u32) -> Guard<'_, T> {
        let state = self.load(Ordering::Relaxed);
        if !state.is_uncontended() || !self.take(state, state.lock(joining)) {
            self.lock_slow(joining);
        }
        Guard { lock: self, uncounted: 0, _thread: PhantomData }
    }

    /// Reads the word. The caller is the place that the models name.
    #[inline]
    #[track_caller]
    fn load(&self, order: Ordering) -> State {
        State(self.word.load(order))
    }

    #[inline]
    fn take(&self, old: State, new: State) -> bool {
        self.word.compare_exchange(old.0, new.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self, joining: u32) {
        let mut others_may_sleep = false;
        let mut spins = 0;
        loop {
            let state = self.load(Ordering::Relaxed);
            if !state.is_locked() {
                let locked = state.lock(joining);
                if self.take(state, if others_may_sleep { locked.add_sleepers() } else { locked }) {
                    return;
                }
            } else if !state.has_sleepers() && spins != SPINS {
                spins += 1;
                shim::pause();
            } else if state.has_sleepers() || self.take(state, state.add_sleepers()) {
                // The wait may return for other reasons than an unlock: the count may have changed.
                futex::wait(&self.word, state.add_sleepers().0, None);
                others_may_sleep = true;
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
        let mut state = self.lock.load(Ordering::Relaxed);
        // While the lock is held, other threads change only SLEEPERS in the word, and only once. So this loop tries at
        // most twice.
        while let Err(now) =
            word.compare_exchange(state.0, state.unlock(self.uncounted).0, Ordering::Release, Ordering::Relaxed)
        {
            state = State(now);
        }
        if state.has_sleepers() {
            wake(word);
        }
    }
}

#[cold]
fn wake(word: *const AtomicU32) {
    futex::wake(word, 1);
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    fn fields(state: State) -> (bool, bool, u32) {
        assert_eq!(state.is_uncontended(), !state.is_locked() && !state.has_sleepers());
        (state.is_locked(), state.has_sleepers(), state.count())
    }

    #[test]
    fn each_transition_changes_its_own_fields() {
        let most = u32::MAX / WAITER;
        assert_eq!(fields(State::UNLOCKED), (false, false, 0));
        for count in [0, 1, most - 1] {
            let free = State::UNLOCKED.lock(count).unlock(0);
            assert_eq!(fields(free), (false, false, count));
            for joining in [0, 1] {
                let locked = free.lock(joining);
                assert_eq!(fields(locked), (true, false, count + joining));
                for state in [locked, locked.add_sleepers(), locked.add_sleepers().add_sleepers()] {
                    assert_eq!(fields(state), (true, state != locked, count + joining));
                    for leaving in [0, count + joining] {
                        assert_eq!(fields(state.unlock(leaving)), (false, false, count + joining - leaving));
                    }
                }
            }
        }
    }
}

#[cfg(all(test, sudog_loom))]
mod model {
    use std::sync::Arc;

    use super::super::table::{add, take};
    use super::CountedLock;
    use crate::shim::model::each_site;
    use crate::shim::reached::{AT_ONCE, SLEEPS, TWO_SLEEP, mark, must_reach, waiting};
    use crate::shim::{AtomicU32, Cell, Ordering};

    fn bounded(preemptions: usize, states: &[&'static str], f: impl Fn() + Send + Sync + 'static) {
        must_reach(states, || crate::model::explore(preemptions, f));
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
                    crate::model::thread::spawn(move || enter(&lock))
                })
                .collect();
            enter(&lock);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(lock.lock().get(), threads);
            let state = lock.load(Ordering::Relaxed);
            assert!(!state.has_sleepers(), "each unlock would be a system call");
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
                crate::model::thread::spawn(move || count_and_uncount(&lock))
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
                    crate::model::thread::spawn(move || {
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
            must_reach(&[SEEN, SEES, BOTH], || crate::model::explore_all(model));
        });
    }
}
