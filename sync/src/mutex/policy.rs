//! What a contender does while it is awake, and when it calls itself starving: policy as a type.
//!
//! A policy costs nothing: its constants are folded into the code. [`Go`] is the mutex of Go 1.14 and later, constant
//! by constant, and before it come those of its past. [`Threads`] is the default, made for operating-system threads;
//! `docs/performance.md` has what each buys, `docs/mutex.md` what each does.

use std::marker::PhantomData;
use std::time::Duration;

use crate::raw::Wake;

/// How contenders for a [`GoMutex`](super::GoMutex) wait.
///
/// | preset | who waits too long | an unlock in starvation mode | beaten, a waiter goes | awake |
/// |---|---|---|---|---|
/// | [`Go1_8`] | nobody ever | | to the end of the line | spins |
/// | [`Go1_9`], until 1.13 | 1 ms | hands over, and goes on | to its head | spins |
/// | [`Go`], [`Go1_14`], since 1.14 | 1 ms | hands over, and gives way | to its head | spins |
/// | [`Fifo`] | everybody | hands over, and gives way | to its head | sleeps at once |
/// | [`Threads`], the default | 100 us | hands over, and gives way | to its head | threads: one stands by |
///
/// # Examples
///
/// A policy of one's own: Go's, with more patience and a longer spin.
///
/// ```
/// use std::time::Duration;
/// use sudog_sync::GoMutex;
/// use sudog_sync::mutex::policy::{SpinStrategy, Policy};
/// use sudog_sync::semaphore::RuntimeSema;
///
/// enum Patient {}
///
/// impl Policy for Patient {
///     const THRESHOLD: Duration = Duration::from_millis(5);
///     const STRATEGY: SpinStrategy = SpinStrategy::Spin { rounds: 8, pauses: 30 };
/// }
/// static M: GoMutex<RuntimeSema, Patient> = GoMutex::unlocked();
/// M.lock();
/// M.unlock();
/// ```
pub trait Policy: Send + Sync + 'static {
    /// How long is too long. A waiter that has waited for longer turns the mutex to starvation mode: newcomers then
    /// queue, whether it is locked or not, and the mutex goes to those who wait.
    ///
    /// Under [`SpinStrategy::Spin`] it is counted from the waiter's first sleep, and 0 is from the start: the mutex then serves
    /// first come, first served, as far as the semaphore does. Under [`SpinStrategy::Successor`] it is counted from when it began
    /// to stand by; there, `Duration::MAX` means an heir that never sleeps.
    const THRESHOLD: Duration;

    /// What a contender does before it sleeps.
    const STRATEGY: SpinStrategy;

    /// [`Policy::STRATEGY`] for contenders that are goroutines. They may [spin](SpinStrategy::Spin), for more than one round only
    /// while their worker has nothing else to run; they cannot stand by.
    ///
    /// By default as threads do, or, if those stand by, as in Go: a handoff between goroutines costs a tenth of a
    /// microsecond, so there is nothing to be had from watching.
    const GOROUTINE_STRATEGY: SpinStrategy = match Self::STRATEGY {
        SpinStrategy::Successor { .. } => SpinStrategy::GO,
        spin @ SpinStrategy::Spin { .. } => spin,
    };

    /// [`Policy::THRESHOLD`] for contenders that are goroutines, and for async tasks, which neither spin nor stand by.
    ///
    /// By default the same, or, if threads stand by, Go's.
    const GOROUTINE_THRESHOLD: Duration = match Self::STRATEGY {
        SpinStrategy::Successor { .. } => GO_THRESHOLD,
        SpinStrategy::Spin { .. } => Self::THRESHOLD,
    };

    /// What an unlock does with its permit in starvation mode.
    ///
    /// | | the permit | the one who unlocks |
    /// |---|---|---|
    /// | [`Wake::Handoff`] | is the first waiter's | gives way, if it is a goroutine: the waiter has its time slice |
    /// | [`Wake::Grant`] | is the first waiter's | goes on, and soon waits in its turn, while nobody uses the mutex |
    /// | [`Wake::Normal`] | is in the semaphore for a moment, where a newcomer may take it | goes on |
    const HANDOFF: Wake = Wake::Handoff;

    /// Whether a waiter that was woken and beaten to the mutex goes to the head of the line, and not to its end. Without
    /// it one that starves is not the one that the mutex is handed to next, and may wait for longer than the threshold by
    /// as long as the line is.
    const LIFO: bool = true;

    /// Whether the mutex [reports](sudog_runtime::event) what happens to it. [`Recorded`] turns it on.
    const EVENTS: bool = cfg!(feature = "event");
}

/// Go's `starvationThresholdNs`.
const GO_THRESHOLD: Duration = Duration::from_millis(1);

/// What a contender does before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpinStrategy {
    /// Every contender spins, `rounds` times `pauses` pause instructions at most, then queues. Go's way.
    Spin {
        /// Go: 4.
        rounds: u32,
        /// Go: 30.
        pauses: u32,
    },
    /// One contender, the *heir*, stands by: it watches the mutex, takes it once it is left alone, and claims it, by
    /// starvation mode, when [`Policy::THRESHOLD`] has passed since it began. All others sleep, but for newcomers who
    /// spin for a few microseconds while nobody is in line. The heir is the first in line, whom an unlock has woken; or
    /// a newcomer, if nobody is in line.
    ///
    /// So an owner that locks and unlocks in a loop keeps the mutex, and its cache lines, for about a threshold; then
    /// the next has it, who is awake already. Two contenders are awake at a time, as two are enough to keep a mutex
    /// busy: this is concurrency restriction (Dice and Kogan's GCR), with the starvation clock for its rotation.
    Successor {
        /// After its claim the heir watches for this long; then it sleeps at the head of the line (over a semaphore
        /// that has [`LIFO`](crate::Semaphore::LIFO)), and the unlock hands over to it. That is the case of an owner
        /// that holds the mutex for long.
        grace: Duration,
    },
}

impl SpinStrategy {
    /// Go's spinning.
    const GO: Self = Self::Spin { rounds: sudog_runtime::spin::ROUNDS, pauses: sudog_runtime::spin::PAUSES };
    /// To sleep at once.
    pub(super) const NONE: Self = Self::Spin { rounds: 0, pauses: 0 };
}

/// Go 1.14 and later: four rounds of spinning, starvation after a millisecond, first in, first out while it lasts.
#[derive(Clone, Copy, Debug)]
pub enum Go {}

/// The same, by its version.
pub type Go1_14 = Go;

impl Policy for Go {
    const THRESHOLD: Duration = GO_THRESHOLD;
    const STRATEGY: SpinStrategy = SpinStrategy::GO;
}

/// Go 1.9 to 1.13: as [`Go`], but one who hands the mutex over does not give way. Many contenders then bring it to a
/// crawl from which it does not recover: Go issue 33747.
#[derive(Clone, Copy, Debug)]
pub enum Go1_9 {}

impl Policy for Go1_9 {
    const THRESHOLD: Duration = GO_THRESHOLD;
    const STRATEGY: SpinStrategy = SpinStrategy::GO;
    const HANDOFF: Wake = Wake::Grant;
}

/// Go 1.8: no starvation mode, and who is beaten to the mutex goes to the end of the line. A waiter may wait for ever:
/// Go issue 13086.
#[derive(Clone, Copy, Debug)]
pub enum Go1_8 {}

impl Policy for Go1_8 {
    const THRESHOLD: Duration = Duration::MAX;
    const STRATEGY: SpinStrategy = SpinStrategy::GO;
    const LIFO: bool = false;
}

/// First come, first served: whoever must wait starves from the start, so every unlock hands over. As fair, and as
/// slow, as [`FifoMutex`](super::FifoMutex).
#[derive(Clone, Copy, Debug)]
pub enum Fifo {}

impl Policy for Fifo {
    const THRESHOLD: Duration = Duration::ZERO;
    const STRATEGY: SpinStrategy = SpinStrategy::NONE;
}

/// For operating-system threads: one heir stands by, and has the mutex after a tenth of a millisecond. Goroutines,
/// which may contend for the same mutex, do as in Go.
///
/// A handoff between sleeping threads costs tens of microseconds, a hundred times what it costs between goroutines.
/// Go's rule, by which a contended mutex is either fought for or handed from sleeper to sleeper, then has to choose
/// between a throughput of nearly nothing and waits without bound.
#[derive(Clone, Copy, Debug)]
pub enum Threads {}

impl Policy for Threads {
    const THRESHOLD: Duration = Duration::from_micros(100);
    const STRATEGY: SpinStrategy = SpinStrategy::Successor { grace: Duration::from_micros(20) };
}

/// Another policy, under which the mutex [reports](sudog_runtime::event) what happens to it.
///
/// What happens in the line of its semaphore is reported by that: [`InTable`](crate::semaphore::InTable) over a table of
/// [`Recorded`](sudog_runtime::sema::queue::Recorded) queues.
///
/// # Examples
///
/// ```
/// use sudog_runtime::event::{self, Kind};
/// use sudog_sync::GoMutex;
/// use sudog_sync::mutex::policy::{Go, Recorded};
/// use sudog_sync::semaphore::RuntimeSema;
///
/// static M: GoMutex<RuntimeSema, Recorded<Go>> = GoMutex::unlocked();
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
    const LIFO: bool = P::LIFO;
    const EVENTS: bool = true;
}
