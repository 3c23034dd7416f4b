//! A worker's queue of work that others may steal: Go's `runq`.
//!
//! ```text
//!               head                tail
//!                ▼                   ▼
//!  ┌──────┬──────┬────┬────┬────┬────┬──────┐
//!  │ free │ free │ w5 │ w6 │ w7 │ w8 │ free │     index i lives in slot i % N; an index never goes back
//!  └──────┴──────┴────┴────┴────┴────┴──────┘
//!  taken at the head, oldest first, by a compare-exchange: the owner 1 (`pop`) or half (`take_half`), a thief up to half
//!  put at the tail, by the owner alone, by a store
//! ```
//!
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `push` stores tail | Release | thief's load of tail | the thief sees the slots, and the memory that the work points to |
//! | taker moves head | Release | owner's load of head in `push` | the taker has read the slots before the owner writes them anew |
//! | thief loads head, then tail | Acquire, Acquire | any move of head | tail is never behind head; see `is_empty` |
//! | slots | Relaxed | | ordered by tail and head. Atomic, because a thief may read a word while the owner writes that word; the thief then discards the word |
//!
//! A taker first reads the slots, and then moves the head. The owner does not write to a slot before it has seen the
//! head move past that slot. So if the compare-exchange finds the head unmoved, the words that were read are the words
//! that were queued.
//!
//! *Ageing*: goroutines that talk to each other wake each other all the time, and should stay on one worker. A thief
//! notes the tail when it first looks at the ring. Later the thief takes only work that was put in before that look.

use std::marker::PhantomData;

use crossbeam_utils::CachePadded;

use crate::shim::{AtomicUsize, Ordering, mark};

/// A piece of work that a [`Ring`] queues as a word. The ring does not look into the word.
pub(crate) trait Word: Sized {
    fn into_word(self) -> usize;

    /// Returns the piece of work again.
    ///
    /// # Safety
    ///
    /// `word` came from [`into_word`](Self::into_word), and is used once.
    unsafe fn from_word(word: usize) -> Self;
}

/// The largest number of works that a taker takes at once.
pub(crate) const BATCH: usize = 128;

/// Works that were taken at once, the oldest first. Works that are not taken out of this iterator are lost.
#[must_use = "the works are lost"]
pub(crate) struct Taken<W> {
    words: [usize; BATCH],
    next: usize,
    end: usize,
    works: PhantomData<W>,
}

impl<W> Taken<W> {
    const fn new() -> Self {
        Self { words: [0; BATCH], next: 0, end: 0, works: PhantomData }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.end
    }
}

impl<W: Word> Iterator for Taken<W> {
    type Item = W;

    fn next(&mut self) -> Option<W> {
        if self.is_empty() {
            return None;
        }
        let word = self.words[self.next];
        self.next += 1;
        // SAFETY: the word was queued, and `claim` has taken the word, so no other taker has it. This iterator gives
        // each word once.
        Some(unsafe { W::from_word(word) })
    }
}

/// The queue: see the top of this file. The owner is the one thread that may put work in.
pub(crate) struct Ring<W, const N: usize = 256> {
    // Indices are of type `usize`, so that on 64-bit systems an index never wraps around: a head that has the same
    // value has not moved, however long the taker slept meanwhile. (Go's indices have 32 bits.)
    head: CachePadded<AtomicUsize>,
    tail: CachePadded<AtomicUsize>,
    slots: [AtomicUsize; N],
    works: PhantomData<fn(W) -> W>,
}

/// The owner's half of a ring.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a, W, const N: usize = 256>(&'a Ring<W, N>, PhantomData<*const ()>);

impl<W: Word, const N: usize> Ring<W, N> {
    const FITS: () = assert!(N.is_power_of_two() && N >= 2 && N / 2 <= BATCH && N < 1 << 15);

    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        const { Self::FITS };
        Self {
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            slots: [const { AtomicUsize::new(0) }; N],
            works: PhantomData,
        }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        const { Self::FITS };
        Self {
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            slots: std::array::from_fn(|_| AtomicUsize::new(0)),
            works: PhantomData,
        }
    }

    /// Returns the owner's half.
    ///
    /// # Safety
    ///
    /// As long as the result is used, no other thread uses an `Owner` of this ring; and what other threads have done with
    /// an `Owner` happens before this call.
    #[inline]
    pub(crate) unsafe fn owner(&self) -> Owner<'_, W, N> {
        Owner(self, PhantomData)
    }

    /// Takes up to half of the queued work, rounded up, oldest first, but only work that was put in before
    /// [`tail`](Self::tail) returned `older_than`. For thieves. Returns no work only if there is no such work.
    pub(crate) fn steal(&self, older_than: u32) -> Taken<W> {
        let mut out = Taken::new();
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let queued = self.tail.load(Ordering::Acquire).wrapping_sub(head);
            if queued > N {
                // The head has moved on since the thief read it.
                mark("a thief reads a head that is too old");
                head = self.head.load(Ordering::Acquire);
                continue;
            }
            // The difference is negative if the head has passed `older_than`. Modulo 2^32 is enough, as the age is only
            // a hint.
            let aged = older_than.wrapping_sub(head as u32).cast_signed().max(0) as usize;
            let n = queued.div_ceil(2).min(aged);
            if n == 0 {
                return out;
            }
            // SAFETY: `head..head + n` lies before a tail that was loaded with Acquire.
            match unsafe { self.claim(head, n, &mut out) } {
                Ok(()) => return out,
                Err(now) => {
                    mark("a thief loses a race");
                    head = now;
                }
            }
        }
    }

    /// Returns the index where the next work will be put: all work that is queued at this moment is older.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Relaxed) as u32
    }

    /// Returns the index of the oldest work, or an earlier index if a thief has taken work meanwhile. No queued work is
    /// older. For the owner.
    #[cfg(not(sudog_loom))]
    #[inline]
    pub(crate) fn head(&self) -> u16 {
        self.head.load(Ordering::Relaxed) as u16
    }

    /// Returns whether work is queued that was put in before [`tail`](Self::tail) returned an index whose lower 16 bits
    /// are `tail`. For the owner. A thief may take that work before the caller does.
    ///
    /// If the head has passed `tail` by almost 2^16, the answer is wrong, until `N` more works have been taken.
    #[cfg(not(sudog_loom))]
    #[inline]
    pub(crate) fn holds_older_than(&self, tail: u16) -> bool {
        // There is such work if `tail` is at most `N` after the head. Relaxed: thieves only move the head forward. If
        // the head is outdated, the owner finds the ring empty, or newer work, once.
        let ahead = tail.wrapping_sub(self.head());
        ahead.wrapping_sub(1) < N as u16
    }

    /// Returns the number of works for which there is room. Thieves may make more room meanwhile. For the owner.
    #[cfg(not(sudog_loom))]
    pub(crate) fn room(&self) -> usize {
        N - self.len()
    }

    /// Returns the number of works that were queued at some moment during the call. For callers that are not the owner,
    /// the number is only a hint.
    #[cfg(not(sudog_loom))]
    pub(crate) fn len(&self) -> usize {
        // Acquire, as in `is_empty`: the tail is not behind the head.
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Relaxed).wrapping_sub(head)
    }

    /// Returns whether the ring was empty at some moment during the call.
    ///
    /// The last look before sleeping must come after a full fence. So must, after a `push`, the look for sleepers.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire, so that the tail is of the same time or later. If work had been queued when the head was read, the
        // tail would have been past the head already, and the tail does not go back.
        let head = self.head.load(Ordering::Acquire);
        head == self.tail.load(Ordering::Relaxed)
    }

    /// Takes `n` works, from index `head` on, into `out`, which is empty. If the head is not at `head` any more, takes
    /// nothing, and returns the present head as the error.
    ///
    /// # Safety
    ///
    /// `head..head + n` lies before a tail that the caller has written or loaded with Acquire.
    #[inline]
    unsafe fn claim(&self, head: usize, n: usize, out: &mut Taken<W>) -> Result<(), usize> {
        debug_assert!(n <= N / 2, "{n} of {N}");
        for (i, word) in out.words[..n].iter_mut().enumerate() {
            *word = self.read(head.wrapping_add(i));
        }
        // Acquire on failure: a thief tries again from the head that is returned.
        self.head.compare_exchange(head, head.wrapping_add(n), Ordering::Release, Ordering::Acquire)?;
        out.end = n;
        Ok(())
    }

    /// Returns the word in the slot of `index`. If the head has passed `index`, that may be newer work in the same slot.
    #[inline]
    fn read(&self, index: usize) -> usize {
        self.slot(index).load(Ordering::Relaxed)
    }

    #[inline]
    fn slot(&self, index: usize) -> &AtomicUsize {
        &self.slots[index & (N - 1)]
    }

    /// Returns an empty ring whose head and tail are `index`, as if much work had been through the ring.
    #[cfg(test)]
    fn starting_at(index: usize) -> Self {
        let ring = Self::new();
        ring.head.store(index, Ordering::Relaxed);
        ring.tail.store(index, Ordering::Relaxed);
        ring
    }
}

impl<W: Word, const N: usize> Owner<'_, W, N> {
    /// Puts work in at the tail. Gives the work back if the ring is full.
    #[inline]
    pub(crate) fn push(self, work: W) -> Result<(), W> {
        let tail = self.0.tail.load(Ordering::Relaxed); // only the owner writes the tail
        if tail.wrapping_sub(self.0.head.load(Ordering::Acquire)) == N {
            return Err(work);
        }
        self.0.slot(tail).store(work.into_word(), Ordering::Relaxed);
        self.0.tail.store(tail.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Takes the oldest work.
    #[inline]
    pub(crate) fn pop(self) -> Option<W> {
        let tail = self.0.tail.load(Ordering::Relaxed); // only the owner writes the tail
        // Relaxed: the owner itself has written all words in the slots, and the compare-exchange tells if the head has
        // moved.
        let mut head = self.0.head.load(Ordering::Relaxed);
        while head != tail {
            let word = self.0.read(head);
            let next = head.wrapping_add(1);
            match self.0.head.compare_exchange(head, next, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: `head` lay before the tail, so the owner has queued the word; and the head has moved past the
                // word, so no other taker has it.
                Ok(_) => return Some(unsafe { W::from_word(word) }),
                Err(now) => {
                    mark("the owner loses a race");
                    head = now;
                }
            }
        }
        None
    }

    /// Takes the older half of the works, rounded up, to make room. Returns no work if the ring is empty, or if a
    /// thief has just made room.
    #[cold]
    pub(crate) fn take_half(self) -> Taken<W> {
        let head = self.0.head.load(Ordering::Relaxed); // Relaxed as in `pop`
        let n = self.0.tail.load(Ordering::Relaxed).wrapping_sub(head).div_ceil(2);
        let mut out = Taken::new();
        // SAFETY: `head..head + n` lies before the tail, which this caller, the owner, has written.
        if unsafe { self.0.claim(head, n, &mut out) }.is_err() {
            mark("a thief makes room for the owner");
        }
        out
    }
}

#[cfg(test)]
#[path = "runq_tests.rs"]
mod tests;
