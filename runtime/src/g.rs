//! G: the thing that waits.
//!
//! Go's runtime calls a goroutine a *g*; its semaphores, channels and timers know nothing else. Here too, whatever
//! blocks does it through a [`G`] and whatever wakes does it through [`G::ready`]. Today a G is an operating-system
//! thread; a goroutine and an async task are two more things that it can be, and no queue will notice.
//!
//! | step | who | what |
//! |---|---|---|
//! | 1 | waiter | makes a [`G`] on its stack, links it where a waker will find it, under that queue's lock |
//! | 2 | waiter | [`G::park`] with the unlocking of the queue as its `commit`: run once the G counts as parked |
//! | 3 | waker | unlinks it under the queue's lock, unlocks, calls [`G::ready`] exactly once, and never touches it again |
//! | 4 | waiter | returns from `park`; its G and all around it may be freed at once |
//!
//! On a deadline the waiter goes back to the queue's lock to unlink itself. If it is no longer linked, step 3 is under
//! way, and the waiter parks again, without a deadline, to let it finish.

use std::marker::PhantomData;

use crate::shim::{Instant, Parker, yield_now};

/// What waits: the current thread, for as long as this value stands on its stack.
///
/// # Examples
///
/// The bare contract; real code links the `G` into a queue.
///
/// ```
/// use sudog_runtime::{G, Unparked};
///
/// let g = G::current();
/// let shared = &raw const g as usize;
/// std::thread::scope(|s| {
///     s.spawn(move || {
///         // SAFETY: `g` outlives this scope, and this is the one `ready` for the one `park` below.
///         unsafe { G::ready(shared as *const G) };
///     });
///     assert_eq!(g.park(None, || ()), Unparked::Ready);
/// });
/// ```
pub struct G {
    parker: Parker,
    /// Only the thread that it stands for may park it; so it is neither `Send` nor `Sync`.
    _thread: PhantomData<*const ()>,
}

/// Why [`G::park`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unparked {
    /// Somebody called [`G::ready`].
    Ready,
    /// The deadline passed first. A `ready` may still come, and must be waited for unless the queue's lock shows that
    /// nobody can have seen this G.
    Deadline,
}

impl G {
    /// The calling thread, ready to wait. Allocates nothing where `std`'s locks do not (on Linux, at least).
    #[inline]
    #[must_use]
    pub fn current() -> Self {
        Self { parker: Parker::new(), _thread: PhantomData }
    }

    /// Runs `commit`, then blocks until [`G::ready`] has been called once, or until `deadline`. Never returns for
    /// another reason.
    ///
    /// `commit` is what must happen after the switch away from this G: the unlocking of the queue that it stands in.
    /// A thread needs no switch, so it runs at once.
    #[inline]
    pub fn park(&self, deadline: Option<Instant>, commit: impl FnOnce()) -> Unparked {
        commit();
        if self.parker.park(deadline) { Unparked::Ready } else { Unparked::Deadline }
    }

    /// Lets a parked G go on, or one that is about to park. What the caller wrote before, the G sees after.
    ///
    /// # Safety
    ///
    /// - `g` points to a live G.
    /// - This is the only `ready` for the current `park` of it: the caller has unlinked it from where others find it.
    /// - The caller does not use `g`, or anything that lives with it, after this call begins: its owner may return and
    ///   free it before this call ends.
    #[inline]
    pub unsafe fn ready(g: *const Self) {
        // SAFETY: alive and not yet readied, by the contract.
        unsafe { Parker::unpark(&raw const (*g).parker) }
    }

    /// Go's `Gosched`, for a thread: lets another one run on this processor if one is ready. Nothing may rely on it.
    #[inline]
    pub fn yield_now() {
        yield_now();
    }
}
