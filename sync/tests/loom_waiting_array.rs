//! Models of the semaphores with a waiting array.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_waiting_array`
//!
//! A lost wake-up shows as a deadlock; a lost order as a data race in loom's cell; a permit lost or made at the end of
//! the model. A deadline has always passed already when somebody sleeps, so it races with everything that comes after
//! that.
//!
//! The tables have two buckets. `Mixed<1>` uses one, so all waiters collide; by `Mixed<2>` consecutive tickets are
//! apart. With one bucket the models of `NEAR` 0 and 1 are the same, as a policy that sleeps does so at once in a
//! model.
#![cfg(all(sudog_loom, feature = "waiting-array"))]

mod explore;
mod waiting_array;

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;

use explore::{explore, explore_in_time, must_fail};
use loom::thread;
use sudog_runtime::model::be_goroutine;
use sudog_sync::Semaphore;
use sudog_sync::semaphore::waiting_array::{
    Doorway, Fence, Mixed, OnBucket, OnChain, OnLocation, SpinThenPark, SpinThenYield, TicketSema, TicketWait, Tickets,
    without,
};
use sudog_sync::semaphore::{Benaphore, Ticket, Twa, TwaChain, TwaChannel, TwaLocation};
use waiting_array::{World, hasty_acquire};

fn two_turns_each<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(1);
        let other = w.spawn(|w| (0..2).for_each(|_| w.turn()));
        (0..2).for_each(|_| w.turn());
        other.join().unwrap();
        assert_eq!(w.read(), 4);
        w.finish(1);
    });
}

fn three_threads<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(1);
        let others = [w.spawn(World::turn), w.spawn(World::turn)];
        w.turn();
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(w.read(), 3);
        w.finish(1);
    });
}

fn two_takers_two_posters<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
        let others = [w.spawn(|w| w.take(1)), w.spawn(|w| w.take(1)), w.spawn(|w| w.sema.post(1))];
        w.sema.post(1);
        others.into_iter().for_each(|t| t.join().unwrap());
        w.finish(0);
    });
}

/// As a lock; of two who wait one gives up.
fn a_deadline<W: TicketWait, D: Doorway>(preemptions: usize, step: u64) {
    explore_in_time(preemptions, step, || {
        let w = World::<W, D>::new(0);
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

/// Who gives up may have had one of two permits: that goes to the next.
fn a_deadline_of_one_who_wants_two<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
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

/// Two have given up; the permits are for who comes, through the gap or past it.
fn posts_over_a_gap<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
        assert!(!w.hasty(1) && !w.hasty(1));
        let posters = [w.spawn(|w| w.sema.post(1)), w.spawn(|w| w.sema.post(1))];
        w.take(1);
        posters.into_iter().for_each(|t| t.join().unwrap());
        w.finish(1);
    });
}

fn two_deadlines<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
        let hasty = [w.spawn(World::hasty_turn), w.spawn(World::hasty_turn)];
        w.sema.post(1);
        let turns: u32 = hasty.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(w.read(), turns);
        w.finish(1);
    });
}

fn one_who_wants_two<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
        let others = [w.spawn(|w| w.take(2)), w.spawn(|w| w.take(1)), w.spawn(|w| w.sema.post(2))];
        w.sema.post(1);
        others.into_iter().for_each(|t| t.join().unwrap());
        w.finish(0);
    });
}

/// Were each to keep what it has found, each could have one.
fn two_who_want_two<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(1);
        let both = |w: &World<W, D>| {
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

fn closing<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
        let takers = [w.spawn(World::take_unless_closed), w.spawn(World::take_unless_closed)];
        w.sema.post(1);
        w.sema.close();
        let taken: u32 = takers.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(taken <= 1);
        assert_eq!(w.take_unless_closed(), 0);
        assert!(!hasty_acquire(&w.sema, 1));
    });
}

fn closing_at_a_deadline<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
        let patient = w.spawn(World::take_unless_closed);
        let hasty = w.spawn(|w| assert!(!hasty_acquire(&w.sema, 1)));
        w.sema.close();
        assert_eq!(patient.join().unwrap(), 0);
        hasty.join().unwrap();
    });
}

fn one_post_for_two<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
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

fn a_taker_and_a_poster<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
        let taker = w.spawn(|w| {
            w.take(1);
            w.read()
        });
        w.write();
        w.sema.post(1);
        assert_eq!(taker.join().unwrap(), 1);
        w.finish(0);
    });
}

fn closing_for_one<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
        let taker = w.spawn(World::take_unless_closed);
        w.sema.close();
        assert_eq!(taker.join().unwrap(), 0);
    });
}

/// The taker of the last permits frees the semaphore at once.
fn freed_by_the_last_taker<W: TicketWait, D: Doorway>(preemptions: usize, posters: u32) {
    explore(preemptions, move || {
        let sema = Mortal::<W, D>::new();
        let posters: Vec<_> = (0..posters).map(|_| sema.spawn_poster()).collect();
        assert_eq!(sema.get().acquire_many(posters.len() as u32), Ok(()));
        sema.free();
        posters.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// As above, after somebody has given up.
fn freed_after_a_deadline<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let sema = Mortal::<W, D>::new();
        assert!(!hasty_acquire(sema.get(), 1));
        let poster = sema.spawn_poster();
        assert_eq!(sema.get().acquire_many(1), Ok(()));
        sema.free();
        poster.join().unwrap();
    });
}

/// As above, while somebody gives up.
fn freed_beside_a_deadline<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let sema = Mortal::<W, D>::new();
        let hasty = sema.clone();
        let hasty = thread::spawn(move || {
            if hasty_acquire(hasty.get(), 1) {
                hasty.get().post(1);
            }
        });
        let poster = sema.spawn_poster();
        assert_eq!(sema.get().acquire_many(1), Ok(()));
        hasty.join().unwrap();
        sema.free();
        poster.join().unwrap();
    });
}

/// A semaphore that ends before its memory goes, so that a use after that is seen by loom only.
struct Mortal<W, D>(Arc<UnsafeCell<MaybeUninit<TicketSema<W, D>>>>);

impl<W: TicketWait, D: Doorway> Clone for Mortal<W, D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: TicketWait, D: Doorway> Mortal<W, D> {
    fn new() -> Self {
        World::<W, D>::new(0); // for the tables
        Self(Arc::new(UnsafeCell::new(MaybeUninit::new(TicketSema::new(0)))))
    }

    fn get(&self) -> &TicketSema<W, D> {
        // SAFETY: whoever calls it does so before `free`.
        unsafe { (*self.0.get()).assume_init_ref() }
    }

    fn spawn_poster(&self) -> thread::JoinHandle<()> {
        let this = self.clone();
        // SAFETY: it is freed by whoever has taken all permits; that this is enough is what is tested.
        thread::spawn(move || unsafe { TicketSema::post_raw(this.0.get().cast::<TicketSema<W, D>>(), 1) })
    }

    fn free(&self) {
        // SAFETY: called once. The memory stays until the last thread has gone.
        unsafe { (*self.0.get()).assume_init_drop() };
    }
}

/// A sleeping thread and a sleeping goroutine on one bucket.
fn thread_and_goroutine<W: TicketWait, D: Doorway>(preemptions: usize) {
    explore(preemptions, || {
        let w = World::<W, D>::new(0);
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
            super::$model::<W, D>($($arg),*);
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

/// Bounds of preemptions: for two threads that have two turns each, for three threads, for those of which some have
/// deadlines, for four threads.
macro_rules! asleep {
    ($($name:ident: $Sema:ty, $two:expr, $three:expr, $deadline:expr, $four:expr;)*) => { $(mod $name {
        of!($Sema);
        models! {
            two_turns_each($two);
            three_threads($three);
            one_post_for_two($three);
            two_who_want_two($four);
            closing($deadline);
            a_deadline($deadline, 0);
            two_deadlines($deadline);
            posts_over_a_gap($three);
            a_deadline_of_one_who_wants_two($deadline);
            closing_at_a_deadline($deadline);
            two_takers_two_posters($four);
            one_who_wants_two($four);
        }
    })* };
}

asleep! {
    twa: Twa<SpinThenPark, 1, Mixed<1>>, 4, 2, 2, 1;
    chain: TwaChain<SpinThenPark, 1, Mixed<1>>, 4, 3, 2, 1;
    channel: TwaChannel<SpinThenPark, 1, Mixed<1>>, 3, 2, 1, 0;
    location: TwaLocation<SpinThenPark, 1, Mixed<1>>, 4, 3, 2, 1;
    benaphore: Benaphore<OnChain<SpinThenPark, 1, Mixed<1>>>, 5, 3, 2, 2;
    benaphore_on_bucket: Benaphore<OnBucket<SpinThenPark, 1, Mixed<1>>>, 4, 2, 2, 1;
}

/// Consecutive tickets in different buckets.
macro_rules! apart {
    ($($name:ident: $Sema:ty;)*) => { $(mod $name {
        of!($Sema);
        models! {
            a_taker_and_a_poster(3);
            three_threads(2);
            one_post_for_two(3);
            two_who_want_two(1);
            closing(2);
            a_deadline(1, 0);
            a_deadline_of_one_who_wants_two(1);
        }
    })* };
}

apart! {
    twa_apart: Twa<SpinThenPark, 1, Mixed<2>>;
    twa_0_apart: Twa<SpinThenPark, 0, Mixed<2>>;
    chain_apart: TwaChain<SpinThenPark, 1, Mixed<2>>;
    chain_0_apart: TwaChain<SpinThenPark, 0, Mixed<2>>;
    chain_2_apart: TwaChain<SpinThenPark, 2, Mixed<2>>;
    channel_apart: TwaChannel<SpinThenPark, 1, Mixed<2>>;
    location_apart: TwaLocation<SpinThenPark, 1, Mixed<2>>;
    location_0_apart: TwaLocation<SpinThenPark, 0, Mixed<2>>;
    benaphore_apart: Benaphore<OnChain<SpinThenPark, 1, Mixed<2>>>;
}

/// Policies that never sleep. One waiter at a time: loom does not end where two yield to each other.
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
    twa_awake: Twa<SpinThenYield, 1, Mixed<1>>;
    twa_0_awake: Twa<SpinThenYield, 0, Mixed<1>>;
    chain_awake: TwaChain<SpinThenYield, 1, Mixed<1>>;
    channel_awake: TwaChannel<SpinThenYield, 1, Mixed<1>>;
    location_awake: TwaLocation<SpinThenYield, 1, Mixed<1>>;
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
        models! {
            freed_after_a_deadline(4);
            freed_beside_a_deadline(2);
        }
    })* };
}

mortal! {
    mortal_benaphore: Benaphore;
    mortal_benaphore_on_bucket: Benaphore<OnBucket>;
    mortal_chain: TwaChain;
    mortal_channel: TwaChannel;
}

#[test]
fn threads_and_goroutines_in_one_bucket() {
    thread_and_goroutine::<OnBucket<SpinThenPark, 1, Mixed<1>>, Tickets>(2);
}

const ONCE_USED_AFTER_IT_WAS_FREED: &str = "Causality violation";

must_fail! {
    twa_must_outlive_its_posts: ONCE_USED_AFTER_IT_WAS_FREED, {
        const { assert!(Twa::<SpinThenPark>::OUTLIVES_GRANT) };
        freed_by_the_last_taker::<OnBucket, Tickets>(3, 1);
    };
    twa_location_must_outlive_its_posts: ONCE_USED_AFTER_IT_WAS_FREED, {
        const { assert!(TwaLocation::<SpinThenPark>::OUTLIVES_GRANT) };
        freed_by_the_last_taker::<OnLocation, Tickets>(3, 1);
    };
}

/// The look at the tickets is a Dekker pair: acquire and release are not enough for it.
fn without_fence<W: TicketWait>(missing: Option<Fence>) {
    without(missing);
    a_taker_and_a_poster::<W, Tickets>(4);
}

#[test]
fn a_look_at_the_tickets_finds_who_waits() {
    without_fence::<OnBucket>(None);
    without_fence::<OnLocation>(None);
}

must_fail! {
    twa_needs_a_fence_after_the_ticket: "deadlock", without_fence::<OnBucket>(Some(Fence::AfterTicket));
    twa_needs_a_fence_after_the_grant: "deadlock", without_fence::<OnBucket>(Some(Fence::AfterGrant));
    twa_location_needs_a_fence_after_the_ticket: "deadlock", without_fence::<OnLocation>(Some(Fence::AfterTicket));
    twa_location_needs_a_fence_after_the_grant: "deadlock", without_fence::<OnLocation>(Some(Fence::AfterGrant));
}
