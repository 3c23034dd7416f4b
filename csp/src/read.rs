//! Reading.

use std::mem::MaybeUninit;

use sudog_runtime::Instant;
use sudog_runtime::sema::WaitLimit;

use crate::channel::Met;
use crate::end::End;
use crate::error::{Failed, Reclaimed};
use crate::hang::hang;
use crate::list::Dir;

impl<T> End<T> {
    /// Reads a value; hangs until there is a writer. The reader goes on, and the writer is queued on its own worker.
    ///
    /// # Errors
    ///
    /// If no writer can come: the channel is dead, and each further operation on it fails likewise; or the caller is a fibre
    /// of an [`ActiveSet`](crate::ActiveSet) that has been dropped, and no writer is there. A fibre is to return then. One
    /// that swallows the error just goes on.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::csp::{Reclaimed, make_channel};
    ///
    /// let [mut ours, theirs] = make_channel::<u32, 2>();
    /// drop(theirs);
    /// assert_eq!(ours.read(), Err(Reclaimed)); // no other end is left; and this is a thread
    /// ```
    pub fn read(&mut self) -> Result<T, Reclaimed> {
        self.read_limited(&WaitLimit::default()).map_err(Failed::without_limit)
    }

    /// [`read`](End::read) that gives up at a deadline. Until then its end counts as one that may serve others, as it will
    /// be back: so it keeps a writer that hangs from being reclaimed.
    ///
    /// # Errors
    ///
    /// If the deadline comes first; or as [`read`](End::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use sudog::csp::{Failed, make_channel};
    ///
    /// let [mut end, _another] = make_channel::<u32, 2>();
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(end.read_until(soon), Err(Failed::TimedOut));
    /// ```
    pub fn read_until(&mut self, deadline: Instant) -> Result<T, Failed> {
        self.read_limited(&WaitLimit::until(deadline))
    }

    /// [`read`](End::read) that gives up at a [`WaitLimit`], as [`read_until`](End::read_until) does at a deadline.
    ///
    /// # Errors
    ///
    /// If the limit comes first; or as [`read`](End::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::csp::{Failed, make_channel};
    /// use sudog::runtime::sema::{Cancel, WaitLimit};
    ///
    /// let [mut end, _another] = make_channel::<u32, 2>();
    /// let stop = Cancel::new();
    /// std::thread::scope(|s| {
    ///     s.spawn(|| stop.cancel());
    ///     let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
    ///     assert_eq!(end.read_limited(&limit), Err(Failed::Cancelled));
    /// });
    /// ```
    #[inline]
    pub fn read_limited(&mut self, limit: &WaitLimit<'_>) -> Result<T, Failed> {
        sudog_runtime::safepoint();
        let mut slot = MaybeUninit::<T>::uninit();
        match self.channel.meet(Dir::Read) {
            Met::Partner(writer) => {
                // SAFETY: a writer of this channel has a value of this type in its slot, and believes that it is gone
                // when it has been woken. The lock is not needed: the writer waits for its wake-up.
                let value = unsafe { writer.slot().cast::<T>().read() };
                // SAFETY: taken out here, and not used after. It runs no user code, so the value is not lost.
                unsafe { writer.wake(false) };
                Ok(value)
            }
            Met::Nobody(locked) => {
                // SAFETY: the lock is this channel's; the slot has room, and is used after `Ok` only.
                match unsafe { hang(&self.channel, locked, Dir::Read, slot.as_mut_ptr().cast(), limit) } {
                    // SAFETY: there is a value, after `Ok`.
                    Ok(()) => Ok(unsafe { slot.assume_init() }),
                    Err(why) => Err(why),
                }
            }
            Met::Dead => Err(Failed::Reclaimed),
        }
    }
}
