//! The lock of Craig, and of Landin and Hagersten: a queue in which each waiter watches the node of its predecessor.
//!
//! | `tail` | meaning |
//! |---|---|
//! | 0 | the lock is free, and has no node |
//! | a use of a node whose gate is open | the lock is free; it has been locked before |
//! | a use of a node whose gate is shut | the lock is held; the node is that of the last waiter, or of the owner, if there is no waiter |
//!
//! | step | by | action |
//! |---|---|---|
//! | join | contender | `pred = tail.swap(own)`; if `pred` is 0, has the lock |
//! | wait | contender | waits at the gate of `pred`; then has the lock, and the node `pred` |
//! | unlock | owner | opens the gate of `own` |
//! | try | contender | `pred = tail`, which must be 0 or open; `tail: pred → own`; has the lock, and the node `pred` |
//!
//! **A node goes to the successor.** The user of a node leaves the node in the tail; the successor sees the gate of
//! that node open, and then no other thread touches the node: the user opened the gate as its last step, and no other
//! thread has joined behind that node, as a join replaces the node in the tail. So a free lock that has been locked
//! before has a single node, and the drop of the lock gives that node back.
//!
//! **The tail refers to a use, not to a node**: the number of a node, and the count of the takes of that node. With the
//! node alone, `try` could go wrong in three steps. `try` finds the gate of the tail's node open. Another thread locks,
//! and gets that node; this thread uses the node to lock the same lock again, and holds the lock. Now the tail has the
//! value that `try` expects, and the gate is shut: two threads hold the lock. A use never repeats (`node_pool.rs`):
//! while the tail is the same, the node is in that use; the gate of the node, once open, stays open until the tail
//! changes; so the gate that `try` saw open is still open.
//!
//! A `try` that fails saw a shut gate, or a tail that changed. If the shut gate is still of the use that `try` read
//! from `tail`, a thread holds the lock or waits for the lock. Otherwise the node has gone to a thread that has taken
//! this lock since `tail` was read.
//!
//! The node in a guard belongs to the acquisition until the gate is open, and not to a thread; so any thread may
//! unlock.
//!
//! Orderings:
//!
//! | access | ordering | why |
//! |---|---|---|
//! | join, and try | Release | the gate of this node was shut before any thread reads this use |
//! | join, and the load of `tail` | Acquire | pairs with that Release; without the Acquire a check might see the gate open from the use before. A `try` has the Acquire from its load, as its exchange finds the same value |
//! | gate | | as in `waiting/parker.rs`: Release and Acquire; the owner's writes are published only by the gate |
//!
//! Source: Craig, *Building FIFO and priority-queueing spin locks from atomic swap*, 1993; Magnusson, Landin,
//! Hagersten, *Queue locks on cache coherent multiprocessors*, 1994.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use sudog_runtime::shim::AtomicU64;

use super::node_pool::{Node, Use};
use super::without_unwinding;
use crate::waiting::parker::OneShotParker;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

/// The CLH lock: first come, first served. A contender joins by one exchange, and an unlock just opens a gate. 8 bytes.
///
/// # Limits
///
/// The limits of the [module](super). A lock that has been locked once has a node of 128 bytes until the lock is
/// dropped. A process can have up to 2^24 - 64 nodes at once, and their memory is kept for other locks of this kind. A
/// guard that is forgotten leaks no node.
///
/// # Examples
///
/// ```
/// use sudog::sync::MutexWith;
/// use sudog::locks::spin_lock::Clh;
///
/// static NAMES: MutexWith<Clh, Vec<&str>> = MutexWith::new(Vec::new());
/// NAMES.lock().push("Travis");
/// ```
pub struct Clh<P = SpinThenPark> {
    tail: AtomicU64,
    policy: PhantomData<P>,
}

/// The guard of a [`Clh`]: the node of the acquisition.
#[derive(Debug)]
pub struct ClhGuard(&'static Node);

const NONE: u64 = 0;

impl<P> Clh<P> {
    /// Returns the tail, if the lock looks free. The lock is free if the tail is still the same afterwards.
    #[inline]
    fn free_tail(&self) -> Option<u64> {
        let tail = self.tail.load(Acquire);
        (tail == NONE || Use(tail).node().gate.is_open()).then_some(tail)
    }

    #[inline]
    fn looks_locked(&self) -> bool {
        self.free_tail().is_none_or(|free| self.tail.load(Relaxed) != free)
    }

    /// Returns a value that changes when a contender joins the queue. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.tail.load(Relaxed)
    }
}

impl<P: WaitPolicy> Clh<P> {
    #[cold]
    fn wait(pred: &'static Node) {
        without_unwinding(|| pred.gate.wait::<P>(None));
    }
}

// SAFETY: a thread replaces the use in the tail by its own use, and has the lock when the gate of the replaced use is
// open. The user of that node opens the gate once; no two threads have the same predecessor, as the tail is exchanged.
// The module's comment argues the orderings. Nodes do not point to the lock, so a held lock may be moved; waiters borrow
// the lock.
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
        // SAFETY: `own.gate` is alive, as nodes are never freed; only the owner opens `own.gate`.
        unsafe { OneShotParker::open_for::<P>(&raw const own.gate) };
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
    /// Gives the node of the tail back. No thread uses that node: there is no waiter, and if the guard of the node has
    /// been forgotten, there will be no unlock.
    fn drop(&mut self) {
        let tail = self.tail.load(Relaxed); // Relaxed: this thread sees all earlier accesses, as it owns the lock
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
