//! Locks that are composed by name: an inner lock, in a capacitor.
//!
//! | name | lock |
//! |---|---|
//! | `capacitor(INNER)` | INNER behind a [`Platoon`](sudog_locks::capacitor::Platoon) |
//! | `sliding(INNER)` | INNER behind a [`SlidingWindow`](sudog_locks::capacitor::SlidingWindow) |
//! | `extended(INNER)` | INNER, whose owners ask the system for longer slices of time: see [`extended`] |
//! | `multilane(INNER)` | INNER behind [`Multilane`](sudog_locks::capacitor::Multilane), or [`SeparateLanes`](sudog_locks::capacitor::SeparateLanes) |
//!
//! Options follow INNER, and are in [`name`]. The measured lock is a
//! [`Wrapped`], whose parts are known to the compiler as follows:
//!
//! | part | type | costs |
//! |---|---|---|
//! | inner lock | [`DynLock`] | two indirect calls, and a guard that is stored |
//! | capacitor | [`AnyCapacitor`] | an indirect call at an arrival as at a departure |
//! | admission | [`AnyAdmission`] | a jump |
//!
//! So measure a composition for the effect of a capacitor under contention; for the cost of a capacitor alone, measure
//! exact types.

mod any;
pub mod extended;
mod inner;
pub mod name;
mod study;

use std::str::FromStr;

use serde::{Serialize, Serializer};
use sudog_locks::capacitor::Wrapped;

pub use self::any::{AnyAdmission, AnyCapacitor};
pub use self::inner::{DynGuard, DynLock};
pub use self::name::{Admit, Front, Recipe, Wait, items};
pub use self::study::{StudyName, with_study};
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::Target;

/// The type of a composed lock that is measured.
pub type Composed = Wrapped<DynLock, AnyCapacitor, AnyAdmission>;

/// A lock that is composed by name. Two compositions are equal if their names are.
///
/// The texts are never freed: there are as many as were asked for on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Composition {
    name: &'static str,
    about: &'static str,
    recipe: Recipe,
}

impl Composition {
    /// Returns the canonical name: the options that differ from the default, in a fixed order.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns a description of the composition in one line.
    pub const fn about(self) -> &'static str {
        self.about
    }

    /// Returns the parts of the composition.
    pub const fn recipe(self) -> Recipe {
        self.recipe
    }

    /// Returns whether a goroutine that waits for the lock blocks the thread of its worker, in the inner lock or in the
    /// capacitor.
    pub fn blocks_threads(self) -> bool {
        let before = match self.recipe.front {
            // In all three ways of waiting a goroutine yields to others now and then.
            Front::Window { .. } | Front::Together { .. } => false,
            // The request is the thread's: the goroutine must not go to another thread.
            Front::Extended => true,
            Front::Platoon { sema } | Front::Separate { sema, .. } => sema.blocks_threads(),
        };
        before || self.recipe.inner.blocks_threads()
    }

    /// Makes the composed lock.
    pub fn make(self) -> Composed {
        let Recipe { inner, front, limit, admit } = self.recipe;
        Wrapped::with(DynLock::of(inner), AnyCapacitor::new(front, limit, admit), AnyAdmission::new(admit))
    }
}

impl From<Recipe> for Composition {
    fn from(recipe: Recipe) -> Self {
        Self { name: recipe.to_string().leak(), about: recipe.about().leak(), recipe }
    }
}

impl FromStr for Composition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Recipe::into)
    }
}

impl PartialEq for Composition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Composition {}

impl Serialize for Composition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

/// Returns a remark for a table with these targets; `None` if none of them is composed.
pub fn remark_on_price(targets: impl IntoIterator<Item = Target>) -> Option<String> {
    let composed = targets.into_iter().any(|target| matches!(target, Target::Composed(_)));
    composed.then(|| {
        "Composed locks are called through jumps, and inner locks are in a box, so the time of a composed lock \
         at T=1 is too long: see `cargo lab capacitor --tax` for the price alone."
            .to_owned()
    })
}

/// Returns the semaphores that a capacitor can have: those that serve first come, first served, newcomers included.
pub fn serving_in_order() -> impl Iterator<Item = SemaphoreName> {
    SemaphoreName::ALL.iter().copied().filter(|&sema| AnyCapacitor::can_have(sema))
}

#[cfg(all(test, feature = "run"))]
mod tests {
    use std::time::Duration;

    use sudog_locks::capacitor::ArriveDepart;

    use super::*;
    use crate::run::contenders::Contenders;
    use crate::run::driver::{Run, Workload};
    use crate::targets::locks::LockName;

    fn composition(name: &str) -> Composition {
        name.parse().unwrap_or_else(|why| panic!("{name}: {why}"))
    }

    /// Returns every front end over every semaphore that it can have, every admission, and inner locks of both kinds.
    fn some_of_each() -> Vec<Composition> {
        let mut names: Vec<String> = ["sudog", "std", "sudog/go-1.8", "reciprocating"]
            .map(|inner| ["", ",admit=always", ",admit=fractional:0.5"].map(|admit| format!("sliding({inner}{admit})")))
            .concat();
        names.extend(LockName::INNER.iter().map(|inner| format!("capacitor({},b=2,admit=gated)", inner.name())));
        names.push("multilane(mcs,b=2)".to_owned());
        names.extend(extended::SliceExtension::is_here().then(|| "extended(sudog)".to_owned()));
        names.extend(["yield", "spin"].map(|wait| format!("sliding(sudog,b=2,wait={wait})")));
        for sema in serving_in_order() {
            let sema = sema.name();
            names.push(format!("capacitor(tts,b=3,sema={sema})"));
            names.push(format!("capacitor(parking_lot_0_12,b=1,sema={sema},admit=gated)"));
            for deal in ["in-turn", "by-thread", "at-random"] {
                names.push(format!("multilane(sudog,lanes=3,sema={sema},deal={deal},count=separate)"));
            }
        }
        names.iter().map(|name| composition(name)).collect()
    }

    /// The critical section is a step of a shared generator, and the section counts the entries.
    #[test]
    fn everything_composed_is_a_lock() {
        let workload = Workload { duration: Duration::from_millis(5), ncs: 1, sample: 8, ..Workload::USUAL };
        for composed in some_of_each() {
            let run = Run { on: Contenders::Threads, threads: 5, workload };
            let outcome = run.prepare(composed.into()).measure().unwrap();
            assert_eq!(outcome.admissions.len(), 5, "{}", composed.name());
            assert!(outcome.order.is_some(), "{}", composed.name());
        }
    }

    #[test]
    fn what_was_asked_for_is_what_is_there() {
        let of = |name| {
            let Recipe { front, limit, .. } = composition(name).recipe();
            AnyCapacitor::new(front, limit, Admit::Gated)
        };
        for (name, limit, bound) in [
            ("capacitor(sudog)", 4, Some(3)),
            ("capacitor(sudog,b=1048576,sema=twa)", 1 << 20, Some((1 << 20) - 1)),
            ("sliding(sudog,b=31)", 31, Some(30)),
            ("sliding(sudog,b=2,wait=spin)", 2, Some(1)),
            ("sliding(sudog,b=3,wait=yield)", 3, Some(2)),
            ("multilane(sudog)", 4, Some(7)),
            ("multilane(sudog,lanes=3,b=2)", 2, Some(5)),
            ("multilane(sudog,count=separate)", 4, None),
            ("multilane(sudog,lanes=1,count=separate)", 4, Some(3)),
        ] {
            let capacitor = of(name);
            assert_eq!((capacitor.limit(), capacitor.bound()), (limit, bound), "{name}");
        }
    }

    /// Other capacitors do not know the arrivals, as that knowledge costs something.
    #[test]
    fn platoons_behind_a_gate_know_of_those_who_are_about_to_arrive() {
        for (name, knows) in [
            ("capacitor(sudog)", false),
            ("capacitor(sudog,admit=fractional:0.5)", false),
            ("capacitor(sudog,admit=gated)", true),
            ("capacitor(sudog,sema=twa,admit=gated)", true),
        ] {
            let Recipe { front, limit, admit, .. } = composition(name).recipe();
            let capacitor = AnyCapacitor::new(front, limit, admit);
            capacitor.announce();
            assert_eq!(capacitor.is_idle(), !knows, "{name}");
            let ticket = capacitor.arrive();
            capacitor.depart_and_retract(ticket);
            assert!(capacitor.is_idle(), "{name}");
        }
    }

    #[test]
    fn what_is_before_the_lock_blocks_threads_too() {
        for (name, blocks) in [
            ("capacitor(sudog)", false),
            ("sliding(sudog)", false),
            ("capacitor(sudog,sema=parking_lot_core)", true),
            ("capacitor(std)", true),
            ("sliding(std)", true),
            ("sliding(tts)", true),
            ("multilane(sudog)", false),
            ("multilane(std)", true),
            ("multilane(sudog,count=separate)", false),
            ("multilane(sudog,count=separate,sema=parking_lot_core)", true),
            ("capacitor(sudog,sema=ticket-spin)", false),
            ("sliding(sudog,wait=spin)", false),
            ("sliding(sudog,wait=yield)", false),
            #[cfg(sudog_sim)]
            ("extended(sudog)", true),
        ] {
            assert_eq!(composition(name).blocks_threads(), blocks, "{name}");
        }
    }

    #[test]
    fn only_of_compositions_the_price_is_remarked_on() {
        let go = Target::from(LockName::Sudog);
        assert_eq!(remark_on_price([go, SemaphoreName::Twa.into()]), None);
        assert!(remark_on_price([go, composition("sliding(sudog)").into()]).unwrap().contains("--tax"));
    }
}
