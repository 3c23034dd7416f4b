//! The mutex of the operating system.

use std::sync::{PoisonError, TryLockError};

use super::system;

/// A lock that sleeps in the kernel: `std`'s mutex, which is small, usable in a `static`, and allocates nothing on
/// systems where that mutex is a futex.
pub struct Mutex<T>(system::Mutex<T>);

pub type MutexGuard<'a, T> = system::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(system::Mutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // User code does not run under these locks, so nothing panics under them; and a queue is consistent between any
        // two of its steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()), // as in `lock`
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
