//! Reading.

use std::mem::MaybeUninit;

use sudog_runtime::Instant;
use sudog_runtime::sema::WaitLimit;

use crate::channel::Met;
use crate::end::End;
use crate::error::{Failed, Reclaimed};
use crate::hang::{Fate, begin, hang};
use crate::list::Dir;

impl<T> End<T> {
    /// Reads a value; hangs until there is a writer. The reader goes on, and the writer is queued on its own worker.
    ///
    /// # Errors
    ///
    /// If no writer can come: then a fibre ends, as by `goexit`, and this does not return. It returns, with an error,
    /// to a thread; to a fibre that cannot be unwound here; and in a destructor of a fibre that ends, where it does not
    /// hang at all.
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
        self.read_for_long(Fate::Ends)
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
    pub fn read_limited(&mut self, limit: &WaitLimit<'_>) -> Result<T, Failed> {
        self.read_by(limit, Fate::Ends)
    }

    /// [`read`](End::read) by a fibre that is told when it is reclaimed, as a thread is, and goes on. It is to return
    /// then: for the others that is as good as being unwound, and takes a tenth of the time.
    ///
    /// # Errors
    ///
    /// If no writer can come.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use sudog::csp::make_channel;
    /// use sudog::{run_local, spawn};
    ///
    /// run_local(|| {
    ///     let [mut ours, mut theirs] = make_channel::<u32, 2>();
    ///     let sum = spawn(move || {
    ///         let mut sum = 0;
    ///         while let Ok(n) = theirs.read_or_err() {
    ///             sum += n;
    ///         }
    ///         sum
    ///     });
    ///     (1..=4).for_each(|n| ours.write(n).unwrap());
    ///     drop(ours);
    ///     assert_eq!(sum.join().unwrap(), 10);
    /// });
    /// # }
    /// ```
    pub fn read_or_err(&mut self) -> Result<T, Reclaimed> {
        self.read_for_long(Fate::IsTold)
    }

    fn read_for_long(&mut self, fate: Fate) -> Result<T, Reclaimed> {
        self.read_by(&WaitLimit::default(), fate).map_err(|why| {
            debug_assert_eq!(why, Failed::Reclaimed, "no deadline was set");
            Reclaimed
        })
    }

    fn read_by(&mut self, limit: &WaitLimit<'_>, fate: Fate) -> Result<T, Failed> {
        begin()?;
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
                match unsafe { hang(&self.channel, locked, Dir::Read, slot.as_mut_ptr(), limit) } {
                    // SAFETY: there is a value, after `Ok`.
                    Ok(()) => Ok(unsafe { slot.assume_init() }),
                    Err(why) => Err(fate.after(why)),
                }
            }
            Met::Dead => Err(fate.befall().into()),
        }
    }
}
