//! The search of a worker without work: the worker looks around for a while, steals work that is old enough, and
//! sleeps.
//!
//! If all the work that the worker found was too young to be stolen, the worker naps: it sleeps for [`NAP`], and looks
//! again. Work that goroutines start during the nap wakes neither this worker nor another worker. Otherwise a goroutine
//! that starts other goroutines and waits for each would keep a second worker busy with looking.
//!
//! Stealing is *aged*: a thief remembers the tail of each ring and, `AGE` later, takes only work that was queued before
//! that tail. So goroutines that start each other and wait for each other stay on one worker, where a switch costs
//! nanoseconds, and other workers take the work for which that worker has no time.
//!
//! Work ages only while the work's worker runs. If that worker does not run, because another thread has the processor,
//! the worker would have started the work soon. The other thread may be the thief: if the other processors are busy,
//! the system likes to run a woken thread at once where the waker ran. Without this rule, beside a busy program, two
//! goroutines that talk to each other would be split for good, as goroutines that have started do not move. A worker
//! that sits in a system call does not run either, so work that is ten milliseconds old is stolen all the same. Go's
//! watcher takes the P away from a thread in a system call after ten milliseconds at the latest, too.
//!
//! Only idle workers steal. If no worker is idle, the watcher moves the work of a worker that makes no choice to the
//! global queue ([`hand_over`](Worker::hand_over)): workers that run goroutines look at that queue, too.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::goroutine::native::fibre::current;
use crate::goroutine::native::fork;
use crate::goroutine::native::metrics::counters::count;
use crate::goroutine::native::netpoll;
use crate::goroutine::native::sched::processor::Advice;
use crate::goroutine::native::sched::worker::{AGE, NAP, OLD_AGE, Rest, SPIN, Seen, Worker};
use crate::goroutine::native::sched::{bubble, clock, sysmon};
use crate::goroutine::native::trace;
use crate::goroutine::protocol::idle::Woken;
use crate::shim::system;
use crate::{Instant, shim};

/// The time between two polls of the network by a worker that looks for work.
const POLL: Duration = Duration::from_micros(5);

/// The end of a search.
enum Search {
    /// The worker was woken to search, or by the end of a nap.
    Again {
        napped: bool,
    },
    Ended(Rest),
}

/// The result of a look at the other workers' rings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Work was found, and is in the caller's ring now.
    Work,
    /// Work was found that is too young to be stolen.
    TooFresh,
    Nothing,
}

impl Worker {
    /// Waits until there may be work, until a timer is due, or until the worker's bubble is at rest. After this call
    /// the worker is no searcher: a worker that runs goroutines but counts as searching would keep all others asleep.
    #[cold]
    pub(crate) fn wait_for_work(&'static self) -> Rest {
        fork::forbid_in_child();
        self.looking.store(true, Ordering::Relaxed);
        trace::idles(self);
        let mut spin = SPIN;
        let rest = loop {
            match self.search_and_sleep(spin) {
                // Work that the worker saw before the nap is old by now.
                Search::Again { napped } => spin = if napped { AGE } else { SPIN },
                Search::Ended(rest) => break rest,
            }
            debug_assert!(self.own.searching.get());
        };
        debug_assert!(!self.own.searching.get());
        self.looking.store(false, Ordering::Relaxed);
        rest
    }

    /// Looks around for at least `spin`, and sleeps.
    fn search_and_sleep(&'static self, spin: Duration) -> Search {
        let sched = self.sched();
        let is_enabled = self.is_enabled();
        if is_enabled && !self.own.searching.replace(true) {
            sched.idle.begin_search();
        }
        if !is_enabled && self.own.searching.replace(false) {
            // The worker was woken to search, and `set_max_procs` has made the worker surplus since then: have another
            // worker search.
            let _ = sched.idle.end_search();
            sched.wake_for_work();
        }
        self.own.looked.set(None);
        let begun = system::now();
        let mut now = begun;
        // In a bubble, the clock may jump now if nothing is queued. The bubble's worker spins only if something outside
        // is awaited.
        let bubble =
            clock::is_of_bubble().then(|| bubble::settle(self, || self.has_own_work(now) || sched.has_global_work()));
        match bubble {
            Some(bubble::Idle::Run) => return self.found_work(),
            Some(bubble::Idle::Rest) => {
                _ = self.found_work();
                return Search::Ended(Rest::AtRest);
            }
            Some(bubble::Idle::Nap) | None => {}
        }
        let mut naps = false;
        let spin = if shim::num_cpus() > 1 { spin } else { Duration::ZERO };
        let mut polled = begun;
        loop {
            if netpoll::is_awaited() && (now == begun || now.saturating_duration_since(polled) >= POLL) {
                polled = now;
                current::without_switching(netpoll::poll_now);
            }
            if self.has_own_work(now) || (is_enabled && sched.has_global_work()) {
                return self.found_work();
            }
            match is_enabled.then(|| self.steal(now)).flatten() {
                Some(Found::Work) => return self.found_work(),
                Some(Found::TooFresh) => naps = true,
                Some(Found::Nothing) | None => {}
            }
            if now.saturating_duration_since(begun) >= spin {
                count(&self.vain_searches);
                break;
            }
            match self.is_processor_wanted(now) {
                Advice::Search => {
                    for _ in 0..8 {
                        shim::pause();
                    }
                    now = system::now();
                }
                Advice::Yield => {
                    count(&self.yields);
                    now = self.own.courtesy.yield_processor(now);
                }
                Advice::Sleep => break,
            }
        }

        self.trim(now);
        // Leave out the timers of a bubble, which are not by the system's clock.
        let timer = self.next_timer().filter(|_| bubble.is_none());
        let nap = (naps || bubble == Some(bubble::Idle::Nap)).then(|| now + NAP);
        let trim = self.next_trim(now);
        let deadline = [timer, nap, trim].into_iter().flatten().min();
        let timed = timer.is_some() || bubble == Some(bubble::Idle::Nap);
        let searching = self.own.searching.replace(false);
        if naps {
            sched.idle.prepare_nap(&self.sleeper, timed);
        } else {
            sched.idle.prepare(&self.sleeper, timed, is_enabled, searching);
        }
        // Look for work that came before the wakers could see this worker asleep. Before a nap, fresh work is no reason
        // to stay awake: the nap is there for such work.
        let work = if is_enabled {
            self.has_own_work(now) || sched.has_global_work() || !naps && sched.has_work_in_rings()
        } else {
            self.has_own_work(now) || self.is_enabled()
        };
        if !work {
            self.counters.count_sleep();
        }
        let woken = if work {
            sched.idle.abort(&self.sleeper, searching)
        } else if let Some(holder) = netpoll::Holder::take() {
            sched.idle.sleep_polling(&self.sleeper, || holder.poll(deadline))
        } else {
            sched.idle.sleep(&self.sleeper, deadline)
        };
        _ = self.processor.take();
        self.own.searching.set(woken == Woken::ToSearch);
        sysmon::rouse();
        if woken == Woken::ToSearch { Search::Again { napped: naps } } else { Search::Ended(Rest::Work) }
    }

    fn is_processor_wanted(&self, now: Instant) -> Advice {
        self.own.courtesy.look(&self.processor, now, |start| {
            let others = self.sched().others(self, start);
            others.map(|(_, worker)| (&*worker.processor, !worker.sleeper.is_asleep()))
        })
    }

    fn found_work(&self) -> Search {
        if self.own.searching.replace(false) && self.sched().idle.end_search() {
            // The last searcher makes sure that there is another searcher: where there was work there may be more.
            self.sched().wake_for_work();
        }
        Search::Ended(Rest::Work)
    }

    fn has_own_work(&self, now: Instant) -> bool {
        // (A goroutine that this worker has readied by a poll is in this worker's own queue.)
        !self.inbox.is_empty()
            || !self.ring.is_empty()
            || self.has_started_work()
            || self.own.dump.is_wanted()
            || self.is_timer_due(now)
    }

    /// Returns whether a timer is due at `now`, by the system's clock; in a bubble, by the bubble's clock.
    pub(crate) fn is_timer_due(&self, now: Instant) -> bool {
        let now = if clock::is_of_bubble() { clock::now() } else { now };
        self.next_timer().is_some_and(|when| when <= now)
    }

    /// Steals work that other workers have had in their rings for longer than `AGE`. Returns `None`, without a look, if
    /// the last look was less than `AGE` ago.
    fn steal(&'static self, now: Instant) -> Option<Found> {
        let own = &*self.own;
        // SAFETY: only the owner uses `seen`, and no function called below uses `seen`, so this reference is the only
        // one.
        let seen = unsafe { &mut *own.seen.get() };
        if own.looked.get().is_some_and(|looked| now.saturating_duration_since(looked) < AGE) {
            return None;
        }
        own.looked.set(Some(now));
        let mut found = Found::Nothing;
        let start = self.random() as usize;
        for (index, victim) in self.sched().others(self, start) {
            if victim.ring.is_empty() {
                continue;
            }
            found = Found::TooFresh;
            if let Some(seen) = seen[index] {
                if !seen.is_old(victim, now) {
                    continue;
                }
                if self.steal_from(victim, seen.tail) {
                    self.counters.count_steal();
                    return Some(Found::Work);
                }
                // All the work that was seen then is gone.
            }
            seen[index] = Some(Seen::of(victim, now));
        }
        Some(found)
    }

    /// Steals some of the work that stood before `tail` in the victim's ring. Returns false if nothing of that work is
    /// left.
    fn steal_from(&'static self, victim: &Worker, tail: u32) -> bool {
        let works = victim.ring.steal(tail);
        let any = !works.is_empty();
        for work in works {
            if let Err(work) = self.own_ring().push(work) {
                self.sched().push_global([work]); // never, as our ring is empty
            }
        }
        any
    }

    /// Moves all work in this worker's ring to the global queue, if other workers may take the work from there. Called
    /// by the watcher, when the worker has made no choice for a tick: a goroutine blocks the worker's thread, or
    /// computes.
    #[cold]
    pub(crate) fn hand_over(&self) {
        let sched = self.sched();
        if sched.procs() == 1 || sched.is_bubble() {
            return;
        }
        let tail = self.ring.tail();
        loop {
            let works = self.ring.steal(tail);
            if works.is_empty() {
                return;
            }
            sched.push_global(works);
        }
    }

    /// Returns a random number by Marsaglia's xorshift: for the first victim of a search.
    fn random(&self) -> u32 {
        let mut x = self.own.random.get() ^ (self.index as u32 + 1);
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.own.random.set(x.max(1));
        x
    }
}

impl Seen {
    fn of(victim: &Worker, now: Instant) -> Self {
        Self { tail: victim.ring.tail(), when: now, ran: victim.clock.time() }
    }

    /// Returns whether the work that this look at the victim's ring saw may be stolen at `now`.
    fn is_old(&self, victim: &Worker, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.when);
        if age < AGE || age >= OLD_AGE {
            return age >= OLD_AGE;
        }
        match (self.ran, victim.clock.time()) {
            // Require less than `AGE`: of two looks that are `AGE` apart, the first may have been later in reading this
            // clock than the second.
            (Some(then), Some(now)) => now.saturating_sub(then) >= AGE * 3 / 4,
            _ => true, // the system does not say
        }
    }
}
