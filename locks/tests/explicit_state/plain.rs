//! A FIFO semaphore of P permits around the lock, not a capacitor: each permit is given back by its taker.
//!
//! | word | contents | in the model |
//! |---|---|---|
//! | `T` | next ticket of the semaphore | `next`: `T - G` |
//! | `G` | tickets below `G` are admitted | tickets are relative to `G`; all admitted tickets are alike |
//! | window | the word of a sliding window behind the semaphore, if there is such a window | see `window.rs` |
//!
//! | operation | accesses |
//! |---|---|
//! | arrive | `t = T += 1`; wait for `G > t`; with a window: draw a window ticket, wait until that is admitted |
//! | depart | with a window: depart from the window; `G += 1` |
//!
//! Doorway: `T += 1`. Bound: none. V holds a permit and stands still; the other P - 1 threads go round for ever. A
//! window behind the semaphore does not help, because V may stand still before it has drawn its ticket there: the
//! ticket that counts must be the doorway.

use super::checker::{Model, Steps};
use super::crowd::{Count, Crowd};
use super::window::Window;

pub struct Plain<const N: usize> {
    pub permits: u8,
    /// The bound B of the window behind the semaphore. None: there is no window.
    pub window: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum At {
    Out,
    /// The thread waits. Stored: its ticket less `G`; -1 is any ticket that is admitted.
    Waits(i8),
    Draws,
    WaitsForWindow(u8),
    Contends(u8),
    Inside(u8),
    Departs(u8),
    Posts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize> {
    next: i8,
    window: Window,
    crowd: Crowd<At, N>,
}

impl<const N: usize> Model for Plain<N> {
    type State = State<N>;

    fn initial(&self) -> State<N> {
        State { next: -self.permits.cast_signed(), window: Window::EMPTY, crowd: Crowd::new(|_| At::Out) }
    }

    fn steps(&self, state: &State<N>, steps: &mut Steps<State<N>>) {
        let free = !state.crowd.places().any(|at| matches!(at, At::Inside(_)));
        for who in 0..N {
            let mut to = *state;
            let go = |to: &mut State<N>, at| to.crowd.go(who, at);
            match state.crowd.at(who) {
                At::Out => {
                    to.next += 1;
                    to.crowd.ends(who, Count::Ended);
                    go(&mut to, At::Waits(state.next.max(-1)));
                    steps.free(who, "T += 1", to);
                }
                At::Waits(-1) => {
                    go(&mut to, if self.window.is_some() { At::Draws } else { At::Contends(0) });
                    steps.due(who, "reads G: admitted", to);
                }
                At::Draws => {
                    let ticket = to.window.draw();
                    go(&mut to, At::WaitsForWindow(ticket));
                    steps.due(who, "draws a ticket of the window", to);
                }
                At::WaitsForWindow(ticket) if self.window.is_some_and(|b| ticket < b) => {
                    go(&mut to, At::Contends(ticket));
                    steps.due(who, "reads W: admitted", to);
                }
                At::Contends(ticket) if free => {
                    to.crowd.enters(who, Count::Ended);
                    go(&mut to, At::Inside(ticket));
                    steps.due(who, "enters", to);
                }
                At::Waits(_) | At::WaitsForWindow(_) | At::Contends(_) => {}
                At::Inside(ticket) => {
                    go(&mut to, if self.window.is_some() { At::Departs(ticket) } else { At::Posts });
                    steps.due(who, "unlocks the inner lock", to);
                }
                At::Departs(ticket) => {
                    let risen = to.window.depart(ticket).unwrap_or(0);
                    go(&mut to, At::Posts);
                    for at in to.crowd.places_mut() {
                        if let At::WaitsForWindow(t) | At::Contends(t) | At::Inside(t) | At::Departs(t) = at {
                            *t -= risen;
                        }
                    }
                    steps.due(who, "departs from the window", to);
                }
                At::Posts => {
                    to.next -= 1;
                    go(&mut to, At::Out);
                    for at in to.crowd.places_mut() {
                        if let At::Waits(ticket) = at {
                            *ticket = (*ticket - 1).max(-1);
                        }
                    }
                    steps.due(who, "G += 1", to);
                }
            }
        }
    }

    fn canonical(&self, state: State<N>) -> State<N> {
        State { crowd: state.crowd.canonical(), ..state }
    }

    fn invariant(&self, _: &State<N>) -> Result<(), &'static str> {
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
