//! Goroutines that have not begun and that must begin on one worker: other threads have placed them there by
//! [`Placement::Worker`](crate::goroutine::Placement), or to spread a family (`sched/spread.rs`).
//!
//! | step | by | |
//! |---|---|---|
//! | `push` | any thread | queues work; the first push since the last `note_read` also sends the owner a note |
//! | `take` | the owner, when it finds the note in its inbox | |
//!
//! A lock guards all works. The lock costs little: placing is rare, and starts a goroutine anyway.
//!
//! The note is a link in the owner's inbox. The owner empties the inbox before each choice: so placed work waits no
//! longer than a readied goroutine does. The note is sent under the lock, as a second pusher relies on the note that
//! the first pusher sends.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};

use crate::goroutine::protocol::inbox::{Free, Inbox, Link};
use crate::shim::{AtomicU32, Mutex, Ordering};

/// The work placed on one worker: see the top of this file.
pub(crate) struct PinnedWork<W> {
    state: Mutex<State<W>>,
    /// The number of works, as a hint. Written under the lock, read without the lock.
    len: AtomicU32,
    note: Link,
}

struct State<W> {
    works: VecDeque<W>,
    /// True if the note is in the inbox, or has been taken from the inbox and not been read yet.
    noted: bool,
}

impl<W> State<W> {
    const fn new() -> Self {
        Self { works: VecDeque::new(), noted: false }
    }
}

// SAFETY: the thread that has set `noted` owns the note until that thread has pushed the note; then the inbox owns the
// note. The works are under the lock.
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

    /// Places work. The caller then wakes the owner of `inbox`.
    ///
    /// # Safety
    ///
    /// `self` is alive until `inbox` has been emptied for the last time.
    pub(crate) unsafe fn push(&self, work: W, inbox: &Inbox) {
        let mut state = self.state.lock();
        state.works.push_back(work);
        self.len.store(state.works.len() as u32, Ordering::Relaxed);
        if !std::mem::replace(&mut state.noted, true) {
            // SAFETY: `note` is alive, by the contract of `push`; and in no inbox, as `noted` was false and this call
            // has set `noted`.
            inbox.push(unsafe { Free::new(NonNull::from(&self.note)) });
        }
    }

    /// Returns whether a link of the owner's inbox is the note.
    #[inline]
    pub(crate) fn is_note(&self, link: *const Link) -> bool {
        ptr::eq(link, &self.note)
    }

    /// Allows the note to be sent again, as the inbox has given the note back. Called by the owner before it takes
    /// work.
    pub(crate) fn note_read(&self) {
        self.state.lock().noted = false;
    }

    pub(crate) fn take(&self) -> Option<W> {
        let mut state = self.state.lock();
        let work = state.works.pop_front();
        self.len.store(state.works.len() as u32, Ordering::Relaxed);
        work
    }

    /// Returns the number of works, now or a moment ago.
    #[cfg(not(sudog_loom))]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --lib pinned`
#[cfg(all(test, sudog_loom))]
mod models {
    use super::*;
    use crate::goroutine::protocol::idle::{Idle, Sleeper};
    use crate::model::thread;
    use crate::shim::reached::{mark, must_reach};
    use loom::sync::Arc;

    struct World {
        placed: PinnedWork<u32>,
        inbox: Inbox,
        idle: Idle,
        sleeper: Sleeper,
    }

    /// Two threads place work on a worker that looks for work only when it has read a note, and sleeps while there is
    /// no note.
    #[test]
    fn placed_work_is_found() {
        const ONE_NOTE: &str = "one note stands for both pieces of work";
        const TWO_NOTES: &str = "each piece of work has a note";
        must_reach(&[ONE_NOTE, TWO_NOTES], || {
            crate::model::explore(3, || {
                let (placed, inbox, sleeper) = (PinnedWork::new(), Inbox::new(), Sleeper::new());
                let world = Arc::new(World { placed, inbox, idle: Idle::new(), sleeper });
                world.idle.join();
                let pushers = [10, 20].map(|work| {
                    let world = world.clone();
                    thread::spawn(move || {
                        // SAFETY: `placed` is alive to the end of the model.
                        unsafe { world.placed.push(work, &world.inbox) };
                        world.idle.wake(&world.sleeper);
                    })
                });
                let (mut got, mut notes) = (Vec::new(), 0);
                while got.len() < 2 {
                    for link in world.inbox.take_all() {
                        assert!(world.placed.is_note(link));
                        notes += 1;
                        world.placed.note_read();
                        got.extend(std::iter::from_fn(|| world.placed.take()));
                    }
                    if got.len() == 2 {
                        break;
                    }
                    world.idle.prepare(&world.sleeper, false, true, false);
                    if world.inbox.is_empty() {
                        world.idle.sleep(&world.sleeper, None);
                    } else {
                        world.idle.abort(&world.sleeper, false);
                    }
                }
                mark(if notes == 1 { ONE_NOTE } else { TWO_NOTES });
                got.sort_unstable();
                assert_eq!(got, [10, 20]);
                pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            });
        });
    }
}
