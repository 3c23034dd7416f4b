//! The life of a scheduler, all of it at once: schedulers that begin and end, work that comes from outside as they do, wakers and
//! calls that come long after. Each closure runs or is dropped, once, and each scheduler and worker is used again.
#![cfg(all(unix, not(sudog_loom)))]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use sudog::context::{self, CancelFunc};
use sudog::runtime::sema::semacquire;
use sudog::runtime::{goexit, gosched, max_procs, num_goroutine, set_max_procs};
use sudog::sync::Mutex;
use sudog::time::{sleep, sleep_async};
use sudog::{Builder, Placement, Scheduler, blocking, go, go_async, on_goroutine, run, spawn};
use sudog_runtime::goroutine::census;
use support::{Watchdog, eventually};

const MICROSECOND: Duration = Duration::from_micros(1);

/// What comes when the scheduler that it is for may be over.
enum Late {
    Waker(Waker),
    Cancel(context::Context, CancelFunc),
}

struct World {
    /// What has become of each ticket.
    tickets: Box<[AtomicU8]>,
    next: AtomicUsize,
    late: std::sync::Mutex<Vec<Late>>,
    mutex: Mutex<u32>,
    /// How many calls of contexts have come in time.
    calls: AtomicUsize,
}

const MADE: u8 = 1;
const RAN: u8 = 2;
const DROPPED: u8 = 3;
const RAN_AND_DROPPED: u8 = 4;

/// What a closure has that the runtime may run once, and must drop once.
struct Ticket {
    world: Arc<World>,
    number: usize,
}

impl Ticket {
    fn run(&self) {
        let before = self.world.tickets[self.number].swap(RAN, SeqCst);
        assert_eq!(before, MADE, "run twice, or after it was dropped");
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let place = &self.world.tickets[self.number];
        let now = if place.load(SeqCst) == RAN { RAN_AND_DROPPED } else { DROPPED };
        let before = place.swap(now, SeqCst);
        assert!(before == MADE || before == RAN, "dropped twice");
    }
}

/// Runs a closure when it is dropped.
struct Then<F: FnMut()>(F);

impl<F: FnMut()> Drop for Then<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Leaves its waker to others, and waits for some wakes.
struct Stashes {
    ticket: Ticket,
    polls: u32,
}

impl Future for Stashes {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.polls == 0 {
            self.ticket.run();
            return Poll::Ready(());
        }
        self.polls -= 1;
        self.ticket.world.come_late(Late::Waker(cx.waker().clone()));
        Poll::Pending
    }
}

/// Marsaglia's xorshift.
struct Random(u32);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % n
    }
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            tickets: (0..1 << 18).map(|_| AtomicU8::new(0)).collect(),
            next: AtomicUsize::new(0),
            late: std::sync::Mutex::default(),
            mutex: Mutex::new(0),
            calls: AtomicUsize::new(0),
        })
    }

    fn ticket(self: &Arc<Self>) -> Ticket {
        let number = self.next.fetch_add(1, Relaxed);
        self.tickets[number].store(MADE, SeqCst);
        Ticket { world: self.clone(), number }
    }

    fn closure(self: &Arc<Self>) -> impl FnOnce() + Send + use<> {
        let ticket = self.ticket();
        move || ticket.run()
    }

    fn come_late(&self, late: Late) {
        self.late.lock().unwrap().push(late);
    }

    /// What a destructor may do, on a goroutine or, late, on any thread.
    fn destroy(self: &Arc<Self>, how: u32) {
        match how % 10 {
            0 => sleep(20 * MICROSECOND),
            1 => *self.mutex.lock() += 1,
            2 => gosched(),
            3 => go(self.closure()),
            4 => go_async(Stashes { ticket: self.ticket(), polls: 1 }),
            5 => _ = spawn(self.closure()).join(),
            6 => {
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    gosched();
                    resume_unwind(Box::new(1));
                }));
            }
            7 if on_goroutine() => Builder::new().on(Placement::Worker(0)).go(self.closure()),
            8 => blocking(|| thread::sleep(10 * MICROSECOND)),
            _ if on_goroutine() && !thread::panicking() => goexit(),
            _ => {}
        }
    }

    /// One thing that a goroutine of a scheduler does. `places`: how many workers the scheduler has at least.
    fn act(self: &Arc<Self>, how: u32, places: u32) {
        let world = self.clone();
        match how % 10 {
            0 => go(self.closure()),
            1 => Builder::new().on(Placement::Worker((how / 10 % places) as usize)).go(self.closure()),
            2 => {
                let ticket = self.ticket();
                go(move || {
                    ticket.run();
                    let _then = Then(|| world.destroy(how / 10));
                    let _then = Then(|| world.destroy(how / 10 + 3));
                    semacquire(&AtomicU32::new(0));
                });
            }
            3 => {
                let captured = Then(move || world.destroy(how / 10));
                let ticket = self.ticket();
                go(move || {
                    ticket.run();
                    drop(captured);
                });
            }
            4 => go_async(Stashes { ticket: self.ticket(), polls: 1 + how / 10 % 3 }),
            5 => {
                let (ctx, cancel) = context::with_timeout(&context::background(), (how / 10 % 400) * MICROSECOND);
                let (ticket, then) = (self.ticket(), Then(move || world.destroy(how / 10)));
                let _after = context::after_func(&ctx, move || {
                    ticket.run();
                    ticket.world.calls.fetch_add(1, Relaxed);
                    drop(then);
                });
                self.come_late(Late::Cancel(ctx, cancel));
            }
            6 => {
                let ticket = self.ticket();
                go(move || {
                    ticket.run();
                    blocking(|| thread::sleep((how / 10 % 200) * MICROSECOND));
                });
            }
            7 => {
                let ticket = self.ticket();
                go_async(async move {
                    sleep_async((how / 10 % 1000) * MICROSECOND).await;
                    ticket.run();
                });
            }
            8 => {
                // While the scheduler ends, too.
                let place = (how / 10 % places) as usize;
                go(move || {
                    for _ in 0..10 {
                        Builder::new().on(Placement::Worker(place)).go(world.closure());
                        gosched();
                    }
                });
            }
            _ => go(move || {
                // While it unwinds, and its scheduler lives, it may wait for nothing that its own worker has to do.
                let does_not_wait = [0, 2, 3, 4, 6, 7][how as usize / 10 % 6];
                let ticket = world.ticket();
                let _then = Then(move || ticket.world.destroy(does_not_wait));
                goexit();
            }),
        }
    }

    /// A thread that wakes, cancels and drops what comes late, until all have ended and there is no more.
    fn be_late(&self, random: &mut Random, over: &AtomicBool) {
        loop {
            let ended = over.load(SeqCst);
            let late = {
                let mut late = self.late.lock().unwrap();
                let n = late.len() as u32;
                (n > 0).then(|| late.swap_remove(random.below(n) as usize))
            };
            match late {
                None if ended => return,
                None => thread::sleep(20 * MICROSECOND),
                Some(Late::Waker(waker)) => match random.below(4) {
                    // Not dropped alone: a task of a `run` that nothing wakes stays, and so does the scheduler that it counts in.
                    0 => {
                        drop(waker.clone());
                        waker.wake();
                    }
                    1 => waker.wake_by_ref(),
                    _ => waker.wake(),
                },
                Some(Late::Cancel(ctx, cancel)) => match random.below(3) {
                    0 => cancel.cancel(),
                    1 => drop((ctx, cancel)),
                    _ => {
                        ctx.wait(); // the alarm's thread is the one that calls
                    }
                },
            }
            if random.below(8) == 0 {
                thread::sleep(random.below(100) * MICROSECOND);
            }
        }
    }
}

fn runs(world: &Arc<World>, random: &mut Random, rounds: u32, watchdog: &Watchdog) {
    for _ in 0..rounds {
        run(|| {
            set_max_procs(2);
            for _ in 0..random.below(20) {
                world.act(random.0 >> 4, 2);
                match random.below(8) {
                    0 => _ = set_max_procs(2 + random.below(3) as usize),
                    1 => sleep(random.below(100) * MICROSECOND),
                    2 | 3 => gosched(),
                    _ => {}
                }
            }
        });
        watchdog.pat();
    }
}

fn active_sets(world: &Arc<World>, random: &mut Random, rounds: u32, watchdog: &Watchdog) {
    for _ in 0..rounds {
        let scheduler = Scheduler::new();
        for _ in 0..2 {
            let acts: Vec<u32> = (0..random.below(12)).map(|_| random.below(1 << 24)).collect();
            thread::scope(|s| {
                let outside = scheduler.keep_alive();
                let scheduler = &scheduler;
                s.spawn(move || {
                    _ = catch_unwind(AssertUnwindSafe(|| {
                        scheduler.run(|| acts.iter().for_each(|&how| world.act(how, 1)))
                    }))
                });
                if random.below(2) == 0 {
                    s.spawn(|| scheduler.run(gosched));
                }
                if random.below(4) == 0 {
                    thread::yield_now();
                }
                drop(outside);
            });
            watchdog.pat();
        }
        // What was given up while others have its waker counts until they have done with it.
        eventually(|| scheduler.num_goroutine() == 0);
        watchdog.pat();
    }
}

#[test]
fn everything_at_once() {
    let (runners, schedulers) = if cfg!(debug_assertions) { (300, 120) } else { (1000, 400) };
    let watchdog = Watchdog::new();
    let world = World::new();
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        for seed in [7, 8] {
            let (world, over) = (&world, &over);
            s.spawn(move || world.be_late(&mut Random(seed), over));
        }
        let mut threads = Vec::new();
        for seed in 1..=3 {
            let (world, watchdog) = (&world, &watchdog);
            threads.push(s.spawn(move || runs(world, &mut Random(seed * 0x9e37), runners, watchdog)));
        }
        for seed in 4..=5 {
            let (world, watchdog) = (&world, &watchdog);
            threads.push(s.spawn(move || active_sets(world, &mut Random(seed * 0x9e37), schedulers, watchdog)));
        }
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        over.store(true, SeqCst);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    // Workers of a `run` may end after it, and destructors on the threads of alarms, and in the background.
    let made = || &world.tickets[..world.next.load(SeqCst)];
    eventually(|| {
        world.be_late(&mut Random(9), &over);
        made().iter().all(|ticket| ticket.load(SeqCst) >= DROPPED)
    });
    let ran = made().iter().filter(|ticket| ticket.load(SeqCst) == RAN_AND_DROPPED).count();
    let calls = world.calls.load(SeqCst);
    assert!(ran > 0 && ran < made().len() && calls > 0, "{ran} of {}, {calls}", made().len());
    // All sets but the one in the background are spare, and all workers but its own.
    eventually(|| {
        let now = census();
        now.scheds == now.spare_scheds + 1 && now.workers <= now.spare_workers + max_procs()
    });
    eventually(|| num_goroutine() == 0); // in the background
    let before = census();
    for _ in 0..before.scheds + 10 {
        assert_eq!(run(num_goroutine), 1, "main");
        Scheduler::new().run(|| assert_eq!(num_goroutine(), 1));
    }
    assert_eq!(census().scheds, before.scheds);
}
