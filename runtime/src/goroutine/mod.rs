//! Goroutines: fibres that wait in the same queues as threads and async tasks.
//!
//! | to | use |
//! |---|---|
//! | start one | [`go`](fn@go), [`go!`](crate::go), [`spawn`], [`Builder`] |
//! | start one without a stack | [`go_async`], [`spawn_async`] |
//! | be one | [`run`](fn@run) makes the calling thread a worker, and runs your `main` as a goroutine |
//! | run some until nothing is left to do | [`run_local`], [`ActiveSet`] |
//! | give way, end, count | [`gosched`], [`goexit`], [`num_goroutine`] |
//! | wait | [`sleep`], [`Timer`], [`Ticker`], [`after_func`], [`block_on`]; in a task [`sleep_async`] |
//! | make a call that blocks its thread | [`blocking`](fn@blocking) |
//! | have what `thread_local!` is to threads | [`goroutine_local!`](crate::goroutine_local) |
//!
//! A goroutine is stackful: any function it calls may wait. It costs nanoseconds to start and to switch, and a page of
//! memory while it waits. Until it first runs, any worker may take it; from then on it stays on its worker. So it may
//! hold what is not `Send`, and need not be told from a thread by anything it calls.
//!
//! Whatever in this project waits, waits through [`G`](crate::G), and so blocks the goroutine and not the thread. What
//! else blocks (`std`'s locks, files, sockets) blocks the worker, and with it all goroutines that have started there:
//! that is what [`blocking`](fn@blocking) is for.
//!
//! # What a goroutine may not do
//!
//! Nothing that safe Rust can do to a goroutine of ours is undefined behaviour by our code. But some libraries keep raw
//! pointers in thread-locals by saving the old value and restoring it, and rely on the frames of a thread being
//! strictly nested; goroutines of one worker interleave. Wrap such a scope into [`without_switching`].
//! `docs/goroutines.md` has the argument, and more of what to mind: `std`'s locks across a wait, waiting in
//! destructors, unwinding.
//!
//! # Environment
//!
//! `SUDOG_MAXPROCS`: how many workers, as [`set_max_procs`]. The default is the number of processors, or what the
//! cgroup's quota leaves of them; but two at least where there are two. What is no positive number ends the process.
//!
//! Available on Unix.

#![cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]

pub(crate) mod idle;
pub(crate) mod inbox;
pub(crate) mod ring;

#[cfg(any(sudog_loom, not(unix)))]
mod absent;
#[cfg(any(sudog_loom, not(unix)))]
pub(crate) use absent::*;

#[cfg(all(unix, not(sudog_loom)))]
mod api;
#[cfg(all(unix, not(sudog_loom)))]
mod blocking;
#[cfg(all(unix, not(sudog_loom)))]
mod builder;
#[cfg(all(unix, not(sudog_loom)))]
mod context;
#[cfg(all(unix, not(sudog_loom)))]
mod deadlock;
#[cfg(all(unix, not(sudog_loom)))]
mod deferred;
#[cfg(all(unix, not(sudog_loom)))]
mod fibre;
#[cfg(all(unix, not(sudog_loom)))]
mod job;
#[cfg(all(unix, not(sudog_loom)))]
mod locals;
#[cfg(all(unix, not(sudog_loom)))]
mod overflow;
#[cfg(all(unix, not(sudog_loom)))]
mod procs;
#[cfg(all(unix, not(sudog_loom)))]
mod reclaim;
#[cfg(all(unix, not(sudog_loom)))]
mod report;
#[cfg(all(unix, not(sudog_loom)))]
mod run;
#[cfg(all(unix, not(sudog_loom)))]
mod search;
#[cfg(all(unix, not(sudog_loom)))]
mod set;
#[cfg(all(unix, not(sudog_loom)))]
mod slices;
#[cfg(all(unix, not(sudog_loom)))]
mod spares;
#[cfg(all(unix, not(sudog_loom)))]
mod stack;
#[cfg(all(unix, not(sudog_loom)))]
mod task;
#[cfg(all(unix, not(sudog_loom)))]
mod time;
#[cfg(all(unix, not(sudog_loom)))]
mod timer_heap;
#[cfg(all(unix, not(sudog_loom)))]
mod watcher;
#[cfg(all(unix, not(sudog_loom)))]
mod worker;

#[cfg(all(unix, not(sudog_loom)))]
pub use self::{
    api::{Goexit, go, goexit, gosched, max_procs, num_goroutine, set_max_procs, spawn},
    blocking::blocking,
    builder::{Builder, JoinHandle, OnPanic, Placement},
    context::{on_goroutine, without_switching},
    locals::LocalKey,
    run::{ActiveSet, Outside, run, run_local},
    task::{block_on, go_async, spawn_async},
    time::{AfterFunc, SleepAsync, Ticker, Timer, after, after_func, sleep, sleep_async},
};

// For the crates of this project.
#[cfg(all(unix, not(sudog_loom)))]
#[doc(hidden)]
pub use self::deferred::{Alarm, Home, alarm};

#[cfg(all(unix, not(sudog_loom)))]
pub(crate) use self::context::{FibreRef, current, give_way, id, may_spin, note_wait, safepoint, yield_now};
