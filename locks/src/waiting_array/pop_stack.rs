//! The waiting chain of listings 3 and 4: a stack of waiters, pushed by one exchange and detached whole.
//!
//! An element is on its waiter's stack. The push tells only the waiter which element was on top before: its `prv`.
//!
//! | step | by | action |
//! |---|---|---|
//! | push | waiter | `prv = chain.swap(&e)` |
//! | link | waiter | `e.below: UNLINKED → prv`; then it tests its condition once more, and waits at `e`'s gate |
//! | flush | signaller, or a waiter that aborts | `e = chain.swap(null)`; then for `e` and all beneath: |
//! | open | the flusher | `below = e.below.swap(TAKEN)`; opens the gate; goes on with `below`, if it is linked |
//! | abort | waiter whose condition became true, or that timed out | see [`PushedElement::abort`] |
//!
//! **Each gate is opened once.** An element is reached from the top, by its flusher, or from the element above it: by
//! the thread that swapped that one's link for TAKEN. If the owner had not linked it by then, its own link fails, and
//! then the owner opens the elements below. Until its gate is open an element lives. Consequences:
//!
//! * no waiter waits for ever: if a flush comes before a push in the order of the chain's exchanges, the push reads
//!   from the flush's release sequence, and the waiter's test of its condition sees what the signaller wrote before it;
//! * an element is not in the chain once its gate is open, nor after its own push has been undone; it dies then;
//! * undoing a push by `CAS(&e → prv)` has no ABA problem: only its owner can put `&e` there.
//!
//! **Different from the paper.** There the waker opens only the top, and each owner that wakes opens the next. So a
//! wake-up, and a deadline, depend on waiters that share the chain by a collision. Those may be goroutines of a busy
//! worker, or be inside a condition that waits for the very waiter beneath. Here they depend only on the waker, and on
//! an owner between its push and its link, which are a few instructions apart. The waker's time grows with the chain; a
//! length above one means collisions, which the hash makes rare.
//!
//! Source: `AddressWaitUntil`, `AddressSignal` and `Poke` of listing 3.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use sudog_runtime::Instant;
use sudog_runtime::shim::{AtomicPtr, Ordering, full_fence};

use crate::waiting::parker::OneShotParker;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};

/// 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Element {
    gate: OneShotParker,
    /// The element that was on top before; or one of the two values below.
    below: AtomicPtr<Element>,
}

/// Its owner has not linked it yet.
const UNLINKED: *mut Element = ptr::without_provenance_mut(1);
/// Its opener has taken the link.
const TAKEN: *mut Element = ptr::without_provenance_mut(2);

/// A chain.
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

    /// [`PopStack::flush`], but only reads the chain if it is empty.
    #[inline]
    pub(super) fn flush_politely(&self) {
        // Between the condition, which is user code of any ordering, and the check for pushed waiters.
        full_fence();
        if !self.top.load(Ordering::Relaxed).is_null() {
            self.flush();
        }
    }

    /// Waits in the chain once, unless `satisfied` returns true after the push.
    #[cold]
    pub(super) fn wait<P: WaitPolicy>(&self, satisfied: impl FnOnce() -> bool, deadline: Option<Instant>) -> Waited {
        let e = Element { gate: OneShotParker::new(), below: AtomicPtr::new(UNLINKED) };
        let prv = self.top.swap((&raw const e).cast_mut(), Ordering::AcqRel);
        // Its drop aborts, however this is left.
        let pushed = PushedElement { stack: self, e: &e, prv };
        pushed.link();
        // Between the push and the test of the condition. Polite signallers rely on it, and windows
        // (`capacitor/sliding.rs`).
        full_fence();
        // Caught, as an abort may have to wait for a waker; a goroutine that panics does that at the expense of its
        // worker.
        let satisfied = catch_unwind(AssertUnwindSafe(satisfied));
        if matches!(satisfied, Ok(false)) {
            if e.gate.wait::<P>(deadline) {
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

/// Opens the gates of an element that this thread must open, and of all beneath it. They may be freed afterwards.
fn open_all(mut e: *mut Element) {
    while !e.is_null() {
        // Acquire: this thread sees what the owner linked. Release: a later link is told so.
        // SAFETY: this thread is the one to open this gate, by the rule of the chain, so it is alive until then.
        let below = unsafe { (*e).below.swap(TAKEN, Ordering::AcqRel) };
        debug_assert_ne!(below, TAKEN, "a gate was opened twice");
        // SAFETY: as above.
        unsafe { OneShotParker::open(&raw const (*e).gate) };
        if below == UNLINKED {
            return; // its owner goes on
        }
        e = below;
    }
}

/// An element that may be in the chain, and must leave it.
struct PushedElement<'a> {
    stack: &'a PopStack,
    e: &'a Element,
    prv: *mut Element,
}

impl PushedElement<'_> {
    #[inline]
    fn link(&self) {
        // Release, where Relaxed is enough: an opener has `below` from the pushes that its flush has acquired.
        let linked = self.e.below.compare_exchange(UNLINKED, self.prv, Ordering::Release, Ordering::Acquire);
        if linked.is_err() {
            open_all(self.prv);
        }
    }

    /// Takes the element out of the chain, or waits until it is out.
    ///
    /// | found on top | means | then |
    /// |---|---|---|
    /// | `e` | no later push | the push is undone |
    /// | nothing | a flush has detached this element: an undo can only uncover the elements beneath, and this one is nothing's `prv` any more | its gate will be opened |
    /// | another, own gate open | the element is out already | |
    /// | another | the element is beneath it, or out and not yet woken | flush: opens the top, and all down to this one |
    fn abort(&self) {
        let me = (&raw const *self.e).cast_mut();
        // Release: `prv` becomes the top again. Acquire: of the thread that put it there.
        let top = match self.stack.top.compare_exchange(me, self.prv, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(top) => top,
        };
        if !top.is_null() && !self.e.gate.is_open() {
            // It may be `e` itself by now: those above it have undone their pushes.
            self.stack.flush();
        }
        self.e.gate.wait::<SpinThenPark>(None);
    }
}

impl Drop for PushedElement<'_> {
    fn drop(&mut self) {
        self.abort();
    }
}
