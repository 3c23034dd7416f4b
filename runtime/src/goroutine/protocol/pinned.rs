//! Goroutines that have not begun and asked for one worker: [`Placement::Worker`](crate::goroutine::Placement), from
//! elsewhere.
//!
//! | step | by | |
//! |---|---|---|
//! | `open` | the owner, as it joins a scheduler | |
//! | `push` | a worker of that scheduler, or any thread if it is the background scheduler | refused unless the scheduler is the one it was opened for; the first push since the last `note_read` sends the owner a note |
//! | `take` | the owner, when it finds the note in its inbox | |
//! | `close` | the owner, before it leaves | refused while there is work |
//!
//! So work is taken by the owner, or comes back to the thread that pushes it: none stays behind for a scheduler which
//! the worker joins later. All of it is under one lock: placing is rare, and starts a goroutine anyway.
//!
//! The note is a link in the owner's inbox, which the owner looks at before each choice: so nothing placed waits longer
//! than a wake-up would. It is sent under the lock. A pusher that sent it later might find the owner in another
//! scheduler, in which others count on the note that they take for sent; and it would wake the owner by the wrong
//! scheduler's list.

use std::collections::VecDeque;
use std::ptr;

use crate::goroutine::protocol::inbox::{Inbox, Link};
use crate::shim::{AtomicU32, Mutex, Ordering};

/// The address of a scheduler, which is never freed.
pub(crate) type SchedName = usize;

/// See the top of this file.
pub(crate) struct PinnedWork<W> {
    state: Mutex<State<W>>,
    /// How much work there is: a hint. Written under the lock.
    len: AtomicU32,
    note: Link,
}

struct State<W> {
    /// For which scheduler it is open.
    sched: Option<SchedName>,
    works: VecDeque<W>,
    /// The note is in the inbox, or has been taken from it and not been read yet.
    noted: bool,
}

impl<W> State<W> {
    const fn new() -> Self {
        Self { sched: None, works: VecDeque::new(), noted: false }
    }
}

// SAFETY: the note belongs to the thread that has set `noted`, until it has pushed it; then to the inbox. The works are
// under the lock.
unsafe impl<W: Send> Sync for PinnedWork<W> {}

impl<W> PinnedWork<W> {
    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        Self { state: Mutex::new(State::new()), len: AtomicU32::new(0), note: Link::new() }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::new()), len: AtomicU32::new(0), note: Link::new() }
    }

    pub(crate) fn open(&self, sched: SchedName) {
        self.state.lock().sched = Some(sched);
    }

    /// Places work of this scheduler. The caller wakes the owner, whose inbox it is, as a worker of this scheduler.
    ///
    /// # Safety
    ///
    /// This is alive until the inbox has been emptied for the last time.
    pub(crate) unsafe fn push(&self, sched: SchedName, work: W, inbox: &Inbox) -> Result<(), W> {
        let mut state = self.state.lock();
        if state.sched != Some(sched) {
            return Err(work);
        }
        state.works.push_back(work);
        self.len.store(state.works.len() as u32, Ordering::Relaxed);
        if !std::mem::replace(&mut state.noted, true) {
            // SAFETY: alive, by the contract; and in no inbox, as `noted` was false and we have set it.
            unsafe { inbox.push((&raw const self.note).cast_mut()) };
        }
        Ok(())
    }

    /// Whether a link of the owner's inbox is the note.
    #[inline]
    pub(crate) fn is_note(&self, link: *const Link) -> bool {
        ptr::eq(link, &self.note)
    }

    /// The inbox has given the note back: it may be sent again.
    pub(crate) fn note_read(&self) {
        self.state.lock().noted = false;
    }

    pub(crate) fn take(&self) -> Option<W> {
        let mut state = self.state.lock();
        let work = state.works.pop_front();
        self.len.store(state.works.len() as u32, Ordering::Relaxed);
        work
    }

    /// How much work there is, or was a moment ago.
    #[cfg(not(sudog_loom))]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// False if there is work.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        let mut state = self.state.lock();
        if state.works.is_empty() {
            state.sched = None;
        }
        state.sched.is_none()
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --lib placed`
#[cfg(all(test, sudog_loom))]
mod models {
    use super::*;
    use crate::goroutine::protocol::idle::{Idle, Sleeper};
    use loom::sync::Arc;
    use loom::thread;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A worker: of scheduler 0, then of scheduler 1.
    struct World {
        placed: PinnedWork<u32>,
        inbox: Inbox,
        scheds: [Idle; 2],
        sleeper: Sleeper,
    }

    impl World {
        fn new() -> Arc<Self> {
            let (placed, inbox, sleeper) = (PinnedWork::new(), Inbox::new(), Sleeper::new());
            let scheds = [Idle::new(), Idle::new()];
            for sched in &scheds {
                sched.join(true);
            }
            Arc::new(Self { placed, inbox, scheds, sleeper })
        }

        /// As `Sched::place`.
        fn place(&self, sched: usize, work: u32) -> Result<(), u32> {
            // SAFETY: alive to the end of the model.
            unsafe { self.placed.push(sched, work, &self.inbox) }?;
            self.scheds[sched].wake(&self.sleeper);
            Ok(())
        }

        /// As `take_inbox`.
        fn read_note(&self) -> bool {
            let mut read = false;
            for link in self.inbox.take_all() {
                assert!(self.placed.is_note(link) && !read, "one note");
                read = true;
                self.placed.note_read();
            }
            read
        }

        /// As `reclaim`: what there is is dropped.
        fn leave(&self) -> Vec<u32> {
            let mut dropped = Vec::new();
            loop {
                dropped.extend(self.placed.take());
                if self.placed.close() {
                    break;
                }
            }
            self.read_note();
            assert!(self.inbox.is_empty() && !self.placed.state.lock().noted, "nothing is under way");
            dropped
        }
    }

    /// A thread places work on a worker that leaves its scheduler and joins another one, where a second thread places
    /// work.
    #[test]
    fn what_is_placed_is_taken_in_its_scheduler_or_comes_back() {
        static SEEN: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let world = World::new();
            world.placed.open(0);
            let first = {
                let world = world.clone();
                thread::spawn(move || world.place(0, 10))
            };
            // The owner is this thread, for which the sleeper was made.
            let mut of_the_first = Vec::new();
            if world.read_note() {
                SEEN[0].fetch_add(1, Ordering::Relaxed);
                of_the_first.extend(world.placed.take());
            }
            of_the_first.extend(world.leave());
            world.placed.open(1);
            let second = {
                let world = world.clone();
                thread::spawn(move || world.place(1, 20))
            };
            // It looks for work only when it has read a note, and sleeps while there is none.
            let got = loop {
                if world.read_note()
                    && let Some(work) = world.placed.take()
                {
                    break work;
                }
                world.scheds[1].prepare(&world.sleeper, false, true, false);
                if world.inbox.is_empty() {
                    world.scheds[1].sleep(&world.sleeper, None, false);
                } else {
                    world.scheds[1].abort(&world.sleeper, false);
                }
            };
            assert_eq!(got, 20, "of the scheduler before");
            second.join().unwrap().unwrap();
            assert!(world.leave().is_empty());
            let refused = first.join().unwrap();
            SEEN[1 + usize::from(refused.is_err())].fetch_add(1, Ordering::Relaxed);
            assert_eq!(of_the_first, if refused.is_err() { [].as_slice() } else { &[10] });
        });
        assert!(SEEN.iter().all(|n| n.load(Ordering::Relaxed) > 0), "a state was never reached: {SEEN:?}");
    }
}
