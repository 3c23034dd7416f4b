//! Models of the weighted semaphore: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_weighted`
//!
//! | mistake | loom reports |
//! |---|---|
//! | a wake-up is lost, or a token for which a waiter waits | a deadlock |
//! | another token is lost, or a token too many is made | the count at the end is wrong |
//! | there are too many holders | a data race in loom's cell |
//! | a waiter leaves while another thread will still touch that waiter | a violation of causality |
#![cfg(sudog_loom)]

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use sudog_runtime::Instant;
use sudog_runtime::model::set_clock;
use sudog_runtime::model::thread::{self, JoinHandle};
use sudog_runtime::reached::{
    AT_ONCE, SLEEPS, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, WOKEN_BEFORE, mark, must_reach, waiting,
};
use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};
use sudog_sync::x::Weighted;

struct World {
    semaphore: Weighted,
    stop: Cancel,
    /// The data under the semaphore: a holder of all tokens may write, a holder of one token may read.
    data: UnsafeCell<u32>,
    /// The number of turns so far, for checks of their order.
    turns: AtomicU32,
}

const IN_TIME: &str = "a limited call has its tokens";
const GIVES_UP: &str = "a limited call gives up";
const CANCELLED: &str = "a cancel ends a wait";
const CANCELLED_BEFORE: &str = "a cancel comes before the wait";

const FOREVER: WaitLimit<'static> = WaitLimit { deadline: None, cancel: None };

impl World {
    fn read(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.data.with(|data| _ = unsafe { *data });
    }

    fn write(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }

    fn acquire(&self, tokens: u64) {
        assert_eq!(waiting(|| self.semaphore.acquire_limited(tokens, &FOREVER)).0, Ok(()));
    }

    fn reader(&self) {
        self.acquire(1);
        self.read();
        self.semaphore.release(1);
    }

    fn writer(&self) {
        self.acquire(2);
        self.write();
        self.semaphore.release(2);
    }

    /// Acquires with a deadline that has passed, so that the call does not wait. In a model, a deadline has always
    /// passed.
    fn hasty(&self, tokens: u64) {
        let (got, _) = waiting(|| self.semaphore.acquire_limited(tokens, Instant::now()).is_ok());
        mark(if got { IN_TIME } else { GIVES_UP });
        if got {
            if tokens == 2 {
                self.write()
            } else {
                self.read()
            }
            self.semaphore.release(tokens);
        }
    }

    /// Acquires, and waits until the tokens are there or `stop` cancels the wait.
    fn stoppable(&self, tokens: u64) -> Result<(), WaitError> {
        let limit = WaitLimit { cancel: Some(&self.stop), ..FOREVER };
        let (result, waited) = waiting(|| self.semaphore.acquire_limited(tokens, &limit));
        mark(match (result, waited) {
            (Ok(()), _) => IN_TIME,
            (_, true) => CANCELLED,
            (_, false) => CANCELLED_BEFORE,
        });
        result?;
        if tokens == 2 {
            self.write()
        } else {
            self.read()
        }
        self.semaphore.release(tokens);
        Ok(())
    }
}

/// Explores a model, and asserts that all tokens are there again at the end, no more and no fewer.
fn explore(
    preemptions: usize,
    size: u64,
    states: &[&'static str],
    model: impl Fn(&Arc<World>) + Sync + Send + 'static,
) {
    let run = move || {
        set_clock(0);
        let world = Arc::new(World {
            semaphore: Weighted::new(size),
            stop: Cancel::new(),
            data: UnsafeCell::new(0),
            turns: AtomicU32::new(0),
        });
        model(&world);
        let at_rest = format!("Weighted {{ size: {size}, held: 0, waiters: 0 }}");
        assert_eq!(format!("{:?}", world.semaphore), at_rest);
        assert!(world.semaphore.try_acquire(size));
    };
    must_reach(states, || sudog_runtime::model::explore(preemptions, run));
}

fn spawn<T: 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> T + 'static) -> JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) {
    threads.into_iter().for_each(|t| _ = t.join().unwrap());
}

#[test]
fn readers_and_writers() {
    explore(5, 2, &[AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        let others = [spawn(w, World::writer)];
        w.writer();
        join(others);
    });
    explore(4, 2, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, TWO_SLEEP], |w| {
        let others = [spawn(w, World::reader), spawn(w, World::writer)];
        w.reader();
        join(others);
    });
}

/// A release that serves two waiters.
#[test]
fn a_batch() {
    explore(5, 2, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, TWO_SLEEP], |w| {
        w.acquire(2);
        // Neither reader releases its token before both have a token, so the readers end only if one release served
        // both.
        let reader = |w: &World| {
            w.acquire(1);
            w.turns.fetch_add(1, AcqRel);
            while w.turns.load(Acquire) == 1 {
                thread::yield_now();
            }
            w.semaphore.release(1);
        };
        let others = [spawn(w, reader), spawn(w, reader)];
        w.write();
        w.semaphore.release(2);
        join(others);
    });
}

#[test]
fn one_in_a_hurry() {
    explore(5, 2, &[IN_TIME, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, SLEEPS], |w| {
        let others = [spawn(w, |w| w.hasty(2))];
        w.writer();
        join(others);
    });
    explore(4, 2, &[IN_TIME, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, SLEEPS, TWO_SLEEP], |w| {
        let others = [spawn(w, |w| w.hasty(2)), spawn(w, World::reader)];
        w.writer();
        join(others);
    });
    explore(4, 2, &[IN_TIME, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, SLEEPS], |w| {
        let others = [spawn(w, |w| w.hasty(1)), spawn(w, |w| w.hasty(2))];
        w.writer();
        join(others);
    });
}

/// The first waiter leaves: the waiters behind the first must not wait while tokens are free.
#[test]
fn the_first_in_line_gives_up() {
    explore(5, 2, &[GIVES_UP, TIME_IS_UP, AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        w.acquire(1);
        let hasty = spawn(w, |w| w.hasty(2));
        w.reader();
        hasty.join().unwrap();
        w.semaphore.release(1);
    });
    explore(4, 2, &[GIVES_UP, TIME_IS_UP, AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        w.acquire(1);
        let hasty = [spawn(w, |w| w.hasty(2)), spawn(w, |w| w.hasty(2))];
        w.reader();
        join(hasty);
        w.semaphore.release(1);
    });
}

/// A waiter behind the first leaves, and must no longer be in the list.
#[test]
fn the_second_in_line_gives_up() {
    explore(4, 2, &[IN_TIME, GIVES_UP, TOO_LATE_AND_WOKEN, SLEEPS], |w| {
        w.acquire(1);
        let others = [spawn(w, World::writer), spawn(w, |w| w.hasty(1))];
        w.semaphore.release(1);
        join(others);
    });
}

#[test]
fn a_cancel_beside_a_grant() {
    explore(5, 1, &[IN_TIME, CANCELLED, CANCELLED_BEFORE, SLEEPS, WOKEN_BEFORE], |w| {
        w.acquire(1);
        let others = [spawn(w, |w| _ = w.stoppable(1)), spawn(w, |w| w.stop.cancel())];
        w.semaphore.release(1);
        join(others);
    });
    explore(4, 1, &[IN_TIME, CANCELLED, CANCELLED_BEFORE, TWO_SLEEP], |w| {
        w.acquire(1);
        let others = [spawn(w, |w| _ = w.stoppable(1)), spawn(w, World::reader)];
        w.semaphore.release(1);
        w.stop.cancel();
        join(others);
    });
}

/// Go's issue 63615: a caller that cancels, and then releases, knows that the waiter gets none of the released tokens.
#[test]
fn a_cancel_before_the_release() {
    explore(5, 2, &[CANCELLED, CANCELLED_BEFORE, SLEEPS, WOKEN_BEFORE], |w| {
        w.acquire(1);
        let waiter = spawn(w, |w| w.stoppable(2));
        w.stop.cancel();
        w.semaphore.release(1);
        assert_eq!(waiter.join().unwrap(), Err(WaitError::Cancelled));
    });
}

const IN_LINE: &str = "one is seen in line";
const NOT_IN_LINE: &str = "one is not seen in line";

/// Both waiters take the same token: the waiter that was seen in the list first gets the token first.
#[test]
fn in_turn() {
    explore(4, 2, &[IN_LINE, NOT_IN_LINE, TWO_SLEEP], |w| {
        w.acquire(2);
        let turn = |w: &World| {
            w.acquire(1);
            let turn = w.turns.fetch_add(1, AcqRel);
            w.semaphore.release(1);
            turn
        };
        let one = spawn(w, turn);
        let in_line = w.semaphore.waiters() == 1;
        let two = spawn(w, turn);
        w.semaphore.release(1);
        let turns = (one.join().unwrap(), two.join().unwrap());
        mark(if in_line { IN_LINE } else { NOT_IN_LINE });
        assert!(!in_line || turns == (0, 1), "passed in line");
        w.semaphore.release(1);
    });
}

/// No acquire passes the first waiter, even when there are enough tokens for that acquire.
#[test]
fn no_newcomer_passes() {
    explore(5, 2, &[IN_LINE, NOT_IN_LINE, SLEEPS, WOKEN_BEFORE], |w| {
        w.acquire(1);
        let writer = spawn(w, |w| {
            w.acquire(2);
            w.turns.store(1, Relaxed);
            w.semaphore.release(2);
        });
        let in_line = w.semaphore.waiters() == 1;
        let passed = w.semaphore.try_acquire(1);
        mark(match (in_line, passed) {
            (true, _) => IN_LINE,
            (_, true) => NOT_IN_LINE,
            (_, false) => "the first has come, or joined the line, in between",
        });
        assert!(!(in_line && passed), "passed in line");
        if passed {
            w.semaphore.release(1);
        }
        w.semaphore.release(1);
        if in_line {
            w.acquire(1);
            assert_eq!(w.turns.load(Relaxed), 1, "passed in line");
            w.semaphore.release(1);
        }
        writer.join().unwrap();
    });
}

/// A request for more tokens than there are waits beside the queue, not in the queue.
#[test]
fn a_request_for_more_than_there_is() {
    explore(5, 1, &[CANCELLED, CANCELLED_BEFORE, SLEEPS, WOKEN_BEFORE], |w| {
        let too_big = spawn(w, |w| w.stoppable(2));
        w.reader();
        w.reader();
        w.stop.cancel();
        assert_eq!(too_big.join().unwrap(), Err(WaitError::Cancelled));
    });
}
