//! The end of a scheduler: goroutines that are unwound, destructors that wait, work that has not begun, and the next epoch.
#![cfg(all(unix, not(sudog_loom)))]

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use sudog::runtime::sema::{Wake, semacquire, semacquire_async, semrelease, waiters};
use sudog::runtime::{gosched, set_max_procs};
use sudog::sync::{Cond, Mutex, WaitGroup};
use sudog::time::{Timer, sleep, sleep_async};
use sudog::{
    Builder, OnPanic, Placement, Scheduler, block_on, blocking, go, go_async, run, run_local, spawn, spawn_async,
};
use support::{Watchdog, eventually};

/// Runs a closure when it is dropped.
struct Then<F: FnMut()>(F);

impl<F: FnMut()> Drop for Then<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn forever() {
    semacquire(&AtomicU32::new(0));
}

// ---- destructors that wait ------------------------------------------------------------------------------------------

/// Destructors of goroutines that are given up wait for one another: the owner of what they want is unwound too.
#[test]
fn destructors_wait_for_one_another() {
    let watchdog = Watchdog::new();
    for holder_is_older in [true, false] {
        let (data, never) = (Arc::new(Mutex::new(0)), Arc::new(AtomicU32::new(0)));
        let waits = data.clone();
        let wants = {
            let never = never.clone();
            move || {
                let _then = Then(|| *waits.lock() += 1);
                let _then = Then(|| sleep(Duration::from_micros(1)));
                semacquire(&never);
            }
        };
        let (holds, asks) = (data.clone(), never.clone());
        let has = move || {
            let mut guard = holds.lock();
            let _then = Then(|| {
                gosched();
                *guard += 10;
            });
            semacquire(&asks);
        };
        run_local(move || {
            if holder_is_older {
                go(has);
                go(wants);
            } else {
                go(wants);
                go(has);
            }
        });
        assert_eq!(*data.try_lock().expect("all guards are dropped"), 11);
        assert_eq!(waiters(&never), 0);
        watchdog.pat();
    }
}

/// One that is unwound in `Cond::wait` has to lock the mutex again, which a goroutine of the same worker has.
#[test]
fn a_mutex_is_locked_again_after_its_holder_is_gone() {
    let watchdog = Watchdog::new();
    for holder_is_older in [true, false] {
        let shared = Arc::new((Mutex::new(0), Cond::new(), AtomicU32::new(0)));
        let (a, b) = (shared.clone(), shared.clone());
        let waits = move || {
            let mut guard = a.0.lock();
            a.1.wait(&mut guard);
        };
        let holds = move || {
            while b.1.waiters() == 0 {
                gosched();
            }
            let _guard = b.0.lock();
            semacquire(&b.2);
        };
        run_local(move || {
            if holder_is_older {
                go(holds);
                go(waits);
            } else {
                go(waits);
                go(holds);
            }
        });
        assert!(shared.0.try_lock().is_some());
        assert_eq!((shared.1.waiters(), waiters(&shared.2)), (0, 0));
        watchdog.pat();
    }
}

/// A destructor waits for a foreign thread, which is slow.
#[test]
fn a_destructor_waits_for_a_thread() {
    let _watchdog = Watchdog::new();
    let (asked, answered) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (ask, answer) = (asked.clone(), answered.clone());
    let thread = thread::spawn(move || {
        semacquire(&ask);
        thread::yield_now();
        semrelease(&answer, Wake::Handoff);
    });
    run_local(move || {
        go(move || {
            let _then = Then(|| {
                semrelease(&asked, Wake::Normal);
                semacquire(&answered);
            });
            forever();
        });
        go(forever); // is unwound meanwhile
    });
    thread.join().unwrap();
}

/// The destructor of what was placed here, and has not begun, may want a lock that another destructor has, and keeps
/// for a while.
#[test]
fn the_unbegun_may_want_what_the_dying_have() {
    let watchdog = Watchdog::new();
    // A worker looks for what was placed at every 64th choice: in one of these rounds, just before the scheduler is over.
    for choices in 0..64 {
        let data = Arc::new(Mutex::new(0));
        let (held, wanted) = (data.clone(), data.clone());
        run(move || {
            let here = || Builder::new().on(Placement::Here);
            let then = Then(move || *wanted.lock() += 1);
            here().go(move || {
                let _guard = held.lock();
                let _then = Then(|| sleep(Duration::from_micros(100)));
                forever();
            });
            while data.try_lock().is_some() {
                gosched();
            }
            here().go(move || {
                let _then = then;
            });
            for _ in 0..choices {
                gosched();
            }
        });
        watchdog.pat();
    }
}

/// A goroutine readied by one that is being unwound is resumed when it is in no queue any more: in one pass a readies b
/// and x, b ends, and x, which is behind b in the queue, readies y.
#[test]
fn the_dying_ready_one_another() {
    let _watchdog = Watchdog::new();
    let [b, x, y] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
    run_local(move || {
        let takes_y = y.clone();
        go(move || {
            let _then = Then(|| semacquire(&takes_y));
            forever();
        });
        let takes_x = x.clone();
        go(move || {
            let _then = Then(|| {
                semacquire(&takes_x);
                semrelease(&y, Wake::Normal);
            });
            forever();
        });
        let takes_b = b.clone();
        go(move || {
            let _then = Then(|| semacquire(&takes_b));
            forever();
        });
        go(move || {
            let _then = Then(|| {
                gosched();
                semrelease(&b, Wake::Normal);
                semrelease(&x, Wake::Normal);
            });
            forever();
        });
    });
}

/// A destructor starts goroutines and waits for them. They do not begin: the scheduler is over. But the wait ends.
#[test]
fn a_destructor_waits_for_what_never_begins() {
    let watchdog = Watchdog::new();
    let waits: [fn(); 6] = [
        || assert!(spawn(|| ()).join().is_err()),
        || assert!(block_on(spawn_async(async {})).is_err()),
        || {
            let group = Arc::new(WaitGroup::new());
            group.go(|| ());
            group.wait();
        },
        || {
            Builder::new().on(Placement::Here).go(|| ());
            gosched();
        },
        || {
            Builder::new().on(Placement::Worker(0)).stack_size(1 << 20).go(|| ());
            go_async(async {});
            sleep(Duration::from_micros(50));
        },
        // A worker that there is not: dropped, not refused, as a panic would end the process.
        || Builder::new().on(Placement::Worker(3)).go(|| ()),
    ];
    for wait in waits {
        run_local(move || {
            go(move || {
                let _then = Then(wait);
                forever();
            });
        });
        watchdog.pat();
    }
}

/// The realistic case: a guard that joins a child which has not begun when main returns.
#[test]
fn a_guard_joins_a_child() {
    let _watchdog = Watchdog::new();
    run(|| {
        set_max_procs(1);
        let started = Arc::new(AtomicBool::new(false));
        let has_started = started.clone();
        go(move || {
            let mut child = Some(spawn(|| ()));
            let _join = Then(|| _ = child.take().map(|child| child.join()));
            has_started.store(true, Relaxed);
            gosched(); // main goes on, and returns
            forever();
        });
        while !started.load(Relaxed) {
            gosched();
        }
    });
}

/// A destructor starts a goroutine in a `run` that is over, and takes so long that the watcher sees it: it starts no
/// goroutine.
#[test]
fn no_worker_is_started_for_a_scheduler_that_is_over() {
    static RAN: AtomicBool = AtomicBool::new(false);
    let _watchdog = Watchdog::new();
    let witness = Arc::new(());
    let captured = witness.clone();
    run(move || {
        set_max_procs(2);
        let up = Arc::new(AtomicU32::new(0));
        let is_up = up.clone();
        Builder::new().on(Placement::Here).go(move || {
            let _then = Then(|| {
                let captured = captured.clone();
                go(move || {
                    RAN.store(true, Relaxed);
                    let _captured = captured;
                    forever();
                });
                sleep(Duration::from_millis(50));
            });
            semrelease(&is_up, Wake::Normal);
            forever();
        });
        semacquire(&up);
    });
    eventually(|| Arc::strong_count(&witness) == 1);
    assert!(!RAN.load(Relaxed));
}

// ---- destructors that run when the unwinding is over ----------------------------------------------------------------

/// Its destructor asks a thread for a permit, and waits for it.
struct Asks(Arc<[AtomicU32; 3]>);

impl Drop for Asks {
    fn drop(&mut self) {
        let [asked, answered, done] = &*self.0;
        semrelease(asked, Wake::Normal);
        semacquire(answered);
        done.fetch_add(1, Relaxed);
    }
}

sudog::goroutine_local! {
    static KEPT: RefCell<Vec<Asks>> = RefCell::new(Vec::new());
}

/// Waits for ever whenever it is polled, as a goroutine does; the next field is dropped after the unwinding.
struct Blocks {
    _asks: Asks,
}

impl Future for Blocks {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        forever();
        Poll::Ready(())
    }
}

/// What is left when a goroutine has been unwound has destructors too, and they may wait as well: those of its locals,
/// of the future that it polled, of an unwanted result.
#[test]
fn what_is_dropped_last_may_wait() {
    let watchdog = Watchdog::new();
    let lives: [fn(Asks); 5] = [
        |asks| KEPT.with(|kept| kept.borrow_mut().push(asks)), // of main, which ends before its locals do
        |asks| {
            go(|| {
                KEPT.with(|kept| kept.borrow_mut().push(asks));
                forever();
            });
        },
        |asks| {
            let started = Arc::new(AtomicU32::new(0));
            let starts = started.clone();
            go_async(async move {
                semrelease(&starts, Wake::Normal);
                Blocks { _asks: asks }.await;
            });
            semacquire(&started);
        },
        |asks| {
            let blocks = Blocks { _asks: asks };
            drop(spawn_async(blocks));
            gosched();
        },
        |asks| {
            drop(spawn(move || {
                let _ = catch_unwind(forever);
                asks
            }));
            gosched();
        },
    ];
    for on_run in [true, false] {
        // A scheduler that is at rest gives up main in its destructor, as anywhere else.
        for &live in &lives[usize::from(!on_run)..] {
            let state = Arc::new([const { AtomicU32::new(0) }; 3]);
            let (asks, answers) = (Asks(state.clone()), state.clone());
            let thread = thread::spawn(move || {
                semacquire(&answers[0]);
                thread::yield_now();
                semrelease(&answers[1], Wake::Normal);
            });
            if on_run {
                run(move || {
                    set_max_procs(1);
                    live(asks);
                    gosched();
                });
            } else {
                run_local(move || live(asks));
            }
            thread.join().unwrap();
            assert_eq!(state[2].load(Relaxed), 1, "a destructor was cut short");
            watchdog.pat();
        }
    }
}

// ---- the next epoch -------------------------------------------------------------------------------------------------

/// A scheduler begins anew while a worker of its last epoch still unwinds: that one leaves the new goroutines alone.
#[test]
fn a_scheduler_begins_anew_while_it_ends() {
    const MANY: usize = 2000; // more than fit into a ring
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    let scheduler = Scheduler::new();
    let has_left = &AtomicBool::new(false);
    thread::scope(|s| {
        let scheduler = &scheduler;
        let (over, is_over) = std::sync::mpsc::channel();
        s.spawn(move || {
            scheduler.run(move || {
                go(move || {
                    let _then = Then(|| {
                        over.send(()).unwrap();
                        sleep(Duration::from_millis(20));
                    });
                    forever();
                });
            });
            has_left.store(true, Relaxed);
        });
        is_over.recv().unwrap();
        scheduler.run(|| {
            for _ in 0..MANY {
                go(|| _ = RUNS.fetch_add(1, Relaxed));
            }
            // None of them runs before the other has dropped what it believes to be its own.
            while !has_left.load(Relaxed) {
                thread::yield_now();
            }
        });
    });
    assert_eq!(RUNS.load(Relaxed), MANY);
}

/// Two schedulers come and go: whichever comes as the scheduler is ending, its main runs, and so do its goroutines and tasks.
#[test]
fn schedulers_come_and_go() {
    let rounds = if cfg!(debug_assertions) { 3000 } else { 20_000 };
    let watchdog = Watchdog::new();
    let scheduler = Scheduler::new();
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..rounds {
                    let done = Arc::new(AtomicU32::new(0));
                    let (by_goroutine, by_task) = (done.clone(), done.clone());
                    scheduler.run(|| {
                        go(move || _ = by_goroutine.fetch_add(1, Relaxed));
                        go_async(async move { _ = by_task.fetch_add(1, Relaxed) });
                    });
                    assert_eq!(done.load(Relaxed), 2);
                    watchdog.pat();
                }
            });
        }
    });
}

// ---- everything at once ---------------------------------------------------------------------------------------------

struct World {
    mutex: Mutex<u32>,
    cond: Cond,
    permits: AtomicU32,
    live: AtomicUsize,
    /// Not in a scheduler of one's own: they would keep it from being at rest.
    sleepers: bool,
}

impl World {
    /// What a destructor may do, be it wise or not.
    fn destroy(self: &Arc<Self>, how: u32) {
        match how % 10 {
            0 => sleep(Duration::from_micros(30)),
            1 => *self.mutex.lock() += 1,
            2 => gosched(),
            3 => {
                let mut guard = self.mutex.lock();
                self.cond.wait_until(&mut guard, Instant::now() + Duration::from_micros(50));
            }
            4 => {
                go(|| ());
                gosched();
            }
            5 => {
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    let _guard = self.mutex.lock();
                    gosched();
                    resume_unwind(Box::new(1));
                }));
            }
            6 => {
                let world = self.clone();
                block_on(async move {
                    semrelease(&world.permits, Wake::Normal);
                    semacquire_async(&world.permits).await;
                    sleep_async(Duration::from_micros(30)).await;
                });
            }
            7 => blocking(|| thread::sleep(Duration::from_micros(30))),
            8 => {
                go_async(async { sleep_async(Duration::from_micros(30)).await });
                self.cond.broadcast();
            }
            _ => _ = Timer::new(Duration::from_micros(20)).recv(),
        }
    }

    /// Lives until it is unwound, in one way or another.
    fn live(self: &Arc<Self>, how: u32) {
        self.live.fetch_add(1, Relaxed);
        let _gone = Then(|| _ = self.live.fetch_sub(1, Relaxed));
        let _first = Then(|| self.destroy(how / 3));
        let _second = Then(|| self.destroy(how + 5));
        match how % 6 {
            0 => forever(),
            1 => self.cond.wait(&mut self.mutex.lock()),
            2 => {
                let _guard = self.mutex.lock();
                forever();
            }
            3 => block_on(semacquire_async(&AtomicU32::new(0))),
            4 => {
                let mut guard = self.mutex.lock();
                self.cond.wait(&mut guard);
                self.cond.wait(&mut guard);
            }
            _ if self.sleepers => sleep(Duration::from_secs(1000)),
            _ => forever(),
        }
    }
}

fn storm(goroutines: u32, sleepers: bool, start: impl FnOnce(Box<dyn FnOnce() + Send>)) {
    let (mutex, cond) = (Mutex::new(0), Cond::new());
    let world = Arc::new(World { mutex, cond, permits: AtomicU32::new(0), live: AtomicUsize::new(0), sleepers });
    let inner = world.clone();
    start(Box::new(move || {
        for how in 0..goroutines {
            let world = inner.clone();
            Builder::new().on_panic(OnPanic::Unwind).go(move || world.live(how));
        }
        while inner.live.load(Relaxed) == 0 {
            gosched();
        }
    }));
    eventually(|| world.live.load(Relaxed) == 0 && world.mutex.try_lock().is_some());
    assert_eq!(waiters(&world.permits), 0);
}

/// Of all sizes, so that all kinds of goroutine and of destructor meet.
fn storms(sleepers: bool, start: impl Fn(Box<dyn FnOnce() + Send>)) {
    let watchdog = Watchdog::new();
    for goroutines in 1..80 {
        storm(goroutines, sleepers, &start);
        watchdog.pat();
    }
}

#[test]
fn a_storm_at_the_end_of_a_run() {
    storms(true, run);
}

#[test]
fn a_storm_at_the_end_of_a_scheduler() {
    storms(false, run_local);
}

#[test]
fn a_storm_at_the_end_of_two_schedulers() {
    storms(false, |main| {
        let scheduler = Scheduler::new();
        let outside = scheduler.keep_alive();
        thread::scope(|s| {
            s.spawn(|| scheduler.run(|| ()));
            s.spawn(|| scheduler.run(main));
            thread::yield_now();
            drop(outside);
        });
    });
}
