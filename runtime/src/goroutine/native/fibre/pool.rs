//! The fibres (with their stacks) and the jobs that a worker keeps for later goroutines, and the times when the worker
//! gives memory back.
//!
//! | kept | how many | given back |
//! |---|---|---|
//! | fibres | all whose goroutine has ended; the last kept is used first | of those above 64 that were not needed for a second, half |
//! | the memory of the fibres' stacks | with the fibres | the part that deep calls have touched, after a second |
//! | the memory of jobs (`job.rs`) | 256 | at once, if 256 are kept already |

use std::ptr;
use std::time::Duration;

use crate::Instant;
use crate::goroutine::native::fibre::{Fibre, State};
use crate::goroutine::native::sched::worker::Worker;

/// The time between two trims of spare memory.
pub(crate) const TRIM: Duration = Duration::from_secs(1);
/// The number of spare fibres that a worker always keeps.
const SPARE_FIBRES: usize = 64;
/// The largest number of fibres that a trim looks at, which takes a millisecond.
const TRIM_AT_ONCE: usize = 1024;

impl Worker {
    /// Returns a spare fibre, or a new fibre.
    #[inline]
    pub(crate) fn fibre_for(&'static self, stack_size: Option<usize>) -> &'static Fibre {
        if stack_size.is_none()
            && let Some(fibre) = self.own.spare.get()
        {
            self.own.spare.set(fibre.next.get());
            let spares = self.own.spares.get() - 1;
            self.own.spares.set(spares);
            self.own.least_spares.set(self.own.least_spares.get().min(spares));
            return fibre;
        }
        self.new_fibre(stack_size)
    }

    #[cold]
    fn new_fibre(&'static self, stack_size: Option<usize>) -> &'static Fibre {
        match Fibre::new(self, stack_size) {
            Ok(fibre) => {
                let older = self.own.fibres.replace(Some(fibre));
                fibre.older.set(older);
                if let Some(older) = older {
                    older.younger.set(Some(fibre));
                }
                fibre
            }
            Err(error) => crate::fatal(&format!("sudog: no stack for a new goroutine: {error}")),
        }
    }

    /// Puts a fibre that has nothing to run into the list of spare fibres.
    #[inline]
    pub(crate) fn spare(&self, fibre: &'static Fibre) {
        fibre.state.set(State::Spare);
        if fibre.usual {
            fibre.next.set(self.own.spare.replace(Some(fibre)));
            self.own.spares.set(self.own.spares.get() + 1);
        }
    }

    /// Frees a spare fibre that is not in the list of spare fibres.
    #[cold]
    pub(crate) fn forget(&self, fibre: &'static Fibre) {
        let (older, younger) = (fibre.older.get(), fibre.younger.get());
        self.own.dump.forgets(|next| ptr::eq(next, fibre), older);
        match younger {
            Some(younger) => younger.older.set(older),
            None => self.own.fibres.set(older),
        }
        if let Some(older) = older {
            older.younger.set(younger);
        }
        fibre.finish();
    }

    /// Gives back memory that has not been used for a while: half of the fibres that were not needed since the last
    /// trim, and the memory that deep calls have touched in the stacks of the other spare fibres.
    #[cold]
    pub(crate) fn trim(&self, now: Instant) {
        let own = &*self.own;
        match own.trimmed.get() {
            Some(last) if now.saturating_duration_since(last) < TRIM => return,
            _ => own.trimmed.set(Some(now)),
        }
        let unneeded = own.least_spares.get().saturating_sub(SPARE_FIBRES).div_ceil(2);
        for _ in 0..unneeded.min(TRIM_AT_ONCE) {
            let Some(fibre) = own.spare.get() else { break };
            own.spare.set(fibre.next.get());
            own.spares.set(own.spares.get() - 1);
            self.forget(fibre);
        }
        if unneeded > TRIM_AT_ONCE {
            own.trimmed.set(now.checked_sub(TRIM * 49 / 50)); // trim the rest soon
        }
        own.least_spares.set(own.spares.get());
        let mut at = own.spare.get();
        for _ in 0..TRIM_AT_ONCE {
            let Some(fibre) = at else { break };
            fibre.trim();
            at = fibre.next.get();
        }
    }

    /// Frees all fibres and spare jobs. Called when all goroutines of this worker have ended.
    pub(crate) fn forget_fibres(&'static self) {
        while let Some(fibre) = self.own.fibres.get() {
            self.forget(fibre);
        }
        self.own.spare.set(None);
        self.own.spares.set(0);
        self.own.least_spares.set(0);
        self.own.jobs.clear();
    }

    /// Returns the time of the next trim, if the worker has spare fibres to trim.
    pub(crate) fn next_trim(&self, now: Instant) -> Option<Instant> {
        self.wants_trim().then(|| self.own.trimmed.get().unwrap_or(now) + TRIM)
    }

    pub(crate) fn wants_trim(&self) -> bool {
        self.own.spares.get() > SPARE_FIBRES
    }

    /// Iterates over all fibres of this worker, the youngest first. May be called by the worker's thread, or by any
    /// thread while all workers of the scheduler sleep and cannot wake.
    pub(crate) fn fibres(&self) -> impl Iterator<Item = &'static Fibre> {
        std::iter::successors(self.own.fibres.get(), |fibre| fibre.older.get())
    }
}
