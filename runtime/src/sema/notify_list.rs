//! Go's `notifyList`: those who wait for a signal, in the order in which they came. What a condition variable is made
//! of.
//!
//! | state of a ticket | its node | next |
//! |---|---|---|
//! | `LISTED` | in the list; its holder still has something to do before it waits (to unlock a mutex) | `PARKED`, by its holder; `NOTIFIED` |
//! | `PARKED` | in the list, or just unlinked by a notifier; its holder is parked, or about to | it is readied |
//! | `NOTIFIED` | in no list, and no longer the notifier's | |
//!
//! The two steps from `LISTED` decide who comes first, the holder or a notifier; so nobody is readied who has not
//! parked, and no signal is lost that comes between the taking of the ticket and the parking.
//!
//! A signal is for the first in the list, and unlinks that one: somebody who comes later cannot steal it. In Go a
//! ticket is a number, and a signal names the next number, whether its holder has parked or not. Here it is a place in
//! the list, as those who hold a ticket may give up: by a deadline, or because their goroutine is unwound. A number
//! whose holder has left would swallow a signal.
//!
//! A cancel takes the node of one ticket out, as a signal would, and marks it.
//!
//! A broadcast takes the whole list, and goes through it without the lock. By counting broadcasts a holder who gives up
//! knows, under the lock, whether its node is still in the list, or in the hands of one.
//!
//! Source: `notifyList` of Go's `runtime/sema.go`.

use std::pin::pin;
use std::ptr::{self, NonNull};

use super::{CountedLock, WaitError, WaitLimit};
use crate::shim::{self, AtomicU32, Cell, Ordering};
use crate::{G, Instant, ParkResult, goroutine};

const LISTED: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

/// Those who wait for a signal. Nobody allocates: a waiter's node is on its stack.
///
/// A notification is for those who hold a ticket when it comes. That somebody holds one must be known by
/// synchronisation with that one, as a rule by a mutex: it takes the ticket while it has the mutex, and unlocks before
/// it waits.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
/// use sudog_runtime::sema::NotifyList;
///
/// static READY: Mutex<bool> = Mutex::new(false);
/// static LIST: NotifyList = NotifyList::new();
///
/// let waiter = std::thread::spawn(|| {
///     let mut ready = READY.lock().unwrap();
///     while !*ready {
///         LIST.with_ticket(|ticket| {
///             drop(ready);
///             ticket.wait(None);
///         });
///         ready = READY.lock().unwrap();
///     }
/// });
/// *READY.lock().unwrap() = true;
/// LIST.notify_one();
/// waiter.join().unwrap();
/// ```
pub struct NotifyList {
    /// Its count is that of the nodes in the list.
    list: CountedLock<List>,
}

struct List {
    first: Option<NonNull<Node>>,
    last: Option<NonNull<Node>>,
    len: u32,
    /// How many broadcasts there have been.
    broadcasts: u64,
}

// SAFETY: the nodes that it links are touched by the holder of the list's lock only, on whatever thread.
unsafe impl Send for List {}

pub(super) struct Node {
    state: AtomicU32,
    /// Its holder's G. Written before `PARKED`, and read by the one who notifies it then.
    g: Cell<*const G>,
    /// The rest belongs to the holder of the lock while it is in the list; to a broadcast that has taken the list; and
    /// else to its holder.
    listed: Cell<bool>,
    /// It was a cancel that took it out.
    cancelled: Cell<bool>,
    broadcasts: Cell<u64>,
    next: Cell<Option<NonNull<Node>>>,
    prev: Cell<Option<NonNull<Node>>>,
}

/// A place in a [`NotifyList`]: who holds it will see the notifications that come from now on.
pub struct Ticket<'a> {
    list: &'a NotifyList,
    node: &'a Node,
    /// How it ended: notified, or why not.
    over: Cell<Option<Result<(), WaitError>>>,
}

impl NotifyList {
    /// A list without waiters.
    #[cfg(not(sudog_loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { list: CountedLock::new(List { first: None, last: None, len: 0, broadcasts: 0 }) }
    }

    /// A list without waiters.
    #[cfg(sudog_loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { list: CountedLock::new(List { first: None, last: None, len: 0, broadcasts: 0 }) }
    }

    /// Takes a ticket, and runs `f` with it, which will wait.
    ///
    /// If `f` does not, or is unwound, the ticket is given up when it ends; a signal that has come for it goes to the
    /// next.
    #[inline]
    pub fn with_ticket<T>(&self, f: impl FnOnce(&Ticket<'_>) -> T) -> T {
        let node = Node {
            state: AtomicU32::new(LISTED),
            g: Cell::new(ptr::null()),
            listed: Cell::new(true),
            cancelled: Cell::new(false),
            broadcasts: Cell::new(0),
            next: Cell::new(None),
            prev: Cell::new(None),
        };
        let mut list = self.list.lock_and_count();
        // SAFETY: it stays where it is until this frame is left, which is after the ticket has been dropped.
        unsafe { list.push(&node) };
        drop(list);
        f(&Ticket { list: self, node: &node, over: Cell::new(None) })
    }

    /// Notifies the holder of the oldest ticket, if there is one. Go: `notifyListNotifyOne`.
    ///
    /// A goroutine that has run for long gives way here, after the notification.
    #[inline]
    pub fn notify_one(&self) {
        // The taking of a ticket that this must see happens before it.
        if self.list.count() > 0 {
            self.notify_first();
        }
        goroutine::safepoint();
    }

    /// Notifies the holders of all tickets. Go: `notifyListNotifyAll`.
    ///
    /// A goroutine that has run for long gives way here, after the last notification.
    #[inline]
    pub fn notify_all(&self) {
        if self.list.count() > 0 {
            self.notify_everybody();
        }
        goroutine::safepoint();
    }

    /// How many hold a ticket at this moment. For tests and the curious.
    #[must_use]
    pub fn waiters(&self) -> usize {
        let list = self.list.lock();
        // SAFETY: listed nodes, and the lock is held while they are visited.
        std::iter::successors(list.first, |node| unsafe { node.as_ref() }.next.get()).count()
    }

    /// Takes a node out because of a cancel, and tells its holder; unless a notifier has been faster.
    ///
    /// # Safety
    ///
    /// The node was put into this list, and is alive.
    pub(super) unsafe fn cancel(&self, node: NonNull<Node>) {
        let mut list = self.list.lock();
        // SAFETY: alive, and the lock is held.
        if !list.holds(unsafe { node.as_ref() }) {
            return;
        }
        // SAFETY: listed, as it says; alive.
        unsafe {
            list.unlink(node);
            node.as_ref().cancelled.set(true);
        }
        list.count_off(1);
        drop(list);
        // SAFETY: unlinked by us alone.
        unsafe { notify(node) };
    }

    fn notify_first(&self) {
        let mut list = self.list.lock();
        let Some(first) = list.first else { return };
        // SAFETY: listed, and the lock is held.
        unsafe { list.unlink(first) };
        list.count_off(1);
        drop(list);
        // SAFETY: unlinked by us alone.
        unsafe { notify(first) };
    }

    fn notify_everybody(&self) {
        let mut list = self.list.lock();
        let mut at = list.first.take();
        list.last = None;
        list.broadcasts += 1;
        let n = std::mem::take(&mut list.len);
        list.count_off(n);
        drop(list);
        while let Some(node) = at {
            // SAFETY: taken with the list by us alone, and not notified yet.
            at = unsafe { node.as_ref() }.next.get();
            // SAFETY: as above.
            unsafe { notify(node) };
        }
    }
}

/// # Safety
///
/// The node is not in the list any more, and it was the caller who took it out. It does not use it after this.
unsafe fn notify(node: NonNull<Node>) {
    // SAFETY: alive until it is notified, by the contract.
    let state: *const AtomicU32 = unsafe { &raw const (*node.as_ptr()).state };
    // Release: what came before the notification, its holder sees after it. Acquire: `g`, if it has parked. Who has,
    // changes the state no more, and need not be told by it. SAFETY: as above; if it has not parked, the exchange is
    // the last access.
    let parked = unsafe {
        (*state).load(Ordering::Acquire) == PARKED
            || (*state).compare_exchange(LISTED, NOTIFIED, Ordering::Release, Ordering::Acquire).is_err()
    };
    if parked {
        // SAFETY: its holder waits for the `ready`, so both are alive; and this is the one for its `park`.
        unsafe { G::ready((*node.as_ptr()).g.get()) };
    }
}

impl List {
    /// Whether a node that was put into it is still there: nobody has unlinked it, and no broadcast has taken it along.
    fn holds(&self, node: &Node) -> bool {
        node.listed.get() && node.broadcasts.get() == self.broadcasts
    }

    /// # Safety
    ///
    /// The node is in no list, and stays alive and in place until it is in none again.
    unsafe fn push(&mut self, node: &Node) {
        let this = NonNull::from(node);
        self.len += 1;
        node.broadcasts.set(self.broadcasts);
        node.prev.set(self.last);
        match self.last.replace(this) {
            // SAFETY: listed, and the lock is held.
            Some(last) => unsafe { last.as_ref() }.next.set(Some(this)),
            None => self.first = Some(this),
        }
    }

    /// # Safety
    ///
    /// The node is in this list.
    unsafe fn unlink(&mut self, node: NonNull<Node>) {
        // SAFETY: listed, and the lock is held; so are its neighbours.
        let node = unsafe { node.as_ref() };
        let (prev, next) = (node.prev.get(), node.next.get());
        match prev {
            // SAFETY: as above.
            Some(prev) => unsafe { prev.as_ref() }.next.set(next),
            None => self.first = next,
        }
        match next {
            // SAFETY: as above.
            Some(next) => unsafe { next.as_ref() }.prev.set(prev),
            None => self.last = prev,
        }
        self.len -= 1;
        node.listed.set(false);
    }
}

impl Ticket<'_> {
    /// Waits for a notification, or until the deadline: says whether one came. Go: `notifyListWait`.
    ///
    /// Never returns for another reason. Once it has returned it returns the same again, at once.
    // Inline, as what returns after a switch returns to where the processor does not expect it.
    #[inline]
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        self.wait_limited(&WaitLimit { deadline, cancel: None }).is_ok()
    }

    /// Waits for a notification, or until the [`WaitLimit`].
    ///
    /// Never returns for another reason. Once it has returned it returns the same again, at once.
    ///
    /// # Errors
    ///
    /// Which limit came first. No notification was for this ticket then, nor will be.
    #[inline]
    pub fn wait_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if let Some(over) = self.over.get() {
            return over;
        }
        let over = if limit.cancel.is_some() { self.cancellable_wait(limit) } else { self.sleep(limit.deadline) };
        self.over.set(Some(over));
        over
    }

    /// Gives the notification that has ended the wait to the next in line, if it was for one only: for a holder that has
    /// got it, but will never act on it.
    #[cold]
    pub fn pass_on(&self) {
        // A broadcast has left nobody out.
        if self.over.get() == Some(Ok(())) && !self.node.listed.get() {
            self.list.notify_one();
        }
    }

    #[cold]
    fn cancellable_wait(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        // SAFETY: list and node outlive this call, and the node was put into the list.
        let entry = limit.cancel.map(|cancel| unsafe { cancel.ticket_registration(self.list, self.node) });
        let entry = pin!(entry);
        if let Some(entry) = entry.as_ref().as_pin_ref()
            && !entry.enter()
            && self.leave()
        {
            return Err(WaitError::Cancelled);
        }
        self.sleep(limit.deadline)?;
        // It was the one who took the node out that let us go on: we see what it wrote.
        if self.node.cancelled.get() { Err(WaitError::Cancelled) } else { Ok(()) }
    }

    #[inline]
    fn sleep(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let g = G::current();
        self.node.g.set(&raw const g);
        // Release: whoever reads PARKED reads `g`. Acquire: who has been notified sees what came before that.
        if self.node.state.compare_exchange(LISTED, PARKED, Ordering::Release, Ordering::Acquire).is_err() {
            return Ok(());
        }
        // A goroutine that is unwound leaves `park` by a panic.
        let unwound = Unwound { ticket: self, g: &g };
        let over = match g.park(deadline, || ()) {
            ParkResult::Unparked => Ok(()),
            ParkResult::TimedOut if self.leave() => Err(WaitError::TimedOut),
            ParkResult::TimedOut => {
                // Somebody unlinked us and will ready us, if it has not. Until it has, `g` must stand.
                g.park(None, || ());
                Ok(())
            }
        };
        std::mem::forget(unwound);
        over
    }

    /// Takes its node out. False if a notifier has done so.
    fn leave(&self) -> bool {
        let mut list = self.list.list.lock();
        let listed = list.holds(self.node);
        if listed {
            // SAFETY: nobody has unlinked it, nor taken the list that it was put into.
            unsafe { list.unlink(NonNull::from(self.node)) };
            list.count_off(1);
        }
        listed
    }

    /// Leaves, or passes on the signal that has come for it. `await_notifier` must return when whoever took the node out
    /// is through with it.
    #[cold]
    fn give_up(&self, await_notifier: impl FnOnce()) {
        self.over.set(Some(Err(WaitError::Cancelled)));
        if !self.leave() {
            await_notifier();
            // Not if it was a broadcast: that has left nobody out. Nor if it was a cancel: that was no signal.
            if !self.node.listed.get() && !self.node.cancelled.get() {
                shim::mark("who gives up a ticket passes on its signal");
                self.list.notify_one();
            } else {
                shim::mark("who gives up a ticket has been notified with all others");
            }
        }
    }
}

/// Dropped before it has waited: it was never parked.
impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.over.get().is_none() {
            // Acquire: what the notifier did with the node is over.
            self.give_up(|| {
                while self.node.state.load(Ordering::Acquire) != NOTIFIED {
                    shim::yield_now()
                }
            });
        }
    }
}

/// A holder that is parked.
struct Unwound<'a> {
    ticket: &'a Ticket<'a>,
    g: &'a G,
}

impl Drop for Unwound<'_> {
    #[cold]
    fn drop(&mut self) {
        self.ticket.give_up(|| self.g.await_ready());
    }
}

impl Default for NotifyList {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for NotifyList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotifyList").field("waiters", &self.waiters()).finish()
    }
}

impl std::fmt::Debug for Ticket<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("Ticket { .. }")
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::NotifyList;
    use crate::Instant;

    /// However a ticket ends, it is counted off: else each notification of an empty list would take the lock.
    #[test]
    fn the_count_is_that_of_the_list() {
        let list = NotifyList::new();
        let counts = || (list.list.count(), list.waiters());
        list.with_ticket(|ticket| {
            assert_eq!(counts(), (1, 1));
            assert!(!ticket.wait(Some(Instant::now())));
            assert_eq!(counts(), (0, 0));
        });
        list.with_ticket(|_| ());
        assert_eq!(counts(), (0, 0), "given up");
        list.with_ticket(|ticket| {
            list.with_ticket(|_| {
                assert_eq!(counts(), (2, 2));
                list.notify_one();
                assert_eq!(counts(), (1, 1));
                list.notify_all();
                assert_eq!(counts(), (0, 0));
            });
            assert!(ticket.wait(None));
        });
        assert_eq!(counts(), (0, 0));
    }
}
