//! Calls at the moments when a goroutine gets a worker and when the goroutine gives the worker up: a program's hooks,
//! the stall report, and traces.
//!
//! | a goroutine | calls, on the goroutine's stack | when |
//! |---|---|---|
//! | begins, or a task's poll begins | `enter(Entering::Begins)` | before the closure |
//! | waits, or gives way | `leave(Leaving::Waits)` | before the switch |
//! | goes on | `enter(Entering::Resumes)` | after the switch |
//! | has ended, or a task's poll has ended | `leave(Leaving::Ends)` | after the destructors of the goroutine's locals |
//!
//! When a goroutine begins, its fibre notes whether switches are observed: see [`Observed`]. So without observers a
//! switch reads one byte of the fibre, and has a branch that is not taken. Hooks and the stall report observe goroutines
//! that begin later. A trace also observes those that have begun: each worker [marks](Observed::join) its fibres.

use crate::shim::system;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::{AtomicU8, AtomicU32, Ordering};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A bit for each observer of switches.
static OBSERVERS: AtomicU8 = AtomicU8::new(0);
const HOOKS: u8 = 1;
const STALLS: u8 = 2;
const TRACE: u8 = 4;
/// The number of traces that have begun. A worker compares the number with that of the last trace for which the worker
/// has marked its fibres.
static TRACES: AtomicU32 = AtomicU32::new(0);

/// Whether a fibre's switches are observed. Used by the fibre's worker only.
///
/// | state | switches are observed | by |
/// |---|---|---|
/// | `NOT` | no | |
/// | `BEGUN` | since the goroutine began | all observers |
/// | `JOINS` | from the next wait or yield on: the fibre is suspended, and was not observed when it suspended | a trace |
/// | `JOINED` | since a later wait or yield | a trace |
pub(crate) struct Observed(Cell<u8>);

impl Observed {
    const NOT: u8 = 0;
    const BEGUN: u8 = 1;
    const JOINS: u8 = 2;
    const JOINED: u8 = 3;

    pub(crate) const fn new() -> Self {
        Self(Cell::new(Self::NOT))
    }

    /// Returns whether the switches are observed now, or from the next wait or yield on.
    #[inline(always)]
    pub(crate) fn get(&self) -> bool {
        self.state() != Self::NOT
    }

    /// Returns whether the switch that has suspended the fibre was observed.
    pub(crate) fn was_seen(&self) -> bool {
        matches!(self.state(), Self::BEGUN | Self::JOINED)
    }

    /// Notes, when a goroutine begins, whether its switches are observed.
    #[inline(always)]
    pub(crate) fn begin(&self, observed: bool) {
        self.0.set(u8::from(observed));
    }

    /// Has a suspended fibre join the observed fibres. Called by the fibre's worker.
    pub(crate) fn join(&self) {
        if self.state() == Self::NOT {
            self.0.set(Self::JOINS);
        }
    }

    /// Notes that the fibre is about to suspend. Returns whether the switch is observed: a fibre that a former trace has
    /// marked leaves the observed fibres.
    pub(crate) fn suspends(&self) -> bool {
        if self.state() == Self::BEGUN {
            return true;
        }
        let is_traced = is_traced();
        self.0.set(if is_traced { Self::JOINED } else { Self::NOT });
        is_traced
    }

    #[inline(always)]
    fn state(&self) -> u8 {
        self.0.get()
    }
}

/// The observers of a switch: a bit for each.
#[derive(Clone, Copy)]
pub(super) struct Observers(u8);

impl Observers {
    /// Returns the observers of a fibre that is observed.
    pub(super) fn of(fibre: &Observed) -> Self {
        let observers = OBSERVERS.load(Ordering::Relaxed);
        Self(if fibre.state() == Observed::BEGUN { observers } else { observers & TRACE })
    }

    pub(super) fn have_stalls(self) -> bool {
        self.0 & STALLS != 0
    }

    pub(super) fn have_trace(self) -> bool {
        self.0 & TRACE != 0
    }
}

/// The hooks that [`add_switch_hooks`] has added: room for those of four libraries.
static HOOKS_SET: [OnceLock<SwitchHooks>; 4] = [const { OnceLock::new() }; 4];

system::thread_local! {
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

/// Functions to be called at each switch: see [`add_switch_hooks`].
#[derive(Clone, Copy, Debug)]
pub struct SwitchHooks {
    /// Called when a goroutine has got a worker.
    pub enter: fn(Entering),
    /// Called when a goroutine is about to give the worker up.
    pub leave: fn(Leaving),
}

/// The reason why a goroutine has got a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Entering {
    /// The goroutine begins, or the poll of a task begins.
    Begins,
    /// The goroutine goes on after a wait or a yield.
    Resumes,
}

/// The reason why a goroutine gives the worker up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Leaving {
    /// The goroutine waits or yields.
    Waits,
    /// The goroutine has ended, or the poll of a task has ended. The goroutine's locals have been dropped. Locals that
    /// a hook uses now are dropped after all hooks; their destructors cannot switch to other goroutines.
    Ends,
}

/// The error of [`add_switch_hooks`]: there is no room for more hooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManySwitchHooks;

impl std::fmt::Display for TooManySwitchHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("there is no room for more switch hooks")
    }
}

impl std::error::Error for TooManySwitchHooks {}

/// Adds functions that are called whenever a goroutine gets a worker, and whenever the goroutine gives the worker up.
///
/// Hooks are for values that a library keeps in a `thread_local!`, although the values are meant for one flow of
/// control. A hook moves such a value into a [`goroutine_local!`](crate::goroutine_local) when the goroutine leaves,
/// and back when the goroutine goes on. Call this function once for the process, before the goroutines start that need
/// the hooks: a goroutine that runs already is not affected. The hooks of the first caller are called first at `enter`,
/// and last at `leave`. In programs without hooks a switch reads one byte more.
///
/// A hook runs on the goroutine's stack. A hook must not wait, lock a contended mutex of this library, start goroutines, or
/// panic: each of these ends the process with a `fatal error`, as the goroutine is between two states.
///
/// # Errors
///
/// If there are four sets of hooks already.
///
/// # Examples
///
/// ```standalone_crate
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use sudog::low_level::{Leaving, SwitchHooks, add_switch_hooks};
/// use sudog::run;
/// use sudog::runtime::gosched;
///
/// static WAITS: AtomicU32 = AtomicU32::new(0);
///
/// fn leave(why: Leaving) {
///     WAITS.fetch_add(u32::from(why == Leaving::Waits), Relaxed);
/// }
///
/// add_switch_hooks(SwitchHooks { enter: |_| (), leave }).unwrap();
/// run(|| (0..3).for_each(|_| gosched()));
/// assert!(WAITS.load(Relaxed) >= 3);
/// ```
pub fn add_switch_hooks(hooks: SwitchHooks) -> Result<(), TooManySwitchHooks> {
    let mut hooks = Some(hooks);
    for place in &HOOKS_SET {
        place.get_or_init(|| hooks.take().expect("set once"));
        if hooks.is_none() {
            OBSERVERS.fetch_or(HOOKS, Ordering::Relaxed);
            return Ok(());
        }
    }
    Err(TooManySwitchHooks)
}

/// Makes the stall report an observer of switches.
pub(crate) fn observe_stalls() {
    OBSERVERS.fetch_or(STALLS, Ordering::Relaxed);
}

/// Begins or ends a trace of the switches.
pub(crate) fn observe_trace(is_on: bool) {
    if is_on {
        OBSERVERS.fetch_or(TRACE, Ordering::Relaxed);
        // Release: a worker that reads the number marks fibres, whose next switches then find the observer.
        TRACES.fetch_add(1, Ordering::Release);
    } else {
        OBSERVERS.fetch_and(!TRACE, Ordering::Relaxed);
    }
}

/// Returns the number of traces that have begun.
#[inline]
pub(crate) fn traces() -> u32 {
    TRACES.load(Ordering::Acquire)
}

/// Returns whether switches are traced.
#[inline(always)]
pub(crate) fn is_traced() -> bool {
    OBSERVERS.load(Ordering::Relaxed) & TRACE != 0
}

/// Returns whether switches are observed. The load is Relaxed: a program adds hooks before it starts goroutines, and
/// the start of a goroutine orders that addition before this load.
#[inline(always)]
pub(crate) fn is_observed() -> bool {
    OBSERVERS.load(Ordering::Relaxed) != 0
}

/// Returns whether the stall report observes switches.
#[inline(always)]
pub(crate) fn observes_stalls() -> bool {
    OBSERVERS.load(Ordering::Relaxed) & STALLS != 0
}

/// Returns whether the stall report or a trace is to be told the names of goroutines.
#[inline(always)]
pub(crate) fn observes_names() -> bool {
    OBSERVERS.load(Ordering::Relaxed) & (STALLS | TRACE) != 0
}

/// Returns whether an observer is to be told the calls that start goroutines.
pub(crate) fn observes_starts() -> bool {
    OBSERVERS.load(Ordering::Relaxed) & (HOOKS | STALLS) != 0
}

/// Returns whether the caller is in a hook.
#[inline]
pub(crate) fn is_in_hook() -> bool {
    is_observed() && IN_HOOK.get()
}

/// Ends the process if the caller is in a hook. `deed` names the step that the caller is about to take.
#[cold]
fn forbid_in_hook(deed: &str) {
    if IN_HOOK.get() {
        crate::fatal(&format!("sudog: a switch hook must not {deed}"));
    }
}

/// Ends the process if the caller is in a hook, and is about to wait.
#[inline(always)]
pub(crate) fn forbid_wait_in_hook() {
    if is_observed() {
        forbid_in_hook("wait");
    }
}

/// Ends the process if the caller is in a hook, and is about to start a goroutine or a task.
#[inline(always)]
pub(crate) fn forbid_start_in_hook() {
    if is_observed() {
        forbid_in_hook("start goroutines");
    }
}

/// Calls the hooks when a goroutine has got a worker.
#[cold]
pub(super) fn enters(observers: Observers, why: Entering) {
    if observers.0 & HOOKS != 0 {
        hooks().for_each(|hooks| call(|| (hooks.enter)(why)));
    }
}

/// Calls the hooks when a goroutine is about to give its worker up.
#[cold]
pub(super) fn leaves(observers: Observers, why: Leaving) {
    forbid_in_hook("wait");
    if observers.0 & HOOKS != 0 {
        let mut all: [Option<&SwitchHooks>; HOOKS_SET.len()] = [None; _];
        hooks().zip(&mut all).for_each(|(hooks, place)| *place = Some(hooks));
        all.into_iter().rev().flatten().for_each(|hooks| call(|| (hooks.leave)(why)));
    }
}

fn hooks() -> impl Iterator<Item = &'static SwitchHooks> {
    HOOKS_SET.iter().map_while(OnceLock::get)
}

fn call(hook: impl FnOnce()) {
    let before = IN_HOOK.replace(true);
    if let Err(payload) = catch_unwind(AssertUnwindSafe(hook)) {
        let payload: &(dyn Any + Send) = &*payload;
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        crate::fatal(&format!("sudog: a switch hook panicked: {}", text.unwrap_or("(a value that is no text)")));
    }
    IN_HOOK.set(before);
}
