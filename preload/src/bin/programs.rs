//! Real programs.
fn main() {}
