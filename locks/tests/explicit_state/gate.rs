//! The gate: a contender that meets no other passes without a ticket. Over the sliding window and over the platoon.
//!
//! | word | over the window | over the platoon | in the model |
//! |---|---|---|---|
//! | count | `T` | `A`: arrivals for a ticket | `pending()`: count - base |
//! | base | `base` in `W` | the total in `D` | |
//! | the rest | see `sliding.rs` | see `platoon.rs` | `window`; `next`, `here` |
//!
//! | operation | accesses |
//! |---|---|
//! | lock | check: read base, read count; unless equal: arrive, inner lock |
//! | | inner `try_lock`; if it fails: arrive, inner lock |
//! | | read base **again, then** count; equal: the critical section, without a ticket |
//! | | if not: `try_arrive` with the inner lock held; or else release the inner lock, arrive, inner lock |
//! | `try_lock` | the same, but where `lock` would arrive: `try_arrive`, inner `try_lock`; where that fails: None |
//! | arrive | window: `T += 1`, wait. Platoon: `A += 1`, `T += 1`, wait for `G` |
//! | `try_arrive` | window: as arrive, if that needs no wait. Platoon: `A += 1`, then so; if it fails: arrive goes on |
//! | | from there, and `try_lock` takes back its count by `D += {1, 0}` |
//! | depart | window: read `W`, CAS. Platoon: `D += {1, 1}`, and so on. Without a ticket: nothing |
//!
//! In the model `try_arrive` is one step, because it acts like one step: success is the CAS of `T`, since admission is
//! never taken back; and where the read of `base` or `G` shows no room over the `T` read before, there is no room.
//! `sliding.rs` models its parts.
//!
//! Doorway: up to the drawing of the ticket; without a ticket, up to the read of the count that lets the thread pass.
//!
//! Bound: B - 1. Base is read first, and only rises. If the count, read later, equals base, then no thread was between
//! doorway and departure at that read; and later arrivals find the inner lock held.
//!
//! The gate in other forms ([`Form`]), in doorways that *ended* after V's:
//!
//! | form | bound |
//! |---|---|
//! | plain: tested before the inner `try_lock`, not after | B - 1 + (T - 1): each thread may hold an outdated pass |
//! | plain, then an inner lock that waits | none: a thread that waits there without a ticket is no predecessor of any |
//! | count before base, under the lock | B |
//!
//! If only doorways count that *began* after V's had ended, the bound of the first and the third form is B - 1: a pass
//! that is out of date was begun before V drew its ticket.
//!
//! The check before the inner lock limits how often other threads hold the lock for nothing ([`Count::Holds`]).
//! `try_lock` needs this check: a `try_lock` that takes the inner lock only to find out that it must not have the lock
//! can keep V from the lock for ever ([`Form::TriesUnasked`]).

use super::checker::{Model, Steps};
use super::crowd::{Count, Crowd};
use super::window::Window;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Window,
    Platoon,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Snapshot,
    /// The snapshot gate, where the first check may have any outcome.
    NoLook,
    Plain,
    PlainWaits,
    CountFirst,
    /// `try_lock` takes the inner lock without a check.
    TriesUnasked,
    /// The form over the platoon in which the arrival is counted after the ticket is drawn.
    CountsLate,
}

pub struct Gate<const N: usize> {
    pub b: u8,
    pub over: Over,
    pub form: Form,
    /// True if some threads use `try_lock`.
    pub tries: bool,
    pub count: Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    Lock,
    Try,
}

/// The places of a thread. Tickets are kept relative to `base`, or to `G`, where -1 is any ticket that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum At {
    Out,
    /// The thread has read base. The flag tells whether base still has that value.
    Looked(Op, bool),
    TriesInner(Op),
    Holds(Op),
    HoldsBase(Op, bool),
    /// The thread has read the count. The number is the count less base, or -1.
    HoldsCount(Op, i8),
    HoldsCounts(Op),
    HoldsArrives(Op),
    Unlocks(Op),
    Counts(Op),
    Arrives(Op),
    CountsLate(i8),
    Waits(i8),
    Contends(i8),
    TriesWith(i8),
    WaitsWithout,
    Inside(Option<i8>),
    Departs(i8, bool),
    Resets,
    Posts,
    TakesBack,
}

impl At {
    /// True if a thread at this place has the inner lock.
    fn holds(self) -> bool {
        let looks = matches!(self, At::Holds(_) | At::HoldsBase(..) | At::HoldsCount(..));
        looks || matches!(self, At::HoldsCounts(_) | At::HoldsArrives(_) | At::Unlocks(_) | At::Inside(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize> {
    window: Window,
    next: i8,
    here: u8,
    pending: u8,
    crowd: Crowd<At, N>,
}

impl<const N: usize> State<N> {
    fn free(&self) -> bool {
        !self.crowd.places().any(|at| at.holds())
    }

    fn contended(&self) -> bool {
        self.crowd.places().any(|at| matches!(at, At::Contends(_) | At::WaitsWithout))
    }

    /// Notes that base has been written, and is higher by `n`.
    fn risen(&mut self, n: i8, over: Over) {
        for at in self.crowd.places_mut() {
            match at {
                At::Looked(_, current) | At::HoldsBase(_, current) => *current &= n == 0,
                At::HoldsCount(_, count) => *count = (*count - n).max(-1),
                At::Waits(t) | At::Contends(t) | At::TriesWith(t) | At::Inside(Some(t)) if over == Over::Window => {
                    *t -= n
                }
                At::Departs(t, current) if over == Over::Window => {
                    *t -= n;
                    *current = false;
                }
                _ => {}
            }
        }
    }
}

impl<const N: usize> Gate<N> {
    pub fn new(b: u8, over: Over) -> Self {
        Self { b, over, form: Form::Snapshot, tries: false, count: Count::Ended }
    }

    fn pending(&self, state: &State<N>) -> u8 {
        match self.over {
            Over::Window => state.window.next,
            Over::Platoon => state.pending,
        }
    }

    fn draw(&self, state: &mut State<N>, who: usize) -> i8 {
        state.crowd.ends(who, self.count);
        match self.over {
            Over::Window => state.window.draw().cast_signed(),
            Over::Platoon => {
                state.next += 1;
                (state.next - 1).max(-1)
            }
        }
    }

    fn admitted(&self, ticket: i8) -> bool {
        match self.over {
            Over::Window => ticket < self.b.cast_signed(),
            Over::Platoon => ticket < 0,
        }
    }

    /// Returns whether the next ticket is admitted.
    fn open(&self, state: &State<N>) -> bool {
        match self.over {
            Over::Window => state.window.next < self.b,
            Over::Platoon => state.next < 0,
        }
    }

    /// Returns the place of a thread that has not passed the gate.
    fn arrives(&self, op: Op) -> At {
        if self.over == Over::Platoon && self.form != Form::CountsLate { At::Counts(op) } else { At::Arrives(op) }
    }

    fn with_pass(&self, who: usize, to: &mut State<N>) {
        to.crowd.ends(who, self.count);
        to.crowd.enters(who, self.count);
        to.crowd.go(who, At::Inside(None));
    }

    fn tries_inner(&self, who: usize, op: Op, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut to = *state;
        if state.free() {
            to.crowd.holds(who, self.count);
            if self.form == Form::Plain {
                self.with_pass(who, &mut to);
            } else {
                to.crowd.go(who, At::Holds(op));
            }
            steps.due(who, "try_lock of the inner lock", to);
        }
        // An inner lock that is promised to a contender may refuse as well.
        if !state.free() || state.contended() {
            let mut to = *state;
            to.crowd.go(who, if op == Op::Try { At::Out } else { self.arrives(op) });
            steps.due(who, "try_lock of the inner lock fails", to);
        }
    }

    fn begins(&self, who: usize, op: Op, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut to = *state;
        to.crowd.begins(who, self.count);
        if self.form == Form::NoLook || self.form == Form::TriesUnasked && op == Op::Try {
            to.crowd.go(who, At::TriesInner(op));
            steps.free(who, "begins", to);
            to.crowd.go(who, self.arrives(op));
            steps.free(who, "begins, in line", to);
        } else {
            to.crowd.go(who, At::Looked(op, true));
            steps.free(who, "reads base", to);
        }
    }

    fn depart(&self, who: usize, ticket: i8, current: bool, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut to = *state;
        match self.over {
            Over::Window if !current => {
                to.crowd.go(who, At::Departs(ticket, true));
                steps.due(who, "reads W", to);
            }
            Over::Window => {
                to.crowd.go(who, At::Out);
                let Some(risen) = to.window.depart(ticket.cast_unsigned()) else {
                    return steps.wrong(who, "CAS of W: departs", "a ticket departs twice");
                };
                to.risen(risen.cast_signed(), self.over);
                steps.due(who, "CAS of W: departs", to);
            }
            Over::Platoon => {
                to.here += 1;
                to.pending -= 1;
                to.risen(1, self.over);
                to.crowd.go(who, if to.here == self.b { At::Resets } else { At::Out });
                steps.due(who, "D += {1, 1}", to);
            }
        }
    }
}

impl<const N: usize> Model for Gate<N> {
    type State = State<N>;

    fn initial(&self) -> State<N> {
        let next = -self.b.cast_signed();
        State { window: Window::EMPTY, next, here: 0, pending: 0, crowd: Crowd::new(|_| At::Out) }
    }

    fn steps(&self, state: &State<N>, steps: &mut Steps<State<N>>) {
        let pending = self.pending(state);
        for who in 0..N {
            let mut to = *state;
            match state.crowd.at(who) {
                At::Out => {
                    self.begins(who, Op::Lock, state, steps);
                    if self.tries {
                        self.begins(who, Op::Try, state, steps);
                    }
                }
                At::Looked(op, current) => {
                    let pass = current && pending == 0;
                    to.crowd.go(
                        who,
                        match (pass, self.form) {
                            (true, Form::PlainWaits) => At::WaitsWithout,
                            (true, _) => At::TriesInner(op),
                            (false, _) => self.arrives(op),
                        },
                    );
                    if pass && self.form == Form::PlainWaits {
                        to.crowd.ends(who, self.count);
                    }
                    steps.due(who, "reads the count", to);
                }
                At::TriesInner(op) => self.tries_inner(who, op, state, steps),
                At::Holds(op) => {
                    let first = self.form == Form::CountFirst;
                    let at = if first { At::HoldsCount(op, pending.cast_signed()) } else { At::HoldsBase(op, true) };
                    to.crowd.go(who, at);
                    steps.due(who, if first { "reads the count first" } else { "reads base again" }, to);
                }
                At::HoldsBase(op, _) | At::HoldsCount(op, _) => {
                    let pass = match state.crowd.at(who) {
                        At::HoldsCount(_, count) => count == 0,
                        at => at == At::HoldsBase(op, true) && pending == 0,
                    };
                    if pass {
                        self.with_pass(who, &mut to);
                    } else if self.over == Over::Platoon && self.form != Form::CountsLate {
                        to.crowd.go(who, At::HoldsCounts(op));
                    } else {
                        to.crowd.go(who, At::HoldsArrives(op));
                    }
                    steps.due(who, if pass { "passes" } else { "does not pass" }, to);
                }
                At::HoldsCounts(op) | At::Counts(op) => {
                    let holds = matches!(state.crowd.at(who), At::HoldsCounts(_));
                    to.pending += 1;
                    to.crowd.go(who, if holds { At::HoldsArrives(op) } else { At::Arrives(op) });
                    steps.due(who, "A += 1", to);
                }
                At::HoldsArrives(_) if self.open(state) && self.form != Form::CountsLate => {
                    let ticket = self.draw(&mut to, who);
                    to.crowd.enters(who, self.count);
                    to.crowd.go(who, At::Inside(Some(ticket)));
                    steps.due(who, "try_arrive: enters", to);
                }
                At::HoldsArrives(op) => {
                    to.crowd.go(who, At::Unlocks(op));
                    steps.due(who, "try_arrive fails", to);
                }
                At::Unlocks(op) => {
                    to.crowd.go(
                        who,
                        match (op, self.over) {
                            (Op::Try, Over::Window) => At::Out,
                            (Op::Try, Over::Platoon) => At::TakesBack,
                            (Op::Lock, _) => At::Arrives(op),
                        },
                    );
                    steps.due(who, "lets go of the inner lock", to);
                }
                At::Arrives(Op::Try) => {
                    if self.open(state) {
                        let ticket = self.draw(&mut to, who);
                        to.crowd.go(who, At::TriesWith(ticket));
                        steps.due(who, "try_arrive", to);
                    } else {
                        to.crowd.go(who, if self.over == Over::Platoon { At::TakesBack } else { At::Out });
                        steps.due(who, "try_arrive fails", to);
                    }
                }
                At::Arrives(Op::Lock) => {
                    let ticket = self.draw(&mut to, who);
                    let late = self.form == Form::CountsLate;
                    to.crowd.go(who, if late { At::CountsLate(ticket) } else { At::Waits(ticket) });
                    steps.due(who, "T += 1", to);
                }
                At::CountsLate(ticket) => {
                    to.pending += 1;
                    to.crowd.go(who, At::Waits(ticket));
                    steps.due(who, "A += 1, late", to);
                }
                At::Waits(ticket) => {
                    if self.admitted(ticket) {
                        to.crowd.go(who, At::Contends(ticket));
                        steps.due(who, "is admitted", to);
                    }
                }
                At::TriesWith(ticket) => {
                    if state.free() {
                        to.crowd.holds(who, self.count);
                        to.crowd.enters(who, self.count);
                        to.crowd.go(who, At::Inside(Some(ticket)));
                        steps.due(who, "try_lock of the inner lock: enters", to);
                    }
                    if !state.free() || state.contended() {
                        let mut to = *state;
                        to.crowd.gives_up(who);
                        to.crowd.go(who, At::Departs(ticket, false));
                        steps.due(who, "try_lock of the inner lock fails", to);
                    }
                }
                at @ (At::Contends(_) | At::WaitsWithout) => {
                    if state.free() {
                        to.crowd.holds(who, self.count);
                        to.crowd.enters(who, self.count);
                        to.crowd.go(who, At::Inside(if let At::Contends(ticket) = at { Some(ticket) } else { None }));
                        steps.due(who, "enters", to);
                    }
                }
                At::Inside(ticket) => {
                    to.crowd.go(who, ticket.map_or(At::Out, |ticket| At::Departs(ticket, false)));
                    steps.due(who, "unlocks the inner lock", to);
                }
                At::Departs(ticket, current) => self.depart(who, ticket, current, state, steps),
                At::Resets => {
                    to.here -= self.b;
                    to.crowd.go(who, At::Posts);
                    steps.due(who, "D -= {0, B}", to);
                }
                At::Posts => {
                    to.next -= self.b.cast_signed();
                    to.crowd.go(who, At::Out);
                    for at in to.crowd.places_mut() {
                        if let At::Waits(ticket) | At::CountsLate(ticket) = at {
                            *ticket = (*ticket - self.b.cast_signed()).max(-1);
                        }
                    }
                    steps.due(who, "G += B", to);
                }
                At::TakesBack => {
                    to.pending -= 1;
                    to.risen(1, self.over);
                    to.crowd.go(who, At::Out);
                    steps.due(who, "D += {1, 0}", to);
                }
            }
        }
    }

    fn canonical(&self, mut state: State<N>) -> State<N> {
        if self.over == Over::Platoon {
            for at in state.crowd.places_mut() {
                if let At::Departs(ticket, _)
                | At::Contends(ticket)
                | At::TriesWith(ticket)
                | At::Inside(Some(ticket)) = at
                {
                    *ticket = -1;
                }
            }
        }
        State { crowd: state.crowd.canonical(), ..state }
    }

    fn invariant(&self, state: &State<N>) -> Result<(), &'static str> {
        let conserved = match self.over {
            Over::Window => state.window == Window::EMPTY,
            Over::Platoon => state.pending == 0 && state.here.cast_signed() - state.next == self.b.cast_signed(),
        };
        if self.at_rest(state) && !conserved { Err("permits are not conserved") } else { Ok(()) }
    }

    fn at_rest(&self, state: &State<N>) -> bool {
        state.crowd.places().all(|at| at == At::Out)
    }

    fn measure(&self, state: &State<N>) -> u32 {
        state.crowd.bypassed()
    }

    fn unmeasured(&self, state: State<N>) -> State<N> {
        State { crowd: state.crowd.unmeasured(), ..state }
    }
}
