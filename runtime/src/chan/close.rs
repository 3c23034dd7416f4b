//! Closing a channel.
//!
//! The flag is set at the first hold of the lock: from then on no send succeeds, no G begins to wait, and no receive looks
//! at the blocked senders. All that wait are taken out, in batches of [`BATCH`], and woken without the lock.
//!
//! A receive that is woken by this looks once more: a task may hold a value still, which is the channel's.
//!
//! All of a batch have been readied before the first waker of a task is called. A waker is user code. It may drop another
//! task that waits here, and that one waits for the `ready` of a peer that has taken it. Such a task is in the queue
//! still, or has been readied.

use std::task::Waker;

use super::core::Core;
use super::raw::{CLOSED, Dir, Locked};
use super::waiters::Outcome;
use crate::g::ReadyBatch;
use crate::panics::Panics;

/// How many waiters one hold of the lock takes out at most: there must be room for their wakers.
const BATCH: usize = 32;

impl<T> Core<T> {
    /// False if it is closed already.
    pub(super) fn close(&self) -> bool {
        let mut locked = self.raw.lock();
        let first = locked.word & CLOSED == 0;
        locked.word |= CLOSED;
        if !first {
            locked.unlock();
            return false;
        }
        let mut panics = Panics::default();
        while wake_some(locked, &mut panics) {
            locked = self.raw.lock();
        }
        panics.resume();
        true
    }
}

/// Unlocks, and wakes a batch. False if no more wait: none can join them.
fn wake_some(mut locked: Locked<'_>, panics: &mut Panics) -> bool {
    let mut peers = [const { None }; BATCH];
    let mut n = 0;
    while n < BATCH {
        let mut of = |dir| locked.dequeue(dir, Outcome::Closed);
        let peer = of(Dir::Recv).or_else(|| of(Dir::Send)).or_else(|| of(Dir::Reserve));
        if peer.is_none() {
            break;
        }
        peers[n] = peer;
        n += 1;
    }
    locked.unlock();
    let wakers: [Option<Waker>; BATCH] = {
        let mut batch = ReadyBatch::new();
        peers.map(|peer| {
            // SAFETY: taken out by us alone and not readied yet, so its waiter is still there; not used after.
            peer.and_then(|peer| unsafe { batch.mark_ready(peer.g()) })
        })
    };
    for waker in wakers.into_iter().flatten() {
        panics.catch(|| waker.wake());
    }
    n == BATCH
}
