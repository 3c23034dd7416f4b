//! A call that is under way, its landing, and what comes of it: see the top of `single_flight.rs`.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use sudog_runtime::shim::system::OnceLock;
use sudog_runtime::shim::system::atomic::{AtomicBool, Ordering::Relaxed};

use super::{Flight, Place, SingleFlight};
use crate::Once;
use crate::shared_panic::{Caught, is_goexit};

pub(super) struct InFlight<K, V, E> {
    pub(super) key: K,
    pub(super) landed: Once,
    /// Another caller than the one that flies has had a share in it. Written under the group's lock.
    pub(super) shared: AtomicBool,
    /// If it is shared: from the landing on.
    outcome: OnceLock<Outcome<V, E>>,
}

pub(super) enum Outcome<V, E> {
    Returned(Result<V, E>),
    Panicked(Caught),
    Exited,
}

pub(super) fn fly<G, K, V, E, F>(mut landing: Landing<G, K, V, E>, f: F) -> Came<K, V, E>
where
    G: Deref<Target = SingleFlight<K, V, E>>,
    F: FnOnce() -> Result<V, E>,
{
    // `f` goes with its panic, which is raised again.
    let (outcome, exit) = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => (Outcome::Returned(result), None),
        Err(payload) if is_goexit(&*payload) => (Outcome::Exited, Some(payload)),
        Err(payload) => (Outcome::Panicked(Caught::new(payload)), None),
    };
    landing.outcome = Some(outcome);
    landing.land();
    if let Some(payload) = exit {
        resume_unwind(payload);
    }
    match landing.outcome.take() {
        Some(outcome) => Came::Ours(outcome),
        None => Came::OursShared(landing.flight.clone()),
    }
}

/// The result of a call, and for which callers.
pub(super) enum Came<K, V, E> {
    /// No other caller shares it, so it is not cloned.
    Ours(Outcome<V, E>),
    OursShared(Arc<InFlight<K, V, E>>),
    Theirs(Arc<InFlight<K, V, E>>),
}

impl<K, V: Clone, E: Clone> Came<K, V, E> {
    #[track_caller]
    pub(super) fn into_flight(self) -> Flight<V, E> {
        match self {
            Self::Ours(Outcome::Returned(result)) => Flight { result, shared: false },
            Self::Ours(outcome) => outcome.resume(),
            Self::OursShared(flight) => match flight.outcome() {
                Outcome::Returned(result) => Flight { result: result.clone(), shared: true },
                outcome => outcome.resume(),
            },
            Self::Theirs(flight) => match flight.outcome() {
                Outcome::Returned(result) => Flight { result: result.clone(), shared: true },
                Outcome::Panicked(caught) => caught.raise(),
                Outcome::Exited => exit(),
            },
        }
    }
}

impl<V, E> Outcome<V, E> {
    #[cold]
    fn resume(&self) -> ! {
        match self {
            Self::Panicked(caught) => caught.resume(),
            _ => unreachable!("the exit goes on by itself"),
        }
    }
}

#[cold]
#[track_caller]
fn exit() -> ! {
    #[cfg(unix)]
    if sudog_runtime::goroutine::on_goroutine() {
        sudog_runtime::goroutine::goexit();
    }
    panic!("singleflight: the function of a shared call has ended its goroutine")
}

impl<K, V, E> InFlight<K, V, E> {
    pub(super) fn new(key: K) -> Self {
        Self { key, landed: Once::begun(), shared: AtomicBool::new(false), outcome: OnceLock::new() }
    }

    /// What has come of it: it has landed, and is shared.
    fn outcome(&self) -> &Outcome<V, E> {
        self.outcome.get().expect("stored before the landing")
    }
}

/// A flight on its way, which lands even if no goroutine can be made for its function, or if what it drops panics.
pub(super) struct Landing<G, K, V, E>
where
    G: Deref<Target = SingleFlight<K, V, E>>,
{
    group: G,
    place: Place,
    flight: Arc<InFlight<K, V, E>>,
    /// What has come of it, until it is stored for the callers that share it.
    outcome: Option<Outcome<V, E>>,
    over: bool,
}

impl<G: Deref<Target = SingleFlight<K, V, E>>, K, V, E> Landing<G, K, V, E> {
    /// A flight that is on the map.
    pub(super) fn new(group: G, place: Place, flight: Arc<InFlight<K, V, E>>) -> Self {
        Self { group, place, flight, outcome: None, over: false }
    }

    /// Takes the flight off the map, and lets the callers that share it go.
    fn land(&mut self) {
        let (place, shared) = (self.place, &self.flight.shared);
        let (_off, shared) = self.group.lock_map(|flights| (flights.map.remove(&place), shared.load(Relaxed)));
        if shared {
            // A caller that shares it without an outcome shares the end of our goroutine.
            _ = self.flight.outcome.set(self.outcome.take().unwrap_or(Outcome::Exited));
            self.flight.landed.finish();
        }
        self.over = true;
    }
}

impl<G: Deref<Target = SingleFlight<K, V, E>>, K, V, E> Drop for Landing<G, K, V, E> {
    fn drop(&mut self) {
        if !self.over {
            self.land();
        }
    }
}
