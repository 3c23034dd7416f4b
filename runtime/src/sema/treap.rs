//! The queue of a bucket: a treap of addresses, each node the head of that address's line.
//!
//! ```text
//!             [ 0x40 | prio 3 ]⇄ s ⇄ s      binary tree by address: left is smaller
//!              /            \               min-heap by priority: a parent's is the smallest
//!  [ 0x08 | prio 9 ]   [ 0x90 | prio 5 ]⇄ s
//! ```
//!
//! A line is a ring: `head.prev` is the last, so both ends are at hand. Removing anybody is O(1) once found, but for
//! the last waiter of an address: it is turned down to a leaf first, O(log n) expected. Finding an address is O(log n)
//! expected, with n the number of distinct addresses.
//!
//! Source: `semaRoot` of Go's `runtime/sema.go` (queue, dequeue, rotateLeft, rotateRight). Go's list is singly linked
//! with a tail pointer, so it can remove the head only; deadlines need to remove anybody.

use super::sudog::Link;
use super::{Fate, Order, Sudog, SudogRef};

/// Waiters by address. Lives under its bucket's lock.
pub(crate) struct Treap {
    root: Link,
    /// The state of a xorshift generator; never 0.
    random: u32,
}

// SAFETY: the sudogs that it links are touched by the holder of the treap only (the contract of `queue`), on whatever
// thread that is; and a sudog's fields may be used from any thread.
unsafe impl Send for Treap {}

impl Treap {
    pub(crate) const fn new() -> Self {
        Self { root: None, random: 0x9E37_79B9 }
    }

    /// Puts a waiter into the line of its address.
    ///
    /// # Safety
    ///
    /// - `sudog` is in no queue, and stays where it is, alive, until it has been unlinked from this one.
    /// - Until then nobody reads or writes its links, but through this treap.
    pub(crate) unsafe fn queue(&mut self, sudog: &Sudog, order: Order) {
        // SAFETY: lives as long as it is linked, and is reached through this treap only, by the contract.
        let s = unsafe { sudog.vouch() };
        debug_assert_ne!(s.fate.get(), Fate::Queued);
        s.fate.set(Fate::Queued);
        match self.find(s.addr) {
            Ok(head) => {
                join_ring(s, head);
                if order == Order::Lifo {
                    self.substitute(head, s);
                }
            }
            Err(parent) => {
                s.next.set(Some(s));
                s.prev.set(Some(s));
                self.insert_leaf(s, parent);
            }
        }
    }

    /// Takes the first waiter of an address out of its line, if there is one, and gives it its fate.
    pub(crate) fn dequeue(&mut self, addr: usize, fate: Fate) -> Option<SudogRef> {
        let head = self.find(addr).ok()?;
        self.unlink(head, fate);
        Some(head)
    }

    /// Takes a queued waiter out, wherever it stands, and gives it its fate.
    pub(crate) fn unlink(&mut self, s: SudogRef, fate: Fate) {
        debug_assert_eq!(s.fate.get(), Fate::Queued);
        let (Some(prev), Some(next)) = (s.prev.get(), s.next.get()) else { unreachable!("queued in no ring") };
        if next == s {
            self.remove_node(s);
        } else {
            prev.next.set(Some(next));
            next.prev.set(Some(prev));
            if s.priority.get() != 0 {
                self.substitute(s, next);
            }
        }
        s.next.set(None);
        s.prev.set(None);
        s.fate.set(fate);
    }

    /// How many wait for an address.
    pub(crate) fn len(&self, addr: usize) -> usize {
        let Ok(head) = self.find(addr) else { return 0 };
        let mut n = 1;
        let mut s = head.next.get();
        while s != Some(head) {
            n += 1;
            s = s.and_then(|s| s.next.get());
        }
        n
    }

    // ---- the tree -----------------------------------------------------------------------------------------------

    /// The head of an address's line, or the node under which it would be a leaf.
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

    fn insert_leaf(&mut self, s: SudogRef, parent: Link) {
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

    /// Cuts a node off, after turning it down until it is a leaf.
    fn remove_node(&mut self, s: SudogRef) {
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

    /// Puts `new` into `old`'s place in the tree. Nothing is turned: priority and address stay the same.
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

/// Puts `s` behind the last in line, which is in front of the head.
fn join_ring(s: SudogRef, head: SudogRef) {
    let last = head.prev.replace(Some(s));
    s.next.set(Some(head));
    s.prev.set(last);
    if let Some(last) = last {
        last.next.set(Some(s));
    }
}

#[cfg(all(test, not(sudog_loom)))]
#[path = "treap_tests.rs"]
mod tests;
