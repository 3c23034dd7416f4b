//! What `golang.org/x/sync` has.

use std::convert::Infallible;
use std::hint::black_box;

use sudog_sync::context::background;
use sudog_sync::x::{ErrGroup, SingleFlight, Weighted};

use super::round::Round;
use super::shared;
use crate::run::rounds::Rounds;

/// A new semaphore each time.
pub fn semaphore_new(round: &mut Round, size: u64) {
    for _ in 0..round.n {
        black_box(Weighted::new(black_box(size)));
    }
}

/// So many times so many tokens are taken, and given back.
pub fn semaphore_acquire(round: &mut Round, size: u64, tokens: u64, times: usize) {
    let (semaphore, ctx) = (Weighted::new(size), background());
    for _ in 0..round.n {
        (0..times).for_each(|_| semaphore.acquire(black_box(&ctx), tokens).unwrap());
        (0..times).for_each(|_| semaphore.release(tokens));
    }
}

/// The same without a wait.
pub fn semaphore_try_acquire(round: &mut Round, size: u64, tokens: u64, times: usize) {
    let semaphore = Weighted::new(size);
    for _ in 0..round.n {
        (0..times).for_each(|_| assert!(semaphore.try_acquire(tokens)));
        (0..times).for_each(|_| semaphore.release(tokens));
    }
}

/// Goroutines of one group that do nothing.
pub fn err_group_go(round: &mut Round) {
    let group = ErrGroup::new();
    for _ in 0..round.n {
        group.go(|| Ok::<_, Infallible>(()));
    }
    group.wait().unwrap();
}

/// Calls that do nothing, each goroutine for its own key or all for the same.
pub fn single_flight_do(round: &mut Round, same: bool) {
    let group = shared(SingleFlight::<&str, u64, Infallible>::new());
    round.divide(move |me, portion| {
        let key: &'static str = if same { "key" } else { me.to_string().leak() };
        portion.each(|| assert_eq!(group.do_(key, || Ok(42)).result, Ok(42)));
    });
}
