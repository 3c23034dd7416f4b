//! The compact NUMA-aware lock: the queue of MCS, with an unlock that passes over waiters of other sockets. These
//! waiters go to a second queue, and stay there until the first queue has no waiter of the owner's socket, or a draw
//! ends their wait.
//!
//! | word | value | meaning |
//! |---|---|---|
//! | `tail` | null, or the last node of the first queue | as in MCS |
//! | `node.gate` | null | the node waits |
//! | | `ALONE` | the node has the lock; the second queue is empty |
//! | | a node | the node with this gate has the lock; the gate is the head of the second queue |
//! | `node.last` | | in the head of the second queue: the last node of that queue |
//!
//! A node belongs to its thread from `lock` to `unlock`. All other nodes that the owner reads and writes are waiters of
//! the two queues; only a step of the owner removes them from a queue.
//!
//! Source: D. Dice and A. Kogan, *Compact NUMA-aware locks*, EuroSys 2019. The paper draws once in 65536 handovers,
//! which runs of some milliseconds would not see; this lock draws once in 256. A real machine counts as a single
//! socket.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use sudog_runtime::shim::system::thread_local;
use sudog_runtime::shim::{AtomicPtr, AtomicU32};
use sudog_runtime::spin;
use sudog_sync::RawLock;

/// The number of handovers of which about one goes to the second queue.
const FAIRNESS: u32 = 256;

#[derive(Debug)]
struct Node {
    gate: AtomicPtr<CachePadded<Node>>,
    next: AtomicPtr<CachePadded<Node>>,
    last: AtomicPtr<CachePadded<Node>>,
    socket: AtomicU32,
}

type NodePtr = *mut CachePadded<Node>;

/// A gate value that is no node's address.
const ALONE: NodePtr = ptr::without_provenance_mut(1);

thread_local! {
    /// Nodes of the thread that are in no queue. Each is in a box, as other threads know its address.
    #[expect(clippy::vec_box)]
    static SPARE: RefCell<Vec<Box<CachePadded<Node>>>> = const { RefCell::new(Vec::new()) };
    static RANDOM: Cell<u32> = const { Cell::new(0x9E37_79B9) };
}

/// Returns the socket of the processor that runs this thread.
fn socket() -> u32 {
    #[cfg(sudog_sim)]
    return u32::try_from(sudog_sim::socket()).expect("few sockets");
    #[cfg(not(sudog_sim))]
    0
}

/// Returns true once in `FAIRNESS` draws.
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

/// Returns the node behind a pointer.
///
/// # Safety
///
/// The node is in a queue of the lock that the caller owns; or the node is the caller's.
unsafe fn node<'a>(pointer: NodePtr) -> &'a Node {
    // SAFETY: a node's thread frees the node only after the thread has had the lock and left it; by the contract of
    // `node`, not before this use ends.
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
    // SAFETY: `take` made the node from a box, and the node is the caller's alone, by the contract of `give`.
    let node = unsafe { Box::from_raw(node.as_ptr()) };
    SPARE.with(|spare| spare.borrow_mut().push(node));
}

/// The compact NUMA-aware lock.
#[derive(Debug)]
pub struct Cna {
    tail: CachePadded<AtomicPtr<CachePadded<Node>>>,
}

/// The guard of a [`Cna`]: the owner's node.
#[derive(Debug)]
pub struct CnaGuard(NonNull<CachePadded<Node>>);

/// Returns the first waiter of the owner's socket, or null if there is none. Moves the waiters before it to the end of
/// the second queue.
///
/// # Safety
///
/// `me` is the owner's node, and `me.next` is not null.
unsafe fn find_successor(me: &Node) -> NodePtr {
    let own = me.socket.load(Relaxed);
    let first = me.next.load(Acquire);
    let (mut last, mut current): (NodePtr, NodePtr) = (ptr::null_mut(), first);
    while !current.is_null() {
        // SAFETY: `current` is a waiter of the first queue, and the caller has the lock, by the contract of
        // `find_successor`.
        let waiter = unsafe { node(current) };
        if waiter.socket.load(Relaxed) == own {
            if !last.is_null() {
                // SAFETY: `last` is a waiter of the first queue that was passed over, and the caller has the lock.
                unsafe { node(last) }.next.store(ptr::null_mut(), Relaxed);
                let head = me.gate.load(Relaxed);
                if head == ALONE {
                    me.gate.store(first, Relaxed);
                } else {
                    // SAFETY: `head` and the last node of its queue are waiters of the second queue, and the caller has
                    // the lock.
                    unsafe { node(node(head).last.load(Relaxed)) }.next.store(first, Relaxed);
                }
                // SAFETY: `me.gate` is the head of the second queue, a waiter whose queue now ends with `last`; the
                // caller has the lock.
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
// - A contender has the lock if it found the tail null, and the tail is null only while there is no owner; or if the
//   owner opened the contender's gate, and an unlock opens the gate of a single waiter.
// - Release of the tail and the gate, and Acquire of both, order the actions of owners.
// - A forgotten guard leaves the lock's tail set; the guard's node is leaked.
unsafe impl RawLock for Cna {
    type Guard = CnaGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { tail: CachePadded::new(AtomicPtr::new(ptr::null_mut())) }
    }

    fn lock(&self) -> CnaGuard {
        let pointer = take();
        // SAFETY: `pointer` came from `take` above, so the node is the caller's.
        let me = unsafe { node(pointer.as_ptr()) };
        let before = self.tail.swap(pointer.as_ptr(), AcqRel);
        if before.is_null() {
            me.gate.store(ALONE, Relaxed);
        } else {
            // SAFETY: `before` is not the tail any more, so its thread waits for this link before that thread leaves
            // the lock.
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
        // SAFETY: `pointer` came from `take` above, so the node is the caller's.
        unsafe { node(pointer.as_ptr()) }.gate.store(ALONE, Relaxed);
        if self.tail.compare_exchange(ptr::null_mut(), pointer.as_ptr(), AcqRel, Relaxed).is_ok() {
            return Some(CnaGuard(pointer));
        }
        // SAFETY: `pointer` came from `take` above, and was put into no queue.
        unsafe { give(pointer) };
        None
    }

    unsafe fn unlock(&self, CnaGuard(pointer): CnaGuard) {
        // SAFETY: `pointer` is the owner's node, by the contract of `unlock`.
        let me = unsafe { node(pointer.as_ptr()) };
        let second = me.gate.load(Relaxed);
        if me.next.load(Acquire).is_null() {
            // The first queue ends with the owner: leave that queue empty, or make the second queue the first.
            let (tail, head) = if second == ALONE {
                (ptr::null_mut(), ptr::null_mut())
            } else {
                // SAFETY: `second` is the head of the second queue, and the caller has the lock.
                (unsafe { node(second) }.last.load(Relaxed), second)
            };
            if self.tail.compare_exchange(pointer.as_ptr(), tail, AcqRel, Relaxed).is_ok() {
                if !head.is_null() {
                    // SAFETY: `head` is the head of what was the second queue, and waits until this opens its gate.
                    unsafe { node(head) }.gate.store(ALONE, Release);
                }
                // SAFETY: `pointer` came from `take` in `lock` or `try_lock`, and is in no queue any more.
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
            // SAFETY: `me` is the owner's node, and `me.next` is not null.
            unsafe { find_successor(me) }
        };
        let (successor, gate) = if !successor.is_null() {
            (successor, me.gate.load(Relaxed))
        } else if second == ALONE {
            (me.next.load(Relaxed), ALONE)
        } else {
            // Put the second queue before the first.
            // SAFETY: the head and the last node of the second queue are waiters, and the caller has the lock.
            unsafe { node(node(second).last.load(Relaxed)) }.next.store(me.next.load(Relaxed), Release);
            (second, ALONE)
        };
        // SAFETY: `successor` is a waiter until this opens its gate.
        unsafe { node(successor) }.gate.store(gate, Release);
        // SAFETY: `pointer` came from `take` in `lock` or `try_lock`, and is in no queue any more: the predecessor and
        // the successors do not use it any more.
        unsafe { give(pointer) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}
