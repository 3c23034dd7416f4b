//! The contestants: the implementations that are compared.

use std::fmt;

use serde::Serialize;

use super::round::{Round, Timed};

/// The role of a contestant in the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// An implementation of this library.
    Ours,
    /// An implementation that a program would use instead.
    Peer,
    /// A reference that both are measured by besides.
    Floor,
}

/// An implementation, and the operations of a benchmark on the implementation.
pub struct Contestant {
    /// The name of the implementation.
    pub name: &'static str,
    /// The role of the implementation in the comparison.
    pub role: Role,
    work: Box<dyn Fn(&Round) -> Timed + Send + Sync>,
}

impl Contestant {
    /// Creates a contestant. `work` makes a round, on an instance that `work` creates.
    pub fn new(name: &'static str, role: Role, work: impl Fn(&Round) -> Timed + Send + Sync + 'static) -> Self {
        Self { name, role, work: Box::new(work) }
    }

    /// Makes a round, and returns the time that the round took.
    pub fn time(&self, round: &Round) -> Timed {
        (self.work)(round)
    }
}

impl fmt::Debug for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contestant").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

/// Returns the contestants of a family. The work of each contestant is an expression with the type for `$Type`.
macro_rules! over {
    (rw_mutexes, |$Type:ident, $round:ident| $work:expr) => {{
        struct Work<'a>(&'a Round);
        impl RwJob for Work<'_> {
            type Out = Timed;
            fn run<$Type: RawRwLock + 'static>(self) -> Timed {
                let $round = self.0;
                $work
            }
        }
        let contestant =
            |&name: &RwLockName| Contestant::new(name.name(), name.role(), move |round| with_rw_lock(name, Work(round)));
        RwLockName::ALL.iter().map(contestant).collect::<Vec<_>>()
    }};
    (wait_groups, $($work:tt)+) => {
        over!(
            [Ours "sudog": WaitGroup, Peer "crossbeam": wait_group::Crossbeam, Floor "two-rmws": wait_group::TwoRmws],
            $($work)+
        )
    };
    (onces, $($work:tt)+) => {
        over!(
            [
                Ours "sudog": Once,
                Peer "std": std::sync::Once,
                Peer "parking_lot_0_12": parking_lot_0_12::Once,
                Peer "parking_lot_0_13": parking_lot_0_13::Once,
                Floor "acquire-load": once::AcquireLoad
            ],
            $($work)+
        )
    };
    (pools, $($work:tt)+) => {
        over!(
            [
                Ours "sudog": pool::Ours,
                Peer "mutex-vec": pool::MutexVec,
                Peer "opool": pool::Opool,
                Floor "two-rmws": pool::TwoRmws
            ],
            $($work)+
        )
    };
    (maps, $($work:tt)+) => {
        over!(
            [
                Ours "sudog": map::Ours,
                Peer "papaya": map::Papaya,
                Peer "dashmap": map::Dashmap,
                Peer "scc": map::Scc,
                Peer "rwlock-hashmap": map::Locked
            ],
            $($work)+
        )
    };
    ([$($role:ident $name:literal: $Of:ty),+], |$Type:ident, $round:ident| $work:expr) => {
        vec![$({
            type $Type = $Of;
            Contestant::new($name, Role::$role, |$round: &Round| $work)
        }),+]
    };
}

pub(super) use over;
