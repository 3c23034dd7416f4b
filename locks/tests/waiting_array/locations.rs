//! Waiting at a location, and the forbidden cases of listing 5.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use sudog_locks::waiting_array::{LocationWaiter, location_wait, location_wake_all};
use sudog_runtime::model::thread;
use sudog_runtime::reached::{AT_ONCE, SLEEPS, TIME_IS_UP, TWO_SLEEP, mark, waiting};

use super::{Flag, soon};
use crate::explore::{HERE, THERE, explore, must_fail};

fn wait_at(waiter: &mut LocationWaiter, place: usize, flag: &Flag) {
    while !flag.is_up() {
        waiting(|| location_wait(waiter, place));
    }
}

fn wait(place: usize) -> impl FnOnce(&Flag) {
    move |flag| wait_at(&mut LocationWaiter::new(), place, flag)
}

fn raise_and_wake(flag: &Flag, place: usize) {
    flag.raise();
    location_wake_all(place);
}

#[test]
fn all_at_a_location_are_woken() {
    explore(3, &[SLEEPS, TWO_SLEEP], || {
        let flag = Flag::new();
        let waiters = [flag.spawn(wait(HERE)), flag.spawn(wait(HERE))];
        raise_and_wake(&flag, HERE);
        waiters.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// Lets a waiter move to another location, while it is still enlisted or is just being woken.
#[test]
fn moving() {
    explore(3, &[SLEEPS, TWO_SLEEP], || {
        let (here, there) = (Flag::new(), Flag::new());
        let stays = here.spawn(wait(HERE));
        let moves = there.spawn(|there| {
            let mut waiter = LocationWaiter::new();
            waiting(|| waiter.wait(HERE));
            wait_at(&mut waiter, THERE, there);
        });
        raise_and_wake(&here, HERE);
        raise_and_wake(&there, THERE);
        stays.join().unwrap();
        moves.join().unwrap();
    });
}

#[test]
fn a_deadline_leaves_it_enlisted() {
    explore(3, &[SLEEPS, TIME_IS_UP], || {
        let flag = Flag::new();
        let waiter = flag.spawn(|flag| {
            let mut waiter = LocationWaiter::new();
            waiting(|| waiter.wait(HERE));
            waiting(|| waiter.wait_until(HERE, soon()));
            wait_at(&mut waiter, HERE, flag);
        });
        raise_and_wake(&flag, HERE);
        waiter.join().unwrap();
    });
}

/// Runs listing 5 without its destructor, which has to remove the element of a thread that ends from the chain. Here
/// the element goes back to the pool and is used again, at the same location or at another.
#[test]
fn an_element_is_left_where_it_is() {
    for second in [HERE, THERE] {
        explore(3, &[SLEEPS, TWO_SLEEP], move || {
            let (flag, other) = (Flag::new(), Flag::new());
            let waiters = [flag.spawn(wait(HERE)), other.spawn(wait(second))];
            raise_and_wake(&flag, HERE);
            raise_and_wake(&other, second);
            waiters.into_iter().for_each(|t| t.join().unwrap());
        });
    }
}

/// Lets a waiter test its condition, and then take an element that another thread has just left in the same place.
#[test]
fn a_waiter_with_an_enlisted_element_tests_again_first() {
    explore(3, &[SLEEPS, AT_ONCE], || {
        let flag = Flag::new();
        let waiter = flag.spawn(|flag| {
            while !flag.is_up() {
                let mut waiter = LocationWaiter::new();
                while !flag.is_up() {
                    waiting(|| waiter.wait(HERE));
                }
            }
        });
        let leaves_one = thread::spawn(|| _ = waiting(|| LocationWaiter::new().wait(HERE)));
        raise_and_wake(&flag, HERE);
        waiter.join().unwrap();
        leaves_one.join().unwrap();
    });
}

/// A ticket semaphore over locations. `AHEAD` is the distance from the granted ticket to the ticket that a post wakes.
fn listing_5<const AHEAD: u64>(preemptions: usize) {
    explore(preemptions, &[SLEEPS, TWO_SLEEP], || {
        let next = Arc::new(AtomicU64::new(0));
        let grant = Arc::new(AtomicU64::new(0));
        let takers = [(); 2].map(|()| {
            let (next, grant) = (next.clone(), grant.clone());
            thread::spawn(move || {
                let ticket = next.fetch_add(1, AcqRel);
                let mut waiter = LocationWaiter::new();
                while grant.load(Acquire) <= ticket {
                    waiting(|| waiter.wait(ticket as usize));
                }
            })
        });
        for _ in 0..2 {
            let ticket = grant.fetch_add(1, AcqRel);
            location_wake_all((ticket + AHEAD) as usize);
        }
        takers.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn a_post_wakes_the_ticket_that_it_grants() {
    listing_5::<0>(3);
}

must_fail! {
    /// The listing's conservative post: takers wait for their own ticket, but the post wakes the ticket after that.
    a_post_must_not_wake_another_ticket: "deadlock", listing_5::<1>(2);
}

const WAITS: &str = "the waiter waits";
const LEAVES: &str = "the waiter leaves when its element is in";
const IS_IN: &str = "the waiter is woken by its element";

/// Listing 5's chain with one element. The memory of the element ends with its waiter, even if the chain still has it.
struct Printed {
    ready: AtomicBool,
    top: AtomicPtr<Element>,
    element: UnsafeCell<Element>,
}

struct Element {
    gate: AtomicU32,
    below: AtomicPtr<Element>,
}

// SAFETY: all accesses except the freeing are atomic, and loom checks the freeing.
unsafe impl Sync for Printed {}
// SAFETY: all accesses except the freeing are atomic, and loom checks the freeing.
unsafe impl Send for Printed {}

impl Printed {
    fn new() -> Self {
        Self {
            ready: AtomicBool::new(false),
            top: AtomicPtr::new(ptr::null_mut()),
            element: UnsafeCell::new(Element { gate: AtomicU32::new(0), below: AtomicPtr::new(ptr::null_mut()) }),
        }
    }

    /// Waits for `ready`. With `destructor`, the waiter takes the element out first, or waits for its wake-up.
    fn wait(&self, destructor: bool) {
        let me = self.element.get();
        // SAFETY: the element is not freed before the end of this function.
        let e = unsafe { &*me };
        if !self.ready.load(Acquire) {
            e.below.store(self.top.load(Relaxed), Relaxed);
            self.top.swap(me, AcqRel);
            let leave = self.ready.load(Acquire);
            if leave && destructor {
                self.wake_all();
            }
            while (!leave || destructor) && e.gate.load(Acquire) == 0 {
                mark(WAITS);
                thread::yield_now();
            }
            mark(if leave { LEAVES } else { IS_IN });
        } else {
            mark(AT_ONCE);
        }
        // The waiter ends, and its element with it: no thread uses the element any more.
        // SAFETY: loom checks that no other thread uses `me`. The memory itself stays.
        let e = unsafe { &mut *me };
        e.gate.with_mut(|_| ());
        e.below.with_mut(|_| ());
    }

    fn wake_all(&self) {
        let e = self.top.swap(ptr::null_mut(), AcqRel);
        if !e.is_null() {
            // SAFETY: `e` is in the chain, so its element is not freed; the model tests this.
            let e = unsafe { &*e };
            assert!(e.below.load(Relaxed).is_null());
            e.gate.store(1, Release);
        }
    }

    fn model(destructor: bool) {
        explore(3, &[AT_ONCE, WAITS, LEAVES, IS_IN], move || {
            let printed = Arc::new(Self::new());
            let waiter = {
                let printed = printed.clone();
                thread::spawn(move || printed.wait(destructor))
            };
            printed.ready.store(true, Release);
            printed.wake_all();
            waiter.join().unwrap();
        });
    }
}

#[test]
fn an_element_that_goes_with_its_waiter_must_be_taken_out() {
    Printed::model(true);
}

must_fail! {
    an_element_must_not_go_while_it_is_enlisted: "Causality violation", Printed::model(false);
}
