//! Tests of the mutex's state word.

use super::*;

const LOCKED: u32 = State::UNLOCKED.lock().0;
const WAITER: u32 = State::UNLOCKED.register(false, false).0;

#[cfg(not(sudog_loom))]
mod real {
    use super::*;

    #[test]
    fn a_crowd_does_not_run_into_the_flags() {
        fn check<P: Policy>() {
            let mu = GoMutex::<RuntimeSema, P>::const_new();
            let full = LOCKED | (State::MAX_WAITERS * WAITER);
            mu.state.0.store(full, Relaxed);
            assert!(!mu.try_lock_for(Duration::from_millis(5)));
            assert_eq!(mu.state.0.load(Relaxed), full, "the count has no room for one more");
            std::thread::scope(|s| {
                let patient = s.spawn(|| mu.lock());
                mu.state.0.fetch_sub(full, Relaxed); // all others are gone; `patient` keeps WOKEN, if held
                patient.join().unwrap();
            });
            assert!(mu.is_locked());
        }
        check::<crate::mutex::policy::Threads>();
        check::<crate::mutex::policy::Go>();
    }
}

#[cfg(sudog_loom)]
mod model {
    use super::*;
    use crate::mutex::policy::Go;
    use loom::sync::Arc;
    use std::time::Duration;
    use sudog_runtime::model::thread;
    use sudog_runtime::reached::must_reach;

    const STARVING: u32 = State::UNLOCKED.register(false, true).0 & !WAITER;
    const BESIDE: &str = "a waiter unregisters while another accepts the mutex";
    const LEAVES: &str = "a waiter that gives up unregisters";

    /// Tests that a waiter accepts the mutex while another gives up. A model would need more preemptions than it can
    /// explore to reach that state, so the test sets STARVING where a starving waiter might have set it.
    #[test]
    fn one_accepts_while_another_gives_up() {
        let run = || {
            sudog_runtime::model::set_clock(2_000_000); // all have waited too long
            let mu: Arc<GoMutex<RuntimeSema, Go>> = Arc::new(RawLock::new());
            mu.lock();
            let turn = |deadline: Option<Instant>| {
                let mu = mu.clone();
                thread::spawn(move || {
                    if deadline.is_none_or(|d| mu.try_lock_until(d)) {
                        if deadline.is_none() {
                            mu.lock();
                        }
                        mu.unlock();
                    }
                })
            };
            let patient = turn(None);
            let hasty = turn(Some(Instant::now() + Duration::from_secs(1)));
            thread::yield_now();
            let both = LOCKED + 2 * WAITER;
            if mu.state.0.compare_exchange(both, both | STARVING, Relaxed, Relaxed).is_err() {
                loom::skip_branch(); // other models explore that the two have not come this far
            }
            mu.unlock();
            patient.join().unwrap();
            hasty.join().unwrap();
            assert_eq!(mu.state.0.load(Relaxed), 0);
        };
        must_reach(&[BESIDE, LEAVES], || sudog_runtime::model::explore(3, run));
    }
}
