//! Rate limits: Go's `golang.org/x/time/rate`.
//!
//! ```text
//!   tokens
//!     burst ┬────────┐                    ┌────          an event takes a token; a reservation may take what is yet
//!           │        └──┐              ┌──┘              to come: then `tokens` is negative, and its caller waits
//!         0 ┼───────────┴──┐        ┌──┴──────── time    until that is 0 again
//!           │              └────────┘
//! ```
//!
//! A [`Limiter`] is a bucket of `burst` tokens, filled at `limit` tokens a second. A single short lock protects the
//! whole state; no user code runs under the lock.
//!
//! Source: `golang.org/x/time/rate` of 2026-02.

mod sometimes;

use std::fmt;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use sudog_runtime::shim::system::{Mutex, MutexGuard};

use crate::context::{self, Context};
use crate::now;

pub use sometimes::Sometimes;

/// The number of events a second that a [`Limiter`] allows.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::x::rate::Limit;
///
/// assert_eq!(Limit::every(Duration::from_millis(20)), Limit::per_second(50.0));
/// assert_eq!(Limit::every(Duration::ZERO), Limit::INF);
/// ```
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Limit(f64);

impl Limit {
    /// The limit that allows every event, whatever the burst. Go's `rate.Inf`.
    pub const INF: Self = Self(f64::INFINITY);

    /// Creates a limit of `events` a second. Zero allows only the events of the initial burst.
    ///
    /// # Panics
    ///
    /// Panics if `events` is negative, or is NaN.
    #[must_use]
    #[track_caller]
    pub const fn per_second(events: f64) -> Self {
        assert!(events >= 0.0, "rate: a limit must not be negative");
        Self(events)
    }

    /// Creates a limit of one event in each interval. Go's `rate.Every`.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        if interval.is_zero() { Self::INF } else { Self(1.0 / interval.as_secs_f64()) }
    }

    /// Returns the number of events a second.
    #[must_use]
    pub const fn as_per_second(self) -> f64 {
        self.0
    }

    fn is_infinite(self) -> bool {
        self.0 == f64::INFINITY
    }

    /// Returns the time until this number of tokens has come. `Duration::MAX` if the time is longer than any wait.
    fn time_for(self, tokens: f64) -> Duration {
        if self.0 <= 0.0 {
            return Duration::MAX;
        }
        Duration::try_from_secs_f64(tokens / self.0).unwrap_or(Duration::MAX)
    }

    /// Returns the number of tokens that come in this time.
    fn tokens_in(self, d: Duration) -> f64 {
        d.as_secs_f64() * self.0
    }
}

/// The reason why a wait for a [`Limiter`] has failed. No token has been taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for more tokens than the burst. That many tokens can never be available at once.
    ExceedsBurst {
        /// The number of tokens that the caller asked for.
        n: u32,
        /// The burst.
        burst: u32,
    },
    /// The tokens would come after the deadline of the context. The wait fails at once.
    WouldExceedDeadline {
        /// The number of tokens that the caller asked for.
        n: u32,
    },
    /// The context was done, before or during the wait.
    Context(context::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExceedsBurst { n, burst } => write!(f, "rate: Wait(n={n}) exceeds limiter's burst {burst}"),
            Self::WouldExceedDeadline { n } => write!(f, "rate: Wait(n={n}) would exceed context deadline"),
            Self::Context(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Context(error) => Some(error),
            _ => None,
        }
    }
}

/// A limiter of the rate of events: at most `burst` at once, and `limit` a second in the long run.
///
/// | an event that is too early is | by |
/// |---|---|
/// | dropped | [`allow`](Limiter::allow) |
/// | put off by the caller, for the time that the reservation says | [`reserve`](Limiter::reserve) |
/// | put off by a wait | [`wait`](Limiter::wait) |
///
/// Go's `rate.Limiter`. The limiter's clock is [`now`], so a limiter can be tested in a bubble of
/// [`synctest`](sudog_runtime::goroutine::synctest).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::synctest;
/// use sudog::time::now;
/// use sudog::context;
/// use sudog::x::rate::{Limit, Limiter};
///
/// synctest::test(|| {
///     let limiter = Limiter::new(Limit::per_second(10.0), 2);
///     let begun = now();
///     for _ in 0..5 {
///         limiter.wait(&context::background()).unwrap();
///     }
///     assert_eq!(now() - begun, Duration::from_millis(300)); // the first two are a burst
/// });
/// ```
pub struct Limiter {
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct State {
    limit: Limit,
    burst: u32,
    /// The number of tokens at the time `last`. Negative if tokens have been reserved that have not come yet.
    tokens: f64,
    /// The time at which `tokens` was last updated. `None` if never.
    last: Option<Instant>,
    /// The latest time for which an event has been reserved.
    last_event: Option<Instant>,
}

impl State {
    /// Returns `t` and the number of tokens at `t`. If `last` is later than `t`, uses `last` instead of `t`: callers
    /// read the clock before they lock, and a caller that locks late must not turn `last` back. (In Go such a caller
    /// does, and the time in between counts twice.)
    fn advance(&self, t: Instant) -> (Instant, f64) {
        let Some(last) = self.last else { return (t, self.tokens) };
        let t = t.max(last);
        let tokens = self.tokens + self.limit.tokens_in(t - last);
        (t, tokens.min(f64::from(self.burst)))
    }

    fn reserve(&mut self, t: Instant, n: u32, patience: Duration) -> Option<Instant> {
        if self.limit.is_infinite() {
            return Some(t);
        }
        let called = t;
        let (t, tokens) = self.advance(t);
        let tokens = tokens - f64::from(n);
        let wait = if tokens < 0.0 { self.limit.time_for(-tokens) } else { Duration::ZERO };
        // A caller that locks late waits from its own time on. A caller that need not wait is not late.
        let is_too_long = !wait.is_zero() && wait.saturating_add(t - called) > patience;
        if n > self.burst || is_too_long {
            return None;
        }
        let when = t.checked_add(wait)?;
        (self.tokens, self.last, self.last_event) = (tokens, Some(t), Some(when));
        Some(when)
    }
}

impl Limiter {
    /// Creates a limiter whose bucket is full. A burst of 0 allows nothing, unless the limit is [`Limit::INF`].
    #[must_use]
    pub const fn new(limit: Limit, burst: u32) -> Self {
        let state = State { limit, burst, tokens: burst as f64, last: None, last_event: None };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // nothing panics under the lock
    }

    /// Returns whether an event may happen now. If so, takes the event's token.
    #[must_use]
    pub fn allow(&self) -> bool {
        self.allow_n(now(), 1)
    }

    /// Returns whether `n` events may happen at `t`. If so, takes the events' tokens.
    #[must_use]
    pub fn allow_n(&self, t: Instant, n: u32) -> bool {
        self.lock().reserve(t, n, Duration::ZERO).is_some()
    }

    /// Takes a token, possibly a token that is yet to come. The returned reservation says when the event may happen.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use sudog::x::rate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_second(1.0), 1);
    /// assert!(limiter.reserve().unwrap().delay().is_zero());
    /// let second = limiter.reserve().unwrap();
    /// assert!(second.delay() > Duration::from_millis(500));
    /// second.cancel(); // another caller may have it
    /// ```
    #[must_use]
    pub fn reserve(&self) -> Option<Reservation<'_>> {
        self.reserve_n(now(), 1)
    }

    /// Takes `n` tokens at `t`, as [`reserve`](Limiter::reserve) does. Returns `None` if `n` is more than the burst
    /// (Go: a reservation whose `OK` is false), or if the tokens never come because the limit is 0 (Go: the tokens are
    /// taken, and the delay is infinite).
    #[must_use]
    pub fn reserve_n(&self, t: Instant, n: u32) -> Option<Reservation<'_>> {
        self.reserve_within(t, n, Duration::MAX)
    }

    /// Waits until an event may happen: [`wait_n`](Limiter::wait_n) for a single token.
    ///
    /// # Errors
    ///
    /// The errors of `wait_n`.
    pub fn wait(&self, ctx: &Context) -> Result<(), Error> {
        self.wait_n(ctx, 1)
    }

    /// Waits until `n` events may happen at once.
    ///
    /// Callers are served in the order in which they call. A caller that gives up because its context is done gives
    /// its tokens back, except for tokens on which later callers rely.
    ///
    /// # Errors
    ///
    /// Fails if `n` is more than the burst, if the context is done, or if the context's deadline is before the time at
    /// which the tokens come. If the tokens never come because the limit is 0, the call fails at once; Go waits until
    /// the context is done.
    pub fn wait_n(&self, ctx: &Context, n: u32) -> Result<(), Error> {
        let t = now();
        self.can_ever_have(n)?;
        if let Some(error) = ctx.err() {
            return Err(Error::Context(error));
        }
        let patience = ctx.deadline().map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(t));
        let reservation = self.reserve_within(t, n, patience).ok_or(Error::WouldExceedDeadline { n })?;
        let delay = reservation.delay();
        if delay.is_zero() {
            return Ok(());
        }
        ctx.sleep(delay).map_err(|why| {
            reservation.cancel();
            Error::Context(why)
        })
    }

    fn can_ever_have(&self, n: u32) -> Result<(), Error> {
        let State { limit, burst, .. } = *self.lock();
        if n > burst && !limit.is_infinite() { Err(Error::ExceedsBurst { n, burst }) } else { Ok(()) }
    }

    fn reserve_within(&self, t: Instant, n: u32, patience: Duration) -> Option<Reservation<'_>> {
        let mut state = self.lock();
        let limit = state.limit;
        let when = state.reserve(t, n, patience)?;
        Some(Reservation { limiter: self, tokens: n, when, limit })
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.lock().limit
    }

    /// Returns the burst: the number of events that may happen at once.
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.lock().burst
    }

    /// Returns the number of tokens now. The number is negative if tokens have been reserved that have not come yet.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        self.tokens_at(now())
    }

    /// Returns the number of tokens at `t`.
    #[must_use]
    pub fn tokens_at(&self, t: Instant) -> f64 {
        self.lock().advance(t).1
    }

    /// Sets another limit from now on. Existing reservations keep their times.
    pub fn set_limit(&self, limit: Limit) {
        self.set_limit_at(now(), limit);
    }

    /// Sets another limit from `t` on.
    pub fn set_limit_at(&self, t: Instant, limit: Limit) {
        self.change_at(t, |state| state.limit = limit);
    }

    /// Sets another burst from now on.
    pub fn set_burst(&self, burst: u32) {
        self.set_burst_at(now(), burst);
    }

    /// Sets another burst from `t` on.
    pub fn set_burst_at(&self, t: Instant, burst: u32) {
        self.change_at(t, |state| state.burst = burst);
    }

    fn change_at(&self, t: Instant, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        let (t, tokens) = state.advance(t);
        (state.last, state.tokens) = (Some(t), tokens);
        change(&mut state);
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { limit, burst, tokens, .. } = *self.lock();
        f.debug_struct("Limiter")
            .field("limit", &limit.0)
            .field("burst", &burst)
            .field("tokens", &tokens)
            .finish_non_exhaustive()
    }
}

/// Tokens that a caller has taken from a [`Limiter`], and the time at which the caller may use them. Dropping a
/// reservation does not give the tokens back.
#[must_use = "its event may happen after its delay; what is not used should be cancelled"]
pub struct Reservation<'a> {
    limiter: &'a Limiter,
    tokens: u32,
    when: Instant,
    /// The limit at the time of the reservation.
    limit: Limit,
}

impl Reservation<'_> {
    /// Returns the time that the caller has to wait from now.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay_from(now())
    }

    /// Returns the time that the caller has to wait from `t`.
    #[must_use]
    pub fn delay_from(&self, t: Instant) -> Duration {
        self.when.saturating_duration_since(t)
    }

    /// Gives the tokens back that the caller will not use, except for tokens on which later reservations rely. After
    /// the time for which the tokens were reserved, gives nothing back.
    pub fn cancel(self) {
        self.give_back(now());
    }

    /// Gives the tokens back as [`cancel`](Reservation::cancel) does, at `t`.
    pub fn cancel_at(self, t: Instant) {
        self.give_back(t);
    }

    fn give_back(&self, t: Instant) {
        let mut state = self.limiter.lock();
        // A reservation that was made without a limit took no tokens, whatever the limit is now. (Go gives back tokens
        // that were not taken.)
        if self.limit.is_infinite() || state.limit.is_infinite() || self.tokens == 0 || self.when < t {
            return;
        }
        // Later reservations got their times after this reservation's. Do not give back the tokens on which they rely.
        let since = state.last_event.map_or(Duration::ZERO, |last| last.saturating_duration_since(self.when));
        let restored = f64::from(self.tokens) - self.limit.tokens_in(since);
        if restored <= 0.0 {
            return;
        }
        let (t, tokens) = state.advance(t);
        state.tokens = (tokens + restored).min(f64::from(state.burst));
        state.last = Some(t);
        if state.last_event == Some(self.when) {
            // This reservation was the latest: the reservation before becomes the latest.
            let before = self.when.checked_sub(self.limit.time_for(f64::from(self.tokens)));
            if let Some(before) = before.filter(|&before| before >= t) {
                state.last_event = Some(before);
            }
        }
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("tokens", &self.tokens).field("delay", &self.delay()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller reads the clock, and before it reserves, another caller reserves at a later time: the first waits from
    /// its own time on.
    #[test]
    fn a_late_caller_waits_from_its_own_time_on() {
        let ms = Duration::from_millis;
        let (begun, limiter) = (now(), Limiter::new(Limit::per_second(50.0), 1));
        let mut state = limiter.lock();
        assert_eq!(state.reserve(begun + ms(50), 1, Duration::ZERO), Some(begun + ms(50)));
        assert_eq!(state.reserve(begun, 1, ms(60)), None, "it comes at 70");
        assert_eq!(state.reserve(begun, 1, ms(70)), Some(begun + ms(70)));
        // A caller that need not wait is not late.
        assert_eq!(state.reserve(begun + ms(200), 0, Duration::ZERO), Some(begun + ms(200)));
        assert!(state.reserve(begun, 1, Duration::ZERO).is_some());
    }
}
