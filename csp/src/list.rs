//! A channel's list of fibres that hang on it: empty, or all readers, or all writers. First in, first out; each entry is
//! on its fibre's own stack.
//!
//! | field of an entry | read and written |
//! |---|---|
//! | `g`, `slot`, `counted` | fixed before it is pushed |
//! | `place`, `next`, `prev` | by the owner of the channel's lock while it is in the list; then by what has taken it out |
//! | the value at `slot` | by its fibre, before it is pushed and after it was readied; by the partner that has taken it |
//!
//! | place | it is | next |
//! |---|---|---|
//! | `Nowhere` | in no list: new, or it has left by itself | `Listed` |
//! | `Listed` | in the list; or, if the channel is dead, in the hands of what ended the channel | `Met`, `Nowhere` |
//! | `Met` | taken out by a partner, which readies it | |

use std::ptr::NonNull;

use sudog_runtime::G;
use sudog_runtime::shim::Cell;

/// What a fibre hangs for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dir {
    Read,
    Write,
}

impl Dir {
    pub(crate) fn opposite(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Nowhere,
    Listed,
    Met,
}

type Link = Option<NonNull<Waiter>>;

/// One fibre that hangs.
pub(crate) struct Waiter {
    pub(crate) g: *const G,
    /// Where a writer's value is, or where a reader wants it.
    pub(crate) slot: *mut (),
    /// Its end counts although it hangs: it comes back by itself.
    pub(crate) counted: bool,
    pub(crate) place: Cell<Place>,
    next: Cell<Link>,
    prev: Cell<Link>,
}

impl Waiter {
    pub(crate) fn new(g: *const G, slot: *mut (), counted: bool) -> Self {
        let (next, prev) = (Cell::new(None), Cell::new(None));
        Self { g, slot, counted, place: Cell::new(Place::Nowhere), next, prev }
    }
}

/// The list, under its channel's lock.
pub(crate) struct List {
    /// What its entries are, if there are any.
    dir: Dir,
    first: Link,
    last: Link,
    len: usize,
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { dir: Dir::Read, first: None, last: None, len: 0 }
    }

    /// What its entries are; `None` if there are none.
    pub(crate) fn dir(&self) -> Option<Dir> {
        self.first.map(|_| self.dir)
    }

    /// # Panics
    ///
    /// If there is one of the other kind. It has changed nothing then.
    ///
    /// # Safety
    ///
    /// - The lock is held, as for all methods.
    /// - The waiter is in no list, and stays alive and in place until it is in none again, and has been readied if that
    ///   is not its own doing.
    pub(crate) unsafe fn push(&mut self, dir: Dir, waiter: &Waiter) {
        assert!(self.dir().is_none_or(|there| there == dir), "a channel's list is empty, all readers, or all writers");
        self.dir = dir;
        let this = Some(NonNull::from(waiter));
        let last = std::mem::replace(&mut self.last, this);
        waiter.place.set(Place::Listed);
        waiter.next.set(None);
        waiter.prev.set(last);
        match last {
            // SAFETY: listed, hence alive, and the lock is held.
            Some(last) => unsafe { last.as_ref() }.next.set(this),
            None => self.first = this,
        }
        self.len += 1;
    }

    /// Takes the oldest out, if they hang for this.
    ///
    /// # Safety
    ///
    /// The lock is held.
    pub(crate) unsafe fn pop(&mut self, dir: Dir) -> Option<NonNull<Waiter>> {
        let first = self.first.filter(|_| self.dir == dir)?;
        // SAFETY: listed, hence alive and in this list, and the lock is held.
        unsafe { self.remove(first.as_ref()) };
        Some(first)
    }

    /// Takes one out, which is in no list then.
    ///
    /// # Safety
    ///
    /// The lock is held, and the waiter is in this list.
    pub(crate) unsafe fn remove(&mut self, waiter: &Waiter) {
        let (prev, next) = (waiter.prev.get(), waiter.next.get());
        match prev {
            // SAFETY: listed, hence alive, and the lock is held.
            Some(prev) => unsafe { prev.as_ref() }.next.set(next),
            None => self.first = next,
        }
        match next {
            // SAFETY: as above.
            Some(next) => unsafe { next.as_ref() }.prev.set(prev),
            None => self.last = prev,
        }
        self.len -= 1;
        waiter.place.set(Place::Nowhere);
    }

    /// Empties the list, and hands over what was in it, as it stands.
    pub(crate) fn take(&mut self) -> Taken {
        (self.last, self.len) = (None, 0);
        Taken(self.first.take())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// The entries of a list that its owner has taken, the oldest first. They stand still until each has been readied.
pub(crate) struct Taken(Link);

impl Taken {
    /// The next one's G, to be readied once. Its entry is not looked at again.
    ///
    /// # Safety
    ///
    /// The entries have been readied in no other way.
    pub(crate) unsafe fn next(&mut self) -> Option<*const G> {
        // SAFETY: not readied yet, by the contract, hence alive; and nothing writes to its links.
        let waiter = unsafe { self.0?.as_ref() };
        self.0 = waiter.next.get();
        Some(waiter.g)
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use std::collections::VecDeque;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::ptr;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(Dir),
        Pop(Dir),
        Remove(usize),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        let dir = prop_oneof![Just(Dir::Read), Just(Dir::Write)];
        prop_oneof![
            5 => dir.clone().prop_map(Step::Push),
            3 => dir.prop_map(Step::Pop),
            2 => any::<usize>().prop_map(Step::Remove),
            1 => Just(Step::Take),
        ]
    }

    proptest! {
        /// Beside a queue of the standard library: the same entries in the same order, never of two kinds; a push of the
        /// other kind is refused, and changes nothing.
        #[test]
        fn the_list_is_empty_or_all_readers_or_all_writers(steps in prop::collection::vec(step(), 0..60)) {
            let waiters: Vec<_> = (0..60).map(|_| Waiter::new(ptr::null(), ptr::null_mut(), false)).collect();
            let mut list = List::new();
            let mut model: VecDeque<usize> = VecDeque::new();
            let mut kind = None;
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(dir) => {
                        // SAFETY: each waiter is pushed once, and outlives the list.
                        let pushed = catch_unwind(AssertUnwindSafe(|| unsafe { list.push(dir, &waiters[i]) }));
                        prop_assert_eq!(pushed.is_ok(), kind.is_none_or(|kind| kind == dir));
                        if pushed.is_ok() {
                            model.push_back(i);
                            kind = Some(dir);
                        }
                    }
                    Step::Pop(dir) => {
                        // SAFETY: no other thread.
                        let popped = unsafe { list.pop(dir) }.map(|waiter| waiter.as_ptr().cast_const());
                        let expected = if kind == Some(dir) { model.pop_front() } else { None };
                        prop_assert_eq!(popped, expected.map(|i| &raw const waiters[i]));
                    }
                    Step::Remove(_) if model.is_empty() => {}
                    Step::Remove(at) => {
                        let i = model.remove(at % model.len()).unwrap();
                        // SAFETY: it is in the list.
                        unsafe { list.remove(&waiters[i]) };
                    }
                    Step::Take => {
                        let mut taken = list.take();
                        // SAFETY: nothing is readied here.
                        let count = std::iter::from_fn(|| unsafe { taken.next() }).count();
                        prop_assert_eq!(count, model.len());
                        model.clear();
                    }
                }
                if model.is_empty() {
                    kind = None;
                }
                prop_assert_eq!(list.dir(), kind);
                prop_assert_eq!(list.len(), model.len());
            }
        }
    }
}
