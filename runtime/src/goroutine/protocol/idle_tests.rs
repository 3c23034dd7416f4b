//! Models of the idle protocol: sleepers and wakers, the end of searches, naps, and rest.

use super::*;
use crate::model::thread;
use crate::shim::reached::{SLEEPS, TIME_IS_UP, WOKEN_BEFORE, during, mark, must_reach};
use loom::sync::Arc;

// The states that a sleeper can come to.
const FINDS_WORK: &str = "a sleeper finds work when it looks once more";
const FINDS_WORK_UNLISTED: &str = "it finds work, but a waker has taken it off the list";
const SLEPT: &str = "a sleeper is woken from its sleep";
const WOKEN_IN_TIME: &str = "a waker takes a sleeper off the list before it sleeps";
const TO_SEARCH: &str = "a sleeper is woken to search";
const TO_SEARCH_IN_ABORT: &str = "a sleeper that finds work is to search";

/// A queue of work, as the number of pieces that are left.
struct Queue(AtomicU32);

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(0)))
    }

    fn take(&self) -> bool {
        let mut n = self.0.load(Ordering::Acquire);
        while n > 0 {
            match self.0.compare_exchange(n, n - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => n = now,
            }
        }
        false
    }
}

/// Runs `model` in every interleaving with at most `preemptions` preemptions. Panics if one of `states` is reached
/// in no interleaving.
fn check(preemptions: usize, states: &[&'static str], model: impl Fn() + Send + Sync + 'static) {
    must_reach(states, || {
        crate::model::explore(preemptions, model);
    });
}

/// Does the sleeper's steps 2 and 3.
fn look_and_sleep(idle: &Idle, queue: &Queue, sleeper: &Sleeper, searched: bool) -> Woken {
    if queue.0.load(Ordering::Relaxed) > 0 {
        let (woken, seen) = during(|| idle.abort(sleeper, searched));
        let unlisted = seen.has(SLEEPS) || seen.has(WOKEN_BEFORE);
        mark(if unlisted { FINDS_WORK_UNLISTED } else { FINDS_WORK });
        if woken == Woken::ToSearch {
            mark(TO_SEARCH_IN_ABORT);
        }
        return woken;
    }
    sleep(idle, sleeper)
}

fn sleep(idle: &Idle, sleeper: &Sleeper) -> Woken {
    let (woken, seen) = during(|| idle.sleep(sleeper, None));
    mark(match (woken, seen.has(SLEEPS), seen.has(WOKEN_BEFORE)) {
        (Woken::ToSearch, ..) => TO_SEARCH,
        (_, true, _) => SLEPT,
        (_, false, _) => WOKEN_IN_TIME,
    });
    woken
}

/// Tests that a worker does not sleep for ever while there is work for that worker.
#[test]
fn a_wake_up_for_one_worker_is_not_lost() {
    check(4, &[FINDS_WORK, FINDS_WORK_UNLISTED, SLEPT, WOKEN_IN_TIME], || {
        let (idle, queue) = (Arc::new(Idle::new()), Queue::new());
        let sleeper = Arc::new(Sleeper::new());
        idle.join();
        let waker = {
            let (idle, queue, sleeper) = (idle.clone(), queue.clone(), sleeper.clone());
            thread::spawn(move || {
                queue.0.fetch_add(1, Ordering::Relaxed);
                idle.wake(&sleeper);
            })
        };
        while !queue.take() {
            idle.prepare(&sleeper, false, true, false);
            look_and_sleep(&idle, &queue, &sleeper, false);
            assert!(!sleeper.is_asleep(), "an unpark of an earlier sleep");
        }
        waker.join().unwrap();
        assert_eq!(idle.awake(), 1);
        assert_eq!(idle.sleeping.load(Ordering::Relaxed), 0);
    });
}

/// A sleep whose deadline has always passed runs against a waker: every unpark is consumed by a park, and the
/// counts are right in the end.
#[test]
fn the_clock_against_a_waker() {
    const BY_CLOCK: &str = "the clock wakes it";
    const BY_WAKER: &str = "a waker takes it off the list before it sleeps";
    const BY_BOTH: &str = "the time is up, but a waker was faster";
    check(4, &[BY_CLOCK, BY_WAKER, BY_BOTH], || {
        let idle = Arc::new(Idle::new());
        let sleeper = Arc::new(Sleeper::new());
        idle.join();
        let waker = {
            let (idle, sleeper) = (idle.clone(), sleeper.clone());
            thread::spawn(move || idle.wake(&sleeper))
        };
        for _ in 0..2 {
            idle.prepare(&sleeper, true, true, false);
            let (woken, seen) = during(|| idle.sleep(&sleeper, Some(Instant::now())));
            mark(match (woken, seen.has(TIME_IS_UP)) {
                (Woken::ByClock, _) => BY_CLOCK,
                (_, false) => BY_WAKER,
                (_, true) => BY_BOTH,
            });
            assert!(!sleeper.is_asleep(), "an unpark of an earlier sleep");
        }
        waker.join().unwrap();
        idle.if_quiescent(|| panic!("awake"));
        idle.leave();
        let mut at_rest = false;
        idle.if_quiescent(|| at_rest = true);
        assert!(at_rest, "nobody is awake, and no timer counts");
    });
}

/// The deadlock report finds a scheduler at rest only when all work has been done: no work is queued, or under way
/// on a worker that counts as asleep.
#[test]
fn nothing_is_under_way_at_rest() {
    const BEFORE: &str = "the scheduler is not at rest";
    const AFTER: &str = "the scheduler is at rest, and its work is done";
    check(3, &[FINDS_WORK, FINDS_WORK_UNLISTED, SLEPT, BEFORE, AFTER], || {
        let (idle, queue, done) = (Arc::new(Idle::new()), Queue::new(), Arc::new(AtomicBool::new(false)));
        let sleeper = Arc::new(Sleeper::new());
        idle.external_begins();
        idle.join();
        let source = {
            let (idle, queue, sleeper) = (idle.clone(), queue.clone(), sleeper.clone());
            thread::spawn(move || {
                queue.0.fetch_add(1, Ordering::Relaxed);
                idle.wake(&sleeper);
                idle.external_ends();
            })
        };
        let watcher = {
            let (idle, done) = (idle.clone(), done.clone());
            thread::spawn(move || {
                let mut seen = BEFORE;
                idle.if_quiescent(|| {
                    assert!(done.load(Ordering::Relaxed), "a deadlock is reported, and there is none");
                    seen = AFTER;
                });
                mark(seen);
            })
        };
        while !queue.take() {
            idle.prepare(&sleeper, false, true, false);
            look_and_sleep(&idle, &queue, &sleeper, false);
        }
        done.store(true, Ordering::Relaxed);
        // Sleep for a moment: the time is always up in a model.
        idle.prepare(&sleeper, false, true, false);
        idle.sleep(&sleeper, Some(Instant::now()));
        source.join().unwrap();
        watcher.join().unwrap();
    });
}

/// A source outside of the scheduler queues work and then ends. The bubble's clock does not jump past that work.
#[test]
fn what_ends_outside_has_left_its_work() {
    const STILL_OUTSIDE: &str = "a source outside is left";
    const ITS_WORK: &str = "it has ended, and its work is found";
    check(3, &[STILL_OUTSIDE, ITS_WORK], || {
        let (idle, queue) = (Arc::new(Idle::new()), Queue::new());
        idle.external_begins();
        let source = {
            let (idle, queue) = (idle.clone(), queue.clone());
            thread::spawn(move || {
                queue.0.fetch_add(1, Ordering::Relaxed);
                idle.external_ends();
            })
        };
        match idle.left(|| queue.0.load(Ordering::Relaxed) > 0) {
            Left::Outside => mark(STILL_OUTSIDE),
            Left::Work => mark(ITS_WORK),
            Left::Nothing => panic!("the clock jumps, though there is work"),
        }
        source.join().unwrap();
    });
}

/// Two wakers at once wake one searcher: the searcher will wake the next worker, if there is work for the next.
/// Workers that do their own work only are not woken.
#[test]
fn a_burst_of_wakers_wakes_one() {
    const BEFORE: &str = "the second waker comes when the first is through";
    const BETWEEN: &str = "the second waker comes while the first is at it";
    check(4, &[BEFORE, BETWEEN], || {
        let idle = Arc::new(Idle::new());
        let sleepers = [true, true, false].map(|any| {
            let sleeper = Sleeper::new();
            idle.join();
            (sleeper, any)
        });
        for (sleeper, any) in &sleepers {
            idle.prepare(sleeper, false, *any, false);
        }
        // An atomic of `std`, not of loom: in the model this atomic orders nothing.
        let through = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let waker = {
            let (idle, through) = (idle.clone(), through.clone());
            thread::spawn(move || {
                assert_eq!(idle.wake_any(), Wanted::Nobody);
                through.store(true, Ordering::Relaxed);
            })
        };
        let before = through.load(Ordering::Relaxed);
        assert_eq!(idle.wake_any(), Wanted::Nobody);
        let after = through.load(Ordering::Relaxed);
        mark(if before || !after { BEFORE } else { BETWEEN });
        waker.join().unwrap();
        assert_eq!(idle.searching.load(Ordering::Relaxed), 1);
        assert_eq!(idle.sleeping.load(Ordering::Relaxed), 1);
        assert_eq!(sleepers.each_ref().map(|(sleeper, _)| sleeper.is_asleep()), [true, false, true]);
        assert_eq!(idle.abort(&sleepers[1].0, false), Woken::ToSearch);
        assert!(!idle.end_search() || idle.wake_any() == Wanted::Nobody);
        assert_eq!(idle.abort(&sleepers[0].0, false), Woken::ToSearch);
        assert!(idle.end_search());
        // The third worker does its own work only.
        assert_eq!(idle.wake_any(), Wanted::AnotherWorker);
        assert_eq!(idle.abort(&sleepers[2].0, false), Woken::ForWork);
        assert_eq!(idle.awake(), 3);
    });
}

/// Fresh work does not end a nap, but the worker looks for that work after the nap. (In a model the time of a nap
/// is always over.)
#[test]
fn fresh_work_of_a_nap_is_found_after_it() {
    const IN_A_NAP: &str = "fresh work comes during a nap";
    const WAKES: &str = "fresh work comes after the nap, and wakes the worker";
    const SEEN: &str = "fresh work is seen before the worker sleeps";
    check(4, &[IN_A_NAP, WAKES, SEEN], || {
        let (idle, queue) = (Arc::new(Idle::new()), Queue::new());
        let sleeper = Sleeper::new();
        idle.join();
        idle.begin_search();
        idle.prepare_nap(&sleeper, false);
        let maker = {
            let (idle, queue) = (idle.clone(), queue.clone());
            thread::spawn(move || {
                queue.0.fetch_add(1, Ordering::Relaxed);
                if idle.wake_any_for_fresh() == Wanted::Nobody && idle.napping.load(Ordering::Relaxed) > 0 {
                    mark(IN_A_NAP);
                }
            })
        };
        assert_eq!(idle.sleep(&sleeper, Some(Instant::now())), Woken::ToSearch);
        while !queue.take() {
            idle.prepare(&sleeper, false, true, true);
            if queue.0.load(Ordering::Relaxed) > 0 {
                mark(SEEN);
                assert_eq!(idle.abort(&sleeper, true), Woken::ToSearch);
            } else {
                assert_eq!(idle.sleep(&sleeper, None), Woken::ToSearch);
                mark(WAKES);
            }
        }
        _ = idle.end_search();
        maker.join().unwrap();
        let counts = [&idle.napping, &idle.searching, &idle.sleeping].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [0; 3]);
    });
}

#[test]
fn a_nap_ends_by_any_work_that_is_not_fresh() {
    crate::model::explore_all(|| {
        let (idle, sleeper) = (Idle::new(), Sleeper::new());
        idle.join();
        for wake in [|idle, _| Idle::wake_any(idle), |idle, sleeper| (Idle::wake(idle, sleeper), Wanted::Nobody).1] {
            idle.begin_search();
            idle.prepare_nap(&sleeper, false);
            assert_eq!(idle.wake_any_for_fresh(), Wanted::Nobody);
            assert!(sleeper.is_asleep());
            assert_eq!(wake(&idle, &sleeper), Wanted::Nobody);
            assert!(!sleeper.is_asleep());
            assert_eq!(idle.wake_any(), Wanted::Nobody, "it searches");
            assert_eq!(idle.abort(&sleeper, true), Woken::ToSearch);
            assert!(idle.end_search());
        }
        assert_eq!(idle.wake_any_for_fresh(), Wanted::AnotherWorker);
    });
}

/// Work of the worker's own ends a nap: another worker looks for the work that has come meanwhile, though no worker
/// was woken for that work.
#[test]
fn a_worker_that_naps_and_is_busy_then_wakes_another() {
    const LEFT_TO_THE_NAP: &str = "fresh work wakes nobody, because of the nap";
    const ANOTHER: &str = "the worker that napped wakes another";
    check(2, &[LEFT_TO_THE_NAP, ANOTHER, TO_SEARCH], || {
        let (idle, queue) = (Arc::new(Idle::new()), Queue::new());
        let napping = Arc::new(Sleeper::new());
        idle.join();
        idle.join();
        idle.begin_search();
        idle.prepare_nap(&napping, false);
        let other = {
            let (idle, queue) = (idle.clone(), queue.clone());
            thread::spawn(move || {
                let (other, mut searching) = (Sleeper::new(), false);
                while !queue.take() {
                    idle.prepare(&other, false, true, searching);
                    searching = look_and_sleep(&idle, &queue, &other, searching) == Woken::ToSearch;
                }
                if searching {
                    _ = idle.end_search();
                }
            })
        };
        let maker = {
            let (idle, queue) = (idle.clone(), queue.clone());
            thread::spawn(move || {
                queue.0.fetch_add(1, Ordering::Relaxed);
                if idle.wake_any_for_fresh() == Wanted::Nobody && idle.searching.load(Ordering::Relaxed) == 0 {
                    mark(LEFT_TO_THE_NAP);
                }
            })
        };
        let waker = {
            let (idle, napping) = (idle.clone(), napping.clone());
            thread::spawn(move || idle.wake(&napping))
        };
        assert_eq!(sleep(&idle, &napping), Woken::ToSearch);
        if idle.end_search() && idle.wake_any() == Wanted::Nobody {
            mark(ANOTHER);
        }
        for thread in [other, maker, waker] {
            thread.join().unwrap();
        }
    });
}

/// A worker searches, and finds work of its own when it looks once more: another worker looks for the work that was
/// made during the search, though no worker was woken for that work.
#[test]
fn a_searcher_that_finds_its_own_work_wakes_another() {
    const LEFT_TO_THE_SEARCHER: &str = "work wakes nobody, because of the searcher";
    const ANOTHER: &str = "the searcher has work of its own, and wakes another";
    const TAKES_IT: &str = "the searcher takes the work";
    check(2, &[LEFT_TO_THE_SEARCHER, ANOTHER, TAKES_IT, TO_SEARCH, TO_SEARCH_IN_ABORT], || {
        let (idle, queue, own) = (Arc::new(Idle::new()), Queue::new(), Queue::new());
        let searcher = Arc::new(Sleeper::new());
        idle.join();
        idle.join();
        idle.begin_search();
        let other = {
            let (idle, queue) = (idle.clone(), queue.clone());
            thread::spawn(move || {
                let (other, mut woken) = (Sleeper::new(), Woken::ForWork);
                while !queue.take() {
                    idle.prepare(&other, false, true, woken == Woken::ToSearch);
                    woken = look_and_sleep(&idle, &queue, &other, woken == Woken::ToSearch);
                }
            })
        };
        let maker = {
            let (idle, queue) = (idle.clone(), queue.clone());
            thread::spawn(move || {
                queue.0.fetch_add(1, Ordering::Relaxed);
                if idle.wake_any() == Wanted::Nobody {
                    mark(LEFT_TO_THE_SEARCHER);
                }
            })
        };
        let waker = {
            let (idle, own, searcher) = (idle.clone(), own.clone(), searcher.clone());
            thread::spawn(move || {
                own.0.fetch_add(1, Ordering::Relaxed);
                idle.wake(&searcher);
            })
        };
        let mut searching = true;
        while !own.take() {
            if queue.take() {
                mark(TAKES_IT);
                if std::mem::take(&mut searching) {
                    _ = idle.end_search();
                }
                // The other worker waits for a piece of work.
                queue.0.fetch_add(1, Ordering::Relaxed);
                idle.wake_any();
                break;
            }
            idle.prepare(&searcher, false, true, searching);
            let woken = if own.0.load(Ordering::Relaxed) > 0 {
                idle.abort(&searcher, searching)
            } else {
                look_and_sleep(&idle, &queue, &searcher, searching)
            };
            searching = woken == Woken::ToSearch;
        }
        // From here on the searcher is busy.
        if searching && idle.end_search() && idle.wake_any() == Wanted::Nobody {
            mark(ANOTHER);
        }
        for thread in [other, maker, waker] {
            thread.join().unwrap();
        }
    });
}

/// A worker that may do work of its own only learns when the worker may do any work, whatever step of the sleep the
/// worker is in.
#[test]
fn a_worker_that_is_taken_out_is_let_in_again() {
    const KNOWS: &str = "the worker knows when it goes to sleep";
    const LOOKS_AGAIN: &str = "the worker learns of it when it looks once more";
    const WOKEN: &str = "the worker is woken";
    check(4, &[KNOWS, LOOKS_AGAIN, WOKEN], || {
        let (idle, enabled) = (Arc::new(Idle::new()), Arc::new(AtomicBool::new(false)));
        idle.join();
        let setter = {
            let (idle, enabled) = (idle.clone(), enabled.clone());
            thread::spawn(move || {
                enabled.store(true, Ordering::Relaxed);
                idle.wake_own_only();
                assert_eq!(idle.awake(), 1);
            })
        };
        let sleeper = Sleeper::new();
        let is_enabled = || enabled.load(Ordering::Relaxed);
        loop {
            if is_enabled() {
                mark(KNOWS);
                break;
            }
            idle.prepare(&sleeper, false, false, false);
            if is_enabled() {
                mark(LOOKS_AGAIN);
                assert_eq!(idle.abort(&sleeper, false), Woken::ForWork);
                break;
            }
            assert_eq!(idle.sleep(&sleeper, None), Woken::ForWork);
            mark(WOKEN);
        }
        setter.join().unwrap();
    });
}

/// A searcher that finds work and was the last searcher wakes another worker: two pieces of work, of which each
/// keeps its worker until the other has begun, are both begun.
#[test]
fn where_one_piece_of_work_was_there_may_be_more() {
    const ANOTHER: &str = "the last searcher has found work, and wakes another";
    check(3, &[FINDS_WORK, FINDS_WORK_UNLISTED, TO_SEARCH, ANOTHER], || {
        let (idle, queue) = (Arc::new(Idle::new()), Queue::new());
        let begun = Arc::new(AtomicU32::new(0));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                idle.join();
                let (idle, queue, begun) = (idle.clone(), queue.clone(), begun.clone());
                thread::spawn(move || {
                    let sleeper = Sleeper::new();
                    let mut searching = false;
                    while !queue.take() {
                        idle.prepare(&sleeper, false, true, searching);
                        let woken = look_and_sleep(&idle, &queue, &sleeper, searching);
                        searching = woken == Woken::ToSearch;
                    }
                    if searching && idle.end_search() && idle.wake_any() == Wanted::Nobody {
                        mark(ANOTHER);
                    }
                    begun.fetch_add(1, Ordering::Relaxed);
                    while begun.load(Ordering::Relaxed) < 2 {
                        thread::yield_now();
                    }
                })
            })
            .collect();
        queue.0.fetch_add(2, Ordering::Relaxed);
        idle.wake_any();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}
