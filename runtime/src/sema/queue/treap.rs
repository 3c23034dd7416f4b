//! A treap of addresses; each node is the head of that address's ring of waiters.
//!
//! ```text
//!             [ 0x40 | prio 3 ]⇄ s ⇄ s      binary tree by address: left is smaller
//!              /            \               min-heap by priority: a parent's is the smallest
//!  [ 0x08 | prio 9 ]   [ 0x90 | prio 5 ]⇄ s
//! ```
//!
//! A ring: see `rings.rs`. Finding an address is O(log n) expected, with n the number of distinct addresses; so is
//! inserting an address, and removing its last waiter.
//!
//! Source: `semaRoot` of Go's `runtime/sema.go` (queue, dequeue), CL 37103. Two differences:
//!
//! * Go rotates the tree, node by node, to move a node to its place or down to a leaf. Here the path is split, or
//!   joined, which changes a third of the links.
//! * Go draws a node's priority at random, each time. Here it is a hash of the address, so an address that is inserted
//!   and removed repeatedly, as a contended lock's is, gets the same place each time, and the processor predicts the
//!   path.

use super::rings::RingIndex;
use super::{Link, SudogPtr};

/// Addresses in a tree that is balanced in expectation.
pub struct Treap {
    pub(super) root: Link,
}

// SAFETY: only the holder of the treap touches the sudogs that it links, on whatever thread; and a sudog's fields may
// be used from any thread.
unsafe impl Send for Treap {}

// SAFETY: `find` returns what is in the tree.
unsafe impl RingIndex for Treap {
    const NONE: Self = Self { root: None };

    /// The parent that the new node would have as a leaf.
    type Place = Link;

    fn find(&self, addr: usize) -> Result<SudogPtr, Link> {
        let (mut parent, mut at) = (None, self.root);
        while let Some(node) = at {
            if node.addr == addr {
                return Ok(node);
            }
            parent = at;
            at = node.child[side(addr, node)].get();
        }
        Err(parent)
    }

    /// Goes up from the leaf position to where the priority belongs. The nodes on the path become descendants of the
    /// new node, each with its subtree on the far side:
    ///
    /// ```text
    ///      p                  p
    ///       \                  \
    ///        x                  s
    ///       / \     ──▶        / \
    ///      a   y              x   y
    ///         / \            /     \
    ///        (s)  b         a       b
    /// ```
    fn insert(&mut self, s: SudogPtr, place: Link) {
        s.priority.set(s.priority_seed);
        let mut at = place;
        let mut under = [None, None];
        while let Some(node) = at
            && node.priority.get() > s.priority_seed
        {
            at = node.parent.get();
            let near = side(s.addr, node);
            self.link(Some(node), near, under[1 - near]);
            under[1 - near] = Some(node);
        }
        self.link(at, at.map_or(0, |node| side(s.addr, node)), Some(s));
        self.link(Some(s), 0, under[0]);
        self.link(Some(s), 1, under[1]);
    }

    /// Its subtrees are merged in its place: the root with the smaller priority comes first, then the remaining two are
    /// merged below it.
    fn remove(&mut self, s: SudogPtr) {
        s.priority.set(0);
        let mut at = s.parent.replace(None);
        let mut side = at.map_or(0, |p| side_of(s, p));
        let [mut less, mut more] = [0, 1].map(|side: usize| s.child[side].replace(None));
        loop {
            match (less, more) {
                (Some(l), Some(m)) if l.priority.get() <= m.priority.get() => {
                    self.link(at, side, less);
                    (at, side, less) = (less, 1, l.child[1].get());
                }
                (Some(_), Some(m)) => {
                    self.link(at, side, more);
                    (at, side, more) = (more, 0, m.child[0].get());
                }
                (rest, None) | (None, rest) => return self.link(at, side, rest),
            }
        }
    }

    /// The shape does not change, because priority and address do not.
    fn substitute(&mut self, old: SudogPtr, new: SudogPtr) {
        new.priority.set(old.priority.replace(0));
        let parent = old.parent.replace(None);
        self.link(parent, parent.map_or(0, |p| side_of(old, p)), Some(new));
        for side in 0..2 {
            self.link(Some(new), side, old.child[side].replace(None));
        }
    }
}

impl Treap {
    /// Makes a node the child of another or, without a parent, the root.
    #[inline]
    pub(super) fn link(&mut self, parent: Link, side: usize, child: Link) {
        match parent {
            None => self.root = child,
            Some(p) => p.child[side].set(child),
        }
        if let Some(c) = child {
            c.parent.set(parent);
        }
    }
}

/// Which child of `p` it is.
pub(super) fn side_of(s: SudogPtr, p: SudogPtr) -> usize {
    usize::from(p.child[1].get() == Some(s))
}

/// Which child of `node` an address belongs under.
fn side(addr: usize, node: SudogPtr) -> usize {
    usize::from(addr > node.addr)
}
