//! The compact NUMA-aware lock: the queue of MCS, of which an unlock passes over waiters of other sockets. They wait in a
//! second queue, until the first has no waiter of the owner's socket, or a draw says that it is their turn.
//!
//! | word | value | meaning |
//! |---|---|---|
//! | `tail` | null, or the last node of the first queue | as of MCS |
//! | `node.gate` | null | waits |
//! | | `ALONE` | has the lock; the second queue is empty |
//! | | a node | has the lock; that node is the head of the second queue |
//! | `node.last` | | of the head of the second queue: its last node |
//!
//! A node belongs to its thread from `lock` to `unlock`. What the owner reads and writes of other nodes belongs to waiters of
//! the two queues; they leave a queue by its step alone.
//!
//! Source: D. Dice and A. Kogan, *Compact NUMA-aware locks*, EuroSys 2019. Its draw is one in 65536, which runs of some
//! milliseconds would not see: here it is one in 256. A real machine counts as one socket.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::system::thread_local;
use sudog_runtime::shim::{AtomicPtr, AtomicU32};
use sudog_runtime::spin;
use sudog_sync::RawLock;

/// One handover in so many goes to the second queue.
const FAIRNESS: u32 = 256;

#[derive(Debug)]
struct Node {
    gate: AtomicPtr<CachePadded<Node>>,
    next: AtomicPtr<CachePadded<Node>>,
    last: AtomicPtr<CachePadded<Node>>,
    socket: AtomicU32,
}

type NodePtr = *mut CachePadded<Node>;

/// No node has this address.
const ALONE: NodePtr = ptr::without_provenance_mut(1);

thread_local! {
    /// Nodes of the thread that are in no queue. A box each: others know their addresses.
    #[expect(clippy::vec_box)]
    static SPARE: RefCell<Vec<Box<CachePadded<Node>>>> = const { RefCell::new(Vec::new()) };
    static RANDOM: Cell<u32> = const { Cell::new(0x9E37_79B9) };
}

/// The socket of the processor that runs this thread.
fn socket() -> u32 {
    #[cfg(sudog_sim)]
    return u32::try_from(sudog_sim::socket()).expect("few sockets");
    #[cfg(not(sudog_sim))]
    0
}

/// True once in `FAIRNESS` draws.
fn is_fair_draw() -> bool {
    RANDOM.with(|random| {
        let mut x = random.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        random.set(x);
        x.is_multiple_of(FAIRNESS)
    })
}

/// The node behind a pointer.
///
/// # Safety
///
/// The node is in a queue of the lock that the caller owns; or it is the caller's.
unsafe fn node<'a>(pointer: NodePtr) -> &'a Node {
    // SAFETY: its thread frees it only once it has had the lock and left it, by the contract not before this use ends.
    unsafe { &*pointer }
}

fn take() -> NonNull<CachePadded<Node>> {
    let node = SPARE.with(|spare| spare.borrow_mut().pop()).unwrap_or_else(|| {
        Box::new(CachePadded::new(Node {
            gate: AtomicPtr::new(ptr::null_mut()),
            next: AtomicPtr::new(ptr::null_mut()),
            last: AtomicPtr::new(ptr::null_mut()),
            socket: AtomicU32::new(0),
        }))
    });
    node.gate.store(ptr::null_mut(), Relaxed);
    node.next.store(ptr::null_mut(), Relaxed);
    node.socket.store(socket(), Relaxed);
    NonNull::from(Box::leak(node))
}

/// # Safety
///
/// The node is from [`take`], in no queue, and given once.
unsafe fn give(node: NonNull<CachePadded<Node>>) {
    // SAFETY: it was a box, and is the caller's alone, by the contract.
    let node = unsafe { Box::from_raw(node.as_ptr()) };
    SPARE.with(|spare| spare.borrow_mut().push(node));
}

/// The compact NUMA-aware lock.
#[derive(Debug)]
pub struct Cna {
    tail: CachePadded<AtomicPtr<CachePadded<Node>>>,
}

/// What an acquisition of a [`Cna`] hands to its release: its node.
#[derive(Debug)]
pub struct CnaGuard(NonNull<CachePadded<Node>>);

/// The first waiter of the owner's socket. Waiters before it go to the end of the second queue. Null if there is none.
///
/// # Safety
///
/// `me` is the owner's node, and has a `next`.
unsafe fn find_successor(me: &Node) -> NodePtr {
    let own = me.socket.load(Relaxed);
    let first = me.next.load(Acquire);
    let (mut last, mut current): (NodePtr, NodePtr) = (ptr::null_mut(), first);
    while !current.is_null() {
        // SAFETY: a waiter of the first queue, and the caller has the lock, by the contract.
        let waiter = unsafe { node(current) };
        if waiter.socket.load(Relaxed) == own {
            if !last.is_null() {
                // SAFETY: the same, of a node that was passed over.
                unsafe { node(last) }.next.store(ptr::null_mut(), Relaxed);
                let head = me.gate.load(Relaxed);
                if head == ALONE {
                    me.gate.store(first, Relaxed);
                } else {
                    // SAFETY: both are waiters of the second queue, and the caller has the lock.
                    unsafe { node(node(head).last.load(Relaxed)) }.next.store(first, Relaxed);
                }
                // SAFETY: the head of the second queue, of which `last` is the last now.
                unsafe { node(me.gate.load(Relaxed)) }.last.store(last, Relaxed);
            }
            return current;
        }
        last = current;
        current = waiter.next.load(Acquire);
    }
    ptr::null_mut()
}

// SAFETY:
// - a contender has the lock if it found the tail null, which it is while there is no owner; or if the owner opened its gate,
//   which an unlock does to one waiter;
// - Release of the tail and the gate, and Acquire there, order what owners do;
// - a forgotten guard leaves the lock's tail set; its node is leaked.
unsafe impl RawLock for Cna {
    type Guard = CnaGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { tail: CachePadded::new(AtomicPtr::new(ptr::null_mut())) }
    }

    fn lock(&self) -> CnaGuard {
        let pointer = take();
        // SAFETY: the caller's own.
        let me = unsafe { node(pointer.as_ptr()) };
        let before = self.tail.swap(pointer.as_ptr(), AcqRel);
        if before.is_null() {
            me.gate.store(ALONE, Relaxed);
        } else {
            // SAFETY: its thread waits for this link before it leaves, as it is not the tail any more.
            unsafe { node(before) }.next.store(pointer.as_ptr(), Release);
            while me.gate.load(Acquire).is_null() {
                spin::do_spin(1);
            }
        }
        CnaGuard(pointer)
    }

    fn try_lock(&self) -> Option<CnaGuard> {
        if self.is_locked() {
            return None;
        }
        let pointer = take();
        // SAFETY: the caller's own.
        unsafe { node(pointer.as_ptr()) }.gate.store(ALONE, Relaxed);
        if self.tail.compare_exchange(ptr::null_mut(), pointer.as_ptr(), AcqRel, Relaxed).is_ok() {
            return Some(CnaGuard(pointer));
        }
        // SAFETY: it came to no queue.
        unsafe { give(pointer) };
        None
    }

    unsafe fn unlock(&self, CnaGuard(pointer): CnaGuard) {
        // SAFETY: the owner's, by the contract of `unlock`.
        let me = unsafe { node(pointer.as_ptr()) };
        let second = me.gate.load(Relaxed);
        if me.next.load(Acquire).is_null() {
            // The first queue ends here: leave it empty, or make the second queue the first.
            let (tail, head) = if second == ALONE {
                (ptr::null_mut(), ptr::null_mut())
            } else {
                // SAFETY: the head of the second queue, and the caller has the lock.
                (unsafe { node(second) }.last.load(Relaxed), second)
            };
            if self.tail.compare_exchange(pointer.as_ptr(), tail, AcqRel, Relaxed).is_ok() {
                if !head.is_null() {
                    // SAFETY: the same.
                    unsafe { node(head) }.gate.store(ALONE, Release);
                }
                // SAFETY: it is in no queue any more.
                unsafe { give(pointer) };
                return;
            }
            while me.next.load(Acquire).is_null() {
                spin::do_spin(1);
            }
        }
        let successor = if is_fair_draw() {
            ptr::null_mut()
        } else {
            // SAFETY: the owner's node, which has a `next`.
            unsafe { find_successor(me) }
        };
        let (successor, gate) = if !successor.is_null() {
            (successor, me.gate.load(Relaxed))
        } else if second == ALONE {
            (me.next.load(Relaxed), ALONE)
        } else {
            // The second queue goes before the first.
            // SAFETY: its head and its last node are waiters, and the caller has the lock.
            unsafe { node(node(second).last.load(Relaxed)) }.next.store(me.next.load(Relaxed), Release);
            (second, ALONE)
        };
        // SAFETY: a waiter, until this opens its gate.
        unsafe { node(successor) }.gate.store(gate, Release);
        // SAFETY: it is in no queue any more: its predecessor and its successors are done with it.
        unsafe { give(pointer) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}
