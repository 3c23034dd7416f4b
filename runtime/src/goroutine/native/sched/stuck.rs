//! The dump that a program asks for, which marks the goroutines that nothing can wake any more, as far as is known: those
//! that wait for a lock
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
use std::sync::{Arc, PoisonError};

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::sched::cycle::{Wait, cycles, wait_of, waits};
use crate::goroutine::native::sched::dump::{Dump, Wanted, ask};
use crate::goroutine::native::sched::report::GoroutineInfo;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::threads::{self, ThreadInfo};
use crate::lock_order::{self, Holder};
use crate::sema::{self, Wake};
use crate::shim::system::atomic::AtomicU32;
use crate::shim::system::{self, Mutex};

/// Describes the goroutines of the process: Go's `pprof.Lookup("goroutine")`, and Go's output on `SIGQUIT`.
///
/// Each worker describes its own goroutines between two of their turns, so the program goes on meanwhile, and the parts
/// of the dump are of slightly different moments. Goroutines of [bubbles](crate::goroutine::synctest) are not listed.
/// If the caller is a goroutine, the goroutine waits while another thread makes the dump.
///
/// Switches of goroutines are observed where [stalls are reported](crate::goroutine#environment), which is the default
/// in builds with debug assertions, and after [`add_switch_hooks`](crate::goroutine::add_switch_hooks). The dump then
/// has, for each goroutine that has begun since, the place of the call that started the goroutine, and the goroutine's
/// stack, unless the goroutine runs or has less than 16 KiB of stack left. (Without observation, goroutines and waits
/// are some instructions cheaper.)
///
/// Where switches are observed, the printed dump also lists threads that wait for a lock, a channel or the like of this
/// project, the longest wait first, with the system's number and name of each thread (names on Linux), and async tasks
/// with the type of the future, and the call that started the task. In builds with debug assertions a thread has a wait
/// reason, the holders of the awaited mutex, and the place of the call that waits for a mutex; a task has a wait reason,
/// if the task waits for a future of this project. A task that has been woken counts as waiting until it is polled.
///
/// All that wait for the same object are printed with the same address.
///
/// # Examples
///
/// ```
/// use sudog::chan::channel;
/// use sudog::{Builder, run};
/// use sudog::runtime::dump;
///
/// run(|| {
///     let (tx, rx) = channel::<u32>(0);
///     Builder::new().name("reader").go(move || _ = rx.recv());
///     while !dump().goroutines.iter().any(|goroutine| goroutine.wait_reason == "chan receive") {}
///     eprintln!("{}", dump());
///     drop(tx);
/// });
/// ```
#[must_use]
pub fn dump() -> Dump {
    if current::current().is_none() {
        return whole();
    }
    // Do not use a thread of `blocking`: a dump is wanted most when all of these threads are taken.
    let sched = Sched::here();
    let shared = Arc::new((Mutex::new(None), AtomicU32::new(0)));
    let theirs = shared.clone();
    sched.idle.external_begins();
    let make = move || {
        *theirs.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(whole());
        sema::semrelease(&theirs.1, Wake::Normal);
        sched.idle.external_ends();
    };
    if system::thread::Builder::new().name("sudog-dump".into()).spawn(make).is_err() {
        sched.idle.external_ends();
        return current::without_switching(whole);
    }
    current::note_wait("dump");
    sema::semacquire(&shared.1);
    let dump = shared.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    dump.expect("the thread has made a dump")
}

/// Makes a dump of all goroutines, and marks those that are stuck.
fn whole() -> Dump {
    let mut dump = ask(Wanted::All);
    threads::add_names(&mut dump.threads);
    mark(&mut dump);
    dump
}

/// Marks the goroutines that are stuck.
fn mark(dump: &mut Dump) {
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
