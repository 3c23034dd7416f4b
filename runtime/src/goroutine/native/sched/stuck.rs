//! The goroutines of a dump that nothing can wake any more, as far as is known: those that wait for a lock
//!
//! * whose holder, a goroutine, has ended without an unlock;
//! * in a cycle of goroutines and threads that wait for each other's locks (`cycle.rs`);
//! * that such a goroutine or thread holds.
//!
//! A dump is not of a single moment, so a second dump must agree. Each reported goroutine is in the same wait in both
//! dumps. A goroutine that holds a lock at the first dump has begun before the second dump. If all workers have answered
//! and the second dump does not list that goroutine, the goroutine has ended.
//!
//! `cycle.rs` lists the holders that are not known. A goroutine that waits for those is not called stuck.

use std::collections::{HashMap, HashSet};

use crate::goroutine::native::sched::cycle::{Wait, cycles, wait_of, waits};
use crate::goroutine::native::sched::dump::{Dump, Wanted, ask};
use crate::goroutine::native::sched::report::GoroutineInfo;
use crate::goroutine::native::sched::threads::ThreadInfo;
use crate::lock_order::{self, Holder};

/// Marks the goroutines that are stuck.
pub(super) fn mark(dump: &mut Dump) {
    let suspects = stuck(&dump.goroutines, &dump.threads, |_| true);
    if suspects.is_empty() || !dump.silent_workers.is_empty() {
        return;
    }
    let is_suspect = |info: &&GoroutineInfo| wait_of(info).is_some_and(|wait| suspects.contains(&wait));
    let asked: HashSet<u64> = dump
        .goroutines
        .iter()
        .filter(is_suspect)
        .flat_map(|info| info.holders.iter().copied().chain([info.id]))
        .collect();
    let second = ask(Wanted::Ids(asked.clone()));
    if second.silent_workers.is_empty() {
        let confirmed = stuck(&second.goroutines, &second.threads, |holder| asked.contains(&holder));
        for info in &mut dump.goroutines {
            info.is_stuck = wait_of(info).is_some_and(|wait| suspects.contains(&wait) && confirmed.contains(&wait));
        }
    }
}

/// Returns the waits of the goroutines and threads that seem to be stuck. A holder that is not listed has ended, if that
/// holder is a goroutine, and the dump was asked for that goroutine.
fn stuck(goroutines: &[GoroutineInfo], threads: &[ThreadInfo], is_asked_for: impl Fn(u64) -> bool) -> HashSet<Wait> {
    let listed: HashSet<u64> = goroutines.iter().map(|info| info.id).collect();
    let has_ended = |holder: &u64| match lock_order::decode(*holder) {
        Holder::Goroutine(id) => is_asked_for(id) && !listed.contains(&id),
        Holder::Poll(_) | Holder::Thread => false,
    };
    let mut waiters: HashMap<u64, Vec<Wait>> = HashMap::new();
    let mut found: Vec<Wait> = cycles(goroutines, threads).into_iter().flatten().collect();
    for (wait, holders) in waits(goroutines, threads) {
        holders.iter().for_each(|holder| waiters.entry(*holder).or_default().push(wait));
        if holders.iter().any(has_ended) {
            found.push(wait);
        }
    }
    let mut stuck = HashSet::new();
    while let Some(wait) = found.pop() {
        if stuck.insert(wait) {
            found.extend(waiters.get(&wait.0).into_iter().flatten());
        }
    }
    stuck
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goroutine::native::sched::cycle::tests::waiting;

    fn ids(goroutines: &[(u64, &[u64])], is_asked_for: impl Fn(u64) -> bool) -> Vec<u64> {
        let infos: Vec<_> = goroutines.iter().map(|&(id, holders)| waiting(id, holders)).collect();
        let mut ids: Vec<u64> = stuck(&infos, &[], is_asked_for).into_iter().map(|wait| wait.0).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn those_behind_a_cycle_and_behind_the_ended_are_stuck() {
        // A chain to a goroutine that goes on.
        assert!(ids(&[(1, &[2]), (2, &[3]), (3, &[])], |_| true).is_empty());
        // A cycle, and a chain to the cycle.
        assert_eq!(ids(&[(1, &[2]), (2, &[1]), (3, &[1]), (4, &[3]), (5, &[6]), (6, &[])], |_| true), [1, 2, 3, 4]);
        // A chain to a goroutine that has ended. A writer waits for each reader.
        let goroutines: [(u64, &[u64]); 3] = [(1, &[9]), (2, &[3, 1]), (3, &[])];
        assert_eq!(ids(&goroutines, |_| true), [1, 2]);
        assert!(ids(&goroutines, |holder| holder != 9).is_empty());
    }
}
