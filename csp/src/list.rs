//! The waiters of fibres that hang, and the lists that link the waiters: the list of a channel, and the list of an
//! active set.
//!
//! The list of a channel is empty, or all readers, or all writers, first in, first out. Each waiter is on the stack of
//! its own fibre; the waiter of a task is in the task's future.
//!
//! | field of a waiter | read and written |
//! |---|---|
//! | `g`, `slot`, `limited`, `channel`, `set` | fixed before the waiter is pushed |
//! | `place`, `in_channel` | by the owner of the channel's lock while the waiter is listed; then by the G that has taken the waiter out |
//! | `in_set` | by the owner of the set's lock |
//! | the value at `slot` | by the waiter's fibre before the push and after the waiter's `ready`; in between by the partner that has taken the waiter |
//!
//! | place | the waiter is | next |
//! |---|---|---|
//! | `Nowhere` | in no list: new, or taken out by its own fibre or by a cancel | `Listed` |
//! | `Listed` | in the channel's list | `Met`, `Reclaimed`, `Nowhere` |
//! | `Met` | taken out by a partner, which readies the waiter | |
//! | `Reclaimed` | taken out by the drop of its active set, or by the G that ended the channel, which readies the waiter | |

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

/// The neighbours of a waiter in a list.
pub(crate) struct Links {
    next: Cell<Link>,
    prev: Cell<Link>,
}

impl Links {
    fn new() -> Self {
        Self { next: Cell::new(None), prev: Cell::new(None) }
    }
}

/// The record of a fibre that hangs, on the stack of that fibre.
pub(crate) struct Waiter {
    pub(crate) g: *const G,
    /// The address of a writer's value, or of the room for a reader's value.
    pub(crate) slot: *mut (),
    /// True if the wait has a deadline or a cancel. Then the fibre comes back by itself, so its end stays counted, and
    /// its set is not at rest.
    pub(crate) limited: bool,
    /// The channel, from [`Arc::as_ptr`](std::sync::Arc::as_ptr).
    pub(crate) channel: *const Channel,
    /// The active set that the fibre belongs to; null if the fibre belongs to none.
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

/// Selects the [`Links`] of a waiter that a [`Chain`] uses: `in_channel` or `in_set`.
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

/// A list of waiters, linked through fields of the waiters, under the lock of the list's owner.
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
    /// - No chain with the same `W` contains the waiter. The waiter stays alive and in place until it has left this
    ///   chain.
    pub(crate) unsafe fn push(&mut self, waiter: &Waiter) {
        let this = Some(NonNull::from(waiter));
        let last = std::mem::replace(&mut self.last, this);
        W::links(waiter).next.set(None);
        W::links(waiter).prev.set(last);
        match last {
            // SAFETY: `last` is in this chain, hence alive, and the chain's lock is held.
            Some(last) => W::links(unsafe { last.as_ref() }).next.set(this),
            None => self.first = this,
        }
    }

    /// Takes a waiter out of the chain.
    ///
    /// # Safety
    ///
    /// The chain's lock is held, and this chain contains the waiter.
    pub(crate) unsafe fn remove(&mut self, waiter: &Waiter) {
        let (prev, next) = (W::links(waiter).prev.get(), W::links(waiter).next.get());
        match prev {
            // SAFETY: `prev` is in this chain, hence alive, and the chain's lock is held.
            Some(prev) => W::links(unsafe { prev.as_ref() }).next.set(next),
            None => self.first = next,
        }
        match next {
            // SAFETY: `next` is in this chain, hence alive, and the chain's lock is held.
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

    /// Returns the operation for which the waiters hang, or `None` if there are no waiters.
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
    /// - The waiter is in no channel's list. The waiter stays alive and in place until it has left this list and, if
    ///   another G has taken it out, until that G has readied the waiter's G.
    pub(crate) unsafe fn push(&mut self, dir: Dir, waiter: &Waiter) {
        assert!(self.dir().is_none_or(|there| there == dir), "a channel's list is empty, all readers, or all writers");
        self.dir = dir;
        waiter.place.set(Place::Listed);
        // SAFETY: the lock is held. The waiter is in no channel's list, and stays alive while this list contains the
        // waiter.
        unsafe { self.chain.push(waiter) };
        self.len += 1;
    }

    /// Takes the oldest waiter out of the list, if the waiters hang for `dir`.
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

    /// Takes a waiter out of the list, and sets the waiter's place to `Nowhere`.
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

    /// Takes the oldest waiter out of the list.
    ///
    /// # Safety
    ///
    /// The channel's lock is held.
    pub(crate) unsafe fn pop_first(&mut self) -> Option<NonNull<Waiter>> {
        // SAFETY: the channel's lock is held, by the contract of this function.
        unsafe { self.pop(self.dir) }
    }

    /// Returns the waiters in the list, the oldest first.
    ///
    /// # Safety
    ///
    /// The channel's lock is held while the result is in use.
    pub(crate) unsafe fn iter(&self) -> impl Iterator<Item = &Waiter> {
        // SAFETY: each waiter in the list is alive, and its links change only under the lock, which is held.
        let of = |link: Link| link.map(|waiter| unsafe { waiter.as_ref() });
        std::iter::successors(of(self.chain.first()), move |waiter| of(waiter.in_channel.next.get()))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
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
        PopAll,
    }

    fn step() -> impl Strategy<Value = Step> {
        let dir = prop_oneof![Just(Dir::Read), Just(Dir::Write)];
        prop_oneof![
            5 => dir.clone().prop_map(Step::Push),
            3 => dir.prop_map(Step::Pop),
            2 => any::<usize>().prop_map(Step::Remove),
            1 => Just(Step::PopAll),
        ]
    }

    proptest! {
        /// Compares the list with a queue of the standard library: the same entries in the same order, never of two
        /// kinds. A push of the other kind is refused, and changes nothing.
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
                        // SAFETY: no other thread uses the list.
                        let popped = unsafe { list.pop(dir) }.map(|waiter| waiter.as_ptr().cast_const());
                        let expected = if kind == Some(dir) { model.pop_front() } else { None };
                        prop_assert_eq!(popped, expected.map(|i| &raw const waiters[i]));
                    }
                    Step::Remove(_) if model.is_empty() => {}
                    Step::Remove(at) => {
                        let i = model.remove(at % model.len()).unwrap();
                        // SAFETY: the model says that the waiter is in the list.
                        unsafe { list.remove(&waiters[i]) };
                    }
                    Step::PopAll => {
                        // SAFETY: no other thread uses the list.
                        let seen = unsafe { list.iter() }.map(|waiter| &raw const *waiter).collect::<Vec<_>>();
                        // SAFETY: no other thread uses the list.
                        let popped = std::iter::from_fn(|| unsafe { list.pop_first() });
                        let popped: Vec<_> = popped.map(|waiter| waiter.as_ptr().cast_const()).collect();
                        prop_assert_eq!(&seen, &popped);
                        prop_assert_eq!(popped, model.drain(..).map(|i| &raw const waiters[i]).collect::<Vec<_>>());
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
