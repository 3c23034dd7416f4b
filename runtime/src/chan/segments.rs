//! The segments of a channel without a bound: the values behind the first segment, which is in the channel's `Ring`.
//!
//! The channel's lock protects the segments, and a new segment is allocated under that lock. This is rare: a segment has
//! room for many values; a first segment whose values have all been taken is used again; and the last segment that has
//! been emptied is kept. So a queue of a constant length allocates nothing.
//!
//! A global allocator must not use a channel without a bound.

use std::collections::VecDeque;
use std::mem::MaybeUninit;

use super::value::Owned;

/// Slots for [`Segments::LEN`] values.
pub(super) type Segment<T> = Box<[MaybeUninit<T>]>;

/// The segments behind the first segment. Only the last of them has free slots.
pub(super) struct Segments<T> {
    /// The segments, the oldest first. Each has a value.
    filled: VecDeque<Segment<T>>,
    /// The number of values in the last segment.
    last_len: usize,
    /// An empty segment for later use.
    spare: Option<Segment<T>>,
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Self { filled: VecDeque::new(), last_len: 0, spare: None }
    }
}

impl<T> Segments<T> {
    /// The number of values in a segment. crossbeam's blocks have 31 values, and those of tokio 32. Large values have a
    /// segment each, so that the size of a segment cannot overflow: a panic would leave the channel locked.
    const LEN: usize = if size_of::<T>() < 1 << 16 { 32 } else { 1 };

    pub(super) fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    /// Returns an empty segment.
    pub(super) fn segment(&mut self) -> Segment<T> {
        self.spare.take().unwrap_or_else(|| Box::new_uninit_slice(Self::LEN))
    }

    /// Keeps an empty segment for later use, unless there is one already.
    pub(super) fn keep(&mut self, segment: Segment<T>) {
        self.spare.get_or_insert(segment);
    }

    /// Moves a value to the end of the last segment, or to a new segment.
    pub(super) fn push(&mut self, value: Owned<'_, T>) {
        if self.filled.is_empty() || self.last_len == Self::LEN {
            let segment = self.segment();
            self.filled.push_back(segment);
            self.last_len = 0;
        }
        let last = self.filled.back_mut().expect("the last segment has a free slot");
        value.move_to(&mut last[self.last_len]).leave();
        self.last_len += 1;
    }

    /// Takes the first of these segments, and returns its number of values.
    pub(super) fn pop(&mut self) -> Option<(Segment<T>, usize)> {
        let segment = self.filled.pop_front()?;
        let len = if self.filled.is_empty() { self.last_len } else { Self::LEN };
        Some((segment, len))
    }
}
