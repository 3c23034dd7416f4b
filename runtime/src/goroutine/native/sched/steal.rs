//! A worker without work: it looks around for a while, steals what is old enough, and sleeps.
//!
//! Stealing is *aged*: a thief remembers the tail of each ring, and takes, `AGE` later, only what stood before it. So a
//! family of goroutines that start each other and wait for each other stays on one worker, where a switch costs
//! nanoseconds; and what its worker has no time for is shared.
//!
//! A thief is *polite*: it does not take from a victim that does not run only because the thief runs in its place.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::goroutine::native::sched::sysmon;
use crate::goroutine::native::sched::worker::{AGE, NAP, SPIN, Seen, Worker, note_cpu};
use crate::goroutine::protocol::idle::Woken;
use crate::goroutine::protocol::runq::BATCH;
use crate::{Instant, shim};

/// How often a thief lets its victim run before it steals all the same. A yield that lets no thread run takes less than
/// a microsecond.
const POLITE_YIELDS: u32 = 50;

/// What a look at the others' rings found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Work, which is in our ring now.
    Work,
    /// Work, too young to be stolen.
    TooFresh,
    Nothing,
}

impl Worker {
    /// Returns when there may be work, when the clock says so, or when the scheduler is at rest. It is not a searcher
    /// then: a worker that runs goroutines and counts as searching would keep all others asleep.
    #[cold]
    pub(crate) fn wait_for_work(&'static self) -> Woken {
        self.looking.store(true, Ordering::Relaxed);
        let woken = loop {
            match self.search_and_sleep() {
                Woken::ToSearch => debug_assert!(self.own.searching.get()),
                woken => break woken,
            }
        };
        debug_assert!(!self.own.searching.get());
        self.looking.store(false, Ordering::Relaxed);
        woken
    }

    fn search_and_sleep(&'static self) -> Woken {
        let sched = self.sched();
        let is_enabled = self.is_enabled();
        if is_enabled && !self.own.searching.replace(true) {
            sched.idle.begin_search();
        }
        if !is_enabled && self.own.searching.replace(false) {
            // It was woken to search, and `set_max_procs` has taken it out since it fell asleep: another worker must.
            let _ = sched.idle.end_search();
            sched.wake_for_work();
        }
        self.own.looked.set(None);
        let begun = Instant::now();
        let mut now = begun;
        let mut found = Found::Nothing;
        let spin = if shim::num_cpus() > 1 { SPIN } else { std::time::Duration::ZERO };
        loop {
            if self.has_own_work(now) || (is_enabled && sched.has_global_work()) {
                return self.found_work();
            }
            if is_enabled && let Some(seen) = self.steal(now) {
                found = seen;
                if found == Found::Work {
                    return self.found_work();
                }
            }
            if now.saturating_duration_since(begun) >= spin {
                break;
            }
            for _ in 0..8 {
                shim::pause();
            }
            now = Instant::now();
        }

        self.trim(now);
        let timer = self.next_timer();
        let nap = (found == Found::TooFresh).then(|| now + NAP);
        let trim = self.next_trim(now);
        let deadline = [timer, nap, trim].into_iter().flatten().min();
        sched.idle.prepare(&self.sleeper, timer.is_some(), is_enabled, self.own.searching.replace(false));
        // Anything that came before the wakers could see us asleep. TooFresh work is no reason to stay awake: the nap is
        // there for it.
        let work = self.has_own_work(now)
            || is_enabled && (sched.has_global_work() || found == Found::Nothing && sched.has_work_in_rings());
        let woken = if work {
            sched.idle.abort(&self.sleeper)
        } else {
            let woken = sched.idle.sleep(&self.sleeper, deadline, sched.ends_at_rest());
            note_cpu();
            woken
        };
        self.own.searching.set(woken == Woken::ToSearch);
        sysmon::rouse();
        woken
    }

    fn found_work(&self) -> Woken {
        if self.own.searching.replace(false) && self.sched().idle.end_search() {
            // The last searcher sees to it that there is another one: where there was work there may be more.
            self.sched().wake_for_work();
        }
        Woken::ForWork
    }

    fn has_own_work(&self, now: Instant) -> bool {
        !self.inbox.is_empty() || !self.ring.is_empty() || self.next_timer().is_some_and(|when| when <= now)
    }

    /// Takes what others have had in their rings for longer than `AGE`. Nothing new to say until `AGE` after the last
    /// look.
    fn steal(&'static self, now: Instant) -> Option<Found> {
        let own = &*self.own;
        // SAFETY: the owner's, and nothing below comes back here.
        let seen = unsafe { &mut *own.seen.get() };
        let old = match own.looked.get() {
            Some(looked) if now.saturating_duration_since(looked) < AGE => return None,
            looked => looked.is_some(),
        };
        own.looked.set(Some(now));
        let mut found = Found::Nothing;
        let start = self.random() as usize;
        for (index, victim) in self.sched().others(self, start) {
            let here = Seen { worker: ptr::from_ref(victim).addr(), tail: victim.ring.tail() };
            // The victim may have left since, and be in another scheduler. Of that one's work nothing is stolen, as it
            // was put in after what was seen here; and another worker's ring has been seen at its own place in the
            // table only.
            if old && seen[index].worker == here.worker && !victim.ring.is_empty() && !self.gives_way_to(victim) {
                let mut batch = [const { MaybeUninit::uninit() }; BATCH];
                let n = victim.ring.steal(seen[index].tail, &mut batch);
                for work in &batch[..n] {
                    // SAFETY: `steal` has filled the first `n`.
                    let work = unsafe { work.assume_init() };
                    // SAFETY: this is the owner.
                    if let Err(work) = unsafe { self.ring.push(work) } {
                        self.sched().push_global([work]); // never, as our ring is empty
                    }
                }
                if n > 0 {
                    return Some(Found::Work);
                }
            }
            seen[index] = here;
            if !victim.ring.is_empty() {
                found = Found::TooFresh;
            }
        }
        Some(found)
    }

    /// A polite thief: if this thread runs where the victim ran, the victim may be waiting for the processor, and its
    /// work looks old for that alone. Then it is let run. True if it has made a choice meanwhile: its work is fresh.
    ///
    /// The system likes to run a thread that is woken where its waker ran, at once, if the other processors are busy.
    /// Without this rule two goroutines that talk to each other are split for good when a third one is started.
    fn gives_way_to(&self, victim: &Worker) -> bool {
        for _ in 0..POLITE_YIELDS {
            // It may be elsewhere after a yield.
            let here = shim::current_cpu();
            if here == shim::NO_CPU || here != victim.cpu.load(Ordering::Relaxed) {
                return false;
            }
            let turn = victim.turns.load(Ordering::Relaxed);
            shim::yield_now();
            if victim.turns.load(Ordering::Relaxed) != turn {
                return true;
            }
        }
        false
    }

    /// Marsaglia's xorshift: the first victim of a search.
    fn random(&self) -> u32 {
        let mut x = self.own.random.get() ^ (self.index.load(Ordering::Relaxed) as u32 + 1);
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.own.random.set(x.max(1));
        x
    }
}
