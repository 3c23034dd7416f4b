//! An eventcount: first look at the sequence, then at what you wait for, then wait for the sequence to change. And a
//! semaphore on it.
//!
//! | waiter | signaller |
//! |---|---|
//! | `seen = `[`key_monitor`]`(k)` | |
//! | looks whether it has to wait at all | makes the condition true |
//! | [`key_wait`]`(k, seen)`: pushes itself on the chain of `k` while the sequence is as it was | [`key_signal`]`(k)`: sequence + 1; takes the whole chain off, wakes all of it |
//!
//! As with a processor's MONITOR and MWAIT, the condition stays outside; only a sequence is waited for. **The monitor
//! comes before the look at the condition.** The other way round, a signal between the two is in the sequence that the
//! waiter sees as old, and it sleeps beside a true condition; that is how the semaphores of two C++ standard libraries
//! lost wake-ups. With [`Seen`] as an argument of the wait one has to monitor at all; when, the type cannot say.
//!
//! If the waiter's monitor reads the sequence of a signal or a later one, its look at the condition sees what the
//! signaller did before: release and acquire of the sequence. If not, the sequence is about to change, and the chain's
//! protocol does the rest (`pop_stack.rs`).
//!
//! Source: listing 4, *MONITOR-MWAIT inspired waiting chains*, whose `KeySignal` passes a key where a channel is
//! expected, and whose polite form with an acquire re-check would lose wake-ups: here both sides have a fence.

use std::marker::PhantomData;
use std::ops::Range;

use sudog_runtime::Instant;
use sudog_runtime::shim::{AtomicU64, Ordering};

use super::hash::{MAX_BUCKETS, Mixed, TicketHash, fibonacci};
use super::line::{TicketWait, Turn};
use super::near::{self, Far};
use super::pop_stack::{PopStack, Waited};
use super::table::table;
use super::ticket_sema::TicketSema;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};

struct Channel {
    chain: PopStack,
    sequence: AtomicU64,
}

table!(CHANNELS: [Channel; MAX_BUCKETS]);

/// What [`key_monitor`] saw: the state of a key's sequence.
#[must_use = "what was seen is what to wait for the end of"]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Seen(u64);

/// Begins to watch a key. To be called before one looks whether one has to wait.
///
/// Keys are numbers, of addresses for example. Different ones may share a sequence, so a wait may end in vain.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use sudog_locks::waiting_array::{key_monitor, key_signal, key_wait};
///
/// static OPEN: AtomicBool = AtomicBool::new(false);
/// const KEY: usize = 7;
///
/// let waiter = std::thread::spawn(|| loop {
///     let seen = key_monitor(KEY);
///     if OPEN.load(Ordering::Acquire) {
///         break;
///     }
///     key_wait(KEY, seen);
/// });
/// OPEN.store(true, Ordering::Release);
/// key_signal(KEY);
/// waiter.join().unwrap();
/// ```
#[inline]
pub fn key_monitor(key: usize) -> Seen {
    channel(key).monitor()
}

/// Waits until the key has been signalled since `seen`. At once, if it has been already.
///
/// The caller may be a thread or a goroutine. It allocates nothing.
pub fn key_wait(key: usize, seen: Seen) {
    while channel(key).wait_lazy::<SpinThenPark>(seen, None) != Waited::Satisfied {}
}

/// Waits, if the key's sequence is still as `seen`, and at most once; then, or if not, `seen` is brought up to date.
/// For loops that look at their condition anyway and need no [`key_monitor`]: the first call with [`Seen::default`]
/// returns at once, unless the key has never been signalled.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use sudog_locks::waiting_array::{Seen, key_signal, key_wait_lazy};
///
/// static OPEN: AtomicBool = AtomicBool::new(false);
/// const KEY: usize = 8;
///
/// let waiter = std::thread::spawn(|| {
///     let mut seen = Seen::default();
///     while !OPEN.load(Ordering::Acquire) {
///         key_wait_lazy(KEY, &mut seen);
///     }
/// });
/// OPEN.store(true, Ordering::Release);
/// key_signal(KEY);
/// waiter.join().unwrap();
/// ```
pub fn key_wait_lazy(key: usize, seen: &mut Seen) {
    let channel = channel(key);
    let before = std::mem::replace(seen, channel.monitor());
    if *seen == before {
        let signalled = || {
            *seen = channel.monitor();
            *seen != before
        };
        channel.chain.wait::<SpinThenPark>(signalled, None);
    }
}

/// [`key_wait`] with a deadline: whether the key has been signalled.
pub fn key_wait_until(key: usize, seen: Seen, deadline: Instant) -> bool {
    let channel = channel(key);
    loop {
        match channel.wait_lazy::<SpinThenPark>(seen, Some(deadline)) {
            Waited::Satisfied => return true,
            Waited::Woken => {}
            Waited::TimedOut => return channel.monitor() != seen,
        }
    }
}

/// Ends all waits for this key. To be called after the condition has become true.
///
/// Two RMWs, and a wake-up for each waiter. A goroutine that has run for long gives way here, after the last of them.
pub fn key_signal(key: usize) {
    channel(key).signal();
    sudog_runtime::safepoint();
}

/// [`key_signal`] that leaves the chain alone if nobody waits.
pub fn key_signal_polite(key: usize) {
    let channel = channel(key);
    channel.advance();
    channel.chain.flush_politely();
    sudog_runtime::safepoint();
}

fn channel(key: usize) -> &'static Channel {
    &CHANNELS[fibonacci(key, MAX_BUCKETS)]
}

impl Channel {
    sudog_runtime::const_unless_model! {
        const fn new() -> Self {
            Self { chain: PopStack::new(), sequence: AtomicU64::new(0) }
        }
    }

    #[inline]
    fn monitor(&self) -> Seen {
        Seen(self.sequence.load(Ordering::Acquire))
    }

    #[inline]
    fn advance(&self) {
        self.sequence.fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn signal(&self) {
        self.advance();
        self.chain.flush();
    }

    /// Waits once, unless there has been a signal.
    fn wait_lazy<P: WaitPolicy>(&self, seen: Seen, deadline: Option<Instant>) -> Waited {
        let signalled = || self.monitor() != seen;
        if signalled() { Waited::Satisfied } else { self.chain.wait::<P>(signalled, deadline) }
    }
}

/// Listing 4: waiters sleep in chains until a sequence changes. See [`TwaChannel`].
#[derive(Debug)]
pub struct ChannelWait<P = SpinThenPark, const NEAR: u32 = 1, H = Mixed>(PhantomData<(P, H)>);

/// The semaphore with waiting channels, listing 4.
///
/// `NEAR` is how many at the head of the line look at the grant before they sleep; the listing has 0.
///
/// A post is three RMWs or more, all but one in the waiting array. What it has over [`TwaChain`](super::TwaChain) is
/// the interface of its waits.
///
/// # Examples
///
/// ```
/// use sudog_locks::waiting_array::TwaChannel;
///
/// static SLOTS: TwaChannel = TwaChannel::new(2);
/// SLOTS.acquire_many(1).unwrap();
/// ```
pub type TwaChannel<P = SpinThenPark, const NEAR: u32 = 1, H = Mixed> = TicketSema<ChannelWait<P, NEAR, H>>;

// SAFETY: the turn has come when it says so. A wake changes the sequence of the ticket's channel after the turn has
// come: a waiter that has not seen the turn monitored before, and waits for a change that has been or comes. The
// semaphore's address is hashed.
unsafe impl<P: WaitPolicy, const NEAR: u32, H: TicketHash> TicketWait for ChannelWait<P, NEAR, H> {
    const NEAR: u32 = NEAR;

    const LOOKS_AT_TICKETS: Option<u64> = None;

    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        let channel = &CHANNELS[H::bucket(turn.sema(), turn.ticket()) % H::BUCKETS];
        let wait = |seen| channel.wait_lazy::<Far<P>>(seen, deadline);
        near::wait::<P, NEAR, _>(turn, deadline, || channel.monitor(), wait)
    }

    #[inline]
    fn wake(sema: usize, granted: Range<u64>) {
        near::wake::<P, NEAR, H>(sema, granted, |bucket| CHANNELS[bucket].signal());
    }
}
