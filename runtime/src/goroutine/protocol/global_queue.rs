//! The work that any worker of a scheduler may do: work that found no room in a ring, or came from outside.
//!
//! A lock guards the queue. `len` is a hint, read without the lock. The protocol in
//! [`idle`](crate::goroutine::protocol::idle) ensures that no wake-up is lost.

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;

use crate::goroutine::protocol::runq::BATCH;
use crate::shim::{AtomicUsize, Mutex, Ordering};

/// The queue: see the top of this file.
pub(crate) struct GlobalQueue<W> {
    works: CachePadded<Mutex<VecDeque<W>>>,
    /// The number of queued works. Written under the lock, read without the lock.
    len: CachePadded<AtomicUsize>,
}

impl<W> GlobalQueue<W> {
    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        let works = CachePadded::new(Mutex::new(VecDeque::new()));
        Self { works, len: CachePadded::new(AtomicUsize::new(0)) }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        let works = CachePadded::new(Mutex::new(VecDeque::new()));
        Self { works, len: CachePadded::new(AtomicUsize::new(0)) }
    }

    /// Queues works, from any thread.
    pub(crate) fn push(&self, new: impl IntoIterator<Item = W>) {
        let mut works = self.works.lock();
        works.extend(new);
        self.len.store(works.len(), Ordering::Relaxed);
    }

    /// Returns whether the queue is empty. A hint: the look takes no lock.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Returns the number of queued works. A hint, as `is_empty` is.
    #[cfg(feature = "metrics")]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Takes the share of one of `workers` workers: at least one piece of work, if there is any, and at most `most`.
    pub(crate) fn pop(&self, most: usize, workers: usize) -> impl Iterator<Item = W> + use<W> {
        let mut works = self.works.lock();
        let share = (works.len() / workers.max(1) + 1).min(most).min(works.len());
        let mut out = [const { None }; BATCH];
        for place in &mut out[..share] {
            *place = works.pop_front();
        }
        self.len.store(works.len(), Ordering::Relaxed);
        drop(works);
        out.into_iter().map_while(|work| work)
    }
}
