//! Criterion benches of what `cargo lab` and `cargo instructions` do not measure: `cargo bench -p sudog-benches`.
