//! The lock of Mellor-Crummey and Scott: a queue in which each waiter watches its own node.
//!
//! | word | value | meaning |
//! |---|---|---|
//! | `tail` | null | the lock is free |
//! | | a node | the last in the queue; the owner's, if there is no waiter |
//! | `node.next` | null | there is no successor, or it has not linked itself yet |
//! | | a node | its successor |
//! | `node.gate` | | opened by its predecessor: the lock belongs to the node's thread |
//!
//! | step | by | action |
//! |---|---|---|
//! | join | contender | `pred = tail.swap(node)`; null: has the lock |
//! | link | contender | `pred.next = node`; waits at its gate |
//! | leave | owner whose `next` is null | `tail: node → null`: the lock is free |
//! | hand over | owner | waits for `next` if that failed; opens its gate |
//! | try | | `tail: null → node` |
//!
//! **A node belongs to its thread from join to unlock.** Its predecessor opens its gate, and does not touch it any
//! more; its successor writes its `next`, once. An unlock has either put null in the tail, so there is no successor, or
//! has seen that write. So a node can be reused, or freed, as soon as its unlock has handed over.
//!
//! Between join and link the successor has a place, but cannot be found: an unlock then waits for it. The link follows
//! within some instructions, unless the thread is preempted there.
//!
//! Nodes come from a thread-local list. An unlock is on the thread of its lock, as the guard is not `Send`, so the list
//! is at most as long as the largest number of locks that the thread has held at once. A thread that is ending has no
//! list: it allocates and frees.
//!
//! Orderings, by what they order:
//!
//! | access | ordering | why |
//! |---|---|---|
//! | join, and try | Acquire, Release | null: sees the last owner's writes. A node: its `next` was null before this thread writes to it; this thread's node, before its successor finds it here |
//! | link | Release | the predecessor opens a gate that it sees shut |
//! | leave | Release | the owner's writes |
//! | load of `next` | Acquire | the other side of link |
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

/// 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Node {
    gate: OneShotParker,
    /// Its successor; while it is in no queue, the next node of its thread's list.
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

    /// # Safety
    ///
    /// The node came from [`Node::take`], is in no queue, and no thread uses it after this.
    unsafe fn push(&self, node: NonNull<Node>) {
        // SAFETY: alive, and owned by the caller, by the contract.
        unsafe { node.as_ref() }.next.store(self.0.get(), Relaxed);
        self.0.set(node.as_ptr());
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        while let Some(node) = self.pop() {
            // SAFETY: it came from a box, and was on the list, so no thread uses it.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

impl Node {
    /// A node that is in no queue, its gate shut.
    #[inline]
    fn take() -> NonNull<Self> {
        let Some(node) = SPARE.try_with(Spare::pop).ok().flatten() else { return Self::allocate() };
        // SAFETY: it was on the list, so it is alive, and now belongs to the caller.
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

    /// # Safety
    ///
    /// As for [`Spare::push`].
    #[inline]
    unsafe fn give(node: NonNull<Self>) {
        // SAFETY: the same contract.
        if SPARE.try_with(|spare| unsafe { spare.push(node) }).is_err() {
            // SAFETY: it came from a box, and no thread uses it, by the contract.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

/// The MCS lock: first come, first served; each waiter watches its own memory. 8 bytes.
///
/// # Limits
///
/// Those of the [module](super). A guard that is forgotten leaks a node of 128 bytes.
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

/// The guard of an [`Mcs`]: its node. It stays on its thread.
#[derive(Debug)]
pub struct McsGuard(NonNull<Node>);

impl<P: WaitPolicy> Mcs<P> {
    /// Waits behind `pred`.
    ///
    /// # Safety
    ///
    /// The caller has taken `node`, and swapped it for `pred` in the tail.
    #[cold]
    unsafe fn wait(pred: NonNull<Node>, node: NonNull<Node>) {
        // SAFETY: the predecessor cannot release it before it has seen this store.
        unsafe { pred.as_ref() }.next.store(node.as_ptr(), Release);
        // SAFETY: this thread's until its unlock.
        unsafe { node.as_ref() }.gate.wait::<P>(None);
    }

    /// Waits until the successor of `node` has linked itself.
    #[cold]
    fn wait_for_link(node: &Node) -> NonNull<Node> {
        // The successor is another thread, which runs, or will: a goroutine does not yield between join and link.
        without_unwinding(|| watch::<P, _>(|| NonNull::new(node.next.load(Acquire))))
    }

    /// Changes when a contender joins the queue. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.tail.load(Relaxed).addr() as u64
    }
}

// SAFETY: the thread that replaces null by its node has the lock, and so has the thread whose gate is opened: the owner
// does that once, or else puts null back, if it has no successor. The orderings are above. Nodes do not point to the
// lock, so it may be moved while it is held; waiters borrow it. A forgotten guard leaks its node, which is not freed
// then, so its successor may write to it.
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
            // SAFETY: by the swap.
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
        // SAFETY: it has not joined.
        unsafe { Node::give(node) };
        None
    }

    #[inline]
    unsafe fn unlock(&self, McsGuard(node): McsGuard) {
        // SAFETY: this thread's until it is given back, below.
        let this = unsafe { node.as_ref() };
        let next = match NonNull::new(this.next.load(Acquire)) {
            None if self.tail.compare_exchange(node.as_ptr(), ptr::null_mut(), Release, Relaxed).is_ok() => None,
            None => Some(Self::wait_for_link(this)),
            next => next,
        };
        if let Some(next) = next {
            // SAFETY: its thread waits for this, and only the owner opens it.
            unsafe { OneShotParker::open_for::<P>(&raw const (*next.as_ptr()).gate) };
        }
        // SAFETY: on the thread that took it; it has no predecessor, and no successor that has yet to write to it.
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
