//! Capacitors: bounded bypass for any lock.
//!
//! A lock may be fast because it is unfair: whoever comes first to a free test-and-set lock has it, and some never do. A
//! capacitor is put in front of it. Who wants the lock *arrives* first, and *departs* after the unlock; of those who
//! have arrived only so many are let through at a time, in the order in which they came. So while somebody waits, at
//! most `B - 1` of those who came later have the lock before it, whatever the lock itself does.
//!
//! | primitive | lets through | bypass at most | deadlines | the gate |
//! |---|---|---|---|---|
//! | [`Platoon`]`<S>` | `B`; and the next `B` when all of these have departed | `B - 1` | in line, if `S` has them in line | yes |
//! | [`SlidingWindow`] | all that are less than `B` behind the first that has not departed | `B - 1` | in line | yes |
//! | [`Multilane`] | `L` lanes, dealt in turn, of `B` each; and the next `L * B` when all have departed | `L * B - 1` | polls | no |
//! | [`SeparateLanes`]`<S>` | lanes that are platoons, each for itself | not bounded by `B` and `L` | as of a platoon | no |
//!
//! | admission | who arrives | bypass at most |
//! |---|---|---|
//! | [`Always`] | everybody | the primitive's |
//! | [`Gated`] | who finds somebody between arrival and departure, or the lock taken; the others have the lock at about the price of the bare one | the primitive's |
//! | [`Fractional`] | one in so many, drawn at random | not bounded |
//!
//! [`Wrapped`] makes a [`RawLock`](sudog_sync::RawLock) of an inner lock, a primitive and an admission. Its names:
//! [`Capacitor`]`<L, S>` has platoons, [`Sliding`]`<L>` the window and the gate, and is the one to take, if one is.
//!
//! # What it costs
//!
//! Alone, and behind the gate, 1.0 to 1.15 times the bare lock (`Clh`: 1.4 to 1.5). Under contention, what fairness costs:
//! the lock goes from one that waits to the next, and no longer again and again to whoever has it, or is awake. With many
//! more threads than processors that makes of each acquisition a wake-up, and of millions a second some hundred thousand,
//! whatever the inner lock is. So put one around a lock that starves somebody, or where a bound must hold; not around each
//! lock there is. The figures are in `locks/docs/capacitor.md`.
//!
//! # What is counted
//!
//! What the bound counts: acquisitions by others whose arrival began after one's own had ended, and that get the lock
//! before one does. An arrival has ended when its place is taken, before it waits.
//!
//! What is known of them, claim by claim and with figures: `locks/docs/capacitor.md`. What was wrong in the paper's listings
//! is there, too.
//!
//! The waiters of the sliding window wait in the chains of [`waiting_array`](crate::waiting_array).
//!
//! Source: Dave Dice, *Capacitors*, Oracle Labs, 2025. The window, the gate and the departures in one word are ours.

mod admission;
mod arrival;
mod late;
mod multilane;
mod platoon;
mod sliding;
mod wrapped;

pub use admission::{Admission, Always, ConstAdmission, Fractional, Gated, Way};
pub use arrival::{Arrival, ArriveDepart, ConstArriveDepart};
pub use multilane::{Dealing, Multilane, SeparateLanes};
pub use platoon::Platoon;
pub use sliding::{SlidingWindow, WindowTicket};
pub use wrapped::{Capacitor, Pass, Sliding, Wrapped};

/// The bypass limit `B` of what is made without one.
pub const DEFAULT_LIMIT: u32 = 4;
