//! Channels that carry the time: Go's `time.After` and `time.Tick`, and the channels of its timers and tickers.
//!
//! As of Go 1.23 such a channel has no buffer: a goroutine of the caller's scheduler waits for the time, and then sends it,
//! and that send waits for a receiver. To stop or reset a timer cancels the send. When the cancel returns, the send has been
//! received or never will be: so no receive gets a stale value.
//!
//! | state of an arming | then |
//! |---|---|
//! | its goroutine waits for the time | the timer is stopped: it ends |
//! | its goroutine sends | the send is cancelled: it ends |
//! | its goroutine is unwound, as its scheduler has ended | nothing is sent |
//! | its handle is dropped | as if it was stopped |

use crate::shim::system::Mutex;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::core::Core;
use super::port::{RecvPort, Sealed};
use super::{Receiver, Sender, channel};
use crate::Instant;
use crate::goroutine::{Ticker, Timer, go, now};
use crate::sema::{Cancel, WaitLimit};

/// A channel that is sent the time once, after a while. Go's `time.Timer` with its channel.
///
/// It is a [`RecvPort`]: `recv(timer) -> at => ..` in a [`select!`](crate::select).
///
/// Until it has fired and was received, or was stopped, a goroutine of the caller's scheduler waits for it.
#[derive(Debug)]
pub struct TimerChan(Armed);

/// A channel that is sent the time at regular intervals. Go's `time.Ticker` with its channel. Ticks that are not received
/// in time are dropped.
///
/// It is a [`RecvPort`]: `recv(ticker) -> at => ..` in a [`select!`](crate::select).
///
/// Until it is stopped or dropped a goroutine of the caller's scheduler waits for it.
#[derive(Debug)]
pub struct TickerChan(Armed);

/// A [`TimerChan`] that fires after `d`. Go's `time.After`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::chan::{Chan, after, select};
///
/// let never = Chan::<u32>::nil();
/// let timeout = after(Duration::from_millis(1));
/// select! {
///     recv(never) => unreachable!(),
///     recv(timeout) => {}
/// }
/// ```
#[must_use]
pub fn after(d: Duration) -> TimerChan {
    TimerChan(Armed::new(Arming::once(d)))
}

/// A [`TickerChan`] with this period. Go's `time.Tick`.
///
/// # Panics
///
/// If the period is zero: `non-positive interval for NewTicker`. (Go's `Tick` returns nil for it.)
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::chan::tick;
///
/// let ticker = tick(Duration::from_millis(1));
/// let (first, second) = (ticker.recv(), ticker.recv());
/// assert!(first < second);
/// ```
#[must_use]
pub fn tick(period: Duration) -> TickerChan {
    TickerChan(Armed::new(Arming::repeated(period)))
}

macro_rules! methods {
    ($Handle:ident, $($arm:tt)*) => {
        impl $Handle {
            /// Waits for the next time that is sent: for ever, if it is stopped.
            pub fn recv(&self) -> Instant {
                self.0.times.recv().expect("it has a sender")
            }

            /// Keeps it from sending. No receive gets a value after this, before it is set anew.
            pub fn stop(&self) {
                self.0.arm(None);
            }

            $($arm)*
        }

        impl Sealed for $Handle {}

        impl RecvPort for $Handle {
            type Item = Instant;
            type Received = Instant;

            fn core(&self) -> Option<&Core<Instant>> {
                self.0.times.core()
            }

            fn received(value: Option<Instant>) -> Instant {
                value.expect("it has a sender")
            }
        }
    };
}

methods! { TimerChan,
    /// Lets it fire `d` from now, whatever it did before.
    pub fn reset(&self, d: Duration) {
        self.0.arm(Some(Arming::once(d)));
    }
}

methods! { TickerChan,
    /// Ticks every `period` from now on.
    ///
    /// # Panics
    ///
    /// If the period is zero: `non-positive interval for Ticker.Reset`.
    pub fn reset(&self, period: Duration) {
        assert!(!period.is_zero(), "non-positive interval for Ticker.Reset");
        self.0.arm(Some(Arming::repeated(period)));
    }
}

/// A channel without a buffer, and what is to be sent to it.
struct Armed {
    times: Receiver<Instant>,
    /// There is always one, so the channel is never closed.
    sender: Sender<Instant>,
    now: Mutex<Option<Arc<Arming>>>,
}

/// From a setting of a timer to the next.
struct Arming {
    when: When,
    /// Ends a send that waits.
    stopped: Cancel,
}

enum When {
    Once(Timer),
    Repeated(Ticker),
}

impl Arming {
    fn once(d: Duration) -> Self {
        Self { when: When::Once(Timer::new(d)), stopped: Cancel::new() }
    }

    fn repeated(period: Duration) -> Self {
        Self { when: When::Repeated(Ticker::new(period)), stopped: Cancel::new() }
    }

    /// By its goroutine.
    fn run(&self, sender: &Sender<Instant>) {
        let limit = WaitLimit { deadline: None, cancel: Some(&self.stopped) };
        let send = || sender.send_limited(now(), &limit).is_ok();
        match &self.when {
            When::Once(timer) => _ = timer.wait() && send(),
            When::Repeated(ticker) => while ticker.tick() && send() {},
        }
    }

    fn stop(&self) {
        self.stopped.cancel_and_go_on();
        match &self.when {
            When::Once(timer) => _ = timer.stop(),
            When::Repeated(ticker) => ticker.stop(),
        }
    }
}

impl Armed {
    fn new(first: Arming) -> Self {
        let (sender, times) = channel(0);
        let armed = Self { times, sender, now: Mutex::new(None) };
        armed.arm(Some(first));
        armed
    }

    /// Ends what was before, then begins what is next.
    fn arm(&self, next: Option<Arming>) {
        let next = next.map(Arc::new);
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *now, next.clone());
        if let Some(old) = &old {
            // Under the lock: what another call arms or stops after this one finds no older arming under way.
            old.stopped.cancel_and_go_on();
            // A send that had begun before is over then: it is done under the channel's lock, or finds the cancel there.
            self.sender.shared().raw.lock().unlock();
        }
        drop(now);
        if let Some(old) = old {
            old.stop();
        }
        if let Some(next) = next {
            let sender = self.sender.clone();
            go(move || next.run(&sender));
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let Some(arming) = self.now.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            arming.stop();
        }
    }
}

impl fmt::Debug for Armed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Armed { .. }")
    }
}
