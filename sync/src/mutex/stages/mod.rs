//! The Go mutex in eight stages, from a bare semaphore to today's Go mutex: a file for each stage, to be read in turn.
//!
//! | stage | addition | remaining problem |
//! |---|---|---|
//! | [`V1`] | a semaphore with a single permit is a mutex | Every `lock` and every `unlock` goes through the semaphore, needed or not. A waiter sleeps at once: a context switch for the shortest of critical sections. |
//! | [`V2`] | a flag: the contender that finds the flag clear has the mutex, and newcomers may barge in | The word does not tell whether a waiter sleeps, so each `unlock` pays for a second word, and may leave a permit that wakes the next sleeper in vain. |
//! | [`V3`] | spinning, before and between sleeps | The same as in `V2`. And each look is a write to the word, which takes the word's cache line from the owner. |
//! | [`V4`] | a count of sleepers, in the same word: the semaphore is called only when needed | Each `unlock` wakes another waiter while the waiter before is still on its way: the woken waiters all meet, and one of them locks the mutex. |
//! | [`V5`] | a bit for "a contender is awake": unlocks wake one waiter at a time | A woken waiter that loses to a newcomer goes to the end of the queue. |
//! | [`V6`] | a waiter that sleeps again is queued at the head | That waiter can lose again and again: the waiter starves, without bound. |
//! | [`V7`] | starvation mode: after a millisecond the mutex is handed over, and newcomers queue | `lock` and `unlock` are large functions that are called, not inlined. Misuse goes unnoticed. |
//! | [`V8`] | fast paths of one step, slow paths elsewhere; checks | The rest is a matter of [`policy`](super::policy). |
//!
//! Source, unless a file says otherwise: Taichi Maeda, *"Crispifying" Go Mutexes*. The stages are the Version #1 to #8
//! of that text.
//!
//! The stages are for study, and for measurements. The laboratory calls the first seven `v1` to `v7`, and the eighth
//! `go-1.14`. For real use there is [`Mutex`](crate::Mutex).
//!
//! `lock` and `unlock` of `V4` to `V7` are marked not to be inlined, so that the step from `V7` to `V8` can be
//! measured: Go's compiler did not inline them, either.
//!
//! # Limits
//!
//! * Deadlines: `V1` has the deadlines of its semaphore. `V2` to `V7` [poll](crate::RawLock::try_lock_until), without a
//!   place in the queue.
//! * A goroutine may give way in an unlock that wakes another contender, and in each unlock of `V1`. No other unlock of
//!   `V1` to `V7` switches to another goroutine, even if a woken goroutine waits for the worker. Go would interrupt the
//!   owner; here the owner should call [`gosched`](sudog_runtime::goroutine) now and then.
//! * The counts, of 31, 30 and 29 bits, are not checked for overflow: every contender has a stack, and memory has no
//!   room for so many stacks.
//!
//! # Examples
//!
//! Any stage, over any semaphore:
//!
//! ```
//! use sudog::low_level::RawLock;
//! use sudog::low_level::RuntimeSema;
//! use sudog::study::stages::{V1, V4, V7, V8};
//!
//! fn turn<L: RawLock>() {
//!     let lock = L::new();
//!     let guard = lock.lock();
//!     assert!(lock.is_locked() && lock.try_lock().is_none());
//!     // SAFETY: the guard of this lock, which has not been released.
//!     unsafe { lock.unlock(guard) };
//! }
//! turn::<V1>();
//! turn::<V4>();
//! turn::<V7<RuntimeSema>>();
//! turn::<V8>();
//! ```

mod v1;
mod v2;
mod v3;
mod v4;
mod v5;
mod v6;
mod v7;
mod v8;

pub use v1::V1;
pub use v2::V2;
pub use v3::V3;
pub use v4::V4;
pub use v5::V5;
pub use v6::V6;
pub use v7::V7;
pub use v8::V8;
