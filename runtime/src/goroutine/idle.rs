//! The idle protocol: how workers go to sleep and are woken, and how a set of workers knows that nothing is left to do.
//!
//! | sleeper | waker |
//! |---|---|
//! | 1. [`Idle::prepare`]: lists itself, `asleep = true`, `sleeping += 1` | 1. puts work where a sleeper will look |
//! | 2. looks for work once more | 2. reads `asleep` (work for one worker) or `sleeping` (work for any) |
//! | 3. none: [`Idle::sleep`]. Some: [`Idle::abort`] | 3. takes a sleeper off the list, and unparks it |
//!
//! Sleeper 1, 2 against waker 1, 2 is a Dekker pair: each writes, then reads what the other writes, with a sequentially
//! consistent fence between (on the waker's side in [`Idle::wake`] and [`Idle::wake_any`]). So the sleeper finds the
//! work or the waker finds the sleeper: no wake-up is lost.
//!
//! Work for any worker wakes nobody while somebody is *searching*: a searcher is awake, and looks for work everywhere
//! before it sleeps, after it has ceased to be a searcher. That is the same pair with `searching` in the place of
//! `asleep`. A searcher that finds work and was the last wakes another in its place: where there was one there may be
//! more.
//!
//! The list, and the counts that decide whether the set is at rest, are under a lock: to sleep and to wake cost
//! microseconds anyway. A sleeper counts as awake until step 3: what it might find in step 2 is still to be done.
//! Whoever takes a sleeper off the list counts it as awake, before its own share in the counts can end. So `awake == 0`
//! means that there is nobody left who could wake a worker, except the clock (`timed`) and the world outside
//! (`outside`: blocking calls, and handles that foreign threads hold).

use crate::shim::{AtomicBool, AtomicU32, Cell, Instant, Mutex, Ordering, Parker, full_fence};

/// The workers of one set that sleep, and how many do not.
pub(crate) struct Idle {
    /// How many are listed that do any work. Written under the lock; read by wakers without it.
    sleeping: AtomicU32,
    /// How many look for work at this moment.
    searching: AtomicU32,
    /// The set may end, and begin anew while the last are still leaving. Whoever has joined in this epoch or before is
    /// to leave. Written under the lock.
    ended: AtomicU32,
    state: Mutex<State>,
}

struct State {
    sleepers: Vec<*const Sleeper>,
    awake: u32,
    /// Sleepers that will wake by themselves, for something that matters.
    timed: u32,
    /// Who else may bring work: blocking calls, handles of foreign threads.
    outside: u32,
    /// Workers that have joined and not left.
    joined: u32,
    /// More workers may be started.
    open: bool,
    /// The set is over, and the last of its workers are still leaving.
    ending: bool,
}

impl State {
    const fn new() -> Self {
        Self { sleepers: Vec::new(), awake: 0, timed: 0, outside: 0, joined: 0, open: false, ending: false }
    }
}

// SAFETY: a listed sleeper is alive (it leaves the list before it dies), and what is in it is either atomic, or touched
// under the lock, or a parker, which is made for two threads.
unsafe impl Send for State {}

/// What a worker sleeps on.
pub(crate) struct Sleeper {
    asleep: AtomicBool,
    parker: Parker,
    /// The owner's: when it joined.
    pub(crate) epoch: Cell<u32>,
    /// The rest is under the lock of `Idle`. It will wake by itself, for something that matters.
    timed: Cell<bool>,
    /// It does work that any worker can do.
    any: Cell<bool>,
    /// It has looked once more and found nothing: it counts as awake no more.
    asleep_for_good: Cell<bool>,
    /// It was woken to search.
    to_search: Cell<bool>,
}

// SAFETY: the cells are touched under the lock of `Idle`; the rest is made for several threads.
unsafe impl Sync for Sleeper {}

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// There is work for this worker, or was.
    ForWork,
    /// There is work for any worker, or was: this one is searching now.
    ToSearch,
    /// The time is up.
    ByClock,
    /// The set is at rest.
    Over,
}

impl Sleeper {
    pub(crate) fn new() -> Self {
        Self {
            asleep: AtomicBool::new(false),
            parker: Parker::new(),
            epoch: Cell::new(1),
            timed: Cell::new(false),
            any: Cell::new(false),
            asleep_for_good: Cell::new(false),
            to_search: Cell::new(false),
        }
    }

    /// Whether it is listed as asleep at this moment.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }
}

impl Idle {
    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        let state = State::new();
        let (sleeping, searching) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { sleeping, searching, ended: AtomicU32::new(0), state: Mutex::new(state) }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        let state = State::new();
        let (sleeping, searching) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { sleeping, searching, ended: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// The epoch that a worker belongs to who joins now.
    pub(crate) fn epoch(&self) -> u32 {
        self.ended.load(Ordering::Relaxed) + 1
    }

    /// More workers may be started from now on, until the set is over.
    pub(crate) fn open(&self) {
        self.state.lock().open = true;
    }

    /// The epoch for a worker that is started now. None if the set is over.
    pub(crate) fn epoch_if_open(&self) -> Option<u32> {
        let state = self.state.lock();
        state.open.then(|| self.epoch())
    }

    /// A worker joins, awake, and is told its epoch. None while the last workers of an epoch that has ended are still
    /// leaving: they drop what they find in the set, and would drop what belongs to the next.
    pub(crate) fn join(&self) -> Option<u32> {
        let mut state = self.state.lock();
        if state.ending {
            return None;
        }
        state.awake += 1;
        state.joined += 1;
        Some(self.epoch())
    }

    /// A worker joins, awake, that was started for an epoch; should that have ended, it leaves at once.
    pub(crate) fn join_late(&self) {
        let mut state = self.state.lock();
        state.awake += 1;
        state.joined += 1;
    }

    /// A worker has left, and uses nothing of the set any more.
    pub(crate) fn has_left(&self) {
        let mut state = self.state.lock();
        state.joined -= 1;
        state.ending &= state.joined > 0;
    }

    /// Whether those of an epoch are to leave. To be asked now and then by those who are awake; sleepers are woken.
    #[inline]
    pub(crate) fn is_over(&self, epoch: u32) -> bool {
        self.ended.load(Ordering::Relaxed) >= epoch
    }

    /// Tells everybody to leave.
    pub(crate) fn shut_down(&self) {
        self.end(&mut self.state.lock());
    }

    /// A worker leaves, awake. With `end`, a set that is at rest without it is over.
    pub(crate) fn leave(&self, end: bool) {
        let mut state = self.state.lock();
        state.awake -= 1;
        if end {
            self.end_if_at_rest(&mut state);
        }
    }

    /// Something outside the set may bring work from now on.
    pub(crate) fn outside_begins(&self) {
        self.state.lock().outside += 1;
    }

    /// It has brought it, and will bring no more.
    pub(crate) fn outside_ends(&self, end: bool) {
        let mut state = self.state.lock();
        state.outside -= 1;
        if end {
            self.end_if_at_rest(&mut state);
        }
    }

    /// Runs `f` if nobody is awake, nor will be by the clock, nor from outside. Nobody can be woken meanwhile.
    pub(crate) fn if_at_rest(&self, f: impl FnOnce()) {
        let state = self.state.lock();
        if state.is_at_rest() {
            f();
        }
    }

    /// Whether nobody is awake, nor will be by the clock, nor from outside.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.state.lock().is_at_rest()
    }

    /// How many workers are awake.
    pub(crate) fn awake(&self) -> u32 {
        self.state.lock().awake
    }

    // ---- searching ----------------------------------------------------------------------------------------------

    /// An awake worker becomes a searcher.
    pub(crate) fn begin_search(&self) {
        self.searching.fetch_add(1, Ordering::Relaxed);
    }

    /// A searcher has found work. If it was the last one, another must search in its place: true.
    #[must_use]
    pub(crate) fn end_search(&self) -> bool {
        // Relaxed: the caller goes on to `wake_any` if it was the last, which has the fence.
        self.searching.fetch_sub(1, Ordering::Relaxed) == 1
    }

    // ---- sleeping -----------------------------------------------------------------------------------------------

    /// Sleeper, step 1; a searcher is none from now on. `timed` if it will wake by itself for something that matters;
    /// `any` if it can be woken for work that is not its own.
    pub(crate) fn prepare(&self, sleeper: &Sleeper, timed: bool, any: bool, searching: bool) {
        let mut state = self.state.lock();
        state.sleepers.push(sleeper);
        sleeper.timed.set(timed);
        sleeper.asleep_for_good.set(false);
        sleeper.any.set(any);
        sleeper.asleep.store(true, Ordering::Relaxed);
        self.sleeping.fetch_add(u32::from(any), Ordering::Relaxed);
        if searching {
            self.searching.fetch_sub(1, Ordering::Relaxed);
        }
        drop(state);
        // Between the stores above and the look for work that follows.
        full_fence();
    }

    /// Sleeper, step 3, when there was work after all.
    pub(crate) fn abort(&self, sleeper: &Sleeper) -> Woken {
        let unlisted = self.unlist(&mut self.state.lock(), sleeper);
        if !unlisted {
            // Somebody took us off the list, and unparks us: that must be over before the next sleep.
            sleeper.parker.park(None);
            return self.why(sleeper);
        }
        Woken::ForWork
    }

    /// Sleeper, step 3. With `end`, a set at rest is over.
    pub(crate) fn sleep(&self, sleeper: &Sleeper, deadline: Option<Instant>, end: bool) -> Woken {
        let mut state = self.state.lock();
        if sleeper.asleep.load(Ordering::Relaxed) {
            // Still listed. Only now, having looked once more, does it count as asleep: the work that it might have
            // found is no set's at rest.
            if self.is_over(sleeper.epoch.get()) {
                self.unlist(&mut state, sleeper);
                return Woken::Over;
            }
            sleeper.asleep_for_good.set(true);
            state.awake -= 1;
            state.timed += u32::from(sleeper.timed.get());
            if end {
                self.end_if_at_rest(&mut state);
            }
        }
        drop(state);
        if !sleeper.parker.park(deadline) {
            if self.unlist(&mut self.state.lock(), sleeper) {
                return Woken::ByClock;
            }
            sleeper.parker.park(None); // as in `abort`
        }
        self.why(sleeper)
    }

    fn why(&self, sleeper: &Sleeper) -> Woken {
        let _state = self.state.lock();
        if sleeper.to_search.replace(false) {
            Woken::ToSearch
        } else if self.is_over(sleeper.epoch.get()) {
            Woken::Over
        } else {
            Woken::ForWork
        }
    }

    /// Takes a sleeper off the list and counts it as awake. False if somebody else has.
    fn unlist(&self, state: &mut State, sleeper: *const Sleeper) -> bool {
        let Some(at) = state.sleepers.iter().position(|&s| s == sleeper) else { return false };
        self.take(state, at);
        true
    }

    /// Off the list, and counted as awake (again).
    fn take(&self, state: &mut State, at: usize) -> *const Sleeper {
        let sleeper = state.sleepers.swap_remove(at);
        // SAFETY: it was listed, so it is alive, and the lock is held, by the caller's borrow.
        let it = unsafe { &*sleeper };
        it.asleep.store(false, Ordering::Relaxed);
        self.sleeping.fetch_sub(u32::from(it.any.get()), Ordering::Relaxed);
        if it.asleep_for_good.replace(false) {
            state.awake += 1;
            state.timed -= u32::from(it.timed.get());
        }
        sleeper
    }

    fn end_if_at_rest(&self, state: &mut State) {
        if state.is_at_rest() {
            self.end(state);
        }
    }

    fn end(&self, state: &mut State) {
        self.ended.store(self.epoch(), Ordering::Relaxed);
        state.open = false;
        state.ending = state.joined > 0;
        while !state.sleepers.is_empty() {
            let sleeper = self.take(state, 0);
            // Under the lock, for once; it is the end.
            // SAFETY: taken off the list by us alone, so this is the one unpark of its sleep.
            unsafe { Parker::unpark(&raw const (*sleeper).parker) };
        }
    }

    // ---- waking -------------------------------------------------------------------------------------------------

    /// Waker, steps 2 and 3, for work that this worker alone can do.
    #[inline]
    pub(crate) fn wake(&self, sleeper: &Sleeper) {
        full_fence();
        if sleeper.asleep.load(Ordering::Relaxed) {
            self.wake_listed(sleeper);
        }
    }

    /// Waker, steps 2 and 3, for work that any worker can do. False if nobody was there to be woken: all are awake,
    /// or one is searching. The caller may then start another worker.
    #[inline]
    pub(crate) fn wake_any(&self) -> Wanted {
        full_fence();
        if self.searching.load(Ordering::Relaxed) != 0 {
            Wanted::Nobody
        } else if self.sleeping.load(Ordering::Relaxed) != 0 {
            self.wake_searcher()
        } else {
            Wanted::AnotherWorker
        }
    }

    #[cold]
    fn wake_listed(&self, sleeper: &Sleeper) {
        let unlisted = self.unlist(&mut self.state.lock(), sleeper);
        if unlisted {
            // SAFETY: taken off the list by us alone, so this is the one unpark of its sleep; and sleepers outlive
            // every call that names them.
            unsafe { Parker::unpark(&raw const sleeper.parker) };
        }
    }

    #[cold]
    fn wake_searcher(&self) -> Wanted {
        let mut state = self.state.lock();
        // Looked at again under the lock, so that a burst of wakers wakes one.
        if self.searching.load(Ordering::Relaxed) != 0 {
            return Wanted::Nobody;
        }
        // The last to fall asleep: its caches are warm.
        // SAFETY: listed, so alive, and the lock is held.
        let Some(last) = state.sleepers.iter().rposition(|&s| unsafe { (*s).any.get() }) else {
            return Wanted::AnotherWorker;
        };
        let sleeper = self.take(&mut state, last);
        self.searching.fetch_add(1, Ordering::Relaxed);
        // SAFETY: it was listed, so it is alive, and the lock is held.
        unsafe { (*sleeper).to_search.set(true) };
        drop(state);
        // SAFETY: as in `wake_listed`.
        unsafe { Parker::unpark(&raw const (*sleeper).parker) };
        Wanted::Nobody
    }
}

/// Whether a waker should start another worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Somebody will see to the work.
    Nobody,
    /// All workers are busy.
    AnotherWorker,
}

impl State {
    fn is_at_rest(&self) -> bool {
        self.awake == 0 && self.timed == 0 && self.outside == 0
    }
}

#[cfg(all(test, sudog_loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Where work is put: the number of pieces that nobody has taken.
    struct Queue(AtomicU32);

    impl Queue {
        fn take(&self) -> bool {
            let mut n = self.0.load(Ordering::Acquire);
            while n > 0 {
                match self.0.compare_exchange(n, n - 1, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return true,
                    Err(now) => n = now,
                }
            }
            false
        }
    }

    fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    /// Work for one worker: it is never asleep for ever while there is some.
    #[test]
    fn a_wake_up_for_one_worker_is_not_lost() {
        check(4, || {
            let (idle, queue) = (Arc::new(Idle::new()), Arc::new(Queue(AtomicU32::new(0))));
            let sleeper = Arc::new(Sleeper::new());
            idle.join();
            let waker = {
                let (idle, queue, sleeper) = (idle.clone(), queue.clone(), sleeper.clone());
                thread::spawn(move || {
                    queue.0.fetch_add(1, Ordering::Relaxed);
                    idle.wake(&sleeper);
                })
            };
            while !queue.take() {
                idle.prepare(&sleeper, false, true, false);
                if queue.0.load(Ordering::Relaxed) > 0 {
                    idle.abort(&sleeper);
                } else {
                    idle.sleep(&sleeper, None, false);
                }
            }
            waker.join().unwrap();
            assert_eq!(idle.awake(), 1);
            assert_eq!(idle.sleeping.load(Ordering::Relaxed), 0);
        });
    }

    /// A sleep with a deadline, which has always passed, against a waker: every unpark is answered, and the counts are
    /// right in the end.
    #[test]
    fn the_clock_against_a_waker() {
        check(4, || {
            let idle = Arc::new(Idle::new());
            let sleeper = Arc::new(Sleeper::new());
            idle.join();
            let waker = {
                let (idle, sleeper) = (idle.clone(), sleeper.clone());
                thread::spawn(move || idle.wake(&sleeper))
            };
            for _ in 0..2 {
                idle.prepare(&sleeper, true, true, false);
                idle.sleep(&sleeper, Some(Instant::now()), false);
            }
            waker.join().unwrap();
            idle.if_at_rest(|| panic!("awake"));
            idle.leave(false);
            let mut at_rest = false;
            idle.if_at_rest(|| at_rest = true);
            assert!(at_rest, "nobody is awake, and no timer counts");
        });
    }

    /// A worker of a set that ends when it is at rest.
    fn worker(idle: &Idle, queue: &Queue) {
        let sleeper = Sleeper::new();
        let mut searching = false;
        loop {
            if queue.take() {
                if std::mem::take(&mut searching) && idle.end_search() {
                    idle.wake_any();
                }
                continue;
            }
            idle.prepare(&sleeper, false, true, searching);
            let woken = if queue.0.load(Ordering::Relaxed) > 0 {
                idle.abort(&sleeper)
            } else {
                idle.sleep(&sleeper, None, true)
            };
            searching = woken == Woken::ToSearch;
            if woken == Woken::Over {
                idle.leave(true);
                return;
            }
        }
    }

    /// Work for any worker: none is left when the set is over, and the set does end.
    #[test]
    fn no_work_is_left_when_the_set_is_over() {
        check(3, || {
            let (idle, queue) = (Arc::new(Idle::new()), Arc::new(Queue(AtomicU32::new(0))));
            idle.outside_begins();
            idle.join();
            idle.join();
            let other = {
                let (idle, queue) = (idle.clone(), queue.clone());
                thread::spawn(move || worker(&idle, &queue))
            };
            let waker = {
                let (idle, queue) = (idle.clone(), queue.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        queue.0.fetch_add(1, Ordering::Relaxed);
                        idle.wake_any();
                    }
                    idle.outside_ends(true);
                })
            };
            worker(&idle, &queue);
            other.join().unwrap();
            waker.join().unwrap();
            assert_eq!(queue.0.load(Ordering::Relaxed), 0);
            assert_eq!(idle.searching.load(Ordering::Relaxed), 0);
        });
    }

    /// A searcher that finds work and was the last wakes another: two pieces of work, of which each keeps its worker
    /// until the other has begun, are both begun.
    #[test]
    fn where_one_piece_of_work_was_there_may_be_more() {
        check(3, || {
            let (idle, queue) = (Arc::new(Idle::new()), Arc::new(Queue(AtomicU32::new(0))));
            let begun = Arc::new(AtomicU32::new(0));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    idle.join();
                    let (idle, queue, begun) = (idle.clone(), queue.clone(), begun.clone());
                    thread::spawn(move || {
                        let sleeper = Sleeper::new();
                        let mut searching = false;
                        while !queue.take() {
                            idle.prepare(&sleeper, false, true, searching);
                            let woken = if queue.0.load(Ordering::Relaxed) > 0 {
                                idle.abort(&sleeper)
                            } else {
                                idle.sleep(&sleeper, None, false)
                            };
                            searching = woken == Woken::ToSearch;
                        }
                        if searching && idle.end_search() {
                            idle.wake_any();
                        }
                        begun.fetch_add(1, Ordering::Relaxed);
                        while begun.load(Ordering::Relaxed) < 2 {
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            queue.0.fetch_add(2, Ordering::Relaxed);
            idle.wake_any();
            for worker in workers {
                worker.join().unwrap();
            }
        });
    }
}
