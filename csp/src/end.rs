//! The ends of a channel: the handles by which fibres read and write.

use std::cell::Cell;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::channel::Channel;
use crate::list::Dir;

/// An end of a channel, through which a fibre reads and writes: see the [crate].
///
/// An end belongs to a single fibre or thread at a time, and moves between fibres as any value does, even over a
/// channel, or over its own channel. `End` is neither `Sync` nor `Clone`: a second fibre gets another end from
/// [`dup`](End::dup). A read or a write borrows the end mutably, so an end whose fibre hangs cannot be used for
/// anything else. The channel relies on that when it counts its ends.
///
/// # Examples
///
/// ```
/// use sudog::csp::{End, make_channel};
///
/// let [mut ours, mut theirs] = make_channel::<u32, 2>();
/// let reader = std::thread::spawn(move || theirs.read());
/// ours.write(5).unwrap();
/// assert_eq!(reader.join().unwrap(), Ok(5));
/// ```
pub struct End<T> {
    pub(crate) channel: Arc<Channel>,
    /// The value that a writer has given to a [`ReadFuture`](crate::ReadFuture) of this end, if that future was dropped
    /// before a poll: for the next read of this end. In a box, as `T` may contain an `End<T>`. The cell keeps `End` from
    /// being `Sync`.
    pub(crate) unread: Cell<Option<Box<T>>>,
}

// A panic in user code leaves the channel consistent.
impl<T> UnwindSafe for End<T> {}
impl<T> RefUnwindSafe for End<T> {}

/// Makes a channel, and returns the channel's `N` ends.
///
/// The text of the source (see the [crate]) says that its `make_channel` returns several ends, but that function
/// returns a single end.
///
/// # Examples
///
/// ```
/// use sudog::csp::make_channel;
///
/// let [reader, writer, spare] = make_channel::<String, 3>();
/// # drop((reader, writer, spare));
/// ```
#[must_use]
pub fn make_channel<T, const N: usize>() -> [End<T>; N] {
    let channel = Arc::new(Channel::new(N));
    std::array::from_fn(|_| End::new(channel.clone()))
}

/// Makes a channel, and returns the channel's `n` ends.
///
/// # Examples
///
/// ```
/// let ends = sudog::csp::make_ends::<u32>(5);
/// assert_eq!(ends.len(), 5);
/// ```
#[must_use]
pub fn make_ends<T>(n: usize) -> Vec<End<T>> {
    let channel = Arc::new(Channel::new(n));
    (0..n).map(|_| End::new(channel.clone())).collect()
}

impl<T> End<T> {
    fn new(channel: Arc<Channel>) -> Self {
        Self { channel, unread: Cell::new(None) }
    }

    /// Makes another end of the same channel. If the channel is dead, the new end is dead too.
    ///
    /// # Examples
    ///
    /// ```
    /// # let [end] = sudog::csp::make_channel::<u32, 1>();
    /// let another = end.dup();
    /// # drop(another);
    /// ```
    #[must_use]
    pub fn dup(&self) -> Self {
        self.channel.add_end();
        Self::new(self.channel.clone())
    }

    /// Returns whether both are ends of the same channel.
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.channel, &other.channel)
    }

    /// Returns whether the channel is dead: no partner can ever come, and each read and write fails.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.channel.is_dead()
    }

    /// Returns the number of fibres that hang on the channel to read.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.hanging(Dir::Read)
    }

    /// Returns the number of fibres that hang on the channel to write.
    #[must_use]
    pub fn writers(&self) -> usize {
        self.hanging(Dir::Write)
    }

    fn hanging(&self, dir: Dir) -> usize {
        let (there, len, _) = self.channel.look();
        if there == Some(dir) { len } else { 0 }
    }
}

impl<T> Drop for End<T> {
    /// Makes the channel dead, if this is the last end through which a partner could come. Each fibre that hangs gets
    /// [`Reclaimed`](crate::Reclaimed), on its own worker when its turn comes, not in this call.
    fn drop(&mut self) {
        if let Some(hanging) = self.channel.drop_end() {
            hanging.wake(&self.channel);
        }
    }
}

impl<T> fmt::Debug for End<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dir, len, count) = self.channel.look();
        let of = |kind| if dir == Some(kind) { len } else { 0 };
        f.debug_struct("End")
            .field("readers", &of(Dir::Read))
            .field("writers", &of(Dir::Write))
            .field("count", &count)
            .finish()
    }
}
