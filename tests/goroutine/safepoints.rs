//! A call that releases something is a safepoint: a goroutine that only acquires and releases, and never waits, does
//! not starve the other goroutines of its worker. Each primitive is tested in each kind of scheduler.
//!
//! The hog makes rounds until its neighbour has run, and at most [`ROUNDS`] rounds: rounds are counted, not timed. The
//! exceptions are checked the other way round: there the neighbour must *not* run, because the owners of spin locks
//! rely on that.
//!
//! The contract and the list of exceptions: `docs/goroutines.md`, "Safepoints".
#![cfg(all(unix, feature = "locks", not(sudog_loom)))]

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use sudog::chan::{Chan, channel};
use sudog::context::{self, CancelCauseFunc, CancelFunc, background};
use sudog::locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, TicketLock, Tts};
use sudog::low_level::sema::{
    NotifyList, Order, Wake, semacquire, semgrant_many, semrelease, semrelease_many, try_semacquire,
};
use sudog::low_level::{RawLock, RawRwLock, RuntimeSema, Semaphore, policy};
use sudog::runtime::{gosched, num_goroutine, set_max_procs};
use sudog::study::{self, FifoMutex, stages};
use sudog::sync::{
    Cond, GoMutex, GoRwMutex, Locker, Map, Mutex, NoNew, Once, OnceValue, PhaseFairRwMutex, Pool, RwMutex,
    ShardedRwMutex, WaitGroup,
};
use sudog::time::{AfterFunc, Ticker, Timer, after_func};
use sudog::x::{SingleFlight, Weighted};
use sudog::{Builder, Cancel, Placement, block_on, go, run, without_switching};
use support::goroutine::{alone, one_worker, until};

/// The most rounds of a hog: they take far longer than a slice, or a tick of the watcher.
const ROUNDS: usize = 4_000_000;
/// The number of rounds after which the hog's thread sleeps.
const PAUSE: usize = ROUNDS / 16;
/// A number of rounds that takes some slices, with some hundred safepoints in each slice.
const SOME_ROUNDS: usize = 100_000;

#[derive(Clone, Copy)]
enum Set {
    /// A `run` with this number of workers.
    Run(usize),
    /// A bubble.
    Bubble,
}

/// Runs `main` as a goroutine in such a set of workers. The calling test must have the workers to itself.
fn in_set<T: Send + 'static>(set: Set, main: impl FnOnce() -> T + Send + 'static) -> T {
    match set {
        Set::Run(workers) => {
            set_max_procs(workers);
            run(main)
        }
        Set::Bubble => one_worker(main),
    }
}

/// Makes rounds until `state` is true, and returns whether `state` became true in time.
fn rounds_until(state: &AtomicBool, mut round: impl FnMut()) -> bool {
    let mut left = ROUNDS;
    while !state.load(Relaxed) && left > 0 {
        round();
        left -= 1;
        if left.is_multiple_of(PAUSE) {
            // The watcher is a thread, and other tests may have the other processors. A thread's sleep is no safepoint.
            thread::sleep(Duration::from_millis(1));
        }
    }
    state.load(Relaxed)
}

/// Asserts that a hog that makes rounds lets its neighbour run, and that nothing is lost at a switch in between.
fn lets_others_run<S: 'static>(set: Set, make: fn() -> S, round: fn(&S), is_whole: fn(&S) -> bool) {
    let _alone = alone();
    let ran = in_set(set, move || {
        let primitive = make();
        let neighbour = Arc::new(AtomicBool::new(false));
        let runs = neighbour.clone();
        Builder::new().on(Placement::Here).go(move || runs.store(true, Relaxed));
        let ran = rounds_until(&neighbour, || round(&primitive));
        until(|| neighbour.load(Relaxed));
        assert!(is_whole(&primitive), "something was lost");
        ran
    });
    assert!(ran, "the neighbour has not run for {ROUNDS} rounds");
}

/// Asserts that nothing switches in `f`: a ready neighbour does not run.
fn keeps_others_out(f: impl FnOnce() + Send) {
    set_max_procs(1);
    run(|| {
        let turns = Arc::new(AtomicUsize::new(0));
        let neighbour = turns.clone();
        Builder::new().on(Placement::Here).go(move || {
            neighbour.store(1, Relaxed);
            gosched();
            neighbour.store(2, Relaxed);
        });
        until(|| turns.load(Relaxed) == 1);
        f();
        assert_eq!(turns.load(Relaxed), 1, "the neighbour has run");
        until(|| turns.load(Relaxed) == 2);
    });
}

/// Tests of safepoints. An entry has a primitive, a round that never waits, and a check that the primitive is whole
/// between rounds.
macro_rules! safepoints {
    ($($(#[$cfg:meta])* $name:ident: $make:expr, $round:expr, $is_whole:expr;)+) => { $(
        $(#[$cfg])*
        mod $name {
            use super::*;

            #[test]
            fn in_a_run_with_one_worker() {
                lets_others_run(Set::Run(1), || $make, $round, $is_whole);
            }

            #[test]
            fn in_a_run_with_two_workers() {
                lets_others_run(Set::Run(2), || $make, $round, $is_whole);
            }

            #[test]
            fn in_a_bubble() {
                lets_others_run(Set::Bubble, || $make, $round, $is_whole);
            }

            #[test]
            fn not_without_switching() {
                fn rounds<S: Send>(primitive: S, round: fn(&S)) {
                    keeps_others_out(move || without_switching(|| (0..SOME_ROUNDS).for_each(|_| round(&primitive))));
                }
                let _alone = alone();
                rounds($make, $round);
            }
        }
    )+ };
}

/// Tests of exceptions. An entry has a primitive that never switches unless it waits, and a round.
macro_rules! exceptions {
    ($($(#[$cfg:meta])* $name:ident: $make:expr, $round:expr;)+) => { $(
        $(#[$cfg])*
        #[test]
        fn $name() {
            fn rounds<S: Send>(primitive: S, round: fn(&S)) {
                keeps_others_out(move || (0..SOME_ROUNDS).for_each(|_| round(&primitive)));
            }
            let _alone = alone();
            rounds($make, $round);
        }
    )+ };
}

// ---- rounds ----------------------------------------------------------------------------------------------------------

fn take_and_give<S: Semaphore>(sema: &S) {
    sema.acquire(Order::Fifo);
    sema.release(Wake::Normal);
}

/// Returns whether the semaphore has one permit, and no more.
fn has_one<S: Semaphore>(sema: &S) -> bool {
    sema.try_acquire() && !sema.try_acquire()
}

fn lock_and_unlock<L: RawLock>(lock: &L) {
    let guard = lock.lock();
    // SAFETY: `guard` came from `lock` above, and has not been released.
    unsafe { lock.unlock(guard) };
}

fn can_be_locked<L: RawLock>(lock: &L) -> bool {
    lock.try_lock().is_some()
}

fn write<L: RawRwLock>(lock: &L) {
    let guard = lock.lock();
    // SAFETY: `guard` came from `lock` above, and has not been released.
    unsafe { lock.unlock(guard) };
}

fn read<L: RawRwLock>(lock: &L) {
    let guard = lock.rlock();
    // SAFETY: `guard` came from `rlock` above, and has not been released.
    unsafe { lock.runlock(guard) };
}

/// Writes, then reads. Of two goroutines that do this, either waits for the other if the other yields while it reads.
fn write_then_read<L: RawRwLock>(lock: &L) {
    let guard = lock.lock();
    // SAFETY: `guard` came from `lock` above, and has not been released.
    let guard = unsafe { lock.downgrade(guard) };
    // SAFETY: `guard` came from `downgrade` above, and has not been released.
    unsafe { lock.runlock(guard) };
}

fn can_be_written<L: RawRwLock>(lock: &L) -> bool {
    lock.try_lock().is_some()
}

const LONG: Duration = Duration::from_secs(3600);

// ---- calls that are safepoints
// ---------------------------------------------------------------------------------------

safepoints! {
    // low_level::sema
    sema_release: AtomicU32::new(1), |s| { semacquire(s); semrelease(s, Wake::Normal) }, |s| s.load(Relaxed) == 1;
    sema_hand_off: AtomicU32::new(1), |s| { semacquire(s); semrelease(s, Wake::Handoff) }, |s| s.load(Relaxed) == 1;
    sema_grant: AtomicU32::new(1), |s| { semacquire(s); semrelease(s, Wake::Grant) }, |s| s.load(Relaxed) == 1;
    sema_release_many: AtomicU32::new(1), |s| { semacquire(s); semrelease_many(s, 1) }, |s| s.load(Relaxed) == 1;
    sema_release_none: AtomicU32::new(0), |s| semrelease_many(s, 0), |s| s.load(Relaxed) == 0;
    sema_grant_many: AtomicU32::new(1), |s| { semacquire(s); semgrant_many(s, 1) }, |s| s.load(Relaxed) == 1;
    sema_grant_none: AtomicU32::new(0), |s| semgrant_many(s, 0), |s| s.load(Relaxed) == 0;
    sema_cancel: Cancel::new(), |cancel| cancel.cancel(), |cancel| cancel.is_cancelled();
    notify_one: NotifyList::new(), |list| list.notify_one(), |list| list.waiters() == 0;
    notify_all: NotifyList::new(), |list| list.notify_all(), |list| list.waiters() == 0;

    // goroutines
    block_on_a_ready_future: (), |()| block_on(async {}), |()| true;
    timer_reset: Timer::new(LONG), |timer| assert!(timer.reset(LONG)), |timer| timer.stop();
    timer_stop: Timer::new(LONG), |timer| _ = timer.stop(), |timer| !timer.stop();
    ticker_reset: Ticker::new(LONG), |ticker| ticker.reset(LONG), |_| true;
    timer_recv: Timer::new(Duration::ZERO), |timer| { timer.recv(); timer.reset(Duration::ZERO); }, |timer| timer.stop();
    ticker_recv: Ticker::new(Duration::from_nanos(1)), |ticker| _ = ticker.recv(), |ticker| ticker.recv() <= sudog::time::now();
    ticker_stop: Ticker::new(LONG), |ticker| ticker.stop(), |_| true;
    after_func_stop: Lazy::default(), |call| _ = call.get().stop(), |_| true;

    // channels
    chan_close: (), |()| Chan::<u8>::new(0).close(), |()| true;
    sender_close: (), |()| _ = channel::<u8>(0).0.close(), |()| true;
    receiver_close: (), |()| _ = channel::<u8>(0).1.close(), |()| true;
    permit_send: (), |()| Chan::new(1).try_reserve().unwrap().send(1), |()| true;

    // sync: semaphores
    runtime_sema: RuntimeSema::new(1), take_and_give, has_one;
    runtime_sema_many: RuntimeSema::new(1), |s| { s.acquire(Order::Fifo); s.release_many(1) }, has_one;
    runtime_sema_grant: RuntimeSema::new(1), |s| { s.acquire(Order::Fifo); s.grant_many(1) }, has_one;

    // sync: locks whose release is more than one atomic operation
    stage_one: stages::V1::<RuntimeSema>::new(), lock_and_unlock, can_be_locked;
    rw_mutex_write: GoRwMutex::new(), write, can_be_written;
    rw_mutex_write_by_guard: RwMutex::new(0), |m| *m.write() += 1, |m| m.try_write().is_some();
    rw_mutex_downgrade: GoRwMutex::new(), write_then_read, can_be_written;
    phase_fair_write: PhaseFairRwMutex::<RuntimeSema>::const_new(), write, can_be_written;
    sharded_write: <ShardedRwMutex>::new(), write, can_be_written;
    sharded_downgrade: <ShardedRwMutex>::new(), write_then_read, can_be_written;

    // sync: the rest
    cond_signal: Cond::new(), |cond| cond.signal(), |cond| cond.waiters() == 0;
    cond_broadcast: Cond::new(), |cond| cond.broadcast(), |cond| cond.waiters() == 0;
    once: (), |()| { let once = Once::new(); once.do_(|| ()); assert!(once.is_done()) }, |()| true;
    once_value: (), |()| assert_eq!(*OnceValue::new(|| 1).get(), 1), |()| true;
    pool_put: full_pool(),
        |pool| pool.get().into_iter().for_each(|item| pool.put(item)),
        |pool: &Pool<_, _>| pool.get() == Some(1);
    pool_guard: Pool::new(|| 1), |pool| _ = pool.take(), |pool: &Pool<_, _>| pool.get() == 1;
    single_flight: SingleFlight::<u8, u8, ()>::new(),
        |group| assert_eq!(group.do_(1, || Ok(1)).result, Ok(1)),
        |group| !format!("{group:?}").contains("calls: 1");
    single_flight_with_a_context: SingleFlight::<u8, u8, ()>::new(),
        |group| assert_eq!(group.do_limited(1, || Ok(1), &background()).unwrap().result, Ok(1)),
        |group| !format!("{group:?}").contains("calls: 1");
    weighted: Weighted::new(2),
        |w| { w.acquire(&background(), 2).unwrap(); w.release(2) },
        |w| w.try_acquire(2);
    weighted_by_guard: Weighted::new(2), |w| drop(w.try_hold(2)), |w| w.try_acquire(2);
    context_cancel: (), |()| context::with_cancel(&background()).1.cancel(), |()| true;
    context_cancel_again: context::with_cancel(&background()).1,
        |cancel: &CancelFunc| cancel.cancel(),
        |_| true;
    context_cancel_cause: context::with_cancel_cause(&background()).1,
        |cancel: &CancelCauseFunc| cancel.cancel("cause"),
        |_| true;
    context_cancel_without_cause: context::with_cancel_cause(&background()).1,
        |cancel: &CancelCauseFunc| cancel.cancel_without_cause(),
        |_| true;
    context_cancel_on_drop: context::with_cancel(&background()).1,
        |cancel: &CancelFunc| drop(cancel.clone().on_drop()),
        |_| true;
}

fn full_pool() -> Pool<u8, NoNew> {
    let pool = Pool::empty();
    pool.put(1);
    pool
}

/// A delayed call that each round stops. The first round makes the call, because only then is there a scheduler.
#[derive(Default)]
struct Lazy(std::sync::OnceLock<AfterFunc>);

impl Lazy {
    fn get(&self) -> &AfterFunc {
        self.0.get_or_init(|| after_func(LONG, || unreachable!()))
    }
}

mod waiting_array {
    use sudog::locks::capacitor::{
        Always, ArriveDepart, Capacitor, Gated, LaneChoice, Multilane, Platoon, SeparateLanes, Sliding, SlidingWindow,
        Wrapped,
    };
    use sudog::locks::waiting_array::{Benaphore, Ticket, Twa, TwaChain, TwaChannel, TwaLocation};
    use sudog::locks::waiting_array::{
        address_signal, address_signal_polite, key_signal, key_signal_polite, location_wake_all,
    };
    use sudog::study::ParkingLotSema;

    use super::*;

    fn come_and_go<C: ArriveDepart>(capacitor: &C) {
        let ticket = capacitor.arrive();
        capacitor.depart(ticket);
    }

    /// Returns whether no thread is between arrival and departure, so that all of the limit can arrive.
    fn is_empty<C: ArriveDepart>(capacitor: &C) -> bool {
        (0..capacitor.limit()).all(|_| {
            let ticket = capacitor.try_arrive();
            ticket.map(|ticket| capacitor.depart(ticket)).is_some()
        })
    }

    safepoints! {
        benaphore: Benaphore::new(1), take_and_give, has_one;
        benaphore_many: Benaphore::new(1), |s| { s.acquire(Order::Fifo); s.release_many(1) }, has_one;
        benaphore_grant: Benaphore::new(1), |s| { s.acquire(Order::Fifo); s.grant_many(1) }, has_one;
        benaphore_post: Benaphore::new(2),
            |s| { s.acquire_many(2).unwrap(); s.post(2) },
            |s| s.try_acquire_many(2);
        benaphore_post_none: Benaphore::new(1), |s| s.post(0), has_one;
        benaphore_post_raw: Benaphore::new(1),
            // SAFETY: the pointer comes from the reference `s`, so the semaphore is alive.
            |s| { s.acquire_many(1).unwrap(); unsafe { Benaphore::post_raw(s, 1) } },
            has_one;
        benaphore_close: Benaphore::new(1), |s| s.close(), |s| s.is_closed();
        ticket: Ticket::new(1), take_and_give, has_one;
        twa: Twa::new(1), take_and_give, has_one;
        twa_chain: TwaChain::new(1), take_and_give, has_one;
        twa_channel: TwaChannel::new(1), take_and_give, has_one;
        twa_location: TwaLocation::new(1), take_and_give, has_one;
        twa_close: Twa::new(1), |s| s.close(), |s| s.is_closed();

        signal_an_address: (), |()| address_signal(64), |()| true;
        signal_an_address_politely: (), |()| address_signal_polite(64), |()| true;
        signal_a_key: (), |()| key_signal(64), |()| true;
        signal_a_key_politely: (), |()| key_signal_polite(64), |()| true;
        wake_a_location: (), |()| location_wake_all(64), |()| true;

        platoon: Platoon::<Benaphore>::with_limit(2), come_and_go, is_empty;
        platoon_over_runtime_sema: Platoon::<RuntimeSema>::with_limit(2), come_and_go, is_empty;
        platoon_over_parking_lot: Platoon::<ParkingLotSema>::with_limit(2), come_and_go, is_empty;
        window: SlidingWindow::new(2), come_and_go, is_empty;
        lanes: Multilane::with_lanes(2, 2), come_and_go, is_empty;
        separate_lanes: SeparateLanes::<Benaphore>::with_lanes(2, 2, LaneChoice::InTurn), come_and_go, is_empty;
        platoon_by_guard: Platoon::<Benaphore>::with_limit(2), |p| drop(p.pass()), |p| p.is_idle() && is_empty(p);
        window_by_guard: SlidingWindow::new(2), |w| drop(w.pass()), |w| w.is_idle() && is_empty(w);

        lock_in_a_platoon: Capacitor::<Tts>::new(), lock_and_unlock, can_be_locked;
        mutex_in_a_platoon: Capacitor::<GoMutex, RuntimeSema>::new(), lock_and_unlock, can_be_locked;
        lock_in_a_window: Wrapped::with(<Tts>::new(), SlidingWindow::new(2), Always), lock_and_unlock, can_be_locked;
        lock_in_lanes: Wrapped::with(<Tts>::new(), Multilane::with_lanes(2, 2), Always), lock_and_unlock, can_be_locked;
    }

    exceptions! {
        a_lock_past_the_gate_keeps_others_out: <Sliding<Tts, Gated>>::new(), lock_and_unlock;
    }
}

// ---- the exceptions --------------------------------------------------------------------------------------------------

exceptions! {
    the_mutex_keeps_others_out: GoMutex::new(), |m| { m.lock(); m.unlock() };
    the_mutex_by_guard_keeps_others_out: Mutex::new(0), |m| *m.lock() += 1;
    the_mutex_of_go_keeps_others_out: GoMutex::<RuntimeSema, policy::Go>::const_new(), lock_and_unlock;
    the_fair_mutex_keeps_others_out: GoMutex::<RuntimeSema, study::policy::Fifo>::const_new(), lock_and_unlock;
    the_mutex_in_turn_keeps_others_out: FifoMutex::<RuntimeSema>::new(), lock_and_unlock;
    stage_two_keeps_others_out: unlocked_once(stages::V2::<RuntimeSema>::new()), lock_and_unlock;
    stage_three_keeps_others_out: unlocked_once(stages::V3::<RuntimeSema>::new()), lock_and_unlock;
    stage_four_keeps_others_out: stages::V4::<RuntimeSema>::new(), lock_and_unlock;
    stage_five_keeps_others_out: stages::V5::<RuntimeSema>::new(), lock_and_unlock;
    stage_six_keeps_others_out: stages::V6::<RuntimeSema>::new(), lock_and_unlock;
    stage_seven_keeps_others_out: stages::V7::<RuntimeSema>::new(), lock_and_unlock;
    stage_eight_keeps_others_out: stages::V8::<RuntimeSema>::new(), lock_and_unlock;
    readers_keep_others_out: GoRwMutex::new(), read;
    phase_fair_readers_keep_others_out: PhaseFairRwMutex::<RuntimeSema>::const_new(), read;
    sharded_readers_keep_others_out: <ShardedRwMutex>::new(), read;
    a_wait_group_keeps_others_out: WaitGroup::new(), |group| { group.add(1); group.done(); group.wait() };
    tts_keeps_others_out: Tts::<sudog::locks::spin_lock::SpinThenPark>::new(), lock_and_unlock;
    ticket_lock_keeps_others_out: <TicketLock>::new(), lock_and_unlock;
    mcs_keeps_others_out: <Mcs>::new(), lock_and_unlock;
    clh_keeps_others_out: <Clh>::new(), lock_and_unlock;
    lifo_keeps_others_out: <Lifo>::new(), lock_and_unlock;
    reciprocating_keeps_others_out: <Reciprocating>::new(), lock_and_unlock;
    #[cfg(target_os = "linux")]
    the_kernels_semaphore_keeps_others_out: sudog::study::FutexSema::new(1), take_and_give;
    the_parking_lots_semaphore_keeps_others_out: sudog::study::ParkingLotSema::new(1), take_and_give;
    a_map_keeps_others_out: Map::new(), |map| { map.store(1, 1); assert_eq!(map.load_and_delete(&1), Some(1)) };
    a_once_that_is_done_keeps_others_out: { let once = Once::new(); once.do_(|| ()); once }, |once| once.do_(|| ());
    atomics_keep_others_out: sudog::sync::atomic::Int32::new(0), |n| _ = n.add(1);
    to_try_keeps_others_out: (AtomicU32::new(0), locked()),
        |(permits, mutex)| assert!(!try_semacquire(permits) && !mutex.try_lock());
    to_try_to_write_keeps_others_out: read_locked(), |(rw, sharded)| {
        assert!(!rw.try_lock());
        assert!(sharded.try_lock().is_none());
    };
    to_look_keeps_others_out: (), |()| assert!(num_goroutine() > 0);
    to_start_others_keeps_others_out: (), |()| go(|| ());
}

/// Returns a mutex whose permit is out: the first unlock of these stages releases a permit, which is a safepoint.
fn unlocked_once<L: RawLock>(mutex: L) -> L {
    lock_and_unlock(&mutex);
    mutex
}

fn locked() -> GoMutex {
    let mutex = GoMutex::new();
    mutex.lock();
    mutex
}

fn read_locked() -> (GoRwMutex, ShardedRwMutex) {
    let (rw, sharded) = (GoRwMutex::new(), <ShardedRwMutex>::new());
    rw.rlock();
    let _still_read = sharded.rlock();
    (rw, sharded)
}

/// The advice for users of the exceptions: call `gosched`.
#[test]
fn gosched_is_the_remedy() {
    for set in [Set::Run(1), Set::Run(2), Set::Bubble] {
        lets_others_run(
            set,
            GoMutex::new,
            |mutex| {
                mutex.lock();
                mutex.unlock();
                gosched();
            },
            |_| true,
        );
    }
}

/// A safepoint that may not switch is counted, but does not take the turn of the safepoints that may switch.
#[test]
fn a_turn_is_not_lost_without_switching() {
    fn round(s: &AtomicU32) {
        without_switching(|| semrelease_many(s, 0));
        semrelease_many(s, 0);
    }
    for set in [Set::Run(1), Set::Bubble] {
        lets_others_run(set, || AtomicU32::new(0), round, |_| true);
        lets_others_run(
            set,
            || {
                let s = AtomicU32::new(0);
                semrelease_many(&s, 0); // shifts the count, so that each 64th call is the other call
                s
            },
            round,
            |_| true,
        );
    }
}

/// Safepoints in a goroutine that panics do not switch: the other goroutines would believe that they panicked.
#[test]
fn not_in_a_panic() {
    struct Rounds;
    impl Drop for Rounds {
        fn drop(&mut self) {
            let sema = RuntimeSema::new(1);
            (0..SOME_ROUNDS).for_each(|_| take_and_give(&sema));
        }
    }
    let _alone = alone();
    keeps_others_out(|| {
        let panic = catch_unwind(|| {
            let _rounds = Rounds;
            panic!("to make rounds in it");
        });
        assert!(panic.is_err());
    });
}

// ---- a neighbour that waits for the very lock ------------------------------------------------------------------------

/// Asserts that an owner that locks and unlocks lets its neighbour, which waits for the lock, have the lock.
fn lets_waiters_have_it<L: Send + Sync + 'static>(make: fn() -> L, lock: fn(&L), unlock: fn(&L), wait: fn(&L)) {
    for set in [Set::Run(1), Set::Run(2), Set::Bubble] {
        let _alone = alone();
        let had_it = in_set(set, move || {
            let (mutex, begun, had_it) = (Arc::new(make()), Arc::new(AtomicBool::new(false)), Arc::default());
            lock(&mutex);
            let neighbour = (mutex.clone(), begun.clone(), Arc::<AtomicBool>::clone(&had_it));
            Builder::new().on(Placement::Here).go(move || {
                neighbour.1.store(true, Relaxed);
                wait(&neighbour.0);
                neighbour.2.store(true, Relaxed);
            });
            // The neighbour is on the same worker, so it goes on to its wait before this goroutine has another turn.
            until(|| begun.load(Relaxed));
            unlock(&mutex);
            let in_time = rounds_until(&had_it, || {
                lock(&mutex);
                unlock(&mutex);
            });
            until(|| had_it.load(Relaxed));
            in_time
        });
        assert!(had_it, "the waiter has not had the lock for {ROUNDS} rounds");
    }
}

fn lets_waiters_have_the_mutex<L: RawLock + Locker + 'static>() {
    lets_waiters_have_it(L::new, |mutex| Locker::lock(mutex), |mutex| Locker::unlock(mutex), lock_and_unlock);
}

#[test]
fn the_mutex_lets_its_waiters_have_it() {
    lets_waiters_have_the_mutex::<GoMutex>();
    lets_waiters_have_the_mutex::<GoMutex<RuntimeSema, policy::Go>>();
    lets_waiters_have_the_mutex::<GoMutex<RuntimeSema, study::policy::Go1_9>>();
    lets_waiters_have_the_mutex::<GoMutex<RuntimeSema, study::policy::Go1_8>>();
    lets_waiters_have_the_mutex::<GoMutex<RuntimeSema, study::policy::Fifo>>();
}

#[test]
fn writers_let_writers_and_readers_have_it() {
    lets_waiters_have_it(GoRwMutex::new, |rw| rw.lock(), |rw| rw.unlock(), write);
    lets_waiters_have_it(GoRwMutex::new, |rw| rw.lock(), |rw| rw.unlock(), read);
}

#[test]
fn readers_let_writers_have_it() {
    lets_waiters_have_it(GoRwMutex::new, |rw| rw.rlock(), |rw| rw.runlock(), write);
}
