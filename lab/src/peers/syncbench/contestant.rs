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

/// Returns the contestants of a family, all of the family's registry. The work of each contestant is an expression with
/// the type for `$Type`.
macro_rules! over {
    (rw_mutexes, |$Type:ident, $round:ident| $work:expr) => {
        over!(RwLockName, RwJob, RawRwLock, with_rw_lock, |$Type, $round| $work)
    };
    (wait_groups, |$Type:ident, $round:ident| $work:expr) => {
        over!(WaitGroupName, WaitGroupJob, Group, with_wait_group, |$Type, $round| $work)
    };
    (onces, |$Type:ident, $round:ident| $work:expr) => {
        over!(OnceName, OnceJob, RunOnce, with_once, |$Type, $round| $work)
    };
    (pools, |$Type:ident, $round:ident| $work:expr) => {
        over!(PoolName, PoolJob, ItemPool, with_pool, |$Type, $round| $work)
    };
    (maps, |$Type:ident, $round:ident| $work:expr) => {
        over!(MapName, MapJob, ConcurrentMap, with_map, |$Type, $round| $work)
    };
    ($Name:ident, $Job:ident, $Trait:ident, $with:ident, |$Type:ident, $round:ident| $work:expr) => {{
        struct Work<'a>(&'a Round);
        impl $Job for Work<'_> {
            type Out = Timed;
            fn run<$Type: $Trait + 'static>(self) -> Timed {
                let $round = self.0;
                $work
            }
        }
        let contestant =
            |&name: &$Name| Contestant::new(name.name(), name.role(), move |round| $with(name, Work(round)));
        $Name::ALL.iter().map(contestant).collect::<Vec<_>>()
    }};
}

pub(super) use over;
