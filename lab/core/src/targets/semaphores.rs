//! The semaphores that locks are built on, by name.

#[cfg(target_os = "linux")]
mod sem_t;

#[cfg(target_os = "linux")]
pub use sem_t::SemT;

use serde::Serialize;
use sudog_locks::waiting_array::{Benaphore, Ticket, Twa, TwaChain, TwaChannel, TwaLocation};
use sudog_locks::waiting_array::{BucketWait, MixedHash, PairedHash, PlainHash, Spin, SpinThenPark, SpinThenYield};
use sudog_sync::Semaphore;
#[cfg(target_os = "linux")]
use sudog_sync::semaphore::FutexSema;
use sudog_sync::semaphore::{ParkingLotSema, RuntimeSema};

use crate::targets::registry::registry;

registry! {
    /// The name of a semaphore.
    enum SemaphoreName;
    /// A job on a semaphore of any type.
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
    Benaphore = "benaphore": Benaphore,
        "a count in front of a line of tickets; waiters sleep in chains";
    BenaphoreTwa = "benaphore+twa": Benaphore<BucketWait>,
        "a count in front of a line of tickets; waiters watch buckets";
    Ticket = "ticket": Ticket,
        "listing 1: all watch the grant, and yield";
    Twa = "twa": Twa,
        "listing 2: waiters watch and sleep on buckets, the next one the grant";
    TwaFar = "twa-far": Twa<SpinThenPark, 0>,
        "listing 2 with a threshold of 0: no waiter watches the grant";
    TwaChain = "twa-chain": TwaChain,
        "listing 3: waiters sleep in chains";
    TwaChannel = "twa-channel": TwaChannel,
        "listing 4: waiters sleep in chains until a sequence changes";
    TwaLocation = "twa-location": TwaLocation,
        "listing 5: waiters enlist at locations";
    TicketSpin = "ticket-spin": Ticket<Spin>,
        "listing 1 as printed: all watch the grant, and spin";
    TwaSpin = "twa-spin": Twa<Spin, 1, PlainHash>,
        "listing 2 as printed: waiters spin on buckets, the next one on the grant";
    TwaChainSpin = "twa-chain-spin": TwaChain<Spin>,
        "listing 3, spinning";
    TwaYield = "twa-yield": Twa<SpinThenYield>,
        "listing 2, yielding";
    TwaChainYield = "twa-chain-yield": TwaChain<SpinThenYield>,
        "listing 3, yielding";
    #[cfg(target_os = "linux")]
    SemT = "sem_t": SemT,
        "sem_t of the C library";
    TwaSpin0 = "twa-spin-0": Twa<Spin, 0, PlainHash>,
        "listing 2 as printed, with a threshold of 0: no waiter watches the grant";
    TwaSpin2 = "twa-spin-2": Twa<Spin, 2, PlainHash>,
        "with a threshold of 2: the next two spin on the grant";
    TwaSpin4 = "twa-spin-4": Twa<Spin, 4, PlainHash>,
        "with a threshold of 4";
    TwaSpin8 = "twa-spin-8": Twa<Spin, 8, PlainHash>,
        "with a threshold of 8";
    Twa2 = "twa-2": Twa<SpinThenPark, 2>,
        "listing 2 with a threshold of 2: the next two watch the grant for a while";
    Twa4 = "twa-4": Twa<SpinThenPark, 4>,
        "with a threshold of 4";
    Twa8 = "twa-8": Twa<SpinThenPark, 8>,
        "with a threshold of 8";
    TwaSpinPaired = "twa-spin-paired": Twa<Spin, 1, PairedHash>,
        "listing 2, spinning, with two consecutive tickets to a bucket";
    TwaSpinMixed = "twa-spin-mixed": Twa<Spin, 1, MixedHash>,
        "the same with a bucket for each";
    TwaPaired = "twa-paired": Twa<SpinThenPark, 1, PairedHash>,
        "listing 2 with two consecutive tickets to a bucket";
}

impl SemaphoreName {
    /// The semaphores of Listing 2 with thresholds and hashes that are for study.
    pub const STUDY: [Self; 10] = [
        Self::TwaSpin0,
        Self::TwaSpin2,
        Self::TwaSpin4,
        Self::TwaSpin8,
        Self::Twa2,
        Self::Twa4,
        Self::Twa8,
        Self::TwaSpinPaired,
        Self::TwaSpinMixed,
        Self::TwaPaired,
    ];

    /// Returns all semaphores except those for study.
    #[must_use]
    pub fn usual() -> Vec<Self> {
        Self::ALL.iter().copied().filter(|sema| !Self::STUDY.contains(sema)).collect()
    }
}

impl SemaphoreName {
    /// Returns whether a goroutine that waits for the semaphore blocks the thread of its worker, and with the thread
    /// all other goroutines there.
    #[must_use]
    pub fn blocks_threads(self) -> bool {
        match self {
            Self::ParkingLotCore => true,
            #[cfg(target_os = "linux")]
            Self::Futex | Self::SemT => true,
            _ => false,
        }
    }
}

/// The abilities and limits of a semaphore: the constants of [`Semaphore`], and more.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct SemaphoreFacts {
    /// The size of the semaphore. Memory that the semaphore keeps elsewhere is not counted.
    pub bytes: usize,
    /// The value of [`Semaphore::LIFO`].
    pub lifo: bool,
    /// The value of [`Semaphore::FIFO`].
    pub fifo: bool,
    /// The value of [`Semaphore::HANDOFF`].
    pub handoff: bool,
    /// The value of [`Semaphore::DEADLINES`].
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
