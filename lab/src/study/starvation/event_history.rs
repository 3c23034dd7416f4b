//! What the events of one mutex tell.
//!
//! | from | is made |
//! |---|---|
//! | `want`, `sleep`, `requeue`, `wake`, `handoff`, `locked`, `unlocked` | a lane for each contender: what it did when |
//! | `starving-enter`, `starving-exit` | the times of starvation mode |
//! | `handoff`, then `locked` by the one it was for | arrows; and a verdict on each, see `line.rs` |
//! | `barge` | marks |
//!
//! A ring that is full has dropped its oldest events. So each lane begins with the first event that is there; and what
//! takes the events of all, as starvation mode does, begins where none is missing.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sudog_runtime::event::{Event, Kind, Who};

use super::contest::Contender;
use super::line::{Line, Verdict};

/// What a contender is doing, as far as the mutex goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It wants the mutex, and is awake: before its first sleep, or from a wake to the next sleep.
    Waiting,
    /// It sleeps in the line.
    Sleeping,
    /// It has the mutex.
    Holding,
}

/// For how long it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// What.
    pub state: State,
    /// From when on.
    pub from: Duration,
    /// Until when.
    pub to: Duration,
}

/// What became of one contender.
#[derive(Clone, Default, Debug)]
pub struct Lane {
    /// What the events call it.
    pub who: Option<Who>,
    /// In the order of time. In between it is elsewhere.
    pub intervals: Vec<Interval>,
    /// From request to entry.
    pub waits: Vec<Duration>,
}

/// A time of starvation mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Starving {
    /// When it was turned on.
    pub from: Duration,
    /// When it was turned off.
    pub to: Duration,
    /// Which contender turned it on; none, if that was before all of the events are there.
    pub by: Option<usize>,
    /// Which contender turned it off; none, if the recording ended before.
    pub ended_by: Option<usize>,
}

/// The mutex was handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// When it was unlocked.
    pub at: Duration,
    /// By which contender.
    pub from: usize,
    /// For which contender, if that is known.
    pub to: Option<usize>,
    /// When that one had it.
    pub arrived: Option<Duration>,
    /// Whether it was the right one.
    pub verdict: Verdict,
}

/// A newcomer took the mutex while others slept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Barge {
    /// When.
    pub at: Duration,
    /// The contender.
    pub by: usize,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct EventHistory {
    /// By contender.
    pub lanes: Vec<Lane>,
    /// In the order of time.
    pub starving: Vec<Starving>,
    /// In the order of time.
    pub handoffs: Vec<Handoff>,
    /// In the order of time.
    pub barges: Vec<Barge>,
    /// The end of the recording.
    pub end: Duration,
    counts: [usize; Kind::ALL.len()],
}

/// A part of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Where it begins.
    pub from: Duration,
    /// Where it ends.
    pub to: Duration,
}

impl EventHistory {
    /// Of events in the order of time, those of one mutex; of these contenders, which name themselves in the `waiter` of
    /// their [`Kind::Want`], [`Kind::Locked`] and [`Kind::Unlocked`].
    #[must_use]
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

    /// How many events of this kind there are.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.counts[kind as usize]
    }

    /// How many handoffs were found to be so.
    #[must_use]
    pub fn judged(&self, verdict: Verdict) -> usize {
        self.handoffs.iter().filter(|handoff| handoff.verdict == verdict).count()
    }

    /// How long the mutex was in starvation mode.
    #[must_use]
    pub fn time_starving(&self) -> Duration {
        self.starving.iter().map(|starving| starving.to - starving.from).sum()
    }

    /// A part so long that shows something: after a quarter of the whole, where everything has settled, from a little
    /// before starvation mode is turned on; for the first time that it is also turned off in there, if there is one. All
    /// of it, if it is shorter.
    #[must_use]
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
    /// Whether it is in here.
    #[must_use]
    pub fn contains(&self, at: Duration) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// The part of a time that is in here.
    #[must_use]
    pub fn part(&self, from: Duration, to: Duration) -> Option<(Duration, Duration)> {
        let (from, to) = (from.max(self.from), to.min(self.to));
        (from < to).then_some((from, to))
    }

    /// How long it is.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.to.saturating_sub(self.from)
    }
}

/// The contenders, by what the events call them.
fn identify(events: &[Event], contenders: usize) -> HashMap<Who, usize> {
    let introductions = events.iter().filter(|e| matches!(e.kind, Kind::Want | Kind::Locked | Kind::Unlocked));
    introductions.filter(|e| (1..=contenders).contains(&e.waiter)).map(|e| (e.who, e.waiter - 1)).collect()
}

/// From when on no ring has dropped anything: each has what came after the first that it has.
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
    /// The handoff that is under way to this one.
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

/// Starvation mode. It is one bit, so it is turned on and off by turns; but that is reported a moment after it has
/// happened, so two reports that are close together may come in the wrong order.
#[derive(Default)]
struct Modes {
    over: Vec<Starving>,
    /// Turned on, and not off yet.
    on: VecDeque<(Duration, usize)>,
    /// Turned off, and it is not yet known which contender had turned it on.
    off: VecDeque<(Duration, usize)>,
    complete: Duration,
    /// Something is known since `complete`.
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
