//! Runs a function once: [`Once`], and the functions that Go derived from `Once` in 1.21.

mod state;
#[cfg(not(sudog_loom))]
mod value;
#[cfg(not(sudog_loom))]
mod variants;

pub use state::Once;
#[cfg(not(sudog_loom))]
pub use value::{OnceValue, once_value};
#[cfg(not(sudog_loom))]
pub use variants::{OnceFunc, OnceValues, once_func, once_values};
