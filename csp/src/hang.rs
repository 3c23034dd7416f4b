//! To hang on a channel until a partner comes, or none can come; and the end of a fibre for which none can.

use std::pin::pin;

use sudog_runtime::panics::Panics;
use sudog_runtime::sema::{CancelledWait, WaitLimit};
use sudog_runtime::shim::mark;
use sudog_runtime::{G, ParkResult, goroutine};

use crate::channel::{Channel, Locked};
use crate::error::{Failed, Reclaimed};
use crate::list::{Dir, Place, Waiter};

/// The beginning of each operation: a fibre that has swallowed its end gets it again.
#[inline]
pub(crate) fn begin() -> Result<(), Reclaimed> {
    sudog_runtime::safepoint();
    if goroutine::is_condemned() && !goroutine::is_ending() { Err(end_caller()) } else { Ok(()) }
}

/// What becomes of a fibre for which no partner can come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is unwound, if it can be here.
    Ends,
    /// It is told, as a thread is.
    IsTold,
}

impl Fate {
    /// No partner can come. No lock is held.
    #[cold]
    pub(crate) fn befall(self) -> Reclaimed {
        if self == Self::Ends {
            end_caller();
        }
        Reclaimed
    }

    /// The end of a wait that has failed, for whatever reason.
    #[cold]
    pub(crate) fn after(self, why: Failed) -> Failed {
        match why {
            Failed::Reclaimed => self.befall().into(),
            Failed::TimedOut | Failed::Cancelled => why,
        }
    }
}

/// A fibre that can be unwound here is; the others, and threads, are told.
#[cold]
fn end_caller() -> Reclaimed {
    goroutine::condemn();
    Reclaimed
}

/// Hangs until a partner has moved the value out of `slot`, or into it: then `Ok`. If a fibre is unwound here, the value
/// that is its own is dropped.
///
/// # Safety
///
/// - `locked` is the lock of `channel`, from a `Met::Nobody` for `dir`.
/// - `slot` is the caller's own: to write, it has a value, which after `Ok` is gone, and after `Err` is the caller's still;
///   to read, it has room, and after `Ok` a value.
/// - If this unwinds, the caller does not use `slot` any more.
pub(crate) unsafe fn hang<T>(
    channel: &Channel,
    locked: Locked<'_>,
    dir: Dir,
    slot: *mut T,
    limit: &WaitLimit<'_>,
) -> Result<(), Failed> {
    if goroutine::is_ending() {
        // A destructor of a fibre that ends. Should it hang, its worker would wait with it, and perhaps for ever.
        drop(locked);
        return Err(Failed::Reclaimed);
    }
    let g = G::current();
    let waiter = Waiter::new(&raw const g, slot.cast(), limit.deadline.is_some() || limit.cancel.is_some());
    // Made before the waiter is listed: what it needs is there if anything below unwinds.
    // SAFETY:
    // - it is new;
    // - this frame is not left while it is listed, or taken and not readied: by a return, below; by a panic, by `Waiting`.
    //   G and slot live as long. And by the contract.
    let locked = match unsafe { locked.hang(dir, &waiter) } {
        Ok(locked) => locked,
        Err(hanging) => {
            mark("a fibre that would hang is the last");
            hanging.wake();
            return Err(Failed::Reclaimed);
        }
    };
    // SAFETY: a note without a holder.
    unsafe { sudog_runtime::note_wait(if dir == Dir::Read { "csp read" } else { "csp write" }, std::ptr::null()) };
    let waiting = Waiting::<T> { channel, waiter: &waiter, g: &g, dir, slot };
    let left = match limit.cancel {
        None => park(channel, &waiter, &g, limit, locked),
        Some(_) => park_cancellable(channel, &waiter, &g, limit, locked),
    };
    std::mem::forget(waiting);
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

/// Waits until the waiter is in no list, and has been readied if that is not its own doing. If it has left by itself: why.
fn park(channel: &Channel, waiter: &Waiter, g: &G, limit: &WaitLimit<'_>, locked: Locked<'_>) -> Option<Failed> {
    if g.park_spinning(limit.deadline, || drop(locked)) == ParkResult::Unparked {
        return None;
    }
    // SAFETY: put into this channel's list.
    if unsafe { channel.leave(waiter) } {
        mark("a fibre leaves at its deadline");
        return Some(Failed::TimedOut);
    }
    // A partner has taken us, or the cancel has, and will ready us if it has not. Until it has, this frame must stand.
    mark("a fibre is met at its deadline");
    g.park(None, || ());
    None
}

/// [`park`], which a cancel ends too.
#[cold]
fn park_cancellable(
    channel: &Channel,
    waiter: &Waiter,
    g: &G,
    limit: &WaitLimit<'_>,
    locked: Locked<'_>,
) -> Option<Failed> {
    let Some(cancel) = limit.cancel else { return park(channel, waiter, g, limit, locked) };
    let listed = Listed { channel, waiter };
    // Registered when the list has the waiter: a cancel finds it there, or is found by `enter`. Without the lock: a cancel
    // holds its own when it takes the channel's. A `ready` that comes before the `park` ends that.
    drop(locked);
    // SAFETY:
    // - both outlive this frame;
    // - what leaves the list by a cancel is readied by that, and this waits for it;
    // - this is the waiter; the entry is pinned here, entered once below, and the newest until it is dropped.
    let entry = pin!(unsafe { cancel.registration_of(&listed, g) });
    if !entry.as_ref().enter() {
        // SAFETY: put into this channel's list.
        if unsafe { channel.leave(waiter) } {
            mark("a cancel comes before the wait");
            return Some(Failed::Cancelled);
        }
        mark("a fibre is met when the cancel has come");
        g.park(None, || ());
        return None;
    }
    // The lock is not held any more: the waiter may be taken while this looks at the deadline, and then waits again.
    match g.park_spinning(limit.deadline, || ()) {
        ParkResult::Unparked => {}
        // SAFETY: put into this channel's list.
        ParkResult::TimedOut if unsafe { channel.leave(waiter) } => return Some(Failed::TimedOut),
        ParkResult::TimedOut => _ = g.park(None, || ()),
    }
    // Met; or out of the list by the cancel: no other leaves a fibre that is counted.
    if waiter.place.get() == Place::Met {
        return None;
    }
    mark("a cancel ends a wait");
    Some(Failed::Cancelled)
}

/// A fibre in the list, for a cancel.
struct Listed<'a> {
    channel: &'a Channel,
    waiter: &'a Waiter,
}

impl CancelledWait for Listed<'_> {
    fn leave(&self) -> bool {
        // SAFETY: put into this channel's list; alive while the cancel has its entry.
        unsafe { self.channel.leave(self.waiter) }
    }
}

/// A fibre that is unwound while it hangs, as its scheduler is over.
struct Waiting<'a, T> {
    channel: &'a Channel,
    waiter: &'a Waiter,
    g: &'a G,
    dir: Dir,
    slot: *mut T,
}

impl<T> Drop for Waiting<'_, T> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: put into this channel's list.
        if !unsafe { self.channel.leave(self.waiter) } {
            // What has taken it is on another worker, or has finished; it does not wait before it has readied us.
            self.g.await_ready();
        }
        let met = self.waiter.place.get() == Place::Met;
        if met == (self.dir == Dir::Read) {
            // A reader was given a value, or a writer has its value still.
            let mut panics = Panics::default();
            // SAFETY: there is a value, and the caller of `hang` does not use it.
            panics.catch(|| unsafe { self.slot.drop_in_place() });
            panics.resume();
        }
    }
}
