//! The bodies of the benchmarks. Go's side of each is in `lab/peers/go`, with the same structure.

pub mod chan;
pub mod context;
pub mod create;
pub mod load;
pub mod pingpong;
pub mod rest;
pub mod round;
pub mod sema;
pub mod sync;
pub mod talkers;
pub mod work;
pub mod x;

/// Returns a reference that goroutines may use for as long as they like. The value is never freed: Go's collector would
/// not free the value either in the life of a benchmark, and Go's side does not have the cost of counting references.
pub fn shared<T: Send + Sync>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
