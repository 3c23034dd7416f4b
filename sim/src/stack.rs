//! What a program tells of stacks that it makes, for code that switches between stacks by itself: goroutines.
//!
//! Where schedules are explored, an access to a frame that is no more fails the execution. Without this the machine knows the
//! stacks of its own threads only.

pub use crate::machine::freed::{begins, ends, resumes, suspends};
