//! Capacitors: bounded bypass for any lock.
//!
//! A lock may be fast because it is unfair: the first contender that finds a test-and-set lock free takes the lock, and
//! some contenders never get the lock. A capacitor is put in front of such a lock. A contender *arrives* before it
//! locks, and *departs* after it has unlocked. The capacitor admits only a limited number of arrived contenders at a
//! time, in the order of their arrivals. So while a contender waits, at most `B - 1` later contenders get the lock
//! before that contender, regardless of the order in which the lock itself serves its contenders.
//!
//! | primitive | admits | bypass at most | deadlines | gate |
//! |---|---|---|---|---|
//! | [`Platoon`]`<S>` | `B`; and the next `B` when all of these have departed | `B - 1` | queued, if `S` queues them | yes |
//! | [`SlidingWindow`] | all tickets that are less than `B` behind the first ticket that has not departed | `B - 1` | queued | yes |
//! | [`Multilane`] | `L` lanes, assigned in turn, of `B` each; and the next `L * B` when all have departed | `L * B - 1` | poll | no |
//! | [`SeparateLanes`]`<S>` | lanes that are separate platoons | not bounded by `B` and `L` | as for `Platoon<S>` | no |
//!
//! | admission | which acquisitions arrive | bypass at most |
//! |---|---|---|
//! | [`Always`] | all | as for the primitive |
//! | [`Gated`] | those that meet contention: another contender between arrival and departure, or a locked lock. An uncontended acquisition costs about as much as the inner lock | as for the primitive |
//! | [`Fractional`] | a random fraction | not bounded |
//!
//! [`Wrapped`] makes a [`RawLock`](sudog_sync::RawLock) of an inner lock, a primitive and an admission. There are two
//! aliases: [`Capacitor`]`<L, S>` has platoons, [`Sliding`]`<L>` the window and the gate. If you use a capacitor, use
//! `Sliding`. Use platoons only where 36 or more waiters spin (`locks/docs/capacitor.md`, "Where waiters spin").
//!
//! [`Bounded`] makes a [`Semaphore`](sudog_sync::Semaphore) of an unfair semaphore and a primitive: the same bound, for
//! permits.
//!
//! # Cost
//!
//! Uncontended, and with the gate, a capacitor costs 1.0 to 1.15 times the bare lock (`Clh`: 1.4 to 1.5). Under
//! contention a capacitor costs as much as fairness does: the lock goes from one waiter to the next, and no longer
//! again and again to the thread that has just unlocked the lock or is awake. With many more threads than processors
//! each acquisition then needs a wake-up, so millions of acquisitions per second become some hundred thousand, with any
//! inner lock. So put a capacitor around a lock that starves its waiters, or where a bound must hold; not around every
//! lock. The figures are in `docs/journal/capacitors.md`.
//!
//! # Definition of the bound
//!
//! Let V be a contender. The bound counts the acquisitions by other contenders that get the lock before V, although
//! their arrivals began after V's arrival had ended. An arrival ends when the contender has taken its place in the
//! order, before the contender waits.
//!
//! `locks/docs/capacitor.md` lists the known facts, claim by claim and with figures, and the errors in the paper's
//! listings.
//!
//! The waiters of the sliding window wait in the chains of [`waiting_array`](crate::waiting_array).
//!
//! Source: Dave Dice, *Capacitors*, Oracle Labs, 2025. The window, the gate, and the count of departures in a single
//! word are this project's own.

mod admission;
mod arrival;
mod bounded;
mod multilane;
mod overflow;
mod platoon;
mod sliding;
mod window;
mod wrapped;

pub use admission::{Admission, Always, ConstAdmission, Fractional, Gated, Path};
pub use arrival::{Arrival, ArriveDepart, ConstArriveDepart};
pub use bounded::Bounded;
pub use multilane::{LaneChoice, Multilane, SeparateLanes};
pub use platoon::Platoon;
pub use sliding::{SlidingWindow, WindowTicket};
pub use wrapped::{Capacitor, Sliding, Wrapped, WrappedGuard};

/// The bypass limit `B` of a capacitor that is made without an explicit limit.
pub const DEFAULT_LIMIT: u32 = 4;
