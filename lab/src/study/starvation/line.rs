//! The waiters in line, and since when: to judge whether the mutex was handed to the longest waiter.
//!
//! A wait begins with the contender's first sleep since it asked for the mutex. A waiter that is woken and beaten goes back to the
//! head of the line, and its wait goes on. So sleepers stand in the order in which their waits began, but that some
//! *pass* others. Both ways are Go's, too:
//!
//! * Unlocks wake one at a time. But one that has been beaten takes a moment to lie down, and if the mutex is unlocked in
//!   that moment, the next in line is woken. If that one is beaten as well, it goes to the head of the line when the other
//!   is there already:
//!
//!   ```text
//!   A, B asleep   wake A   A is beaten   wake B   A lies down   B is beaten, lies down   in line: B, A
//!   ```
//!
//! * A wake-up comes with a permit. A newcomer that is about to sleep while the woken waiter is on its way takes that
//!   permit, and with it the other's turn to compete; if it is beaten, it goes to the head of the line, without ever having
//!   slept. (Under the policy for threads there is a better reason to begin there: it has been the successor, and watched.)
//!
//! A waiter that has passed another stays before it until one of the two has had the mutex, or the other comes to the head.

use std::time::Duration;

use sudog_runtime::event::{Event, Kind};

/// The waiter that the mutex was handed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// To the waiter that had waited longest.
    Longest,
    /// To a waiter that had passed all that had waited longer.
    Passed,
    /// To another one: there is something wrong with the line.
    Another,
    /// Events are missing which would tell.
    Unknown,
}

/// What is known of the contenders' waits, at one moment.
pub struct Line {
    waits: Vec<Wait>,
    /// From here on no event is missing.
    complete: Duration,
}

#[derive(Clone, Default)]
struct Wait {
    /// Something is known of this contender.
    known: bool,
    /// When it asked for the mutex.
    wanted: Option<Duration>,
    /// When its wait began.
    since: Option<Duration>,
    /// When it last went to sleep.
    last: Duration,
    /// Contenders that have waited longer and that it has passed.
    passed: Vec<usize>,
    /// When it woke before that, or asked for the mutex.
    awake_since: Duration,
    /// What it is known by while it sleeps.
    asleep: Option<usize>,
}

impl Line {
    /// Before the first event. `complete` is zero if none is missing.
    pub fn new(contenders: usize, complete: Duration) -> Self {
        let known = complete.is_zero();
        Self { waits: vec![Wait { known, ..Wait::default() }; contenders], complete }
    }

    /// The sleeper that is known by this.
    pub fn sleeper(&self, waiter: usize) -> Option<usize> {
        self.waits.iter().position(|wait| wait.asleep == Some(waiter))
    }

    /// One more event, of a contender.
    pub fn note(&mut self, event: &Event, who: usize) {
        self.waits[who].known = true;
        match event.kind {
            Kind::Want => {
                let (wanted, awake_since) = (Some(event.at), event.at);
                self.waits[who] = Wait { known: true, wanted, awake_since, ..Wait::default() };
            }
            Kind::Sleep | Kind::Requeue => self.lies_down(event, who),
            Kind::Wake | Kind::Handoff | Kind::Leave => {
                if let Some(woken) = self.sleeper(event.waiter) {
                    (self.waits[woken].asleep, self.waits[woken].awake_since) = (None, event.at);
                }
            }
            Kind::Locked | Kind::Unlocked => {
                self.waits[who] = Wait { known: true, ..Wait::default() };
                self.nobody_has_passed(who);
            }
            _ => {}
        }
    }

    fn lies_down(&mut self, event: &Event, who: usize) {
        let at_head = event.kind == Kind::Requeue;
        let wait = &mut self.waits[who];
        let first = wait.wanted.is_some() && wait.since.is_none();
        if first {
            // Of a waiter that begins at the head it is not known when it was beaten.
            wait.since = if at_head { wait.wanted } else { Some(event.at) };
        }
        (wait.last, wait.asleep) = (event.at, Some(event.waiter));
        if !at_head {
            wait.passed.clear();
            return;
        }
        self.nobody_has_passed(who);
        let me = &self.waits[who];
        let passes = |n: &usize| self.waits[*n].is_before(me) && (first || me.awake_since < self.waits[*n].last);
        let passed: Vec<_> = (0..self.waits.len()).filter(passes).collect();
        self.waits[who].passed.extend(passed);
    }

    fn nobody_has_passed(&mut self, who: usize) {
        self.waits.iter_mut().for_each(|wait| wait.passed.retain(|&passed| passed != who));
    }

    /// When the present owner asked for the mutex.
    pub fn wanted(&self, who: usize) -> Option<Duration> {
        self.waits[who].wanted
    }

    /// Of a handoff to a waiter that still sleeps.
    pub fn judge(&self, to: usize) -> Verdict {
        let waiter = &self.waits[to];
        if waiter.since.is_none()
            || !self.waits.iter().all(|wait| wait.known && wait.asleep.is_some() <= wait.since.is_some())
        {
            return Verdict::Unknown;
        }
        let longer = || (0..self.waits.len()).filter(|&n| self.waits[n].is_before(waiter));
        if longer().next().is_none() {
            Verdict::Longest
        } else if longer().all(|n| self.waits[n].since < Some(self.complete)) {
            Verdict::Unknown // they may have been woken since, by one whose events are missing
        } else if longer().all(|n| waiter.passed.contains(&n)) {
            Verdict::Passed
        } else {
            Verdict::Another
        }
    }
}

impl Wait {
    /// Whether it sleeps, and has waited longer.
    fn is_before(&self, other: &Self) -> bool {
        self.asleep.is_some() && self.since < other.since
    }
}
