//! The queue of waiters, and the times at which their waits began: these tell whether the mutex was handed to the
//! longest waiter.
//!
//! A wait begins with the contender's first sleep since it asked for the mutex. A waiter that is woken and beaten goes
//! back to the head of the queue, and its wait goes on. So sleepers are queued in the order in which their waits began,
//! except that some *pass* others, in two ways. Both are Go's, too:
//!
//! * Unlocks wake one waiter at a time. But a beaten waiter takes a moment to go to sleep again, and if the mutex is
//!   unlocked in that moment, the next waiter is woken. If that next waiter is beaten as well, it goes to the head of
//!   the queue when the first is queued already:
//!
//!   ```text
//!   A, B asleep   wake A   A is beaten   wake B   A lies down   B is beaten, lies down   in line: B, A
//!   ```
//!
//! * A wake-up comes with a permit. A newcomer that is about to sleep while the woken waiter is on its way takes that
//!   permit, and with the permit the waiter's turn to compete; if the newcomer is beaten, it goes to the head of the
//!   queue without ever having slept. (Under the policy for threads there is a better reason to begin there: the waiter
//!   has been the successor, and has watched the mutex.)
//!
//! A waiter that has passed another stays before that waiter until one of the two has had the mutex, or the passed
//! waiter comes to the head.

use std::time::Duration;

use sudog_runtime::event::{Event, Kind};

/// The judgement on the waiter that the mutex was handed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The waiter had waited longest.
    Longest,
    /// The waiter had passed all waiters that had waited longer.
    Passed,
    /// Neither of these is true of the waiter: there is something wrong with the queue.
    Another,
    /// The events that would tell are missing.
    Unknown,
}

/// The waits of all contenders, as far as they are known, at some moment.
pub struct Line {
    waits: Vec<Wait>,
    /// The time from which on no event is missing.
    complete: Duration,
}

#[derive(Clone, Default)]
struct Wait {
    /// True if something is known of this contender.
    known: bool,
    /// The time at which the contender asked for the mutex.
    wanted: Option<Duration>,
    /// The time at which the wait began.
    since: Option<Duration>,
    /// The time at which the contender last went to sleep.
    last: Duration,
    /// The contenders that have waited longer and that this contender has passed.
    passed: Vec<usize>,
    /// The time at which the contender, before that sleep, woke or asked for the mutex.
    awake_since: Duration,
    /// The identifier of the sleep, while the contender sleeps.
    asleep: Option<usize>,
}

impl Line {
    /// Returns the state before the first event. `complete` is zero if no event is missing.
    pub fn new(contenders: usize, complete: Duration) -> Self {
        let known = complete.is_zero();
        Self { waits: vec![Wait { known, ..Wait::default() }; contenders], complete }
    }

    /// Returns the contender whose sleep has this identifier.
    pub fn sleeper(&self, waiter: usize) -> Option<usize> {
        self.waits.iter().position(|wait| wait.asleep == Some(waiter))
    }

    /// Takes the next event, with the number of the event's contender.
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
            // The time at which a waiter that begins at the head was beaten is not known: take the time of its request.
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

    /// Returns the time at which the present owner asked for the mutex.
    pub fn wanted(&self, who: usize) -> Option<Duration> {
        self.waits[who].wanted
    }

    /// Judges a handoff to a waiter that still sleeps.
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
            Verdict::Unknown // they may have been woken since, by a contender whose events are missing
        } else if longer().all(|n| waiter.passed.contains(&n)) {
            Verdict::Passed
        } else {
            Verdict::Another
        }
    }
}

impl Wait {
    /// Returns whether this contender sleeps, and has waited longer than `other`.
    fn is_before(&self, other: &Self) -> bool {
        self.asleep.is_some() && self.since < other.since
    }
}
