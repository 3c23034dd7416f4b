//! Wait policies: spinning, yielding, sleeping.

use sudog_runtime::shim::num_cpus;
use sudog_runtime::{G, spin};

/// The number of spinning rounds, each of 30 pauses. A waiter checks its condition after each pause; in Go, which has 4
/// rounds, after each round. On threads a sleep costs more than on goroutines, and a waiter that sleeps too soon makes
/// the next waiter sleep, too: `docs/journal/waiting-arrays.md`.
const ROUNDS: u32 = 13;

/// The behaviour of a waiter between two checks of its condition.
///
/// A waiter calls [`WaitPolicy::pass_time`] with 0, 1, 2, … until its condition holds, or until the policy tells the
/// waiter to sleep. With the three policies here a goroutine never keeps its worker from other goroutines for long;
/// except in [`spin_lock`](crate::spin_lock), where a goroutine counts as its thread.
///
/// # Examples
///
/// The wait of the papers, for experiments:
///
/// ```
/// use sudog::locks::spin_lock::{Mcs, Spin};
/// use sudog::low_level::RawLock;
///
/// let lock = Mcs::<Spin>::new();
/// assert!(lock.try_lock().is_some());
/// ```
pub trait WaitPolicy: Send + Sync + 'static {
    /// True if the wait ends in sleep. If false, [`WaitPolicy::pass_time`] must never return false; if `pass_time` does
    /// so all the same, the waiter may go on, or sleep.
    const PARKS: bool;

    /// Waits for a short time. `iter` is the number of earlier calls in this wait. Returns false if the waiter should
    /// sleep.
    fn pass_time(iter: u32) -> bool;
}

/// A policy that pauses for ever, as the waiters of the papers do. With more waiters than processors whole time slices
/// are lost. For the laboratory.
///
/// A goroutine yields from time to time, because its worker may have to run the very goroutine that ends the wait.
#[derive(Clone, Copy, Debug)]
pub struct Spin;

/// A policy of some hundred pauses, then yields: a goroutine yields to others of its worker, a thread to others of its
/// processor.
#[derive(Clone, Copy, Debug)]
pub struct SpinThenYield;

/// A policy of some hundred pauses, then sleep: the default.
#[derive(Clone, Copy, Debug)]
pub struct SpinThenPark;

impl WaitPolicy for Spin {
    const PARKS: bool = false;

    #[inline]
    fn pass_time(iter: u32) -> bool {
        if iter % 64 == 63 && G::is_goroutine() {
            G::yield_now();
        } else {
            spin::do_spin(1);
        }
        true
    }
}

impl WaitPolicy for SpinThenYield {
    const PARKS: bool = false;

    #[inline]
    fn pass_time(iter: u32) -> bool {
        if !pause(iter) {
            G::yield_now();
        }
        true
    }
}

impl WaitPolicy for SpinThenPark {
    const PARKS: bool = true;

    #[inline]
    fn pass_time(iter: u32) -> bool {
        pause(iter)
    }
}

/// Pauses and returns true, while there are pauses left. From time to time asks Go's rule (`spin::can_spin`) whether to
/// go on. A model does not spin: each check would be a step to explore, and a waiter that sleeps at once sees every
/// state that a spinning waiter sees.
#[inline]
fn pause(iter: u32) -> bool {
    let over = iter >= ROUNDS * spin::PAUSES;
    // On a single processor every pause is in vain, so check this before each pause: the rule is asked only before some
    // pauses, and its answer is not kept.
    if cfg!(sudog_loom) || over || num_cpus() == 1 {
        return false;
    }
    if iter.is_multiple_of(spin::PAUSES) && !spin::can_spin(iter / spin::PAUSES, ROUNDS) {
        return false;
    }
    spin::do_spin(1);
    true
}
