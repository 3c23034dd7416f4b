//! `hang`: waits on a channel until a partner comes, or until no partner can come.

use std::pin::pin;
use std::sync::Arc;

use sudog_runtime::sema::{CancelledWait, WaitError, WaitLimit};
use sudog_runtime::shim::mark;
use sudog_runtime::{G, ParkResult};

use crate::channel::{Channel, Hanging, Hung, Listed, Locked};
use crate::error::Failed;
use crate::list::{Dir, Place, Waiter};
use crate::set::Set;

/// The result of [`hang`].
pub(crate) enum Ended<'a> {
    /// A partner has moved the value.
    Met,
    Failed(Failed),
    /// The caller's end was the last counted end, so the channel is dead now. The caller must wake the fibres that hang.
    Last(Hanging<'a>),
}

/// Hangs until a partner has moved the value out of `slot`, or into `slot`, and then returns `Met`.
///
/// # Safety
///
/// - `locked` is the lock of `channel`, from the `Met::Nobody` that `meet` returned for `dir`.
/// - `slot` belongs to the caller. For a write, `slot` has a value. After `Met` a reader has moved that value out;
///   otherwise the value still belongs to the caller. For a read, `slot` has room for a value, and has a value after
///   `Met`.
pub(crate) unsafe fn hang<'a>(
    channel: &'a Arc<Channel>,
    locked: Locked<'a>,
    dir: Dir,
    slot: *mut (),
    limit: &WaitLimit<'_>,
) -> Ended<'a> {
    let g = G::current();
    let limited = limit.deadline.is_some() || limit.cancel.is_some();
    let waiter = Waiter::new(&raw const g, slot, limited, Arc::as_ptr(channel), Set::of_caller());
    // SAFETY:
    // - `waiter` is new, so no list contains it. This function returns only after `waiter` has left its lists
    //   (`leave`), or after another G has taken `waiter` out and readied `g` (`park`). `g`, `slot` and the caller's set
    //   live longer than that.
    // - `waiter.channel` points to `channel`, whose lock is `locked`, by the contract of this function.
    // - `locked` is from a `Met::Nobody` for `dir`, by the contract of this function.
    let listed = match unsafe { locked.hang(dir, &waiter) } {
        Hung::Listed(listed) => listed,
        Hung::Last(others) => return Ended::Last(others),
        Hung::SetIsClosed => return Ended::Failed(Failed::Reclaimed),
    };
    sudog_runtime::note_wait_at(if dir == Dir::Read { "csp read" } else { "csp write" }, &**channel);
    let left = match limit.cancel {
        None => park(channel, &waiter, &g, limit, listed),
        Some(_) => park_cancellable(channel, &waiter, &g, limit, listed),
    };
    if let Some(why) = left {
        return Ended::Failed(why);
    }
    if waiter.place.get() == Place::Met {
        Ended::Met
    } else {
        mark("a fibre that hangs is reclaimed");
        Ended::Failed(Failed::Reclaimed)
    }
}

/// Waits until another G has taken the waiter out of its lists and has readied `g`; then returns None. If the deadline
/// comes first, takes the waiter out, and returns the reason.
fn park(channel: &Channel, waiter: &Waiter, g: &G, limit: &WaitLimit<'_>, listed: Listed<'_>) -> Option<Failed> {
    // A partner or the drop of the set may have taken the waiter, and then still uses this frame. Then `leave` returns
    // false, and the G waits for the `ready`.
    let leave = || {
        // SAFETY: `waiter` is alive, and was put into this channel's list.
        let left = unsafe { channel.leave(waiter) };
        mark(if left { "a fibre leaves at its deadline" } else { "a fibre is met at its deadline" });
        left
    };
    match g.park_queued_spinning(limit.deadline, || listed.unlock(), leave) {
        ParkResult::Unparked => None,
        ParkResult::TimedOut => Some(Failed::GaveUp(WaitError::TimedOut)),
    }
}

/// Waits as [`park`] does, until a cancel at the latest.
#[cold]
fn park_cancellable(
    channel: &Channel,
    waiter: &Waiter,
    g: &G,
    limit: &WaitLimit<'_>,
    listed: Listed<'_>,
) -> Option<Failed> {
    let Some(cancel) = limit.cancel else { return park(channel, waiter, g, limit, listed) };
    let wait = CancelListed { channel, waiter };
    // Register after the waiter is listed: either a cancel finds the waiter in the list, or `enter` finds the cancel.
    // Unlock before registering, because a cancel takes the channel's lock while it holds its own lock. If a `ready`
    // comes before the `park` below, that `park` returns at once.
    listed.unlock();
    // SAFETY:
    // - `wait` and `g` outlive `entry`.
    // - A cancel readies the waiter that it takes out, and this function waits for that.
    // - `waiter` belongs to this wait. `entry` is pinned in this frame, entered once, below, and is the newest entry
    //   until the drop.
    let entry = pin!(unsafe { cancel.registration_of(&wait, g) });
    if !entry.as_ref().enter() {
        // SAFETY: `waiter` is alive, and was put into this channel's list.
        if unsafe { channel.leave(waiter) } {
            mark("a cancel comes before the wait");
            return Some(Failed::GaveUp(WaitError::Cancelled));
        }
        mark("a fibre is met when the cancel has come");
        g.park(None, || ());
        return None;
    }
    // The lock is not held any more, so another G may take the waiter while this G looks at the deadline. Then `leave`
    // returns false, and this G waits again, for the `ready`.
    // SAFETY: `waiter` is alive, and was put into this channel's list.
    let leave = || unsafe { channel.leave(waiter) };
    if g.park_queued_spinning(limit.deadline, || (), leave) == ParkResult::TimedOut {
        return Some(Failed::GaveUp(WaitError::TimedOut));
    }
    // The waiter was met by a partner, or reclaimed with its set, or taken out by the cancel. A dead channel has no
    // waiter with a limit.
    if waiter.place.get() == Place::Nowhere {
        mark("a cancel ends a wait");
        return Some(Failed::GaveUp(WaitError::Cancelled));
    }
    None
}

/// A listed waiter, as a cancel sees it.
struct CancelListed<'a> {
    channel: &'a Channel,
    waiter: &'a Waiter,
}

impl CancelledWait for CancelListed<'_> {
    fn leave(&self) -> bool {
        // SAFETY: `waiter` was put into this channel's list, and is alive while the cancel has its entry.
        unsafe { self.channel.leave(self.waiter) }
    }
}
