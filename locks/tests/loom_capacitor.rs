//! Models of the capacitors.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-locks --test loom_capacitor`
//!
//! A lost wake-up shows as a deadlock. A limit of 1 makes a capacitor a lock, so loom's cell tells whether two threads
//! have been admitted, and whether the next owner sees the writes of the owner before. At the end no thread is inside,
//! and there are as many places as at the beginning.
//!
//! In a model a window has two bits, so the third waiter that gives up is recorded in the overflow list.
#![cfg(sudog_loom)]

mod explore;
#[path = "../../runtime/tests/must_fail/mod.rs"]
mod must_fail;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32};
use sudog_locks::capacitor::{Always, ArriveDepart, Gated, Multilane, Platoon, SlidingWindow, Wrapped};
use sudog_locks::waiting_array::{Benaphore, Ticket};
use sudog_runtime::Instant;
use sudog_runtime::model::thread;
use sudog_runtime::model::{each_site, set_clock};
use sudog_runtime::reached::{TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, mark, unmarked, waiting};
use sudog_sync::RawLock;
use sudog_sync::mutex::FifoMutex;
use sudog_sync::semaphore::RuntimeSema;

use explore::{explore, explore_in_time, step};

// States that a model can reach, in addition to a call's states. The capacitors mark some of these states by
// themselves.
const WALKS_IN: &str = "one is let through at once";
const WAITS: &str = "one waits in line";
const IN_TIME: &str = "one in haste is let through";
const GIVES_UP: &str = "one in haste gives up";
const TRY: &str = "a try comes off";
const TRY_FAILS: &str = "a try fails";
const TWO_INSIDE: &str = "two are inside";
const LATE: &str = "a ticket departs without a bit";
const BESIDE_LATE: &str = "another ticket departs while one is recorded";
const PLATOON: &str = "a platoon is complete";

/// A capacitor, and the data of the admitted threads.
struct World<C> {
    capacitor: C,
    inside: AtomicU32,
    data: UnsafeCell<u32>,
}

// SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
unsafe impl<C: Sync> Sync for World<C> {}

impl<C: ArriveDepart + 'static> World<C> {
    fn new(limit: u32) -> Arc<Self> {
        Self::of(C::with_limit(limit))
    }

    fn of(capacitor: C) -> Arc<Self> {
        let world = Arc::new(Self { capacitor, inside: AtomicU32::new(0), data: UnsafeCell::new(0) });
        // Make the tables first, by a wait that is given up: a thread that makes a table would otherwise pass its
        // earlier writes on to the other threads.
        set_clock(1);
        unmarked(|| world.touch_tables());
        set_clock(step());
        world
    }

    fn touch_tables(&self) {
        let limit = self.capacitor.limit();
        let arrive = |_| {
            self.capacitor.announce();
            self.capacitor.arrive()
        };
        let arrivals: Vec<_> = (0..limit).map(arrive).collect();
        assert!(self.capacitor.arrive_until(Instant::now() + Duration::from_nanos(2)).is_none());
        arrivals.into_iter().for_each(|ticket| self.capacitor.depart_and_retract(ticket));
    }

    fn spawn<T: 'static>(self: &Arc<Self>, f: impl FnOnce(&Self) -> T + 'static) -> thread::JoinHandle<T> {
        let world = self.clone();
        thread::spawn(move || f(&world))
    }

    fn visit(&self) {
        let inside = self.inside.fetch_add(1, Relaxed);
        assert!(inside < self.capacitor.limit(), "too many are let through");
        if inside > 0 {
            mark(TWO_INSIDE);
        }
        if self.capacitor.limit() == 1 {
            // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
            self.data.with_mut(|data| unsafe { *data += 1 });
        }
        self.inside.fetch_sub(1, Relaxed);
    }

    fn turn(&self) {
        let (ticket, waits) = waiting(|| self.capacitor.arrive());
        mark(if waits { WAITS } else { WALKS_IN });
        self.visit();
        self.capacitor.depart(ticket);
    }

    /// Has a turn with a deadline that passes as soon as the thread sleeps.
    fn hasty_turn(&self) -> bool {
        let (ticket, _) = waiting(|| self.capacitor.arrive_until(Instant::now() + Duration::from_nanos(2)));
        mark(if ticket.is_some() { IN_TIME } else { GIVES_UP });
        if let Some(ticket) = ticket {
            self.visit();
            self.capacitor.depart(ticket);
        }
        ticket.is_some()
    }

    /// Checks that all threads have left. A platoon may be under way.
    fn finish(&self) {
        for _ in 0..2 * self.capacitor.limit() {
            self.capacitor.depart(self.capacitor.try_arrive().expect("a place is lost"));
        }
        for _ in 0..self.capacitor.limit() {
            let Some(_) = self.capacitor.try_arrive() else { return };
        }
        assert!(self.capacitor.try_arrive().is_none(), "a place too many");
    }
}

fn two_turns_each<C: ArriveDepart + 'static>(preemptions: usize, limit: u32, states: &[&'static str]) {
    explore(preemptions, states, move || {
        let w = World::<C>::new(limit);
        let other = w.spawn(|w| (0..2).for_each(|_| w.turn()));
        (0..2).for_each(|_| w.turn());
        other.join().unwrap();
        w.finish();
    });
}

fn three_threads<C: ArriveDepart + 'static>(preemptions: usize, limit: u32, states: &[&'static str]) {
    explore(preemptions, states, move || {
        let w = World::<C>::new(limit);
        let others = [w.spawn(World::turn), w.spawn(World::turn)];
        w.turn();
        others.into_iter().for_each(|t| t.join().unwrap());
        w.finish();
    });
}

/// Lets one of three threads give up, early or late.
fn a_deadline<C: ArriveDepart + 'static>(preemptions: usize, limit: u32, states: &[&'static str]) {
    explore_in_time(preemptions, 1, states, move || {
        let w = World::<C>::new(limit);
        let hasty = w.spawn(World::hasty_turn);
        let patient = w.spawn(World::turn);
        w.turn();
        patient.join().unwrap();
        hasty.join().unwrap();
        w.finish();
    });
}

fn two_deadlines<C: ArriveDepart + 'static>(preemptions: usize, limit: u32, states: &[&'static str]) {
    explore_in_time(preemptions, 1, states, move || {
        let w = World::<C>::new(limit);
        let hasty = [w.spawn(World::hasty_turn), w.spawn(World::hasty_turn)];
        w.turn();
        hasty.into_iter().for_each(|t| _ = t.join().unwrap());
        w.finish();
    });
}

fn a_try<C: ArriveDepart + 'static>(preemptions: usize, limit: u32, states: &[&'static str]) {
    explore(preemptions, states, move || {
        let w = World::<C>::new(limit);
        let tries = w.spawn(|w| {
            for _ in 0..2 {
                let ticket = w.capacitor.try_arrive();
                mark(if ticket.is_some() { TRY } else { TRY_FAILS });
                if let Some(ticket) = ticket {
                    w.visit();
                    w.capacitor.depart(ticket);
                }
            }
        });
        let other = w.spawn(World::turn);
        w.turn();
        other.join().unwrap();
        tries.join().unwrap();
        w.finish();
    });
}

/// Takes places and gives them up on one thread, so that later waiters that give up are far from the base.
fn late<const HELD: usize>(preemptions: usize) {
    explore_in_time(
        preemptions,
        1,
        &[LATE, BESIDE_LATE, IN_TIME, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, WAITS],
        || {
            let w = World::<SlidingWindow>::new(1);
            let first = w.capacitor.arrive();
            // Let waiters give up in advance, which have bits in the window or have none.
            for _ in 0..HELD {
                assert!(!w.hasty_turn());
            }
            let others = [w.spawn(|w| _ = w.hasty_turn()), w.spawn(World::turn)];
            w.capacitor.depart(first);
            others.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(w.capacitor.present(), 0);
            w.finish();
        },
    );
}

macro_rules! models {
    ($($name:ident: $($call:expr),+;)*) => { $(
        #[test]
        fn $name() {
            $($call;)+
        }
    )* };
}

mod window {
    use super::*;
    type C = SlidingWindow;

    models! {
        turns: two_turns_each::<C>(3, 1, &[WALKS_IN, WAITS, TWO_SLEEP]), two_turns_each::<C>(2, 2, &[WALKS_IN, WAITS, TWO_INSIDE]);
        three: three_threads::<C>(2, 1, &[WALKS_IN, WAITS, TWO_SLEEP]);
        three_of_whom_two_go: three_threads::<C>(2, 2, &[WALKS_IN, WAITS, TWO_INSIDE]);
        one_gives_up: a_deadline::<C>(2, 1, &[IN_TIME, GIVES_UP, TOO_LATE_AND_WOKEN, LATE, BESIDE_LATE, WAITS]);
        two_give_up: two_deadlines::<C>(2, 1, &[IN_TIME, GIVES_UP, TOO_LATE_AND_WOKEN, LATE, BESIDE_LATE, WAITS]);
        one_tries: a_try::<C>(2, 1, &[TRY, TRY_FAILS, WAITS, TWO_SLEEP]), a_try::<C>(1, 2, &[TRY, TRY_FAILS, TWO_INSIDE]);
        one_is_late: late::<1>(2);
        two_are_late: late::<2>(2);
        three_are_late: late::<3>(2);
    }

    /// Checks that tickets may wrap: tickets have 32 bits.
    #[test]
    fn goes_round() {
        for at in [u32::MAX - 3, u32::MAX] {
            explore(2, &[WALKS_IN, WAITS], move || {
                let w = World::of(C::with_limit_at(1, at));
                let other = w.spawn(|w| (0..2).for_each(|_| w.turn()));
                w.turn();
                other.join().unwrap();
                w.finish();
            });
        }
    }

    /// Checks the departing thread's read of the tickets: otherwise the departing thread does not see the ticket, and
    /// the ticket's holder does not see the window.
    #[test]
    fn a_sleeper_is_seen() {
        let test = concat!(module_path!(), "::a_sleeper_is_seen");
        let needed = ["pop_stack.rs, wait: fence", "sliding.rs, leave: compare_exchange", "sliding.rs, wake: load"];
        each_site(test, &needed, &[], || two_turns_each::<C>(3, 1, &[]));
    }

    /// Checks the same read for a departure under the lock.
    #[test]
    fn a_sleeper_is_seen_by_a_late_departure() {
        let test = concat!(module_path!(), "::a_sleeper_is_seen_by_a_late_departure");
        let needed = [
            "pop_stack.rs, wait: fence",
            "sliding.rs, leave: compare_exchange",
            "sliding.rs, leave_under_lock: compare_exchange",
            "sliding.rs, wake: load",
        ];
        each_site(test, &needed, &[], || late::<1>(2));
    }
}

mod platoon {
    use super::*;

    const ONE: &[&str] = &[WALKS_IN, WAITS, PLATOON];
    const TWO: &[&str] = &[WALKS_IN, WAITS, PLATOON, TWO_INSIDE];
    const HASTE: &[&str] = &[IN_TIME, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, WAITS];

    models! {
        over_the_benaphore: two_turns_each::<Platoon<Benaphore>>(3, 1, &[WALKS_IN, WAITS, PLATOON, TWO_SLEEP]), three_threads::<Platoon<Benaphore>>(2, 2, TWO);
        over_tickets: two_turns_each::<Platoon<Ticket>>(2, 1, ONE), three_threads::<Platoon<Ticket>>(1, 2, TWO);
        over_the_table: two_turns_each::<Platoon<RuntimeSema>>(2, 1, ONE), three_threads::<Platoon<RuntimeSema>>(2, 2, TWO);
        one_gives_up: a_deadline::<Platoon<Benaphore>>(2, 1, HASTE);
        one_gives_up_in_the_table: a_deadline::<Platoon<RuntimeSema>>(2, 1, HASTE);
        one_tries: a_try::<Platoon<Benaphore>>(2, 1, &[TRY, TRY_FAILS, WAITS]), a_try::<Platoon<Benaphore>>(1, 2, &[TRY, TRY_FAILS, TWO_INSIDE]);
    }
}

mod lanes {
    use super::*;

    /// Runs two lanes of one permit: two platoons.
    #[test]
    fn dealt_in_turn() {
        explore(2, &[WALKS_IN, WAITS, TWO_INSIDE], || {
            let capacitor = Multilane::with_lanes(2, 1);
            let w = Arc::new(World { capacitor, inside: AtomicU32::new(0), data: UnsafeCell::new(0) });
            let turn = |w: &World<Multilane>| {
                let (ticket, waits) = waiting(|| w.capacitor.arrive());
                mark(if waits { WAITS } else { WALKS_IN });
                let inside = w.inside.fetch_add(1, Relaxed);
                assert!(inside < 2, "too many are let through");
                if inside > 0 {
                    mark(TWO_INSIDE);
                }
                w.inside.fetch_sub(1, Relaxed);
                w.capacitor.depart(ticket);
            };
            let others = [w.spawn(turn), w.spawn(turn)];
            turn(&w);
            others.into_iter().for_each(|t| t.join().unwrap());
            // The third thread is the first of a platoon of two.
            let ticket = w.capacitor.try_arrive().expect("room for another");
            w.capacitor.depart(ticket);
            assert!(w.capacitor.try_arrive().is_some(), "the next platoon");
        });
    }
}

/// Panics at every possible place: in an admitted thread, in a waiter, in the inner lock.
mod unwinding {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use sudog_locks::spin_lock::WaitPolicy;

    use super::*;

    loom::thread_local! {
        static PANICS: Cell<bool> = Cell::new(false);
        /// True if the tries of this thread do not panic: the tries come before the capacitor.
        static TRIES: Cell<bool> = Cell::new(false);
    }

    const PANICS_AFTER_A_WAIT: &str = "one that has waited panics inside";
    const PANICS_AT_ONCE: &str = "one that has not waited panics inside";
    const PANICS_IN_LINE: &str = "one panics in line";
    const PANICS_NOT: &str = "one that would panic in line is let through";

    fn panic_if_told() {
        if PANICS.with(Cell::get) {
            resume_unwind(Box::new(()));
        }
    }

    /// Runs `f` so that it panics if it reaches a place that panics when told to.
    fn unwound<T>(f: impl FnOnce() -> T) -> Option<T> {
        PANICS.with(|panics| panics.set(true));
        let done = catch_unwind(AssertUnwindSafe(f)).ok();
        PANICS.with(|panics| panics.set(false));
        done
    }

    fn inside<C: ArriveDepart + 'static>(preemptions: usize) {
        explore(preemptions, &[PANICS_AFTER_A_WAIT, PANICS_AT_ONCE, WALKS_IN, WAITS, TWO_SLEEP], || {
            let w = World::<C>::new(1);
            let panics = w.spawn(|w| {
                let done = unwound(|| {
                    let (_arrival, waits) = waiting(|| w.capacitor.pass());
                    mark(if waits { PANICS_AFTER_A_WAIT } else { PANICS_AT_ONCE });
                    w.visit();
                    panic_if_told();
                });
                assert!(done.is_none());
            });
            let other = w.spawn(|w| {
                let (_arrival, waits) = waiting(|| w.capacitor.pass());
                mark(if waits { WAITS } else { WALKS_IN });
                w.visit();
            });
            w.turn();
            panics.join().unwrap();
            other.join().unwrap();
            assert!(w.capacitor.is_idle(), "an announcement without an arrival");
            w.finish();
        });
    }

    /// A policy that sleeps at once, or panics.
    struct Policy;

    impl WaitPolicy for Policy {
        const PARKS: bool = true;

        fn pass_time(_: u32) -> bool {
            panic_if_told();
            false
        }
    }

    /// Lets the policy of a waiter panic: the waiter gives up, as at a deadline.
    fn in_line(preemptions: usize, limit: u32, states: &[&'static str]) {
        explore(preemptions, states, move || {
            let w = World::<SlidingWindow<Policy>>::new(limit);
            let panics = w.spawn(|w| {
                let ticket = unwound(|| w.capacitor.arrive());
                mark(if ticket.is_some() { PANICS_NOT } else { PANICS_IN_LINE });
                if let Some(ticket) = ticket {
                    w.visit();
                    w.capacitor.depart(ticket);
                }
            });
            let other = w.spawn(World::turn);
            w.turn();
            other.join().unwrap();
            panics.join().unwrap();
            w.finish();
        });
    }

    struct Panicky(FifoMutex<RuntimeSema>);

    // SAFETY: the inner lock, to which each method passes its call, keeps the contract of `RawLock`. A call that locks
    // panics before it has done anything, an unlock after it has unlocked.
    unsafe impl RawLock for Panicky {
        type Guard = ();

        const DEADLINES: bool = true;

        fn new() -> Self {
            Self(FifoMutex::new())
        }
        fn lock(&self) {
            panic_if_told();
            self.0.lock();
        }
        fn try_lock(&self) -> Option<()> {
            if !TRIES.with(Cell::get) {
                panic_if_told();
            }
            self.0.try_lock()
        }
        fn try_lock_until(&self, deadline: Instant) -> Option<()> {
            panic_if_told();
            self.0.try_lock_until(deadline)
        }
        unsafe fn unlock(&self, (): ()) {
            // SAFETY: the caller keeps the contract of `RawLock::unlock`, and this lock's guards are those of the inner
            // lock.
            unsafe { self.0.unlock(()) };
            panic_if_told();
        }
        fn is_locked(&self) -> bool {
            self.0.is_locked()
        }
    }

    /// The place at which the inner lock panics.
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        /// The try before the capacitor: no other thread is inside, as far as the gate can see.
        Try,
        /// The lock call behind the capacitor.
        Lock,
        Unlock,
    }

    const PANICS_BEFORE: &str = "one panics before the capacitor";
    const PANICS_BEHIND: &str = "one panics behind the capacitor";
    const PANICS_NEVER: &str = "one that would panic behind the capacitor goes past it";

    fn of_the_inner_lock<C: ArriveDepart + 'static>(preemptions: usize, at: At, states: &[&'static str]) {
        explore(preemptions, states, move || {
            let Ok(world) = Arc::try_unwrap(World::<C>::new(1)).map_err(|_| ()) else { unreachable!("it is ours") };
            let lock = Arc::new(Wrapped::with(Panicky::new(), world.capacitor, Gated));
            let panics = {
                let lock = lock.clone();
                thread::spawn(move || {
                    TRIES.with(|tries| tries.set(at == At::Lock));
                    // SAFETY: `pass` is the guard of this lock, and has not been released.
                    let unlock = |pass| unsafe { lock.unlock(pass) };
                    if at == At::Unlock {
                        let (pass, waits) = waiting(|| lock.lock());
                        mark(if waits { PANICS_AFTER_A_WAIT } else { PANICS_AT_ONCE });
                        assert!(unwound(|| unlock(pass)).is_none());
                        return;
                    }
                    match unwound(|| lock.lock()) {
                        None => mark(if at == At::Lock { PANICS_BEHIND } else { PANICS_BEFORE }),
                        Some(pass) => {
                            mark(PANICS_NEVER);
                            unlock(pass);
                        }
                    }
                })
            };
            let (pass, waits) = waiting(|| lock.lock());
            mark(if waits { WAITS } else { WALKS_IN });
            // SAFETY: `pass` is the guard of this lock, and has not been released.
            unsafe { lock.unlock(pass) };
            panics.join().unwrap();
            assert!(lock.capacitor().is_idle(), "an announcement without an arrival");
            assert!(lock.try_lock().is_some_and(|pass| pass.ticket().is_none()), "past the capacitor");
            assert!(lock.capacitor().try_arrive().is_some(), "a place is lost");
        });
    }

    const BEFORE: &[&str] = &[PANICS_BEFORE];
    const BEHIND: &[&str] = &[PANICS_BEHIND, PANICS_NEVER, WALKS_IN];
    const UNLOCKS: &[&str] = &[PANICS_AFTER_A_WAIT, PANICS_AT_ONCE, WALKS_IN, WAITS];

    models! {
        inside_the_window: inside::<SlidingWindow>(2);
        inside_the_platoon: inside::<Platoon<Benaphore>>(2);
        in_the_line_of_the_window: in_line(2, 1, &[PANICS_IN_LINE, PANICS_NOT, WAITS, TWO_SLEEP]), in_line(2, 2, &[PANICS_IN_LINE, PANICS_NOT, WAITS, TWO_INSIDE, LATE, BESIDE_LATE]);
        of_the_lock_in_the_window:
            of_the_inner_lock::<SlidingWindow>(2, At::Try, BEFORE), of_the_inner_lock::<SlidingWindow>(2, At::Lock, BEHIND),
            of_the_inner_lock::<SlidingWindow>(2, At::Unlock, UNLOCKS);
        of_the_lock_in_the_platoon:
            of_the_inner_lock::<Platoon<Benaphore>>(2, At::Try, BEFORE),
            of_the_inner_lock::<Platoon<Benaphore>>(2, At::Lock, BEHIND),
            of_the_inner_lock::<Platoon<Benaphore>>(2, At::Unlock, UNLOCKS);
    }
}

mod gate {
    use super::*;

    /// An inner lock. A try that takes the lock, as before the gate's second look, records whether the victim had
    /// arrived.
    struct Watching {
        lock: FifoMutex<RuntimeSema>,
        arrived: AtomicBool,
        later: AtomicBool,
    }

    // SAFETY: `FifoMutex`, to which each method passes its call, keeps the contract of `RawLock`.
    unsafe impl RawLock for Watching {
        type Guard = ();

        const DEADLINES: bool = true;

        fn new() -> Self {
            Self { lock: FifoMutex::new(), arrived: AtomicBool::new(false), later: AtomicBool::new(false) }
        }
        fn lock(&self) {
            self.lock.lock();
        }
        fn try_lock(&self) -> Option<()> {
            self.lock.try_lock()?;
            self.later.store(self.arrived.load(Acquire), Relaxed);
            Some(())
        }
        fn try_lock_until(&self, deadline: Instant) -> Option<()> {
            self.lock.try_lock_until(deadline)
        }
        unsafe fn unlock(&self, (): ()) {
            // SAFETY: the caller keeps the contract of `RawLock::unlock`, and this lock's guards are those of the inner
            // lock.
            unsafe { self.lock.unlock(()) };
        }
        fn is_locked(&self) -> bool {
            self.lock.is_locked()
        }
    }

    type Gate<C> = Wrapped<Watching, C, Gated>;

    const PAST: &str = "one goes past the capacitor";
    const THROUGH: &str = "one goes through the capacitor";
    const THROUGH_AFTER_A_WAIT: &str = "one waits, and goes through the capacitor";
    const COMES_LATER: &str = "the other comes after the victim, and has the lock";
    const COMES_EARLIER: &str = "the other comes before the victim, and has the lock";
    const VICTIM_WAITS: &str = "the victim waits in its doorway";
    const VICTIM_AT_ONCE: &str = "the victim does not wait in its doorway";
    const PASSES_BY: &str = "another passes by";
    const FINDS_NO_PLACE: &str = "another finds no place";

    fn mark_pass<C: ArriveDepart>(pass: &<Gate<C> as RawLock>::Guard, waits: bool) {
        mark(match (pass.ticket(), waits) {
            (None, _) => PAST,
            (_, false) => THROUGH,
            (_, true) => THROUGH_AFTER_A_WAIT,
        });
    }

    /// A wrapped lock, and the data of its owners.
    struct Locked<C> {
        lock: Gate<C>,
        data: UnsafeCell<u32>,
        /// True if the victim has had the lock.
        entered: AtomicBool,
    }

    // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
    unsafe impl<C: Sync> Sync for Locked<C> {}

    impl<C: ArriveDepart + 'static> Locked<C> {
        fn new(limit: u32) -> Arc<Self> {
            let capacitor = World::<C>::new(limit);
            let Ok(world) = Arc::try_unwrap(capacitor).map_err(|_| ()) else { unreachable!("this is the only owner") };
            let lock = Wrapped::with(Watching::new(), world.capacitor, Gated);
            Arc::new(Self { lock, data: UnsafeCell::new(0), entered: AtomicBool::new(false) })
        }

        fn spawn<T: 'static>(self: &Arc<Self>, f: impl FnOnce(&Self) -> T + 'static) -> thread::JoinHandle<T> {
            let this = self.clone();
            thread::spawn(move || f(&this))
        }

        fn write(&self) {
            // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
            self.data.with_mut(|data| unsafe { *data += 1 });
        }

        fn turn(&self) {
            let (pass, waits) = waiting(|| self.lock.lock());
            mark_pass::<C>(&pass, waits);
            self.write();
            // SAFETY: `pass` is the guard of this lock, and has not been released.
            unsafe { self.lock.unlock(pass) };
        }

        /// Locks without a guard, so that the victim can tell when its doorway has ended.
        fn victim(&self) {
            let capacitor = self.lock.capacitor();
            capacitor.announce();
            let (ticket, waits) = waiting(|| capacitor.arrive());
            mark(if waits { VICTIM_WAITS } else { VICTIM_AT_ONCE });
            self.lock.inner().arrived.store(true, Release);
            self.lock.inner().lock();
            self.write();
            self.entered.store(true, Relaxed);
            // SAFETY: this thread locked the inner lock above, and has not released it.
            unsafe { self.lock.inner().unlock(()) };
            capacitor.depart_and_retract(ticket);
        }

        /// Checks that past the gate no newcomer overtakes, and that with a limit of 1 no thread overtakes at all.
        fn overtaker(&self) {
            let later = self.lock.inner().arrived.load(Acquire);
            let (pass, waits) = waiting(|| self.lock.lock());
            mark_pass::<C>(&pass, waits);
            self.check(pass, later);
        }

        fn tries(&self) {
            let later = self.lock.inner().arrived.load(Acquire);
            let pass = self.lock.try_lock();
            mark(if pass.is_some() { TRY } else { TRY_FAILS });
            if let Some(pass) = pass {
                mark_pass::<C>(&pass, false);
                self.check(pass, later);
            }
        }

        fn check(&self, pass: <Gate<C> as RawLock>::Guard, later: bool) {
            self.write();
            mark(if later { COMES_LATER } else { COMES_EARLIER });
            let bound = self.lock.capacitor().limit() - 1;
            let past = pass.ticket().is_none() && self.lock.inner().later.load(Relaxed);
            let overtaken = past || (later && bound == 0);
            assert!(!overtaken || self.entered.load(Relaxed), "overtaken");
            // SAFETY: `pass` is the guard of this lock, and has not been released.
            unsafe { self.lock.unlock(pass) };
        }

        /// Arrives, and gives up.
        fn passer_by(&self) {
            let capacitor = self.lock.capacitor();
            capacitor.announce();
            let ticket = capacitor.try_arrive();
            mark(if ticket.is_some() { PASSES_BY } else { FINDS_NO_PLACE });
            match ticket {
                Some(ticket) => capacitor.depart_and_retract(ticket),
                None => capacitor.retract(),
            }
        }

        fn hasty(&self) {
            let (pass, waits) = waiting(|| self.lock.try_lock_until(Instant::now() + Duration::from_nanos(2)));
            mark(if pass.is_some() { IN_TIME } else { GIVES_UP });
            if let Some(pass) = pass {
                mark_pass::<C>(&pass, waits);
                self.write();
                // SAFETY: `pass` is the guard of this lock, and has not been released.
                unsafe { self.lock.unlock(pass) };
            }
        }

        /// Checks that all threads have left and the gate is open.
        fn finish(&self) {
            assert!(self.lock.capacitor().is_idle(), "an announcement without an arrival");
            let pass = self.lock.try_lock().expect("the lock is free");
            assert!(pass.ticket().is_none(), "past the capacitor");
            // SAFETY: `pass` is the guard of this lock, and has not been released.
            unsafe { self.lock.unlock(pass) };
        }
    }

    fn no_newcomer_overtakes<C: ArriveDepart + 'static>(
        preemptions: usize,
        overtaker: fn(&Locked<C>),
        states: &[&'static str],
    ) {
        explore(preemptions, states, move || {
            let l = Locked::<C>::new(1);
            let overtaker = l.spawn(overtaker);
            l.victim();
            overtaker.join().unwrap();
            l.finish();
        });
    }

    /// Checks that a departure is not seen without its arrival.
    fn no_newcomer_overtakes_beside_another<C: ArriveDepart + 'static>(preemptions: usize, limit: u32) {
        explore(
            preemptions,
            &[
                COMES_LATER,
                COMES_EARLIER,
                PASSES_BY,
                FINDS_NO_PLACE,
                PAST,
                THROUGH,
                THROUGH_AFTER_A_WAIT,
                VICTIM_WAITS,
                VICTIM_AT_ONCE,
            ],
            move || {
                let l = Locked::<C>::new(limit);
                let others = [l.spawn(Locked::overtaker), l.spawn(Locked::passer_by)];
                l.victim();
                others.into_iter().for_each(|t| t.join().unwrap());
                l.finish();
            },
        );
    }

    /// Lets one contender arrive before another departs, so one of the two is present at each moment.
    fn is_never_idle<C: ArriveDepart + 'static>(preemptions: usize) {
        const BEFORE: &str = "the gate is looked at before a departure";
        const AFTER: &str = "the gate is looked at after a departure";
        explore(preemptions, &[BEFORE, AFTER], || {
            let w = World::<C>::new(2);
            let arrive = |w: &World<C>| {
                w.capacitor.announce();
                w.capacitor.arrive()
            };
            let first = arrive(&w);
            // Recording the departure is no step of the model.
            let departed = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let looks = {
                let departed = departed.clone();
                w.spawn(move |w| {
                    let after = departed.load(Relaxed);
                    assert!(!w.capacitor.is_idle(), "one is always present");
                    mark(if after { AFTER } else { BEFORE });
                })
            };
            let second = arrive(&w);
            w.capacitor.depart_and_retract(first);
            departed.store(true, Relaxed);
            looks.join().unwrap();
            w.capacitor.depart_and_retract(second);
            assert!(w.capacitor.is_idle(), "an announcement without an arrival");
        });
    }

    fn three<C: ArriveDepart + 'static>(preemptions: usize, limit: u32) {
        explore(preemptions, &[PAST, THROUGH, THROUGH_AFTER_A_WAIT, TWO_SLEEP], move || {
            let l = Locked::<C>::new(limit);
            let others = [l.spawn(Locked::turn), l.spawn(Locked::turn)];
            l.turn();
            others.into_iter().for_each(|t| t.join().unwrap());
            l.finish();
        });
    }

    fn one_gives_up<C: ArriveDepart + 'static>(preemptions: usize) {
        explore_in_time(preemptions, 1, &[PAST, THROUGH, THROUGH_AFTER_A_WAIT, IN_TIME, GIVES_UP, TIME_IS_UP], || {
            let l = Locked::<C>::new(1);
            let others = [l.spawn(Locked::hasty), l.spawn(Locked::turn)];
            l.turn();
            others.into_iter().for_each(|t| t.join().unwrap());
            l.finish();
        });
    }

    models! {
        of_the_window_keeps_the_bound:
            no_newcomer_overtakes::<SlidingWindow>(3, Locked::overtaker, &[COMES_LATER, COMES_EARLIER, PAST, THROUGH, THROUGH_AFTER_A_WAIT]), no_newcomer_overtakes::<SlidingWindow>(3, Locked::tries, &[COMES_LATER, COMES_EARLIER, PAST, THROUGH, TRY, TRY_FAILS]);
        of_the_platoon_keeps_the_bound:
            no_newcomer_overtakes::<Platoon<Benaphore>>(3, Locked::overtaker, &[COMES_LATER, COMES_EARLIER, PAST, THROUGH, THROUGH_AFTER_A_WAIT]), no_newcomer_overtakes::<Platoon<Benaphore>>(3, Locked::tries, &[COMES_LATER, COMES_EARLIER, PAST, THROUGH, TRY, TRY_FAILS]);
        of_the_window_beside_another:
            no_newcomer_overtakes_beside_another::<SlidingWindow>(2, 1), no_newcomer_overtakes_beside_another::<SlidingWindow>(2, 2);
        of_the_platoon_beside_another:
            no_newcomer_overtakes_beside_another::<Platoon<Benaphore>>(2, 1),
            no_newcomer_overtakes_beside_another::<Platoon<Benaphore>>(2, 2);
        of_the_window_is_never_idle: is_never_idle::<SlidingWindow>(4);
        of_the_platoon_is_never_idle: is_never_idle::<Platoon<Benaphore>>(4);
        of_the_window_for_three: three::<SlidingWindow>(1, 1), three::<SlidingWindow>(1, 2);
        of_the_platoon_for_three: three::<Platoon<Benaphore>>(1, 1), three::<Platoon<Benaphore>>(1, 2);
        of_the_window_at_a_deadline: one_gives_up::<SlidingWindow>(1);
        of_the_platoon_at_a_deadline: one_gives_up::<Platoon<Benaphore>>(1);
    }

    /// Checks that without a gate a thread departs if its try of the inner lock fails.
    #[test]
    fn a_try_that_fails_departs() {
        explore(2, &[TRY, TRY_FAILS], || {
            let window = World::<SlidingWindow>::new(1);
            let Ok(world) = Arc::try_unwrap(window).map_err(|_| ()) else { unreachable!("this is the only owner") };
            let lock = Arc::new(Wrapped::with(FifoMutex::<RuntimeSema>::new(), world.capacitor, Always));
            let other = {
                let lock = lock.clone();
                thread::spawn(move || {
                    lock.inner().lock();
                    // SAFETY: this thread locked the inner lock above, and has not released it.
                    unsafe { lock.inner().unlock(()) };
                })
            };
            for _ in 0..2 {
                let pass = lock.try_lock();
                mark(if pass.is_some() { TRY } else { TRY_FAILS });
                if let Some(pass) = pass {
                    // SAFETY: `pass` is the guard of this lock, and has not been released.
                    unsafe { lock.unlock(pass) };
                }
            }
            other.join().unwrap();
            assert_eq!(lock.capacitor().present(), 0);
        });
    }
}

/// A semaphore behind a capacitor. The threads that release have not acquired.
mod bounded {
    use super::*;
    use sudog_locks::capacitor::Bounded;
    use sudog_sync::semaphore::FutexSema;
    use sudog_sync::{Order, Semaphore, Wake};

    const COMES_LATER: &str = "an acquirer comes after the victim's arrival";
    const COMES_EARLIER: &str = "an acquirer comes before the victim's arrival";
    const PERMIT_AT_ONCE: &str = "an acquirer does not wait";
    const PERMIT_AFTER_A_WAIT: &str = "an acquirer waits";

    /// A semaphore of one permit, used as a lock, and the data of its owners.
    struct Permit<S, C, const B: u32> {
        sema: Bounded<S, C, B>,
        data: UnsafeCell<u32>,
        /// True if the victim has had the permit.
        entered: AtomicBool,
    }

    // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
    unsafe impl<S: Sync, C: Sync, const B: u32> Sync for Permit<S, C, B> {}

    impl<S: Semaphore + 'static, C: ArriveDepart + 'static, const B: u32> Permit<S, C, B> {
        /// Returns a semaphore without permits.
        fn new() -> Arc<Self> {
            let sema = Bounded::<S, C, B>::new(0);
            // Make the tables first, as `World::of` does. A futex has no table, and no deadline in a model.
            if S::FIFO {
                set_clock(1);
                unmarked(|| assert!(!sema.acquire_until(Order::Fifo, Instant::now() + Duration::from_nanos(2))));
                set_clock(step());
            }
            Arc::new(Self { sema, data: UnsafeCell::new(0), entered: AtomicBool::new(false) })
        }

        fn spawn<T: 'static>(self: &Arc<Self>, f: impl FnOnce(&Self) -> T + 'static) -> thread::JoinHandle<T> {
            let this = self.clone();
            thread::spawn(move || f(&this))
        }

        fn acquire(&self) {
            let ((), waits) = waiting(|| self.sema.acquire(Order::Lifo));
            mark(if waits { PERMIT_AFTER_A_WAIT } else { PERMIT_AT_ONCE });
            // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
            self.data.with_mut(|data| unsafe { *data += 1 });
        }

        fn release(&self) {
            self.sema.release(Wake::Normal);
        }

        fn turn(&self) {
            self.acquire();
            self.release();
        }

        fn tries(&self) {
            let got = self.sema.try_acquire();
            mark(if got { TRY } else { TRY_FAILS });
            if got {
                self.release();
            }
        }

        fn hasty_turn(&self) {
            let (got, _) = waiting(|| self.sema.acquire_until(Order::Fifo, Instant::now() + Duration::from_nanos(2)));
            mark(if got { IN_TIME } else { GIVES_UP });
            if got {
                self.release();
            }
        }

        fn victim(&self) {
            self.acquire();
            self.entered.store(true, Relaxed);
            self.release();
        }

        /// Checks that the permit is there, and that all threads have departed.
        fn finish(&self) {
            assert!(self.sema.try_acquire(), "the permit is lost");
            assert!(!self.sema.try_acquire(), "a permit too many");
            for _ in 0..2 * B {
                self.sema.capacitor().depart(self.sema.capacitor().try_arrive().expect("a place is lost"));
            }
        }
    }

    fn three<S: Semaphore + 'static, C: ArriveDepart + 'static, const B: u32>(preemptions: usize) {
        explore(preemptions, &[PERMIT_AT_ONCE, PERMIT_AFTER_A_WAIT, TWO_SLEEP], || {
            let p = Permit::<S, C, B>::new();
            let others = [p.spawn(Permit::turn), p.spawn(Permit::turn)];
            p.release();
            p.acquire();
            p.release();
            others.into_iter().for_each(|t| t.join().unwrap());
            p.finish();
        });
    }

    fn one_tries<S: Semaphore + 'static, C: ArriveDepart + 'static>(preemptions: usize) {
        explore(preemptions, &[PERMIT_AT_ONCE, PERMIT_AFTER_A_WAIT, TRY, TRY_FAILS], || {
            let p = Permit::<S, C, 1>::new();
            let others = [p.spawn(Permit::turn), p.spawn(Permit::tries)];
            p.release();
            others.into_iter().for_each(|t| t.join().unwrap());
            p.finish();
        });
    }

    fn one_gives_up<S: Semaphore + 'static, C: ArriveDepart + 'static>(preemptions: usize) {
        explore_in_time(preemptions, 1, &[PERMIT_AT_ONCE, PERMIT_AFTER_A_WAIT, IN_TIME, GIVES_UP], || {
            let p = Permit::<S, C, 1>::new();
            let others = [p.spawn(Permit::turn), p.spawn(Permit::hasty_turn)];
            p.release();
            others.into_iter().for_each(|t| t.join().unwrap());
            p.finish();
        });
    }

    /// Checks that with B = 1 no acquirer that comes after the victim's arrival gets a permit before the victim.
    /// `has_arrived` returns whether a contender has arrived at the capacitor.
    fn keeps_the_bound<S: Semaphore + 'static, C: ArriveDepart + 'static>(
        preemptions: usize,
        has_arrived: fn(&C) -> bool,
    ) {
        explore(preemptions, &[COMES_LATER, COMES_EARLIER, PERMIT_AT_ONCE, PERMIT_AFTER_A_WAIT], move || {
            let p = Permit::<S, C, 1>::new();
            let victim = p.spawn(Permit::victim);
            let overtaker = p.spawn(move |p| {
                let later = has_arrived(p.sema.capacitor());
                mark(if later { COMES_LATER } else { COMES_EARLIER });
                p.acquire();
                assert!(!later || p.entered.load(Relaxed), "overtaken");
                p.release();
            });
            p.release();
            [victim, overtaker].into_iter().for_each(|t| t.join().unwrap());
            p.finish();
        });
    }

    type Platoons = Platoon<Benaphore>;

    fn in_the_window(window: &SlidingWindow) -> bool {
        window.present() > 0
    }

    fn in_the_platoon(platoon: &Platoons) -> bool {
        platoon.semaphore().available() == 0
    }

    models! {
        futex_behind_the_window_keeps_the_bound: keeps_the_bound::<FutexSema, SlidingWindow>(3, in_the_window);
        futex_behind_the_platoon_keeps_the_bound: keeps_the_bound::<FutexSema, Platoons>(3, in_the_platoon);
        lifo_behind_the_window_keeps_the_bound: keeps_the_bound::<RuntimeSema, SlidingWindow>(2, in_the_window);
        three_behind_the_window: three::<FutexSema, SlidingWindow, 1>(1), three::<RuntimeSema, SlidingWindow, 2>(1);
        three_behind_the_platoon: three::<FutexSema, Platoons, 1>(2), three::<RuntimeSema, Platoons, 2>(2);
        a_try_behind_the_window: one_tries::<FutexSema, SlidingWindow>(3);
        a_try_behind_the_platoon: one_tries::<FutexSema, Platoons>(3);
        a_deadline_behind_the_window: one_gives_up::<RuntimeSema, SlidingWindow>(2);
        a_deadline_behind_the_platoon: one_gives_up::<RuntimeSema, Platoons>(2);
    }
}
