//! A call that is under way, its landing, and its outcome: see the top of `single_flight.rs`.

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
    /// True if a caller other than the caller that runs the function has a share in this flight. Written under the
    /// group's lock.
    pub(super) shared: AtomicBool,
    /// The outcome of a shared flight. Set when the flight lands.
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
    // `f` is dropped with its panic, and the panic is raised again. So no caller can see a broken `f`.
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

/// The outcome of a call, and whether the caller alone has the flight, or shares the flight.
pub(super) enum Came<K, V, E> {
    /// No other caller shares the flight, so the outcome is not cloned.
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

    /// Returns the outcome of a flight that has landed and is shared.
    fn outcome(&self) -> &Outcome<V, E> {
        self.outcome.get().expect("stored before the landing")
    }
}

/// A flight that is under way. The flight lands even if no goroutine can be made for its function, or if a destructor
/// of user data panics.
pub(super) struct Landing<G, K, V, E>
where
    G: Deref<Target = SingleFlight<K, V, E>>,
{
    group: G,
    place: Place,
    flight: Arc<InFlight<K, V, E>>,
    /// The outcome, until the outcome is stored for the callers that share the flight.
    outcome: Option<Outcome<V, E>>,
    over: bool,
}

impl<G: Deref<Target = SingleFlight<K, V, E>>, K, V, E> Landing<G, K, V, E> {
    /// Creates the landing of a flight that is on the map.
    pub(super) fn new(group: G, place: Place, flight: Arc<InFlight<K, V, E>>) -> Self {
        Self { group, place, flight, outcome: None, over: false }
    }

    /// Takes the flight off the map, and releases the callers that share the flight.
    fn land(&mut self) {
        let (place, shared) = (self.place, &self.flight.shared);
        let (_off, shared) = self.group.lock_map(|flights| (flights.map.remove(&place), shared.load(Relaxed)));
        if shared {
            // If there is no outcome, the callers that share the flight end as this goroutine does.
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
