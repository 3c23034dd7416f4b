//! The waiters of fibres that hang, and the lists that link them: the list of a channel, and that of an active set.
//!
//! The list of a channel is empty, or all readers, or all writers. First in, first out. Each waiter is on the stack of its
//! own fibre.
//!
//! | field of a waiter | read and written |
//! |---|---|
//! | `g`, `slot`, `limited`, `channel`, `set` | fixed before the waiter is pushed |
//! | `place`, `in_channel` | by the owner of the channel's lock while the waiter is listed; then by the G that has taken it out |
//! | `in_set` | by the owner of the set's lock |
//! | the value at `slot` | by the waiter's fibre before the push and after its `ready`; between by the partner that has taken it |
//!
//! | place | the waiter is | next |
//! |---|---|---|
//! | `Nowhere` | in no list: new, or its fibre or a cancel has taken it out | `Listed` |
//! | `Listed` | in the channel's list; or, if the channel is dead, in the hands of the G that ended the channel | `Met`, `Reclaimed`, `Nowhere` |
//! | `Met` | taken out by a partner, which readies it | |
//! | `Reclaimed` | taken out by the end of its active set, which readies it | |

use std::marker::PhantomData;
use std::ptr::NonNull;

use sudog_runtime::G;
use sudog_runtime::shim::Cell;

use crate::channel::Channel;
use crate::set::Set;

/// The operation for which a fibre hangs.
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
    Reclaimed,
}

type Link = Option<NonNull<Waiter>>;

/// The neighbours of a waiter in one list.
pub(crate) struct Links {
    next: Cell<Link>,
    prev: Cell<Link>,
}

impl Links {
    fn new() -> Self {
        Self { next: Cell::new(None), prev: Cell::new(None) }
    }
}

/// One fibre that hangs.
pub(crate) struct Waiter {
    pub(crate) g: *const G,
    /// Address of a writer's value, or of the room for a reader's.
    pub(crate) slot: *mut (),
    /// The wait has a deadline or a cancel: the fibre comes back by itself, so its end counts and its set stays awake.
    pub(crate) limited: bool,
    /// The channel, from [`Arc::as_ptr`](std::sync::Arc::as_ptr).
    pub(crate) channel: *const Channel,
    /// The active set that the fibre belongs to; null if there is none.
    pub(crate) set: *const Set,
    pub(crate) place: Cell<Place>,
    in_channel: Links,
    in_set: Links,
}

impl Waiter {
    pub(crate) fn new(g: *const G, slot: *mut (), limited: bool, channel: *const Channel, set: *const Set) -> Self {
        let place = Cell::new(Place::Nowhere);
        Self { g, slot, limited, channel, set, place, in_channel: Links::new(), in_set: Links::new() }
    }
}

/// Selects the links of a waiter that a [`Chain`] uses.
pub(crate) trait Which {
    fn links(waiter: &Waiter) -> &Links;
}

pub(crate) struct InChannel;
pub(crate) struct InSet;

impl Which for InChannel {
    fn links(waiter: &Waiter) -> &Links {
        &waiter.in_channel
    }
}

impl Which for InSet {
    fn links(waiter: &Waiter) -> &Links {
        &waiter.in_set
    }
}

/// A list of waiters, linked through themselves, under a lock of its owner's.
pub(crate) struct Chain<W> {
    first: Link,
    last: Link,
    which: PhantomData<W>,
}

impl<W: Which> Chain<W> {
    pub(crate) const fn new() -> Self {
        Self { first: None, last: None, which: PhantomData }
    }

    pub(crate) fn first(&self) -> Option<NonNull<Waiter>> {
        self.first
    }

    /// Appends a waiter.
    ///
    /// # Safety
    ///
    /// - The chain's lock is held, as for all methods.
    /// - No chain of this kind has the waiter. The waiter stays alive and in place until this chain has it no more.
    pub(crate) unsafe fn push(&mut self, waiter: &Waiter) {
        let this = Some(NonNull::from(waiter));
        let last = std::mem::replace(&mut self.last, this);
        W::links(waiter).next.set(None);
        W::links(waiter).prev.set(last);
        match last {
            // SAFETY: `last` is in this chain, hence alive, and the lock is held.
            Some(last) => W::links(unsafe { last.as_ref() }).next.set(this),
            None => self.first = this,
        }
    }

    /// Takes a waiter out.
    ///
    /// # Safety
    ///
    /// The chain's lock is held, and this chain has the waiter.
    pub(crate) unsafe fn remove(&mut self, waiter: &Waiter) {
        let (prev, next) = (W::links(waiter).prev.get(), W::links(waiter).next.get());
        match prev {
            // SAFETY: `prev` is in this chain, hence alive, and the lock is held.
            Some(prev) => W::links(unsafe { prev.as_ref() }).next.set(next),
            None => self.first = next,
        }
        match next {
            // SAFETY: `next` is in this chain, hence alive, and the lock is held.
            Some(next) => W::links(unsafe { next.as_ref() }).prev.set(prev),
            None => self.last = prev,
        }
    }
}

/// The list of a channel, under the channel's lock.
pub(crate) struct List {
    /// The operation for which the waiters hang, if there are any.
    dir: Dir,
    chain: Chain<InChannel>,
    len: usize,
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { dir: Dir::Read, chain: Chain::new(), len: 0 }
    }

    /// Returns the operation for which the waiters hang; `None` if there are none.
    pub(crate) fn dir(&self) -> Option<Dir> {
        self.chain.first().map(|_| self.dir)
    }

    /// Appends a waiter.
    ///
    /// # Panics
    ///
    /// If the list has waiters of the other kind. The list is unchanged then.
    ///
    /// # Safety
    ///
    /// - The channel's lock is held, as for all methods.
    /// - The waiter is in no channel's list. It stays alive and in place until it is in none again, and has been readied
    ///   unless its own fibre has taken it out.
    pub(crate) unsafe fn push(&mut self, dir: Dir, waiter: &Waiter) {
        assert!(self.dir().is_none_or(|there| there == dir), "a channel's list is empty, all readers, or all writers");
        self.dir = dir;
        waiter.place.set(Place::Listed);
        // SAFETY: the lock is held; the waiter is in no channel's list, and stays alive while it is in this one.
        unsafe { self.chain.push(waiter) };
        self.len += 1;
    }

    /// Takes the oldest waiter out, if the waiters hang for `dir`.
    ///
    /// # Safety
    ///
    /// The channel's lock is held.
    pub(crate) unsafe fn pop(&mut self, dir: Dir) -> Option<NonNull<Waiter>> {
        let first = self.chain.first().filter(|_| self.dir == dir)?;
        // SAFETY: the lock is held, and `first` is in this list, hence alive.
        unsafe { self.remove(first.as_ref()) };
        Some(first)
    }

    /// Takes a waiter out. Its place is `Nowhere` then.
    ///
    /// # Safety
    ///
    /// The channel's lock is held, and the waiter is in this list.
    pub(crate) unsafe fn remove(&mut self, waiter: &Waiter) {
        // SAFETY: the lock is held, and the waiter is in this list.
        unsafe { self.chain.remove(waiter) };
        self.len -= 1;
        waiter.place.set(Place::Nowhere);
    }

    /// Empties the list, and returns the waiters that were in it, as they stand.
    pub(crate) fn take(&mut self) -> Taken {
        self.len = 0;
        Taken(std::mem::replace(&mut self.chain, Chain::new()).first())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// The waiters of a list that its owner has taken, the oldest first. They stand still until each has been readied.
pub(crate) struct Taken(Link);

impl Taken {
    /// Returns the G of the next waiter, to be readied once. The waiter is not used again.
    ///
    /// # Safety
    ///
    /// The waiters have been readied in no other way.
    pub(crate) unsafe fn next(&mut self) -> Option<*const G> {
        // SAFETY: the waiter has not been readied yet, by the contract, hence it is alive; and nothing writes to its links.
        let waiter = unsafe { self.0?.as_ref() };
        self.0 = waiter.in_channel.next.get();
        Some(waiter.g)
    }

    /// Calls `f` with each waiter. None of them has been readied yet.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Waiter)) {
        let mut at = self.0;
        while let Some(waiter) = at {
            // SAFETY: no waiter has been readied, as `next` hands out each once and drops it from this list; so each is
            // alive, and nothing writes to its links.
            let waiter = unsafe { waiter.as_ref() };
            f(waiter);
            at = waiter.in_channel.next.get();
        }
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use std::collections::VecDeque;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::ptr;

    use proptest::prelude::*;

    use super::*;

    fn unlisted() -> Waiter {
        Waiter::new(ptr::null(), ptr::null_mut(), false, ptr::null(), ptr::null())
    }

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
            let waiters: Vec<_> = (0..60).map(|_| unlisted()).collect();
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
