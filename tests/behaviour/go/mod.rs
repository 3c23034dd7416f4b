//! Go's tests of `sync`, `context` and `golang.org/x/sync`. `tests/go/parity.tsv` lists them.

mod chan;
mod cond;
mod context;
mod err_group;
mod map;
mod mutex;
mod once;
mod parity;
mod pool;
mod rate;
mod rw_mutex;
mod single_flight;
mod wait_group;
mod weighted;
