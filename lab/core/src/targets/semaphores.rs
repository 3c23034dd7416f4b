//! The semaphores that locks are built on, by name.

mod event_count;
mod lfence;
mod lifo;
#[cfg(target_os = "linux")]
mod sem_t;
mod stride_one;

pub use event_count::EventCountSema;
pub use lfence::Lfence;
pub use lifo::RuntimeLifo;
#[cfg(target_os = "linux")]
pub use sem_t::SemT;
pub use stride_one::StrideOneHash;

use serde::Serialize;
use sudog_locks::capacitor::Bounded;
#[cfg(target_os = "linux")]
use sudog_locks::capacitor::{Platoon, SlidingWindow};
use sudog_locks::waiting_array::{Benaphore, Ticket, TicketSema, Twa, TwaChain, TwaChannel, TwaLocation};
use sudog_locks::waiting_array::{
    BucketWait, Conservative, GrayHash, MixedHash, OrbitHash, PairedHash, PlainHash, Spin, SpinThenPark, SpinThenYield,
    ToldWait,
};
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
    BoundedRuntime = "bounded-runtime": Bounded<RuntimeSema>,
        "runtime behind a window: at most 3 later acquirers overtake";
    #[cfg(target_os = "linux")]
    BoundedFutex = "bounded-futex": Bounded<FutexSema>,
        "futex behind a window: at most 3 later acquirers overtake";
    #[cfg(target_os = "linux")]
    PlatoonFutex = "platoon-futex": Bounded<FutexSema, Platoon>,
        "futex behind platoons of 4: at most 3 later acquirers overtake";
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
    #[cfg(target_os = "linux")]
    BoundedFutex1 = "bounded-futex-1": Bounded<FutexSema, SlidingWindow, 1>,
        "futex behind a window of 1: first come, first served";
    #[cfg(target_os = "linux")]
    BoundedFutex2 = "bounded-futex-2": Bounded<FutexSema, SlidingWindow, 2>,
        "with a window of 2";
    #[cfg(target_os = "linux")]
    BoundedFutex16 = "bounded-futex-16": Bounded<FutexSema, SlidingWindow, 16>,
        "with a window of 16";
    Lifo = "lifo": RuntimeLifo,
        "runtime, last come, first served";
    BoundedLifo = "bounded-lifo": Bounded<RuntimeLifo>,
        "the same behind a window: at most 3 later acquirers overtake";
    TwaChainPrinted = "twa-chain-printed": TwaChain<SpinThenPark, 0, PlainHash<4096>, true>,
        "listing 3 as printed: all sleep, and each wakes the next in its chain";
    TwaChainPrintedSpin = "twa-chain-printed-spin": TwaChain<Spin, 0, PlainHash<4096>, true>,
        "the same, spinning";
    TwaChannelPrinted = "twa-channel-printed": TwaChannel<SpinThenPark, 0, PlainHash<4096>, true, false>,
        "listing 4 as printed: all sleep, and each wakes the next in its chain";
    TwaChannelPrintedSpin = "twa-channel-printed-spin": TwaChannel<Spin, 0, PlainHash<4096>, true, false>,
        "the same, spinning";
    TwaLocationPrinted = "twa-location-printed": TwaLocation<Spin, 0, PlainHash<4096>>,
        "listing 5 as printed: all spin at their locations";
    TwaChainToldSpin = "twa-chain-told-spin": TicketSema<ToldWait<Spin, PlainHash<4096>>>,
        "listing 3, spinning: each waiter passes the grant on to the next in its chain";
    TwaChainDelegatedSpin = "twa-chain-delegated-spin": TicketSema<ToldWait<Spin, PlainHash<4096>, true>>,
        "listing 3, spinning: the poster tests the waiters' turns, and wakes only those whose turn has come";
    TwaConservative = "twa-conservative": TicketSema<Conservative<BucketWait>>,
        "listing 2 with posts that do not read the tickets";
    TwaSpinConservative = "twa-spin-conservative": TicketSema<Conservative<BucketWait<Spin, 1, PlainHash>>>,
        "the same, spinning";
    TicketSpinProportional = "ticket-spin-proportional": Ticket<Spin, true>,
        "listing 1: all watch the grant, and pause longer the farther they are from their turn";
    Twa4096 = "twa-4096": Twa<SpinThenPark, 1, MixedHash<4096>>,
        "listing 2 with 4096 buckets";
    TwaSpinOrbit = "twa-spin-orbit": Twa<Spin, 1, OrbitHash>,
        "listing 2, spinning, page by page through the buckets";
    TwaSpinGray = "twa-spin-gray": Twa<Spin, 1, GrayHash>,
        "listing 2, spinning, through the buckets by a Gray code";
    TwaSpinStrideOne = "twa-spin-stride-1": Twa<Spin, 1, StrideOneHash>,
        "listing 2, spinning, with the buckets of consecutive tickets side by side";
    EventCount = "event-count": EventCountSema,
        "an event count and a sequencer over waiting chains";
    EventCountPolite = "event-count-polite": EventCountSema<true>,
        "the same, whose releases only read chains without waiters";
    EventCountOneKey = "event-count-one-key": EventCountSema<false, true>,
        "the same, with one chain for all waiters, all of which each release wakes";
    TwaFar1 = "twa-far-1": Twa<SpinThenPark, 0, MixedHash<1>>,
        "listing 2 with a threshold of 0 and one bucket: all sleep on one word";
    TwaChainNoLookSpin = "twa-chain-no-look-spin": TwaChain<Spin, 0, PlainHash<4096>, true, false>,
        "listing 3, spinning, without a look at the grant before a push";
    TwaChainNoUndoSpin = "twa-chain-no-undo-spin": TwaChain<Spin, 0, PlainHash<4096>, true, true, false>,
        "listing 3, spinning, without the undoing of pushes";
    TwaChannelUndoSpin = "twa-channel-undo-spin": TwaChannel<Spin, 0, PlainHash<4096>, true>,
        "listing 4, spinning, with the undoing of pushes";
    TwaLocationGuess = "twa-location-guess": TwaLocation<Spin, 0, PlainHash<4096>, true>,
        "listing 5, spinning, with exchanges that take a location to be empty";
    TwaLocationOne = "twa-location-one": TwaLocation<Spin, 0, PlainHash<4096>, false, false>,
        "listing 5, spinning, with the element that was used last";
    TicketLfence = "ticket-lfence": Ticket<Lfence>,
        "listing 1, spinning by LFENCE instead of PAUSE";
}

impl SemaphoreName {
    /// Returns all semaphores except those for study, which follow in the registry: the semaphores of the listings with
    /// thresholds, hashes and other parts that are for study, and bounds for study.
    pub fn usual() -> Vec<Self> {
        Self::ALL.iter().copied().take_while(|&sema| sema != Self::TwaSpin0).collect()
    }

    /// Returns whether a goroutine that waits for the semaphore blocks the thread of its worker, and with the thread
    /// all other goroutines there.
    pub fn blocks_threads(self) -> bool {
        ["parking_lot_core", "futex", "sem_t"].iter().any(|foreign| self.name().contains(foreign))
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

#[cfg(all(test, unix, not(any(sudog_loom, sudog_sim))))]
mod tests {
    use super::*;

    /// A goroutine waits for a permit, and another goroutine of the same worker releases the permit.
    #[test]
    fn what_blocks_threads_is_known() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::{Duration, Instant};
        use sudog_runtime::goroutine::{Builder, Placement, gosched, run};
        use sudog_sync::{Order, Wake};

        /// Returns whether the waiter gets the permit, which is possible only if the releaser can run meanwhile.
        /// Otherwise the waiter times out.
        struct Wait(Duration);
        impl SemaphoreJob for Wait {
            type Out = bool;
            fn run<S: Semaphore + 'static>(self) -> bool {
                run(|| {
                    let (sema, waits) = (Arc::new(S::new(0)), Arc::new(AtomicBool::new(false)));
                    let (theirs, begun) = (Arc::clone(&sema), Arc::clone(&waits));
                    let waiter = Builder::new().on(Placement::Here).spawn(move || {
                        begun.store(true, Ordering::Relaxed);
                        if S::DEADLINES {
                            return theirs.acquire_until(Order::Fifo, Instant::now() + self.0);
                        }
                        theirs.acquire(Order::Fifo);
                        true
                    });
                    while !waits.load(Ordering::Relaxed) {
                        gosched();
                    }
                    sema.release(Wake::Normal);
                    waiter.join().unwrap()
                })
            }
        }
        for &name in SemaphoreName::ALL {
            let facts = SemaphoreFacts::of(name);
            match facts.blocks_threads {
                false => assert!(with_semaphore(name, Wait(Duration::from_secs(20))), "{} blocks threads", name.name()),
                true if facts.deadlines => {
                    let got = with_semaphore(name, Wait(Duration::from_millis(10)));
                    assert!(!got, "{} blocks no thread", name.name());
                }
                true => {}
            }
        }
    }
}
