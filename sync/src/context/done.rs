//! The [`Done`] of a context: the state that decides whether the context has ended, and the list of *followers*, which
//! learn of the end.
//!
//! ```text
//!   Context ──▶ Handle ────▶ Done ◀──── Alarm, until its deadline
//!                 parent,   │  ▲
//!                 weak      ▼  │ child: owned
//!   Context ──▶ Handle ────▶ Done ──followers──▶ children, tasks, functions
//! ```
//!
//! The data that a `Done` keeps for its handles is in `handle.rs`.
//!
//! | step | the first to cancel |
//! |---|---|
//! | 1. close | under the lock: the outcome is set, the channel is closed, later waits end, and the followers are taken. No new followers are accepted |
//! | 2. close the rest | close all descendants in the same way, one after the other, holding one lock at a time and running no user code |
//! | 3. settle | mark step 2 as finished. Other cancels wait for this step and no longer: when any cancel returns, all descendants are done |
//! | 4. end | end the waits of threads and goroutines that are under way, for this context and all descendants, also those at the channels |
//! | 5. tell | wake tasks and start functions; then call alarms off |
//! | 6. leave | leave the parent's followers |
//!
//! A follower that step 4 or 5 wakes finds the outcome, which step 1 has set. If a caller finds the outcome, then each
//! wait that looks at the context afterwards ends, and gets none of the permits that the caller releases (`x::Weighted`
//! relies on this). Step 1 sets the outcome before the channel is closed and later waits end. So a caller that finds the
//! outcome in between first waits for the lock ([`Done::outcome`]), and a caller that finds an error finds the channel
//! closed, as Go promises. Step 2 may meet a descendant that another cancel has closed and not
//! yet settled. The cancel waits for that `Done`, which is a descendant. So a cancel waits for descendants only, and
//! never for itself.
//!
//! A `Done` stays among its parent's followers, and keeps its alarm, while the context has not ended and the end can be
//! noticed: the context has handles (`in_use`), the `Done` has followers, or the channel has handles. So a function
//! given to `after_func` runs even if no handle of the context is left, and a context that is dropped leaves nothing
//! behind.
//!
//! | the last of these is dropped | the `Done` is told by |
//! |---|---|
//! | the context's handles | `release` |
//! | the followers | `unfollow` |
//! | the channel's handles, of which the context's handles share a single handle | the drop of the item that the channel keeps (`Leaves`) |
//!
//! Wakers, functions, causes and their destructors are user code: no user code runs under a lock, nor before step 5.
//! Panics of user code are kept until all followers have been told.

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

/// The way in which a context has ended. Without a `cause`, the error is the cause.
#[derive(Clone)]
pub(super) struct Outcome {
    pub(super) error: Error,
    pub(super) cause: Option<Cause>,
}

/// The state that decides whether a context has ended: see the top of this file.
pub(super) struct Done {
    /// The data that the handles read, and keep alive.
    pub(super) derived: Derived,
    outcome: OnceLock<Outcome>,
    settled: AtomicBool,
    /// The `Cancel` that ends the waits of threads and goroutines.
    waits: Cancel,
    state: Mutex<State>,
    parent: Weak<Done>,
    /// The cause of the end if the context ends at its deadline.
    overdue: Option<Cause>,
}

struct State {
    followers: Followers,
    /// True while handles of the context exist.
    in_use: bool,
    /// The place of this `Done` among its parent's followers.
    link: Option<Place>,
    alarm: Option<Alarm>,
    /// The channel to be closed when the context ends, if a caller has asked for a channel. Set under the lock, and
    /// taken by step 1.
    channel: Option<WeakChan<Infallible>>,
}

/// The channel that is closed when the context ends, in the form in which the handles of the context keep the channel.
pub(super) struct Channel {
    shown: RecvOnly<Infallible>,
    weak: WeakChan<Infallible>,
}

/// The item that the channel keeps: dropped when the last handle of the channel is dropped.
struct Leaves(Weak<Done>);

impl Drop for Leaves {
    fn drop(&mut self) {
        if let Some(done) = self.0.upgrade() {
            done.leave(done.lock());
        }
    }
}

impl Done {
    /// Creates the `Done` of a context that has a handle (`in_use` is true). If there is a parent, the `Done` ends when
    /// the parent ends, at the latest.
    pub(super) fn new(parent: Option<&Arc<Self>>, derived: Derived, overdue: Option<Cause>) -> Arc<Self> {
        let Some(parent) = parent else { return Self::allocate(|| Self::open(Weak::new(), derived, overdue)) };
        // If the parent has ended, the new `Done` does not become its follower: the new `Done` is created ended.
        if let Some(outcome) = parent.outcome().cloned() {
            let mut ended = Self::open(Weak::new(), derived, overdue);
            ended.outcome = OnceLock::from(outcome);
            ended.settled = AtomicBool::new(true);
            ended.waits = Cancel::cancelled();
            return Arc::new(ended);
        }
        let done = Self::allocate(|| Self::open(Arc::downgrade(parent), derived, overdue));
        match parent.follow(Follower::Child(done.clone())) {
            // The parent may have closed `done` by now. In that case the place is outdated, which does no harm.
            Ok(place) => done.lock().link = Some(place),
            Err((outcome, _)) => done.cancel(outcome.clone()),
        }
        done
    }

    /// Does the same as `Arc::new(make())`, without copying the 300 bytes of the `Done`. The copy would take a quarter
    /// of the time in which a context is made.
    #[inline(always)]
    fn allocate(make: impl FnOnce() -> Self) -> Arc<Self> {
        let uninit = Arc::<Self>::new_uninit();
        // SAFETY: the memory has the size and the alignment of `Self`. `uninit` is the only reference to the memory,
        // and the memory is not read before the write. If `make` panics, the memory is freed as uninitialised memory.
        unsafe { Arc::as_ptr(&uninit).cast_mut().cast::<Self>().write(make()) };
        // SAFETY: the line above has initialised the memory.
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

    /// Returns the outcome, if the context has ended. Once this call has returned an outcome, waits on the context end,
    /// too.
    #[inline]
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        let outcome = self.outcome.get()?;
        if !self.waits.is_cancelled() {
            self.await_closed();
        }
        Some(outcome)
    }

    /// Waits until the thread that has set the outcome, under the lock, has unlocked, and so has done all of step 1. (A
    /// caller that holds the lock itself finds all of step 1 done.)
    #[cold]
    fn await_closed(&self) {
        drop(self.lock());
    }

    /// Returns the `Cancel` that ends the waits on this context. The waits end only after the outcome is set.
    #[inline]
    pub(super) fn waits(&self) -> &Cancel {
        &self.waits
    }

    /// Returns the channel that is closed when the context ends. If the outcome is set already, the returned channel is
    /// closed.
    ///
    /// # Safety
    ///
    /// For as long as the caller uses the result, the caller has a handle of the context, or borrows from a handle.
    #[inline]
    pub(super) unsafe fn channel(this: &Arc<Self>) -> &RecvOnly<Infallible> {
        // SAFETY: the contract of `Derived::channel` is the contract of this function.
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
        // Look at the outcome under the lock, because step 1 takes the channel, which is to be closed, under the same
        // lock.
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

    /// Adds a follower to the list. Gives the follower back, with the outcome, if the context has ended.
    pub(super) fn follow(&self, follower: Follower) -> Result<Place, (&Outcome, Follower)> {
        let mut state = self.lock();
        match self.outcome() {
            None => Ok(state.followers.insert(follower)),
            Some(outcome) => Err((outcome, follower)),
        }
    }

    /// Removes a follower from the list. Returns `None` if `unfollow`, or step 1, has removed the follower before. If
    /// the end of this `Done` can no longer be noticed after that, takes the `Done` out of its parent's followers, and
    /// so on upwards.
    pub(super) fn unfollow(&self, place: Place) -> Option<Follower> {
        let mut state = self.lock();
        let follower = state.followers.remove(place);
        self.leave(state);
        follower
    }

    /// Registers `waker` to be woken when the context ends, in place of the waker registered at `place` before. Returns
    /// the outcome if there is an outcome.
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

    /// Sets the alarm, which ends the context at `when`.
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

    /// Ends the context because its deadline has come.
    pub(super) fn expire(&self) {
        self.cancel(Outcome { error: Error::DeadlineExceeded, cause: self.overdue.clone() });
    }

    // ---- the end --------------------------------------------------------------------------------------------------

    /// Ends the context and all its descendants, unless the context has ended. See the top of this file.
    pub(super) fn cancel(&self, outcome: Outcome) {
        let Some(mut closed) = self.close(&outcome) else { return self.await_settled() };
        // Keep every `Done` that is met until the end: dropping a `Done` may drop user data.
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
        // Release: a thread that waits for `settled` sees that the descendants are closed.
        for (done, _) in &descendants {
            done.settled.store(true, Ordering::Release);
        }
        self.settled.store(true, Ordering::Release);

        // Run no user code before all contexts are settled: user code might wait for any of them. Do not switch
        // goroutines before all followers have been told.
        self.waits.cancel_and_go_on();
        descendants.iter().for_each(|(done, _)| done.waits.cancel_and_go_on());
        let all = std::iter::once(&closed).chain(descendants.iter().map(|(_, closed)| closed));
        let wakers: Vec<_> = all.filter_map(|closed| closed.channel.as_ref()).flat_map(Chan::ready_waiters).collect();

        let mut panics = Panics::default();
        wakers.into_iter().for_each(|waker| panics.catch(|| waker.wake()));
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
        // Drop each reference under `panics.catch`: each may be the last reference to a cause, whose destructor is user
        // code.
        descendants.into_iter().for_each(|(done, _)| panics.catch(|| drop(done)));
        met.into_iter().for_each(|done| panics.catch(|| drop(done)));
        panics.catch(|| drop(outcome));
        panics.resume();
    }

    /// Does step 1. Returns `None` if this `Done` has been closed before.
    fn close(&self, outcome: &Outcome) -> Option<Closed> {
        let mut state = self.lock();
        if self.outcome().is_some() {
            return None;
        }
        _ = self.outcome.set(outcome.clone());
        let State { followers, link, alarm, channel, .. } = &mut *state;
        let channel = channel.take().and_then(|channel| channel.upgrade());
        if let Some(channel) = &channel {
            channel.mark_closed();
        }
        // End later waits last: a caller that finds later waits ended does not wait for the lock (`outcome`).
        self.waits.end_later_waits();
        Some(Closed { followers: std::mem::take(followers), link: link.take(), alarm: alarm.take(), channel })
    }

    /// Waits until the thread that has closed this `Done` has closed all its descendants. Until then, that thread
    /// neither switches goroutines nor runs user code.
    fn await_settled(&self) {
        while !self.settled.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    /// Does step 5, except for the alarm.
    fn tell(closed: &mut Closed, panics: &mut Panics) {
        if let Some(channel) = closed.channel.take() {
            panics.catch(|| drop(channel)); // the last handle, maybe
        }
        for follower in std::mem::take(&mut closed.followers).into_iter() {
            panics.catch(|| match follower {
                Follower::Child(child) => drop(child),
                Follower::Task(waker) => waker.wake(),
                Follower::Call(f) => goroutine::go(f),
            });
        }
    }

    /// Tells the `Done` that its last handle has been dropped.
    pub(super) fn release(&self) {
        // A `Done` that has ended has already given up its place in the parent's list, and its alarm.
        if self.outcome().is_none() {
            let mut state = self.lock();
            state.in_use = false;
            self.leave(state);
        }
    }

    /// Takes this `Done` out of its parent's followers, if its end can no longer be noticed. Does the same for the
    /// parent, and so on upwards.
    fn leave(&self, state: MutexGuard<'_, State>) {
        let mut next = self.take_link(state);
        let mut panics = Panics::default();
        while let Some((parent, link)) = next {
            let mut state = parent.lock();
            let child = state.followers.remove(link);
            next = parent.take_link(state);
            // Drop the two outside of the lock: each may hold the last reference to a cause, whose destructor is user
            // code.
            panics.catch(|| drop(child));
            panics.catch(|| drop(parent));
        }
        panics.resume();
    }

    /// Returns the parent, and the place among the parent's followers, if nothing can notice the end of this `Done` any
    /// more. Calls the alarm off in that case.
    fn take_link(&self, mut state: MutexGuard<'_, State>) -> Option<(Arc<Self>, Place)> {
        // If the handles of the channel are gone, no new handles come. If the last handle is dropped after this look,
        // that drop calls `leave`, which waits for the lock.
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

/// Ends the context when the alarm goes off.
impl Wake for Done {
    fn wake(self: Arc<Self>) {
        self.expire();
    }
}

/// Drops the descendants that have no handles, and that exist only for functions which will now never run. The
/// descendants may be nested deeply, so the drop does not recurse.
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

/// The parts that were taken out of a `Done` when it was closed.
#[derive(Default)]
struct Closed {
    followers: Followers,
    link: Option<Place>,
    alarm: Option<Alarm>,
    channel: Option<Chan<Infallible>>,
}
