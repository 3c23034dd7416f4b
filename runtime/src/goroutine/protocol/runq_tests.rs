//! Tests of the ring, without thieves and with thieves: models under loom, and a stress test on the machine.

use super::*;

impl Word for usize {
    fn into_word(self) -> usize {
        self
    }

    unsafe fn from_word(word: usize) -> Self {
        word
    }
}

type Ring<const N: usize> = super::Ring<usize, N>;

/// Steals with an age limit that leaves out no queued work.
fn steal<const N: usize>(ring: &Ring<N>) -> Vec<usize> {
    ring.steal(ring.tail()).collect()
}

#[cfg(not(sudog_loom))]
mod alone {
    use super::*;

    /// Returns the owner's half of a ring.
    fn owner<const N: usize>(ring: &Ring<N>) -> Owner<'_, usize, N> {
        // SAFETY: only the test's main thread calls this function, and an `Owner` stays on its thread.
        unsafe { ring.owner() }
    }

    fn push<const N: usize>(of: &Ring<N>, n: usize) -> Result<(), usize> {
        owner(of).push(n)
    }

    fn pop<const N: usize>(of: &Ring<N>) -> Option<usize> {
        owner(of).pop()
    }

    fn take_half<const N: usize>(of: &Ring<N>) -> Vec<usize> {
        owner(of).take_half().collect()
    }

    #[test]
    fn first_in_first_out_through_every_wrap_around() {
        for start in [0, u32::MAX as usize - 5, usize::MAX - 5] {
            let ring = Ring::<4>::starting_at(start);
            for round in 1..20 {
                for i in 0..4 {
                    assert_eq!(push(&ring, round + i), Ok(()));
                }
                assert_eq!(push(&ring, 99), Err(99), "full");
                assert!(!ring.is_empty());
                assert!((0..4).all(|i| pop(&ring) == Some(round + i)));
                assert_eq!((pop(&ring), ring.is_empty()), (None, true));
            }
        }
    }

    #[test]
    fn half_is_rounded_up_and_is_the_older() {
        for start in [0, usize::MAX - 100] {
            let ring = Ring::<256>::starting_at(start);
            assert!((1..=256).all(|i| push(&ring, i).is_ok()));
            assert!(steal(&ring).into_iter().eq(1..=128));
            assert!(take_half(&ring).into_iter().eq(129..=192));
            assert_eq!(pop(&ring), Some(193));
            assert!(steal(&ring).into_iter().eq(194..=225), "32 of 63");
            while !steal(&ring).is_empty() {}
            assert!(ring.is_empty() && take_half(&ring).is_empty());
            assert_eq!(push(&ring, 1), Ok(()));
            assert_eq!(take_half(&ring), [1], "1 of 1");
        }
    }

    #[test]
    fn a_thief_takes_nothing_that_is_too_young() {
        for start in [0, u32::MAX as usize - 2, usize::MAX - 2] {
            let ring = Ring::<16>::starting_at(start);
            let old = |older_than| ring.steal(older_than).collect::<Vec<_>>();
            let at_first = ring.tail();
            assert!((1..=3).all(|i| push(&ring, i).is_ok()));
            assert!(old(at_first).is_empty());
            let seen = ring.tail();
            assert!((4..=10).all(|i| push(&ring, i).is_ok()));
            assert_eq!(old(seen), [1, 2, 3], "5 is half, but 3 are old");
            assert!(old(seen).is_empty());
            assert_eq!(pop(&ring), Some(4));
            assert!(old(seen).is_empty() && old(at_first).is_empty(), "the head has passed them");
            assert_eq!(old(ring.tail()), [5, 6, 7]);
        }
    }

    #[test]
    fn what_is_older_is_known_until_it_is_taken() {
        for start in [0, (1 << 16) - 3, u32::MAX as usize - 2, usize::MAX - 2] {
            let ring = Ring::<16>::starting_at(start);
            let holds_older = |mark| ring.holds_older_than(mark);
            let at_first = ring.tail() as u16;
            assert!((1..=16).all(|i| push(&ring, i).is_ok()));
            let full = ring.tail() as u16;
            assert_eq!(ring.room(), 0);
            for i in 1..=16 {
                assert!(holds_older(full) && !holds_older(at_first) && !holds_older(ring.head()));
                assert_eq!(pop(&ring), Some(i));
            }
            assert!(!holds_older(full));
            // Push and pop younger work, until the head has passed the noted tail by almost 2^16.
            for _ in 0..(1 << 16) - 16 - 1 {
                assert_eq!((push(&ring, 1), pop(&ring), holds_older(full)), (Ok(()), Some(1), false));
            }
            assert_eq!(ring.room(), 16);
        }
    }

    /// The owner keeps the ring near full, so that it overflows while it is stolen from.
    #[test]
    fn every_word_comes_out_once_at_any_taker() {
        const LAST: usize = if cfg!(miri) { 2_000 } else { 200_000 };
        let ring = Ring::<256>::starting_at(usize::MAX - 1_000);
        let over = std::sync::atomic::AtomicBool::new(false);
        let mut all = std::thread::scope(|s| {
            let thief = || {
                let mut got = Vec::new();
                while !(over.load(Ordering::Acquire) && ring.is_empty()) {
                    got.extend(steal(&ring));
                }
                assert!(got.is_sorted(), "a thief's are in order");
                got
            };
            let thieves = [s.spawn(thief), s.spawn(thief)];
            let (mut mine, mut i) = (Vec::new(), 1);
            while i <= LAST {
                match push(&ring, i) {
                    Ok(()) => i += 1,
                    Err(_) if i % 2 == 0 => mine.extend(take_half(&ring)),
                    Err(_) => mine.extend(pop(&ring)),
                }
            }
            over.store(true, Ordering::Release);
            assert!(mine.is_sorted(), "the owner's are in order");
            thieves.into_iter().for_each(|thief| mine.extend(thief.join().unwrap()));
            mine
        });
        all.sort_unstable();
        assert!(all.into_iter().eq(1..=LAST));
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --lib ring`
#[cfg(sudog_loom)]
mod models {
    use super::*;
    use crate::model::thread;
    use crate::shim::Cell;
    use crate::shim::reached::must_reach;
    use loom::sync::Arc;

    // The events that can happen. The ring itself marks lost races.
    const FINDS_NOTHING: &str = "a thief finds nothing";
    const STEALS: &str = "a thief takes one";
    const STEALS_TWO: &str = "a thief takes two at once";
    const BOTH_STEAL: &str = "each thief takes something";
    const FULL: &str = "the owner finds the ring full";
    const OWNER_LOSES: &str = "the owner loses a race";
    const THIEF_LOSES: &str = "a thief loses a race";
    const OLD_HEAD: &str = "a thief reads a head that is too old";
    const ROOM: &str = "a thief makes room for the owner";

    /// The meaning of a word is written before the push, and must be seen by the taker of the word. Loom's cells check
    /// that the write happens before the read.
    struct World<const N: usize> {
        ring: Ring<N>,
        means: [Cell<usize>; 8],
    }

    impl<const N: usize> World<N> {
        fn owner(&self) -> Owner<'_, usize, N> {
            // SAFETY: only the model's main thread calls this function, and an `Owner` stays on its thread.
            unsafe { self.ring.owner() }
        }

        /// Pushes a word with its meaning.
        fn push(&self, n: usize) -> bool {
            self.means[n].set(n * n);
            let pushed = self.owner().push(n).is_ok();
            if !pushed {
                mark(FULL);
            }
            pushed
        }

        fn pop(&self) -> Option<usize> {
            self.owner().pop().inspect(|&n| self.check(n))
        }

        fn take_half(&self) -> Vec<usize> {
            self.owner().take_half().collect()
        }

        fn steal(&self) -> Vec<usize> {
            let got = steal(&self.ring);
            mark(match got.len() {
                0 => FINDS_NOTHING,
                1 => STEALS,
                _ => STEALS_TWO,
            });
            got.iter().for_each(|&n| self.check(n));
            got
        }

        fn check(&self, n: usize) {
            assert_eq!(self.means[n].get(), n * n);
        }
    }

    /// Runs `owner` beside `thieves` thieves that steal `steals` times each, on a ring with `queued` works. `owner`
    /// returns the words that it took and the last word that it pushed. Then every word must have come out once, and in
    /// order for each taker.
    fn explore<const N: usize>(
        preemptions: usize,
        [thieves, steals]: [usize; 2],
        queued: usize,
        owner: fn(&World<N>) -> (Vec<usize>, usize),
        states: &[&'static str],
    ) {
        let run = move || {
            let ring = Ring::starting_at(usize::MAX - 1);
            let world = Arc::new(World { ring, means: std::array::from_fn(|_| Cell::new(0)) });
            assert!((1..=queued).all(|n| world.push(n)));
            let thieves: Vec<_> = (0..thieves)
                .map(|_| {
                    let world = world.clone();
                    thread::spawn(move || (0..steals).flat_map(|_| world.steal()).collect::<Vec<_>>())
                })
                .collect();
            let (mut all, last) = owner(&world);
            assert!(all.is_sorted(), "the owner took {all:?}");
            let thieves: Vec<Vec<_>> = thieves.into_iter().map(|thief| thief.join().unwrap()).collect();
            if thieves.len() > 1 && thieves.iter().all(|got| !got.is_empty()) {
                mark(BOTH_STEAL);
            }
            for got in thieves {
                assert!(got.is_sorted(), "a thief took {got:?}");
                all.extend(got);
            }
            all.extend(std::iter::from_fn(|| world.pop()));
            all.sort_unstable();
            assert!(all.iter().copied().eq(1..=last), "{all:?} of {last}");
        };
        must_reach(states, || crate::model::explore(preemptions, run));
    }

    /// The owner uses slots again while a thief may still look at these slots.
    fn push_and_pop<const LAST: usize>(world: &World<2>) -> (Vec<usize>, usize) {
        let (mut got, mut n) = (Vec::new(), 1);
        while n <= LAST {
            if world.push(n) { n += 1 } else { got.extend(world.pop()) }
        }
        got.extend(world.pop());
        (got, LAST)
    }

    #[test]
    fn an_owner_and_a_thief() {
        explore(4, [1, 2], 0, push_and_pop::<4>, &[FINDS_NOTHING, STEALS, FULL, OWNER_LOSES, THIEF_LOSES, OLD_HEAD]);
    }

    #[test]
    fn an_owner_and_two_thieves() {
        explore(2, [2, 1], 0, push_and_pop::<3>, &[FINDS_NOTHING, STEALS, BOTH_STEAL, FULL, OWNER_LOSES, THIEF_LOSES]);
    }

    /// The thief takes two at once: the owner may have had the first or the second of them.
    fn pop_and_push(world: &World<4>) -> (Vec<usize>, usize) {
        let mut got = Vec::new();
        got.extend(world.pop());
        let last = if world.push(5) { 5 } else { 4 };
        got.extend(world.pop());
        (got, last)
    }

    #[test]
    fn a_thief_of_several() {
        explore(6, [1, 2], 4, pop_and_push, &[STEALS, STEALS_TWO, OWNER_LOSES, THIEF_LOSES]);
    }

    #[test]
    fn two_thieves_of_several() {
        explore(3, [2, 1], 4, pop_and_push, &[STEALS, STEALS_TWO, BOTH_STEAL, OWNER_LOSES, THIEF_LOSES]);
    }

    #[test]
    fn an_overflow_and_two_thieves() {
        let owner = |world: &World<4>| {
            let mut got = Vec::new();
            while !world.push(5) {
                got.extend(world.take_half());
            }
            (got, 5)
        };
        explore(3, [2, 1], 4, owner, &[FULL, ROOM, STEALS_TWO, BOTH_STEAL, THIEF_LOSES]);
    }

    const BEFORE: &str = "the look is over before the pop";
    const BETWEEN: &str = "the pop comes while the other looks";
    const AFTER: &str = "the look comes after the pop";

    /// Runs `look` beside a push and a pop, on a ring with `queued` works.
    fn beside_a_push_and_a_pop(queued: usize, states: &[&'static str], look: fn(&World<4>)) {
        let run = move || {
            let ring = Ring::starting_at(usize::MAX);
            let world = Arc::new(World { ring, means: std::array::from_fn(|_| Cell::new(0)) });
            assert!((1..=queued).all(|n| world.push(n)));
            let popped = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let other = thread::spawn({
                let world = world.clone();
                // An atomic of `std`, which is no step of the model: tells whether the main thread has done its pop.
                let popped = popped.clone();
                move || {
                    let before = popped.load(Ordering::Relaxed);
                    look(&world);
                    mark(match (before, popped.load(Ordering::Relaxed)) {
                        (false, false) => BEFORE,
                        (false, true) => BETWEEN,
                        _ => AFTER,
                    });
                }
            });
            assert!(world.push(queued + 1) && world.pop().is_some());
            popped.store(true, Ordering::Relaxed);
            other.join().unwrap();
        };
        must_reach(states, || crate::model::explore_all(run));
    }

    /// Tests the look at the ring that idle workers take before they sleep.
    #[test]
    fn what_is_never_empty_never_looks_empty() {
        beside_a_push_and_a_pop(1, &[BEFORE, BETWEEN, AFTER], |world| assert!(!world.ring.is_empty()));
    }

    #[test]
    fn a_thief_that_loses_a_race_tries_again() {
        beside_a_push_and_a_pop(2, &[BEFORE, BETWEEN, AFTER, THIEF_LOSES, STEALS, STEALS_TWO], |world| {
            assert_ne!(world.steal(), [])
        });
    }

    /// A thief may take the work that it has seen at first, not the work that came after.
    #[test]
    fn a_thief_takes_only_what_is_old() {
        const OLD_ONLY: &str = "the thief comes before the others are pushed";
        const YOUNG_TOO: &str = "the thief comes when all are there";
        let run = || {
            // No step of the model.
            let pushed = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let world = Arc::new(World { ring: Ring::<4>::starting_at(usize::MAX), means: Default::default() });
            assert!(world.push(1));
            let seen = world.ring.tail();
            let thief = thread::spawn({
                let world = world.clone();
                let pushed = pushed.clone();
                move || {
                    let before = pushed.load(Ordering::Relaxed);
                    let works = world.ring.steal(seen);
                    if before {
                        mark(YOUNG_TOO);
                    } else if !pushed.load(Ordering::Relaxed) {
                        mark(OLD_ONLY);
                    }
                    works.collect::<Vec<_>>()
                }
            });
            assert!(world.push(2) && world.push(3));
            pushed.store(true, Ordering::Relaxed);
            assert_eq!(thief.join().unwrap(), [1]);
            assert_eq!((world.pop(), world.pop(), world.pop()), (Some(2), Some(3), None));
        };
        must_reach(&[OLD_ONLY, YOUNG_TOO], || crate::model::explore_all(run));
    }
}
