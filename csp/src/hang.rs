//! To hang on a channel until a partner comes, or none can come; and the end of a fibre for which none can.

use sudog_runtime::panics::Panics;
use sudog_runtime::shim::mark;
use sudog_runtime::{G, Instant, ParkResult, goroutine};

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
            Failed::TimedOut => why,
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
    deadline: Option<Instant>,
) -> Result<(), Failed> {
    if goroutine::is_ending() {
        // A destructor of a fibre that ends. Should it hang, its worker would wait with it, and perhaps for ever.
        drop(locked);
        return Err(Failed::Reclaimed);
    }
    let g = G::current();
    let waiter = Waiter::new(&raw const g, slot.cast(), deadline.is_some());
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
    if g.park_spinning(deadline, || drop(locked)) == ParkResult::TimedOut {
        // SAFETY: put into this channel's list.
        if unsafe { channel.leave(&waiter) } {
            mark("a fibre leaves at its deadline");
            std::mem::forget(waiting);
            return Err(Failed::TimedOut);
        }
        // A partner has taken us, and will ready us if it has not. Until it has, this frame must stand.
        mark("a fibre is met at its deadline");
        g.park(None, || ());
    }
    std::mem::forget(waiting);
    if waiter.place.get() == Place::Met {
        Ok(())
    } else {
        mark("a fibre that hangs is reclaimed");
        Err(Failed::Reclaimed)
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
