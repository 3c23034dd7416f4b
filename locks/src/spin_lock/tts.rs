//! Test-and-test-and-set: contenders read one word, and write to the word only when the lock looks free.
//!
//! | word | meaning |
//! |---|---|
//! | FREE | the lock is free; if threads sleep, one of them is being woken |
//! | HELD | the lock is held; if threads sleep, one of them is being woken |
//! | SLEEPERS | the lock is held, and threads may sleep |
//!
//! | step | word | then |
//! |---|---|---|
//! | lock, at first | FREE → HELD | has the lock |
//! | mark, before a sleep | HELD → SLEEPERS | sleeps, unless the word has changed |
//! | lock, after a sleep | FREE → SLEEPERS | has the lock; the thread cannot know whether any others still sleep |
//! | unlock, if the policy sleeps | swap for FREE | if the old word was SLEEPERS: wakes a thread |
//! | unlock, if the policy does not sleep | FREE | |
//!
//! No thread is left asleep: an unlock that clears SLEEPERS wakes a thread, and that thread stays in `lock_slow` until
//! it has restored SLEEPERS, by its acquisition or before it sleeps again. The kernel compares the word with SLEEPERS
//! atomically with respect to the wake, so a sleep that begins after that unlock returns at once.
//!
//! Orderings: Acquire on the step that takes the lock, Release on the step that frees the lock. The mark is Relaxed: no
//! data but the word depends on the mark, and as an RMW the mark continues the release sequence.
//!
//! Source: Rudolph and Segall, *Dynamic decentralized cache schemes for MIMD parallel processors*, 1984; for the sleep,
//! Drepper, *Futexes Are Tricky*.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicU32, futex};

use super::without_unwinding;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

/// The value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u32);

impl State {
    const FREE: Self = Self(0);
    const HELD: Self = Self(1);
    const SLEEPERS: Self = Self(2);

    #[inline]
    const fn is_locked(self) -> bool {
        self.0 != Self::FREE.0
    }

    /// Returns whether threads may sleep: an unlock must wake a thread, and a thread may sleep without marking the word.
    #[inline]
    const fn has_sleepers(self) -> bool {
        self.0 == Self::SLEEPERS.0
    }
}

/// The word. Each method is a step of the table.
struct AtomicState(AtomicU32);

impl AtomicState {
    const_unless_model! {
        const fn new() -> Self {
            Self(AtomicU32::new(State::FREE.0))
        }
    }

    #[inline(always)]
    #[track_caller]
    fn load(&self) -> State {
        State(self.0.load(Relaxed))
    }

    /// Locks: writes `held`, which is HELD, or SLEEPERS after a sleep. Returns whether the lock was free.
    #[inline(always)]
    #[track_caller]
    fn lock(&self, held: State) -> bool {
        self.0.compare_exchange(State::FREE.0, held.0, Acquire, Relaxed).is_ok()
    }

    /// Marks, before a sleep. Returns whether the word was HELD.
    #[track_caller]
    fn mark(&self) -> bool {
        self.0.compare_exchange(State::HELD.0, State::SLEEPERS.0, Relaxed, Relaxed).is_ok()
    }

    /// Sleeps, unless the word has changed since the mark.
    fn sleep(&self) {
        futex::wait(&self.0, State::SLEEPERS.0, None);
    }

    /// Unlocks, if no thread sleeps under this policy.
    #[inline(always)]
    #[track_caller]
    fn unlock(&self) {
        self.0.store(State::FREE.0, Release);
    }

    /// Unlocks. Returns the state before.
    #[inline(always)]
    #[track_caller]
    fn swap_free(&self) -> State {
        State(self.0.swap(State::FREE.0, Release))
    }
}

/// A test-and-test-and-set lock: no queue, no order, four bytes.
///
/// The first thread that sees the lock free takes the lock: usually the thread that has just freed it. Another thread
/// may wait for ever. If many threads spin, each unlock makes all of them fetch the word.
///
/// # Limits
///
/// The limits of the [module](super).
///
/// # Examples
///
/// ```
/// use sudog::sync::MutexWith;
/// use sudog::locks::spin_lock::{SpinThenYield, Tts};
///
/// static HITS: MutexWith<Tts<SpinThenYield>, u64> = MutexWith::new(0);
/// *HITS.lock() += 1;
/// ```
pub struct Tts<P = SpinThenPark> {
    word: AtomicState,
    policy: PhantomData<P>,
}

impl<P: WaitPolicy> Tts<P> {
    #[cold]
    fn lock_slow(&self) {
        let mut held = State::HELD; // the value that this thread writes to the word to take the lock
        let mut iter: u32 = 0;
        loop {
            let word = self.word.load();
            if !word.is_locked() {
                if self.word.lock(held) {
                    return;
                }
            } else if P::pass_time(iter) || !P::PARKS {
                iter = iter.wrapping_add(1);
            } else {
                if word.has_sleepers() || self.word.mark() {
                    self.word.sleep();
                    held = State::SLEEPERS;
                }
                iter = 0;
            }
        }
    }
}

// SAFETY: the thread that changes the word from FREE has the lock, and only the owner writes FREE. The module's comment
// argues the orderings. The word stores no address and no thread, so the lock may be moved, and unlocked by another
// thread.
unsafe impl<P: WaitPolicy> RawLock for Tts<P> {
    type Guard = ();

    const DEADLINES: bool = false;

    fn new() -> Self {
        Self { word: AtomicState::new(), policy: PhantomData }
    }

    #[inline]
    fn lock(&self) {
        if !self.word.lock(State::HELD) {
            // Do not unwind: a contender that left halfway could take a wake-up with it that the other contenders need.
            without_unwinding(|| self.lock_slow());
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        self.word.lock(State::HELD).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        if !P::PARKS {
            self.word.unlock();
        } else if self.word.swap_free().has_sleepers() {
            futex::wake(&raw const self.word.0, 1);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.word.load().is_locked()
    }
}

#[cfg(not(sudog_loom))]
impl<P: WaitPolicy> sudog_sync::ConstRawLock for Tts<P> {
    const INIT: Self = Self { word: AtomicState::new(), policy: PhantomData };
}

impl<P> fmt::Debug for Tts<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load();
        f.debug_struct("Tts")
            .field("locked", &word.is_locked())
            .field("sleepers", &word.has_sleepers())
            .finish_non_exhaustive()
    }
}
