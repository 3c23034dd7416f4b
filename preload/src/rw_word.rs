//! RwWord: how the readers and the writer of a readers-writer lock exclude each other. The writers exclude each other by
//! the chosen lock, so there is one writer at most here.
//!
//! | part of `word` | meaning |
//! |---|---|
//! | `WRITER` | the writer is inside |
//! | `PENDING` | the writer waits, perhaps asleep on `gate` |
//! | `SLEEPERS` | readers sleep on `word`, or are about to |
//! | the rest | the number of readers inside |
//!
//! | step | by | action |
//! |---|---|---|
//! | enter | reader | if no writer is inside: `word += 1`. With preference for writers: if none is pending, either |
//! | sleep | reader | sets SLEEPERS; sleeps while `word` does not change |
//! | leave | reader | `word -= 1`; the last one, if PENDING: `gate += 1`, wakes the writer |
//! | enter | writer | if no thread is inside: sets WRITER, clears PENDING |
//! | sleep | writer | reads `gate`, sets PENDING, looks again; sleeps while `gate` does not change |
//! | leave | writer | clears WRITER and SLEEPERS; wakes all readers if SLEEPERS, and the next writer if PENDING |
//! | give up | writer | clears PENDING and SLEEPERS; wakes all readers if SLEEPERS |
//!
//! The writer's exit from the chosen lock comes before its leave, so the next writer may be pending meanwhile: a leave of
//! the writer is the last access to a lock that is then destroyed. The wake-ups after it are by address, or on
//! `gate`, in memory that is never freed: a late one is spurious.
//!
//! Orderings, by the accesses that they order:
//!
//! | access | ordering | why |
//! |---|---|---|
//! | enter | Acquire | sees what was done before the leaves |
//! | leave | Release | publishes |
//! | `gate += 1` | Release | a writer that reads the new `gate` sees the leave before it, and so does not sleep for it |
//! | read of `gate` | Acquire | the same. If the writer reads the old `gate`, the kernel's comparison sees the new one, or the wake-up comes after the sleep |
//!
//! All changes of `word` are RMWs, and the last reader's sees PENDING, or comes before the step that sets PENDING, and
//! then that step sees no reader. The kernel compares `word` with a value that has SLEEPERS: the writer's leave
//! changes `word`, and sees SLEEPERS.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::shim::AtomicU32;
use sudog_runtime::{Instant, spin};

use crate::futex;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u32);

const WRITER: u32 = 1 << 31;
const PENDING: u32 = 1 << 30;
const SLEEPERS: u32 = 1 << 29;
const READERS: u32 = SLEEPERS - 1;

/// The number of times that a contender looks before it sleeps.
const LOOKS: u32 = if cfg!(sudog_loom) { 0 } else { 100 };

impl State {
    const fn has_writer(self) -> bool {
        self.0 & WRITER != 0
    }

    const fn is_pending(self) -> bool {
        self.0 & PENDING != 0
    }

    const fn has_sleepers(self) -> bool {
        self.0 & SLEEPERS != 0
    }

    const fn readers(self) -> u32 {
        self.0 & READERS
    }

    /// Returns whether a reader may enter.
    const fn admits_reader(self, prefers: Prefers) -> bool {
        match prefers {
            Prefers::Readers => !self.has_writer(),
            Prefers::Writers => !self.has_writer() && !self.is_pending(),
        }
    }

    /// Returns whether the writer may enter.
    const fn admits_writer(self) -> bool {
        !self.has_writer() && self.readers() == 0
    }
}

/// The side that goes first when the writer waits, and readers come: glibc's kinds of readers-writer locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefers {
    /// Readers enter beside other readers. So a thread may read again.
    Readers,
    /// Readers that come wait behind the writer.
    Writers,
}

/// The reason for which a reader could not enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotRead {
    /// A writer was inside, or preferred, until the deadline.
    Busy,
    /// There are too many readers.
    TooMany,
}

/// The readers and the writer of a readers-writer lock.
pub struct RwWord {
    word: AtomicU32,
    gate: AtomicU32,
}

impl RwWord {
    /// Returns a word without readers and writer.
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0), gate: AtomicU32::new(0) }
    }

    fn load(&self) -> State {
        State(self.word.load(Relaxed))
    }

    /// Changes the word, unless it has changed: returns whether it has not.
    fn step(&self, from: State, to: u32) -> bool {
        // Acquire: each of these steps may be an enter.
        self.word.compare_exchange_weak(from.0, to, Acquire, Relaxed).is_ok()
    }

    /// Enters as a reader, if that is possible without waiting.
    ///
    /// # Errors
    ///
    /// The error says why it is not possible.
    #[inline]
    pub fn try_read(&self, prefers: Prefers) -> Result<(), NotRead> {
        loop {
            let state = self.load();
            if !state.admits_reader(prefers) {
                return Err(NotRead::Busy);
            }
            if state.readers() == READERS {
                return Err(NotRead::TooMany);
            }
            if self.step(state, state.0 + 1) {
                return Ok(());
            }
        }
    }

    /// Enters as a reader, waiting until the deadline at most.
    ///
    /// # Errors
    ///
    /// The error says why it is not possible.
    pub fn read(&self, prefers: Prefers, deadline: Option<Instant>) -> Result<(), NotRead> {
        let mut looks = 0;
        loop {
            match self.try_read(prefers) {
                Err(NotRead::Busy) => {}
                other => return other,
            }
            if looks < LOOKS {
                looks += 1;
                spin::do_spin(1);
                continue;
            }
            let state = self.load();
            if state.admits_reader(prefers) || (!state.has_sleepers() && !self.step(state, state.0 | SLEEPERS)) {
                continue;
            }
            if !futex::wait(&self.word, state.0 | SLEEPERS, deadline) {
                return self.try_read(prefers);
            }
        }
    }

    /// Leaves as a reader. Returns false, and does nothing, if there is no reader.
    #[inline]
    pub fn leave_read(&self) -> bool {
        if self.load().readers() == 0 {
            return false;
        }
        let before = State(self.word.fetch_sub(1, Release));
        // This may have been the last access to a lock that has been destroyed: see the head of the file.
        if before.readers() == 1 && before.is_pending() {
            self.wake_writer();
        }
        true
    }

    /// Enters as the writer, if that is possible without waiting. The caller holds the chosen lock.
    #[inline]
    pub fn try_write(&self) -> bool {
        loop {
            let state = self.load();
            if !state.admits_writer() {
                return false;
            }
            if self.step(state, (state.0 & !PENDING) | WRITER) {
                return true;
            }
        }
    }

    /// Enters as the writer, waiting until the deadline at most. The caller holds the chosen lock. Returns whether the
    /// caller is inside.
    pub fn write(&self, deadline: Option<Instant>) -> bool {
        let mut looks = 0;
        loop {
            if self.try_write() {
                return true;
            }
            if looks < LOOKS {
                looks += 1;
                spin::do_spin(1);
                continue;
            }
            let gate = self.gate.load(Acquire);
            let state = self.load();
            if state.admits_writer() || (!state.is_pending() && !self.step(state, state.0 | PENDING)) {
                continue;
            }
            if !futex::wait(&self.gate, gate, deadline) {
                return self.try_write() || self.give_up();
            }
        }
    }

    /// Ends the wait of the writer, which is not inside. Returns false.
    #[cold]
    fn give_up(&self) -> bool {
        // Wake the readers, which perhaps sleep only because of this writer. If another writer is inside, they wake in vain.
        if State(self.word.fetch_and(!(PENDING | SLEEPERS), Relaxed)).has_sleepers() {
            futex::wake(&raw const self.word, u32::MAX);
        }
        false
    }

    /// Waits as the writer until the deadline, which has passed. A model's futex has no deadlines.
    #[cfg(sudog_loom)]
    pub fn pend_and_give_up(&self) -> bool {
        loop {
            let state = self.load();
            if state.admits_writer() || state.is_pending() || self.step(state, state.0 | PENDING) {
                return self.try_write() || self.give_up();
            }
        }
    }

    /// Leaves as the writer. The caller has released the chosen lock.
    #[inline]
    pub fn leave_write(&self) {
        let before = State(self.word.fetch_and(!(WRITER | SLEEPERS), Release));
        // As in `leave_read`.
        if before.has_sleepers() {
            futex::wake(&raw const self.word, u32::MAX);
        }
        if before.is_pending() {
            self.wake_writer();
        }
    }

    #[cold]
    fn wake_writer(&self) {
        self.gate.fetch_add(1, Release);
        futex::wake(&raw const self.gate, u32::MAX); // one thread at most sleeps there
    }

    /// Returns whether a reader or the writer is inside.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        !self.load().admits_writer()
    }

    /// Makes a word without readers and writer of one that no thread uses. Returns false if a reader or the writer is
    /// inside.
    #[must_use]
    pub fn reset(&self) -> bool {
        !self.is_locked() && {
            self.word.store(0, Relaxed);
            true
        }
    }

    /// Counts the readers of another word as inside, and its writer. No other thread uses this word yet.
    pub fn copy_inside(&self, other: &Self) {
        self.word.store(other.load().0 & (READERS | WRITER), Relaxed);
    }
}

impl fmt::Debug for RwWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.load();
        f.debug_struct("RwWord").field("writer", &state.has_writer()).field("readers", &state.readers()).finish()
    }
}
