//! Sleeping, timers, tickers.

use crate::shim::system::thread;
use crate::shim::system::{Mutex, MutexGuard};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::G;
use crate::goroutine::native::alarm::alarms;
use crate::goroutine::native::coop::Coop;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::sched::bubble;
use crate::sema::{NotifyList, WaitError, WaitLimit};

/// The time. In a bubble of [`synctest`](crate::goroutine::synctest) it is the bubble's; else `std`'s `Instant::now()`.
///
/// Code that makes deadlines from it can be tested in a bubble.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::time::now;
/// use sudog::runtime::sema::WaitLimit;
///
/// let soon = WaitLimit::until(now() + Duration::from_millis(1));
/// # let _ = soon;
/// ```
#[inline]
#[must_use]
pub fn now() -> Instant {
    bubble::now()
}

/// Blocks the calling goroutine, or thread, for at least `d`. Go's `time.Sleep`.
///
/// In a goroutine less than a microsecond, zero included, is a [`gosched`](crate::goroutine::gosched), and may be over
/// sooner. (In a bubble of [`synctest`](crate::goroutine::synctest) each sleep is exact.)
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::run;
/// use sudog::time::sleep;
///
/// run(|| sleep(Duration::from_millis(1)));
/// ```
pub fn sleep(d: Duration) {
    if current::current().is_none() {
        return thread::sleep(d);
    }
    if d.is_zero() || d < Duration::from_micros(1) && !bubble::is_here() {
        return G::yield_now(); // it would be over before it begins, and no other goroutine would have run
    }
    current::note_wait("sleep", std::ptr::null());
    // No other thread knows this G, so it is not readied. A sleep past the end of time has no end.
    G::current().park(now().checked_add(d), || ());
}

/// A future that is ready after `d`, counted from this call. For async tasks; in a goroutine use [`sleep`]. More than the
/// clock can count is for ever.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::block_on;
/// use sudog::time::sleep_async;
///
/// block_on(sleep_async(Duration::from_millis(1)));
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub fn sleep_async(d: Duration) -> SleepAsync {
    SleepAsync { when: now().checked_add(d), timer: None, coop: Coop::new() }
}

/// See [`sleep_async`].
#[derive(Debug)]
pub struct SleepAsync {
    /// None: never.
    when: Option<Instant>,
    timer: Option<alarms::Key>,
    coop: Coop,
}

impl Future for SleepAsync {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.coop.poll_proceed(cx));
        if let Some(old) = self.timer.take() {
            alarms::cancel(old);
        }
        match self.when {
            Some(when) if when <= now() => Poll::Ready(()),
            Some(when) => {
                self.timer = Some(alarms::set(when, cx.waker().clone()));
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for SleepAsync {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            alarms::cancel(timer);
        }
    }
}

/// Fires once, after a while, unless it is stopped. Go's `time.Timer`, without the channel.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::time::Timer;
///
/// let timer = Timer::new(Duration::from_millis(1));
/// assert!(timer.wait());
/// assert!(!timer.stop()); // it has fired
/// ```
#[derive(Debug)]
pub struct Timer {
    /// None: stopped, or its firing has been waited for.
    when: Mutex<Option<Instant>>,
    /// It has been stopped, or set anew.
    changed: NotifyList,
}

/// A [`Timer`] that fires after `d`. Go's `time.After`: wait by [`Timer::wait`].
#[must_use]
pub fn after(d: Duration) -> Timer {
    Timer::new(d)
}

/// Calls `f` in a goroutine of its own after `d`, unless it is stopped before. Go's `time.AfterFunc`; as `f` can be
/// called once only, it cannot be set anew.
///
/// Until then it is a goroutine of the caller's scheduler, one that waits: it counts in
/// [`num_goroutine`](crate::goroutine::num_goroutine), keeps a [`Scheduler`](crate::goroutine::Scheduler) from being
/// at rest, and ends with its scheduler.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::time::after_func;
///
/// let call = after_func(Duration::from_secs(3600), || unreachable!());
/// assert!(call.stop());
/// ```
pub fn after_func(d: Duration, f: impl FnOnce() + Send + 'static) -> AfterFunc {
    let timer = Arc::new(Timer::new(d));
    let fires = timer.clone();
    crate::goroutine::go(move || {
        if unlimited(fires.wait_in(AFTER_FUNC, &WaitLimit::default())) {
            f();
        }
    });
    AfterFunc { timer }
}

/// What reports say of a goroutine that waits for the time of such a call.
pub(crate) const AFTER_FUNC: &str = "time.AfterFunc";

/// See [`after_func`]. Dropped, it lets the call happen.
#[derive(Debug)]
pub struct AfterFunc {
    timer: Arc<Timer>,
}

impl AfterFunc {
    /// Keeps the call from happening. False if it has happened, or is under way, or was stopped.
    pub fn stop(&self) -> bool {
        self.timer.stop()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Further away than any wait.
fn unlimited(over: Result<bool, WaitError>) -> bool {
    over.unwrap_or_else(|_| unreachable!("no limit was set"))
}

fn saturating_add(d: Duration) -> Instant {
    let now = now();
    now.checked_add(d).unwrap_or_else(|| now + Duration::from_secs(100 * 365 * 24 * 3600))
}

impl Timer {
    /// A timer that fires after `d`.
    #[must_use]
    pub fn new(d: Duration) -> Self {
        Self { when: Mutex::new(Some(saturating_add(d))), changed: NotifyList::new() }
    }

    /// Waits until it fires: true. False if it is stopped, before or meanwhile, or has fired and a caller has waited
    /// for that. (In Go, a receive from a stopped timer blocks for ever.)
    ///
    /// A goroutine that has run for long gives way first.
    #[must_use = "false: it was stopped, and has not fired for this caller"]
    pub fn wait(&self) -> bool {
        unlimited(self.wait_limited(&WaitLimit::default()))
    }

    /// [`Timer::wait`] that gives up at a [`WaitLimit`].
    ///
    /// # Errors
    ///
    /// Which limit came first: the timer is as it was.
    pub fn wait_limited(&self, limit: &WaitLimit<'_>) -> Result<bool, WaitError> {
        self.wait_in("timer", limit)
    }

    /// `what`: for reports.
    fn wait_in(&self, what: &'static str, limit: &WaitLimit<'_>) -> Result<bool, WaitError> {
        current::safepoint(); // before it takes anything: a goroutine may be unwound there
        loop {
            let mut state = lock(&self.when);
            let Some(when) = *state else { return Ok(false) };
            let now = now();
            if when <= now {
                *state = None;
                return Ok(true);
            }
            self.wait_for_change(state, when, now, limit, what)?;
        }
    }

    /// Waits until it is stopped or set anew, until `when`, or for the limit.
    fn wait_for_change(
        &self,
        state: MutexGuard<'_, Option<Instant>>,
        when: Instant,
        now: Instant,
        limit: &WaitLimit<'_>,
        what: &'static str,
    ) -> Result<(), WaitError> {
        if limit.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(WaitError::TimedOut);
        }
        let deadline = Some(limit.deadline.map_or(when, |deadline| deadline.min(when)));
        self.changed.with_ticket(|ticket| {
            drop(state); // with a ticket: no change from now on is missed
            current::note_wait(what, std::ptr::null());
            match ticket.wait_limited(&WaitLimit { deadline, ..*limit }) {
                Err(WaitError::Cancelled) => Err(WaitError::Cancelled),
                Ok(()) | Err(WaitError::TimedOut) => Ok(()), // the caller looks which it was
            }
        })
    }

    /// Stops it. False if it was stopped, or has fired and a caller has waited for that.
    pub fn stop(&self) -> bool {
        self.change(None)
    }

    /// Lets it fire `d` from now, whatever it did before. The result is that of [`Timer::stop`].
    pub fn reset(&self, d: Duration) -> bool {
        self.change(Some(saturating_add(d)))
    }

    fn change(&self, when: Option<Instant>) -> bool {
        let was_set = std::mem::replace(&mut *lock(&self.when), when).is_some();
        self.changed.notify_all();
        was_set
    }
}

/// Ticks at regular intervals. Go's `time.Ticker`, without the channel: ticks without a waiter in time are dropped.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::time::Ticker;
///
/// let ticker = Ticker::new(Duration::from_millis(1));
/// assert!(ticker.tick() && ticker.tick());
/// ticker.stop();
/// assert!(!ticker.tick());
/// ```
#[derive(Debug)]
pub struct Ticker {
    timer: Timer,
    period: Mutex<Duration>,
}

impl Ticker {
    /// A ticker whose first tick comes after one period.
    ///
    /// # Panics
    ///
    /// If the period is zero: `non-positive interval for NewTicker`, as in Go.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        assert!(!period.is_zero(), "non-positive interval for NewTicker");
        Self { timer: Timer::new(period), period: Mutex::new(period) }
    }

    /// Waits for the next tick: true. False if the ticker is stopped. Each tick is for one waiter.
    ///
    /// A goroutine that has run for long gives way first: so one whose work takes longer than the period does not keep
    /// its neighbours out.
    pub fn tick(&self) -> bool {
        unlimited(self.tick_limited(&WaitLimit::default()))
    }

    /// [`Ticker::tick`] that gives up at a [`WaitLimit`].
    ///
    /// # Errors
    ///
    /// Which limit came first: no tick has been taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use sudog::time::Ticker;
    /// use sudog::runtime::sema::{WaitError, WaitLimit};
    ///
    /// let ticker = Ticker::new(Duration::from_secs(3600));
    /// let soon = WaitLimit::until(Instant::now() + Duration::from_millis(1));
    /// assert_eq!(ticker.tick_limited(&soon), Err(WaitError::TimedOut));
    /// ```
    pub fn tick_limited(&self, limit: &WaitLimit<'_>) -> Result<bool, WaitError> {
        current::safepoint(); // before it takes a tick: a goroutine may be unwound there
        loop {
            // The next tick is set from the time of this one, so that they do not drift; those that were missed are
            // left out.
            let mut state = lock(&self.timer.when);
            let Some(when) = *state else { return Ok(false) };
            let now = now();
            if when <= now {
                let period = *lock(&self.period);
                let missed = (now - when).as_nanos() / period.as_nanos().max(1);
                let missed = u32::try_from(missed).unwrap_or(u32::MAX);
                let next = when.checked_add(period.saturating_mul(missed.saturating_add(1)));
                *state = Some(next.filter(|&next| next > now).unwrap_or_else(|| saturating_add(period)));
                return Ok(true);
            }
            self.timer.wait_for_change(state, when, now, limit, "ticker")?;
        }
    }

    /// No more ticks.
    pub fn stop(&self) {
        self.timer.stop();
    }

    /// Ticks every `period` from now on.
    ///
    /// # Panics
    ///
    /// If the period is zero: `non-positive interval for Ticker.Reset`, as in Go.
    pub fn reset(&self, period: Duration) {
        assert!(!period.is_zero(), "non-positive interval for Ticker.Reset");
        *lock(&self.period) = period;
        self.timer.reset(period);
    }
}
