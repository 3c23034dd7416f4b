//! How a writer locks: as the sole owner, or in turn, as the owner of `writers`. `state.rs` has the protocol,
//! `successor.rs` a writer that meets a sole owner.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use sudog_runtime::goroutine::without_switching;
use sudog_runtime::sema::{IntoLimit, WaitError, WaitLimit};

use super::go_rw_mutex::GoRwMutex;
use super::spinning::{WRITER_PAUSES, look_seldom, spin_while};
use super::state::State;
use super::write_hint::{self, NextWrite};
use crate::raw::{Order, RawLock, Semaphore};

impl<W: RawLock, S: Semaphore> GoRwMutex<W, S> {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn write(&self) -> W::Guard {
        let acquisition = self.deadlock_owner.locks();
        let guard = self.write_unowned();
        self.deadlock_owner.set(acquisition);
        guard
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn write_limited<L: IntoLimit>(&self, limit: L) -> Result<W::Guard, L::Error> {
        let acquisition = self.deadlock_owner.tries();
        let guard = limit.limited(|limit| self.write_unowned_limited(limit))?;
        self.deadlock_owner.set(acquisition);
        Ok(guard)
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn try_write(&self) -> Option<W::Guard> {
        let acquisition = self.deadlock_owner.tries();
        let guard = self.try_write_unowned()?;
        self.deadlock_owner.set(acquisition);
        Some(guard)
    }

    #[inline]
    fn write_unowned(&self) -> W::Guard {
        if Self::has_sole_owners() {
            // Where writers meet, lock `writers`, which is faster: `writers` restricts how many writers are awake.
            match write_hint::next_write() {
                NextWrite::Alone => {
                    if let Some(guard) = self.write_alone() {
                        return guard;
                    }
                }
                NextWrite::LooksFirst => return self.look_and_write(),
                NextWrite::InTurn => {}
            }
            return self.write_in_turn();
        }
        self.write_with_writers()
    }

    /// Locks for writing, and locks `writers` first.
    #[inline]
    pub(super) fn write_with_writers(&self) -> W::Guard {
        let guard = self.writers.lock();
        match self.announce(false) {
            Some(true) => guard,
            Some(false) => self.drain_for_good(guard),
            None => self.succeed_for_good(guard),
        }
    }

    #[inline]
    fn write_unowned_limited(&self, limit: &WaitLimit<'_>) -> Result<W::Guard, WaitError> {
        if let Some(guard) = self.write_alone() {
            return Ok(guard);
        }
        let guard = self.writers.lock_limited(limit)?;
        if Self::has_sole_owners() || self.entering.load(Acquire) != 0 {
            self.succeed(guard, limit)
        } else if self.announce(false) == Some(true) {
            Ok(guard)
        } else {
            self.drain(guard, limit)
        }
    }

    /// Returns whether a newcomer may overtake writers that wait for `writers`. Known at compile time.
    #[inline(always)]
    pub(super) fn has_sole_owners() -> bool {
        W::barging_guard().is_some()
    }

    /// Makes the caller the sole owner, if there is neither a reader nor a writer, and if `W` allows sole owners.
    #[inline]
    fn write_alone(&self) -> Option<W::Guard> {
        let guard = W::barging_guard()?;
        let mut old = self.state.load(Relaxed);
        while old.is_free() {
            match self.state.compare_exchange_weak(old, old.write_alone(), Acquire, Relaxed) {
                Ok(_) => return Some(guard),
                Err(now) => old = now,
            }
        }
        None
    }

    /// Locks for writing, and locks `writers` first: there is a reader or a writer, or there likely will be.
    #[inline(never)]
    fn write_in_turn(&self) -> W::Guard {
        let guard = self.writers.lock();
        let announced = self.announce(false);
        write_hint::note_write(announced != Some(true));
        match announced {
            Some(true) => guard,
            Some(false) => self.drain_for_good(guard),
            None => self.succeed_for_good(guard),
        }
    }

    /// Locks for writing, for a goroutine. Before the writer announces itself, it looks a few times for a word without
    /// readers and writers. Until the announcement no reader waits for the writer, so readers on other workers go on at
    /// full speed.
    #[cold]
    fn look_and_write(&self) -> W::Guard {
        let mut looks = 0;
        let alone = look_seldom(|| {
            looks += 1;
            self.write_alone()
        });
        let Some(guard) = alone else { return self.write_in_turn() };
        write_hint::note_write(looks > 1);
        guard
    }

    #[cold]
    pub(super) fn drain_for_good(&self, guard: W::Guard) -> W::Guard {
        let drained = self.drain(guard, &WaitLimit::default());
        drained.unwrap_or_else(|_| unreachable!("without a limit it waits"))
    }

    #[inline]
    fn try_write_unowned(&self) -> Option<W::Guard> {
        if Self::has_sole_owners() {
            return self.write_alone();
        }
        let guard = self.writers.try_lock()?;
        let mut old = self.state.load(Relaxed);
        while !old.has_readers() {
            match self.state.compare_exchange_weak(old, old.write(), Acquire, Relaxed) {
                Ok(_) => return Some(guard),
                Err(now) => old = now,
            }
        }
        // A `try_lock` never switches to another goroutine, so unlock without switching. SAFETY: `guard` is that of the
        // acquisition of `writers` above.
        without_switching(|| unsafe { self.writers.unlock(guard) });
        None
    }

    /// Announces the owner of `writers`: sets W. Returns whether the owner of `writers` now has the lock, or `None` if
    /// a sole owner has the lock.
    ///
    /// `is_reader` is true if the caller is counted as a reader. The announcement takes the caller out of the count of
    /// readers.
    #[inline]
    pub(super) fn announce(&self, is_reader: bool) -> Option<bool> {
        let mut old = self.state.load(Relaxed);
        loop {
            if Self::has_sole_owners() && (old.has_writer() || old.readers() < u64::from(is_reader)) {
                return None;
            }
            let new = old.announce(is_reader);
            match self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                Ok(_) => return Some(old.readers() == u64::from(is_reader)),
                Err(now) => old = now,
            }
        }
    }

    /// Waits for the readers that came before the caller, an announced writer.
    #[cold]
    pub(super) fn drain(&self, guard: W::Guard, limit: &WaitLimit<'_>) -> Result<W::Guard, WaitError> {
        spin_while(WRITER_PAUSES, || self.state.load(Relaxed).before() != 0);
        let drained = self
            .deadlock_owner
            .while_draining("sync.RWMutex.Lock", || self.drained.acquire_limited(Order::Fifo, limit));
        if let Err(why) = drained
            && let Some(old) = self.retract()
        {
            self.admit(old);
            // SAFETY: `guard` is that of the caller's acquisition of `writers`.
            unsafe { self.writers.unlock(guard) };
            return Err(why);
        }
        // Only the last reader releases the permit. Acquire the word, to come after the other readers, too.
        self.state.load(Acquire);
        Ok(guard)
    }

    /// Ends the phase of an announced writer that gives up. The writer has left its queue, but still owns `writers`.
    /// Returns the word before the phase ended: the caller must [`admit`](Self::admit) the readers that came in that
    /// phase. Returns `None` if the last of the readers before the writer has left: then the writer has the lock.
    #[cold]
    fn retract(&self) -> Option<State> {
        let mut old = self.state.load(Relaxed);
        while old.before() != 0 {
            match self.state.compare_exchange_weak(old, old.retract(), SeqCst, Relaxed) {
                Ok(_) => return Some(old),
                Err(now) => old = now,
            }
        }
        self.drained.acquire(Order::Fifo); // the permit is released, or about to be
        None
    }
}
