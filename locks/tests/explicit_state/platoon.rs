//! The capacitor of the paper: a FIFO semaphore of B permits, which are given back B at a time.
//!
//! | word | contents | in the model |
//! |---|---|---|
//! | `T` | next ticket of the semaphore | `next`: `T - G` |
//! | `G` | tickets below `G` are admitted | tickets are relative to `G`; all admitted tickets are alike |
//! | `D` | departures: in total (upper half), in this platoon (lower half) | `here`: the lower half |
//!
//! | operation | accesses |
//! |---|---|
//! | arrive | `t = T += 1`; wait for `G > t` |
//! | | the inner lock, which any contender may be the next to get |
//! | depart | `D += {1, 1}`; the B-th departure of the platoon: `D -= {0, B}`, then `G += B` |
//!
//! The paper's form has no total, resets `D` with a store, and posts one permit at a time ([`Form::Paper`]).
//!
//! Doorway: `T += 1`. Bound: B - 1. While V has not entered, its platoon is not complete, so only tickets of V's
//! platoon and of earlier platoons are admitted; of these, at most the other B - 1 of V's platoon are later than V.
//!
//! Invariants: at most B threads are between admission and departure; at rest `G - T + here` is B.

use super::checker::{Model, Steps};
use super::crowd::{Count, Crowd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The last thread of a platoon subtracts, then posts B permits at once.
    Packed,
    /// The last thread of a platoon stores 0, then posts B times.
    Paper,
    /// Wrong: the last thread posts B permits, then subtracts.
    PostFirst,
    /// Wrong: the last thread posts B permits, then stores 0.
    PostThenStore,
}

pub struct Platoon<const N: usize> {
    pub b: u8,
    pub form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum At {
    Out,
    /// The thread waits. Stored: its ticket less `G`; -1 is any ticket that is admitted.
    Waits(i8),
    Contends,
    Inside,
    Departs,
    Resets,
    /// The number of permits that are still to be posted.
    Posts(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize> {
    next: i8,
    here: u8,
    crowd: Crowd<At, N>,
}

impl<const N: usize> State<N> {
    fn post(&mut self, n: u8) {
        let n = n.cast_signed();
        self.next -= n;
        for at in self.crowd.places_mut() {
            if let At::Waits(ticket) = at {
                *ticket = (*ticket - n).max(-1);
            }
        }
    }

    fn free(&self) -> bool {
        !self.crowd.places().any(|at| at == At::Inside)
    }
}

impl<const N: usize> Model for Platoon<N> {
    type State = State<N>;

    fn initial(&self) -> State<N> {
        State { next: -self.b.cast_signed(), here: 0, crowd: Crowd::new(|_| At::Out) }
    }

    fn steps(&self, state: &State<N>, steps: &mut Steps<State<N>>) {
        for who in 0..N {
            let mut to = *state;
            match state.crowd.at(who) {
                At::Out => {
                    to.next += 1;
                    to.crowd.ends(who, Count::Ended);
                    to.crowd.go(who, At::Waits(state.next.max(-1)));
                    steps.free(who, "T += 1", to);
                }
                At::Waits(-1) => {
                    to.crowd.go(who, At::Contends);
                    steps.due(who, "reads G, is admitted", to);
                }
                At::Contends if state.free() => {
                    to.crowd.enters(who, Count::Ended);
                    to.crowd.go(who, At::Inside);
                    steps.due(who, "enters", to);
                }
                At::Waits(_) | At::Contends => {}
                At::Inside => {
                    to.crowd.go(who, At::Departs);
                    steps.due(who, "unlocks the inner lock", to);
                }
                At::Departs => {
                    to.here += 1;
                    let last = match self.form {
                        Form::Packed | Form::Paper => At::Resets,
                        Form::PostFirst | Form::PostThenStore => At::Posts(self.b),
                    };
                    to.crowd.go(who, if to.here == self.b { last } else { At::Out });
                    steps.due(who, "D += {1, 1}", to);
                }
                At::Resets => {
                    match self.form {
                        Form::Packed | Form::PostFirst => to.here -= self.b,
                        Form::Paper | Form::PostThenStore => to.here = 0,
                    }
                    let posted = matches!(self.form, Form::PostFirst | Form::PostThenStore);
                    to.crowd.go(who, if posted { At::Out } else { At::Posts(self.b) });
                    steps.due(who, "resets D", to);
                }
                At::Posts(left) => {
                    let n = if self.form == Form::Paper { 1 } else { self.b };
                    to.post(n);
                    to.crowd.go(
                        who,
                        match (left - n, self.form) {
                            (0, Form::Packed | Form::Paper) => At::Out,
                            (0, _) => At::Resets,
                            (left, _) => At::Posts(left),
                        },
                    );
                    steps.due(who, "posts to G", to);
                }
            }
        }
    }

    fn canonical(&self, state: State<N>) -> State<N> {
        State { crowd: state.crowd.canonical(), ..state }
    }

    fn invariant(&self, state: &State<N>) -> Result<(), &'static str> {
        let within = state.crowd.places().filter(|at| matches!(at, At::Contends | At::Inside | At::Departs)).count();
        if within > self.b.into() {
            return Err("more than B are admitted");
        }
        if self.at_rest(state) && state.here.cast_signed() - state.next != self.b.cast_signed() {
            return Err("permits are not conserved");
        }
        Ok(())
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
