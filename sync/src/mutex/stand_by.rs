//! [`SpinStrategy::Successor`]: how an operating-system thread waits while it is awake.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sudog_runtime::event::Kind;
use sudog_runtime::shim::mark;
use sudog_runtime::{G, Instant, spin};

use super::go_mutex::{GoMutex, LOCKED, STARVING, WAITER, WOKEN};
use super::policy::Policy;
#[cfg(doc)]
use super::policy::SpinStrategy;
use super::slow::Contender;
use crate::raw::Semaphore;

impl<S: Semaphore, P: Policy> GoMutex<S, P> {
    /// [`SpinStrategy::Successor`]. Returns the state to act on.
    pub(super) fn stand_by(&self, mut old: u32, me: &mut Contender, grace: Duration) -> u32 {
        /// Pauses between two looks at the word: each look takes its cache line away from the owner. (A pause is 25 ns
        /// on the machine that this was measured on.)
        const SHORTEST: u32 = 8;
        const LONGEST: u32 = 256;
        /// As long as there are no more than so many, a quick contender takes the mutex as soon as it is free.
        const QUICK: u32 = 64;

        if !spin::can_spin(0, 1) {
            // One processor: while we watch, the owner does not run. Who has waited long enough claims the mutex
            // asleep.
            me.starving |= me.has_waited(me.threshold);
            return old;
        }
        // A newcomer may be the heir if nobody is in line.
        while !me.woken && old & (LOCKED | WOKEN | STARVING) == LOCKED && old / WAITER == 0 {
            match self.state.compare_exchange_weak(old, old | WOKEN, Relaxed, Relaxed) {
                Ok(_) => {
                    me.woken = true;
                    old |= WOKEN;
                }
                Err(now) => old = now,
            }
        }
        let mut pauses = if me.quick { 1 } else { SHORTEST };
        while !me.woken
            && me.quick
            && pauses <= QUICK
            && !me.out_of_time()
            && old & (LOCKED | STARVING) == LOCKED
            && old / WAITER == 0
        {
            spin::do_spin(pauses); // there is an heir, but nobody sleeps yet
            pauses *= 2;
            old = self.state.load(Relaxed);
        }
        if !me.woken {
            return old;
        }
        let watching = *me.watching.get_or_insert_with(Instant::now);
        loop {
            let at_once = me.claimed.is_some() || (me.quick && pauses <= QUICK);
            if old & LOCKED == 0 && (at_once || self.looks_abandoned()) {
                return old;
            }
            spin::do_spin(pauses);
            if pauses < LONGEST {
                pauses *= 2;
            } else if me.claimed.is_none() {
                G::yield_now(); // to the owner, if it has been waiting for this processor all the while
            }
            let now = Instant::now();
            old = self.state.load(Relaxed);
            if me.out_of_time() {
                return old;
            }
            match me.claimed {
                None if now.saturating_duration_since(watching) >= me.threshold => {
                    match self.state.compare_exchange(old, old | STARVING, Relaxed, Relaxed) {
                        Ok(_) => {
                            self.report_if(true, Kind::StarvingEnter);
                            old |= STARVING;
                            me.claimed = Some(now);
                            pauses = SHORTEST; // the mutex is nobody else's now: do not leave it lying
                        }
                        Err(now) => old = now, // and try again at the next look
                    }
                }
                Some(claimed) if now.saturating_duration_since(claimed) >= grace => {
                    mark("an heir tires");
                    return old;
                }
                _ => {}
            }
        }
    }

    /// Whether the mutex stays unlocked for longer than an owner needs who locks and unlocks in a loop.
    fn looks_abandoned(&self) -> bool {
        const LOOKS: u32 = if cfg!(sudog_loom) { 1 } else { 8 };
        const PAUSES: u32 = 4;
        (0..LOOKS).all(|_| {
            spin::do_spin(PAUSES);
            self.state.load(Relaxed) & LOCKED == 0
        })
    }
}
