//! The idle protocol: how workers go to sleep and are woken, and how the deadlock report knows that no worker can wake.
//!
//! | sleeper | waker |
//! |---|---|
//! | 1. [`Idle::prepare`]: lists itself, `asleep = true`, `sleeping += 1` | 1. puts work where a sleeper will look |
//! | 2. looks for work once more | 2. reads `asleep` (work for one worker) or `sleeping` (work for any) |
//! | 3. without work: [`Idle::sleep`]; with work: [`Idle::abort`] | 3. takes a sleeper off the list, and unparks that sleeper |
//!
//! Steps 1 and 2 of the sleeper and of the waker are a Dekker pair: each side writes, then reads the word that the
//! other side writes, with a sequentially consistent fence between (on the waker's side in [`Idle::wake`] and
//! [`Idle::wake_any`]). So the sleeper finds the work or the waker finds the sleeper: no wake-up is lost.
//!
//! Work for any worker makes no wake-up while a worker is *searching*: a searcher is awake. Before a searcher sleeps,
//! the worker ceases to be a searcher, and then looks for work everywhere once more. That is the same Dekker pair with
//! `searching` in the place of `asleep`. If the worker finds any work in this last look, the worker is a searcher again
//! ([`Idle::abort`]). If the last searcher finds work and ends its search, the worker wakes another worker: where there
//! was one piece of work there may be more. If a searcher that ends its search was not the last, the pair's fence is
//! that of a remaining searcher, which ends its search later (Release in [`Idle::end_search`]).
//!
//! A searcher *naps*, that is, sleeps for a short while, if all the work that the searcher has seen is fresh, and so
//! not to be stolen yet. Before a nap, the last look leaves fresh work out. While a worker naps, more fresh work makes
//! no wake-up ([`Idle::wake_any_for_fresh`]). Other work wakes a sleeper, which may be the napping worker. The step
//! that ends the nap, under the lock, also makes the worker a searcher. So the Dekker pair is: on one side the waker's
//! push, fence and look at `napping`; on the other side the end of the nap, and the fence at the end of the search that
//! follows.
//!
//! If a scheduler has more workers than `set_max_procs` allows, the surplus workers are listed for work of their own
//! only. When the limit changes, [`Idle::wake_own_only`] wakes all of these sleepers. After a worker has been listed,
//! the worker reads once more whether it may do any work. The lock orders that: a worker that `wake_own_only` does not
//! find in the list reads the limit that was written before `wake_own_only`.
//!
//! The list, and the counts that tell whether the scheduler is at rest, are under a lock: to sleep and to wake cost
//! microseconds anyway. A sleeper counts as awake until step 3: work that the sleeper might find in step 2 is still to
//! be done. A thread that takes a sleeper off the list counts that sleeper as awake before the thread itself can cease
//! to count, as a worker that is awake or as a source outside. So `awake == 0` means that nothing is left that could
//! wake a worker, except the clock (`timed`) and the world outside (`outside`: blocking calls, sockets).

use std::ops::Deref;
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use crate::goroutine::protocol::poll_sleep::PollSleep;
use crate::shim::{AtomicBool, AtomicU32, Cell, Instant, Mutex, Ordering, Parker, full_fence};

/// The sleeping workers of one scheduler, and the number of workers that are awake.
pub(crate) struct Idle {
    /// The number of listed sleepers that may do work for any worker. Written under the lock; read by wakers without
    /// the lock.
    sleeping: AtomicU32,
    /// Number of workers that look for work at this moment.
    searching: AtomicU32,
    /// Number of listed sleepers that nap. Written under the lock; read by wakers without the lock.
    napping: AtomicU32,
    /// Number of workers that have joined, or are about to. Written under the lock.
    workers: CachePadded<AtomicU32>,
    state: Mutex<State>,
}

struct State {
    sleepers: Vec<Listed>,
    awake: u32,
    /// The number of sleepers that will wake by themselves for more than to trim memory: for a timer, for instance.
    timed: u32,
    /// The number of sources of work outside of the scheduler: blocking calls, sockets.
    outside: u32,
}

impl State {
    const fn new() -> Self {
        Self { sleepers: Vec::new(), awake: 0, timed: 0, outside: 0 }
    }
}

// SAFETY: a listed sleeper is alive (sleepers leave the list before they die), and each field is either atomic, or
// touched under the lock, or a parker, which is made for two threads.
unsafe impl Send for State {}

/// The state of a worker as a sleeper.
pub(crate) struct Sleeper {
    asleep: AtomicBool,
    parker: Parker,
    /// True if the sleeper counts in `State::timed`. All cells of this struct are used under the lock of `Idle`.
    timed: Cell<bool>,
    /// True if the sleeper may do work for any worker. False: only work of its own.
    any: Cell<bool>,
    /// True if the sleeper naps.
    naps: Cell<bool>,
    /// True if the sleeper found no work in step 2, and counts as asleep.
    asleep_for_good: Cell<bool>,
    /// True if the sleeper has been a searcher since it was taken off the list.
    to_search: Cell<bool>,
    poll: PollSleep,
}

// SAFETY: the cells are touched under the lock of `Idle`; the rest is made for several threads.
unsafe impl Sync for Sleeper {}

/// The reason why a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// There is work for this worker, or there was.
    ForWork,
    /// There is work for any worker, or there was; or a nap is over. The worker is a searcher now.
    ToSearch,
    /// The time is up.
    ByClock,
}

/// The source of the next work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// A source outside may bring work.
    Outside,
    /// Work is queued.
    Work,
    /// Only waits for the clock are left.
    Nothing,
}

/// A sleeper that is in the list, or has just been taken off the list by the holder of this value. Such a sleeper is
/// alive: sleepers outlive every call that names them, and leave the list before they die.
struct Listed(NonNull<Sleeper>);

/// A sleeper that the holder of this value has taken off the list. The only value of this kind for one sleep.
#[must_use = "the worker sleeps on, unless the sleeper itself has called"]
struct Unlisted(Listed);

impl Deref for Listed {
    type Target = Sleeper;

    #[inline]
    fn deref(&self) -> &Sleeper {
        // SAFETY: the sleeper is alive, by the invariant of `Listed`.
        unsafe { self.0.as_ref() }
    }
}

impl Unlisted {
    fn unpark(self) {
        // SAFETY: the sleeper outlives this call, by the invariant of `Listed`; and only the holder of this value unparks
        // this sleep.
        unsafe { Sleeper::unpark(self.0.0.as_ptr()) };
    }
}

impl Sleeper {
    pub(crate) fn new() -> Self {
        Self {
            asleep: AtomicBool::new(false),
            parker: Parker::new(),
            timed: Cell::new(false),
            any: Cell::new(false),
            naps: Cell::new(false),
            asleep_for_good: Cell::new(false),
            to_search: Cell::new(false),
            poll: PollSleep::new(),
        }
    }

    /// Ends a sleep, in the parker or in the poller.
    ///
    /// # Safety
    ///
    /// The sleeper outlives this call, and no other call unparks the same sleep.
    unsafe fn unpark(this: *const Self) {
        // SAFETY: by the contract of `Sleeper::unpark` the sleeper is alive, and each sleep is unparked once. The `park` of
        // each earlier sleep has consumed its unpark.
        unsafe { Parker::unpark(&raw const (*this).parker) };
        // (In models a sleeper may be gone by now, and no sleeper polls: see the model of `PollSleep`.)
        #[cfg(all(unix, not(sudog_loom)))]
        // SAFETY: by the contract of `Sleeper::unpark` the sleeper outlives this call.
        unsafe { &(*this).poll }.interrupt(crate::goroutine::native::netpoll::interrupt);
    }

    /// Returns whether the sleeper is listed as asleep at this moment.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }
}

impl Idle {
    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        let state = Mutex::new(State::new());
        let [sleeping, searching, napping, workers] = [const { AtomicU32::new(0) }; 4];
        Self { sleeping, searching, napping, workers: CachePadded::new(workers), state }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        let state = Mutex::new(State::new());
        let [sleeping, searching, napping, workers] = [(); 4].map(|()| AtomicU32::new(0));
        Self { sleeping, searching, napping, workers: CachePadded::new(workers), state }
    }

    /// Counts a worker that is about to be started, if there are fewer than `limit` workers, and returns the former
    /// number of workers.
    pub(crate) fn expect(&self, limit: usize) -> Option<usize> {
        let _state = self.state.lock();
        let before = self.workers();
        if before >= limit {
            return None;
        }
        self.workers.fetch_add(1, Ordering::Relaxed);
        Some(before)
    }

    /// Undoes [`expect`](Self::expect), as the thread could not be started.
    pub(crate) fn stays_away(&self) {
        let _state = self.state.lock();
        self.workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts as awake a worker that was expected and now joins.
    pub(crate) fn join(&self) {
        self.state.lock().awake += 1;
    }

    /// Removes a worker that counts as awake. Only workers of a bubble leave.
    pub(crate) fn leave(&self) {
        let mut state = self.state.lock();
        state.awake -= 1;
        self.workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of workers, those that are about to join included.
    #[inline]
    pub(crate) fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed) as usize
    }

    /// Counts a source outside of the scheduler, which may bring work from now on.
    pub(crate) fn external_begins(&self) {
        self.state.lock().outside += 1;
    }

    /// Ends the count of a source outside of the scheduler. The source has brought its work, and brings no more.
    pub(crate) fn external_ends(&self) {
        self.state.lock().outside -= 1;
    }

    /// Returns the number of external sources of work.
    pub(crate) fn outside(&self) -> u32 {
        self.state.lock().outside
    }

    /// Returns whether the only worker of a bubble's scheduler may still get work before the bubble's clock jumps, and
    /// from where. `has_work` returns whether work is queued.
    ///
    /// Looks at `outside` first, then calls `has_work`. A source outside queues its work before the source ends. So if
    /// the source has ended, `has_work` sees that work: the lock makes the source's stores visible.
    #[cfg_attr(not(unix), allow(dead_code))]
    pub(crate) fn left(&self, has_work: impl FnOnce() -> bool) -> Left {
        if self.outside() > 0 {
            return Left::Outside;
        }
        if has_work() { Left::Work } else { Left::Nothing }
    }

    /// Runs `f` under the lock if the scheduler is quiescent: no worker awake, no timer armed, no external source of
    /// work.
    pub(crate) fn if_quiescent(&self, f: impl FnOnce()) {
        let state = self.state.lock();
        if state.is_quiescent() {
            f();
        }
    }

    /// Returns the number of workers that are awake.
    pub(crate) fn awake(&self) -> u32 {
        self.state.lock().awake
    }

    /// Returns whether another worker than the caller's runs a goroutine. Go's counterpart is false if
    /// `gomaxprocs <= npidle + nmspinning + 1`.
    ///
    /// Three Relaxed loads, which are not one snapshot: a hint. A surplus worker (see `set_max_procs`) counts as
    /// running even while that worker sleeps.
    pub(crate) fn others_run(&self) -> bool {
        let quiet = self.sleeping.load(Ordering::Relaxed) + self.searching.load(Ordering::Relaxed);
        self.workers() > quiet as usize + 1
    }

    /// Returns whether a worker sleeps. A hint.
    pub(crate) fn any_sleeps(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a worker sleeps, or looks for work. A hint.
    pub(crate) fn any_is_idle(&self) -> bool {
        self.any_sleeps() || self.searching.load(Ordering::Relaxed) != 0
    }

    // ---- searching ----------------------------------------------------------------------------------------------

    /// Makes an awake worker a searcher.
    pub(crate) fn begin_search(&self) {
        self.searching.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the search of a searcher that has found work. Returns true if this was the last searcher: then the caller
    /// must wake another worker to search.
    #[must_use]
    pub(crate) fn end_search(&self) -> bool {
        // The last searcher goes on to `wake_any`, which has the fence. Release: if this is not the last searcher, the
        // caller's earlier steps, such as the end of a nap, come before the fence of the searcher that is left.
        self.searching.fetch_sub(1, Ordering::Release) == 1
    }

    // ---- sleeping -----------------------------------------------------------------------------------------------

    /// Lists the sleeper: step 1. If `searching` is true, the worker is a searcher, and ceases to be a searcher here.
    /// If `timed` is true, the sleeper will wake by itself, for a timer, for instance. If `any` is true, the sleeper
    /// may be woken for work for any worker.
    pub(crate) fn prepare(&self, sleeper: &Sleeper, timed: bool, any: bool, searching: bool) {
        self.list(sleeper, timed, any, false, searching);
    }

    /// Lists a searcher that has seen fresh work only, and that naps and then searches again. Otherwise does the same
    /// as [`prepare`](Self::prepare).
    pub(crate) fn prepare_nap(&self, sleeper: &Sleeper, timed: bool) {
        self.list(sleeper, timed, true, true, true);
    }

    fn list(&self, sleeper: &Sleeper, timed: bool, any: bool, naps: bool, searching: bool) {
        let mut state = self.state.lock();
        state.sleepers.push(Listed(NonNull::from(sleeper)));
        sleeper.timed.set(timed);
        sleeper.asleep_for_good.set(false);
        sleeper.any.set(any);
        sleeper.naps.set(naps);
        sleeper.asleep.store(true, Ordering::Relaxed);
        self.sleeping.fetch_add(u32::from(any), Ordering::Relaxed);
        self.napping.fetch_add(u32::from(naps), Ordering::Relaxed);
        if searching {
            self.searching.fetch_sub(1, Ordering::Relaxed);
        }
        drop(state);
        // The fence of the Dekker pair, between the stores above and the look for work that follows.
        full_fence();
    }

    /// Takes a sleeper that has found work in step 2 off the list: step 3. If `searched` is true, the sleeper was a
    /// searcher until step 1, and is a searcher again, to end its search as any searcher does.
    pub(crate) fn abort(&self, sleeper: &Sleeper, searched: bool) -> Woken {
        match self.unlist(sleeper, Woken::ForWork) {
            Woken::ForWork if searched => {
                self.begin_search();
                Woken::ToSearch
            }
            woken => woken,
        }
    }

    /// Sleeps until a waker unparks the sleeper, or until `deadline`: step 3.
    pub(crate) fn sleep(&self, sleeper: &Sleeper, deadline: Option<Instant>) -> Woken {
        self.sleep_by(sleeper, || sleeper.parker.park(deadline))
    }

    /// Sleeps in the network poller: step 3. `poll` waits there until an event, a deadline, or an interrupt.
    #[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
    pub(crate) fn sleep_polling(&self, sleeper: &Sleeper, poll: impl FnOnce()) -> Woken {
        self.sleep_by(sleeper, || sleeper.poll.sleep(&sleeper.parker, poll))
    }

    /// Sleeps by `park`, which returns whether the sleeper was unparked.
    fn sleep_by(&self, sleeper: &Sleeper, park: impl FnOnce() -> bool) -> Woken {
        let mut state = self.state.lock();
        if sleeper.asleep.load(Ordering::Relaxed) {
            // The sleeper is still listed. Count the sleeper as asleep only now, after the last look for work: a
            // scheduler with work is not at rest.
            sleeper.asleep_for_good.set(true);
            state.awake -= 1;
            state.timed += u32::from(sleeper.timed.get());
        }
        drop(state);
        if park() { self.why(sleeper) } else { self.unlist(sleeper, Woken::ByClock) }
    }

    /// Takes the sleeper off the list and returns `reason`. If a waker has taken the sleeper off before, returns the
    /// waker's reason.
    fn unlist(&self, sleeper: &Sleeper, reason: Woken) -> Woken {
        let mut state = self.state.lock();
        if self.remove(&mut state, sleeper).is_some() {
            return if sleeper.to_search.replace(false) { Woken::ToSearch } else { reason };
        }
        drop(state);
        // A waker has taken the sleeper off the list, and unparks it. That unpark must be over before the next sleep.
        sleeper.parker.park(None);
        self.why(sleeper)
    }

    /// Returns the reason for which a waker has taken the sleeper off the list.
    fn why(&self, sleeper: &Sleeper) -> Woken {
        let _state = self.state.lock();
        if sleeper.to_search.replace(false) { Woken::ToSearch } else { Woken::ForWork }
    }

    /// Takes a sleeper off the list and counts the sleeper as awake. Returns `None` if another thread has taken the
    /// sleeper off before.
    fn remove(&self, state: &mut State, sleeper: &Sleeper) -> Option<Unlisted> {
        let at = state.sleepers.iter().position(|listed| listed.0 == NonNull::from(sleeper))?;
        Some(self.take(state, at))
    }

    /// Takes the sleeper at place `at` off the list, and counts the sleeper as awake. If the sleeper naps, makes the
    /// sleeper a searcher, too.
    fn take(&self, state: &mut State, at: usize) -> Unlisted {
        let sleeper = state.sleepers.swap_remove(at);
        let it = &*sleeper;
        it.asleep.store(false, Ordering::Relaxed);
        self.sleeping.fetch_sub(u32::from(it.any.get()), Ordering::Relaxed);
        if it.naps.get() {
            self.make_searcher(it);
            self.napping.fetch_sub(1, Ordering::Relaxed);
        }
        if it.asleep_for_good.replace(false) {
            state.awake += 1;
            state.timed -= u32::from(it.timed.get());
        }
        Unlisted(sleeper)
    }

    /// Makes a sleeper that is being taken off the list a searcher. The caller holds the lock.
    fn make_searcher(&self, sleeper: &Sleeper) {
        if !sleeper.to_search.replace(true) {
            self.searching.fetch_add(1, Ordering::Relaxed);
        }
    }

    // ---- waking -------------------------------------------------------------------------------------------------

    /// Wakes the worker of `sleeper`, if asleep, for work that no other worker can do: the waker's steps 2 and 3.
    #[inline]
    pub(crate) fn wake(&self, sleeper: &Sleeper) {
        full_fence();
        if sleeper.asleep.load(Ordering::Relaxed) {
            self.wake_listed(sleeper);
        }
    }

    /// Wakes a worker for work that any worker can do, unless a worker is searching: the waker's steps 2 and 3.
    #[inline]
    pub(crate) fn wake_any(&self) -> Wanted {
        self.wake_one(false)
    }

    /// Wakes a worker for fresh work, as [`wake_any`](Self::wake_any), but not while a worker naps. The maker of fresh
    /// work is likely to begin that work before any other worker may.
    #[inline]
    pub(crate) fn wake_any_for_fresh(&self) -> Wanted {
        self.wake_one(true)
    }

    #[inline]
    fn wake_one(&self, is_fresh: bool) -> Wanted {
        full_fence();
        if self.is_looked_for(is_fresh) {
            Wanted::Nobody
        } else if self.sleeping.load(Ordering::Relaxed) != 0 {
            self.wake_searcher(is_fresh)
        } else {
            Wanted::AnotherWorker
        }
    }

    /// Returns whether a worker searches, or if `is_fresh`, naps and will search after the nap.
    #[inline]
    fn is_looked_for(&self, is_fresh: bool) -> bool {
        // Read `napping` before `searching`: the end of a nap first adds to `searching`, then subtracts from `napping`.
        is_fresh && self.napping.load(Ordering::Relaxed) != 0 || self.searching.load(Ordering::Relaxed) != 0
    }

    /// Wakes all sleepers that do work of their own only, so that they see whether they may do any work now.
    pub(crate) fn wake_own_only(&self) {
        let mut state = self.state.lock();
        let mut at = 0;
        while let Some(sleeper) = state.sleepers.get(at) {
            if sleeper.any.get() {
                at += 1;
                continue;
            }
            // Do not advance `at`: another sleeper takes this place in the list.
            // Unpark under the lock: these sleepers are few, and rarely woken in this way.
            self.take(&mut state, at).unpark();
        }
    }

    #[cold]
    fn wake_listed(&self, sleeper: &Sleeper) {
        let unlisted = self.remove(&mut self.state.lock(), sleeper);
        if let Some(unlisted) = unlisted {
            unlisted.unpark();
        }
    }

    #[cold]
    fn wake_searcher(&self, is_fresh: bool) -> Wanted {
        let mut state = self.state.lock();
        // Look again under the lock, so that a burst of wakers wakes a single worker.
        if self.is_looked_for(is_fresh) {
            return Wanted::Nobody;
        }
        // Choose the worker that fell asleep last: its caches are warm.
        let Some(last) = state.sleepers.iter().rposition(|sleeper| sleeper.any.get()) else {
            return Wanted::AnotherWorker;
        };
        let sleeper = self.take(&mut state, last);
        self.make_searcher(&sleeper.0);
        drop(state);
        sleeper.unpark();
        Wanted::Nobody
    }
}

/// Tells a waker whether it should start another worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// A worker will take the work.
    Nobody,
    /// All workers are busy.
    AnotherWorker,
}

impl State {
    fn is_quiescent(&self) -> bool {
        self.awake == 0 && self.timed == 0 && self.outside == 0
    }
}

#[cfg(all(test, sudog_loom))]
#[path = "idle_tests.rs"]
mod model;
