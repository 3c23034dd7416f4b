//! Goroutines: fibres that wait in the same queues as threads and async tasks.
//!
//! | to | use |
//! |---|---|
//! | start one | [`go`](fn@go), [`go!`](crate::go), [`spawn`], [`Builder`] |
//! | start some that borrow from the caller, and wait for them | [`scope`](fn@scope) |
//! | start one without a stack | [`go_async`], [`spawn_async`] |
//! | run `main` as a goroutine, and wait for its result | [`run`](fn@run) |
//! | give way, end, count, list | [`gosched`], [`goexit`], [`num_goroutine`], [`dump`](fn@dump) |
//! | wait | [`sleep`], [`Timer`], [`Ticker`], [`after_func`], [`block_on`]; in a task [`sleep_async`] |
//! | make a call that blocks its thread | [`blocking`](fn@blocking) |
//! | compute for long | [`compute`] |
//! | have what `thread_local!` is to threads | [`goroutine_local!`](crate::goroutine_local) |
//!
//! A goroutine is stackful: any function it calls may wait. It costs nanoseconds to start and to switch, and a page of
//! memory while it waits. Until it first runs, any worker may take it; from then on it stays on its worker. So it may
//! hold what is not `Send`, and need not be told from a thread by anything it calls.
//!
//! Goroutines run on the workers of the process, threads that start when there is work and never end. A goroutine that
//! waits for what never comes stays where it is, as a thread does; the process ends with its `main`.
//!
//! Whatever in this project waits, waits through [`G`](crate::G), and so blocks the goroutine and not the thread. What
//! else blocks (`std`'s locks, files, sockets) blocks the worker, and with it all goroutines that have started there:
//! that is what [`blocking`](fn@blocking) is for.
//!
//! # What a goroutine may not do
//!
//! Safe Rust cannot cause undefined behaviour here, with an exception that all stackful coroutines in Rust share: **the
//! initialiser of a lazy `std::thread_local!` must not wait** (lock a mutex of ours, sleep, yield). Another
//! goroutine of the worker may initialise the value and borrow it meanwhile; `std` then drops it, borrowed. Use a
//! `const` initialiser, or [`goroutine_local!`](crate::goroutine_local). Initialisers of `std`'s `LazyLock`, `OnceLock`
//! and `Once` must not wait either: that hangs. `SUDOG_CHECK_WAITS` (below) finds both.
//!
//! Some libraries, too, keep raw pointers in thread-locals by saving the old value and restoring it, and rely on the
//! frames of a thread being strictly nested; goroutines of one worker interleave. Wrap such a scope into
//! [`without_switching`]. `docs/goroutines.md` has the argument, and more of what to mind: `std`'s locks across a wait,
//! waiting in destructors.
//!
//! # What a forked child may do
//!
//! A fork copies the calling thread alone: workers, and the threads for timers and for blocking calls, stay in the parent.
//! So once the runtime has started a thread, which [`run`](fn@run) and the first [`go`](fn@go) do, a child may `exec` and
//! exit. Each step in the child that counts on a thread of the runtime's is a fatal error: to call [`run`](fn@run), to
//! start a goroutine from a thread, to join a goroutine that has not ended, to wait in a goroutine, to set an alarm.
//! Locks, channels and wait groups go on working between the child's own threads, as far as no thread of the parent was in
//! the middle of an operation on them. `std::process::Command`, a fork and exec, may be used at any time. A program that
//! becomes a daemon forks before its first `run` or `go`: then nothing is forbidden. (Go has no fork without exec; tokio
//! forbids this use of a runtime.)
//!
//! A child that is made by the system call itself (`clone`), not by the C library's `fork`, is not recognised.
//!
//! # Environment
//!
//! `SUDOG_CHECK_WAITS`, if it is set and not `0`, in builds with debug assertions: a goroutine that waits or yields
//! inside the initialiser of a `std` `thread_local!`, `LazyLock`, `OnceLock` or `Once` ends the process, with its
//! stack. Slow.
//!
//! `SUDOG_MAXPROCS`: how many workers, as [`set_max_procs`]. The default is the number of processors, or what the
//! cgroup's quota leaves of them; but two at least where there are two. Any other value than a positive number ends the process.
//!
//! `SUDOG_STALLS`: `1` reports on standard error a goroutine that runs for 100 ms without giving way, while others of its
//! worker wait, with its name, the code that started it, and its stack at its next call; and a [`blocking`](fn@blocking)
//! call that waits for a thread. `20ms` reports goroutines that run for 20 ms; the watcher sees steps of 10 ms. `0`, or an empty
//! value, reports nothing. Any other value ends the process. The default is `1` in builds with debug assertions, `0` in
//! others. Where reports are made, a [`dump`](fn@dump) has stacks, and goroutines that wait for each other's mutexes are reported (in
//! builds with debug assertions, where mutexes know their holders).
//!
//! # What goroutines of one worker share
//!
//! | what | so | remedy |
//! |---|---|---|
//! | `thread_local!` | a value is not the goroutine's own | [`goroutine_local!`](crate::goroutine_local), or [switch hooks](add_switch_hooks) |
//! | spans of `tracing` that are entered | they mix | `PerGoroutine`, with the feature `tracing`; `Instrument` in tasks |
//! | `EnterGuard` of tokio, and other guards that save and restore what is in a thread-local | tokio panics if guards of two goroutines end in another order than that of a stack | [`without_switching`] around them; pass a `Handle` |
//! | `std`'s and `parking_lot`'s locks | a goroutine that waits for one blocks the others, and perhaps the owner | this project's locks |
//! | `RefCell` in a thread-local, borrowed across a wait | others find it borrowed, and panic | as the first |
//! | `thread::current()`: its id, its name, its parker | `park` blocks the worker; ids are not the goroutine's | `JoinHandle`, channels |
//! | the name in the message of `std`'s panic hook | the message names the worker's thread, perhaps `main` | [`current_goroutine`], in a hook of one's own |
//! | the count of panics (`thread::panicking`) | while a goroutine unwinds its worker runs no other | |
//! | the signal mask, the errno, the floating-point mode, the locale of the thread | a change is seen by all | [`without_switching`], or change it back before a wait |
//! | the seed of `rand::rng()` and the like | nothing: they lend no borrow across a wait | |
//!
//! Available on Unix.

#![cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]

pub(crate) mod protocol;

#[cfg(all(unix, not(sudog_loom)))]
mod native;
#[cfg(all(unix, not(sudog_loom)))]
pub use native::*;

#[cfg(any(sudog_loom, not(unix)))]
mod stub;
#[cfg(any(sudog_loom, not(unix)))]
pub use stub::*;
