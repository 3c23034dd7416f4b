//! The history of one mutex, made from its events.
//!
//! | from | is made |
//! |---|---|
//! | `want`, `sleep`, `requeue`, `wake`, `handoff`, `locked`, `unlocked` | a lane for each contender: its states over time |
//! | `starving-enter`, `starving-exit` | the times of starvation mode |
//! | `handoff`, then `locked` by its receiver | arrows; and a verdict on each, see `line.rs` |
//! | `barge` | marks |
//!
//! A full ring has dropped its oldest events. So each lane begins with its first event that was kept. A part that needs
//! the events of all contenders, such as starvation mode, begins at the time from which on no event is missing.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sudog_runtime::event::{Event, Kind, Who};

use super::contest::Contender;
use super::line::{Line, Verdict};

/// The state of a contender with respect to the mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The contender wants the mutex, and is awake: before its first sleep, or from a wake to the next sleep.
    Waiting,
    /// The contender sleeps in the queue.
    Sleeping,
    /// The contender has the mutex.
    Holding,
}

/// A state of a contender, and the time of that state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    pub state: State,
    /// The beginning.
    pub from: Duration,
    /// The end.
    pub to: Duration,
}

/// The history of a contender.
#[derive(Clone, Default, Debug)]
pub struct Lane {
    /// The name of the contender in the events.
    pub who: Option<Who>,
    /// The intervals, in the order of time. Between two intervals the contender neither has nor wants the mutex.
    pub intervals: Vec<Interval>,
    /// The times from request to entry.
    pub waits: Vec<Duration>,
}

/// A time of starvation mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Starving {
    /// The time at which the mode was turned on.
    pub from: Duration,
    /// The time at which the mode was turned off.
    pub to: Duration,
    /// The contender that turned the mode on; `None` if that was before the time from which on no event is missing.
    pub by: Option<usize>,
    /// The contender that turned the mode off; `None` if the recording ended before.
    pub ended_by: Option<usize>,
}

/// A handoff of the mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// The time of the unlock.
    pub at: Duration,
    /// The contender that unlocked the mutex.
    pub from: usize,
    /// The contender that the mutex was handed to, if known.
    pub to: Option<usize>,
    /// The time at which that contender had the mutex.
    pub arrived: Option<Duration>,
    /// The judgement on that contender.
    pub verdict: Verdict,
}

/// A barge: a newcomer took the mutex while others slept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Barge {
    /// The time of the barge.
    pub at: Duration,
    /// The newcomer.
    pub by: usize,
}

/// The history of a mutex.
#[derive(Clone, Debug)]
pub struct EventHistory {
    /// The lane of each contender.
    pub lanes: Vec<Lane>,
    /// The times of starvation mode, in the order of time.
    pub starving: Vec<Starving>,
    /// The handoffs, in the order of time.
    pub handoffs: Vec<Handoff>,
    /// The barges, in the order of time.
    pub barges: Vec<Barge>,
    /// The end of the recording.
    pub end: Duration,
    counts: [usize; Kind::ALL.len()],
}

/// A part of the time of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The beginning.
    pub from: Duration,
    /// The end.
    pub to: Duration,
}

impl EventHistory {
    /// Makes the history of events of one mutex, which are in the order of time. `contenders` are those that name
    /// themselves in the `waiter` of their [`Kind::Want`], [`Kind::Locked`] and [`Kind::Unlocked`].
    pub fn new(events: &[Event], contenders: &[Contender], dropped: u64, end: Duration) -> Self {
        let end = events.last().map_or(end, |last| last.at.max(end));
        let known = identify(events, contenders.len());
        let complete = if dropped == 0 { Duration::ZERO } else { complete_from(events, contenders, &known) };
        let mut line = Line::new(contenders.len(), complete);
        let mut lanes: Vec<_> = contenders.iter().map(|_| Drawing::default()).collect();
        let mut starving = Modes { complete, ..Modes::default() };
        let (mut handoffs, mut barges, mut counts) = (Vec::<Handoff>::new(), Vec::new(), [0; _]);
        for event in events {
            let Some(&who) = known.get(&event.who) else { continue };
            counts[event.kind as usize] += 1;
            let sleeper = line.sleeper(event.waiter);
            match event.kind {
                Kind::Want => lanes[who].switch(event.at, Some(State::Waiting)),
                Kind::Sleep | Kind::Requeue => lanes[who].switch(event.at, Some(State::Sleeping)),
                Kind::Wake | Kind::Leave => {
                    if let Some(woken) = sleeper {
                        lanes[woken].switch(event.at, Some(State::Waiting));
                    }
                }
                Kind::Handoff => {
                    let verdict = sleeper.map_or(Verdict::Unknown, |to| line.judge(to));
                    if let Some(to) = sleeper {
                        lanes[to].switch(event.at, Some(State::Waiting));
                        lanes[to].promised = Some(handoffs.len());
                    }
                    handoffs.push(Handoff { at: event.at, from: who, to: sleeper, arrived: None, verdict });
                }
                Kind::Locked => {
                    let lane = &mut lanes[who];
                    lane.switch(event.at, Some(State::Holding));
                    lane.lane.waits.extend(line.wanted(who).map(|wanted| event.at - wanted));
                    if let Some(handoff) = lane.promised.take() {
                        handoffs[handoff].arrived = Some(event.at);
                    }
                }
                Kind::Unlocked => lanes[who].switch(event.at, None),
                Kind::Barge => barges.push(Barge { at: event.at, by: who }),
                Kind::StarvingEnter => starving.enter(event.at, who),
                Kind::StarvingExit => starving.exit(event.at, who),
                Kind::SpinWin | Kind::StolenToken => {}
            }
            line.note(event, who);
        }
        let lanes = lanes.into_iter().map(|mut drawing| {
            drawing.switch(end, None);
            drawing.lane
        });
        let mut lanes: Vec<_> = lanes.collect();
        known.into_iter().for_each(|(who, n)| lanes[n].who = Some(who));
        Self { lanes, starving: starving.until(end), handoffs, barges, end, counts }
    }

    /// Returns the number of events of this kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.counts[kind as usize]
    }

    /// Returns the number of handoffs with this verdict.
    pub fn judged(&self, verdict: Verdict) -> usize {
        self.handoffs.iter().filter(|handoff| handoff.verdict == verdict).count()
    }

    /// Returns the time that the mutex spent in starvation mode.
    pub fn time_starving(&self) -> Duration {
        self.starving.iter().map(|starving| starving.to - starving.from).sum()
    }

    /// Returns a part of this length that shows starvation mode. The part is after a quarter of the whole, where
    /// everything has settled, and begins a little before the mode is turned on; if possible, the first time that the
    /// mode is also turned off inside the part. Returns the whole history if that is shorter.
    pub fn window(&self, length: Duration) -> Window {
        let (quarter, before) = (self.end / 4, length / 4);
        let settled = || self.starving.iter().filter(|starving| starving.from >= quarter);
        let whole = settled().find(|starving| starving.to - starving.from <= length - before);
        let shown = whole.or_else(|| settled().next()).map(|starving| starving.from.saturating_sub(before));
        let from = shown.unwrap_or(quarter).min(self.end.saturating_sub(length));
        Window { from, to: (from + length).min(self.end) }
    }
}

impl Window {
    /// Returns whether a time is in this window.
    pub fn contains(&self, at: Duration) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// Returns the part of an interval that is in this window.
    pub fn part(&self, from: Duration, to: Duration) -> Option<(Duration, Duration)> {
        let (from, to) = (from.max(self.from), to.min(self.to));
        (from < to).then_some((from, to))
    }

    /// Returns the length of this window.
    pub fn length(&self) -> Duration {
        self.to.saturating_sub(self.from)
    }
}

fn identify(events: &[Event], contenders: usize) -> HashMap<Who, usize> {
    let introductions = events.iter().filter(|e| matches!(e.kind, Kind::Want | Kind::Locked | Kind::Unlocked));
    introductions.filter(|e| (1..=contenders).contains(&e.waiter)).map(|e| (e.who, e.waiter - 1)).collect()
}

/// Returns the time from which on no ring has dropped an event: each ring has all events after the first that it has
/// kept.
fn complete_from(events: &[Event], contenders: &[Contender], known: &HashMap<Who, usize>) -> Duration {
    let mut first = HashMap::new();
    for event in events {
        if let Some(&who) = known.get(&event.who) {
            first.entry(contenders[who].ring).or_insert(event.at);
        }
    }
    first.into_values().max().unwrap_or_default()
}

/// A lane that is being drawn.
#[derive(Default)]
struct Drawing {
    lane: Lane,
    now: Option<(State, Duration)>,
    /// The number of the handoff that is under way to this contender.
    promised: Option<usize>,
}

impl Drawing {
    fn switch(&mut self, at: Duration, state: Option<State>) {
        if let Some((state, from)) = self.now.take()
            && from < at
        {
            self.lane.intervals.push(Interval { state, from, to: at });
        }
        self.now = state.map(|state| (state, at));
    }
}

/// The times of starvation mode. The mode is a single bit, so it is turned on and off by turns; but each change is
/// reported a moment after it has happened, so two reports that are close together may come in the wrong order.
#[derive(Default)]
struct Modes {
    over: Vec<Starving>,
    /// The times at which the mode was turned on and not off yet, with the contenders that did so.
    on: VecDeque<(Duration, usize)>,
    /// The times at which the mode was turned off, with the contenders that did so, while it is not yet known which
    /// contender had turned the mode on.
    off: VecDeque<(Duration, usize)>,
    complete: Duration,
    /// True if a change has been reported since `complete`.
    known: bool,
}

impl Modes {
    fn enter(&mut self, at: Duration, by: usize) {
        if at < self.complete {
            return;
        }
        self.known = true;
        match self.off.pop_front() {
            Some((off, ended_by)) => {
                self.over.push(Starving { from: off, to: off, by: Some(by), ended_by: Some(ended_by) });
            }
            None => self.on.push_back((at, by)),
        }
    }

    fn exit(&mut self, at: Duration, by: usize) {
        if at < self.complete {
            return;
        }
        let before_all = !self.known && !self.complete.is_zero();
        self.known = true;
        match self.on.pop_front() {
            Some((from, entered_by)) => {
                self.over.push(Starving { from, to: at, by: Some(entered_by), ended_by: Some(by) });
            }
            None if before_all => {
                self.over.push(Starving { from: self.complete, to: at, by: None, ended_by: Some(by) });
            }
            None => self.off.push_back((at, by)),
        }
    }

    fn until(self, end: Duration) -> Vec<Starving> {
        let unended = self.on.into_iter().map(|(from, by)| Starving { from, to: end, by: Some(by), ended_by: None });
        self.over.into_iter().chain(unended).collect()
    }
}

#[cfg(test)]
#[path = "event_history_tests.rs"]
mod tests;
