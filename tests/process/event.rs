//! The events that locks record: by types that record, and, with the feature `event`, by all types.
#![cfg(not(sudog_loom))]

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex as StdMutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::event::{self, Event, Kind, Recorder, Who};
use sudog::low_level::policy::{Policy, SpinStrategy};
use sudog::low_level::sema::{self, Order, Wake};
use sudog::low_level::{RawLock, Semaphore};
use sudog::study::queue::{Recorded, Treap};
use sudog::study::{self, BUCKETS, SemTable, Table, TableSema};
use sudog::sync::GoMutex;
use support::{Watchdog, eventually};

/// A table whose queues record events.
enum Observed {}

// SAFETY: `table` returns the same static table at each call, so a waiter and its releaser use the same table.
unsafe impl Table for Observed {
    type Queue = Recorded<Treap>;

    fn table() -> &'static SemTable<BUCKETS, Recorded<Treap>> {
        static TABLE: SemTable<BUCKETS, Recorded<Treap>> = SemTable::const_new();
        &TABLE
    }
}

/// A semaphore in the table `Observed`, which stores its address in `LATEST` before it waits.
#[repr(transparent)]
struct Listed(TableSema<Observed>);

/// The semaphore of the latest waiter, or null. Written by each acquirer, and set to null by `recorded`.
static LATEST: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

impl Listed {
    fn tell(&self) {
        LATEST.store(ptr::from_ref(self).cast_mut().cast(), Relaxed);
    }
}

// SAFETY: every call is passed on to `TableSema`, which keeps the contract of `Semaphore`.
unsafe impl Semaphore for Listed {
    const LIFO: bool = true;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        Self(Semaphore::new(permits))
    }

    fn acquire(&self, order: Order) {
        self.tell();
        self.0.acquire(order);
    }

    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }

    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        self.tell();
        self.0.acquire_until(order, deadline)
    }

    fn release(&self, wake: Wake) {
        self.0.release(wake);
    }
}

type Mutex<P> = GoMutex<Listed, study::policy::Recorded<P>>;

/// A policy whose contenders sleep at once, and starve when they have lost a race once.
enum AtOnce {}

impl Policy for AtOnce {
    const THRESHOLD: Duration = Duration::from_nanos(1);
    const STRATEGY: SpinStrategy = SpinStrategy::Spin { rounds: 0, pauses: 0 };
}

/// The most rounds of a test whose outcome depends on a race. Each outcome occurs in fewer rounds.
const ROUNDS: usize = 10_000;

/// Takes the turn to use the recorder, of which a process has one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: StdMutex<()> = StdMutex::new(());
    support::turn(&ALONE)
}

/// Returns the events of the lock at `addr`.
fn of(events: &[Event], addr: usize) -> Vec<Event> {
    events.iter().copied().filter(|event| event.addr == addr).collect()
}

fn kinds(events: &[Event]) -> Vec<Kind> {
    events.iter().map(|event| event.kind).collect()
}

/// Starts a thread that waits for the mutex, as the `n`-th waiter in the queue, and then unlocks the mutex at once.
fn wait_in_line<'s, P: Policy>(
    s: &'s thread::Scope<'s, '_>,
    mutex: &'s Mutex<P>,
    n: usize,
) -> thread::ScopedJoinHandle<'s, ()> {
    let waiter = s.spawn(|| {
        mutex.lock();
        mutex.unlock();
    });
    eventually(|| in_line() == n);
    waiter
}

/// Returns the number of waiters of the semaphore in `LATEST`.
fn in_line() -> usize {
    // SAFETY: `LATEST` is null, or points into a mutex that its test keeps alive and no longer moves.
    let semaphore = unsafe { LATEST.load(Relaxed).as_ref() };
    semaphore.map_or(0, |semaphore| Observed::table().waiters(semaphore))
}

/// Returns the events of a test. The test uses a single mutex, and waits for that mutex.
fn recorded(test: impl FnOnce()) -> Vec<Event> {
    LATEST.store(ptr::null_mut(), Relaxed);
    event::start();
    test();
    let recording = event::stop();
    assert_eq!(recording.dropped, 0);
    assert!(recording.events.is_sorted_by_key(|event| event.at));
    of(&recording.events, LATEST.load(Relaxed).addr())
}

#[test]
fn a_line_is_handed_through_in_order() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    let mutex: Mutex<study::policy::Fifo> = RawLock::new();
    let events = recorded(|| {
        thread::scope(|s| {
            mutex.lock();
            (1..=3).for_each(|n| _ = wait_in_line(s, &mutex, n));
            mutex.unlock();
        });
    });
    let expected =
        [Kind::StarvingEnter, Kind::Sleep, Kind::Sleep, Kind::Sleep, Kind::Handoff, Kind::Handoff, Kind::Handoff];
    assert_eq!(kinds(&events)[..7], expected);
    assert_eq!(kinds(&events)[7..], [Kind::StarvingExit]);
    let slept: Vec<_> = events.iter().filter(|e| e.kind == Kind::Sleep).map(|e| (e.who, e.waiter)).collect();
    let served: Vec<_> = events.iter().filter(|e| e.kind == Kind::Handoff).map(|e| (e.who, e.waiter)).collect();
    for (n, (sleeper, handover)) in slept.iter().zip(&served).enumerate() {
        assert_eq!(sleeper.1, handover.1, "handover {n} is to another than the longest waiting");
        assert!(n == 0 || handover.0 == slept[n - 1].0, "by the one before");
    }
    assert_eq!(events[7].who, slept[2].0, "the last ends it");
}

#[test]
fn overtaken_requeued_starving() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    for _ in 0..ROUNDS {
        let mutex: Mutex<AtOnce> = RawLock::new();
        let events = recorded(|| {
            thread::scope(|s| {
                mutex.lock();
                let waiter = wait_in_line(s, &mutex, 1);
                mutex.unlock(); // wakes the waiter ...
                if mutex.try_lock() {
                    eventually(|| in_line() == 1 || waiter.is_finished()); // ... which loses
                    mutex.unlock();
                }
            });
        });
        if events.iter().all(|event| event.kind != Kind::Requeue) {
            continue; // the waiter was faster
        }
        // The newcomer found no counted waiter: the waiter that it overtook was awake.
        let expected = [Kind::Sleep, Kind::Wake, Kind::StarvingEnter, Kind::Requeue, Kind::Handoff, Kind::StarvingExit];
        assert_eq!(kinds(&events), expected);
        assert!(events[0].waiter == events[1].waiter && events[3].waiter == events[4].waiter);
        let [sleeper, waker] = [events[0].who, events[1].who];
        assert_ne!(sleeper, waker);
        assert_eq!([2, 3, 4, 5].map(|n| events[n].who), [sleeper, sleeper, waker, sleeper]);
        return;
    }
    panic!("nobody was ever beaten");
}

#[test]
fn a_newcomer_overtakes_sleepers() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    for _ in 0..ROUNDS {
        let mutex: Mutex<study::policy::Go1_8> = RawLock::new();
        let events = recorded(|| {
            thread::scope(|s| {
                mutex.lock();
                (1..=2).for_each(|n| _ = wait_in_line(s, &mutex, n));
                mutex.unlock(); // wakes one waiter
                if mutex.try_lock() {
                    mutex.unlock();
                }
            });
        });
        if events.iter().any(|event| event.kind == Kind::Barge && event.who == events[2].who) {
            return;
        } // else both waiters had woken up in time
    }
    panic!("nobody was ever overtaken");
}

#[test]
fn a_waiter_that_gives_up_leaves() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    let mutex: Mutex<study::policy::Fifo> = RawLock::new();
    let events = recorded(|| {
        mutex.lock();
        assert!(!thread::scope(|s| s.spawn(|| mutex.try_lock_for(Duration::from_millis(300))).join().unwrap()));
        mutex.unlock();
    });
    assert_eq!(kinds(&events), [Kind::StarvingEnter, Kind::Sleep, Kind::Leave, Kind::StarvingExit]);
}

/// A semaphore that cannot hand over. While `HELD` is set, an acquirer is held before it queues.
struct Slow(TableSema<Observed>);

static HELD: AtomicBool = AtomicBool::new(false);
static AT_GATE: AtomicBool = AtomicBool::new(false);

// SAFETY: every call is passed on to `TableSema`, which keeps the contract of `Semaphore`; a delay before `acquire`
// breaks no rule.
unsafe impl Semaphore for Slow {
    const LIFO: bool = true;
    const FIFO: bool = true;
    const HANDOFF: bool = false;
    const DEADLINES: bool = false;

    fn new(permits: u32) -> Self {
        Self(Semaphore::new(permits))
    }

    fn acquire(&self, order: Order) {
        AT_GATE.store(true, Relaxed);
        eventually(|| !HELD.load(Relaxed));
        self.0.acquire(order);
    }

    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }

    fn release(&self, _: Wake) {
        self.0.release(Wake::Normal);
    }
}

#[test]
fn a_token_is_stolen() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    let mutex: GoMutex<Slow, study::policy::Recorded<study::policy::Fifo>> = RawLock::new();
    event::start();
    thread::scope(|s| {
        mutex.lock();
        HELD.store(true, Relaxed);
        s.spawn(|| {
            mutex.lock();
            mutex.unlock();
        });
        eventually(|| AT_GATE.load(Relaxed)); // the waiter starves, and is on its way to the queue
        mutex.unlock(); // no waiter is queued yet, so the mutex is not handed over
        mutex.lock(); // as a newcomer, which must queue, but finds the permit
        HELD.store(false, Relaxed);
        mutex.unlock();
    });
    let events = event::stop().events;
    let stolen: Vec<_> = events.iter().filter(|event| event.kind == Kind::StolenToken).collect();
    assert_eq!(stolen.len(), 1, "{events:?}");
    assert_eq!(stolen[0].who, Who::Thread(own_number()));
}

/// Returns the number of the calling thread in events.
fn own_number() -> u64 {
    event::start();
    event::record(Kind::Want, 1, 0);
    match event::stop().events[..] {
        [Event { who: Who::Thread(n), .. }] => n,
        ref events => panic!("{events:?}"),
    }
}

#[test]
fn types_that_do_not_report_are_silent() {
    let (_watchdog, _alone) = (Watchdog::new(), alone());
    let mutex = sudog::sync::Mutex::new(0);
    let permits = AtomicU32::new(0);
    event::start();
    thread::scope(|s| {
        let guard = mutex.lock();
        s.spawn(|| *mutex.lock() += 1);
        s.spawn(|| sema::semacquire(&permits));
        eventually(|| sema::waiters(&permits) == 1);
        drop(guard);
        sema::semrelease(&permits, Wake::Handoff);
    });
    let events = event::stop().events;
    if cfg!(feature = "event") {
        assert!(events.iter().any(|event| event.kind == Kind::Sleep), "{events:?}");
    } else {
        assert!(events.is_empty(), "{events:?}");
    }
}

#[test]
fn outside_of_a_recording_nothing_is_recorded() {
    let _alone = alone();
    event::record(Kind::Want, 1, 0);
    assert!(event::stop().events.is_empty(), "stopped before it was started");
    event::start();
    event::record(Kind::Want, 2, 0);
    event::start();
    event::record(Kind::Want, 3, 0);
    let recording = event::stop();
    event::record(Kind::Want, 4, 0);
    assert_eq!(recording.events.iter().map(|e| e.addr).collect::<Vec<_>>(), [3], "a start begins anew");
    assert!(event::stop().events.is_empty());
}

#[test]
fn a_ring_drops_its_oldest_and_counts_them() {
    let _alone = alone();
    let n = Recorder::CAPACITY + 100;
    event::start();
    (0..n).for_each(|i| event::record(Kind::Want, i, i));
    let recording = event::stop();
    assert_eq!((recording.events.len(), recording.dropped), (Recorder::CAPACITY, 100));
    assert!(recording.events.iter().map(|e| (e.addr, e.waiter)).eq((100..n).map(|i| (i, i))), "in order, and whole");
}

#[test]
fn threads_that_end_leave_their_events() {
    let _alone = alone();
    event::start();
    for i in 0..20 {
        thread::spawn(move || event::record(Kind::Want, i, 0)).join().unwrap();
    }
    let events = event::stop().events;
    assert!(events.iter().map(|e| e.addr).eq(0..20));
    assert!(events.is_sorted_by_key(|e| e.who) && events.windows(2).all(|e| e[0].who != e[1].who), "{events:?}");
}

#[test]
#[cfg(unix)]
fn goroutines_have_their_own_names() {
    use sudog::{run, spawn};

    let _alone = alone();
    event::start();
    run(|| {
        spawn(|| event::record(Kind::Want, 0, 0)).join().unwrap();
        event::record(Kind::Want, sudog_runtime::goroutine_id() as usize, 0);
    });
    let mut events = event::stop().events;
    events.retain(|event| event.kind == Kind::Want); // the feature `event` adds other events
    let [a, b] = events[..] else { panic!("{events:?}") };
    assert!(matches!(a.who, Who::Goroutine(_)) && a.who != b.who, "{events:?}");
    assert_eq!(b.who, Who::Goroutine(b.addr as u64));
}

/// A recording that ends while other threads record is whole, and each thread's events are in order.
#[test]
fn a_recording_ends_while_others_record() {
    let (watchdog, _alone) = (Watchdog::new(), alone());
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        for thread in 0..3 {
            let over = &over;
            s.spawn(move || {
                let mut n = 0;
                while !over.load(Relaxed) {
                    event::record(Kind::Locked, thread, n);
                    n += 1;
                }
            });
        }
        let mut recorded = 0;
        for _ in 0..50 {
            event::start();
            thread::sleep(Duration::from_micros(500));
            let recording = event::stop();
            for thread in 0..3 {
                let mine = of(&recording.events, thread);
                assert!(mine.windows(2).all(|e| e[0].waiter < e[1].waiter && e[0].who == e[1].who));
                recorded += mine.len();
            }
            watchdog.pat();
        }
        over.store(true, Relaxed);
        assert!(recorded > 0);
    });
}

/// A snapshot has all events that have been recorded so far, and so contains the snapshot before. `stop` returns all events.
#[test]
fn a_snapshot_leaves_the_recording_on() {
    let _alone = alone();
    assert!(event::snapshot().events.is_empty(), "there is no recording");
    event::start();
    for n in 1..=3 {
        event::record(Kind::Want, 0x70, n);
        let events = of(&event::snapshot().events, 0x70);
        assert!(events.iter().map(|e| e.waiter).eq(1..=n), "{events:?}");
    }
    assert_eq!(of(&event::stop().events, 0x70).len(), 3);
    assert!(event::snapshot().events.is_empty(), "the recording has ended");
}

/// The trace of a handoff is JSON, with a named track for each actor, and an arrow from the waker to the sleeper.
#[test]
fn a_handoff_is_an_arrow_in_the_trace() {
    let (watchdog, _alone) = (Watchdog::new(), alone());
    let semaphore = Listed::new(0);
    event::start();
    thread::scope(|s| {
        s.spawn(|| semaphore.acquire(Order::Fifo)); // stores the semaphore in `LATEST`
        eventually(|| in_line() == 1);
        semaphore.release(Wake::Handoff);
    });
    LATEST.store(ptr::null_mut(), Relaxed);
    watchdog.pat();
    let mut trace = Vec::new();
    event::stop().write_trace(&mut trace).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let lock = format!("{:#x}", ptr::from_ref(&semaphore).addr());
    let find = |name: &str| {
        let mut found = events.iter().filter(|e| e["name"] == name && e["args"]["lock"] == lock.as_str());
        (found.next().unwrap_or_else(|| panic!("no {name}: {trace}")), found.count())
    };
    let ((asleep, more), (handoff, others)) = (find("asleep"), find("handoff"));
    assert_eq!((more, others), (0, 0), "{trace}");
    assert_eq!(asleep["args"]["until"], "handoff");
    let end = asleep["ts"].as_f64().unwrap() + asleep["dur"].as_f64().unwrap();
    assert!((end - handoff["ts"].as_f64().unwrap()).abs() < 0.01, "{trace}");
    let arrow = |ph: &str| events.iter().find(|e| e["ph"] == ph).unwrap_or_else(|| panic!("no arrow: {trace}"));
    assert_eq!((&arrow("s")["tid"], &arrow("f")["tid"]), (&handoff["tid"], &asleep["tid"]));
    let named = |track: &serde_json::Value| events.iter().any(|e| e["name"] == "thread_name" && e["tid"] == *track);
    assert!(handoff["tid"] != asleep["tid"] && named(&handoff["tid"]) && named(&asleep["tid"]), "{trace}");
}
