//! The choice of the workers on which a family of goroutines starts.
//!
//! A goroutine stays on the worker on which the goroutine first runs. In a worker pool, Go's commonest idiom, all
//! goroutines begin to wait for the first job within a microsecond: without further measures all of them would stay on
//! their creator's worker for good. Pairs, on the other hand, run best on a single worker.
//!
//! So a worker *spreads* the goroutines of its ring that have not started when two things hold:
//!
//! 1. A family starts: [`FAMILY`] goroutines in a row have blocked in their first run, and no goroutine of this worker
//!    has ended or been readied in between. Fork-join programs do not do so, as their goroutines end; nor does a pair,
//!    or a chain of goroutines that ready each other.
//! 2. This worker has at least two more goroutines than an idle worker.
//!
//! Then the oldest goroutines go to idle workers, until each idle worker has its share. The goroutines are placed (see
//! `placed`) rather than left to thieves: a thief would take the next family's goroutines, too. Only idle workers get
//! any goroutines: a placed goroutine cannot be stolen, and on a busy worker would wait for as long as a goroutine
//! computes. No more workers get goroutines than there are processors: goroutines of a family talk to each other, and a
//! message to a worker that waits for a processor takes many times as long.
//!
//! | field of `Own`, or of `Worker` | meaning | written by |
//! |---|---|---|
//! | `first_blocks` | number of goroutines in a row that have blocked in their first run | the owner: `count_block`; 0 by `set_queued` and `end_poll` |
//! | `population` | goroutines that have started on this worker and not ended | the owner |
//! | `looking` | the worker looks for work, or sleeps | the owner |
//! | `placed.len()` | goroutines that are on their way to this worker | placers, the owner |
//!
//! All these fields are hints, read and written Relaxed: a stale value only places a goroutine worse.

use crate::shim::system;
use crate::shim::system::atomic::{AtomicUsize, Ordering};
use crate::shim::system::thread;
use std::time::Duration;

use crate::goroutine::native::fibre::Fibre;
use crate::goroutine::native::fork;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::worker::Worker;
use crate::shim;

/// The number of goroutines in a row that must block in their first run to count as a family. The value 1 would split
/// pairs; 2 would split two producers and two consumers; 4 would keep a pool of four together.
const FAMILY: u32 = 3;
/// The time for which a family waits for worker threads that have just been started: each thread takes some 50 us until
/// it runs. Without this wait the first family of a process, often the only family, would find no worker to go to.
const PATIENCE: Duration = Duration::from_micros(500);

/// The number of goroutines that have been spread: for tests.
static SPREAD: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of goroutines that have been spread over idle workers so far. The goroutines of a worker are
/// spread when several in a row have blocked in their first run. For tests.
#[must_use]
pub fn spread_so_far() -> usize {
    SPREAD.load(Ordering::Relaxed)
}

/// The division of a ring's goroutines among idle workers, one after another, and the caller.
struct Shares {
    /// The number of goroutines that the caller has.
    mine: usize,
    /// The number of goroutines that are left in the ring.
    left: usize,
    /// The number of goroutines to share, including those that the sharing workers have already; and the number of
    /// sharing workers. These are the idle workers whose turn is still to come, and the caller, unless the caller has
    /// more than a share already.
    load: usize,
    workers: usize,
}

impl Shares {
    /// Prepares the division: the caller has `mine` goroutines, the ring `queued`, and the `workers` idle workers have
    /// `theirs` together.
    const fn new(mine: usize, queued: usize, workers: usize, theirs: usize) -> Self {
        let all = mine + queued + theirs;
        if mine <= all / (workers + 1) {
            return Self { mine, left: queued, load: all, workers: workers + 1 };
        }
        Self { mine, left: queued, load: queued + theirs, workers }
    }

    /// Returns the number of goroutines that go to the next worker, which has `theirs` already.
    fn next(&mut self, theirs: usize) -> usize {
        let share = self.load.div_ceil(self.workers).saturating_sub(theirs).min(self.left);
        let share = if self.mine > theirs + 1 { share } else { 0 };
        self.left -= share;
        self.load -= theirs + share;
        self.workers -= 1;
        share
    }
}

impl Worker {
    /// Counts a goroutine that blocks, if it blocks in its first run.
    #[inline]
    pub(crate) fn count_block(&self, fibre: &Fibre) {
        // Do not count goroutines that are to stay together: they must not be spread.
        if fibre.fresh.replace(false) && !fibre.together.get() {
            self.own.first_blocks.set(self.own.first_blocks.get() + 1);
        }
    }

    #[inline]
    pub(crate) fn starts_family(&self) -> bool {
        self.own.first_blocks.get() >= FAMILY
    }

    /// Returns the number of goroutines of this worker, including those in `placed`.
    fn population(&self) -> usize {
        self.population.load(Ordering::Relaxed) as usize + self.placed.len()
    }

    /// Places goroutines of the ring on idle workers that have fewer goroutines, by the rules at the top of this file.
    #[cold]
    pub(crate) fn spread(&'static self) {
        let queued = self.ring.len();
        let pause = self.own.spread_pause.get();
        if queued == 0 || pause > 0 {
            self.own.spread_pause.set(pause.saturating_sub(1));
            return;
        }
        let sched = self.sched();
        let processors = Self::processors(sched);
        let mine = self.population();
        self.await_workers(sched, processors.min(mine + queued));

        let idle = || self.idle_workers(processors);
        let (mut workers, mut theirs) = (0, 0);
        for worker in idle() {
            workers += 1;
            theirs += worker.population();
        }
        let mut shares = Shares::new(mine, queued, workers, theirs);
        // Leave workers that have become idle since the count for the next time.
        for worker in idle().take(workers) {
            // The workers' populations may have changed since the count.
            let theirs = worker.population().min(shares.load);
            let n = shares.next(theirs);
            self.place_on(worker, n);
        }
        // If no goroutine was placed, do not look at all workers again for some choices: the more workers, the more
        // choices.
        if shares.left == queued {
            self.own.spread_pause.set(sched.idle.workers() as u32 / 4);
        }
    }

    /// Places one piece of work of the ring, the oldest first, on each idle worker that has not been given any yet: work
    /// behind other work that is placed could wait for as long as that computes.
    #[cold]
    pub(crate) fn place_on_idle_workers(&'static self) {
        for worker in self.idle_workers(Self::processors(self.sched())).filter(|worker| worker.placed.len() == 0) {
            Sched::place(worker, self.own_ring().pop());
        }
    }

    /// Returns the number of workers that have a processor each.
    fn processors(sched: &Sched) -> usize {
        sched.procs().min(shim::num_cpus() as usize)
    }

    /// Returns the idle workers among those that have one of `processors` processors each. A forked child has none.
    fn idle_workers(&'static self, processors: usize) -> impl Iterator<Item = &'static Worker> {
        let others = if fork::is_child() { 0 } else { processors.saturating_sub(1) };
        let enabled = self.sched().others(self, 0).take(others);
        enabled.map(|(_, worker)| worker).filter(|worker| worker.looking.load(Ordering::Relaxed))
    }

    /// Places the oldest `n` goroutines of the ring, or as many as there are, on another worker.
    fn place_on(&'static self, worker: &'static Worker, n: usize) {
        let works = (0..n).map_while(|_| self.own_ring().pop());
        Sched::place(worker, works.inspect(|_| _ = SPREAD.fetch_add(1, Ordering::Relaxed)));
    }

    /// Starts workers up to `wanted`, and waits for workers that have been started and have not come yet. Waits once
    /// for each number of workers: if the system has no processor for these workers, the next family does not wait
    /// again.
    fn await_workers(&'static self, sched: &'static Sched, wanted: usize) {
        if sched.is_bubble() || sched.idle.workers().max(wanted) <= self.own.awaited.get() {
            return;
        }
        sched.start_workers(wanted);
        // Note the number even if the system has no more threads, so that the system is not asked again at each choice.
        self.own.awaited.set(sched.idle.workers().max(wanted));
        let begun = system::now();
        while sched.workers().count() < sched.idle.workers()
            && system::now().saturating_duration_since(begun) < PATIENCE
        {
            // Sleep, do not yield. Yields are processor time, and make the ring old: the worker that comes would steal
            // all of the ring.
            thread::sleep(PATIENCE / 50);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spreads a family of `family` goroutines, which starts on the first of `workers` idle workers, where there is a
    /// goroutine already. Returns the number of goroutines of each worker.
    fn spread(family: usize, workers: usize) -> Vec<usize> {
        let mut loads = vec![0; workers];
        loads[0] = 1 + family.min(FAMILY as usize);
        let mut shares = Shares::new(loads[0], family - (loads[0] - 1), workers - 1, 0);
        for load in &mut loads[1..] {
            *load += shares.next(*load);
        }
        loads[0] += shares.left;
        loads
    }

    #[test]
    fn every_worker_has_its_share() {
        for workers in 1..=64 {
            for family in 0..300 {
                let loads = spread(family, workers);
                assert_eq!(loads.iter().sum::<usize>(), family + 1);
                let (least, most) = (loads[1..].iter().min(), loads[1..].iter().max());
                assert!(
                    least.zip(most).is_none_or(|(least, most)| most - least <= 1),
                    "{family} on {workers}: {loads:?}"
                );
                let most = (family + 1).div_ceil(workers).max(1 + FAMILY as usize);
                assert!(loads.iter().all(|&load| load <= most), "{family} on {workers}: {loads:?}");
            }
        }
        assert_eq!(spread(8, 2), [4, 5]);
        assert_eq!(spread(64, 2), [32, 33]);
        assert_eq!(spread(4, 4), [4, 1, 0, 0]);
        assert_eq!(spread(7, 4), [4, 2, 1, 1]);
        assert_eq!(spread(2, 4), [3, 0, 0, 0]);
    }

    #[test]
    fn no_more_is_moved_than_helps() {
        // The caller's goroutines, the idle worker's, the queued, and the number that moves.
        for (mine, theirs, queued, moved) in
            [(1, 0, 10, 0), (5, 4, 10, 0), (5, 9, 10, 0), (2, 0, 1, 1), (4, 0, 5, 5), (4, 2, 5, 4), (9, 0, 3, 3)]
        {
            assert_eq!(Shares::new(mine, queued, 1, theirs).next(theirs), moved, "{mine}, {theirs}, {queued}");
        }
    }

    #[test]
    fn workers_that_have_goroutines_get_fewer() {
        let mut shares = Shares::new(4, 12, 3, 6);
        assert_eq!([shares.next(6), shares.next(0), shares.next(0)], [0, 6, 5]);
        assert_eq!(shares.left, 1);
    }
}
