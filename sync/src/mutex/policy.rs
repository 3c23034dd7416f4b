//! What a contender does while it is awake, and when it calls itself starving: policy as a type.
//!
//! A policy costs nothing: its constants are folded into the code. [`Go`] is the mutex of Go 1.14 and later, constant
//! by constant. [`Threads`] is the default, made for operating-system threads; `docs/performance.md` has what each
//! buys.

use std::time::Duration;

/// How contenders for a [`GoMutex`](super::GoMutex) wait.
///
/// # Examples
///
/// A mutex in Go's mode as it was before 1.9: nobody ever starves, whatever happens.
///
/// ```
/// use std::time::Duration;
/// use sudog_sync::GoMutex;
/// use sudog_sync::mutex::policy::{Go, Policy};
/// use sudog_sync::semaphore::RuntimeSema;
///
/// struct Go18;
/// impl Policy for Go18 {
///     const THRESHOLD: Duration = Duration::MAX;
///     const AWAKE: sudog_sync::mutex::policy::Awake = Go::AWAKE;
/// }
/// static M: GoMutex<RuntimeSema, Go18> = GoMutex::unlocked();
/// M.lock();
/// M.unlock();
/// ```
pub trait Policy: Send + Sync + 'static {
    /// How long is too long. A waiter that has waited for longer turns the mutex to starvation mode: newcomers then
    /// queue, whether it is locked or not, and the mutex goes to those who wait.
    ///
    /// Under [`Awake::Spin`] it is counted from the waiter's first sleep, under [`Awake::StandBy`] from when it began
    /// to stand by; there, `Duration::MAX` means an heir that never sleeps.
    const THRESHOLD: Duration;

    /// What a contender does before it sleeps.
    const AWAKE: Awake;

    /// [`Policy::AWAKE`] for contenders that are goroutines. They may [spin](Awake::Spin), for more than one round only
    /// while their worker has nothing else to run; they cannot stand by.
    ///
    /// By default as threads do, or, if those stand by, as in Go: a handoff between goroutines costs a tenth of a
    /// microsecond, so there is nothing to be had from watching.
    const GOROUTINE: Awake = match Self::AWAKE {
        Awake::StandBy { .. } => Awake::GO,
        spin @ Awake::Spin { .. } => spin,
    };

    /// [`Policy::THRESHOLD`] for contenders that are goroutines, and for async tasks, which neither spin nor stand by.
    ///
    /// By default the same, or, if threads stand by, Go's.
    const GOROUTINE_THRESHOLD: Duration = match Self::AWAKE {
        Awake::StandBy { .. } => GO_THRESHOLD,
        Awake::Spin { .. } => Self::THRESHOLD,
    };
}

/// Go's `starvationThresholdNs`.
const GO_THRESHOLD: Duration = Duration::from_millis(1);

/// What a contender does before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awake {
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
    StandBy {
        /// After its claim the heir watches for this long; then it sleeps at the head of the line (over a semaphore
        /// that has [`LIFO`](crate::Semaphore::LIFO)), and the unlock hands over to it. That is the case of an owner
        /// that holds the mutex for long.
        grace: Duration,
    },
}

impl Awake {
    /// Go's spinning.
    const GO: Self = Self::Spin { rounds: sudog_runtime::spin::ROUNDS, pauses: sudog_runtime::spin::PAUSES };
    /// To sleep at once.
    pub(super) const NOT_AT_ALL: Self = Self::Spin { rounds: 0, pauses: 0 };
}

/// Go 1.14 and later: four rounds of spinning, starvation after a millisecond, first in, first out while it lasts.
#[derive(Clone, Copy, Debug)]
pub enum Go {}

impl Policy for Go {
    const THRESHOLD: Duration = GO_THRESHOLD;
    const AWAKE: Awake = Awake::GO;
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
    const AWAKE: Awake = Awake::StandBy { grace: Duration::from_micros(20) };
}
