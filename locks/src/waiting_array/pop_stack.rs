//! The waiting chain of listings 3 and 4: a stack of waiters, pushed by one exchange and detached whole.
//!
//! An element is on its waiter's stack. The push tells only the waiter which element was on top before: that element is
//! `prv`.
//!
//! | step | by | action |
//! |---|---|---|
//! | push | waiter | `prv = chain.swap(&e)` |
//! | link | waiter | `e.below: UNLINKED → prv`; then tests its condition once more, and waits at the gate of `e` |
//! | flush | signaller, or a waiter that aborts | `e = chain.swap(null)`; then for `e` and all elements beneath: |
//! | open | the flusher | `below = e.below.swap(TAKEN)`; opens the gate of `e`; goes on with `below`, if `e` was linked |
//! | abort | waiter whose condition became true, or that timed out | see [`PushedElement::abort`] |
//!
//! **Each gate is opened once.** The top element is opened by the thread that flushed the chain. Each other element is
//! opened by the thread that swapped the link of the element above it for TAKEN. If the owner of the element above had
//! not linked by then, that owner's link fails, and then that owner opens the elements below. Until its gate is open an
//! element lives. Consequences:
//!
//! * no waiter waits for ever: if a flush comes before a push in the order of the chain's exchanges, the push reads
//!   from the flush's release sequence, the fence after the push acquires, and the waiter's test of its condition sees
//!   the signaller's writes before the flush;
//! * an element is not in the chain once its gate is open, nor after its own push has been undone; then the element
//!   dies;
//! * undoing a push by `CAS(&e → prv)` has no ABA problem: only the owner of `e` can put `&e` there.
//!
//! **Different from the paper.** In the paper the waker opens only the top, and each owner that wakes opens the next
//! element. So a wake-up, and a deadline, depend on waiters that share the chain by a collision. Those waiters may be
//! goroutines of a busy worker, or be inside a condition that waits for the very waiter beneath. In this file wake-ups
//! and deadlines depend only on the waker, and on an owner between its push and its link, which are a few instructions
//! apart. The waker's time grows with the chain; a length above 1 means collisions, which the hash makes rare.
//!
//! **Systolic waiters**, for study, wake as in the paper: such a waiter links its element only after the wait. The link
//! then fails, so the opener of the element has stopped there, and the waiter opens the elements below. Both kinds may
//! be in one chain. The opener still swaps `below`, which the paper has not.
//!
//! **Waiters that undo no push**, for study, leave the chain by a flush, although they are on top.
//!
//! Source: `AddressWaitUntil`, `AddressSignal` and `Poke` of listing 3.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use sudog_runtime::Instant;
use sudog_runtime::shim::{AtomicPtr, Ordering, full_fence};

use crate::waiting::parker::OneShotParker;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};

/// The element of a waiter, on the stack of that waiter. Aligned to 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Element {
    gate: OneShotParker,
    /// The element that was on top before, UNLINKED, or TAKEN. Written by the owner's link, and swapped by the opener.
    below: AtomicPtr<Element>,
}

/// The value of `below` until the owner has linked the element.
const UNLINKED: *mut Element = ptr::without_provenance_mut(1);
/// The value of `below` after the opener of the element has taken the link.
const TAKEN: *mut Element = ptr::without_provenance_mut(2);

/// A chain of waiters.
pub(super) struct PopStack {
    top: AtomicPtr<Element>,
}

/// The result of one wait in a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waited {
    /// The condition is true.
    Satisfied,
    /// The chain was flushed: test the condition again.
    Woken,
    /// The deadline passed.
    TimedOut,
}

impl PopStack {
    sudog_runtime::const_unless_model! {
        pub(super) const fn new() -> Self {
            Self { top: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Wakes all waiters that have pushed themselves.
    #[inline]
    pub(super) fn flush(&self) {
        // Release: a later push sees this thread's earlier writes. Acquire: this thread sees the gates of earlier
        // pushes.
        open_all(self.top.swap(ptr::null_mut(), Ordering::AcqRel));
    }

    /// Flushes the chain as [`PopStack::flush`] does, but leaves an empty chain alone: only reads its top.
    #[inline]
    pub(super) fn flush_politely(&self) {
        // This fence is between the condition, which is user code of any ordering, and the check for pushed waiters.
        full_fence();
        if !self.top.load(Ordering::Relaxed).is_null() {
            self.flush();
        }
    }

    /// Waits in the chain once, unless `satisfied` returns true after the push. With `SYSTOLIC`, as a systolic waiter;
    /// without `UNDOES`, as a waiter that undoes no push.
    #[cold]
    pub(super) fn wait<P: WaitPolicy, const SYSTOLIC: bool, const UNDOES: bool>(
        &self,
        satisfied: impl FnOnce() -> bool,
        deadline: Option<Instant>,
    ) -> Waited {
        let e = Element { gate: OneShotParker::new(), below: AtomicPtr::new(UNLINKED) };
        // Release: the flusher sees the element. The fence below acquires: if a flush comes before this push, `satisfied`
        // sees the flusher's earlier writes.
        let prv = self.top.swap((&raw const e).cast_mut(), Ordering::Release);
        // The drop of `pushed` aborts the wait on every way out of this function.
        let pushed = PushedElement::<SYSTOLIC, UNDOES> { stack: self, e: &e, prv };
        if !SYSTOLIC {
            pushed.link();
        }
        // This fence is between the push and the test of the condition. `flush_politely` relies on this fence, and so
        // do the windows of `capacitor/sliding.rs`.
        full_fence();
        // Catch a panic of `satisfied`, because the abort may have to wait for a waker: a goroutine that waits while it
        // panics blocks its worker.
        let satisfied = catch_unwind(AssertUnwindSafe(satisfied));
        if matches!(satisfied, Ok(false)) {
            if e.gate.wait::<P>(deadline) {
                if SYSTOLIC {
                    pushed.link();
                }
                std::mem::forget(pushed);
                return Waited::Woken;
            }
            drop(pushed);
            return Waited::TimedOut;
        }
        drop(pushed);
        match satisfied {
            Ok(_) => Waited::Satisfied,
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// Opens the gate of an element that this thread must open, then the gates of the elements beneath, down to the first
/// element that is not linked: its owner opens the rest. The opened elements may be freed afterwards.
fn open_all(mut e: *mut Element) {
    while !e.is_null() {
        // Release: an owner whose link fails sees what this thread has seen, opens the elements below, and passes on this
        // thread's earlier writes. No Acquire: the flush has acquired the pushes of all elements of the chain, as each
        // change of the top is an RMW.
        // SAFETY: `e` is alive until its gate is open; by the rule of the chain, only this thread may open that gate.
        let below = unsafe { (*e).below.swap(TAKEN, Ordering::Release) };
        debug_assert_ne!(below, TAKEN, "a gate was opened twice");
        // SAFETY: `e` is alive until its gate is open; by the rule of the chain, only this thread may open that gate.
        unsafe { OneShotParker::open(&raw const (*e).gate) };
        if below == UNLINKED {
            return; // the owner of `e` opens the elements below
        }
        e = below;
    }
}

/// An element that may be in the chain. The drop takes the element out.
struct PushedElement<'a, const SYSTOLIC: bool, const UNDOES: bool> {
    stack: &'a PopStack,
    e: &'a Element,
    prv: *mut Element,
}

impl<const SYSTOLIC: bool, const UNDOES: bool> PushedElement<'_, SYSTOLIC, UNDOES> {
    /// Links the element, once. If an opener has been here, opens the elements below instead.
    #[inline]
    fn link(&self) {
        // Relaxed: no other memory depends on the link, see `open_all`. Acquire if the link comes too late: this thread
        // sees the elements below, as the flusher does, and opens them in its place.
        let linked = self.e.below.compare_exchange(UNLINKED, self.prv, Ordering::Relaxed, Ordering::Acquire);
        if linked.is_err() {
            open_all(self.prv);
        }
    }

    /// Takes the element out of the chain, or waits until the element is out.
    ///
    /// | found on top | meaning | next step |
    /// |---|---|---|
    /// | `e` | no element is above `e` | none: the exchange has undone the push |
    /// | nothing | a flush has detached `e`. (An undo by another waiter leaves `e`, or an element above `e`, on top) | wait until the flusher has opened the gate of `e` |
    /// | another element, and the gate of `e` is open | `e` is out already | none |
    /// | another element, and the gate of `e` is shut | `e` is beneath the top; or a flush has detached `e`, but has not opened the gate yet | flush, which opens the top and the elements beneath; then wait until the gate of `e` is open |
    fn abort(&self) {
        let me = (&raw const *self.e).cast_mut();
        // Release: `prv` becomes the top again. Acquire: this thread sees the writes of the thread that put `prv`
        // there.
        let undone = || self.stack.top.compare_exchange(me, self.prv, Ordering::AcqRel, Ordering::Acquire);
        let top = match if UNDOES { undone() } else { Err(self.stack.top.load(Ordering::Relaxed)) } {
            Ok(_) => return,
            Err(top) => top,
        };
        if SYSTOLIC {
            self.link();
        }
        if !top.is_null() && !self.e.gate.is_open() {
            // Flush the chain. The top may be `e` itself by now, if the waiters above have undone their pushes.
            self.stack.flush();
        }
        self.e.gate.wait::<SpinThenPark>(None);
    }
}

impl<const SYSTOLIC: bool, const UNDOES: bool> Drop for PushedElement<'_, SYSTOLIC, UNDOES> {
    fn drop(&mut self) {
        self.abort();
    }
}
