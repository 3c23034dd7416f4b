//! The parameters of the mutex, as a type: the strategy of a contender before it sleeps, and the time after which a
//! contender starves.
//!
//! A policy costs nothing: its constants are folded into the code. [`Go`] is the mutex of Go 1.14 and later, constant
//! by constant; [`Go1_9`] and [`Go1_8`] are its predecessors. [`Threads`] is the default, made for operating-system
//! threads. `docs/journal/mutex-variants.md` compares them.

use std::marker::PhantomData;
use std::time::Duration;

use crate::raw::Wake;

/// The way in which contenders for a [`GoMutex`](super::GoMutex) wait.
///
/// | preset | a contender starves after | an unlock in starvation mode | a waiter that loses the race queues | before it sleeps |
/// |---|---|---|---|---|
/// | [`Go1_8`] | never | | at the end | a contender spins |
/// | [`Go1_9`], until 1.13 | 1 ms | hands over, and goes on | at the head | a contender spins |
/// | [`Go`], [`Go1_14`], since 1.14 | 1 ms | hands over, and gives way | at the head | a contender spins |
/// | [`Fifo`] | 0: from the start | hands over, and gives way | at the head | nothing |
/// | [`Threads`], the default | 100 us of watching | hands over, and gives way | at the head | one thread watches; goroutines spin |
///
/// # Examples
///
/// Another policy: Go's, with more patience and a longer spin.
///
/// ```
/// use std::time::Duration;
/// use sudog::low_level::RuntimeSema;
/// use sudog::low_level::policy::{Policy, SpinStrategy};
/// use sudog::sync::GoMutex;
///
/// enum Patient {}
///
/// impl Policy for Patient {
///     const THRESHOLD: Duration = Duration::from_millis(5);
///     const STRATEGY: SpinStrategy = SpinStrategy::Spin { rounds: 8, pauses: 30 };
/// }
/// static M: GoMutex<RuntimeSema, Patient> = GoMutex::const_new();
/// M.lock();
/// M.unlock();
/// ```
pub trait Policy: Send + Sync + 'static {
    /// The time after which a contender starves. A contender that has waited for longer turns on starvation mode:
    /// newcomers then queue, whether the mutex is locked or not, and the mutex goes to that contender or to the waiters.
    ///
    /// | strategy | the time runs from | 0 | `Duration::MAX` |
    /// |---|---|---|---|
    /// | [`SpinStrategy::Spin`] | the waiter's first sleep | starvation mode from the start: first come, first served, as far as the semaphore does | never starvation mode |
    /// | [`SpinStrategy::Successor`] | the start of the watch | the successor claims the mutex at once | the successor never sleeps |
    const THRESHOLD: Duration;

    /// The strategy of a contender before it sleeps.
    const STRATEGY: SpinStrategy;

    /// The strategy of a contender that is a goroutine. Must be a [`SpinStrategy::Spin`]. A goroutine spins for more
    /// than one round only while its worker has nothing else to run.
    ///
    /// The default is [`Policy::STRATEGY`]; but if that is [`SpinStrategy::Successor`], the default is Go's strategy. A
    /// handoff between goroutines costs a tenth of a microsecond, so goroutines gain nothing by watching the mutex.
    const GOROUTINE_STRATEGY: SpinStrategy = match Self::STRATEGY {
        SpinStrategy::Successor { .. } => SpinStrategy::GO,
        spin @ SpinStrategy::Spin { .. } => spin,
    };

    /// The time after which a waiter starves if the waiter is a goroutine or an async task. (A task sleeps at once.)
    ///
    /// The default is [`Policy::THRESHOLD`]; but if [`Policy::STRATEGY`] is [`SpinStrategy::Successor`], the default is
    /// Go's threshold.
    const GOROUTINE_THRESHOLD: Duration = match Self::STRATEGY {
        SpinStrategy::Successor { .. } => GO_THRESHOLD,
        SpinStrategy::Spin { .. } => Self::THRESHOLD,
    };

    /// The kind of release by which an unlock gives its permit in starvation mode.
    ///
    /// | | the permit | the releaser |
    /// |---|---|---|
    /// | [`Wake::Handoff`] | is the first waiter's | gives way, if the releaser is a goroutine: the waiter takes over the time slice |
    /// | [`Wake::Grant`] | is the first waiter's | goes on. Soon the releaser waits itself, while the mutex is idle |
    /// | [`Wake::Normal`] | is in the semaphore for a moment, where a newcomer may take it | goes on |
    const HANDOFF: Wake = Wake::Handoff;

    /// True if a handoff ends starvation mode when a processor may be idle. A processor may be idle if the waiter that
    /// is handed the mutex is a thread or an async task, or if a worker of that waiter's scheduler sleeps. If false,
    /// the mode lasts, as Go's does, until the mutex is handed to the last waiter, or to a waiter that has not waited
    /// for longer than the threshold.
    ///
    /// A mode that lasts for several handoffs sustains itself once a handoff takes longer than the threshold divided by
    /// the number of waiters: then each waiter has waited for too long when its turn comes, and contenders that are
    /// awake must queue (Go issue 33747). A handoff takes that long if it must rouse an idle processor. If the mode
    /// ends after one handoff, contenders that are awake lock the mutex while the next waiter wakes up. If that waiter
    /// loses the race, the waiter turns the mode on again.
    ///
    /// The default is true if [`Policy::STRATEGY`] is [`SpinStrategy::Successor`]: a successor's claim is for one
    /// handoff, too.
    const ONE_HANDOFF_IF_IDLE: bool = matches!(Self::STRATEGY, SpinStrategy::Successor { .. });

    /// True if a waiter that lost the race for the mutex queues at the head again (Go since 1.9). If false, a starving
    /// waiter may have the whole queue in front of it, and waits that much longer than the threshold.
    ///
    /// A waiter that sleeps for the first time queues at the end, whatever this constant says. For last come, first
    /// served, put a semaphore under the mutex that ignores the given order and passes
    /// [`Order::Lifo`](sudog_runtime::sema::Order::Lifo) on.
    const REQUEUE_AT_HEAD: bool = true;

    /// True if the mutex records [events](sudog_runtime::event). [`Recorded`] turns the events on.
    const EVENTS: bool = cfg!(feature = "event");
}

/// Go's `starvationThresholdNs`.
const GO_THRESHOLD: Duration = Duration::from_millis(1);

/// The strategy of a contender before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpinStrategy {
    /// Every contender spins, for at most `rounds` rounds of `pauses` pause instructions, then sleeps. Go's way.
    Spin {
        /// The most rounds before a sleep. Go: 4.
        rounds: u32,
        /// The number of pause instructions in a round. Go: 30.
        pauses: u32,
    },
    /// A single contender watches the mutex: the *successor*. The successor locks the mutex when the owner has left the
    /// mutex. When the watch has lasted for [`Policy::THRESHOLD`], the successor claims the mutex, by starvation mode.
    /// The other contenders sleep. Newcomers first spin for a few microseconds, if no contender sleeps, if the mutex is
    /// mostly free, or if the newcomer was away from mutexes for long.
    ///
    /// The successor is the designated waker: the contender that is awake and will retry, so that unlocks wake no
    /// other. The successor is the first waiter, woken by an unlock; or a newcomer, if no contender waits.
    ///
    /// So an owner that locks and unlocks in a loop keeps the mutex, and the mutex's cache lines, for about a
    /// threshold. Then the mutex goes to the successor, which is awake already. Of such owners two are awake at a time,
    /// which is enough to keep the mutex busy. This is concurrency restriction (Dice and Kogan's GCR), where the
    /// starvation threshold rotates the contenders.
    Successor {
        /// The time for which the successor watches after its claim. After that time the owner is held to keep the
        /// mutex for long: the successor sleeps at the head of the queue (over a semaphore that has
        /// [`LIFO`](crate::Semaphore::LIFO)), and the unlock hands over to the successor.
        grace: Duration,
    },
}

impl SpinStrategy {
    /// Go's `sync_runtime_canSpin` and `sync_runtime_doSpin`.
    const GO: Self = Self::Spin { rounds: sudog_runtime::spin::ROUNDS, pauses: sudog_runtime::spin::PAUSES };
    /// A contender sleeps at once.
    pub(super) const NONE: Self = Self::Spin { rounds: 0, pauses: 0 };
}

/// Go 1.14 and later: four rounds of spinning, starvation after a millisecond, first in, first out during starvation.
#[derive(Clone, Copy, Debug)]
pub enum Go {}

/// The policy [`Go`], named by its version.
pub type Go1_14 = Go;

impl Policy for Go {
    const THRESHOLD: Duration = GO_THRESHOLD;
    const STRATEGY: SpinStrategy = SpinStrategy::GO;
}

/// Go 1.9 to 1.13: as [`Go`], but a releaser that hands the mutex over does not give way. With many contenders the
/// mutex may slow to a crawl, and not recover: Go issue 33747.
#[derive(Clone, Copy, Debug)]
pub enum Go1_9 {}

impl Policy for Go1_9 {
    const THRESHOLD: Duration = GO_THRESHOLD;
    const STRATEGY: SpinStrategy = SpinStrategy::GO;
    const HANDOFF: Wake = Wake::Grant;
}

/// Go 1.8: no starvation mode, and a waiter that loses the race queues at the end. That waiter may wait for ever: Go
/// issue 13086.
#[derive(Clone, Copy, Debug)]
pub enum Go1_8 {}

impl Policy for Go1_8 {
    const THRESHOLD: Duration = Duration::MAX;
    const STRATEGY: SpinStrategy = SpinStrategy::GO;
    const REQUEUE_AT_HEAD: bool = false;
}

/// First come, first served: every contender that must wait starves from the start, so every unlock hands over. The
/// mutex is as fair, and as slow, as a [`FifoMutex`](super::FifoMutex).
#[derive(Clone, Copy, Debug)]
pub enum Fifo {}

impl Policy for Fifo {
    const THRESHOLD: Duration = Duration::ZERO;
    const STRATEGY: SpinStrategy = SpinStrategy::NONE;
}

/// The policy for operating-system threads: a [successor](SpinStrategy::Successor) watches, and has the mutex after a
/// tenth of a millisecond. Goroutines may contend for the same mutex, and wait as in Go, with one exception: while a
/// worker sleeps, starvation mode ends after one handoff.
///
/// A handoff between sleeping threads costs tens of microseconds, a hundred times as much as between goroutines. Under
/// Go's rule contenders fight for the mutex, or sleepers hand it from one to the next: threads then get either waits
/// without bound, or next to no throughput.
#[derive(Clone, Copy, Debug)]
pub enum Threads {}

impl Policy for Threads {
    const THRESHOLD: Duration = Duration::from_micros(100);
    const STRATEGY: SpinStrategy = SpinStrategy::Successor { grace: Duration::from_micros(20) };
}

/// The policy `P`, with [events](sudog_runtime::event): the mutex records the events of its contenders.
///
/// The semaphore records the events of its queue if the semaphore is [`TableSema`](crate::semaphore::TableSema) over a
/// table of [`Recorded`](sudog_runtime::sema::queue::Recorded) queues.
///
/// # Examples
///
/// ```
/// use sudog::low_level::RuntimeSema;
/// use sudog::low_level::event;
/// use sudog::low_level::event::Kind;
/// use sudog::low_level::policy::Go;
/// use sudog::study::policy::Recorded;
/// use sudog::sync::GoMutex;
///
/// static M: GoMutex<RuntimeSema, Recorded<Go>> = GoMutex::const_new();
///
/// event::start();
/// std::thread::scope(|s| {
///     M.lock();
///     s.spawn(|| {
///         M.lock(); // waits
///         M.unlock();
///     });
///     while M.waiters() == 0 {}
///     std::thread::sleep(std::time::Duration::from_millis(2));
///     M.unlock(); // wakes it
///     M.lock(); // is probably faster
///     M.unlock();
/// });
/// for event in event::stop().events {
///     println!("{:?} {}: {}", event.at, event.who, event.kind);
/// }
/// ```
pub struct Recorded<P>(PhantomData<P>);

impl<P: Policy> Policy for Recorded<P> {
    const THRESHOLD: Duration = P::THRESHOLD;
    const STRATEGY: SpinStrategy = P::STRATEGY;
    const GOROUTINE_STRATEGY: SpinStrategy = P::GOROUTINE_STRATEGY;
    const GOROUTINE_THRESHOLD: Duration = P::GOROUTINE_THRESHOLD;
    const HANDOFF: Wake = P::HANDOFF;
    const ONE_HANDOFF_IF_IDLE: bool = P::ONE_HANDOFF_IF_IDLE;
    const REQUEUE_AT_HEAD: bool = P::REQUEUE_AT_HEAD;
    const EVENTS: bool = true;
}
