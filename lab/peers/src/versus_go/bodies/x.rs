//! The types of `golang.org/x/sync`.

use std::convert::Infallible;
use std::hint::black_box;

use sudog_sync::context::background;
use sudog_sync::x::{ErrGroup, SingleFlight, Weighted};

use super::round::Round;
use super::shared;
use crate::rounds::Rounds;

/// Measures creating a semaphore.
pub fn semaphore_new(round: &mut Round, size: u64) {
    for _ in 0..round.n {
        black_box(Weighted::new(black_box(size)));
    }
}

/// Measures taking `tokens` tokens `times` times, and giving them back.
pub fn semaphore_acquire(round: &mut Round, size: u64, tokens: u64, times: usize) {
    let (semaphore, ctx) = (Weighted::new(size), background());
    for _ in 0..round.n {
        (0..times).for_each(|_| semaphore.acquire(black_box(&ctx), tokens).unwrap());
        (0..times).for_each(|_| semaphore.release(tokens));
    }
}

/// Measures taking `tokens` tokens `times` times without waiting, and giving them back.
pub fn semaphore_try_acquire(round: &mut Round, size: u64, tokens: u64, times: usize) {
    let semaphore = Weighted::new(size);
    for _ in 0..round.n {
        (0..times).for_each(|_| assert!(semaphore.try_acquire(tokens)));
        (0..times).for_each(|_| semaphore.release(tokens));
    }
}

/// Measures goroutines of a single group that do nothing.
pub fn err_group_go(round: &mut Round) {
    let group = ErrGroup::new();
    for _ in 0..round.n {
        group.go(|| Ok::<_, Infallible>(()));
    }
    group.wait().unwrap();
}

/// Measures calls that do nothing, with a key for each goroutine, or with the same key for all.
pub fn single_flight_do(round: &mut Round, same: bool) {
    let group = shared(SingleFlight::<&str, u64, Infallible>::new());
    round.divide(move |me, portion| {
        let key: &'static str = if same { "key" } else { me.to_string().leak() };
        portion.each(|| assert_eq!(group.do_(key, || Ok(42)).result, Ok(42)));
    });
}
