//! A check of the order in which locks are taken, for builds with debug assertions: the environment variable
//! `SUDOG_CHECK_ORDER`. For the mutexes of `sudog-sync`.
//!
//! With the check on, the file knows which locks each goroutine and each thread holds. A lock that is wanted while
//! others are held comes after these in the [`graph`] of locks. If the graph has the opposite order already, this is
//! reported at once, though no goroutine waits yet: another schedule would be a deadlock. So is a lock that the caller
//! holds already.
//!
//! | acquisition | comes after the held locks | is held afterwards |
//! |---|---|---|
//! | `lock`, `read`, `write` | yes | yes |
//! | `try_lock`; with a deadline or a context: the wait ends by itself | no | yes |
//! | async: a task may go on elsewhere, and drop the future | no | no |
//!
//! An unlock by another goroutine than the owner is an unlock. Until then, a lock whose guard has been sent away
//! counts as held by the goroutine that locked.
//!
//! Each lock has a number, which moves with the lock, and which no other lock gets. So a lock at the address of an
//! earlier one has no past. The graph forgets a lock that is dropped, and the oldest locks when it is full.

mod graph;
mod held;

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::Ordering::Relaxed;

use crate::check_lock::CheckLock;
use crate::goroutine;
use crate::shim::system::atomic::AtomicU64;
use crate::shim::system::{self, OnceLock, thread};

use held::{Acquired, Caller, Checker};

/// The kind of an acquisition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The caller will own the lock alone.
    Write,
    /// Other readers may own the lock, too.
    Read,
}

/// The number of a lock in the check. A field of the lock.
pub struct LockTag(AtomicU64);

impl LockTag {
    /// A tag that has no number yet.
    #[allow(clippy::declare_interior_mutable_const)] // to be copied into place
    pub const NEW: Self = Self(AtomicU64::new(0));

    /// Returns the number of the lock. The first call chooses the number.
    fn number(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        match self.0.load(Relaxed) {
            0 => {
                let new = NEXT.fetch_add(1, Relaxed);
                self.0.compare_exchange(0, new, Relaxed, Relaxed).map_or_else(|other| other, |_| new)
            }
            number => number,
        }
    }

    /// Notes that the caller is about to take the lock. `waits` is true if only an unlock ends the wait.
    #[inline]
    #[track_caller]
    #[must_use = "the acquisition ends when it is dropped"]
    pub fn begin(&self, access: Access, waits: bool) -> Acquisition {
        let place = Location::caller();
        let begun = if is_on() { self.begin_checked(access, waits, place) } else { None };
        Acquisition { begun, is_outermost: note_place(place) }
    }

    #[cold]
    fn begin_checked(&self, access: Access, waits: bool, place: &'static Location<'static>) -> Option<Begun> {
        let begun = Begun { caller: caller(), acquired: Acquired { lock: self.number(), access, place } };
        let (begins, report) = enter(|checker| checker.begin(begun.caller, begun.acquired, waits, title))?;
        say(report);
        begins.then_some(begun)
    }

    /// Notes that the lock has been unlocked, or is about to be.
    #[inline]
    pub fn unlocked(&self) {
        // A lock without a number has not been seen by the check.
        if self.0.load(Relaxed) != 0 {
            self.unlocked_checked();
        }
    }

    #[cold]
    fn unlocked_checked(&self) {
        let (caller, lock) = (caller(), self.number());
        enter(|checker| checker.unlocked(caller, lock));
    }
}

impl Drop for LockTag {
    fn drop(&mut self) {
        let lock = *self.0.get_mut();
        if lock != 0 {
            enter(|checker| checker.forget(lock));
        }
    }
}

/// An acquisition that is under way. Dropped without a call of [`Acquisition::done`], the lock has not been taken.
pub struct Acquisition {
    /// The acquisition in the check, if the check follows it.
    begun: Option<Begun>,
    /// True if the call is noted as the place of the thread.
    is_outermost: bool,
}

#[derive(Clone, Copy)]
struct Begun {
    caller: Caller,
    acquired: Acquired,
}

impl Acquisition {
    /// Notes that the lock has been taken.
    #[inline]
    pub fn done(mut self) {
        if let Some(begun) = self.begun.take() {
            end(begun, true);
        }
    }
}

impl Drop for Acquisition {
    #[inline]
    fn drop(&mut self) {
        if self.is_outermost {
            PLACE.set(None);
        }
        if let Some(begun) = self.begun.take() {
            end(begun, false);
        }
    }
}

system::thread_local! {
    /// The call by which the thread takes a lock, while the call is under way. The outermost call, if a lock is made of
    /// others. Not set by a goroutine that may switch: a dump has the stack of that goroutine.
    static PLACE: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Notes a call by which the caller takes a lock. Returns whether the note is to be withdrawn at the end of the call.
fn note_place(place: &'static Location<'static>) -> bool {
    // A switch hook may lock a free mutex, so do not ask `goroutine::current`, which ends the process in a hook.
    let is_outermost = goroutine::switchable().is_none() && PLACE.get().is_none();
    if is_outermost {
        PLACE.set(Some(place));
    }
    is_outermost
}

/// Returns the call by which the calling thread takes a lock, for dumps.
pub(crate) fn place() -> Option<&'static Location<'static>> {
    PLACE.get()
}

#[cold]
fn end(begun: Begun, is_locked: bool) {
    enter(|checker| checker.end(begun.caller, begun.acquired, is_locked));
}

/// Returns whether the check is on.
#[inline]
fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("SUDOG_CHECK_ORDER").is_some_and(|value| value != "0"))
}

/// Runs `f` under the lock of the check. Returns `None`, and does not run `f`, if the caller is in a check already.
fn enter<T>(f: impl FnOnce(&mut Checker) -> T) -> Option<T> {
    static CHECKER: CheckLock<Checker> = CheckLock::new(Checker::new());
    CHECKER.enter(f)
}

/// Returns the calling goroutine, or else the calling thread. Each poll of a task counts as a goroutine: a lock that a
/// task holds across polls is held by none that takes other locks.
fn caller() -> Caller {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    system::thread_local! {
        static THREAD: Cell<u64> = const { Cell::new(0) };
    }
    match goroutine::id() {
        0 => Caller::Thread(THREAD.with(|thread| {
            if thread.get() == 0 {
                thread.set(NEXT.fetch_add(1, Relaxed));
            }
            thread.get()
        })),
        id => Caller::Goroutine(id),
    }
}

/// The bit that the [`holder_id`]s of threads have, and the ids of goroutines have not.
const THREAD: u64 = 1 << 63;
/// The bit that the [`holder_id`]s of polls have, and the ids of goroutines have not.
const POLL: u64 = 1 << 62;

/// Returns the number by which a lock notes the caller as a holder: the id of the calling goroutine; the marked number of
/// the calling thread; or the marked id of the poll, in an async task. Each poll of a task has another id. So only while
/// the poll that has locked goes on is the task known as the holder.
#[must_use]
pub fn holder_id() -> u64 {
    match caller() {
        Caller::Goroutine(id) if goroutine::is_task() => id_of_poll(id),
        Caller::Goroutine(id) => id,
        Caller::Thread(number) => number | THREAD,
    }
}

/// Returns the number by which a lock notes the caller as one of several holders: 0 in an async task, as the task may
/// give up the lock in another poll, by another number.
#[must_use]
pub fn reader_id() -> u64 {
    if goroutine::is_task() { 0 } else { holder_id() }
}

/// A [`holder_id`], decoded.
#[derive(Clone, Copy)]
pub(crate) enum Holder {
    /// A goroutine, by its id.
    Goroutine(u64),
    /// The poll of an async task, by the id of the goroutine that polls.
    Poll(u64),
    /// A thread.
    Thread,
}

/// Decodes a [`holder_id`].
pub(crate) fn decode(holder: u64) -> Holder {
    if holder & THREAD != 0 {
        Holder::Thread
    } else if holder & POLL != 0 {
        Holder::Poll(holder & !POLL)
    } else {
        Holder::Goroutine(holder)
    }
}

/// Returns the [`holder_id`] of the poll that a goroutine with this id makes.
pub(crate) fn id_of_poll(goroutine: u64) -> u64 {
    goroutine | POLL
}

/// Returns the name of the caller, as reports print it.
fn title() -> String {
    match goroutine::describe() {
        Some(goroutine) => format!("goroutine {goroutine}"),
        None => format!("thread {:?}", thread::current().name().unwrap_or("without a name")),
    }
}

/// Prints a report, if there is a report. Called outside the lock of the check.
fn say(report: Option<String>) {
    if let Some(report) = report {
        crate::fatal::say(&report);
    }
}
