//! What the frames of a goroutine have lent to others: a goroutine that cannot be unwound is left only when nothing of that is
//! in use.
//!
//! The stack of a goroutine that is left stays for ever. But its frames may also have borrowed a `thread_local!`, and that ends
//! with its thread: the thread of a worker is kept, the caller of `run` goes its way. So what others may still use decides:
//!
//! | lent to | in use until |
//! |---|---|
//! | a call of `blocking` or `compute` | it has returned, which the goroutine waits for |
//! | goroutines of its scopes | each has ended, or has been left itself: then it never runs again |
//! | queues | at no time: they hold its sudogs, which are on its stack, and nobody finds more through them |
//! | a [`Cancel`](crate::sema::Cancel), which finds the queue by its entry | the goroutine is left: the entry is taken out then |
//! | threads that another library lets borrow, as `std::thread::scope` | not known here: see "Soundness" in `docs/goroutines.md` |
//!
//! Loans form a tree, whose leaves are calls: so all of them end once every goroutine of the tree has ended, or has been left.
//!
//! [`Loan`]s stand in the goroutine's frames, the newest first in a list that belongs to its worker's thread. [`Borrowers`] are
//! shared.

use crate::shim::system::atomic::{AtomicUsize, Ordering};
use std::cell::{Cell, OnceCell};
use std::ptr;

use crate::goroutine::native::fibre::{Fibre, Unwinding, current};
use crate::sema::Registration;

/// Those that may use the frame of a scope.
pub(crate) struct Borrowers {
    /// Goroutines that have not ended; and one for the owner, until it waits.
    pub(crate) pending: AtomicUsize,
    /// Goroutines, of those, that have been left where they wait.
    left: AtomicUsize,
}

/// What a frame of a goroutine has lent, or borrowed.
pub(crate) struct Loan<'a> {
    older: *const Loan<'static>,
    what: What<'a>,
    /// The owner of a scope waits for its goroutines, and does not count among the pending any more.
    waits: Cell<bool>,
}

#[derive(Clone, Copy)]
pub(crate) enum What<'a> {
    /// Lent to a call on another thread.
    ToCall,
    /// Lent to goroutines of a scope.
    ToScope(&'a Borrowers),
    /// The goroutine is one of a scope's: borrowed from the frame of its owner.
    FromScope(&'a Borrowers),
    /// The entry of a wait that a cancel may end.
    ToCancel(&'a Registration),
}

/// Runs `f` while `fibre`, the caller's goroutine if it has one, has lent or borrowed `what`.
///
/// Ends the process if `f` unwinds while something is lent: the borrowers would go on with frames that are gone.
pub(crate) fn during<T>(fibre: Option<&'static Fibre>, what: What<'_>, f: impl FnOnce(&Loan<'_>) -> T) -> T {
    struct Ends<'a>(Option<&'static Fibre>, &'a Loan<'a>, bool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            let Self(fibre, loan, has_returned) = self;
            if !*has_returned && !matches!(loan.what, What::FromScope(_)) {
                crate::fatal("sudog: a wait for a borrower was unwound");
            }
            if let Some(fibre) = fibre {
                fibre.loans.set(loan.older);
            }
        }
    }

    let older = fibre.map_or(ptr::null(), |fibre| fibre.loans.get());
    let loan = Loan { older, what, waits: Cell::new(false) };
    let mut ends = Ends(fibre, &loan, false);
    if let Some(fibre) = fibre {
        fibre.loans.set((&raw const loan).cast());
    }
    let result = f(&loan);
    ends.2 = true;
    result
}

/// The loan of a [`Registration`], in it.
pub(crate) struct RegistrationLoan(OnceCell<(&'static Fibre, Loan<'static>)>);

impl RegistrationLoan {
    pub(crate) const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// Counts the entry among the loans of the goroutine that waits, if the waiter is one. The waiter calls this when the entry
    /// is listed.
    ///
    /// # Safety
    ///
    /// - This is in the entry, which stays in place until [`end`](Self::end) has been called.
    /// - The caller, a goroutine, calls that, and has ended newer loans before.
    pub(crate) unsafe fn begin(&self, entry: &Registration) {
        let Some(fibre) = current::fibre() else { return };
        // SAFETY: it forgets a lifetime only; the entry stays until the loan ends.
        let what = What::ToCancel(unsafe { ptr::from_ref(entry).as_ref_unchecked() });
        let (_, loan) =
            self.0.get_or_init(|| (fibre, Loan { older: fibre.loans.get(), what, waits: Cell::new(false) }));
        fibre.loans.set(loan);
    }

    pub(crate) fn end(&self) {
        if let Some((fibre, loan)) = self.0.get() {
            debug_assert!(ptr::eq(fibre.loans.get(), loan), "loans end in their order");
            fibre.loans.set(loan.older);
        }
    }
}

impl Borrowers {
    /// The owner alone.
    pub(crate) fn new() -> Self {
        Self { pending: AtomicUsize::new(1), left: AtomicUsize::new(0) }
    }
}

impl Loan<'_> {
    /// Runs `f`, in which the owner of a scope waits for its goroutines, and does not count among the pending any more.
    ///
    /// `caught`: inside of the scope the owner has been unwound, because its scheduler is over, and the scope has caught that. It
    /// is not being unwound as it waits, so it may be left, as one that could not be unwound; it is again after the wait.
    pub(crate) fn while_owner_waits(&self, fibre: Option<&'static Fibre>, caught: bool, f: impl FnOnce()) {
        let state = |dying| {
            if let Some(fibre) = fibre.filter(|_| caught) {
                fibre.dying.set(dying);
            }
        };
        self.waits.set(true);
        state(Unwinding::Doomed);
        f();
        state(Unwinding::Unwound);
        self.waits.set(false);
    }

    /// Whether others may use what is lent.
    fn is_in_use(&self) -> bool {
        match self.what {
            What::ToCall => true,
            What::ToScope(borrowers) => {
                let own = usize::from(!self.waits.get());
                // First those that have been left. They stay pending, so all that are pending have been left if later there
                // are no more of these; and new ones come from the owner, which is suspended, or from one that runs.
                // Acquire: what a goroutine did to the frame before it ended, or was left, comes before what we do next.
                let left = borrowers.left.load(Ordering::Acquire);
                borrowers.pending.load(Ordering::Acquire) > left + own
            }
            What::FromScope(_) | What::ToCancel(_) => false,
        }
    }
}

impl Fibre {
    /// Whether this goroutine, which waits and cannot be unwound, may be left where it is.
    ///
    /// By its worker, whose scheduler is over.
    pub(crate) fn may_be_left(&self) -> bool {
        let mut in_use = false;
        let mut scope_waits = false;
        self.for_each_loan(|loan| {
            in_use |= loan.is_in_use();
            scope_waits |= loan.waits.get();
        });
        // The wait of a scope's owner must not be unwound; but to leave it there does no harm. Other such waits return.
        let must_return = self.must_return.get() > u16::from(scope_waits);
        !(in_use || cfg!(panic = "unwind") && must_return)
    }

    /// Leaves this goroutine where it waits: it never runs again, and so uses nothing that it has borrowed.
    ///
    /// By its worker, if it [may be left](Self::may_be_left).
    pub(crate) fn leave(&self) {
        self.for_each_loan(|loan| {
            if let What::ToCancel(entry) = loan.what {
                entry.leave();
            }
        });
        // Only now may the owners of its scopes be left, which may own what it waits in.
        self.for_each_loan(|loan| {
            if let What::FromScope(borrowers) = loan.what {
                // Release: what it did to the owner's frame comes before what the owner's thread does next.
                borrowers.left.fetch_add(1, Ordering::Release);
            }
        });
    }

    fn for_each_loan(&self, mut f: impl FnMut(&Loan<'_>)) {
        let mut next = self.loans.get();
        // SAFETY: null, or in a frame of this goroutine: inside of `during`, or in a registration that has not been dropped.
        // The goroutine is suspended, so the frame stands.
        // What it refers to stands longer: what it has lent in its own frames, below; and what it has borrowed, as this
        // goroutine is pending there, and the owner's frame is not left before it.
        while let Some(loan) = unsafe { next.as_ref() } {
            f(loan);
            next = loan.older;
        }
    }
}
