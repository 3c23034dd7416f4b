//! Go's concurrency for Rust: goroutines, channels, `select`, `sync` and `context`. Threads, goroutines and async tasks
//! share the same channels and locks.
//!
//! An example: a pool of workers that stop working when a context ends:
//!
//! ```
//! # #[cfg(unix)] {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use sudog::prelude::*;
//!
//! static HITS: Mutex<u64> = Mutex::new(0);
//!
//! sudog::run(|| {
//!     let (ctx, cancel) = context::with_timeout(&context::background(), Duration::from_secs(5));
//!     let done = Arc::new(WaitGroup::new());
//!     for _ in 0..4 {
//!         let ctx = ctx.clone();
//!         done.go(move || {
//!             if ctx.err().is_none() {
//!                 *HITS.lock() += 1;
//!             }
//!         });
//!     }
//!     done.wait();
//!     cancel.cancel();
//! });
//! assert_eq!(*HITS.lock(), 4);
//! # }
//! ```
//!
//! Most modules are counterparts of Go's packages. Each function and type is in one of these modules:
//!
//! * the crate root: [`go`](fn@go) and [`spawn`] start goroutines, [`run`] is Go's `main`; and functions for async
//!   tasks;
//! * [`sync`]: [`sync::Mutex`], whose guard unlocks, and [`sync::GoMutex`], which has no guard, `RwMutex`, `Cond`,
//!   `WaitGroup`, `Once`, `Pool`, `Map`, atomics; and the traits and semaphores of which the locks are made, which a
//!   type parameter can exchange;
//! * [`chan`]: channels and [`select!`](chan::select);
//! * `csp` (feature `csp`): not in Go: channels whose fibres are reclaimed when no partner can come any more;
//! * [`context`]: deadlines and cancellation, handed down from call to call;
//! * [`time`]: sleep, timers, tickers;
//! * [`runtime`]: `gosched`, `goexit`, `num_goroutine`, `max_procs`; and Go's semaphore, [`runtime::sema`];
//! * `signal` (feature `signal`): signals of the system as values of a channel, Go's `os/signal`;
//! * `net` (feature `net`, Linux): sockets, Go's `net`;
//! * [`x`]: counterparts of packages in `golang.org/x`: weighted semaphores, error groups, single flights, rate limits;
//! * [`synctest`]: tests of code that waits for the clock, by a clock of their own, so that no test really waits;
//! * `locks` (feature `locks`): not in Go: spin locks, semaphores over a waiting array, and capacitors, which bound how
//!   often a waiter is overtaken;
//! * [`low_level`]: not in Go either: the parts of which the locks are made, and the events that the locks report;
//! * [`guide`]: Go's names beside this crate's names, and how to choose a semaphore and a policy.
//!
//! | feature | adds |
//! |---|---|
//! | `csp` | `csp` |
//! | `event` | all locks report what they do: [`low_level::event`] |
//! | `locks` | `locks`, parts of which are covered by US patents: see NOTICE |
//! | `net` | `net` |
//! | `parking_lot_core` | [`sync::semaphore`]`::ParkingLotSema` |
//! | `metrics` | `runtime::metrics` |
//! | `profile` | `runtime::profile` |
//! | `serde` | `Serialize` and `Deserialize` for [`sync::Mutex`] and [`sync::RwMutex`]; with `metrics`, `Serialize` for `runtime::Metrics` |
//! | `futures-io`, `hyper` | `net`, and the traits of these crates for its streams |
//! | `signal` | `signal` |
//! | `stream` | `chan::RecvStream` |
//! | `tracing` | `runtime::PerGoroutine` |
//! | `full` | all of these but `event`, `futures-io` and `hyper` |
//!
//! No feature is on by default. Without features a program depends on `arc-swap`, `crossbeam-utils`, `lock_api`,
//! `seize` and, on Unix, `async-task`, `corosensei` and `libc`.

#[cfg(feature = "locks")]
pub use sudog_locks as locks;

#[cfg(feature = "csp")]
pub use sudog_csp as csp;
/// Network I/O: Go's package `net`.
#[cfg(all(target_os = "linux", feature = "net", not(any(sudog_loom, sudog_sim))))]
pub use sudog_net as net;
/// Tests of code that waits for the clock, by a clock of their own, so that no test really waits: Go's package
/// `testing/synctest`.
#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_runtime::goroutine::synctest;
#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_runtime::goroutine::{
    Builder, JoinHandle, LocalKey, OnPanic, Placement, Scope, ScopedJoinHandle, block_on, block_on_limited, blocking,
    compute, go, go_async, on_goroutine, run, scope, spawn, spawn_async, without_switching,
};
#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_runtime::{go, goroutine_local};
#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_sync::context;
/// Signals of the system as values of a channel: Go's package `os/signal`.
#[cfg(all(unix, feature = "signal", not(sudog_loom)))]
pub use sudog_sync::signal;
pub use sudog_sync::x;

/// Go's package `runtime`, as far as programs use it; and Go's semaphore.
pub mod runtime {
    #[cfg(all(unix, not(sudog_loom), feature = "tracing"))]
    pub use sudog_runtime::goroutine::PerGoroutine;
    #[cfg(all(unix, not(sudog_loom)))]
    pub use sudog_runtime::goroutine::{
        Dump, Entering, Goexit, GoroutineGroup, GoroutineInfo, GoroutineState, Leaving, StackSizeIsFixed, SwitchHooks,
        TooManySwitchHooks, add_switch_hooks, current_goroutine, dump, goexit, gosched, max_procs, num_goroutine,
        set_max_blocking, set_max_procs, set_stack_size, together,
    };
    #[cfg(all(unix, feature = "metrics", not(sudog_loom)))]
    pub use sudog_runtime::goroutine::{Histogram, Metrics, WorkerMetrics, metrics};
    /// Profiles of waits.
    #[cfg(all(unix, feature = "profile", not(any(sudog_loom, sudog_sim))))]
    pub use sudog_runtime::profile;
    pub use sudog_runtime::sema;
}

/// Go's channels and `select`; and channels that close when their last sender or last receiver is dropped.
pub mod chan {
    #[cfg(feature = "stream")]
    pub use sudog_runtime::chan::RecvStream;
    #[cfg(all(unix, not(sudog_loom)))]
    pub use sudog_runtime::chan::SelectUntil;
    pub use sudog_runtime::chan::{
        Chan, GaveUp, IntoIter, Iter, MAX_CASES, Permit, Receiver, RecvArm, RecvError, RecvFuture, RecvLimitedError,
        RecvOnly, RecvPort, ReserveFuture, Select, SelectFuture, SendError, SendFuture, SendLimitedError, SendOnly,
        SendPort, Sender, TryIter, TryRecvError, TrySendError, channel, select, select_async,
    };
}

/// Go's package `sync`, and the parts of which its locks are made.
pub mod sync {
    #[cfg(not(sudog_loom))]
    pub use sudog_sync::{
        ApiLock, ApiRwLock, Cond, CondGuard, GuardFuture, LockAsync, Map, Mutex, MutexGuard, MutexWith, OnceFunc,
        OnceValue, OnceValues, Pool, RwLimited, RwMutex, RwMutexReadGuard, RwMutexWith, RwMutexWriteGuard, SharedPanic,
        atomic, lock_api, once_func, once_value, once_values, pool,
    };
    pub use sudog_sync::{
        AsyncRawLock, AsyncSemaphore, ConstPermits, ConstRawLock, ConstRawRwLock, ConstSemaphore, GoMutex, GoRwMutex,
        Locker, Once, Order, RLocker, RawLock, RawRwLock, Semaphore, WaitFuture, WaitGroup, Wake, mutex, rw_mutex,
        semaphore,
    };
}

/// The part of Go's package `time` by which goroutines wait: sleep, timers, tickers.
#[cfg(all(unix, not(sudog_loom)))]
pub mod time {
    pub use sudog_runtime::goroutine::{
        AfterFunc, SleepAsync, Ticker, Timer, TimerFuture, after, after_func, now, sleep, sleep_async, tick,
    };
}

/// The parts of which locks are made: waiting, spinning, ending a process; and the events that locks report.
pub mod low_level {
    #[cfg(all(target_os = "linux", not(sudog_loom)))]
    pub use sudog_runtime::futex;
    pub use sudog_runtime::{G, ParkResult, event, fatal, spin};
}

#[cfg(not(sudog_loom))]
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(doctest, unix))]
#[doc = include_str!("../docs/goroutines.md")]
struct Goroutines;

#[cfg(all(doctest, unix))]
#[doc = include_str!("../docs/porting.md")]
struct Porting;

#[cfg(all(doctest, feature = "locks"))]
#[doc = include_str!("../locks/docs/capacitor.md")]
struct Capacitors;

/// The names that most programs import.
#[cfg(not(sudog_loom))]
pub mod prelude {
    pub use crate::chan::{Chan, channel, select};
    #[cfg(unix)]
    pub use crate::context::{self, Context, RecvCtx as _, SendCtx as _};
    pub use crate::sync::{
        Cond, GoMutex, LockAsync, Map, Mutex, MutexGuard, MutexWith, Once, Pool, RwMutex, WaitGroup,
    };
    #[cfg(unix)]
    pub use crate::time::{self, sleep};
    #[cfg(unix)]
    pub use crate::{go, run, scope, spawn};
}
