//! Goroutines on Unix, except in loom models. The files of this folder hold the functions that users call. The folders
//! are:
//!
//! * [`sched`]: workers, the choice of the next goroutine, timers, the watcher thread;
//! * [`fibre`]: a goroutine's stack, the code that runs on the stack, and the goroutine's end;
//! * [`stack`]: memory for stacks, and the report of an overflow;
//! * [`mod@alarm`]: threads that run users' wakers at a given time.
//!
//! Four files import each other in a circle: a worker runs fibres (`fibre/mod.rs`, `fibre/current.rs`), and a fibre ends
//! in its worker (`sched/worker.rs`); a scheduler (`sched/scheduler.rs`) starts workers. Whatever looks at these four
//! stands above them, and is handed down as a function or a [`Watch`](sched::sysmon::Watch).

mod alarm;
mod api;
mod blocking;
mod builder;
pub(crate) mod coop;
mod exit;
mod fibre;
mod fork;
mod locals;
mod mains;
pub(crate) mod metrics;
mod net_wait;
pub(crate) mod netpoll;
mod placement;
mod run;
mod sched;
mod scope;
mod stack;
mod switch_hooks;
pub mod synctest;
mod task;
mod time;
mod together;
pub(crate) mod trace;
#[cfg(feature = "tracing")]
mod tracing;

pub use api::{current_goroutine, go, goexit, gosched, max_procs, num_goroutine, set_max_procs, set_stack_size, spawn};
pub use blocking::{blocking, compute, set_max_blocking};
pub use builder::{Builder, JoinHandle};
pub use exit::{Goexit, OnPanic};
pub use fibre::current::{on_goroutine, without_switching};
pub use locals::LocalKey;
#[cfg(feature = "metrics")]
pub use metrics::{Histogram, Metrics, WorkerMetrics, metrics};
pub use placement::Placement;
pub use run::run;
pub use sched::dump::Dump;
pub use sched::report::{GoroutineGroup, GoroutineInfo, GoroutineState};
pub use sched::stuck::dump;
pub use scope::{Scope, ScopedJoinHandle, scope};
pub use switch_hooks::{Entering, Leaving, SwitchHooks, TooManySwitchHooks, add_switch_hooks};
pub(crate) use task::block_on_what;
pub use task::{block_on, block_on_limited, go_async, spawn_async};
pub(crate) use time::Times;
pub use time::{AfterFunc, SleepAsync, Ticker, Timer, TimerFuture, after, after_func, now, sleep, sleep_async, tick};
pub use together::together;
#[cfg(feature = "tracing")]
pub use tracing::PerGoroutine;

// For the crates of this project.
#[doc(hidden)]
pub use alarm::deferred::{Alarm, alarm};
#[doc(hidden)]
pub use api::searches;
#[doc(hidden)]
pub use coop::Coop;
#[doc(hidden)]
pub use fibre::current::{active_set, set_active_set};
#[doc(hidden)]
pub use fibre::job::is_large;
#[doc(hidden)]
pub use fork::{forbid_in_child, mark_children};
#[doc(hidden)]
pub use net_wait::NetWait;
#[doc(hidden)]
pub use netpoll::{NetPoller, set_net_poller};
#[doc(hidden)]
pub use sched::scheduler::Searches;
#[doc(hidden)]
pub use sched::spread::spread_so_far;

pub(crate) use coop::unconstrained;

#[cfg(all(debug_assertions, not(sudog_sim)))]
pub(crate) use alarm::alarms::set as set_alarm_by_system;
pub(crate) use fibre::current::{
    FibreRef, ReadyBatch, any_worker_sleeps, current, give_way, id, in_place, may_spin, note_task_wait, note_wait,
    of_the_system, safepoint, safepoint_is_asked_for, switchable, yield_now,
};
#[cfg(all(debug_assertions, not(sudog_sim)))]
pub(crate) use fibre::current::{describe, is_task};
#[cfg(all(feature = "profile", not(sudog_sim)))]
pub(crate) use fibre::current::{has_room, stack_addresses};
pub(crate) use fibre::job::Vtable;
#[cfg(all(debug_assertions, not(sudog_sim)))]
pub(crate) use fibre::wait_check::is_on as waits_are_checked;
pub(crate) use sched::cycle::note_wait_for;
#[cfg(all(debug_assertions, not(sudog_sim)))]
pub(crate) use sched::frames::frames_of_the_user;
#[cfg(all(feature = "profile", not(sudog_sim)))]
pub(crate) use sched::frames::{is_ours, of_the_user};
pub(crate) use sched::long_waits::watch as watch_long_waits;
