//! Waits that must not allocate: each wait is the first wait of its thread, under an allocator that counts.
#![cfg(not(sudog_loom))]

mod chan;
mod context;
mod mutex;
#[cfg(all(unix, target_pointer_width = "64"))]
mod tasks;
mod waits;

use std::hint::black_box;

use support::counting::without_allocating;

#[test]
#[should_panic = "allocations where there must be none"]
fn the_allocator_counts() {
    without_allocating(|| drop(black_box(Box::new(1))));
}
