//! The Go mutex in eight stages, from a bare semaphore to what Go has today: one file each, to be read in turn.
//!
//! | stage | what it adds | what it still gets wrong |
//! |---|---|---|
//! | [`V1`] | a semaphore of one is a mutex | Every `lock` and every `unlock` goes through the semaphore, wanted or not. Who waits sleeps at once: a context switch for the shortest of critical sections. |
//! | [`V2`] | a flag: who finds it clear has the mutex, and newcomers may barge in | Nobody knows whether anybody sleeps, so each `unlock` pays for a second word, and may leave a permit that wakes the next sleeper in vain. |
//! | [`V3`] | spinning, before and between sleeps | As before. And each look is a write to the word, which takes its cache line from the owner. |
//! | [`V4`] | a count of those who sleep, in the same word: the semaphore is called when it is needed | Each `unlock` wakes another one, while the last one that was woken is still on its way: they all meet, and one has the mutex. |
//! | [`V5`] | a bit for "somebody is awake": one is woken at a time | One that is woken and beaten, by a newcomer that runs already, goes to the end of the line. |
//! | [`V6`] | who has waited before sleeps at the head of the line | It can be beaten again, and again: it starves, without bound. |
//! | [`V7`] | starvation mode: after a millisecond the mutex is handed over, and nobody barges in | `lock` and `unlock` are large functions that are called, not inlined. Misuse goes unnoticed. |
//! | [`V8`] | fast paths of one step, slow paths elsewhere; checks | What is left is a matter of [`policy`](super::policy). |
//!
//! Source, but where a file says otherwise: Taichi Maeda, *"Crispifying" Go Mutexes*, whose Version #1 to #8 they are.
//!
//! They are for study, and for the laboratory, where they are `v1` to `v7`, and `go-1.14` is the eighth. To lock
//! something, use [`Mutex`](crate::Mutex).
//!
//! `lock` and `unlock` of `V4` to `V7` are marked not to be inlined, so that the step from `V7` to `V8` is there to be
//! measured: Go's compiler did not inline them, either.
//!
//! # Limits
//!
//! * Deadlines: `V1` has those of its semaphore. `V2` to `V7` [poll](crate::RawLock::try_lock_until), without a place in the
//!   line.
//! * A goroutine may give way in an unlock that wakes another contender, and in each unlock of `V1`. No other unlock of `V1`
//!   to `V7` switches, though a goroutine that has been woken may wait for the worker: Go interrupts the owner, and here
//!   the owner calls [`gosched`](sudog_runtime::goroutine) at times.
//! * The counts, of 31, 30 and 29 bits, are not checked for overflow: every contender has a stack, and so many stacks
//!   there are not.
//! * A goroutine that is unwound while it waits loses nothing for others. `V1` to `V3` keep no account of it. From `V4`
//!   on it has been counted, and nobody takes it off: there is one more in `waiters`, or one more permit in the
//!   semaphore, than there are sleepers, and that for good. Each unlock that finds nobody but it to wake releases a
//!   permit, which the next one that would sleep takes at once, in vain, and is itself counted for. (With the permit
//!   goes W, from `V5` on, so whoever takes it has it.) In `V7` a mutex in starvation mode can be left promised to
//!   nobody: `try_lock` fails until somebody calls `lock`, who has it at once. `V8` has none of this.
//!
//! # Examples
//!
//! Any of them, over any semaphore:
//!
//! ```
//! use sudog_sync::RawLock;
//! use sudog_sync::mutex::stages::{V1, V4, V7, V8};
//! use sudog_sync::semaphore::RuntimeSema;
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

#[cfg(all(test, unix, not(sudog_loom)))]
mod tests;
