//! A treap of addresses. Each node is the head of its address's ring of waiters.
//!
//! ```text
//!             [ 0x40 | prio 3 ]⇄ s ⇄ s      binary tree by address: left is smaller
//!              /            \               min-heap by priority: a parent's is the smallest
//!  [ 0x08 | prio 9 ]   [ 0x90 | prio 5 ]⇄ s
//! ```
//!
//! `rings.rs` describes a ring. Finding an address is O(log n) expected, with n the number of distinct addresses; so is
//! inserting an address, and removing the last waiter of an address.
//!
//! Source: `semaRoot` of Go's `runtime/sema.go` (queue, dequeue), CL 37103. Two differences:
//!
//! * Go rotates the tree, node by node, to move a node to its place or down to a leaf. Here the path is split, or
//!   joined, which changes a third of the links.
//! * Go draws a node's priority at random, each time. Here the priority is a hash of the address. So an address that is
//!   inserted and removed repeatedly, as a contended lock's is, gets the same place each time, and the processor
//!   predicts the path.

use super::rings::RingIndex;
use super::{Link, SudogPtr};

/// A set of addresses in a tree that is balanced in expectation.
pub struct Treap {
    pub(super) root: Link,
}

// SAFETY: only the holder of the treap accesses the sudogs that the treap links, on whatever thread; and a sudog's
// fields may be used from any thread.
unsafe impl Send for Treap {}

// SAFETY: `find` returns a head that is in the tree. `insert` and `substitute` set the priority of a head, and `remove`
// and `substitute` set the priority of a former head to 0.
unsafe impl RingIndex for Treap {
    const NONE: Self = Self { root: None };

    /// The parent of the new node, if the new node becomes a leaf.
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

    /// Goes up from the leaf position to the position that the priority of the new node demands. The nodes on the path
    /// become descendants of the new node, each with its subtree on the far side:
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

    /// Merges the subtrees of `s` in the place of `s`: the root with the smaller priority comes first, then the
    /// remaining two subtrees are merged below it.
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

    /// Keeps the shape of the tree, because priority and address stay the same.
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
    /// Makes `child` the child of `parent` on this side. If `parent` is `None`, makes `child` the root.
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

/// Returns the side of `p` on which its child `s` is: the index of the child.
pub(super) fn side_of(s: SudogPtr, p: SudogPtr) -> usize {
    usize::from(p.child[1].get() == Some(s))
}

/// Returns the side of `node` to which an address belongs: the index of the child.
fn side(addr: usize, node: SudogPtr) -> usize {
    usize::from(addr > node.addr)
}
