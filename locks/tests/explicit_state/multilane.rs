//! L lanes, each a FIFO semaphore of B permits, so that arrivals do not meet on a single word.
//!
//! | word | contents | in the model |
//! |---|---|---|
//! | `N` | the dealer: the next number | `dealer`: mod L |
//! | `T[l]` | next ticket of a lane | `lanes[l].next`: `T - G` |
//! | `G[l]` | the lane's tickets below `G[l]` are admitted | relative to `G[l]`; all admitted tickets are alike |
//! | `D[l]` | departures since the last post; a single `D` for all lanes with [`Departures::Shared`] | `here` |
//!
//! | operation | accesses |
//! |---|---|
//! | arrive | choose a lane ([`Dealing`]); `t = T[l] += 1`; wait for `G[l] > t` |
//! | depart, own | `D[l] += 1`; the B-th departure: `D[l] -= B`, then `G[l] += B` |
//! | depart, shared | `D += 1`; the L*B-th departure: `D -= L*B`, then `G[l] += B` for each lane in turn |
//!
//! Doorway: up to the drawing of the lane's ticket.
//!
//! | dealing | a single count of departures | a count for each lane |
//! |---|---|---|
//! | [`Dealing::Ticket`] | LB - 1 | LB - 1 + (L - 1)(T - 2) |
//! | [`Dealing::Lane`], doorways that began late | LB - 1 + floor((T - 2)(L - 1) / L) | as above |
//! | [`Dealing::Lane`], doorways that ended late | more | as above, and T - 1 |
//! | [`Dealing::ByThread`], [`Dealing::Random`] | stuck: a lane without threads closes the others | none |
//!
//! With assigned tickets and a single count this is the platoon of LB, in L parts. With a count for each lane, V keeps
//! its lane closed: the lane lets B - 1 other threads by and then fills up, and because each lane has its turn, the
//! other lanes fill up, too. Where the number is not the ticket, a thread that stops between the two steps puts the
//! lanes out of step. The bounds with T fit the sizes that were run; they are not proved.

use super::checker::{Model, Steps};
use super::crowd::{Count, Crowd};

/// The way in which a thread gets its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dealing {
    /// One step, `n = N += 1`, gives the thread lane `n mod L` and the ticket `n div L` of that lane.
    Ticket,
    /// Two steps: `n = N += 1` gives the thread lane `n mod L`; then the thread draws a ticket of that lane.
    Lane,
    /// The lane is the thread's own number mod L. V is thread 0.
    ByThread,
    /// The thread chooses any lane.
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departures {
    Shared,
    Own,
}

pub struct Multilane<const N: usize, const L: usize> {
    pub b: u8,
    pub dealing: Dealing,
    pub departures: Departures,
    pub count: Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum At {
    /// The thread is outside. Stored: its lane, if each thread has a lane of its own; else 0.
    Out(u8),
    Draws(u8),
    /// The thread waits. Stored: its lane, and its ticket less `G`; -1 is any ticket that is admitted.
    Waits(u8, i8),
    Contends(u8),
    Inside(u8),
    Departs(u8),
    Resets(u8),
    /// The thread posts. Stored: its lane, and the lane to post to.
    Posts(u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    next: i8,
    here: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize, const L: usize> {
    dealer: u8,
    lanes: [Lane; L],
    here: u8,
    crowd: Crowd<At, N>,
}

impl<const N: usize, const L: usize> Multilane<N, L> {
    const LANES: u8 = L as u8;

    /// Returns the place of a thread that leaves a lane.
    fn out(&self, lane: u8) -> At {
        At::Out(if self.dealing == Dealing::ByThread { lane } else { 0 })
    }

    fn draw(&self, who: usize, lane: u8, to: &mut State<N, L>) {
        let next = &mut to.lanes[lane as usize].next;
        to.crowd.go(who, At::Waits(lane, (*next).max(-1)));
        *next += 1;
        to.crowd.ends(who, self.count);
    }

    fn begins(&self, who: usize, own: u8, state: &State<N, L>, steps: &mut Steps<State<N, L>>) {
        let mut to = *state;
        to.crowd.begins(who, self.count);
        match self.dealing {
            Dealing::Ticket | Dealing::Lane => {
                to.dealer = (to.dealer + 1) % Self::LANES;
                if self.dealing == Dealing::Ticket {
                    self.draw(who, state.dealer, &mut to);
                } else {
                    to.crowd.go(who, At::Draws(state.dealer));
                }
                steps.free(who, "N += 1", to);
            }
            Dealing::ByThread => {
                self.draw(who, own, &mut to);
                steps.free(who, "T += 1, in its own lane", to);
            }
            Dealing::Random => {
                for lane in 0..Self::LANES {
                    let mut to = to;
                    self.draw(who, lane, &mut to);
                    steps.free(who, "T += 1, in some lane", to);
                }
            }
        }
    }
}

impl<const N: usize, const L: usize> Model for Multilane<N, L> {
    type State = State<N, L>;

    fn initial(&self) -> State<N, L> {
        let lane = Lane { next: -self.b.cast_signed(), here: 0 };
        State { dealer: 0, lanes: [lane; L], here: 0, crowd: Crowd::new(|who| self.out((who % L) as u8)) }
    }

    fn steps(&self, state: &State<N, L>, steps: &mut Steps<State<N, L>>) {
        let free = !state.crowd.places().any(|at| matches!(at, At::Inside(_)));
        for who in 0..N {
            let mut to = *state;
            match state.crowd.at(who) {
                At::Out(own) => self.begins(who, own, state, steps),
                At::Draws(lane) => {
                    self.draw(who, lane, &mut to);
                    steps.due(who, "T += 1, in the lane it was dealt", to);
                }
                At::Waits(lane, -1) => {
                    to.crowd.go(who, At::Contends(lane));
                    steps.due(who, "reads G: admitted", to);
                }
                At::Contends(lane) if free => {
                    to.crowd.enters(who, self.count);
                    to.crowd.go(who, At::Inside(lane));
                    steps.due(who, "enters", to);
                }
                At::Waits(..) | At::Contends(_) => {}
                At::Inside(lane) => {
                    to.crowd.go(who, At::Departs(lane));
                    steps.due(who, "unlocks the inner lock", to);
                }
                At::Departs(lane) => {
                    let (here, all) = match self.departures {
                        Departures::Shared => (&mut to.here, self.b * Self::LANES),
                        Departures::Own => (&mut to.lanes[lane as usize].here, self.b),
                    };
                    *here += 1;
                    let last = *here == all;
                    to.crowd.go(who, if last { At::Resets(lane) } else { self.out(lane) });
                    steps.due(who, "D += 1", to);
                }
                At::Resets(lane) => {
                    match self.departures {
                        Departures::Shared => to.here -= self.b * Self::LANES,
                        Departures::Own => to.lanes[lane as usize].here -= self.b,
                    }
                    to.crowd.go(who, At::Posts(lane, if self.departures == Departures::Shared { 0 } else { lane }));
                    steps.due(who, "resets D", to);
                }
                At::Posts(own, lane) => {
                    let more = self.departures == Departures::Shared && lane + 1 < Self::LANES;
                    to.crowd.go(who, if more { At::Posts(own, lane + 1) } else { self.out(own) });
                    let n = self.b.cast_signed();
                    to.lanes[lane as usize].next -= n;
                    for at in to.crowd.places_mut() {
                        if let At::Waits(in_lane, ticket) = at
                            && *in_lane == lane
                        {
                            *ticket = (*ticket - n).max(-1);
                        }
                    }
                    steps.due(who, "posts to a lane", to);
                }
            }
        }
    }

    fn canonical(&self, state: State<N, L>) -> State<N, L> {
        State { crowd: state.crowd.canonical(), ..state }
    }

    fn invariant(&self, state: &State<N, L>) -> Result<(), &'static str> {
        if self.at_rest(state) {
            let out: i8 = state.lanes.iter().map(|lane| lane.here.cast_signed() - lane.next).sum();
            if out + state.here.cast_signed() != (self.b * Self::LANES).cast_signed() {
                return Err("permits are not conserved");
            }
        }
        Ok(())
    }

    fn at_rest(&self, state: &State<N, L>) -> bool {
        state.crowd.places().all(|at| matches!(at, At::Out(_)))
    }

    fn measure(&self, state: &State<N, L>) -> u32 {
        state.crowd.bypassed()
    }

    fn unmeasured(&self, state: State<N, L>) -> State<N, L> {
        State { crowd: state.crowd.unmeasured(), ..state }
    }
}
