//! The line of a weighted semaphore: see the top of `state.rs`.

use std::ptr::{self, NonNull};

use sudog_runtime::AtomicU32;
use sudog_runtime::sema::semgrant_many;
use sudog_runtime::shim::Cell;

use sudog_runtime::goroutine::without_switching;

/// Only the holder of the lock around the line has a reference to the line.
pub(super) struct Line {
    first: Option<NonNull<Waiter>>,
    last: Option<NonNull<Waiter>>,
}

// SAFETY: only the holder of the lock around the line accesses the linked waiters, on whatever thread; see `Waiter`.
unsafe impl Send for Line {}

/// A waiter in line, on the stack of the acquirer that waits.
pub(super) struct Waiter {
    pub(super) tokens: u64,
    pub(super) permit: AtomicU32,
    /// True if the waiter has been given its tokens, and unlinked. Only the holder of the lock accesses this field and
    /// the links. Once the waiter is granted, only the thread that gives the permit accesses `next`.
    granted: Cell<bool>,
    next: Cell<Option<NonNull<Waiter>>>,
    prev: Cell<Option<NonNull<Waiter>>>,
}

impl Waiter {
    pub(super) fn new(tokens: u64) -> Self {
        Self {
            tokens,
            permit: AtomicU32::new(0),
            granted: Cell::new(false),
            next: Cell::new(None),
            prev: Cell::new(None),
        }
    }
}

/// A waiter that has been put into a line, and has not been removed from that line. The waiter may have been granted its
/// tokens since.
pub(super) struct InLine<'w> {
    pub(super) waiter: &'w Waiter,
    line: *const Line,
}

/// Writes to the fields, as if to free them, so that loom reports a later use of the fields.
#[cfg(sudog_loom)]
impl Drop for Waiter {
    fn drop(&mut self) {
        self.permit.with_mut(|_| ());
        self.next.set(None);
        self.prev.set(None);
    }
}

impl Line {
    pub(super) const fn new() -> Self {
        Self { first: None, last: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        let waiter = |link| self.waiter(link);
        std::iter::successors(self.first.map(waiter), |at| at.next.get().map(waiter)).count()
    }

    /// Returns the waiter to which a link of this line refers.
    #[inline]
    fn waiter(&self, link: NonNull<Waiter>) -> &Waiter {
        // SAFETY: only the functions of this file read and write links, and they link waiters of this line with each
        // other. A waiter in line is alive, by the contract of `push`, and the caller holds the lock.
        unsafe { link.as_ref() }
    }

    /// Puts a waiter at the end of the line.
    ///
    /// # Safety
    ///
    /// - `waiter` has not been in a line before.
    /// - `waiter` does not move, and is not freed, until it has been unlinked; if it is granted, until its permit is
    ///   given. Until then, this line does not move either.
    pub(super) unsafe fn push<'w>(&mut self, waiter: &'w Waiter) -> InLine<'w> {
        let this = NonNull::from(waiter);
        waiter.prev.set(self.last);
        match self.last {
            Some(last) => self.waiter(last).next.set(Some(this)),
            None => self.first = Some(this),
        }
        self.last = Some(this);
        InLine { waiter, line: self }
    }

    /// Removes a waiter that gives up, and returns true. The caller must then serve the waiters that this waiter kept
    /// waiting. Returns false if the waiter has been granted its tokens.
    ///
    /// # Panics
    ///
    /// Panics if the waiter is in another line.
    pub(super) fn remove(&mut self, InLine { waiter, line }: InLine<'_>) -> bool {
        assert!(ptr::eq(line, self), "a waiter of another line");
        if waiter.granted.get() {
            return false;
        }
        let (prev, next) = (waiter.prev.get(), waiter.next.get());
        match next {
            Some(next) => self.waiter(next).prev.set(prev),
            None => self.last = prev,
        }
        match prev {
            Some(prev) => self.waiter(prev).next.set(next),
            None => self.first = next,
        }
        true
    }

    /// Unlinks the first waiters in line for as long as there are enough tokens, of which `held` are held. Returns the
    /// number of tokens that are held then, and the unlinked waiters.
    pub(super) fn grant(&mut self, mut held: u64, size: u64) -> (u64, Granted) {
        let first = self.first;
        let (mut last, mut rest) = (None, first);
        while let Some(waiter) = rest.map(|link| self.waiter(link)) {
            if waiter.tokens > size - held {
                break;
            }
            held += waiter.tokens;
            waiter.granted.set(true);
            rest = waiter.next.get();
            last = Some(waiter);
        }
        let Some(last) = last else { return (held, Granted(None)) };
        last.next.set(None);
        self.first = rest;
        match rest {
            Some(first) => self.waiter(first).prev.set(None),
            None => self.last = None,
        }
        (held, Granted(first))
    }
}

/// Waiters that have their tokens, but have not been given their permits yet.
#[must_use]
pub(super) struct Granted(Option<NonNull<Waiter>>);

impl Granted {
    /// Gives a permit to each waiter. The caller has released the lock, and comes to a safepoint after this call.
    #[inline]
    pub(super) fn wake(self) {
        if let Some(first) = self.0 {
            wake(first);
        }
    }
}

#[cold]
fn wake(first: NonNull<Waiter>) {
    // Grant to all waiters before yielding.
    without_switching(|| {
        let mut at = Some(first);
        while let Some(waiter) = at {
            let waiter = waiter.as_ptr();
            // SAFETY: a granted waiter waits for its permit (see `leave`), so the waiter is alive until then. The
            // waiter is not used after its permit has been given.
            unsafe {
                at = (*waiter).next.get();
                semgrant_many(&(*waiter).permit, 1);
            }
        }
    });
}
