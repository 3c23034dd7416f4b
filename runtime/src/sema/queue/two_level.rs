//! A list of addresses, and a ring of waiters for each: the list of CL 36792.
//!
//! ```text
//!   first ─▶ [A]⇄ s ⇄ s
//!             ⇅
//!            [B]⇄ s            B is found by walking past A, however many wait for A
//!             ⇅
//!            [C] ◀─ last
//! ```
//!
//! `child[0]` of a head is the previous head, `child[1]` the next.
//!
//! Source: `semaRoot` of Go's `runtime/sema.go` between CL 36792 and CL 37103. (Go's list had no lifo waiters, and put
//! each waiter at the end.)

use super::rings::RingIndex;
use super::{Link, SudogPtr};

/// A list of addresses in the order in which each got its first waiter.
pub struct TwoLevelList {
    pub(super) first: Link,
    pub(super) last: Link,
}

const BEFORE: usize = 0;
const AFTER: usize = 1;

// SAFETY: only the holder of the list accesses the sudogs that the list links, on whatever thread; and a sudog's fields
// may be used from any thread.
unsafe impl Send for TwoLevelList {}

// SAFETY: `find` returns a head that is in the list. `insert` and `substitute` set the priority of a head, and `remove`
// and `substitute` set the priority of a former head to 0.
unsafe impl RingIndex for TwoLevelList {
    const NONE: Self = Self { first: None, last: None };

    /// No information: a new head always goes to the end of the list.
    type Place = ();

    fn find(&self, addr: usize) -> Result<SudogPtr, ()> {
        let mut at = self.first;
        while let Some(head) = at {
            if head.addr == addr {
                return Ok(head);
            }
            at = head.child[AFTER].get();
        }
        Err(())
    }

    fn insert(&mut self, s: SudogPtr, (): ()) {
        s.priority.set(1);
        self.put(s, self.last, None);
    }

    fn remove(&mut self, s: SudogPtr) {
        s.priority.set(0);
        let (before, after) = (s.child[BEFORE].replace(None), s.child[AFTER].replace(None));
        self.set_after(before, after);
        self.set_before(after, before);
    }

    fn substitute(&mut self, old: SudogPtr, new: SudogPtr) {
        new.priority.set(old.priority.replace(0));
        let (before, after) = (old.child[BEFORE].replace(None), old.child[AFTER].replace(None));
        self.put(new, before, after);
    }
}

impl TwoLevelList {
    fn put(&mut self, s: SudogPtr, before: Link, after: Link) {
        s.child[BEFORE].set(before);
        s.child[AFTER].set(after);
        self.set_after(before, Some(s));
        self.set_before(after, Some(s));
    }

    /// Sets the successor of the head `of`. If `of` is `None`, sets the first head.
    fn set_after(&mut self, of: Link, to: Link) {
        match of {
            None => self.first = to,
            Some(s) => s.child[AFTER].set(to),
        }
    }

    fn set_before(&mut self, of: Link, to: Link) {
        match of {
            None => self.last = to,
            Some(s) => s.child[BEFORE].set(to),
        }
    }
}
