//! The nodes of the CLH locks: numbered, and never freed.
//!
//! | number | node |
//! |---|---|
//! | 0 | none |
//! | 1 to `FIRST` | in chunk 0 |
//! | the next `2 FIRST`, `4 FIRST`, ... | in chunk 1, 2, ... |
//!
//! The tail of a CLH lock refers to a node that another thread may take over at any moment, so a thread that reads the
//! tail may find the node in another queue afterwards. The memory must therefore remain a node for ever. And a number
//! of 24 bits leaves space in a word for the count of the node's uses, which does not fit beside a pointer.
//!
//! A node is in one of three places: in use (the tail of a lock, or its queue), on the list of the pool, or kept by a
//! thread, at most one node per thread. A thread without a node takes a node of the pool, or makes a new node. So there
//! are no more nodes than the largest number that was in use at once, plus one per thread.
//!
//! Orderings: all Relaxed. A chunk is made, under the pool's lock, before the number of any node in that chunk is given
//! out. A thread gets a number from the pool's lock, or from the tail of a CLH lock, by Release and Acquire, from a
//! thread that had the number.
//!
//! Source: this project's own.

use std::cell::Cell as Hand;
use std::sync::atomic::Ordering::Relaxed;
use std::{fmt, ptr};

use sudog_runtime::fatal;
use sudog_runtime::shim::{AtomicPtr, Cell, Mutex};

use crate::waiting::parker::OneShotParker;

/// A node, which is never freed. Aligned to 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
pub(super) struct Node {
    /// The gate that the successor watches. Opened by the thread that has used the node to lock, in its unlock.
    pub(super) gate: OneShotParker,
    number: u32,
    /// The number of times that the node has been taken. Changed only by the thread that takes the node.
    uses: Cell<u64>,
    /// The next node of the pool. Changed under the pool's lock.
    spare: Cell<Option<&'static Node>>,
}

// SAFETY: threads use `gate` by the rules in `clh.rs`; `uses` is touched by the thread that takes the node, `spare`
// under the pool's lock. Release and Acquire hand all three fields on to the next thread. `number` is not written to.
unsafe impl Sync for Node {}

/// A use of a node, in a word: the number of the node, and the number of the use. No two uses are the same, and none is
/// 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Use(pub(super) u64);

const NUMBER_BITS: u32 = 24;
const MAX_USES: u64 = u64::MAX >> NUMBER_BITS;

/// The number of nodes in chunk 0, as a power of two. A model should need more than one chunk.
const FIRST_BITS: u32 = if cfg!(sudog_loom) { 1 } else { 6 };
const CHUNKS: usize = (NUMBER_BITS - FIRST_BITS) as usize;

/// Returns the chunk of the node with this number, and the index in that chunk.
const fn place(number: u32) -> (usize, usize) {
    let n = number - 1 + (1 << FIRST_BITS);
    let log = n.ilog2();
    ((log - FIRST_BITS) as usize, (n - (1 << log)) as usize)
}

struct Pool {
    spare: Option<&'static Node>,
    made: u32,
}

struct Nodes {
    chunks: [AtomicPtr<Node>; CHUNKS],
    pool: Mutex<Pool>,
}

#[cfg(not(sudog_loom))]
static NODES: Nodes = Nodes {
    chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
    pool: Mutex::new(Pool { spare: None, made: 0 }),
};

#[cfg(sudog_loom)]
loom::lazy_static! {
    static ref NODES: Nodes = Nodes {
        chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        pool: Mutex::new(Pool { spare: None, made: 0 }),
    };
}

/// The slot for the node that a thread keeps.
struct InHand(Hand<Option<&'static Node>>);

per_thread!(IN_HAND: InHand = InHand(Hand::new(None)));

// A model has no such drop: there the pool is freed before its last thread ends.
#[cfg(not(sudog_loom))]
impl Drop for InHand {
    fn drop(&mut self) {
        if let Some(node) = self.0.take() {
            NODES.give(node);
        }
    }
}

impl Nodes {
    #[cold]
    fn take(&self) -> &'static Node {
        let mut pool = self.pool.lock();
        if let Some(node) = pool.spare {
            pool.spare = node.spare.get();
            return node;
        }
        pool.made += 1;
        let number = pool.made;
        let (chunk, at) = place(number);
        if chunk == CHUNKS {
            fatal("sync: more than 16777152 nodes of CLH locks in use");
        }
        if at == 0 {
            let first = number;
            let nodes: Box<[Node]> = (0..1 << (chunk as u32 + FIRST_BITS)).map(|n| Node::new(first + n)).collect();
            self.chunks[chunk].store(Box::leak(nodes).as_mut_ptr(), Relaxed);
        }
        self.node(number)
    }

    #[cold]
    fn give(&self, node: &'static Node) {
        let mut pool = self.pool.lock();
        node.spare.set(pool.spare);
        pool.spare = Some(node);
    }

    #[inline]
    fn node(&self, number: u32) -> &'static Node {
        let (chunk, at) = place(number);
        let nodes = self.chunks[chunk].load(Relaxed);
        debug_assert!(!nodes.is_null());
        // SAFETY: `number` belongs to a node that has been made, in a chunk that is never freed; and the chunk was
        // published before `number`, as the module's comment argues.
        unsafe { &*nodes.add(at) }
    }
}

impl Node {
    fn new(number: u32) -> Self {
        Self { gate: OneShotParker::new(), number, uses: Cell::new(0), spare: Cell::new(None) }
    }

    /// Takes an unused node, with its gate shut.
    #[inline]
    pub(super) fn take() -> (&'static Self, Use) {
        loop {
            let node = IN_HAND.try_with(|hand| hand.0.take()).ok().flatten().unwrap_or_else(|| NODES.take());
            let uses = node.uses.get();
            // Skip a node without uses left: such a node is never used again. Reaching this count takes hours in
            // which a program does nothing else.
            if uses < MAX_USES {
                node.uses.set(uses + 1);
                node.gate.shut();
                return (node, Use(uses << NUMBER_BITS | u64::from(node.number)));
            }
        }
    }

    /// Returns the node to the thread, or to the pool. No thread may use the node any more; but other threads may read
    /// its gate.
    #[inline]
    pub(super) fn give(&'static self) {
        let in_hand = IN_HAND.try_with(|hand| {
            let empty = hand.0.get().is_none();
            if empty {
                hand.0.set(Some(self));
            }
            empty
        });
        if !in_hand.unwrap_or(false) {
            NODES.give(self);
        }
    }
}

impl Use {
    /// Returns the node. The node may be in another use by now.
    #[inline]
    pub(super) fn node(self) -> &'static Node {
        NODES.node(self.0 as u32 & ((1 << NUMBER_BITS) - 1))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_the_chunks_one_after_another() {
        let mut expected = (0, 0);
        for number in 1..100_000 {
            assert_eq!(place(number), expected);
            expected.1 += 1;
            if expected.1 == 1 << (expected.0 as u32 + FIRST_BITS) {
                expected = (expected.0 + 1, 0);
            }
        }
        let last = (1 << NUMBER_BITS) - (1 << FIRST_BITS);
        assert_eq!(place(last), (CHUNKS - 1, (1 << (NUMBER_BITS - 1)) - 1));
        assert_eq!(place(last + 1), (CHUNKS, 0));
    }

    #[test]
    fn a_use_names_its_node_and_no_other_use_is_like_it() {
        let (node, first) = Node::take();
        assert!(ptr::eq(first.node(), node) && first.0 != 0);
        node.give();
        let (again, second) = Node::take(); // the node that the thread kept
        assert!(ptr::eq(again, node) && second != first);
        let many: Vec<_> = (0..200).map(|_| Node::take()).collect();
        for (node, used) in &many {
            assert!(ptr::eq(used.node(), *node));
            assert!(many.iter().filter(|(other, _)| ptr::eq(*other, *node)).count() == 1);
        }
        many.iter().for_each(|(node, _)| node.give());
        again.give();
    }

    #[test]
    fn a_lock_that_is_dropped_gives_its_node_back() {
        use crate::spin_lock::Clh;
        use sudog_sync::RawLock;

        const LOCKS: u32 = 10_000;
        for n in 0..LOCKS {
            let lock = <Clh>::new();
            let guard = lock.lock();
            if n % 2 == 0 {
                // SAFETY: `guard` came from the acquisition above.
                unsafe { lock.unlock(guard) }; // half of the guards are forgotten
            }
        }
        assert!(NODES.pool.lock().made < LOCKS / 4, "the other tests have not made so many");
    }

    #[test]
    fn a_thread_that_ends_gives_its_node_back() {
        const THREADS: u32 = 5_000;
        let before = NODES.pool.lock().made;
        for _ in 0..THREADS {
            std::thread::spawn(|| Node::take().0.give()).join().unwrap();
        }
        assert!(NODES.pool.lock().made - before < THREADS / 4, "the other tests have not made so many");
    }

    #[test]
    fn a_node_whose_uses_are_at_an_end_is_left_alone() {
        let (node, _) = Node::take();
        node.uses.set(MAX_USES - 1);
        node.give();
        let (last, used) = Node::take();
        assert!(ptr::eq(last, node) && ptr::eq(used.node(), node));
        last.give();
        assert!(!ptr::eq(Node::take().0, node));
    }
}
