//! The tickets of a queue that were given up before they were granted, as a list of ranges. Adjacent ranges are merged.
//!
//! Positions wrap (`ticket_queue.rs`), so they are compared by their distance from the position of the grants, before
//! which there are no gaps. Callers allocate and free the nodes, outside the lock that protects the list.

/// A list of gaps, in ascending order. No two gaps of the list are adjacent.
pub(super) struct Gaps(Option<Box<Gap>>);

/// A range of given-up positions, from `start` to before `end`.
pub(super) struct Gap {
    pub(super) start: u64,
    pub(super) end: u64,
    next: Gaps,
}

impl Gap {
    #[cold]
    pub(super) fn boxed() -> Box<Self> {
        Box::new(Self { start: 0, end: 0, next: Gaps::NONE })
    }

    pub(super) fn len(&self) -> u64 {
        self.end.wrapping_sub(self.start)
    }
}

impl Gaps {
    pub(super) const NONE: Self = Self(None);

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn first_mut(&mut self) -> Option<&mut Gap> {
        self.0.as_deref_mut()
    }

    pub(super) fn pop_first(&mut self) -> Option<Box<Gap>> {
        let mut first = self.0.take()?;
        *self = std::mem::replace(&mut first.next, Self::NONE);
        Some(first)
    }

    pub(super) fn push_front(&mut self, mut first: Box<Gap>) {
        first.next = std::mem::replace(self, Self::NONE);
        self.0 = Some(first);
    }

    /// Adds a gap that overlaps no gap of the list. `from` is a position that is not behind any gap. Returns the nodes
    /// that are not needed any more.
    pub(super) fn insert(&mut self, mut new: Box<Gap>, from: u64) -> Self {
        let mut spare = Self::NONE;
        let mut at = self;
        while at.0.as_ref().is_some_and(|gap| gap.end.wrapping_sub(from) < new.start.wrapping_sub(from)) {
            at = &mut at.0.as_mut().expect("just seen").next;
        }
        match at.first_mut() {
            Some(gap) if gap.end == new.start => {
                gap.end = new.end;
                spare.push_front(new);
                if gap.next.first_mut().is_some_and(|next| next.start == gap.end) {
                    let joined = gap.next.pop_first().expect("just seen");
                    gap.end = joined.end;
                    spare.push_front(joined);
                }
            }
            Some(gap) if gap.start == new.end => {
                gap.start = new.start;
                spare.push_front(new);
            }
            _ => {
                new.next = std::mem::replace(at, Self::NONE);
                at.0 = Some(new);
            }
        }
        spare
    }

    /// Returns the length of each gap.
    pub(super) fn lengths(&self) -> impl Iterator<Item = u64> {
        std::iter::successors(self.0.as_deref(), |gap| gap.next.0.as_deref()).map(Gap::len)
    }
}

/// Drops the list without recursion: a list may be long.
impl Drop for Gaps {
    fn drop(&mut self) {
        while self.pop_first().is_some() {}
    }
}
