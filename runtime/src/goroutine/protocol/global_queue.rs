//! The work of a scheduler that any of its workers may do: what found no room in a ring, or came from outside.
//!
//! | step | by | |
//! |---|---|---|
//! | `join` | a worker, as it joins | it may take from now on |
//! | `push` | a worker that has joined | |
//! | `submit` | any thread, for the epoch that it names | refused once that epoch is closed |
//! | `pop` | a worker that has joined | |
//! | `leave` | a worker whose epoch is over | the last one closes the epoch; refused to it while there is work |
//!
//! So each piece of work is taken by a worker, which does it or drops it in a goroutine, or comes back to the thread
//! that submits it: the last worker looks and closes in one step. No worker joins the next epoch before all of this one
//! have left ([`Idle::join`](crate::goroutine::protocol::idle::Idle::join)), so `members` counts those of one epoch. A
//! late worker of an epoch that is closed finds nothing, and closes it again.
//!
//! All of it is under one lock. `len` is for a look in passing; that no wake-up is lost is ensured by
//! [`idle`](crate::goroutine::protocol::idle).

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;

use crate::goroutine::protocol::runq::BATCH;
use crate::shim::{AtomicUsize, Mutex, Ordering};

/// See the top of this file.
pub(crate) struct GlobalQueue<W> {
    state: CachePadded<Mutex<State<W>>>,
    /// How many works there are. Written under the lock.
    len: CachePadded<AtomicUsize>,
}

struct State<W> {
    works: VecDeque<W>,
    /// The workers that may take.
    members: u32,
    /// The last epoch whose work is not taken any more: its last worker has left.
    closed: u64,
}

impl<W> State<W> {
    const fn new() -> Self {
        Self { works: VecDeque::new(), members: 0, closed: 0 }
    }
}

impl<W: Copy> GlobalQueue<W> {
    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        let state = CachePadded::new(Mutex::new(State::new()));
        Self { state, len: CachePadded::new(AtomicUsize::new(0)) }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        let state = CachePadded::new(Mutex::new(State::new()));
        Self { state, len: CachePadded::new(AtomicUsize::new(0)) }
    }

    /// A worker joins.
    pub(crate) fn join(&self) {
        self.state.lock().members += 1;
    }

    /// By a worker that has joined.
    pub(crate) fn push(&self, works: impl IntoIterator<Item = W>) {
        let mut state = self.state.lock();
        state.works.extend(works);
        self.len.store(state.works.len(), Ordering::Relaxed);
    }

    /// Queues work of an epoch, from wherever the caller is, unless it is closed: then the work comes back. `taken` is
    /// run first if it is taken.
    pub(crate) fn submit(&self, work: W, epoch: u64, taken: impl FnOnce()) -> Result<(), W> {
        let mut state = self.state.lock();
        if epoch <= state.closed {
            return Err(work);
        }
        taken();
        state.works.push_back(work);
        self.len.store(state.works.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether there is none, in passing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Takes one worker's share, if there are so many: at least one piece, if there is one, and at most `most`.
    pub(crate) fn pop(&self, most: usize, workers: usize) -> impl Iterator<Item = W> + use<W> {
        let mut state = self.state.lock();
        let works = &mut state.works;
        let share = (works.len() / workers.max(1) + 1).min(most).min(works.len());
        let mut out = [None; BATCH];
        for place in &mut out[..share] {
            *place = works.pop_front();
        }
        self.len.store(works.len(), Ordering::Relaxed);
        drop(state);
        out.into_iter().map_while(|work| work)
    }

    /// A worker of an epoch that is over takes and drops no more work. False if it is the last, and there is some.
    #[must_use]
    pub(crate) fn leave(&self, epoch: u64) -> bool {
        let mut state = self.state.lock();
        if state.members == 1 && !state.works.is_empty() {
            return false;
        }
        state.members -= 1;
        if state.members == 0 {
            state.closed = epoch;
        }
        true
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --lib global_queue`
#[cfg(all(test, sudog_loom))]
mod models {
    use super::*;
    use crate::goroutine::protocol::idle::Idle;
    use crate::shim::reached::{mark, must_reach};
    use loom::sync::Arc;
    use loom::thread;

    fn check(states: &[&'static str], model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        must_reach(states, || builder.check(model));
    }

    /// What a worker of an epoch that is over does, as in `reclaim`: it drops all work, and leaves.
    fn drop_all(queue: &GlobalQueue<u32>, epoch: u64) -> Vec<u32> {
        let mut dropped = Vec::new();
        loop {
            dropped.extend(queue.pop(1, 2));
            if queue.is_empty() && queue.leave(epoch) {
                return dropped;
            }
        }
    }

    /// A worker leaves, another one comes late, to leave, and a thread submits: what it submits is dropped by one of
    /// the workers, or comes back.
    #[test]
    fn late_work_is_dropped_or_comes_back() {
        check(&["all is dropped by workers", "one piece comes back", "both come back"], || {
            let queue = Arc::new(GlobalQueue::new());
            queue.join();
            let workers = [0, 1].map(|late| {
                let queue = queue.clone();
                thread::spawn(move || {
                    if late == 1 {
                        queue.join();
                    }
                    drop_all(&queue, 1)
                })
            });
            let submitter = {
                let queue = queue.clone();
                thread::spawn(move || (0..2).filter(|&work| queue.submit(work, 1, || ()).is_err()).collect::<Vec<_>>())
            };
            let mut all = submitter.join().unwrap();
            match all.len() {
                0 => mark("all is dropped by workers"),
                1 => mark("one piece comes back"),
                _ => mark("both come back"),
            }
            for worker in workers {
                all.extend(worker.join().unwrap());
            }
            all.sort_unstable();
            assert_eq!(all, [0, 1], "each once");
            assert!(queue.is_empty() && queue.submit(2, 1, || ()).is_err(), "closed for good");
        });
    }

    /// The last worker of an epoch leaves, a worker of the next one comes, and a thread submits work for the first: it
    /// is none of the second's, and what that one queues is none of the first's.
    #[test]
    fn no_epoch_has_the_work_of_another() {
        check(
            &["a worker may not join yet", "a worker joins the first epoch", "a worker joins the second epoch"],
            || {
                let (idle, queue) = (Arc::new(Idle::new()), Arc::new(GlobalQueue::new()));
                assert_eq!(idle.join(false), Some(1));
                queue.join();
                let leaves = {
                    let (idle, queue) = (idle.clone(), queue.clone());
                    thread::spawn(move || {
                        idle.shut_down();
                        let dropped = drop_all(&queue, 1);
                        idle.leave(false);
                        _ = idle.has_left();
                        dropped
                    })
                };
                let submitter = {
                    let queue = queue.clone();
                    thread::spawn(move || queue.submit(1, 1, || ()))
                };
                let comes = {
                    let (idle, queue) = (idle.clone(), queue.clone());
                    thread::spawn(move || {
                        let Some(epoch) = idle.join(false) else {
                            mark("a worker may not join yet"); // it would try again
                            return;
                        };
                        if epoch == 1 {
                            mark("a worker joins the first epoch"); // it leaves as the other does; that is the other model
                            return;
                        }
                        mark("a worker joins the second epoch");
                        queue.join();
                        assert!(queue.pop(1, 1).next().is_none(), "of the epoch before");
                        assert!(queue.submit(2, epoch, || ()).is_ok());
                        assert!(queue.pop(2, 1).eq([2]));
                        assert!(queue.leave(epoch));
                    })
                };
                let refused = submitter.join().unwrap().is_err();
                let dropped = leaves.join().unwrap();
                comes.join().unwrap();
                assert_eq!(dropped, if refused { [].as_slice() } else { &[1] });
                assert!(queue.is_empty());
            },
        );
    }
}
