//! Models of the semaphores with a waiting array.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-locks --test loom_waiting_array`
//!
//! A lost wake-up shows as a deadlock; a lost order as a data race in loom's cell; a permit lost or made at the end of
//! the model. When a thread sleeps, its deadline has always passed already, so the deadline races with all later steps.
//!
//! The tables have two buckets. `MixedHash<1>` uses a single bucket, so all waiters collide; by `MixedHash<2>`
//! consecutive tickets are apart. With a single bucket the models of `NEAR` 0 and 1 are the same, because a policy that
//! sleeps does so at once in a model.
#![cfg(sudog_loom)]

#[path = "../../lab/core/src/targets/semaphores/event_count.rs"]
mod event_count;
mod explore;
#[path = "../../runtime/tests/must_fail/mod.rs"]
mod must_fail;
mod waiting_array;

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use explore::{explore, explore_in_time, must_fail};
use sudog_locks::waiting_array::{Benaphore, Ticket, Twa, TwaChain, TwaChannel, TwaLocation};
use sudog_locks::waiting_array::{
    BucketWait, ChainWait, Conservative, Doorway, LocationWait, MixedHash, SpinThenPark, SpinThenYield, TicketSema,
    TicketWait, Tickets, ToldWait,
};
use sudog_runtime::model::thread;
use sudog_runtime::model::{be_goroutine, each_site};
use sudog_runtime::reached::{AT_ONCE, SLEEPS, TWO_SLEEP, mark, waiting};
use sudog_sync::{Order, Semaphore, Wake};
use waiting_array::states::*;
use waiting_array::{NewSema, World, hasty_acquire, new_sema};

fn two_turns_each(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[AT_ONCE, WAITS], move || {
        let w = World::new(sema, 1);
        let other = w.spawn(|w| (0..2).for_each(|_| w.turn()));
        (0..2).for_each(|_| w.turn());
        other.join().unwrap();
        assert_eq!(w.read(), 4);
        w.finish(1);
    });
}

fn three_threads(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[AT_ONCE, WAITS, TWO_SLEEP], move || {
        let w = World::new(sema, 1);
        let others = [w.spawn(World::turn), w.spawn(World::turn)];
        w.turn();
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(w.read(), 3);
        w.finish(1);
    });
}

fn two_takers_two_posters(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[AT_ONCE, WAITS], move || {
        let w = World::new(sema, 0);
        let others = [w.spawn(|w| w.take(1)), w.spawn(|w| w.take(1)), w.spawn(|w| w.sema.post(1))];
        w.sema.post(1);
        others.into_iter().for_each(|t| t.join().unwrap());
        w.finish(0);
    });
}

/// Uses the semaphore as a lock with two waiters, one of which gives up.
fn a_deadline(sema: NewSema, preemptions: usize, step: u64) {
    explore_in_time(preemptions, step, &[WAITS, IN_TIME, GIVES_UP, LEAVES_A_GAP, OVER_A_GAP], move || {
        let w = World::new(sema, 0);
        let patient = w.spawn(World::turn);
        let hasty = w.spawn(World::hasty_turn);
        w.write();
        w.sema.post(1);
        patient.join().unwrap();
        let turns = 2 + hasty.join().unwrap();
        assert_eq!(w.read(), turns);
        w.finish(1);
    });
}

/// Posts a permit for the tickets of a waiter for two permits, which gives up. That permit goes to the other waiter.
fn a_deadline_of_a_request_for_two(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[WAITS, GIVES_UP, LEAVES_A_GAP, GIVES_BACK, OVER_A_GAP], move || {
        let w = World::new(sema, 0);
        let patient = w.spawn(World::turn);
        let hasty = w.spawn(|w| assert!(!w.hasty(2), "there is only one"));
        w.write();
        w.sema.post(1);
        patient.join().unwrap();
        hasty.join().unwrap();
        assert_eq!(w.read(), 2);
        w.finish(1);
    });
}

/// Posts two permits after two waiters have given up, which leaves a gap in the tickets. The next thread that arrives
/// takes one of the permits.
fn posts_over_a_gap(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[WAITS, GIVES_UP, LEAVES_A_GAP, OVER_A_GAP], move || {
        let w = World::new(sema, 0);
        assert!(!w.hasty(1) && !w.hasty(1));
        let posters = [w.spawn(|w| w.sema.post(1)), w.spawn(|w| w.sema.post(1))];
        w.take(1);
        posters.into_iter().for_each(|t| t.join().unwrap());
        w.finish(1);
    });
}

fn two_deadlines(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[IN_TIME, GIVES_UP, LEAVES_A_GAP, OVER_A_GAP, GRANTED_AT_LAST], move || {
        let w = World::new(sema, 0);
        let hasty = [w.spawn(World::hasty_turn), w.spawn(World::hasty_turn)];
        w.sema.post(1);
        let turns: u32 = hasty.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(w.read(), turns);
        w.finish(1);
    });
}

fn a_request_for_two(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[WAITS], move || {
        let w = World::new(sema, 0);
        let others = [w.spawn(|w| w.take(2)), w.spawn(|w| w.take(1)), w.spawn(|w| w.sema.post(2))];
        w.sema.post(1);
        others.into_iter().for_each(|t| t.join().unwrap());
        w.finish(0);
    });
}

/// Lets a thread take two permits, one of each of two posters. The thread sees the writes of both posters.
fn two_posters_for_one(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[AT_ONCE, WAITS], move || {
        let w = World::new(sema, 0);
        let taker = w.spawn(|w| {
            w.take(2);
            w.read()
        });
        let poster = w.spawn(|w| {
            w.write();
            w.sema.post(1);
        });
        w.sema.post(1);
        poster.join().unwrap();
        assert_eq!(taker.join().unwrap(), 1);
        w.finish(0);
    });
}

/// Runs two requests for two permits each. A request that kept a single permit while it waits for the second could block
/// the other request for ever.
fn two_requests_for_two(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[AT_ONCE, WAITS], move || {
        let w = World::new(sema, 1);
        let both = |w: &World| {
            w.take(2);
            w.write();
            w.sema.post(2);
        };
        let others = [w.spawn(both), w.spawn(both)];
        w.sema.post(1);
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(w.read(), 2);
        w.finish(2);
    });
}

fn closing(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[TAKES, CLOSED_BEFORE, CLOSED], move || {
        let w = World::new(sema, 0);
        let takers = [w.spawn(World::take_unless_closed), w.spawn(World::take_unless_closed)];
        w.sema.post(1);
        w.sema.close();
        let taken: u32 = takers.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(taken <= 1);
        assert_eq!(w.take_unless_closed(), 0);
        assert!(!hasty_acquire(&*w.sema, 1));
    });
}

fn closing_at_a_deadline(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[CLOSED_BEFORE, CLOSED, CLOSED_AT_LAST, LEAVES_A_GAP], move || {
        let w = World::new(sema, 0);
        let patient = w.spawn(World::take_unless_closed);
        let hasty = w.spawn(|w| assert!(!hasty_acquire(&*w.sema, 1)));
        w.sema.close();
        assert_eq!(patient.join().unwrap(), 0);
        hasty.join().unwrap();
    });
}

fn one_post_for_two(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[AT_ONCE, WAITS, TWO_SLEEP], move || {
        let w = World::new(sema, 0);
        let takers = [(); 2].map(|()| {
            w.spawn(|w| {
                w.take(1);
                assert_eq!(w.read(), 1);
            })
        });
        w.write();
        w.sema.post(2);
        takers.into_iter().for_each(|t| t.join().unwrap());
        w.finish(0);
    });
}

/// Explores a taker and a poster twice: first the taker is the spawned thread, then the poster. Loom does not try all
/// orders otherwise: if a spawned taker only loads, loom never puts these loads after the post.
fn a_taker_and_a_poster(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[WAITS], move || {
        let w = World::new(sema, 0);
        let taker = w.spawn(|w| {
            w.take(1);
            w.read()
        });
        w.write();
        w.sema.post(1);
        assert_eq!(taker.join().unwrap(), 1);
        w.finish(0);
    });
    explore(preemptions, &[AT_ONCE], move || {
        let w = World::new(sema, 0);
        let poster = w.spawn(|w| {
            w.write();
            w.sema.post(1);
        });
        w.take(1);
        assert_eq!(w.read(), 1);
        poster.join().unwrap();
        w.finish(0);
    });
}

fn closing_for_one(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[CLOSED_BEFORE, CLOSED], move || {
        let w = World::new(sema, 0);
        let taker = w.spawn(World::take_unless_closed);
        w.sema.close();
        assert_eq!(taker.join().unwrap(), 0);
    });
}

/// Lets the taker of the last permits free the semaphore at once.
fn freed_by_the_last_taker<W: TicketWait, D: Doorway>(preemptions: usize, posters: u32) {
    explore(preemptions, &[AT_ONCE, SLEEPS, FREED_BEFORE, FREED_AFTER], move || {
        let sema = Mortal::<W, D>::new();
        let posters: Vec<_> = (0..posters).map(|_| sema.spawn_poster()).collect();
        assert_eq!(waiting(|| sema.get().acquire_many(posters.len() as u32)).0, Ok(()));
        sema.free();
        posters.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// Frees the semaphore as [`freed_by_the_last_taker`] does, after a waiter has given up.
fn freed_after_a_deadline<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, &[GIVES_UP, LEAVES_A_GAP, OVER_A_GAP, SLEEPS, FREED_AFTER], || {
        let sema = Mortal::<W, D>::new();
        assert!(!hasty_acquire(sema.get(), 1));
        let poster = sema.spawn_poster();
        assert_eq!(waiting(|| sema.get().acquire_many(1)).0, Ok(()));
        sema.free();
        poster.join().unwrap();
    });
}

/// Frees the semaphore as [`freed_by_the_last_taker`] does, while a waiter gives up.
fn freed_beside_a_deadline<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, &[IN_TIME, GIVES_UP, LEAVES_A_GAP, SLEEPS, FREED_AFTER], || {
        let sema = Mortal::<W, D>::new();
        let hasty = sema.clone();
        let hasty = thread::spawn(move || {
            if hasty_acquire(hasty.get(), 1) {
                hasty.get().post(1);
            }
        });
        let poster = sema.spawn_poster();
        assert_eq!(waiting(|| sema.get().acquire_many(1)).0, Ok(()));
        hasty.join().unwrap();
        sema.free();
        poster.join().unwrap();
    });
}

/// A semaphore that is destroyed before its memory is freed, so that only loom sees a later use.
///
/// The second field is the number of posters that have not returned. Counting is no step of the model.
struct Mortal<W, D>(Arc<UnsafeCell<MaybeUninit<TicketSema<W, D>>>>, Arc<AtomicU32>);

const FREED_BEFORE: &str = "it is freed before a poster returns";
const FREED_AFTER: &str = "it is freed when the posters have returned";

impl<W: TicketWait, D: Doorway> Clone for Mortal<W, D> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

impl<W: TicketWait, D: Doorway> Mortal<W, D> {
    fn new() -> Self {
        World::new(new_sema::<W, D>, 0); // makes the tables
        Self(Arc::new(UnsafeCell::new(MaybeUninit::new(TicketSema::new(0)))), Arc::new(AtomicU32::new(0)))
    }

    fn get(&self) -> &TicketSema<W, D> {
        // SAFETY: every caller calls `get` before `free`, so the semaphore is initialised.
        unsafe { (*self.0.get()).assume_init_ref() }
    }

    fn spawn_poster(&self) -> thread::JoinHandle<()> {
        self.1.fetch_add(1, Relaxed);
        let this = self.clone();
        thread::spawn(move || {
            // SAFETY: the taker of all permits frees the semaphore, and not before. The model tests that this is
            // enough.
            unsafe { TicketSema::post_raw(this.0.get().cast::<TicketSema<W, D>>(), 1) };
            this.1.fetch_sub(1, Relaxed);
        })
    }

    fn free(&self) {
        mark(if self.1.load(Relaxed) > 0 { FREED_BEFORE } else { FREED_AFTER });
        // SAFETY: `free` is called once, and the semaphore is initialised. The memory stays until the last thread has
        // gone.
        unsafe { (*self.0.get()).assume_init_drop() };
    }
}

/// Puts a sleeping thread and a sleeping goroutine into one bucket.
fn thread_and_goroutine(sema: NewSema, preemptions: usize) {
    explore(preemptions, &[AT_ONCE, SLEEPS, TWO_SLEEP], move || {
        let w = World::new(sema, 0);
        let others = [
            w.spawn(|w| w.take(1)),
            w.spawn(|w| {
                be_goroutine();
                w.take(1);
            }),
        ];
        w.sema.post(1);
        w.sema.post(1);
        others.into_iter().for_each(|t| t.join().unwrap());
        w.finish(0);
    });
}

trait Parts {
    type W: TicketWait;
    type D: Doorway;
}

impl<W: TicketWait, D: Doorway> Parts for TicketSema<W, D> {
    type W = W;
    type D = D;
}

macro_rules! models {
    ($($model:ident($($arg:expr),*);)*) => { $(
        #[test]
        fn $model() {
            super::$model(new_sema::<W, D>, $($arg),*);
        }
    )* };
}

macro_rules! of {
    ($Sema:ty) => {
        use super::*;
        type W = <$Sema as Parts>::W;
        type D = <$Sema as Parts>::D;
    };
}

/// The models of policies that sleep. The numbers are bounds of preemptions: for two threads that have two turns each,
/// for three threads, for models with deadlines, for four threads.
macro_rules! asleep {
    ($($name:ident: $Sema:ty, $two:expr, $three:expr, $deadline:expr, $four:expr;)*) => { $(mod $name {
        of!($Sema);
        models! {
            two_turns_each($two);
            three_threads($three);
            one_post_for_two($three);
            two_requests_for_two(std::cmp::max($four, 1));
            closing($deadline);
            a_deadline($deadline, 0);
            two_deadlines($deadline);
            posts_over_a_gap($three);
            a_deadline_of_a_request_for_two($deadline);
            closing_at_a_deadline($deadline);
            two_takers_two_posters($four);
            a_request_for_two($four);
        }
    })* };
}

asleep! {
    twa: Twa<SpinThenPark, 1, MixedHash<1>>, 4, 2, 2, 1;
    chain: TwaChain<SpinThenPark, 1, MixedHash<1>>, 4, 3, 2, 1;
    chain_systolic: TwaChain<SpinThenPark, 0, MixedHash<1>, true>, 4, 3, 2, 1;
    channel: TwaChannel<SpinThenPark, 1, MixedHash<1>>, 3, 2, 1, 0;
    location: TwaLocation<SpinThenPark, 1, MixedHash<1>>, 4, 3, 2, 1;
    benaphore: Benaphore<ChainWait<SpinThenPark, 1, MixedHash<1>>>, 5, 3, 2, 2;
    benaphore_on_bucket: Benaphore<BucketWait<SpinThenPark, 1, MixedHash<1>>>, 4, 2, 2, 1;
}

/// The models in which consecutive tickets are in different buckets.
macro_rules! apart {
    ($($name:ident: $Sema:ty;)*) => { $(mod $name {
        of!($Sema);
        models! {
            a_taker_and_a_poster(3);
            three_threads(2);
            one_post_for_two(3);
            two_requests_for_two(1);
            closing(2);
            a_deadline(1, 0);
            a_deadline_of_a_request_for_two(1);
        }
    })* };
}

apart! {
    twa_apart: Twa<SpinThenPark, 1, MixedHash<2>>;
    twa_0_apart: Twa<SpinThenPark, 0, MixedHash<2>>;
    chain_apart: TwaChain<SpinThenPark, 1, MixedHash<2>>;
    chain_0_apart: TwaChain<SpinThenPark, 0, MixedHash<2>>;
    chain_2_apart: TwaChain<SpinThenPark, 2, MixedHash<2>>;
    channel_apart: TwaChannel<SpinThenPark, 1, MixedHash<2>>;
    location_apart: TwaLocation<SpinThenPark, 1, MixedHash<2>>;
    location_0_apart: TwaLocation<SpinThenPark, 0, MixedHash<2>>;
    benaphore_apart: Benaphore<ChainWait<SpinThenPark, 1, MixedHash<2>>>;
}

mod channel_systolic {
    of!(TwaChannel<SpinThenPark, 0, MixedHash<1>, true>);
    models! {
        two_turns_each(3);
        three_threads(2);
        a_deadline(1, 0);
    }
}

/// The models of forms for study, which leave out or add an optional step of a listing.
macro_rules! study {
    ($($name:ident: $Sema:ty;)*) => { $(mod $name {
        of!($Sema);
        models! {
            two_turns_each(2);
            three_threads(1);
            a_deadline(1, 0);
        }
    })* };
}

study! {
    chain_without_a_look: TwaChain<SpinThenPark, 0, MixedHash<1>, true, false>;
    chain_without_an_undo: TwaChain<SpinThenPark, 0, MixedHash<1>, true, true, false>;
    channel_without_an_undo: TwaChannel<SpinThenPark, 0, MixedHash<1>, true, false>;
    location_that_guesses: TwaLocation<SpinThenPark, 0, MixedHash<1>, true, false>;
}

/// The models of chains that tell their waiters of a grant.
macro_rules! told {
    ($($name:ident: $DELEGATED:literal;)*) => { $(mod $name {
        of!(TicketSema<ToldWait<SpinThenPark, MixedHash<1>, $DELEGATED>>);
        models! {
            two_turns_each(3);
            three_threads(2);
            two_posters_for_one(2);
            closing(2);
            a_deadline(2, 0);
        }
    })* };
}

told! {
    told: false;
    delegated: true;
}

/// Checks the two ways in which a woken waiter is told of its grant, with two waiters in one chain and two posters.
#[test]
fn a_woken_waiter_is_told() {
    const TOLD: &str = "a waiter is told of its grant";
    explore_told::<false>(1, &[TWO_SLEEP, TOLD]);
    let pushed_back = ["a post pushes waiters back", "a post flushes what it has pushed back"];
    explore_told::<true>(2, &[TWO_SLEEP, TOLD, pushed_back[0], pushed_back[1]]);
}

fn explore_told<const DELEGATED: bool>(preemptions: usize, states: &[&'static str]) {
    explore(preemptions, states, || {
        let w = World::new(new_sema::<ToldWait<SpinThenPark, MixedHash<1>, DELEGATED>, Tickets>, 0);
        let others = [w.spawn(|w| w.take(1)), w.spawn(|w| w.take(1)), w.spawn(|w| w.sema.post(1))];
        w.sema.post(1);
        others.into_iter().for_each(|t| t.join().unwrap());
        w.finish(0);
    });
}

/// Lets a delegated post hold the element of a waiter that gives up. No later post wakes that waiter.
#[test]
fn a_delegated_post_meets_a_waiter_that_gives_up() {
    explore(2, &[WAITS, IN_TIME, GIVES_UP, "a post opens the gate of a waiter that gives up"], || {
        let w = World::new(new_sema::<ToldWait<SpinThenPark, MixedHash<1>, true>, Tickets>, 0);
        let (hasty, poster) = (w.spawn(World::hasty_turn), w.spawn(|w| w.sema.post(1)));
        w.take(1);
        poster.join().unwrap();
        hasty.join().unwrap();
        w.finish(0);
    });
}

/// A semaphore of an event count and a sequencer, as in the laboratory.
mod event_count_sema {
    use super::*;

    #[expect(clippy::arc_with_non_send_sync, reason = "loom's threads are one thread of the system")]
    fn turns<const POLITE: bool>() {
        explore(3, &[AT_ONCE, SLEEPS], || {
            let w = Arc::new((event_count::EventCountSema::<POLITE>::new(1), loom::cell::UnsafeCell::new(0)));
            let turn = |w: &(event_count::EventCountSema<POLITE>, loom::cell::UnsafeCell<u32>)| {
                waiting(|| w.0.acquire(Order::Fifo));
                // SAFETY: loom's cell checks that accesses do not overlap; the model tests this.
                w.1.with_mut(|data| unsafe { *data += 1 });
                w.0.release(Wake::Normal);
            };
            let other = {
                let w = w.clone();
                thread::spawn(move || (0..2).for_each(|_| turn(&w)))
            };
            (0..2).for_each(|_| turn(&w));
            other.join().unwrap();
            assert_eq!(w.0.wanted(), 0);
            assert!(w.0.try_acquire() && !w.0.try_acquire());
        });
    }

    #[test]
    fn two_turns_each() {
        turns::<false>();
        turns::<true>();
    }
}

mod twa_conservative {
    of!(TicketSema<Conservative<BucketWait<SpinThenPark, 1, MixedHash<2>>>>);
    models! {
        a_taker_and_a_poster(3);
        three_threads(1);
    }
}

/// The models of policies that never sleep, with one waiter at a time: loom does not end where two waiters yield to
/// each other.
macro_rules! awake {
    ($($name:ident: $Sema:ty;)*) => { $(mod $name {
        of!($Sema);
        models! {
            two_turns_each(4);
            a_taker_and_a_poster(4);
            closing_for_one(4);
            a_deadline(2, 1);
        }
    })* };
}

awake! {
    ticket: Ticket;
    twa_awake: Twa<SpinThenYield, 1, MixedHash<1>>;
    twa_0_awake: Twa<SpinThenYield, 0, MixedHash<1>>;
    chain_awake: TwaChain<SpinThenYield, 1, MixedHash<1>>;
    chain_systolic_awake: TwaChain<SpinThenYield, 0, MixedHash<1>, true>;
    channel_awake: TwaChannel<SpinThenYield, 1, MixedHash<1>>;
    location_awake: TwaLocation<SpinThenYield, 1, MixedHash<1>>;
}

macro_rules! mortal {
    ($($name:ident: $Sema:ty;)*) => { $(mod $name {
        of!($Sema);
        #[test]
        fn freed_by_the_last_taker() {
            assert!(!<$Sema>::OUTLIVES_GRANT);
            super::freed_by_the_last_taker::<W, D>(5, 1);
            super::freed_by_the_last_taker::<W, D>(2, 2);
        }
        #[test]
        fn freed_after_a_deadline() {
            super::freed_after_a_deadline::<W, D>(4);
        }
        #[test]
        fn freed_beside_a_deadline() {
            super::freed_beside_a_deadline::<W, D>(2);
        }
    })* };
}

mortal! {
    mortal_benaphore: Benaphore;
    mortal_benaphore_on_bucket: Benaphore<BucketWait>;
    mortal_chain: TwaChain;
    mortal_channel: TwaChannel;
    mortal_location: TicketSema<Conservative<LocationWait>>;
}

#[test]
fn threads_and_goroutines_in_one_bucket() {
    thread_and_goroutine(new_sema::<BucketWait<SpinThenPark, 1, MixedHash<1>>, Tickets>, 2);
}

const ONCE_USED_AFTER_IT_WAS_FREED: &str = "Causality violation";

must_fail! {
    twa_must_outlive_its_posts: ONCE_USED_AFTER_IT_WAS_FREED, {
        const { assert!(Twa::<SpinThenPark>::OUTLIVES_GRANT) };
        freed_by_the_last_taker::<BucketWait, Tickets>(3, 1);
    };
    twa_location_must_outlive_its_posts: ONCE_USED_AFTER_IT_WAS_FREED, {
        const { assert!(TwaLocation::<SpinThenPark>::OUTLIVES_GRANT) };
        freed_by_the_last_taker::<LocationWait, Tickets>(3, 1);
    };
}

/// The places in the code that read the tickets after a write, while another thread writes and reads in the other order
/// (a Dekker pair). Acquire and release are not enough there.
const OF_THE_LOOK: [&str; 4] = [
    "ticket_queue.rs, draw: fetch_add",
    "ticket_queue.rs, are_granted: load",
    "ticket_queue.rs, grant: compare_exchange",
    "ticket_queue.rs, grant: load",
];
/// The places with the same constants where no read of the tickets follows.
const WITHOUT_A_LOOK: [&str; 2] =
    ["ticket_queue.rs, try_draw: compare_exchange", "ticket_queue.rs, grant_slow: compare_exchange"];

#[test]
fn a_look_at_the_tickets_finds_the_waiter() {
    let test = concat!(module_path!(), "::a_look_at_the_tickets_finds_the_waiter");
    each_site(test, &OF_THE_LOOK, &WITHOUT_A_LOOK, || a_taker_and_a_poster(new_sema::<BucketWait, Tickets>, 4));
}

#[test]
fn a_look_at_the_tickets_finds_the_waiter_at_a_location() {
    let test = concat!(module_path!(), "::a_look_at_the_tickets_finds_the_waiter_at_a_location");
    each_site(test, &OF_THE_LOOK, &WITHOUT_A_LOOK, || a_taker_and_a_poster(new_sema::<LocationWait, Tickets>, 4));
}
