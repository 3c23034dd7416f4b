//! How a waiter waits: spinning, yielding, sleeping.

use sudog_runtime::shim::num_cpus;
use sudog_runtime::{G, spin};

/// Rounds of 30 pauses, with a check after each pause. Go has 4, with a check after each round. On threads a sleep
/// costs more, and a waiter that sleeps too soon makes the next one sleep too: `docs/journal.md`, "Waiting arrays".
const ROUNDS: u32 = 13;

/// What a waiter does between two checks of its condition.
///
/// A waiter calls [`WaitPolicy::pass_time`] with 0, 1, 2, … until its condition holds, or until the policy says that it
/// is time to sleep. With the three policies here a goroutine never keeps its worker from others for long; except in
/// [`spin_lock`](crate::spin_lock), where it counts as its thread.
///
/// # Examples
///
/// The papers' own way to wait, for experiments:
///
/// ```
/// use sudog::sync::RawLock;
/// use sudog::locks::spin_lock::{Mcs, Spin};
///
/// let lock = Mcs::<Spin>::new();
/// assert!(lock.try_lock().is_some());
/// ```
pub trait WaitPolicy: Send + Sync + 'static {
    /// True if it ends in sleep. If false, [`WaitPolicy::pass_time`] never returns false; if it does all the same, the
    /// waiter may go on, or sleep.
    const PARKS: bool;

    /// Waits for a short time. `iter` is the number of earlier calls in this wait. False: it is time to sleep.
    fn pass_time(iter: u32) -> bool;
}

/// Pauses, for ever: the papers' way. With more waiters than processors whole time slices are lost. For the laboratory.
///
/// A goroutine yields from time to time: its worker may have to run the goroutine that it waits for.
#[derive(Clone, Copy, Debug)]
pub struct Spin;

/// Some hundred pauses, then yields: a goroutine to others of its worker, a thread to others of its processor.
#[derive(Clone, Copy, Debug)]
pub struct SpinThenYield;

/// Some hundred pauses, then sleep: the default.
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

/// Pauses once, if pauses are left; from time to time asks Go's rule whether to go on. A model does not spin: each
/// check would be a step to explore, and a waiter that sleeps at once sees all that a spinning one sees.
#[inline]
fn pause(iter: u32) -> bool {
    let over = iter >= ROUNDS * spin::PAUSES;
    // On one processor every pause is in vain, not only the one at which the rule is asked: its answer is not kept.
    if cfg!(sudog_loom) || over || num_cpus() == 1 {
        return false;
    }
    if iter.is_multiple_of(spin::PAUSES) && !spin::can_spin(iter / spin::PAUSES, ROUNDS) {
        return false;
    }
    spin::do_spin(1);
    true
}
