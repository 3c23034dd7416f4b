//! What the benchmarks do here. Go's side of each is in `lab/go`, with the same structure.

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

/// Something that goroutines refer to for as long as they like. It is never freed: Go's collector would not get to it
/// either in the life of a benchmark, and a count of references is a cost that Go's side does not have.
pub fn shared<T: Send + Sync>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
