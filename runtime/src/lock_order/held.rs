//! The locks that each goroutine and each thread holds, and what is to be said about the next lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::panic::Location;

use super::Access;
use super::graph::{Edge, Graph};

/// A goroutine or a thread, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Caller {
    Goroutine(u64),
    Thread(u64),
}

/// An acquisition of a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acquired {
    /// The number of the lock.
    pub(super) lock: u64,
    pub(super) access: Access,
    /// The call that takes the lock.
    pub(super) place: &'static Location<'static>,
}

impl Acquired {
    /// Returns what the call did, in the past tense.
    fn deed(&self) -> &'static str {
        match self.access {
            Access::Write => "locked",
            Access::Read => "read-locked",
        }
    }
}

#[derive(Default)]
struct Locks {
    held: Vec<Acquired>,
    /// The number of the lock that is being taken. A lock that is made of other locks takes these meanwhile.
    wanted: Option<u64>,
}

/// The locks of all callers, and the order of locks.
pub(super) struct Checker {
    callers: BTreeMap<Caller, Locks>,
    /// The callers that hold each lock, once for each acquisition.
    holders: BTreeMap<u64, Vec<Caller>>,
    graph: Graph,
    /// The places of the held lock and of the wanted lock of each report. As many as there are such pairs of calls in
    /// the program, at most.
    reported: BTreeSet<(&'static Location<'static>, &'static Location<'static>)>,
}

impl Checker {
    pub(super) const fn new() -> Self {
        Self { callers: BTreeMap::new(), holders: BTreeMap::new(), graph: Graph::new(), reported: BTreeSet::new() }
    }

    /// Begins an acquisition. Returns whether the check follows this acquisition, and a report if there is something to
    /// report. The check does not follow an acquisition in the middle of another one.
    pub(super) fn begin(
        &mut self,
        caller: Caller,
        wanted: Acquired,
        waits: bool,
        title: impl Fn() -> String,
    ) -> (bool, Option<String>) {
        let locks = self.callers.entry(caller).or_default();
        if locks.wanted.is_some() {
            return (false, None);
        }
        locks.wanted = Some(wanted.lock);
        if !waits {
            return (true, None);
        }
        let mut report = None;
        for held in &locks.held {
            let edge = || Edge { held_at: held.place, wanted_at: wanted.place, by: title() };
            let found = if held.lock == wanted.lock {
                again(held, &wanted, &title())
            } else if let Some(path) = self.graph.add(held.lock, wanted.lock, edge) {
                let mut text = format!(
                    "sudog: locks are taken in two orders, which can end in a deadlock\n    {} {} lock {} at {}\n        \
                     and now wants lock {} at {}\n",
                    title(),
                    held.deed(),
                    held.lock,
                    held.place,
                    wanted.lock,
                    wanted.place,
                );
                for (first, then, edge) in &path {
                    _ = write!(
                        text,
                        "    before that, {} had locked lock {first} at {}\n        and wanted lock {then} at {}\n",
                        edge.by, edge.held_at, edge.wanted_at
                    );
                }
                text
            } else {
                continue;
            };
            if self.reported.insert((held.place, wanted.place)) {
                report.get_or_insert_with(String::new).push_str(&found);
            }
        }
        (true, report)
    }

    /// Ends an acquisition that the check has followed.
    pub(super) fn end(&mut self, caller: Caller, acquired: Acquired, is_locked: bool) {
        let locks = self.callers.entry(caller).or_default();
        locks.wanted = None;
        if is_locked {
            locks.held.push(acquired);
            self.holders.entry(acquired.lock).or_default().push(caller);
        } else {
            self.tidy(caller);
        }
    }

    /// Notes an unlock.
    pub(super) fn unlocked(&mut self, caller: Caller, lock: u64) {
        if self.callers.get(&caller).is_some_and(|locks| locks.wanted == Some(lock)) {
            return; // a part of the lock's own acquisition
        }
        let Some(holders) = self.holders.get_mut(&lock) else { return };
        let released = match (holders.iter().rposition(|&holder| holder == caller), holders.len()) {
            (Some(at), _) => vec![holders.remove(at)],
            // Another goroutine unlocks. If it is not known for which reader, no reader is known any more.
            (None, _) => std::mem::take(holders),
        };
        if holders.is_empty() {
            self.holders.remove(&lock);
        }
        for holder in released {
            self.release(holder, lock);
        }
    }

    /// Removes the latest acquisition of a lock from those that the caller holds.
    fn release(&mut self, caller: Caller, lock: u64) {
        if let Some(locks) = self.callers.get_mut(&caller)
            && let Some(at) = locks.held.iter().rposition(|held| held.lock == lock)
        {
            locks.held.remove(at);
        }
        self.tidy(caller);
    }

    /// Forgets a caller that neither holds nor wants a lock.
    fn tidy(&mut self, caller: Caller) {
        if self.callers.get(&caller).is_some_and(|locks| locks.held.is_empty() && locks.wanted.is_none()) {
            self.callers.remove(&caller);
        }
    }

    /// Forgets a lock that is dropped. It may still be locked.
    pub(super) fn forget(&mut self, lock: u64) {
        for holder in self.holders.remove(&lock).unwrap_or_default() {
            self.release(holder, lock);
        }
        self.graph.forget(lock);
    }
}

/// Reports a lock that the caller holds already.
fn again(held: &Acquired, wanted: &Acquired, title: &str) -> String {
    let what = match (held.access, wanted.access) {
        (Access::Read, Access::Read) => "is read-locked again: a writer that comes between the two waits for ever",
        _ => "is locked again: unless another goroutine unlocks it, this waits for ever",
    };
    format!(
        "sudog: a lock {what}\n    {title} {} lock {} at {}\n        and now wants it at {}\n",
        held.deed(),
        held.lock,
        held.place,
        wanted.place,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Caller = Caller::Goroutine(1);
    const B: Caller = Caller::Goroutine(2);

    #[track_caller]
    fn acquired(lock: u64, access: Access) -> Acquired {
        Acquired { lock, access, place: Location::caller() }
    }

    /// Takes a lock, and returns the report.
    fn lock(checker: &mut Checker, caller: Caller, wanted: Acquired, waits: bool) -> Option<String> {
        let (begins, report) = checker.begin(caller, wanted, waits, || format!("{caller:?}"));
        assert!(begins);
        checker.end(caller, wanted, true);
        report
    }

    fn is_empty(checker: &Checker) -> bool {
        checker.callers.is_empty() && checker.holders.is_empty()
    }

    #[test]
    fn two_orders_are_reported_once() {
        let mut checker = Checker::new();
        let (first, second) = (acquired(1, Access::Write), acquired(2, Access::Read));
        for round in 0..3 {
            for (caller, locks) in [(A, [first, second]), (B, [second, first])] {
                assert_eq!(lock(&mut checker, caller, locks[0], true), None);
                let report = lock(&mut checker, caller, locks[1], true);
                assert_eq!(report.is_some(), round == 0 && caller == B, "{report:?}");
                if let Some(report) = report {
                    for text in [
                        format!("Goroutine(2) read-locked lock 2 at {}", second.place),
                        format!("now wants lock 1 at {}", first.place),
                        format!("Goroutine(1) had locked lock 1 at {}", first.place),
                        format!("wanted lock 2 at {}", second.place),
                    ] {
                        assert!(report.contains(&text), "{text:?} is missing in {report}");
                    }
                }
                checker.unlocked(caller, 1);
                checker.unlocked(caller, 2);
                assert!(is_empty(&checker));
            }
        }
    }

    #[test]
    fn a_try_makes_no_order() {
        let mut checker = Checker::new();
        let (one, two) = (acquired(1, Access::Write), acquired(2, Access::Write));
        assert_eq!(lock(&mut checker, A, one, true), None);
        assert_eq!(lock(&mut checker, A, two, false), None);
        checker.unlocked(A, 1);
        assert_eq!(lock(&mut checker, A, one, true), None, "2 before 1 is the first order");
        checker.unlocked(A, 1);
        checker.unlocked(A, 2);
        assert_eq!(lock(&mut checker, B, one, true), None);
        assert!(lock(&mut checker, B, two, true).is_some(), "a lock that was only tried is held");
    }

    #[test]
    fn a_lock_that_is_taken_again() {
        for (first, then, text) in [
            (Access::Write, Access::Write, "is locked again"),
            (Access::Write, Access::Read, "is locked again"),
            (Access::Read, Access::Write, "is locked again"),
            (Access::Read, Access::Read, "is read-locked again"),
        ] {
            let mut checker = Checker::new();
            assert_eq!(lock(&mut checker, A, acquired(1, first), true), None);
            assert_eq!(lock(&mut checker, B, acquired(1, then), true), None, "another caller");
            checker.unlocked(B, 1);
            assert_eq!(lock(&mut checker, A, acquired(1, then), false), None, "a try");
            checker.unlocked(A, 1);
            assert!(lock(&mut checker, A, acquired(1, then), true).is_some_and(|report| report.contains(text)));
        }
    }

    #[test]
    fn another_goroutine_unlocks() {
        let mut checker = Checker::new();
        assert_eq!(lock(&mut checker, A, acquired(1, Access::Write), true), None);
        checker.unlocked(B, 1);
        assert!(is_empty(&checker));
        assert_eq!(lock(&mut checker, A, acquired(1, Access::Write), true), None, "A does not hold the lock any more");
        checker.unlocked(A, 1);
        // Of two readers it is not known which one has been unlocked.
        assert_eq!(lock(&mut checker, A, acquired(2, Access::Read), true), None);
        assert_eq!(lock(&mut checker, B, acquired(2, Access::Read), true), None);
        checker.unlocked(Caller::Thread(1), 2);
        assert!(is_empty(&checker));
    }

    #[test]
    fn a_lock_inside_a_lock_is_a_part_of_it() {
        let mut checker = Checker::new();
        let (outer, inner) = (acquired(1, Access::Write), acquired(2, Access::Write));
        assert!(checker.begin(A, outer, true, String::new).0);
        assert!(!checker.begin(A, inner, true, String::new).0);
        checker.unlocked(A, 1);
        checker.end(A, outer, false);
        assert!(is_empty(&checker));
    }

    #[test]
    fn a_dropped_lock_is_held_no_more() {
        let mut checker = Checker::new();
        assert_eq!(lock(&mut checker, A, acquired(1, Access::Write), true), None);
        assert_eq!(lock(&mut checker, A, acquired(2, Access::Write), true), None);
        checker.forget(1);
        checker.forget(2);
        assert!(is_empty(&checker));
        assert_eq!(lock(&mut checker, B, acquired(2, Access::Write), true), None);
        assert_eq!(lock(&mut checker, B, acquired(1, Access::Write), true), None);
    }
}
