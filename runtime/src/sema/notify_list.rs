//! Go's `notifyList`: waiters for a signal, in the order in which they came. The basis of a condition variable.
//!
//! | state of a ticket | the ticket's node | next |
//! |---|---|---|
//! | `LISTED` | is in the list; the ticket's holder has something left to do before it waits (unlock a mutex) | `PARKED`, set by the holder; `NOTIFIED` |
//! | `PARKED` | is in the list, or just unlinked by a notifier; the holder is parked, or about to park | the holder is readied |
//! | `NOTIFIED` | is in no list; the notifier does not use the node any more | |
//!
//! The two transitions from `LISTED` decide whether the holder or a notifier is first. So a holder that has not parked
//! is never readied, and a signal that comes between the taking of the ticket and the parking is not lost.
//!
//! A signal is for the first ticket in the list, and unlinks that ticket: a later ticket cannot steal the signal. In Go
//! a ticket is a number, and a signal names the next number, whether the holder of that number has parked or not. Here
//! a ticket is a place in the list, because holders may give up, by a deadline. A number whose holder has given up
//! would swallow a signal.
//!
//! A cancel unlinks the node of a ticket, as a signal would, and marks that node.
//!
//! A broadcast takes the whole list, and walks it without the lock. Each node stores the number of broadcasts before
//! it. So a holder that gives up knows, under the lock, whether its node is still in the list or has been taken by a
//! broadcast.
//!
//! Source: `notifyList` of Go's `runtime/sema.go`.

use std::pin::pin;
use std::ptr::{self, NonNull};

use super::{CountedLock, WaitError, WaitLimit};
use crate::g::ReadyBatch;
use crate::list::{self, Entry, Links};
use crate::shim::{self, AtomicU32, Cell, Ordering};
use crate::{G, Instant, ParkResult, goroutine};

const LISTED: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

/// A list of waiters for a signal. Waiting allocates nothing: a waiter's node is on the waiter's stack.
///
/// A notification reaches the tickets that are held when the notification comes. To be sure to reach a ticket, the
/// notifier must have synchronised with the ticket's holder, usually through a mutex: the holder takes the ticket while
/// it owns the mutex, and unlocks before it waits.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
/// use sudog::low_level::sema::NotifyList;
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
    /// The nodes. The lock's count is the number of nodes in the list.
    list: CountedLock<List>,
}

struct List {
    nodes: list::List<Node>,
    len: u32,
    /// The number of broadcasts so far.
    broadcasts: u64,
}

pub(super) struct Node {
    state: AtomicU32,
    /// The holder's G. Written before `PARKED` is set, and read after that by the notifier.
    g: Cell<*const G>,
    /// True from the start until the node is unlinked. This field and the remaining ones belong to the holder of the
    /// lock while the node is in the list; to a broadcast that has taken the list; and otherwise to the ticket's
    /// holder.
    listed: Cell<bool>,
    /// True if a cancel unlinked the node.
    cancelled: Cell<bool>,
    broadcasts: Cell<u64>,
    links: Links<Node>,
}

impl Entry for Node {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

/// A place in a [`NotifyList`]. The holder of the ticket gets the notifications that come after the ticket was taken.
pub struct Ticket<'a> {
    list: &'a NotifyList,
    node: &'a Node,
    /// The result of the wait, if the wait has ended: `Ok` if the holder was notified, or the limit that ended the
    /// wait.
    over: Cell<Option<Result<(), WaitError>>>,
}

impl NotifyList {
    crate::const_unless_model! {
        /// Creates a list without waiters.
        #[must_use]
        pub const fn new() -> Self {
            Self { list: CountedLock::new(List { nodes: list::List::new(), len: 0, broadcasts: 0 }) }
        }
    }

    /// Takes a ticket, and runs `f` with the ticket. `f` should wait for a notification: see [`Ticket::wait`].
    ///
    /// If `f` does not wait, the ticket is given up when `f` ends; a signal that has come for that ticket goes to the
    /// next ticket.
    #[inline]
    pub fn with_ticket<T>(&self, f: impl FnOnce(&Ticket<'_>) -> T) -> T {
        let node = Node {
            state: AtomicU32::new(LISTED),
            g: Cell::new(ptr::null()),
            listed: Cell::new(true),
            cancelled: Cell::new(false),
            broadcasts: Cell::new(0),
            links: Links::new(),
        };
        let mut list = self.list.lock_and_count();
        // SAFETY: `node` is new, and stays in place until this frame is left, which is after the ticket has been
        // dropped and the node has left the list.
        unsafe { list.push(&node) };
        drop(list);
        f(&Ticket { list: self, node: &node, over: Cell::new(None) })
    }

    /// Notifies the holder of the oldest ticket, if there is one. Go: `notifyListNotifyOne`.
    ///
    /// A goroutine that has run for long yields here, after the notification.
    #[inline]
    pub fn notify_one(&self) {
        // Each ticket that this call must notify was taken before this call (in the order of happens-before), so this
        // load counts it.
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

    /// Returns the number of tickets that are held at this moment. For tests and diagnostics.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.list.lock().nodes.iter().count()
    }

    /// Unlinks a node because of a cancel, and readies the ticket's holder; unless a notifier has been faster.
    ///
    /// # Safety
    ///
    /// `node` was put into this list, and is alive.
    pub(super) unsafe fn cancel(&self, node: NonNull<Node>) {
        let mut list = self.list.lock();
        // SAFETY: `node` is alive, by the contract of this function.
        let at = unsafe { node.as_ref() };
        if !list.holds(at) {
            return;
        }
        // SAFETY: the node is in this list, as `holds` has returned true.
        let unlinked = unsafe { list.unlink(at) };
        at.cancelled.set(true);
        list.uncount(1);
        drop(list);
        unlinked.wake();
    }

    fn notify_first(&self) {
        let mut list = self.list.lock();
        let Some(first) = list.pop() else { return };
        list.uncount(1);
        drop(list);
        first.wake();
    }

    fn notify_every_ticket(&self) {
        let mut list = self.list.lock();
        let mut nodes = std::mem::replace(&mut list.nodes, list::List::new());
        list.broadcasts += 1;
        let n = std::mem::take(&mut list.len);
        list.uncount(n);
        drop(list);
        let mut batch = ReadyBatch::new();
        // A node that is not notified yet is alive.
        while let Some(node) = nodes.pop().map(|node| Unlinked(NonNull::from(node))) {
            if let Some(g) = node.notify() {
                // SAFETY: the holder has parked, and this is the only `ready` for that park: see `Unlinked`. `batch` is
                // dropped below, and this loop neither runs user code nor waits before that.
                let waker = unsafe { batch.mark_ready(g) };
                assert!(waker.is_none(), "no task waits here");
            }
        }
    }
}

/// A node that a call has taken out of its list, and that the call must notify, or that the node's holder has taken out.
///
/// Only the functions that take a node out make an `Unlinked`: one for each node. The holder keeps a node that it has not
/// taken out itself until the node is notified. So the node is alive as long as the value exists.
struct Unlinked(NonNull<Node>);

impl Unlinked {
    /// Marks the node as notified. If its holder has parked, returns the holder's G, which the caller must ready.
    #[inline]
    fn notify(self) -> Option<*const G> {
        let node = self.0.as_ptr();
        // SAFETY: the node is alive until it is notified.
        let state: *const AtomicU32 = unsafe { &raw const (*node).state };
        // The Release lets the holder see the notifier's earlier writes after the notification. The Acquire lets the
        // notifier see the holder's `g`, if the holder has parked. A parked holder does not change the state any more, and
        // need not read it.
        // SAFETY: `state` is a field of the node, which is alive until it is notified; if the holder has not parked, the
        // exchange is the last access.
        let parked = unsafe {
            (*state).load(Ordering::Acquire) == PARKED
                || (*state).compare_exchange(LISTED, NOTIFIED, Ordering::Release, Ordering::Acquire).is_err()
        };
        // SAFETY: a parked holder waits for the `ready`, so the node and its `g` are alive.
        parked.then(|| unsafe { (*node).g.get() })
    }

    /// Notifies the node's holder.
    #[inline]
    fn wake(self) {
        if let Some(g) = self.notify() {
            // SAFETY: the holder has parked, and this is the only `ready` for that park.
            unsafe { G::ready(g) };
        }
    }
}

impl List {
    /// Returns true if a node that was put into the list is still in the list: not unlinked, and not taken by a
    /// broadcast.
    fn holds(&self, node: &Node) -> bool {
        node.listed.get() && node.broadcasts.get() == self.broadcasts
    }

    /// Appends a node to this list.
    ///
    /// # Safety
    ///
    /// - `node` is in no list.
    /// - `node` stays alive and in place for as long as it is linked into this list, or into a list that a broadcast
    ///   has taken.
    unsafe fn push(&mut self, node: &Node) {
        self.len += 1;
        node.broadcasts.set(self.broadcasts);
        // SAFETY: the caller keeps the contract of `push`. The list's lock is held during each use of the list, and a
        // broadcast uses the list that it has taken alone.
        unsafe { self.nodes.push_back(node) };
    }

    /// Takes the first node out of this list.
    fn pop(&mut self) -> Option<Unlinked> {
        let first = self.nodes.pop()?;
        first.listed.set(false);
        self.len -= 1;
        Some(Unlinked(NonNull::from(first)))
    }

    /// Takes a node out of this list.
    ///
    /// # Safety
    ///
    /// `node` is in this list.
    unsafe fn unlink(&mut self, node: &Node) -> Unlinked {
        // SAFETY: `node` is in this list, by the contract of this function.
        unsafe { self.nodes.remove(node) };
        self.len -= 1;
        node.listed.set(false);
        Unlinked(NonNull::from(node))
    }
}

impl Ticket<'_> {
    /// Waits for a notification, or until the deadline. Returns true if notified. Go: `notifyListWait`.
    ///
    /// There is no spurious return. After a wait has returned, further calls return the same result at once.
    #[inline]
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        self.wait_limited(&WaitLimit { deadline, cancel: None }).is_ok()
    }

    /// Waits for a notification, or until the [`WaitLimit`].
    ///
    /// There is no spurious return. After a wait has returned, further calls return the same result at once.
    ///
    /// # Errors
    ///
    /// Returns the limit that came first. No notification has been or will be given to this ticket.
    #[inline]
    pub fn wait_limited(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        if let Some(over) = self.over.get() {
            return over;
        }
        let over = if limit.cancel.is_some() { self.cancellable_wait(limit) } else { self.sleep(limit.deadline) };
        self.over.set(Some(over));
        over
    }

    /// Passes the notification that has ended the wait to the next ticket, if that notification was a signal: for a
    /// holder that will not act on the signal.
    #[cold]
    pub fn pass_on(&self) {
        // Do not pass on a broadcast: a broadcast notified all tickets.
        if self.over.get() == Some(Ok(())) && !self.node.listed.get() {
            self.list.notify_one();
        }
    }

    #[cold]
    fn cancellable_wait(&self, limit: &WaitLimit<'_>) -> Result<(), WaitError> {
        // SAFETY: the node was put into that list, and into no other.
        let entry = limit.cancel.map(|cancel| unsafe { cancel.ticket_registration(self.list, self.node) });
        let entry = pin!(entry);
        if let Some(entry) = entry.as_ref().as_pin_ref()
            && !entry.enter()
            && self.leave()
        {
            return Err(WaitError::Cancelled);
        }
        self.sleep(limit.deadline)?;
        // The G that unlinked the node has readied this G, so the writes of that G are visible here.
        if self.node.cancelled.get() { Err(WaitError::Cancelled) } else { Ok(()) }
    }

    #[inline]
    fn sleep(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let g = G::current();
        self.node.g.set(&raw const g);
        // The Release lets a notifier that reads PARKED see `g`. The Acquire lets a holder that was notified see the
        // notifier's earlier writes.
        if self.node.state.compare_exchange(LISTED, PARKED, Ordering::Release, Ordering::Acquire).is_err() {
            return Ok(());
        }
        match g.park_queued(deadline, || (), || self.leave()) {
            ParkResult::Unparked => Ok(()),
            ParkResult::TimedOut => Err(WaitError::TimedOut),
        }
    }

    /// Unlinks the node. Returns false if a notifier has already unlinked or taken it.
    fn leave(&self) -> bool {
        let mut list = self.list.list.lock();
        let listed = list.holds(self.node);
        if listed {
            // SAFETY: the node is in this list, as `holds` has returned true: no notifier has unlinked it, or has taken
            // the list into which it was put.
            _ = unsafe { list.unlink(self.node) };
            list.uncount(1);
        }
        listed
    }

    /// Takes the node out of the list. If a signal has come for this ticket, whose holder has not waited, passes that
    /// signal on.
    #[cold]
    fn give_up(&self) {
        if !self.leave() {
            // Use Acquire: after this load the notifier's use of the node has ended.
            while self.node.state.load(Ordering::Acquire) != NOTIFIED {
                shim::yield_now();
            }
            // Do not pass on a broadcast, which notified all tickets, nor a cancel, which was no signal.
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

    /// Each ticket is uncounted at its end: otherwise each notification of an empty list would take the lock.
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
