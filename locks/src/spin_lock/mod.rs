//! The classic queue and spin locks, one per file: small locks to build others from, to compare with, and to read.
//!
//! | lock | RMWs, uncontended | if the policy may sleep | memory of a waiter | a waiter watches | guard | order | sleeps |
//! |---|--:|--:|---|---|---|---|---|
//! | [`Tts`] | 1 | 2 | none | the lock | `Send` | none | yes |
//! | [`TicketLock`] | 1 | 1 | none | the lock | `Send` | first come, first served | no: yields |
//! | [`Mcs`] | 2 | 2 | a node of the thread | its own node | stays on its thread | first come, first served | yes |
//! | [`Clh`] | 1 | 2 | a node of a pool | its predecessor's node | `Send` | first come, first served | yes |
//! | [`Lifo`] | 2 | 2 | an element on its stack | its own element | `Send` | last come, first served | yes |
//! | [`Reciprocating`] | 2 | 2 | the only element of the thread | its own element | stays on its thread | segments: within each, last come, first served | yes |
//!
//! *RMWs, uncontended* are the atomic read-modify-writes of an uncontended `lock` and `unlock`, under a policy that
//! never sleeps. A policy that sleeps must let unlocks detect the sleepers: an `unlock` that would otherwise be a store
//! is an exchange then.
//!
//! | to | use |
//! |---|---|
//! | lock something | [`Mutex`](sudog_sync::Mutex), and no lock of this module |
//! | have a lock inside another lock, with few contenders | `Tts` |
//! | serve in order, on processors of your own | `Clh<SpinThenYield>`, `Mcs<SpinThenYield>` |
//! | serve in order, with more threads than processors | `Mcs`, `Clh`; each handoff then wakes a sleeper |
//! | have throughput under contention, and no contender bypassed for ever | `Reciprocating` |
//! | see the effect of unfairness | `Lifo` |
//! | see the cost of one shared word | `TicketLock` |
//!
//! The parameter `P` determines the way in which contenders wait: [`Spin`], [`SpinThenYield`], or [`SpinThenPark`], the
//! default.
//!
//! # Limits
//!
//! * **Waiting blocks the thread.** A goroutine that waits counts as its thread, and blocks its worker, with all
//!   goroutines of that worker. So an owner that is a goroutine **must neither wait nor yield**: a contender may then
//!   keep the owner from its worker, or keep other goroutines, for which the owner waits, from their workers, and none
//!   of these goroutines would ever run again. Every call that releases something may yield, except the few that
//!   `docs/goroutines.md` lists: on goroutines, do not make such calls while a lock of this module is held. The locks
//!   and unlocks of this module never yield.
//! * Deadlines poll (`try_lock_until`), without a place in the queue. A contender that polls may never find a lock free
//!   that is contended without a pause.
//! * A user's [`WaitPolicy`] that panics while a contender is queued ends the process.
//! * `Mcs` and `Clh` sometimes allocate, so a global allocator cannot use them. On systems other than Linux, a global
//!   allocator cannot use the other locks either, as their sleep may allocate there.
//! * No lock is reentrant: a thread that locks twice deadlocks.
//!
//! # Examples
//!
//! Each lock around a value:
//!
//! ```
//! use sudog::sync::MutexWith;
//! use sudog::locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, SpinThenYield, TicketLock, Tts};
//!
//! static A: MutexWith<Tts, u32> = MutexWith::new(1);
//! static B: MutexWith<TicketLock, u32> = MutexWith::new(2);
//! static C: MutexWith<Mcs, u32> = MutexWith::new(3);
//! static D: MutexWith<Clh<SpinThenYield>, u32> = MutexWith::new(4);
//! static E: MutexWith<Lifo, u32> = MutexWith::new(5);
//! static F: MutexWith<Reciprocating, u32> = MutexWith::new(6);
//!
//! let held = (A.lock(), B.lock(), C.lock(), D.lock(), E.lock(), F.lock());
//! assert_eq!(*held.0 + *held.1 + *held.2 + *held.3 + *held.4 + *held.5, 21);
//! ```

/// Declares a thread-local: of `std`, or of the model.
macro_rules! per_thread {
    ($NAME:ident: $Type:ty = $init:expr) => {
        #[cfg(not(sudog_loom))]
        sudog_runtime::shim::system::thread_local! { static $NAME: $Type = const { $init }; }

        #[cfg(sudog_loom)]
        loom::thread_local! { static $NAME: $Type = $init; }
    };
}

mod clh;
mod lifo;
mod mcs;
mod node_pool;
mod reciprocating;
mod ticket_lock;
mod tts;

pub use crate::waiting::policy::{Spin, SpinThenPark, SpinThenYield, WaitPolicy};
pub use clh::{Clh, ClhGuard};
pub use lifo::Lifo;
pub use mcs::{Mcs, McsGuard};
pub use reciprocating::{Reciprocating, ReciprocatingGuard};
pub use ticket_lock::TicketLock;
pub use tts::Tts;

use sudog_runtime::fatal;

use sudog_runtime::goroutine::without_switching;

/// Runs a step that must not be left halfway: from joining the queue to the acquisition, or a release.
///
/// Nothing in the step panics, except a user's policy. A panic would leave the queue with a pointer to a frame that
/// does not exist any more, so the process ends.
fn without_unwinding<T>(f: impl FnOnce() -> T) -> T {
    struct AbortOnUnwind;
    impl Drop for AbortOnUnwind {
        fn drop(&mut self) {
            fatal("sync: a waiter was unwound in the queue of a lock");
        }
    }
    let guard = AbortOnUnwind;
    let done = without_switching(f);
    std::mem::forget(guard);
    done
}

/// Polls `look` until `look` returns a value, where sleeping is not possible. A policy that would sleep yields instead.
fn watch<P: WaitPolicy, T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut iter: u32 = 0;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        if !P::pass_time(iter) {
            SpinThenYield::pass_time(iter);
        }
        iter = iter.wrapping_add(1);
    }
}
