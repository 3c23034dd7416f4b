//! The commands of the laboratory.

pub mod compare;
pub mod list;
pub mod logged;
pub mod mutexbench;
pub mod page;
pub mod plan;
pub mod rwbench;
pub mod semabench;
pub mod summary;
pub mod uncontended;
