//! The treap as in Go: rotations, and random priorities. For comparison with [`Treap`], which is the default.
//!
//! ```text
//!        x                y          while the parent's priority is the larger one, a new leaf goes up;
//!       / \    ──▶       / \         while a node that leaves has children, the one with the smaller
//!      a   y            x   c        priority goes up in its place
//!         / \          / \
//!        b   c        a   b
//! ```
//!
//! Source: `semaRoot` of Go's `runtime/sema.go` (queue, dequeue, rotateLeft, rotateRight), CL 37103. Unlike in Go, a
//! waiter that is not the first of its address can leave.

use super::rings::RingIndex;
use super::treap::{Treap, side_of};
use super::{Link, SudogPtr};

/// A set of addresses in a tree that is balanced in expectation, by a priority that is drawn at each insertion.
pub struct RotatingTreap {
    pub(super) tree: Treap,
    random: u64,
}

// SAFETY: `find` returns a head that is in the tree. `insert` and `substitute` set the priority of a head, and `remove`
// and `substitute` set the priority of a former head to 0.
unsafe impl RingIndex for RotatingTreap {
    const NONE: Self = Self { tree: Treap::NONE, random: 0 };

    type Place = Link;

    fn find(&self, addr: usize) -> Result<SudogPtr, Link> {
        self.tree.find(addr)
    }

    fn insert(&mut self, s: SudogPtr, place: Link) {
        s.priority.set(self.draw());
        self.tree.link(place, place.map_or(0, |parent| usize::from(s.addr > parent.addr)), Some(s));
        while let Some(parent) = s.parent.get()
            && parent.priority.get() > s.priority.get()
        {
            self.raise(s, parent);
        }
    }

    fn remove(&mut self, s: SudogPtr) {
        loop {
            let up = match [0, 1].map(|side: usize| s.child[side].get()) {
                [None, None] => break,
                [Some(less), Some(more)] if less.priority.get() < more.priority.get() => less,
                [_, Some(more)] => more,
                [Some(less), None] => less,
            };
            self.raise(up, s);
        }
        s.priority.set(0);
        let parent = s.parent.replace(None);
        self.tree.link(parent, parent.map_or(0, |p| side_of(s, p)), None);
    }

    fn substitute(&mut self, old: SudogPtr, new: SudogPtr) {
        self.tree.substitute(old, new);
    }
}

impl RotatingTreap {
    /// Rotates a node above its parent.
    fn raise(&mut self, s: SudogPtr, parent: SudogPtr) {
        let above = parent.parent.get();
        let place = above.map_or(0, |p| side_of(parent, p));
        let side = side_of(s, parent);
        let between = s.child[1 - side].get();
        self.tree.link(Some(parent), side, between);
        self.tree.link(Some(s), 1 - side, Some(parent));
        self.tree.link(above, place, Some(s));
    }

    /// Draws a priority, which is never 0: Wang Yi's wyrand, as Go's `cheaprand`.
    fn draw(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0xA076_1D64_78BD_642F);
        let product = u128::from(self.random) * u128::from(self.random ^ 0xE703_7ED1_A0B4_28DB);
        (product >> 64) as u32 ^ product as u32 | 1
    }
}
