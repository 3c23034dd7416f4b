//! Reading from an end.

use std::mem::MaybeUninit;

use sudog_runtime::sema::{IntoLimit, WaitLimit};

use crate::channel::Met;
use crate::end::End;
use crate::error::{Failed, Reclaimed, limited};
use crate::hang::{Ended, hang};
use crate::list::Dir;

impl<T> End<T> {
    /// Reads a value. Hangs until there is a writer. After the transfer the reader goes on, and the writer is queued on
    /// its own worker.
    ///
    /// # Errors
    ///
    /// If no writer can come. Either the channel is dead, and each further operation on the channel fails likewise. Or
    /// there is no writer now, and the caller is a fibre of an [`ActiveSet`](crate::ActiveSet) that has been dropped.
    /// The fibre should return then. A fibre that ignores the error just goes on.
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
        self.read_within(&WaitLimit::default()).map_err(Failed::without_limit)
    }

    /// Reads as [`read`](End::read) does, but gives up at a limit: see [`IntoLimit`]. Until then the reader's end counts
    /// as an end that may serve others, because the reader will come back. So a hanging writer is not reclaimed
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// If the limit comes first, and in the cases of [`read`](End::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::csp::{Failed, make_channel};
    /// use sudog::{Cancel, WaitError};
    ///
    /// let [mut end, _another] = make_channel::<u32, 2>();
    /// let late = end.read_limited(Duration::from_millis(1));
    /// assert_eq!(late, Err(Failed::GaveUp(WaitError::TimedOut)));
    /// let stop = Cancel::new();
    /// std::thread::scope(|s| {
    ///     s.spawn(|| stop.cancel());
    ///     assert_eq!(end.read_limited(&stop), Err(Failed::GaveUp(WaitError::Cancelled)));
    /// });
    /// ```
    pub fn read_limited<L: IntoLimit>(&mut self, limit: L) -> Result<T, Failed<L::Error>> {
        limited(limit, |limit| self.read_within(limit))
    }

    #[inline]
    fn read_within(&mut self, limit: &WaitLimit<'_>) -> Result<T, Failed> {
        sudog_runtime::safepoint();
        if let Some(value) = self.unread.get_mut().take() {
            return Ok(*value);
        }
        let mut slot = MaybeUninit::<T>::uninit();
        match self.channel.meet(Dir::Read) {
            // SAFETY: `writer` was taken out of this end's channel here, for a read, and is not used afterwards.
            Met::Partner(writer) => Ok(unsafe { writer.take_value() }),
            Met::Nobody(locked) => {
                // SAFETY: `locked` is the lock of this channel, from a `meet` for reading that found no partner. The
                // slot has room for a value, and is read after `Met` only.
                match unsafe { hang(&self.channel, locked, Dir::Read, slot.as_mut_ptr().cast(), limit) } {
                    // SAFETY: after `Met` the slot has a value, by the contract of `hang`.
                    Ended::Met => Ok(unsafe { slot.assume_init() }),
                    Ended::Failed(why) => Err(why),
                    Ended::Last(others) => {
                        others.wake(&self.channel);
                        Err(Failed::Reclaimed)
                    }
                }
            }
            Met::Dead => Err(Failed::Reclaimed),
        }
    }
}
