//! The waiting chain of listings 3 and 4: a stack of waiters, to be pushed on by one exchange and taken off whole.
//!
//! An element lies on its waiter's stack and knows nothing of the others: the waiter alone knows who was on top before.
//!
//! | step | who | what |
//! |---|---|---|
//! | push | waiter | `prv = chain.swap(&e)`; then it looks at its condition once more |
//! | wait | waiter | before `e`'s gate; then it opens `prv`'s, and so on down the chain |
//! | flush | signaller, or one that aborts | `top = chain.swap(null)`; opens `top`'s gate |
//! | abort | waiter whose condition came true, or whose time is over | see [`Pushed::abort`] |
//!
//! The rule that makes it sound: *the owner of an element, and nobody else, opens the gate of the `prv` that it got;
//! who flushes opens that of the top only.* So each gate is opened once, and its element lives until then. What follows
//! from it:
//!
//! * nobody waits for good: if a flush comes before a push in the order of the chain's exchanges, the push reads from
//!   the flush's release sequence, and the waiter's look at its condition sees what the signaller did before it;
//! * an element is not in the chain once its gate is open, nor after its own push has been undone; it dies then;
//! * to undo one's push by `CAS(&e → prv)` meets no ABA: only its owner can put `&e` there.
//!
//! What it costs: wake-ups go down a chain one by one, each waiter having to run before the next is woken; and one that
//! aborts in the middle wakes all. Chains of more than one are collisions, and rare by the choice of the hash.
//!
//! Source: `AddressWaitUntil`, `AddressSignal` and `Poke` of listing 3.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use sudog_runtime::Instant;
use sudog_runtime::shim::{AtomicPtr, Ordering};

use super::fences;
use super::gate::Gate;
use super::policy::{SpinThenPark, WaitPolicy};

/// 128, not 64: processors fetch cache lines in pairs.
#[repr(align(128))]
struct Element {
    gate: Gate,
}

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
    #[cfg(not(sudog_loom))]
    pub(super) const EMPTY: Self = Self { top: AtomicPtr::new(ptr::null_mut()) };

    #[cfg(sudog_loom)]
    pub(super) fn new() -> Self {
        Self { top: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Wakes all that have pushed themselves.
    #[inline]
    pub(super) fn flush(&self) {
        // Release: a push that comes after it sees what we did before. Acquire: we see the gates of those before it.
        poke(self.top.swap(ptr::null_mut(), Ordering::AcqRel));
    }

    /// [`PopStack::flush`], but only reads the chain if nobody is in it.
    #[inline]
    pub(super) fn flush_politely(&self) {
        fences::before_polite_look();
        if !self.top.load(Ordering::Relaxed).is_null() {
            self.flush();
        }
    }

    /// Waits in the chain once, unless `satisfied` returns true after the push.
    #[cold]
    pub(super) fn wait<P: WaitPolicy>(&self, satisfied: impl FnOnce() -> bool, deadline: Option<Instant>) -> Waited {
        let e = Element { gate: Gate::new() };
        let prv = self.top.swap((&raw const e).cast_mut(), Ordering::AcqRel);
        fences::after_push();
        // Dropped, if a goroutine is unwound while it waits, it aborts.
        let pushed = Pushed { stack: self, e: &e, prv };
        // Not by a drop guard: whoever aborts may have to wait for others, which a goroutine that panics cannot do
        // without holding up its worker.
        let satisfied = catch_unwind(AssertUnwindSafe(satisfied));
        if matches!(satisfied, Ok(false)) {
            if e.gate.wait::<P>(deadline) {
                std::mem::forget(pushed);
                poke(prv);
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

/// Opens an element's gate, if there is an element. It may be gone afterwards.
#[inline]
fn poke(e: *mut Element) {
    if !e.is_null() {
        // SAFETY: we are the one who opens this gate, by the rule of the chain: the flusher of a top, or the owner of
        // the element above. So it is alive.
        unsafe { Gate::open(&raw const (*e).gate) };
    }
}

/// An element that may be in the chain, whose owner wants it out.
struct Pushed<'a> {
    stack: &'a PopStack,
    e: &'a Element,
    prv: *mut Element,
}

impl Pushed<'_> {
    /// Takes the element out of the chain, or waits until it is out.
    ///
    /// | found on top | means | then |
    /// |---|---|---|
    /// | `e` | nobody came after us | the push is undone |
    /// | nothing | a flush has taken us: an undo can only uncover what lies beneath, and we are not the bottom's `prv` | `prv` is ours to wake; our gate will be opened |
    /// | another, our gate open | we are out already | `prv` is ours to wake |
    /// | another | we are beneath it, or out and not yet woken | flush: the top's wake-up comes down to us |
    fn abort(&self) {
        let me = (&raw const *self.e).cast_mut();
        // Acquire on failure, too: an empty chain is a flusher's doing.
        let top = match self.stack.top.compare_exchange(me, self.prv, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(top) => top,
        };
        if top.is_null() || self.e.gate.is_open() {
            poke(self.prv);
        } else {
            let top = self.stack.top.swap(ptr::null_mut(), Ordering::AcqRel);
            // The elder first. `top` may be `e` itself, whose gate is then ours to open: those above it have undone
            // their pushes.
            poke(self.prv);
            poke(top);
        }
        self.e.gate.wait::<SpinThenPark>(None);
    }
}

impl Drop for Pushed<'_> {
    fn drop(&mut self) {
        self.abort();
    }
}
