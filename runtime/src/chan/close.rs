//! Closing a channel.
//!
//! `close` sets the flag `CLOSED` when it takes the lock for the first time. From then on no send succeeds, no G begins
//! to wait, and no receive looks at the blocked senders. `close` takes all waiters out of their queues, in batches of
//! [`BATCH`], and wakes each batch without the lock.
//!
//! A receiver that a close wakes tries to receive again, because a task may still hold a value that belongs to the
//! channel (see the head of `core.rs`).
//!
//! All waiters of a batch have been readied before the first waker of a task is called. The reason: a waker is user
//! code, and may drop another task that waits here. That drop waits for the task's `ready`, if the task has been taken
//! out of its queue. By the rule above, the task is then still in its queue, or has been readied.
//!
//! The channel of a context is closed in two steps, [`Core::mark_closed`] and [`Core::ready_waiters`], as between the two
//! other contexts are closed. The state in between is that between two batches.

use std::task::Waker;

use super::core::Core;
use super::raw::{Claimed, Dir, Locked, mark_all_ready};
use crate::panics::Panics;

/// The maximum number of waiters that `wake_some` takes out of their queues under one hold of the lock. The number is
/// limited because the waiters' wakers are stored on the stack.
const BATCH: usize = 32;

impl<T> Core<T> {
    /// Closes the channel. Returns false if the channel is closed already.
    pub(super) fn close(&self) -> bool {
        let mut locked = self.raw.lock();
        if !locked.close() {
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

    /// Closes the channel, but leaves the waiters in their queues: the caller calls `ready_waiters` afterwards.
    pub(super) fn mark_closed(&self) {
        let mut locked = self.raw.lock();
        locked.close();
        locked.unlock();
    }

    /// Takes all waiters of the closed channel out of their queues and readies them. Returns the wakers of the tasks among
    /// them, which the caller must wake.
    pub(super) fn ready_waiters(&self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while ready_some(self.raw.lock(), |waker| wakers.push(waker)) {}
        wakers
    }
}

/// Takes a batch of waiters out of their queues, unlocks, and wakes the batch. Returns false if no waiters are left.
/// The close is complete then, because no waiter joins a closed channel.
fn wake_some(locked: Locked<'_>, panics: &mut Panics) -> bool {
    ready_some(locked, |waker| panics.catch(|| waker.wake()))
}

/// Takes a batch of waiters out of their queues, unlocks, readies the batch, and then calls `f` with the wakers of the tasks
/// in the batch. Returns false if no waiters are left.
fn ready_some(mut locked: Locked<'_>, f: impl FnMut(Waker)) -> bool {
    let mut peers = [const { None }; BATCH];
    let mut n = 0;
    while n < BATCH {
        let mut of = |dir| locked.dequeue(dir).map(Claimed::close);
        let peer = of(Dir::Recv).or_else(|| of(Dir::Send)).or_else(|| of(Dir::Reserve));
        if peer.is_none() {
            break;
        }
        peers[n] = peer;
        n += 1;
    }
    locked.unlock();
    mark_all_ready(peers).into_iter().flatten().for_each(f);
    n == BATCH
}
