//! The end of a context: what decides it, and how its followers learn of it.
//!
//! ```text
//!   Context ──▶ Handle ────▶ Done ◀──── Alarm, until its deadline
//!                 parent,   │  ▲
//!                 weak      ▼  │ child: owned
//!   Context ──▶ Handle ────▶ Done ──followers──▶ children, tasks, functions
//! ```
//!
//! (What a `Done` keeps for its handles is in handle.rs.)
//!
//! | step | the first to cancel |
//! |---|---|
//! | 1. close | under the lock: the outcome is set, later waits end, and the followers are taken. No new followers are accepted |
//! | 2. close the rest | likewise all descendants, one after the other, with one lock at a time and no user code |
//! | 3. settle | says that 2 is over. Other cancels wait for this step and no longer: when any cancel returns, all descendants are done |
//! | 4. end | the waits of threads and goroutines that are under way, of all of them |
//! | 5. tell | tasks are woken, functions started; then alarms are called off |
//! | 6. leave | the parent's followers |
//!
//! A follower that steps 4 or 5 wake finds the outcome, set in step 1. A caller that finds the outcome also finds that waits
//! end: what it releases then goes to no wait that asks afterwards (`x::Weighted`). As the outcome comes first, a caller that
//! finds it before that passes through the lock ([`Done::outcome`]). Step 2 may meet a descendant that another cancel
//! has closed and not settled. It is below, so a cancel waits downward only, and never for itself.
//!
//! A `Done` stands in its parent's list, and has its alarm, while it is open and its end can be noticed: it has
//! handles (`in_use`), or followers, or there are handles of its channel. So a function given to `after_func` runs even if
//! no handle of the context is left; and a context that is dropped leaves nothing behind.
//!
//! | the last of these goes | which tells the `Done` |
//! |---|---|
//! | its handles | `release` |
//! | its followers | `unfollow` |
//! | the handles of its channel, of which the context's handles have one together | the drop of what the channel keeps (`Leaves`) |
//!
//! Wakers, functions, causes and their destructors are user code: none of it runs under a lock, nor before step 5.
//! Their panics are kept until all followers have been told.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Instant;
use sudog_runtime::shim::system::atomic::{AtomicBool, Ordering};
use sudog_runtime::shim::system::thread;
use sudog_runtime::shim::system::{Mutex, MutexGuard, OnceLock};

use sudog_runtime::chan::{Chan, RecvOnly, WeakChan};
use sudog_runtime::goroutine::{self, Alarm};
use sudog_runtime::panics::Panics;
use sudog_runtime::sema::Cancel;

use super::followers::{Follower, Followers, Place};
use super::handle::Derived;
use super::{Cause, Error};

/// How a context has ended. No cause: the error is the cause.
#[derive(Clone)]
pub(super) struct Outcome {
    pub(super) error: Error,
    pub(super) cause: Option<Cause>,
}

/// See the top of this file.
pub(super) struct Done {
    /// What the handles look at, and keep.
    pub(super) derived: Derived,
    outcome: OnceLock<Outcome>,
    settled: AtomicBool,
    /// Ends the waits of threads and goroutines.
    waits: Cancel,
    state: Mutex<State>,
    parent: Weak<Done>,
    /// The cause, if the alarm goes off.
    overdue: Option<Cause>,
}

struct State {
    followers: Followers,
    /// There are handles.
    in_use: bool,
    /// The place among the parent's followers.
    link: Option<Place>,
    alarm: Option<Alarm>,
    /// The channel to be closed at the end, if it has been asked for. Set under the lock, and taken by the end.
    channel: Option<WeakChan<Infallible>>,
}

/// The channel that is closed at the end, as the handles of the context keep it.
pub(super) struct Channel {
    shown: RecvOnly<Infallible>,
    weak: WeakChan<Infallible>,
}

/// Kept by the channel: dropped when the last handle of the channel is.
struct Leaves(Weak<Done>);

impl Drop for Leaves {
    fn drop(&mut self) {
        if let Some(done) = self.0.upgrade() {
            done.leave(done.lock());
        }
    }
}

impl Done {
    /// One that is in use, and ends when its parent does.
    pub(super) fn new(parent: Option<&Arc<Self>>, derived: Derived, overdue: Option<Cause>) -> Arc<Self> {
        let Some(parent) = parent else { return Self::allocate(|| Self::open(Weak::new(), derived, overdue)) };
        // No follower of a parent that has ended: it has ended itself from the start.
        if let Some(outcome) = parent.outcome().cloned() {
            let mut ended = Self::open(Weak::new(), derived, overdue);
            ended.outcome = OnceLock::from(outcome);
            ended.settled = AtomicBool::new(true);
            ended.waits = Cancel::cancelled();
            return Arc::new(ended);
        }
        let done = Self::allocate(|| Self::open(Arc::downgrade(parent), derived, overdue));
        match parent.follow(Follower::Child(done.clone())) {
            // The parent may have closed it by now; the place is out of date then, and no harm.
            Ok(place) => done.lock().link = Some(place),
            Err((outcome, _)) => done.cancel(outcome.clone()),
        }
        done
    }

    /// `Arc::new(make())` without a copy of these 300 bytes, which takes a quarter of the time that a context does.
    #[inline(always)]
    fn allocate(make: impl FnOnce() -> Self) -> Arc<Self> {
        let uninit = Arc::<Self>::new_uninit();
        // SAFETY: the memory has the size and the alignment; it is this reference's alone, and is not read before. If
        // `make` panics, it is freed as what it is, uninitialised.
        unsafe { Arc::as_ptr(&uninit).cast_mut().cast::<Self>().write(make()) };
        // SAFETY: it has been written.
        unsafe { uninit.assume_init() }
    }

    #[inline]
    fn open(parent: Weak<Self>, derived: Derived, overdue: Option<Cause>) -> Self {
        Self {
            derived,
            outcome: OnceLock::new(),
            settled: AtomicBool::new(false),
            waits: Cancel::new(),
            state: Mutex::new(State {
                followers: Followers::default(),
                in_use: true,
                link: None,
                alarm: None,
                channel: None,
            }),
            parent,
            overdue,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it has ended. Waits end then, too.
    #[inline]
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        let outcome = self.outcome.get()?;
        if !self.waits.is_cancelled() {
            self.await_closed();
        }
        Some(outcome)
    }

    /// The outcome has been set, under the lock, by a thread that has not unlocked yet. (A caller that has the lock finds
    /// all of step 1 done.)
    #[cold]
    fn await_closed(&self) {
        drop(self.lock());
    }

    /// What ends the waits that name it: after the outcome is there.
    #[inline]
    pub(super) fn waits(&self) -> &Cancel {
        &self.waits
    }

    /// A channel that is closed at the end; when the outcome is there, it is closed.
    ///
    /// # Safety
    ///
    /// The caller has, or borrows from, a handle of the context for as long as it uses the result.
    #[inline]
    pub(super) unsafe fn channel(this: &Arc<Self>) -> &RecvOnly<Infallible> {
        // SAFETY: by the contract, which is the same.
        let place = unsafe { this.derived.channel() };
        match place.get() {
            Some(channel) if this.outcome().is_none() || channel.shown.is_closed() => &channel.shown,
            _ => this.make_or_close_channel(place),
        }
    }

    #[cold]
    fn make_or_close_channel<'a>(self: &Arc<Self>, place: &'a OnceLock<Channel>) -> &'a RecvOnly<Infallible> {
        let mut state = self.lock();
        let channel = place.get_or_init(|| {
            let all = Chan::keeping(0, Box::new(Leaves(Arc::downgrade(self))));
            Channel { shown: all.recv_only(), weak: all.downgrade() }
        });
        // Under the lock: the end takes the channel that it is to close under the lock, too.
        let ended = self.outcome().is_some();
        if !ended {
            state.channel.get_or_insert_with(|| channel.weak.clone());
        }
        drop(state);
        if ended && let Some(all) = channel.weak.upgrade() {
            all.close_and_go_on();
        }
        &channel.shown
    }

    // ---- followers ------------------------------------------------------------------------------------------------

    /// Lists a follower; gives it back if there is nothing left to follow.
    pub(super) fn follow(&self, follower: Follower) -> Result<Place, (&Outcome, Follower)> {
        let mut state = self.lock();
        match self.outcome() {
            None => Ok(state.followers.insert(follower)),
            Some(outcome) => Err((outcome, follower)),
        }
    }

    /// Takes a follower off the list. None if it has been taken off, by this or by the end. Should this end be noticed by
    /// none now, it leaves its parent; and so on upwards.
    pub(super) fn unfollow(&self, place: Place) -> Option<Follower> {
        let mut state = self.lock();
        let follower = state.followers.remove(place);
        self.leave(state);
        follower
    }

    /// Lets `waker` be woken at the end, instead of the one that it has listed before; or returns the outcome.
    pub(super) fn wake_at_end(&self, place: &mut Option<Place>, waker: &Waker) -> Option<&Outcome> {
        let mut new = None;
        loop {
            let mut state = self.lock();
            if let Some(outcome) = self.outcome() {
                return Some(outcome);
            }
            let listed = place.and_then(|place| state.followers.waker(place));
            if listed.as_ref().is_some_and(|listed| listed.will_wake(waker)) {
                return None;
            }
            let Some(new) = new.take() else {
                drop(state);
                new = Some(waker.clone());
                continue;
            };
            let old = match listed {
                Some(listed) => Some(std::mem::replace(listed, new)),
                None => {
                    *place = Some(state.followers.insert(Follower::Task(new)));
                    None
                }
            };
            drop(state);
            drop(old);
            return None;
        }
    }

    #[cfg(test)]
    pub(super) fn followers(&self) -> usize {
        self.lock().followers.len()
    }

    // ---- the deadline ---------------------------------------------------------------------------------------------

    /// Lets it end at `when`.
    pub(super) fn set_alarm(self: &Arc<Self>, when: Instant) {
        let alarm = goroutine::alarm(when, Waker::from(self.clone()));
        let mut state = self.lock();
        let late = match self.outcome() {
            None => state.alarm.replace(alarm),
            Some(_) => Some(alarm),
        };
        drop(state);
        if let Some(late) = late {
            late.call_off();
        }
    }

    /// The deadline has come.
    pub(super) fn expire(&self) {
        self.cancel(Outcome { error: Error::DeadlineExceeded, cause: self.overdue.clone() });
    }

    // ---- the end --------------------------------------------------------------------------------------------------

    /// Ends it, and all that follow, unless it has ended. See the top of this file.
    pub(super) fn cancel(&self, outcome: Outcome) {
        let Some(mut closed) = self.close(&outcome) else { return self.await_settled() };
        // All that is met is kept until the end: to drop it may be to drop what is the user's.
        let mut descendants: Vec<(Arc<Self>, Closed)> = Vec::new();
        let mut met = Vec::new();
        let mut parent = 0; // 0 is `self`; n is descendant n - 1
        while parent <= descendants.len() {
            let mut from = 0;
            loop {
                let closed = if parent == 0 { &closed } else { &descendants[parent - 1].1 };
                let Some((child, next)) = closed.followers.next_child(from) else { break };
                from = next;
                let child = child.clone();
                match child.close(&outcome) {
                    Some(closed) => descendants.push((child, closed)),
                    None => met.push(child),
                }
            }
            parent += 1;
        }
        met.iter().for_each(|done| done.await_settled());
        // Release: a thread that awaits this sees the descendants closed.
        for (done, _) in &descendants {
            done.settled.store(true, Ordering::Release);
        }
        self.settled.store(true, Ordering::Release);

        // No user code before all of them know: it might wait for one of them. And no switch before all have been told.
        self.waits.cancel_and_go_on();
        descendants.iter().for_each(|(done, _)| done.waits.cancel_and_go_on());

        let mut panics = Panics::default();
        Self::tell(&mut closed, &mut panics);
        descendants.iter_mut().for_each(|(_, closed)| Self::tell(closed, &mut panics));
        let (link, all) = (closed.link, descendants.iter_mut().map(|(_, closed)| closed));
        for alarm in std::iter::once(&mut closed).chain(all).filter_map(|closed| closed.alarm.take()) {
            panics.catch(|| alarm.call_off());
        }
        panics.catch(|| {
            if let (Some(link), Some(parent)) = (link, self.parent.upgrade()) {
                drop(parent.unfollow(link));
            }
        });
        // One by one: each may be the last reference to a cause, which is the user's.
        descendants.into_iter().for_each(|(done, _)| panics.catch(|| drop(done)));
        met.into_iter().for_each(|done| panics.catch(|| drop(done)));
        panics.catch(|| drop(outcome));
        panics.resume();
    }

    /// Step 1. None if it has been closed before.
    fn close(&self, outcome: &Outcome) -> Option<Closed> {
        let mut state = self.lock();
        if self.outcome().is_some() {
            return None;
        }
        _ = self.outcome.set(outcome.clone());
        self.waits.end_later_waits();
        let State { followers, link, alarm, channel, .. } = &mut *state;
        let channel = channel.take().and_then(|channel| channel.upgrade());
        Some(Closed { followers: std::mem::take(followers), link: link.take(), alarm: alarm.take(), channel })
    }

    /// Waits until the thread that has closed it has closed its descendants. That thread neither switches nor runs user
    /// code before that.
    fn await_settled(&self) {
        while !self.settled.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    /// Step 5, but for the alarm.
    fn tell(closed: &mut Closed, panics: &mut Panics) {
        if let Some(channel) = closed.channel.take() {
            panics.catch(|| channel.close_and_go_on());
        }
        for follower in std::mem::take(&mut closed.followers).into_iter() {
            panics.catch(|| match follower {
                Follower::Child(child) => drop(child),
                Follower::Task(waker) => waker.wake(),
                Follower::Call(f) => goroutine::go(f),
            });
        }
    }

    /// The last handle goes.
    pub(super) fn release(&self) {
        // At its end it has left all that it was in.
        if self.outcome().is_none() {
            let mut state = self.lock();
            state.in_use = false;
            self.leave(state);
        }
    }

    /// If its end can no longer be noticed, it leaves its parent; and so on upwards.
    fn leave(&self, state: MutexGuard<'_, State>) {
        let mut next = self.take_link(state);
        let mut panics = Panics::default();
        while let Some((parent, link)) = next {
            let mut state = parent.lock();
            let child = state.followers.remove(link);
            next = parent.take_link(state);
            // Each may be the last reference to a cause, which is the user's: not under the lock.
            panics.catch(|| drop(child));
            panics.catch(|| drop(parent));
        }
        panics.resume();
    }

    /// If its end can no longer be noticed: the parent that it is to leave, and its place there. The alarm is called off.
    fn take_link(&self, mut state: MutexGuard<'_, State>) -> Option<(Arc<Self>, Place)> {
        // One that has gone stays so. One that goes after this look calls `leave`, which waits for the lock.
        let channel = state.channel.as_ref().is_some_and(|channel| !channel.is_gone());
        let noticed = state.in_use || state.followers.len() > 0 || channel;
        if noticed || self.outcome().is_some() {
            return None;
        }
        let (link, alarm) = (state.link.take(), state.alarm.take());
        drop(state);
        if let Some(alarm) = alarm {
            alarm.call_off();
        }
        Some((self.parent.upgrade()?, link?))
    }
}

/// The alarm goes off.
impl Wake for Done {
    fn wake(self: Arc<Self>) {
        self.expire();
    }
}

/// Descendants without handles, kept only for functions that will now never run. They may be deep, so not by
/// recursion.
impl Drop for Done {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.followers.len() == 0 {
            return;
        }
        let mut rest = vec![std::mem::take(&mut state.followers)];
        let mut panics = Panics::default();
        while let Some(followers) = rest.pop() {
            for follower in followers.into_iter() {
                panics.catch(|| {
                    if let Follower::Child(child) = follower
                        && let Some(mut child) = Arc::into_inner(child)
                    {
                        let state = child.state.get_mut().unwrap_or_else(PoisonError::into_inner);
                        rest.push(std::mem::take(&mut state.followers));
                    }
                });
            }
        }
        panics.resume();
    }
}

/// What was taken out of a `Done` when it was closed.
#[derive(Default)]
struct Closed {
    followers: Followers,
    link: Option<Place>,
    alarm: Option<Alarm>,
    channel: Option<Chan<Infallible>>,
}
