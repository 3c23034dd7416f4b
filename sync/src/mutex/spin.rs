//! [`SpinStrategy::Spin`]: a contender spins for a few rounds before it sleeps. Go's way.

use std::sync::atomic::Ordering::Relaxed;

use sudog_runtime::spin;

use super::go_mutex::GoMutex;
use super::policy::Policy;
#[cfg(doc)]
use super::policy::SpinStrategy;
use super::state::State;
use crate::raw::Semaphore;

/// A spinning contender.
pub(super) struct Spinner {
    /// The most rounds before each sleep.
    rounds: u32,
    /// The number of pause instructions in a round.
    pauses: u32,
    /// The number of rounds since the contender last woke.
    spin_rounds: u32,
}

impl Spinner {
    pub(super) fn new(rounds: u32, pauses: u32) -> Self {
        Self { rounds, pauses, spin_rounds: 0 }
    }

    pub(super) fn has_spun(&self) -> bool {
        self.spin_rounds > 0
    }

    pub(super) fn restart(&mut self) {
        self.spin_rounds = 0;
    }
}

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// Spins while an owner holds the mutex in normal mode, and rounds are left. Returns the state to act on.
    pub(super) fn spin(&self, mut state: State, spinner: &mut Spinner, designated: &mut bool) -> State {
        while state.is_locked_in_normal_mode() && spin::can_spin(spinner.spin_rounds, spinner.rounds) {
            // Set WOKEN, so that the owner's unlock does not wake another waiter.
            if !*designated && !state.is_woken() && state.has_waiters() {
                *designated = self.state.compare_exchange(state, state.designate_self(), Relaxed, Relaxed).is_ok();
            }
            spin::do_spin(spinner.pauses);
            spinner.spin_rounds += 1;
            state = self.state.load(Relaxed);
        }
        state
    }
}
