//! What is called when a goroutine gets its worker and when it gives it up: a program's hooks, and the stall report.
//!
//! | a goroutine | calls | on |
//! |---|---|---|
//! | begins, or a task's poll does | `enter(Entering::Begins)` | its stack, before its closure |
//! | waits, or gives way | `leave(Leaving::Waits)` | its stack, before the switch |
//! | goes on | `enter(Entering::Resumes)` | its stack, after the switch |
//! | has ended, or a task's poll has | `leave(Leaving::Ends)` | its stack, after the destructors of its locals |
//!
//! Whether switches are observed a goroutine asks as it begins, and keeps the answer in its fibre: so without hooks and
//! reports a switch costs a look at a byte that is at hand, and a branch that is not taken.

use crate::shim::system;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::{AtomicU8, Ordering};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::goroutine::native::fibre::Fibre;
use crate::goroutine::native::sched::stall;

/// A bit for each that wants to know.
static OBSERVERS: AtomicU8 = AtomicU8::new(0);
const HOOKS: u8 = 1;
const STALLS: u8 = 2;

/// Room for some libraries, each with its hooks.
static HOOKS_SET: [OnceLock<SwitchHooks>; 4] = [const { OnceLock::new() }; 4];

system::thread_local! {
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

/// Functions to be called at each switch: see [`add_switch_hooks`].
#[derive(Clone, Copy, Debug)]
pub struct SwitchHooks {
    /// A goroutine has got its worker.
    pub enter: fn(Entering),
    /// It is about to give it up.
    pub leave: fn(Leaving),
}

/// Why a goroutine has got its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Entering {
    /// It begins, or the poll of a task does.
    Begins,
    /// It goes on after a wait or a yield.
    Resumes,
}

/// Why a goroutine gives its worker up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Leaving {
    /// It waits or yields.
    Waits,
    /// It has ended, or the poll of a task has. Its locals have been dropped. Those that a hook uses now are dropped after all
    /// hooks; their destructors do not switch.
    Ends,
}

/// There are as many hooks as there is room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManySwitchHooks;

impl std::fmt::Display for TooManySwitchHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad("there is no room for more switch hooks")
    }
}

impl std::error::Error for TooManySwitchHooks {}

/// Adds functions that are called whenever a goroutine gets its worker, and whenever it gives it up.
///
/// For what a library keeps in a `thread_local!` and means for one flow of control: the hooks take it out when a
/// goroutine leaves, put it into a [`goroutine_local!`](crate::goroutine_local), and back when it goes on. To be called
/// before the goroutines start that it is for, once for the process: a goroutine that runs already is not affected. Hooks of
/// the first caller enter first and leave last. Without hooks a switch costs one look more.
///
/// A hook runs on the goroutine's stack. It must not wait, lock a contended mutex of this library, start goroutines, or
/// panic: each of these ends the process with a `fatal error`, as the goroutine is between two states.
///
/// # Errors
///
/// If there are four sets of hooks.
///
/// # Examples
///
/// ```standalone_crate
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use sudog::run;
/// use sudog::runtime::{Leaving, SwitchHooks, add_switch_hooks, gosched};
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

/// The stall report wants to know.
pub(crate) fn observe_stalls() {
    OBSERVERS.fetch_or(STALLS, Ordering::Relaxed);
}

/// Whether anything wants to know of switches. A program that adds hooks does so before it starts goroutines: their start
/// orders this.
#[inline(always)]
pub(crate) fn is_observed() -> bool {
    OBSERVERS.load(Ordering::Relaxed) != 0
}

/// Whether the stall report wants to know.
#[inline(always)]
pub(crate) fn observes_stalls() -> bool {
    OBSERVERS.load(Ordering::Relaxed) & STALLS != 0
}

/// Whether the caller is in a hook.
#[inline]
pub(crate) fn is_in_hook() -> bool {
    is_observed() && IN_HOOK.get()
}

/// Ends the process if the caller is in a hook. `deed` is what the caller is about to do.
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

#[cold]
pub(crate) fn enters(fibre: &Fibre, why: Entering) {
    let observers = OBSERVERS.load(Ordering::Relaxed);
    if observers & STALLS != 0 {
        stall::runs(fibre);
    }
    if observers & HOOKS != 0 {
        hooks().for_each(|hooks| call(|| (hooks.enter)(why)));
    }
}

#[cold]
pub(crate) fn leaves(fibre: &Fibre, why: Leaving) {
    forbid_in_hook("wait");
    let observers = OBSERVERS.load(Ordering::Relaxed);
    if observers & HOOKS != 0 {
        let mut all: [Option<&SwitchHooks>; HOOKS_SET.len()] = [None; _];
        hooks().zip(&mut all).for_each(|(hooks, place)| *place = Some(hooks));
        all.into_iter().rev().flatten().for_each(|hooks| call(|| (hooks.leave)(why)));
    }
    if observers & STALLS != 0 {
        stall::gives_up(fibre);
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
