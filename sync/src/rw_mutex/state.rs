//! The state word of Go's readers-writer mutex, and with it most of the protocol. `read.rs` has the rest: how readers
//! wait.
//!
//! ```text
//!   63                34  33  32  31  30                                  0
//!  ┌────────────────────┬───┬───┬───┬──────────────────────────────────────┐
//!  │ before             │ P │ W │ S │ readers                              │
//!  └────────────────────┴───┴───┴───┴──────────────────────────────────────┘
//! ```
//!
//! | field | means |
//! |---|---|
//! | readers | the number of readers that have the lock, or wait for a writer. A writer that waits for a sole owner, the *successor*, is counted, too |
//! | S sole | the writer has the lock without `writers`: it is the *sole owner*. S is set only with W |
//! | W | a writer has announced itself: later readers wait until that writer has unlocked |
//! | P phase | changes with each writer that ends: readers wait for the end of their phase |
//! | before | while W is set: the number of readers left that came before the writer; else without a meaning |
//!
//! | step | transition | changes the word by | then |
//! |---|---|---|---|
//! | `rlock` | `read` | readers + 1 | W was clear: has the lock. Else waits for the end of phase P |
//! | `runlock` | `end_read` | readers - 1, before - 1 | W is set and before has become 0: releases `drained` |
//! | `lock`, if W is clear and there is no reader | `write_alone` | W and S set, before = 0 | has the lock: it is the sole owner |
//! | `lock`, after `writers` is locked, if W is clear | `announce` | W set, before = readers | before = 0: has the lock. Else waits on `drained` |
//! | `lock`, after `writers` is locked, if W is set: the caller is the successor | `read` | readers + 1 | waits as a reader does, until the successor may read |
//! | the successor may read | `announce` | readers - 1, W set, before = readers | as `lock` above |
//! | `unlock`, S is clear | `end_write` | W + 1, which clears W and flips P | admits the readers that wait; unlocks `writers` |
//! | `unlock`, S is set | `end_sole` | S + 1, which clears S and W and flips P | admits the readers that wait |
//! | a reader that waits, and gives up | `withdraw` | readers - 1, if W is set and P is the reader's phase | else the phase has ended, and the reader has the lock |
//! | a writer that waits, and gives up | `retract` | W + 1, if before is not 0 | admits the readers that wait, unlocks `writers`. If before is 0, the writer has the lock |
//! | a successor that waits, and gives up | `withdraw` | as a reader that gives up | unlocks `writers` |
//!
//! `try_lock` over a lock without sole owners takes a free mutex by `write`, which sets W. A downgrade is an `unlock`
//! that adds a reader in the same step ([`Then::Read`]).
//!
//! A writer that has announced itself owns `writers`, or is the sole owner, so only a single writer is announced at a
//! time. Readers that came during a write go before the next writer, and a writer waits for no reader that came after
//! its announcement: neither side can starve the other. A sole owner may overtake the writers that wait for `writers`,
//! but not the successor once the successor is counted as a reader: the sole owner's step needs a word without readers.
//! Sole owners exist only if newcomers may overtake waiters in `writers`, too ([`RawLock::barging_guard`]).
//!
//! Go keeps `before` in a separate word, `readerWait`, so a `runlock` that meets a writer takes two steps. Here
//! `runlock` is a single step, on which a writer that gives up relies: that writer must know how many readers to admit.
//! `runlock` does not look at W first, so `before` changes while W is clear, too, and may wrap. That is why `before` is
//! at the top of the word, and why a writer sets `before`.
//!
//! **One bit of phase is enough.** A reader must not mistake a later phase for its own. Let a reader come in phase k.
//! While the reader has not seen the end of k, phase k + 1 may begin, but does not end:
//!
//! * No unlock ends phase k + 1, as the writer of k + 1 counts the reader in `before`.
//! * No writer that gives up ends phase k + 1. Only a writer with a limit gives up, and before such a writer announces
//!   itself, it waits until all readers that were admitted at the end of k have seen that end. `entering` counts these
//!   readers.
//!
//! So if W is set and P is the reader's phase, the phase is k, and no writer has admitted the reader. A sole owner
//! begins its phase when there is no reader, so each reader that has been admitted has gone.
//!
//! Orderings. All changes of the word are RMWs, so each change passes on the releases of the changes before. `runlock`
//! is a Release, and the writer's announcement, or its load after a wait, is an Acquire: the write comes after all
//! reads. `unlock` is a Release, and `rlock` is an Acquire: a read comes after all writes. A reader that waits comes
//! after the writes by the load that sees the end of its phase. The word orders the writers: each begins with an
//! Acquire, and ends with a Release.
//!
//! Source: Go's `sync/rwmutex.go`, in the development tree of 1.28; deadlines and the downgrade are ours.

use std::sync::atomic::Ordering;

use sudog_runtime::AtomicU64;
use sudog_runtime::const_unless_model;

#[cfg(doc)]
use crate::raw::RawLock;

const READER: u64 = 1;
const READERS: u64 = (1 << 31) - 1;
/// The limit of readers (Go's `rwmutexMaxReaders` is 2^30). `before` has 30 bits: room for this many readers and for a
/// successor.
const TOO_MANY: u64 = 1 << 29;
const SOLE: u64 = 1 << 31;
const WRITER: u64 = 1 << 32;
const PHASE: u64 = 1 << 33;
const BEFORE: u64 = 1 << 34;

/// The phase in which a reader has come: the value of P.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Phase(u64);

impl Phase {
    /// Returns the index of the phase in `sleepers` and `admitted`.
    #[inline]
    pub(super) const fn parity(self) -> usize {
        (self.0 != 0) as usize
    }
}

/// What a writer does after its write.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Then {
    /// The writer leaves the mutex.
    Leave = 0,
    /// The writer reads.
    Read = READER,
}

/// The value of the state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

/// Predicates.
impl State {
    /// No reader, no writer, the first phase.
    pub(super) const UNLOCKED: Self = Self(0);

    /// Returns the number of readers that have the mutex or wait, and of successors.
    #[inline]
    pub(super) const fn readers(self) -> u64 {
        self.0 & READERS
    }

    #[inline]
    pub(super) const fn has_readers(self) -> bool {
        self.0 & READERS != 0
    }

    /// True if there were too many readers before the caller counted itself.
    #[inline]
    pub(super) const fn has_too_many_readers(self) -> bool {
        self.0 & TOO_MANY != 0
    }

    /// True if a writer has the mutex or is announced.
    #[inline]
    pub(super) const fn has_writer(self) -> bool {
        self.0 & WRITER != 0
    }

    /// True if a sole owner has the mutex.
    #[inline]
    pub(super) const fn has_sole_owner(self) -> bool {
        self.0 & SOLE != 0
    }

    #[inline]
    pub(super) const fn phase(self) -> Phase {
        Phase(self.0 & PHASE)
    }

    /// Returns the number of readers that the announced writer waits for. Without a meaning if no writer is announced.
    #[inline]
    pub(super) const fn before(self) -> u64 {
        self.0 / BEFORE
    }

    /// Returns the number of readers that wait for the announced writer. Without a meaning if no writer is announced.
    #[inline]
    pub(super) const fn after(self) -> u64 {
        self.readers() - self.before()
    }

    /// True if there is neither a reader nor a writer.
    #[inline]
    pub(super) const fn is_free(self) -> bool {
        self.0 & (WRITER | READERS) == 0
    }

    /// True if a newcomer may read: no writer is there, and the count has room.
    #[inline]
    pub(super) const fn is_readable(self) -> bool {
        self.0 & (WRITER | TOO_MANY) == 0
    }

    /// True if a writer has the mutex.
    #[inline]
    pub(super) const fn is_written(self) -> bool {
        self.has_writer() && self.before() == 0
    }

    /// True if `phase` has not ended, and the readers that have come in `phase` must wait. Only for a reader that has
    /// met a writer in `phase`, and has not seen the end of `phase`.
    #[inline]
    pub(super) const fn must_wait(self, phase: Phase) -> bool {
        self.0 & (WRITER | PHASE) == WRITER | phase.0
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl State {
    /// A reader counts itself.
    #[inline]
    pub(super) const fn read(self) -> Self {
        Self(self.0 + READER)
    }

    /// A reader that waits for a writer gives up.
    #[inline]
    pub(super) const fn withdraw(self) -> Self {
        Self(self.0 - READER)
    }

    /// A writer becomes the sole owner of the free mutex.
    #[inline]
    pub(super) const fn write_alone(self) -> Self {
        Self((self.0 & PHASE) | WRITER | SOLE)
    }

    /// The owner of `writers` takes the mutex, which has no readers.
    #[inline]
    pub(super) const fn write(self) -> Self {
        Self((self.0 & PHASE) | WRITER)
    }

    /// The owner of `writers` announces itself, and waits for all readers. If `is_reader`, the owner of `writers` is
    /// itself counted as a reader, and is not counted any more.
    #[inline]
    pub(super) const fn announce(self, is_reader: bool) -> Self {
        let before = self.readers() - is_reader as u64;
        Self((before * BEFORE) | (self.0 & PHASE) | WRITER | before)
    }

    /// An announced writer gives up: the phase ends.
    #[inline]
    pub(super) const fn retract(self) -> Self {
        Self(self.0.wrapping_add(WRITER))
    }

    /// The sole owner ends its write, and the phase.
    #[inline]
    pub(super) const fn end_sole(self, then: Then) -> Self {
        Self(self.0 + SOLE + then as u64)
    }
}

/// The state word. The caller of a method gives the ordering, and is the place that the models name.
pub(super) struct AtomicState(AtomicU64);

impl AtomicState {
    const_unless_model! {
        pub(super) const fn new() -> Self {
            Self(AtomicU64::new(State::UNLOCKED.0))
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn load(&self, order: Ordering) -> State {
        State(self.0.load(order))
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn compare_exchange(&self, old: State, new: State, ok: Ordering, err: Ordering) -> Result<State, State> {
        self.0.compare_exchange(old.0, new.0, ok, err).map(State).map_err(State)
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn compare_exchange_weak(
        &self,
        old: State,
        new: State,
        ok: Ordering,
        err: Ordering,
    ) -> Result<State, State> {
        self.0.compare_exchange_weak(old.0, new.0, ok, err).map(State).map_err(State)
    }

    /// Counts the caller as a reader, and returns the state before that.
    #[inline(always)]
    #[track_caller]
    pub(super) fn read(&self, order: Ordering) -> State {
        State(self.0.fetch_add(READER, order))
    }

    /// Ends a read, and returns the state before that. `before` decreases, too, for the case that a writer is announced.
    #[inline(always)]
    #[track_caller]
    pub(super) fn end_read(&self, order: Ordering) -> State {
        State(self.0.fetch_sub(READER + BEFORE, order))
    }

    /// Ends the write of an owner of `writers`, and the phase. Returns the state before that.
    #[inline(always)]
    #[track_caller]
    pub(super) fn end_write(&self, then: Then, order: Ordering) -> State {
        State(self.0.fetch_add(WRITER + then as u64, order))
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    /// Applies a step of the word to `state`, and returns the state after that.
    fn after(state: State, step: impl FnOnce(&AtomicState) -> State) -> State {
        let word = AtomicState(AtomicU64::new(state.0));
        assert!(step(&word) == state, "a step returns the state before");
        word.load(Relaxed)
    }

    fn end_write(state: State, then: Then) -> State {
        after(state, |word| word.end_write(then, Relaxed))
    }

    fn end_read(state: State) -> State {
        after(state, |word| word.end_read(Relaxed))
    }

    /// Free states of both phases, with and without a rest in `before`.
    fn free_states() -> [State; 4] {
        let odd = end_write(State::UNLOCKED.write(), Then::Leave);
        [State::UNLOCKED, odd, end_write(odd.write(), Then::Leave), end_read(odd.read())]
    }

    #[test]
    fn the_end_of_a_write_clears_the_writer_and_flips_the_phase() {
        for free in free_states() {
            assert!(free.is_free() && free.is_readable() && !free.is_written());
            for then in [Then::Leave, Then::Read] {
                let ends = [
                    (free.write(), end_write as fn(State, Then) -> State),
                    (free.announce(false), end_write),
                    (free.write_alone(), State::end_sole),
                ];
                for (written, end) in ends {
                    assert!(written.is_written() && !written.is_free() && !written.is_readable());
                    assert!(written.phase() == free.phase());
                    // Two readers come during the write.
                    let ended = end(written.read().read(), then);
                    assert!(!ended.has_writer() && !ended.has_sole_owner() && ended.is_readable());
                    assert_eq!(ended.readers(), 2 + u64::from(then == Then::Read));
                    assert!(ended.phase() != free.phase());
                    assert_ne!(ended.phase().parity(), free.phase().parity());
                }
            }
        }
    }

    #[test]
    fn only_an_owner_without_writers_is_a_sole_owner() {
        for free in free_states() {
            assert!(free.write_alone().has_sole_owner());
            assert!(!free.write().has_sole_owner() && !free.announce(false).has_sole_owner());
        }
    }

    #[test]
    fn an_announced_writer_waits_for_the_readers_before_it() {
        for free in free_states() {
            let announced = free.read().read().announce(false);
            assert_eq!((announced.readers(), announced.before(), announced.after()), (2, 2, 0));
            let joined = announced.read();
            assert_eq!((joined.readers(), joined.before(), joined.after()), (3, 2, 1));
            let left = end_read(joined);
            assert_eq!((left.readers(), left.before(), left.after()), (2, 1, 1));
            assert!(left.has_writer() && !left.is_written());
            let written = end_read(left);
            assert_eq!((written.readers(), written.before(), written.after()), (1, 0, 1));
            assert!(written.is_written());
        }
    }

    #[test]
    fn a_successor_is_no_reader_once_it_is_announced() {
        for free in free_states() {
            assert!(free.read().announce(true) == free.write());
            let beside_another = free.read().read().announce(true);
            assert_eq!((beside_another.readers(), beside_another.before()), (1, 1));
        }
    }

    #[test]
    fn a_writer_that_gives_up_ends_its_phase() {
        for free in free_states() {
            let announced = free.read().announce(false).read();
            let ended = announced.retract();
            assert!(!ended.has_writer() && ended.is_readable());
            assert!(ended.phase() != announced.phase());
            assert_eq!(ended.readers(), 2);
        }
    }

    #[test]
    fn readers_wait_until_their_phase_ends() {
        for free in free_states() {
            let phase = free.phase();
            assert!(!free.must_wait(phase));
            let written = free.write().read();
            assert!(written.must_wait(phase));
            let ended = end_write(written, Then::Leave);
            assert!(!ended.must_wait(phase), "no writer is there");
            let next = ended.announce(false);
            assert!(!next.must_wait(phase), "the writer is of the next phase");
            assert!(next.must_wait(next.phase()));
            assert!(written.withdraw() == free.write());
        }
    }

    #[test]
    fn a_read_that_ends_without_a_writer_changes_neither_phase_nor_writer() {
        for free in free_states() {
            let ended = end_read(free.read());
            assert!(ended.is_free() && ended.phase() == free.phase());
            assert!(ended.write() == free.write(), "a writer sets `before`");
            assert!(ended.write_alone() == free.write_alone());
            assert!(ended.announce(false) == free.announce(false));
        }
    }

    #[test]
    fn the_count_of_readers_has_a_limit() {
        let full = State(TOO_MANY - 1);
        assert!(full.is_readable() && !full.has_too_many_readers());
        let over = full.read();
        assert!(!over.is_readable() && over.has_too_many_readers() && !over.has_writer());
        // The last reader and a successor fit into `before`.
        let announced = over.read().announce(false);
        assert_eq!(announced.before(), TOO_MANY + 1);
        assert_eq!((announced.after(), announced.phase().parity()), (0, 0));
    }
}
