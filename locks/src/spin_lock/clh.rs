//! The lock of Craig, and of Landin and Hagersten: a queue in which each waiter watches the node of the one before it.
//!
//! | `tail` | meaning |
//! |---|---|
//! | 0 | the lock is free, and has no node |
//! | a use of a node, whose gate is open | the lock is free; it has been locked before |
//! | a use of a node, whose gate is shut | held; the node of the last in line, or of the holder, if nobody waits |
//!
//! | step | who | what |
//! |---|---|---|
//! | join | contender | `pred = tail.swap(own)`; 0: has the lock |
//! | wait | contender | waits before `pred`'s gate; has the lock, and the node `pred` |
//! | unlock | holder | opens the gate of `own` |
//! | try | | `pred = tail`, 0 or open; `tail: pred → own`; has the lock, and the node `pred` |
//!
//! **A node goes to the one behind.** Its user leaves it in the tail; it is the next in line who sees its gate open,
//! and then nobody is left to touch it: the user opened it as its last step, and no other has joined behind it, as a
//! join takes it off the tail. So a lock that is not in use has one node, and its drop gives that back.
//!
//! **A use, not a node, is what the tail names**: a node's number, and how often that node has been taken. With the
//! node alone, `try` could go wrong in three steps: it finds the gate of the tail's node open. Another locks, and has
//! that node; uses it to lock this very lock again, and holds it. Now the tail is what `try` expects, and the gate is
//! shut: two hold the lock. A use never comes again (`node_pool.rs`): while the tail is the same, the node is in that
//! use; its gate, once open, is so until the tail changes; and what `try` saw is true still.
//!
//! A try that fails saw a shut gate, or a tail that changed: the gate is of this use, and somebody holds the lock, or
//! waits for it; or the node has gone to somebody who has taken this lock since `tail` was read.
//!
//! The guard names a node that is its user's until the gate is open, and no thread; so any thread may unlock.
//!
//! Orderings:
//!
//! | access | ordering | why |
//! |---|---|---|
//! | join, and try | Release | our gate was shut before anybody reads this use |
//! | join, and the load of `tail` | Acquire | the other side; without it a look might see the gate open from the use before. A try has it from its load, as its exchange finds the same |
//! | gate | | as `gate.rs` says: Release and Acquire; what the holder did goes this way, and no other |
//!
//! Source: Craig, *Building FIFO and priority-queueing spin locks from atomic swap*, 1993; Magnusson, Landin,
//! Hagersten, *Queue locks on cache coherent multiprocessors*, 1994.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use sudog_runtime::shim::AtomicU64;

use super::in_line;
use super::node_pool::{Node, Use};
use crate::waiting::gate::Gate;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

/// The CLH lock: first come, first served; to join is one exchange, and to unlock needs none to be answered. 8 bytes.
///
/// # Limits
///
/// Those of the [module](super). A lock that has been locked once has a node of 128 bytes until it is dropped; there
/// are up to 2^24 - 64 nodes at once, in a process, and their memory stays for other locks of this kind. A guard that
/// is forgotten leaks none.
///
/// # Examples
///
/// ```
/// use sudog_sync::MutexWith;
/// use sudog_locks::spin_lock::Clh;
///
/// static NAMES: MutexWith<Clh, Vec<&str>> = MutexWith::new(Vec::new());
/// NAMES.lock().push("Travis");
/// ```
pub struct Clh<P = SpinThenPark> {
    tail: AtomicU64,
    policy: PhantomData<P>,
}

/// What an acquisition of a [`Clh`] keeps for its release: the node.
#[derive(Debug)]
pub struct ClhGuard(&'static Node);

const NONE: u64 = 0;

impl<P> Clh<P> {
    /// The tail, if the lock looks free. It is so if the tail is still this afterwards.
    #[inline]
    fn free_tail(&self) -> Option<u64> {
        let tail = self.tail.load(Acquire);
        (tail == NONE || Use(tail).node().gate.is_open()).then_some(tail)
    }

    #[inline]
    fn looks_locked(&self) -> bool {
        self.free_tail().is_none_or(|free| self.tail.load(Relaxed) != free)
    }

    /// Changes as somebody joins the line. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.tail.load(Relaxed)
    }
}

impl<P: WaitPolicy> Clh<P> {
    #[cold]
    fn wait(pred: &'static Node) {
        in_line(|| pred.gate.wait::<P>(None));
    }
}

// SAFETY: whoever puts its use in the place of another has the lock when that one's gate is open, which its holder
// opens once; nobody else has the same before it, as the tail is exchanged. The orderings are above. Nodes do not point
// to the lock, so it may be moved while it is held; those who wait borrow it.
unsafe impl<P: WaitPolicy> RawLock for Clh<P> {
    type Guard = ClhGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { tail: AtomicU64::new(NONE), policy: PhantomData }
    }

    #[inline]
    fn lock(&self) -> ClhGuard {
        let (own, used) = Node::take();
        let pred = self.tail.swap(used.0, AcqRel);
        if pred != NONE {
            let pred = Use(pred).node();
            if !pred.gate.is_open() {
                Self::wait(pred);
            }
            pred.give();
        }
        ClhGuard(own)
    }

    #[inline]
    fn try_lock(&self) -> Option<ClhGuard> {
        let pred = self.free_tail()?;
        let (own, used) = Node::take();
        if self.tail.compare_exchange(pred, used.0, Release, Relaxed).is_err() {
            own.give();
            return None;
        }
        if pred != NONE {
            Use(pred).node().give();
        }
        Some(ClhGuard(own))
    }

    #[inline]
    unsafe fn unlock(&self, ClhGuard(own): ClhGuard) {
        // SAFETY: nodes are never freed; the holder alone opens it.
        unsafe { Gate::open_for::<P>(&raw const own.gate) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.looks_locked()
    }
}

#[cfg(not(sudog_loom))]
impl<P: WaitPolicy> sudog_sync::ConstRawLock for Clh<P> {
    const INIT: Self = Self { tail: AtomicU64::new(NONE), policy: PhantomData };
}

impl<P> Drop for Clh<P> {
    /// The tail's node is nobody's by now: nobody waits, and if its guard has been forgotten nobody unlocks.
    fn drop(&mut self) {
        let tail = self.tail.load(Relaxed); // whoever gave us the lock to drop has seen all of it
        if tail != NONE {
            Use(tail).node().give();
        }
    }
}

impl<P> fmt::Debug for Clh<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clh").field("locked", &self.looks_locked()).finish_non_exhaustive()
    }
}
