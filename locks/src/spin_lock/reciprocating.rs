//! The Reciprocating lock: arrivals push themselves on a stack, which the owner detaches whole and serves from the top.
//!
//! | `arrivals` | meaning |
//! |---|---|
//! | null | the lock is free |
//! | EMPTY | held; no arrival since the owner's segment was detached |
//! | an element | held; the last to arrive. Or the owner's, if it found the lock free and there was no arrival since |
//!
//! A *segment* is a detached stack: each element's `succ` is the arrival before it, and it ends at `eos`, which is
//! passed on with the lock.
//!
//! | step | | then |
//! |---|---|---|
//! | lock | `succ = arrivals.swap(e)` | null: has the lock, `eos = e`. Else waits at its gate, for the lock and its `eos` |
//! | | EMPTY for a `succ` is null; `succ == eos`: null, and `eos = EMPTY` | the end of the segment |
//! | unlock, with a `succ` | `succ.eos = eos`, opens its gate | the segment goes on |
//! | unlock, without | `arrivals: eos → null` | no arrival: the lock is free |
//! | | `w = arrivals.swap(EMPTY)`, `w.eos = eos`, opens its gate | a new segment, from its top |
//! | try | `arrivals: null → e` | as a lock that found null |
//!
//! So segments are first come, first served, and each is served from its end. While one contender waits, another can
//! have the lock twice: once before it in the same segment, and once in the segment before that.
//!
//! **One element per thread**, for any number of locks. It is queued while its thread waits, and a thread waits for one
//! lock at a time. For a lock that was found free only the element's *address* stays in `arrivals`, as the mark that
//! ends the first segment: no thread reads or writes there. The danger: another element of the same address arrives
//! while the mark is in use, and is mistaken for it. Its waiter would never be woken. But:
//!
//! * The mark is in use while the thread whose address it is holds the lock, and while the segment that it ends is
//!   served. In the second case the same thread may arrive again, with the same address. Its element is then on top of
//!   EMPTY or of others in `arrivals`, and not in that segment, so no thread compares it with that mark: the one at the
//!   segment's end compares its `succ`, which is the mark. The thread may even have ended, and another thread have its
//!   address: the same holds.
//! * In the first case an arrival with that address belongs to the owner's thread, as the guard is not `Send`, and the
//!   element lives as long as the thread. If the thread has ended, then its guard was forgotten, so the lock is never
//!   unlocked: every arrival waits for ever, whatever its address. If it has not, it waits for a lock that it holds
//!   itself. The same holds if two goroutines of one worker share the element: one holds the lock, and the other waits
//!   for it, which blocks their thread, so the first never runs again.
//!
//! The element has no destructor, so a thread that ends can use it in the destructors of its other thread-locals. This
//! needs thread-locals of the linker, as on Linux and most other systems. Where std keeps them on the heap by a key,
//! the element is freed among the others, in any order: a lock that is then still held, by a guard in another
//! thread-local, has a mark that may by then be another thread's element, which would wait for ever.
//!
//! Orderings:
//!
//! | access | ordering | why |
//! |---|---|---|
//! | lock | Acquire, Release | null: sees the last owner's writes. An element: its gate is shut before this thread opens it. This thread's element: the same for the thread that reads it here |
//! | free, `eos → null` | Release | the owner's writes |
//! | detach | Acquire | the gate of the top. No Release: a thread that reads EMPTY takes nothing from it |
//! | try | Acquire | as lock, but no thread will open this gate |
//! | gate | | as in `waiting/parker.rs`; `eos` is written before it opens, and read after |
//!
//! Source: Dice and Kogan, *Reciprocating Locks*, arXiv 2501.02380.

use std::cell::Cell as Flag;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use sudog_runtime::fatal;
use sudog_runtime::shim::{AtomicPtr, Cell};

use super::without_unwinding;
use crate::waiting::parker::OneShotParker;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

/// A thread's one element. Between two waits its gate is shut.
struct Element {
    gate: OneShotParker,
    /// Where the segment ends; written before the gate is opened, by the thread that opens it.
    eos: Cell<*mut Element>,
    /// Its thread waits with it. Only for that thread.
    waits: Flag<bool>,
}

const EMPTY: *mut Element = ptr::without_provenance_mut(1);

// Without a destructor: it lives as long as the thread; see the top for systems where this does not hold.
per_thread!(ELEMENT: Element =
    Element { gate: OneShotParker::new(), eos: Cell::new(ptr::null_mut()), waits: Flag::new(false) });

/// The Reciprocating lock: local spinning, no memory to manage, and no contender bypassed for ever. 8 bytes.
///
/// Last come, first served within a segment, which is the arrivals during the previous segment; so each other thread
/// has the lock at most twice while one waits.
///
/// # Limits
///
/// Those of the [module](super). If a user's [`WaitPolicy::pass_time`] contends for another lock of this kind, and so
/// waits while it waits, the process ends.
///
/// # Examples
///
/// ```
/// use sudog::sync::MutexWith;
/// use sudog::locks::spin_lock::Reciprocating;
///
/// static TIDES: MutexWith<Reciprocating, Vec<u32>> = MutexWith::new(Vec::new());
/// TIDES.lock().push(1);
/// ```
pub struct Reciprocating<P = SpinThenPark> {
    arrivals: AtomicPtr<Element>,
    policy: PhantomData<P>,
}

/// The guard of a [`Reciprocating`]: the successor, and where the segment ends. It stays on its thread.
#[derive(Debug)]
pub struct ReciprocatingGuard {
    /// Null: none in this segment.
    succ: *mut Element,
    /// While `succ` is null: the value of `arrivals` if there is no arrival.
    eos: *mut Element,
}

#[inline]
fn element() -> *mut Element {
    ELEMENT.with(ptr::from_ref).cast_mut()
}

impl<P: WaitPolicy> Reciprocating<P> {
    /// Waits behind the arrival that the push found.
    ///
    /// # Safety
    ///
    /// `e` is the thread's, and has been pushed on `found`.
    #[cold]
    unsafe fn wait(e: *mut Element, found: *mut Element) -> ReciprocatingGuard {
        // SAFETY: this thread's.
        let e = unsafe { &*e };
        if e.waits.replace(true) {
            // It is in two queues now. The thread that opens its gate finds it alive, as this thread does not end
            // before the process.
            fatal("sync: a wait policy waits for a lock while it waits for a lock");
        }
        e.gate.wait::<P>(None);
        let eos = e.eos.get();
        e.gate.shut();
        e.waits.set(false);
        if found == EMPTY || found == eos {
            ReciprocatingGuard { succ: ptr::null_mut(), eos: EMPTY }
        } else {
            ReciprocatingGuard { succ: found, eos }
        }
    }

    /// # Safety
    ///
    /// The caller holds the lock, and gives it away by this; `e` is next, or is the top of a segment that the caller
    /// detached.
    #[inline]
    unsafe fn hand_over(e: *mut Element, eos: *mut Element) {
        // SAFETY: its thread waits for this, and no other thread may open it.
        unsafe {
            (*e).eos.set(eos);
            OneShotParker::open_for::<P>(&raw const (*e).gate);
        }
    }

    /// There has been an arrival.
    #[cold]
    fn next_segment(&self, eos: *mut Element) {
        let top = self.arrivals.swap(EMPTY, Acquire);
        // SAFETY: it is not `eos`, so it belongs to a waiter; and the swap made it this thread's to open.
        unsafe { Self::hand_over(top, eos) };
    }

    /// Changes when a contender joins the queue. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.arrivals.load(Relaxed).addr() as u64
    }
}

// SAFETY: the thread that finds null in `arrivals` has the lock, and so has the thread whose gate is opened: the owner
// does that once, or else puts null back if there was no arrival. The orderings, and why no address is mistaken for
// another's, are above. Elements do not point to the lock, so it may be moved while it is held; waiters borrow it.
unsafe impl<P: WaitPolicy> RawLock for Reciprocating<P> {
    type Guard = ReciprocatingGuard;

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { arrivals: AtomicPtr::new(ptr::null_mut()), policy: PhantomData }
    }

    #[inline]
    fn lock(&self) -> ReciprocatingGuard {
        let e = element();
        let found = self.arrivals.swap(e, AcqRel);
        if found.is_null() {
            return ReciprocatingGuard { succ: ptr::null_mut(), eos: e };
        }
        // SAFETY: by the swap.
        without_unwinding(|| unsafe { Self::wait(e, found) })
    }

    #[inline]
    fn try_lock(&self) -> Option<ReciprocatingGuard> {
        let e = element();
        self.arrivals.compare_exchange(ptr::null_mut(), e, Acquire, Relaxed).ok()?;
        Some(ReciprocatingGuard { succ: ptr::null_mut(), eos: e })
    }

    #[inline]
    unsafe fn unlock(&self, ReciprocatingGuard { succ, eos }: ReciprocatingGuard) {
        if !succ.is_null() {
            // SAFETY: this thread holds the lock, and `succ` is next.
            unsafe { Self::hand_over(succ, eos) };
        } else if self.arrivals.compare_exchange(eos, ptr::null_mut(), Release, Relaxed).is_err() {
            self.next_segment(eos);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        !self.arrivals.load(Relaxed).is_null()
    }
}

#[cfg(not(sudog_loom))]
impl<P: WaitPolicy> sudog_sync::ConstRawLock for Reciprocating<P> {
    const INIT: Self = Self { arrivals: AtomicPtr::new(ptr::null_mut()), policy: PhantomData };
}

impl<P> fmt::Debug for Reciprocating<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locked = !self.arrivals.load(Relaxed).is_null();
        f.debug_struct("Reciprocating").field("locked", &locked).finish_non_exhaustive()
    }
}
