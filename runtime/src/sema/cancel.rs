//! A handle that ends waits from outside.
//!
//! ```text
//!   Cancel ──list──▶ Registration ⇄ Registration ...      each on its waiter's stack, with a pointer to
//!                        │                                 a sudog and its bucket,
//!                        ▼                                 or a ticket's node and its notify list
//!                  Sudog, Node, or what a crate of this project waits in
//! ```
//!
//! Lock order: first the lock of the cancel's list, then the lock of the waiter's queue. A waiter registers before it
//! waits, and cannot return before its registration has left the list. So while a cancel holds the list's lock,
//! everything to which the list refers is alive.

use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::{self, NonNull};

use super::notify_list::{Node, NotifyList};
use super::queue::BucketQueue;
use super::table::{Bucket, CancelIn};
use super::{CountedLock, Sudog, SudogPtr};
use crate::chan::Claim;
use crate::list::{Entry, Links, List};
use crate::shim::{AtomicBool, Cell, Ordering};
use crate::{G, goroutine};

/// A handle that ends waits. A wait refers to the handle by its [`WaitLimit`](super::WaitLimit); a cancel ends all
/// these waits, those under way and later ones.
///
/// A handle may serve any number of waits, on any semaphores. A cancelled handle stays cancelled.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::AtomicU32;
/// use sudog::{Cancel, WaitError, WaitLimit};
/// use sudog::low_level::sema::{Order, semacquire_limited};
///
/// let (permits, stop) = (AtomicU32::new(0), Cancel::new());
/// std::thread::scope(|s| {
///     let waiter = s.spawn(|| {
///         let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
///         semacquire_limited(&permits, Order::Fifo, &limit)
///     });
///     stop.cancel();
///     assert_eq!(waiter.join().unwrap(), Err(WaitError::Cancelled));
/// });
/// ```
pub struct Cancel {
    cancelled: AtomicBool,
    waiters: CountedLock<List<Registration<'static>>>,
}

/// A waiter's entry in a [`Cancel`]: pinned to the waiter's stack. Dropping the entry takes the entry out of the list. The
/// list forgets the lifetime of its entries.
#[doc(hidden)]
pub struct Registration<'a> {
    cancel: &'a Cancel,
    waiter: Waiter<'a>,
    /// True while the entry is in the list. Only the holder of the list's lock accesses this field and the links.
    entered: Cell<bool>,
    links: Links<Registration<'static>>,
    _pinned: PhantomPinned,
}

impl Entry for Registration<'static> {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

/// The waiter that a cancel unlinks, and the waiter's queue.
#[derive(Clone, Copy)]
enum Waiter<'a> {
    Sudog(&'a dyn CancelIn, SudogPtr),
    Ticket(&'a NotifyList, NonNull<Node>),
    Claim(&'a Claim, &'a G),
    Other(&'a dyn CancelledWait, &'a G),
}

/// A waiter in a queue of another crate. For the crates of this project.
#[doc(hidden)]
pub trait CancelledWait {
    /// Takes the waiter out of the queue, under the queue's lock. Returns false if the waiter is not in the queue: the
    /// waiter has not joined the queue yet, or a peer has taken the waiter out and readies it.
    fn leave(&self) -> bool;
}

impl Cancel {
    crate::const_unless_model! {
        /// Creates a handle that is not cancelled.
        #[must_use]
        pub const fn new() -> Self {
            Self { cancelled: AtomicBool::new(false), waiters: CountedLock::new(List::new()) }
        }
    }

    /// Creates a handle that is cancelled. For the crates of this project.
    #[doc(hidden)]
    #[must_use]
    pub fn cancelled() -> Self {
        Self { cancelled: AtomicBool::new(true), waiters: CountedLock::new(List::new()) }
    }

    /// Ends all waits that refer to this handle. When this function returns, each waiter has been granted a permit or
    /// has been told to give up.
    ///
    /// Takes time in proportion to the number of waiters. A second call finds nothing to do. A goroutine that has run
    /// for long yields here, after the last wait has ended.
    pub fn cancel(&self) {
        self.cancel_and_go_on();
        goroutine::safepoint();
    }

    /// Cancels as [`Cancel::cancel`] does, for a caller that must not yield yet. For the crates of this project.
    #[doc(hidden)]
    pub fn cancel_and_go_on(&self) {
        let mut waiters = self.waiters.lock();
        self.end_later_waits();
        end_all(&mut waiters);
    }

    /// Ends the waits that are under way, and no wait that begins later. For a handle that is never cancelled, but
    /// tells waiters that a state has changed: a waiter that registers and then reads the state misses no change.
    #[cfg_attr(any(sudog_loom, not(unix)), allow(dead_code))]
    pub(crate) fn end_waits_under_way(&self) {
        end_all(&mut self.waiters.lock());
    }

    /// Ends the waits that begin from now on, but no wait that is under way. The caller must call
    /// [`Cancel::cancel_and_go_on`] afterwards. For the crates of this project.
    #[doc(hidden)]
    pub fn end_later_waits(&self) {
        // Use Release, so that a waiter that sees the flag also sees the canceller's earlier writes.
        self.cancelled.store(true, Ordering::Release);
    }

    /// Returns true once [`Cancel::cancel`] has been called.
    #[inline]
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Creates an entry for a wait in `bucket`. The entry is not yet in the handle's list.
    ///
    /// # Safety
    ///
    /// `sudog` is queued in `bucket` or nowhere.
    pub(super) unsafe fn registration<'a, Q: BucketQueue>(
        &'a self,
        sudog: &'a Sudog,
        bucket: &'a Bucket<Q>,
    ) -> Registration<'a> {
        // SAFETY: the entry borrows `sudog`; and `CancelIn::cancel`, the only user of the pointer, takes the bucket's lock.
        Registration::new(self, Waiter::Sudog(bucket, unsafe { sudog.as_queued() }))
    }

    /// Creates an entry for a wait in `list`. The entry is not yet in the handle's list.
    ///
    /// # Safety
    ///
    /// `node` is in `list` or nowhere.
    pub(super) unsafe fn ticket_registration<'a>(&'a self, list: &'a NotifyList, node: &'a Node) -> Registration<'a> {
        Registration::new(self, Waiter::Ticket(list, NonNull::from(node)))
    }
}

impl Cancel {
    /// Creates an entry for a wait that ends when `claim` is taken. The entry is not yet in the handle's list.
    ///
    /// # Safety
    ///
    /// The code that takes the claim readies `g`, once, and nothing else readies `g`. The waiter waits for that `ready`.
    pub(crate) unsafe fn claim_registration<'a>(&'a self, claim: &'a Claim, g: &'a G) -> Registration<'a> {
        Registration::new(self, Waiter::Claim(claim, g))
    }
}

impl Cancel {
    /// Creates an entry for a wait in a queue of another crate. The entry is not yet in the handle's list. For the
    /// crates of this project.
    ///
    /// # Safety
    ///
    /// - When `wait` has left its queue by [`CancelledWait::leave`], only this handle readies `g`; and the waiter waits
    ///   for that `ready`.
    /// - `g` is the waiter's G. The waiter calls [`Registration::enter`] at most once. The result stays pinned in the
    ///   waiter's frame, and the waiter drops it there, after all entries that the waiter has entered later.
    #[doc(hidden)]
    pub unsafe fn registration_of<'a>(&'a self, wait: &'a dyn CancelledWait, g: &'a G) -> Registration<'a> {
        Registration::new(self, Waiter::Other(wait, g))
    }
}

impl<'a> Registration<'a> {
    fn new(cancel: &'a Cancel, waiter: Waiter<'a>) -> Self {
        Self { cancel, waiter, entered: Cell::new(false), links: Links::new(), _pinned: PhantomPinned }
    }

    /// Returns the address of the entry, as the list stores the address.
    fn in_list(&self) -> NonNull<Registration<'static>> {
        NonNull::from(self).cast()
    }

    /// Puts the entry into the handle's list. Returns false if the handle has been cancelled already.
    ///
    /// # Panics
    ///
    /// Panics if the entry is in the list.
    pub fn enter(self: Pin<&Self>) -> bool {
        let mut waiters = self.cancel.waiters.lock();
        // The list's lock orders this check with the store in `end_later_waits`.
        if self.cancel.is_cancelled() {
            return false;
        }
        assert!(!self.entered.replace(true), "entered once");
        // SAFETY: the entry is in no list. The entry is pinned, and its drop takes it out of the list, under the lock, before
        // the lifetime that the list forgets has ended; then the lock is free. A cancel uses the entry on the cancel's
        // thread, as the constructors of this type permit.
        unsafe { waiters.push_front(self.in_list().as_ref()) };
        true
    }
}

impl Drop for Registration<'_> {
    /// Takes the entry out of the handle's list, if the entry is in the list. When this function returns, no cancel
    /// uses the queue because of the entry.
    fn drop(&mut self) {
        let mut waiters = self.cancel.waiters.lock();
        if self.entered.get() {
            // SAFETY: the entry, which is alive, is in the list of its cancel.
            unsafe { waiters.remove(self.in_list().as_ref()) };
        }
    }
}

/// Ends all waits whose entries are in the list of a handle, which is locked.
fn end_all(waiters: &mut List<Registration<'static>>) {
    // The waiter of an entry cannot return before it has had the lock, so the entry is alive.
    while let Some(entry) = waiters.pop() {
        entry.entered.set(false);
        if let Some(g) = entry.waiter.leave() {
            // SAFETY: `leave` has taken the waiter, so only this call readies `g`, which is alive until then. Nothing of
            // the G is used afterwards.
            unsafe { G::ready(g) };
        }
    }
}

impl Waiter<'_> {
    /// Takes the waiter out of its queue, or takes its claim. Returns the waiter's G, which the caller must ready; `None`
    /// if a peer was faster, or if the G needs no `ready` of the caller.
    ///
    /// The waiter's queue, and the waiter, are alive, because the entry borrows them, and is still in the list's lock.
    fn leave(&self) -> Option<*const G> {
        match *self {
            Self::Sudog(bucket, sudog) => bucket.cancel(sudog).then(|| sudog.g()),
            Self::Ticket(list, node) => {
                // SAFETY: the entry borrows `node`, so the node is alive. The node is in `list` or nowhere, by the contract of
                // `ticket_registration`.
                unsafe { list.cancel(node) };
                None
            }
            Self::Claim(claim, g) => claim.take(Claim::CANCELLED).then_some(ptr::from_ref(g)),
            Self::Other(wait, g) => wait.leave().then_some(ptr::from_ref(g)),
        }
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancel").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --lib cancel::model`
#[cfg(all(test, sudog_loom))]
mod model {
    use std::pin::pin;

    use crate::model::thread;
    use loom::sync::Arc;

    use super::*;
    use crate::reached::{mark, must_reach};
    use crate::shim::Mutex;

    const SEES: &str = "the look after the registration sees the change";
    const BOTH: &str = "the look sees the change, and the change has taken the claim";
    const WOKEN: &str = "the change wakes the waiter";

    /// The model of a timer, as waiters see a timer: a state, and a handle that tells that the state has changed.
    struct World {
        changed: Cancel,
        state: Mutex<bool>,
    }

    /// Waits as a select beside timers does: registers, looks, waits, and begins anew.
    fn wait(world: &World) {
        loop {
            let (g, claim) = (G::current(), Claim::new());
            // SAFETY: `claim` and `g` outlive the entry; the only change readies the G if the change takes the claim,
            // and the waiter waits for that.
            let entry = pin!(unsafe { world.changed.claim_registration(&claim, &g) });
            entry.as_ref().enter();
            if *world.state.lock() {
                let first = claim.take(Claim::AT_ONCE);
                mark(if first { SEES } else { BOTH });
                if !first {
                    g.await_ready();
                }
                return;
            }
            g.park(None, || ());
            mark(WOKEN);
        }
    }

    /// No change is missed: neither a change before the registration, nor a change before the wait.
    #[test]
    fn a_change_is_not_missed() {
        must_reach(&[SEES, BOTH, WOKEN], || {
            crate::model::explore_all(|| {
                let world = Arc::new(World { changed: Cancel::new(), state: Mutex::new(false) });
                let waiter = thread::spawn({
                    let world = world.clone();
                    move || wait(&world)
                });
                *world.state.lock() = true;
                world.changed.end_waits_under_way();
                waiter.join().unwrap();
            });
        });
    }
}
