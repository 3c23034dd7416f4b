//! What the mutex's word must come to, seen from within.

use super::*;

#[cfg(not(sudog_loom))]
mod real {
    use super::*;

    #[test]
    fn a_crowd_does_not_run_into_the_flags() {
        fn check<P: Policy>() {
            let mu = GoMutex::<RuntimeSema, P>::unlocked();
            let full = LOCKED | (MAX_WAITERS * WAITER);
            mu.state.store(full, Relaxed);
            assert!(!mu.try_lock_for(Duration::from_millis(5)));
            assert_eq!(mu.state.load(Relaxed), full, "one more than can be counted must not be counted");
            std::thread::scope(|s| {
                let patient = s.spawn(|| mu.lock());
                mu.state.fetch_sub(full, Relaxed); // everybody is gone; if `patient` has W already, it keeps it
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
    use loom::thread;
    use std::time::Duration;
    use sudog_runtime::reached::must_reach;

    const BESIDE: &str = "another gives up while the mutex is accepted";
    const LEAVES: &str = "who gives up leaves";

    /// One accepts what is handed to it while another gives up. To get there by itself a model would need more
    /// preemptions than it can explore, so S is put in where a starving waiter might have set it.
    #[test]
    fn one_accepts_while_another_gives_up() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        let run = || {
            sudog_runtime::model::set_clock(2_000_000); // everybody has waited too long
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
            if mu.state.compare_exchange(both, both | STARVING, Relaxed, Relaxed).is_err() {
                loom::skip_branch(); // the two have not come that far, which other models explore
            }
            mu.unlock();
            patient.join().unwrap();
            hasty.join().unwrap();
            assert_eq!(mu.state.load(Relaxed), 0);
        };
        must_reach(&[BESIDE, LEAVES], || builder.check(run));
    }
}
