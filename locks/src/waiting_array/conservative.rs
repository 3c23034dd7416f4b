//! Posts that wake without reading the tickets: the bet that a post has a waiter to wake.
//!
//! A protocol with `LOOKS_AT_TICKETS` saves a post without waiters its walk into the waiting array, for one more access
//! to the word of the tickets. [`Conservative`] turns that off. Then no access needs sequential consistency, and the
//! taker of the last permit may free the semaphore at once.
//!
//! Source: `SemaPostConservative` of listing 5, for any listing. The printed one wakes a ticket whose holder does not
//! wait for that wake.

use std::marker::PhantomData;
use std::ops::Range;

use sudog_runtime::Instant;

use super::ticket_queue::{TicketWait, Turn};

/// The protocol `W`, with posts that never read the tickets.
///
/// # Examples
///
/// ```
/// use sudog::locks::waiting_array::{BucketWait, Conservative, TicketSema};
///
/// let sema = TicketSema::<Conservative<BucketWait>>::with_permits(1);
/// sema.acquire_many(1).unwrap();
/// ```
#[derive(Debug)]
pub struct Conservative<W>(PhantomData<W>);

// SAFETY: waits and wakes are those of `W`, which fulfils the contract; a post wakes whether there are waiters or not.
unsafe impl<W: TicketWait> TicketWait for Conservative<W> {
    const NEAR: u32 = W::NEAR;

    const LOOKS_AT_TICKETS: Option<u64> = None;

    const TELLS: bool = W::TELLS;

    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        W::wait(turn, deadline)
    }

    #[inline]
    fn wake(sema: usize, tickets: Range<u64>) {
        W::wake(sema, tickets);
    }

    fn wake_closed(sema: usize, tickets: Range<u64>) {
        W::wake_closed(sema, tickets);
    }
}
