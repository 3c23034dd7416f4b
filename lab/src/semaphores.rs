//! The semaphores that locks are built on, by name.

use serde::Serialize;
use sudog_sync::Semaphore;
#[cfg(target_os = "linux")]
use sudog_sync::semaphore::FutexSema;
use sudog_sync::semaphore::{ParkingLotSema, RuntimeSema};

use crate::registry::registry;

registry! {
    /// The name of a semaphore.
    enum SemaphoreName;
    /// Something to do with a semaphore, whichever it is.
    trait SemaphoreJob over Semaphore;
    fn with_semaphore;
    unknown "semaphore";

    Runtime = "runtime": RuntimeSema,
        "Go's runtime semaphore: waiters in the global table of sudog treaps";
    ParkingLotCore = "parking_lot_core": ParkingLotSema,
        "waiters in parking_lot_core's table";
    #[cfg(target_os = "linux")]
    Futex = "futex": FutexSema,
        "waiters in the kernel's futex table";
}

impl SemaphoreName {
    /// Whether a goroutine that waits for it blocks the thread of its worker, and with it all others there.
    #[must_use]
    pub fn blocks_threads(self) -> bool {
        self != Self::Runtime
    }
}

/// What a semaphore can and cannot do: the constants of [`Semaphore`], and more.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct SemaphoreFacts {
    /// Its size; what it keeps elsewhere is not counted.
    pub bytes: usize,
    /// [`Semaphore::LIFO`].
    pub lifo: bool,
    /// [`Semaphore::FIFO`].
    pub fifo: bool,
    /// [`Semaphore::HANDOFF`].
    pub handoff: bool,
    /// [`Semaphore::DEADLINES`].
    pub deadlines: bool,
    /// See [`SemaphoreName::blocks_threads`].
    pub blocks_threads: bool,
}

impl SemaphoreFacts {
    /// The facts of one semaphore.
    #[must_use]
    pub fn of(name: SemaphoreName) -> Self {
        struct Ask(SemaphoreName);
        impl SemaphoreJob for Ask {
            type Out = SemaphoreFacts;
            fn run<S: Semaphore>(self) -> SemaphoreFacts {
                SemaphoreFacts {
                    bytes: size_of::<S>(),
                    lifo: S::LIFO,
                    fifo: S::FIFO,
                    handoff: S::HANDOFF,
                    deadlines: S::DEADLINES,
                    blocks_threads: self.0.blocks_threads(),
                }
            }
        }
        with_semaphore(name, Ask(name))
    }
}
