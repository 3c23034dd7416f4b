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
//! | `push` stores tail | Release | thief's load of tail | it sees the slots, and what the work points to |
//! | taker moves head | Release | owner's load of head in `push` | the slots have been read when they are written anew |
//! | thief loads head, then tail | Acquire, Acquire | any move of head | tail is never behind head; see `is_empty` |
//! | slots | Relaxed | | ordered by the above; atomic because a thief may read what the owner writes, to throw it away |
//!
//! A taker reads the slots first and moves the head after. The owner does not write to a slot before it has seen the
//! head move past it. So if the compare-exchange finds the head where it was, what was read is what was queued.
//!
//! *Ageing*: goroutines that talk to each other wake each other all the time, and should stay on one worker. A thief
//! notes the tail when it first passes by, and takes later only what was put in before that and is still there.

use std::mem::MaybeUninit;
use std::num::NonZeroUsize;

use crossbeam_utils::CachePadded;

use crate::shim::{AtomicUsize, Ordering, mark};

/// Something to run. To the queues it is a word that is not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work(pub(crate) NonZeroUsize);

/// How much is taken at once, at most.
pub(crate) const BATCH: usize = 128;

/// Room for what is taken at once.
pub(crate) type Batch = [MaybeUninit<Work>; BATCH];

/// See the top of this file. The owner is the one thread that may put in.
pub(crate) struct Ring<const N: usize = 256> {
    // Indices are words so that on 64 bits they never come round: a taker that slept meanwhile cannot be deceived by a
    // head that is where it was. (Go's have 32 bits.)
    head: CachePadded<AtomicUsize>,
    tail: CachePadded<AtomicUsize>,
    slots: [AtomicUsize; N],
}

impl<const N: usize> Ring<N> {
    const FITS: () = assert!(N.is_power_of_two() && N >= 2 && N / 2 <= BATCH && N < 1 << 15);

    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        const { Self::FITS };
        Self {
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            slots: [const { AtomicUsize::new(0) }; N],
        }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        const { Self::FITS };
        Self {
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            slots: std::array::from_fn(|_| AtomicUsize::new(0)),
        }
    }

    /// Puts in at the tail. Gives the work back if the ring is full.
    ///
    /// # Safety
    ///
    /// The caller is the owner.
    #[inline]
    pub(crate) unsafe fn push(&self, work: Work) -> Result<(), Work> {
        let tail = self.tail.load(Ordering::Relaxed); // our own
        if tail.wrapping_sub(self.head.load(Ordering::Acquire)) == N {
            return Err(work);
        }
        self.slot(tail).store(work.0.get(), Ordering::Relaxed);
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Takes the oldest.
    ///
    /// # Safety
    ///
    /// The caller is the owner.
    #[inline]
    pub(crate) unsafe fn pop(&self) -> Option<Work> {
        let tail = self.tail.load(Ordering::Relaxed); // our own
        // Relaxed: all that is in the slots we have written ourselves, and the compare-exchange tells if it is too
        // late.
        let mut head = self.head.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: between head and our own tail.
            let work = unsafe { self.read(head) };
            let next = head.wrapping_add(1);
            match self.head.compare_exchange(head, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(work),
                Err(now) => {
                    mark("the owner loses a race");
                    head = now;
                }
            }
        }
        None
    }

    /// Takes the older half, rounded up, to make room; how many that is. 0 if there is nothing, or if a thief has just
    /// made room itself.
    ///
    /// # Safety
    ///
    /// The caller is the owner.
    #[cold]
    pub(crate) unsafe fn take_half(&self, out: &mut Batch) -> usize {
        let head = self.head.load(Ordering::Relaxed); // as in `pop`
        let n = self.tail.load(Ordering::Relaxed).wrapping_sub(head).div_ceil(2);
        // SAFETY: between head and our own tail.
        if unsafe { self.claim(head, n, out) }.is_ok() {
            return n;
        }
        mark("a thief makes room for the owner");
        0
    }

    /// For thieves: takes up to half, rounded up, of what is queued, oldest first, and nothing that was put in since
    /// [`tail`](Self::tail) said `older_than`. Returns how many; 0 only if there is nothing of that age.
    pub(crate) fn steal(&self, older_than: u32, out: &mut Batch) -> usize {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let queued = self.tail.load(Ordering::Acquire).wrapping_sub(head);
            if queued > N {
                // The head has moved on since we read it.
                mark("a thief reads a head that is too old");
                head = self.head.load(Ordering::Acquire);
                continue;
            }
            // Negative if the head has passed that point. Modulo 2^32, for an age is only a hint.
            let aged = older_than.wrapping_sub(head as u32).cast_signed().max(0) as usize;
            let n = queued.div_ceil(2).min(aged);
            if n == 0 {
                return 0;
            }
            // SAFETY: between head and a tail that was loaded with Acquire.
            match unsafe { self.claim(head, n, out) } {
                Ok(()) => return n,
                Err(now) => {
                    mark("a thief loses a race");
                    head = now;
                }
            }
        }
    }

    /// Where the next one will be put: what is queued at this moment is older.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Relaxed) as u32
    }

    /// For the owner: where the next one is taken, or was, if a thief has been there since. All that is queued is younger.
    #[cfg(not(sudog_loom))]
    #[inline]
    pub(crate) fn head(&self) -> u16 {
        self.head.load(Ordering::Relaxed) as u16
    }

    /// For the owner: whether something is queued that was put in before [`tail`](Self::tail) said `tail`, of which the
    /// caller has kept 16 bits. A thief may have taken it by the time the caller looks.
    ///
    /// Should the head have passed `tail` by almost 2^16, the answer is wrong, until the owner has taken `N` more.
    #[cfg(not(sudog_loom))]
    #[inline]
    pub(crate) fn holds_older_than(&self, tail: u16) -> bool {
        // Such work is one of the `N` after the head. Relaxed: thieves move the head forward only, and a head of earlier
        // finds the ring empty, or newer work, once.
        let ahead = tail.wrapping_sub(self.head());
        ahead.wrapping_sub(1) < N as u16
    }

    /// For the owner: how much can be put in, at least.
    #[cfg(not(sudog_loom))]
    pub(crate) fn room(&self) -> usize {
        N - self.len()
    }

    /// How much was queued at some moment during the call, if the caller is the owner; else about that.
    #[cfg(not(sudog_loom))]
    pub(crate) fn len(&self) -> usize {
        // Acquire, as in `is_empty`: the tail is not behind the head.
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Relaxed).wrapping_sub(head)
    }

    /// Whether nothing was queued at some moment during the call.
    ///
    /// The last look before sleeping must come after a full fence, and the look for sleepers after a `push` too.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire, so that the tail is of the same time or later. Had anything been queued when the head was read, the
        // tail would have been past the head already, and it does not go back.
        let head = self.head.load(Ordering::Acquire);
        head == self.tail.load(Ordering::Relaxed)
    }

    /// Takes `n` from `head` on, or says where the head is instead. `out` may be written to in both cases.
    ///
    /// # Safety
    ///
    /// `head..head + n` lies before a tail that the caller has written or loaded with Acquire.
    #[inline]
    unsafe fn claim(&self, head: usize, n: usize, out: &mut Batch) -> Result<(), usize> {
        debug_assert!(n <= N / 2, "{n} of {N}");
        for (i, out) in out[..n].iter_mut().enumerate() {
            // SAFETY: by the contract.
            out.write(unsafe { self.read(head.wrapping_add(i)) });
        }
        // Acquire for a thief that fails and tries again from there.
        self.head.compare_exchange(head, head.wrapping_add(n), Ordering::Release, Ordering::Acquire).map(drop)
    }

    /// What is in the slot of `index`: it may be newer than that if the head has passed `index`.
    ///
    /// # Safety
    ///
    /// `index` lies before a tail that the caller has written or loaded with Acquire.
    #[inline]
    unsafe fn read(&self, index: usize) -> Work {
        let word = self.slot(index).load(Ordering::Relaxed);
        // SAFETY: the slot has been written to before that tail, and only words that are not zero are.
        Work(unsafe { NonZeroUsize::new_unchecked(word) })
    }

    #[inline]
    fn slot(&self, index: usize) -> &AtomicUsize {
        &self.slots[index & (N - 1)]
    }

    /// A ring that looks as if a lot had been through it.
    #[cfg(test)]
    fn starting_at(index: usize) -> Self {
        let ring = Self::new();
        ring.head.store(index, Ordering::Relaxed);
        ring.tail.store(index, Ordering::Relaxed);
        ring
    }
}

#[cfg(test)]
#[path = "runq_tests.rs"]
mod tests;
