//! The locks of the feature `locks`, beyond what `conformance` checks of each.

mod capacitor;
mod spin_lock;
mod waiting_array;
