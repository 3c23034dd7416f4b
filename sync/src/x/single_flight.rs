//! x/sync's `singleflight`: if several callers ask for the same key at the same time, a single call is made. That call
//! is a *flight*.
//!
//! | step | actor | under the group's lock | then |
//! |---|---|---|---|
//! | take off | a call that finds no flight for its key | enters a flight into the map | runs its function |
//! | join | any other call | takes a share in the flight, and marks the flight as shared | waits until the flight has landed |
//! | land | the caller that has run its function | takes the flight off the map, unless a caller [forgot](SingleFlight::forget) the flight | if the flight is shared: stores the outcome, and releases the other callers |
//!
//! No call can join a flight that has been taken off the map. So the value of `shared` that the landing reads
//! afterwards is final.
//!
//! Keys are hashed and compared without the lock: the map's keys are hashes. The flights of the same hash have numbers,
//! in the order in which they took off. A call looks at these flights in turn, and takes the lock each time only to
//! find the next flight. Only if there is no next flight, the call enters its own flight, in the same critical section.
//! So if two calls have the same key, the second finds the flight of the first.
//!
//! Source: `golang.org/x/sync/singleflight` of 2026-02.

mod flight;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use sudog_runtime::shim::system::OnceLock;

#[cfg(all(unix, not(sudog_loom)))]
use sudog_runtime::box_if_large;
#[cfg(all(unix, not(sudog_loom)))]
use sudog_runtime::chan::{Receiver, channel};
#[cfg(all(unix, not(sudog_loom)))]
use sudog_runtime::goroutine::go;
use sudog_runtime::sema::{Cancel, IntoLimit, WaitError, WaitLimit};

use crate::Mutex;
use flight::{Came, InFlight, Landing, fly};

/// A group of calls with keys: at any time, at most one call for each key is made.
///
/// [`do_`](SingleFlight::do_) calls its function, unless a call for the same key is under way: then `do_` waits for
/// the result of that call. A call that is over is forgotten, and the next call for the key runs its own function: a
/// `SingleFlight` is no cache.
///
/// The result of a call is cloned for the callers that share the call. If the function panics, all these callers panic
/// with the same value (see [`SharedPanic`](crate::SharedPanic)). If the function calls
/// [`goexit`](sudog_runtime::goroutine), those callers that are goroutines end, too; threads panic.
///
/// A function that calls the `SingleFlight` with its own key waits for itself for ever. The functions, and the code
/// that hashes, compares and drops keys, run without any lock: they may call the `SingleFlight` with other keys, wait,
/// and panic.
///
/// A call that shares another caller's call allocates nothing. A call that runs its function allocates a flight.
///
/// A goroutine that has run for long yields at the end of a call.
///
/// Go: `golang.org/x/sync/singleflight.Group`.
///
/// # Examples
///
/// ```
/// use std::thread;
/// use sudog::x::SingleFlight;
///
/// static PAGES: SingleFlight<String, usize> = SingleFlight::new();
///
/// thread::scope(|s| {
///     for _ in 0..3 {
///         s.spawn(|| {
///             let flight = PAGES.do_("/index".to_owned(), || Ok("fetched".len()));
///             assert_eq!(flight.result.unwrap(), 7);
///         });
///     }
/// });
/// ```
pub struct SingleFlight<K, V, E = Arc<dyn Error + Send + Sync>> {
    flights: Mutex<Flights<K, V, E>>,
    /// The hasher of keys. Made by the first call, so that [`SingleFlight::new`] can be `const`.
    hasher: OnceLock<RandomState>,
}

/// The flights that are under way.
struct Flights<K, V, E> {
    map: BTreeMap<Place, Arc<InFlight<K, V, E>>>,
    /// The number of flights that have taken off so far.
    numbers: u64,
}

/// The place of a flight on the map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    hash: u64,
    /// The number of the flight, from 1 on.
    number: u64,
}

/// A flight, and its place on the map.
type Placed<K, V, E> = (Place, Arc<InFlight<K, V, E>>);

impl<K, V, E> Flights<K, V, E> {
    /// Returns the first flight with the same hash that took off after `place`.
    fn after(&self, place: Place) -> Option<Placed<K, V, E>> {
        let next = Place { number: place.number + 1, ..place }..=Place { number: u64::MAX, ..place };
        self.map.range(next).next().map(|(place, flight)| (*place, flight.clone()))
    }

    fn add(&mut self, hash: u64, key: K) -> Placed<K, V, E> {
        self.numbers += 1;
        let place = Place { hash, number: self.numbers };
        let flight = Arc::new(InFlight::new(key));
        self.map.insert(place, flight.clone());
        (place, flight)
    }
}

/// The result of a call: Go's triple of the value, the error, and whether the result was shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flight<V, E = Arc<dyn Error + Send + Sync>> {
    /// The result that the function has returned.
    pub result: Result<V, E>,
    /// True if more than one caller shared the call, even if the other callers gave up before the result came.
    pub shared: bool,
}

// A panic of a function leaves no broken state; only the callers that share the call see the panic.
impl<K, V, E> UnwindSafe for SingleFlight<K, V, E> {}
impl<K, V, E> RefUnwindSafe for SingleFlight<K, V, E> {}

impl<K, V, E> SingleFlight<K, V, E> {
    /// Creates a group in which no call is under way.
    #[must_use]
    pub const fn new() -> Self {
        Self { flights: Mutex::new(Flights { map: BTreeMap::new(), numbers: 0 }), hasher: OnceLock::new() }
    }
}

impl<K: Hash + Eq, V, E> SingleFlight<K, V, E> {
    /// Makes the next call for `key` run its own function, even if a call for `key` is under way now. Callers that
    /// already share that call go on sharing it.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::x::SingleFlight;
    ///
    /// let group = SingleFlight::<_, _, ()>::new();
    /// let outer = group.do_("key", || {
    ///     group.forget("key");
    ///     group.do_("key", || Ok(1)).result // a second call; else it would wait for the first
    /// });
    /// assert_eq!(outer.result, Ok(1));
    /// ```
    pub fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut place = self.no_place(key);
        while let Some((at, flight)) = self.lock_map(|flights| flights.after(place)) {
            if flight.key.borrow() == key {
                // Drop outside of the lock: the destructor of the key is user code.
                drop(self.lock_map(|flights| flights.map.remove(&at)));
                return;
            }
            place = at;
        }
    }
}

impl<K, V, E> SingleFlight<K, V, E> {
    /// Returns the place that comes before all flights of the key's hash.
    fn no_place(&self, key: &(impl Hash + ?Sized)) -> Place {
        Place { hash: self.hasher.get_or_init(RandomState::new).hash_one(key), number: 0 }
    }

    /// Calls `f` under the lock. `f` runs no user code, and drops no user data.
    fn lock_map<T>(&self, f: impl FnOnce(&mut Flights<K, V, E>) -> T) -> T {
        f(&mut self.flights.lock())
    }
}

impl<K: Hash + Eq, V: Clone, E: Clone> SingleFlight<K, V, E> {
    /// Calls `f`, or waits for the call for this key that is under way and returns the result of that call.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics, or if the `f` of the shared call panics. On a thread, also panics if the `f` of the shared
    /// call has ended its goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::x::SingleFlight;
    ///
    /// let group = SingleFlight::<_, _, &str>::new();
    /// let flight = group.do_(1, || Ok("one"));
    /// assert_eq!((flight.result, flight.shared), (Ok("one"), false));
    /// assert_eq!(group.do_(1, || Err("not twice")).result, Err("not twice"));
    /// ```
    #[track_caller]
    pub fn do_<F>(&self, key: K, f: F) -> Flight<V, E>
    where
        F: FnOnce() -> Result<V, E>,
    {
        match self.do_limited(key, f, &WaitLimit::default()) {
            Ok(flight) => flight,
            Err(why) => unreachable!("{why}"),
        }
    }

    /// Does the same as [`SingleFlight::do_`], but waits for another caller's call only until `limit` ends the wait: see
    /// [`IntoLimit`]. If this call calls `f`, `f` runs to its end, even past the limit.
    ///
    /// # Errors
    ///
    /// The error says which limit came first. Then `f` has not been called, and the call that was under way goes on for
    /// the other callers. If `limit` has been cancelled before the call, or is a context that is done, `f` is not
    /// called.
    ///
    /// # Panics
    ///
    /// The same as [`SingleFlight::do_`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::x::SingleFlight;
    /// use sudog::{WaitError, context};
    ///
    /// let group = SingleFlight::<_, _, ()>::new();
    /// let soon = Duration::from_millis(1);
    /// let late = group.do_(1, || Ok(group.do_limited(1, || Ok(true), soon) == Err(WaitError::TimedOut)));
    /// assert_eq!(late.result, Ok(true));
    ///
    /// let (ctx, cancel) = context::with_cancel(&context::background());
    /// cancel.cancel();
    /// assert_eq!(group.do_limited(1, || unreachable!(), &ctx), Err(context::Error::Canceled));
    /// ```
    #[track_caller]
    pub fn do_limited<F, L: IntoLimit>(&self, key: K, f: F, limit: L) -> Result<Flight<V, E>, L::Error>
    where
        F: FnOnce() -> Result<V, E>,
    {
        let flight = limit.limited(|limit| self.call(key, f, limit))?.into_flight();
        sudog_runtime::safepoint();
        Ok(flight)
    }

    /// Does the same as [`SingleFlight::do_`] in a new goroutine, and returns at once. The goroutine sends the result
    /// of the call to the returned channel, which has room for the result. So a
    /// [`select!`](sudog_runtime::chan::select) can wait for the call together with other events.
    ///
    /// When this function returns, the call is under way: a later call for the key shares that call. If `f` panics, the
    /// process ends, as in Go, because no caller waits in the new goroutine. If `f` calls `goexit`, the channel is
    /// closed without a value (in Go the channel never gets a value).
    ///
    /// Go: `DoChan`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sudog::x::SingleFlight;
    ///
    /// let group = Arc::new(SingleFlight::<_, _, ()>::new());
    /// let flights = group.do_chan("key", || Ok(1));
    /// assert_eq!(flights.recv().unwrap().result, Ok(1));
    /// ```
    #[cfg(all(unix, not(sudog_loom)))]
    pub fn do_chan<F>(self: &Arc<Self>, key: K, f: F) -> Receiver<Flight<V, E>>
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
        E: Send + Sync + 'static,
        F: FnOnce() -> Result<V, E> + Send + 'static,
    {
        box_if_large!(f: F as dyn FnOnce() -> Result<V, E> + Send => self.do_chan(key, f));
        let (tx, rx) = channel(1);
        // Ignore a failed send: the caller may have dropped the receiver.
        let send = move |came: Came<K, V, E>| _ = tx.send(came.into_flight());
        match board(self.clone(), key) {
            Boarded::Ours(landing) => go(move || send(fly(landing, f))),
            Boarded::Theirs(flight) => {
                drop(f);
                go(move || {
                    if flight.landed.wait("singleflight.Group.DoChan", &WaitLimit::default()).is_ok() {
                        send(Came::Theirs(flight));
                    }
                });
            }
        }
        rx
    }

    fn call<F>(&self, key: K, f: F, limit: &WaitLimit<'_>) -> Result<Came<K, V, E>, WaitError>
    where
        F: FnOnce() -> Result<V, E>,
    {
        if limit.cancel.is_some_and(Cancel::is_cancelled) {
            return Err(WaitError::Cancelled);
        }
        match board(self, key) {
            Boarded::Ours(landing) => Ok(fly(landing, f)),
            Boarded::Theirs(flight) => {
                flight.landed.wait("singleflight.Group.Do", limit)?;
                Ok(Came::Theirs(flight))
            }
        }
    }
}

/// The flight that a call has boarded.
enum Boarded<G: Deref<Target = SingleFlight<K, V, E>>, K, V, E> {
    /// The flight has just taken off, and the caller must run its function.
    Ours(Landing<G, K, V, E>),
    /// The flight was under way, and the caller shares the flight.
    Theirs(Arc<InFlight<K, V, E>>),
}

/// Joins the flight for `key`, or takes off.
fn board<G, K, V, E>(group: G, key: K) -> Boarded<G, K, V, E>
where
    G: Deref<Target = SingleFlight<K, V, E>> + Clone,
    K: Hash + Eq,
{
    let mut place = group.no_place(&key);
    let mut key = Some(key);
    loop {
        let ours = group.lock_map(|flights| match (flights.after(place), &mut key) {
            (None, key) => {
                let (place, flight) = flights.add(place.hash, key.take().expect("taken once: see below"));
                Ok(Landing::new(group.clone(), place, flight))
            }
            (Some(theirs), _) => Err(theirs),
        });
        let (at, flight) = match ours {
            Ok(landing) => return Boarded::Ours(landing),
            Err(theirs) => theirs,
        };
        place = at;
        if key.as_ref().is_some_and(|key| flight.key == *key) {
            let shares = group.lock_map(|flights| {
                let joins = flights.map.contains_key(&place);
                if joins {
                    flight.shared.store(true, Relaxed); // read by the next owner of the lock
                }
                joins
            });
            if shares {
                return Boarded::Theirs(flight);
            }
        }
    }
}

impl<K, V, E> Default for SingleFlight<K, V, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V, E> fmt::Debug for SingleFlight<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (calls, waiters) = self.lock_map(|flights| {
            let waiters: usize = flights.map.values().map(|flight| flight.landed.waiters()).sum();
            (flights.map.len(), waiters)
        });
        f.debug_struct("SingleFlight").field("calls", &calls).field("waiters", &waiters).finish()
    }
}
