//! Semaphores augmented with a waiting array: the semaphores of Dice and Kogan's paper, listing by listing.
//!
//! A ticket semaphore serves first come, first served, and in its simplest form every waiter watches the word that has
//! the number of the next ticket. These semaphores disperse the waiters over a global array, by the address of the
//! semaphore and the ticket: so a post disturbs only the next waiter, and waiters can sleep.
//!
//! | semaphore | listing | waiters | a post without waiters | a post wakes | freed by the last taker |
//! |---|---|---|---|---|---|
//! | [`Ticket`] | 1 | all watch the grant | 1 RMW | no waiter: all poll | yes |
//! | [`Twa`] | 2 | watch a bucket's sequence; the next few waiters watch the grant | 1 RMW, 1 load | the next, and the waiter after the next | no |
//! | [`TwaChain`] | 3 | sleep in chains, on their stacks | 2 RMWs | the next | yes |
//! | [`TwaChannel`] | 4 | sleep in chains, until a sequence changes | 3 RMWs | the next | yes |
//! | [`TwaLocation`] | 5 | enlist at a location, with elements of a pool | 1 RMW, 1 load | the next | no |
//! | [`Benaphore`]`<W>` | this project's | as in `W`; by default as in `TwaChain` | 1 RMW | the next | yes |
//!
//! Use [`Benaphore`]; the other semaphores are for study. Each of them is a [`TicketSema`]: the initial count,
//! acquiring several permits, deadlines that keep the order of the other waiters, and closing are the same for all.
//!
//! The ways to wait can be used alone: [`address_wait_until`] and [`address_signal`] for any condition of the caller;
//! [`key_monitor`], [`key_wait`] and [`key_signal`], an eventcount; [`LocationWaiter`] and [`location_wake_all`].
//!
//! A type parameter determines how waiters wait ([`Spin`], [`SpinThenYield`], [`SpinThenPark`]), and another is the
//! hash ([`MixedHash`], [`PlainHash`], [`PairedHash`], [`OrbitHash`], [`GrayHash`]).
//!
//! For study, chains and channels may wake systolically, [`Conservative`] posts do not read the tickets, and the waiters
//! of [`Ticket`] may pause longer the farther they are from their turn. With [`ToldWait`] a woken waiter of a chain is told
//! that its turn has come.
//!
//! The errors in the printed listings, and the differences from the listings, are in `locks/docs/waiting-array.md`.
//!
//! The TWA lock is covered by US patents: see NOTICE.
//!
//! Source: Dave Dice and Alex Kogan, *Semaphores Augmented with a Waiting Array*, arXiv 2501.18447.

mod benaphore;
pub(crate) mod chain;
mod channel;
mod conservative;
mod gaps;
mod grant;
mod hash;
mod location;
mod near;
mod pop_stack;
mod table;
mod ticket;
mod ticket_queue;
mod ticket_sema;
mod told;
mod twa;

pub use crate::waiting::policy::{Spin, SpinThenPark, SpinThenYield, WaitPolicy};
pub use benaphore::{Benaphore, CountedDoorway};
pub use chain::{
    ChainWait, TwaChain, address_signal, address_signal_polite, address_wait_until, address_wait_until_deadline,
};
pub use channel::{
    ChannelWait, EventKey, TwaChannel, key_monitor, key_signal, key_signal_polite, key_wait, key_wait_lazy,
    key_wait_until,
};
pub use conservative::Conservative;
pub use hash::{GrayHash, MAX_BUCKETS, MixedHash, OrbitHash, PairedHash, PlainHash, TicketHash};
pub use location::{LocationWait, LocationWaiter, TwaLocation, location_wait, location_wake_all};
pub use ticket::{GrantWait, Ticket};
pub use ticket_queue::{TicketWait, Turn};
pub use ticket_sema::{Closed, Doorway, Refused, TicketSema, Tickets};
pub use told::ToldWait;
pub use twa::{BucketWait, Twa};
