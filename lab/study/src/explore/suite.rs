//! The conformance suite as programs.

use sudog_sync::{RawLock, RawRwLock, Semaphore};

use super::Program;
use crate::targets::compose::{StudyName, with_study};
use crate::targets::locks::{Job, LockName, with_lock};
use crate::targets::rw_locks::{RwJob, RwLockName, with_rw_lock};
use crate::targets::semaphores::{SemaphoreJob, SemaphoreName, with_semaphore};
use crate::targets::target::Target;
use sudog_lab_core::conformance::{Check, locks, rw_locks, semaphores};

struct Checks;

impl Job for Checks {
    type Out = Vec<Check>;

    fn run<L: RawLock + 'static>(self) -> Vec<Check> {
        locks::checks::<L>()
    }
}

impl RwJob for Checks {
    type Out = Vec<Check>;

    fn run<L: RawRwLock + 'static>(self) -> Vec<Check> {
        rw_locks::checks::<L>()
    }
}

impl SemaphoreJob for Checks {
    type Out = Vec<Check>;

    fn run<S: Semaphore + 'static>(self) -> Vec<Check> {
        semaphores::checks::<S>()
    }
}

/// Each check on each lock, capacitor, readers-writer lock and semaphore that the simulated machine can run.
pub(super) fn programs() -> Vec<Program> {
    let locks = LockName::ALL.iter().filter(|&&name| Target::Lock(name).runs_here());
    let rw_locks = RwLockName::ALL.iter().filter(|&&name| Target::RwLock(name).runs_here());
    let semaphores = SemaphoreName::ALL.iter().filter(|&&name| Target::Semaphore(name).runs_here());
    let locks = locks.map(|&name| ("lock", name.name(), with_lock(name, Checks)));
    let capacitors = StudyName::ALL.iter().map(|&name| ("lock", name.name(), with_study(name, Checks)));
    let rw_locks = rw_locks.map(|&name| ("rw-lock", name.name(), with_rw_lock(name, Checks)));
    let semaphores = semaphores.map(|&name| ("semaphore", name.name(), with_semaphore(name, Checks)));
    let programs = |(kind, backend, checks): (&'static str, &'static str, Vec<Check>)| {
        checks.into_iter().map(move |(name, check)| Program {
            // Add the kind: some names are those of a lock and of a semaphore.
            name: format!("{kind}:{backend}:{name}").into(),
            body: Box::new(move || check(|| ())),
        })
    };
    locks.chain(capacitors).chain(rw_locks).chain(semaphores).flat_map(programs).collect()
}
