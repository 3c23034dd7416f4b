//! An eventcount: a waiter reads the sequence, then tests its condition, then waits for the sequence to change. And a
//! semaphore that uses this eventcount.
//!
//! | waiter | signaller |
//! |---|---|
//! | `seen = `[`key_monitor`]`(k)` | |
//! | tests whether the condition requires a wait at all | makes the condition true |
//! | [`key_wait`]`(k, seen)`: pushes itself on the chain of `k` while the sequence is unchanged | [`key_signal`]`(k)`: sequence + 1; detaches the whole chain, wakes all its waiters |
//!
//! As with a processor's MONITOR and MWAIT, the caller tests the condition; a waiter only waits for a sequence to
//! change. **Call `key_monitor` before the test of the condition.** In the other order, a signal may come between the
//! test and the monitor. Then the monitor reads the new sequence, and the waiter sleeps although the condition is true.
//! In this way the semaphores of two C++ standard libraries lost wake-ups. As the wait has an argument of type
//! [`EventKey`], a caller cannot forget to monitor; but the type cannot enforce the order.
//!
//! If the waiter's monitor reads the sequence of a signal or a later sequence, the waiter's test of the condition sees
//! the earlier writes of the signaller, by release and acquire of the sequence. If the monitor reads an older sequence,
//! the sequence is about to change, and the chain's protocol covers this case (`pop_stack.rs`).
//!
//! Source: listing 4, *MONITOR-MWAIT inspired waiting chains*, whose `KeySignal` passes a key where a channel is
//! expected, and whose polite form with an acquire re-check would lose wake-ups: here both sides have a fence.

use std::marker::PhantomData;
use std::ops::Range;

use sudog_runtime::Instant;
use sudog_runtime::shim::{AtomicU64, Ordering};

use super::hash::{MAX_BUCKETS, MixedHash, TicketHash, fibonacci};
use super::near::{self, Far};
use super::pop_stack::{PopStack, Waited};
use super::table::table;
use super::ticket_queue::{TicketWait, Turn};
use super::ticket_sema::TicketSema;
use crate::waiting::policy::{SpinThenPark, WaitPolicy};

struct Channel {
    chain: PopStack,
    sequence: AtomicU64,
}

table!(CHANNELS: [Channel; MAX_BUCKETS]);

/// The state of a key's sequence, as [`key_monitor`] read it. Other eventcounts call this state a key, or an epoch.
#[must_use = "pass it to `key_wait`"]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EventKey(u64);

/// Begins to watch a key. Call this function before you test whether you have to wait.
///
/// Keys are numbers, for example addresses. Different keys may share a sequence, so a wait may end without a signal of
/// its key.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use sudog::locks::waiting_array::{key_monitor, key_signal, key_wait};
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
pub fn key_monitor(key: usize) -> EventKey {
    channel(key).monitor()
}

/// Waits until the key has been signalled since `seen`. Returns at once if the key has been signalled already.
///
/// The caller may be a thread or a goroutine. This call allocates nothing.
pub fn key_wait(key: usize, seen: EventKey) {
    while channel(key).wait_lazy::<SpinThenPark, false, true>(seen, None) != Waited::Satisfied {}
}

/// Waits at most once, if the key's sequence is still `seen`. Sets `seen` to the sequence as read before the wait, so
/// the call after a wait returns at once. This function is for loops that test their condition anyway and need no
/// [`key_monitor`]. Their first call, with [`EventKey::default`], returns at once, unless the key has never been
/// signalled.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use sudog::locks::waiting_array::{EventKey, key_signal, key_wait_lazy};
///
/// static OPEN: AtomicBool = AtomicBool::new(false);
/// const KEY: usize = 8;
///
/// let waiter = std::thread::spawn(|| {
///     let mut seen = EventKey::default();
///     while !OPEN.load(Ordering::Acquire) {
///         key_wait_lazy(KEY, &mut seen);
///     }
/// });
/// OPEN.store(true, Ordering::Release);
/// key_signal(KEY);
/// waiter.join().unwrap();
/// ```
pub fn key_wait_lazy(key: usize, seen: &mut EventKey) {
    let channel = channel(key);
    let before = std::mem::replace(seen, channel.monitor());
    if *seen == before {
        let signalled = || {
            *seen = channel.monitor();
            *seen != before
        };
        channel.chain.wait::<SpinThenPark, false, true>(signalled, None);
    }
}

/// Waits as [`key_wait`], with a deadline. Returns true if the key has been signalled.
pub fn key_wait_until(key: usize, seen: EventKey, deadline: Instant) -> bool {
    let channel = channel(key);
    loop {
        match channel.wait_lazy::<SpinThenPark, false, true>(seen, Some(deadline)) {
            Waited::Satisfied => return true,
            Waited::Woken => {}
            Waited::TimedOut => return channel.monitor() != seen,
        }
    }
}

/// Ends all waits for this key. Call this function after the condition has become true.
///
/// This call costs two RMWs, and a wake-up for each waiter. A goroutine that has run for long yields in this call,
/// after the last wake-up.
pub fn key_signal(key: usize) {
    channel(key).signal();
    sudog_runtime::safepoint();
}

/// Signals as [`key_signal`], but leaves the chain alone if there is no waiter.
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
    fn monitor(&self) -> EventKey {
        EventKey(self.sequence.load(Ordering::Acquire))
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

    /// Waits once, unless there has been a signal since `seen`.
    fn wait_lazy<P: WaitPolicy, const SYSTOLIC: bool, const UNDOES: bool>(
        &self,
        seen: EventKey,
        deadline: Option<Instant>,
    ) -> Waited {
        let signalled = || self.monitor() != seen;
        if signalled() { Waited::Satisfied } else { self.chain.wait::<P, SYSTOLIC, UNDOES>(signalled, deadline) }
    }
}

/// The protocol of listing 4: waiters sleep in chains until a sequence changes. See [`TwaChannel`].
#[derive(Debug)]
pub struct ChannelWait<
    P = SpinThenPark,
    const NEAR: u32 = 1,
    H = MixedHash,
    const SYSTOLIC: bool = false,
    const UNDOES: bool = true,
>(PhantomData<(P, H)>);

/// The semaphore with waiting channels, listing 4.
///
/// `NEAR` is the number of waiters at the front of the queue that poll the grant before they sleep; the listing has 0.
/// With `SYSTOLIC`, as in the listing, each woken waiter wakes the waiter below; otherwise the poster wakes all. Without
/// `UNDOES`, as in the listing, a waiter that is late flushes the chain instead of undoing its push.
///
/// A post is three RMWs or more, all but one in the waiting array. The advantage of [`TwaChannel`] over
/// [`TwaChain`](super::TwaChain) is the interface of its waits.
///
/// # Examples
///
/// ```
/// use sudog::locks::waiting_array::TwaChannel;
///
/// static SLOTS: TwaChannel = TwaChannel::new(2);
/// SLOTS.acquire_many(1).unwrap();
/// ```
pub type TwaChannel<
    P = SpinThenPark,
    const NEAR: u32 = 1,
    H = MixedHash,
    const SYSTOLIC: bool = false,
    const UNDOES: bool = true,
> = TicketSema<ChannelWait<P, NEAR, H, SYSTOLIC, UNDOES>>;

// SAFETY: `wait` returns true only when the turn has come. A wake changes the sequence of the ticket's channel after
// the turn has come. A waiter that has not seen the turn has read the sequence before that change, so it waits for a
// change that has happened or will happen. The semaphore's address is only hashed.
unsafe impl<P: WaitPolicy, const NEAR: u32, H: TicketHash, const SYSTOLIC: bool, const UNDOES: bool> TicketWait
    for ChannelWait<P, NEAR, H, SYSTOLIC, UNDOES>
{
    const NEAR: u32 = NEAR;

    const LOOKS_AT_TICKETS: Option<u64> = None;

    fn wait(turn: &Turn<'_>, deadline: Option<Instant>) -> bool {
        let channel = &CHANNELS[H::bucket(turn.sema(), turn.ticket()) % H::BUCKETS];
        let wait = |seen| channel.wait_lazy::<Far<P>, SYSTOLIC, UNDOES>(seen, deadline);
        near::wait::<P, NEAR, _>(turn, deadline, || channel.monitor(), wait)
    }

    #[inline]
    fn wake(sema: usize, granted: Range<u64>) {
        near::wake::<P, NEAR, H>(sema, granted, |bucket| CHANNELS[bucket].signal());
    }
}
