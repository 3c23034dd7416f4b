//! A table of buckets, each with a sequence. Waiters far from their turn watch their bucket; waiters near their turn
//! watch the grant.
//!
//! | taker of ticket `tx` | poster of grant `g` |
//! |---|---|
//! | W1: reads the sequence of its bucket | P1: `grant = g + 1` |
//! | W2: reads the grant: enabled? near? | P2: advances the sequences of the buckets concerned |
//! | W3: far: waits until the sequence differs from the sequence in W1; near: watches the grant | |
//!
//! `near.rs` defines near. If a waiter's W1 reads P2's sequence, the waiter's W2 sees P1's grant. If W1 reads an older
//! sequence, P2 is still to change the sequence. Release in P2 and acquire in W1 are enough for that.
//!
//! **A bucket** is 32 bits, so that the kernel can compare the bucket:
//!
//! ```text
//!   31                            2        1           0
//!  ┌───────────────────────────────┬────────────┬─────────┐
//!  │ sequence                      │ GOROUTINES │ THREADS │
//!  └───────────────────────────────┴────────────┴─────────┘
//! ```
//!
//! | part | means | changed by |
//! |---|---|---|
//! | sequence | the number of advances, modulo 2^30 | P2: + 1 |
//! | GOROUTINES, THREADS | goroutines sleep, threads sleep, until the sequence changes | a waiter of that kind sets its bit, before it sleeps; P2 clears both |
//!
//! A waiter sets its bit by a compare-exchange from the value of W1, which fails if the sequence has changed. P2 wakes
//! the sleepers of the bits that P2 clears: threads by futex, goroutines by the chains of listing 3, with the bucket's
//! address. Without sleepers P2 makes no system call. If the sequence wraps to the same 30 bits *while* a thread is on
//! its way into the kernel, the thread misses the change. That takes 2^30 posts to the same bucket in that time; all the
//! same, a sleeping thread wakes every few seconds to check. (A goroutine that is woken reads the grant, not the
//! sequence, before it sleeps again: a busy worker may delay the goroutine for long.)
//!
//! **Reading the tickets.** A post wakes no waiter if it finds that the ticket to wake has not been drawn. Otherwise
//! posts without waiters would walk through the table. The post reads the tickets after the grant, so all four accesses
//! (the taker's draw and first read of the grant; the poster's grant and read of the tickets) are sequentially
//! consistent, and **the semaphore must outlive the post**.
//!
//! Source: listing 2, *TWA-Semaphore*, whose `LongTermThreshold` is `NEAR` here.

use std::marker::PhantomData;
use std::ops::Range;
#[cfg(all(target_os = "linux", not(sudog_loom)))]
use std::time::Duration;

#[cfg(any(target_os = "linux", sudog_loom))]
use sudog_runtime::shim::futex;
use sudog_runtime::shim::{AtomicU32, Ordering};
use sudog_runtime::{G, Instant};

use super::chain;
use super::hash::{MAX_BUCKETS, MixedHash, TicketHash};
use super::near::{self, Far};
use super::pop_stack::Waited;
use super::table::table;
use super::ticket_queue::{TicketWait, Turn};
use super::ticket_sema::TicketSema;
use crate::waiting::parker::is_over;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};

const THREADS: u32 = 1;
const GOROUTINES: u32 = 2;
const SEQUENCE: u32 = 4;

/// The value of a bucket.
#[derive(Clone, Copy)]
struct State(u32);

/// A kind of sleepers, by its bit.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Sleeper {
    #[cfg_attr(not(any(target_os = "linux", sudog_loom)), allow(dead_code))]
    Thread = THREADS,
    Goroutine = GOROUTINES,
}

/// Predicates.
impl State {
    #[inline]
    const fn is_of_sequence(self, seen: Self) -> bool {
        self.0 / SEQUENCE == seen.0 / SEQUENCE
    }

    #[inline]
    const fn has_sleepers(self) -> bool {
        self.0 & (THREADS | GOROUTINES) != 0
    }

    const fn has(self, kind: Sleeper) -> bool {
        self.0 & kind as u32 != 0
    }
}

/// Transitions: from the state that they are called on, to the state that they return.
impl State {
    /// Advances the sequence, for a poster. From then on no thread sleeps.
    #[inline]
    const fn advance(self) -> Self {
        Self((self.0 | THREADS | GOROUTINES).wrapping_add(1))
    }

    /// Notes a waiter of this kind, which is about to sleep.
    const fn add_sleeper(self, kind: Sleeper) -> Self {
        Self(self.0 | kind as u32)
    }
}

/// A bucket of the table. 8 bytes, as in the paper: 17 buckets are more than the 128 bytes that processors fetch at
/// once.
#[repr(align(8))]
struct Bucket {
    word: AtomicU32,
}

table!(BUCKETS: [Bucket; MAX_BUCKETS]);

impl Bucket {
    sudog_runtime::const_unless_model! {
        const fn new() -> Self {
            Self { word: AtomicU32::new(0) }
        }
    }

    #[inline]
    fn load(&self) -> State {
        State(self.word.load(Ordering::Acquire))
    }

    /// Does step P2: advances the sequence, and wakes the sleepers.
    #[inline]
    fn advance(&self) {
        let mut old = State(self.word.load(Ordering::Relaxed));
        // Release: a waiter that sees the new sequence sees the grant.
        while let Err(now) =
            self.word.compare_exchange_weak(old.0, old.advance().0, Ordering::Release, Ordering::Relaxed)
        {
            old = State(now);
        }
        if old.has_sleepers() {
            self.wake(old);
        }
    }

    #[cold]
    fn wake(&self, sleepers: State) {
        #[cfg(any(target_os = "linux", sudog_loom))]
        if sleepers.has(Sleeper::Thread) {
            futex::wake(&raw const self.word, u32::MAX);
        }
        if sleepers.has(Sleeper::Goroutine) {
            chain::signal_and_go_on(self.address());
        }
    }

    fn address(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Does step W3: spins or sleeps until the sequence of the word is not that of `seen`. May return early.
    fn wait<P: WaitPolicy>(&self, seen: State, deadline: Option<Instant>) -> Waited {
        let mut iter = 0;
        while self.load().is_of_sequence(seen) {
            if !P::pass_time(iter) {
                return self.sleep(seen, deadline);
            }
            if !P::PARKS && is_over(deadline, iter) {
                return Waited::TimedOut;
            }
            iter = iter.wrapping_add(1);
        }
        Waited::Woken
    }

    #[cold]
    fn sleep(&self, seen: State, deadline: Option<Instant>) -> Waited {
        let is_thread = cfg!(any(target_os = "linux", sudog_loom)) && !G::is_goroutine();
        let me = if is_thread { Sleeper::Thread } else { Sleeper::Goroutine };
        let marked = seen.add_sleeper(me);
        if !seen.has(me) && self.word.compare_exchange(seen.0, marked.0, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return Waited::Woken; // the word has changed, perhaps only by other sleepers: check again
        }
        #[cfg(any(target_os = "linux", sudog_loom))]
        if is_thread {
            return sleep_in_kernel(&self.word, marked, deadline);
        }
        let changed = || !self.load().is_of_sequence(seen);
        // Wait once. A woken waiter must read the grant again: it may take long until the waiter runs, and meanwhile
        // the sequence may wrap.
        chain::wait_once(self.address(), changed, deadline)
    }
}

#[cfg(all(target_os = "linux", not(sudog_loom)))]
fn sleep_in_kernel(word: &AtomicU32, seen: State, deadline: Option<Instant>) -> Waited {
    /// The time after which a thread checks the sequence again: see the module's comment on sequences that wrap.
    const LOOK_AGAIN: Duration = Duration::from_secs(4);
    let look = sudog_runtime::shim::now() + LOOK_AGAIN;
    let until = deadline.map_or(look, |deadline| deadline.min(look));
    let in_time = futex::wait(word, seen.0, Some(until));
    if in_time || until == look { Waited::Woken } else { Waited::TimedOut }
}

/// Sleeps in a model. A deadline has always passed already, because that is the hardest case.
#[cfg(sudog_loom)]
fn sleep_in_kernel(word: &AtomicU32, seen: State, deadline: Option<Instant>) -> Waited {
    if deadline.is_some() {
        return Waited::TimedOut;
    }
    futex::wait(word, seen.0, None);
    Waited::Woken
}

/// The protocol of listing 2: waiters watch a bucket until their turn is near. See [`Twa`].
#[derive(Debug)]
pub struct BucketWait<P = SpinThenPark, const NEAR: u32 = 1, H = MixedHash>(PhantomData<(P, H)>);

/// The TWA semaphore, listing 2.
///
/// `NEAR` is the number of waiters at the front of the queue that poll the grant: the paper's `LongTermThreshold`. With
/// 0, no waiter polls.
///
/// The semaphore must outlive its posts: see [`TicketSema::OUTLIVES_GRANT`].
///
/// # Examples
///
/// ```
/// use sudog::locks::waiting_array::Twa;
/// use sudog::locks::waiting_array::{PlainHash, Spin, SpinThenPark};
///
/// let ours = Twa::new(1);
/// let as_printed: Twa<Spin, 1, PlainHash> = Twa::with_permits(1);
/// let all_may_sleep: Twa<SpinThenPark, 0> = Twa::with_permits(1);
/// # ours.acquire_many(1).unwrap();
/// # as_printed.acquire_many(1).unwrap();
/// # all_may_sleep.acquire_many(1).unwrap();
/// ```
pub type Twa<P = SpinThenPark, const NEAR: u32 = 1, H = MixedHash> = TicketSema<BucketWait<P, NEAR, H>>;

// SAFETY: `wait` returns true only when the turn has come. If the policy sleeps, the post of the waiter's own ticket
// advances the waiter's bucket; if not, the post that makes the waiter near advances that bucket, after which the
// waiter watches the grant. The semaphore's address is only hashed.
unsafe impl<P: WaitPolicy, const NEAR: u32, H: TicketHash> TicketWait for BucketWait<P, NEAR, H> {
    const NEAR: u32 = NEAR;

    const LOOKS_AT_TICKETS: Option<u64> = Some(near::needs_no_wake::<P, NEAR>());

    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        let bucket = &BUCKETS[H::bucket(turn.sema(), turn.ticket()) % H::BUCKETS];
        // W1, W2 and W3.
        near::wait::<P, NEAR, _>(turn, deadline, || bucket.load(), |seen| bucket.wait::<Far<P>>(seen, deadline))
    }

    #[inline]
    fn wake(sema: usize, granted: Range<u64>) {
        near::wake::<P, NEAR, H>(sema, granted, |bucket| BUCKETS[bucket].advance());
    }
}
