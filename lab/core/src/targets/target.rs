//! The targets of measurements: a lock, a readers-writer lock, a semaphore, or a floor.

use std::str::FromStr;

use serde::Serialize;

use crate::targets::compose::Composition;
use crate::targets::compose::name::KINDS;
use crate::targets::locks::LockName;
use crate::targets::registry::names;
use crate::targets::rw_locks::RwLockName;
use crate::targets::semaphores::{SemaphoreFacts, SemaphoreName};

names! {
    /// The name of a floor: an operation that no semaphore can be expected to beat, measured as the semaphores are.
    enum FloorName;
    unknown "floor";
    TwoRmws = "two-rmws",
        "two read-modify-writes of a cache line: an acquire and a release without contention";
    Handover = "handover",
        "contenders that sleep pass a turn round: a wake-up and a sleep each time";
}

/// A target of a measurement. In the records the target's kind is the name of the field, and its name is the value.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    Lock(LockName),
    /// A lock, composed of others.
    #[serde(rename = "lock")]
    Composed(Composition),
    /// A readers-writer lock.
    RwLock(RwLockName),
    Semaphore(SemaphoreName),
    Floor(FloorName),
}

impl Target {
    /// Returns the target's name on the command line and in the records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock(name) => name.name(),
            Self::RwLock(name) => name.name(),
            Self::Semaphore(name) => name.name(),
            Self::Floor(name) => name.name(),
            Self::Composed(composition) => composition.name(),
        }
    }

    /// Returns a description of the target in one line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Lock(name) => name.about(),
            Self::RwLock(name) => name.about(),
            Self::Semaphore(name) => name.about(),
            Self::Floor(name) => name.about(),
            Self::Composed(composition) => composition.about(),
        }
    }

    /// Returns "lock", "rwlock", "semaphore" or "floor".
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Lock(_) | Self::Composed(_) => "lock",
            Self::RwLock(_) => "rwlock",
            Self::Semaphore(_) => "semaphore",
            Self::Floor(_) => "floor",
        }
    }

    /// Returns whether the target's code can run on this machine. A simulated machine runs only our own code: waiters
    /// of foreign locks sleep in the real kernel, and the whole simulated machine sleeps with them.
    pub fn runs_here(self) -> bool {
        const FOREIGN: [&str; 5] = ["std", "parking_lot", "pthread", "sem_t", "crossbeam"];
        !cfg!(sudog_sim)
            || matches!(self, Self::Lock(lock) if lock.is_model())
            || matches!(self, Self::Composed(composed) if composed.recipe().inner.is_model())
            || !FOREIGN.iter().any(|foreign| self.name().contains(foreign))
    }

    /// Returns whether a goroutine that waits for the target blocks the thread of its worker, and with the thread all
    /// other goroutines there.
    pub fn blocks_threads(self) -> bool {
        match self {
            Self::Lock(name) => name.blocks_threads(),
            Self::RwLock(name) => name.blocks_threads(),
            Self::Semaphore(name) => name.blocks_threads(),
            Self::Floor(_) => false,
            Self::Composed(composition) => composition.blocks_threads(),
        }
    }

    /// Returns whether the target serves first come, first served.
    pub fn is_fifo(self) -> bool {
        match self {
            Self::Lock(_) | Self::Composed(_) | Self::RwLock(_) => false,
            Self::Semaphore(name) => SemaphoreFacts::of(name).fifo,
            Self::Floor(name) => name == FloorName::Handover,
        }
    }

    /// Returns whether a benchmark of the target makes sense with so many contenders. A floor measures a single effect,
    /// which limits the number.
    pub fn is_for(self, contenders: usize) -> bool {
        match self {
            Self::Lock(_) | Self::Composed(_) | Self::RwLock(_) | Self::Semaphore(_) => true,
            Self::Floor(FloorName::TwoRmws) => contenders == 1,
            Self::Floor(FloorName::Handover) => contenders > 1,
        }
    }
}

impl From<LockName> for Target {
    fn from(name: LockName) -> Self {
        Self::Lock(name)
    }
}

impl From<Composition> for Target {
    fn from(composition: Composition) -> Self {
        Self::Composed(composition)
    }
}

/// Parses a lock, by name or composed.
impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(['(', ')']) {
            return text.parse().map(Self::Composed);
        }
        match KINDS.iter().find(|kind| kind.name == text.trim()) {
            Some(kind) => Err(format!("'{0}' goes around a lock: as in '{0}(sudog)'", kind.name)),
            None => text.parse().map(Self::Lock),
        }
    }
}

impl From<RwLockName> for Target {
    fn from(name: RwLockName) -> Self {
        Self::RwLock(name)
    }
}

impl From<SemaphoreName> for Target {
    fn from(name: SemaphoreName) -> Self {
        Self::Semaphore(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated machine runs models of foreign locks in place of the foreign locks.
    #[test]
    fn models_run_wherever_the_laboratory_does() {
        let mut models = LockName::ALL.iter().filter(|lock| lock.is_model());
        assert!(models.all(|&model| Target::Lock(model).runs_here() && !model.is_peer()));
        let composed: Composition = "sliding(std-model)".parse().unwrap();
        assert!(Target::from(composed).runs_here());
        assert_eq!(Target::Lock(LockName::Std).runs_here(), !cfg!(sudog_sim));
        assert_eq!(Target::Lock(LockName::ParkingLot012).runs_here(), !cfg!(sudog_sim));
    }

    #[test]
    fn a_lock_or_a_composition() {
        let parse = str::parse::<Target>;
        assert_eq!(parse("sudog"), Ok(Target::Lock(LockName::Sudog)));
        assert_eq!(parse("sliding(sudog)"), Ok(Target::Composed("sliding(sudog)".parse().unwrap())));
        assert_eq!(parse("sliding").unwrap_err(), "'sliding' goes around a lock: as in 'sliding(sudog)'");
        assert!(parse("nope").unwrap_err().starts_with("unknown lock 'nope'; known: sudog, "));
    }

    #[test]
    fn the_kind_is_the_field() {
        let composed: Composition = "sliding(sudog,b=2)".parse().unwrap();
        let [lock, composed, rw_lock] = [LockName::Sudog.into(), composed.into(), RwLockName::Sudog.into()];
        for target in [lock, composed, rw_lock, SemaphoreName::Twa.into(), Target::Floor(FloorName::TwoRmws)] {
            let json = serde_json::to_value(target).unwrap();
            assert_eq!(json[target.kind()], target.name(), "{json}");
        }
    }
}
