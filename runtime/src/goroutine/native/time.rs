//! Sleeping, timers, tickers, and calls at a time.
//!
//! | wait | ends at its time by | learns of `stop` and `reset` by |
//! |---|---|---|
//! | [`sleep`] | the deadline of a `park` | |
//! | [`sleep_async`] | an alarm | |
//! | [`Timer::recv`], [`Ticker::recv`], `recv(timer)` in a `select!` | the deadline of a `park` | [`Times::changed`] |
//! | [`Timer::recv_async`], [`Ticker::recv_async`], `recv(timer)` in a `select_async!` | an alarm | a waker in [`State::tasks`] |
//! | the call of [`after_func`] | an alarm | `stop` cancels the alarm |
//!
//! While no receive waits for a timer or ticker, nothing runs for that timer: a timer is a time in memory, and a
//! receive compares that time with the clock. So no value is stored anywhere, and no receive returns a time from before
//! a `stop` or `reset`. (In Go since 1.23, too, a timer is in a heap only while a receive waits for the timer. There
//! `stop` and `reset` discard the value in the timer's channel.)
//!
//! Source: Go's `time/sleep.go`, `time/tick.go` and `runtime/time.go`, 1.27.

use crate::shim::system::{self, Mutex, MutexGuard, thread};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::{Duration, Instant};

use crate::G;
use crate::box_if_large;
use crate::chan;
use crate::goroutine::native::alarm::here;
use crate::goroutine::native::api;
use crate::goroutine::native::coop::Coop;
use crate::goroutine::native::fibre::current;
use crate::goroutine::native::sched::clock;
use crate::panics::Panics;
use crate::sema::Cancel;

/// Returns the present time: in a bubble of [`synctest`](crate::goroutine::synctest) the bubble's time, else `std`'s
/// `Instant::now()`.
///
/// Code that makes deadlines from this time can be tested in a bubble.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::WaitLimit;
/// use sudog::time::now;
///
/// let soon = WaitLimit::until(now() + Duration::from_millis(1));
/// # let _ = soon;
/// ```
#[inline]
#[must_use]
pub fn now() -> Instant {
    clock::now()
}

/// Blocks the calling goroutine, or thread, for at least `d`. Go's `time.Sleep`.
///
/// In a goroutine a sleep of less than a microsecond, zero included, is a [`gosched`](crate::goroutine::gosched), and
/// may be over sooner. (In a bubble of [`synctest`](crate::goroutine::synctest) each sleep is exact.)
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
        current::note_wait("sleep");
        // In a bubble the wait ends at once, and the bubble's clock jumps. If the clock cannot count the deadline, sleep
        // for the whole time.
        let deadline = now().checked_add(d);
        let left = || deadline.map_or(d, |when| current::of_the_system(when).saturating_duration_since(system::now()));
        return current::in_place(true, || thread::sleep(left()));
    }
    if d.is_zero() || d < Duration::from_micros(1) && !clock::is_of_bubble() {
        return G::yield_now(); // the sleep would be over before it begins, and no other goroutine would have run
    }
    current::note_wait("sleep");
    // No other thread knows this G, so no thread readies it. A deadline that the clock cannot count is replaced by one in the
    // far future, so that a goroutine that sleeps is no part of a deadlock.
    let now = now();
    let deadline = now.checked_add(d).or_else(|| now.checked_add(d / 4));
    G::current().park_unprofiled(deadline, || ());
}

/// Returns a future that is ready after `d`, counted from this call. For async tasks; in a goroutine use [`sleep`]. If
/// the clock cannot count so far, the future is never ready.
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

/// The future of [`sleep_async`].
#[derive(Debug)]
pub struct SleepAsync {
    /// The time when the future is ready. None: the future is never ready.
    when: Option<Instant>,
    timer: Option<here::Key>,
    coop: Coop,
}

impl Future for SleepAsync {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.coop.poll_proceed(cx));
        if let Some(old) = self.timer.take() {
            here::cancel(old);
        }
        match self.when {
            Some(when) if when <= now() => Poll::Ready(()),
            Some(when) => {
                self.timer = Some(here::set(when, cx.waker().clone()));
                crate::note_task_wait("sleep");
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for SleepAsync {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            here::cancel(timer);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// ---- calls at a time --------------------------------------------------------------------------------------------------

/// Calls `f` in a goroutine of its own after `d`, unless the call is stopped before. Go's `time.AfterFunc`, but without
/// a `Reset`, as `f` can be called only once.
///
/// The goroutine is started when the time has come; until then [`num_goroutine`](crate::goroutine::num_goroutine) does
/// not count the goroutine. No deadlock is reported before the call has been made or stopped. A call that is set in a
/// bubble of [`synctest`](crate::goroutine::synctest) is not made if the bubble ends before that time.
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
pub fn after_func<F: FnOnce() + Send + 'static>(d: Duration, f: F) -> AfterFunc {
    box_if_large!(f: F as dyn FnOnce() + Send => after_func(d, f));
    if d.is_zero() {
        api::go(f);
        return AfterFunc(None);
    }
    let call = Arc::new(Call {
        f: Mutex::new(Some(Box::new(f) as Box<dyn FnOnce() + Send>)),
        of_bubble: clock::is_of_bubble(),
    });
    // If the clock cannot count the call's time, the call is never made.
    let alarm = now().checked_add(d).map(|when| here::set(when, Waker::from(call.clone())));
    AfterFunc(Some((call, alarm)))
}

/// A handle for a call that [`after_func`] has set. Dropping this handle does not stop the call.
pub struct AfterFunc(Option<(Arc<Call>, Option<here::Key>)>);

/// A call that [`after_func`] has set. The alarm that makes the call and the [`AfterFunc`] that can stop the call share
/// this value.
struct Call {
    /// The function, until it is started or stopped.
    f: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// True if the call was set in a bubble: then the call is made in that bubble or nowhere.
    of_bubble: bool,
}

impl AfterFunc {
    /// Keeps the call from happening, drops the function, and returns true. Returns false if the call's goroutine
    /// has been started, or if the call was stopped before.
    ///
    /// This function does not wait for a call that is under way. A goroutine that has run for long gives way here.
    ///
    /// # Panics
    ///
    /// If the function's destructor panics.
    pub fn stop(&self) -> bool {
        let Some((call, alarm)) = &self.0 else { return false };
        let f = call.take();
        let stopped = f.is_some();
        if stopped && let Some(alarm) = *alarm {
            here::cancel(alarm);
        }
        drop(f); // drop after the unlock: the destructor is user code
        current::safepoint();
        stopped
    }
}

impl std::fmt::Debug for AfterFunc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("AfterFunc")
    }
}

impl Call {
    fn take(&self) -> Option<Box<dyn FnOnce() + Send>> {
        lock(&self.f).take()
    }
}

/// Starts the call: its time has come.
impl Wake for Call {
    fn wake(self: Arc<Self>) {
        if let Some(f) = self.take() {
            // Start a goroutine even to drop a function that is not called: the destructor is user code.
            if self.of_bubble && !clock::is_of_bubble() { api::go(move || drop(f)) } else { api::go(f) }
        }
    }
}

// ---- timers and tickers -----------------------------------------------------------------------------------------------

/// A timer that fires once, after a while, unless stopped before. Go's `time.Timer`.
///
/// | Go | here |
/// |---|---|
/// | `<-timer.C` | [`recv`](Timer::recv); in a task [`recv_async`](Timer::recv_async)`.await` |
/// | `case at := <-timer.C:` in a `select` | `recv(timer) -> at => ..` in [`select!`](crate::select); in a [`Select`](crate::chan::Select) `future(timer.recv_async(), ..)` |
/// | `timer.Stop()`, `timer.Reset(d)` | [`stop`](Timer::stop), [`reset`](Timer::reset) |
///
/// One receive gets the time at which the timer has fired; every other receive waits until the timer is set anew and
/// fires again. As in Go since 1.23, a receive that begins after a `stop` or `reset` never gets a time from before that
/// call.
///
/// A timer allocates nothing, and costs nothing while no receive waits for the timer. A timer may be shared between
/// threads and goroutines: by reference, or in an `Arc` (`recv(*timer)` in a `select!`).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::chan::{Chan, select};
/// use sudog::time::Timer;
///
/// let timer = Timer::new(Duration::from_millis(1));
/// timer.recv();
/// assert!(!timer.stop()); // it has fired
///
/// let never = Chan::<u32>::nil();
/// timer.reset(Duration::from_millis(1));
/// select! {
///     recv(never) => unreachable!(),
///     recv(timer) => {}
/// }
/// ```
#[derive(Debug)]
pub struct Timer(Times);

/// A ticker, which fires at regular intervals. Go's `time.Ticker`. Ticks that are not received in time are dropped.
///
/// | Go | here |
/// |---|---|
/// | `<-ticker.C` | [`recv`](Ticker::recv); in a task [`recv_async`](Ticker::recv_async)`.await` |
/// | `case at := <-ticker.C:` in a `select` | `recv(ticker) -> at => ..` in [`select!`](crate::select); in a [`Select`](crate::chan::Select) `future(ticker.recv_async(), ..)` |
/// | `ticker.Stop()`, `ticker.Reset(d)` | [`stop`](Ticker::stop), [`reset`](Ticker::reset) |
///
/// A single receive gets each tick. As in Go since 1.23, a receive that begins after a `stop` or `reset` never gets a
/// tick from before that call. A ticker costs nothing while no receive waits for the ticker.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::time::Ticker;
///
/// let ticker = Ticker::new(Duration::from_millis(1));
/// assert!(ticker.recv() < ticker.recv());
/// ```
#[derive(Debug)]
pub struct Ticker(Times);

/// Returns a [`Timer`] that fires after `d`. Go's `time.After`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::chan::{Chan, select};
/// use sudog::time;
///
/// let never = Chan::<u32>::nil();
/// select! {
///     recv(never) => unreachable!(),
///     recv(time::after(Duration::from_millis(1))) => {}
/// }
/// ```
#[must_use]
pub fn after(d: Duration) -> Timer {
    Timer::new(d)
}

/// Returns a [`Ticker`] with this period. Go's `time.Tick`.
///
/// # Panics
///
/// If the period is zero: `non-positive interval for NewTicker`. (Go's `Tick` returns nil for a zero period.)
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::time;
///
/// let ticker = time::tick(Duration::from_millis(1));
/// assert!(ticker.recv() < ticker.recv());
/// ```
#[must_use]
pub fn tick(period: Duration) -> Ticker {
    Ticker::new(period)
}

impl Timer {
    /// Creates a timer that fires after `d`. If the clock cannot count that time, the timer never fires.
    #[must_use]
    pub fn new(d: Duration) -> Self {
        Self(Times::new(d, None))
    }

    /// Waits until the timer fires, and returns the time for which the timer was set. Go's `<-timer.C`. If the timer is
    /// stopped, or another receive has got the time, this call waits until the timer is set anew and fires.
    ///
    /// A goroutine that has run for long gives way first.
    pub fn recv(&self) -> Instant {
        chan::recv_time(&self.0, "timer")
    }

    pub(crate) fn times(&self) -> &Times {
        &self.0
    }

    /// Returns a future that receives as [`recv`](Timer::recv) does, for async tasks. A future that is dropped while
    /// pending has received nothing.
    pub fn recv_async(&self) -> TimerFuture<'_> {
        TimerFuture::new(&self.0)
    }

    /// Keeps the timer from firing. Returns true if the timer was set, and no receive has got or will get its time.
    /// Returns false if a receive has got the time, or if the timer was stopped before. Go's `timer.Stop()`.
    ///
    /// A goroutine that has run for long gives way here.
    ///
    /// # Panics
    ///
    /// If the waker of a task that waits for the timer panics. The other waiting tasks have been woken all the same.
    pub fn stop(&self) -> bool {
        self.0.change(State::stop)
    }

    /// Lets the timer fire `d` from now, whatever the timer did before. The result is that of [`Timer::stop`]. Go's
    /// `timer.Reset(d)`.
    ///
    /// A goroutine that has run for long gives way here.
    ///
    /// # Panics
    ///
    /// If [`Timer::stop`] panics.
    pub fn reset(&self, d: Duration) -> bool {
        let when = now().checked_add(d);
        self.0.change(|state| state.set(when))
    }
}

impl Ticker {
    /// Creates a ticker whose first tick comes after one period.
    ///
    /// # Panics
    ///
    /// If the period is zero: `non-positive interval for NewTicker`, as in Go.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        assert!(!period.is_zero(), "non-positive interval for NewTicker");
        Self(Times::new(period, Some(period)))
    }

    /// Waits for the next tick, and returns the time for which that tick was set. Go's `<-ticker.C`: while the ticker
    /// is stopped, this call waits.
    ///
    /// A goroutine that has run for long gives way first. So a goroutine whose work takes longer than the period does
    /// not keep the worker from other goroutines.
    pub fn recv(&self) -> Instant {
        chan::recv_time(&self.0, "ticker")
    }

    pub(crate) fn times(&self) -> &Times {
        &self.0
    }

    /// Returns a future that receives as [`recv`](Ticker::recv) does, for async tasks. A future that is dropped while
    /// pending has taken no tick.
    pub fn recv_async(&self) -> TimerFuture<'_> {
        TimerFuture::new(&self.0)
    }

    /// Stops the ticks, until a [`reset`](Ticker::reset). Go's `ticker.Stop()`.
    ///
    /// A goroutine that has run for long gives way here.
    ///
    /// # Panics
    ///
    /// If [`Timer::stop`] panics.
    pub fn stop(&self) {
        self.0.change(State::stop);
    }

    /// Ticks every `period` from now on. Go's `ticker.Reset(period)`.
    ///
    /// A goroutine that has run for long gives way here.
    ///
    /// # Panics
    ///
    /// If the period is zero: `non-positive interval for Ticker.Reset`, as in Go. And if [`Timer::stop`] panics.
    pub fn reset(&self, period: Duration) {
        assert!(!period.is_zero(), "non-positive interval for Ticker.Reset");
        let when = now().checked_add(period);
        self.0.change(|state| {
            state.period = Some(period);
            state.set(when);
        });
    }
}

/// The times at which a timer or a ticker fires, and the waits for these times.
pub(crate) struct Times {
    state: Mutex<State>,
    /// Ends the waits of goroutines and threads when the state changes, so that the waiters look at the state anew.
    changed: Cancel,
}

// A panic leaves the state of these types consistent: no user code runs under the lock.
impl UnwindSafe for Times {}
impl RefUnwindSafe for Times {}

struct State {
    /// True if the timer is to fire: false once the timer is stopped, or its time has been received.
    is_set: bool,
    /// The time when the timer fires, if `is_set` is true. None: that time is later than any `Instant`, so the timer
    /// never fires.
    when: Option<Instant>,
    /// The time between two ticks. None: this is a timer.
    period: Option<Duration>,
    /// The wakers of waiting futures, by [`TimerFuture::number`]. A change of the state wakes all of them.
    tasks: BTreeMap<u64, Waker>,
    /// The number of the last future that has waited.
    last_task: u64,
}

impl State {
    /// Receives the timer's time or the next tick, if that time has come. A ticker's following tick is computed from
    /// the time of this tick, so that ticks do not drift; ticks that were missed are left out.
    fn receive(&mut self, now: Instant) -> Option<Instant> {
        let when = self.due().filter(|&when| when <= now)?;
        match self.period {
            None => self.stop(),
            Some(period) => {
                let missed = (now - when).as_nanos() / period.as_nanos().max(1);
                let periods = u32::try_from(missed + 1).ok();
                let next = periods.and_then(|n| when.checked_add(period.checked_mul(n)?));
                self.when = next.filter(|&next| next > now).or_else(|| now.checked_add(period));
            }
        }
        Some(when)
    }

    /// Returns the time from which a receive need not wait any more. None: only after a change.
    fn due(&self) -> Option<Instant> {
        self.when.filter(|_| self.is_set)
    }

    fn stop(&mut self) {
        self.is_set = false;
    }

    fn set(&mut self, when: Option<Instant>) {
        (self.is_set, self.when) = (true, when);
    }
}

impl Times {
    fn new(d: Duration, period: Option<Duration>) -> Self {
        let when = now().checked_add(d);
        let state = State { is_set: true, when, period, tasks: BTreeMap::new(), last_task: 0 };
        Self { state: Mutex::new(state), changed: Cancel::new() }
    }

    /// Receives, if the time has come.
    pub(crate) fn receive(&self) -> Option<Instant> {
        lock(&self.state).receive(now())
    }

    /// Returns the time from which a receive need not wait any more. None: only after a change.
    pub(crate) fn due(&self) -> Option<Instant> {
        lock(&self.state).due()
    }

    /// Returns the cancel that ends registered waits, by taking their claims, when the state has changed. A waiter
    /// registers with this cancel before the waiter looks at the state, and so misses no change.
    pub(crate) fn changed(&self) -> &Cancel {
        &self.changed
    }

    /// Changes the state, and lets all waits look at the state again. Returns whether the timer was set.
    fn change(&self, f: impl FnOnce(&mut State)) -> bool {
        let mut state = lock(&self.state);
        let was_set = state.is_set;
        f(&mut state);
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        self.changed.end_waits_under_way(); // before the wakers, which are user code and may wait
        let mut panics = Panics::default();
        tasks.into_values().for_each(|waker| panics.catch(|| waker.wake()));
        panics.resume();
        current::safepoint();
        was_set
    }
}

impl std::fmt::Debug for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Times").field("due", &state.due()).field("period", &state.period).finish_non_exhaustive()
    }
}

/// A future that receives from a timer or a ticker: made by [`Timer::recv_async`] and [`Ticker::recv_async`].
///
/// A future that is dropped while pending has received nothing. While a future waits for a timer that is set, there is
/// an alarm, so no deadlock is reported.
#[must_use = "a future does nothing unless it is awaited"]
pub struct TimerFuture<'a> {
    times: &'a Times,
    /// The future's number in [`State::tasks`], once the future has waited.
    number: Option<u64>,
    alarm: Option<here::Key>,
    coop: Coop,
}

impl<'a> TimerFuture<'a> {
    pub(crate) fn new(times: &'a Times) -> Self {
        Self { times, number: None, alarm: None, coop: Coop::new() }
    }

    fn cancel_alarm(&mut self) {
        if let Some(alarm) = self.alarm.take() {
            here::cancel(alarm);
        }
    }
}

impl Future for TimerFuture<'_> {
    type Output = Instant;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Instant> {
        let this = &mut *self;
        ready!(this.coop.poll_proceed(cx));
        let times = this.times;
        this.cancel_alarm();
        // Wakers are user code: clone and drop them without the lock.
        let waker = cx.waker().clone();
        let mut state = lock(&times.state);
        if let Some(when) = state.receive(now()) {
            let listed = this.number.take().and_then(|number| state.tasks.remove(&number));
            drop(state);
            drop((listed, waker));
            return Poll::Ready(when);
        }
        let number = *this.number.get_or_insert(state.last_task + 1);
        state.last_task = state.last_task.max(number);
        let listed = state.tasks.insert(number, waker);
        let due = state.due();
        drop(state);
        drop(listed);
        // Set the alarm without the lock. If the time changes meanwhile, the change wakes the task, which polls again:
        // an alarm for the outdated time does no harm.
        this.alarm = due.map(|due| here::set(due, cx.waker().clone()));
        crate::note_task_wait("timer");
        Poll::Pending
    }
}

impl Drop for TimerFuture<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let listed = lock(&self.times.state).tasks.remove(&number);
            self.cancel_alarm();
            drop(listed);
        }
    }
}

impl std::fmt::Debug for TimerFuture<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("TimerFuture { .. }")
    }
}
