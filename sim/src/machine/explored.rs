//! Schedules by seed: a decision at each step of a thread, and at the end of each turn, chooses the thread that runs
//! next.
//!
//! | a decision | by default | sometimes, by the seed |
//! |---|---|---|
//! | at a step | the thread goes on | another thread runs; the clock jumps, or a timer goes off; a sleeper wakes for no reason |
//! | at a pause, or a yield | the next thread runs, in turn | any thread runs |
//! | at the sleep or the end of a thread | the next thread runs, in turn; if no thread can run, the earliest timer goes off | any thread runs; or the earliest timer goes off |
//!
//! Only departures from the default are recorded. These departures are the schedule of a failure, which can be replayed
//! and shortened.
//!
//! There are two ways to decide: *random*, where each step is the end of a turn with the same probability; and *by
//! priorities* (PCT: Burckhardt and others, ASPLOS 2010), where the thread of the highest priority runs, and at some
//! steps that thread gets the lowest priority. The latter meets a bug that needs d orderings with a probability of at
//! least 1/(n k^(d-1)), for n threads and k steps.

use std::collections::HashMap;
use std::panic::Location;

use super::freed::Stacks;
use super::{Access, Ended, Machine, Mode, State, ThreadId, Why};
use crate::arena;

/// The duration of a step, in nanoseconds.
const STEP: u64 = 10;

/// The distance in nanoseconds at which a wait counts as a wait for ever: its timer goes off only if no thread can run.
const FAR: u64 = 600_000_000_000;

/// A departure from the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The thread with this number runs.
    Run(ThreadId),
    /// The earliest timer goes off.
    Timer,
    /// The clock jumps by this number of nanoseconds.
    Jump(u64),
    /// The sleeper with this number wakes for no reason, as a futex allows.
    Spurious(ThreadId),
}

/// The number of the decision, and the choice.
pub type Decision = (u64, Choice);

/// A step of a traced execution.
#[derive(Clone, Debug)]
pub struct TraceStep {
    /// The thread.
    pub thread: ThreadId,
    /// The simulated time, in nanoseconds.
    pub at: u64,
    /// The kind of the step: a load, a store, a read-modify-write, a sleep, a wake-up.
    pub what: &'static str,
    /// The number of the word that the step accesses; 0 if the step is no access.
    pub word: usize,
    /// The place in the program.
    pub place: &'static Location<'static>,
}

/// The way in which decisions are made.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    /// A turn ends at each step with a probability of 1 in `one_in`.
    Random { one_in: u64 },
    /// The thread of the highest priority runs.
    Priorities { of: Vec<u64>, lowest: u64, changes: Vec<u64> },
    /// The decisions are those of a schedule, by number.
    Replay(HashMap<u64, Choice>),
}

pub(crate) struct Explored {
    /// Threads that can run, by number.
    ready: Vec<ThreadId>,
    policy: Policy,
    /// The rarity of faults: a decision is a fault with a probability of 1 in this number. None if there are no faults.
    faults: Option<u64>,
    /// The rarity of switches at a pause: a pause lets other threads run with a probability of 1 in this number. Only
    /// with small numbers does a thread that spins for long meet the steps of other threads; only with large numbers
    /// does that thread give up spinning.
    patience: u64,
    random: u64,
    /// The number of decisions so far.
    points: u64,
    most: u64,
    /// The thread that runs next, if it has been decided.
    next: Option<ThreadId>,
    /// The stacks that the program has made.
    pub(super) stacks: Stacks,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) trace: Option<Vec<TraceStep>>,
}

/// The occasion of a decision.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Point {
    Step,
    Pause,
    End,
}

impl Explored {
    pub(crate) fn new(policy: Policy, faults: bool, seed: u64, most: u64, traced: bool) -> Self {
        let seeded = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
        Self {
            ready: Vec::new(),
            policy,
            faults: faults.then(|| [30, 100, 400, 2000][(seeded >> 20) as usize % 4]),
            patience: [1, 1, 8, 64, 512][(seeded >> 30) as usize % 5],
            random: seeded,
            points: 0,
            most,
            next: None,
            stacks: Stacks::default(),
            decisions: Vec::new(),
            trace: traced.then(Vec::new),
        }
    }

    pub(crate) fn make_ready(&mut self, id: ThreadId) {
        if let Err(at) = self.ready.binary_search(&id) {
            self.ready.insert(at, id);
        }
        if let Policy::Priorities { of, .. } = &mut self.policy {
            while of.len() <= id {
                of.push(random(&mut self.random) | 1 << 32);
            }
        }
    }

    pub(crate) fn make_unready(&mut self, id: ThreadId) {
        self.ready.retain(|ready| *ready != id);
    }

    fn below(&mut self, n: u64) -> u64 {
        random(&mut self.random) % n
    }

    /// Returns the next thread in turn after this thread, which may be this thread itself.
    fn in_turn(&self, id: ThreadId) -> Option<ThreadId> {
        self.ready.iter().copied().find(|ready| *ready > id).or(self.ready.first().copied())
    }

    /// Returns a random thread among the threads that can run.
    fn any(&mut self) -> Option<ThreadId> {
        let n = self.ready.len() as u64;
        (n > 0).then(|| self.below(n)).map(|n| self.ready[n as usize])
    }

    /// Returns the choice at this point, if it is not the default.
    fn choose(&mut self, point: Point, id: ThreadId, sleepers: &[ThreadId], timers: bool) -> Option<Choice> {
        if let Policy::Replay(decisions) = &self.policy {
            return decisions.get(&self.points).copied();
        }
        if let Some(one_in) = self.faults
            && self.below(if point == Point::End { 16 } else { one_in }) == 0
        {
            match self.below(3) {
                0 if timers => return Some(Choice::Timer),
                1 => return Some(Choice::Jump(1 << self.below(27))),
                2 if !sleepers.is_empty() => {
                    let sleeper = self.below(sleepers.len() as u64) as usize;
                    return Some(Choice::Spurious(sleepers[sleeper]));
                }
                _ => {}
            }
        }
        let points = self.points;
        if point == Point::Pause && self.below(self.patience) != 0 {
            return self.ready.contains(&id).then_some(Choice::Run(id));
        }
        match &mut self.policy {
            Policy::Random { one_in } => {
                let one_in = if point == Point::Step { *one_in } else { 1 };
                if self.below(one_in) == 0 { self.any().map(Choice::Run) } else { None }
            }
            Policy::Priorities { of, lowest, changes } => {
                if point == Point::Pause || changes.contains(&points) {
                    *lowest -= 1;
                    of[id] = *lowest;
                }
                self.ready.iter().copied().max_by_key(|ready| of[*ready]).map(Choice::Run)
            }
            Policy::Replay(_) => None,
        }
    }
}

/// Returns the next random number, by Marsaglia's xorshift.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

impl Machine {
    fn explored(&mut self) -> &mut Explored {
        match &mut self.mode {
            Mode::Explored(explored) => explored,
            Mode::Timed(_) => unreachable!("schedules are explored"),
        }
    }

    /// Makes a step of the current thread. Returns true if another thread goes first.
    pub(crate) fn switches_at_step(&mut self, address: usize, kind: Access) -> bool {
        let (id, place, at) = (self.current, self.threads[self.current].place, self.clock);
        self.clock += STEP;
        arena::outside(|| {
            if self.explored().trace.is_some() {
                let (word, what) = (self.word(address), kind.name());
                self.explored().trace.get_or_insert_default().push(TraceStep { thread: id, at, what, word, place });
            }
            self.decide(Point::Step);
        });
        self.explored().next != Some(id)
    }

    /// Makes the current thread pause or yield. Returns true if another thread runs now.
    pub(crate) fn gives_way(&mut self) -> bool {
        if let Mode::Timed(timed) = &mut self.mode {
            return timed.give_way();
        }
        let id = self.current;
        self.clock += STEP;
        arena::outside(|| self.decide(Point::Pause));
        self.explored().next != Some(id)
    }

    /// Decides which thread runs next. The decision stays open if no thread can run.
    fn decide(&mut self, point: Point) {
        let id = self.current;
        let timers = self.earliest_timer().is_some_and(|(at, _)| at < self.clock.saturating_add(FAR));
        let may_wake = self.explored().faults.is_some();
        let sleepers: Vec<_> = if may_wake { self.futex_sleepers() } else { Vec::new() };
        let explored = self.explored();
        if explored.points == explored.most {
            explored.next = None;
            self.stop = Some(Why::OutOfDecisions(explored.most));
            return;
        }
        explored.points += 1;
        let default = match point {
            Point::Step => Some(id),
            Point::Pause | Point::End => explored.in_turn(id),
        };
        let choice = explored.choose(point, id, &sleepers, timers);
        let mut next = default;
        if let Some(choice) = choice {
            let departs = match choice {
                Choice::Run(thread) if !explored.ready.contains(&thread) => false,
                Choice::Run(thread) => {
                    next = Some(thread);
                    next != default
                }
                Choice::Timer | Choice::Jump(_) | Choice::Spurious(_) => true,
            };
            if departs {
                let at = explored.points;
                explored.decisions.push((at, choice));
                self.befall(choice);
            }
        }
        self.explored().next = next;
    }

    /// Applies a choice to the threads and to the clock.
    fn befall(&mut self, choice: Choice) {
        match choice {
            Choice::Run(_) => {}
            Choice::Timer => _ = self.fire_earliest_timer(),
            Choice::Jump(ns) => {
                self.clock += ns;
                while self.earliest_timer().is_some_and(|(at, _)| at <= self.clock) {
                    self.fire_earliest_timer();
                }
            }
            Choice::Spurious(id) => {
                // The thread may not exist yet: a shortened schedule may lack a decision that leads to its spawning.
                if let Some(&State::Waits(address)) = self.threads.get(id).map(|thread| &thread.state) {
                    if let Some(queue) = self.sleepers.get_mut(&address) {
                        queue.retain(|sleeper| *sleeper != id);
                    }
                    self.end_sleep(id, Ended::Woken);
                }
            }
        }
    }

    fn futex_sleepers(&self) -> Vec<ThreadId> {
        let waits = |id: &ThreadId| matches!(self.threads[*id].state, State::Waits(_));
        (0..self.threads.len()).filter(waits).collect()
    }

    fn earliest_timer(&self) -> Option<(u64, ThreadId)> {
        let sleeps = |id: &ThreadId| matches!(self.threads[*id].state, State::Waits(_) | State::Sleeps);
        let timer = |id: ThreadId| Some((self.threads[id].deadline?, id));
        (0..self.threads.len()).filter(sleeps).filter_map(timer).min()
    }

    fn fire_earliest_timer(&mut self) -> bool {
        let Some((at, id)) = self.earliest_timer() else { return false };
        self.clock = self.clock.max(at);
        self.time_is_up(id);
        true
    }
}

/// Returns the thread that goes on. Returns None if no event will ever happen, or if the time is up.
pub(crate) fn next(machine: &mut Machine) -> Option<ThreadId> {
    loop {
        if let Some(next) = machine.explored().next.take() {
            return Some(next);
        }
        if machine.clock > machine.limit || machine.stop.is_some() {
            return None;
        }
        if machine.explored().ready.is_empty() && !machine.fire_earliest_timer() {
            return None;
        }
        arena::outside(|| machine.decide(Point::End));
    }
}

/// Records that the running thread is suspended, or has ended.
pub(crate) fn suspended(machine: &mut Machine) {
    let id = machine.current;
    if machine.threads[id].state != State::Ready {
        machine.explored().make_unready(id);
        machine.explored().next = None;
    }
}
