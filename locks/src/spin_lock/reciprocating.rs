//! The Reciprocating lock: arrivals push themselves on a stack, which the owner detaches whole and serves from the top.
//!
//! | `arrivals` | meaning |
//! |---|---|
//! | null | the lock is free |
//! | EMPTY | the lock is held; no arrival since the owner's segment was detached |
//! | an element | the lock is held; the element is that of the last arrival, or the owner's, if the owner found the lock free and there was no arrival since |
//!
//! A *segment* is a detached stack: `succ` of each element is the arrival before that element, and the segment ends at
//! `eos`, which is passed on with the lock.
//!
//! | step | action | then |
//! |---|---|---|
//! | lock | `succ = arrivals.swap(e)` | if `succ` is null: has the lock, `eos = e`. Else waits at the gate of `e`, for the lock and its `eos` |
//! | | a `succ` of EMPTY counts as null; if `succ == eos`: `succ` becomes null, and `eos = EMPTY` | the end of the segment |
//! | unlock, with a `succ` | `succ.eos = eos`, opens the gate of `succ` | the segment goes on |
//! | unlock, without a `succ` | `arrivals: eos → null` | no arrival: the lock is free |
//! | | otherwise `w = arrivals.swap(EMPTY)`, `w.eos = eos`, opens the gate of `w` | a new segment, from its top |
//! | try | `arrivals: null → e` | as a lock that found null |
//!
//! So segments are first come, first served, and each segment is served from its top. While a contender waits, another
//! contender can have the lock twice: once before the waiter in the same segment, and once in the segment before that.
//!
//! **One element per thread**, for any number of locks. The element is queued while its thread waits, and a thread
//! waits for one lock at a time. For a lock that was found free only the element's *address* stays in `arrivals`, as
//! the mark that ends the first segment: no thread reads or writes at that address. The danger: another element of the
//! same address arrives while the mark is in use, and is mistaken for the mark. The waiter of that element would never
//! be woken. But:
//!
//! * The mark is in use while the thread of that address holds the lock, and while the segment that ends at the mark is
//!   served. In the second case the same thread may arrive again, with the same address. Its element is then on top of
//!   EMPTY or of other elements in `arrivals`, and not in that segment, so no thread compares this element with that
//!   mark: the thread at the end of the segment compares its own `succ`, which is the mark. The thread of the mark may
//!   even have ended, and another thread may have an element at the same address: the argument stays the same.
//! * In the first case an arrival with that address belongs to the owner's thread, as the guard is not `Send`, and the
//!   element lives as long as the thread. If the thread has ended, then its guard was forgotten, so the lock is never
//!   unlocked: every arrival waits for ever, with any address. If the thread has not ended, the thread waits for a lock
//!   that it holds itself. The same holds if two goroutines of one worker share the element: the first goroutine holds
//!   the lock, and the second waits for the lock, which blocks their thread, so the first never runs again.
//!
//! The element has no destructor, so a thread that ends can use its element in the destructors of its other
//! thread-locals. This needs thread-locals of the linker, as on Linux and most other systems. Where `std` keeps
//! thread-locals on the heap by a key, the element is freed among the other thread-locals, in any order. Consider a
//! lock that is then still held, by a guard in another thread-local: the mark of that lock may by then be another
//! thread's element, whose thread would wait for ever.
//!
//! Orderings:
//!
//! | access | ordering | why |
//! |---|---|---|
//! | lock | Acquire, Release | if `arrivals` was null, the contender sees the last owner's writes; if `arrivals` was an element, the gate of that element is shut before this thread opens the gate. Likewise, the gate of this thread's element is shut before the thread that finds the element here opens that gate |
//! | free, `eos → null` | Release | publishes the owner's writes |
//! | detach | Acquire | this thread sees the gate of the top. No Release: a thread that reads EMPTY takes no data from the word |
//! | try | Acquire | as lock, but no thread will open this gate |
//! | gate | | as in `waiting/parker.rs`; `eos` is written before the gate opens, and read after |
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

/// The only element of a thread. Between two waits its gate is shut.
struct Element {
    gate: OneShotParker,
    /// The end of the segment. Written before the gate is opened, by the thread that opens the gate.
    eos: Cell<*mut Element>,
    /// True while the element's thread waits with the element. Used by that thread only.
    waits: Flag<bool>,
}

const EMPTY: *mut Element = ptr::without_provenance_mut(1);

// The element has no destructor, and lives as long as the thread; the module's comment names the systems where this
// does not hold.
per_thread!(ELEMENT: Element =
    Element { gate: OneShotParker::new(), eos: Cell::new(ptr::null_mut()), waits: Flag::new(false) });

/// The Reciprocating lock: local spinning, no memory to manage, and no contender bypassed for ever. 8 bytes.
///
/// Waiters are served last come, first served within a segment; a segment is the arrivals during the previous segment.
/// So each other thread has the lock at most twice while a contender waits.
///
/// # Limits
///
/// The limits of the [module](super). If a user's [`WaitPolicy::pass_time`] contends for another lock of this kind, so
/// that a thread waits for a second lock while it waits for the first, the process ends.
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

/// The guard of a [`Reciprocating`]: the successor, and the end of the segment. The guard stays on its thread.
#[derive(Debug)]
pub struct ReciprocatingGuard {
    /// The successor; null if the segment has no further waiter.
    succ: *mut Element,
    /// The end of the segment. If `succ` is null: the value that `arrivals` has as long as there is no arrival.
    eos: *mut Element,
}

#[inline]
fn element() -> *mut Element {
    ELEMENT.with(ptr::from_ref).cast_mut()
}

impl<P: WaitPolicy> Reciprocating<P> {
    /// Waits behind `found`, the arrival that the push of `e` found.
    ///
    /// # Safety
    ///
    /// `e` is the element of this thread, and has been pushed on `found`.
    #[cold]
    unsafe fn wait(e: *mut Element, found: *mut Element) -> ReciprocatingGuard {
        // SAFETY: by the contract of `wait`, `e` is the element of this thread, so `e` is alive.
        let e = unsafe { &*e };
        if e.waits.replace(true) {
            // The element is in two queues now. The thread that opens its gate finds the element alive, as this thread
            // does not end before the process.
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

    /// Gives the lock to the owner of `e`, and tells that owner the end of its segment, `eos`.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and gives the lock away by this call; `e` is the successor, or is the top of a
    /// segment that the caller detached.
    #[inline]
    unsafe fn hand_over(e: *mut Element, eos: *mut Element) {
        // SAFETY: `e` is alive, as its thread waits for this call; by the contract of `hand_over`, no other thread may
        // open the gate of `e`.
        unsafe {
            (*e).eos.set(eos);
            OneShotParker::open_for::<P>(&raw const (*e).gate);
        }
    }

    /// Detaches the next segment, and hands over to its top. Called when there has been an arrival.
    #[cold]
    fn next_segment(&self, eos: *mut Element) {
        let top = self.arrivals.swap(EMPTY, Acquire);
        // SAFETY: this thread holds the lock. `top` is not `eos`, so `top` belongs to a waiter; and by the swap only
        // this thread may open the gate of `top`.
        unsafe { Self::hand_over(top, eos) };
    }

    /// Returns a value that changes when a contender joins the queue. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.arrivals.load(Relaxed).addr() as u64
    }
}

// SAFETY: the thread that finds null in `arrivals` has the lock, and so has the thread whose gate is opened: the owner
// opens one gate once, or else puts null back if there was no arrival. The module's comment argues the orderings, and
// that no address is mistaken for another's. Elements do not point to the lock, so the lock may be moved while it is
// held; waiters borrow the lock.
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
        // SAFETY: `e` is the element of this thread, and the swap has pushed `e` on `found`.
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
            // SAFETY: this thread holds the lock, and `succ` is the successor.
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
