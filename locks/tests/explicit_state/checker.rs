//! A breadth-first explorer of finite models: every state, under sequential consistency.
//!
//! | part | meaning |
//! |---|---|
//! | [`Model`] | the protocol: initial state, steps, invariant, and the quantity to measure |
//! | [`Steps`] | where a model puts the steps that a state allows |
//! | [`Kind::Broken`] | an invariant, or a step's own rule, does not hold |
//! | [`Kind::Unbounded`] | the measure passed the cap, and on the way a state repeated with a higher measure |
//! | [`Kind::Above`] | the measure passed the cap, and no state repeated |
//! | [`Kind::Stuck`] | a thread waits, and no step is due |
//! | [`Kind::NoWayBack`] | there are steps, but none of them leads back to rest |
//! | [`Kind::Endless`] | a way back to rest exists, but so does a run of due steps that never ends |
//!
//! There are two kinds of steps. A *due* step will be taken sooner or later by a thread that is not stopped. A *free*
//! step need never be taken: an acquisition begins, a deadline passes. The last three kinds are judged by due steps
//! alone, so a deadline or another arrival cannot repair a failure.
//!
//! A thread that waits for a condition has a step only while the condition holds: a check that fails changes nothing.
//! So if no due steps form a cycle ([`Kind::Endless`]), every run with finitely many free steps comes to rest, whatever
//! the scheduler does: no fairness is assumed.
//!
//! `Unbounded` is a proof: the way from the one state to its repetition can be repeated for ever, as no step depends on
//! the measure. The measure must not have fallen on that way, and not be zero where it begins: otherwise it may have
//! been reset.
//!
//! States are numbered as they are found, so parents have lower numbers, and the first failure has the shortest trace.

use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};

/// A protocol, its threads, and the quantity to measure.
pub trait Model {
    /// All memory, and the place of every thread. A state must be small: there will be millions of states.
    type State: Copy + Eq + Hash + Debug;

    fn initial(&self) -> Self::State;

    /// Every step of every thread: one access to shared memory each.
    fn steps(&self, state: &Self::State, steps: &mut Steps<Self::State>);

    /// Maps all states that differ only in the names of the threads to a single state.
    fn canonical(&self, state: Self::State) -> Self::State;

    /// Checks the condition that must hold in every state.
    fn invariant(&self, state: &Self::State) -> Result<(), &'static str>;

    /// True if all threads have left. Then no step is due.
    fn at_rest(&self, state: &Self::State) -> bool;

    /// The quantity whose maximum is sought. No step may depend on this quantity.
    fn measure(&self, state: &Self::State) -> u32;

    /// The state with a measure of zero.
    fn unmeasured(&self, state: Self::State) -> Self::State;
}

/// The steps out of one state.
pub struct Steps<S>(Vec<Step<S>>);

struct Step<S> {
    who: usize,
    what: &'static str,
    due: bool,
    to: Result<S, &'static str>,
}

impl<S> Steps<S> {
    /// Adds a step that a thread takes unless the thread is stopped.
    pub fn due(&mut self, who: usize, what: &'static str, to: S) {
        self.0.push(Step { who, what, due: true, to: Ok(to) });
    }

    /// Adds a step that need never be taken.
    pub fn free(&mut self, who: usize, what: &'static str, to: S) {
        self.0.push(Step { who, what, due: false, to: Ok(to) });
    }

    /// Adds a step that must not be possible.
    pub fn wrong(&mut self, who: usize, what: &'static str, why: &'static str) {
        self.0.push(Step { who, what, due: true, to: Err(why) });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Broken(&'static str),
    Unbounded,
    Above,
    Stuck,
    NoWayBack,
    Endless,
}

/// A failure, and the shortest way to the failure: the steps, and the resulting state.
pub struct Failure {
    pub kind: Kind,
    pub trace: Vec<String>,
}

impl Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} after {} steps:", self.kind, self.trace.len())?;
        self.trace.iter().enumerate().try_for_each(|(n, line)| writeln!(f, "{n:4} {line}", n = n + 1))
    }
}

pub struct Report {
    pub states: usize,
    /// The highest measure of any state found.
    pub most: u32,
    pub failure: Option<Failure>,
}

/// Explores all states, or up to the first failure.
///
/// # Panics
///
/// If there are more than `cap` states: then the exploration has shown nothing.
pub fn explore<M: Model>(model: &M, highest: u32, cap: usize) -> Report {
    let mut seen = Seen::new();
    let mut parents = vec![0];
    let mut due = Graph { first: vec![0], targets: Vec::new() };
    let mut steps = Steps(Vec::new());
    let mut most = 0;
    seen.number(model.canonical(model.initial()));
    let mut now = 0;
    while now < seen.states.len() {
        let state = seen.states[now];
        steps.0.clear();
        model.steps(&state, &mut steps);
        let failure = |kind, seen: &Seen<M::State>, parents: &[u32]| {
            let failure = Some(Failure { kind, trace: trace(model, seen, parents, now) });
            Report { states: seen.states.len(), most, failure }
        };
        if let Err(why) = model.invariant(&state) {
            return failure(Kind::Broken(why), &seen, &parents);
        }
        if most > highest {
            let again = comes_again(model, &path(&parents, now).map(|n| seen.states[n]).collect::<Vec<_>>());
            return failure(if again { Kind::Unbounded } else { Kind::Above }, &seen, &parents);
        }
        for step in &steps.0 {
            let next = match step.to {
                Ok(next) => model.canonical(next),
                Err(why) => {
                    let mut report = failure(Kind::Broken(why), &seen, &parents);
                    let last = format!("thread {}: {}", step.who, step.what);
                    report.failure.as_mut().expect("just made").trace.push(last);
                    return report;
                }
            };
            let number = seen.number(next);
            if number == parents.len() {
                assert!(number < cap, "more than {cap} states");
                parents.push(small(now));
            }
            if step.due {
                due.targets.push(small(number));
            }
        }
        if !steps.0.iter().any(|step| step.due) && !model.at_rest(&state) {
            return failure(Kind::Stuck, &seen, &parents);
        }
        due.first.push(small(due.targets.len()));
        now += 1;
        if let Some(state) = seen.states.get(now) {
            most = most.max(model.measure(state));
        }
    }
    let rest: Vec<bool> = seen.states.iter().map(|state| model.at_rest(state)).collect();
    let back = due.reversed();
    let failure = [(Kind::NoWayBack, false), (Kind::Endless, true)].into_iter().find_map(|(kind, all)| {
        let lost = due.comes_to(&back, &rest, all).iter().position(|&comes| !comes)?;
        Some(Failure { kind, trace: trace(model, &seen, &parents, lost) })
    });
    Report { states: seen.states.len(), most, failure }
}

/// The numbers of the states on the way to `last`.
fn path(parents: &[u32], last: usize) -> impl Iterator<Item = usize> {
    let mut path = vec![last];
    while let Some(&n) = path.last().filter(|&&n| n != 0) {
        path.push(parents[n] as usize);
    }
    path.into_iter().rev()
}

/// Describes the way to a state in words. The steps are replayed from the start, with the threads under their first
/// names: canonical states may have the threads in another order.
fn trace<M: Model>(model: &M, seen: &Seen<M::State>, parents: &[u32], last: usize) -> Vec<String> {
    let mut state = model.initial();
    let mut steps = Steps(Vec::new());
    let walk = path(parents, last).skip(1).map(|number| {
        steps.0.clear();
        model.steps(&state, &mut steps);
        let leads = |step: &&Step<M::State>| step.to.is_ok_and(|to| model.canonical(to) == seen.states[number]);
        let step = steps.0.iter().find(leads).expect("a step has led here before");
        state = step.to.expect("it leads somewhere");
        format!("thread {}: {:40} {:?}", step.who, step.what, state)
    });
    walk.collect()
}

/// Returns whether two states of the path differ only in the measure, and the measure between these states has risen
/// from above zero and never fallen.
fn comes_again<M: Model>(model: &M, path: &[M::State]) -> bool {
    let plain: Vec<M::State> = path.iter().map(|&s| model.canonical(model.unmeasured(s))).collect();
    let measures: Vec<u32> = path.iter().map(|s| model.measure(s)).collect();
    (0..path.len()).any(|late| {
        (0..late).any(|early| {
            let risen = 0 < measures[early] && measures[early] < measures[late];
            risen && plain[early] == plain[late] && measures[early..=late].is_sorted()
        })
    })
}

/// The due steps: those of state `n` lead to `targets[first[n]..first[n + 1]]`.
struct Graph {
    first: Vec<u32>,
    targets: Vec<u32>,
}

impl Graph {
    fn of(&self, n: usize) -> &[u32] {
        &self.targets[self.first[n] as usize..self.first[n + 1] as usize]
    }

    fn reversed(&self) -> Self {
        let states = self.first.len() - 1;
        let mut first = vec![0; states + 1];
        for &target in &self.targets {
            first[target as usize + 1] += 1;
        }
        for n in 0..states {
            first[n + 1] += first[n];
        }
        let mut free = first.clone();
        let mut targets = vec![0; self.targets.len()];
        for n in 0..states {
            for &target in self.of(n) {
                targets[free[target as usize] as usize] = small(n);
                free[target as usize] += 1;
            }
        }
        Self { first, targets }
    }

    /// Returns which states come to a state of `rest`: by some due steps, or, with `all`, whatever due steps are taken.
    fn comes_to(&self, back: &Self, rest: &[bool], all: bool) -> Vec<bool> {
        let mut comes = rest.to_vec();
        let mut left: Vec<usize> = (0..rest.len()).map(|n| if all { self.of(n).len() } else { 1 }).collect();
        let mut work: Vec<usize> = (0..rest.len()).filter(|&n| rest[n]).collect();
        while let Some(n) = work.pop() {
            for &before in back.of(n) {
                let before = before as usize;
                left[before] = left[before].saturating_sub(1);
                if left[before] == 0 && !comes[before] {
                    comes[before] = true;
                    work.push(before);
                }
            }
        }
        comes
    }
}

/// All states found, each with a number; and an open-addressed table of the numbers.
struct Seen<S> {
    states: Vec<S>,
    slots: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl<S: Copy + Eq + Hash> Seen<S> {
    fn new() -> Self {
        Self { states: Vec::new(), slots: vec![EMPTY; 1 << 12] }
    }

    /// The number of the state. A new state gets the next number.
    fn number(&mut self, state: S) -> usize {
        let slot = self.slot(&state);
        if self.slots[slot] != EMPTY {
            return self.slots[slot] as usize;
        }
        let number = self.states.len();
        self.slots[slot] = small(number);
        self.states.push(state);
        if self.states.len() * 2 > self.slots.len() {
            self.slots = vec![EMPTY; self.slots.len() * 2];
            for number in 0..self.states.len() {
                let slot = self.slot(&self.states[number]);
                self.slots[slot] = small(number);
            }
        }
        number
    }

    /// The slot where the state is, or where it would be.
    fn slot(&self, state: &S) -> usize {
        let mut hash = Mix(0);
        state.hash(&mut hash);
        let mask = self.slots.len() - 1;
        let mut slot = (hash.finish() >> 32) as usize & mask;
        while self.slots[slot] != EMPTY && self.states[self.slots[slot] as usize] != *state {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

/// A hasher with one multiplication per word: states are small, and no adversary chooses states that collide.
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }
    fn write_u16(&mut self, n: u16) {
        self.write_u64(n.into());
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 << 32)
    }
}

fn small(n: usize) -> u32 {
    u32::try_from(n).expect("states and steps fit 32 bits")
}

/// Tests of the checker itself, on models with known results.
mod tests {
    use super::*;

    /// A way between two places: the start, the end, whether the step is due, and the change of the measure.
    type Way = (u8, u8, bool, fn(u32) -> u32);

    struct Toy<'a>(&'a [Way]);

    impl Model for Toy<'_> {
        type State = (u8, u32);

        fn initial(&self) -> Self::State {
            (0, 0)
        }
        fn steps(&self, &(at, count): &Self::State, steps: &mut Steps<Self::State>) {
            for &(_, to, due, change) in self.0.iter().filter(|step| step.0 == at) {
                match (to, due) {
                    (9, _) => steps.wrong(0, "goes", "9 is forbidden"),
                    (_, true) => steps.due(0, "goes", (to, change(count))),
                    (_, false) => steps.free(0, "may go", (to, change(count))),
                }
            }
        }
        fn canonical(&self, state: Self::State) -> Self::State {
            state
        }
        fn invariant(&self, state: &Self::State) -> Result<(), &'static str> {
            if state.0 == 8 { Err("state 8 must not be reached") } else { Ok(()) }
        }
        fn at_rest(&self, state: &Self::State) -> bool {
            state.0 == 0
        }
        fn measure(&self, state: &Self::State) -> u32 {
            state.1
        }
        fn unmeasured(&self, state: Self::State) -> Self::State {
            (state.0, 0)
        }
    }

    const SAME: fn(u32) -> u32 = |n| n;
    const MORE: fn(u32) -> u32 = |n| n + 1;
    const BACK: fn(u32) -> u32 = |_| 0;

    /// The kind of failure, and the number of steps to the failure.
    fn failure(highest: u32, ways: &[Way]) -> Option<(Kind, usize)> {
        explore(&Toy(ways), highest, 1000).failure.map(|failure| (failure.kind, failure.trace.len()))
    }

    #[test]
    fn what_cannot_end_well_is_told_apart() {
        let there = (0, 1, false, SAME);
        assert_eq!(failure(9, &[there, (1, 2, true, SAME), (2, 0, true, SAME)]), None);
        assert_eq!(failure(9, &[there, (1, 2, true, SAME), (2, 0, false, SAME)]), Some((Kind::Stuck, 2)));
        let circle = (2, 1, true, SAME);
        assert_eq!(failure(9, &[there, (1, 2, true, SAME), circle, (2, 0, false, SAME)]), Some((Kind::NoWayBack, 1)));
        assert_eq!(failure(9, &[there, (1, 2, true, SAME), circle, (2, 0, true, SAME)]), Some((Kind::Endless, 1)));
    }

    #[test]
    fn what_is_forbidden_is_found() {
        let there = (0, 1, false, SAME);
        let back = (1, 0, true, SAME);
        assert_eq!(failure(9, &[there, (1, 9, true, SAME), back]), Some((Kind::Broken("9 is forbidden"), 2)));
        assert_eq!(
            failure(9, &[there, (1, 8, true, SAME), back]),
            Some((Kind::Broken("state 8 must not be reached"), 2))
        );
    }

    #[test]
    fn the_measure_is_found_and_its_repetition_proved() {
        assert_eq!(failure(9, &[(0, 1, false, MORE), (1, 0, true, SAME)]), Some((Kind::Unbounded, 19)));
        // The measure is set back on the way, so the measure is at most 2.
        let ways: &[Way] =
            &[(0, 1, false, SAME), (1, 2, true, MORE), (2, 3, true, BACK), (3, 1, false, MORE), (3, 0, true, BACK)];
        assert_eq!(failure(1, ways), Some((Kind::Above, 5)));
        let report = explore(&Toy(ways), 2, 1000);
        assert_eq!((report.most, report.states, report.failure.is_none()), (2, 6, true));
    }

    #[test]
    #[should_panic(expected = "more than 5 states")]
    fn a_cap_that_is_met_is_an_error() {
        explore(&Toy(&[(0, 1, false, MORE), (1, 0, true, SAME)]), 9, 5);
    }
}
