//! Sleeping and waking over the sliding window.
//!
//! | word | contents | in the model |
//! |---|---|---|
//! | `T`, `W` | see `sliding.rs` | `window` |
//! | `seq[m]`, [`Wake::Sequence`] | counts the pokes of bucket m; a futex | whether the value that was read is current |
//! | list of m, [`Wake::List`] | the sleepers of bucket m, behind a lock | `Asleep`, by bucket |
//!
//! Ticket t waits in bucket t mod M; `turn` is `base` mod M.
//!
//! | operation | accesses |
//! |---|---|
//! | arrive | `t = T += 1`; read `W`: admitted? Else wait |
//! | wait, sequence | read `seq`; read `W`: admitted? Else sleep while `seq` is as read, and again |
//! | wait, list | lock the bucket; read `W`: admitted? Else enlist; unlock; sleep, and again |
//! | depart | as in `sliding.rs`; if `base` rose by k, k tickets from `b` on are admitted; |
//! | | read `T`; poke the bucket of each of these tickets that is below `T` (the skip test) |
//! | poke, sequence | `seq += 1`; wake all threads that sleep on `seq` |
//! | poke, list | lock the bucket, take its list, unlock, wake all threads of that list |
//! | give up | asleep or in front of the inner lock: abandon as in `sliding.rs`; if `base` rose: poke, as above |
//! | absorb | as in `sliding.rs`; if `base` rose: poke, as above |
//!
//! Under a bucket's lock there is a single access to a word that is not behind that lock, the read of `W`. The accesses
//! before this read move right, and the accesses after the read move left, so lock, read, enlist and unlock are one
//! step.
//!
//! A poke is never missed. T's increment comes before the waiter's reads of `W`, and the CAS of `W` before the poster's
//! read of `T`. If the waiter read a `W` from before the CAS, then the poster's `T` counts the waiter, and the poster
//! will poke; and the waiter read `seq` before `W`, so it does not sleep past the poke. A list is looked at under its
//! lock.
//!
//! Doorway: `T += 1`. Bound: B - 1.
//!
//! As in `sliding.rs`, no thread draws a ticket while `T - base` is at `most`.

use super::checker::{Model, Steps};
use super::crowd::{Count, Crowd};
use super::window::{Job, Window};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    Sequence,
    List,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    NeverPokes,
    /// The poster reads `T` before its CAS.
    SkipsEarly,
    /// The poster pokes only the last of the admitted tickets.
    PokesLast,
    /// The waiter reads `W` before `seq`.
    SleepsOnOldLook,
    /// A thread that gives up departs, but does not poke.
    LeavesQuietly,
    /// The thread that absorbs the list does not poke for the tickets that the absorbing admits.
    AbsorbsQuietly,
}

pub struct Parking<const N: usize> {
    pub b: u8,
    /// The number of departure bits, at least B.
    pub r: u8,
    pub buckets: u8,
    pub wake: Wake,
    pub most: u8,
    pub deadlines: bool,
    pub fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum At {
    Out,
    Arrives(u8),
    /// The thread is about to read `seq`, or to lock the bucket.
    Waits(u8),
    /// The thread has read `seq`. The flag tells whether `seq` still has that value.
    Looks(u8, bool),
    FallsAsleep(u8, bool),
    Asleep(u8),
    Contends(u8),
    Inside(u8),
    /// The thread departs. Stored: whether the last `W` that the thread read is current, the `T` that the thread has read
    /// (only with [`Fault::SkipsEarly`]), and whether the thread gave up.
    Departs(u8, bool, Option<u8>, bool),
    WantsList(Job),
    /// The thread has locked the list of abandoned tickets. Stored: whether the last `W` that the thread read is current.
    HasList(Job, bool),
    ReadsNext(Poke),
    Pokes(Poke),
    Wakes(Poke),
}

/// Tickets to be poked: the bucket of the first ticket, the number of tickets (at most 8), and the first ticket less
/// `base`, -8 if lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Poke {
    bucket: u8,
    left: u8,
    first: i8,
    /// True if the list is to be absorbed after the poke.
    absorbs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize> {
    window: Window,
    turn: u8,
    crowd: Crowd<At, N>,
}

impl<const N: usize> State<N> {
    fn free(&self) -> bool {
        !self.crowd.places().any(|at| matches!(at, At::Inside(_)))
    }

    /// Notes that `W` has been written.
    fn written(&mut self, risen: u8, buckets: u8) {
        self.turn = (self.turn + risen) % buckets;
        for at in self.crowd.places_mut() {
            match at {
                At::Arrives(t) | At::Waits(t) | At::Looks(t, _) | At::FallsAsleep(t, _) => *t -= risen,
                At::Asleep(t) | At::Contends(t) | At::Inside(t) => *t -= risen,
                At::Departs(t, current, next, _) => {
                    *t -= risen;
                    *current = false;
                    if let Some(next) = next {
                        *next = next.saturating_sub(risen);
                    }
                }
                At::WantsList(Job::Push(t)) => *t -= risen,
                At::HasList(job, current) => {
                    *current = false;
                    if let Job::Push(t) = job {
                        *t -= risen;
                    }
                }
                At::ReadsNext(poke) => poke.first = (poke.first - risen.cast_signed()).max(-8),
                At::Out | At::WantsList(Job::Absorb) | At::Pokes(_) | At::Wakes(_) => {}
            }
        }
    }
}

impl<const N: usize> Parking<N> {
    pub fn new(b: u8, wake: Wake, buckets: u8) -> Self {
        Self { b, r: b, buckets, wake, most: 12, deadlines: false, fault: Fault::None }
    }

    fn bucket(&self, state: &State<N>, ticket: u8) -> u8 {
        (ticket + state.turn) % self.buckets
    }

    /// Returns the poke that is due after a thread has written `W` and `base` has risen by `risen`.
    fn after(&self, state: &State<N>, risen: u8, absorbs: bool) -> Poke {
        assert!(risen <= 8, "-8 must be low enough");
        let first = self.b.cast_signed() - risen.cast_signed();
        Poke { bucket: self.bucket(state, self.b), left: risen, first, absorbs }
    }

    /// Returns the part of the poke that is still due once the poster has read `next`, which is relative to `base`.
    fn skip(&self, poke: Poke, next: u8) -> At {
        let issued = (next.cast_signed() - poke.first).clamp(0, poke.left.cast_signed()).cast_unsigned();
        let left = if self.fault == Fault::NeverPokes { 0 } else { issued };
        if self.fault == Fault::PokesLast && left > 1 {
            return At::Pokes(Poke { bucket: (poke.bucket + left - 1) % self.buckets, left: 1, first: 0, ..poke });
        }
        Self::poking(Poke { left, first: 0, ..poke })
    }

    fn poking(poke: Poke) -> At {
        match poke {
            Poke { left: 1.., .. } => At::Pokes(poke),
            Poke { absorbs: true, .. } => At::WantsList(Job::Absorb),
            _ => At::Out,
        }
    }

    fn departs(&self, who: usize, state: &State<N>, steps: &mut Steps<State<N>>) {
        let At::Departs(ticket, current, next, gives_up) = state.crowd.at(who) else { return };
        let mut to = *state;
        if self.fault == Fault::SkipsEarly && next.is_none() {
            to.crowd.go(who, At::Departs(ticket, current, Some(state.window.next), gives_up));
            steps.due(who, "reads T, early", to);
            return;
        }
        if !current {
            let fits = ticket < self.r;
            let push = At::WantsList(Job::Push(ticket));
            to.crowd.go(who, if fits { At::Departs(ticket, true, next, gives_up) } else { push });
            steps.due(who, "reads W", to);
            return;
        }
        to.crowd.go(who, At::Out);
        let Some(risen) = to.window.depart(ticket) else {
            steps.wrong(who, "CAS of W: departs", "a ticket departs twice");
            return;
        };
        to.written(risen, self.buckets);
        let poke = self.after(state, risen, state.window.flagged && risen > 0);
        to.crowd.go(
            who,
            match next {
                _ if gives_up && self.fault == Fault::LeavesQuietly => Self::poking(Poke { left: 0, ..poke }),
                _ if risen == 0 => At::Out,
                Some(next) => self.skip(Poke { first: self.b.cast_signed(), ..poke }, next),
                None => At::ReadsNext(poke),
            },
        );
        steps.due(who, "CAS of W: departs", to);
    }

    /// Adds the steps under the list's lock, which are the steps of `sliding.rs`.
    fn list(&self, who: usize, job: Job, current: bool, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut to = *state;
        to.crowd.go(who, At::Out);
        match (job, current) {
            (Job::Push(t), false) if t < self.r => {
                to.crowd.go(who, At::Departs(t, false, None, true));
                steps.due(who, "reads W: fits now; unlocks the list", to);
            }
            (Job::Push(t), false) if state.window.flagged => {
                to.window.push(t);
                steps.due(who, "reads W: flagged; pushes, unlocks", to);
            }
            (Job::Absorb, false) if !state.window.fits(self.r) => {
                steps.due(who, "reads W: nothing fits; unlocks", to);
            }
            (_, false) => {
                to.crowd.go(who, At::HasList(job, true));
                steps.due(who, "reads W", to);
            }
            (Job::Push(t), true) => {
                to.window.push(t);
                to.written(0, self.buckets);
                steps.due(who, "CAS of W: flags; pushes, unlocks", to);
            }
            (Job::Absorb, true) => {
                let Some(risen) = to.window.absorb(self.r) else {
                    steps.wrong(who, "CAS of W: absorbs", "a ticket departs twice");
                    return;
                };
                to.written(risen, self.buckets);
                if risen > 0 && self.fault != Fault::AbsorbsQuietly {
                    to.crowd.go(who, At::ReadsNext(self.after(state, risen, false)));
                }
                steps.due(who, "CAS of W: absorbs, unlocks the list", to);
            }
        }
    }
}

impl<const N: usize> Model for Parking<N> {
    type State = State<N>;

    fn initial(&self) -> State<N> {
        State { window: Window::EMPTY, turn: 0, crowd: Crowd::new(|_| At::Out) }
    }

    fn steps(&self, state: &State<N>, steps: &mut Steps<State<N>>) {
        for who in 0..N {
            let mut to = *state;
            match state.crowd.at(who) {
                At::Out => {
                    if state.window.next < self.most {
                        let ticket = to.window.draw();
                        to.crowd.ends(who, Count::Ended);
                        to.crowd.go(who, At::Arrives(ticket));
                        steps.free(who, "T += 1", to);
                    }
                }
                At::Arrives(ticket) => {
                    to.crowd.go(who, if ticket < self.b { At::Contends(ticket) } else { At::Waits(ticket) });
                    steps.due(who, "reads W", to);
                }
                At::Waits(ticket) if self.wake == Wake::List => {
                    to.crowd.go(who, if ticket < self.b { At::Contends(ticket) } else { At::Asleep(ticket) });
                    steps.due(who, "reads W under the bucket's lock", to);
                }
                At::Waits(ticket) if self.fault == Fault::SleepsOnOldLook => {
                    to.crowd.go(who, if ticket < self.b { At::Contends(ticket) } else { At::Looks(ticket, true) });
                    steps.due(who, "reads W", to);
                }
                At::Looks(ticket, _) if self.fault == Fault::SleepsOnOldLook => {
                    to.crowd.go(who, At::FallsAsleep(ticket, true));
                    steps.due(who, "reads seq", to);
                }
                At::Waits(ticket) => {
                    to.crowd.go(who, At::Looks(ticket, true));
                    steps.due(who, "reads seq", to);
                }
                At::Looks(ticket, current) => {
                    let admitted = ticket < self.b;
                    to.crowd.go(who, if admitted { At::Contends(ticket) } else { At::FallsAsleep(ticket, current) });
                    steps.due(who, "reads W again", to);
                }
                At::FallsAsleep(ticket, current) => {
                    to.crowd.go(who, if current { At::Asleep(ticket) } else { At::Waits(ticket) });
                    steps.due(who, if current { "falls asleep" } else { "does not fall asleep" }, to);
                }
                At::Asleep(_) => {}
                At::Contends(ticket) => {
                    if state.free() {
                        to.crowd.enters(who, Count::Ended);
                        to.crowd.go(who, At::Inside(ticket));
                        steps.due(who, "enters", to);
                    }
                }
                At::Inside(ticket) => {
                    to.crowd.go(who, At::Departs(ticket, false, None, false));
                    steps.due(who, "unlocks the inner lock", to);
                }
                At::Departs(..) => self.departs(who, state, steps),
                At::WantsList(job) => {
                    if !state.crowd.places().any(|at| matches!(at, At::HasList(..))) {
                        to.crowd.go(who, At::HasList(job, false));
                        steps.due(who, "locks the list", to);
                    }
                }
                At::HasList(job, current) => self.list(who, job, current, state, steps),
                At::ReadsNext(poke) => {
                    to.crowd.go(who, self.skip(poke, state.window.next));
                    steps.due(who, "reads T", to);
                }
                At::Pokes(poke) | At::Wakes(poke) => {
                    let wakes = matches!(state.crowd.at(who), At::Wakes(_)) || self.wake == Wake::List;
                    let in_bucket = |ticket: u8| self.bucket(state, ticket) == poke.bucket;
                    for at in to.crowd.places_mut() {
                        match at {
                            At::Asleep(ticket) if wakes && in_bucket(*ticket) => *at = At::Waits(*ticket),
                            At::Looks(ticket, current) | At::FallsAsleep(ticket, current)
                                if !wakes && in_bucket(*ticket) =>
                            {
                                *current = false;
                            }
                            _ => {}
                        }
                    }
                    let next = Poke { bucket: (poke.bucket + 1) % self.buckets, left: poke.left - 1, ..poke };
                    to.crowd.go(who, if wakes { Self::poking(next) } else { At::Wakes(poke) });
                    steps.due(who, if wakes { "wakes a bucket" } else { "seq += 1" }, to);
                }
            }
            if let At::Asleep(ticket) | At::Contends(ticket) = state.crowd.at(who)
                && self.deadlines
            {
                let mut to = *state;
                to.crowd.gives_up(who);
                to.crowd.go(who, At::Departs(ticket, false, None, true));
                steps.free(who, "its deadline passes", to);
            }
        }
    }

    fn canonical(&self, state: State<N>) -> State<N> {
        State { crowd: state.crowd.canonical(), ..state }
    }

    fn invariant(&self, state: &State<N>) -> Result<(), &'static str> {
        if self.at_rest(state) && state.window != Window::EMPTY { Err("permits are not conserved") } else { Ok(()) }
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
