//! A treap of addresses, each node the head of that address's line.
//!
//! ```text
//!             [ 0x40 | prio 3 ]⇄ s ⇄ s      binary tree by address: left is smaller
//!              /            \               min-heap by priority: a parent's is the smallest
//!  [ 0x08 | prio 9 ]   [ 0x90 | prio 5 ]⇄ s
//! ```
//!
//! A line is a ring: see `rings.rs`. Finding an address is O(log n) expected, with n the number of distinct addresses;
//! so is the removal of the last waiter of an address, whose node is turned down to a leaf first.
//!
//! Source: `semaRoot` of Go's `runtime/sema.go` (queue, dequeue, rotateLeft, rotateRight), CL 37103.

use super::rings::Heads;
use super::{Link, SudogRef};

/// Addresses in a tree that chance keeps balanced.
pub struct Treap {
    pub(super) root: Link,
    /// The state of a xorshift generator; never 0.
    random: u32,
}

// SAFETY: the sudogs that it links are touched by the holder of the treap only, on whatever thread that is; and a
// sudog's fields may be used from any thread.
unsafe impl Send for Treap {}

// SAFETY: `find` returns what is in the tree.
unsafe impl Heads for Treap {
    const NONE: Self = Self { root: None, random: 0x9E37_79B9 };

    /// The node under which it would be a leaf.
    type Place = Link;

    fn find(&self, addr: usize) -> Result<SudogRef, Link> {
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

    fn insert(&mut self, s: SudogRef, parent: Link) {
        s.priority.set(self.next_priority());
        s.child[0].set(None);
        s.child[1].set(None);
        s.parent.set(parent);
        match parent {
            None => self.root = Some(s),
            Some(p) => p.child[side(s.addr, p)].set(Some(s)),
        }
        while let Some(p) = s.parent.get()
            && p.priority.get() > s.priority.get()
        {
            self.rotate_up(s, p);
        }
    }

    /// Turns a node down until it is a leaf, and cuts it off.
    fn remove(&mut self, s: SudogRef) {
        loop {
            let up = match (s.child[0].get(), s.child[1].get()) {
                (None, None) => break,
                (Some(c), None) | (None, Some(c)) => c,
                (Some(l), Some(r)) => {
                    if l.priority.get() < r.priority.get() {
                        l
                    } else {
                        r
                    }
                }
            };
            self.rotate_up(up, s);
        }
        self.replace_child(s.parent.get(), s, None);
        s.parent.set(None);
        s.priority.set(0);
    }

    /// Nothing is turned: priority and address stay the same.
    fn substitute(&mut self, old: SudogRef, new: SudogRef) {
        new.priority.set(old.priority.replace(0));
        new.parent.set(old.parent.get());
        self.replace_child(old.parent.replace(None), old, Some(new));
        for side in 0..2 {
            let child = old.child[side].replace(None);
            new.child[side].set(child);
            if let Some(c) = child {
                c.parent.set(Some(new));
            }
        }
    }
}

impl Treap {
    /// Turns `s` and its parent, so that `s` is above:
    ///
    /// ```text
    ///      p             s
    ///     / \           / \
    ///    s   c   ──▶   a   p        (or the mirror image)
    ///   / \               / \
    ///  a   b             b   c
    /// ```
    fn rotate_up(&mut self, s: SudogRef, p: SudogRef) {
        let from = usize::from(p.child[1].get() == Some(s));
        let inner = s.child[1 - from].get();
        self.replace_child(p.parent.get(), p, Some(s));
        s.parent.set(p.parent.get());
        s.child[1 - from].set(Some(p));
        p.parent.set(Some(s));
        p.child[from].set(inner);
        if let Some(b) = inner {
            b.parent.set(Some(p));
        }
    }

    fn replace_child(&mut self, parent: Link, old: SudogRef, new: Link) {
        match parent {
            None => self.root = new,
            Some(p) => p.child[usize::from(p.child[1].get() == Some(old))].set(new),
        }
    }

    /// Marsaglia's xorshift32: it never yields 0, which stands for "no node".
    fn next_priority(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }
}

/// Which child of `node` an address belongs under.
fn side(addr: usize, node: SudogRef) -> usize {
    usize::from(addr > node.addr)
}
