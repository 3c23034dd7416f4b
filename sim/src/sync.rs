//! The types of `std` that sleep in the system: a mutex, a condition variable, a cell that is filled once. Outside a
//! simulation they replace `std`'s types as well, as no threads contend there.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{LockResult, TryLockError, TryLockResult};
use std::time::{Duration, Instant};

use crate::atomic::AtomicU32;
use crate::futex;
use crate::time::now;

/// The counterpart of `std`'s `Mutex`, without poisoning. The state is 0: unlocked, 1: locked, 2: locked, and some
/// thread may sleep.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has locked the mutex accesses the value. So the lock hands the value from thread to
// thread.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// A guard that unlocks its mutex when it is dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(&'a Mutex<T>, std::marker::PhantomData<*const ()>);

// SAFETY: a shared guard gives access to the value by shared reference only, and T is Sync.
unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// The counterpart of `std`'s `new`.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// The counterpart of `std`'s `lock`.
    ///
    /// # Errors
    ///
    /// Never fails: nothing is poisoned.
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(self.lock_now())
    }

    #[track_caller]
    fn lock_now(&self) -> MutexGuard<'_, T> {
        if self.state.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            while self.state.swap(2, Acquire) != 0 {
                futex::wait(&self.state, 2, None);
            }
        }
        MutexGuard(self, std::marker::PhantomData)
    }

    /// The counterpart of `std`'s `try_lock`.
    ///
    /// # Errors
    ///
    /// Fails if the mutex is locked.
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.state.compare_exchange(0, 1, Acquire, Relaxed) {
            Ok(_) => Ok(MutexGuard(self, std::marker::PhantomData)),
            Err(_) => Err(TryLockError::WouldBlock),
        }
    }

    /// The counterpart of `std`'s `get_mut`.
    ///
    /// # Errors
    ///
    /// Never fails: nothing is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        Ok(self.value.get_mut())
    }

    /// The counterpart of `std`'s `into_inner`.
    ///
    /// # Errors
    ///
    /// Never fails: nothing is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        Ok(self.value.into_inner())
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.0.state.swap(0, Release) == 2 {
            futex::wake(&raw const self.0.state, 1);
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mutex is locked by the owner of this guard.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is locked by the owner of this guard, which is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

/// The counterpart of `std`'s `WaitTimeoutResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// The counterpart of `std`'s `timed_out`.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// The counterpart of `std`'s `Condvar`.
#[derive(Debug, Default)]
pub struct Condvar(AtomicU32);

impl Condvar {
    /// The counterpart of `std`'s `new`.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[track_caller]
    fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> (MutexGuard<'a, T>, bool) {
        let seen = self.0.load(Relaxed);
        let mutex = guard.0;
        drop(guard);
        let woken = futex::wait(&self.0, seen, deadline);
        (mutex.lock_now(), woken)
    }

    /// The counterpart of `std`'s `wait`.
    ///
    /// # Errors
    ///
    /// Never fails: nothing is poisoned.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        Ok(self.wait_until(guard, None).0)
    }

    /// The counterpart of `std`'s `wait_timeout`.
    ///
    /// # Errors
    ///
    /// Never fails: nothing is poisoned.
    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (guard, woken) = self.wait_until(guard, Some(now() + time));
        Ok((guard, WaitTimeoutResult(!woken)))
    }

    /// The counterpart of `std`'s `notify_one`.
    #[track_caller]
    pub fn notify_one(&self) {
        self.0.fetch_add(1, Release);
        futex::wake(&raw const self.0, 1);
    }

    /// The counterpart of `std`'s `notify_all`.
    #[track_caller]
    pub fn notify_all(&self) {
        self.0.fetch_add(1, Release);
        futex::wake(&raw const self.0, u32::MAX);
    }
}

/// The counterpart of `std`'s `OnceLock`.
#[derive(Debug)]
pub struct OnceLock<T> {
    /// The state of the cell. 0: empty, 1: being filled, 2: full.
    state: AtomicU32,
    filling: Mutex<()>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: a single thread writes the value before it sets `state` to full, and other threads only read the value after
// that.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        Self { state: AtomicU32::new(2), filling: Mutex::new(()), value: UnsafeCell::new(Some(value)) }
    }
}

impl<T> OnceLock<T> {
    /// The counterpart of `std`'s `new`.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: AtomicU32::new(0), filling: Mutex::new(()), value: UnsafeCell::new(None) }
    }

    /// The counterpart of `std`'s `get`.
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Acquire) != 2 {
            return None;
        }
        // SAFETY: the value is full, as the state is 2, and is not written again while it is borrowed.
        unsafe { &*self.value.get() }.as_ref()
    }

    /// The counterpart of `std`'s `take`.
    pub fn take(&mut self) -> Option<T> {
        *self.state.get_mut() = 0;
        self.value.get_mut().take()
    }

    /// The counterpart of `std`'s `get_or_init`.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let filling = self.filling.lock_now();
        if self.state.load(Acquire) != 2 {
            let value = init();
            // SAFETY: this thread holds the lock `filling`, and no reader accesses the value before the store to
            // `state` below.
            unsafe { *self.value.get() = Some(value) };
            self.state.store(2, Release);
            futex::wake(&raw const self.state, u32::MAX);
        }
        drop(filling);
        self.get().expect("it has been filled")
    }

    /// The counterpart of `std`'s `set`.
    ///
    /// # Errors
    ///
    /// Returns the value that was to be set, if the cell has been filled already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// The counterpart of `std`'s `wait`.
    pub fn wait(&self) -> &T {
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            let state = self.state.load(Acquire);
            if state != 2 {
                futex::wait(&self.state, state, None);
            }
        }
    }
}
