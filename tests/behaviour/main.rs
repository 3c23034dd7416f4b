//! Behaviour tests through the facade: one process for all tests that do not change settings of the process. TESTING.md
//! lists the tests that do.
#![cfg(not(sudog_loom))]
#![cfg_attr(
    unix,
    expect(clippy::extra_unused_type_parameters, reason = "not every check over threads and goroutines makes any")
)]

mod auto_traits;
mod context;
mod go;
mod kinds_in_line;
mod locks;
mod map;
mod map_histories;
mod sema;
mod serde;
mod thread_end;
mod tokio;

use std::hint::black_box;

use support::counting::without_allocating;

#[test]
#[should_panic = "allocations where there must be none"]
fn the_allocator_counts() {
    without_allocating(|| drop(black_box(Box::new(1))));
}
