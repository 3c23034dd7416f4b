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

use sudog_runtime::shim::{AtomicU32, futex};

use super::without_unwinding;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};
use sudog_sync::RawLock;

const FREE: u32 = 0;
const HELD: u32 = 1;
const SLEEPERS: u32 = 2;

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
    word: AtomicU32,
    policy: PhantomData<P>,
}

impl<P: WaitPolicy> Tts<P> {
    #[cold]
    fn lock_slow(&self) {
        let mut held = HELD; // the value that this thread writes to the word to take the lock
        let mut iter: u32 = 0;
        loop {
            let word = self.word.load(Relaxed);
            if word == FREE {
                if self.word.compare_exchange(FREE, held, Acquire, Relaxed).is_ok() {
                    return;
                }
            } else if P::pass_time(iter) || !P::PARKS {
                iter = iter.wrapping_add(1);
            } else {
                if word == SLEEPERS || self.word.compare_exchange(HELD, SLEEPERS, Relaxed, Relaxed).is_ok() {
                    futex::wait(&self.word, SLEEPERS, None);
                    held = SLEEPERS;
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
        Self { word: AtomicU32::new(FREE), policy: PhantomData }
    }

    #[inline]
    fn lock(&self) {
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            // Do not unwind: a contender that left halfway could take a wake-up with it that the other contenders need.
            without_unwinding(|| self.lock_slow());
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok().then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        if !P::PARKS {
            self.word.store(FREE, Release);
        } else if self.word.swap(FREE, Release) == SLEEPERS {
            futex::wake(&raw const self.word, 1);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}

#[cfg(not(sudog_loom))]
impl<P: WaitPolicy> sudog_sync::ConstRawLock for Tts<P> {
    const INIT: Self = Self { word: AtomicU32::new(FREE), policy: PhantomData };
}

impl<P> fmt::Debug for Tts<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Relaxed);
        f.debug_struct("Tts")
            .field("locked", &(word != FREE))
            .field("sleepers", &(word == SLEEPERS))
            .finish_non_exhaustive()
    }
}
