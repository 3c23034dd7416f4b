//! The states that the executions of a model have reached.
//!
//! A model that passes shows nothing about a state that no execution has reached. So each model names the states that
//! give the model its meaning, [`mark`]s them where it reaches them, and runs inside [`must_reach`]. [`must_reach`]
//! counts the marks of all executions and panics if a state has none.
//!
//! Marks are not steps of the model: they are in a thread-local of the machine's thread, on which loom runs all threads
//! of a model, one at a time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::model::thread::{self, ThreadId};

// States that the modelled machine marks by itself.

/// A thread blocks, in a parker or on a futex.
pub const SLEEPS: &str = "a thread sleeps";
/// Two threads sleep at the same time.
pub const TWO_SLEEP: &str = "two threads sleep";
/// The wake-up has already happened when a thread reaches a parker.
pub const WOKEN_BEFORE: &str = "a wake-up comes before the sleep";
/// A deadline ends a sleep in a parker.
pub const TIME_IS_UP: &str = "a deadline ends a sleep";
/// A thread lets the others run first.
pub const YIELDS: &str = "a thread yields";

// States that `waiting` derives from these.

/// A call returns without having waited.
pub const AT_ONCE: &str = "a call does not wait";
/// A call waits more than once: another contender has taken the resource for which the call was woken.
pub const AGAIN: &str = "a call waits again";
/// A call reaches its deadline, and a wake-up for it is under way, or has happened.
pub const TOO_LATE_AND_WOKEN: &str = "a wake-up comes when the time is up";

thread_local! {
    /// The number of marks of each state in the current exploration.
    static MARKS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
    /// The number of threads that sleep at this moment.
    static ASLEEP: Cell<u32> = const { Cell::new(0) };
    /// The calls of [`during`] that are under way.
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

struct Call {
    thread: ThreadId,
    marks: Vec<&'static str>,
}

/// Notes that this execution has reached `state`. Does nothing outside [`must_reach`].
pub fn mark(state: &'static str) {
    if !EXPLORING.get() {
        return;
    }
    MARKS.with_borrow_mut(|marks| *marks.entry(state).or_default() += 1);
    CALLS.with_borrow_mut(|calls| {
        if !calls.is_empty() {
            let this = thread::current().id();
            calls.iter_mut().filter(|call| call.thread == this).for_each(|call| call.marks.push(state));
        }
    });
}

/// Returns the number of times that this execution and the executions before it have marked `state`.
#[must_use]
pub fn times(state: &str) -> u64 {
    MARKS.with_borrow(|marks| marks.get(state).copied().unwrap_or(0))
}

/// Runs `block`, in which the calling thread blocks, and marks the sleep.
pub(super) fn sleep<T>(block: impl FnOnce() -> T) -> T {
    mark(SLEEPS);
    ASLEEP.set(ASLEEP.get() + 1);
    if ASLEEP.get() > 1 {
        mark(TWO_SLEEP);
    }
    let result = block();
    ASLEEP.set(ASLEEP.get() - 1);
    result
}

/// The states that the closure of a call of [`during`] has reached.
#[derive(Debug)]
pub struct CallStates(Vec<&'static str>);

impl CallStates {
    /// True if the call has reached `state`.
    #[must_use]
    pub fn has(&self, state: &str) -> bool {
        self.0.contains(&state)
    }
}

/// Returns the result of `f`, and the states that this thread has reached in `f`; other threads' marks are not counted.
/// Must be called inside a model, and not inside another call of `during`.
pub fn during<T>(f: impl FnOnce() -> T) -> (T, CallStates) {
    let this = begin_call();
    let result = f();
    (result, end_call(this))
}

fn begin_call() -> ThreadId {
    let this = thread::current().id();
    CALLS.with_borrow_mut(|calls| {
        // Remove a call that was unwound, or that belongs to an abandoned execution: such a call is still listed.
        calls.retain(|call| call.thread != this);
        calls.push(Call { thread: this, marks: Vec::new() });
    });
    this
}

fn end_call(this: ThreadId) -> CallStates {
    CALLS.with_borrow_mut(|calls| {
        let at = calls.iter().position(|call| call.thread == this).expect("one call inside of another");
        CallStates(calls.swap_remove(at).marks)
    })
}

/// Calls `f` as [`during`] does, where `f` may block: marks the course of the wait, and returns whether the call has
/// waited.
pub fn waiting<T>(f: impl FnOnce() -> T) -> (T, bool) {
    let (result, states) = during(f);
    (result, mark_wait(states))
}

/// Marks the course of the wait of a call that has reached `states`, and returns whether the call has waited.
fn mark_wait(CallStates(seen): CallStates) -> bool {
    let yields = seen.contains(&YIELDS);
    let waits: Vec<_> = seen.into_iter().filter(|state| [SLEEPS, WOKEN_BEFORE, TIME_IS_UP].contains(state)).collect();
    match waits[..] {
        [] if !yields => mark(AT_ONCE),
        [] => {}
        [_] => {}
        [TIME_IS_UP, _] => mark(TOO_LATE_AND_WOKEN),
        _ => mark(AGAIN),
    }
    yields || !waits.is_empty()
}

/// Runs `f` without marks: the setup of a model. There is no other thread yet.
pub fn unmarked<T>(f: impl FnOnce() -> T) -> T {
    let exploring = EXPLORING.replace(false);
    let result = f();
    EXPLORING.set(exploring);
    result
}

/// Returns true inside [`must_reach`]: for helpers that explore models and leave the naming of the states to their
/// callers.
#[must_use]
pub fn is_asked_for() -> bool {
    EXPLORING.get()
}

/// Runs `explore`, which explores one model or several, and then panics if no execution has reached one of `states`.
/// Other states may be reached or not.
pub fn must_reach(states: &[&'static str], explore: impl FnOnce()) {
    assert!(!EXPLORING.replace(true), "one exploration inside of another");
    explore();
    assert_reached(states);
}

fn assert_reached(states: &[&'static str]) {
    EXPLORING.set(false);
    CALLS.take();
    let marks = MARKS.take();
    let missed: Vec<_> = states.iter().filter(|state| !marks.contains_key(**state)).collect();
    assert!(missed.is_empty(), "no execution has reached {missed:?}, but so often: {marks:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::{AtomicU32, Ordering};
    use loom::sync::Arc;

    #[test]
    #[should_panic = r#"no execution has reached ["never"], but so often: {"now and then": 1}"#]
    fn a_state_that_is_not_reached_is_named() {
        must_reach(&["now and then", "never"], || {
            mark("now and then");
        });
    }

    /// Both orders of two threads, which only loom's exploration can show.
    #[test]
    fn marks_are_of_all_threads_and_executions() {
        must_reach(&["the other was first", "the other was second"], || {
            crate::model::explore_all(|| {
                let word = Arc::new(AtomicU32::new(0));
                let theirs = word.clone();
                let other = thread::spawn(move || {
                    let before = theirs.fetch_add(1, Ordering::Relaxed);
                    mark(if before == 0 { "the other was first" } else { "the other was second" });
                });
                word.fetch_add(1, Ordering::Relaxed);
                other.join().unwrap();
            });
        });
    }

    #[test]
    fn what_a_call_comes_to_is_its_own() {
        must_reach(&["between the two"], || {
            crate::model::explore_all(|| {
                let word = Arc::new(AtomicU32::new(0));
                let theirs = word.clone();
                let other = thread::spawn(move || {
                    let before = theirs.fetch_add(1, Ordering::Relaxed);
                    mark("theirs");
                    before
                });
                let ((), seen) = during(|| {
                    word.fetch_add(1, Ordering::Relaxed);
                    mark("ours");
                    word.fetch_add(1, Ordering::Relaxed);
                });
                assert!(seen.has("ours") && !seen.has("theirs"), "{seen:?}");
                if other.join().unwrap() == 1 {
                    mark("between the two");
                }
            });
        });
    }
}
