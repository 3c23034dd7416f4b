//! Writing to an end.

use std::mem::ManuallyDrop;

use sudog_runtime::sema::{IntoLimit, WaitLimit};

use crate::channel::Met;
use crate::end::End;
use crate::error::{Failed, Unwritten, limited};
use crate::hang::{Ended, hang};
use crate::list::Dir;

impl<T> End<T> {
    /// Writes a value. Hangs until there is a reader. If a reader of the same worker is waiting, the reader runs first,
    /// and the writer is queued. If the waiting reader belongs to another worker, the writer goes on.
    ///
    /// # Errors
    ///
    /// If no reader can come, under the conditions of [`read`](End::read). The error contains the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::csp::make_channel;
    ///
    /// let [mut ours, theirs] = make_channel::<u32, 2>();
    /// drop(theirs);
    /// assert_eq!(ours.write(7).unwrap_err().value, 7);
    /// ```
    pub fn write(&mut self, value: T) -> Result<(), Unwritten<T>> {
        self.write_within(value, &WaitLimit::default())
            .map_err(|Unwritten { value, why }| Unwritten { value, why: why.without_limit() })
    }

    /// Writes as [`write`](End::write) does, but gives up at a limit: see [`IntoLimit`]. Until then the writer's end
    /// counts as an end that may serve others, as in [`read_limited`](End::read_limited).
    ///
    /// # Errors
    ///
    /// If the limit comes first, and in the cases of [`write`](End::write). The error contains the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::csp::{Failed, make_channel};
    /// use sudog::{Cancel, WaitError};
    ///
    /// let [mut end, _another] = make_channel::<u32, 2>();
    /// let late = end.write_limited(7, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!((late.value, late.why), (7, Failed::GaveUp(WaitError::TimedOut)));
    /// let stop = Cancel::new();
    /// stop.cancel();
    /// assert_eq!(end.write_limited(7, &stop).unwrap_err().why, Failed::GaveUp(WaitError::Cancelled));
    /// ```
    pub fn write_limited<L: IntoLimit>(&mut self, value: T, limit: L) -> Result<(), Unwritten<T, Failed<L::Error>>> {
        let mut unwritten = Some(value);
        let over = limited(limit, |limit| {
            let value = unwritten.take().expect("a value is written once");
            self.write_within(value, limit).map_err(|Unwritten { value, why }| {
                unwritten = Some(value);
                why
            })
        });
        match (over, unwritten) {
            (Err(why), Some(value)) => Err(Unwritten { value, why }),
            _ => Ok(()), // the value has been written
        }
    }

    #[inline]
    fn write_within(&mut self, value: T, limit: &WaitLimit<'_>) -> Result<(), Unwritten<T, Failed>> {
        sudog_runtime::safepoint();
        match self.channel.meet(Dir::Write) {
            Met::Partner(reader) => {
                // SAFETY: `reader` was taken out of this end's channel here, for a write, and is not used afterwards.
                unsafe { reader.give_value(value) };
                Ok(())
            }
            Met::Nobody(locked) => {
                let mut value = ManuallyDrop::new(value);
                let slot = (&raw mut value).cast();
                // SAFETY: `locked` is the lock of this channel, from a `meet` for writing that found no partner. The
                // slot has a value, which is not used after `Met`.
                match unsafe { hang(&self.channel, locked, Dir::Write, slot, limit) } {
                    Ended::Met => Ok(()),
                    Ended::Failed(why) => Err(Unwritten { value: ManuallyDrop::into_inner(value), why }),
                    Ended::Last(others) => {
                        // If a waker of the others panics, the value is dropped.
                        let value = ManuallyDrop::into_inner(value);
                        others.wake(&self.channel);
                        Err(Unwritten { value, why: Failed::Reclaimed })
                    }
                }
            }
            Met::Dead => Err(Unwritten { value, why: Failed::Reclaimed }),
        }
    }
}
