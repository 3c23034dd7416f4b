//! The waiting chain of listings 3 and 4: a stack of waiters, to be pushed on by one exchange and taken off whole.
//!
//! An element lies on its waiter's stack. The push tells the waiter, and nobody else, who was on top before: its `prv`.
//!
//! | step | who | what |
//! |---|---|---|
//! | push | waiter | `prv = chain.swap(&e)` |
//! | link | waiter | `e.below: UNLINKED → prv`; then it looks at its condition once more, and waits before `e`'s gate |
//! | flush | signaller, or one that aborts | `e = chain.swap(null)`; then for `e` and all beneath: |
//! | open | whoever flushed | `below = e.below.swap(TAKEN)`; opens the gate; goes on with `below`, if it is linked |
//! | abort | waiter whose condition came true, or whose time is over | see [`Pushed::abort`] |
//!
//! **Each gate is opened once.** An element is reached from the top, by the one that flushed it, or from the one above
//! it: by whom swapped that one's link for TAKEN. If the owner had not linked it by then, its own link fails, and then
//! it is the owner who opens what is below. Until its gate is open an element lives. What follows from it:
//!
//! * nobody waits for good: if a flush comes before a push in the order of the chain's exchanges, the push reads from
//!   the flush's release sequence, and the waiter's look at its condition sees what the signaller did before it;
//! * an element is not in the chain once its gate is open, nor after its own push has been undone; it dies then;
//! * to undo one's push by `CAS(&e → prv)` meets no ABA: only its owner can put `&e` there.
//!
//! **Not as in the paper.** There the waker opens the top only, and each owner that wakes opens the next: so a wake-up,
//! and a deadline, hang on strangers who share the chain by a collision, and who may be goroutines of a worker that is
//! busy, or inside of a condition that waits for the very one beneath. Here they hang on the waker alone, and on an
//! owner between its push and its link, which are a few instructions apart. The waker's time grows with the chain,
//! whose length beyond one is collisions, and rare by the choice of the hash.
//!
//! Source: `AddressWaitUntil`, `AddressSignal` and `Poke` of listing 3.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use sudog_runtime::Instant;
use sudog_runtime::shim::{AtomicPtr, Ordering, full_fence};

use crate::waiting::gate::Gate;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};

/// 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Element {
    gate: Gate,
    /// What was on top before; or one of the two below.
    below: AtomicPtr<Element>,
}

/// Its owner has not said yet what is below.
const UNLINKED: *mut Element = ptr::without_provenance_mut(1);
/// Its opener has been.
const TAKEN: *mut Element = ptr::without_provenance_mut(2);

/// A chain.
pub(super) struct PopStack {
    top: AtomicPtr<Element>,
}

/// What came of one wait in a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waited {
    /// The condition is true.
    Satisfied,
    /// Somebody flushed the chain: to look again is worth it.
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

    /// Wakes all that have pushed themselves.
    #[inline]
    pub(super) fn flush(&self) {
        // Release: a push that comes after it sees what we did before. Acquire: we see the gates of those before it.
        open_all(self.top.swap(ptr::null_mut(), Ordering::AcqRel));
    }

    /// [`PopStack::flush`], but only reads the chain if nobody is in it.
    #[inline]
    pub(super) fn flush_politely(&self) {
        // Between the condition, which is the user's and of whatever ordering, and the look for those who have pushed.
        full_fence();
        if !self.top.load(Ordering::Relaxed).is_null() {
            self.flush();
        }
    }

    /// Waits in the chain once, unless `satisfied` returns true after the push.
    #[cold]
    pub(super) fn wait<P: WaitPolicy>(&self, satisfied: impl FnOnce() -> bool, deadline: Option<Instant>) -> Waited {
        let e = Element { gate: Gate::new(), below: AtomicPtr::new(UNLINKED) };
        let prv = self.top.swap((&raw const e).cast_mut(), Ordering::AcqRel);
        // Dropped, however this is left, it aborts.
        let pushed = Pushed { stack: self, e: &e, prv };
        pushed.link();
        // Between the push and the look at the condition. Polite signallers rely on it, and windows (`capacitor/sliding.rs`).
        full_fence();
        // Caught, as whoever aborts may have to wait for a waker, which a goroutine that panics does at the expense of
        // its worker.
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

/// Opens the gates of an element that is ours to open, and of all beneath it. They may be gone afterwards.
fn open_all(mut e: *mut Element) {
    while !e.is_null() {
        // Acquire: we see what the owner linked. Release: its link, if it comes after, is told so.
        // SAFETY: we are the one who opens this gate, by the rule of the chain, so it is alive until we do.
        let below = unsafe { (*e).below.swap(TAKEN, Ordering::AcqRel) };
        debug_assert_ne!(below, TAKEN, "two who open one gate");
        // SAFETY: as above.
        unsafe { Gate::open(&raw const (*e).gate) };
        if below == UNLINKED {
            return; // its owner goes on
        }
        e = below;
    }
}

/// An element that may be in the chain, whose owner wants it out.
struct Pushed<'a> {
    stack: &'a PopStack,
    e: &'a Element,
    prv: *mut Element,
}

impl Pushed<'_> {
    #[inline]
    fn link(&self) {
        // Release, where Relaxed would do: an opener has what is below from the pushes that its flush has acquired.
        let linked = self.e.below.compare_exchange(UNLINKED, self.prv, Ordering::Release, Ordering::Acquire);
        if linked.is_err() {
            open_all(self.prv);
        }
    }

    /// Takes the element out of the chain, or waits until it is out.
    ///
    /// | found on top | means | then |
    /// |---|---|---|
    /// | `e` | nobody came after us | the push is undone |
    /// | nothing | a flush has taken us: an undo can only uncover what lies beneath, and we are nobody's `prv` any more | our gate will be opened |
    /// | another, our gate open | we are out already | |
    /// | another | we are beneath it, or out and not yet woken | flush: what is on top is opened, down to us |
    fn abort(&self) {
        let me = (&raw const *self.e).cast_mut();
        // Release: what is below becomes the top again. Acquire: of whoever put it there.
        let top = match self.stack.top.compare_exchange(me, self.prv, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(top) => top,
        };
        if !top.is_null() && !self.e.gate.is_open() {
            // It may be `e` itself by now: those above it have undone their pushes.
            self.stack.flush();
        }
        UntilOpen(&self.e.gate).wait();
    }
}

impl Drop for Pushed<'_> {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Waits for a gate, whatever happens: while somebody is about to open it, its element must not die.
struct UntilOpen<'a>(&'a Gate);

impl UntilOpen<'_> {
    /// A goroutine that is given up here leaves this by a panic, and waits on in the drop, in which it is not unwound.
    fn wait(&self) {
        self.0.wait::<SpinThenPark>(None);
    }
}

impl Drop for UntilOpen<'_> {
    fn drop(&mut self) {
        self.wait();
    }
}
