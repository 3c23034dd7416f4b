//! Functions by which a program tells the machine of stacks that the program makes: for code that switches between
//! stacks by itself, such as goroutines.
//!
//! Where schedules are explored, an access to a frame that does not exist any more fails the execution. Without these
//! functions the machine knows only the stacks of its own threads.

pub use crate::machine::freed::{begins, ends, resumes, suspends};
