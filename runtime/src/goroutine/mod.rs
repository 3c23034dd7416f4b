//! Goroutines: fibres that wait in the same queues as threads and async tasks.
//!
//! | to | use |
//! |---|---|
//! | start a goroutine | [`go`](fn@go), [`go!`](crate::go), [`spawn`], [`Builder`] |
//! | start goroutines that borrow from the caller, and wait for their end | [`scope`](fn@scope) |
//! | start a goroutine without a stack | [`go_async`], [`spawn_async`] |
//! | run `main` as a goroutine, and wait for the result | [`run`](fn@run) |
//! | yield, end, count, list goroutines | [`gosched`], [`goexit`], [`num_goroutine`], [`dump`](fn@dump) |
//! | wait | [`sleep`], [`Timer`], [`Ticker`], [`after_func`], [`block_on`]; in a task [`sleep_async`] |
//! | make a call that blocks its thread | [`blocking`](fn@blocking) |
//! | compute for long | [`compute`] |
//! | keep values of a goroutine, as `thread_local!` keeps those of a thread | [`goroutine_local!`](crate::goroutine_local) |
//!
//! A goroutine is stackful: any function that a goroutine calls may wait. A goroutine costs nanoseconds to start and to
//! switch, and a page of memory while it waits. Until a goroutine first runs, any worker may take it; from then on the
//! goroutine stays on its worker. So a goroutine may hold values that are not `Send`, and the functions that it calls
//! need not tell a goroutine from a thread.
//!
//! Goroutines run on the workers of the process, threads that start when there is work and never end. A goroutine whose
//! wait never ends waits until the process ends, as a thread does; the process ends with `main`.
//!
//! All waits of this project go through [`G`](crate::G), and so block the goroutine and not the thread. Other calls
//! that block (`std`'s locks, files, sockets) block the worker, and with it all goroutines that have started on that
//! worker: make such calls by [`blocking`](fn@blocking).
//!
//! # What a goroutine may not do
//!
//! Safe Rust cannot cause undefined behaviour here, with an exception that all stackful coroutines in Rust share: **the
//! initialiser of a lazy `std::thread_local!` must not wait** (lock a mutex of ours, sleep, yield). During that wait
//! another goroutine of the worker may initialise the same value and borrow it. When the first initialiser ends, `std`
//! drops the borrowed value. Use a `const` initialiser, or [`goroutine_local!`](crate::goroutine_local). Initialisers
//! of `std`'s `LazyLock`, `OnceLock` and `Once` must not wait either: such a wait hangs. `SUDOG_CHECK_WAITS` (below)
//! finds both.
//!
//! Some libraries keep raw pointers in thread-locals: they save the old value and restore it, and rely on the frames of
//! a thread being strictly nested. Goroutines of one worker interleave instead. Wrap such a scope into
//! [`without_switching`]. `docs/goroutines.md` has the argument, and more pitfalls: `std`'s locks across a wait,
//! waiting in destructors.
//!
//! # What a forked child may do
//!
//! A fork copies the calling thread alone: workers, and the threads for timers and for blocking calls, stay in the
//! parent. So once the runtime has started a thread, which [`run`](fn@run) and the first [`go`](fn@go) do, a child may
//! `exec` and exit. Each step in the child that needs a thread of the runtime is a fatal error: to call
//! [`run`](fn@run), to start a goroutine from a thread, to join a goroutine that has not ended, to wait in a goroutine,
//! to set an alarm. Locks, channels and wait groups go on working between the child's own threads, unless a thread of
//! the parent was in the middle of an operation on them. `std::process::Command`, a fork and exec, may be used at any
//! time. A program that becomes a daemon forks before its first `run` or `go`: then nothing is forbidden. (Go has no
//! fork without exec; tokio forbids this use of a runtime.)
//!
//! The runtime does not recognise a child that is made by the system call itself (`clone`), not by the C library's
//! `fork`.
//!
//! # Environment
//!
//! `SUDOG_CHECK_ORDER`, if set and not `0`, in builds with debug assertions: two reports on standard error for mutexes
//! and readers-writer mutexes of `sudog::sync`, at the call, before the caller waits, and with the places of the calls.
//!
//! * Locks that are taken in two orders: one lock is wanted while another is held, and the second has been held while
//!   the first was wanted. Also over three locks or more. Another schedule can be a deadlock, unless something else
//!   keeps the two from meeting, for instance a third lock that is held both times; the check does not know that. A read
//!   lock counts as any other, because a writer that comes between makes readers wait.
//! * A lock that is wanted by a goroutine or a thread that holds that lock.
//!
//! A `try_lock`, and a lock with a deadline or a context, makes no order, but is held. Locks of async calls
//! (`lock_async`) are not looked at, nor are locks of other types. A guard that has been sent to another goroutine
//! counts as held by the goroutine that locked, until the unlock; a guard that a task of another runtime holds across
//! an `.await` counts as held by the thread. Each pair of calls is reported once. The check remembers 65,536 pairs
//! of locks, and forgets those of dropped locks, then those of the oldest locks. (So in builds with debug assertions
//! these locks have destructors.) Slow: all goroutines take turns at the check.
//!
//! `SUDOG_CHECK_WAITS`, if set and not `0`, in builds with debug assertions: a goroutine that waits or yields inside
//! the initialiser of a `std` `thread_local!`, `LazyLock`, `OnceLock` or `Once` ends the process, and the report shows
//! the goroutine's stack. Also reported, on standard error: a future of `lock_async`, or of another semaphore's lock,
//! that has been given the lock, or is the next to take it, and has neither been polled nor dropped for a second. Other
//! waiters wait for that future, perhaps the task that keeps it (a *futurelock*). The report shows the stack of the poll
//! that queued the future. Slow.
//!
//! `SUDOG_DEBUG`: `schedtrace=1000` prints a line about the scheduler on standard error every 1000 ms, as Go's
//! `GODEBUG=schedtrace` does. An empty value prints nothing; any other value ends the process. Only builds with the feature
//! `metrics` read this variable.
//!
//! `SUDOG_MAXPROCS`: the number of workers, as [`set_max_procs`] sets it. The default is the number of processors, or
//! the number that the cgroup's quota allows; but at least two on a system with two processors or more. The default
//! follows the quota while the program runs, within about a second, as in Go 1.25, until a call of [`set_max_procs`]. Any
//! value that is not a positive number ends the process.
//!
//! `SUDOG_STALLS`: `1` reports on standard error each goroutine that runs for 100 ms without giving way while other
//! goroutines of its worker wait. The report has the goroutine's name, the code that started the goroutine, and the
//! goroutine's stack at the next call into the runtime. A [`blocking`](fn@blocking) call that waits for a thread is
//! reported too. `20ms` reports goroutines that run for 20 ms, measured in steps of 10 ms. `0`, or an empty value,
//! reports nothing. Any other value ends the process. The default is `1` in builds with debug assertions, `0` in
//! others. With reports on, a [`dump`](fn@dump) has stacks, and goroutines that wait for each other's mutexes and
//! readers-writer mutexes are reported (in builds with debug assertions, where locks know their owners, writers, and up
//! to 8 readers). Not seen are cycles through threads, async tasks, semaphores (also those that are used as locks) and
//! channels. A guard that has been sent to another goroutine counts as held by the goroutine that locked, so a cycle
//! through such a guard is reported, though the other goroutine may drop the guard.
//!
//! # What goroutines of one worker share
//!
//! | shared | consequence | remedy |
//! |---|---|---|
//! | `thread_local!` | all goroutines of the worker share the value | [`goroutine_local!`](crate::goroutine_local), or [switch hooks](add_switch_hooks) |
//! | entered spans of `tracing` | spans of several goroutines mix | `PerGoroutine`, with the feature `tracing`; `Instrument` in tasks |
//! | `EnterGuard` of tokio, and other guards that save and restore the value of a thread-local | tokio panics if guards of two goroutines end in another order than that of a stack | [`without_switching`] around them; pass a `Handle` |
//! | `std`'s and `parking_lot`'s locks | a goroutine that waits for a lock blocks the worker's other goroutines, and perhaps the lock's owner | this project's locks |
//! | `RefCell` in a thread-local, borrowed across a wait | other goroutines find the cell borrowed, and panic | as for `thread_local!` |
//! | `thread::current()`: the thread's id, name and parker | `park` blocks the worker; the id is not the goroutine's | `JoinHandle`, channels |
//! | the name in the message of `std`'s panic hook | the message names the worker's thread, perhaps `main` | [`current_goroutine`], in a hook of the program |
//! | the count of panics (`thread::panicking`) | while a goroutine unwinds, its worker runs no other goroutine | |
//! | the signal mask, the errno, the floating-point mode, the locale of the thread | all goroutines of the worker see a change | [`without_switching`], or undo the change before a wait |
//! | the seed of `rand::rng()` and the like | nothing: these functions lend no borrow across a wait | |
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
