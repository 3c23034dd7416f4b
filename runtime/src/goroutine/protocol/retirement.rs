//! When may a scheduler be used again? Once its owner has done with it, and nothing refers to it any more.
//!
//! | what refers to a scheduler | counted by | counted off by |
//! |---|---|---|
//! | its workers, and threads that are to be workers | [`Idle`](crate::goroutine::protocol::idle::Idle): `workers` | `has_left` |
//! | timers, blocking calls, `KeepAlive` handles, what is about to submit work | `Idle`: `outside` | `external_ends` |
//! | goroutines, and tasks, were they given up, as long as wakers are left | `made` | `ended` |
//!
//! | owner | the end of something |
//! |---|---|
//! | O1: `retired` | E1: counts it off |
//! | O2: full fence | E2: full fence |
//! | O3: looks at the counts | E3: looks at `retired`; if it is set, at the counts |
//!
//! That is a Dekker pair: the owner sees that nothing is left, or the last thing to end sees that the scheduler is
//! retired. Both may: the look is under the lock of the spare ones, and takes `retired` back, so the scheduler becomes
//! spare once.
//!
//! A worker counts on its own, and adds that to `made` and `ended` before it leaves `Idle`. So the look is at `Idle`
//! first, whose lock then shows what all workers have counted. The other way round it may miss what they have made, and
//! find as many ended as made with some of them alive.

use crate::shim::{AtomicBool, AtomicU64, Mutex, Ordering, full_fence};

/// What is to be used again.
pub(crate) struct Spares<T>(Mutex<Vec<T>>);

impl<T> Spares<T> {
    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().pop()
    }

    pub(crate) fn put(&self, it: T) {
        self.0.lock().push(it);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// See the top of this file.
pub(crate) struct Retirement {
    /// Goroutines and tasks that were made, and that have ended, but those that a worker which is there has counted.
    made: AtomicU64,
    ended: AtomicU64,
    retired: AtomicBool,
}

impl Retirement {
    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        Self { made: AtomicU64::new(0), ended: AtomicU64::new(0), retired: AtomicBool::new(false) }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        Self { made: AtomicU64::new(0), ended: AtomicU64::new(0), retired: AtomicBool::new(false) }
    }

    /// For a scheduler that was spare: counts from 0.
    pub(crate) fn start_anew(&self) {
        self.made.store(0, Ordering::Relaxed);
        self.ended.store(0, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, made: u64, ended: u64) {
        self.made.fetch_add(made, Ordering::Relaxed);
        self.ended.fetch_add(ended, Ordering::Relaxed);
    }

    /// Acquire: what this sees of the ends, `made` is not behind.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// The owner of `it` will not use it again, and is no worker of it. `is_unused` looks at `Idle`.
    pub(crate) fn retire<T>(&self, it: T, spares: &Spares<T>, is_unused: impl FnOnce() -> bool) {
        self.retired.store(true, Ordering::Relaxed);
        full_fence();
        self.look(it, spares, is_unused);
    }

    /// Something that referred to `it` has been counted off. If `it` is retired, that may have been the last.
    #[inline]
    pub(crate) fn look_if_retired<T>(&self, it: T, spares: &Spares<T>, is_unused: impl FnOnce() -> bool) {
        full_fence();
        if self.retired.load(Ordering::Relaxed) {
            self.look(it, spares, is_unused);
        }
    }

    #[cold]
    fn look<T>(&self, it: T, spares: &Spares<T>, is_unused: impl FnOnce() -> bool) {
        let mut list = spares.0.lock();
        if self.retired.load(Ordering::Relaxed) && is_unused() && self.made() == self.ended() {
            self.retired.store(false, Ordering::Relaxed);
            list.push(it);
        }
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --lib retirement`
#[cfg(all(test, sudog_loom))]
mod models {
    use super::*;
    use crate::goroutine::protocol::global_queue::GlobalQueue;
    use crate::goroutine::protocol::idle::{Idle, Sleeper, Woken};
    use crate::shim::reached::{mark, must_reach};
    use loom::sync::Arc;
    use loom::thread;
    use std::sync::atomic::{AtomicI32, AtomicU32};

    fn check(states: &[&'static str], model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        must_reach(states, || builder.check(model));
    }

    /// What a scheduler is, as far as its life goes.
    struct Sched {
        idle: Idle,
        queue: GlobalQueue<u32>,
        retirement: Retirement,
        spares: Spares<()>,
        /// `Sched::ends_at_rest`.
        local: AtomicBool,
        /// Not steps of the model: what refers to the scheduler, and how often it has become spare.
        references: AtomicI32,
        spared: AtomicU32,
    }

    impl Sched {
        fn new(references: i32) -> Arc<Self> {
            Arc::new(Self {
                idle: Idle::new(),
                queue: GlobalQueue::new(),
                retirement: Retirement::new(),
                spares: Spares::new(),
                local: AtomicBool::new(false),
                references: AtomicI32::new(references),
                spared: AtomicU32::new(0),
            })
        }

        fn retire(&self) {
            self.retirement.retire((), &self.spares, || self.idle.is_unused());
        }

        fn task_ends(&self) {
            self.unrefer();
            self.retirement.add(0, 1);
            self.retirement.look_if_retired((), &self.spares, || self.idle.is_unused());
        }

        fn external_ends(&self) {
            self.idle.external_ends(self.local.load(Ordering::Relaxed));
            self.retirement.look_if_retired((), &self.spares, || self.idle.is_unused());
        }

        fn unrefer(&self) {
            self.references.fetch_sub(1, Ordering::Relaxed);
        }

        /// By each thread right after what it has done: should that have made the scheduler spare too early, there are
        /// references yet.
        fn take_if_spare(&self) -> bool {
            let spare = self.spares.take().is_some();
            if spare {
                assert_eq!(self.references.load(Ordering::Relaxed), 0, "spare, but referred to");
                self.spared.fetch_add(1, Ordering::Relaxed);
            }
            spare
        }

        /// `Sched::leave`, of a worker that has made and ended so many.
        fn leave(&self, epoch: u64, made: u64, ended: u64) {
            assert!(self.queue.leave(epoch));
            self.retirement.add(made, ended);
            self.idle.leave(false);
            self.unrefer();
            if self.idle.has_left() {
                self.retire();
            }
        }
    }

    fn spawn<T: 'static>(sched: &Arc<Sched>, f: impl FnOnce(&Sched) -> T + 'static) -> thread::JoinHandle<T> {
        let sched = sched.clone();
        thread::spawn(move || f(&sched))
    }

    /// The last worker leaves, while two tasks that it has made, and a timer, end elsewhere.
    #[test]
    fn a_scheduler_becomes_spare_once_and_unreferred() {
        check(&["the worker is the last", "a task is the last", "the timer's task is the last"], || {
            let sched = Sched::new(4);
            sched.idle.join(true);
            sched.queue.join();
            sched.idle.external_begins();
            let sees = |sched: &Sched, state| {
                if sched.take_if_spare() {
                    mark(state);
                }
            };
            let worker = spawn(&sched, move |sched| {
                sched.idle.shut_down();
                sched.leave(1, 3, 1);
                sees(sched, "the worker is the last");
            });
            let task = spawn(&sched, move |sched| {
                sched.task_ends();
                sees(sched, "a task is the last");
            });
            let timer = spawn(&sched, move |sched| {
                sched.unrefer();
                sched.external_ends();
                assert!(!sched.take_if_spare(), "there is a task");
                sched.task_ends();
                sees(sched, "the timer's task is the last");
            });
            for thread in [worker, task, timer] {
                thread.join().unwrap();
            }
            assert_eq!(sched.spared.load(Ordering::Relaxed), 1, "once");
        });
    }

    /// The same, when a timer is the last.
    #[test]
    fn the_end_of_a_timer_makes_a_scheduler_spare() {
        check(&["the worker is the last", "the timer is the last"], || {
            let sched = Sched::new(2);
            sched.idle.join(true);
            sched.queue.join();
            sched.idle.external_begins();
            let worker = spawn(&sched, |sched| {
                sched.idle.shut_down();
                sched.leave(1, 1, 1);
                if sched.take_if_spare() {
                    mark("the worker is the last");
                }
            });
            let timer = spawn(&sched, |sched| {
                sched.unrefer();
                sched.external_ends();
                if sched.take_if_spare() {
                    mark("the timer is the last");
                }
            });
            worker.join().unwrap();
            timer.join().unwrap();
            assert_eq!(sched.spared.load(Ordering::Relaxed), 1, "once");
        });
    }

    /// The main worker ends the scheduler and leaves; a late wake-up starts a worker, perhaps. When all have left the
    /// scheduler is spare, and has its next life, which may be the one that the late worker is in.
    #[test]
    fn a_late_worker_and_the_next_life() {
        check(
            &[
                "the main worker begins the next life",
                "the wake-up is refused",
                "the late worker joins an epoch that is over",
                "the late worker joins the next life",
            ],
            || {
                let sched = Sched::new(1);
                sched.idle.join(true);
                sched.queue.join();
                let live_again = |sched: &Sched| {
                    if !sched.take_if_spare() || sched.spared.load(Ordering::Relaxed) > 1 {
                        return false; // two lives are enough
                    }
                    sched.references.fetch_add(1, Ordering::Relaxed);
                    let epoch = sched.idle.join(true).expect("nobody is leaving");
                    assert_eq!(epoch, 2);
                    sched.queue.join();
                    assert!(sched.queue.submit(7, epoch, || ()).is_ok() && sched.queue.pop(1, 1).eq([7]));
                    sched.idle.shut_down();
                    sched.leave(epoch, 0, 0);
                    true
                };
                let main = spawn(&sched, move |sched| {
                    sched.idle.shut_down();
                    sched.leave(1, 0, 0);
                    if live_again(sched) {
                        mark("the main worker begins the next life");
                    }
                });
                let late = spawn(&sched, move |sched| {
                    let Some((epoch, _)) = sched.idle.expect(2) else {
                        mark("the wake-up is refused");
                        return;
                    };
                    sched.references.fetch_add(1, Ordering::Relaxed);
                    sched.idle.join_late();
                    sched.queue.join();
                    if sched.idle.is_over(epoch) {
                        mark("the late worker joins an epoch that is over");
                    } else {
                        let sleeper = Sleeper::new();
                        sleeper.epoch.set(epoch);
                        sched.idle.prepare(&sleeper, false, true, false);
                        assert_eq!(sched.idle.sleep(&sleeper, None, false), Woken::Over);
                        mark("the late worker joins the next life");
                    }
                    sched.leave(epoch, 0, 0);
                    live_again(sched);
                });
                main.join().unwrap();
                late.join().unwrap();
                live_again(&sched);
                sched.take_if_spare();
                assert_eq!(sched.spared.load(Ordering::Relaxed), 2, "once in each life");
                assert!(sched.queue.submit(8, 2, || ()).is_err(), "closed for good");
            },
        );
    }

    /// A late call comes to a scheduler that ends at rest: its work is taken, or comes back; and should the scheduler
    /// have its next life by then, as that of a `run`, it is left alone.
    #[test]
    fn a_late_call_and_the_next_life() {
        check(
            &[
                "the call is refused",
                "the call's work is taken",
                "the call's work comes back",
                "the scheduler has its next life",
            ],
            || {
                let sched = Sched::new(0);
                sched.local.store(true, Ordering::Relaxed);
                sched.idle.join(false);
                sched.queue.join();
                let late = spawn(&sched, |sched| {
                    // As `Sched::submit_late`.
                    if !sched.idle.external_begins_in(1) {
                        return mark("the call is refused");
                    }
                    let submitted = sched.queue.submit(1, 1, || sched.retirement.add(1, 0));
                    mark(if submitted.is_err() { "the call's work comes back" } else { "the call's work is taken" });
                    sched.external_ends();
                    sched.take_if_spare();
                });
                let owner = spawn(&sched, |sched| {
                    // Asleep, as it were, and so at rest unless there is a call; then awake to leave.
                    sched.idle.leave(true);
                    if !sched.idle.is_over(1) {
                        sched.idle.shut_down(); // the call would have, when it ends
                    }
                    let mut ended = 0;
                    while !sched.queue.leave(1) {
                        ended += sched.queue.pop(1, 1).count() as u64;
                    }
                    sched.retirement.add(0, ended);
                    assert!(sched.idle.has_left());
                    sched.retire();
                    sched.take_if_spare().then(|| {
                        mark("the scheduler has its next life");
                        sched.local.store(false, Ordering::Relaxed);
                        let epoch = sched.idle.join(true).expect("nobody is leaving");
                        sched.idle.leave(false); // asleep, as it were
                        epoch
                    })
                });
                late.join().unwrap();
                match owner.join().unwrap() {
                    Some(epoch) => assert!(!sched.idle.is_over(epoch), "ended by a late call"),
                    None => _ = sched.take_if_spare(),
                }
                assert_eq!(sched.spared.load(Ordering::Relaxed), 1, "once");
            },
        );
    }
}
