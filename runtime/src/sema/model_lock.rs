//! The lock that the models of the table use in place of [`CountedLock`](super::counted_lock): loom's lock and a
//! counter beside that. This lock does the same in more steps, but loom explores fewer of them. `CountedLock` has a model
//! of its own.

use std::ops::{Deref, DerefMut};

use crate::shim::{AtomicU32, Mutex, MutexGuard, Ordering};

pub(super) struct CountedLock<T> {
    count: AtomicU32,
    value: Mutex<T>,
}

pub(super) struct Guard<'a, T> {
    count: &'a AtomicU32,
    uncounted: u32,
    value: MutexGuard<'a, T>,
}

impl<T> CountedLock<T> {
    pub(super) fn new(value: T) -> Self {
        Self { count: AtomicU32::new(0), value: Mutex::new(value) }
    }

    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        Guard { count: &self.count, uncounted: 0, value: self.value.lock() }
    }

    pub(super) fn lock_and_count(&self) -> Guard<'_, T> {
        let guard = self.lock();
        self.count.fetch_add(1, Ordering::SeqCst);
        guard
    }
}

impl<T> Guard<'_, T> {
    pub(super) fn uncount(&mut self, n: u32) {
        self.uncounted += n;
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if self.uncounted > 0 {
            self.count.fetch_sub(self.uncounted, Ordering::Relaxed);
        }
    }
}
