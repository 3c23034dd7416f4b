//! The targets of measurements: locks, readers-writer locks, semaphores and floors, by name.

pub mod compose;
pub mod locks;
pub mod models;
pub mod policies;
pub mod queues;
pub mod registry;
pub mod rw_locks;
pub mod semaphores;
pub mod target;
