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
//! A [`Limiter`] is a bucket of `burst` tokens, filled at `limit` tokens a second. All of it is under one short lock, in
//! which no code of a user runs.
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

/// How many events a second a [`Limiter`] allows.
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
    /// No limit: every event is allowed, whatever the burst. Go's `rate.Inf`.
    pub const INF: Self = Self(f64::INFINITY);

    /// So many events a second. Zero allows what the burst has in the beginning, and nothing after that.
    ///
    /// # Panics
    ///
    /// If it is negative, or no number.
    #[must_use]
    #[track_caller]
    pub const fn per_second(events: f64) -> Self {
        assert!(events >= 0.0, "rate: a limit must not be negative");
        Self(events)
    }

    /// One event in each interval. Go's `rate.Every`.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        if interval.is_zero() { Self::INF } else { Self(1.0 / interval.as_secs_f64()) }
    }

    /// How many events a second.
    #[must_use]
    pub const fn as_per_second(self) -> f64 {
        self.0
    }

    fn is_infinite(self) -> bool {
        self.0 == f64::INFINITY
    }

    /// How long it takes until so many tokens have come. Further away than any wait: `Duration::MAX`.
    fn time_for(self, tokens: f64) -> Duration {
        if self.0 <= 0.0 {
            return Duration::MAX;
        }
        Duration::try_from_secs_f64(tokens / self.0).unwrap_or(Duration::MAX)
    }

    /// How many tokens come in this time.
    fn tokens_in(self, d: Duration) -> f64 {
        d.as_secs_f64() * self.0
    }
}

/// Why a wait for a [`Limiter`] has failed. No token has been taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// More tokens were asked for than the burst: they can never be there at once.
    ExceedsBurst {
        /// How many were asked for.
        n: u32,
        /// The burst.
        burst: u32,
    },
    /// The tokens would come after the deadline of the context: it fails at once.
    WouldExceedDeadline {
        /// How many were asked for.
        n: u32,
    },
    /// The context was done, before or meanwhile.
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

/// Limits how often events may happen: at most `burst` at once, and `limit` a second in the long run.
///
/// | an event that is too early is | by |
/// |---|---|
/// | dropped | [`allow`](Limiter::allow) |
/// | put off by the caller, for a time that it is told | [`reserve`](Limiter::reserve) |
/// | put off by a wait | [`wait`](Limiter::wait) |
///
/// Go's `rate.Limiter`. Time is [`now`], so a limiter can be tested in a bubble of
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
    /// At `last`. Negative: they have been reserved.
    tokens: f64,
    /// When `tokens` was last brought up to date. None: never.
    last: Option<Instant>,
    /// The latest time for which an event was reserved.
    last_event: Option<Instant>,
}

impl State {
    /// How many tokens there are at `t`; and `t`, or the last time if that is later: callers read the clock before they
    /// lock, and a caller that comes late must not turn it back. (In Go it does, and the time in between counts twice.)
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
        // A caller that comes late waits from its own time on; one that need not wait is not late.
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
    /// A limiter whose bucket is full. A burst of 0 allows nothing, unless the limit is [`Limit::INF`].
    #[must_use]
    pub const fn new(limit: Limit, burst: u32) -> Self {
        let state = State { limit, burst, tokens: burst as f64, last: None, last_event: None };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // nothing panics under it
    }

    /// Whether an event may happen now: then it has taken its token.
    #[must_use]
    pub fn allow(&self) -> bool {
        self.allow_n(now(), 1)
    }

    /// Whether `n` events may happen at `t`: then they have taken their tokens.
    #[must_use]
    pub fn allow_n(&self, t: Instant, n: u32) -> bool {
        self.lock().reserve(t, n, Duration::ZERO).is_some()
    }

    /// Takes a token, perhaps one that is yet to come: the reservation says when the event may happen.
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

    /// [`reserve`](Limiter::reserve) of `n` tokens at `t`. None if `n` is more than the burst (Go: a reservation whose
    /// `OK` is false), or if the tokens never come, as the limit is 0 (Go: they are taken, and the delay is infinite).
    #[must_use]
    pub fn reserve_n(&self, t: Instant, n: u32) -> Option<Reservation<'_>> {
        self.reserve_within(t, n, Duration::MAX)
    }

    /// Waits until an event may happen: [`wait_n`](Limiter::wait_n) for one token.
    ///
    /// # Errors
    ///
    /// As those of `wait_n`.
    pub fn wait(&self, ctx: &Context) -> Result<(), Error> {
        self.wait_n(ctx, 1)
    }

    /// Waits until `n` events may happen at once.
    ///
    /// Callers are served in the order in which they call. A caller that gives up, as its context is done, gives its tokens
    /// back, as far as no later caller relies on them.
    ///
    /// # Errors
    ///
    /// If `n` is more than the burst, if the context is done, or if its deadline is before the time at which the tokens
    /// come. If they never come, as the limit is 0, that is an error at once; Go waits until the context is done.
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
        context::sleep(ctx, delay).map_err(|why| {
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

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.lock().limit
    }

    /// The burst: how many events may happen at once.
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.lock().burst
    }

    /// How many tokens there are now. Negative: they have been reserved.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        self.tokens_at(now())
    }

    /// How many tokens there are at `t`.
    #[must_use]
    pub fn tokens_at(&self, t: Instant) -> f64 {
        self.lock().advance(t).1
    }

    /// Sets another limit from now on. What has been reserved stays so.
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

/// Tokens that a caller has taken from a [`Limiter`], and when it may use them. Dropped, it keeps them.
#[must_use = "its event may happen after its delay; what is not used should be cancelled"]
pub struct Reservation<'a> {
    limiter: &'a Limiter,
    tokens: u32,
    when: Instant,
    /// That of the time of the reservation.
    limit: Limit,
}

impl Reservation<'_> {
    /// How long the caller has to wait from now.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay_from(now())
    }

    /// How long the caller has to wait from `t`.
    #[must_use]
    pub fn delay_from(&self, t: Instant) -> Duration {
        self.when.saturating_duration_since(t)
    }

    /// The caller will not use its tokens: gives them back, as far as later reservations do not rely on them. Nothing
    /// after the time for which they are.
    pub fn cancel(self) {
        self.give_back(now());
    }

    /// [`cancel`](Reservation::cancel) at `t`.
    pub fn cancel_at(self, t: Instant) {
        self.give_back(t);
    }

    fn give_back(&self, t: Instant) {
        let mut state = self.limiter.lock();
        // Without a limit it took none, whatever the limit is now. (In Go it gives back what it did not take.)
        if self.limit.is_infinite() || state.limit.is_infinite() || self.tokens == 0 || self.when < t {
            return;
        }
        // What was reserved after this one was given its time in view of this one: it is not given back.
        let since = state.last_event.map_or(Duration::ZERO, |last| last.saturating_duration_since(self.when));
        let restored = f64::from(self.tokens) - self.limit.tokens_in(since);
        if restored <= 0.0 {
            return;
        }
        let (t, tokens) = state.advance(t);
        state.tokens = (tokens + restored).min(f64::from(state.burst));
        state.last = Some(t);
        if state.last_event == Some(self.when) {
            // It was the last: the one before it is the last now.
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

    /// A caller reads the clock, and another reserves at a later time before it does: it waits from its own time on.
    #[test]
    fn a_late_caller_waits_from_its_own_time_on() {
        let ms = Duration::from_millis;
        let (begun, limiter) = (now(), Limiter::new(Limit::per_second(50.0), 1));
        let mut state = limiter.lock();
        assert_eq!(state.reserve(begun + ms(50), 1, Duration::ZERO), Some(begun + ms(50)));
        assert_eq!(state.reserve(begun, 1, ms(60)), None, "it comes at 70");
        assert_eq!(state.reserve(begun, 1, ms(70)), Some(begun + ms(70)));
        // One that need not wait is not late.
        assert_eq!(state.reserve(begun + ms(200), 0, Duration::ZERO), Some(begun + ms(200)));
        assert!(state.reserve(begun, 1, Duration::ZERO).is_some());
    }
}
