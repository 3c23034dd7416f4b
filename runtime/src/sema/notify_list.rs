//! Go's `notifyList`: waiters for a signal, in the order in which they came. The basis of a condition variable.
//!
//! | state of a ticket | its node | next |
//! |---|---|---|
//! | `LISTED` | in the list; its holder has something left to do before it waits (unlock a mutex) | `PARKED`, by its holder; `NOTIFIED` |
//! | `PARKED` | in the list, or just unlinked by a notifier; its holder is parked, or about to park | it is readied |
//! | `NOTIFIED` | in no list; the notifier does not use it any more | |
//!
//! The two transitions from `LISTED` decide whether the holder or a notifier is first. So no holder is readied that has
//! not parked, and no signal is lost that comes between the taking of the ticket and the parking.
//!
//! A signal is for the first ticket in the list, and unlinks it: a later ticket cannot steal it. In Go a ticket is a
//! number, and a signal names the next number, whether its holder has parked or not. Here a ticket is a place in the
//! list, because holders may give up, by a deadline. A number whose holder has
//! left would swallow a signal.
//!
//! A cancel unlinks the node of one ticket, as a signal would, and marks it.
//!
//! A broadcast takes the whole list, and walks it without the lock. Each node stores the number of broadcasts before
//! it; so a holder that gives up knows, under the lock, whether its node is still in the list or a broadcast has taken
//! it.
//!
//! Source: `notifyList` of Go's `runtime/sema.go`.

use std::pin::pin;
use std::ptr::{self, NonNull};

use super::{CountedLock, WaitError, WaitLimit};
use crate::g::ReadyBatch;
use crate::shim::{self, AtomicU32, Cell, Ordering};
use crate::{G, Instant, ParkResult, goroutine};

const LISTED: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

/// Waiters for a signal. Waiting allocates nothing: a waiter's node is on its stack.
///
/// A notification reaches the tickets that are held when it comes. The notifier must know of a ticket by synchronising
/// with its holder, as a rule through a mutex: the holder takes the ticket while it has the mutex, and unlocks before
/// it waits.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
/// use sudog::runtime::sema::NotifyList;
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

// SAFETY: only the holder of the list's lock touches the nodes that it links, on whatever thread.
unsafe impl Send for List {}

pub(super) struct Node {
    state: AtomicU32,
    /// The holder's G. Written before `PARKED`, and read then by the notifier.
    g: Cell<*const G>,
    /// The remaining fields belong to the holder of the lock while the node is in the list; to a broadcast that has
    /// taken the list; and otherwise to the ticket's holder.
    listed: Cell<bool>,
    /// A cancel unlinked it.
    cancelled: Cell<bool>,
    broadcasts: Cell<u64>,
    next: Cell<Option<NonNull<Node>>>,
    prev: Cell<Option<NonNull<Node>>>,
}

/// A place in a [`NotifyList`]: its holder gets the notifications that come from now on.
pub struct Ticket<'a> {
    list: &'a NotifyList,
    node: &'a Node,
    /// How the wait ended, if it has: notified, or why not.
    over: Cell<Option<Result<(), WaitError>>>,
}

impl NotifyList {
    crate::const_unless_model! {
        /// A list without waiters.
        #[must_use]
        pub const fn new() -> Self {
            Self { list: CountedLock::new(List { first: None, last: None, len: 0, broadcasts: 0 }) }
        }
    }

    /// Takes a ticket, and runs `f` with it, which should wait.
    ///
    /// If `f` does not wait, the ticket is given up when `f` ends; a signal that has come for that ticket goes to the next.
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
        // SAFETY: the node stays in place until this frame is left, which is after the ticket has been dropped.
        unsafe { list.push(&node) };
        drop(list);
        f(&Ticket { list: self, node: &node, over: Cell::new(None) })
    }

    /// Notifies the holder of the oldest ticket, if there is one. Go: `notifyListNotifyOne`.
    ///
    /// A goroutine that has run for long yields here, after the notification.
    #[inline]
    pub fn notify_one(&self) {
        // The taking of each ticket that this call must notify happens before it.
        if self.list.count() > 0 {
            self.notify_first();
        }
        goroutine::safepoint();
    }

    /// Notifies the holders of all tickets. Go: `notifyListNotifyAll`.
    ///
    /// A goroutine that has run for long yields here, after the last notification.
    #[inline]
    pub fn notify_all(&self) {
        if self.list.count() > 0 {
            self.notify_every_ticket();
        }
        goroutine::safepoint();
    }

    /// How many tickets are held at this moment. For tests and diagnostics.
    #[must_use]
    pub fn waiters(&self) -> usize {
        let list = self.list.lock();
        // SAFETY: listed nodes, and the lock is held while they are visited.
        std::iter::successors(list.first, |node| unsafe { node.as_ref() }.next.get()).count()
    }

    /// Unlinks a node because of a cancel, and tells its holder; unless a notifier has been faster.
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
        // SAFETY: listed, as `holds` says; alive.
        unsafe {
            list.unlink(node);
            node.as_ref().cancelled.set(true);
        }
        list.uncount(1);
        drop(list);
        // SAFETY: unlinked by this call.
        unsafe { notify(node, |g| G::ready(g)) };
    }

    fn notify_first(&self) {
        let mut list = self.list.lock();
        let Some(first) = list.first else { return };
        // SAFETY: listed, and the lock is held.
        unsafe { list.unlink(first) };
        list.uncount(1);
        drop(list);
        // SAFETY: unlinked by this call.
        unsafe { notify(first, |g| G::ready(g)) };
    }

    fn notify_every_ticket(&self) {
        let mut list = self.list.lock();
        let mut at = list.first.take();
        list.last = None;
        list.broadcasts += 1;
        let n = std::mem::take(&mut list.len);
        list.uncount(n);
        drop(list);
        let mut batch = ReadyBatch::new();
        while let Some(node) = at {
            // SAFETY: taken with the list by this call, and not notified yet.
            at = unsafe { node.as_ref() }.next.get();
            // SAFETY: as above; the batch is dropped below.
            unsafe { notify(node, |g| assert!(batch.mark_ready(g).is_none(), "no task waits here")) };
        }
    }
}

/// # Safety
///
/// The node is not in the list any more, and the caller unlinked it. The caller does not use it after this. `ready` readies.
#[inline]
unsafe fn notify(node: NonNull<Node>, ready: impl FnOnce(*const G)) {
    // SAFETY: alive until it is notified, by the contract.
    let state: *const AtomicU32 = unsafe { &raw const (*node.as_ptr()).state };
    // Release: the holder sees after the notification what came before it. Acquire: the holder's `g`, if it has parked.
    // A parked holder does not change the state any more, and need not read it.
    // SAFETY: as above; if the holder has not parked, the exchange is the last access.
    let parked = unsafe {
        (*state).load(Ordering::Acquire) == PARKED
            || (*state).compare_exchange(LISTED, NOTIFIED, Ordering::Release, Ordering::Acquire).is_err()
    };
    if parked {
        // SAFETY: its holder waits for the `ready`, so both are alive; and this is the only `ready` for its `park`.
        ready(unsafe { (*node.as_ptr()).g.get() });
    }
}

impl List {
    /// True if a node that was put into the list is still there: not unlinked, and not taken by a broadcast.
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
    /// Waits for a notification, or until the deadline. Returns true if notified. Go: `notifyListWait`.
    ///
    /// There is no spurious return. Once it has returned, further calls return the same result at once.
    #[inline]
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        self.wait_limited(&WaitLimit { deadline, cancel: None }).is_ok()
    }

    /// Waits for a notification, or until the [`WaitLimit`].
    ///
    /// There is no spurious return. Once it has returned, further calls return the same result at once.
    ///
    /// # Errors
    ///
    /// Which limit came first. Then no notification was or will be for this ticket.
    #[inline]
    pub fn wait_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if let Some(over) = self.over.get() {
            return over;
        }
        let over = if limit.cancel.is_some() { self.cancellable_wait(limit) } else { self.sleep(limit.deadline) };
        self.over.set(Some(over));
        over
    }

    /// Passes the notification that has ended the wait to the next ticket, if it was a signal: for a holder that will
    /// not act on it.
    #[cold]
    pub fn pass_on(&self) {
        // A broadcast notified all tickets.
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
        // The G that unlinked the node has readied this one: its writes are visible here.
        if self.node.cancelled.get() { Err(WaitError::Cancelled) } else { Ok(()) }
    }

    #[inline]
    fn sleep(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let g = G::current();
        self.node.g.set(&raw const g);
        // Release: a notifier that reads PARKED sees `g`. Acquire: a holder that was notified sees what came before
        // that.
        if self.node.state.compare_exchange(LISTED, PARKED, Ordering::Release, Ordering::Acquire).is_err() {
            return Ok(());
        }
        match g.park_queued(deadline, || (), || self.leave()) {
            ParkResult::Unparked => Ok(()),
            ParkResult::TimedOut => Err(WaitError::TimedOut),
        }
    }

    /// Unlinks the node. Returns false if a notifier has done so.
    fn leave(&self) -> bool {
        let mut list = self.list.list.lock();
        let listed = list.holds(self.node);
        if listed {
            // SAFETY: no notifier has unlinked it, nor taken the list that it was put into.
            unsafe { list.unlink(NonNull::from(self.node)) };
            list.uncount(1);
        }
        listed
    }

    /// Leaves the list, or passes on the signal that has come for this ticket, which has not waited.
    #[cold]
    fn give_up(&self) {
        if !self.leave() {
            // Acquire: the notifier's use of the node is over.
            while self.node.state.load(Ordering::Acquire) != NOTIFIED {
                shim::yield_now();
            }
            // Not after a broadcast: that notified all tickets. Nor after a cancel: that was no signal.
            if !self.node.listed.get() && !self.node.cancelled.get() {
                shim::mark("a ticket that is given up passes on its signal");
                self.list.notify_one();
            } else {
                shim::mark("a ticket that is given up was notified by a broadcast");
            }
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.over.get().is_none() {
            self.give_up();
        }
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

    /// However a ticket ends, it is uncounted: otherwise each notification of an empty list would take the lock.
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
