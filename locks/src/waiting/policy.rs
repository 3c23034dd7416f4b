//! How a waiter passes the time: spinning, yielding, sleeping.

use sudog_runtime::shim::num_cpus;
use sudog_runtime::{G, spin};

/// Rounds of 30 pauses, with a look after each pause. Go has 4, with a look after each round. On threads a sleep costs
/// more, and who sleeps too soon makes the next one sleep, too: `docs/performance.md`, "Waiting arrays".
const ROUNDS: u32 = 13;

/// What a waiter does between two looks at what it waits for.
///
/// A waiter calls [`WaitPolicy::pass_time`] with 0, 1, 2, … until what it waits for has happened, or until the policy
/// says that it is time to sleep. With these three a goroutine never keeps its worker from others for long; but in
/// [`spin_lock`](crate::spin_lock), where it counts as its thread, it does.
///
/// # Examples
///
/// The papers' own way to wait, for experiments:
///
/// ```
/// use sudog_sync::RawLock;
/// use sudog_locks::spin_lock::{Mcs, Spin};
///
/// let lock = Mcs::<Spin>::new();
/// assert!(lock.try_lock().is_some());
/// ```
pub trait WaitPolicy: Send + Sync + 'static {
    /// Whether it ends in sleep. If not, [`WaitPolicy::pass_time`] never returns false; should it do so, whoever waits
    /// may go on, or sleep.
    const PARKS: bool;

    /// Passes a little time. `iter` says how often this wait has done so before. False: it is time to sleep.
    fn pass_time(iter: u32) -> bool;
}

/// Pauses, for ever: the papers' way. With more waiters than processors whole time slices go by. For the laboratory.
///
/// A goroutine yields now and then: its worker may have to run the one that it waits for.
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

/// A pause, if there is one left; now and then by Go's rule whether to go on. A model does not spin: each look would be
/// a step to be explored, and what a spinner sees on the way one that goes to sleep at once sees too.
#[inline]
fn pause(iter: u32) -> bool {
    let over = iter >= ROUNDS * spin::PAUSES;
    // On one processor each pause is in vain, and not only that at which the rule is asked: its answer is forgotten.
    if cfg!(sudog_loom) || over || num_cpus() == 1 {
        return false;
    }
    if iter.is_multiple_of(spin::PAUSES) && !spin::can_spin(iter / spin::PAUSES, ROUNDS) {
        return false;
    }
    spin::do_spin(1);
    true
}
