//! The classic queue and spin locks, one a file: small locks to build others from, to compare with, and to read.
//!
//! | lock | RMWs, alone | if it may sleep | a waiter's memory | watches | guard | order | sleeps |
//! |---|--:|--:|---|---|---|---|---|
//! | [`Tts`] | 1 | 2 | none | the lock | `Send` | none | yes |
//! | [`TicketLock`] | 1 | 1 | none | the lock | `Send` | first come, first served | no: it yields |
//! | [`Mcs`] | 2 | 2 | a node of the thread's | its node | stays on its thread | first come, first served | yes |
//! | [`Clh`] | 1 | 2 | a node of a pool | its predecessor's node | `Send` | first come, first served | yes |
//! | [`Lifo`] | 2 | 2 | on its stack | its element | `Send` | last come, first served | yes |
//! | [`Reciprocating`] | 2 | 2 | the thread's one element | its element | stays on its thread | segments: within each, last come, first served | yes |
//!
//! *RMWs, alone* are the atomic read-modify-writes of a `lock` and an `unlock` that meet nobody, under a policy that
//! never sleeps. One that does must leave its sleepers a way to be noticed: where `unlock` is otherwise a store, it is
//! an exchange.
//!
//! | to | take |
//! |---|---|
//! | lock something | [`Mutex`](sudog_sync::Mutex), and none of these |
//! | have a lock inside of another, whose contenders are few | `Tts` |
//! | serve in order, on processors that are ours alone | `Clh<SpinThenYield>`, `Mcs<SpinThenYield>` |
//! | serve in order, with more threads than processors | `Mcs`, `Clh`; each handover then wakes a sleeper |
//! | have throughput under contention, and nobody bypassed for ever | `Reciprocating` |
//! | see what unfairness does | `Lifo` |
//! | see what a common word costs | `TicketLock` |
//!
//! How those who wait pass the time is the parameter `P`: [`Spin`], [`SpinThenYield`], or [`SpinThenPark`], the
//! default.
//!
//! # Limits
//!
//! * **Waiting blocks the thread.** Whoever stands in one of these lines cannot be taken out of it, and a goroutine can
//!   be unwound wherever it gives way. So a goroutine that waits counts as its thread, and blocks its worker, with all
//!   goroutines that are there. So the holder, if it is a goroutine, **must neither wait nor give way**: whoever wants
//!   the lock may then keep it from its worker, or keep from theirs those whom it waits for, and none of them would ever
//!   run again. Every call that gives something back may give way, but for the few that `docs/goroutines.md` lists: on
//!   goroutines, not inside of these. The locks and unlocks of this module never give way.
//! * Deadlines poll (`try_lock_until`), without a place in the line, and may never see a lock that is contended
//!   without pause.
//! * A [`WaitPolicy`] of one's own that panics while somebody stands in line ends the process.
//! * `Mcs` and `Clh` allocate at times, so they cannot stand inside of a global allocator; nor, where the system is not
//!   Linux, may the others, as their sleep may allocate there.
//! * None is reentrant: who locks twice waits for itself.
//!
//! # Examples
//!
//! Any of them, around a value:
//!
//! ```
//! use sudog_sync::MutexWith;
//! use sudog_locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, SpinThenYield, TicketLock, Tts};
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

/// A thread-local, of std's or of the model's.
macro_rules! per_thread {
    ($NAME:ident: $Type:ty = $init:expr) => {
        #[cfg(not(sudog_loom))]
        std::thread_local! { static $NAME: $Type = const { $init }; }

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

/// Runs what must not be left halfway: from the first step in line to the acquisition, or a release.
///
/// A goroutine that may not switch is not unwound; and the wait of a thread has nothing in it that panics, but for a
/// foreign policy. Then the line leads through a frame that is no more, so the process ends.
fn in_line<T>(f: impl FnOnce() -> T) -> T {
    struct Unwound;
    impl Drop for Unwound {
        fn drop(&mut self) {
            fatal("sync: a waiter was unwound in the line of a lock");
        }
    }
    let unwound = Unwound;
    let done = without_switching(f);
    std::mem::forget(unwound);
    done
}

/// Looks at what one cannot sleep before until there is something to see. A policy that would sleep yields instead.
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
