//! The lock of Mellor-Crummey and Scott: a queue in which each waiter watches its own node.
//!
//! | word | value | meaning |
//! |---|---|---|
//! | `tail` | null | the lock is free |
//! | | a node | the last node in the queue; the owner's, if there is no waiter |
//! | `node.next` | null | there is no successor, or the successor has not linked itself yet |
//! | | a node | the successor |
//! | `node.gate` | | opened by the predecessor: the lock belongs to the node's thread |
//!
//! | step | by | action |
//! |---|---|---|
//! | join | contender | `pred = tail.swap(node)`; if `pred` is null, has the lock |
//! | link | contender | `pred.next = node`; waits at the gate of `node` |
//! | leave | owner whose `next` is null | `tail: node → null`: the lock is free |
//! | hand over | owner | waits for `next` if the leave failed; opens the gate of `next` |
//! | try | contender | `tail: null → node` |
//!
//! **A node belongs to its thread from join to unlock.** The predecessor opens the gate of the node, and does not touch
//! the node any more; the successor writes `next` of the node, once. An unlock has either put null in the tail, so
//! there is no successor, or has seen that write. So a node can be reused, or freed, as soon as its unlock has handed
//! over.
//!
//! Between join and link the successor has a place in the queue, but cannot be found: an unlock then waits for the
//! link. The link follows within some instructions, unless the thread is preempted there.
//!
//! Nodes come from a thread-local list. An unlock is on the thread of its lock, as the guard is not `Send`, so the list
//! is at most as long as the largest number of locks that the thread has held at once. A thread that is ending has no
//! list: such a thread allocates and frees its nodes.
//!
//! Orderings, by the accesses that they order:
//!
//! | access | ordering | why |
//! |---|---|---|
//! | join, and try | Acquire, Release | if the old tail is null, the contender sees the last owner's writes; if the old tail is a node, `next` of that node was null before this thread writes to it. `next` of this thread's node was null before its successor finds the node in the tail |
//! | link | Release | the predecessor opens a gate that it sees shut |
//! | leave | Release | publishes the owner's writes |
//! | load of `next` | Acquire | pairs with the Release of link |
//! | gate | | as in `waiting/parker.rs`: Release, Acquire |
//!
//! Source: Mellor-Crummey and Scott, *Algorithms for scalable synchronization on shared-memory multiprocessors*, 1991.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use sudog_runtime::shim::AtomicPtr;

use super::{watch, without_unwinding};
use crate::waiting::parker::OneShotParker;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

/// A node of a queue. Aligned to 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Node {
    gate: OneShotParker,
    /// The successor, written once by the successor's thread. While the node is in no queue: the next node of its
    /// thread's list.
    next: AtomicPtr<Node>,
}

/// The nodes of a thread that are in no queue.
struct Spare(Cell<*mut Node>);

per_thread!(SPARE: Spare = Spare(Cell::new(ptr::null_mut())));

impl Spare {
    fn pop(&self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.0.get())?;
        // SAFETY: nodes on the list are alive, and belong to the list only.
        self.0.set(unsafe { node.as_ref() }.next.load(Relaxed));
        Some(node)
    }

    /// Puts a node into this thread's list of spare nodes.
    ///
    /// # Safety
    ///
    /// The node came from [`Node::take`], is in no queue, and no thread uses the node after this.
    unsafe fn push(&self, node: NonNull<Node>) {
        // SAFETY: by the contract of `push`, `node` came from `Node::take`, so `node` is alive, and belongs to the
        // caller.
        unsafe { node.as_ref() }.next.store(self.0.get(), Relaxed);
        self.0.set(node.as_ptr());
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        while let Some(node) = self.pop() {
            // SAFETY: `node` came from a box, and was on the list, so no thread uses `node`.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

impl Node {
    /// Returns a node that is in no queue, with its gate shut.
    #[inline]
    fn take() -> NonNull<Self> {
        let Some(node) = SPARE.try_with(Spare::pop).ok().flatten() else { return Self::allocate() };
        // SAFETY: `node` was on the list, so `node` is alive, and now belongs to the caller.
        let this = unsafe { node.as_ref() };
        this.next.store(ptr::null_mut(), Relaxed);
        this.gate.shut();
        node
    }

    #[cold]
    fn allocate() -> NonNull<Self> {
        let node = Box::new(Self { gate: OneShotParker::new(), next: AtomicPtr::new(ptr::null_mut()) });
        NonNull::from(Box::leak(node))
    }

    /// Puts a node into the list of this thread's spare nodes, or frees the node if the thread's list is gone.
    ///
    /// # Safety
    ///
    /// The contract of [`Spare::push`].
    #[inline]
    unsafe fn give(node: NonNull<Self>) {
        // SAFETY: the contract of `push` is that of `give`.
        if SPARE.try_with(|spare| unsafe { spare.push(node) }).is_err() {
            // SAFETY: by the contract of `give`, `node` came from `Node::take`, so from a box, and no thread uses
            // `node`.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

/// The MCS lock: first come, first served; each waiter watches its own memory. 8 bytes.
///
/// # Limits
///
/// The limits of the [module](super). A guard that is forgotten leaks a node of 128 bytes.
///
/// # Examples
///
/// ```
/// use sudog::sync::MutexWith;
/// use sudog::locks::spin_lock::Mcs;
///
/// static NAMES: MutexWith<Mcs, Vec<&str>> = MutexWith::new(Vec::new());
/// NAMES.lock().push("John");
/// ```
pub struct Mcs<P = SpinThenPark> {
    tail: AtomicPtr<Node>,
    policy: PhantomData<P>,
}

/// The guard of an [`Mcs`]: the node of the acquisition. The guard stays on its thread.
#[derive(Debug)]
pub struct McsGuard(NonNull<Node>);

impl<P: WaitPolicy> Mcs<P> {
    /// Links `node` behind `pred`, and waits until the lock is handed to `node`.
    ///
    /// # Safety
    ///
    /// The caller has taken `node`, and swapped `node` for `pred` in the tail.
    #[cold]
    unsafe fn wait(pred: NonNull<Node>, node: NonNull<Node>) {
        // SAFETY: `pred` is alive, as its thread cannot release `pred` before that thread has seen this store.
        unsafe { pred.as_ref() }.next.store(node.as_ptr(), Release);
        // SAFETY: `node` is alive, as the node belongs to this thread until this thread's unlock.
        unsafe { node.as_ref() }.gate.wait::<P>(None);
    }

    /// Waits until the successor of `node` has linked itself, and returns the successor.
    #[cold]
    fn wait_for_link(node: &Node) -> NonNull<Node> {
        // The successor is another thread, which runs, or will run: a goroutine does not yield between join and link.
        without_unwinding(|| watch::<P, _>(|| NonNull::new(node.next.load(Acquire))))
    }

    /// Returns a value that changes when a contender joins the queue. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.tail.load(Relaxed).addr() as u64
    }
}

// SAFETY: the thread that replaces null by its node has the lock, and so has the thread whose gate is opened: the owner
// opens one gate once, or else puts null back, if there is no successor. The module's comment argues the orderings.
// Nodes do not point to the lock, so a held lock may be moved; waiters borrow the lock. A forgotten guard leaks its
// node, which is not freed then, so the successor may write to that node.
unsafe impl<P: WaitPolicy> RawLock for Mcs<P> {
    type Guard = McsGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { tail: AtomicPtr::new(ptr::null_mut()), policy: PhantomData }
    }

    #[inline]
    fn lock(&self) -> McsGuard {
        let node = Node::take();
        if let Some(pred) = NonNull::new(self.tail.swap(node.as_ptr(), AcqRel)) {
            // SAFETY: `node` was taken above, and the swap has put `node` in the place of `pred` in the tail.
            without_unwinding(|| unsafe { Self::wait(pred, node) });
        }
        McsGuard(node)
    }

    #[inline]
    fn try_lock(&self) -> Option<McsGuard> {
        if !self.tail.load(Relaxed).is_null() {
            return None;
        }
        let node = Node::take();
        if self.tail.compare_exchange(ptr::null_mut(), node.as_ptr(), AcqRel, Relaxed).is_ok() {
            return Some(McsGuard(node));
        }
        // SAFETY: `node` was taken above, and is in no queue: the exchange failed. No thread uses `node` after this.
        unsafe { Node::give(node) };
        None
    }

    #[inline]
    unsafe fn unlock(&self, McsGuard(node): McsGuard) {
        // SAFETY: `node` is alive, as the node belongs to this thread until `Node::give` below.
        let this = unsafe { node.as_ref() };
        let next = match NonNull::new(this.next.load(Acquire)) {
            None if self.tail.compare_exchange(node.as_ptr(), ptr::null_mut(), Release, Relaxed).is_ok() => None,
            None => Some(Self::wait_for_link(this)),
            next => next,
        };
        if let Some(next) = next {
            // SAFETY: `next` is alive, as its thread waits at this gate; only the owner of the lock opens the gate.
            unsafe { OneShotParker::open_for::<P>(&raw const (*next.as_ptr()).gate) };
        }
        // SAFETY: `node` came from `Node::take` on this thread. `node` is in no queue: there is no predecessor, and no
        // successor that has yet to write to `node`.
        unsafe { Node::give(node) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

#[cfg(not(sudog_loom))]
impl<P: WaitPolicy> sudog_sync::ConstRawLock for Mcs<P> {
    const INIT: Self = Self { tail: AtomicPtr::new(ptr::null_mut()), policy: PhantomData };
}

impl<P> fmt::Debug for Mcs<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mcs").field("locked", &!self.tail.load(Relaxed).is_null()).finish_non_exhaustive()
    }
}
