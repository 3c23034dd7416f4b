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
//! * the crate root: [`go`](fn@go) and [`spawn`] start goroutines, [`run`] is Go's `main`; functions for async tasks;
//!   and the limits of waits: [`IntoLimit`];
//! * [`sync`]: [`sync::Mutex`], whose guard unlocks, and [`sync::GoMutex`], which has no guard, `RwMutex`, `Cond`,
//!   `WaitGroup`, `Once`, `Pool`, `Map`, atomics;
//! * [`chan`]: channels and [`select!`](chan::select);
//! * `csp` (feature `csp`): not in Go: channels whose fibres are reclaimed when no partner can come any more;
//! * [`context`]: deadlines and cancellation, handed down from call to call;
//! * [`time`]: sleep, timers, tickers;
//! * [`runtime`]: `gosched`, `goexit`, `num_goroutine`, `max_procs`, dumps, metrics, profiles;
//! * `signal` (feature `signal`): signals of the system as values of a channel, Go's `os/signal`;
//! * `net` (feature `net`, Unix): sockets, Go's `net`;
//! * `http` (feature `http`, Linux): a server and a client, Go's `net/http`;
//! * [`x`]: counterparts of packages in `golang.org/x`: weighted semaphores, error groups, single flights, rate limits;
//! * [`synctest`]: tests of code that waits for the clock, by a clock of their own, so that no test really waits;
//! * [`guide`]: Go's names beside this crate's names, and how to choose a semaphore and a policy.
//!
//! Three more modules are for lock engineers. No program needs them to use goroutines, channels and locks:
//!
//! * `locks` (feature `locks`): not in Go: spin locks, semaphores over a waiting array, and capacitors, which bound how
//!   often a waiter is overtaken;
//! * [`low_level`]: the parts of which the locks are made: Go's semaphore, [`low_level::sema`]; the traits of locks and
//!   semaphores, which a type parameter can exchange; and the events that the locks report;
//! * [`study`]: Go's former mutexes and queues, and semaphores for comparison.
//!
//! | feature | adds |
//! |---|---|
//! | `csp` | `csp` |
//! | `event` | all locks report what they do: [`low_level::event`] |
//! | `http` | the server of `http`, over the crate `hyper` |
//! | `http-client`, `http-tls`, `http-tower`, `http2` | `http`, and in it the client, TLS by rustls, services of `tower` as handlers, HTTP/2 |
//! | `lock_api_0_4` | the traits of `lock_api` 0.4 for the locks, beside those of 0.5 |
//! | `locks` | `locks`, parts of which are covered by US patents: see NOTICE |
//! | `net` | `net` |
//! | `parking_lot_core` | `study::ParkingLotSema` |
//! | `metrics` | `runtime::metrics` |
//! | `profile` | `runtime::profile` |
//! | `serde` | `Serialize` and `Deserialize` for [`sync::Mutex`] and [`sync::RwMutex`]; with `metrics`, `Serialize` for `runtime::Metrics` |
//! | `futures-io`, `hyper` | `net`, and the traits of these crates for its streams |
//! | `signal` | `signal` |
//! | `stream` | `chan::RecvStream` |
//! | `tracing` | `runtime::PerGoroutine` |
//! | `full` | all of these but `event`, `futures-io`, `http` and those that begin so, `hyper` and `lock_api_0_4` |
//!
//! No feature is on by default. Without features a program depends on `crossbeam-utils`, `lock_api`,
//! on Unix, `async-task`, `corosensei` and `libc`.

// docs.rs shows which features and systems an item needs.
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(sudog_loom, sudog_sim))))]

#[cfg(feature = "locks")]
pub use sudog_locks as locks;

#[cfg(feature = "csp")]
pub use sudog_csp as csp;
/// HTTP, servers and clients: Go's package `net/http`.
#[cfg(all(target_os = "linux", feature = "http", not(any(sudog_loom, sudog_sim))))]
pub use sudog_http as http;
/// Network I/O: Go's package `net`.
#[cfg(all(unix, feature = "net", not(any(sudog_loom, sudog_sim))))]
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
pub use sudog_runtime::sema::{Cancel, IntoLimit, WaitError, WaitLimit};
#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_runtime::{go, goroutine_local};
#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_sync::context;
/// Signals of the system as values of a channel: Go's package `os/signal`.
#[cfg(all(unix, feature = "signal", not(sudog_loom)))]
pub use sudog_sync::signal;
pub use sudog_sync::x;

/// Go's package `runtime`, as far as programs use it.
pub mod runtime {
    #[cfg(all(unix, not(sudog_loom), feature = "tracing"))]
    pub use sudog_runtime::goroutine::PerGoroutine;
    #[cfg(all(unix, not(sudog_loom)))]
    pub use sudog_runtime::goroutine::{
        Dump, Goexit, GoroutineGroup, GoroutineInfo, GoroutineState, current_goroutine, dump, goexit, gosched,
        max_procs, num_goroutine, set_max_blocking, set_max_procs, set_stack_size, together,
    };
    #[cfg(all(unix, feature = "metrics", not(sudog_loom)))]
    pub use sudog_runtime::goroutine::{Histogram, Metrics, WorkerMetrics, metrics};
    /// Profiles of waits.
    #[cfg(all(unix, feature = "profile", not(any(sudog_loom, sudog_sim))))]
    pub use sudog_runtime::profile;
}

/// Go's channels and `select`; and channels that close when their last sender or last receiver is dropped.
pub mod chan {
    #[cfg(feature = "stream")]
    pub use sudog_runtime::chan::RecvStream;
    pub use sudog_runtime::chan::{
        Chan, GaveUp, IntoIter, Iter, Permit, Receiver, RecvArm, RecvError, RecvFuture, RecvLimitedError, RecvOnly,
        RecvPort, ReserveFuture, Select, SelectFuture, SendError, SendFuture, SendLimitedError, SendOnly, SendPort,
        Sender, TryIter, TryRecvError, TrySendError, channel, select, select_async, unbounded,
    };
}

/// Go's package `sync`. The parts of which these locks are made are in [`low_level`].
pub mod sync {
    pub use sudog_sync::mutex::LockFuture;
    #[cfg(not(sudog_loom))]
    pub use sudog_sync::pool::{NoNew, Pooled};
    pub use sudog_sync::rw_mutex::{PhaseFairRwMutex, ShardedRwMutex};
    #[cfg(not(sudog_loom))]
    pub use sudog_sync::{
        Cond, GuardFuture, LockAsync, Map, Mutex, MutexGuard, MutexWith, OnceFunc, OnceValue, OnceValues, Pool,
        RwLimited, RwMutex, RwMutexReadGuard, RwMutexWith, RwMutexWriteGuard, SharedPanic, atomic, lock_api, once_func,
        once_value, once_values,
    };
    pub use sudog_sync::{GoMutex, GoRwMutex, Locker, Once, RLocker, WaitFuture, WaitGroup};
}

/// The part of Go's package `time` by which goroutines wait: sleep, timers, tickers.
#[cfg(all(unix, not(sudog_loom)))]
pub mod time {
    pub use sudog_runtime::goroutine::{
        AfterFunc, SleepAsync, Ticker, Timer, TimerFuture, after, after_func, now, sleep, sleep_async, tick,
    };
}

pub mod low_level;

pub mod study;

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
    // The pages of these names stand in their own modules.
    #[doc(no_inline)]
    pub use crate::chan::{Chan, channel, select};
    #[cfg(unix)]
    #[doc(no_inline)]
    pub use crate::context::{self, Context};
    #[doc(no_inline)]
    pub use crate::sync::{
        Cond, GoMutex, LockAsync, Map, Mutex, MutexGuard, MutexWith, Once, Pool, RwMutex, WaitGroup,
    };
    #[cfg(unix)]
    #[doc(no_inline)]
    pub use crate::time::{self, sleep};
    #[cfg(unix)]
    #[doc(no_inline)]
    pub use crate::{go, run, scope, spawn};
}
