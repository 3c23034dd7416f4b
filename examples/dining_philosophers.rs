//! Five philosophers, five forks: each philosopher takes the fork with the lower number first, so no circle of waiters
//! can form.
//!
//! `cargo run --example dining_philosophers`. After Go's classic exercise with a `sync.Mutex` for each fork. If each
//! philosopher takes the left fork first, the program may end with Go's message, "all goroutines are asleep -
//! deadlock!", and a list of the forks that the philosophers wait for.

use std::sync::Arc;

use sudog::prelude::*;
use sudog::runtime::gosched;

const PHILOSOPHERS: usize = 5;
const MEALS: u32 = 100;

static FORKS: [Mutex<u32>; PHILOSOPHERS] = [const { Mutex::new(0) }; PHILOSOPHERS];

fn dine(seat: usize) {
    let (left, right) = (seat, (seat + 1) % PHILOSOPHERS);
    let (first, second) = (left.min(right), left.max(right));
    for _ in 0..MEALS {
        let mut one = FORKS[first].lock();
        gosched(); // the worst moment
        let mut other = FORKS[second].lock();
        *one += 1;
        *other += 1;
    }
}

fn main() {
    sudog::run(|| {
        let dinner = Arc::new(WaitGroup::new());
        for seat in 0..PHILOSOPHERS {
            dinner.go(move || dine(seat));
        }
        dinner.wait();
    });
    for (n, fork) in FORKS.iter().enumerate() {
        println!("fork {n} was used {} times", *fork.lock());
        assert_eq!(*fork.lock(), 2 * MEALS);
    }
}
