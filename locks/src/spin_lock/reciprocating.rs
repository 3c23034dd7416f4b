//! The Reciprocating lock: arrivals push themselves on a stack, which the holder takes off whole and serves from the
//! top.
//!
//! | `arrivals` | meaning |
//! |---|---|
//! | null | the lock is free |
//! | EMPTY | held; nobody has arrived since the holder's segment was taken off |
//! | an element | held; the last to arrive. Or the holder's, if it found the lock free and nobody came since |
//!
//! A *segment* is what was taken off: each element's `succ` is who arrived before it, and it ends at `eos`, which goes
//! from hand to hand with the lock.
//!
//! | step | | then |
//! |---|---|---|
//! | lock | `succ = arrivals.swap(e)` | null: has the lock, `eos = e`. Else waits before its gate, for the lock and its `eos` |
//! | | EMPTY for a `succ` is null; `succ == eos`: null, and `eos = EMPTY` | the end of the segment |
//! | unlock, with a `succ` | `succ.eos = eos`, opens its gate | the segment goes on |
//! | unlock, without | `arrivals: eos → null` | nobody has arrived: the lock is free |
//! | | `w = arrivals.swap(EMPTY)`, `w.eos = eos`, opens its gate | a new segment, from its top |
//! | try | `arrivals: null → e` | as a lock that found null |
//!
//! So segments are first come, first served, and each is served from its end. While one waits, another can have the
//! lock twice: once ahead of it in its own segment, and once in the segment before that.
//!
//! **One element for a thread**, for any number of locks. It is in a line while its owner waits, and one waits for one
//! lock at a time. Of a lock that was found free only its *address* stays behind, as the mark that ends the first
//! segment: nobody reads or writes there. What could go wrong is that another element of the same address arrives while
//! the mark stands, and is taken for it. That would strand whoever waits with it. But:
//!
//! * The mark stands while the one whose address it is holds the lock, and while the segment that it ends is served. In
//!   the second case the same thread may arrive again, with the same address. It is then on top of EMPTY or others in
//!   `arrivals`, and not in that segment, so nobody compares it with that mark: the one at the segment's end compares
//!   its `succ`, which is the mark. It may even have ended, and another thread have its address: the same holds.
//! * In the first case an arrival with that address is one of the holder's thread, as the guard is not `Send`, and the
//!   element lives as long as the thread. If the thread has ended, then without its guard, so that nobody ever unlocks:
//!   whoever arrives waits for ever, by whatever address. If it has not, it waits for what it holds itself. The same if
//!   two goroutines of one worker share the element: one holds the lock, and the other waits for it, which blocks their
//!   thread, so the first never runs again.
//!
//! The element has no destructor, so a thread that ends can use it in the destructors of its other thread-locals. This
//! needs thread-locals that are the linker's, as on Linux and most others. Where std keeps them on the heap by a key, the
//! element is freed among the others, in any order: a lock that is then still held, by a guard in another thread-local,
//! has a mark that may be somebody else's by now, who would wait for ever.
//!
//! Orderings:
//!
//! | access | ordering | why |
//! |---|---|---|
//! | lock | Acquire, Release | null: what the last holder did. An element: its gate is shut before we open it. Ours: the same for whoever reads it here |
//! | free, `eos → null` | Release | what the holder did |
//! | take off | Acquire | the gate of the top. No Release: who reads EMPTY has learnt nothing yet |
//! | try | Acquire | as lock, but nobody will open this gate |
//! | gate | | as `gate.rs` says; `eos` is written before it opens, and read after |
//!
//! Source: Dice and Kogan, *Reciprocating Locks*, arXiv 2501.02380.

use std::cell::Cell as Flag;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use sudog_runtime::fatal;
use sudog_runtime::shim::{AtomicPtr, Cell};

use super::in_line;
use crate::waiting::gate::Gate;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

/// A thread's one element. Between two waits its gate is shut.
struct Element {
    gate: Gate,
    /// Where the segment ends; written by who opens the gate, before that.
    eos: Cell<*mut Element>,
    /// Its thread waits with it. The thread's alone.
    waits: Flag<bool>,
}

const EMPTY: *mut Element = ptr::without_provenance_mut(1);

// Without a destructor: it is there until the thread is not; see the top for where this does not hold.
per_thread!(ELEMENT: Element =
    Element { gate: Gate::new(), eos: Cell::new(ptr::null_mut()), waits: Flag::new(false) });

/// The Reciprocating lock: local spinning, memory that needs no care, and nobody bypassed for ever. 8 bytes.
///
/// Last come, first served within a segment, which is those who arrived while the segment before was served; so each
/// other thread has the lock at most twice while one waits.
///
/// # Limits
///
/// Those of the [module](super). If another lock of this kind is contended inside of a foreign
/// [`WaitPolicy::pass_time`], which would wait while it waits, the process ends.
///
/// # Examples
///
/// ```
/// use sudog_sync::MutexWith;
/// use sudog_locks::spin_lock::Reciprocating;
///
/// static TIDES: MutexWith<Reciprocating, Vec<u32>> = MutexWith::new(Vec::new());
/// TIDES.lock().push(1);
/// ```
pub struct Reciprocating<P = SpinThenPark> {
    arrivals: AtomicPtr<Element>,
    policy: PhantomData<P>,
}

/// What an acquisition of a [`Reciprocating`] keeps for its release: who is next, and where the segment ends. It stays
/// on its thread.
#[derive(Debug)]
pub struct ReciprocatingGuard {
    /// Null: none in this segment.
    succ: *mut Element,
    /// While `succ` is null: what `arrivals` is if nobody has arrived.
    eos: *mut Element,
}

#[inline]
fn element() -> *mut Element {
    ELEMENT.with(ptr::from_ref).cast_mut()
}

impl<P: WaitPolicy> Reciprocating<P> {
    /// Waits, with what the push found.
    ///
    /// # Safety
    ///
    /// `e` is the thread's, and has been pushed on what was `found`.
    #[cold]
    unsafe fn wait(e: *mut Element, found: *mut Element) -> ReciprocatingGuard {
        // SAFETY: this thread's.
        let e = unsafe { &*e };
        if e.waits.replace(true) {
            // It is in two lines now. The one who opens its gate finds it alive, as this thread does not end before the
            // process.
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
    /// The caller holds the lock, and gives it away by this; `e` is next, or is on top of a segment that it took off.
    #[inline]
    unsafe fn hand_over(e: *mut Element, eos: *mut Element) {
        // SAFETY: its owner waits for this, and nobody else is to open it.
        unsafe {
            (*e).eos.set(eos);
            Gate::open_for::<P>(&raw const (*e).gate);
        }
    }

    /// Somebody has arrived.
    #[cold]
    fn next_segment(&self, eos: *mut Element) {
        let top = self.arrivals.swap(EMPTY, Acquire);
        // SAFETY: it is not `eos`, so it is somebody who waits; and ours by the swap.
        unsafe { Self::hand_over(top, eos) };
    }

    /// Changes as somebody joins the line. For tests.
    #[doc(hidden)]
    pub fn last_in_line(&self) -> u64 {
        self.arrivals.load(Relaxed).addr() as u64
    }
}

// SAFETY: whoever finds null in `arrivals` has the lock, and so has the one whose gate is opened: the holder does that
// once, or else puts null back if nobody has arrived. The orderings, and why an address is taken for nobody else's, are
// above. Elements do not point to the lock, so it may be moved while it is held; those who wait borrow it.
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
        // SAFETY: as the swap says.
        in_line(|| unsafe { Self::wait(e, found) })
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
            // SAFETY: we hold the lock, and it is next.
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
