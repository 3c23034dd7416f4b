//! The locks under comparison: those of this project, and adapters that make every peer a [`RawLock`].

mod parking_lot;
#[cfg(unix)]
mod pthread;
mod std_mutex;

pub use parking_lot::{ParkingLot012, ParkingLot013};
#[cfg(unix)]
pub use pthread::Pthread;
pub use std_mutex::StdMutex;

use serde::Serialize;
#[cfg(target_os = "linux")]
use sudog_locks::capacitor::Bounded;
use sudog_locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, Spin, SpinThenYield, TicketLock, Tts};
use sudog_locks::waiting_array::{Benaphore, Ticket, Twa, TwaChain, TwaChannel, TwaLocation};
#[cfg(target_os = "linux")]
use sudog_sync::semaphore::FutexSema;
use sudog_sync::semaphore::{ParkingLotSema, RuntimeSema};
use sudog_sync::{
    GoMutex, RawLock,
    mutex::{policy, stages},
};

use crate::targets::models;
use crate::targets::registry::registry;

registry! {
    /// The name of a lock.
    enum LockName;
    /// A job on a lock of any type.
    trait Job over RawLock;
    fn with_lock;
    unknown "lock";

    Sudog = "sudog": GoMutex<RuntimeSema>,
        "the Go mutex with the default policy, over the runtime's semaphore table";
    SudogGo114 = "sudog/go-1.14": GoMutex<RuntimeSema, policy::Go>,
        "the Go mutex with Go's own constants, over the runtime's semaphore table";
    SudogParkingLotCore = "sudog+parking_lot_core": GoMutex<ParkingLotSema>,
        "the Go mutex with the default policy, over parking_lot_core's table";
    #[cfg(target_os = "linux")]
    SudogFutex = "sudog+futex": GoMutex<FutexSema>,
        "the Go mutex with the default policy, over the kernel's futex table";
    SudogBenaphore = "sudog+benaphore": GoMutex<Benaphore>,
        "the Go mutex with the default policy, over the benaphore";
    SudogTicket = "sudog+ticket": GoMutex<Ticket>,
        "the Go mutex with the default policy, over the ticket semaphore";
    SudogTwa = "sudog+twa": GoMutex<Twa>,
        "the Go mutex with the default policy, over the TWA semaphore";
    SudogTwaChain = "sudog+twa-chain": GoMutex<TwaChain>,
        "the Go mutex with the default policy, over waiting chains";
    SudogTwaChannel = "sudog+twa-channel": GoMutex<TwaChannel>,
        "the Go mutex with the default policy, over waiting channels";
    SudogTwaLocation = "sudog+twa-location": GoMutex<TwaLocation>,
        "the Go mutex with the default policy, over waiting locations";
    Std = "std": StdMutex,
        "std::sync::Mutex, poisoning included";
    ParkingLot012 = "parking_lot_0_12": ParkingLot012<false>,
        "parking_lot 0.12, unlock";
    ParkingLot012Fair = "parking_lot_0_12_fair": ParkingLot012<true>,
        "parking_lot 0.12, unlock_fair";
    ParkingLot013 = "parking_lot_0_13": ParkingLot013<false>,
        "parking_lot 0.13, unlock";
    ParkingLot013Fair = "parking_lot_0_13_fair": ParkingLot013<true>,
        "parking_lot 0.13, unlock_fair";
    #[cfg(unix)]
    Pthread = "pthread": Pthread,
        "pthread_mutex_t of the C library, default attributes";
    SudogGo19 = "sudog/go-1.9": GoMutex<RuntimeSema, policy::Go1_9>,
        "the Go mutex of 1.9 to 1.13: a handoff does not yield the processor";
    SudogGo18 = "sudog/go-1.8": GoMutex<RuntimeSema, policy::Go1_8>,
        "the Go mutex of 1.8: no starvation mode";
    SudogFifo = "sudog/fifo": GoMutex<RuntimeSema, policy::Fifo>,
        "the Go mutex, first come, first served";
    #[cfg(target_os = "linux")]
    SudogBoundedFutex = "sudog+bounded-futex": GoMutex<Bounded<FutexSema>>,
        "the Go mutex with the default policy, over futex behind a window";
    V1 = "v1": stages::V1<RuntimeSema>,
        "the Go mutex, stage 1: a semaphore of one";
    V2 = "v2": stages::V2<RuntimeSema>,
        "the Go mutex, stage 2: a flag, and a semaphore";
    V3 = "v3": stages::V3<RuntimeSema>,
        "the Go mutex, stage 3: spins before it sleeps";
    V4 = "v4": stages::V4<RuntimeSema>,
        "the Go mutex, stage 4: counts its sleepers";
    V5 = "v5": stages::V5<RuntimeSema>,
        "the Go mutex, stage 5: wakes one at a time";
    V6 = "v6": stages::V6<RuntimeSema>,
        "the Go mutex, stage 6: a beaten waiter stays at the head";
    V7 = "v7": stages::V7<RuntimeSema>,
        "the Go mutex, stage 7: starvation mode; stage 8 is sudog/go-1.14";
    Tts = "tts": Tts,
        "test-and-test-and-set; spins, then parks";
    Ticket = "ticket": TicketLock,
        "the ticket lock; spins, then yields";
    Mcs = "mcs": Mcs,
        "the MCS queue lock; spins, then parks";
    Clh = "clh": Clh,
        "the CLH queue lock; spins, then parks";
    Lifo = "lifo": Lifo,
        "last come, first served; spins, then parks";
    Reciprocating = "reciprocating": Reciprocating,
        "the Reciprocating lock; spins, then parks";
    TtsSpin = "tts-spin": Tts<Spin>,
        "test-and-test-and-set; spins, as in the books";
    TtsYield = "tts-yield": Tts<SpinThenYield>,
        "test-and-test-and-set; spins, then yields";
    TicketSpin = "ticket-spin": TicketLock<Spin>,
        "the ticket lock; spins, as in the books";
    McsSpin = "mcs-spin": Mcs<Spin>,
        "the MCS queue lock; spins, as in the books";
    McsYield = "mcs-yield": Mcs<SpinThenYield>,
        "the MCS queue lock; spins, then yields";
    ClhSpin = "clh-spin": Clh<Spin>,
        "the CLH queue lock; spins, as in the books";
    LifoSpin = "lifo-spin": Lifo<Spin>,
        "last come, first served; spins";
    ReciprocatingSpin = "reciprocating-spin": Reciprocating<Spin>,
        "the Reciprocating lock; spins, as in the paper";
    TasBackoff = "tas-backoff": models::TasBackoff,
        "a model: test-and-set with exponential back-off";
    Anderson = "anderson": models::Anderson,
        "a model: Anderson's array lock; spins";
    Cna = "cna": models::Cna,
        "a model: the compact NUMA-aware lock; spins";
    TwaLockModel = "twa-lock": models::TwaLock,
        "a model: the ticket lock with a waiting array; spins";
    TwaLockChain = "twa-lock-chain": models::TwaLock<models::Chains>,
        "a model: the same over waiting chains; spins, then parks or, if the next, yields";
    TicketLines = "ticket-lines": models::TicketLines,
        "a model: the ticket lock on two cache lines; spins";
    TicketPair = "ticket-pair": models::TicketLines<7>,
        "the same on the two lines of 128 bytes, which some processors fetch together";
    Hapax = "hapax": models::Hapax,
        "a model: the Hapax lock; spins";
    Fissile = "fissile": models::Fissile,
        "a model: the Fissile lock: test-and-set, and CNA as its queue; spins";
    BarDavidTts = "bar-david-tts": models::BarDavid<Tts<Spin>>,
        "Bar-David's transformation around tts-spin";
    BarDavidLifo = "bar-david-lifo": models::BarDavid<Lifo<Spin>>,
        "Bar-David's transformation around lifo-spin";
    BarDavidMcs = "bar-david-mcs": models::BarDavid<Mcs<Spin>>,
        "Bar-David's transformation around mcs-spin";
    StdModel = "std-model": models::StdMutex,
        "a model: std's mutex on a futex";
    ParkingLotModel = "parking_lot-model": models::ParkingLot,
        "a model: parking_lot 0.12's mutex";
}

impl LockName {
    /// The stages of the Go mutex that are only stages, and not also locks of another name.
    pub const STAGES: &[Self] = &[Self::V1, Self::V2, Self::V3, Self::V4, Self::V5, Self::V6, Self::V7];

    /// The inner locks that the studies of capacitors take by default.
    pub const INNER: &[Self] = &[Self::Reciprocating, Self::Ticket, Self::Lifo, Self::Mcs, Self::Clh, Self::Tts];

    /// Returns all locks except those for study, which follow in the registry: old policies, stages, the queue and spin
    /// locks, and models.
    pub fn usual() -> Vec<Self> {
        Self::ALL.iter().copied().take_while(|&lock| lock != Self::SudogGo19).collect()
    }

    /// Returns the locks of `compare`. There is time for a single lock over a waiting array: over the recommended array.
    pub fn compared() -> Vec<Self> {
        Self::usual().into_iter().filter(|lock| !lock.name().starts_with("sudog+t")).collect()
    }

    /// Returns whether the lock is a model, for study only. The models are the last in the registry.
    pub fn is_model(self) -> bool {
        self as usize >= Self::TasBackoff as usize
    }

    /// Returns whether the lock is a peer's: neither a Go mutex, nor another lock of this project, nor a model.
    pub fn is_peer(self) -> bool {
        !self.name().starts_with("sudog") && Self::usual().contains(&self)
    }

    /// Returns whether a goroutine that waits for the lock blocks the thread of its worker, and with the thread all
    /// other goroutines there.
    pub fn blocks_threads(self) -> bool {
        // A waiter of a lock over a semaphore of this project waits as a goroutine.
        let name = self.name();
        let is_go_mutex = name.starts_with("sudog") || Self::STAGES.contains(&self);
        !is_go_mutex || name.ends_with("futex") || name.ends_with("parking_lot_core")
    }
}

/// The abilities and limits of a lock, or of a readers-writer lock.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct LockFacts {
    /// The size of the lock. Memory that the lock keeps elsewhere is not counted.
    pub bytes: usize,
    /// The value of [`RawLock::DEADLINES`].
    pub deadlines: bool,
    /// See [`LockName::blocks_threads`].
    pub blocks_threads: bool,
}

impl LockName {
    /// Returns the abilities and limits of the lock.
    pub fn facts(self) -> LockFacts {
        struct Ask(LockName);
        impl Job for Ask {
            type Out = LockFacts;
            fn run<L: RawLock>(self) -> LockFacts {
                LockFacts { bytes: size_of::<L>(), deadlines: L::DEADLINES, blocks_threads: self.0.blocks_threads() }
            }
        }
        with_lock(self, Ask(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_guard_leaves_a_lock_that_can_be_moved_and_dropped() {
        struct Forget;
        impl Job for Forget {
            type Out = ();
            fn run<L: RawLock>(self) {
                let lock = L::new();
                let guard = lock.lock();
                let moved = Box::new(lock);
                assert!(moved.is_locked() && moved.try_lock().is_none());
                drop(moved);
                drop(guard);
            }
        }
        LockName::ALL.iter().for_each(|&name| with_lock(name, Forget));
    }

    /// A goroutine holds the lock, and another goroutine of the same worker waits for the lock.
    #[test]
    #[cfg(unix)]
    fn what_blocks_threads_is_known() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::{Duration, Instant};
        use sudog_runtime::goroutine::{Builder, Placement, gosched, run};

        /// Returns whether the waiter gets the lock, which is possible only if the holder can run meanwhile. Otherwise
        /// the waiter times out.
        struct Wait(Duration);
        impl Job for Wait {
            type Out = bool;
            fn run<L: RawLock + 'static>(self) -> bool {
                run(|| {
                    let (lock, waits) = (Arc::new(L::new()), Arc::new(AtomicBool::new(false)));
                    let guard = lock.lock();
                    let theirs = (Arc::clone(&lock), Arc::clone(&waits));
                    let waiter = Builder::new().on(Placement::Here).spawn(move || {
                        let (lock, waits) = theirs;
                        waits.store(true, Ordering::Relaxed);
                        let guard = lock.try_lock_until(Instant::now() + self.0);
                        // SAFETY: `guard` came from `try_lock_until` of this lock above, on this thread.
                        guard.map(|guard| unsafe { lock.unlock(guard) }).is_some()
                    });
                    while !waits.load(Ordering::Relaxed) {
                        gosched();
                    }
                    // SAFETY: `guard` came from `lock` of this lock above, on this thread.
                    unsafe { lock.unlock(guard) };
                    waiter.join().unwrap()
                })
            }
        }
        for &name in LockName::ALL {
            let facts = name.facts();
            match facts.blocks_threads {
                false => assert!(with_lock(name, Wait(Duration::from_secs(20))), "{} blocks threads", name.name()),
                // While the waiter polls, other goroutines run.
                true if facts.deadlines => {
                    assert!(!with_lock(name, Wait(Duration::from_millis(10))), "{} blocks no thread", name.name());
                }
                true => {}
            }
        }
    }
}
