//! Tests of the group's internals: models, and misuse that a test from outside could bring about only by luck.

use super::*;

#[cfg(not(sudog_loom))]
mod misuse {
    use super::*;

    /// Returns a group whose word counts tasks, and waiters that are in no queue.
    fn group(counter: i32, waiters: u32) -> WaitGroup {
        let group = WaitGroup::new();
        group.state.add(counter, Relaxed);
        for _ in 0..waiters {
            let state = group.state.load(Relaxed);
            assert!(group.state.compare_exchange(state, state.add_waiter(), Relaxed, Relaxed).is_ok());
        }
        group
    }

    #[test]
    #[should_panic = "sync: WaitGroup misuse: Add called concurrently with Wait"]
    fn an_add_from_zero_with_waiters() {
        group(0, 1).add(2);
    }

    #[test]
    #[should_panic = "sync: WaitGroup misuse: Add called concurrently with Wait"]
    fn an_add_while_the_waiters_are_taken_off() {
        group(1, 1).add_slow(State::OVER.add_waiter(), -1);
    }

    #[test]
    fn an_add_with_waiters_and_tasks_is_no_misuse() {
        let group = group(1, 1);
        group.add(2);
        assert_eq!(format!("{group:?}"), "WaitGroup { counter: 3, waiters: 1 }");
    }

    #[test]
    #[should_panic = "sync: negative WaitGroup counter"]
    fn an_overflow() {
        let group = group(i32::MAX, 0);
        group.add(1);
    }
}

#[cfg(sudog_loom)]
mod model {
    //! Every interleaving, on loom's memory model, up to a bound of preemptions. A lost wake-up shows as a deadlock. A
    //! wait that returns too early shows as a data race in loom's cell.

    use loom::cell::Cell;
    use loom::sync::Arc;
    use sudog_runtime::model::thread;
    use sudog_runtime::reached::{
        AT_ONCE, SLEEPS, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, WOKEN_BEFORE, mark, must_reach, waiting,
    };

    use super::*;

    const IN_TIME: &str = "a wait with a deadline sees the end";
    const GIVES_UP: &str = "a wait with a deadline gives up";

    struct World {
        group: WaitGroup,
        /// Loom reports accesses to a cell that overlap: that is the test.
        tasks: [Cell<u32>; 2],
    }

    impl World {
        fn task(&self, which: usize) {
            let task = &self.tasks[which];
            task.set(task.get() + 1);
            self.group.done();
        }

        fn wait(&self) {
            waiting(|| self.group.wait());
            self.look();
        }

        fn look(&self) {
            for task in &self.tasks {
                assert_eq!(task.get(), 1);
            }
        }
    }

    /// Waits until a deadline, which in a model passes as soon as the wait has begun. Marks whether the wait saw the
    /// end.
    fn hasty_wait(w: &World) {
        let (in_time, _) = waiting(|| w.group.wait_limited(std::time::Duration::from_secs(1)).is_ok());
        mark(if in_time { IN_TIME } else { GIVES_UP });
        if in_time {
            w.look();
        }
    }

    fn explore(preemptions: usize, states: &[&'static str], model: impl Fn(Arc<World>) + Sync + Send + 'static) {
        let run = move || {
            sudog_runtime::model::set_clock(0);
            let world = Arc::new(World { group: WaitGroup::new(), tasks: [Cell::new(0), Cell::new(0)] });
            world.group.add(2);
            model(world.clone());
            assert!(world.group.state.load(Relaxed) == State::OVER);
            assert_eq!(world.group.permits.load(Relaxed), 0, "a permit was left behind");
            assert!(world.group.first.load(Relaxed).is_null(), "the place of the first was not emptied");
        };
        must_reach(states, || sudog_runtime::model::explore(preemptions, run));
    }

    fn spawn(world: &Arc<World>, f: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
        let world = world.clone();
        thread::spawn(move || f(&world))
    }

    #[test]
    fn a_wait_sees_what_two_tasks_did() {
        explore(4, &[AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
            let tasks = [spawn(&w, |w| w.task(0)), spawn(&w, |w| w.task(1))];
            w.wait();
            tasks.into_iter().for_each(|t| t.join().unwrap());
        });
    }

    #[test]
    fn two_waits_and_a_done() {
        explore(3, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, TWO_SLEEP], |w| {
            w.task(0);
            let waits = [spawn(&w, World::wait), spawn(&w, World::wait)];
            w.task(1);
            waits.into_iter().for_each(|t| t.join().unwrap());
        });
    }

    #[test]
    fn a_round_after_a_round() {
        explore(3, &[AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
            let other = spawn(&w, |w| {
                w.task(0);
                w.task(1);
            });
            w.wait();
            other.join().unwrap();
            w.group.add(1);
            let other = spawn(&w, |w| w.group.done());
            waiting(|| w.group.wait());
            other.join().unwrap();
        });
    }

    /// Polls a wait at most `polls` times, and drops the future. Marks whether the wait saw the end.
    fn polled_wait(w: &World, polls: usize) {
        use std::task::{Context, Waker};
        let mut wait = std::pin::pin!(w.group.wait_async());
        let cx = &mut Context::from_waker(Waker::noop());
        if (0..polls).any(|_| wait.as_mut().poll(cx).is_ready()) {
            mark(IN_TIME);
            w.look();
        } else {
            mark(DROPPED);
        }
    }

    const DROPPED: &str = "a future is dropped while it waits";

    #[test]
    fn a_wait_that_is_dropped_leaves_nothing_behind() {
        explore(3, &[IN_TIME, DROPPED, SLEEPS], |w| {
            w.task(0);
            let waits = [spawn(&w, World::wait), spawn(&w, |w| polled_wait(w, 2))];
            w.task(1);
            waits.into_iter().for_each(|t| t.join().unwrap());
        });
        explore(3, &[IN_TIME, DROPPED, AT_ONCE, SLEEPS], |w| {
            let tasks = [spawn(&w, |w| w.task(0)), spawn(&w, |w| w.task(1))];
            polled_wait(&w, 2);
            w.wait();
            tasks.into_iter().for_each(|t| t.join().unwrap());
        });
    }

    #[test]
    fn a_deadline_leaves_nothing_behind() {
        explore(3, &[IN_TIME, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, SLEEPS, TWO_SLEEP], |w| {
            w.task(0);
            let waits = [spawn(&w, World::wait), spawn(&w, hasty_wait)];
            w.task(1);
            waits.into_iter().for_each(|t| t.join().unwrap());
        });
        explore(3, &[IN_TIME, GIVES_UP, TIME_IS_UP, TOO_LATE_AND_WOKEN, AT_ONCE, SLEEPS], |w| {
            let tasks = [spawn(&w, |w| w.task(0)), spawn(&w, |w| w.task(1))];
            hasty_wait(&w);
            w.wait();
            tasks.into_iter().for_each(|t| t.join().unwrap());
        });
    }
}
