//! The sliding window: ticket `t` is admitted while fewer than B tickets, counted from the lowest that has not
//! departed, are below `t`.
//!
//! | word | contents | in the model |
//! |---|---|---|
//! | `T` | next ticket | `window.next`, relative to `base` |
//! | `W` | `base`, R departure bits, and the flag `O` | `window.bits`, `window.flagged` |
//! | list | tickets given up that do not fit the bits; behind a lock of its own | `window.listed` |
//!
//! | operation | accesses |
//! |---|---|
//! | arrive | `t = T += 1`; wait for `t < base + B` |
//! | `depart(t)` | read `W`; CAS `W` to the word with `t` marked and the marked prefix shifted out, until that succeeds |
//! | | if `base` rose and `O` was set in the word that was replaced: `absorb` |
//! | `try_arrive` | read `T`; read `W`, fail unless `T < base + B`; CAS `T` to `T + 1`; then the inner `try_lock` |
//! | abandon(t), `t < base + R` | `depart(t)` |
//! | abandon(t), else | lock the list; read `W`; if `t` fits by now: unlock, `depart(t)` |
//! | | if `O` is set: push `t`, unlock. If not: CAS `W` to `W + O`; if the CAS fails, read again; then push `t`, unlock |
//! | absorb | lock the list; read `W`; mark all listed tickets that fit, shift, and again, until no ticket fits; |
//! | | `O` stays if a ticket is left; CAS `W`, and read again if the CAS fails; take out the marked tickets, unlock |
//!
//! Doorway: `T += 1`, or the CAS of `try_arrive`. Bound: B - 1, as `base <= v` until V has departed, and so only
//! tickets below `v + B` are admitted.
//!
//! No ticket is lost between `base` and the list. A leaver that pushes has seen, under the lock, that its ticket does
//! not fit. The ticket will fit only after `base` has risen. Either the leaver's CAS has set `O`, and then `base` had
//! not risen since the leaver's read, because both are in the word; or `O` was set already, and `O` is cleared only
//! under the lock. So the thread that makes `base` rise after that read replaces a word in which `O` is set, and locks
//! the list after the leaver. A departure that does not make `base` rise makes no ticket fit, and need not lock.
//!
//! Invariants: no ticket departs twice; the flag is set if and only if the list is not empty; `base` does not pass a
//! ticket in the list; at rest the state is the initial one.
//!
//! `T - base` has no bound once tickets are given up: while a ticket stands still, other threads come and go, and each
//! leaves a ticket in the list. In the model no thread draws a ticket while `T - base` is at [`Sliding::most`]; the
//! list then gets as long as that limit allows.

use super::checker::{Model, Steps};
use super::crowd::{Count, Crowd};
use super::window::{Job, Window};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// `try_arrive` does not look at `W`.
    TriesBlindly,
    /// `W` is written with a store.
    PlainStore,
    /// A thread that gives up does not depart.
    ForgetsToDepart,
    /// The list is never absorbed.
    AbsorbsNothing,
    /// `O` is set with a `fetch_or`, whatever the value of `base` is by then.
    FlagsBlindly,
    /// A thread that pushes has not read `W` again under the lock.
    PushesBlindly,
    /// Absorbing clears `O` though a ticket is left in the list.
    ClearsFlag,
}

pub struct Sliding<const N: usize> {
    pub b: u8,
    /// The number of departure bits, which is at least B.
    pub r: u8,
    /// The largest `T - base`: no thread draws a ticket while so many tickets are between `base` and `T`.
    pub most: u8,
    /// True if some threads use `try_arrive`.
    pub tries: bool,
    /// True if deadlines pass: while a thread waits for admission, and for the inner lock.
    pub deadlines: bool,
    /// True if the length of the list is measured, and not the bypass.
    pub measures_list: bool,
    pub fault: Fault,
}

/// A thread's knowledge of `W`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Seen {
    Nothing,
    /// The current word.
    Current,
    /// A past word: the word had these bits, and its `base` was lower by this number. Only [`Fault::PlainStore`] keeps
    /// past words.
    Past(u8, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum At {
    Out,
    Waits(u8),
    Contends(u8),
    Inside(u8),
    Departs(u8, Seen),
    WantsList(Job),
    HasList(Job, Seen),
    /// The `T` that the thread has read, relative to `base`; -1 if `T` is lower.
    Tries(i8),
    Draws(i8),
    TriesInner(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize> {
    window: Window,
    crowd: Crowd<At, N>,
}

impl<const N: usize> State<N> {
    fn free(&self) -> bool {
        !self.crowd.places().any(|at| matches!(at, At::Inside(_)))
    }

    /// `W` has been written: words that other threads have read are old, and `base` has risen.
    fn written(&mut self, risen: u8, before: Window) {
        for at in self.crowd.places_mut() {
            match at {
                At::Waits(t) | At::Contends(t) | At::Inside(t) | At::TriesInner(t) => *t -= risen,
                At::Departs(t, seen) => {
                    *t -= risen;
                    *seen = match *seen {
                        Seen::Current => Seen::Past(risen, before.bits),
                        Seen::Past(back, bits) => Seen::Past(back + risen, bits),
                        Seen::Nothing => Seen::Nothing,
                    };
                }
                At::WantsList(Job::Push(t)) => *t -= risen,
                At::HasList(job, seen) => {
                    if let Job::Push(t) = job {
                        *t -= risen;
                    }
                    if *seen == Seen::Current {
                        *seen = Seen::Past(0, 0);
                    }
                }
                At::Tries(head) | At::Draws(head) => *head = (*head - risen.cast_signed()).max(-1),
                At::Out | At::WantsList(Job::Absorb) => {}
            }
        }
    }
}

impl<const N: usize> Sliding<N> {
    pub fn new(b: u8) -> Self {
        Self { b, r: b, most: 15, tries: false, deadlines: false, measures_list: false, fault: Fault::None }
    }

    fn depart(&self, who: usize, ticket: u8, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut to = *state;
        to.crowd.go(who, At::Out);
        let Some(risen) = to.window.depart(ticket) else {
            steps.wrong(who, "CAS of W: departs", "a ticket departs twice");
            return;
        };
        to.written(risen, state.window);
        if state.window.flagged && risen > 0 && self.fault != Fault::AbsorbsNothing {
            to.crowd.go(who, At::WantsList(Job::Absorb));
        }
        steps.due(who, "CAS of W: departs", to);
    }

    /// Stores the word that was right for the past `W`.
    fn store(who: usize, ticket: u8, back: u8, bits: u16, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut old = Window { next: state.window.next + back, bits, ..state.window };
        let risen = old.depart(ticket + back).unwrap_or(0);
        if risen < back {
            steps.wrong(who, "stores W", "base moves back");
            return;
        }
        let mut to = *state;
        to.crowd.go(who, At::Out);
        to.window = old;
        to.written(risen - back, state.window);
        steps.due(who, "stores W", to);
    }

    fn absorb(&self, who: usize, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut to = *state;
        to.crowd.go(who, At::Out);
        let Some(risen) = to.window.absorb(self.r) else {
            steps.wrong(who, "CAS of W: absorbs", "a ticket departs twice");
            return;
        };
        to.written(risen, state.window);
        to.window.flagged &= self.fault != Fault::ClearsFlag;
        steps.due(who, "CAS of W: absorbs, unlocks the list", to);
    }

    fn list(&self, who: usize, job: Job, seen: Seen, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut to = *state;
        // An unlock may be moved before the accesses of other threads, so make it one step with the access before it.
        match (job, seen) {
            (Job::Push(t), Seen::Nothing) if t < self.r && self.fault != Fault::PushesBlindly => {
                to.crowd.go(who, At::Departs(t, Seen::Nothing));
                steps.due(who, "reads W: fits now; unlocks the list", to);
            }
            (Job::Push(t), Seen::Nothing) if state.window.flagged => {
                to.window.push(t);
                to.crowd.go(who, At::Out);
                steps.due(who, "reads W: flagged; pushes, unlocks", to);
            }
            (Job::Absorb, Seen::Nothing) if !state.window.fits(self.r) => {
                to.crowd.go(who, At::Out);
                steps.due(who, "reads W: nothing fits; unlocks", to);
            }
            (_, Seen::Past(..)) if self.fault != Fault::FlagsBlindly || job == Job::Absorb => {
                to.crowd.go(who, At::HasList(job, Seen::Nothing));
                steps.due(who, "CAS of W fails", to);
            }
            (Job::Push(t), Seen::Current | Seen::Past(..)) => {
                to.window.push(t);
                to.crowd.go(who, At::Out);
                to.written(0, state.window);
                steps.due(who, "CAS of W: flags; pushes, unlocks", to);
            }
            (_, Seen::Nothing) => {
                to.crowd.go(who, At::HasList(job, Seen::Current));
                steps.due(who, "reads W", to);
            }
            (Job::Absorb, _) => self.absorb(who, state, steps),
        }
    }

    fn tries(&self, who: usize, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut to = *state;
        match state.crowd.at(who) {
            At::Tries(head) if head >= self.b.cast_signed() && self.fault != Fault::TriesBlindly => {
                to.crowd.go(who, At::Out);
                steps.due(who, "reads W: window closed, fails", to);
            }
            At::Tries(head) => {
                to.crowd.go(who, At::Draws(head));
                steps.due(who, "reads W: window open", to);
            }
            At::Draws(head) if head != state.window.next.cast_signed() => {
                to.crowd.go(who, At::Tries(state.window.next.cast_signed()));
                steps.due(who, "CAS of T fails", to);
            }
            At::Draws(_) => {
                let ticket = to.window.draw();
                to.crowd.ends(who, Count::Ended);
                to.crowd.go(who, At::TriesInner(ticket));
                steps.due(who, "CAS of T: draws", to);
            }
            At::TriesInner(ticket) => {
                // An inner lock that is promised to a contender may refuse as well.
                if !state.free() || state.crowd.places().any(|at| matches!(at, At::Contends(_))) {
                    to.crowd.gives_up(who);
                    to.crowd.go(who, At::Departs(ticket, Seen::Nothing));
                    steps.due(who, "try_lock of the inner lock fails", to);
                }
                if state.free() {
                    let mut to = *state;
                    to.crowd.enters(who, Count::Ended);
                    to.crowd.go(who, At::Inside(ticket));
                    steps.due(who, "try_lock: enters", to);
                }
            }
            _ => {}
        }
    }
}

impl<const N: usize> Model for Sliding<N> {
    type State = State<N>;

    fn initial(&self) -> State<N> {
        State { window: Window::EMPTY, crowd: Crowd::new(|_| At::Out) }
    }

    fn steps(&self, state: &State<N>, steps: &mut Steps<State<N>>) {
        for who in 0..N {
            let mut to = *state;
            match state.crowd.at(who) {
                At::Out if state.window.next < self.most => {
                    let ticket = to.window.draw();
                    to.crowd.ends(who, Count::Ended);
                    to.crowd.go(who, At::Waits(ticket));
                    steps.free(who, "T += 1", to);
                    if self.tries {
                        let mut to = *state;
                        to.crowd.go(who, At::Tries(state.window.next.cast_signed()));
                        steps.free(who, "try_lock: reads T", to);
                    }
                }
                At::Waits(ticket) if ticket < self.b => {
                    to.crowd.go(who, At::Contends(ticket));
                    steps.due(who, "reads W: admitted", to);
                }
                At::Contends(ticket) if state.free() => {
                    to.crowd.enters(who, Count::Ended);
                    to.crowd.go(who, At::Inside(ticket));
                    steps.due(who, "enters", to);
                }
                At::Out | At::Waits(_) | At::Contends(_) => {}
                At::Inside(ticket) => {
                    to.crowd.go(who, At::Departs(ticket, Seen::Nothing));
                    steps.due(who, "unlocks the inner lock", to);
                }
                At::Departs(ticket, Seen::Nothing) => {
                    let at = if ticket < self.r {
                        At::Departs(ticket, Seen::Current)
                    } else {
                        At::WantsList(Job::Push(ticket))
                    };
                    to.crowd.go(who, at);
                    steps.due(who, "reads W", to);
                }
                At::Departs(ticket, Seen::Current) => self.depart(who, ticket, state, steps),
                At::Departs(ticket, Seen::Past(back, bits)) if self.fault == Fault::PlainStore => {
                    Self::store(who, ticket, back, bits, state, steps);
                }
                At::Departs(ticket, Seen::Past(..)) => {
                    to.crowd.go(who, At::Departs(ticket, Seen::Current));
                    steps.due(who, "CAS of W fails, and reads it", to);
                }
                At::WantsList(job) => {
                    if !state.crowd.places().any(|at| matches!(at, At::HasList(..))) {
                        to.crowd.go(who, At::HasList(job, Seen::Nothing));
                        steps.due(who, "locks the list", to);
                    }
                }
                At::HasList(job, seen) => self.list(who, job, seen, state, steps),
                At::Tries(_) | At::Draws(_) | At::TriesInner(_) => self.tries(who, state, steps),
            }
            if let At::Waits(ticket) | At::Contends(ticket) = state.crowd.at(who)
                && self.deadlines
            {
                let mut to = *state;
                to.crowd.gives_up(who);
                let forgets = self.fault == Fault::ForgetsToDepart;
                to.crowd.go(who, if forgets { At::Out } else { At::Departs(ticket, Seen::Nothing) });
                steps.free(who, "its deadline passes", to);
            }
        }
    }

    fn canonical(&self, mut state: State<N>) -> State<N> {
        if self.fault != Fault::PlainStore {
            // The age of a word does not matter to a CAS.
            for at in state.crowd.places_mut() {
                if let At::Departs(_, seen @ Seen::Past(..)) = at {
                    *seen = Seen::Past(0, 0);
                }
            }
        }
        State { crowd: state.crowd.canonical(), ..state }
    }

    fn invariant(&self, state: &State<N>) -> Result<(), &'static str> {
        if state.window.flagged != (state.window.listed != 0) {
            return Err("the flag does not say whether the list is empty");
        }
        if self.at_rest(state) && state.window != Window::EMPTY {
            return Err("permits are not conserved");
        }
        Ok(())
    }

    fn at_rest(&self, state: &State<N>) -> bool {
        state.crowd.places().all(|at| at == At::Out)
    }

    fn measure(&self, state: &State<N>) -> u32 {
        if self.measures_list { state.window.listed.count_ones() } else { state.crowd.bypassed() }
    }

    fn unmeasured(&self, state: State<N>) -> State<N> {
        State { crowd: state.crowd.unmeasured(), ..state }
    }
}
