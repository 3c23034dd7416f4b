//! To hang on a channel until a partner comes, or none can come.

use std::pin::pin;
use std::sync::Arc;

use sudog_runtime::sema::{CancelledWait, WaitLimit};
use sudog_runtime::shim::mark;
use sudog_runtime::{G, ParkResult};

use crate::channel::{Channel, Hung, Listed, Locked};
use crate::error::Failed;
use crate::list::{Dir, Place, Waiter};
use crate::set::Set;

/// Hangs until a partner has moved the value out of `slot`, or into it: then returns `Ok`.
///
/// # Safety
///
/// - `locked` is the lock of `channel`, from a `Met::Nobody` for `dir`.
/// - `slot` is the caller's own. To write, it has a value, which after `Ok` is gone, and after `Err` is still the caller's.
///   To read, it has room, and after `Ok` a value.
pub(crate) unsafe fn hang(
    channel: &Arc<Channel>,
    locked: Locked<'_>,
    dir: Dir,
    slot: *mut (),
    limit: &WaitLimit<'_>,
) -> Result<(), Failed> {
    let g = G::current();
    let limited = limit.deadline.is_some() || limit.cancel.is_some();
    let waiter = Waiter::new(&raw const g, slot, limited, Arc::as_ptr(channel), Set::of_caller());
    // SAFETY:
    // - `waiter` is new, so no list has it. This function returns only after the waiter has left its lists (`leave`), or
    //   after another G has taken it out and readied `g` (`park`). `g` and `slot` live as long, and so does the caller's set;
    // - `waiter` names `channel`, whose lock is `locked`, by the contract;
    // - `locked` is from a `Met::Nobody` for `dir`, by the contract.
    let listed = match unsafe { locked.hang(dir, &waiter) } {
        Hung::Listed(listed) => listed,
        Hung::Last(hanging) => {
            mark("a fibre that would hang is the last");
            hanging.wake();
            return Err(Failed::Reclaimed);
        }
        Hung::SetIsClosed => return Err(Failed::Reclaimed),
    };
    // SAFETY: a note without a holder.
    unsafe { sudog_runtime::note_wait(if dir == Dir::Read { "csp read" } else { "csp write" }, std::ptr::null()) };
    let left = match limit.cancel {
        None => park(channel, &waiter, &g, limit, listed),
        Some(_) => park_cancellable(channel, &waiter, &g, limit, listed),
    };
    if let Some(why) = left {
        return Err(why);
    }
    if waiter.place.get() == Place::Met {
        Ok(())
    } else {
        mark("a fibre that hangs is reclaimed");
        Err(Failed::Reclaimed)
    }
}

/// Waits until the waiter is in no list, and has been readied unless it has left by itself. Returns why it has left.
fn park(channel: &Channel, waiter: &Waiter, g: &G, limit: &WaitLimit<'_>, listed: Listed<'_>) -> Option<Failed> {
    // A partner or the end of the set may have taken the waiter, and then still uses this frame.
    let leave = || {
        // SAFETY: `waiter` is alive, and was put into this channel's list.
        let left = unsafe { channel.leave(waiter) };
        mark(if left { "a fibre leaves at its deadline" } else { "a fibre is met at its deadline" });
        left
    };
    match g.park_queued_spinning(limit.deadline, || listed.unlock(), leave) {
        ParkResult::Unparked => None,
        ParkResult::TimedOut => Some(Failed::TimedOut),
    }
}

/// [`park`], which a cancel ends too.
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
    // Register once the list has the waiter: a cancel finds it there, or is found by `enter`. Unlock before: a cancel holds
    // its own lock when it takes the channel's. A `ready` that comes before the `park` ends that.
    listed.unlock();
    // SAFETY:
    // - both outlive this frame;
    // - a cancel readies the waiter that it takes out, and this function waits for that;
    // - `waiter` is this wait's; the entry is pinned here, entered once below, and the newest until it is dropped.
    let entry = pin!(unsafe { cancel.registration_of(&wait, g) });
    if !entry.as_ref().enter() {
        // SAFETY: `waiter` is alive, and was put into this channel's list.
        if unsafe { channel.leave(waiter) } {
            mark("a cancel comes before the wait");
            return Some(Failed::Cancelled);
        }
        mark("a fibre is met when the cancel has come");
        g.park(None, || ());
        return None;
    }
    // The lock is not held any more: the waiter may be taken while this looks at the deadline, and then waits again.
    // SAFETY: `waiter` is alive, and was put into this channel's list.
    let leave = || unsafe { channel.leave(waiter) };
    if g.park_queued_spinning(limit.deadline, || (), leave) == ParkResult::TimedOut {
        return Some(Failed::TimedOut);
    }
    // Met; or reclaimed with the set; or out of the list by the cancel. A dead channel has no waiter with a limit.
    if waiter.place.get() == Place::Nowhere {
        mark("a cancel ends a wait");
        return Some(Failed::Cancelled);
    }
    None
}

/// A fibre in the list, for a cancel.
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
