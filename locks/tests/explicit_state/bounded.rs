//! A semaphore behind a capacitor, which an acquirer departs from when it has its permit.
//!
//! | word | contents | in the model |
//! |---|---|---|
//! | capacitor | see `sliding.rs`, `platoon.rs` | `window`; `next`, `here` |
//! | `S` | the permits of the inner semaphore | `permits`; any acquirer may take any permit, in any order |
//! | | the permits that acquirers have taken | `taken`: of no particular acquirer |
//!
//! | operation | accesses |
//! |---|---|
//! | acquire | arrive; take a permit of `S`; depart |
//! | `try_acquire` | arrive if that needs no wait; take a permit of `S` if there is a permit; depart |
//! | give up | at the capacitor or at `S`: depart, or give the place at the capacitor up |
//! | release | `S += 1`, by any thread, whether that thread has acquired or not |
//!
//! `try_arrive`, a departure from the window, and the last departure of a platoon are one step each: `sliding.rs` and
//! `platoon.rs` model their parts. A waiter of a platoon that gives up leaves the queue of the platoon's semaphore.
//!
//! Doorway: the ticket of the capacitor. An acquirer *enters* when it takes its permit. Bound: B - 1, because V has its
//! permit before V departs; until then the capacitor admits at most B - 1 later tickets, and only those that are
//! admitted take permits. Releases are no steps of the capacitor, so the releaser does not matter.

use super::checker::{Model, Steps};
use super::crowd::{Count, Crowd};
use super::gate::Over;
use super::window::Window;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The acquirer departs before it takes its permit.
    DepartsFirst,
    /// The acquirer does not depart.
    NeverDeparts,
    /// An acquirer that gives up does not depart.
    ForgetsToDepart,
    /// `try_acquire` takes a permit of `S` without arriving.
    TriesPast,
}

pub struct Bounded<const N: usize> {
    pub b: u8,
    pub over: Over,
    /// The permits at first.
    pub permits: u8,
    /// True if some threads use `try_acquire`.
    pub tries: bool,
    /// True if deadlines pass.
    pub deadlines: bool,
    /// The largest `T - base` of the window: no thread draws a ticket while so many are between `base` and `T`.
    pub most: u8,
    pub fault: Fault,
    /// The state that the exploration looks for: an invariant fails there.
    pub seek: Option<fn(&State<N>) -> bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum At {
    Out,
    /// The thread waits. Stored: its ticket less `base`; over a platoon its ticket less `G`, where -1 is any ticket that is
    /// admitted.
    Waits(i8),
    /// The thread is admitted and wants a permit of `S`. The flag tells whether the thread only tries.
    Contends(i8, bool),
    Departs(i8),
    /// The thread has departed and wants a permit of `S` (only with [`Fault::DepartsFirst`]).
    ContendsOutside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize> {
    window: Window,
    next: i8,
    here: u8,
    permits: u8,
    taken: u8,
    crowd: Crowd<At, N>,
}

impl<const N: usize> State<N> {
    /// Returns whether all permits are taken, an admitted acquirer waits for a permit, and another acquirer is not admitted.
    /// For B = 1.
    pub fn is_full(&self) -> bool {
        let any = |is: fn(At) -> bool| self.crowd.places().any(is);
        self.permits == 0 && any(|at| matches!(at, At::Contends(..))) && any(|at| matches!(at, At::Waits(1..)))
    }

    /// Returns whether a permit is free, and no acquirer can take that permit before another acquirer departs. For B = 1.
    pub fn is_held_up(&self) -> bool {
        let any = |is: fn(At) -> bool| self.crowd.places().any(is);
        let departs = any(|at| matches!(at, At::Departs(_)));
        self.permits > 0 && departs && any(|at| matches!(at, At::Waits(1..)))
    }
}

impl<const N: usize> Bounded<N> {
    pub fn new(b: u8, over: Over, permits: u8) -> Self {
        Self { b, over, permits, tries: false, deadlines: false, most: 12, fault: Fault::None, seek: None }
    }

    fn open(&self, state: &State<N>) -> bool {
        match self.over {
            Over::Window => state.window.next < self.b,
            Over::Platoon => state.next < 0,
        }
    }

    fn admitted(&self, ticket: i8) -> bool {
        ticket < if self.over == Over::Window { self.b.cast_signed() } else { 0 }
    }

    fn draw(&self, who: usize, state: &mut State<N>) -> i8 {
        state.crowd.ends(who, Count::Ended);
        match self.over {
            Over::Window => state.window.draw().cast_signed(),
            Over::Platoon => {
                state.next += 1;
                (state.next - 1).max(-1)
            }
        }
    }

    /// Lets a thread with an admitted ticket depart. The thread goes on at `at`.
    fn departs(&self, who: usize, ticket: i8, at: At, state: &mut State<N>) -> Result<(), &'static str> {
        state.crowd.go(who, at);
        let risen = match self.over {
            Over::Window => state.window.depart(ticket.cast_unsigned()).ok_or("a ticket departs twice")?,
            Over::Platoon if state.here + 1 < self.b => {
                state.here += 1;
                return Ok(());
            }
            Over::Platoon => {
                (state.here, state.next) = (0, state.next - self.b.cast_signed());
                self.b
            }
        };
        for at in state.crowd.places_mut() {
            if let At::Waits(t) | At::Contends(t, _) | At::Departs(t) = at {
                *t = (*t - risen.cast_signed()).max(-1);
            }
        }
        Ok(())
    }

    /// Lets a thread give up its place at the platoon's semaphore. The tickets behind its ticket move up.
    fn leaves(who: usize, ticket: i8, state: &mut State<N>) {
        state.crowd.go(who, At::Out);
        state.next -= 1;
        for at in state.crowd.places_mut() {
            if let At::Waits(t) = at
                && *t > ticket
            {
                *t -= 1;
            }
        }
    }

    fn gives_up(&self, who: usize, state: &State<N>, steps: &mut Steps<State<N>>) {
        let mut to = *state;
        let result = match state.crowd.at(who) {
            _ if self.fault == Fault::ForgetsToDepart => {
                to.crowd.go(who, At::Out);
                Ok(())
            }
            At::Waits(ticket) if self.over == Over::Platoon && !self.admitted(ticket) => {
                Self::leaves(who, ticket, &mut to);
                Ok(())
            }
            At::Waits(ticket) | At::Contends(ticket, _) => self.departs(who, ticket, At::Out, &mut to),
            _ => return,
        };
        to.crowd.gives_up(who);
        match result {
            Ok(()) => steps.free(who, "its deadline passes: departs", to),
            Err(why) => steps.wrong(who, "its deadline passes", why),
        }
    }
}

impl<const N: usize> Model for Bounded<N> {
    type State = State<N>;

    fn initial(&self) -> State<N> {
        let next = -self.b.cast_signed();
        State { window: Window::EMPTY, next, here: 0, permits: self.permits, taken: 0, crowd: Crowd::new(|_| At::Out) }
    }

    fn steps(&self, state: &State<N>, steps: &mut Steps<State<N>>) {
        for who in 0..N {
            let mut to = *state;
            match state.crowd.at(who) {
                At::Out if state.window.next == self.most => {}
                At::Out => {
                    let ticket = self.draw(who, &mut to);
                    to.crowd.go(who, At::Waits(ticket));
                    steps.free(who, "acquire: draws a ticket", to);
                    let mut to = *state;
                    if self.tries && self.fault == Fault::TriesPast {
                        to.crowd.ends(who, Count::Ended);
                        to.crowd.go(who, At::ContendsOutside);
                        steps.free(who, "try_acquire: past the capacitor", to);
                    } else if self.tries && self.open(state) {
                        let ticket = self.draw(who, &mut to);
                        to.crowd.go(who, At::Contends(ticket, true));
                        steps.free(who, "try_acquire: arrives", to);
                    }
                }
                At::Waits(ticket) if self.admitted(ticket) && self.fault == Fault::DepartsFirst => {
                    match self.departs(who, ticket, At::ContendsOutside, &mut to) {
                        Ok(()) => steps.due(who, "is admitted, departs", to),
                        Err(why) => steps.wrong(who, "departs", why),
                    }
                }
                At::Waits(ticket) if self.admitted(ticket) => {
                    to.crowd.go(who, At::Contends(ticket, false));
                    steps.due(who, "is admitted", to);
                }
                At::Contends(ticket, tries) if state.permits > 0 || tries => {
                    if state.permits > 0 {
                        (to.permits, to.taken) = (state.permits - 1, state.taken + 1);
                        to.crowd.enters(who, Count::Ended);
                    } else {
                        to.crowd.gives_up(who);
                    }
                    let drops = self.fault == Fault::NeverDeparts;
                    to.crowd.go(who, if drops { At::Out } else { At::Departs(ticket) });
                    steps.due(who, if state.permits > 0 { "takes a permit" } else { "finds no permit" }, to);
                }
                At::ContendsOutside if state.permits > 0 => {
                    (to.permits, to.taken) = (state.permits - 1, state.taken + 1);
                    to.crowd.enters(who, Count::Ended);
                    to.crowd.go(who, At::Out);
                    steps.due(who, "takes a permit", to);
                }
                At::Waits(_) | At::Contends(..) | At::ContendsOutside => {}
                At::Departs(ticket) => match self.departs(who, ticket, At::Out, &mut to) {
                    Ok(()) => steps.due(who, "departs", to),
                    Err(why) => steps.wrong(who, "departs", why),
                },
            }
            if self.deadlines {
                self.gives_up(who, state, steps);
            }
        }
        if state.taken > 0 {
            steps.due(N, "releases a permit", State { permits: state.permits + 1, taken: state.taken - 1, ..*state });
        }
    }

    fn canonical(&self, state: State<N>) -> State<N> {
        State { crowd: state.crowd.canonical(), ..state }
    }

    fn invariant(&self, state: &State<N>) -> Result<(), &'static str> {
        if self.seek.is_some_and(|seek| seek(state)) {
            return Err("the state is reached");
        }
        let within = state.crowd.places().filter(|at| matches!(at, At::Contends(..) | At::Departs(_))).count();
        if within > self.b.into() {
            return Err("more than B are admitted");
        }
        let idle = match self.over {
            Over::Window => state.window == Window::EMPTY,
            Over::Platoon => state.here.cast_signed() - state.next == self.b.cast_signed(),
        };
        if self.at_rest(state) && !idle {
            return Err("permits are not conserved");
        }
        Ok(())
    }

    fn at_rest(&self, state: &State<N>) -> bool {
        state.taken == 0 && state.crowd.places().all(|at| at == At::Out)
    }

    fn measure(&self, state: &State<N>) -> u32 {
        state.crowd.bypassed()
    }

    fn unmeasured(&self, state: State<N>) -> State<N> {
        State { crowd: state.crowd.unmeasured(), ..state }
    }
}
