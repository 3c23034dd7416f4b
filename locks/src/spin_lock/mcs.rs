//! The lock of Mellor-Crummey and Scott: a queue in which each waiter watches its own node.
//!
//! | word | value | meaning |
//! |---|---|---|
//! | `tail` | null | the lock is free |
//! | | a node | the last in line; the holder's, if nobody waits |
//! | `node.next` | null | nobody is behind it, or that one has not said so yet |
//! | | a node | the one behind it |
//! | `node.gate` | | opened by the one before it: the lock is its owner's |
//!
//! | step | who | what |
//! |---|---|---|
//! | join | contender | `pred = tail.swap(node)`; null: has the lock |
//! | link | contender | `pred.next = node`; waits before its gate |
//! | leave | holder whose `next` is null | `tail: node → null`: the lock is free |
//! | hand over | holder | waits for `next` if that failed; opens its gate |
//! | try | | `tail: null → node` |
//!
//! **A node is its owner's from join to unlock.** The one before it opens its gate, and touches it no more; the one
//! behind it writes its `next`, once. An unlock has either put null in the tail, so nobody is behind it, or has seen
//! that write. So a node can be used again, or freed, as soon as its unlock has handed over.
//!
//! Between join and link the one behind has a place, but cannot be found: an unlock then waits for it. It is some
//! instructions away, unless its thread is preempted there.
//!
//! Where nodes come from: a list of the thread's. An unlock is on the thread of its lock, as the guard is not `Send`,
//! so the list is no longer than the most locks that the thread has held at once. A thread whose list is gone, as it
//! ends, allocates and frees.
//!
//! Orderings, by what they order:
//!
//! | access | ordering | why |
//! |---|---|---|
//! | join, and try | Acquire, Release | null: we see what the last holder did. A node: its `next` was null before we write to it; ours, before whoever reads it here does |
//! | link | Release | the one before opens a gate that it finds shut |
//! | leave | Release | what the holder did |
//! | load of `next` | Acquire | the other side of link |
//! | gate | | as `gate.rs` says: Release, Acquire |
//!
//! Source: Mellor-Crummey and Scott, *Algorithms for scalable synchronization on shared-memory multiprocessors*, 1991.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use sudog_runtime::shim::AtomicPtr;

use super::{in_line, watch};
use crate::waiting::gate::Gate;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

/// 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Node {
    gate: Gate,
    /// The one behind; while it is in no line, the next on its thread's list.
    next: AtomicPtr<Node>,
}

/// The nodes of a thread that are in no line.
struct Spare(Cell<*mut Node>);

per_thread!(SPARE: Spare = Spare(Cell::new(ptr::null_mut())));

impl Spare {
    fn pop(&self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.0.get())?;
        // SAFETY: what is on the list is alive, and the list's alone.
        self.0.set(unsafe { node.as_ref() }.next.load(Relaxed));
        Some(node)
    }

    /// # Safety
    ///
    /// The node came from [`Node::take`], is in no line, and is not used by anybody after this.
    unsafe fn push(&self, node: NonNull<Node>) {
        // SAFETY: alive, and ours, by the contract.
        unsafe { node.as_ref() }.next.store(self.0.get(), Relaxed);
        self.0.set(node.as_ptr());
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        while let Some(node) = self.pop() {
            // SAFETY: it came from a box, and was on the list, so nobody has it.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

impl Node {
    /// One that is in no line, its gate shut.
    #[inline]
    fn take() -> NonNull<Self> {
        let Some(node) = SPARE.try_with(Spare::pop).ok().flatten() else { return Self::allocate() };
        // SAFETY: it was on the list, so it is alive, and now ours.
        let this = unsafe { node.as_ref() };
        this.next.store(ptr::null_mut(), Relaxed);
        this.gate.shut();
        node
    }

    #[cold]
    fn allocate() -> NonNull<Self> {
        let node = Box::new(Self { gate: Gate::new(), next: AtomicPtr::new(ptr::null_mut()) });
        NonNull::from(Box::leak(node))
    }

    /// # Safety
    ///
    /// As for [`Spare::push`].
    #[inline]
    unsafe fn give(node: NonNull<Self>) {
        // SAFETY: the same contract.
        if SPARE.try_with(|spare| unsafe { spare.push(node) }).is_err() {
            // SAFETY: it came from a box, and nobody has it, by the contract.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

/// The MCS lock: first come, first served; each waiter watches memory of its own. 8 bytes.
///
/// # Limits
///
/// Those of the [module](super). A guard that is forgotten leaks a node of 128 bytes.
///
/// # Examples
///
/// ```
/// use sudog_sync::MutexWith;
/// use sudog_locks::spin_lock::Mcs;
///
/// static NAMES: MutexWith<Mcs, Vec<&str>> = MutexWith::new(Vec::new());
/// NAMES.lock().push("John");
/// ```
pub struct Mcs<P = SpinThenPark> {
    tail: AtomicPtr<Node>,
    policy: PhantomData<P>,
}

/// What an acquisition of an [`Mcs`] keeps for its release: the node. It stays on its thread.
#[derive(Debug)]
pub struct McsGuard(NonNull<Node>);

impl<P: WaitPolicy> Mcs<P> {
    /// Waits behind `pred`.
    ///
    /// # Safety
    ///
    /// The caller has put `node`, which it took, in the place of `pred` in the tail.
    #[cold]
    unsafe fn wait(pred: NonNull<Node>, node: NonNull<Node>) {
        // SAFETY: the one before us cannot release it before it has seen this store.
        unsafe { pred.as_ref() }.next.store(node.as_ptr(), Release);
        // SAFETY: ours until its unlock.
        unsafe { node.as_ref() }.gate.wait::<P>(None);
    }

    /// Waits for the one that has joined behind `node` to say who it is.
    #[cold]
    fn wait_for_link(node: &Node) -> NonNull<Node> {
        // It is another thread, and runs, or will: the goroutines of ours do not give way between join and link.
        in_line(|| watch::<P, _>(|| NonNull::new(node.next.load(Acquire))))
    }

    /// Changes as somebody joins the line. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.tail.load(Relaxed).addr() as u64
    }
}

// SAFETY: whoever puts a node in the place of null has the lock, and so has the one whose gate is opened: the holder
// does that once, or else puts null back, if nobody has joined behind it. The orderings are above. Nodes do not point
// to the lock, so it may be moved while it is held; those who wait borrow it. A forgotten guard leaks its node, which
// is not freed then, so whoever joins behind it may write to it.
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
            // SAFETY: as the swap says.
            in_line(|| unsafe { Self::wait(pred, node) });
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
        // SAFETY: ours until it is given back, below.
        let this = unsafe { node.as_ref() };
        let next = match NonNull::new(this.next.load(Acquire)) {
            None if self.tail.compare_exchange(node.as_ptr(), ptr::null_mut(), Release, Relaxed).is_ok() => None,
            None => Some(Self::wait_for_link(this)),
            next => next,
        };
        if let Some(next) = next {
            // SAFETY: its owner waits for this, and the holder alone does it.
            unsafe { Gate::open_for::<P>(&raw const (*next.as_ptr()).gate) };
        }
        // SAFETY: on the thread that took it; nobody is before it, and nobody behind it that has yet to write to it.
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
