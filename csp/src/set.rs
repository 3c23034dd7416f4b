//! Active sets: fibres that are counted together, so that a caller learns when none of them can run.
//!
//! A set is at *rest* when each of its fibres has ended or hangs on a channel of this crate. A lock guards the number
//! of members, the number of fibres that hang, and the list of the waiters of all fibres that hang:
//!
//! | step | members | hanging | the list |
//! |---|---|---|---|
//! | a fibre is made, by a caller outside of the set, or by an awake fibre of the set | +1 | | |
//! | a fibre hangs without a limit; with a limit | | +1; 0, because the fibre comes back by itself | gets the fibre's waiter |
//! | a waiter is taken out: by its partner, before the `ready`; by the death of its channel; by its limit; by the drop of the set | | undoes the change that the hang made | loses the waiter |
//! | a fibre ends | -1 | | |
//!
//! At rest `members == hanging`. Only a fibre that hangs or ends brings the set to rest, and wakes the caller of
//! [`ActiveSet::run`]. From then on only a partner outside of the set could meet a fibre of the set.
//!
//! The drop of an [`ActiveSet`] closes the set, and takes each waiter in the list out of its channel. In a closed set
//! no fibre hangs. A fibre that was taken out returns [`Reclaimed`](crate::Reclaimed) from its own read or write, as if
//! its channel had died. The ends that the fibre drops may end other channels. The woken fibres go to the run queues,
//! as when a channel dies, so nothing recurses.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use sudog_runtime::goroutine::forbid_in_child;
use sudog_runtime::shim::{Mutex, mark};
use sudog_runtime::{G, goroutine};

use crate::channel::Channel;
use crate::list::{Chain, InSet, Waiter};

/// A set of fibres that run until none of them can run: the scheduler of the source (see the [crate]). Unlike
/// that scheduler, a set can be run again.
///
/// The fibres of a set are those that [`run`](ActiveSet::run) starts, and those that a fibre of the set starts by
/// [`spawn_fibre`](crate::spawn_fibre) or [`spawn_fibre_on`](crate::spawn_fibre_on). The fibres are goroutines, on any
/// workers. A goroutine that a fibre starts by `go` or `spawn` is outside of the set.
///
/// The set is at rest when each of its fibres has ended or hangs on a channel of this crate. A fibre that waits
/// elsewhere (that sleeps, or waits for a mutex, for a goroutine, for a blocking call) or that reads or writes with a
/// limit keeps the set awake.
///
/// A fibre has ended when its closure has returned, and all that the closure held, except for the result, has been
/// dropped.
///
/// A fibre that hangs when `run` returns goes on in a later `run`, if a partner comes during that `run`. Unlike in the
/// source, a partner outside of the set may meet a fibre at any time. The fibre then goes on at once, whether `run` is
/// active or not.
///
/// The drop of a set reclaims all fibres that hang, also those whose channels cross.
///
/// # Examples
///
/// ```
/// # #[cfg(unix)] {
/// use std::sync::{Arc, Mutex};
/// use sudog::csp::{ActiveSet, make_channel};
///
/// let sum = Arc::new(Mutex::new(0));
/// let [mut numbers, mut input] = make_channel::<u32, 2>();
/// let mut set = ActiveSet::new();
/// let total = sum.clone();
/// set.run(move || {
///     while let Ok(n) = input.read() {
///         *total.lock().unwrap() += n;
///     }
/// });
/// assert_eq!(*sum.lock().unwrap(), 0); // the fibre hangs
/// set.run(move || (1..=4).for_each(|n| numbers.write(n).unwrap()));
/// assert_eq!(*sum.lock().unwrap(), 10);
/// # }
/// ```
pub struct ActiveSet {
    pub(crate) set: Arc<Set>,
}

/// The state that an [`ActiveSet`] shares with its fibres.
pub(crate) struct Set {
    state: Mutex<State>,
}

struct State {
    /// The number of fibres that have been made and have not ended.
    members: usize,
    /// The number of fibres that hang without a limit.
    hanging: usize,
    /// The waiters of all fibres that hang.
    listed: Chain<InSet>,
    /// True once the [`ActiveSet`] has been dropped. From then on no fibre hangs.
    closed: bool,
    /// The G that waits for the set to rest, if there is one.
    runner: Option<Runner>,
}

// SAFETY: only the owner of the lock reads or writes the list and the links of the waiters in the list. The runner is
// used once, by the G that has taken it out.
unsafe impl Send for Set {}
// SAFETY: as for `Send`, only the owner of the lock reads or writes the list and the links of listed waiters.
unsafe impl Sync for Set {}

/// The error of [`Set::list`]: the set has been closed.
pub(crate) struct Closed;

/// The G that waits for a set to rest, to be woken once.
#[must_use = "the G sleeps for ever"]
pub(crate) struct Runner(*const G);

impl Runner {
    pub(crate) fn wake(self) {
        // SAFETY:
        // - The G is alive: `wait_for_rest` returns only after this call.
        // - The caller has taken the runner out of its set, so this is the only `ready`.
        // - The G was stored in the set just before its `park`, and waits for nothing else.
        // - Nothing uses the G after this call.
        unsafe { G::ready(self.0) };
    }
}

impl State {
    /// Takes the runner out if the set is at rest. Called after each step that may have brought the set to rest.
    fn runner_at_rest(&mut self) -> Option<Runner> {
        if self.members == self.hanging { self.runner.take() } else { None }
    }
}

impl Set {
    fn new() -> Self {
        let state = State { members: 0, hanging: 0, listed: Chain::new(), closed: false, runner: None };
        Self { state: Mutex::new(state) }
    }

    /// Returns the set that the calling fibre belongs to, or null. The set is alive while the caller's [`Entered`] is
    /// alive.
    #[inline]
    pub(crate) fn of_caller() -> *const Self {
        goroutine::active_set().cast()
    }

    fn is_of_caller(&self) -> bool {
        ptr::eq(self, Self::of_caller())
    }

    /// Lists the waiter of a fibre that hangs. If that brings the set to rest, returns the runner, which the caller
    /// must wake.
    ///
    /// # Safety
    ///
    /// The lock of the waiter's channel is held. The waiter belongs to this set and is not listed. The waiter stays
    /// alive and in place until [`unlist`](Self::unlist).
    #[inline(never)] // keeps the saving of registers out of the path of fibres without a set
    pub(crate) unsafe fn list(&self, waiter: &Waiter) -> Result<Option<Runner>, Closed> {
        let state = &mut *self.state.lock();
        if state.closed {
            mark("a fibre of a closed set does not hang");
            return Err(Closed);
        }
        state.hanging += usize::from(!waiter.limited);
        // SAFETY: the set's lock is held. No set lists the waiter, which stays alive until `unlist`, by the contract of
        // this function.
        unsafe { state.listed.push(waiter) };
        Ok(state.runner_at_rest())
    }

    /// Unlists the waiter of a fibre that will be readied, or that leaves by itself.
    ///
    /// # Safety
    ///
    /// The lock of the waiter's channel is held, and this set lists the waiter.
    #[inline(never)] // for the same reason as `list`
    pub(crate) unsafe fn unlist(&self, waiter: &Waiter) {
        let state = &mut *self.state.lock();
        state.hanging -= usize::from(!waiter.limited);
        // SAFETY: the set's lock is held, and this set lists the waiter, by the contract of this function.
        unsafe { state.listed.remove(waiter) };
    }

    /// Returns the first waiter of the set's list, if that waiter hangs on `channel`.
    pub(crate) fn first_on(&self, channel: &Channel) -> Option<NonNull<Waiter>> {
        let state = &*self.state.lock();
        // SAFETY: the set lists the waiter, so the waiter is alive while the lock is held.
        state.listed.first().filter(|first| ptr::eq(unsafe { first.as_ref() }.channel, channel))
    }

    /// Returns the channel on which the first waiter of the set's list hangs.
    fn first_channel(&self) -> Option<Arc<Channel>> {
        let state = &*self.state.lock();
        // SAFETY: the set lists the waiter, so the waiter is alive while the lock is held.
        let channel = unsafe { state.listed.first()?.as_ref() }.channel;
        // SAFETY: the pointer is from `Arc::as_ptr`. The fibre that hangs holds an end of the channel, and cannot go on
        // before the waiter has been unlisted, which takes this set's lock. So the reference count is at least one.
        unsafe {
            Arc::increment_strong_count(channel);
            Some(Arc::from_raw(channel))
        }
    }

    /// Closes the set, and takes all waiters out of their channels. Each woken fibre returns on its own worker, so this
    /// loop does not recurse.
    fn close(&self) {
        self.state.lock().closed = true;
        while let Some(channel) = self.first_channel() {
            // With None, a partner has been faster, and has unlisted the waiter.
            if let Some(fibre) = channel.reclaim(self) {
                mark("a set reclaims a fibre");
                // SAFETY: `fibre` was taken out of its list just now, is woken once, and is not used afterwards.
                unsafe { fibre.wake(false) };
            }
        }
    }

    /// Waits until the set is at rest, or, if the set is closed, until all its fibres have ended. Only one caller at a
    /// time.
    pub(crate) fn wait_for_rest(&self) {
        let g = G::current();
        let mut state = self.state.lock();
        if state.members == state.hanging {
            mark("a set is at rest already");
            return;
        }
        forbid_in_child();
        state.runner = Some(Runner(&raw const g));
        sudog_runtime::note_wait_at("csp active set", self);
        g.park(None, || drop(state));
    }
}

/// The guard that counts a fibre of a set, from the making of the fibre until the fibre has ended.
pub(crate) struct Member(Arc<Set>);

impl Member {
    /// Counts another fibre of the set.
    fn of(set: &Arc<Set>) -> Self {
        set.state.lock().members += 1;
        Self(set.clone())
    }

    /// Counts another fibre of the set to which the caller belongs.
    #[cfg(all(unix, not(sudog_loom)))]
    pub(crate) fn of_caller() -> Option<Self> {
        let set = NonNull::new(Set::of_caller().cast_mut())?;
        // SAFETY: the pointer is from `Arc::as_ptr`, and the caller's `Entered` holds a reference.
        let set = unsafe {
            Arc::increment_strong_count(set.as_ptr());
            Arc::from_raw(set.as_ptr())
        };
        Some(Self::of(&set))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.members -= 1;
        let runner = state.runner_at_rest();
        drop(state);
        if let Some(runner) = runner {
            mark("the end of a fibre brings rest");
            runner.wake();
        }
    }
}

/// A guard: until its drop, the calling goroutine is a fibre of a set.
struct Entered {
    _member: Member,
}

impl Entered {
    fn new(member: Member) -> Self {
        // SAFETY: the member keeps the set alive until the drop of this guard resets the goroutine's set to null.
        unsafe { goroutine::set_active_set(Arc::as_ptr(&member.0).cast()) };
        Self { _member: member }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: the set is null.
        unsafe { goroutine::set_active_set(ptr::null()) };
    }
}

/// The closure of a fibre. The fibre ends when the closure's captures have been dropped, whether the closure was called
/// or not.
pub(crate) struct Body<F> {
    // The order matters: `f` is dropped before `member`.
    f: F,
    member: Option<Member>,
}

impl<F> Body<F> {
    /// Makes a closure for a fibre of `member`'s set, or, if `member` is None, for a fibre without a set.
    pub(crate) fn new(f: F, member: Option<Member>) -> Self {
        Self { f, member }
    }

    /// Runs the closure on the calling goroutine, which runs nothing else.
    pub(crate) fn run<T>(self) -> T
    where
        F: FnOnce() -> T,
    {
        let _entered = self.member.map(Entered::new);
        (self.f)()
    }
}

impl ActiveSet {
    /// Makes a set without fibres.
    #[must_use]
    pub fn new() -> Self {
        Self { set: Arc::new(Set::new()) }
    }

    /// Makes a closure for a new fibre of the set.
    pub(crate) fn body<F>(&self, f: F) -> Body<F> {
        Body::new(f, Some(Member::of(&self.set)))
    }

    /// Starts `main` as a fibre of the set, and waits until the set is at rest. Drops the result of `main`.
    ///
    /// The caller may be a goroutine or a thread. A panic in a fibre that `run` has started ends the process, as in
    /// [`go`](fn@sudog_runtime::goroutine::go).
    ///
    /// # Panics
    ///
    /// If the caller is a fibre of the set: the fibre would wait for its own end.
    #[cfg(all(unix, not(sudog_loom)))]
    pub fn run<T>(&mut self, main: impl FnOnce() -> T + Send + 'static) {
        assert!(!self.set.is_of_caller(), "a fibre of an active set has run the set");
        let body = self.body(|| drop(main()));
        goroutine::go(move || body.run());
        self.set.wait_for_rest();
    }
}

impl Drop for ActiveSet {
    /// Reclaims the fibres that hang, and waits until all fibres of the set have ended. A fibre that ignores its
    /// [`Reclaimed`](crate::Reclaimed) and goes on delays this call. If the caller is a fibre of the set itself, this
    /// call does not wait.
    fn drop(&mut self) {
        self.set.close();
        if !self.set.is_of_caller() {
            self.set.wait_for_rest();
        }
    }
}

impl Default for ActiveSet {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ActiveSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (members, hanging) = {
            let state = self.set.state.lock();
            (state.members, state.hanging)
        };
        f.debug_struct("ActiveSet").field("fibres", &members).field("hanging", &hanging).finish()
    }
}

/// Functions for the models, whose fibres are threads.
#[cfg(sudog_loom)]
#[doc(hidden)]
impl ActiveSet {
    pub fn fibre<T, F: FnOnce() -> T>(&self, f: F) -> impl FnOnce() -> T + use<T, F> {
        let body = self.body(f);
        move || body.run()
    }

    pub fn wait_for_rest(&mut self) {
        self.set.wait_for_rest();
    }
}

/// Runs `main` as the first fibre of a new [`ActiveSet`]. Returns the result of `main` when all fibres of the set have
/// ended.
///
/// When the set is at rest, all fibres that still hang are reclaimed, `main` too. So a program whose fibres wait for
/// each other for ever ends: each fibre gets [`Reclaimed`](crate::Reclaimed).
///
/// `main` may borrow from the caller. The caller may be a goroutine or a thread.
///
/// # Panics
///
/// If `main` panics. If `main` calls `goexit`, the caller is unwound likewise.
///
/// # Examples
///
/// ```
/// use sudog::csp::{self, Reclaimed, make_channel, spawn_fibre};
///
/// let mut numbers = Vec::new();
/// csp::run(|| {
///     let [mut output, mut input] = make_channel::<u32, 2>();
///     spawn_fibre(move || (1..=3).for_each(|n| output.write(n).unwrap()));
///     while let Ok(n) = input.read() {
///         numbers.push(n);
///     }
/// });
/// assert_eq!(numbers, [1, 2, 3]);
/// ```
#[cfg(all(unix, not(sudog_loom)))]
pub fn run<T: Send>(main: impl FnOnce() -> T + Send) -> T {
    let set = ActiveSet::new();
    let result = goroutine::scope(|scope| {
        let body = set.body(main);
        let main = scope.spawn(move || body.run());
        set.set.wait_for_rest();
        drop(set);
        main.join()
    });
    result.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}
