//! A check for futures that have been given a lock and are not polled: the environment variable `SUDOG_CHECK_WAITS`, in
//! builds with debug assertions.
//!
//! An unlock wakes the first waiter, and no other waiter until the first one has run. If that waiter is a future that
//! its task keeps but does not poll any more, all waiters behind that future wait, perhaps the task itself among them:
//! Oxide's RFD 609 calls this a futurelock. The check reports each such future [`PATIENCE`] after the wake-up, with the
//! stack of the poll that queued the future.
//!
//! | event | by | |
//! |---|---|---|
//! | a future queues for a lock | the task | makes a [`Watch`], with the stack |
//! | a wake-up | the thread that unlocks | notes the time, and sets an alarm if none is set |
//! | a poll, or the drop of the future | the task | withdraws the note |
//! | the alarm | the thread for alarms | reports the notes that are old enough, and sets the next alarm |

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::Instant;
use crate::check_lock::CheckLock;
use crate::fatal::say;
use crate::goroutine::{frames_of_the_user, set_alarm_by_system, waits_are_checked};
use crate::shim::system;
use crate::shim::system::atomic::AtomicU64;

/// The time from a wake-up to the report.
const PATIENCE: Duration = Duration::from_secs(1);

/// A future that queues for a lock. A field of the future's G.
pub(crate) struct Watch(Option<Watched>);

#[derive(Clone)]
struct Watched {
    number: u64,
    /// The stack of the poll that queued the future.
    stack: Arc<Backtrace>,
}

/// A future that has been woken.
struct Note {
    stack: Arc<Backtrace>,
    woken: Instant,
    is_reported: bool,
}

#[derive(Default)]
struct Notes {
    /// The futures that have been woken, and neither polled nor dropped since, by their numbers.
    woken: BTreeMap<u64, Note>,
    /// True if an alarm is set, or a thread has yet to set an alarm.
    has_alarm: bool,
}

static NOTES: CheckLock<Notes> = CheckLock::new(Notes { woken: BTreeMap::new(), has_alarm: false });

impl Watch {
    pub(crate) const NONE: Self = Self(None);

    /// Makes the watch of a future that is about to queue for a lock.
    #[inline]
    pub(crate) fn new() -> Self {
        if waits_are_checked() { Self::with_stack() } else { Self::NONE }
    }

    #[cold]
    fn with_stack() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Some(Watched { number: NEXT.fetch_add(1, Relaxed), stack: Arc::new(Backtrace::force_capture()) }))
    }

    /// Notes that the future has been woken. Called before the future can see that. The caller drops the result after
    /// it has unlocked the future's G.
    #[inline]
    pub(crate) fn wakes(&self) -> AlarmToSet {
        AlarmToSet(self.0.as_ref().is_some_and(Watched::wakes))
    }

    /// Notes that the future has been polled, or is about to be dropped.
    #[inline]
    pub(crate) fn is_polled(&self) {
        if let Some(watched) = &self.0 {
            NOTES.enter(|notes| notes.woken.remove(&watched.number));
        }
    }
}

impl Drop for Watch {
    #[inline]
    fn drop(&mut self) {
        self.is_polled();
    }
}

impl Watched {
    /// Adds a note. Returns whether the caller must set an alarm.
    #[cold]
    fn wakes(&self) -> bool {
        let note = Note { stack: self.stack.clone(), woken: system::now(), is_reported: false };
        let alarm = NOTES.enter(|notes| {
            notes.woken.insert(self.number, note);
            !std::mem::replace(&mut notes.has_alarm, true)
        });
        alarm.unwrap_or(false)
    }
}

/// Sets an alarm when dropped, if this is true.
pub(crate) struct AlarmToSet(bool);

impl Drop for AlarmToSet {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            set_alarm_by_system(system::now() + PATIENCE, Waker::from(Arc::new(Look)));
        }
    }
}

/// The waker of the alarm.
struct Look;

impl Wake for Look {
    /// Reports the futures that have been woken [`PATIENCE`] ago, and sets the alarm for the next future.
    fn wake(self: Arc<Self>) {
        let now = system::now();
        let look = |notes: &mut Notes| {
            let mut stacks = Vec::new();
            for note in notes.woken.values_mut().filter(|note| !note.is_reported && note.woken + PATIENCE <= now) {
                note.is_reported = true;
                stacks.push(note.stack.clone());
            }
            let next = notes.woken.values().filter(|note| !note.is_reported).map(|note| note.woken + PATIENCE).min();
            notes.has_alarm = next.is_some();
            (stacks, next)
        };
        let Some((stacks, next)) = NOTES.enter(look) else { return };
        if let Some(next) = next {
            set_alarm_by_system(next, Waker::from(self));
        }
        for stack in stacks {
            say(&format!(
                "sudog: a future has been given a lock, or is the next to take it, and has not been polled for {PATIENCE:?}\n    \
                 other waiters wait until it is polled or dropped; it waits at\n{}",
                frames_of_the_user(&stack.to_string())
            ));
        }
    }
}
